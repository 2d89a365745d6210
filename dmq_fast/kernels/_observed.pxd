"""What a learner has seen: feature rows, each kept once, and Cholesky factors on the columns that rows have filled."""

from libc.math cimport sqrt
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from dmq_fast.kernels._linalg cimport dot, solve_factor, solve_factor_transposed, update_factor
from dmq_fast.kernels._memory cimport grown

cdef enum:
    # Room of the first allocation; it then doubles.
    FIRST_ROOM = 16
    # Rows with at most one entry in so many that is not 0 are read by entries.
    SPARSE = 4


# Rows -----------------------------------------------------------------------------------------------------------------

# An entry of a row that is not 0.
cdef struct Entry:
    Py_ssize_t column
    double x

# Distinct rows (n, d), found by their content and numbered as they appeared. What else belongs to a row is kept by the
# owner in arrays of its own: `room_for_more` is the size that they need.
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


# The rows that there must be room for before the next `keep`.
cdef inline Py_ssize_t room_for_more(const Observed* seen) noexcept nogil:
    return seen.room if seen.n < seen.room else max(<Py_ssize_t> FIRST_ROOM, 2 * seen.room)


# The slot of the row, or the empty one that it would take.
cdef inline Py_ssize_t* slot_of(const Observed* seen, const double* row) noexcept nogil:
    cdef const uint64_t* words = <const uint64_t*> row
    cdef uint64_t x = 0x9E3779B97F4A7C15
    cdef Py_ssize_t i, place, d = seen.d, last = 2 * seen.room - 1
    for i in range(d):
        x = (x ^ words[i]) * <uint64_t> 0xBF58476D1CE4E5B9
        x ^= x >> 29
    place = <Py_ssize_t> (x & <uint64_t> last)
    while seen.slots[place] != 0 and memcmp(seen.rows + (seen.slots[place] - 1) * d, row, d * sizeof(double)) != 0:
        place = (place + 1) & last
    return seen.slots + place


# The number of a row, or -1 if it was never kept.
cdef inline Py_ssize_t number_of(const Observed* seen, const double* row) noexcept nogil:
    return slot_of(seen, row)[0] - 1 if seen.room > 0 else -1


cdef inline bint enlarge(Observed* seen) noexcept nogil:
    cdef Py_ssize_t room = room_for_more(seen), j
    cdef Py_ssize_t* slots
    if not (grown(<void**> &seen.rows, room * seen.d * sizeof(double))
            and grown(<void**> &seen.ends, room * sizeof(Py_ssize_t))):
        return False
    slots = <Py_ssize_t*> calloc(2 * room, sizeof(Py_ssize_t))
    if slots == NULL:
        return False
    free(seen.slots)
    seen.slots, seen.room = slots, room
    for j in range(seen.n):
        slot_of(seen, seen.rows + j * seen.d)[0] = j + 1
    return True


# The number of a row, which is kept if it is new; -1, and no row more, if memory ran out.
cdef inline Py_ssize_t keep(Observed* seen, const double* row) noexcept nogil:
    cdef Py_ssize_t i, many = 0, n = seen.n, end = seen.ends[n - 1] if n > 0 else 0
    cdef Py_ssize_t* slot
    if n == seen.room and not enlarge(seen):
        return -1
    slot = slot_of(seen, row)
    if slot[0] != 0:
        return slot[0] - 1
    for i in range(seen.d):
        many += row[i] != 0.0
    if SPARSE * many > seen.d:
        many = 0
    if end + many > seen.entry_room:
        if not grown(<void**> &seen.entries, 2 * (end + many) * sizeof(Entry)):
            return -1
        seen.entry_room = 2 * (end + many)
    memcpy(seen.rows + n * seen.d, row, seen.d * sizeof(double))
    seen.ends[n] = end + many
    if many > 0:
        for i in range(seen.d):
            if row[i] != 0.0:
                seen.entries[end].column, seen.entries[end].x = i, row[i]
                end += 1
    seen.n = slot[0] = n + 1
    return n


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


