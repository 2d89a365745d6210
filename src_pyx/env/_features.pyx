"""Feature maps: from observations x (n, m) to features phi (n, d) of Euclidean norm at most 1.

The bound holds for every finite observation up to rounding, a few units of the last place; each class says why. An
observation with an entry that is NaN or infinite, which only compiled callers can pass, gives a row with NaN in it, and
valid columns if the map is sparse.
"""

cimport cython
cimport numpy as cnp
from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport NAN, atan2, cos, fabs, sin, sqrt
from libc.stdint cimport int32_t, int64_t

from dmq_fast.kernels._memory cimport Buffer
from dmq_fast.kernels._validate cimport (
    LARGEST, box, entries, flag, frozen, integer, integers, refuse_not_finite, widths,
)

from itertools import combinations
from math import prod

import numpy as np

from dmq_fast.kernels._validate import as_floats, as_numbers, as_positive

cnp.import_array()

cdef extern from "dmq_features.h":
    const double LARGEST_ANGLE "DMQ_LARGEST_ANGLE"
    void sincos "dmq_sincos"(
        const double* angle, Py_ssize_t n, double scale, double* sine, double* cosine
    ) noexcept nogil
    void bumps "dmq_bumps"(double* x, Py_ssize_t n, double shift) noexcept nogil
    void distances "dmq_distances"(
        const double* x, const double* centers, const double* inverse, Py_ssize_t m, Py_ssize_t d, double* out
    ) noexcept nogil
    double smallest "dmq_smallest"(const double* x, Py_ssize_t n) noexcept nogil
    double total "dmq_wide_sum"(const double* x, Py_ssize_t n) noexcept nogil
    void rescale "dmq_scale"(double* x, Py_ssize_t n, double scale) noexcept nogil
    void angles "dmq_angles"(
        const double* x, const double* frequencies, Py_ssize_t m, Py_ssize_t d, double* out
    ) noexcept nogil
    void harmonics "dmq_harmonics"(
        const double* cosine, const double* sine, Py_ssize_t m, Py_ssize_t order, double scale,
        double* pr, double* pi, double* re, double* im, double* phi
    ) noexcept nogil

# Rows whose sines are computed together.
cdef enum:
    ROWS = 16

# Kernels of `Nystrom`, by their places in KERNELS.
cdef enum:
    GAUSSIAN = 0
    MATERN = 1
    EXPONENTIAL = 2

KERNELS = ("gaussian", "matern", "exponential")

cdef double PI = np.pi


cdef inline double clipped(double x, double low, double high) noexcept nogil:
    # x nearest in [low, high]; NaN for NaN and infinities, through the product.
    cdef double inside = low if x < low else x
    return (high if inside > high else inside) + 0.0 * x


cdef class FeatureMap:
    """A map from observations x (n, m) to features phi (n, d) of Euclidean norm at most 1. Immutable.

    Derive from it in Cython (``cimport dmq_fast.kernels._features``) and write `apply` or `apply_sparse`. From Python,
    environments take any callable as ``features=``.

    Attributes
    ----------
    inputs, dimension : int
        m and d.
    nonzeros : int
        Entries of a row that may differ from 0, for sparse maps; 0 for dense ones.
    """

    def __cinit__(self):
        if type(self) is FeatureMap:
            raise TypeError(
                "FeatureMap is abstract: use Identity, OneHot, Fourier, RBF, TileCoding, Interpolation, "
                "RandomFourier or Nystrom"
            )

    cdef void apply(self, const double* x, Py_ssize_t n, double* phi, double* work) noexcept nogil:
        cdef Py_ssize_t i
        for i in range(n * self.dimension):
            phi[i] = NAN

    cdef void apply_sparse(self, const double* x, Py_ssize_t n, int32_t* columns, double* values) noexcept nogil:
        pass

    def __call__(self, x):
        """Return the features of observations.

        Parameters
        ----------
        x : array_like, shape (n, m) or (m,)
            Finite. With m = 1, shape (n,) is n observations, whatever n, and a number is one.

        Returns
        -------
        numpy.ndarray, shape (n, d) or (d,)
            Dense, whatever the map.

        Raises
        ------
        TypeError, ValueError
            If `x` is not real and finite, has another shape, or is not an observation of this map.
        """
        single, rows = observations(self, x)
        if self.nonzeros:
            columns, values = sparse_rows(self, rows)
            refuse_undefined(self, rows, values)
            phi = dense_from_sparse(self, columns, values)
        else:
            phi = dense_rows(self, rows)
        return phi[0] if single else phi

    def sparse(self, x):
        """Return the entries of the features that may differ from 0.

        Parameters
        ----------
        x : array_like, shape (n, m) or (m,)
            As for a call.

        Returns
        -------
        columns : numpy.ndarray of int32, shape (n, nonzeros) or (nonzeros,)
            Ascending in every row.
        values : numpy.ndarray, of the same shape

        Raises
        ------
        TypeError, ValueError
            As a call does, and TypeError if the map is dense.
        """
        if not self.nonzeros:
            raise TypeError(f"{type(self).__name__}.sparse: expected a sparse map, got a dense one; call it instead")
        single, rows = observations(self, x)
        columns, values = sparse_rows(self, rows)
        refuse_undefined(self, rows, values)
        return (columns[0], values[0]) if single else (columns, values)


