"""Checks of arguments: each is converted once, or refused with its name.

A float64 C-contiguous array of the right shape passes in a few nanoseconds and is not copied; everything else goes
through `as_floats`. Data pointers come from the NumPy C API, since acquiring a buffer costs more than a small kernel.
"""

cimport numpy as cnp
from cpython.long cimport PyLong_AsLongLongAndOverflow
from libc.math cimport INFINITY
from libc.stdint cimport uint64_t

import itertools
import math
import numbers
import operator
import os
import sys

import numpy as np

cnp.import_array()

cdef extern from "dmq_finite.h":
    bint dmq_finite(const double* x, Py_ssize_t n) noexcept nogil

cdef enum:
    # Up to so many numbers, vectors save nothing.
    FEW = 64

# The largest int32.
LARGEST = 2**31 - 1


cdef bint all_finite(const double* x, Py_ssize_t n) noexcept nogil:
    # NaN and infinities survive a product with zero; four sums hide the latency of one.
    cdef double a = 0.0, b = 0.0, c = 0.0, d = 0.0
    cdef Py_ssize_t i
    if n > FEW:
        return dmq_finite(x, n)
    for i in range(0, n - 3, 4):
        a += x[i] * 0.0
        b += x[i + 1] * 0.0
        c += x[i + 2] * 0.0
        d += x[i + 3] * 0.0
    for i in range(n - n % 4, n):
        a += x[i] * 0.0
    return a + b + c + d == 0.0


cdef inline bint is_floats(value):
    return (
        cnp.PyArray_CheckExact(value)
        and cnp.PyArray_TYPE(value) == cnp.NPY_DOUBLE
        and cnp.PyArray_ISCARRAY_RO(value)
    )


cdef inline bint ready(value, int ndim):
    return is_floats(value) and cnp.PyArray_NDIM(value) == ndim


cdef cnp.ndarray vector(value, str name, Py_ssize_t size):
    if ready(value, 1) and (size < 0 or cnp.PyArray_DIM(value, 0) == size):
        return value
    return as_floats(name, value, (None if size < 0 else size,), finite=False)


cdef cnp.ndarray matrix(value, str name, Py_ssize_t rows, Py_ssize_t columns):
    if (
        ready(value, 2)
        and (rows < 0 or cnp.PyArray_DIM(value, 0) == rows)
        and (columns < 0 or cnp.PyArray_DIM(value, 1) == columns)
    ):
        return value
    shape = (None if rows < 0 else rows, None if columns < 0 else columns)
    return as_floats(name, value, shape, finite=False)


cdef int refuse_not_finite(str name, cnp.ndarray array) except -1:
    if not all_finite(entries(array), cnp.PyArray_SIZE(array)):
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"{name}: expected finite numbers, got {array[where]} at index {where}")
    return 0


cdef inline bint plain(value, double* out) except -1:
    # Read a float, NumPy's float64 included, or an integer of 64 bits; return whether `value` is one.
    cdef int overflow = 0
    if isinstance(value, float):
        out[0] = value
        return True
    if type(value) is not int:
        return False
    out[0] = <double> PyLong_AsLongLongAndOverflow(value, &overflow)
    return overflow == 0


cdef double positive(value, str name) except -1.0:
    return checked(value, name, False)


cdef double non_negative(value, str name) except -1.0:
    return checked(value, name, True)


cdef inline double checked(value, str name, bint zero) except -1.0:
    # A finite number > 0, or >= 0 with `zero`.
    cdef double x
    if plain(value, &x) and (0.0 < x or (zero and x == 0.0)) and x < INFINITY:
        return x
    if type(value) is int:
        # NumPy takes those beyond 64 bits for objects.
        try:
            value = float(value)
        except OverflowError:
            raise ValueError(
                f"{name}: expected a number that float64 holds, got an integer of {value.bit_length()} bits"
            ) from None
    x = as_floats(name, value, ()).item()
    if x < 0.0 or (x == 0.0 and not zero):
        raise ValueError(f"{name}: expected a {'non-negative' if zero else 'positive'} number, got {x}")
    return x


