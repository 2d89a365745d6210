"""Episodes and failures of the adaptive variant, by family of environments: the tables of docs/adaptive.md.

    python bench/adaptive.py                          # all families, 20 seeds, both modes
    python bench/adaptive.py --seeds 1000 lock-20     # one family
    python bench/adaptive.py --strict attacks         # a group: shipped, attacks, held-out

A run fails if the loss of its policy exceeds epsilon = .05. Brackets are 95 % Wilson intervals.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dmq_fast import DMQ
from dmq_fast import environments as E
from dmq_fast.kernels import Stream
from dmq_fast.run.appraisal import appraise

EPSILON = DELTA = 0.05


def tables(
    horizon: int,
    n_actions: int,
    features: Mapping[str, Any],
    go: Callable[[int, str, int], Mapping[str, float]],
    pay: Callable[[int, str, int], float],
    **options: Any,
) -> E.FiniteMDP:
    """Return the MDP whose states, after the first level's "start", are the names in `features`."""
    names = [name for name in features if name != "start"]
    P, R = [], []
    for h in range(horizon):
        here = ["start"] if h == 0 else names
        R.append(np.array([[pay(h, s, a) for a in range(n_actions)] for s in here]))
        if h + 1 < horizon:
            P.append(np.array([[[go(h, s, a).get(t, 0.0) for t in names] for a in range(n_actions)] for s in here]))
    rows = [np.array([features[s] for s in (["start"] if h == 0 else names)], dtype=float) for h in range(horizon)]
    return E.FiniteMDP(P=P, R=R, features=rows, **options)


def bait(seed: int, p: float, decoy: float, horizon: int = 10, n_actions: int = 4) -> E.FiniteMDP:
    """Return a lock that pays 1 with probability p, and `decoy` for sure to whoever leaves it at once."""
    secret = np.random.default_rng([1, seed]).integers(n_actions, size=horizon)
    return tables(
        horizon,
        n_actions,
        {"start": [1, 0], "good": [1, 0], "dead": [0, 1]},
        lambda h, s, a: {"good" if s != "dead" and a == secret[h] else "dead": 1.0},
        lambda h, s, a: (
            decoy * (a != secret[0]) if h == 0 else p * (h == horizon - 1 and s == "good" and a == secret[h])
        ),
        caps=[0.0] * (horizon - 1) + [1.0],
    )


def deep_coin(seed: int, q: float, decoy: float, horizon: int = 8, n_actions: int = 3) -> E.FiniteMDP:
    """Return a lock whose last but one step reaches the state that pays with probability q only."""
    secret = np.random.default_rng([4, seed]).integers(n_actions, size=horizon)

    def go(h: int, s: str, a: int) -> dict[str, float]:
        if s in ("start", "good") and a == secret[h]:
            return {"paying": q, "dead": 1 - q} if h == horizon - 2 else {"good": 1.0}
        return {"dead": 1.0}

    return tables(
        horizon,
        n_actions,
        {"start": [1, 0, 0], "good": [1, 0, 0], "dead": [0, 1, 0], "paying": [0, 0, 1]},
        go,
        lambda h, s, a: (
            decoy * (a != secret[0]) if h == 0 else float(h == horizon - 1 and s == "paying" and a == secret[h])
        ),
    )


def short(seed: int, good: Any, horizon: int = 5, n_actions: int = 3) -> E.FiniteMDP:
    """Return a lock worth .8 whose good state has the feature `good`, beside (0, 1); leaving it at once pays .3."""
    secret = np.random.default_rng([6, seed]).integers(n_actions, size=horizon)
    return tables(
        horizon,
        n_actions,
        {"start": [0, 1], "good": good, "dead": [0, 1]},
        lambda h, s, a: {"good" if s != "dead" and a == secret[h] else "dead": 1.0},
        lambda h, s, a: (
            0.3 * (a != secret[0]) if h == 0 else 0.8 * (h == horizon - 1 and s == "good" and a == secret[h])
        ),
    )


