"""Helpers that every room may import: checks of arguments, files, BLAS threads. Imports no other room."""
