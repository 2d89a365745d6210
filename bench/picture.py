"""Draw the picture of the README, bench/figures/lock.png. It needs the extra `plot`.

    python bench/picture.py

Left: the trajectories that DMQ needs to solve the combination lock, against the horizon. Right: the value of the policy
that the printed, the repaired and the self-stopping algorithm return on the decoy lock.
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

import dmq_fast as dmq
from dmq_fast.environments import combination_lock, decoy_lock

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"


def draw_lock(axes: plt.Axes) -> None:
    """Draw the trajectories until the lock is solved, against the horizon."""
    horizons = np.array([2, 3, 5, 8, 12, 20, 35, 60, 100])
    for arguments, colour, marker, place, label in (
        ({"variant": "sound", "n_samples": 20}, BLUE, "o", 9, "sound, $N = 20$"),
        ({"variant": "frugal", "n_samples": 10}, GREEN, "^", -28, "frugal, $N = 10$"),
        ({"epsilon": 0.05, "delta": 0.05}, ORANGE, "s", -40, r"stops by itself, $\varepsilon = \delta = .05$"),
    ):
        drawn = []
        for horizon in horizons.tolist():
            env = combination_lock(horizon, 4, rng=0)
            results = [dmq.DMQ(env, rng=seed, **arguments).learn() for seed in range(5)]
            assert all(env.value(result.policy) == env.optimal_value for result in results)
            drawn.append([result.n_trajectories for result in results])
        median = np.median(drawn, axis=1)
        axes.plot(horizons, median, marker + "-", color=colour)
        axes.annotate(label, (100, median[-1]), (0, place), textcoords="offset points", color=colour, ha="right")
    some = horizons[horizons <= 20]
    axes.plot(some, 4.0**some, "--", color=GREY)
    axes.annotate("random exploration, $4^H$", (11.5, 1.2e6), color=GREY)
    axes.set(
        xscale="log",
        yscale="log",
        ylim=(10, 3e6),
        xlabel="horizon $H$",
        ylabel="trajectories",
        title="Combination lock, $K = 4$: solved in 5 of 5 runs",
    )
    axes.set_xticks([2, 5, 10, 20, 50, 100], labels=["2", "5", "10", "20", "50", "100"])
    axes.minorticks_off()


def draw_decoy(axes: plt.Axes) -> None:
    """Draw the value of the returned policy on the decoy lock, of the printed algorithm and of the repaired one."""
    horizons = np.arange(2, 21, 2)
    repaired = {"n_samples": 2000, "ratio": 8}
    for arguments, colour, marker, label in (
        (repaired | {"variant": "sound"}, BLUE, "o", "sound: fixed initial sequence, re-check"),
        (repaired | {"variant": "paper"}, GREY, "x", "paper: uniform initial policy"),
        ({"epsilon": 0.05, "delta": 0.05}, ORANGE, "s", "stops by itself"),
    ):
        values = [
            [decoy_lock(h).value(dmq.DMQ(decoy_lock(h), rng=seed, **arguments).learn().policy) for seed in range(5)]
            for h in horizons.tolist()
        ]
        axes.plot(horizons, np.median(values, axis=1), marker + "-", color=colour, label=label)
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
    """Draw both panels."""
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    draw_lock(left)
    draw_decoy(right)
    figure.savefig(Path(__file__).parent / "figures" / "lock.png", dpi=160)


if __name__ == "__main__":
    main()