def pooled(seed: int, mu: float) -> E.FiniteMDP:
    """Return two states worth .5 + mu and .5 - mu with one feature: Q* is not linear, by mu."""
    good = int(np.random.default_rng([7, seed]).integers(2))
    return tables(
        2,
        2,
        {"start": [1], "better": [1], "worse": [1]},
        lambda h, s, a: {"better" if a == good else "worse": 1.0},
        lambda h, s, a: 0.0 if h == 0 else 0.5 + mu * (1 if s == "better" else -1),
    )


def amplified(seed: int, kappa: float, p: float, decoy: float, tail: int = 20, n_actions: int = 4) -> E.FiniteMDP:
    """Return x = (1 + kappa) w - kappa s, where long locks hang behind w and s and draw the visits.

    The lock behind w ends with a reward of probability p: fits that miss it are wrong by (1 + kappa) p at x.
    """
    rng = np.random.default_rng([11, seed])
    first, secrets, horizon = rng.permutation(n_actions), rng.integers(n_actions, size=(2, tail + 2)), tail + 2
    b = int(rng.integers(n_actions))
    t = 0.8 / kappa
    plane = {"w": (0.6, 0.0), "s": (0.6, -t), "x": (0.6, kappa * t)}
    features = {"start": np.eye(6)[5]} | {name: np.array([*row, 0, 0, 0, 0]) for name, row in plane.items()}
    features |= {"dead": np.zeros(6), "lock w": np.eye(6)[2], "lock s": np.eye(6)[3], "end": np.eye(6)[4]}

    def go(h: int, s: str, a: int) -> dict[str, float]:
        if s == "start":
            return {["w", "s", "x", "dead"][int(np.flatnonzero(first == a)[0])]: 1.0}
        if s in plane:
            return {"dead" if a != b else "end" if s == "x" else f"lock {s}": 1.0}
        if s.startswith("lock"):
            return {s if a == secrets[int(s == "lock s"), h] else "dead": 1.0}
        return {s: 1.0}

    def pay(h: int, s: str, a: int) -> float:
        if s == "start":
            return decoy * (first[3] == a)
        if h == 1 and s in plane and a == b:
            return 0.1 + (1 + kappa) * p * (s == "x")
        return p * (h == horizon - 1 and s == "lock w" and a == secrets[0, h])

    return tables(horizon, n_actions, features, go, pay, caps=[0.0] * (horizon - 1) + [0.9])


def arms(seed: int, n: int, gap: float) -> E.FiniteMDP:
    """Return n Bernoulli arms of mean .5, one of them better by the gap."""
    means = np.full((1, n), 0.5)
    means[0, np.random.default_rng([9, seed]).integers(n)] += gap
    return E.FiniteMDP(P=[], R=[means], features=[np.ones((1, 1))], caps=[1.0])


def random_tabular(seed: int, n_states: int, n_actions: int, horizon: int, sparse: float) -> E.FiniteMDP:
    """Return one-hot states with Dirichlet transitions, and Bernoulli rewards in a share `sparse` of the pairs."""
    rng = np.random.default_rng([21, seed])
    P = [rng.dirichlet(np.full(n_states, 0.2), size=(n_states, n_actions)) for _ in range(horizon - 1)]
    R = [rng.random((n_states, n_actions)) * (rng.random((n_states, n_actions)) < sparse) for _ in range(horizon)]
    R = [r / horizon for r in R]
    return E.FiniteMDP(
        P=P,
        R=R,
        features=[np.eye(n_states)] * horizon,
        start=rng.dirichlet(np.ones(n_states)),
        caps=[1 / horizon] * horizon,
    )


def tree(seed: int, depth: int, n_actions: int, noisy: bool) -> E.FiniteMDP:
    """Return a tree in which every leaf pays its own amount, with one-hot features."""
    rng = np.random.default_rng([22, seed])
    sizes = [n_actions**h for h in range(depth)]
    P = [np.eye(sizes[h + 1]).reshape(sizes[h], n_actions, -1) for h in range(depth - 1)]
    leaves = rng.beta(0.3, 0.6, size=(sizes[-1], n_actions))
    R = [np.zeros((size, n_actions)) for size in sizes[:-1]] + [leaves]
    features = [np.eye(sizes[-1])[:size] for size in sizes]
    return E.FiniteMDP(P=P, R=R, features=features, caps=[0.0] * (depth - 1) + [float(noisy)])


