"""The families of environments that bench/adaptive.py measures: makers, and the groups they form.

Every family is a function of a seed. "shipped" are the environments of the package, "attacks" were built to break a run
that stops by itself, "held-out" and "after" were written after the algorithm was finished and was frozen, "later"
after the repair that two families of "after" led to, "pressed" to break version 0.2.0, which had that repair, and
"frozen" to break the version after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from dmq_fast import environments as E


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


def locks(secret: np.ndarray, n_actions: int, n_states: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return P and R of locks side by side that pay 1: state i goes on with action secret[h, i], else to the last."""
    horizon, n = secret.shape
    P, R = [], [np.zeros((n_states, n_actions)) for _ in range(horizon)]
    for h in range(horizon - 1):
        p = np.zeros((n_states, n_actions, n_states))
        p[:, :, -1] = 1
        p[np.arange(n), secret[h]] = np.eye(n_states)[:n]
        P.append(p)
    R[-1][np.arange(n), secret[-1]] = 1
    return P, R


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
            return decoy * float(first[3] == a)
        if h == 1 and s in plane and a == b:
            return 0.1 + (1 + kappa) * p * (s == "x")
        return p * (h == horizon - 1 and s == "lock w" and a == secrets[0, h])

    return tables(horizon, n_actions, features, go, pay, caps=[0.0] * (horizon - 1) + [0.9])


def arms(seed: int, n: int, best: float, rest: float, key: int = 9) -> E.FiniteMDP:
    """Return n Bernoulli arms, one of mean `best`, the others of mean `rest`."""
    means = np.full((1, n), rest)
    means[0, np.random.default_rng([key, seed]).integers(n)] = best
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


def rooms(
    seed: int, n: int, mass: float, decoy: float, depth: int = 1, n_actions: int = 3, key: int = 31
) -> E.FiniteMDP:
    """Return a gamble that leads to n rooms with a small chance each, locks worth 1; leaving pays `decoy`."""
    rng = np.random.default_rng([key, seed])
    secret, gamble = rng.integers(n_actions, size=(depth, n)), int(rng.integers(n_actions))
    P, R = locks(secret, n_actions, n + 1)
    first = np.zeros((1, n_actions, n + 1))
    first[0, :, n], first[0, gamble] = 1, [mass] * n + [1 - n * mass]
    leave = decoy * (np.arange(n_actions) != gamble)
    return E.FiniteMDP(P=[first, *P], R=[leave[None], *R], features=[np.eye(n + 1)[:1]] + [np.eye(n + 1)] * depth)


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


# ---- Written after the code of the algorithm was frozen


def stationary(
    horizon: int, P: Any, R: Any, *, last: Any = None, start: Any = None, features: Any = None, **options: Any
) -> E.FiniteMDP:
    """Return an MDP with the same states at every level: one-hot unless `features` are given; `last` pays at the end.

    Rewards R may depend on the next state; then there is no `last`, and the last transition counts.
    """
    P, R = np.asarray(P, dtype=float), np.asarray(R, dtype=float)
    rows = np.eye(len(P)) if features is None else np.asarray(features, dtype=float)
    rewards = [R] * (horizon if last is None else horizon - 1) + ([] if last is None else [np.asarray(last)])
    steps = horizon - (R.ndim == 2)
    return E.FiniteMDP(P=[P] * steps, R=rewards, features=[rows] * horizon, start=start, **options)


def transitions(names: Sequence[Any], n_actions: int, go: Callable[[Any, int], Mapping[Any, float]]) -> np.ndarray:
    """Return the transition array of a rule that gives the chances of the next states."""
    where = {name: i for i, name in enumerate(names)}
    P = np.zeros((len(names), n_actions, len(names)))
    for s in names:
        for a in range(n_actions):
            for t, p in go(s, a).items():
                P[where[s], a, where[t]] += p
    return P


def mix(*parts: tuple[float, Any]) -> dict[Any, float]:
    """Return the distribution that has these chances of these outcomes, equal ones added up."""
    chances: dict[Any, float] = {}
    for p, outcome in parts:
        chances[outcome] = chances.get(outcome, 0.0) + p
    return chances


MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))


def grid(
    shape: tuple[int, int],
    horizon: int,
    ends: Mapping[tuple[int, int], float],
    move: Callable[[tuple[int, int], int], list[tuple[float, tuple[int, int]]]],
    first: tuple[int, int] = (0, 0),
) -> E.FiniteMDP:
    """Return a grid whose `ends` pay their amount and are left for good; `move` gives chances of displacements."""
    cells = [(i, j) for i in range(shape[0]) for j in range(shape[1])]
    names: list[Any] = [*cells, "gone"]

    def go(s: Any, a: int) -> dict[Any, float]:
        if s == "gone" or s in ends:
            return {"gone": 1.0}
        parts = []
        for p, (di, dj) in move(s, a):
            i, j = min(max(s[0] + di, 0), shape[0] - 1), min(max(s[1] + dj, 0), shape[1] - 1)
            parts.append((p, (i, j)))
        return mix(*parts)

    R = np.array([[0.0 if s == "gone" else ends.get(s, 0.0)] * 4 for s in names])
    return stationary(horizon, transitions(names, 4, go), R, start=[float(s == first) for s in names])


def wind(seed: int, horizon: int = 9) -> E.FiniteMDP:
    """Return a grid of 4 rows and 5 columns where wind lifts by one row, at random, with a near and a far goal."""
    rng = np.random.default_rng([55, seed])
    lift = rng.choice([0.0, 0.1, 0.4], size=5)
    ends = {(int(rng.integers(4)), 2): 0.4, (int(rng.integers(4)), 4): 1.0}

    def move(s: tuple[int, int], a: int) -> list[tuple[float, tuple[int, int]]]:
        (di, dj), p = MOVES[a], lift[s[1]]
        return [(p, (di - 1, dj)), (1 - p, (di, dj))] if p else [(1.0, (di, dj))]

    return grid((4, 5), horizon, ends, move, (2, 0))


def pits(seed: int, horizon: int = 10) -> E.FiniteMDP:
    """Return a slippery grid of 4 by 4 with three pits, a near goal worth .3 and a far one worth 1."""
    rng = np.random.default_rng([56, seed])
    cells = [(i, j) for i in range(4) for j in range(4) if i + j > 1 and (i, j) != (3, 3)]

    def move(s: tuple[int, int], a: int) -> list[tuple[float, tuple[int, int]]]:
        return [(0.8, MOVES[a]), (0.1, MOVES[(a + 1) % 4]), (0.1, MOVES[(a + 3) % 4])]

    while True:
        *holes, near = (cells[i] for i in rng.choice(len(cells), size=4, replace=False))
        env = grid((4, 4), horizon, dict.fromkeys(holes, 0.0) | {near: 0.3, (3, 3): 1.0}, move)
        if env.optimal_value > 0.2:
            return env


def key(seed: int, horizon: int = 14) -> E.FiniteMDP:
    """Return a maze of 3 by 4 whose second half opens with a key: treasure there, a small prize before the door."""
    rng = np.random.default_rng([57, seed])
    wall, door = 2, int(rng.integers(3))
    left = [(i, j) for i in range(3) for j in range(2) if (i, j) != (1, 0)]
    at, prize = (left[i] for i in rng.choice(len(left), size=2, replace=False))
    treasure = (int(rng.integers(3)), 3)
    names = [((i, j), k) for i in range(3) for j in range(4) for k in (0, 1)] + ["gone"]

    def go(s: Any, a: int) -> dict[Any, float]:
        if s == "gone" or s[0] in (prize, treasure):
            return {"gone": 1.0}
        (i, j), k = s
        to = (min(max(i + MOVES[a][0], 0), 2), min(max(j + MOVES[a][1], 0), 3))
        if to[1] == wall and not (k and to[0] == door):
            to = (i, j)
        return mix((0.95, (to, int(k or to == at))), (0.05, s))

    pay = {prize: 0.3, treasure: 1.0}
    R = np.array([[0.0 if s == "gone" else pay.get(s[0], 0.0)] * 4 for s in names])
    return stationary(horizon, transitions(names, 4, go), R, start=[float(s == ((1, 0), 0)) for s in names])


