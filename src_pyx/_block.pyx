"""Block MDPs as compiled environments: a finite MDP whose states emit noisy observations (Du et al., 2019, PCID).

The hidden MDP is a `FiniteModel`, whose tables are read where they are. A state s of level h is seen as
phi = scale (base_h(s) + noise):

- none: the row itself, which takes no uniform;
- coins: n further coordinates, each 0 or 1 with probability 1/2. Coin j of 52 is the (j + 1)-th binary digit of one
  uniform after the point, so a state takes ceil(n / 52) uniforms;
- gaussian: independent N(0, sigma^2) on every coordinate, one uniform each, through the inverse of the normal
  distribution function. A rotation leaves this noise as it is, so a rotated observation needs rotated rows only.
  Observations of norm above 1 are then projected onto the unit ball.

Nothing here depends on the machine: the logarithm is the one below, square roots and divisions are rounded correctly,
and sums have a fixed order.
"""

from cpython.pycapsule cimport PyCapsule_GetContext, PyCapsule_SetContext, PyCapsule_SetDestructor
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free

from dmq_fast.kernels._env cimport ENVIRONMENT_VERSION, Environment, environment_capsule
from dmq_fast.kernels._finite cimport BERNOULLI, BY_EDGE, BY_ROW, FiniteModel, Level

import numpy as np

from dmq_fast.kernels._validate import as_floats, as_positive