def rotated(seed: int, make: Callable[[int], E.FiniteMDP]) -> E.FiniteMDP:
    """Return an environment whose features are rotated at random, by level."""
    env, rng = make(seed), np.random.default_rng([23, seed])
    turns = [np.linalg.qr(rng.normal(size=(env.dimension, env.dimension)))[0] for _ in range(env.horizon)]
    features = [np.asarray(rows) @ turn for rows, turn in zip(env.features, turns, strict=True)]
    return E.FiniteMDP(P=env.P, R=env.R, features=features, start=env.start, caps=env.caps)


def two_doors(seed: int, q: float, value: float) -> E.FiniteMDP:
    """Return a door that leads to a room worth `value` with probability q, and one that pays .2 for sure."""
    swap = int(np.random.default_rng([24, seed]).integers(2))
    return tables(
        3,
        2,
        {"start": [1, 0, 0], "room": [0, 1, 0], "hall": [0, 0, 1]},
        lambda h, s, a: ({"room": q, "hall": 1 - q} if a == swap else {"hall": 1.0}) if h == 0 else {s: 1.0},
        lambda h, s, a: 0.2 * (a != swap) if h == 0 else value * (h == 2 and s == "room" and a == 0),
    )


def rooms(seed: int, n: int, mass: float, decoy: float, n_actions: int = 3) -> E.FiniteMDP:
    """Return a gamble that leads to n rooms with a small chance each, where one action pays 1; leaving pays `decoy`."""
    rng = np.random.default_rng([31, seed])
    secrets, gamble = rng.integers(n_actions, size=n), int(rng.integers(n_actions))
    P, R = np.zeros((1, n_actions, n + 1)), [np.full((1, n_actions), decoy), np.zeros((n + 1, n_actions))]
    P[0, :, n], P[0, gamble], R[0][0, gamble] = 1, [mass] * n + [1 - n * mass], 0
    R[1][np.arange(n), secrets] = 1
    return E.FiniteMDP(P=[P], R=R, features=[np.eye(n + 1)[:1], np.eye(n + 1)])


def corridor(seed: int, horizon: int, p: float, decoy: float) -> E.FiniteMDP:
    """Return a long lock whose right action succeeds with probability p; leaving it at once pays `decoy`."""
    secret = np.random.default_rng([32, seed]).integers(2, size=horizon)
    return tables(
        horizon,
        2,
        {"start": [1, 0], "good": [1, 0], "dead": [0, 1]},
        lambda h, s, a: {"good": p, "dead": 1 - p} if s != "dead" and a == secret[h] else {"dead": 1.0},
        lambda h, s, a: (
            decoy * (a != secret[0]) if h == 0 else float(h == horizon - 1 and s == "good" and a == secret[h])
        ),
    )


def contexts(seed: int, n: int, n_actions: int, gap: float) -> E.FiniteMDP:
    """Return n equally likely start states, each with a Bernoulli action that is better by the gap."""
    rng = np.random.default_rng([33, seed])
    means = np.full((n, n_actions), 0.4)
    means[np.arange(n), rng.integers(n_actions, size=n)] += gap
    return E.FiniteMDP(P=[], R=[means], features=[np.eye(n)], start=np.full(n, 1 / n), caps=[1.0])


def drip(seed: int, q: float, decoy: float, horizon: int = 20, n_actions: int = 3) -> E.FiniteMDP:
    """Return a path each of whose steps pays 1 and ends it with a small probability q; leaving at once pays `decoy`."""
    secret = np.random.default_rng([34, seed]).integers(n_actions, size=horizon)

    def go(h: int, s: str, a: int) -> dict[str, float]:
        return {"on": 1 - q, "paid": q} if s in ("start", "on") and a == secret[h] else {"dead": 1.0}

    return tables(
        horizon,
        n_actions,
        {"start": [1, 0, 0], "on": [1, 0, 0], "paid": [0, 1, 0], "dead": [0, 0, 1]},
        go,
        lambda h, s, a: decoy * (a != secret[0]) if h == 0 else float(s == "paid"),
    )


