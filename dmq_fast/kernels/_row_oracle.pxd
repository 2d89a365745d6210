"""The oracle for moments in rows, with an inverse of the cover's moment kept."""

from libc.stdint cimport int32_t

from dmq_fast.kernels._dsec cimport NOT_FINITE, Answer, Scan
from dmq_fast.kernels._memory cimport Buffer
from dmq_fast.kernels._rows cimport LevelRows

cdef class RowOracle:
    cdef readonly Py_ssize_t dimension
    cdef readonly double eps_r
    # The columns on which S is not 0, in the order in which they came, and the place of each column among them or -1.
    cdef readonly Py_ssize_t order
    cdef int32_t* columns
    cdef int32_t* place
    # S on its support; and W, kept as an inverse of B = S + eps_r I there:
    # (1 - rho) B^-1 <= W <= (1 + rho) B^-1 in the order of symmetric matrices; rho is infinite while there is none.
    # Both (order, order), in rows of length `room`.
    cdef Py_ssize_t room
    cdef double* s
    cdef double* w
    cdef double rho
    # Whether W was computed anew since S last changed.
    cdef bint fresh
    # Square roots of the diagonal of W, and a vector of workspace.
    cdef double* root
    cdef double* y

    # Add columns to the support.
    cdef int extend(self, const int32_t* columns, Py_ssize_t n) except -1
    cdef int enlarge(self, Py_ssize_t room) except -1

    # S <- S + the sum of a level of `rows` / divisor.
    cdef int add_level(self, LevelRows rows, Py_ssize_t level, double divisor) except -1

    # Compute W anew if it has worn out; rho stays large, or infinite, where that does not help.
    cdef int refresh(self) except -1

    # W <- the inverse after B grows by weight x x^T, for an x inside the support.
    cdef void update(self, const int32_t* columns, const double* values, Py_ssize_t n, double weight) noexcept nogil

    # Bound on the loss from errors in the scale of W to errors relative to B^-1; see the head of the source.
    cdef double spread(self) noexcept nogil

cdef class RowScan(Scan):
    cdef readonly Py_ssize_t n_exact
    # By entry of the level: its place in the support, those inside first, or its column; and its value.
    cdef int32_t* index
    cdef double* value
    # By row of the level: the number of entries inside; phi^T B^{-1} phi, and m(phi)^2.
    cdef Py_ssize_t* inside
    cdef double* lever
    cdef double* size
    cdef Buffer _by_row
    cdef Buffer _by_entry
    # S, the sum of the rows of a level, and room for what it rounds away, on the columns that either has, each (k, k);
    # and workspace. k is 0 while they are not those of the level at hand.
    cdef Buffer _dense
    cdef Py_ssize_t _k
    # The arguments of `scan`; and of the level at hand, the oracle and the position among the rows.
    cdef list _oracles
    cdef LevelRows _batch
    cdef RowOracle _oracle
    cdef Py_ssize_t _base
    cdef Py_ssize_t _position

    cdef Answer answer(self, RowOracle oracle, LevelRows rows, Py_ssize_t level, double n) except? NOT_FINITE

    # Room for the rows and entries of a level.
    cdef int reserve(self, Py_ssize_t rows, Py_ssize_t n_entries) except -1 nogil

    # The steps of an answer; see the source.
    cdef int locate(self, RowOracle oracle, LevelRows rows, Py_ssize_t level) except -1 nogil
    cdef Answer factor(
        self, RowOracle oracle, LevelRows rows, Py_ssize_t level, double bound, double slack
    ) except? NOT_FINITE
    cdef void products(self, RowOracle oracle, LevelRows rows, Py_ssize_t level, double* e, double* y) noexcept nogil
    cdef Answer exactly(self, RowOracle oracle, LevelRows rows, Py_ssize_t level, double n) except? NOT_FINITE
    cdef int expand(self, RowOracle oracle, LevelRows rows, Py_ssize_t level, bint with_rest=*) except -1
