"""What comes out of a run: results as plain data, their file format, pictures, comparisons."""