def slippery(seed: int, q: float, sure: float, horizon: int = 8) -> E.FiniteMDP:
    """Return a path that pays .9 at its end and is lost with probability q at every step, beside a sure payment."""
    fast = int(np.random.default_rng([35, seed]).integers(2))

    def go(h: int, s: str, a: int) -> dict[str, float]:
        if s == "fast" or (s == "start" and a == fast):
            return {"fast": 1 - q, "lost": q}
        return {"safe" if s == "start" else s: 1.0}

    return tables(
        horizon,
        2,
        {"start": [1, 0, 0], "fast": [1, 0, 0], "safe": [0, 1, 0], "lost": [0, 0, 1]},
        go,
        lambda h, s, a: (h == horizon - 1) * (0.9 * (s == "fast") + sure * (s == "safe")),
    )


def cue(seed: int, horizon: int = 10) -> E.FiniteMDP:
    """Return a cue at the start that tells which of two last actions pays .9 and which .3, with noise between."""
    flip = int(np.random.default_rng([36, seed]).integers(2))
    P = np.kron(np.eye(2), np.full((2, 2), 0.5))[:, None].repeat(2, axis=1)
    last = np.array([[0.9, 0.3], [0.3, 0.9]])[[flip, flip, 1 - flip, 1 - flip]]
    R = [np.zeros((4, 2))] * (horizon - 1) + [last]
    caps = [0.0] * (horizon - 1) + [1.0]
    return E.FiniteMDP(P=[P] * (horizon - 1), R=R, features=[np.eye(4)] * horizon, start=[0.25] * 4, caps=caps)


def exits(seed: int, horizon: int = 12, n_actions: int = 3) -> E.FiniteMDP:
    """Return a lock worth .7, each of whose steps has an exit that pays .6."""
    rng = np.random.default_rng([37, seed])
    orders = [rng.permutation(n_actions) for _ in range(horizon)]

    def pay(h: int, s: str, a: int) -> float:
        if s == "gone":
            return 0.0
        return 0.7 * (h == horizon - 1) if a == orders[h][0] else 0.6 * (a == orders[h][1])

    return tables(
        horizon,
        n_actions,
        {"start": [1, 0], "good": [1, 0], "gone": [0, 1]},
        lambda h, s, a: {"good" if s != "gone" and a == orders[h][0] else "gone": 1.0},
        pay,
    )


def hidden(seed: int, q: float, length: float, horizon: int = 5) -> E.FiniteMDP:
    """Return a lock that begins with probability q only, and whose good state has a short feature."""
    secret = np.random.default_rng([38, seed]).integers(3, size=horizon)

    def go(h: int, s: str, a: int) -> dict[str, float]:
        if s == "start" and a == secret[0]:
            return {"short": q, "plain": 1 - q}
        return {"short" if s == "short" and a == secret[h] else "plain": 1.0}

    return tables(
        horizon,
        3,
        {"start": [1, 0, 0], "short": [0, length, 0], "plain": [0, 0, 1]},
        go,
        lambda h, s, a: (
            0.1 * (a != secret[0]) if h == 0 else float(h == horizon - 1 and s == "short" and a == secret[h])
        ),
    )


def mixed(seed: int, make: Callable[[int], E.FiniteMDP], condition: float) -> E.FiniteMDP:
    """Return an environment whose features are correlated: times a matrix of this condition number, by level."""
    env, rng = make(seed), np.random.default_rng([39, seed])

    def turn() -> np.ndarray:
        return np.asarray(np.linalg.qr(rng.normal(size=(env.dimension, env.dimension)))[0])

    scales = np.geomspace(1, 1 / condition, env.dimension)
    features = [np.asarray(rows) @ (turn() * scales) @ turn() for rows in env.features]
    return E.FiniteMDP(P=env.P, R=env.R, features=features, start=env.start, caps=env.caps)


def circle(seed: int, n: int = 8, gap: float = 0.3) -> E.FiniteMDP:
    """Return start states on a circle, with negative entries, whose Bernoulli rewards are linear."""
    rng = np.random.default_rng([40, seed])
    angles = np.arange(n) * 2 * np.pi / n + rng.uniform(0, 2 * np.pi)
    rows = np.stack([np.ones(n), np.cos(angles), np.sin(angles)], axis=1) / np.sqrt(2)
    theta = rng.normal(size=(2, 2))
    theta *= gap / np.linalg.norm(theta, axis=0)
    means = [0.5 + rows[:, 1:] @ theta]
    return E.FiniteMDP(P=[], R=means, features=[rows], start=np.full(n, 1 / n), caps=[1.0])


