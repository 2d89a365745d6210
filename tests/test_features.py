"""Feature maps against plain NumPy: values, the bound on the norm, and errors."""

from __future__ import annotations

import itertools
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.linalg
from hypothesis import strategies as st
from properties import for_all, refuses, seeds

import dmq_fast as dmq
from dmq_fast import features, kernels, observing
from dmq_fast.features import (
    RBF,
    FeatureMap,
    Fourier,
    Identity,
    Interpolation,
    Nystrom,
    OneHot,
    RandomFourier,
    TileCoding,
    action_blocks,
    grid,
)
from dmq_fast.kernels._features import unchecked

pytestmark = pytest.mark.kernels

EPS = np.finfo(np.float64).eps
LOW, HIGH = [-1.2, -0.07], [0.6, 0.07]

MAPS = {
    "identity": Identity(LOW, HIGH),
    "identity with bias": Identity(LOW, HIGH, bias=True),
    "one-hot": OneHot(5),
    "fourier": Fourier(LOW, HIGH, 7),
    "fourier of one": Fourier(-2.0, 3.0, 20),
    "fourier of four": Fourier([-1] * 4, [1, 2, 3, 4], 3),
    "rbf": RBF(grid(LOW, HIGH, [4, 5]), [0.5, 0.03]),
    "rbf as it is": RBF(grid(LOW, HIGH, 3), [0.5, 0.03], normalized=False),
    "tiles": TileCoding(LOW, HIGH, [8, 5], 8),
    "one tiling": TileCoding(LOW, HIGH, 4, 1),
    "interpolation": Interpolation([[-1.2, -0.5, -0.4, 0.6], [-0.07, 0.0, 0.07]]),
    "interpolation of one": Interpolation([[-0.5, 0.25, 0.5]]),
    "interpolation of four": Interpolation([[-0.5, 0.5], [-1.0, 0.0, 0.1, 1.0], [0.0, 0.5], [-0.1, 0.1]]),
    "angle": Interpolation([5]),
    "two angles and a number": Interpolation([3, [-0.5, 0.0, 0.5], 2]),
    "random fourier": RandomFourier(2, 50, [0.5, 0.03], rng=3),
    "nystroem": Nystrom(grid(LOW, HIGH, [4, 3]), [0.5, 0.05]),
    "nystroem, matern": Nystrom(grid(LOW, HIGH, [3, 4]), [0.5, 0.05], "matern"),
    "nystroem, exponential": Nystrom(grid(LOW, HIGH, 5), [0.5, 0.05], "exponential"),
}


def observations(phi, rng, n, spread=1.0):
    """Return random observations, most within a box of [-1, 1] times `spread`, some on its edges."""
    if isinstance(phi, OneHot):
        return rng.integers(phi.dimension, size=(n, 1)).astype(np.float64)
    x = rng.uniform(-spread, spread, size=(n, phi.inputs))
    if hasattr(phi, "low"):
        edges = rng.choice([phi.low, phi.high, phi.low / 2 + phi.high / 2], size=n)
        x = np.where(rng.random(x.shape) < 0.2, edges, x)
    return x


def unit(phi, x):
    return (np.clip(x, phi.low, phi.high) - phi.low) / (phi.high - phi.low)


def identity(phi, x):
    rows = np.clip(x, phi.low, phi.high) / np.maximum(-phi.low, phi.high)
    rows = np.hstack([np.ones((len(x), 1)), rows]) if phi.bias else rows
    return rows / np.sqrt(rows.shape[1])


def one_hot(phi, x):
    return np.eye(phi.dimension)[x[:, 0].astype(int)]


def fourier(phi, x):
    coefficients = np.array(list(itertools.product(range(phi.order + 1), repeat=phi.inputs)))
    return np.cos(np.pi * unit(phi, x) @ coefficients.T) / np.sqrt(len(coefficients))


