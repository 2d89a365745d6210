"""Reports of sweeps and runs: HTML pages, pictures, CSV files."""
