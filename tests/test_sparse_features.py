"""Finite MDPs whose features, and transitions, are SciPy sparse arrays: what dense ones would give, in less memory."""

from __future__ import annotations

import pickle
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from flat import flat
from refusals import refused
from test_rows_of_runs import same_result

import dmq_fast as dmq
from dmq_fast.baselines import UCBQ, UniformLeastSquares
from dmq_fast.environments import FiniteMDP, block_mdp, from_gymnasium
from dmq_fast.environments.finite import FEWEST_SPARSE
from dmq_fast.kernels import LevelRows
from dmq_fast.samplers import ExactSampler, FlowSampler, RolloutSampler
from dmq_fast.theory import measures


def rows_of_pairs(transitions):
    """Transitions with a row for each state and action, sparse."""
    return sp.csr_array(np.reshape(transitions, (-1, np.shape(transitions)[2])))


def sparse(env, transitions=True):
    """The same MDP from sparse arrays; those that levels share stay shared."""
    convert = {id(array): sp.csr_array(array) for array in env.features}
    tables = {id(array): rows_of_pairs(array) for array in env.P}
    P = [tables[id(array)] for array in env.P] if transitions else env.P
    return FiniteMDP(P, env.R, [convert[id(array)] for array in env.features], env.start, env.caps)


def tabular(n_states=30, horizon=4, n_actions=2, width=3, seed=0):
    """Random transitions to a few states, and features of a few entries."""
    rng = np.random.default_rng(seed)
    P = []
    for _ in range(horizon - 1):
        table = np.zeros((n_states, n_actions, n_states))
        for row in table.reshape(-1, n_states):
            row[rng.choice(n_states, 3, replace=False)] = rng.dirichlet(np.ones(3))
        P.append(table)
    R = [np.round(rng.random((n_states, n_actions)), 2) / horizon for _ in range(horizon)]
    features = np.zeros((n_states, n_states + 10))
    for row in features:
        row[rng.choice(len(row), width, replace=False)] = rng.normal(size=width)
    features /= np.linalg.norm(features, axis=1).max()
    return FiniteMDP(
        P, R, [features] * horizon, rng.dirichlet(np.ones(n_states)), [0.0] * (horizon - 1) + [1 / horizon]
    )


ENVIRONMENTS = {
    "deep sea": lambda: dmq.environments.deep_sea(24, rng=0),
    "few entries": tabular,
    "one-hot": lambda: tabular(width=1),
}


def greedy(env, seed=0):
    return dmq.Policy.greedy(np.random.default_rng(seed).normal(size=(env.horizon, env.n_actions, env.dimension)))


@pytest.mark.parametrize(
    ("name", "transitions"), [("deep sea", True), ("few entries", True), ("few entries", False), ("one-hot", False)]
)
def test_exact_numbers_are_those_of_dense_features(name, transitions):
    dense = ENVIRONMENTS[name]()
    env, policy = sparse(dense, transitions), greedy(dense)
    assert all(sp.issparse(phi) for phi in env.features) and sp.issparse(env.P[0]) == transitions
    assert env.dimension == dense.dimension and env.n_states == dense.n_states
    assert env.tight_range[0, 1] == pytest.approx(dense.tight_range[0, 1], rel=1e-14)
    assert (env.optimal_value, env.gap) == pytest.approx((dense.optimal_value, dense.gap), rel=1e-12)
    assert env.value(policy) == pytest.approx(dense.value(policy), rel=1e-12)
    np.testing.assert_allclose(env.optimal_theta, dense.optimal_theta, atol=1e-10)
    assert env.realizability_residual == pytest.approx(dense.realizability_residual, abs=1e-10)
    for level in range(env.horizon):
        assert (env.reachable[level] == dense.reachable[level]).all()
        np.testing.assert_allclose(env.occupancy(policy)[level], dense.occupancy(policy)[level], atol=1e-14)
        ours, theirs = env.features[level], dense.features[level]
        assert (policy.act(level, ours) == policy.act(level, theirs)).all()
    for function in (measures.low_variance, measures.suboptimal_probability):
        np.testing.assert_allclose(function(env, policy), function(dense, policy), rtol=1e-10, atol=1e-14)
    result = dmq.DMQ(dense, n_samples=2, variant="frugal", rng=0).learn(max_policies=30)
    for ours, theirs in zip(
        measures.checked_policies(env, result), measures.checked_policies(dense, result), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
    assert dmq.certificate(result, env).keys() == dmq.certificate(result, dense).keys()


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("deep sea", {"n_samples": 1, "variant": "frugal"}),
        ("few entries", {"n_samples": 3, "variant": "sound", "max_trajectories": 3000}),
        ("one-hot", {"n_samples": 2, "variant": "frugal", "oracle": "value"}),
    ],
)
def test_runs_are_those_of_dense_features_to_the_last_bit(name, chosen):
    """A rollout adds the same entries in the same order, whatever form the features came in."""
    env, options = ENVIRONMENTS[name](), {"max_policies": 40, "rng": 0} | chosen
    same_result(flat(sparse(env), **options).learn(), flat(env, **options).learn(), bits=True)