def rbf(phi, x):
    exponents = -((((x[:, None] - phi.centers) / phi.width) ** 2).sum(axis=2)) / 2
    if not phi.normalized:
        return np.exp(exponents) / np.sqrt(len(phi.centers))
    bumps = np.exp(exponents - exponents.max(axis=1, keepdims=True))
    return bumps / bumps.sum(axis=1, keepdims=True)


def tile_coding(phi, x):
    more = phi.tilings > 1
    out = np.zeros((len(x), phi.tilings, *(phi.tiles + more)))
    for r, row in enumerate(unit(phi, x) * phi.tiles):
        for t in range(phi.tilings):
            place = []
            for i, y in enumerate(row):
                moved = t * (2 * i + 1) % phi.tilings
                last = phi.tiles[i] - (moved == 0)
                place.append(min(int(y + moved / phi.tilings), last))
            out[(r, t, *place)] = 1 / np.sqrt(phi.tilings)
    return out.reshape(len(x), phi.dimension)


def random_fourier(phi, x):
    angles = x @ phi.frequencies.T
    return np.hstack([np.cos(angles), np.sin(angles)]) / np.sqrt(len(phi.frequencies))


def nystrom(phi, x):
    def kernel(x):
        r = np.sqrt((((x[:, None] - phi.landmarks) / phi.width) ** 2).sum(axis=2))
        return {
            "gaussian": np.exp(-(r**2) / 2),
            "matern": (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r),
            "exponential": np.exp(-r),
        }[phi.kernel]

    return kernel(x) @ np.linalg.inv(scipy.linalg.sqrtm(kernel(phi.landmarks)))


def shares(nodes, x):
    """Weights (n, nodes) of one coordinate: hat functions of a number, or around the circle."""
    if isinstance(nodes, int):
        turns = np.arctan2(x[:, 1], x[:, 0]) / (2 * np.pi) + 0.5
        away = np.abs(turns[:, None] * nodes - np.arange(nodes))
        return np.maximum(1.0 - np.minimum(away, nodes - away), 0.0)
    return np.stack([np.interp(x[:, 0], nodes, hat) for hat in np.eye(len(nodes))], axis=1)


def interpolation(phi, x):
    parts, first = [], 0
    for nodes in phi.nodes:
        parts.append(shares(nodes, x[:, first:]))
        first += 2 if isinstance(nodes, int) else 1
    grids = []
    for group in phi.groups:
        rows = parts[group[0]]
        for i in group[1:]:
            rows = (rows[:, :, None] * parts[i][:, None]).reshape(len(x), -1)
        grids.append(rows)
    return np.hstack(grids) / np.sqrt(len(grids))


TWINS = {
    Interpolation: interpolation,
    Identity: identity,
    OneHot: one_hot,
    Fourier: fourier,
    RBF: rbf,
    TileCoding: tile_coding,
    RandomFourier: random_fourier,
    Nystrom: nystrom,
}


def same_as_twin(phi, x, tolerance):
    computed, expected = phi(x), TWINS[type(phi)](phi, x)
    assert computed.shape == expected.shape == (len(x), phi.dimension) and computed.dtype == np.float64
    np.testing.assert_allclose(computed, expected, rtol=0, atol=tolerance)
    assert (np.linalg.norm(computed, axis=1) <= 1 + 64 * EPS).all()


@for_all(name=st.sampled_from([name for name in MAPS if "one-hot" in name or "nystroem" in name]), seed=seeds)
def test_one_hot_and_nystroem_features_are_the_twins(name, seed):
    phi = MAPS[name]
    x = observations(phi, np.random.default_rng(seed), 40, spread=3.0)
    # Rounding in the kernel and in K^{-1/2}, 1 / sqrt(smallest eigenvalue) times larger.
    same_as_twin(phi, x, 100 * EPS * np.linalg.norm(getattr(phi, "weights", 1.0), 2 if phi.inputs > 1 else None) ** 2)


@st.composite
def boxes(draw, most=4):
    m = draw(st.integers(1, most))
    low = np.array(draw(st.lists(st.floats(-1e3, 1e3), min_size=m, max_size=m)))
    return low, low + np.array(draw(st.lists(st.floats(1e-2, 1e3), min_size=m, max_size=m)))


