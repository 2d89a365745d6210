"""Gymnasium: environments with tables, environments that step, and ids on the command line."""
