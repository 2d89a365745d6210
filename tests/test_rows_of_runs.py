"""Runs whose moments are in rows: the same answers as with matrices, whatever draws them."""

from __future__ import annotations

import numpy as np
import pytest
from flat import flat

import dmq_fast as dmq
from dmq_fast.covers.cover import CoverMoments
from dmq_fast.environments import CompiledEnv
from dmq_fast.features import TileCoding
from dmq_fast.function_class import LinearSolver, dual_ridge
from dmq_fast.kernels import LevelRows
from dmq_fast.moments import Moment, Moments, Returns
from dmq_fast.samplers import RolloutSampler


def tiles():
    """The first steps of mountain car: few tiles of many are seen."""
    return dmq.environments.mountain_car(horizon=6, features=TileCoding([-1.2, -0.07], [0.6, 0.07], 6, 4))


ENVIRONMENTS = {
    "deep sea": lambda: dmq.environments.deep_sea(25, rng=0),
    "tiles": tiles,
    "dense features": lambda: dmq.environments.mountain_car(horizon=5, order=5),
}

RUNS = [
    {"n_samples": 1, "variant": "frugal"},
    {"n_samples": 5, "variant": "sound", "max_trajectories": 4000},
    {"n_samples": 3, "variant": "paper", "max_trajectories": 4000},
    {"n_samples": 3, "variant": "sound", "mixture": "multinomial", "max_trajectories": 4000},
    {"n_samples": 2, "variant": "frugal", "oracle": "value"},
]


def learned(env, **chosen):
    options = {"max_policies": 60} | chosen
    return flat(env, rng=0, **options).learn()


def same_result(one, other, bits):
    """The same decisions and covers; theta and potentials to rounding, or to the last bit."""
    assert (one.status, one.counts, one.warnings) == (other.status, other.counts, other.warnings)
    assert [len(policies) for policies in one.cover] == [len(policies) for policies in other.cover]
    if bits:
        assert (one.theta == other.theta).all() and one.history == other.history
        return
    np.testing.assert_allclose(one.theta, other.theta, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(one.history.potentials, other.history.potentials, rtol=1e-10)
    ours, theirs = one.history.columns(), other.history.columns()
    for column in ours.keys() - {"value"}:
        assert (ours[column] == theirs[column]).all(), column
    np.testing.assert_allclose(ours["value"], theirs["value"], rtol=1e-9)


class Unpaid(RolloutSampler):
    """Pays nothing. Where every episode costs the same, actions are equal, and rounding chooses between them."""

    def collect_chunk(self, policy, n, **request):
        found = super().collect_chunk(policy, n, **request)
        nothing = {h: Returns(np.zeros_like(one.moment), 0.0, one.n) for h, one in found.returns.items()}
        return Moments(found.n, found.levels, found.grams if found.rows is None else found.rows, nothing)


@pytest.fixture
def in_matrices(monkeypatch):
    """A switch: from then on all moments are matrices."""
    return lambda: monkeypatch.setattr("dmq_fast.samplers.rollout.fits_rows", lambda *_: False)


@pytest.mark.parametrize("name", ENVIRONMENTS)
@pytest.mark.parametrize("chosen", RUNS, ids=lambda chosen: "-".join(map(str, chosen.values())))
def test_rows_and_matrices_give_the_same_run(name, chosen, in_matrices):
    env = ENVIRONMENTS[name]()
    env = Unpaid(env) if isinstance(env, CompiledEnv) else env
    in_rows = learned(env, **chosen)
    in_matrices()
    same_result(in_rows, learned(env, **chosen), bits=False)
    assert in_rows.counts["trues"] > 0


@pytest.mark.parametrize("name", ["deep sea", "tiles"])
def test_workers_and_journals_do_not_change_a_bit(name, tmp_path):
    env, chosen = ENVIRONMENTS[name](), {"n_samples": 2, "variant": "frugal"}
    whole = learned(env, **chosen)
    same_result(learned(env, workers=2, **chosen), whole, bits=True)
    journal = tmp_path / "journal"
    limit = whole.counts["trajectories"]["check"] // 2
    assert learned(env, journal=journal, max_trajectories=limit, **chosen).status == "max_trajectories"
    same_result(learned(env, journal=journal, **chosen), whole, bits=True)
    same_result(learned(env, journal=journal, **chosen), whole, bits=True)  # all of it replayed
    # A moment is stored on its support: less than d^2 numbers a level.
    assert name == "deep sea" or journal.stat().st_size < whole.counts["algorithm_2_runs"] * env.dimension**2


def test_memory_that_drops_moments_draws_the_same_rows_again(monkeypatch):
    env, chosen = ENVIRONMENTS["tiles"](), {"n_samples": 2, "variant": "frugal"}
    whole = learned(env, **chosen)
    monkeypatch.setattr("dmq_fast.covers.memory.LIMIT", 3000)
    same_result(learned(env, **chosen), whole, bits=True)


def test_classes_that_know_no_rows_get_matrices(monkeypatch):
    env = ENVIRONMENTS["deep sea"]()
    plain = learned(env, n_samples=2, variant="frugal")
    monkeypatch.delattr(LinearSolver, "row_oracle")
    same_result(learned(env, n_samples=2, variant="frugal"), plain, bits=False)


def test_moments_of_both_forms_add_up():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2, 4, 30)) * (rng.random((2, 4, 30)) < 0.2)
    levels = range(3, 7)
    sparse = [Moments(1, levels, LevelRows.of([row[None] for row in part]), {}) for part in rows]
    dense = [Moments(1, levels, one.grams, {}) for one in sparse]
    expected = dense[0] + dense[1]
    for total in (sparse[0] + sparse[1], sparse[0] + dense[1], dense[0] + sparse[1]):
        np.testing.assert_allclose(total.grams, expected.grams, atol=1e-15)
        np.testing.assert_allclose(total.second_moment(4), expected.second_moment(4), atol=1e-15)
        np.testing.assert_allclose(total.at(5).grams, expected.at(5).grams, atol=1e-15)
        assert total.n == 2 and total.at(5).levels == (5,)
    moment = (sparse[0] + sparse[1]).moment_at(6, shares=3)
    np.testing.assert_allclose(moment.matrix(), expected.second_moment(6) / 3, atol=1e-15)
    assert 0 < sparse[0].nbytes < dense[0].nbytes / 5


