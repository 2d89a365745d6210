"""What the benchmarks and scripts of this directory share: timing by turns, tables in Markdown, files of runs."""

from __future__ import annotations

import argparse
import csv
import os
import time
import timeit
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar, get_type_hints

# Before NumPy loads: BLAS runs on one thread.
os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import numpy as np

ROUNDS = 15
MEASURING = True
"""Whether times count. ``pytest bench --benchmark-disable`` clears it: everything is called once."""

Times = dict[str, tuple[float, float]]
R = TypeVar("R", bound=tuple[Any, ...])


def interleaved(
    calls: Mapping[str, Callable[[], Any]],
    number: int = 1,
    rounds: int = ROUNDS,
    timer: Callable[[], float] = time.perf_counter,
) -> Times:
    """Return minimum and median seconds of a call of each; they take turns, so that noise affects all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    if not MEASURING:
        number = rounds = 1
    for _ in range(rounds):
        for name, call in calls.items():
            seconds[name].append(timeit.timeit(call, timer=timer, number=number) / number)
    return {name: (min(times), float(np.median(times))) for name, times in seconds.items()}


def noted(info: dict[str, Any], times: Times, ours: str, per: int = 1) -> None:
    """Note microseconds a unit, of which a call has `per`, and how many times as long as `ours` the others take."""
    for name, (low, middle) in times.items():
        info[f"{name} us"] = f"{low / per * 1e6:.3f} min, {middle / per * 1e6:.3f} median"
        if name != ours:
            info[f"ratio of minima, {name}"] = round(low / times[ours][0], 2)
            info[f"ratio of medians, {name}"] = round(middle / times[ours][1], 2)


def demand(holds: bool, info: object) -> None:
    """Raise AssertionError if times count and what they should show does not hold."""
    assert holds or not MEASURING, info


def rates(benchmark: Any, ours: Callable[[], int], others: Mapping[str, Callable[[], int]]) -> int:
    """Note steps a second of functions that return their number of steps and take turns; return the last number."""
    found: dict[str, list[float]] = {name: [] for name in ("ours", *others)}
    steps = 0

    def timed(name: str, work: Callable[[], int]) -> None:
        nonlocal steps
        began = time.perf_counter()
        steps = work()
        found[name].append(steps / (time.perf_counter() - began))

    def before() -> None:
        for name, work in others.items():
            timed(name, work)

    benchmark.pedantic(timed, args=("ours", ours), setup=before, rounds=ROUNDS, warmup_rounds=1)
    for name, rate in found.items():
        benchmark.extra_info[f"steps a second, {name}"] = round(float(np.median(rate)))
    return steps


def heading(names: Sequence[str]) -> None:
    """Print the head of a table in Markdown."""
    print(f"| {' | '.join(names)} |\n{'|---' * len(names)}|", flush=True)


def line(cells: Iterable[object]) -> None:
    """Print a line of a table in Markdown."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def options(text: str | None, **defaults: Any) -> argparse.Namespace:
    """Return the options of a command line: each has the type of its default, and help is the text of the script."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(default, bool):
            parser.add_argument(flag, action="store_true")
        else:
            parser.add_argument(flag, type=type(default), default=default, help=f"default: {default}")
    return parser.parse_args()


class Store(Generic[R]):
    """Runs by their keys, in a CSV file, if any: the parts of the key, then the fields of a run, a named tuple."""

    def __init__(self, path: Path | None, kind: Callable[..., R]) -> None:
        self.path, self.runs = path, dict[tuple[str, ...], R]()
        hints = get_type_hints(kind)
        types = [hints[name] for name in kind._fields]
        if path is not None and path.exists():
            with path.open(newline="") as file:
                for cells in csv.reader(file):
                    key, values = cells[: -len(types)], cells[-len(types) :]
                    self.runs[tuple(key)] = kind(*(of(value) for of, value in zip(types, values, strict=True)))

    def __contains__(self, key: Iterable[Hashable]) -> bool:
        return tuple(map(str, key)) in self.runs

    def run(self, key: Iterable[Hashable], do: Callable[[], R]) -> R:
        """Return the run of a key, or do it and write it to the file."""
        parts = tuple(map(str, key))
        if parts not in self.runs:
            self.runs[parts] = do()
            if self.path is not None:
                with self.path.open("a", newline="") as file:
                    csv.writer(file).writerow([*parts, *self.runs[parts]])
        return self.runs[parts]