cdef extern from *:
    """
    #include <math.h>
    #include <stdint.h>
    #include <string.h>
    #include "dmq_wide.h"

    #define DMQ_HORNER_7(x, c0, c1, c2, c3, c4, c5, c6, c7) \
        (((((((c7 * x + c6) * x + c5) * x + c4) * x + c3) * x + c2) * x + c1) * x + c0)

    /* Uniforms whose quantiles are taken together: they and the list of those in the tails stay in the first cache. */
    enum { DMQ_SOME = 256 };

    /* Rational approximations of Wichura (1988), Algorithm AS 241, PPND16: relative error about 1e-16. In the centre,
       |u - 1/2| <= .425, as a function of .425^2 - (u - 1/2)^2. */
    DMQ_WIDE static void dmq_centre(const double *u, ptrdiff_t n, double *z)
    {
        for (ptrdiff_t i = 0; i < n; i++) {
            double q = u[i] - 0.5, r = 0.180625 - q * q;
            z[i] = q
                * DMQ_HORNER_7(r, 3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
                               1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
                               3.3430575583588128105e4, 2.5090809287301226727e3)
                / DMQ_HORNER_7(r, 1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
                               2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4,
                               5.2264952788528545610e3);
        }
    }

    /* log x of a normal x in (0, 1/2): x = 2^e m with m in [sqrt(1/2), sqrt(2)), and log m = 2 artanh s with
       s = (m - 1)/(m + 1), whose series is cut where terms fall below 2^-56 of the first, since s^2 < .0295. */
    static inline double dmq_log(double x)
    {
        const uint64_t root = 0x3fe6a09e667f3bcd, one = 0x3ff0000000000000, magic = 0x4330000000000000;
        uint64_t bits, shifted;
        double e, m, s, w, series;
        memcpy(&bits, &x, sizeof bits);
        bits += one - root;
        shifted = (bits >> 52) | magic;
        memcpy(&e, &shifted, sizeof e);
        e -= 4503599627370496.0 + 1023.0;
        bits = (bits & 0x000fffffffffffff) + root;
        memcpy(&m, &bits, sizeof m);
        s = (m - 1.0) / (m + 1.0);
        w = s * s;
        series = w * DMQ_HORNER_7(w, 1.0 / 3, 1.0 / 5, 1.0 / 7, 1.0 / 9, 1.0 / 11, 1.0 / 13, 1.0 / 15,
                                  (1.0 / 17 + w * (1.0 / 19 + w * (1.0 / 21))));
        /* The high part of log 2 has 32 bits, so that its product with e is exact. */
        return e * 0.693147180369123816490e0 + (e * 1.90821492927058770002e-10 + 2.0 * (s + s * series));
    }

    /* Outwards, as a function of r = sqrt(-log p), p the smaller tail; z <- the size of the quantile. Three loops, as
       compilers do not widen a square root that may set errno. */
    DMQ_WIDE static void dmq_minus_log(const double *p, ptrdiff_t n, double *r)
    {
        for (ptrdiff_t i = 0; i < n; i++)
            r[i] = -dmq_log(p[i]);
    }

    DMQ_WIDE static void dmq_tail(const double *r, ptrdiff_t n, double *z)
    {
        for (ptrdiff_t i = 0; i < n; i++) {
            double x = r[i] - 1.6;
            z[i] = DMQ_HORNER_7(x, 1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
                                3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
                                2.27238449892691845833e-2, 7.74545014278341407640e-4)
                / DMQ_HORNER_7(x, 1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
                               1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
                               1.05075007164441684324e-9);
        }
    }

    static double dmq_far_tail(double r)
    {
        double x = r - 5.0;
        return DMQ_HORNER_7(x, 6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0,
                            2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                            2.71155556874348757815e-5, 2.01033439929228813265e-7)
            / DMQ_HORNER_7(x, 1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
                           7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
                           2.04426310338993978564e-15);
    }

    /* z (n,) <- the standard normal quantiles of u (n,). An end of [0, 1] counts as half a step of 2^-53 inside. */
    static void dmq_normal_quantiles(const double *u, ptrdiff_t n, double *z)
    {
        int32_t index[DMQ_SOME];
        double p[DMQ_SOME], r[DMQ_SOME], t[DMQ_SOME];
        for (ptrdiff_t done = 0; done < n; done += DMQ_SOME) {
            const double *v = u + done;
            double *out = z + done;
            int32_t size = n - done < DMQ_SOME ? (int32_t) (n - done) : DMQ_SOME, m = 0;
            dmq_centre(v, size, out);
            for (int32_t i = 0; i < size; i++) {
                index[m] = i;
                m += fabs(v[i] - 0.5) > 0.425;
            }
            for (int32_t k = 0; k < m; k++) {
                double x = v[index[k]], low = x < 0.5 ? x : 1.0 - x;
                p[k] = low < 2.2250738585072014e-308 ? 5.551115123125783e-17 : low;
            }
            dmq_minus_log(p, m, r);
            for (int32_t k = 0; k < m; k++)
                r[k] = sqrt(r[k]);
            dmq_tail(r, m, t);
            for (int32_t k = 0; k < m; k++) {
                double size_of = r[k] > 5.0 ? dmq_far_tail(r[k]) : t[k];
                out[index[k]] = v[index[k]] < 0.5 ? -size_of : size_of;
            }
        }
    }

    typedef double dmq_four __attribute__((vector_size(32)));

    /* phi (n, d) <- base[states] + deviation phi, rows projected onto the unit ball. */
    DMQ_WIDE static void dmq_noisy_rows(
        const double *base, const int32_t *states, ptrdiff_t n, ptrdiff_t d, double deviation, double *phi)
    {
        for (ptrdiff_t i = 0; i < n; i++) {
            const double *row = base + states[i] * d;
            double *out = phi + i * d, total;
            dmq_four a = {0}, b = {0}, x, y, p, q;
            ptrdiff_t j = 0;
            for (; j + 8 <= d; j += 8) {
                memcpy(&x, out + j, sizeof x);
                memcpy(&y, out + j + 4, sizeof y);
                memcpy(&p, row + j, sizeof p);
                memcpy(&q, row + j + 4, sizeof q);
                x = p + deviation * x;
                y = q + deviation * y;
                memcpy(out + j, &x, sizeof x);
                memcpy(out + j + 4, &y, sizeof y);
                a += x * x;
                b += y * y;
            }
            a += b;
            total = (a[0] + a[1]) + (a[2] + a[3]);
            for (; j < d; j++) {
                out[j] = row[j] + deviation * out[j];
                total += out[j] * out[j];
            }
            if (total > 1.0) {
                double shrink = 1.0 / sqrt(total);
                for (j = 0; j < d; j++)
                    out[j] *= shrink;
            }
        }
    }

    /* The first m of d coordinates of every row. */
    static void dmq_rows(
        const double *base, const int32_t *states, ptrdiff_t n, ptrdiff_t m, ptrdiff_t d, double *phi)
    {
        for (ptrdiff_t i = 0; i < n; i++)
            memcpy(phi + i * d, base + states[i] * m, m * sizeof(double));
    }

    /* The last `coins` of d coordinates of every row: `value` or 0. */
    DMQ_WIDE static void dmq_coins(
        const double *u, ptrdiff_t n, ptrdiff_t coins, double value, ptrdiff_t d, double *phi)
    {
        uint64_t paid;
        memcpy(&paid, &value, sizeof paid);
        for (ptrdiff_t i = 0; i < n; i++) {
            double *out = phi + i * d + d - coins;
            for (ptrdiff_t done = 0; done < coins; done += 52) {
                uint64_t digits = (uint64_t) (*u++ * 4503599627370496.0);
                uint64_t some = coins - done < 52 ? coins - done : 52;
                for (uint64_t j = 0; j < some; j++) {
                    uint64_t coin = -(digits >> (51 - j) & 1) & paid;
                    memcpy(out + done + j, &coin, sizeof coin);
                }
            }
        }
    }
    """
    void normal_quantiles_of "dmq_normal_quantiles"(const double* u, Py_ssize_t n, double* z) noexcept nogil
    void noisy_rows "dmq_noisy_rows"(
        const double* base, const int32_t* states, Py_ssize_t n, Py_ssize_t d, double deviation, double* phi
    ) noexcept nogil
    void rows_of "dmq_rows"(
        const double* base, const int32_t* states, Py_ssize_t n, Py_ssize_t m, Py_ssize_t d, double* phi
    ) noexcept nogil
    void coins_of "dmq_coins"(
        const double* u, Py_ssize_t n, Py_ssize_t coins, double value, Py_ssize_t d, double* phi
    ) noexcept nogil

