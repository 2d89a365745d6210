"""Standard normals from uniforms, two from each, for randomised learners.

A uniform u has 52 binary digits after the point that count. Its first 26 are an integer k, its next 26 another, and
each becomes the normal quantile of (k + 1/2) / 2^26, in single precision. So a normal is one of 2^26 equally likely
numbers, symmetric about 0 and at most 5.7 in size, off its quantile by less than 1e-6 of it: no test tells them from
N(0, 1) before some 10^13 are drawn, and they take a third of the time of quantiles in double precision. The noise of
observations is made in the same way from the first 26 digits of words of 32 bits (see `_block`).

Nothing here depends on the machine: the logarithm is the one below, square roots and divisions are rounded correctly,
and nothing is contracted.
"""

cimport numpy as cnp

from dmq_fast.kernels._philox cimport Philox, Stream, philox_open, philox_uniforms
from dmq_fast.kernels._validate cimport entries

import numpy as np

from dmq_fast.kernels._validate import as_floats

cnp.import_array()

cdef extern from "dmq_normal.h":
    void normals_of "dmq_normals"(const double* u, Py_ssize_t n, float* high, float* low) noexcept nogil


# Uniforms of one call of `normals_of`, at most.
cdef enum:
    PIECE = 256


cdef void normals_into(const double* u, double* z, Py_ssize_t size) noexcept nogil:
    cdef float high[PIECE]
    cdef float low[PIECE]
    cdef Py_ssize_t m = (size + 1) // 2, done = 0, n, i
    while done < m:
        n = min(<Py_ssize_t> PIECE, m - done)
        normals_of(u + done, n, high, low)
        for i in range(n):
            z[done + i] = high[i]
        for i in range(min(n, size - m - done)):
            z[m + done + i] = low[i]
        done += n


cdef object standard_normals(rng, Py_ssize_t m, Py_ssize_t n):
    cdef Philox generator
    cdef Py_ssize_t i, half = (n + 1) // 2
    cdef cnp.ndarray uniforms, out
    cdef object shape = n
    if m >= 0:
        shape = (m, n)
    if isinstance(rng, np.random.Generator):
        return rng.standard_normal(shape)
    if not isinstance(rng, Stream):
        raise TypeError(f"rng: expected a numpy.random.Generator or a Stream, got {type(rng).__name__}")
    uniforms, out = np.empty(half), np.empty(shape)
    philox_open(&generator, rng)
    for i in range(1 if m < 0 else m):
        philox_uniforms(&generator, entries(uniforms), half)
        normals_into(entries(uniforms), entries(out) + i * n, n)
    return out


def normals(uniforms):
    """Return two standard normals for each uniform.

    Parameters
    ----------
    uniforms : array_like, shape (n,)
        Numbers in [0, 1).

    Returns
    -------
    numpy.ndarray, shape (2n,)
        The normals of the first 26 binary digits of every uniform, then those of the next 26. They are symmetric: those
        of 1 - u - 2^-52 are the negatives of those of u, for u a multiple of 2^-52.

    Raises
    ------
    TypeError, ValueError
        On another shape, or numbers out of range.
    """
    cdef const double[::1] u = as_floats("uniforms", uniforms, (None,))
    z = np.empty(2 * u.shape[0])
    cdef double[::1] out = z
    cdef Py_ssize_t i
    for i in range(u.shape[0]):
        if not 0.0 <= u[i] < 1.0:
            raise ValueError(f"uniforms: expected numbers in [0, 1), got {u[i]}")
    if u.shape[0] > 0:
        with nogil:
            normals_into(&u[0], &out[0], out.shape[0])
    return z
