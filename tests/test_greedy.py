"""Greedy actions: the largest score, the smallest action among equals, by every route through the kernel."""

from __future__ import annotations

import numpy as np
import pytest
import twins
from hypothesis import strategies as st
from properties import for_all, refuses, seeds

from dmq_fast.kernels import greedy_actions

pytestmark = pytest.mark.kernels

EPS = np.finfo(np.float64).eps
dimensions = st.sampled_from([1, 2, 11, 12, 13, 40])  # plain sums below 12, a matrix product from 12 on


@for_all(
    d=dimensions,
    n=st.one_of(st.integers(0, 40), st.sampled_from([255, 256, 257, 600])),
    n_actions=st.integers(1, 20),
    kind=st.sampled_from(["any", "equal", "integers"]),
    seed=seeds,
)
def test_actions_and_values_are_the_twins(d, n, n_actions, kind, seed):
    rng = np.random.default_rng(seed)
    features, theta = rng.normal(size=(n, d)), rng.normal(size=(n_actions, d))
    if kind == "equal":
        theta[:] = theta[0]
    elif kind == "integers":
        features, theta = rng.integers(-1, 2, size=(n, d)), rng.integers(-1, 2, size=(n_actions, d))
    before = features.tobytes(), theta.tobytes()
    actions, values = greedy_actions(features, theta, return_values=True)
    assert actions.dtype == np.int64 and actions.shape == values.shape == (n,)
    if n:
        scores = features @ theta.T
        bound = (d + 1) * EPS * (np.abs(features) @ np.abs(theta).T).max(axis=1)
        assert (np.abs(values - scores.max(axis=1)) <= bound).all()
        best = {"any": twins.greedy_actions(features, theta)[0] if n <= 40 else actions, "equal": 0}
        assert (actions == best.get(kind, scores.argmax(axis=1))).all()
    assert (greedy_actions(features, theta) == actions).all()
    assert not greedy_actions(np.zeros((n, d)), theta).any()
    # A few columns of zeros take the other route.
    more = greedy_actions(np.hstack([features, np.zeros((n, 12))]), np.hstack([theta, np.ones((n_actions, 12))]))
    assert kind == "integers" or (more == actions).all()
    assert (features.tobytes(), theta.tobytes()) == before


@for_all(
    d=st.integers(1, 20),
    n_actions=st.integers(1, 9),
    n=st.integers(1, 20),
    scale=st.sampled_from([1e-170, 1, 1e150]),
    seed=seeds,
)
def test_ties_and_near_ties_are_decided_as_sums_from_the_left(d, n_actions, n, scale, seed):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, d)) * scale
    rows = rng.normal(size=(2, d))
    rows[1] = np.nextafter(rows[0], np.inf) if rng.random() < 0.5 else rows[0] * (1 + 3 * EPS)
    theta = rows[rng.integers(2, size=n_actions)] * scale
    assert (greedy_actions(features, theta) == twins.greedy_actions(features, theta)[0]).all()


@pytest.mark.parametrize("d", [1, 2, 11, 12, 40])
def test_signed_zeros_tie(d):
    theta = np.zeros((3, d))
    theta[1:] = -0.0
    assert not greedy_actions(np.ones((4, d)), theta).any()
    assert not greedy_actions(np.ones((4, d)), theta[::-1]).any()


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


def test_what_does_not_fit_is_named():
    good = np.ones((2, 2))
    unequal = [((3, 2), (0, 2)), ((3, 0), (2, 0)), ((3, 2), (2, 3)), ((0, 0), (0, 0))]
    refuses(
        [
            *((ValueError, "^theta: expected shape", greedy_actions, np.ones(a), np.ones(b)) for a, b in unequal),
            (TypeError, "positional", greedy_actions, good, good, True),
        ]
    )