# Coins of one uniform.
cdef enum:
    DIGITS = 52

cdef enum Noise:
    NO_NOISE = 0
    COINS = 1
    GAUSSIAN = 2

NOISES = {"none": NO_NOISE, "coins": COINS, "gaussian": GAUSSIAN}


# The context of the functions below; the arrays belong to the BlockModel and its FiniteModel.
cdef struct Block:
    Py_ssize_t horizon
    Py_ssize_t n_actions
    Py_ssize_t dimension
    const Level* levels
    Py_ssize_t n_start
    const double* start_threshold
    const int32_t* start_alias
    const int32_t* start_state
    Noise noise
    Py_ssize_t n_coins
    # What a coin pays, and the deviation of Gaussian noise: 1 and sigma, scaled.
    double coin
    double deviation
    # By level: scaled rows, each (S_h, d - n_coins).
    const double** base
    # By level.
    int64_t* feature_uniforms
    int64_t* step_uniforms


cdef class BlockModel:
    """A finite MDP whose states emit observations, as a compiled environment. Immutable.

    Parameters
    ----------
    model : FiniteModel
        The hidden MDP; its features are not used.
    base : sequence of H array_like, each (S_h, m)
        What the states of a level emit but for noise. An array object that appears at several levels is kept once.
    noise : {"none", "coins", "gaussian"}
    n_coins : int
        Number of coins, appended to the m coordinates; >= 1 for coins, else 0.
    sigma : float
        Standard deviation of Gaussian noise before scaling; >= 0, and 0 for other noise.
    scale : float
        What base and noise are multiplied with; > 0.

    Attributes
    ----------
    model : FiniteModel

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type, shape or range.
    """

    cdef readonly FiniteModel model
    cdef Block block
    cdef Environment environment
    cdef list _alive

    def __cinit__(
        self, FiniteModel model not None, base, *, noise="none", n_coins=0, sigma=0.0, scale=1.0
    ):
        cdef Block* block = &self.block
        self.model = model
        if noise not in NOISES:
            raise ValueError(f"noise: expected one of {', '.join(NOISES)}, got {noise!r}")
        block.noise = NOISES[noise]
        block.n_coins = n_coins
        if block.n_coins < 0 or (block.n_coins > 0) != (block.noise == COINS):
            raise ValueError(f"n_coins: expected a number >= 1 for coins, and 0 for other noise, got {n_coins}")
        cdef double deviation = as_positive("sigma", sigma, zero=True)
        if deviation > 0.0 and block.noise != GAUSSIAN:
            raise ValueError(f"sigma: expected 0 without Gaussian noise, got {sigma}")
        block.coin = as_positive("scale", scale)
        block.deviation = block.coin * deviation
        block.horizon, block.n_actions, block.levels = model.horizon, model.n_actions, model.levels
        block.n_start, block.start_state = model.n_start, model.start_state
        block.start_threshold, block.start_alias = model.start_threshold, model.start_alias
        block.base = <const double**> calloc(model.horizon, sizeof(double*))
        block.feature_uniforms = <int64_t*> calloc(model.horizon, sizeof(int64_t))
        block.step_uniforms = <int64_t*> calloc(model.horizon, sizeof(int64_t))
        if block.base == NULL or block.feature_uniforms == NULL or block.step_uniforms == NULL:
            raise MemoryError()
        self.pack_base(tuple(base))
        self.count_uniforms()
        self.describe()

    def __dealloc__(self):
        free(self.block.base)
        free(self.block.feature_uniforms)
        free(self.block.step_uniforms)

    cdef int pack_base(self, tuple base) except -1:
        cdef Py_ssize_t h
        cdef const double[:, ::1] rows
        cdef dict packed = {}
        width = None
        self._alive = []
        if len(base) != self.block.horizon:
            raise ValueError(f"base: expected {self.block.horizon} arrays, one a level, got {len(base)}")
        for h in range(self.block.horizon):
            if id(base[h]) not in packed:
                given = as_floats(f"base: level {h}", base[h], (None, width))
                width = given.shape[1]
                if width == 0:
                    raise ValueError(f"base: level {h}: expected at least one column, got shape {given.shape}")
                packed[id(base[h])] = given * self.block.coin
            rows = packed[id(base[h])]
            if rows.shape[0] != self.block.levels[h].n_states:
                raise ValueError(
                    f"base: level {h}: expected one row for each of {self.block.levels[h].n_states} states, "
                    f"got {rows.shape[0]}"
                )
            self._alive.append(rows)
            self.block.base[h] = &rows[0, 0]
        self.block.dimension = width + self.block.n_coins
        return 0

    cdef void count_uniforms(self) noexcept:
        cdef Py_ssize_t h
        cdef int64_t seen = 0
        if self.block.noise == COINS:
            seen = (self.block.n_coins + DIGITS - 1) // DIGITS
        elif self.block.noise == GAUSSIAN and self.block.deviation > 0.0:
            seen = self.block.dimension
        for h in range(self.block.horizon):
            self.block.feature_uniforms[h] = seen
            self.block.step_uniforms[h] = (self.block.levels[h].rewards == BERNOULLI) + moves(&self.block, h)

    cdef void describe(self) noexcept:
        cdef Environment* environment = &self.environment
        environment.size = sizeof(Environment)
        environment.version = ENVIRONMENT_VERSION
        environment.horizon = self.block.horizon
        environment.n_actions = self.block.n_actions
        environment.dimension = self.block.dimension
        environment.state_bytes = sizeof(int32_t)
        environment.reset_uniforms = self.block.n_start > 1
        environment.feature_uniforms = self.block.feature_uniforms
        environment.step_uniforms = self.block.step_uniforms
        environment.reward_scale = 1.0
        environment.context = &self.block
        environment.reset = reset
        environment.features = features
        environment.step = step

    def __dmq_environment__(self):
        """Return a capsule of the environment, which keeps this model alive."""
        capsule = environment_capsule(&self.environment)
        PyCapsule_SetContext(capsule, <void*> self)
        Py_INCREF(self)
        PyCapsule_SetDestructor(capsule, let_go)
        return capsule