cdef inline void release_rows(Observed* seen) noexcept nogil:
    free(seen.rows)
    free(seen.slots)
    free(seen.ends)
    free(seen.entries)


# Factors on a support -------------------------------------------------------------------------------------------------

# U (n, n) as in `_linalg`, of V = ridge I + sum phi phi^T on the support (n,) of the rows phi that entered, ascending
# columns; sqrt(ridge) I on the others. Below, `root` is sqrt(ridge), d the number of columns, and `work` has n doubles.
cdef struct Factor:
    Py_ssize_t n
    Py_ssize_t* columns
    double* u


# out (n,) <- scale x on the support.
cdef inline void gather(const Factor* factor, const double* x, double scale, double* out) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(factor.n):
        out[i] = scale * x[factor.columns[i]]


# u (n, n) <- root I.
cdef inline void diagonal(double* u, double root, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    if n == 0:  # u may be NULL, which memset does not take
        return
    memset(u, 0, n * n * sizeof(double))
    for i in range(n):
        u[i * n + i] = root


# u (n, n) <- the factor of u^T u + weight phi phi^T on the support.
cdef inline void rotate_in(
    const Factor* factor, double* u, const double* phi, double weight, double* work
) noexcept nogil:
    gather(factor, phi, sqrt(weight), work)
    update_factor(u, work, factor.n)


# x (d,) <- V^{-1} x for an x that is 0 outside of the support, with a factor u on it, say `factor.u`.
cdef inline void solve_on_support(const Factor* factor, const double* u, double* x, double* work) noexcept nogil:
    cdef Py_ssize_t i
    gather(factor, x, 1.0, work)
    solve_factor_transposed(u, work, factor.n)
    solve_factor(u, work, factor.n)
    for i in range(factor.n):
        x[factor.columns[i]] = work[i]


# phi^T V^{-1} phi.
cdef inline double leverage_of(
    const Factor* factor, const double* phi, double root, Py_ssize_t d, double* work
) noexcept nogil:
    cdef Py_ssize_t j, i = 0
    cdef double outside = 0.0
    gather(factor, phi, 1.0, work)
    solve_factor_transposed(factor.u, work, factor.n)
    for j in range(d):
        if i < factor.n and factor.columns[i] == j:
            i += 1
        elif phi[j] != 0.0:
            outside += (phi[j] / root) * (phi[j] / root)
    return dot(work, work, factor.n) + outside


# The support takes in the columns of phi. False, and nothing changed, if memory ran out.
cdef inline bint widen(Factor* factor, const double* phi, double root, Py_ssize_t d) noexcept nogil:
    cdef Py_ssize_t n = factor.n, i, j, old = 0, into = 0
    cdef Py_ssize_t* columns
    cdef Py_ssize_t* place
    cdef double* u
    for j in range(d):
        if old < factor.n and factor.columns[old] == j:
            old += 1
        elif phi[j] != 0.0:
            n += 1
    if n == factor.n:
        return True
    columns, u = <Py_ssize_t*> malloc(2 * n * sizeof(Py_ssize_t)), <double*> malloc(n * n * sizeof(double))
    if columns == NULL or u == NULL:
        free(columns)
        free(u)
        return False
    # Where the old columns go.
    place, old = columns + n, 0
    for j in range(d):
        if old < factor.n and factor.columns[old] == j:
            place[old] = into
            old += 1
        elif phi[j] == 0.0:
            continue
        columns[into] = j
        into += 1
    diagonal(u, root, n)
    for i in range(factor.n):
        for j in range(i, factor.n):
            u[place[i] * n + place[j]] = factor.u[i * factor.n + j]
    release_factor(factor)
    factor.n, factor.columns, factor.u = n, columns, u
    return True


cdef inline void release_factor(Factor* factor) noexcept nogil:
    free(factor.columns)
    free(factor.u)
