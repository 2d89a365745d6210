"""The scores of bench/bsuite_exam.py are bsuite's own."""

import importlib
import importlib.util
from pathlib import Path

import numpy as np
import pytest

PATH = Path(__file__).parent.parent / "bench" / "bsuite_exam.py"

if not PATH.exists():
    pytest.skip("the benchmarks are not part of an installed package", allow_module_level=True)
bsuite_exam = importlib.util.module_from_spec(spec := importlib.util.spec_from_file_location("bsuite_exam", PATH))
spec.loader.exec_module(bsuite_exam)

SUMS = ("total_regret", "total_return", "total_perfect", "total_bad_episodes", "raw_return")

RETURNS = {"cartpole": (0, 1001), "mountain_car": (-1000, -90), "cartpole_swingup": (-100, 600)}
"""Mean returns to draw, where the scores are made of them."""


def drawn(name, sweep, rng):
    """Return settings and rows of some runs of an experiment, at random."""
    runs, kind = [], name.removesuffix("_noise").removesuffix("_scale")
    ids = [one for one in sweep.SWEEP if one.startswith(f"{name}/")]
    for one in ids[::3]:
        episodes = np.array([10.0, 100.0, 1000.0, float(rng.integers(1001, 10_001))])
        rate = 2 * rng.random() if name != "discounting_chain" else 1.0 + 0.1 * rng.random()
        rates = {
            "total_regret": rate,
            "total_return": rate,
            "total_perfect": rng.random(),
            "total_bad_episodes": rng.random(),
        }
        if kind in RETURNS:
            rates["raw_return"] = rates["total_return"] = rng.uniform(*RETURNS[kind])
            episodes[-1] = 1000.0  # as many as are granted
        if kind == "mnist":
            episodes = np.append(episodes[:3], [9000.0, 10_000.0])
        best = {"best_episode": 1000 * rng.random()}
        rows = [{"episode": n, **best, **{key: rates.get(key, 0.0) * n for key in SUMS}} for n in episodes.tolist()]
        runs.append((sweep.SETTINGS[one] | {"bsuite_id": one}, rows))
    return runs


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [one for one in bsuite_exam.EXPERIMENTS if not one.startswith("deep_sea")])
def test_scores_are_those_of_bsuite(name):
    pytest.importorskip("bsuite")
    pandas = pytest.importorskip("pandas")
    from bsuite import sweep

    analysis = importlib.import_module(f"bsuite.experiments.{name}.analysis")
    for seed in range(5):
        runs = drawn(name, sweep, np.random.default_rng(seed))
        # bsuite compares runs of equal length, but for those that it groups.
        if name.startswith(("bandit", "catch", "discounting")):
            for _, rows in runs:
                rows.pop()
        frame = pandas.DataFrame([setting | row for setting, rows in runs for row in rows])
        assert bsuite_exam.score(name, runs) == pytest.approx(float(analysis.score(frame)), abs=1e-12)


def test_treasures_count_where_they_are_found_in_time():
    # bsuite's own score of deep sea needs an old pandas.
    def run(size, *bad):
        return {"size": size}, [{"episode": n, "total_bad_episodes": share * n} for n, share in bad]

    early, late, never = run(10, (50, 1), (1000, 0.85)), run(10, (50, 1), (2000, 0.5)), run(10, (9000, 0.95))
    assert bsuite_exam.score("deep_sea", [early, late, never]) == pytest.approx(1 / 3)
    before = run(10, (50, 0.1), (200, 0.9))
    assert bsuite_exam.score("deep_sea_stochastic", [before, run(10, (200, 0.7))]) == 0.5
    assert bsuite_exam.score("deep_sea", [before]) == 1.0
