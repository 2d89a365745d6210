"""Memory that is freed with the object that it belongs to."""

from libc.stdlib cimport calloc, free, malloc

# Bytes before a block, which keep it aligned.
cdef enum:
    HEAD = 16


cdef class Owner:

    cdef void* zeros(self, Py_ssize_t n, size_t size) except NULL:
        # A head is as many entries as it fills, so that `calloc` checks the product.
        cdef size_t head = (HEAD + size - 1) // size
        cdef void* block = calloc(head + <size_t> n, size)
        if block == NULL:
            raise MemoryError()
        (<void**> block)[0] = self._blocks
        self._blocks = block
        return <char*> block + head * size

    def __dealloc__(self):
        cdef void* block
        while self._blocks != NULL:
            block = self._blocks
            self._blocks = (<void**> block)[0]
            free(block)


cdef class Buffer:

    def __cinit__(self, Py_ssize_t size=0):
        if size:
            self.room(size)

    def __dealloc__(self):
        free(self.data)

    cdef double* room(self, Py_ssize_t size) except NULL nogil:
        if size > self.size:
            free(self.data)
            self.size = 0
            self.data = <double*> malloc(size * sizeof(double))
            if self.data == NULL:
                with gil:
                    raise MemoryError()
            self.size = size
        return self.data