cdef double number(value, str name) except? -1.0:
    cdef double x
    if plain(value, &x):
        return x
    return as_floats(name, value, ()).item()


cdef dict state_of(value, str kind, int version, tuple keys):
    found = value.get("version") if isinstance(value, dict) else type(value).__name__
    if not (isinstance(found, int) and found == version):
        raise ValueError(f"state: expected that of {kind}, version {version}, got {found!r}")
    for key in keys:
        if key not in value:
            raise ValueError(f"state: expected that of {kind}, version {version}, with {key!r}")
    return value


cdef bint flag(value, str name) except -1:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name}: expected a bool, got {value!r}")
    return value


cdef uint64_t word(value, str name) except? 0:
    # The test of the abstract class is slow, and streams are opened by the thousand.
    if not (type(value) is int or isinstance(value, numbers.Integral)) or not 0 <= value < 2**64:
        raise ValueError(f"{name}: expected an integer in [0, 2^64), got {value!r}")
    return value


cdef Py_ssize_t integer(value, str name, Py_ssize_t least, Py_ssize_t most) except? -1:
    try:
        if isinstance(value, bool):
            raise TypeError
        given = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: expected an integer, got {value!r}") from None
    if not least <= given <= most:
        raise ValueError(f"{name}: expected an integer in [{least}, {most}], got {given}")
    return given


cdef list integers(value, str name, Py_ssize_t m, Py_ssize_t least, Py_ssize_t most):
    if np.ndim(value) == 0:
        return [integer(value, name, least, most)] * m
    array = as_numbers(name, value)
    if array.shape != (m,):
        raise ValueError(f"{name}: expected an integer or shape ({m},), got {array.shape}")
    return [integer(entry, f"{name}[{i}]", least, most) for i, entry in enumerate(array.tolist())]


cdef cnp.ndarray square_zeros(str names, tuple shape):
    # Pages that were never written to are granted beyond what there is, and missed later.
    size = 8 * math.prod(shape)
    try:
        present = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        present = sys.maxsize
    try:
        if size <= present:
            return np.zeros(shape)
    except (MemoryError, ValueError):
        present = 0
    have = f", and this machine has {present / 1e9:.3g} GB" if 0 < present < sys.maxsize else ""
    raise MemoryError(
        f"{names}: no memory for matrices of shape {shape}, which take {size / 1e9:.3g} GB{have}; they cost 8 bytes "
        "for every pair of features"
    )


cdef cnp.ndarray frozen(array):
    out = np.array(array, order="C")
    out.flags.writeable = False
    return out


cdef tuple box(low, high):
    bounds = []
    for name, value in (("low", low), ("high", high)):
        array = as_numbers(name, value)
        bounds.append(frozen(as_floats(name, array.reshape(1) if array.ndim == 0 else array, (None,))))
    if bounds[0].size == 0:
        raise ValueError("low: expected shape (m,) with m >= 1, got (0,)")
    if bounds[1].shape != bounds[0].shape:
        raise ValueError(f"high: expected shape {bounds[0].shape} as low, got {bounds[1].shape}")
    for i, (lower, upper) in enumerate(zip(bounds[0].tolist(), bounds[1].tolist(), strict=True)):
        if not lower < upper:
            raise ValueError(f"high: expected a number > low, got {upper} against {lower} at index {i}")
        if upper - lower > np.finfo(np.float64).max:
            raise ValueError(f"high: expected high - low to be finite, got {upper} against {lower} at index {i}")
    return tuple(bounds)


cdef cnp.ndarray widths(width, Py_ssize_t m):
    if np.ndim(width) == 0:
        array = np.full(m, as_positive("width", width))
    else:
        array = as_floats("width", width, (m,))
        for i, entry in enumerate(array.tolist()):
            as_positive(f"width[{i}]", entry)
    if array.min() < 1e-300:
        raise ValueError(f"width: expected numbers >= 1e-300, got {array.min()}")
    return frozen(array)


