"""Draw the mechanism of the mirage lock, bench/figures/mirage.png. It needs the extra `plot`.

    python bench/mirage_picture.py

Left: the score of the right action in the lock at the ten gates, against the number of episodes. LSVI-UCB's has its
bonus; RLSVI's is that of the weights drawn for the episode; both explore by it. Right: the value of the returned
policies. It takes a minute.
"""

from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

import dmq_fast as dmq
from dmq_fast.baselines import LSVIUCB, RLSVI
from dmq_fast.baselines.base import Baseline
from dmq_fast.environments import FiniteMDP, block_mdp, mirage_lock
from dmq_fast.environments.mirage import LOCK
from dmq_fast.kernels import Episode, Stream

BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#666666"

SEEDS = range(5)
EPISODES = 10_000
POINTS = sorted({round(n) for n in np.geomspace(1, EPISODES, 60).tolist()})
BETA, RIDGE, SIGMA = 0.1, 1e-3, 0.1

Array = NDArray[np.float64]


def gates(env: FiniteMDP) -> tuple[list[int], list[int]]:
    """Return the levels of the gates, and the right action in the lock at each."""
    first = env.parameters["pre"]
    levels = list(range(first, first + env.parameters["gates"]))
    return levels, [int(env.optimal_q[level][LOCK].argmax()) for level in levels]


def right_scores(env: FiniteMDP, theta: Array) -> Array:
    """Return φ·θ of the right action in the lock at every gate."""
    levels, right = gates(env)
    return np.array([env.features[h][LOCK] @ theta[h, a] for h, a in zip(levels, right, strict=True)])


class Replay:
    """Episodes of LSVI-UCB, played again with the weights it had, to know its matrices V and so its bonus.

    V^{-1} is kept for every level and action, and updated by the rows of an episode.
    """

    def __init__(self, env: FiniteMDP, seed: int) -> None:
        self.env, self.episode = env, episode_of(env, seed)
        self.inverse = np.tile(np.eye(env.dimension) / RIDGE, (env.horizon, env.n_actions, 1, 1))

    def scores(self, level: int, phi: Array, theta: Array) -> Array:
        """Return the scores (K,) of all actions, with the bonus."""
        bonus = np.sqrt(np.einsum("i,aij,j->a", phi, self.inverse[level], phi))
        return np.minimum(1.0, theta[level] @ phi + BETA * bonus)

    def play(self, number: int, theta: Array) -> tuple[float, Array]:
        """Return the rewards of an episode, and the scores of the right action at the gates before it."""
        levels, right = gates(self.env)
        score = [self.scores(h, self.env.features[h][LOCK], theta)[a] for h, a in zip(levels, right, strict=True)]
        self.episode.reset(number)
        rows, earned = [], 0.0
        for level in range(self.env.horizon):
            phi = self.episode.features()
            action = self.episode.act(self.scores(level, phi, theta))
            earned += self.episode.step(action)
            rows.append((level, action, phi))
        for level, action, phi in rows:
            inverse = self.inverse[level, action]
            x = inverse @ phi
            inverse -= np.outer(x, x) / (1 + phi @ x)
        return earned, np.array(score)


def episode_of(env: FiniteMDP, seed: int) -> Episode:
    """Return the episodes of a run of a baseline."""
    compiled = block_mdp(env)
    return Episode(compiled.handle, compiled.features, Stream(seed))


def baseline_curve(baseline: Baseline, env: FiniteMDP, seed: int) -> tuple[Array, Array, Array]:
    """Return scores (points, gates) while acting and of the fit without bonus or noise, and the value of the latter."""
    learner = baseline.learner(episode_of(env, seed))
    replay = Replay(env, seed) if isinstance(baseline, LSVIUCB) else None
    acting, plain, values = [], [], []
    for number in range(EPISODES):
        returns = np.zeros(1)
        learner.run(returns)
        score = right_scores(env, learner.weights)
        if replay is not None:
            earned, score = replay.play(number, learner.weights)
            assert earned == returns[0], "the replay differs from the run"
        if number + 1 in POINTS:
            acting.append(score)
            theta = learner.fit()
            plain.append(right_scores(env, theta))
            values.append(env.value(dmq.Policy.greedy(theta)))
    return np.array(acting), np.array(plain), np.array(values)


def dmq_curve(env: FiniteMDP, seed: int) -> tuple[Array, Array, int]:
    """Return the scores (points, gates) and the value of the self-stopping run under budgets, and when it stops."""
    whole = dmq.SelfStopping(env, epsilon=0.05, delta=0.05, rng=seed).learn().n_trajectories
    scores, values = [], []
    for n in POINTS:
        result = dmq.SelfStopping(env, epsilon=0.05, delta=0.05, rng=seed).learn(max_trajectories=n)
        scores.append(right_scores(env, result.theta))
        values.append(env.value(result.policy))
    return np.array(scores), np.array(values), whole


