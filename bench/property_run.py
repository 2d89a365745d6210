"""Test the theorem as a property of many small random MDPs: with its constants, the algorithm is within epsilon.

    python bench/property_run.py --seeds 500 --json property.json

Draws finite MDPs that satisfy the assumptions of the theorem exactly, computes the corrected constants of the proof
(`dmq_fast.theory.Parameters`) for each, and runs the algorithm on exact expectations (N = infinity) in an arithmetic
that resolves them. "sound" and "frugal" must return a policy within epsilon. For "paper", and for "paper" with one of
its two repairs, the seeds that fail are listed: "paper, fixed" starts from an action sequence, "paper, recheck"
re-checks. The rows "at work" are runs with the default constants of `DMQ`, to which the theorem does not apply. On such
short MDPs a uniform initial policy reaches every state often enough; on a `decoy_lock` of 28 levels, the last run, it
does not.

All tables of an MDP are dyadic, so that float64 holds them exactly: Q* is linear to the last bit, and ties are exact. C
of Low Variance is exact where transitions are deterministic (1) or there are few deterministic policies
(enumerated); elsewhere it is an upper bound, 1 over the least probability with which a policy can meet a state, under
which the theorem holds as well.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from bisect import bisect_left
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dmq_fast import DMQ, VARIANTS, Options, Policy
from dmq_fast.environments import FiniteMDP, decoy_lock
from dmq_fast.kernels import Uniform
from dmq_fast.samplers import ExactSampler
from dmq_fast.theory import Parameters
from dmq_fast.theory.measures import low_variance, suboptimal_probability

SOUND, FRUGAL, PAPER = (
    replace(VARIANTS[name], oracle="decision", mixture="stratified") for name in ("sound", "frugal", "paper")
)
RUNS: dict[str, tuple[Options, str | None]] = {
    "sound": (SOUND, None),
    "frugal": (FRUGAL, None),
    "paper": (PAPER, None),
    "paper, fixed": (PAPER, "fixed"),
    "paper, recheck": (replace(PAPER, recheck=True), None),
    "sound at work": (SOUND, None),
    "paper at work": (PAPER, None),
}

MUST = ("sound", "frugal")

FAMILIES = ("linear", "aliased", "ties", "stale", "tabular", "lock")

LARGEST_ENUMERATION = 100
"""Largest number of deterministic policies that are enumerated for C."""

# Limit of the policies added, for variants without a theorem, which may not end otherwise.
LARGEST_COVERS = 2000


def dyadic_rows(rng: np.random.Generator, shape: tuple[int, ...], size: int, parts: int) -> np.ndarray:
    """Return distributions over `size` outcomes in multiples of 1 / parts; with parts = 1 each has one outcome."""
    return rng.multinomial(parts, np.full(size, 1.0 / size), size=shape) / parts


def random_mdp(seed: int) -> FiniteMDP:
    """Return an MDP with H, K, d <= 4 whose Q* is linear with ||theta|| <= 1, with a positive gap."""
    rng = np.random.default_rng([seed, 1906])
    while True:
        family = FAMILIES[rng.integers(len(FAMILIES))]
        horizon, n_actions = int(rng.integers(2, 5)), int(rng.integers(2, 5))
        parts = int(rng.choice([1, 1, 2, 4]))
        make = globals()[f"{family}_tables"]
        P, R, features, theta = make(rng, horizon, n_actions, parts)
        size = features[0].shape[0]
        start = dyadic_rows(rng, (), size, 4) if rng.random() < 0.3 and family != "lock" else np.eye(size)[0]
        # A power of two keeps everything exact; theta scales with the rewards.
        largest = max(1.0, sum(rewards.max() for rewards in R), np.linalg.norm(theta, axis=2).max())
        scale = 2.0 ** -np.ceil(np.log2(largest))
        env = FiniteMDP(P, [scale * rewards for rewards in R], features, start, name=family)
        if np.isfinite(env.gap):
            return env


def linear_tables(
    rng: np.random.Generator, horizon: int, n_actions: int, parts: int, looks: int | None = None
) -> tuple[Any, ...]:
    """Return tables made from Q*, with rewards computed from it, as in `environments.linear_q`.

    There are more states than features. `looks` limits the number of feature vectors a level.
    """
    d = int(rng.integers(2, 5))
    sizes = rng.integers(1, d + 3, size=horizon)
    features, advantages, weights = [], [], []
    for size in sizes:
        # In eighths, of norm at most 1: |rest| <= sqrt(3) / 2 beside the constant 1/2.
        rest = rng.integers(-4, 5, size=(size, d - 1)) / 8
        rest[np.linalg.norm(rest, axis=1) > np.sqrt(0.75)] /= 2
        if looks is not None:
            rest = rest[rng.integers(min(looks, size), size=size)]
        features.append(np.insert(rest, 0, 0.5, axis=1))
        w = rng.integers(-2, 3, size=(n_actions, d - 1)) / 2
        if rng.random() < 0.4:  # two actions with the same Q*
            w[rng.integers(n_actions)] = w[rng.integers(n_actions)]
        weights.append(w)
        advantages.append(rest @ w.T)
    P = [dyadic_rows(rng, (sizes[h], n_actions), sizes[h + 1], parts) for h in range(horizon - 1)]
    R, lift, theta = [], 0.0, []
    for h in reversed(range(horizon)):
        rewards = advantages[h].copy()
        if h < horizon - 1:
            rewards -= P[h] @ advantages[h + 1].max(axis=1)
        lift -= rewards.min()
        R.insert(0, rewards - rewards.min())
        theta.insert(0, np.insert(weights[h], 0, 2 * lift, axis=1))
    return P, R, features, np.array(theta)


def aliased_tables(rng: np.random.Generator, horizon: int, n_actions: int, parts: int) -> tuple[Any, ...]:
    """Return tables with states of equal features, hence equal Q*, but different successors."""
    return linear_tables(rng, horizon, n_actions, parts, looks=2)


def ties_tables(rng: np.random.Generator, horizon: int, n_actions: int, parts: int) -> tuple[Any, ...]:
    """Return tables with few different values, so that many actions tie; states share features or mix those of others.

    Where optimal actions tie, the estimates of a level can change where its states lead without changing their values.
    """
    d = int(rng.integers(2, 5))
    sizes = rng.integers(2, 7, size=horizon)
    sizes[0] = 1
    looks = np.eye(d)[rng.integers(d, size=(horizon, 6))]
    mixed = rng.random((horizon, 6)) < 0.25
    pairs = rng.integers(d, size=(2, mixed.sum()))
    looks[mixed] = np.eye(d)[pairs].sum(axis=0) / 2
    features = [looks[h, :size] for h, size in enumerate(sizes)]
    P = [dyadic_rows(rng, (sizes[h], n_actions), sizes[h + 1], parts) for h in range(horizon - 1)]
    R, theta, ahead = [], [], None
    for h in reversed(range(horizon)):
        following = np.zeros((sizes[h], n_actions)) if ahead is None else P[h] @ ahead
        # Weights add up to 1 in every look: no reward is negative where each is at least the largest value ahead.
        w = following.max() + rng.choice([0.0, 0.0, 0.25, 0.5], size=(n_actions, d))
        same = rng.random(d) < 0.5
        w[:, same] = w[:1, same]
        q = features[h] @ w.T
        R.insert(0, q - following)
        theta.insert(0, w)
        ahead = q.max(axis=1)
    return P, R, features, np.array(theta)


def stale_tables(rng: np.random.Generator, horizon: int, n_actions: int, parts: int) -> tuple[Any, ...]:
    """Return three levels on which a passed check can become outdated: `stale_lock` of the tests with random choices.

    Level 0 leads to the states left, home and right of level 1. Left and home have the same features and the value 1/2
    for every action, but from left the action decides which of two states follows, and there actions matter. Right can
    change the preferred action of left after the states behind it were checked.
    """
    n_actions = max(3, n_actions)
    e1, e2, e3 = np.eye(3)
    after_root = np.zeros((1, n_actions, 3))
    leads = np.concatenate([rng.permutation(3), rng.integers(3, size=n_actions - 3)])
    after_root[0, np.arange(n_actions), rng.permutation(leads)] = 1
    after = np.zeros((3, n_actions, 4))
    after[0, np.arange(n_actions), rng.integers(1, 3, size=n_actions)] = 1
    after[1, :, 0] = after[2, :, 3] = 1
    at_root = after_root[0] @ rng.choice([0.0, 0.0625, 0.125], size=3)
    right = rng.choice([0.25, 0.3125, 0.375], size=n_actions)
    last = np.zeros((4, n_actions))
    last[0] = 0.5
    last[1:3][rng.random((2, n_actions)) < 0.4] = 0.5
    last[[1, 2], rng.integers(n_actions, size=2)] = 0.5
    R = [at_root[None], np.stack([0 * right, 0 * right, right]), last]
    features = [e1[None], np.stack([e1, e1, (e1 + e2) / 2]), np.stack([e1, e2, e3, 0 * e1])]
    root = at_root + after_root[0] @ np.array([0.5, 0.5, right.max()])
    theta = [np.multiply.outer(root, e1), 0.5 * e1 + np.multiply.outer(2 * right - 0.5, e2), last[:3].T]
    return [after_root, after], R, features, np.array(theta)


def tabular_tables(rng: np.random.Generator, horizon: int, n_actions: int, parts: int) -> tuple[Any, ...]:
    """Return tables with one-hot features and few different rewards, most of them 0."""
    size = int(rng.integers(2, 5))
    P = [dyadic_rows(rng, (size, n_actions), size, parts) for _ in range(horizon - 1)]
    R = [rng.choice([0.0, 0.0, 0.25, 0.5], size=(size, n_actions)) for _ in range(horizon)]
    if rng.random() < 0.5:  # rewards at the end only
        R[:-1] = [np.zeros((size, n_actions)) for _ in R[:-1]]
    theta, ahead = [], np.zeros(size)
    for h in reversed(range(horizon)):
        q = R[h] + (P[h] @ ahead if h < horizon - 1 else 0.0)
        theta.insert(0, q.T)
        ahead = q.max(axis=1)
    return P, R, [np.eye(size)] * horizon, np.array(theta)


def lock_tables(rng: np.random.Generator, horizon: int, n_actions: int, parts: int) -> tuple[Any, ...]:
    """Return good, bad and dead states as in `environments.decoy_lock`, with random slips, decoys and secrets.

    With features (1/2, 1/2), (3/4, 0) and 0, any values of good and bad are linear.
    """
    features = np.array([[0.5, 0.5], [0.75, 0.0], [0.0, 0.0]])
    P, R, ahead, theta = [], [], np.zeros(3), []
    for h in reversed(range(horizon)):
        secret, exit_ = rng.integers(n_actions, size=2)
        step = np.zeros((3, n_actions, 3))
        step[0, :, 1] = step[1, :, 2] = step[2, :, 2] = 1
        step[0, secret] = [1 - 1 / (2 * parts), 1 / (2 * parts), 0] if parts > 1 else [1, 0, 0]
        step[1, exit_] = [0, 1, 0]
        rewards = np.zeros((3, n_actions))
        if h == horizon - 1:
            rewards[0, secret], rewards[1, exit_] = 0.75, 0.375
        else:
            rewards[0] = rng.choice([0, 0.125 * (horizon - h) / 4])
            rewards[0, secret] = 0
            P.insert(0, step)
        R.insert(0, rewards)
        q = rewards + (step @ ahead if h < horizon - 1 else 0.0)
        # phi_good theta = q_good, phi_bad theta = q_bad
        theta.insert(0, np.stack([q[1] / 0.75, 2 * q[0] - q[1] / 0.75], axis=1))
        ahead = q.max(axis=1)
    return P, R, [features] * horizon, np.array(theta)


class Tabulated(Policy):
    """Deterministic policy given by its action in each state, linear or not."""

    __slots__ = ("tables",)

    def __init__(self, tables: list[np.ndarray]) -> None:
        super().__init__([Uniform()] * len(tables))
        object.__setattr__(self, "tables", tables)

    def probabilities(self, level: int, features: Any, n_actions: int) -> np.ndarray:
        """Return P[a | s], shape (S, K)."""
        return np.eye(n_actions)[self.tables[level]]


def low_variance_constant(env: FiniteMDP) -> tuple[float, str]:
    """Return a C that is at least the constant of Low Variance, and how it was found."""
    deterministic = env.start.max() == 1.0 and all((P == np.round(P)).all() for P in env.P)
    if deterministic:
        return 1.0, "deterministic"
    met = [np.flatnonzero(mask) for mask in env.reachable]
    # The loss at level h depends on the actions from h on only, and its distribution on the actions before h only.
    if env.n_actions ** sum(map(len, met)) <= LARGEST_ENUMERATION:
        largest = 1.0
        for actions in itertools.product(range(env.n_actions), repeat=sum(map(len, met))):
            tables, rest = [], iter(actions)
            for size, states in zip(env.n_states, met, strict=True):
                tables.append(np.zeros(size, dtype=int))
                tables[-1][states] = [next(rest) for _ in states]
            largest = max(largest, float(low_variance(env, Tabulated(tables)).max()))
        return largest * (1 + 1e-9), "enumerated"
    # E X^2 <= max X E X <= (E X)^2 / p for X >= 0, where p is the least probability of a state that is met.
    least = np.where(env.start > 0, env.start, np.inf)
    smallest = least.min()
    for P in env.P[: env.horizon - 1]:
        with np.errstate(invalid="ignore"):
            steps = np.where((P > 0) & np.isfinite(least)[:, None, None], least[:, None, None] * P, np.inf)
        least = steps.min(axis=(0, 1))
        smallest = min(smallest, least.min())
    return float(1 / smallest), "bound"


def constants(env: FiniteMDP, C: float) -> Parameters:
    """Return the corrected constants for the largest power of two as epsilon that meets every inequality."""
    problem = Parameters.from_theorem(0.25, env.gap, C, env.dimension, env.horizon, env.n_actions, corrected=True)
    exponent = bisect_left(range(200), True, lo=8, key=lambda k: all(one.holds for one in problem.at(2.0**-k).check()))
    return problem.at(2.0**-exponent)


def run(
    seed: int,
    arithmetic: str | int = "rational",
    names: tuple[str, ...] = tuple(RUNS),
    env: FiniteMDP | None = None,
) -> dict[str, Any]:
    """Run the variants on the MDP of a seed, or on `env`, and return the outcomes."""
    env = random_mdp(seed) if env is None else env
    C, source = low_variance_constant(env)
    p = constants(env, C)
    sampler = ExactSampler(env, arithmetic)
    row: dict[str, Any] = {
        "seed": seed,
        "family": env.name,
        "H": env.horizon,
        "K": env.n_actions,
        "d": env.dimension,
        "states": env.n_states,
        "gap": env.gap,
        "C": C,
        "C source": source,
        "epsilon": float(p.epsilon),
        "eps_r": float(p.eps_r),
        "N": f"{p.n_samples:.3g}",
        "bound": float(p.cover_bound),
        "optimal": env.optimal_value,
        "ties": has_ties(env),
    }
    assert all(inequality.holds for inequality in p.check())
    for name in names:
        began = time.process_time()
        given = {} if name.endswith("at work") else p.dmq_arguments(extended=True)
        variant, initial = RUNS[name]
        result = DMQ(sampler, **given, variant=variant, initial=initial, rng=seed).learn(max_policies=LARGEST_COVERS)
        loss = env.optimal_value - env.value(result.policy)
        row[name] = {
            "status": result.status,
            "loss": max(0.0, loss),
            "within": result.status == "ended" and loss <= float(p.epsilon) + env.gap_tolerance,
            "suboptimal": float(suboptimal_probability(env, result.policy).max()),
            "cover": max(result.cover_sizes),
            "trues": result.counts["trues"],
            "marginal": sum("too close to call" in warning for warning in result.warnings),
            "seconds": time.process_time() - began,
        }
    return row


def has_ties(env: FiniteMDP) -> bool:
    """Return whether two actions are optimal in some reachable state."""
    return any(
        ((v[:, None] - q)[mask] <= env.gap_tolerance).sum(axis=1).max() > 1
        for q, v, mask in zip(env.optimal_q, env.optimal_v, env.reachable, strict=True)
    )


def report(rows: list[dict[str, Any]]) -> str:
    """Return the text of the table of all runs, and of the seeds that are not within epsilon."""
    lines = [
        f"{len(rows)} MDPs: "
        + ", ".join(f"{n} {family}" for family, n in sorted(Counter(row["family"] for row in rows).items()))
        + f"; {sum(row['ties'] for row in rows)} with ties; C "
        + ", ".join(f"{source} {n}" for source, n in sorted(Counter(row["C source"] for row in rows).items())),
        f"epsilon {min(row['epsilon'] for row in rows):.1e} to {max(row['epsilon'] for row in rows):.1e}, "
        f"eps_r {min(row['eps_r'] for row in rows):.1e} to {max(row['eps_r'] for row in rows):.1e}, "
        f"C {min(row['C'] for row in rows):.3g} to {max(row['C'] for row in rows):.3g}",
        "",
        f"{'variant':16}{'within epsilon':>16}{'ended':>8}{'largest loss':>14}{'most policies':>15}"
        f"{'Trues':>8}{'seconds':>9}",
    ]
    names = [name for name in RUNS if name in rows[0]]
    for name in names:
        runs = [row[name] for row in rows]
        lines.append(
            f"{name:16}{sum(r['within'] for r in runs):>10} of {len(rows):<4}"
            f"{sum(r['status'] == 'ended' for r in runs):>7}{max(r['loss'] for r in runs):>14.3g}"
            f"{max(r['cover'] for r in runs):>15}{sum(r['trues'] for r in runs):>8}"
            f"{sum(r['seconds'] for r in runs):>9.1f}"
        )
    lines.append("")
    for name in names:
        failed = [row["seed"] for row in rows if not row[name]["within"]]
        lines.append(f"not within epsilon, {name}: {', '.join(map(str, failed)) or 'none'}")
    beyond = [row["seed"] for row in rows if any(row[name]["cover"] > row["bound"] for name in names if name in MUST)]
    lines.append(f"covers beyond the bound B, {' or '.join(MUST)}: {', '.join(map(str, beyond)) or 'none'}")
    return "\n".join(lines)


def main() -> int:
    """Print the report; the exit status is 1 if a variant that must be within epsilon is not."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=500, help="number of MDPs")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--arithmetic", default="200", help="decimal digits, or 'rational'")
    parser.add_argument("--json", type=Path, help="file to which every run is written")
    arguments = parser.parse_args()
    arithmetic = int(arguments.arithmetic) if arguments.arithmetic.isdigit() else arguments.arithmetic
    rows = []
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        rows.append(run(seed, arithmetic))
        if arguments.json is not None and (len(rows) % 50 == 0 or len(rows) == arguments.seeds):
            arguments.json.write_text(json.dumps(rows, indent=1))
    print(report(rows))
    names = ("sound", "paper", "paper, fixed", "paper, recheck")
    decoy = run(0, "rational", names, decoy_lock(28))
    losses = ", ".join(f"{name} {decoy[name]['loss']:.3g}" for name in names)
    print(f"decoy lock of 28 levels, epsilon {decoy['epsilon']:.1e}, losses: {losses}")
    return int(not all(row[name]["within"] for row in rows for name in MUST))


if __name__ == "__main__":
    raise SystemExit(main())
