"""Helpers that every room may import: checks of arguments, shared arrays, files, BLAS threads. They import no room."""