cdef void let_go(object capsule) noexcept:
    Py_DECREF(<object> PyCapsule_GetContext(capsule))


cdef inline bint moves(const Block* block, int64_t h) noexcept nogil:
    # Whether the next state takes a uniform. After the last level it only matters where a reward depends on it.
    cdef const Level* level = &block.levels[h]
    return not level.deterministic and (h < block.horizon - 1 or level.rewards == BY_EDGE)


cdef inline Py_ssize_t drawn(const double* threshold, const int32_t* alias, Py_ssize_t m, double u) noexcept nogil:
    # Outcome of a uniform by an alias table of m entries; see `alias_tables`.
    cdef double x = u * m
    cdef Py_ssize_t k = <Py_ssize_t> x
    return k if x - k < threshold[k] else alias[k]


cdef int reset(const void* context, int64_t n, const double* u, void* states) noexcept nogil:
    cdef const Block* block = <const Block*> context
    cdef int32_t* state = <int32_t*> states
    cdef Py_ssize_t i, k = 0
    for i in range(n):
        if block.n_start > 1:
            k = drawn(block.start_threshold, block.start_alias, block.n_start, u[i])
        state[i] = block.start_state[k]
    return 0


cdef int features(
    const void* context, int64_t level, int64_t n, const void* states, const double* u, double* phi
) noexcept nogil:
    cdef const Block* block = <const Block*> context
    cdef const double* base = block.base[level]
    cdef const int32_t* state = <const int32_t*> states
    cdef Py_ssize_t d = block.dimension
    if block.feature_uniforms[level] == 0:
        rows_of(base, state, n, d, d, phi)
    elif block.noise == COINS:
        rows_of(base, state, n, d - block.n_coins, d, phi)
        coins_of(u, n, block.n_coins, block.coin, d, phi)
    else:
        normal_quantiles_of(u, n * d, phi)
        noisy_rows(base, state, n, d, block.deviation, phi)
    return 0


