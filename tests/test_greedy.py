"""Greedy actions: the largest score, the smallest action among equals, by every route through the kernel."""

from __future__ import annotations

import numpy as np
import pytest
import twins
from hypothesis import given, settings
from hypothesis import strategies as st

from dmq_fast.kernels import greedy_actions

pytestmark = pytest.mark.kernels

EPS = np.finfo(np.float64).eps
DIMENSIONS = [1, 2, 11, 12, 13, 40]  # plain sums below 12, a matrix product from 12 on


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("n", [0, 1, 2, 255, 256, 257, 600])
@pytest.mark.parametrize("n_actions", [1, 2, 7])
def test_actions_and_values_are_the_twins(d, n, n_actions):
    rng = np.random.default_rng(100 * d + n)
    features, theta = rng.normal(size=(n, d)), rng.normal(size=(n_actions, d))
    actions, values = greedy_actions(features, theta, return_values=True)
    expected_actions, expected_values = twins.greedy_actions(features, theta) if n else (np.empty(0), np.empty(0))
    assert actions.dtype == np.int64 and actions.shape == values.shape == (n,)
    assert (actions == expected_actions).all()
    bound = (d + 1) * EPS * (np.abs(features) @ np.abs(theta).T).max(axis=1)
    assert (np.abs(values - expected_values) <= bound).all()
    assert (greedy_actions(features, theta) == actions).all()


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("n", [1, 3, 17, 300])
def test_equal_weights_give_the_smallest_action(d, n):
    for n_actions in range(1, 20):
        rng = np.random.default_rng(d)
        features, theta = rng.normal(size=(n, d)), np.tile(rng.normal(size=d), (n_actions, 1))
        assert not greedy_actions(features, theta).any(), n_actions
        assert not greedy_actions(np.zeros((n, d)), rng.normal(size=(n_actions, d))).any(), n_actions


@settings(deadline=None, max_examples=150)
@given(
    st.integers(1, 20),
    st.integers(1, 9),
    st.integers(1, 20),
    st.sampled_from([1e-170, 1, 1e150]),
    st.integers(0, 2**32),
)
def test_ties_and_near_ties_are_decided_as_sums_from_the_left(d, n_actions, n, scale, seed):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, d)) * scale
    rows = rng.normal(size=(2, d))
    rows[1] = np.nextafter(rows[0], np.inf) if rng.random() < 0.5 else rows[0] * (1 + 3 * EPS)
    theta = rows[rng.integers(2, size=n_actions)] * scale
    assert (greedy_actions(features, theta) == twins.greedy_actions(features, theta)[0]).all()


@pytest.mark.parametrize("d", DIMENSIONS)
def test_integer_ties_go_to_the_smallest_action(d):
    rng = np.random.default_rng(d)
    features, theta = rng.integers(-1, 2, size=(500, d)), rng.integers(-1, 2, size=(6, d))
    scores = features @ theta.T
    actions, values = greedy_actions(features, theta, return_values=True)
    assert (actions == scores.argmax(axis=1)).all() and (values == scores.max(axis=1)).all()
    assert d == 1 or ((scores == scores.max(axis=1, keepdims=True)).sum(axis=1) > 1).any()


@pytest.mark.parametrize("d", DIMENSIONS)
def test_signed_zeros_tie(d):
    theta = np.zeros((3, d))
    theta[1:] = -0.0
    assert not greedy_actions(np.ones((4, d)), theta).any()
    assert not greedy_actions(np.ones((4, d)), theta[::-1]).any()


@pytest.mark.parametrize("d", [12, 13, 40])
def test_routes_agree_across_the_threshold(d):
    rng = np.random.default_rng(d)
    features, theta = np.zeros((50, d)), rng.normal(size=(5, d))
    features[:, :11] = rng.normal(size=(50, 11))
    assert (greedy_actions(features, theta) == greedy_actions(features[:, :11], theta[:, :11])).all()


@pytest.mark.parametrize("d", [3, 12])
def test_overflow_names_the_row(d):
    features = np.full((300, d), 0.5)
    features[:277] = 0.0
    theta = np.full((2, d), 1.7e308)
    with pytest.raises(ValueError, match="score of row 277 is not finite"):
        greedy_actions(features, theta)
    theta[:, 1::2] *= -1
    theta[:, d - d % 2 :] = 0
    assert not greedy_actions(features, theta).any()


@pytest.mark.parametrize("d", [2, 12])
def test_every_layout_gives_the_same_actions(d):
    rng = np.random.default_rng(d)
    features, theta = rng.integers(0, 4, size=(9, d)), rng.integers(0, 4, size=(3, d))
    expected = (features @ theta.T).argmax(axis=1)
    for name, alternative in twins.layouts(features).items():
        assert (greedy_actions(alternative, theta) == expected).all(), name
    for name, alternative in twins.layouts(theta).items():
        assert (greedy_actions(features, alternative) == expected).all(), name
    assert (greedy_actions(features > 1, theta) == ((features > 1) @ theta.T).argmax(axis=1)).all()


@pytest.mark.parametrize("d", [2, 12])
def test_inputs_are_left_alone(d):
    both = np.random.default_rng(d).normal(size=(5, d))
    before = both.tobytes()
    assert (greedy_actions(both, both) == (both @ both.T).argmax(axis=1)).all()
    assert both.tobytes() == before


def test_what_is_not_a_number_is_named():
    good = np.ones((2, 2))
    for bad in twins.no_numbers(good).values():
        with pytest.raises(TypeError, match=r"^features: expected"):
            greedy_actions(bad, good)
        with pytest.raises(TypeError, match=r"^theta: expected"):
            greedy_actions(good, bad)
    for bad in twins.not_finite(good):
        with pytest.raises(ValueError, match=r"^features: expected finite"):
            greedy_actions(bad, good)
        with pytest.raises(ValueError, match=r"^theta: expected finite"):
            greedy_actions(good, bad)


@pytest.mark.parametrize("shape", [(), (2,), (1, 2, 2)])
def test_wrong_dimensions_are_named(shape):
    with pytest.raises(ValueError, match=r"^features: expected shape"):
        greedy_actions(np.ones(shape), np.ones((2, 2)))
    with pytest.raises(ValueError, match=r"^theta: expected shape"):
        greedy_actions(np.ones((2, 2)), np.ones(shape))


@pytest.mark.parametrize(
    ("features", "theta"), [((3, 2), (0, 2)), ((3, 0), (2, 0)), ((3, 2), (2, 3)), ((0, 0), (0, 0))]
)
def test_empty_or_unequal_weights_are_named(features, theta):
    with pytest.raises(ValueError, match=r"^theta: expected shape"):
        greedy_actions(np.ones(features), np.ones(theta))


def test_return_values_is_keyword_only():
    with pytest.raises(TypeError):
        greedy_actions(np.ones((1, 1)), np.ones((1, 1)), True)
