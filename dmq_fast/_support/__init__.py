"""What every room may use: checks of arguments, files, BLAS threads. Imports nothing else of the package."""
