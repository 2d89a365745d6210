"""Draw bench/figures/lock.png, the picture of the README, and decoy.png, that of finding A. They need the extra `plot`.

    python bench/picture.py

lock.png, left: episodes on the combination lock against the horizon, until algorithms stop by themselves, or, for those
that never do, until the policy that they would return is good. Right: how many of ten runs have solved the mirage
lock, against the episodes. decoy.png: the value of the policy that the printed, the repaired and the self-stopping
algorithm return on the decoy lock. It takes two minutes.
"""

import logging
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from common import options

import dmq_fast as dmq
from dmq_fast.baselines import REGISTRY
from dmq_fast.environments import combination_lock, decoy_lock, mirage_lock
from dmq_fast.learners.named import LEARNERS
from dmq_fast.results.appraisal import uniform_value
from dmq_fast.results.score import solves

BLUE, ORANGE, GREEN, PURPLE, BROWN, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8C6D31", "#666666"
FIGURES = Path(__file__).parent / "figures"
LEGEND: dict[str, Any] = dict(frameon=False, fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2)
GOOD = 0.95
"""Score from which a policy is good."""

BUDGET = 10_000

Parameters = dict[str, Any]

# Of the baselines, those of bench/experiments/locks.toml and the default of BPI-UCBVI.
STOPPING: tuple[tuple[str, Parameters, str, str, str], ...] = (
    ("self-stopping", {"epsilon": 0.05, "delta": 0.05}, ORANGE, "s", "stops by itself"),
    ("dmq", {"variant": "frugal", "n_samples": 10}, GREEN, "^", "DMQ, frugal, $N = 10$"),
    ("bpi-ucbvi", {}, BROWN, "D", "BPI-UCBVI, stops"),
)
TOLD: tuple[tuple[str, Parameters, str, str, str], ...] = (
    ("ucb-q", {"c": 0.005}, GREY, "v", "UCB-Q, until optimal"),
    ("lsvi-ucb", {"beta": 0.1, "ridge": 0.01}, BLUE, "o", "LSVI-UCB, until optimal"),
    ("rlsvi", {"sigma": 0.03}, PURPLE, "x", "RLSVI, until optimal"),
)
CLIPPED = {"clipped": True, "ridge": 1e-3}
MIRAGE: tuple[tuple[str, Parameters, str, str, str], ...] = (
    ("self-stopping", {"epsilon": 0.05, "delta": 0.05}, ORANGE, "-", "stops by itself"),
    ("dmq", {"variant": "frugal", "n_samples": 20}, GREEN, "-", "DMQ, frugal, $N = 20$"),
    ("bpi-ucbvi", {}, BROWN, "-", "BPI-UCBVI, stops"),
    ("lsvi-ucb", {"beta": 0.1, **CLIPPED}, BLUE, "--", r"LSVI-UCB, clipped, $\beta = .1$"),
    ("lsvi-ucb", {"beta": 0.03, **CLIPPED}, BLUE, ":", r"LSVI-UCB, clipped, $\beta = .03$"),
    ("lsvi-ucb", {"beta": 0.1, "ridge": 1e-3}, BLUE, "-", r"LSVI-UCB as printed, $\beta = .1$"),
    ("rlsvi", {"sigma": 0.1}, PURPLE, "-", r"RLSVI, $\sigma = .1$"),
)


def episodes(algorithm: str, parameters: Parameters, env: dmq.environments.FiniteMDP, seed: int, told: bool) -> float:
    """Return the episodes until the algorithm stops with a good policy, or, if told, until its policy is good."""
    if algorithm in LEARNERS:
        result = LEARNERS[algorithm](env, rng=seed, **parameters).learn()
        return result.n_trajectories if is_good(env, env.value(result.policy)) else np.inf
    learner = REGISTRY[algorithm](env, n_episodes=BUDGET, checkpoints=200, rng=seed, **parameters)
    found = learner.learn()
    if not told:
        assert found.counts["stopped_after"] and is_good(env, found.value)
        return found.counts["stopped_after"]
    at = zip(found.curve.episodes.tolist(), found.curve.value.tolist(), strict=True)
    return next((n for n, value in at if is_good(env, value)), np.inf)


def is_good(env: dmq.environments.FiniteMDP, value: float) -> bool:
    """Return whether a policy of this value has a score of 95 %."""
    return solves(value, uniform_value(env), env.optimal_value, GOOD)


