"""Bounds on the size of a cover."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmq_fast.theory import printed_cover_bound, sure_cover_bound


def test_printed_bound_is_the_papers():
    assert printed_cover_bound(2, 0.01) == pytest.approx(21.19, abs=0.01)


def test_sure_bound_exceeds_the_printed_one_where_its_last_step_fails():
    """THEORY, finding E: at d = 2, eps_r = .01 and factor 2 the inequality admits 23 > 21.2."""
    factor_two = max(n for n in range(1, 100) if 2 ** (n - 1) * 0.01**2 <= (n + 1) ** 2)
    assert factor_two == 23 > printed_cover_bound(2, 0.01)


@given(st.integers(1, 50), st.floats(0.1, 100), st.floats(1e-12, 10))
def test_sure_bound_is_the_largest_admitted(d, ratio, eps_r):
    def admitted(n):
        return (n - 1) * math.log1p(ratio) <= d * math.log1p(n / (d * eps_r))

    bound = sure_cover_bound(d, ratio, eps_r)
    assert admitted(bound)
    assert not admitted(bound + 1)


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.floats(1.0, 20.0))
def test_sure_bound_holds_on_accumulated_moments(seed, d, ratio):
    rng = np.random.default_rng(seed)
    eps_r, s, size = 0.01, np.zeros((d, d)), 0
    for _ in range(300):
        x = rng.normal(size=(rng.integers(1, 4), d))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        m = x.T @ x / len(x) * rng.random()
        if np.linalg.eigvals(np.linalg.solve(s + eps_r * np.eye(d), m)).real.max() >= ratio:
            s += m
            size += 1
    assert size <= sure_cover_bound(d, ratio, eps_r)