cdef object without_missing(name, value):
    # `value` of pandas, as an array if a column is nullable, in Arrow's memory or sparse: for NumPy columns of several
    # types, and those with missing values, are objects or NaN.
    dtypes = [value.dtype] if value.ndim == 1 else list(value.dtypes)
    if not any([not isinstance(dtype, np.dtype) and dtype.kind in "biuf" for dtype in dtypes]):
        return value
    for dtype in dtypes:
        if dtype.kind not in "biuf":
            raise TypeError(f"{name}: expected real numbers, got dtype {dtype}")
    missing = np.argwhere(np.asarray(value.isna()))
    if len(missing):
        raise ValueError(
            f"{name}: expected numbers, got a missing value at index {tuple(missing[0].tolist())}; fill or drop such "
            "rows, as the methods fillna and dropna do"
        )
    plain = [getattr(dtype, "numpy_dtype", getattr(dtype, "subtype", dtype)) for dtype in dtypes]
    return value.to_numpy(dtype=np.result_type(*plain))


def as_numbers(name, value):
    """Return `value` as an array of real numbers that float64 can hold, of whatever dtype they came in.

    Of pandas, nullable columns and those in Arrow's memory are numbers like others, where none is missing.

    Raises
    ------
    TypeError
        If the entries are not such numbers (complex, object, string, long double), or the array is sparse.
    ValueError
        If nested sequences differ in length, or a number is missing.

    Examples
    --------
    >>> as_numbers("x", [1, 2])
    array([1, 2])
    """
    # Masked arrays exist only if numpy.ma is loaded, and loading it is slow.
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(value, masked.MaskedArray):
        raise TypeError(f"{name}: expected an array without a mask, got a masked array")
    if is_sparse(value):
        raise TypeError(f"{name}: expected a dense array, such as its method toarray returns, got a sparse one")
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(
        value, (pandas.DataFrame, pandas.Series, pandas.Index, pandas.api.extensions.ExtensionArray)
    ):
        value = without_missing(name, value)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name}: expected an array, got nested sequences of unequal lengths") from error
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name}: expected real numbers, got dtype {array.dtype}")
    if array.dtype.itemsize > 8:
        raise TypeError(f"{name}: expected numbers that fit float64, got dtype {array.dtype}")
    return array


cdef int check_shape(str name, tuple have, tuple want) except -1:
    # None leaves an axis free.
    if len(have) != len(want) or not all([w is None or w == h for w, h in zip(want, have)]):
        wanted = "(" + ", ".join(["any" if w is None else str(w) for w in want]) + ")"
        raise ValueError(f"{name}: expected shape {wanted}, got {have}")
    return 0


def as_floats(name, value, shape, *, finite=True):
    """Return `value` as a float64 C-contiguous array of the given shape, without a copy where it is one already.

    Parameters
    ----------
    name : str
        Argument name for messages.
    value : array_like
        Bool, integer and floating arrays of at most 64 bits and nested sequences of such numbers are accepted.
    shape : tuple of int or None
        Expected shape; None leaves an axis free.
    finite : bool, default True
        Whether NaN and infinities are refused.

    Raises
    ------
    TypeError, ValueError
        As `as_numbers` does, and if the shape differs or an entry is not finite.

    Examples
    --------
    >>> as_floats("x", [1, 2], (2,))
    array([1., 2.])
    """
    out = value if is_floats(value) else as_numbers(name, value)
    check_shape(name, out.shape, shape)
    if not is_floats(out):
        out = np.require(out, np.float64, ["C_CONTIGUOUS", "ALIGNED"])
    if finite:
        refuse_not_finite(name, out)
    return out


cpdef bint is_sparse(value) except -1:
    """Return whether `value` is a SciPy sparse matrix or array: whether it has a method `tocsr`."""
    return not cnp.PyArray_CheckExact(value) and hasattr(value, "tocsr")