class Found(NamedTuple):
    """What all runs of a learner gave: one column a seed and gate, or a seed."""

    scores: Array
    values: Array


def measure() -> tuple[dict[str, Found], list[int]]:
    """Run all learners on all seeds; return what they gave, and where the self-stopping run stopped."""
    scores: dict[str, list[Array]] = defaultdict(list)
    values: dict[str, list[Array]] = defaultdict(list)
    stops = []
    for seed in SEEDS:
        env = mirage_lock(rng=seed)
        for baseline in (LSVIUCB(env, beta=BETA, ridge=RIDGE), RLSVI(env, sigma=SIGMA)):
            acting, plain, value = baseline_curve(baseline, env, seed)
            scores[baseline.name].append(acting)
            scores["plain fit of " + baseline.name].append(plain)
            values[baseline.name].append(value)
        learned, value, stop = dmq_curve(env, seed)
        scores["dmq"].append(learned)
        values["dmq"].append(value)
        stops.append(stop)
    found = {name: Found(np.concatenate(scores[name], axis=1), np.transpose(values.get(name, [[]]))) for name in scores}
    return found, stops


def draw_scores(axes: plt.Axes, found: dict[str, Found], stop: float) -> None:
    """Draw the scores of the right action in the lock: the median, and the range of the middle four fifths."""
    for name, colour, marker, place, label in (
        ("plain fit of lsvi-ucb", PURPLE, "D", (9500, -0.2), "LSVI-UCB without bonus"),
        ("lsvi-ucb", BLUE, "o", (9500, -15), "LSVI-UCB"),
        ("rlsvi", ORANGE, "^", (9500, -2.1), "RLSVI"),
        ("dmq", GREEN, "s", (9500, 0.84), "DMQ"),
    ):
        seen = np.array(POINTS) <= (stop if name == "dmq" else EPISODES)
        points, scores = np.array(POINTS)[seen], found[name].scores[seen]
        lower, median, upper = np.quantile(scores, (0.1, 0.5, 0.9), axis=1)
        if name != "plain fit of lsvi-ucb":  # whose range is from -2 to 3
            axes.fill_between(points, lower, upper, color=colour, alpha=0.15, linewidth=0)
        axes.plot(points, median, marker + "-", color=colour, markersize=3.5, markevery=4)
        axes.annotate(label, place, color=colour, ha="right")
    axes.axhline(0.8, color=GREY, linewidth=0.8, linestyle=":")
    axes.annotate("truth, .8", (1.1, 0.52), color=GREY)
    axes.set_yscale("symlog", linthresh=1.0, linscale=1.0)
    axes.set_yticks([-20, -10, -5, -2, -1, 0, 1, 2, 4], labels=["−20", "−10", "−5", "−2", "−1", "0", "1", "2", "4"])
    axes.set(
        xscale="log",
        ylim=(-25, 5),
        xlabel="episodes",
        ylabel="score of the right action in the lock",
        title="Mirage lock: ten gates, five seeds",
    )


def draw_values(axes: plt.Axes, found: dict[str, Found], stop: float) -> None:
    """Draw the value of the returned policies, the mean of all seeds."""
    for name, colour, marker in (("lsvi-ucb", BLUE, "o"), ("rlsvi", ORANGE, "^"), ("dmq", GREEN, "s")):
        seen = np.array(POINTS) <= (stop if name == "dmq" else EPISODES)
        axes.plot(np.array(POINTS)[seen], found[name].values[seen].mean(axis=1), marker + "-", color=colour,
                  markersize=3.5, markevery=4)  # fmt: skip
    axes.plot(stop, 0.8, "*", color=GREEN, markersize=9)
    axes.annotate(f"DMQ, stops after {stop:.0f}", (9500, 0.865), color=GREEN, ha="right")
    axes.annotate("LSVI-UCB", (9500, 0.37), color=BLUE, ha="right")
    axes.annotate("RLSVI", (9500, 0.09), color=ORANGE, ha="right")
    for value, label in ((0.8, "$V^* = .8$"), (0.35, "leaving at once, .35")):
        axes.axhline(value, color=GREY, linewidth=0.8, linestyle=":")
        axes.annotate(label, (1.1, value + 0.025), color=GREY)
    axes.set(
        xscale="log",
        ylim=(0, 1),
        xlabel="episodes",
        ylabel="value of the returned policy",
        title="What they earn, mean of five seeds",
    )


def main() -> None:
    """Run everything and draw both panels."""
    found, stops = measure()
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
    draw_scores(left, found, float(np.median(stops)))
    draw_values(right, found, float(np.median(stops)))
    figure.savefig(Path(__file__).parent / "figures" / "mirage.png", dpi=160)


if __name__ == "__main__":
    main()
