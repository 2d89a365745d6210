"""The same runs in other units, rewards times 7 and 3 less when an episode ends: reports say the same of them."""

import numpy as np
import pytest
import showing

from dmq_fast import DMQ, Stream, compare, environments, experiments
from dmq_fast.baselines import REGISTRY
from dmq_fast.covers.options import noisy_samples
from dmq_fast.environments.noisy import affine, with_noise
from dmq_fast.experiments.report.metrics import QUANTITIES
from dmq_fast.experiments.report.reports import sweep_pictures
from dmq_fast.experiments.report.tables import MEANS, SOLVED, summarise_cells
from dmq_fast.results.appraisal import appraise
from dmq_fast.rewards import RewardModel

SCALE, SHIFT = 7.0, -3.0
IN_POINTS = ("value", "optimal_value")


def own(size, other=False):
    """One of the environments of the sweeps below, in its own or in other units."""
    made = environments.deep_sea(size, rng=0)
    return affine(made, SCALE, SHIFT) if other else made


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Rows of the same sweep in both units.

    Algorithms convert to units of the range, but for DMQ, which needs none where states have features of their own and
    the ridge does not matter, as here.
    """

    def rows(other):
        spec = {
            "seeds": 2,
            "environments": [{"name": "test_units:own", "other": other, "size": [4, 6]}],
            "algorithms": [
                {"name": "dmq", "n_samples": 10},
                {"name": "self-stopping", "epsilon": "10%"},
                {"name": "bpi-ucbvi", "n_episodes": 3000, "epsilon": "30%"},
                {"name": "ucb-q", "n_episodes": 300, "c": 0.01},
            ],
        }
        directory = tmp_path_factory.mktemp("sweep")
        experiments.sweep(spec, directory, workers=0)
        found = experiments.load(directory)
        assert {row["error"] for row in found} == {None}, [row["error"] for row in found]
        for row in found:
            # But for their units the cells are the same, and their times.
            row["seconds"] = 1.0
            row["environment_parameters"] = row["environment_parameters"] | {"other": None}
            row["algorithm_parameters"] = row["algorithm_parameters"] | {"epsilon": "the same"}
            row["cell"] = f"{row['environment_parameters']} {row['algorithm']}"
        return sorted(found, key=lambda row: (row["cell"], row["seed"]))

    return rows(False), rows(True)


def test_runs_are_the_same(swept):
    for mine, image in zip(*swept, strict=True):
        assert image["n_trajectories"] == mine["n_trajectories"], mine["cell"]
        for name in ("value", "uniform_value", "optimal_value"):
            assert image[name] == pytest.approx(SCALE * mine[name] + SHIFT), mine["cell"]
        for name, of in QUANTITIES.items():
            if name not in ("value", "loss"):
                found, expected = of.of(image, 0.95), of.of(mine, 0.95)
                assert found == (None if expected is None else pytest.approx(expected, abs=1e-9)), (name, mine["cell"])


def test_tables_are_the_same_but_for_values_in_points(swept):
    for mine, image in zip(*(summarise_cells(rows, SOLVED) for rows in swept), strict=True):
        for name in {**SOLVED, **MEANS}:
            expected = mine[name] if name not in IN_POINTS else SCALE * mine[name] + SHIFT
            assert image[name] == (None if expected is None else pytest.approx(expected)), (name, mine["cell"])


def test_pictures_are_the_same(swept):
    pytest.importorskip("matplotlib")
    shown, others = (list(sweep_pictures(rows)) for rows in swept)
    assert {one.title for one in shown} >= {"test_units:own: score by size", "test_units:own: episodes by size"}
    assert [one.title for one in shown] == [one.title for one in others]
    for one, other in zip(shown, others, strict=True):
        assert [text.get_text() for text in showing.texts(one.figure)] == [
            text.get_text() for text in showing.texts(other.figure)
        ]
        for axes, again in zip(one.figure.axes, other.figure.axes, strict=True):
            for line, same in zip(axes.lines, again.lines, strict=True):
                np.testing.assert_allclose(same.get_xydata(), line.get_xydata(), atol=1e-9, err_msg=one.title)


def test_noise_changes_no_exact_value_and_multiplies_samples():
    quiet = environments.chain(4)
    for env in (with_noise(quiet, 0.5), affine(with_noise(quiet, 0.5), SCALE, SHIFT)):
        learner = DMQ(env, n_samples=10, rng=0)
        assert learner.parameters.n_samples == 10 + 40 * 4 * 0.25
        worth = appraise(env, learner.learn().policy, 0, Stream(0))
        assert worth["value_standard_error"] is None and worth["score"] is not None
    unknown = RewardModel(noise=3.0)
    assert noisy_samples(10, unknown, 4) == 10 == noisy_samples(10, RewardModel.of(quiet), 4)


def test_a_curve_is_the_same_but_for_its_numbers():
    pytest.importorskip("matplotlib")
    drawn = []
    for env in (own(5), own(5, other=True)):
        result = REGISTRY["ucb-q"](env, n_episodes=100, c=0.01, rng=0).learn()
        (axes,) = result.plot("curve", mdp=env).axes
        drawn.append([np.asarray(line.get_ydata()) for line in axes.lines] + [np.array(axes.get_ylim())])
    assert len(drawn[0]) == 4  # values, optimum, uniform play, and the ends of the axis
    for mine, image in zip(*drawn, strict=True):
        np.testing.assert_allclose(image, SCALE * mine + SHIFT, atol=1e-9)


def test_comparisons_have_scores():
    for env in (own(4), own(4, other=True)):
        found = compare({"a": DMQ(env, n_samples=10, rng=0).learn()}, env).columns
        assert (found["value"], found["loss"], found["score"]) == ([pytest.approx(env.optimal_value)], [0.0], [1.0])