def latent(seed: int, d: int, n_states: int, n_actions: int, horizon: int) -> E.FiniteMDP:
    """Return a linear MDP of d sparse latent factors, with Bernoulli rewards."""
    rng = np.random.default_rng([60, seed])
    phi = rng.dirichlet(np.full(d, 0.3), size=(n_states, n_actions))
    P = [phi @ rng.dirichlet(np.full(n_states, 0.1), size=d) for _ in range(horizon - 1)]
    R = [phi @ rng.beta(0.3, 0.6, size=d) / horizon for _ in range(horizon)]
    rows = phi.reshape(n_states, -1) / np.sqrt(n_actions)
    return E.FiniteMDP(P=P, R=R, features=[rows] * horizon, caps=[1 / horizon] * horizon)


def rich(seed: int, n: int = 3, rows: int = 12, horizon: int = 6) -> E.FiniteMDP:
    """Return n latent states, each with many rows: a rotated one-hot code of it beside coordinates of noise."""
    rng = np.random.default_rng([61, seed])
    inner = random_tabular(seed + 10_000, n, 3, horizon, 0.5)
    emit = rng.dirichlet(np.ones(rows), size=n)
    code, turn = np.repeat(np.eye(n), rows, axis=0), np.linalg.qr(rng.normal(size=(n + 4, n + 4)))[0]
    features = [np.hstack([code, rng.uniform(-0.4, 0.4, size=(n * rows, 4))]) @ turn / 1.3 for _ in range(horizon)]
    P = [(np.asarray(p)[:, :, :, None] * emit).reshape(n, 3, -1).repeat(rows, axis=0) for p in inner.P]
    R = [np.asarray(r).repeat(rows, axis=0) for r in inner.R]
    start = (np.asarray(inner.start)[:, None] * emit).ravel()
    return E.FiniteMDP(P=P, R=R, features=features, start=start, caps=inner.caps)


def rare_starts(seed: int, chances: Sequence[float], horizon: int = 4, n_actions: int = 4) -> E.FiniteMDP:
    """Return lanes in which one starts with these chances, each a lock worth 1; its first exit pays .4."""
    rng, n = np.random.default_rng([64, seed]), len(chances)
    P, R = locks(rng.integers(n_actions - 1, size=(horizon, n)), n_actions, n + 1)
    R[0][:n, n_actions - 1] = 0.4
    return E.FiniteMDP(P=P, R=R, features=[np.eye(n + 1)] * horizon, start=[*chances, 0.0])


def sure_or(seed: int, p: float, sure: float) -> E.FiniteMDP:
    """Return two actions: one pays 1 with probability p, the other `sure` (for sure)."""
    risky = int(np.random.default_rng([65, seed]).integers(2))
    P = np.zeros((1, 2, 2))
    P[0, risky, 0] = P[0, 1 - risky, 1] = 1
    R = [np.zeros((1, 2)), np.array([[p, p], [sure, sure]])]
    R[0][0, 1 - risky], R[1][1] = sure, 0
    return E.FiniteMDP(P=[P], R=R, features=[np.eye(2)[:1], np.eye(2)], caps=[0.0, 1.0])


def recoded(seed: int, make: Callable[[int], E.FiniteMDP], code: Callable[[np.random.Generator, int], Any]) -> Any:
    """Return an environment whose features were multiplied by a matrix of full rank, by level."""
    env, rng = make(seed), np.random.default_rng([66, seed])
    features = [np.asarray(rows) @ code(rng, env.dimension) for rows in env.features]
    return E.FiniteMDP(P=env.P, R=env.R, features=features, start=env.start, caps=env.caps)


def uneven(rng: np.random.Generator, d: int) -> np.ndarray:
    """Return a diagonal matrix with entries from 1 to 1e-3, in random order."""
    return np.diag(rng.permutation(np.geomspace(1, 1e-3, d)))


def copies(rng: np.random.Generator, d: int) -> np.ndarray:
    """Return a matrix that repeats all features, and adds their differences and a zero."""
    return np.hstack([np.eye(d), np.eye(d), np.eye(d) - np.roll(np.eye(d), 1, axis=1), np.zeros((d, 1))]) / 2


def wide(rng: np.random.Generator, d: int) -> np.ndarray:
    """Return a random matrix with three times as many columns as rows."""
    matrix = rng.normal(size=(d, 3 * d))
    return np.asarray(matrix / np.linalg.norm(matrix, 2))


def signs(seed: int, horizon: int = 5) -> E.FiniteMDP:
    """Return the corners of a cube, rows (1, +-1, +-1, +-1)/2: one coordinate, drawn at random, says what happens."""
    rng = np.random.default_rng([67, seed])
    corners = np.array([[i, j, k] for i in (0, 1) for j in (0, 1) for k in (0, 1)])
    weights = np.stack([corners, 1 - corners], axis=2).reshape(8, 6) / 3
    P = [np.stack([weights @ rng.dirichlet(np.full(8, 0.2), size=6) for _ in range(3)], 1) for _ in range(horizon - 1)]
    R = [weights @ rng.beta(0.3, 0.5, size=(6, 3)) / horizon for _ in range(horizon)]
    rows = np.hstack([np.ones((8, 1)), 2 * corners - 1]) / 2
    return E.FiniteMDP(P=P, R=R, features=[rows] * horizon, start=np.full(8, 1 / 8), caps=[1 / horizon] * horizon)


def parabola(seed: int, n: int = 15) -> E.FiniteMDP:
    """Return n points of a line as start states, with features (1, x, x^2) and three Bernoulli actions."""
    rng, x = np.random.default_rng([68, seed]), np.linspace(-1, 1, n)
    slope, bend = rng.uniform(-0.24, 0.24, size=(2, 3))
    means = 0.5 + x[:, None] * slope + (2 * x[:, None] ** 2 - 1) * bend
    rows = np.stack([np.ones(n), x, x**2], axis=1) / np.sqrt(3)
    return E.FiniteMDP(P=[], R=[means], features=[rows], start=np.full(n, 1 / n), caps=[1.0])


def flips(seed: int, lanes: int, horizon: int = 9, n_actions: int = 3) -> E.FiniteMDP:
    """Return a lock worth .9 whose lane is drawn again at every third level; each lane has its own right actions."""
    secret = np.random.default_rng([70, seed]).integers(n_actions, size=(horizon, lanes))
    P, R = locks(secret, n_actions, lanes + 1)
    for h in range(1, horizon - 1, 3):
        P[h][np.arange(lanes), secret[h]] = [1 / lanes] * lanes + [0]
    R[-1] *= 0.9
    R[0][0] = 0.2 * (np.arange(n_actions) == (secret[0, 0] + 1) % n_actions)
    return E.FiniteMDP(P=P, R=R, features=[np.eye(lanes + 1)] * horizon)


def disaster(seed: int, now: float, later: float, p: float, safe: float, horizon: int = 8) -> E.FiniteMDP:
    """Return a tempting way that pays `now`, and `later` unless the last step but one fails; the other pays `safe`."""
    tempting = int(np.random.default_rng([71, seed]).integers(2))
    P = [np.eye(3)[:, None].repeat(2, axis=1) for _ in range(horizon - 1)]
    P[0] = np.zeros((3, 2, 3))
    P[0][:, tempting, 0] = P[0][:, 1 - tempting, 1] = 1
    P[-1][0] = [1 - p, 0, p]
    R = [np.zeros((3, 2)) for _ in range(horizon)]
    R[0][0, tempting], R[-1][0], R[-1][1] = now, later, safe
    return E.FiniteMDP(P=P, R=R, features=[np.eye(3)] * horizon, start=[1, 0, 0])