@pytest.mark.parametrize(
    ("name", "make"), [("deep sea", ExactSampler), ("few entries", FlowSampler), ("one-hot", FlowSampler)]
)
def test_counts_and_expectations_in_rows_are_those_in_matrices(name, make, monkeypatch):
    dense = ENVIRONMENTS[name]()
    request = {"stream": dmq.Stream(1), "levels": range(dense.horizon), "returns_from": [0, 2]}
    policies = [dmq.Policy.uniform(dense.horizon), greedy(dense)]
    in_rows = [make(env).collect(policy, 7, **request) for env in (dense, sparse(dense)) for policy in policies]
    run = {"n_samples": 2, "variant": "frugal", "max_policies": 25, "rng": 0}
    runs = [flat(make(env), **run).learn() for env in (dense, sparse(dense))]
    monkeypatch.setattr("dmq_fast.samplers._finite.fits_rows", lambda *_: False)
    expected = [make(dense).collect(policy, 7, **request) for policy in policies] * 2
    for ours, theirs in zip(in_rows, expected, strict=True):
        assert isinstance(ours.rows, LevelRows) and theirs.rows is None and ours.n == theirs.n
        np.testing.assert_allclose(ours.grams, theirs.grams, atol=1e-13)
        for h in (0, 2):
            np.testing.assert_allclose(ours.returns[h].moment, theirs.returns[h].moment, atol=1e-13)
            assert ours.returns[h].square == pytest.approx(theirs.returns[h].square, rel=1e-12)
    for ours in runs:
        same_result(ours, flat(make(dense), **run).learn(), bits=False)
        assert ours.counts["trues"] > 0


@pytest.mark.parametrize("make", [FlowSampler, ExactSampler], ids=["flow", "exact"])
def test_no_trajectories_no_levels_and_states_of_no_features(make):
    env = sparse(tabular())
    sampler, policy = make(env), dmq.Policy.uniform(4)
    nothing = sampler.collect(policy, 0, stream=dmq.Stream(0), levels=[1, 3], returns_from=[2])
    assert not nothing.grams.any() and nothing.grams.shape == (2, 40, 40) and not nothing.returns[2].moment.any()
    assert sampler.collect(policy, 5, stream=dmq.Stream(0), levels=[]).grams.shape == (0, 40, 40)
    blank = FiniteMDP(env.P, env.R, [sp.csr_array((30, 40))] * 4, env.start, env.caps)
    moments = make(blank).collect(policy, 5, stream=dmq.Stream(0), levels=[0], returns_from=[0])
    assert not moments.grams.any() and moments.returns[0].square > 0


