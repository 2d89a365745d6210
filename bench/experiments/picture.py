"""Draw the episodes until solved against H, from a sweep of ``locks.toml`` in the directory DIR.

    python bench/experiments/picture.py DIR

Writes bench/figures/locks.svg and locks.png.
"""

import sys
from pathlib import Path

from dmq_fast.experiments import load
from dmq_fast.experiments.report.pictures import against

FIGURES = Path(__file__).parent.parent / "figures"


def label(row):
    """Return the name of the line that a row belongs to."""
    variant = row["algorithm_parameters"].get("variant")
    return row["algorithm"] if variant is None else f"DMQ, {variant}"


def is_shown(row):
    """Return whether a run is drawn: not those with the second setting of an algorithm."""
    given = row["algorithm_parameters"]
    return given.get("mode", "strict") == "strict" and given.get("c2", 0.3) == 0.3


rows = [
    {**row, "algorithm": label(row), "algorithm_parameters": {}}
    for row in sorted(filter(is_shown, load(sys.argv[1])), key=label)
]
figure = against(rows, "horizon", "episodes", width=5.0)
figure.savefig(FIGURES / "locks.svg", metadata={"Date": None})
figure.savefig(FIGURES / "locks.png", dpi=160)
