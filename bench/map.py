"""Which algorithm when: tables and a picture from a sweep of ``experiments/map.toml`` or ``same.toml`` in DIR.

    python bench/map.py DIR
    python bench/map.py DIR --figure same.png

Writes a picture to bench/figures, and prints, for every problem and form of an algorithm, "shared" where levels share
data,

- the episodes until solved of the setting that was best on the seeds 5 to 9, on the seeds 0 to 4: until it stops, of an
  algorithm that stops by itself, and until it is good, of all others;
- those after which the policy of a checkpoint is good, and is so at every checkpoint from then on, of algorithms with
  learning curves (those of the self-stopping run are in good_after.py);
- the episodes until an algorithm stops by its own rule, and how often it then returned a policy worse by over .05;
- how many of its settings work, and the episodes that it takes to try them all once;
- the one setting that works on the most problems.

A policy is good if its score is 95 %: (V - V_uniform) / (V* - V_uniform). What was not solved counts as infinity.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from common import heading, line
from matplotlib.colors import LogNorm

from dmq_fast.experiments import load
from dmq_fast.experiments.report.metrics import GOOD, QUANTITIES

Row = Mapping[str, Any]
Cells = dict[tuple[str, str, str], list[Row]]

EPSILON = 0.05
FIGURES = Path(__file__).parent / "figures"
REPORTED = range(5)

SELF, QUICK, FRUGAL = "DMQ", "DMQ, quick", "DMQ, frugal N = 100"
BY_LEVEL = (
    "LSVI-UCB", "LSVI-UCB, clipped", "LSVI-UCB, steps", "LSVI-UCB, clipped, steps", "RLSVI", "RLSVI, clipped", "UCB-Q",
    "UCB-Q, steps", "BPI-UCBVI", "OPPO",
)  # fmt: skip
SHARED = ", shared"
FORMS = (
    *(SELF, QUICK, FRUGAL),
    *(form + shared for form in BY_LEVEL for shared in ("", SHARED)),
    *("ε-greedy Q", "uniform"),
)
STOPPING = (SELF, QUICK, FRUGAL, "BPI-UCBVI", "BPI-UCBVI" + SHARED)

PROBLEMS: dict[str, Callable[[Row], bool]] = {
    "lock 20": lambda e: e["horizon"] == 20,
    "noisy lock 10": lambda e: e["p_success"] < 1,
    "rare lock 10": lambda e: e["final"] == 0.2,
    "decoy lock 20": lambda e: True,
    "deep sea 20": lambda e: True,
    "chain 20": lambda e: True,
    "river swim": lambda e: True,
    "linear MDP": lambda e: True,
    "linear Q*": lambda e: True,
    "lock with coins 5": lambda e: True,
    "mirage lock": lambda e: e["copies"] == 1 and e["horizon"] == 40,
    "mirage, 30 copies": lambda e: e["copies"] == 30,
    "mirage, long": lambda e: e["horizon"] == 130,
    "linear Q*, off by .05": lambda e: e["size"] == 0.05,
    "linear Q*, off by .2": lambda e: e["size"] == 0.2,
    "lock 10, off by .05": lambda e: e["size"] == 0.05,
    "lock 10, off by .2": lambda e: e["size"] == 0.2,
    "random, dense": lambda e: e["paying"] == 0.5 and e["n_states"] == 10,
    "random, few rewards": lambda e: e["paying"] == 0.1,
    "random, 3 successors": lambda e: e["n_states"] == 20,
    "FrozenLake 4 × 4": lambda e: True,
}
REGISTERED = {
    "lock": ("lock 20", "noisy lock 10", "rare lock 10"),
    "decoy": ("decoy lock 20",),
    "deep-sea": ("deep sea 20",),
    "chain": ("chain 20",),
    "river-swim": ("river swim",),
    "linear-mdp": ("linear MDP",),
    "linear-q": ("linear Q*",),
    "lock-bernoulli": ("lock with coins 5",),
    "mirage-lock": ("mirage lock", "mirage, 30 copies", "mirage, long"),
    "misspecification:perturbed_linear_q": ("linear Q*, off by .05", "linear Q*, off by .2"),
    "misspecification:perturbed_lock": ("lock 10, off by .05", "lock 10, off by .2"),
    "same_tables:table": ("random, dense", "random, few rewards", "random, 3 successors"),
    "gym:FrozenLake-v1": ("FrozenLake 4 × 4",),
}


def problem_of(row: Row) -> str:
    """Return the name of the problem of a run."""
    return next(name for name in REGISTERED[row["environment"]] if PROBLEMS[name](row["environment_parameters"]))


def form_of(row: Row) -> tuple[str, str]:
    """Return the form of the algorithm of a run, and its setting."""
    name, given = row["algorithm"], row["algorithm_parameters"]
    if name == "dmq":
        return FRUGAL, ""
    if name == "self-stopping":
        return (QUICK if given["mode"] == "quick" else SELF), ""
    if name in ("q-learning", "uniform"):
        return {"q-learning": "ε-greedy Q", "uniform": "uniform"}[name], ""
    form = {"lsvi-ucb": "LSVI-UCB", "rlsvi": "RLSVI", "ucb-q": "UCB-Q", "bpi-ucbvi": "BPI-UCBVI", "oppo": "OPPO"}[name]
    if name in ("lsvi-ucb", "rlsvi") and given["clipped"]:
        form += ", clipped"
    if name in ("lsvi-ucb", "ucb-q") and given["optimism"] == "steps":
        form += ", steps"
    if given.get("homogeneous", False) is not False:
        form += SHARED
    signs = {"beta": "β", "ridge": "λ", "sigma": "σ", "c": "c", "c1": "c₁", "c2": "c₂", "alpha": "α"}
    return form, ", ".join(f"{sign} {given[key]:g}" for key, sign in signs.items() if given.get(key) is not None)


def by_policy(row: Row) -> float:
    """Return the episodes until a run solved the problem, infinity if it did not."""
    return QUANTITIES["episodes"].of(row, GOOD)


def good_after(row: Row) -> float | None:
    """Return the episodes until the policy of a checkpoint is good, None without checkpoints."""
    return QUANTITIES["good_after"].of(row, GOOD)


def for_good(row: Row) -> float | None:
    """Return the episodes from which on the policies of all checkpoints are good, None without checkpoints."""
    if good_after(row) is None:
        return None
    at = row["details"].get("kept_at")
    return math.inf if at is None else at


def episodes(rows: Iterable[Row], metric: Callable[[Row], float | None] = by_policy) -> list[float]:
    """Return the episodes of each run that has them."""
    return [n for row in rows if (n := metric(row)) is not None]


def median(numbers: Sequence[float]) -> float:
    """Return the lower median, so that infinity is never averaged."""
    return sorted(numbers)[(len(numbers) - 1) // 2] if numbers else math.inf


def reported(rows: Iterable[Row]) -> list[Row]:
    """Return the runs on the seeds that are reported."""
    return [row for row in rows if row["seed"] in REPORTED]


def chosen(cells: Cells, problem: str, form: str) -> tuple[str, list[Row]]:
    """Return the setting that was best on the seeds kept for the choice, and its runs on the others."""

    def cost(setting: str) -> tuple[float, float]:
        kept = episodes(row for row in cells[problem, form, setting] if row["seed"] not in REPORTED)
        return median(kept), sum(math.isinf(n) for n in kept)

    best = min((setting for p, f, setting in cells if (p, f) == (problem, form)), key=cost)
    return best, reported(cells[problem, form, best])


def number(n: float, solved: int, of: int) -> str:
    """Return a median of episodes in words, with the number of solved runs if not all are."""
    if not solved:
        return "–"
    return ("–" if math.isinf(n) else f"{n:,.0f}") + ("" if solved == of else f" ({solved})")


def print_table(title: str, heads: Sequence[str], lines: Iterable[Sequence[str]]) -> None:
    """Print a table in Markdown."""
    print(f"\n{title}\n")
    heading(heads)
    for cells in lines:
        line(cells)


def print_best(cells: Cells, problems: Sequence[str], forms: Sequence[str]) -> None:
    """Print the tables of the best settings."""
    for title, metric in (
        ("Episodes until solved", by_policy),
        ("Episodes, good after", good_after),
        ("Episodes, good for good after", for_good),
    ):
        lines = []
        for problem in problems:
            line = [problem]
            for form in forms:
                found = episodes(chosen(cells, problem, form)[1], metric)
                line.append(number(median(found), sum(map(math.isfinite, found)), len(found)) if found else "")
            lines.append(line)
        print_table(title, ["", *forms], lines)
    lines = [[problem, *(chosen(cells, problem, form)[0] for form in forms)] for problem in problems]
    print_table("Best settings", ["", *forms], lines)


def print_stopping(cells: Cells, problems: Sequence[str]) -> None:
    """Print the episodes until algorithms stop by themselves, and how often that was too early."""
    columns = [(form, setting) for form in STOPPING for setting in sorted({s for _, f, s in cells if f == form})]
    lines = []
    for problem in problems:
        line = [problem]
        for form, setting in columns:
            rows = cells[problem, form, setting]
            stopped = [row for row in rows if row["status"] == "finished"]
            wrong = sum(row["optimal_value"] - row["value"] > EPSILON for row in stopped)
            text = number(median([row["n_trajectories"] for row in stopped]), len(stopped), len(rows))
            line.append(text + (f", {wrong} wrong" if wrong else ""))
        lines.append(line)
    print_table("Episodes until stopped, all seeds", ["", *(f"{form} {setting}" for form, setting in columns)], lines)


def print_breadth(cells: Cells, problems: Sequence[str], forms: Sequence[str]) -> None:
    """Print how many settings solve four of five runs, and what it takes to try each setting once."""
    lines = []
    for problem in problems:
        line = [problem]
        for form in forms:
            runs = [reported(rows) for (p, f, _), rows in cells.items() if (p, f) == (problem, form)]
            tried = sum(median([min(by_policy(row), row["n_trajectories"]) for row in rows]) for rows in runs)
            line.append(f"{sum(map(works, runs))} of {len(runs)}; {tried:,.0f}")
        lines.append(line)
    print_table("Settings that work, and the episodes to try all once", ["", *forms], lines)


def print_single(cells: Cells, problems: Sequence[str], forms: Sequence[str]) -> None:
    """Print, for each form, the first setting that solves the most problems, and those that it does not solve."""
    lines = []
    for form in forms:
        settings = dict.fromkeys(setting for _, f, setting in cells if f == form)
        failed = {
            setting: [problem for problem in problems if not works(cells[problem, form, setting])]
            for setting in settings
        }
        best = min(settings, key=lambda setting: len(failed[setting]))
        solved = f"{len(problems) - len(failed[best])} of {len(problems)}"
        lines.append([form, best, solved, ", ".join(failed[best]) or "none"])
    heads = ["", "a setting that solves the most", "solves", "does not solve"]
    print_table("One setting for all problems", heads, lines)


def works(rows: Iterable[Row]) -> bool:
    """Whether all of the reported runs but one, at most, solve the problem."""
    found = episodes(reported(rows))
    return bool(found) and sum(map(math.isinf, found)) <= 1


def draw(cells: Cells, problems: Sequence[str], forms: Sequence[str], path: Path) -> None:
    """Draw settings against problems; the colour is the median of episodes until solved."""
    labels = [(form, setting) for form in forms for setting in dict.fromkeys(s for _, f, s in cells if f == form)]
    labels.sort(key=lambda label: (forms.index(label[0]), [float(x) for x in numerals(label[1])]))
    values = np.full((len(labels), len(problems)), np.nan)
    for i, (form, setting) in enumerate(labels):
        for j, problem in enumerate(problems):
            n = median(episodes(reported(cells[problem, form, setting])))
            values[i, j] = n if math.isfinite(n) else np.nan
    figure, axes = plt.subplots(figsize=(7.6, 0.145 * len(labels) + 1.9), layout="constrained")
    axes.set_facecolor("#e4e4e4")
    image = axes.imshow(values, cmap="viridis_r", norm=LogNorm(10, 1e5), aspect="auto")
    axes.set_xticks(range(len(problems)), problems, rotation=55, ha="right", fontsize=7)
    axes.set_yticks(range(len(labels)), [setting or form for form, setting in labels], fontsize=5.5)
    first = {form: next(i for i, label in enumerate(labels) if label[0] == form) for form in forms}
    for form, i in first.items():
        axes.axhline(i - 0.5, color="white", linewidth=2)
        if labels[i][1]:
            last = max(k for k, label in enumerate(labels) if label[0] == form)
            name = form.replace(", clipped", "\nclipped")
            axes.text(-0.27, 1 - ((i + last) / 2 + 0.5) / len(labels), name, transform=axes.transAxes, fontsize=7,
                      ha="right", va="center")  # fmt: skip
    bar = figure.colorbar(image, ax=axes, shrink=0.4, pad=0.02)
    bar.set_label("median episodes until solved; grey: not solved", fontsize=7)
    bar.ax.tick_params(labelsize=7)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    figure.savefig(path, dpi=180)


def numerals(setting: str) -> list[str]:
    """Return the numbers in a setting."""
    return [part.split(" ")[1] for part in setting.split(", ")] if setting else []


def main() -> None:
    """Print the tables and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", metavar="DIR")
    parser.add_argument("--figure", default="map.png", help="name of the picture in bench/figures; default: map.png")
    options = parser.parse_args()
    cells: Cells = defaultdict(list)
    for row in load(options.directory):
        cells[(problem_of(row), *form_of(row))].append(row)
    problems = [name for name in PROBLEMS if any(p == name for p, _, _ in cells)]
    forms = [form for form in FORMS if any(f == form for _, f, _ in cells)]
    print_best(cells, problems, forms)
    print_stopping(cells, problems)
    print_breadth(cells, problems, forms)
    print_single(cells, problems, forms)
    draw(cells, problems, forms, FIGURES / options.figure)


if __name__ == "__main__":
    main()