def in_and_out(low, high, seed, n=20):
    return low + (high - low) * np.random.default_rng(seed).uniform(-0.5, 1.5, size=(n, len(low)))


@for_all(box=boxes(), bias=st.booleans(), seed=seeds)
def test_identity_in_any_box(box, bias, seed):
    phi = Identity(*box, bias=bias)
    same_as_twin(phi, in_and_out(*box, seed), 4 * EPS)


@for_all(box=boxes(), order=st.integers(1, 6), seed=seeds)
def test_fourier_in_any_box(box, order, seed):
    phi = Fourier(*box, order)
    # The angle order * m * pi is rounded in the twin, and as many products are in the kernel.
    same_as_twin(phi, in_and_out(*box, seed), 8 * order * len(box[0]) * EPS)


@for_all(
    box=boxes(3), tiles=st.lists(st.integers(1, 6), min_size=3, max_size=3), tilings=st.integers(1, 17), seed=seeds
)
def test_tiles_in_any_box(box, tiles, tilings, seed):
    phi = TileCoding(*box, tiles[: len(box[0])], tilings)
    x = in_and_out(*box, seed)
    same_as_twin(phi, x, EPS)
    assert ((phi(x) != 0).reshape(len(x), tilings, -1).sum(axis=2) == 1).all()


@for_all(d=st.integers(1, 40), m=st.integers(1, 4), width=st.floats(0.05, 20), normalized=st.booleans(), seed=seeds)
def test_rbf_of_any_centres(d, m, width, normalized, seed):
    rng = np.random.default_rng(seed)
    phi = RBF(rng.normal(size=(d, m)), width * rng.uniform(0.5, 2, size=m), normalized)
    x = rng.normal(size=(20, m)) * 2
    # An exponent e has the error 4 m eps e, and e exp(-e) < 1; subtracting the smallest leaves that one's error.
    exponents = ((x[:, None] - phi.centers) / phi.width) ** 2
    same_as_twin(phi, x, 8 * m * EPS * (2 + exponents.sum(axis=2).min(axis=1).max()))


@for_all(half=st.integers(1, 30), m=st.integers(1, 4), magnitude=st.floats(-3, 8), seed=seeds)
def test_random_fourier_of_any_frequencies(half, m, magnitude, seed):
    """Use angles up to 1e8 and more; above 1e6 sines and cosines are computed in another way."""
    rng = np.random.default_rng(seed)
    phi = RandomFourier(m, 2 * half, rng=rng)
    x = rng.normal(size=(20, m)) * 10**magnitude
    largest = (np.abs(x) @ np.abs(phi.frequencies.T)).max()
    same_as_twin(phi, x, (m + 1) * EPS * (1 + largest))
    np.testing.assert_allclose(np.linalg.norm(phi(x), axis=1), 1, rtol=0, atol=16 * EPS)


def test_sines_and_cosines_are_good_to_the_last_places():
    """One frequency of 1: the features are cos x and sin x."""
    phi = RandomFourier.from_frequencies([[1.0]])
    quarters = np.arange(-600_000, 600_000, 1001) * (np.pi / 2)
    x = np.concatenate([np.linspace(-10, 10, 4001), quarters, np.linspace(-1e6, 1e6, 4001), [0.0, 1e6, -1e6]])
    np.testing.assert_allclose(phi(x), np.column_stack([np.cos(x), np.sin(x)]), rtol=0, atol=1.5 * EPS)
    beyond = np.array([np.nextafter(1e6, 2e6), 1e15, 1e22])
    np.testing.assert_allclose(phi(beyond), np.column_stack([np.cos(beyond), np.sin(beyond)]), rtol=0, atol=EPS)