def test_extended_precision_keeps_matrices():
    env = dmq.environments.river_swim(3, 3)
    wide = FiniteMDP(env.P, env.R, [sp.eye_array(3, 24)] * 3, env.start, env.caps)
    request = {"stream": dmq.Stream(0), "levels": [2], "returns_from": [1]}
    moments, expected = (
        ExactSampler(one, "rational").collect(dmq.Policy.uniform(3), 10**30, **request) for one in (wide, env)
    )
    assert moments.rows is None and (moments.grams[0][:3, :3] == expected.grams[0]).all()
    assert (moments.returns[1].moment[:3] == expected.returns[1].moment).all()
    huge = FiniteMDP([], [np.zeros((10_000, 2))], [sp.eye_array(10_000)])
    with pytest.raises(ValueError, match="features: extended precision needs them dense"):
        ExactSampler(huge, "rational")


def test_trajectories_are_shown_in_sparse_rows():
    dense = tabular()
    env = sparse(dense)
    policy = greedy(dense)
    drawn, expected = (RolloutSampler(one).trajectories(policy, 20, stream=dmq.Stream(3)) for one in (env, dense))
    assert (drawn.dense() == expected.features).all() and (drawn.actions == expected.actions).all()
    assert all(sp.issparse(rows) and rows.shape == (20, 40) for rows in drawn.features)
    ours, theirs = drawn.moments([0, 3], [1]), expected.moments([0, 3], [1])
    assert ours.rows is not None and (ours.grams == theirs.grams).all()
    np.testing.assert_allclose(ours.returns[1].moment, theirs.returns[1].moment, atol=1e-15)
    many = dmq.Trajectories.joined([drawn, drawn])
    assert (many.dense() == np.concatenate([drawn.dense()] * 2)).all() and many.n == 40
    assert dmq.Trajectories.joined([drawn, expected]).at(2).shape == (40, 40)
    columns_first = dmq.Trajectories(tuple(sp.csc_array(rows) for rows in drawn.features), drawn.actions, drawn.rewards)
    assert (columns_first.moments([0, 3]).grams == ours.grams).all()


def test_features_come_in_every_form():
    """What a format becomes, and what of it is refused, is a matter of tests/test_sparse_kernels.py."""
    for d, kind in [(3, "csr"), (FEWEST_SPARSE - 1, "coo"), (FEWEST_SPARSE, "csc"), (40, "lil"), (40, "dia")]:
        given = sp.csr_matrix(np.eye(3, d, dtype=np.int8)).asformat(kind)
        phi = FiniteMDP([], [np.zeros((3, 2))], [given]).features[0]
        assert isinstance(phi, sp.csr_array if d >= FEWEST_SPARSE else np.ndarray) and phi.dtype == np.float64
        assert ((phi.toarray() if sp.issparse(phi) else phi) == np.eye(3, d)).all()
        for array in (phi.data, phi.indices, phi.indptr) if sp.issparse(phi) else (phi,):
            assert not array.flags.writeable