def draw_lock(axes: plt.Axes) -> None:
    """Draw the episodes on the lock against the horizon."""
    horizons = np.array([5, 10, 20, 40, 70, 100])
    for told, style, algorithms in ((False, "-", STOPPING), (True, ":", TOLD)):
        for name, parameters, colour, marker, label in algorithms:
            locks = [combination_lock(horizon, 4, rng=0) for horizon in horizons.tolist()]
            drawn = [[episodes(name, parameters, lock, seed, told) for seed in range(5)] for lock in locks]
            axes.plot(horizons, np.median(drawn, axis=1), marker + style, color=colour, markersize=4, label=label)
    some = horizons[horizons <= 20]
    axes.plot(some, 4.0**some, "--", color=GREY, linewidth=0.8)
    axes.annotate("random\nexploration, $4^H$", (11, 2.5e5), color=GREY, fontsize=7)
    axes.set(
        xscale="log",
        yscale="log",
        ylim=(10, 1e6),
        xlabel="horizon $H$",
        ylabel="episodes",
        title="Combination lock, $K = 4$: median of 5 runs",
    )
    axes.set_xticks(horizons, labels=[f"{horizon}" for horizon in horizons])
    axes.minorticks_off()
    axes.legend(**LEGEND)


def draw_mirage(axes: plt.Axes) -> None:
    """Draw how many of ten runs have solved the mirage lock, against the episodes."""
    seeds, most = range(10), 1e5
    for i, (name, parameters, colour, style, label) in enumerate(MIRAGE):
        told = name in ("lsvi-ucb", "rlsvi")
        found = np.sort([episodes(name, parameters, mirage_lock(rng=seed), seed, told) for seed in seeds])
        found = found[np.isfinite(found)]
        steps = np.concatenate([[10], found, [BUDGET if told else most]])
        aside = 0.11 * (3 - i)  # lines that meet run side by side
        counts = np.array([*range(len(found) + 1), len(found)]) + aside
        axes.step(steps, counts, style, where="post", color=colour, label=label)
    axes.set(
        xscale="log",
        xlim=(50, most),
        ylim=(-0.6, 10.6),
        xlabel="episodes",
        ylabel="runs that solved it",
        title="Mirage lock, 10 seeds",
    )
    axes.legend(**LEGEND)


def draw_decoy(axes: plt.Axes) -> None:
    """Draw the value of the returned policy on the decoy lock, of the printed algorithm and of the repaired one."""
    horizons = np.arange(2, 21, 2)
    repaired = {"n_samples": 2000, "ratio": 8}
    for learner, arguments, colour, marker, size, label in (
        ("dmq", repaired | {"variant": "sound"}, BLUE, "o", 9, "sound: fixed initial sequence, re-check"),
        ("dmq", repaired | {"variant": "paper"}, GREY, "x", 6, "paper: uniform initial policy"),
        ("self-stopping", {"epsilon": 0.05, "delta": 0.05}, ORANGE, "s", 4, "stops by itself"),
    ):
        values = [
            [env.value(LEARNERS[learner](env, rng=seed, **arguments).learn().policy) for seed in range(5)]
            for env in map(decoy_lock, horizons.tolist())
        ]
        axes.plot(horizons, np.median(values, axis=1), marker + "-", color=colour, markersize=size, label=label)
    axes.axhline(0.7, color=GREY, linewidth=0.8, linestyle=":")
    axes.annotate("$V^*$", (19.4, 0.72), color=GREY)
    axes.set(
        ylim=(0, 1.0),
        xlabel="horizon $H$",
        ylabel="value of the returned policy",
        title="Decoy lock, $K = 4$, $R = 8$: median of 5 runs",
    )
    axes.set_xticks(horizons[1::2])
    axes.legend(frameon=False, loc="upper right")


def main() -> None:
    """Draw both pictures."""
    options(__doc__)
    logging.getLogger("dmq_fast").setLevel(logging.ERROR)  # each run of the printed algorithm warns of its failure
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 4.1), layout="constrained")
    draw_lock(left)
    draw_mirage(right)
    figure.savefig(FIGURES / "lock.png", dpi=160)
    figure, axes = plt.subplots(figsize=(4.2, 3.2), layout="constrained")
    draw_decoy(axes)
    figure.savefig(FIGURES / "decoy.png", dpi=160)


if __name__ == "__main__":
    main()