def as_csr(name, value, shape):
    """Return a SciPy sparse matrix or array of any format as a new `csr_array` in one form.

    Its data are of float64 and its indices of int32. The columns of a row ascend, each there once, and no stored entry
    is 0: entries at one place are added up.

    Parameters
    ----------
    name : str
        Argument name for messages.
    value : SciPy sparse matrix or array
        Of bools, integers or floats of at most 64 bits.
    shape : tuple of int or None
        Expected shape; None leaves an axis free.

    Raises
    ------
    TypeError, ValueError
        On another dtype or shape, indices out of range, an entry that is not finite, or 2^31 rows, columns or entries.

    Examples
    --------
    >>> from scipy.sparse import coo_array
    >>> twice = coo_array(([1, 2], ([0, 0], [1, 1])), shape=(1, 3))
    >>> as_csr("x", twice, (None, 3)).toarray()
    array([[0., 3., 0.]])
    """
    from scipy.sparse import csr_array

    if not is_sparse(value):
        raise TypeError(f"{name}: expected a SciPy sparse matrix or array, got {type(value).__name__}")
    if value.dtype.kind not in "biuf":
        raise TypeError(f"{name}: expected real numbers, got dtype {value.dtype}")
    if value.dtype.itemsize > 8:
        raise TypeError(f"{name}: expected numbers that fit float64, got dtype {value.dtype}")
    check_shape(name, value.shape, shape)
    if len(value.shape) != 2:
        raise ValueError(f"{name}: expected two dimensions, got shape {value.shape}")
    # The parts of an array can be changed after it was made, and SciPy does not check what it counts and converts.
    try:
        check_parts(value)
        n_entries = value.nnz
    except (ValueError, IndexError) as error:
        raise ValueError(f"{name}: expected a valid sparse array: {error}") from error
    if max(*value.shape, n_entries) > LARGEST:
        raise ValueError(
            f"{name}: expected fewer than 2^31 rows, columns and entries, got {value.shape} and {n_entries}"
        )
    try:
        out = csr_array(value, dtype=np.float64, copy=True)
        out.check_format(full_check=True)
    except (ValueError, IndexError) as error:
        raise ValueError(f"{name}: expected a valid sparse array: {error}") from error
    out.sum_duplicates()
    out.eliminate_zeros()
    wrong = np.flatnonzero(~np.isfinite(out.data))
    if wrong.size:
        where = int(np.searchsorted(out.indptr, wrong[0], side="right")) - 1, int(out.indices[wrong[0]])
        raise ValueError(f"{name}: expected finite numbers, got {out.data[wrong[0]]} at index {where}")
    return csr_array(
        (out.data, out.indices.astype(np.int32, copy=False), out.indptr.astype(np.int32, copy=False)), shape=out.shape
    )


cdef int check_parts(value) except -1:
    # ValueError unless the parts of `value` fit together and point into each other.
    if hasattr(value, "check_format"):
        value.check_format(full_check=True)
        # SciPy compares by differences, which may overflow, and not where the last pointer is 0.
        pointers = value.indptr
        if (pointers[1:] < pointers[: len(pointers) - 1]).any():
            raise ValueError("index pointer values must form a non-decreasing sequence")
    elif value.format == "coo":
        if len({len(part) for part in (*value.coords, value.data)}) > 1:
            raise ValueError("row, column and data arrays have different lengths")
        for axis, (part, size) in enumerate(zip(value.coords, value.shape, strict=True)):
            if len(part) and not (0 <= part.min() and part.max() < size):
                raise ValueError(f"coordinates of axis {axis} are not all in [0, {size})")
    elif value.format == "lil":
        if any([len(columns) != len(data) for columns, data in zip(value.rows, value.data, strict=True)]):
            raise ValueError("a row has lists of columns and of data of different lengths")
        for column in itertools.chain.from_iterable(value.rows):
            if not (isinstance(column, (int, np.integer)) and 0 <= column < value.shape[1]):
                raise ValueError(f"expected columns below {value.shape[1]}, got {column!r}")
    elif value.format == "dia" and (np.ndim(value.data) != 2 or np.shape(value.offsets) != np.shape(value.data)[:1]):
        raise ValueError(f"data {np.shape(value.data)} do not fit the offsets of {np.size(value.offsets)} diagonals")
    return 0


def as_positive(name, value, *, zero=False):
    """Return `value` as a finite float > 0, or >= 0 with `zero`.

    Raises
    ------
    TypeError, ValueError
        On anything else. The text begins with `name`.

    Examples
    --------
    >>> as_positive("n", 2)
    2.0
    """
    return checked(value, name, zero)