def unchecked(FeatureMap map, x):
    """Return the features, or columns and values, of observations (n, m) that may be NaN, as compiled callers do."""
    rows = as_floats("x", x, (None, map.inputs), finite=False)
    return sparse_rows(map, rows) if map.nonzeros else dense_rows(map, rows)


cdef tuple observations(FeatureMap map, x):
    # Whether x is one observation, and all of them as an array (n, m).
    if map.dimension == 0:
        raise TypeError(f"{type(map).__name__}: expected a map derived from FeatureMap in Cython")
    array = as_numbers("x", x)
    cdef Py_ssize_t m = map.inputs
    single = array.ndim == (0 if m == 1 else 1)
    if single or (m == 1 and array.ndim == 1):
        array = array.reshape(-1, 1) if m == 1 else array.reshape(1, -1)
    if array.ndim != 2 or array.shape[1] != m:
        wanted = "(n, 1), (n,) or ()" if m == 1 else f"(n, {m}) or ({m},)"
        raise ValueError(f"x: expected shape {wanted}, got {np.shape(x)}")
    array = np.require(array, np.float64, ["C_CONTIGUOUS", "ALIGNED"])
    refuse_not_finite("x", array)
    return single, array


cdef cnp.ndarray dense_rows(FeatureMap map, cnp.ndarray rows):
    cdef cnp.npy_intp shape[2]
    shape[0], shape[1] = cnp.PyArray_DIM(rows, 0), map.dimension
    cdef cnp.ndarray out = cnp.PyArray_SimpleNew(2, shape, cnp.NPY_DOUBLE)
    cdef const double* x = entries(rows)
    cdef double* phi = entries(out)
    cdef Buffer work = Buffer(map.work_size)
    # A piece of work takes milliseconds; Ctrl-C is checked between pieces.
    cdef Py_ssize_t n = shape[0], piece = max(<Py_ssize_t> 1, (1 << 20) // map.dimension), start = 0
    while start < n:
        with nogil:
            map.apply(x + start * map.inputs, min(piece, n - start), phi + start * map.dimension, work.data)
        start += piece
        PyErr_CheckSignals()
    return out


cdef tuple sparse_rows(FeatureMap map, cnp.ndarray rows):
    cdef cnp.npy_intp shape[2]
    shape[0], shape[1] = cnp.PyArray_DIM(rows, 0), map.nonzeros
    cdef cnp.ndarray columns = cnp.PyArray_SimpleNew(2, shape, cnp.NPY_INT32)
    cdef cnp.ndarray values = cnp.PyArray_SimpleNew(2, shape, cnp.NPY_DOUBLE)
    cdef const double* x = entries(rows)
    cdef int32_t* column = <int32_t*> cnp.PyArray_DATA(columns)
    cdef double* value = entries(values)
    with nogil:
        map.apply_sparse(x, shape[0], column, value)
    return columns, values


cdef int refuse_undefined(FeatureMap map, cnp.ndarray rows, cnp.ndarray values) except -1:
    failed = np.isnan(values).any(axis=1)
    if failed.any():
        row = int(failed.argmax())
        raise ValueError(f"x: expected observations of {map!r}, got {rows[row].tolist()} in row {row}")
    return 0


cdef cnp.ndarray dense_from_sparse(FeatureMap map, cnp.ndarray columns, cnp.ndarray values):
    cdef cnp.npy_intp shape[2]
    shape[0], shape[1] = cnp.PyArray_DIM(columns, 0), map.dimension
    cdef cnp.ndarray out = cnp.PyArray_ZEROS(2, shape, cnp.NPY_DOUBLE, 0)
    cdef const int32_t* column = <const int32_t*> cnp.PyArray_DATA(columns)
    cdef const double* value = entries(values)
    cdef double* phi = entries(out)
    cdef Py_ssize_t i, j, k = map.nonzeros
    with nogil:
        for i in range(shape[0]):
            for j in range(i * k, i * k + k):
                phi[i * shape[1] + column[j]] = value[j]
    return out


@cython.final
cdef class Identity(FeatureMap):
    """The observations themselves, each coordinate divided by its largest size in the box.

    phi_i = x_i / (b_i sqrt(d)) with b_i = max(abs(low_i), abs(high_i)) and x clipped to the box; with `bias` the
    constant 1/sqrt(d) comes first. So linear functions of x (affine ones with `bias`) are linear functions of phi.
    Each of the d entries is at most 1/sqrt(d) in size, so the norm is at most 1.

    Parameters
    ----------
    low, high : array_like, shape (m,)
        The box, finite, low < high.
    bias : bool, default False

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type or out of range; the message names it.

    Examples
    --------
    >>> Identity([-1.0], [1.0], bias=True)([[0.5]])
    array([[0.70710678, 0.35355339]])
    """

    cdef readonly object low, high
    cdef readonly bint bias
    cdef object size
    cdef const double* lower
    cdef const double* upper
    cdef const double* sizes

    def __cinit__(self, low, high, bias=False):
        self.low, self.high = box(low, high)
        self.bias = flag(bias, "bias")
        self.size = frozen(np.maximum(np.abs(self.low), np.abs(self.high)))
        self.lower, self.upper, self.sizes = entries(self.low), entries(self.high), entries(self.size)
        self.inputs = len(self.low)
        self.dimension = self.inputs + self.bias

    cdef void apply(self, const double* x, Py_ssize_t n, double* phi, double* work) noexcept nogil:
        cdef Py_ssize_t i, _
        cdef double scale = 1.0 / sqrt(<double> self.dimension)
        for _ in range(n):
            if self.bias:
                phi[0] = scale
                phi += 1
            for i in range(self.inputs):
                phi[i] = clipped(x[i], self.lower[i], self.upper[i]) / self.sizes[i] * scale
            x += self.inputs
            phi += self.inputs

    def __repr__(self):
        bias = ", bias=True" if self.bias else ""
        return f"Identity(low={self.low.tolist()}, high={self.high.tolist()}{bias})"

    def __reduce__(self):
        return (Identity, (self.low, self.high, bool(self.bias)))


@cython.final
cdef class OneHot(FeatureMap):
    """Unit vectors: phi = e_x for an integer x in [0, n). Sparse, m = nonzeros = 1, of norm 1.

    Parameters
    ----------
    n : int
        Number of observations, also the dimension d.

    Raises
    ------
    TypeError, ValueError
        If `n` is not an integer >= 1.

    Examples
    --------
    >>> OneHot(3)([[2.0]])
    array([[0., 0., 1.]])
    """

    def __cinit__(self, n):
        self.dimension = integer(n, "n", 1, LARGEST)
        self.inputs = self.nonzeros = 1

    cdef void apply_sparse(self, const double* x, Py_ssize_t n, int32_t* columns, double* values) noexcept nogil:
        cdef Py_ssize_t r
        for r in range(n):
            columns[r] = 0
            values[r] = NAN
            # The comparison comes before the conversion: NaN and numbers beyond int32 must not be converted.
            if 0.0 <= x[r] < self.dimension and x[r] == <int32_t> x[r]:
                columns[r] = <int32_t> x[r]
                values[r] = 1.0

    def __repr__(self):
        return f"OneHot({self.dimension})"

    def __reduce__(self):
        return (OneHot, (self.dimension,))


@cython.final
cdef class Fourier(FeatureMap):
    """The cosine basis of Konidaris, Osentoski and Thomas (2011).

    phi_c = cos(pi c^T z) / sqrt(d), z_i = (x_i - low_i) / (high_i - low_i) with x clipped to the box, for all
    c in {0, ..., order}^m in lexicographic order, c = (0, ..., 0) first; d = (order + 1)^m. Each of the d entries is at
    most 1/sqrt(d) in size, so the norm is at most 1.

    Parameters
    ----------
    low, high : array_like, shape (m,)
        The box, finite, low < high.
    order : int
        At least 1.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type or out of range; the message names it.

    Notes
    -----
    cos(pi c^T z) = Re prod_i e^(i pi z_i c_i): a row takes 2m sines and cosines, and for most of its entries two
    products. Rounding errors grow like order * m units of the last place.

    Examples
    --------
    >>> Fourier([0.0], [1.0], order=2)([[0.5]]).round(6) + 0.0
    array([[ 0.57735,  0.     , -0.57735]])
    """

    cdef readonly object low, high
    cdef readonly Py_ssize_t order
    cdef Py_ssize_t partial
    cdef const double* lower
    cdef const double* upper

    def __cinit__(self, low, high, order):
        self.low, self.high = box(low, high)
        self.lower, self.upper = entries(self.low), entries(self.high)
        self.order = integer(order, "order", 1, LARGEST)
        self.inputs = len(self.low)
        self.dimension = dimension_of((int(self.order) + 1) ** int(self.inputs), "order")
        self.partial = self.dimension // (self.order + 1)
        self.work_size = 3 * ROWS * self.inputs + 2 * (self.order + 1) + 2 * self.partial

    cdef void apply(self, const double* x, Py_ssize_t n, double* phi, double* work) noexcept nogil:
        cdef Py_ssize_t i, r, rows, start = 0, m = self.inputs
        cdef double* angle = work
        cdef double* sine = angle + ROWS * m
        cdef double* cosine = sine + ROWS * m
        cdef double* powers = cosine + ROWS * m
        cdef double* products = powers + 2 * (self.order + 1)
        cdef double scale = 1.0 / sqrt(<double> self.dimension)
        while start < n:
            rows = min(<Py_ssize_t> ROWS, n - start)
            for r in range(rows):
                for i in range(m):
                    angle[r * m + i] = PI * (
                        (clipped(x[(start + r) * m + i], self.lower[i], self.upper[i]) - self.lower[i])
                        / (self.upper[i] - self.lower[i])
                    )
            sincos(angle, rows * m, 1.0, sine, cosine)
            for r in range(rows):
                harmonics(
                    cosine + r * m, sine + r * m, m, self.order, scale, powers, powers + self.order + 1,
                    products, products + self.partial, phi + (start + r) * self.dimension,
                )
            start += ROWS

    def __repr__(self):
        return f"Fourier(low={self.low.tolist()}, high={self.high.tolist()}, order={self.order})"

    def __reduce__(self):
        return (Fourier, (self.low, self.high, self.order))


@cython.final
cdef class RBF(FeatureMap):
    """Gaussian bumps around centres.

    g_j = exp(-sum_i ((x_i - centers_ji) / width_i)^2 / 2), and phi = g / sum_j g_j, or g / sqrt(d) if not `normalized`.
    Normalised entries are >= 0 and add up to 1, so the Euclidean norm is at most 1; the others are at most 1/sqrt(d),
    which gives the same.

    Parameters
    ----------
    centers : array_like, shape (d, m)
        Finite; see `dmq_fast.features.grid`.
    width : float or array_like, shape (m,)
        Positive.
    normalized : bool, default True

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type or out of range; the message names it.

    Notes
    -----
    With `normalized` the smallest exponent is subtracted before the exponentials, whose sum is then at least 1: far
    from all centres the nearest get the weight. Beyond about 1e8 widths distances can no longer be told apart, and the
    weights of the nearest are rounding; they still add up to 1. Without `normalized` features vanish there.

    Examples
    --------
    >>> RBF([[0.0], [1.0]], width=0.5)([[0.0]]).round(6)
    array([[0.880797, 0.119203]])
    """

    cdef readonly object centers, width
    cdef readonly bint normalized
    cdef object columns, inverses, bounds
    cdef const double* center
    cdef const double* inverse
    cdef const double* lower
    cdef const double* upper

    def __cinit__(self, centers, width, normalized=True):
        self.centers = frozen(as_floats("centers", centers, (None, None)))
        if self.centers.size == 0:
            raise ValueError(f"centers: expected shape (d, m) with d, m >= 1, got {self.centers.shape}")
        self.dimension = dimension_of(len(self.centers), "centers")
        self.inputs = self.centers.shape[1]
        self.width = widths(width, self.inputs)
        self.normalized = flag(normalized, "normalized")
        self.bounds = reaches(self.centers, self.width, "centers")
        self.columns = frozen(self.centers.T)
        self.inverses = frozen(1.0 / self.width)
        self.center, self.inverse = entries(self.columns), entries(self.inverses)
        self.lower, self.upper = entries(self.bounds), entries(self.bounds) + self.inputs
        self.work_size = self.inputs

    cdef void apply(self, const double* x, Py_ssize_t n, double* phi, double* work) noexcept nogil:
        cdef Py_ssize_t i, _, m = self.inputs, d = self.dimension
        for _ in range(n):
            for i in range(m):
                work[i] = clipped(x[i], self.lower[i], self.upper[i])
            distances(work, self.center, self.inverse, m, d, phi)
            if self.normalized:
                bumps(phi, d, smallest(phi, d))
                rescale(phi, d, 1.0 / total(phi, d))
            else:
                bumps(phi, d, 0.0)
                rescale(phi, d, 1.0 / sqrt(<double> d))
            x += m
            phi += d

    def __repr__(self):
        shape = self.centers.shape
        return f"RBF(<centers of shape {shape}>, width={self.width.tolist()}, normalized={bool(self.normalized)})"

    def __reduce__(self):
        return (RBF, (self.centers, self.width, bool(self.normalized)))


@cython.final
cdef class TileCoding(FeatureMap):
    """Tile coding with displaced tilings (Sutton and Barto 2018, section 9.5.4). Sparse, nonzeros = tilings.

    The box is cut into tiles_i parts along coordinate i. Tiling t = 0, ..., tilings - 1 is this grid, moved along
    coordinate i by the fraction (t (2i + 1) mod tilings) / tilings of a tile: the displacement vector (1, 3, 5, ...) of
    Miller and Glanz (1996). x is clipped to the box, and in every tiling the tile it falls into has the value
    1/sqrt(tilings), all others 0; tilings entries of that size have norm 1.

    Parameters
    ----------
    low, high : array_like, shape (m,)
        The box, finite, low < high.
    tiles : int or array_like of int, shape (m,)
        At least 1.
    tilings : int
        At least 1. A power of 2 that is at least 4m displaces best; where tilings has a factor in common with 2i + 1,
        coordinate i has fewer displacements than tilings.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type or out of range; the message names it.

    Notes
    -----
    A moved tiling needs one tile more in each coordinate. d = tilings * prod_i (tiles_i + 1), or prod_i tiles_i with
    one tiling. Tiling t has the t-th equal share of the columns, tiles in lexicographic order. Tiles contain their
    lower edges, and the last ones the upper edge of the box too.

    Examples
    --------
    >>> TileCoding([0.0], [1.0], tiles=2, tilings=2)([[0.5]]).round(6)
    array([[0.      , 0.707107, 0.      , 0.      , 0.707107, 0.      ]])
    """

    cdef readonly object low, high, tiles
    cdef readonly Py_ssize_t tilings
    cdef object counts, displacements, lasts
    cdef const double* lower
    cdef const double* upper
    cdef const double* count
    cdef const double* displacement
    cdef const double* last

    def __cinit__(self, low, high, tiles, tilings):
        self.low, self.high = box(low, high)
        self.inputs = len(self.low)
        self.tiles = frozen(np.array(integers(tiles, "tiles", self.inputs, 1, LARGEST), dtype=np.int64))
        self.tilings = self.nonzeros = integer(tilings, "tilings", 1, LARGEST)
        size = int(self.tilings)
        for count in self.tiles.tolist():
            size *= count + (self.tilings > 1)
        self.dimension = dimension_of(size, "tiles")
        moved = np.arange(self.tilings)[:, None] * (2 * np.arange(self.inputs) + 1) % self.tilings
        self.displacements = frozen(moved / self.tilings)
        self.counts = frozen(self.tiles.astype(np.float64))
        # Last tile of every tiling that the box meets.
        self.lasts = frozen(self.counts - (moved == 0))
        self.lower, self.upper, self.count = entries(self.low), entries(self.high), entries(self.counts)
        self.displacement, self.last = entries(self.displacements), entries(self.lasts)

    cdef void apply_sparse(self, const double* x, Py_ssize_t n, int32_t* columns, double* values) noexcept nogil:
        cdef Py_ssize_t i, _, t, m = self.inputs, k = self.tilings, share = self.dimension // k, moved = k > 1
        cdef double value = 1.0 / sqrt(<double> k), y
        for _ in range(n):
            for t in range(k):
                columns[t] = 0
                values[t] = value
            for i in range(m):
                y = (clipped(x[i], self.lower[i], self.upper[i]) - self.lower[i]) / (self.upper[i] - self.lower[i])
                y *= self.count[i]
                for t in range(k):
                    columns[t] = <int32_t> (
                        columns[t] * (<Py_ssize_t> self.count[i] + moved)
                        + tile(y + self.displacement[t * m + i], self.last[t * m + i])
                    )
                    values[t] += 0.0 * y
            for t in range(k):
                columns[t] += <int32_t> (t * share)
            x += m
            columns += k
            values += k

    def __repr__(self):
        return (
            f"TileCoding(low={self.low.tolist()}, high={self.high.tolist()}, tiles={self.tiles.tolist()}, "
            f"tilings={self.tilings})"
        )

    def __reduce__(self):
        return (TileCoding, (self.low, self.high, self.tiles, self.tilings))


cdef inline Py_ssize_t tile(double y, double last) noexcept nogil:
    # Tile of the place y >= 0; 0 for NaN, which must not be converted.
    return <Py_ssize_t> (y if y < last else last) if y >= 0.0 else 0


@cython.final
cdef class Interpolation(FeatureMap):
    """Multilinear interpolation on grids: linear finite elements. Sparse.

    With m <= 2 coordinates there is one grid, with more one for each pair of coordinates. A feature belongs to a node
    of a grid; a function that is linear in the features is continuous, and multilinear in the cells of every grid. x
    is clipped to the nodes. In its cell a corner has the weight prod_i w_i, w_i the share of the way to the other side
    along coordinate i. The weights of a grid add up to 1, and with G grids each is divided by sqrt(G), so the norm is
    at most 1. Tiles of that width round x to them; here the error is of second order in the width.

    Parameters
    ----------
    nodes : sequence
        For each coordinate the places of its nodes, at least 2, finite and ascending; or an integer n >= 2 for an
        angle, which is given by two entries of x, multiples of its cosine and its sine, and has n equally distant
        nodes around the circle, the first at -pi.

    Attributes
    ----------
    nodes : tuple
        Read-only arrays and integers.
    groups : tuple of tuple of int
        The coordinates of each grid.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type or out of range; the message names it.

    Notes
    -----
    Nodes of a grid are in lexicographic order, grids one after the other: d = sum over grids of the product of their
    numbers of nodes, nonzeros = 2 or 4 for each grid. Angles come from `atan2` of the C library, whose last bit may
    differ between systems.

    Examples
    --------
    >>> Interpolation([[0.0, 1.0, 3.0]])([[0.25], [2.0], [9.0]])
    array([[0.75, 0.25, 0.  ],
           [0.  , 0.5 , 0.5 ],
           [0.  , 0.  , 1.  ]])
    >>> Interpolation([4])([[0.0, 1.0]])  # an angle of a quarter turn
    array([[0., 0., 0., 1.]])
    """

    cdef readonly tuple nodes, groups
    cdef Py_ssize_t m, grids
    # By coordinate: its first entry of x, where its nodes begin, and how many they are; by grid: its coordinates.
    cdef object inputs_of, starts, counts, places, members
    cdef const int64_t* input_of
    cdef const int64_t* start
    cdef const int64_t* count
    cdef const int64_t* member
    cdef const double* place

    def __cinit__(self, nodes):
        given = [nodes[i] for i in range(len(nodes))] if isinstance(nodes, (list, tuple)) else None
        if not given:
            raise TypeError(f"nodes: expected a list with an entry for each coordinate, got {nodes!r}")
        kept, first, counts, inputs_of = [], 0, [], []
        for i, places in enumerate(given):
            inputs_of.append(first)
            if isinstance(places, (int, np.integer)) and not isinstance(places, bool):
                n = integer(places, f"nodes[{i}]", 2, LARGEST)
                kept.append(n)
                counts.append(-n)
                first += 2
                continue
            array = as_floats(f"nodes[{i}]", places, (None,))
            if len(array) < 2 or (array[1:] <= array[:len(array) - 1]).any():
                raise ValueError(f"nodes[{i}]: expected at least 2 ascending numbers, got {array.tolist()}")
            if array.max() / 2 - array.min() / 2 > np.finfo(np.float64).max / 2:
                raise ValueError(f"nodes[{i}]: expected last - first to be finite, got {array.tolist()}")
            kept.append(frozen(array))
            counts.append(len(array))
            first += 1
        self.m, self.inputs, self.nodes = len(given), first, tuple(kept)
        self.groups = (tuple(range(self.m)),) if self.m <= 2 else tuple(combinations(range(self.m), 2))
        size = sum(prod(abs(counts[i]) for i in group) for group in self.groups)
        self.dimension = dimension_of(size, "nodes")
        self.grids = len(self.groups)
        self.nonzeros = self.grids * (1 << len(self.groups[0]))
        arrays = [array for array in kept if not isinstance(array, int)]
        self.places = frozen(np.concatenate([*arrays, np.zeros(1)]))
        begin = np.cumsum([0, *(max(count, 0) for count in counts)])[:self.m]
        self.inputs_of, self.starts = frozen(np.array(inputs_of, np.int64)), frozen(begin.astype(np.int64))
        self.counts = frozen(np.array(counts, np.int64))
        self.members = frozen(np.array(self.groups, np.int64))
        self.input_of = <const int64_t*> cnp.PyArray_DATA(self.inputs_of)
        self.start = <const int64_t*> cnp.PyArray_DATA(self.starts)
        self.count = <const int64_t*> cnp.PyArray_DATA(self.counts)
        self.member = <const int64_t*> cnp.PyArray_DATA(self.members)
        self.place = entries(self.places)

    cdef void locate(self, const double* x, Py_ssize_t i, Py_ssize_t* node, double* weight) noexcept nogil:
        # The two nodes of coordinate i beside x, ascending, and their weights; NaN for NaN, at valid nodes.
        cdef Py_ssize_t n = self.count[i], low, high, middle
        cdef const double* place = self.place + self.start[i]
        cdef double y, share
        if n < 0:
            n = -n
            y = (atan2(x[self.input_of[i] + 1], x[self.input_of[i]]) / (2.0 * PI) + 0.5) * n
            y += 0.0 * x[self.input_of[i]] + 0.0 * x[self.input_of[i] + 1]
            low = <Py_ssize_t> y if 0.0 <= y < n else 0
            share = y - low if y < n else y - n
            if low + 1 < n:
                node[0], node[1], weight[0], weight[1] = low, low + 1, 1.0 - share, share
            else:
                node[0], node[1], weight[0], weight[1] = 0, low, share, 1.0 - share
            return
        y = clipped(x[self.input_of[i]], place[0], place[n - 1])
        low, high = 0, n - 1
        while high - low > 1:
            middle = (low + high) // 2
            if y >= place[middle]:
                low = middle
            else:
                high = middle
        share = (y - place[low]) / (place[high] - place[low])
        node[0], node[1], weight[0], weight[1] = low, high, 1.0 - share, share

    cdef void apply_sparse(self, const double* x, Py_ssize_t n, int32_t* columns, double* values) noexcept nogil:
        cdef Py_ssize_t g, i, j, _, base, second, each = self.nonzeros // self.grids
        cdef Py_ssize_t[4] node
        cdef double[4] weight
        cdef double scale = 1.0 / sqrt(<double> self.grids)
        for _ in range(n):
            base = 0
            for g in range(self.grids):
                self.locate(x, self.member[g * (each // 2)], node, weight)
                if each == 2:
                    for i in range(2):
                        columns[i], values[i] = <int32_t> (base + node[i]), scale * weight[i]
                    base += size_of(self.count[self.member[g]])
                else:
                    self.locate(x, self.member[2 * g + 1], node + 2, weight + 2)
                    second = size_of(self.count[self.member[2 * g + 1]])
                    for i in range(2):
                        for j in range(2):
                            columns[2 * i + j] = <int32_t> (base + node[i] * second + node[2 + j])
                            values[2 * i + j] = scale * weight[i] * weight[2 + j]
                    base += size_of(self.count[self.member[2 * g]]) * second
                columns += each
                values += each
            x += self.inputs

    def __repr__(self):
        return f"Interpolation({self.listed()})"

    def listed(self):
        """Return the nodes as lists and integers."""
        return [places if isinstance(places, int) else places.tolist() for places in self.nodes]

    def __reduce__(self):
        return (Interpolation, (self.listed(),))


cdef inline Py_ssize_t size_of(int64_t count) noexcept nogil:
    # Number of nodes of a coordinate; that of an angle is kept with a minus.
    return -count if count < 0 else count


@cython.final
cdef class RandomFourier(FeatureMap):
    """Random Fourier features of the Gaussian kernel (Rahimi and Recht 2007).

    phi = sqrt(2/d) (cos(w_1^T x), ..., cos(w_(d/2)^T x), sin(w_1^T x), ..., sin(w_(d/2)^T x)) with independent
    w_ji ~ N(0, 1 / width_i^2), so that phi(x)^T phi(y) has the mean exp(-sum_i ((x_i - y_i) / width_i)^2 / 2). As
    cos^2 + sin^2 = 1 for each of the d/2 frequencies, the norm is 1.

    Parameters
    ----------
    inputs : int
        m.
    dimension : int
        d, even.
    width : float or array_like, shape (m,), default 1
        Positive.
    rng : None, int, SeedSequence or Generator, optional
        Draws the frequencies, once; None is a fresh seed.

    Attributes
    ----------
    frequencies : numpy.ndarray, shape (d/2, m)
        Read-only; `RandomFourier.from_frequencies` makes the same map of them.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type or out of range; the message names it.

    Examples
    --------
    >>> RandomFourier(1, 4, rng=0)([[0.5]]).shape
    (1, 4)
    """

    cdef readonly object frequencies
    cdef object columns, bounds
    cdef const double* frequency
    cdef const double* largest
    cdef double reach

    def __cinit__(self, inputs, dimension, width=1.0, rng=None):
        m, d = integer(inputs, "inputs", 1, LARGEST), integer(dimension, "dimension", 2, LARGEST)
        if d % 2:
            raise ValueError(f"dimension: expected an even number, got {d}")
        scale = widths(width, m)
        try:
            generator = np.random.default_rng(rng)
        except (TypeError, ValueError) as error:
            raise type(error)(f"rng: expected None, an integer, a SeedSequence or a Generator, got {rng!r}") from error
        self.keep(generator.standard_normal((d // 2, m)) / scale)

    @staticmethod
    def from_frequencies(frequencies):
        """Make the map of given frequencies, of any other kernel for example.

        Parameters
        ----------
        frequencies : array_like, shape (d/2, m)
            Finite.

        Returns
        -------
        RandomFourier

        Raises
        ------
        TypeError, ValueError
            If `frequencies` has another dtype or shape, or is not finite.
        """
        given = as_floats("frequencies", frequencies, (None, None))
        if given.size == 0:
            raise ValueError(f"frequencies: expected shape (d/2, m) with d/2, m >= 1, got {given.shape}")
        # The constructor draws one frequency, which `keep` replaces.
        cdef RandomFourier out = RandomFourier.__new__(RandomFourier, 1, 2, 1.0, 0)
        out.keep(given)
        return out

    cdef int keep(self, frequencies) except -1:
        self.frequencies = frozen(frequencies)
        self.columns = frozen(self.frequencies.T)
        self.bounds = frozen(np.abs(self.frequencies).max(axis=0))
        self.frequency, self.largest = entries(self.columns), entries(self.bounds)
        self.inputs = self.frequencies.shape[1]
        self.dimension = dimension_of(2 * len(self.frequencies), "frequencies")
        # Clipped this far out, no observation makes an angle overflow.
        self.reach = 1e300 / (self.inputs * max(1.0, self.bounds.max()))
        self.work_size = self.inputs + self.dimension // 2
        return 0

    cdef void apply(self, const double* x, Py_ssize_t n, double* phi, double* work) noexcept nogil:
        cdef Py_ssize_t i, j, _, m = self.inputs, half = self.dimension // 2
        cdef double* angle = work + m
        cdef double scale = 1.0 / sqrt(<double> half), bound
        for _ in range(n):
            bound = 0.0
            for i in range(m):
                work[i] = clipped(x[i], -self.reach, self.reach)
                bound += fabs(work[i]) * self.largest[i]
            angles(work, self.frequency, m, half, angle)
            if bound <= LARGEST_ANGLE:
                sincos(angle, half, scale, phi + half, phi)
            else:
                for j in range(half):
                    phi[j] = scale * cos(angle[j])
                    phi[half + j] = scale * sin(angle[j])
            x += m
            phi += self.dimension

    def __repr__(self):
        return f"RandomFourier(<frequencies of shape {self.frequencies.shape}>)"

    def __reduce__(self):
        return (RandomFourier.from_frequencies, (self.frequencies,))


@cython.final
cdef class Nystrom(FeatureMap):
    """Nystroem features of a kernel k with k(x, x) = 1 (Williams and Seeger 2001).

    phi = K^{-1/2} (k(z_1, x), ..., k(z_d, x)) with landmarks z_j and K = (k(z_i, z_j))_ij. Then phi(x)^T theta, over
    all theta, is the span of the k(z_j, .), and ||theta|| the norm of such a function in the kernel's Hilbert space;
    so the identity as regulariser is that norm. phi(x)^T phi(y) = k(x, y) if x or y is a landmark, and ||phi(x)||^2 is
    the squared length of the projection of k(x, .) on the span, at most k(x, x) = 1.

    With r^2 = sum_i ((x_i - y_i) / width_i)^2 the kernels are

    - "gaussian": exp(-r^2 / 2), the one of `RandomFourier`;
    - "matern": (1 + sqrt(3) r) exp(-sqrt(3) r), of smoothness 3/2;
    - "exponential": exp(-r).

    Parameters
    ----------
    landmarks : array_like, shape (d, m)
        Finite; see `dmq_fast.features.grid`.
    width : float or array_like, shape (m,), default 1
        Positive.
    kernel : {"gaussian", "matern", "exponential"}, default "gaussian"
    tolerance : float, default 1e-12
        Eigenvalues of K up to this times the largest are taken for 0, those of landmarks that repeat for example.
    weights : array_like, shape (d, d), optional
        K^{-1/2} as computed before, symmetric, instead of computing it.

    Attributes
    ----------
    landmarks, width : numpy.ndarray
        Read-only.
    kernel : str
    tolerance : float
    weights : numpy.ndarray, shape (d, d)
        K^{-1/2}, read-only; a pseudoinverse where eigenvalues were dropped.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type or out of range; the message names it.

    Notes
    -----
    Rounding in phi is that of the kernel times 1 / sqrt(smallest eigenvalue kept); a row that it makes longer than 1
    is scaled back. Far from all landmarks features vanish.

    Examples
    --------
    >>> phi = Nystrom([[0.0], [1.0]])([[0.0], [1.0]])
    >>> (phi @ phi.T).round(6)
    array([[1.      , 0.606531],
           [0.606531, 1.      ]])
    """

    cdef readonly object landmarks, width, weights
    cdef readonly str kernel
    cdef readonly double tolerance
    cdef object columns, inverses, bounds
    cdef const double* landmark
    cdef const double* inverse
    cdef const double* lower
    cdef const double* upper
    cdef const double* weight
    cdef int shape

    def __cinit__(self, landmarks, width=1.0, kernel="gaussian", tolerance=1e-12, weights=None):
        self.landmarks = frozen(as_floats("landmarks", landmarks, (None, None)))
        if self.landmarks.size == 0:
            raise ValueError(f"landmarks: expected shape (d, m) with d, m >= 1, got {self.landmarks.shape}")
        self.dimension = dimension_of(len(self.landmarks), "landmarks")
        self.inputs = self.landmarks.shape[1]
        self.width = widths(width, self.inputs)
        if not isinstance(kernel, str) or kernel not in KERNELS:
            raise ValueError(f"kernel: expected one of {', '.join(KERNELS)}, got {kernel!r}")
        self.kernel = kernel
        self.shape = KERNELS.index(kernel)
        self.tolerance = as_positive("tolerance", tolerance, zero=True)
        if not self.tolerance < 1.0:
            raise ValueError(f"tolerance: expected a number in [0, 1), got {self.tolerance}")
        self.bounds = reaches(self.landmarks, self.width, "landmarks")
        self.columns = frozen(self.landmarks.T)
        self.inverses = frozen(1.0 / self.width)
        self.landmark, self.inverse = entries(self.columns), entries(self.inverses)
        self.lower, self.upper = entries(self.bounds), entries(self.bounds) + self.inputs
        self.work_size = self.inputs + self.dimension
        if weights is None:
            self.weights = frozen(inverse_root(self.gram(), self.tolerance))
        else:
            self.weights = frozen(as_floats("weights", weights, (self.dimension, self.dimension)))
        self.weight = entries(self.weights)

    cdef cnp.ndarray gram(self):
        # K (d, d), as `apply` computes its rows; symmetric to the bit, as differences only change sign.
        cdef Py_ssize_t i, d = self.dimension
        cdef cnp.ndarray rows = self.landmarks, out = np.empty((d, d))
        cdef const double* z = entries(rows)
        cdef double* k = entries(out)
        with nogil:
            for i in range(d):
                self.similarities(z + i * self.inputs, k + i * d)
        return out

    cdef void similarities(self, const double* x, double* k) noexcept nogil:
        # k (d,) <- the kernel of x (m,) and each landmark.
        cdef Py_ssize_t j, d = self.dimension
        cdef double r
        distances(x, self.landmark, self.inverse, self.inputs, d, k)
        if self.shape == GAUSSIAN:
            bumps(k, d, 0.0)
            return
        # `bumps` computes exp(-k / 2).
        for j in range(d):
            k[j] = 2.0 * sqrt(3.0 * k[j] if self.shape == MATERN else k[j])
        if self.shape == EXPONENTIAL:
            bumps(k, d, 0.0)
            return
        for j in range(d):
            r = 0.5 * k[j]
            bumps(k + j, 1, 0.0)
            k[j] *= 1.0 + r

    cdef void apply(self, const double* x, Py_ssize_t n, double* phi, double* work) noexcept nogil:
        cdef Py_ssize_t i, _r, m = self.inputs, d = self.dimension
        cdef double* k = work + m
        cdef double length
        for _r in range(n):
            for i in range(m):
                work[i] = clipped(x[i], self.lower[i], self.upper[i])
            self.similarities(work, k)
            # phi = K^{-1/2} k, a symmetric matrix
            angles(k, self.weight, d, d, phi)
            length = 0.0
            for i in range(d):
                length += phi[i] * phi[i]
            if length > 1.0:
                rescale(phi, d, 1.0 / sqrt(length))
            x += m
            phi += d

    def __repr__(self):
        return f"Nystrom(<landmarks of shape {self.landmarks.shape}>, {self.width.tolist()}, {self.kernel!r})"

    def __reduce__(self):
        # The weights are pickled too: computed again on another machine they may differ in the last bits.
        return (Nystrom, (self.landmarks, self.width, self.kernel, self.tolerance, self.weights))


def inverse_root(gram, tolerance):
    """Return A^{-1/2} of a symmetric positive semidefinite A (d, d), or that of its part with larger eigenvalues.

    Eigenvalues up to `tolerance` times the largest, and those that rounding alone may make, count as 0.
    """
    spectrum, axes = np.linalg.eigh(gram)
    kept = spectrum > max(tolerance, len(gram) * np.finfo(np.float64).eps) * spectrum.max()
    root = (axes[:, kept] / np.sqrt(spectrum[kept])) @ axes[:, kept].T
    return 0.5 * (root + root.T)


cdef object reaches(centers, width, str name):
    # (2, m): the bounds that observations are clipped to, so that no distance overflows.
    least, most = centers.min(axis=0), centers.max(axis=0)
    reach = 1e150 * np.minimum(width, 1e150)
    if np.abs(centers).max() > 1e300 or (most / 2 - least / 2 > reach).any():
        raise ValueError(f"{name}: expected numbers within 1e300 and 1e150 widths of each other")
    return frozen(np.stack([least - reach, most + reach]))


cdef Py_ssize_t dimension_of(size, str name) except -1:
    if size > LARGEST:
        raise ValueError(f"{name}: expected a dimension of at most {LARGEST}, got {size}")
    return size
