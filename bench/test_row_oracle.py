"""Measure checks on rows beside checks on matrices: mountain car with tiles, from the trajectory to the answer.

pytest bench/test_row_oracle.py
"""

import numpy as np
import pytest

import dmq_fast as dmq
from dmq_fast.kernels import CompiledModel, RowOracle, RowScan, ShiftScan
from dmq_fast.policy import rules_of

HORIZON, EPS_R, RATIO, MEMBERS = 60, 0.01, 2.0, 20


def environment(d):
    """Mountain car with 324 tiles, 4 at a time, or about 4,096, 8 at a time."""
    if d == 324:
        return dmq.environments.mountain_car(horizon=HORIZON, features="tiles")
    low, high = [-1.2, -0.07], [0.6, 0.07]
    return dmq.environments.mountain_car(horizon=HORIZON, features=dmq.features.TileCoding(low, high, 21, 8))


def problem(d, n):
    """A model, the rules of a policy, and S of each level in both forms, that of some uniform trajectories."""
    env = environment(d)
    model, rules = CompiledModel(env.handle, env.features), rules_of(dmq.Policy.uniform(HORIZON))
    oracles = [RowOracle(env.dimension, EPS_R) for _ in range(HORIZON)]
    for call in range(MEMBERS):
        rows = model.rollout(rules, n, dmq.Stream(0, call=call), range(HORIZON), (), True)[0]
        for h, oracle in enumerate(oracles):
            oracle.add(rows, h, divisor=n)
    return model, rules, oracles


@pytest.mark.parametrize("n", [1, 20])
@pytest.mark.parametrize("d", [324, 4096])
def test_check_in_rows(benchmark, d, n):
    """A trajectory or more, and the answers of the oracle at all levels."""
    model, rules, oracles = problem(d, n)
    scan = RowScan(1.0, RATIO * 10)
    benchmark.group = f"check, N = {n}"

    def check():
        rows = model.rollout(rules, n, dmq.Stream(1), range(HORIZON), (), True)[0]
        return scan.scan(oracles, rows, n, 0, HORIZON - 1, 0)

    assert benchmark(check)[0] < HORIZON


@pytest.mark.parametrize("n", [1, 20])
def test_check_in_matrices(benchmark, n):
    model, rules, oracles = problem(324, n)
    cover = np.stack([oracle.matrix() for oracle in oracles])
    scan = ShiftScan(oracles[0].dimension, 1.0, RATIO * 10, EPS_R, False)
    benchmark.group = f"check, N = {n}"

    def check():
        grams = model.rollout(rules, n, dmq.Stream(1), range(HORIZON), ())[0]
        return scan.scan(cover, grams, n, 0, HORIZON - 1, 0)

    assert benchmark(check)[0] < HORIZON


@pytest.mark.parametrize("form", ["rows", "matrices"])
@pytest.mark.parametrize("d", [16, 24, 32, 64, 256])
def test_one_dense_row(benchmark, d, form):
    """Where rows begin to pay: the answers of 100 levels for one dense row each."""
    rng = np.random.default_rng(0)
    blocks = [rng.normal(size=(1, d)) / np.sqrt(d) for _ in range(100)]
    rows = dmq.kernels.LevelRows.of(blocks)
    oracles = [RowOracle(d, EPS_R) for _ in blocks]
    for h, oracle in enumerate(oracles):
        oracle.add(dmq.kernels.LevelRows.of([rng.normal(size=(2 * d, d)) / np.sqrt(d)]))
        oracle.decision(rows, 1.0, 2.0, h)
    benchmark.group = f"one dense row, d = {d}"
    if form == "rows":
        scan = RowScan(1.0, 100.0)
        found, _ = benchmark(scan.scan, oracles, rows, 1, 0, 99, 0)
    else:
        cover, grams = np.stack([o.matrix() for o in oracles]), np.stack([rows.gram(h) for h in range(100)])
        scan = ShiftScan(d, 1.0, 100.0, EPS_R, False)
        found, _ = benchmark(scan.scan, cover, grams, 1, 0, 99, 0)
    assert found == -1