def two_locks(seed: int, p: float, q: float, horizon: int = 7, n_actions: int = 3) -> E.FiniteMDP:
    """Return two locks that open for sure; the one pays 1 with probability p, the other with probability q."""
    rng = np.random.default_rng([72, seed])
    secret, doors = rng.integers(n_actions, size=(2, horizon)), rng.permutation(n_actions)

    def go(h: int, s: str, a: int) -> dict[str, float]:
        if s == "start":
            return {"one" if a == doors[0] else "two" if a == doors[1] else "dead": 1.0}
        return {s if s != "dead" and a == secret[int(s == "two"), h] else "dead": 1.0}

    return tables(
        horizon,
        n_actions,
        {"start": [1, 0, 0], "one": [1, 0, 0], "two": [0, 1, 0], "dead": [0, 0, 1]},
        go,
        lambda h, s, a: {"one": p, "two": q}.get(s, 0.0) * (h == horizon - 1 and a == secret[int(s == "two"), h]),
        caps=[0.0] * (horizon - 1) + [1.0],
    )


def two_surprises(seed: int, p: float, q: float, sure: float) -> E.FiniteMDP:
    """Return a door that opens with probability p on a second one, which opens with probability q on a room worth 1.

    No single outcome that was not seen makes up for the other: a run that looks for one surprise at a time may stop.
    """
    rng = np.random.default_rng([73, seed])
    first, second = int(rng.integers(3)), int(rng.integers(3))

    def go(h: int, s: str, a: int) -> dict[str, float]:
        if s == "start" and a == first:
            return {"porch": p, "out": 1 - p}
        return {"room": q, "out": 1 - q} if h == 1 and s == "porch" and a == second else {"out": 1.0}

    return tables(
        3,
        3,
        {"start": [1, 0, 0], "porch": [1, 0, 0], "room": [0, 1, 0], "out": [0, 0, 1]},
        go,
        lambda h, s, a: sure * (a != first) if h == 0 else float(h == 2 and s == "room"),
    )


def leaning(seed: int, angle: float, horizon: int = 4) -> E.FiniteMDP:
    """Return a lock whose good state has a feature at this angle to the dead one, and pays 1 with probability .6."""
    secret = np.random.default_rng([78, seed]).integers(3, size=horizon)
    return tables(
        horizon,
        3,
        {"start": [1, 0], "good": [np.sin(angle), np.cos(angle)], "dead": [0, 1]},
        lambda h, s, a: {"good" if s != "dead" and a == secret[h] else "dead": 1.0},
        lambda h, s, a: (
            0.4 * (a != secret[0]) if h == 0 else 0.6 * (h == horizon - 1 and s == "good" and a == secret[h])
        ),
        caps=[0.0] * (horizon - 1) + [1.0],
    )


def rescue(seed: int, falls: Mapping[int, float], horizon: int = 9, n_actions: int = 4) -> E.FiniteMDP:
    """Return a path worth .9 from which one falls with these chances, by level; one action saves who fell."""
    rng = np.random.default_rng([79, seed])
    secret = rng.integers(n_actions, size=horizon)

    def go(h: int, s: str, a: int) -> dict[str, float]:
        if s in ("start", "path"):
            q = falls.get(h, 0.0)
            return {"fallen": q, "path": 1 - q} if q else {"path": 1.0}
        return {"path" if s == "fallen" and a == secret[h] else "lost": 1.0}

    return tables(
        horizon,
        n_actions,
        {"start": [1, 0, 0], "path": [1, 0, 0], "fallen": [0, 1, 0], "lost": [0, 0, 1]},
        go,
        lambda h, s, a: 0.9 * (h == horizon - 1 and s == "path"),
    )


# ---- Written after the repair that AFTER led to, when the algorithm was frozen again


def higher_lower(seed: int, n: int = 5) -> E.FiniteMDP:
    """Return a deck of n cards, shown one by one: say higher or lower for .25 where that is right, or pass for .1."""
    rng = np.random.default_rng([81, seed])
    cards, order = rng.integers(1, 7, size=n), rng.permutation(3)
    shown = [[(c, seen) for c in range(n) for seen in combinations(set(range(n)) - {c}, h)] for h in range(n)]
    P, R = [], []
    for h in range(n - 1):
        where = {state: i for i, state in enumerate(shown[h + 1])}
        p, r = np.zeros((2, len(shown[h]), 3, len(where)))
        for i, (card, seen) in enumerate(shown[h]):
            rest = set(range(n)) - {card, *seen}
            for new in rest:
                j = where[new, tuple(sorted({card, *seen}))]
                p[i, :, j] = 1 / len(rest)
                right = (cards[new] > cards[card], cards[new] < cards[card], 0.4)
                r[i, order, j] = np.array(right, dtype=float) / (n - 1)
        P.append(p)
        R.append(r)
    width = max(len(states) for states in shown)
    return E.FiniteMDP(P=P, R=R, features=[np.eye(width)[: len(s)] for s in shown[:-1]], start=np.full(n, 1 / n))


def maze(seed: int, horizon: int = 8) -> E.FiniteMDP:
    """Return a maze of 3 by 4 with random walls, an exit worth .35 and one worth 1: one starts in any other cell."""
    rng = np.random.default_rng([85, seed])
    cells = [(i, j) for i in range(3) for j in range(4)]
    while True:
        near, far = (cells[i] for i in rng.choice(len(cells), size=2, replace=False))
        open_ = {(s, a): rng.random() > 0.15 for s in cells for a in range(4)}
        turn = rng.permutation(4)

        def move(
            s: tuple[int, int], a: int, open_: Any = open_, turn: Any = turn
        ) -> list[tuple[float, tuple[int, int]]]:
            return [(1.0, MOVES[turn[a]] if open_[s, a] else (0, 0))]

        env = grid((3, 4), horizon, {near: 0.35, far: 1.0}, move)
        start = np.array([0.1 * (s not in (near, far)) for s in cells] + [0.0])
        env = E.FiniteMDP(P=env.P, R=env.R, features=env.features, start=start)
        if env.optimal_value > 0.5:
            return env


def trials(seed: int, hit: float = 0.75, horizon: int = 7, most: int = 4) -> E.FiniteMDP:
    """Return a doctor who tests, or treats one of two diseases: right for 1 less .05 a test made, tests err at random.

    States are the tests for the one less those for the other, so that rewards are random given the state.
    """
    rng = np.random.default_rng([87, seed])
    order, names = rng.permutation(3), [*range(-most, most + 1), "done"]
    odds = (hit / (1 - hit)) ** np.arange(-most, most + 1)
    belief = odds / (1 + odds)

    def go(s: Any, a: int) -> dict[Any, float]:
        if s == "done" or order[a] < 2:
            return {"done": 1.0}
        p = belief[s + most]
        up = p * hit + (1 - p) * (1 - hit)
        return mix((up, min(s + 1, most)), (1 - up, max(s - 1, -most)))

    P, R = transitions(names, 3, go), np.zeros((len(names), 3))
    R[:-1, np.flatnonzero(order == 0)[0]], R[:-1, np.flatnonzero(order == 1)[0]] = belief, 1 - belief
    start = np.zeros(len(names))
    start[most - 1 : most + 2] = rng.dirichlet(np.full(3, 2.0))
    caps = 1 - 0.05 * np.arange(horizon)
    features = [np.eye(len(names))] * horizon
    return E.FiniteMDP(P=[P] * (horizon - 1), R=[R * cap for cap in caps], features=features, start=start, caps=caps)


