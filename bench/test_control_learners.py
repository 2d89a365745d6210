"""Every contestant of control.py learns a little, and the judge finds what is known: nothing is measured.

pytest bench/test_control_learners.py
"""

import numpy as np
import pytest

pytest.importorskip("gymnasium")

import control
import control_learners as learners

pytestmark = pytest.mark.filterwarnings("ignore")  # other packages warn on import


@pytest.fixture(autouse=True)
def few_starts(monkeypatch):
    monkeypatch.setattr(control, "TASKS", {name: task._replace(starts=20) for name, task in control.TASKS.items()})
    monkeypatch.setattr(
        learners, "SARSA", {name: setting._replace(every=1) for name, setting in learners.SARSA.items()}
    )
    monkeypatch.setattr(
        learners, "LSPIS", {name: setting._replace(every=1) for name, setting in learners.LSPIS.items()}
    )


@pytest.mark.parametrize("name", learners.LEARNERS)
def test_contestants(name):
    if not control.installed(name):
        pytest.skip(f"needs {learners.NEEDS[name]}")
    judge = control.Judge("CartPole-v1", 0, 0.0, 10)
    learners.LEARNERS[name](judge)
    assert judge.looks >= 1 and judge.run.episodes >= 1 and judge.run.steps >= 8 * judge.run.episodes
    assert judge.run.seconds > 0.0 and 8.0 <= judge.run.mean <= 500.0


@pytest.mark.parametrize("name", ["Sarsa(λ)", "LSPI"])
def test_an_episode(name):
    run = control.trial("MountainCar-v0", name, 1, 0.0)
    assert run == control.Run(0, 1, 200, run.seconds, -200.0, 0.0)


def test_a_mark_that_is_met():
    """A linear law holds the pole; the clock stands still while it is judged."""

    def hold(level, seen):
        return (seen @ [0.1, 0.5, 2.0, 1.0] > 0).astype(int)

    judge = control.Judge("CartPole-v1", 3, 60.0, 10)
    judge.env().reset(seed=0)
    assert judge.look(hold) and judge.run.met == 1 and judge.run.mean > 475.0 and judge.run.seconds < judge.paused


def test_a_mark_that_is_missed():
    """Pushing the way it moves takes the car up, in more than 115 steps."""
    judge = control.Judge("MountainCar-v0", 3, 60.0, 10)
    judge.env().reset(seed=0)
    mean, arrives = judge.evaluate(
        lambda level, seen: 1 + np.sign(seen[:, 1]).astype(int), 100, np.random.SeedSequence(0)
    )
    assert arrives == 1.0 and -130.0 < mean < -116.0 and not judge.passes(mean, arrives)


def test_the_tiles_of_the_acrobot():
    """Sutton has 12 tilings of each number of coordinates; a displaced tiling has one interval more."""
    tiles = learners.SARSA["Acrobot-v1"].tiles()
    assert tiles.active == 48 and tiles.dimension == 12 * (7**4 + 7**3 + 7**2 + 7)
    columns = tiles(np.array([[1.0, 0.0, 1.0, 0.0, 0.0, 0.0], [0.0, 1.0, -1.0, 0.0, 4.0, -4.0]]))
    assert columns.shape == (2, 48) and columns.min() >= 0 and columns.max() < tiles.dimension


def test_rows_of_the_table():
    one, other = control.Run(1, 30, 4000, 2.5, -98.0, 1.0), control.Run(0, 1000, 90000, 60.0, -180.0, 0.5)
    assert control.row([one, one, other]) == [
        "2 of 3", "30 (30 to —)", "4,000 (4,000 to —)", "2.5 (2.5 to —)", "-98.0 (-180.0 to -98.0)",
    ]  # fmt: skip


def test_a_file_of_runs(tmp_path):
    one, file = control.Run(1, 30, 4000, 2.5, -98.0, 1.0), tmp_path / "runs.csv"
    for _ in range(2):
        assert control.common.Store(file, control.Run).run(("A", "b", 3), lambda: one) == one
    assert len(file.read_text().splitlines()) == 1 and ("A", "b", 3) in control.common.Store(file, control.Run)