@pytest.mark.parametrize("first", ["sparse", "dense"])
def test_cover_moments_take_both_forms(first):
    """Whichever comes first, the sums are right and times tell what changed."""
    solver = dmq.LinearClass().solver(5, ridge=1e-3, eps_s=1.0, eps_t=2.0, eps_r=0.01, oracle="decision")
    moments = CoverMoments(2, 5, solver, dmq.arithmetic.FLOAT64)
    rows = LevelRows.of([np.array([[0.0, 0.6, 0.0, 0.8, 0.0]])])
    sparse = Moments(1, (0,), rows, {}).moment_at(0)
    dense = Moment(np.diag([0.0, 0.5, 0.5, 0.0, 0.0]))
    given = [sparse, dense] if first == "sparse" else [dense, sparse]
    for moment in given:
        moments.add(1, moment)
    assert isinstance(moments.sums, list) == (first == "sparse")
    np.testing.assert_allclose(moments[1].matrix(), dense.matrix() + sparse.matrix(), atol=1e-15)
    assert moments.changed(1, 1) and not moments.changed(0, 0) and moments.time == 2
    moments.replace(1, moments[1])
    assert moments.time == 2 and moments.runs(1, 0, 2) == [] and moments.runs(1, 0, 1) == [(1, 1)]
    moments.replace(1, given[0])
    assert moments.time == 3
    # A sum of which only one part has its rows at hand.
    both = Moment(np.array([[0.25]]), np.array([2], np.int32), 5) + sparse
    moments.replace(0, both)
    assert (moments[0].matrix() == both.matrix()).all() and moments[0].any()
    batch, s = Moments(1, (1,), rows, {}), np.zeros((2, 5, 5))
    s[1] = (sparse if first == "sparse" else dense).matrix()
    assert solver.scan(moments.sums, batch, 1, 1)[0] == solver.scan(s, Moments(1, (1,), batch.grams, {}), 1, 1)[0]
    probe = Moments(1, (1,), np.diag([0.0, 0.0, 0.0, 0.0, 1.0])[None], {})
    assert solver.scan(moments.sums, probe, 1, 1)[0] == 1


def test_the_form_is_the_cheaper_one():
    sea = dmq.environments.deep_sea(40, rng=0)
    stream, levels = dmq.Stream(0), range(40)
    sampler = dmq.samplers.RolloutSampler(sea)
    assert sampler.collect(dmq.Policy.uniform(40), 10**6, stream=stream, levels=levels).rows is not None
    lock = dmq.samplers.RolloutSampler(dmq.environments.combination_lock(horizon=5, rng=0))
    assert lock.collect(dmq.Policy.uniform(5), 1, stream=stream, levels=range(5)).rows is None
    fourier = dmq.samplers.RolloutSampler(dmq.environments.mountain_car(horizon=5, order=5))
    assert fourier.collect(dmq.Policy.uniform(5), 5, stream=stream, levels=range(5)).rows is not None
    assert fourier.collect(dmq.Policy.uniform(5), 50, stream=stream, levels=range(5)).rows is None