def delays(seed: int, stages: int = 5) -> E.FiniteMDP:
    """Return a journey of five stages with three roads each, delayed by 0 to 3 at random: in time it pays .95."""
    rng = np.random.default_rng([88, seed])
    roads, n = rng.dirichlet(np.full(4, 0.6), size=(stages, 3)), 3 * stages + 1
    P = np.zeros((stages, n, 3, n))
    for t in range(n):
        for k in range(4):
            P[:, t, :, min(t + k, n - 1)] += roads[:, :, k]
    for deadline in range(n):
        R = [np.zeros((n, 3))] * stages + [np.repeat(0.95 * (np.arange(n) <= deadline)[:, None], 3, axis=1)]
        env = E.FiniteMDP(P=list(P), R=R, features=[np.eye(n)] * (stages + 1))
        if env.optimal_value > 0.4:
            break
    return env


def late_forks(seed: int, chances: Sequence[float], horizon: int = 10, n_actions: int = 4) -> E.FiniteMDP:
    """Return a lock that forks at random, late: each branch pays .35 at once, or 1 behind three right actions more."""
    rng, n, fork = np.random.default_rng([91, seed]), len(chances), horizon - 4
    secret = rng.integers(n_actions - 1, size=(horizon, n))
    P, R = locks(secret, n_actions, n + 1)
    P[fork][np.arange(n), secret[fork]] = [*chances, 0]
    R[0][0, n_actions - 1], R[fork + 1][:n, n_actions - 1] = 0.25, 0.35
    return E.FiniteMDP(P=P, R=R, features=[np.eye(n + 1)] * horizon)


def bent(seed: int, n: int = 10, n_actions: int = 3, horizon: int = 6) -> E.FiniteMDP:
    """Return Q* linear in the correlated features (1, x, x + y/10), where no other policy's values are linear.

    Transitions are arbitrary, and Bernoulli rewards of 1/H make up the difference.
    """
    rng, w = np.random.default_rng([92, seed]), 1 / (4 * horizon)
    P, R, features, following = [], [], [], np.zeros(n)
    for h in reversed(range(horizon)):
        x, y = rng.uniform(-1, 1, size=(2, n))
        slopes = rng.dirichlet([1, 1], size=n_actions) * rng.choice([-1, 1], size=(n_actions, 2))
        Q = 2 * w * (horizon - h) + w * np.stack([x, y], axis=1) @ slopes.T
        p = rng.dirichlet(np.full(n, 0.15), size=(n, n_actions))
        R.append(np.clip(Q - p @ following, 0, 4 * w))
        P.append(p)
        features.append(np.stack([np.ones(n), x, x + y / 10], axis=1) / 1.8)
        following = Q.max(axis=1)
    start = rng.dirichlet(np.ones(n))
    return E.FiniteMDP(P=P[:0:-1], R=R[::-1], features=features[::-1], start=start, caps=[1 / horizon] * horizon)


def close_calls(seed: int, n: int = 5, horizon: int = 4) -> E.FiniteMDP:
    """Return n states, drawn anew at every level, with two Bernoulli actions of mean .5 and up to .25 more."""
    rng = np.random.default_rng([94, seed])
    R = [np.full((n, 2), 0.5) for _ in range(horizon)]
    for r in R:
        r[np.arange(n), rng.integers(2, size=n)] += rng.uniform(0, 0.25, size=n)
    P = [np.full((n, 2, n), 1 / n)] * (horizon - 1)
    return E.FiniteMDP(
        P=P,
        R=[r / horizon for r in R],
        features=[np.eye(n)] * horizon,
        start=np.full(n, 1 / n),
        caps=[1 / horizon] * horizon,
    )


# ---- Written to break version 0.2.0, before any of them was measured


def sprinkle(seed: int, horizon: int, p: float, base: float = 0.3) -> E.FiniteMDP:
    """Return a path whose end pays `base`: one of two actions a level pays 1 and ends it with a small chance p."""
    right = np.random.default_rng([301, seed]).integers(2, size=horizon)

    def go(h: int, s: str, a: int) -> dict[str, float]:
        if s in ("start", "on"):
            return {"on": 1 - p, "paid": p} if a == right[h] else {"on": 1.0}
        return {"gone": 1.0}

    return tables(
        horizon,
        2,
        {"start": [1, 0, 0], "on": [1, 0, 0], "paid": [0, 1, 0], "gone": [0, 0, 1]},
        go,
        lambda h, s, a: 1.0 if s == "paid" else base * (h == horizon - 1 and s == "on"),
    )


def gate_lock(seed: int, q: float, sure: float, depth: int = 12, n_actions: int = 4) -> E.FiniteMDP:
    """Return a door that opens with chance q on a lock of this depth worth 1; other actions pay `sure` at once."""
    rng = np.random.default_rng([302, seed])
    secret, door = rng.integers(n_actions, size=depth + 1), int(rng.integers(n_actions))

    def go(h: int, s: str, a: int) -> dict[str, float]:
        if h == 0:
            return {"lock": q, "out": 1 - q} if a == door else {"out": 1.0}
        return {"lock" if s == "lock" and a == secret[h] else "out": 1.0}

    return tables(
        depth + 1,
        n_actions,
        {"start": [1, 0], "lock": [1, 0], "out": [0, 1]},
        go,
        lambda h, s, a: sure * (a != door) if h == 0 else float(h == depth and s == "lock" and a == secret[h]),
    )


def rare_lane(seed: int, chances: Sequence[float], depth: int = 8, n_actions: int = 4) -> E.FiniteMDP:
    """Return starts of these chances, each a lock worth 1, and one that pays .6 for any action."""
    n = len(chances)
    P, R = locks(np.random.default_rng([303, seed]).integers(n_actions, size=(depth, n)), n_actions, n + 2)
    R[0][n] = 0.6
    return E.FiniteMDP(P=P, R=R, features=[np.eye(n + 2)] * depth, start=[*chances, 1 - sum(chances), 0])


def two_stage(seed: int, first: float, second: float, keep: float, sure: float) -> E.FiniteMDP:
    """Return a gamble on a second one that wins 1, before which one may take `keep`; not to play pays `sure`."""
    rng = np.random.default_rng([304, seed])
    play, risk = int(rng.integers(2)), int(rng.integers(2))

    def go(h: int, s: str, a: int) -> dict[str, float]:
        if h == 0 and a == play:
            return {"stage": first, "out": 1 - first}
        return {"win": second, "out": 1 - second} if s == "stage" and a == risk else {"out": 1.0}

    def pay(h: int, s: str, a: int) -> float:
        if h == 0:
            return sure * (a != play)
        return keep * (a != risk) if s == "stage" else float(s == "win" and h == 2)

    return tables(3, 2, {"start": [1, 0, 0], "stage": [1, 0, 0], "win": [0, 1, 0], "out": [0, 0, 1]}, go, pay)


def one_coin(seed: int, horizon: int = 20) -> E.FiniteMDP:
    """Return a coin, tossed at the start, that decides all rewards of an episode: two actions, chances .56 and .5."""
    better = int(np.random.default_rng([306, seed]).integers(2))
    return tables(
        horizon,
        2,
        {"start": [1, 0, 0], "up": [0, 1, 0], "down": [0, 0, 1]},
        lambda h, s, a: mix((p := 0.56 if a == better else 0.5, "up"), (1 - p, "down")) if h == 0 else {s: 1.0},
        lambda h, s, a: float(s == "up") / horizon,
    )


