"""Failures of self-stopping runs with other numbers of the role PROMISE: a table of docs/adaptive.md.

    python bench/adaptive_tuning.py                    # every number, 40 seeds of each family
    python bench/adaptive_tuning.py --seeds 400 margin # one number

The runs are those of bench/adaptive.py, on families that break runs whose numbers are too loose.
"""

from __future__ import annotations

import argparse

from adaptive import HEADING, row, run
from adaptive_families import FAMILIES

from dmq_fast.stopping.tuning import PROMISE, Tuning

FAMILY_NAMES = ["short-1e-6", "rooms-5", "contexts-8", "rare-start-.1", "parabola", "pooled-.04", "pooled-.1"]
FAMILY_NAMES += ["gate-lock-.6", "two-stage", "many-lanes", "bets-9"]  # of "pressed"
VALUES = {
    "ridge": [1e-10, 1e-14],
    "noise": [0.01, 100.0],
    "refits": [5, 20, 80],
    "asks": [1, 3],
    "margin": [1.05, 1.5, 3.0],
    "looks": [1.0, 16.0],
    "kept_loss": [0.05, 1.0],
    "untried": [0.01, 1.0],
    "near": [0.05, 4.0],
    "lead": [0.05, 8.0],
    "errors": [0.1, 20.0],
    "contradiction_errors": [0.5, 30.0],
}
assert list(VALUES) == list(Tuning.of_role(PROMISE))


def main() -> None:
    """Print the table that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("numbers", nargs="*", help=f"of {', '.join(VALUES)}; default: all")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    options = parser.parse_args()
    print(f"number | {HEADING}\n---{'|---' * (HEADING.count('|') + 1)}")
    for tuning in [Tuning(), *(Tuning(**{name: x}) for name in options.numbers or VALUES for x in VALUES[name])]:
        seeds = range(options.first, options.first + options.seeds)
        runs = [run(FAMILIES[name](seed), seed, tuning=tuning) for name in FAMILY_NAMES for seed in seeds]
        changed = ", ".join(f"{name} {value:g}" for name, value in tuning.changes().items())
        print(f"{changed or 'default'} | {row(runs)}", flush=True)


if __name__ == "__main__":
    main()