def test_exponentials_are_good_to_the_last_places():
    """One centre in 0, not normalised: the feature is exp(-x^2 / 2), 0 where that is below exp(-700)."""
    phi = RBF([[0.0]], 1.0, normalized=False)
    x = np.linspace(0, 37.4, 2001)
    np.testing.assert_allclose(phi(x)[:, 0], np.exp(-(x**2) / 2), rtol=4 * EPS)
    assert phi(0.0) == 1.0 and phi(37.5) == 0.0 and phi(1e308) == 0.0


def test_norm_and_finiteness_of_any_finite_observation():
    for phi in MAPS.values():
        if isinstance(phi, OneHot):
            x = np.arange(5.0)[:, None]
        else:
            ends = [0.0, -1e308, 1e308, 1e200, -1e155, 1e20, -1e9, 5e-324, np.finfo(np.float64).max]
            x = np.array(list(itertools.product(ends, repeat=phi.inputs)))
        rows = phi(x)
        assert np.isfinite(rows).all() and (np.linalg.norm(rows, axis=1) <= 1 + 64 * EPS).all()
        if isinstance(phi, RBF) and phi.normalized:
            np.testing.assert_allclose(rows.sum(axis=1), 1, rtol=16 * EPS)


def test_rbf_of_extreme_scale_and_far_from_all_centres():
    centers, x = np.array([[-1.0, 0], [0, 1], [1, 0]]), np.array([[0.3, 0.2], [-2, 5]])
    for scale in (1e-299, 1e149, 1e299):
        phi = RBF(centers * scale, scale)
        np.testing.assert_allclose(phi(x * scale), RBF(centers, 1.0)(x), rtol=1e-12)
        rows = phi([[1.7e308, -1.7e308]])
        assert rows.sum() == pytest.approx(1) and (rows >= 0).all()
    phi = RBF([[0.0], [1.0], [2.0]], 0.1)
    assert np.array_equal(phi([50.0, -50.0, 1e6]), [[0, 0, 1], [1, 0, 0], [0, 0, 1]])


def test_compiled_callers_get_nan_for_what_is_not_finite():
    for phi, bad in itertools.product(MAPS.values(), (np.nan, np.inf, -np.inf)):
        rng = np.random.default_rng(0)
        good = observations(phi, rng, 20)
        for i in range(phi.inputs):
            x = good.copy()
            x[7, i] = bad
            out = unchecked(phi, x)
            if phi.nonzeros:
                columns, values = out
                assert ((columns >= 0) & (columns < phi.dimension)).all() and (np.diff(columns, axis=1) > 0).all()
                # Grids without the coordinate do not see it.
                assert np.isnan(values[7]).any() and (np.isnan(values[7]).all() or len(getattr(phi, "groups", ())) > 1)
                values = np.delete(values, 7, axis=0)
                assert np.array_equal(values, np.delete(phi.sparse(good)[1], 7, axis=0))
            else:
                assert np.isnan(out[7]).any()
                assert np.array_equal(np.delete(out, 7, axis=0), np.delete(phi(good), 7, axis=0))


@st.composite
def grids(draw):
    nodes = []
    for _ in range(draw(st.integers(1, 5))):
        widths = st.lists(st.floats(1e-2, 1e3), min_size=1, max_size=5)
        number = st.builds(lambda first, w: (first + np.cumsum([0, *w])).tolist(), st.floats(-1e3, 1e3), widths)
        nodes.append(draw(st.integers(2, 7) | number))
    return nodes


def seen_by(phi, seed, n=30):
    """Observations in and out of the nodes, many of them at one; angles of any length, many a multiple of pi / 4."""
    rng, columns = np.random.default_rng(seed), []
    for nodes in phi.nodes:
        if isinstance(nodes, int):
            turn = rng.choice([rng.uniform(-np.pi, np.pi, n), rng.integers(-4, 5, n) * np.pi / 4], axis=0)
            length = np.exp(rng.normal(size=n))
            columns += [length * np.cos(turn), length * np.sin(turn)]
        else:
            low, high = nodes[0], nodes[-1]
            anywhere = rng.uniform(1.5 * low - 0.5 * high, 1.5 * high - 0.5 * low, n)
            columns.append(np.where(rng.random(n) < 0.4, rng.choice(nodes, n), anywhere))
    return np.stack(columns, axis=1)


