"""Sweeps and pictures."""
