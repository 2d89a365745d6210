"""Random streams as positions of one counter-based generator (Salmon et al., 2011).

A run owns a 128-bit key. Chunk j of call c reads Philox4x64-10 with that key from counter (0, 0, j, c), so
opening a stream costs nothing, streams never overlap (each has 2^128 blocks), and each can be rebuilt with
NumPy alone: ``numpy.random.Philox(key=key, counter=counter)`` with ``key = np.array(stream.key, np.uint64)`` and
``counter = np.array([0, 0, stream.chunk, stream.call], np.uint64)`` (lists of large integers turn into floats).

Standard normals come from uniforms, two from each. A uniform u has 52 binary digits after the point that count. Its
first 26 are an integer k, its next 26 another, and each becomes the normal quantile of (k + 1/2) / 2^26, in single
precision. So a normal is one of 2^26 equally likely numbers, symmetric about 0 and at most 5.7 in size, off its
quantile by less than 1e-6 of it: no test tells them from N(0, 1) before some 10^13 are drawn, and they take a third of
the time of quantiles in double precision. The noise of observations is made in the same way from the first 26 digits of
words of 32 bits (see `_block`).

Nothing here depends on the machine: the logarithm is the one below, square roots and divisions are rounded correctly,
and nothing is contracted.
"""

cimport numpy as cnp
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uint64_t

from dmq_fast.kernels._validate cimport entries, word

import numbers

import numpy as np

from dmq_fast.kernels._validate import as_floats

cnp.import_array()

cdef extern from *:
    """
    #include <stdint.h>
    #if defined(_MSC_VER)
    #include <intrin.h>
    static inline uint64_t dmq_mulhilo(uint64_t a, uint64_t b, uint64_t *hi) { return _umul128(a, b, hi); }
    #else
    static inline uint64_t dmq_mulhilo(uint64_t a, uint64_t b, uint64_t *hi) {
        unsigned __int128 product = (unsigned __int128)a * b;
        *hi = (uint64_t)(product >> 64);
        return (uint64_t)product;
    }
    #endif
    """
    uint64_t mulhilo "dmq_mulhilo"(uint64_t a, uint64_t b, uint64_t* hi) noexcept nogil

cdef extern from "dmq_normal.h":
    void normals_of "dmq_normals"(const double* u, Py_ssize_t n, float* high, float* low) noexcept nogil


# Uniforms of one call of `normals_of`, at most.
cdef enum:
    PIECE = 256

# Multipliers and Weyl increments of the paper, table 2.
cdef uint64_t M0 = 0xD2E7470EE14C6C93
cdef uint64_t M1 = 0xCA5A826395121157
cdef uint64_t W0 = 0x9E3779B97F4A7C15
cdef uint64_t W1 = 0xBB67AE8584CAA73B


cdef inline void next_block(Philox* g, uint64_t* out) noexcept nogil:
    cdef uint64_t c0, c1, c2, c3, k0 = g.key[0], k1 = g.key[1], hi0, hi1, lo0, lo1
    cdef int i, _round
    # NumPy counts first, then encrypts.
    for i in range(4):
        g.counter[i] += 1
        if g.counter[i] != 0:
            break
    c0, c1, c2, c3 = g.counter[0], g.counter[1], g.counter[2], g.counter[3]
    for _round in range(10):
        lo0 = mulhilo(M0, c0, &hi0)
        lo1 = mulhilo(M1, c2, &hi1)
        c0, c1, c2, c3 = hi1 ^ c1 ^ k0, lo1, hi0 ^ c3 ^ k1, lo0
        k0 += W0
        k1 += W1
    out[0], out[1], out[2], out[3] = c0, c1, c2, c3


cdef inline double to_uniform(uint64_t bits) noexcept nogil:
    return <double> (bits >> 11) * (1.0 / 9007199254740992.0)


