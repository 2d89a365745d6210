"""Draw episodes until solved against H from a sweep of ``locks.toml``: ``python bench/experiments/picture.py DIR``."""

import sys
from pathlib import Path

from dmq_fast.experiments.metrics import by_policy
from dmq_fast.experiments.pictures import episodes_to_solve

from dmq_fast.experiments import load

FIGURES = Path(__file__).parent.parent / "figures"


def label(row):
    """Name of a line."""
    variant = row["algorithm_parameters"].get("variant")
    return row["algorithm"] if variant is None else f"DMQ, {variant}"


rows = sorted(load(sys.argv[1]), key=label)
figure = episodes_to_solve(map(by_policy, rows), by=label, width=4.2, height=3.0)
figure.savefig(FIGURES / "locks.svg", metadata={"Date": None})
figure.savefig(FIGURES / "locks.png", dpi=160)
