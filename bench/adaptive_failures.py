"""Failures of 10,000 runs that stop by themselves, on the shipped environments: a table of docs/adaptive.md.

    python bench/adaptive_failures.py runs.csv

Strict mode, epsilon = delta = .05. A run has a seed of its own, which no other measurement of the project used; its
environment has the same. Each run is written to the file when it ends, and is not repeated if it is there already, so a
command that was killed goes on. `--share .01` takes the first hundredth of each family.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from adaptive import HEADING, Run, row, run
from adaptive_families import SHIPPED

FIRST_SEED = 10_000_000
# A run on the slippery FrozenLake takes as long as fifty others, and one on the mirage lock is short.
RUNS = dict.fromkeys(SHIPPED, 500) | {"frozen-lake": 400, "mirage": 600}
assert sum(RUNS.values()) == 10_000


def stored(path: Path) -> dict[tuple[str, int], Run]:
    """Return the runs in a file, by family and seed."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {
            (family, int(seed)): Run(status, int(episodes), float(loss), int(warnings), float(seconds))
            for family, seed, status, episodes, loss, warnings, seconds in csv.reader(file)
        }


def main() -> None:
    """Do the runs that the file lacks, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="CSV file of the runs: family, seed, and the fields of a run")
    parser.add_argument("--share", type=float, default=1.0, help="share of the runs of each family")
    options = parser.parse_args()
    done = stored(options.file)
    print(f"family | {HEADING}\n---{'|---' * (HEADING.count('|') + 1)}")
    everything = []
    with options.file.open("a", newline="") as file:
        writer = csv.writer(file)
        for family, runs in RUNS.items():
            found = []
            for seed in range(FIRST_SEED, FIRST_SEED + round(options.share * runs)):
                if (family, seed) not in done:
                    done[family, seed] = run(SHIPPED[family](seed), seed, strict=True)
                    writer.writerow([family, seed, *done[family, seed]])
                    file.flush()
                found.append(done[family, seed])
            print(f"{family} | {row(found)}", flush=True)
            everything += found
    print(f"all | {row(everything)}")


if __name__ == "__main__":
    main()