cdef void philox_uniforms(Philox* g, double* out, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i = 0
    cdef uint64_t block[4]
    while i < n and g.used < 4:
        out[i] = to_uniform(g.buffer[g.used])
        g.used += 1
        i += 1
    while i + 4 <= n:
        next_block(g, block)
        out[i] = to_uniform(block[0])
        out[i + 1] = to_uniform(block[1])
        out[i + 2] = to_uniform(block[2])
        out[i + 3] = to_uniform(block[3])
        i += 4
    if i < n:
        next_block(g, g.buffer)
        g.used = 0
        while i < n:
            out[i] = to_uniform(g.buffer[g.used])
            g.used += 1
            i += 1


cdef void philox_open(Philox* g, Stream stream) noexcept:
    g.key[0] = stream._key[0]
    g.key[1] = stream._key[1]
    g.counter[0] = 0
    g.counter[1] = 0
    g.counter[2] = stream._chunk
    g.counter[3] = stream._call
    g.used = 4


cdef class Stream:
    """A position among the random streams of one run.

    Parameters
    ----------
    seed : None, int, array of int, numpy.random.SeedSequence or numpy.random.Generator
        Source of the 128-bit key: two words of the seed sequence (spawn key included), or 128 bits drawn from
        a Generator. None takes fresh entropy of the operating system.
    call : int, default 0
        Number of the call, 0 <= call < 2^64.
    chunk : int, default 0
        Number of the chunk within the call, 0 <= chunk < 2^64.

    Raises
    ------
    TypeError, ValueError
        When `seed` cannot seed, or a number is out of range.

    Examples
    --------
    >>> stream = Stream(7)
    >>> (stream.uniforms(2) == stream.generator().random(2)).all()
    np.True_
    >>> stream.at(1).uniforms(2).round(6)  # another call: another part of the sequence
    array([0.728132, 0.423707])
    """

    def __init__(self, seed=None, call=0, chunk=0):
        if isinstance(seed, np.random.Generator):
            words = seed.integers(0, 2**64, size=2, dtype=np.uint64)
        else:
            if isinstance(seed, bool) or (isinstance(seed, numbers.Integral) and seed < 0):
                raise ValueError(f"seed: expected a non-negative integer, got {seed!r}")
            if not isinstance(seed, np.random.SeedSequence):
                try:
                    seed = np.random.SeedSequence(seed)
                except (TypeError, ValueError) as error:
                    raise TypeError(
                        "seed: expected None, a non-negative int, a SeedSequence or a Generator, "
                        f"got {type(seed).__name__}"
                    ) from error
            words = seed.generate_state(2, np.uint64)
        self._key[0] = words[0]
        self._key[1] = words[1]
        self._call = word(call, "call")
        self._chunk = word(chunk, "chunk")

    @staticmethod
    def from_key(key, call=0, chunk=0):
        """Return the stream with the given 128-bit key, a pair of unsigned 64-bit integers."""
        if len(key) != 2:
            raise ValueError(f"key: expected two 64-bit integers, got {len(key)}")
        cdef Stream stream = Stream.__new__(Stream)
        stream._key[0] = word(key[0], "key[0]")
        stream._key[1] = word(key[1], "key[1]")
        stream._call = word(call, "call")
        stream._chunk = word(chunk, "chunk")
        return stream

    @property
    def key(self):
        """Key of the run: two unsigned 64-bit integers."""
        return (self._key[0], self._key[1])

    @property
    def call(self):
        """Number of the call."""
        return self._call

    @property
    def chunk(self):
        """Number of the chunk within the call."""
        return self._chunk

    def at(self, call, chunk=0):
        """Return the stream of another call and chunk of the same run."""
        cdef Stream stream = Stream.__new__(Stream)
        stream._key[0] = self._key[0]
        stream._key[1] = self._key[1]
        stream._call = word(call, "call")
        stream._chunk = word(chunk, "chunk")
        return stream

    def generator(self):
        """Return a numpy.random.Generator that reads this stream from its beginning."""
        counter = np.array([0, 0, self._chunk, self._call], dtype=np.uint64)
        key = np.array(self.key, dtype=np.uint64)
        return np.random.Generator(np.random.Philox(counter=counter, key=key))

    def uniforms(self, Py_ssize_t n):
        """Return the first `n` uniforms of this stream, shape (n,): `generator().random(n)`, bit for bit."""
        if n < 0:
            raise ValueError(f"n: expected a non-negative integer, got {n}")
        cdef Philox generator
        cdef double[::1] out
        cdef Py_ssize_t done = 0, piece = 1 << 22
        array = np.empty(n)
        if n > 0:
            out = array
            philox_open(&generator, self)
            # A piece takes milliseconds; Ctrl-C is checked between pieces.
            while done < n:
                with nogil:
                    philox_uniforms(&generator, &out[done], min(piece, n - done))
                done += piece
                PyErr_CheckSignals()
        return array

    def __eq__(self, other):
        if not isinstance(other, Stream):
            return NotImplemented
        return (self.key, self.call, self.chunk) == (other.key, other.call, other.chunk)

    def __hash__(self):
        return hash((self.key, self.call, self.chunk))

    def __repr__(self):
        return f"Stream(key=({self._key[0]:#x}, {self._key[1]:#x}), call={self._call}, chunk={self._chunk})"

    def __reduce__(self):
        return (Stream.from_key, (self.key, self.call, self.chunk))


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

    Examples
    --------
    >>> normals([0.5, 0.25]).shape
    (4,)
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
