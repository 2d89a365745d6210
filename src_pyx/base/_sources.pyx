"""The digest of the sources that the compiled modules were made of; setup.py writes it."""

cdef extern from "dmq_sources.h":
    const char* DMQ_SOURCES

DIGEST = DMQ_SOURCES.decode()
