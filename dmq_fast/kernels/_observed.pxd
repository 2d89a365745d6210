"""What a learner has seen: feature rows, each kept once, and Cholesky factors on the columns that rows have filled."""

from dmq_fast.kernels._linalg cimport dot

cdef enum:
    # Room of the first allocation; it then doubles.
    FIRST_ROOM = 16
    # Rows with at most one entry in so many that is not 0 are read by entries.
    SPARSE = 4

# An entry of a row that is not 0.
cdef struct Entry:
    Py_ssize_t column
    double x

# Distinct rows (n, d), found by their content and numbered as they appeared. What else belongs to a row is kept by the
# owner in columns of its own: `room_for_more` is the size that they need.
cdef struct Observed:
    Py_ssize_t n
    Py_ssize_t room
    Py_ssize_t d
    double* rows
    # Open addressing by content: number + 1, or 0; a power of two, twice the room.
    Py_ssize_t* slots
    # Where the entries of a row end (room,), those of all rows one after the other. A row of many has none here, and is
    # read from `rows`.
    Py_ssize_t* ends
    Py_ssize_t entry_room
    Entry* entries

# The number of a row, or -1 if it was never kept.
cdef Py_ssize_t number_of(const Observed* seen, const double* row) noexcept nogil

# The number of a row, which is kept if it is new; -1, and nothing changed, if memory ran out.
cdef Py_ssize_t keep(Observed* seen, const double* row) noexcept nogil

# The rows that columns must have room for before the next `keep`.
cdef inline Py_ssize_t room_for_more(const Observed* seen) noexcept nogil:
    return seen.room if seen.n < seen.room else max(<Py_ssize_t> FIRST_ROOM, 2 * seen.room)

cdef void release_rows(Observed* seen) noexcept nogil

# Reallocate a block to so many bytes; False, and nothing changed, if memory ran out.
cdef bint grown(void** block, Py_ssize_t size) noexcept nogil

# Row j . y.
cdef inline double row_dot(const Observed* seen, Py_ssize_t j, const double* y) noexcept nogil:
    cdef Py_ssize_t k, start = seen.ends[j - 1] if j > 0 else 0
    cdef double total = 0.0
    if start == seen.ends[j]:
        return dot(seen.rows + j * seen.d, y, seen.d)
    for k in range(start, seen.ends[j]):
        total += seen.entries[k].x * y[seen.entries[k].column]
    return total

# y <- y + scale row j.
cdef inline void add_row(double* y, const Observed* seen, Py_ssize_t j, double scale) noexcept nogil:
    cdef Py_ssize_t k, start = seen.ends[j - 1] if j > 0 else 0
    if start == seen.ends[j]:
        for k in range(seen.d):
            y[k] += scale * seen.rows[j * seen.d + k]
        return
    for k in range(start, seen.ends[j]):
        y[seen.entries[k].column] += scale * seen.entries[k].x

# U (n, n) as in `_linalg`, of ridge I + sum phi phi^T on the support (n,) of the rows phi that entered, ascending
# columns; sqrt(ridge) I on the others. `root` is sqrt(ridge), d the number of columns, and `work` has n doubles.
cdef struct Factor:
    Py_ssize_t n
    Py_ssize_t* columns
    double* u

# U <- the factor of V + phi phi^T, and x (d,) <- V^{-1} phi by the V before. False, and V unchanged, if memory ran out.
cdef bint rotate_in(
    Factor* factor, const double* phi, double* x, double root, Py_ssize_t d, double* work
) noexcept nogil

# phi^T V^{-1} phi.
cdef double leverage_of(const Factor* factor, const double* phi, double root, Py_ssize_t d, double* work) noexcept nogil

# x (d,) <- V^{-1} x for an x that is 0 outside of the support, with a factor u on it, say `factor.u`.
cdef void solve_on_support(const Factor* factor, const double* u, double* x, double* work) noexcept nogil

# u (n, n) <- root I, and u <- the factor of u^T u + weight phi phi^T, on the support of a factor.
cdef void begin_weighted(const Factor* factor, double* u, double root) noexcept nogil
cdef void rotate_weighted_in(
    const Factor* factor, double* u, const double* phi, double weight, double* work
) noexcept nogil

cdef void release_factor(Factor* factor) noexcept nogil