@for_all(nodes=grids(), seed=seeds)
def test_interpolation_on_any_grids(nodes, seed):
    phi = Interpolation(nodes)
    x = seen_by(phi, seed)
    # A share of the way between nodes is as good as the difference of numbers up to 1e4 over widths from 1e-2 on.
    same_as_twin(phi, x, 1e7 * EPS)
    rows, columns = phi(x), phi.sparse(x)[0]
    assert (rows >= 0).all() and (np.diff(columns, axis=1) > 0).all()
    stops = np.cumsum([0, *(np.prod([np.size(n) if np.ndim(n) else n for n in map(phi.nodes.__getitem__, group)])
                            for group in phi.groups)])  # fmt: skip
    for first, last in itertools.pairwise(stops):
        np.testing.assert_allclose(rows[:, first:last].sum(axis=1), 1 / np.sqrt(len(phi.groups)), rtol=8 * EPS)
    again = pickle.loads(pickle.dumps(phi))
    assert repr(again) == repr(phi) and again(x).tobytes() == rows.tobytes()


def test_interpolation_is_exact_at_nodes_and_for_multilinear_functions():
    first, second = [-1.2, -0.5, -0.4, 0.6], [-0.07, 0.0, 0.07]
    phi = Interpolation([first, second])
    at = np.array(list(itertools.product(first, second)))
    assert np.array_equal(phi(at), np.eye(12))
    x = np.random.default_rng(0).uniform([-1.2, -0.07], [0.6, 0.07], (200, 2))
    function = lambda x: 2.0 - x[:, 0] + 30.0 * x[:, 1] - 7.0 * x[:, 0] * x[:, 1]  # noqa: E731
    np.testing.assert_allclose(phi(x) @ function(at), function(x), rtol=0, atol=100 * EPS)
    # Outside it is what it is at the nearest place of the box.
    assert np.array_equal(phi(x * 9), phi(np.clip(x * 9, [-1.2, -0.07], [0.6, 0.07])))


def test_angles_go_around_the_circle():
    phi = Interpolation([8])
    at = np.arange(8) * np.pi / 4 - np.pi
    np.testing.assert_allclose(phi(np.stack([np.cos(at), np.sin(at)], axis=1)), np.eye(8), rtol=0, atol=8 * EPS)
    # The two signs of pi are one place, and lengths do not matter.
    assert np.array_equal(phi([[-1.0, 0.0], [-1.0, -0.0], [-7.0, 0.0]]), np.eye(8)[[0, 0, 0]])
    above, below = phi([[-1.0, 1e-3], [-1.0, -1e-3]])
    np.testing.assert_allclose(above[[0, 7]], below[[0, 1]], rtol=1e-12)
    assert np.flatnonzero(above).tolist() == [0, 7] and np.flatnonzero(below).tolist() == [0, 1]
    assert phi([0.0, 0.0])[4] == 1.0  # no angle counts as 0


def test_a_compiled_environment_takes_interpolation():
    phi, car = MAPS["interpolation"], dmq.kernels.EnvironmentHandle(dmq.kernels.MountainCar(30))
    episode = dmq.kernels.Episode(car, phi, dmq.kernels.Stream(1))
    raw = dmq.kernels.Episode(car, Identity([-1.0, -1.0], [1.0, 1.0]), dmq.kernels.Stream(1))
    for number in range(5):
        episode.reset(number)
        raw.reset(number)
        for level in range(30):
            x = raw.features()[None] * np.sqrt(2)
            np.testing.assert_allclose(episode.features(), interpolation(phi, x)[0], rtol=0, atol=1e-12)
            assert episode.step(level % 3) == raw.step(level % 3) == -1.0