class Wide:
    """A walk on 60 states, one-hot, in Python. It reuses its array of features."""

    horizon, n_actions, dimension = 5, 2, 60

    def __init__(self):
        self.rows = np.zeros((50, 60))

    def reset(self, n, rng):
        return rng.integers(2, size=n)

    def features(self, level, states):
        self.rows[:] = 0.0
        self.rows[range(len(states)), states] = 1.0
        return self.rows[: len(states)]

    def step(self, level, states, actions, rng):
        return states * 2 + actions, (level == 4) * (states % 7 == 3).astype(float)


def test_samplers_in_python_give_rows():
    """Of a batch environment, and of the trajectories that it shows: the same as matrices of them."""
    sampler = dmq.samplers.as_sampler(Wide())
    for n in (0, 1, 20):
        given = {"stream": dmq.Stream(3), "levels": [1, 3, 4], "returns_from": [0, 3]}
        moments = sampler.collect(dmq.Policy.uniform(5), n, **given)
        shown = sampler.trajectories(dmq.Policy.uniform(5), n, stream=dmq.Stream(3))
        again = shown.moments([1, 3, 4], [0, 3])
        assert moments.rows is not None and again.rows is not None
        for i, level in enumerate((1, 3, 4)):
            expected = shown.features[:, level].T @ shown.features[:, level]
            assert (moments.grams[i] == expected).all() and (again.grams[i] == expected).all()
        assert all((moments.returns[h].moment == again.returns[h].moment).all() for h in (0, 3))
    learned_run = learned(Wide(), n_samples=3, variant="frugal")
    assert learned_run.status == "ended" and learned_run.counts["trues"] > 0


@pytest.mark.parametrize("first", ["rows", "columns", "all columns"])
def test_potentials_do_not_depend_on_the_form(first):
    solver = dmq.LinearClass().solver(50, ridge=1e-3, eps_s=1.0, eps_t=2.0, eps_r=0.01, oracle="decision")
    moments = CoverMoments(1, 50, solver, dmq.arithmetic.FLOAT64)
    seen = Moment(np.array([[1.0, 0.5], [0.5, 2.0]]), np.array([3, 40], np.int32), 50)
    moments.replace(0, Moment(seen.matrix()) if first == "all columns" else seen)
    later = Moments(1, (0,), LevelRows.of([np.eye(50)[[7]]]), {}).moment_at(0)
    given = later if first == "rows" else Moment(later.gram, later.support, 50)
    expected = [solver.potential(matrix) for matrix in (seen.matrix(), seen.matrix() + later.matrix())]
    assert moments.potentials(0, given) == pytest.approx(expected, rel=1e-13)
    assert moments[0] == (Moment(seen.matrix()) if first == "all columns" else seen)  # nothing was added


@pytest.mark.parametrize("ridge", [1.0, 1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize(("n", "d"), [(1, 24), (5, 60), (20, 100)])
def test_few_dense_pairs_are_fitted_by_equations_of_their_number(n, d, ridge, monkeypatch):
    """The same estimate as by equations of order d, to the error of those; and no equations of order d are solved."""
    rng = np.random.default_rng([n, d])
    phi, y = rng.normal(size=(n, d)) / np.sqrt(d), rng.random(n)
    returns = {0: Returns(phi.T @ y, float(y @ y), n)}
    solver = dmq.LinearClass().solver(d, ridge=ridge, eps_s=1.0, eps_t=2.0, eps_r=0.01, oracle="decision")
    expected = solver.fit(Moments(n, (0,), (phi.T @ phi)[None], returns), 0)
    monkeypatch.setattr("dmq_fast.function_class.ridge_fit", None)
    theta = solver.fit(Moments(n, (0,), LevelRows.of([phi]), returns), 0)
    np.testing.assert_allclose(theta, expected, rtol=0, atol=100 * np.finfo(float).eps * np.abs(theta).max() / ridge)


def test_equations_that_do_not_converge_are_left():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(3, 40))
    assert dual_ridge(rows, rows.sum(axis=0), 0.0) is None
    assert dual_ridge(rows, np.full(40, np.inf), 1.0) is None