def needle(seed: int, n: int, p: float) -> E.FiniteMDP:
    """Return n arms, one of which pays 1 with probability p, the others never."""
    means = np.zeros((1, n))
    means[0, np.random.default_rng([41, seed]).integers(n)] = p
    return E.FiniteMDP(P=[], R=[means], features=[np.ones((1, 1))], caps=[1.0])


SHIPPED: dict[str, Callable[[int], Any]] = {
    "lock-5": lambda s: E.combination_lock(5, 4, rng=s),
    "lock-20": lambda s: E.combination_lock(20, 4, rng=s),
    "noisy-lock": lambda s: E.combination_lock(10, 4, rng=s, p_success=0.9),
    "rare-lock": lambda s: E.combination_lock(10, 4, rng=s, final=0.2),
    "decoy-20": lambda s: E.decoy_lock(20),
    "sea-10": lambda s: E.deep_sea(10, rng=s),
    "sea-20": lambda s: E.deep_sea(20, rng=s),
    "sea-30": lambda s: E.deep_sea(30, rng=s),
    "stochastic-sea-10": lambda s: E.deep_sea(10, rng=s, stochastic=True),
    "chain-10": lambda s: E.chain(10, rng=s),
    "chain-20": lambda s: E.chain(20, rng=s),
    "linear-q": lambda s: E.linear_q(rng=s),
    "linear-mdp": lambda s: E.linear_mdp(rng=s),
    "river-swim": lambda s: E.river_swim(6, 20),
    "coins-5": lambda s: E.lock_bernoulli(5, 0.1, rng=s, observation="coins"),
    "cliff": lambda s: E.make("gym:CliffWalking-v1", horizon=20),
    "frozen-lake": lambda s: E.make("gym:FrozenLake-v1", horizon=20),
}
ATTACKS: dict[str, Callable[[int], Any]] = {
    "bait-.1": lambda s: bait(s, 0.1, 0.001),
    "bait-.2": lambda s: bait(s, 0.2, 0.1),
    "bait-.3": lambda s: bait(s, 0.3, 0.1),
    "deep-coin-.2": lambda s: deep_coin(s, 0.2, 0.1),
    "short-.09": lambda s: short(s, [0.09, 0]),
    "short-.001": lambda s: short(s, [0.001, 0]),
    "short-1e-5": lambda s: short(s, [1e-5, 0]),
    "short-1e-6": lambda s: short(s, [1e-6, 0]),
    "short-1e-7": lambda s: short(s, [1e-7, 0]),
    "rotated-angle-1e-5": lambda s: rotated(s, lambda t: short(t, [np.sin(1e-5), np.cos(1e-5)])),
    "rooms-5": lambda s: rooms(s, 5, 0.06, 0.2),
    "rooms-20": lambda s: rooms(s, 20, 0.02, 0.3),
    "corridor-60": lambda s: corridor(s, 60, 0.98, 0.15),
    "contexts-8": lambda s: contexts(s, 8, 3, 0.3),
    "angle-.02": lambda s: short(s, [np.sin(0.02), np.cos(0.02)]),
    "amplified-2": lambda s: amplified(s, 2, 0.1, 0.32),
    "amplified-3": lambda s: amplified(s, 3, 0.1, 0.42),
    "arms-10": lambda s: arms(s, 10, 0.1),
    "pooled-.01": lambda s: pooled(s, 0.01),
    "pooled-.04": lambda s: pooled(s, 0.04),
    "pooled-.05": lambda s: pooled(s, 0.05),
    "pooled-.1": lambda s: pooled(s, 0.1),
    "pooled-.2": lambda s: pooled(s, 0.2),
}
# Written after the algorithm was finished.
HELD_OUT: dict[str, Callable[[int], Any]] = {
    "tabular": lambda s: random_tabular(s, 5, 3, 6, 0.3),
    "tabular-sparse": lambda s: random_tabular(s, 8, 2, 5, 0.05),
    "tree": lambda s: tree(s, 4, 3, False),
    "noisy-tree": lambda s: tree(s, 3, 3, True),
    "rotated-lock": lambda s: rotated(s, lambda t: E.combination_lock(12, 3, rng=t, p_success=0.95)),
    "rotated-sea": lambda s: rotated(s, lambda t: E.deep_sea(8, rng=t)),
    "two-doors-.3": lambda s: two_doors(s, 0.3, 1.0),
    "two-doors-.5": lambda s: two_doors(s, 0.5, 0.6),
    "bait-.25": lambda s: bait(s, 0.25, 0.12, horizon=14, n_actions=3),
    "amplified-4": lambda s: amplified(s, 4, 0.06, 0.32),
    "lock-K-12": lambda s: E.combination_lock(8, 12, rng=s),
    "linear-q-noisy": lambda s: E.linear_q(horizon=8, rng=s),
    "drip-.02": lambda s: drip(s, 0.02, 0.15),
    "slippery-.05-.7": lambda s: slippery(s, 0.05, 0.7),
    "slippery-.05-.5": lambda s: slippery(s, 0.05, 0.5),
    "cue": cue,
    "exits": exits,
    "hidden-.3": lambda s: hidden(s, 0.3, 1e-3),
    "mixed-lock": lambda s: mixed(s, lambda t: E.combination_lock(8, 3, rng=t, p_success=0.95), 100),
    "mixed-tabular": lambda s: mixed(s, lambda t: random_tabular(t, 5, 3, 5, 0.3), 1000),
    "circle": circle,
    "needle-40": lambda s: needle(s, 40, 0.15),
}
GROUPS = {"shipped": SHIPPED, "attacks": ATTACKS, "held-out": HELD_OUT}