def test_one_hot_takes_only_its_integers():
    phi, message = OneHot(5), r"^x: expected observations of OneHot\(5\), got \[.*\] in row 1"
    for x in (-1.0, 5.0, 2.5, 1e300, -1e300, 2.0**31, 2.0**32):
        columns, values = unchecked(phi, [[3.0], [x]])
        assert columns[:, 0].tolist() == [3, 0] and np.isnan(values[1, 0]) and values[0, 0] == 1
        refuses([(ValueError, message, phi, [3.0, x]), (ValueError, message, phi.sparse, [3.0, x])])


def test_representations_make_the_same_map():
    for phi in MAPS.values():
        if not isinstance(phi, RBF | RandomFourier | Nystrom):
            assert repr(eval(repr(phi), vars(features))) == repr(phi)
    assert repr(MAPS["rbf"]) == "RBF(<centers of shape (20, 2)>, width=[0.5, 0.03], normalized=True)"
    assert repr(MAPS["random fourier"]) == "RandomFourier(<frequencies of shape (25, 2)>)"


def test_shapes():
    for phi in MAPS.values():
        m, d = phi.inputs, phi.dimension
        x = observations(phi, np.random.default_rng(2), 3)
        rows = phi(x)
        assert rows.shape == (3, d) and phi(x[:0]).shape == (0, d)
        one = x[0, 0] if m == 1 else x[0]
        assert np.array_equal(phi(one), rows[0])
        if m == 1:
            assert np.array_equal(phi(x[:, 0]), rows) and phi(x[:1, 0]).shape == (1, d)
        else:
            refuses([(ValueError, "^x: expected shape", phi, bad) for bad in (np.zeros(m + 1), 0.0)])


def test_sparse_is_dense_and_dense_maps_have_no_sparse_form():
    for phi in MAPS.values():
        x = observations(phi, np.random.default_rng(3), 60)
        if not phi.nonzeros:
            refuses([(TypeError, rf"^{type(phi).__name__}.sparse: expected a sparse map", phi.sparse, x)])
            continue
        columns, values = phi.sparse(x)
        assert columns.dtype == np.int32 and values.dtype == np.float64
        assert columns.shape == values.shape == (60, phi.nonzeros)
        assert (np.diff(columns, axis=1) > 0).all()
        dense = np.zeros((60, phi.dimension))
        np.put_along_axis(dense, columns.astype(np.int64), values, axis=1)
        assert np.array_equal(dense, phi(x))
        column, value = phi.sparse(x[0, 0] if phi.inputs == 1 else x[0])
        assert np.array_equal(column, columns[0]) and np.array_equal(value, values[0])


def test_frequencies_are_numpys():
    drawn = np.random.default_rng(11).standard_normal((4, 2)) / [0.5, 2.0]
    for rng in (11, np.random.default_rng(11), np.random.SeedSequence(11)):
        phi = RandomFourier(2, 8, [0.5, 2.0], rng)
        assert np.array_equal(phi.frequencies, drawn)
    assert np.array_equal(RandomFourier.from_frequencies(drawn)([0.3, 0.4]), phi([0.3, 0.4]))
    assert not np.array_equal(RandomFourier(2, 8).frequencies, RandomFourier(2, 8).frequencies)


def test_threads_share_a_map():
    x = np.random.default_rng(0).uniform(LOW, HIGH, size=(4000, 2))
    maps = [phi for phi in MAPS.values() if phi.inputs == 2]
    expected = [phi(x) for phi in maps]
    with ThreadPoolExecutor(4) as pool:
        for rows in pool.map(lambda _: [phi(x) for phi in maps], range(4)):
            assert all(np.array_equal(a, b) for a, b in zip(rows, expected, strict=True))


def test_blocks_of_many_rows_are_those_of_few():
    x = np.random.default_rng(0).uniform(LOW, HIGH, size=(20_000, 2))
    phi = Fourier(LOW, HIGH, 9)  # 100 features: two pieces of work
    assert np.array_equal(phi(x)[-7:], phi(x[-7:]))


