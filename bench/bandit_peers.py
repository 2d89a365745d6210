"""Play LinUCB of this package and of others on the same rounds, row by row: regret, and CPU time.

    python bench/bandit_peers.py --rounds 100000                     # a generated stream
    python bench/bandit_peers.py --data digits                       # scikit-learn's digits, in one random order
    python bench/bandit_peers.py --only mabwiser --rounds 2000       # a library, where it is installed

Of the stream, K arms have linear rewards of d features with noise 0.5; of digits, the arm is the guess, and the reward
is 1 where it is right. All play disjoint LinUCB with alpha = 0.5 and lambda = 1, except for two: river's alpha is its
lambda, and its bounds are others (`ours_as_river` has both); vowpalwabbit has no such bandit, and explores by a cover
(`--cb_explore K --cover 3`). A library that is not installed is left out, and one that takes over `--limit` seconds of
CPU time ends there, after fewer rounds; its regret a round then has more of the first rounds, in which all explore.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from common import heading, line, options

ALPHA = 0.5
Player = tuple[Callable[[Any], int], Callable[[Any, int, float], None]]
"""A player chooses an arm for a context, and learns the reward of the arm."""


def stream(rounds: int, seed: int) -> tuple[Any, Any]:
    """Contexts (rounds, 32) and rewards (rounds, 10)."""
    rng = np.random.default_rng(seed)
    contexts, truth = rng.normal(size=(rounds, 32)) / np.sqrt(32), rng.normal(size=(10, 32))
    return contexts, contexts @ truth.T + 0.5 * rng.normal(size=(rounds, 10))


def digits(rounds: int, seed: int) -> tuple[Any, Any]:
    """Pixels of digits and a constant (rounds, 65), and rewards (rounds, 10), again and again in new random orders."""
    from sklearn.datasets import load_digits

    data, rng = load_digits(), np.random.default_rng(seed)
    order = np.concatenate([rng.permutation(len(data.data)) for _ in range(-(-rounds // len(data.data)))])[:rounds]
    pixels = np.column_stack([data.data / 16.0, np.ones(len(data.data))])
    return pixels[order] / np.sqrt(65), np.eye(10)[data.target[order]]


def ours(d: int, n_arms: int) -> Player:
    """`RidgeArms` of this package."""
    from dmq_fast.kernels import RidgeArms

    arms = RidgeArms(n_arms, d, 1.0)
    return lambda x: arms.select(x, ALPHA), lambda x, arm, reward: arms.update(arm, x, reward)


def ours_as_river(d: int, n_arms: int) -> Player:
    """`RidgeArms` with the prior and the bounds of river's LinUCB: lambda = alpha, and (1 + leverage)^(1/2) on top."""
    from dmq_fast.kernels import RidgeArms

    arms = RidgeArms(n_arms, d, ALPHA)
    return (
        lambda x: int((arms.predict(x) + np.sqrt(1.0 + arms.leverage(x))).argmax()),
        lambda x, arm, reward: arms.update(arm, x, reward),
    )


def by_numpy(d: int, n_arms: int) -> Player:
    """Inverses of all arms in one array, by Sherman and Morrison's formula."""
    inverse, moment, theta = np.tile(np.eye(d), (n_arms, 1, 1)), np.zeros((n_arms, d)), np.zeros((n_arms, d))

    def choose(x: Any) -> int:
        g = inverse @ x
        return int(np.argmax(theta @ x + ALPHA * np.sqrt(g @ x)))

    def learn(x: Any, arm: int, reward: float) -> None:
        g = inverse[arm] @ x
        inverse[arm] -= np.outer(g / (1.0 + x @ g), g)
        moment[arm] += reward * x
        theta[arm] = inverse[arm] @ moment[arm]

    return choose, learn


def by_mabwiser(d: int, n_arms: int) -> Player:
    """LinUCB of mabwiser."""
    from mabwiser.mab import MAB, LearningPolicy

    mab = MAB(list(range(n_arms)), LearningPolicy.LinUCB(alpha=ALPHA, l2_lambda=1.0))
    mab.fit([0], [0.0], np.zeros((1, d)))
    return lambda x: int(mab.predict(x[None])), lambda x, arm, reward: mab.partial_fit([arm], [reward], x[None])


