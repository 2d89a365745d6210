"""Draw the picture of the README, bench/figures/lock.png. It needs the extra `plot`.

    python bench/picture.py

Left: the trajectories that DMQ needs to solve the combination lock, against the horizon. Right: the value of the policy
that the printed and the repaired algorithm return on the decoy lock.
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

import dmq_fast as dmq
from dmq_fast.environments import combination_lock, decoy_lock

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#666666"


def draw_lock(axes: plt.Axes) -> None:
    """Draw the trajectories until the lock is solved, against the horizon."""
    horizons = np.array([2, 3, 5, 8, 12, 20, 35, 60, 100])
    drawn = []
    for horizon in horizons:
        env = combination_lock(int(horizon), 4, rng=0)
        results = [dmq.DMQ(env, n_samples=20, rng=seed).learn() for seed in range(5)]
        assert all(env.value(result.policy) == env.optimal_value for result in results)
        drawn.append([result.n_trajectories for result in results])
    axes.plot(horizons, np.median(drawn, axis=1), "o-", color=BLUE, label="DMQ, solved in 5 of 5 runs")
    some = horizons[horizons <= 20]
    axes.plot(some, 4.0**some, "--", color=GREY, label="random exploration, $4^H$")
    axes.set(
        xscale="log",
        yscale="log",
        ylim=(1, 1e8),
        xlabel="horizon $H$",
        ylabel="trajectories",
        title="Combination lock, $K = 4$",
    )
    axes.set_xticks([2, 5, 10, 20, 50, 100], labels=["2", "5", "10", "20", "50", "100"])
    axes.minorticks_off()
    axes.legend(frameon=False, loc="lower right")


def draw_decoy(axes: plt.Axes) -> None:
    """Draw the value of the returned policy on the decoy lock, of the printed algorithm and of the repaired one."""
    horizons = np.arange(2, 21, 2)
    for variant, colour, marker, label in (
        ("sound", BLUE, "o", "sound: fixed initial sequence, re-check"),
        ("paper", ORANGE, "s", "paper: uniform initial policy"),
    ):
        values = [
            [
                decoy_lock(h).value(
                    dmq.DMQ(decoy_lock(h), variant=variant, n_samples=2000, ratio=8, rng=seed).learn().policy
                )
                for seed in range(5)
            ]
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