def test_bad_arguments_are_named():
    refuses(
        [
            (ValueError, "^high: expected a number > low, got 1.0 .* at index 1", Fourier, [0, 1], [1, 1], 2),
            (ValueError, "^high: expected high - low to be finite", Fourier, [-1.7e308], [1.7e308], 2),
            (ValueError, "^low: expected shape", Identity, [], []),
            (TypeError, "^bias: expected a bool, got 1", Identity, [0], [1], 1),
            (ValueError, "^n: expected an integer in", OneHot, 0),
            (ValueError, "^n: expected an integer in", OneHot, 2**31),
            (TypeError, "^n: expected an integer, got True", OneHot, True),
            (ValueError, "^order: expected an integer in", Fourier, [0], [1], 0),
            (ValueError, "^order: expected a dimension of at most", Fourier, [0] * 40, [1] * 40, 3),
            (ValueError, "^centers: expected shape", RBF, np.zeros((0, 2)), 1),
            (ValueError, "^landmarks: expected shape", Nystrom, np.zeros((0, 2))),
            (ValueError, "^landmarks: expected numbers within", Nystrom, [[0.0], [1e301]]),
            (ValueError, "^width: expected a positive number", Nystrom, [[0.0]], 0.0),
            (ValueError, "^kernel: expected one of gaussian, matern", Nystrom, [[0.0]], 1.0, "linear"),
            (ValueError, "^kernel: expected one of", Nystrom, [[0.0]], 1.0, 1),
            (ValueError, "^tolerance: expected a number in", Nystrom, [[0.0]], 1.0, "gaussian", 1.0),
            (ValueError, "^tolerance: expected a non-negative", Nystrom, [[0.0]], 1.0, "gaussian", -1.0),
            (ValueError, "^centers: expected numbers within", RBF, [[0], [1]], 1e-200),
            (ValueError, "^centers: expected numbers within", RBF, [[1e301]], 1),
            (ValueError, "^width: expected a positive", RBF, [[0.0]], 0),
            (ValueError, "^width: expected numbers >= 1e-300", RBF, [[0.0]], 1e-310),
            (ValueError, r"^width\[1\]: expected a positive", RBF, [[0.0, 1]], [1, -1]),
            (TypeError, "^normalized: expected a bool", RBF, [[0.0]], 1, "no"),
            (ValueError, "^tiles: expected an integer in", TileCoding, [0], [1], 0, 1),
            (ValueError, "^tiles: expected an integer or shape", TileCoding, [0], [1], [2, 3], 1),
            (ValueError, r"^tiles\[1\]: expected an integer in", TileCoding, [0, 0], [1, 1], [2, 0], 1),
            (TypeError, r"^tiles\[0\]: expected an integer", TileCoding, [0, 0], [1, 1], [2, 0.5], 1),
            (TypeError, "^nodes: expected a list with an entry", Interpolation, 3),
            (TypeError, "^nodes: expected a list with an entry", Interpolation, []),
            (ValueError, r"^nodes\[1\]: expected an integer in", Interpolation, [[0, 1], 1]),
            (ValueError, r"^nodes\[0\]: expected at least 2 ascending", Interpolation, [[0.0]]),
            (ValueError, r"^nodes\[0\]: expected at least 2 ascending", Interpolation, [[0.0, 0.0]]),
            (ValueError, r"^nodes\[0\]: expected finite", Interpolation, [[0.0, np.inf]]),
            (ValueError, r"^nodes\[0\]: expected last - first to be", Interpolation, [[-1.7e308, 1.7e308]]),
            (ValueError, "^nodes: expected a dimension of at most", Interpolation, [10**5, 10**5]),
            (ValueError, "^tilings: expected an integer in", TileCoding, [0], [1], 2, 0),
            (ValueError, "^tiles: expected a dimension of at most", TileCoding, [0, 0], [1, 1], 10**5, 8),
            (ValueError, "^inputs: expected an integer in", RandomFourier, 0, 2),
            (ValueError, "^dimension: expected an even number, got 3", RandomFourier, 1, 3),
            (TypeError, "^rng: expected None", RandomFourier, 1, 2, 1.0, "a"),
            (ValueError, "^rng: expected None", RandomFourier, 1, 2, 1.0, -1),
            (ValueError, "^frequencies: expected shape", RandomFourier.from_frequencies, np.zeros((0, 1))),
            (ValueError, "^high: expected shape", grid, [0], [1, 2], 2),
            (ValueError, "^high: expected numbers >= low", grid, [1], [0], 2),
            (ValueError, "^counts: expected an integer or 2", grid, [0, 0], [1, 1], [2]),
            (ValueError, "^counts: expected an integer >= 1, got 0", grid, [0], [1], 0),
            (TypeError, "^counts: expected an integer, got 1.5", grid, [0], [1], 1.5),
            (ValueError, "^phi: expected shape", action_blocks, [[1.0]]),
            (ValueError, "^phi: expected shape", action_blocks, np.zeros((2, 0, 3))),
            (ValueError, "^phi: expected finite", action_blocks, [[[np.nan]]]),
        ]
    )


