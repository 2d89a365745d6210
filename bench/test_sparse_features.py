"""Measure a finite MDP with sparse features beside the same one with dense features: the model, a rollout, a run.

pytest bench/test_sparse_features.py
"""

import numpy as np
import pytest
from scipy.sparse import csr_array, eye_array

import dmq_fast as dmq
from dmq_fast.samplers import ExactSampler, FlowSampler, RolloutSampler

HORIZON = 5
CASES = [(1000, "dense"), (1000, "sparse"), (20_000, "sparse")]
SAMPLERS = {"rollout": RolloutSampler, "flow": FlowSampler, "exact": ExactSampler}

cases = pytest.mark.parametrize(("n", "form"), CASES)


def tree(n, form):
    """One-hot states of which action a in state s leads to 2 s + a modulo n; one leaf pays."""
    pairs = np.arange(2 * n)
    P = csr_array((np.ones(2 * n), (pairs, pairs % n)), shape=(2 * n, n))
    R = [np.zeros((n, 2)) for _ in range(HORIZON)]
    R[-1][11, 1] = 1.0
    features = eye_array(n) if form == "sparse" else np.eye(n)
    return dmq.environments.FiniteMDP([P] * (HORIZON - 1), R, [features] * HORIZON)


@cases
def test_build(benchmark, n, form):
    benchmark.group = "build and pack"
    assert benchmark(lambda: RolloutSampler(tree(n, form))).dimension == n


@cases
@pytest.mark.parametrize("name", SAMPLERS)
def test_collect(benchmark, n, form, name):
    """All moments and a return of one trajectory."""
    sampler, policy = SAMPLERS[name](tree(n, form)), dmq.Policy.uniform(HORIZON)
    benchmark.group = f"collect, {name}"
    request = {"stream": dmq.Stream(0), "levels": range(HORIZON), "returns_from": [0]}
    assert benchmark(sampler.collect, policy, 1, **request).rows is not None


@cases
def test_run(benchmark, n, form):
    env = tree(n, form)
    benchmark.group = "frugal, N = 1"
    run = dmq.DMQ(env, n_samples=1, variant="frugal", rng=0)
    assert env.value(benchmark.pedantic(lambda: run.learn().policy, rounds=5)) == 1.0


@pytest.mark.parametrize("d", [200, 600])
@pytest.mark.parametrize("oracle", ["decision", "value"])
def test_oracle_in_rows(benchmark, d, oracle):
    """Answers that need all columns, with the value or without: with it, rows are expanded once, not twice."""
    rng = np.random.default_rng(0)
    kept = dmq.kernels.RowOracle(d, 1e-12)
    kept.add(rng.normal(size=(d // 2, d)))
    rows = dmq.kernels.LevelRows.of([rng.normal(size=(20, d))])
    scan = dmq.kernels.RowScan(1.0, 1e9, oracle == "value")
    benchmark.group = f"oracle in rows, d = {d}"
    benchmark(scan.scan, [kept], rows, 20.0, 0, 0, 0)