def by_contextualbandits(d: int, n_arms: int) -> Player:
    """The LinUCB of contextualbandits, in float64 and without an intercept."""
    from contextualbandits.online import LinUCB

    model = LinUCB(n_arms, alpha=ALPHA, lambda_=1.0, fit_intercept=False, use_float=False, random_state=1)
    model.partial_fit(np.zeros((1, d)), np.array([0]), np.array([0.0]))

    def learn(x: Any, arm: int, reward: float) -> None:
        model.partial_fit(x[None], np.array([arm]), np.array([reward]))

    return lambda x: int(model.predict(x[None])[0]), learn


def by_river(d: int, n_arms: int) -> Player:
    """River's disjoint LinUCB, of dictionaries, which are made outside the timing."""
    from river import bandit

    policy, arms = bandit.LinUCBDisjoint(alpha=ALPHA, seed=0), list(range(n_arms))
    return lambda x: policy.pull(arms, context=x), lambda x, arm, reward: policy.update(arm, x, reward)


def by_vowpalwabbit(d: int, n_arms: int) -> Player:
    """Another algorithm: a cover of three policies, of lines of text, which are made outside the timing."""
    from vowpalwabbit import Workspace

    workspace, chosen = Workspace(f"--cb_explore {n_arms} --cover 3 --quiet --random_seed 1"), [1.0]
    rng = np.random.default_rng(0)

    def choose(x: str) -> int:
        shares = np.array(workspace.predict(x))
        arm = int(rng.choice(n_arms, p=shares / shares.sum()))
        chosen[0] = float(shares[arm])
        return arm

    def learn(x: str, arm: int, reward: float) -> None:
        workspace.learn(f"{arm + 1}:{-reward}:{chosen[0]} {x}")

    return choose, learn


PLAYERS = {
    "dmq_fast": ours,
    "dmq_fast, bounds of river": ours_as_river,
    "numpy": by_numpy,
    "river": by_river,
    "vowpalwabbit": by_vowpalwabbit,
    "contextualbandits": by_contextualbandits,
    "mabwiser": by_mabwiser,
}
TEXTS: dict[str, Callable[[Any], Any]] = {
    "river": lambda x: dict(enumerate(x.tolist())),
    "vowpalwabbit": lambda x: "| " + " ".join(f"f{j}:{value:.6g}" for j, value in enumerate(x.tolist())),
}


def played(player: Player, made: list[Any], rewards: Any, limit: float) -> tuple[list[int], float]:
    """Return the arms that were chosen, and the seconds of CPU time; rounds end where these are over the limit."""
    choose, learn = player
    arms: list[int] = []
    began = time.process_time()
    for x, reward in zip(made, rewards, strict=True):
        arm = choose(x)
        learn(x, arm, float(reward[arm]))
        arms.append(arm)
        if len(arms) % 100 == 0 and time.process_time() - began > limit:
            break
    return arms, time.process_time() - began


def main(data: str, rounds: int, seed: int, limit: float, only: str) -> None:
    """Print the table."""
    contexts, rewards = (digits if data == "digits" else stream)(rounds, seed)
    best = rewards.max(axis=1) if data == "digits" else None
    if best is None:  # the mean rewards decide: noise cannot be seen before
        rng = np.random.default_rng(seed)
        rng.normal(size=contexts.shape)
        means = contexts @ rng.normal(size=(10, 32)).T
    else:
        means = rewards
    heading(["player", "rounds", "regret a round", "of the last tenth", "CPU time, µs a round"])
    for name, make in PLAYERS.items():
        if only not in name:
            continue
        try:
            player = make(contexts.shape[1], rewards.shape[1])
        except ImportError as error:
            print(f"{name}: {error}")
            continue
        form = TEXTS.get(name, lambda x: x)
        arms, seconds = played(player, [form(x) for x in contexts], rewards, limit)
        n = len(arms)
        regret = means[:n].max(axis=1) - means[np.arange(n), arms]
        line([name, f"{n:,}", f"{regret.mean():.4f}", f"{regret[-n // 10 :].mean():.4f}", f"{seconds / n * 1e6:.1f}"])


if __name__ == "__main__":
    given = options(__doc__, data="stream", rounds=100_000, seed=0, limit=60.0, only="")
    main(given.data, given.rounds, given.seed, given.limit, given.only)
