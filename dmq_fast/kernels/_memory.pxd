"""Memory that is freed with the object that it belongs to."""

from libc.stdlib cimport realloc

# Reallocate a block to so many bytes; False, and nothing changed, if memory ran out.
cdef inline bint grown(void** block, Py_ssize_t size) noexcept nogil:
    cdef void* more = realloc(block[0], size)
    if more == NULL:
        return False
    block[0] = more
    return True

# Base class of objects with arrays in C, which live as long as they do.
cdef class Owner:
    # The last block; each begins with the address of the one before.
    cdef void* _blocks

    # n entries of so many bytes, all 0; MemoryError if there is no memory. Never NULL, not even for no entries.
    cdef void* zeros(self, Py_ssize_t n, size_t size) except NULL

# Doubles that may grow; faster to make than an array.
cdef class Buffer:
    cdef double* data
    cdef Py_ssize_t size

    # Room for `size` >= 1 numbers; what was there is lost where it has to grow.
    cdef double* room(self, Py_ssize_t size) except NULL nogil
