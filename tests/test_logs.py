"""What runs and sweeps log at the level INFO: start, progress and end, and nothing unless it is asked for."""

import logging
import subprocess
import sys

import pytest

import dmq_fast as dmq
from dmq_fast import experiments
from dmq_fast.baselines import RLSVI

SPEC = {
    "seeds": 2,
    "environments": [{"name": "lock", "horizon": 3}],
    "algorithms": [{"name": "dmq", "n_samples": 5}, {"name": "uniform", "n_episodes": 8}],
}
RUNS = {
    "self-stopping": (lambda env: dmq.SelfStopping(env, 0.1, rng=0).learn(), "finished", "explore: "),
    "dmq": (lambda env: dmq.DMQ(env, n_samples=5, rng=0).learn(), "ended", "learned level 0 of 4"),
    "baseline": (
        lambda env: RLSVI(env, n_episodes=8, checkpoints=[2, 8], sigma=0.1, rng=0).learn(),
        "ended, 8 episodes, value ",
        "running, 2 episodes, value ",
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_runs_log_start_progress_and_end(name, caplog):
    run, end, between = RUNS[name]
    env = dmq.environments.chain(4, rng=0)
    quiet = run(env)
    assert not caplog.records
    with caplog.at_level(logging.INFO, "dmq_fast"):
        told = run(env)
    assert told.n_trajectories == quiet.n_trajectories
    first, *rest, last = caplog.messages
    assert first.startswith("start: ") and last.startswith(f"end: {end}"), (first, last)
    assert any(line.startswith(between) for line in rest), rest


def test_a_run_that_fails_logs_its_end(caplog):
    class Broken:
        horizon, n_actions, dimension = 2, 2, 1

        def reset(self, n, rng):
            raise RuntimeError("no")

        features = step = reset

    with caplog.at_level(logging.INFO, "dmq_fast"), pytest.raises(RuntimeError, match="no"):
        dmq.DMQ(Broken(), n_samples=5, rng=0).learn()
    assert caplog.messages[-1] == "end: failed, 0 trajectories"


def test_progress_is_shown_as_well(caplog):
    seen = []
    with caplog.at_level(logging.INFO, "dmq_fast"):
        dmq.DMQ(dmq.environments.chain(4, rng=0), n_samples=5, rng=0).learn(progress=seen.append)
    assert [line for line in caplog.messages if line.startswith("learned")] == [one.text(4) for one in seen] != []


@pytest.mark.parametrize("workers", [0, 1])
def test_sweeps_log_start_progress_and_end(workers, tmp_path, caplog):
    with caplog.at_level(logging.INFO, "dmq_fast"):
        experiments.sweep(SPEC, tmp_path, workers=workers)
    own = [one.getMessage() for one in caplog.records if one.name.endswith("scheduler")]
    assert own[0] == f"start: 4 runs of sweep into {tmp_path}" and own[-1] == "end: 4 runs, 4 ended"
    assert any(line.startswith("4 of 4 runs, ") for line in own)


def test_nothing_is_shown_unless_it_is_asked_for():
    program = "import dmq_fast as dmq; dmq.DMQ(dmq.environments.chain(4, rng=0), n_samples=5, rng=0).learn()"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