def test_what_does_not_fit_is_refused():
    def of_features(features):
        return FiniteMDP([], [np.zeros((2, 1))], features)

    def of_transitions(P, R=None):
        R = np.zeros((2, 2)) if R is None else R
        return FiniteMDP([P], [R, np.full((2, 2), 0.5)], [np.eye(2)] * 2)

    twice = sp.coo_array(([0.5, 0.75], ([0, 0], [3, 3])), shape=(2, 30))
    features = [
        ([twice], ValueError, r"state 0: expected features of Euclidean norm at most 1, got 1\.25"),
        ([sp.csr_array(np.full((2, 30), np.nan))], ValueError, "level 0: expected finite numbers, got nan"),
        ([sp.csr_array(np.full((2, 30), 1j))], TypeError, "level 0: expected real numbers, got dtype complex"),
        ([sp.coo_array(np.ones(30))], ValueError, r"level 0: expected shape \(any, any\), got \(30,\)"),
        ([sp.csr_array((3, 30))], ValueError, r"level 0: expected shape \(2, 30\), got \(3, 30\)"),
        ([sp.csr_array((2, 0))], ValueError, "level 0: expected at least one element along each axis"),
        ([sp.eye_array(2, 30), np.eye(2, 31)], ValueError, "expected 1 arrays"),
        (sp.eye_array(2, 30), TypeError, "expected a sequence of arrays, one a level, got one sparse array"),
    ]
    refused([(partial(of_features, given), error, f"features: (level 0, )?{text}") for given, error, text in features])
    first, last = sp.csr_array([[1.0, 0.0]] * 4), sp.csr_array([[0.0, 1.0]] * 4)
    sums = "expected probabilities that sum to 1"
    transitions = [
        ([sp.csr_array([[0.5, 0.5]] * 3)], ValueError, r"P: level 0: expected shape \(4, 2\), got \(3, 2\)"),
        ([sp.csr_array([[0.5, 0.4]] * 4)], ValueError, f"P: level 0, row 0: {sums}"),
        ([sp.csr_array([[1, 0]] * 3 + [[1.5, -0.5]])], ValueError, "row 3, next state 1: expected a probability >= 0"),
        ([sp.csr_array([[1.0, 0.0]] * 3 + [[0.0, 0.0]])], ValueError, f"row 3: {sums}"),
        ([first, np.zeros((2, 2, 2))], ValueError, "rewards that depend on the next state need a dense P"),
        ([first, sp.csr_array((2, 2))], TypeError, "R: level 0: expected a dense array"),
        ([last, np.full((2, 2), 2e100)], ValueError, r"R: .* between -1e\+100 and 1e\+100 on every path, got 2e\+100"),
    ]
    refused([(partial(of_transitions, *given), error, text) for given, error, text in transitions])


def test_copies_and_pickles_are_read_only_and_shared():
    env = sparse(dmq.environments.river_swim(30, 5))
    again = pickle.loads(pickle.dumps(env))
    assert again.features[0] is again.features[4] and not again.features[0].data.flags.writeable
    assert again.fingerprint() == env.fingerprint()
    other = FiniteMDP(env.P, env.R, [0.5 * env.features[0]] * 5, env.start)
    assert other.fingerprint()["sha256"] != env.fingerprint()["sha256"]


def test_optimal_theta_is_fitted_in_parts():
    """Parts of several states and features, single ones, unused ones, and a rank that is not full."""
    rng = np.random.default_rng(1)
    blocks = [rng.normal(size=(3, 2)), np.ones((2, 3)), [[0.5]], np.zeros((2, 1)), np.zeros((0, 2)), np.eye(20)]
    phi = sp.block_diag(blocks).toarray()
    phi = 0.3 * phi[rng.permutation(len(phi))][:, rng.permutation(phi.shape[1])]
    R = rng.random((len(phi), 3)) / 2
    dense, env = (FiniteMDP([], [R], [rows], np.full(len(phi), 1 / len(phi))) for rows in (phi, sp.csr_array(phi)))
    np.testing.assert_allclose(env.optimal_theta, dense.optimal_theta, atol=1e-12)


def test_baselines_and_block_mdps_show_dense_rows():
    env = sparse(dmq.environments.river_swim(30, 5))
    dense = dmq.environments.river_swim(30, 5)
    for baseline in (UniformLeastSquares, UCBQ):
        ours, theirs = (baseline(one, rng=0).learn(20).policy for one in (env, dense))
        assert env.value(ours) == pytest.approx(dense.value(theirs), rel=1e-12)
    huge = FiniteMDP([], [np.zeros((10_000, 2))], [sp.eye_array(10_000)])
    with pytest.raises(
        ValueError, match="features of finite-mdp: what a compiled environment shows of them needs them dense"
    ):
        block_mdp(huge)
    with pytest.raises(
        TypeError, match="embedding: level 0: expected a dense array, such as its method toarray returns"
    ):
        block_mdp(env, embedding=[sp.eye_array(30)] * 5)