def test_the_base_class_is_abstract():
    with pytest.raises(TypeError, match="FeatureMap is abstract"):
        FeatureMap()
    mine = type("Mine", (FeatureMap,), {})()
    with pytest.raises(TypeError, match="Mine: expected a map derived from FeatureMap in Cython"):
        mine([0.0])
    for kind in TWINS:
        with pytest.raises(TypeError, match="not an acceptable base type"):
            type("Mine", (kind,), {})


def test_grid():
    points = grid([0, -1], [1, 1], [2, 3])
    assert points.tolist() == [[0, -1], [0, 0], [0, 1], [1, -1], [1, 0], [1, 1]]
    assert grid([0, 2], [1, 4], 1).tolist() == [[0.5, 3.0]]
    assert grid(0, 1, 3).tolist() == [[0], [0.5], [1]]


def test_action_blocks():
    rng = np.random.default_rng(0)
    phi = rng.normal(size=(5, 3, 4))
    phi /= np.linalg.norm(phi, axis=2, keepdims=True)
    blocks = action_blocks(phi)
    assert blocks.shape == (5, 12)
    np.testing.assert_allclose(np.linalg.norm(blocks, axis=1), 1)
    weights = rng.normal(size=4)
    theta = np.zeros((3, 3, 4))
    theta[np.arange(3), np.arange(3)] = np.sqrt(3) * weights
    np.testing.assert_allclose(blocks @ theta.reshape(3, 12).T, phi @ weights, atol=1e-14)


def test_gymnasium_takes_a_map():
    pytest.importorskip("gymnasium")
    for env, phi in (
        ("FrozenLake-v1", OneHot(16)),
        ("MountainCar-v0", MAPS["fourier"]),
        ("MountainCar-v0", MAPS["tiles"]),
    ):
        batch = dmq.environments.GymnasiumBatch(env, 3, features=phi, copies=1)
        assert batch.dimension == phi.dimension


def test_observations_that_were_seen_have_labels():
    phi = features.Seen(4)
    phi([(1, 2), np.array([3, 4]), "a", np.zeros(30)])
    assert phi.labels == [(1, 2), (3, 4), "a", None]
    again = features.Seen(4)
    again.restore(0, phi.keys)
    assert again.labels == [None] * 4
    again(["a", [3, 4]])  # as a journal that was resumed
    assert again.labels == [None, (3, 4), "a", None]
    assert pickle.loads(pickle.dumps(phi)).labels == phi.labels
    assert features.Seen(4, phi.keys).with_labels(phi.labels).labels == phi.labels


def test_all_states_of_a_large_space_cost_no_square():
    """Units of many observations are sparse, and one set serves all levels."""
    observer = observing.MapObserver(observing.OneHot(5000, 3), observing.ArrayForm((), np.int64), 2)
    states = observer.states(0)
    assert kernels.is_sparse(states.features) and states.features.nnz == 5000 and states.labels[:2] == [3, 4]