cdef int step(
    const void* context, int64_t h, int64_t n, void* states, const int64_t* actions, const double* u, double* rewards
) noexcept nogil:
    # Uniforms of a trajectory as in `FiniteModel.rollout`: that of a Bernoulli reward, then that of the transition.
    cdef const Block* block = <const Block*> context
    cdef const Level* level = &block.levels[h]
    cdef int32_t* state = <int32_t*> states
    cdef bint moving = moves(block, h)
    cdef Py_ssize_t i, row, first, k
    for i in range(n):
        row = state[i] * block.n_actions + actions[i]
        rewards[i] = 0.0
        if level.rewards == BY_ROW:
            rewards[i] = level.reward[row]
        elif level.rewards == BERNOULLI:
            if u[0] < level.reward[row]:
                rewards[i] = level.cap
            u += 1
        if level.deterministic:
            state[i] = level.successor[row]
        elif moving:
            first = level.row_start[row]
            k = first + drawn(
                level.threshold + first, level.alias + first, level.row_start[row + 1] - first, u[0]
            )
            u += 1
            state[i] = level.next_state[k]
            if level.rewards == BY_EDGE:
                rewards[i] = level.reward[k]
    return 0


cdef void normal_quantiles_into(const double* u, Py_ssize_t n, double* z) noexcept nogil:
    normal_quantiles_of(u, n, z)


def normal_quantiles(uniforms):
    """Quantiles of the standard normal distribution.

    Parameters
    ----------
    uniforms : array_like, shape (n,)
        Numbers in [0, 1].

    Returns
    -------
    numpy.ndarray, shape (n,)
        Accurate to a few units in the last place. 0 and 1 count as 2^-54 and 1 - 2^-54, so that they give finite
        numbers.

    Notes
    -----
    Wichura, M. J. (1988). Algorithm AS 241: The percentage points of the normal distribution. Applied Statistics 37.
    """
    cdef const double[::1] u = as_floats("uniforms", uniforms, (None,))
    z = np.empty(u.shape[0])
    cdef double[::1] out = z
    if u.shape[0] > 0:
        with nogil:
            normal_quantiles_of(&u[0], u.shape[0], &out[0])
    return z
