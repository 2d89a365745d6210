"""Standard normals from uniforms: the kernel against a twin in NumPy's single precision, and against the normal law."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
import scipy.stats

from dmq_fast.kernels._philox import normals

pytestmark = pytest.mark.kernels

HALF = 2**26
CENTRE = 66_773_319  # .995 of HALF
# Coefficients from the constant up: numerator and denominator in the centre, and the tails.
ABOVE = [2.82113862, 374.304657, 14027.0801, 165982.078, 568278.062, 444733.844, 36979.7148]
BELOW = [1.0, 143.706635, 6041.52832, 84506.9141, 370841.906, 434070.844, 88649.8906]
TAIL = [4.04764175, 1.52187717, -0.0245752502, 0.00594688905, -0.00150852674, 0.00042093129, -9.34113414e-05]


def horner(coefficients, x):
    total = np.zeros_like(x)
    for coefficient in reversed(coefficients):
        total = total * x + np.float32(coefficient)
    return total


def logarithm(x):
    m, e = np.frexp(x)
    low = m < np.sqrt(np.float32(0.5))
    m, e = np.where(low, 2 * m, m), np.where(low, e - 1, e).astype(np.float32)
    t = (m - 1) / (m + 1)
    w = t * t
    inner = horner([1 / np.float32(3), 1 / np.float32(5), 1 / np.float32(7), 1 / np.float32(9)], w)
    return e * np.float32(0.693147181) + 2 * (t + t * w * inner)


def of_odd(a):
    """The normal of an odd integer, in the arithmetic of the kernel: not an approximation of it, but its bits."""
    a, size, unit = a.astype(np.int64), abs(a).astype(np.int64), np.float32(2.0**-26)
    s = np.float32(np.maximum(CENTRE - size, 0)) * unit * (np.float32(CENTRE + size) * unit)
    centre = np.float32(a) * unit * (horner(ABOVE, s) / horner(BELOW, s))
    r = np.sqrt(-logarithm(np.float32(HALF - size) * (unit / 2))) - np.float32(3.25)
    return np.where(size > CENTRE, np.copysign(horner(TAIL, r), np.float32(a)), centre).astype(float)


def twin(u):
    """The normals of the first halves of uniforms, and those of the second halves, each of the shape of u."""
    x = np.asarray(u) * HALF
    high = np.floor(x)
    return of_odd(2 * high + 1 - HALF), of_odd(2 * np.floor((x - high) * HALF) + 1 - HALF)


def joined(high, low):
    """A uniform of two halves."""
    return (high + low / HALF) / HALF


def test_bits_are_those_of_the_twin_wherever_they_stand():
    rng = np.random.default_rng(0)
    ends = np.array([0, 1, 2, HALF // 2 - 1, HALF // 2, HALF - 2, HALF - 1, *range(HALF - 170_000, HALF - 166_000)])
    u = rng.permutation(np.concatenate([rng.random(5_000), joined(ends, ends[::-1]), 2.0 ** -rng.uniform(1, 60, 500)]))
    expected = np.concatenate(twin(u))
    assert (normals(u) == expected).all()
    for n in [*range(70), 255, 256, 257, 513]:
        assert (normals(u[17:][:n]) == np.concatenate(twin(u[17:][:n]))).all()


def test_each_half_gives_the_quantile_of_the_middle_of_its_cell():
    rng = np.random.default_rng(1)
    outer = np.unique(np.geomspace(1, HALF / 2, 20_000).astype(int)) - 1
    k = np.concatenate([outer, HALF - 1 - outer, rng.integers(HALF, size=100_000)])
    z = scipy.special.ndtri((k + 0.5) / HALF)
    for high, low in ((k, k[::-1]), (k[::-1], k)):
        got = normals(joined(high, low)).reshape(2, -1)
        for half, of in zip(got, (high, low), strict=True):
            np.testing.assert_allclose(half, z[:: 1 if of is k else -1], rtol=1e-6, atol=0)


def test_normals_are_symmetric_ordered_and_bounded():
    k = np.unique(np.concatenate([np.arange(2_000), np.random.default_rng(2).integers(HALF // 2, size=50_000)]))
    z, mirrored = normals(joined(k, k))[: len(k)], normals(joined(HALF - 1 - k, k))[: len(k)]
    assert (z == -mirrored).all()
    assert 5.65 < -z[0] < 5.67 and (np.diff(z[:2_000]) > 0).all()


@pytest.mark.parametrize("wrong", [[1.0], [-0.1], [np.nan], [[0.5]], 0.5])
def test_other_uniforms_are_refused(wrong):
    with pytest.raises(ValueError, match="uniforms"):
        normals(wrong)
    assert normals([]).shape == (0,)