def wilson(k: int, n: int) -> tuple[float, float]:
    """Return the 95 % Wilson interval of k among n."""
    z = 1.96
    centre, half = (k + z * z / 2) / (n + z * z), z * np.sqrt(k * (n - k) / n + z * z / 4) / (n + z * z)
    return max(0.0, centre - half), min(1.0, centre + half)


def measure(make: Callable[[int], Any], seeds: int, *, strict: bool, first: int) -> str:
    """Run all seeds of a family; return a row of the table."""
    episodes, losses, seconds, warned, unfinished = [], [], [], 0, 0
    for seed in range(first, first + seeds):
        env = make(seed)
        began = time.perf_counter()
        result = DMQ(env, epsilon=EPSILON, delta=DELTA, strict=strict, rng=seed, max_trajectories=10**6).learn()
        seconds.append(time.perf_counter() - began)
        worth = appraise(env, result.policy, 20_000, Stream(99))
        losses.append(worth["optimal_value"] - worth["value"] - 3 * (worth["value_standard_error"] or 0.0))
        episodes.append(result.n_trajectories)
        warned += bool(result.warnings)
        unfinished += result.status != "finished"
    bad = sum(loss > EPSILON + 1e-9 for loss in losses)
    low, high = wilson(bad, seeds)
    return (
        f"{np.median(episodes):,.0f} ({min(episodes):,}..{max(episodes):,}) | {bad}/{seeds} [{low:.3f}, {high:.3f}] | "
        f"{max(0.0, *losses):.3f} | {unfinished} | {warned} | {np.median(seconds):.3f}"
    )


def main() -> None:
    """Print the tables that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="families, or groups: shipped, attacks, held-out; default: all")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--strict", action="store_true", help="strict mode only")
    mode.add_argument("--quick", action="store_true", help="quick mode only")
    options = parser.parse_args()
    families = {name: make for group in GROUPS.values() for name, make in group.items()}
    wanted = [name for given in options.names or GROUPS for name in GROUPS.get(given, [given])]
    print("family | mode | median episodes (range) | loss > epsilon | largest loss | not finished | warned | seconds")
    print("---|---|---|---|---|---|---|---")
    for name in wanted:
        for strict in [True, False] if not (options.strict or options.quick) else [options.strict]:
            row = measure(families[name], options.seeds, strict=strict, first=options.first)
            print(f"{name} | {'strict' if strict else 'quick'} | {row}", flush=True)


if __name__ == "__main__":
    main()