def heavy(seed: int, n: int = 5) -> E.FiniteMDP:
    """Return n arms whose rewards are mostly crumbs and rarely 1; one of them is better by .07."""
    best, values = int(np.random.default_rng([308, seed]).integers(n)), np.array([0.0, 0.02, 0.1, 0.4, 1.0])
    P = np.tile([0.40, 0.40, 0.12, 0.05, 0.03], (1, n, 1))
    P[0, best] += [-0.07, 0, 0, 0, 0.07]
    R = [np.zeros((1, n)), np.repeat(values[:, None], n, axis=1)]
    return E.FiniteMDP(P=[P], R=R, features=[np.eye(5)[:1], np.eye(5)])


def rare_needle(seed: int, mass: float, n_actions: int = 12) -> E.FiniteMDP:
    """Return a start of this chance where one of twelve actions pays 1, and one that pays .5 always."""
    right = int(np.random.default_rng([313, seed]).integers(n_actions))
    means = np.stack([np.arange(n_actions) == right, np.full(n_actions, 0.5)])
    return E.FiniteMDP(P=[], R=[means], features=[np.eye(2)], start=[mass, 1 - mass])


def weather(seed: int, horizon: int = 30, stay: float = 0.95) -> E.FiniteMDP:
    """Return weather that persists and decides what two crops pay: noise is correlated along an episode."""
    better = int(np.random.default_rng([305, seed]).integers(2))

    def go(s: Any, a: int) -> dict[Any, float]:
        if s == "none":
            return mix((0.5, (a, 0)), (0.5, (a, 1)))
        good = 0.66 if s[0] == better else 0.34
        return mix((stay, s), ((1 - stay) * good, (s[0], 1)), ((1 - stay) * (1 - good), (s[0], 0)))

    names = ["none", (0, 0), (0, 1), (1, 0), (1, 1)]
    R = np.outer([0, 0, 1, 0, 1], [1, 1]) / horizon
    return stationary(horizon, transitions(names, 2, go), R, start=np.eye(5)[0])


def costs(seed: int, horizon: int = 15, n: int = 7) -> E.FiniteMDP:
    """Return a walk to a goal on a slippery line where every step costs: all returns lie between .55 and 1."""
    orders = np.random.default_rng([316, seed]).permutation(3)

    def go(s: int, a: int) -> dict[int, float]:
        return {s: 1.0} if s == n - 1 else mix((0.8, min(max(s + int(orders[a]) - 1, 0), n - 1)), (0.2, s))

    R = np.repeat([[0.55]] * (n - 1) + [[1.0]], 3, axis=1) / horizon
    return stationary(horizon, transitions(range(n), 3, go), R, start=np.eye(n)[0])


def powers(rng: np.random.Generator, d: int) -> np.ndarray:
    """Return the powers 1, x, ..., x^(d-1) of d points in [0, 1]: full rank, but barely."""
    return np.vander(np.linspace(0, 1, d), d, increasing=True) / np.sqrt(d)


def small_units(seed: int, horizon: int = 6, scale: float = 1e-3) -> E.FiniteMDP:
    """Return a lock worth .8 seen through (1, x, x^2), x in units that make it small: x^2 is no longer than 1e-6."""
    secret = np.random.default_rng([314, seed]).integers(3, size=horizon)
    rows = {name: np.array([1, x, x * x]) / 1.1 for name, x in {"good": scale, "dead": 0.0, "odd": -scale}.items()}

    def go(h: int, s: str, a: int) -> dict[str, float]:
        if s in ("start", "good") and a == secret[h]:
            return {"good": 1.0}
        return {"odd" if a == (secret[h] + 1) % 3 else "dead": 1.0}

    return tables(
        horizon,
        3,
        {"start": rows["dead"], **rows},
        go,
        lambda h, s, a: (
            0.3 * (a != secret[0]) if h == 0 else 0.8 * (h == horizon - 1 and s == "good" and a == secret[h])
        ),
    )


def alias(seed: int, mu: float, horizon: int = 6) -> E.FiniteMDP:
    """Return pairs of states with one feature, worth 2 mu more and less, at every level: outside the assumption."""
    right = np.random.default_rng([319, seed]).integers(2, size=horizon)
    return tables(
        horizon,
        2,
        {"start": [1], "better": [1], "worse": [1]},
        lambda h, s, a: {"better" if a != right[h] else "worse": 1.0},
        lambda h, s, a: 0.3 / horizon + 2 * mu * (s == "better") + 0.1 / horizon * (a == right[h]),
    )


def long_noise(seed: int, horizon: int = 200) -> E.FiniteMDP:
    """Return levels that pay 1/H with chance .56 or .44: only the sum of many small decisions matters."""
    right = np.random.default_rng([311, seed]).integers(2, size=(horizon, 1))
    R, ones = np.where(np.arange(2) == right, 0.56, 0.44)[:, None] / horizon, [np.ones((1, 1))] * horizon
    return E.FiniteMDP(P=[np.ones((1, 2, 1))] * (horizon - 1), R=list(R), features=ones, caps=[1 / horizon] * horizon)


def zipf(seed: int, n: int = 200) -> E.FiniteMDP:
    """Return contexts whose chances fall like 1/i; each has one right action of three, which pays 1."""
    R, chances = np.eye(3)[np.random.default_rng([320, seed]).integers(3, size=n)], 1 / np.arange(1, n + 1)
    return E.FiniteMDP(P=[], R=[R], features=[np.eye(n)], start=chances / chances.sum())


def traps(seed: int, horizon: int = 25, n: int = 9) -> E.FiniteMDP:
    """Return a line whose end pays 1; one of four actions a state jumps ahead, and into a trap with chance .15."""
    rng = np.random.default_rng([317, seed])
    kinds = [rng.permutation(4) for _ in range(n)]

    def go(s: Any, a: int) -> dict[Any, float]:
        if s in ("trap", n - 1):
            return {s: 1.0}
        if kinds[s][a] == 0:
            return mix((0.85, min(s + 3, n - 1)), (0.15, "trap"))
        return mix((0.5, s + 1), (0.5, s)) if kinds[s][a] == 1 else {max(s - 1, 0): 1.0}

    names = [*range(n), "trap"]
    last = np.outer(np.eye(n + 1)[n - 1], np.ones(4))
    return stationary(horizon, transitions(names, 4, go), 0 * last, last=last, start=np.eye(n + 1)[0])


def random_end(seed: int, horizon: int = 40) -> E.FiniteMDP:
    """Return four states that pay 1/H a level until a random end, whose chance depends on three actions."""
    rng = np.random.default_rng([318, seed])
    end, P = rng.uniform(0.01, 0.12, size=(4, 3, 1)), np.zeros((5, 3, 5))
    P[:4] = np.concatenate([(1 - end) * rng.dirichlet(np.full(4, 0.4), size=(4, 3)), end], axis=2)
    P[4, :, 4] = 1
    return stationary(horizon, P, np.outer([1, 1, 1, 1, 0], np.ones(3)) / horizon, start=[0.25] * 4 + [0.0])


def late_zipf(seed: int, n: int = 100, n_actions: int = 4, decoy: float = 0.55) -> E.FiniteMDP:
    """Return a lock of three steps before one of 100 rooms, of chances like 1/i, where two right actions pay 1."""
    rng, chances = np.random.default_rng([321, seed]), 1 / np.arange(1, n + 1)
    secret, inner = rng.integers(n_actions, size=(3, 1)), rng.integers(n_actions, size=(2, n))
    (first, second), _ = locks(secret, n_actions, 2)
    behind, R = locks(inner, n_actions, n + 1)
    fork = np.tile(np.eye(n + 1)[n], (2, n_actions, 1))
    fork[0, secret[2, 0]] = [*chances / chances.sum(), 0]
    leave = decoy * (np.arange(n_actions) != secret[0])[None]
    return E.FiniteMDP(
        P=[first[:1], second, fork, *behind],
        R=[leave, *np.zeros((2, 2, n_actions)), *R],
        features=[np.eye(n + 1)[:size] for size in (1, 2, 2, n + 1, n + 1)],
    )


