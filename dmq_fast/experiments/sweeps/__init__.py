"""Sweeps: specifications, algorithms by name, a pool of workers, and the store of finished runs."""
