"""The results of runs as plain data, their file format, pictures and comparisons."""