# ---- Written to break the version after 0.2.0, which was frozen; the bets after the others had been measured


def bets(seed: int, chances: Sequence[float], n_bets: int, best: float, before: float = 0.0) -> E.FiniteMDP:
    """Return starts that pay `before`, where bets win the rest with these chances, and one action pays `best` for sure.

    While no bet was lost, no other action can pay more.
    """
    rng, n, n_actions = np.random.default_rng([413, seed]), len(chances), n_bets + 1
    sure = np.arange(n_actions) == rng.integers(n_actions, size=(n, 1))
    P = np.eye(n + 1)[:n, None].repeat(n_actions, axis=1)
    P[sure] = np.eye(n + 1)[n]
    R = [before + best * sure, np.outer([*chances, 0.0], np.ones(n_actions)) * (1 - before)]
    rows = np.eye(n + 1)
    return E.FiniteMDP(P=[P], R=R, features=[rows[:n], rows], start=np.full(n, 1 / n), caps=[0.0, 1 - before])


def bet_or_lock(seed: int, q: float, depth: int = 3, n_actions: int = 3) -> E.FiniteMDP:
    """Return a lock that pays 1 for sure; whoever leaves it at once has 1 with probability q."""
    secret = np.random.default_rng([414, seed]).integers(n_actions, size=depth + 1)

    def go(h: int, s: str, a: int) -> dict[str, float]:
        if h == 0:
            return {"lock" if a == secret[0] else "bet": 1.0}
        return {"lock" if s == "lock" and a == secret[h] else "bet" if s == "bet" else "out": 1.0}

    return tables(
        depth + 1,
        n_actions,
        {"start": [1, 0, 0], "lock": [1, 0, 0], "bet": [0, 1, 0], "out": [0, 0, 1]},
        go,
        lambda h, s, a: (h == depth) * (q * (s == "bet") + float(s == "lock" and a == secret[h])),
        caps=[0.0] * depth + [1.0],
    )


def line_of_bets(seed: int, n: int = 10) -> E.FiniteMDP:
    """Return starts with the features (1, x), where one action pays 1 with chance .9 + .06 x, and the other always."""
    x, sure = np.linspace(0, 1, n), int(np.random.default_rng([416, seed]).integers(2))
    means = np.stack([0.9 + 0.06 * x] * 2, axis=1)
    means[:, sure] = 1.0
    rows = np.stack([np.ones(n), x], axis=1) / 1.5
    return E.FiniteMDP(P=[], R=[means], features=[rows], start=np.full(n, 1 / n), caps=[1.0])


def cursed(seed: int, n: int, n_actions: int, rest: float, best: float) -> E.FiniteMDP:
    """Return start states with many equal Bernoulli actions and one better: in most of them some equal one is lucky."""
    means = np.full((n, n_actions), rest)
    means[np.arange(n), np.random.default_rng([403, seed]).integers(n_actions, size=n)] = best
    return E.FiniteMDP(P=[], R=[means], features=[np.eye(n)], start=np.full(n, 1 / n), caps=[1.0])


def arcs(seed: int, gap: float, n: int = 12, n_actions: int = 12) -> E.FiniteMDP:
    """Return starts on a circle, features (1, cos, sin), and Bernoulli actions of which one is better everywhere."""
    rng = np.random.default_rng([412, seed])
    angles = rng.uniform(0, 2 * np.pi, size=n)
    rows = np.stack([np.ones(n), np.cos(angles), np.sin(angles)], axis=1) / np.sqrt(2)
    means = np.full((n, n_actions), 0.5)
    means[:, int(rng.integers(n_actions))] += gap * (1 + 0.3 * np.cos(angles))
    return E.FiniteMDP(P=[], R=[means], features=[rows], start=np.full(n, 1 / n), caps=[1.0])


def gates(seed: int, chances: Sequence[float], sure: float, depth: int = 6, n_actions: int = 4) -> E.FiniteMDP:
    """Return doors in a row that open with these chances before a lock worth 1; to leave at once pays `sure`."""
    horizon = len(chances) + depth
    secret = np.random.default_rng([401, seed]).integers(n_actions, size=horizon)

    def go(h: int, s: str, a: int) -> dict[str, float]:
        if s == "out" or a != secret[h]:
            return {"out": 1.0}
        return mix((p := chances[h] if h < len(chances) else 1.0, "in"), (1 - p, "out"))

    return tables(
        horizon,
        n_actions,
        {"start": [1, 0], "in": [1, 0], "out": [0, 1]},
        go,
        lambda h, s, a: sure * (a != secret[0]) if h == 0 else float(h == horizon - 1 and s == "in" and a == secret[h]),
    )


def unlucky(seed: int, n: int, p: float, sure: float) -> E.FiniteMDP:
    """Return start states with a good action that pays 1 with probability p, and one that pays `sure` always."""
    surely = np.zeros((n, 2))
    surely[np.arange(n), np.random.default_rng([402, seed]).integers(2, size=n)] = sure
    # To the states that pay 1 and 0, and to the end after what is sure.
    P = np.where(surely[:, :, None] > 0, [0, 0, 1], [p, 1 - p, 0])
    R = [surely, np.outer([1.0, 0.0, 0.0], np.ones(2))]
    return E.FiniteMDP(P=[P], R=R, features=[np.eye(n), np.eye(n)[:3]], start=np.full(n, 1 / n))


def wander(seed: int, first: float, second: float, sure: float, n: int = 3, walk: int = 3) -> E.FiniteMDP:
    """Return a door, places behind it through which one is blown at random, and a door in each, at another action."""
    rng = np.random.default_rng([410, seed])
    enter, right, horizon = int(rng.integers(3)), rng.integers(3, size=n), walk + 3
    names = ["start", *range(n), "out", "paid"]

    def go(h: int, s: Any, a: int) -> dict[Any, float]:
        if s == "start" and a == enter:
            return mix(*((first / n, i) for i in range(n)), (1 - first, "out"))
        if isinstance(s, str):
            return {"out": 1.0}
        if h <= walk:
            return mix((0.6, s), (0.4, (s + 1) % n))
        return {"paid": second, "out": 1 - second} if a == right[s] else {"out": 1.0}

    rows = {s: np.eye(n + 3)[i] for i, s in enumerate(names)}
    return tables(horizon, 3, rows, go, lambda h, s, a: sure * (a != enter) if h == 0 else float(s == "paid"))