class Ring:
    """A table in the form of Gymnasium: a step onwards, or one back; the last state ends the episode and pays."""

    def __init__(self, n, slippery=0.0):
        ends = [(1.0, n - 1, 1.0, True)]
        self.P = {
            s: {0: [(1.0, max(s - 1, 0), 0.0, False)], 1: ends if s == n - 2 else self.onwards(s, slippery)}
            for s in range(n)
        }
        self.initial_state_distrib = np.full(n, 1 / n)

    def onwards(self, s, slippery):
        return [(1.0 - slippery, (s + 1) % 7 if slippery else s + 1, -0.5 if slippery else 0.0, False)] + (
            [(slippery, s, 0.0, False)] if slippery else []
        )


def ring(n, slippery=0.0):
    env = Ring(n, slippery)
    env.P[n - 1] = env.P[0]
    return env


@pytest.mark.parametrize("slippery", [0.0, 0.25])
def test_large_tables_of_gymnasium_are_sparse_and_the_same(slippery, monkeypatch):
    """Transitions stay dense where rewards depend on the next state."""
    dense = from_gymnasium(ring(60, slippery), 4)
    monkeypatch.setattr("dmq_fast.environments.gym.tables.MOST_DENSE", 1000)
    env = from_gymnasium(ring(60, slippery), 4)
    assert isinstance(dense.features[0], np.ndarray) and sp.issparse(env.features[0])
    assert sp.issparse(env.P[0]) == (slippery == 0.0) and isinstance(dense.P[0], np.ndarray)
    assert (env.features[0].toarray() == dense.features[0]).all() and env.n_states == dense.n_states
    for ours, theirs in zip(env.P, dense.P, strict=True):
        assert ((ours.toarray() if sp.issparse(ours) else ours) == theirs.reshape(ours.shape)).all()
    assert all((ours == theirs).all() for ours, theirs in zip(env.R, dense.R, strict=True))
    options = {"n_samples": 2, "variant": "frugal", "max_policies": 30, "rng": 0}
    same_result(flat(env, **options).learn(), flat(dense, **options).learn(), bits=True)
    assert flat(env, **options).learn().counts["trues"] > 0


def test_tables_of_gymnasium_take_sparse_features():
    rng = np.random.default_rng(0)
    phi = np.where(rng.random((60, 40)) < 0.1, 0.2, 0.0)
    ours, theirs = (from_gymnasium(ring(60), 4, features=given) for given in (sp.csc_array(phi), phi))
    assert (ours.features[0].toarray() == theirs.features[0]).all()
    with pytest.raises(ValueError, match="features: expected 60 rows, one for each state"):
        from_gymnasium(ring(60), 4, features=sp.csr_array(phi[:50]))


LARGE = """
import sys, numpy as np, scipy.sparse as sp, dmq_fast as dmq
n, horizon = 20_000, 5
pairs = np.arange(2 * n)
P = sp.csr_array((np.ones(2 * n), (pairs, pairs % n)), shape=(2 * n, n))
R = [np.zeros((n, 2)) for _ in range(horizon)]
R[-1][11, 1] = 1.0
env = dmq.environments.FiniteMDP([P] * (horizon - 1), R, [sp.eye_array(n)] * horizon)
result = dmq.DMQ(env, n_samples=1, variant="frugal", rng=0).learn()
assert result.status == "ended" and env.value(result.policy) == env.optimal_value == 1.0, result
result.save(sys.argv[1])
again = dmq.load(sys.argv[1])
assert (again.theta == result.theta).all() and env.value(again.policy) == 1.0
assert env.realizability_residual == 0.0 and env.fingerprint()["sha256"]
print(next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM:")))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="VmHWM is Linux's")
def test_twenty_thousand_states_need_no_square_array(tmp_path):
    """One array of 20,000 x 20,000 numbers would take 3.2 GB."""
    command = [sys.executable, "-c", LARGE, str(tmp_path / "run.npz")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(dmq.__file__).parent.parent)
    assert int(done.stdout) < 300 * 1024  # in KiB