SHIPPED: dict[str, Callable[[int], Any]] = {
    "lock-5": lambda s: E.combination_lock(5, 4, rng=s),
    "lock-20": lambda s: E.combination_lock(20, 4, rng=s),
    "lock-100": lambda s: E.combination_lock(100, 4, rng=s),
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
    "mirage": lambda s: E.mirage_lock(rng=s),
    "coins-5-0": lambda s: E.lock_bernoulli(5, 0.0, rng=s, observation="coins"),
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
    "arms-10": lambda s: arms(s, 10, 0.6, 0.5),
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
    "mixed-lock": lambda s: mixed(s, lambda t: E.combination_lock(8, 3, rng=t, p_success=0.95), 100),
    "mixed-tabular": lambda s: mixed(s, lambda t: random_tabular(t, 5, 3, 5, 0.3), 1000),
    "circle": circle,
    "needle-40": lambda s: arms(s, 40, 0.15, 0.0, key=41),
}
# Written after the code of the algorithm was frozen, and measured as they are.
AFTER: dict[str, Callable[[int], Any]] = {
    "wind": wind,
    "pits": pits,
    "key": key,
    "latent-6": lambda s: latent(s, 6, 25, 2, 5),
    "latent-3": lambda s: latent(s, 3, 40, 4, 6),
    "rich": rich,
    "rare-starts": lambda s: rare_starts(s, [0.5, 0.2, 0.12, 0.08, 0.06, 0.04]),
    "rare-start-.1": lambda s: rare_starts(s, [0.9, 0.1]),
    "near-tie-.06": lambda s: sure_or(s, 0.56, 0.5),
    "long-shot": lambda s: sure_or(s, 0.16, 0.1),
    "uneven-tabular": lambda s: recoded(s, lambda t: random_tabular(t, 6, 3, 5, 0.3), uneven),
    "copies-lock": lambda s: recoded(s, lambda t: E.combination_lock(8, 3, rng=t, p_success=0.9), copies),
    "wide-tabular": lambda s: recoded(s, lambda t: random_tabular(t, 6, 2, 6, 0.2), wide),
    "signs": signs,
    "parabola": parabola,
    "flips-2": lambda s: flips(s, 2),
    "flips-4": lambda s: flips(s, 4),
    "disaster-.12": lambda s: disaster(s, 0.3, 0.67, 0.12, 0.95),
    "disaster-.3": lambda s: disaster(s, 0.2, 0.8, 0.3, 0.85),
    "two-locks": lambda s: two_locks(s, 0.4, 0.55),
    "two-surprises": lambda s: two_surprises(s, 0.4, 0.4, 0.08),
    "leaning-.2": lambda s: leaning(s, 0.2),
    "rescue-.1": lambda s: rescue(s, {2: 0.1}),
    "rescue-spread": lambda s: rescue(s, dict.fromkeys(range(1, 7), 0.02)),
}
# Written after the two failures of AFTER were repaired and the code was frozen again, and measured as they are.
LATER: dict[str, Callable[[int], Any]] = {
    "higher-lower": higher_lower,
    "maze": maze,
    "trials": trials,
    "delays": delays,
    "late-forks": lambda s: late_forks(s, [0.5, 0.15, 0.11, 0.09, 0.08, 0.07]),
    "bent": bent,
    "close-calls": close_calls,
}
# Written to break version 0.2.0; the last four take long. Q* is linear in all of them but alias-.05.
PRESSED: dict[str, Callable[[int], Any]] = {
    "sprinkle-10-.04": lambda s: sprinkle(s, 10, 0.04),
    "sprinkle-40-.015": lambda s: sprinkle(s, 40, 0.015),
    "sprinkle-100-.004": lambda s: sprinkle(s, 100, 0.004),
    "fork-tail": lambda s: rooms(s, 8, 0.05, 0.32, depth=3, n_actions=4, key=322),
    "many-lanes": lambda s: rare_lane(s, [0.02] * 12, depth=4),
    "rare-lane-.065": lambda s: rare_lane(s, [0.065]),
    "rare-needle-.06": lambda s: rare_needle(s, 0.06),
    "gate-lock-.2": lambda s: gate_lock(s, 0.2, 0.12),
    "gate-lock-.3": lambda s: gate_lock(s, 0.3, 0.22),
    "gate-lock-.6": lambda s: gate_lock(s, 0.6, 0.52),
    "two-stage": lambda s: two_stage(s, 0.5, 0.8, 0.68, 0.34),
    "bait-.152": lambda s: bait(s, 0.152, 0.1),
    "bait-.76": lambda s: bait(s, 0.76, 0.7, horizon=3),
    "sure-or-.76": lambda s: sure_or(s, 0.76, 0.7),
    "one-coin": one_coin,
    "jackpots-20": lambda s: arms(s, 20, 0.1, 0.03, key=307),
    "heavy-5": heavy,
    "weather": weather,
    "costs": costs,
    "monomials-12": lambda s: recoded(s, lambda t: random_tabular(t, 12, 3, 6, 0.2), powers),
    "small-units": small_units,
    "alias-.05": lambda s: alias(s, 0.05),
    "long-noise-200": long_noise,
    "zipf-200": zipf,
    "traps": traps,
    "random-end": random_end,
    "late-zipf-100": late_zipf,
}
# Written to break the version after 0.2.0, and measured as it was frozen. On bets more runs fail than delta allows.
FROZEN: dict[str, Callable[[int], Any]] = {
    "bets-9": lambda s: bets(s, [0.935], 9, 1.0),
    "bet-or-lock": lambda s: bet_or_lock(s, 0.935),
    "line-of-bets": line_of_bets,
    "cursed-16": lambda s: cursed(s, 16, 10, 0.5, 0.62),
    "arcs": lambda s: arcs(s, 0.07),
    "gates-2": lambda s: gates(s, [0.6, 0.6], 0.3),
    "unlucky-16": lambda s: unlucky(s, 16, 0.78, 0.6),
    "wander": lambda s: wander(s, 0.6, 0.8, 0.42),
}


def eleven_arms() -> E.FiniteMDP:
    """One state, and eleven arms that pay 0, .1, ..., 1."""
    return E.FiniteMDP(P=[], R=[np.arange(11)[None] / 10], features=[np.ones((1, 1))], value_range=(0.0, 1.0))


def noisy(make: Callable[[int], E.FiniteMDP], sigma: float, last: bool = False) -> Callable[[int], Any]:
    """Return a maker of the same tables with noise on every reward, or on those of the last level."""
    return lambda seed: E.with_noise(make(seed), sigma, last)


# Normal noise on rewards. Those of the second half take minutes a run.
NOISY: dict[str, Callable[[int], Any]] = {
    "arms, .1": noisy(lambda s: eleven_arms(), 0.1),
    "arms, .3": noisy(lambda s: eleven_arms(), 0.3),
    "arms, 1": noisy(lambda s: eleven_arms(), 1.0),
    "lock-5, .1": noisy(lambda s: E.combination_lock(5, 4, rng=s), 0.1),
    "lock-20, .1": noisy(lambda s: E.combination_lock(20, 4, rng=s), 0.1),
    "chain-10, .1": noisy(lambda s: E.chain(10, rng=s), 0.1),
    "river-swim, .1": noisy(lambda s: E.river_swim(6, 20), 0.1),
    "deep-sea-10, .1": noisy(lambda s: E.deep_sea(10, rng=s), 0.1),
    "lock-5, 1 at the end": noisy(lambda s: E.combination_lock(5, 4, rng=s), 1.0, last=True),
    "deep-sea-10, 1 at the end": noisy(lambda s: E.deep_sea(10, rng=s), 1.0, last=True),
    "lock-5, 1": noisy(lambda s: E.combination_lock(5, 4, rng=s), 1.0),
    "chain-10, 1 at the end": noisy(lambda s: E.chain(10, rng=s), 1.0, last=True),
    "arms, 3": noisy(lambda s: eleven_arms(), 3.0),
    "arms, 10": noisy(lambda s: eleven_arms(), 10.0),
}


def same_table(
    seed: int, n_states: int = 10, n_actions: int = 3, horizon: int = 20, spread: float = 0.2, paying: float = 0.5
) -> E.FiniteMDP:
    """Return a random table, the same at every level; a share of its pairs pays up to 1 / H with coins."""
    rng = np.random.default_rng([28, seed])
    P = rng.dirichlet(np.full(n_states, spread), size=(n_states, n_actions))
    R = rng.random((n_states, n_actions)) * (rng.random((n_states, n_actions)) < paying) / horizon
    start, features = rng.dirichlet(np.ones(n_states)), [np.eye(n_states)] * horizon
    return E.FiniteMDP([P] * (horizon - 1), [R] * horizon, features, start, caps=[1 / horizon] * horizon)


def lever(horizon: int, chance: float, decoy: float) -> E.FiniteMDP:
    """A lever that pays 1 with a small chance, which ends the episode; leaving pays the decoy for sure."""
    P, R = np.zeros((2, 2, 2, 2))
    P[1, :, 1] = P[0, 1, 1] = 1
    P[0, 0] = 1 - chance, chance
    R[0, :, 1] = 1.0, decoy
    return E.FiniteMDP([P] * horizon, [R] * horizon, [np.eye(2, 1)] * horizon)


def bet(horizon: int, chance: float, sure: float) -> E.FiniteMDP:
    """One decision an episode: a bet that pays 1 with a chance, or what is sure; either ends the episode."""
    P, R = np.zeros((2, 3, 2, 3))
    P[0, 0], P[0, 1], P[1:, :, 2] = [0, chance, 1 - chance], [0, 0, 1], 1
    R[0, 0, 1], R[0, 1] = 1.0, sure
    return E.FiniteMDP([P] * horizon, [R] * horizon, [np.eye(3, 1)] * horizon)


def repeated(P: Any, R: Any, horizon: int, **arguments: Any) -> E.FiniteMDP:
    """Return a table with transitions (S, K, S) and rewards (S, K) at every level; the last state has ended."""
    features = np.eye(len(R), len(R) - 1)
    return E.FiniteMDP([P] * horizon, [R] * horizon, [features] * horizon, **arguments)


def door(seed: int, chance: float, decoy: float, again: bool, depth: int = 3, horizon: int = 12) -> E.FiniteMDP:
    """A door that opens with a chance, to a lock that pays 1; else the episode ends, or one may knock `again`."""
    rng, n_actions, ended = np.random.default_rng([29, seed]), 3, depth + 1
    P, R = np.zeros((depth + 2, n_actions, depth + 2)), np.zeros((depth + 2, n_actions))
    P[..., ended] = 1.0
    knock, leave = rng.permutation(n_actions)[:2]
    P[0, knock] = 0.0
    P[0, knock, 1], P[0, knock, 0 if again else ended] = chance, 1.0 - chance
    R[0, leave] = decoy
    for state, action in enumerate(rng.integers(n_actions, size=depth), 1):
        P[state, action] = 0.0
        P[state, action, state + 1] = 1.0
        R[state, action] = float(state == depth)
    return repeated(P, R, horizon, value_range=(0.0, 1.0))


def stages(seed: int, chances: Sequence[float], decoy: float, horizon: int = 8) -> E.FiniteMDP:
    """Gambles one after the other, by one of three actions each; who wins all is paid 1; leaving pays the decoy."""
    rng, n_actions, ended = np.random.default_rng([30, seed]), 3, len(chances)
    P, R = np.zeros((ended + 1, n_actions, ended + 1)), np.zeros((ended + 1, n_actions))
    P[..., ended] = 1.0
    for state, chance in enumerate(chances):
        play, leave = rng.permutation(n_actions)[:2]
        P[state, play] = 0.0
        P[state, play, ended] = 1.0 - chance
        if state + 1 < ended:
            P[state, play, state + 1] = chance
        else:
            P[state, play, ended], R[state, play] = 1.0, chance
        R[state, leave] = decoy if state == 0 else 0.0
    return repeated(P, R, horizon, value_range=(0.0, 1.0))


def timed_lock(seed: int, horizon: int = 10) -> E.FiniteMDP:
    """Two states; the right action depends on the level."""
    P, R = np.zeros((horizon, 2, 3, 2)), np.zeros((horizon, 2, 3))
    P[:, :, :, 1] = 1
    key = np.random.default_rng(seed).integers(3, size=horizon)
    P[np.arange(horizon), 0, key] = 1, 0
    R[-1, 0, key[-1]] = 1
    return E.FiniteMDP(P[:-1], R, [np.eye(2)] * horizon)


def late_door(seed: int, horizon: int = 20, opens: int = 12) -> E.FiniteMDP:
    """Leaving pays .3, and .8 from a level on; waiting costs nothing."""
    P = np.zeros((2, 2, 2))
    P[0, 0, 0] = P[0, 1, 1] = P[1, 0, 1] = P[1, 1, 1] = 1
    R = [np.array([[0, 0.3 if level < opens else 0.8], [0, 0]]) for level in range(horizon)]
    return E.FiniteMDP([P] * (horizon - 1), R, [np.eye(2, 1)] * horizon)


def two_tables(seed: int, horizon: int = 20, n_states: int = 6) -> E.FiniteMDP:
    """One random table in the first half, another in the second."""
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.full(n_states, 0.3), size=(2, n_states, 2))
    R = (rng.random((2, n_states, 2)) < 0.3) * rng.random((2, n_states, 2)) / horizon
    half = [int(2 * level >= horizon) for level in range(horizon)]
    return E.FiniteMDP([P[i] for i in half[:-1]], [R[i] for i in half], [np.eye(n_states)] * horizon)


def fuel(seed: int, horizon: int = 20, lasts: int = 8) -> E.FiniteMDP:
    """A tank that lasts some steps, which no feature shows: one machine needs it, the other pays less."""
    P, pays = np.ones((1, 2, 1)), np.random.default_rng(seed).permutation(2)
    R = [np.array([[0.6, 1.0] if level < lasts else [0.6, 0.0]])[:, pays] / horizon for level in range(horizon)]
    return E.FiniteMDP([P] * (horizon - 1), R, [np.ones((1, 1))] * horizon, value_range=(0.0, 1.0))


def late_room(seed: int, horizon: int = 20, opens: int = 12) -> E.FiniteMDP:
    """A room that ends the episode: in it one action pays .8, but from a level on only; leaving pays .3."""
    P = np.zeros((3, 3, 3))
    P[0, 0, 0] = P[0, 1, 1] = P[0, 2, 2] = 1
    P[1:, :, 2] = 1
    R = [np.array([[0, 0, 0.3], [0, 0.8 if level >= opens else 0.0, 0], [0, 0, 0]]) for level in range(horizon)]
    return E.FiniteMDP([P] * (horizon - 1), R, [np.eye(3, 2)] * horizon)


# The same at every level: their data are shared.
SAME: dict[str, Callable[[int], Any]] = {
    "same-dense": same_table,
    "same-sparse": lambda s: same_table(s, paying=0.1),
    "same-wide": lambda s: same_table(s, 20, 3, 30, 0.05),
    "lever-.04": lambda s: lever(40, 0.04, 0.5),
    "lever-.02": lambda s: lever(60, 0.02, 0.6),
    "bet-.3": lambda s: bet(20, 0.3, 0.2),
    "door-.7": lambda s: door(s, 0.7, 0.6, again=False),
    "door-.3": lambda s: door(s, 0.3, 0.22, again=False),
    "knock-.15": lambda s: door(s, 0.15, 0.55, again=True),
    "stages-2": lambda s: stages(s, [0.8, 0.7], 0.48),
    "stages-3": lambda s: stages(s, [0.9, 0.8, 0.6], 0.34),
    "river-swim-100": lambda s: E.river_swim(6, 100),
}
# Declared the same at every level, but not so. What differs in late-room is where nothing was seen.
DECLARED: dict[str, Callable[[int], Any]] = {
    "timed-lock": timed_lock,
    "late-door": late_door,
    "two-tables": two_tables,
    "fuel": fuel,
    "late-room": late_room,
}
GROUPS = {
    "shipped": SHIPPED,
    "attacks": ATTACKS,
    "held-out": HELD_OUT,
    "after": AFTER,
    "later": LATER,
    "pressed": PRESSED,
    "frozen": FROZEN,
    "noisy": NOISY,
    "same": SAME,
    "declared": DECLARED,
}
FAMILIES = {name: make for group in GROUPS.values() for name, make in group.items()}
