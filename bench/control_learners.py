"""The contestants of control.py: this package's run, Sarsa(lambda), LSPI, DQN and PPO.

Each is a function of a `Trial`: it learns in ``trial.env()``, and shows its greedy policy to ``trial.look`` every so
often, until that says that the trial is over. Settings are those of the authors, or of the sources named at each; where
they had to be chosen here, seeds from 1,000 on were used for that, which the tables do not show.

A policy is a function of a level and observations (n, m) that returns actions (n,). A level is a step, unless actions
are held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

import dmq_fast as dmq
from dmq_fast.features import FeatureMap, TileCoding

Array = NDArray[np.float64]
Actions = NDArray[np.int64]
Policy = Callable[[int, Array], Actions]

ALL = (0, 1, 2, 3)
CAR = ([-1.2, -0.07], [0.6, 0.07])
# Episodes end at 2.4 and 12 degrees; velocities have no bounds.
CART = ([-2.4, -3.0, -0.2095, -3.5], [2.4, 3.0, 0.2095, 3.5])
ACROBOT = ([-np.pi, -np.pi, -4 * np.pi, -9 * np.pi], [np.pi, np.pi, 4 * np.pi, 9 * np.pi])


class Trial(Protocol):
    """One run of a contestant, as `control.Judge` has it."""

    id: str
    limit: int
    """Steps after which an episode is cut."""
    seed: int
    episodes: float
    """Budget, infinite of those in `ZOO`."""

    def env(self, **how: Any) -> Any:
        """Make the environment; its episodes and steps are counted."""

    def look(self, policy: Policy, last: bool = False, hold: int = 1) -> bool:
        """Evaluate the policy, the clock stopped; return whether the trial is over: mark met, budget used, or last.

        An action is held for `hold` steps, which are a level.
        """


# ---- This package


def ours(trial: Trial) -> None:
    """`dmq.learn`, which stops by itself; its test episodes count."""
    result = dmq.learn(trial.env, rng=trial.seed, max_trajectories=trial.episodes)
    hold = -(-trial.limit // len(result.policy.rules))
    trial.look(lambda level, seen: np.asarray(result.policy.act_on(level, seen)), last=True, hold=hold)


# ---- Tiles


def same(observations: Array) -> Array:
    """Return the observations."""
    return observations


def angles(observations: Array) -> Array:
    """Return two angles and their velocities from what Acrobot-v1 shows: their cosines and sines, and velocities."""
    cos1, sin1, cos2, sin2, *velocities = observations.T
    return np.stack([np.arctan2(sin1, cos1), np.arctan2(sin2, cos2), *velocities], axis=1)


class Tiles:
    """Several tile codings, each of some of the coordinates: the columns of the entries 1 of features (n, d).

    Parameters
    ----------
    box : pair of sequences
        Corners of the box that is tiled.
    parts : iterable of (coordinates, tiles along each, tilings)
    state : callable, optional
        From observations to the coordinates.
    """

    def __init__(
        self,
        box: tuple[Sequence[float], Sequence[float]],
        parts: Iterable[tuple[Sequence[int], int | Sequence[int], int]],
        state: Callable[[Array], Array] = same,
    ) -> None:
        low, high = map(np.asarray, box)
        self.state = state
        self.maps: list[tuple[list[int], FeatureMap]] = [
            (list(at), TileCoding(low[list(at)], high[list(at)], tiles, tilings)) for at, tiles, tilings in parts
        ]
        self.starts = np.cumsum([0, *(features.dimension for _, features in self.maps)])
        self.dimension = int(self.starts[-1])
        self.active = sum(features.nonzeros for _, features in self.maps)

    def __call__(self, observations: Array) -> NDArray[np.int64]:
        """Return the columns, (n, active)."""
        x = self.state(np.asarray(observations, dtype=np.float64))
        found = [features.sparse(np.ascontiguousarray(x[:, at]))[0] for at, features in self.maps]
        return np.hstack([start + columns for start, columns in zip(self.starts, found, strict=False)])


def greedy(weights: Array, tiles: Tiles) -> Policy:
    """Return the policy that is greedy on Q(s, a) = the sum of the weights (K, d) of the active tiles."""
    kept = weights.copy()
    return lambda level, observations: kept[:, tiles(observations)].sum(axis=2).argmax(axis=0)


# ---- Sarsa(lambda)


class Sarsa(NamedTuple):
    """Settings of Sarsa(lambda) with tiles: `alpha` is the step size times the number of active tiles."""

    tiles: Callable[[], Tiles]
    alpha: float
    trace: float = 0.9
    epsilon: float = 0.0
    discount: float = 1.0
    failure: bool = False
    """Whether a step earns -1 where the episode ends, else 0, instead of the environment's rewards."""
    every: int = 10
    """Episodes between two looks."""


SARSA = {
    # Sutton and Barto (2018), sections 10.1 and 12.7: 8 tilings of 8 x 8, replacing traces.
    "MountainCar-v0": Sarsa(lambda: Tiles(CAR, [((0, 1), 8, 8)]), 0.5),
    # Sutton (1996), section 5; Sutton and Barto (1998), section 11.3: 6 intervals along each coordinate, 12 tilings of
    # all four, 3 of each three, 2 of each pair and 3 of each alone.
    "Acrobot-v1": Sarsa(
        lambda: Tiles(
            ACROBOT,
            [(at, 6, tilings) for size, tilings in ((4, 12), (3, 3), (2, 2), (1, 3)) for at in combinations(ALL, size)],
            angles,
        ),
        0.2,
    ),
    # Rewards as in Barto, Sutton and Anderson (1983), -1 for a failure: with 1 a step, Q = 0 is no optimism. No author
    # has tiles for 500 steps: chosen here, with the step size of the acrobot.
    "CartPole-v1": Sarsa(lambda: Tiles(CART, [(ALL, 6, 16)]), 0.2, discount=0.99, failure=True),
}


def sarsa(trial: Trial) -> None:
    """Sarsa(lambda) with replacing traces, those of the other actions cleared (Singh and Sutton 1996), from Q = 0.

    An episode that is cut by its limit has no last update: its state goes on.
    """
    setting = SARSA[trial.id]
    env, rng, tiles = trial.env(), np.random.default_rng(trial.seed), setting.tiles()
    k = int(env.action_space.n)
    weights, traces, change = np.zeros((3, k, tiles.dimension))
    step, decay = setting.alpha / tiles.active, setting.discount * setting.trace

    def choose(columns: NDArray[np.int64]) -> tuple[int, float]:
        values = weights[:, columns].sum(axis=1)
        if setting.epsilon and rng.random() < setting.epsilon:
            action = int(rng.integers(k))
        else:
            action = int(rng.choice(np.flatnonzero(values == values.max())))
        return action, float(values[action])

    episode = 0
    while True:
        traces[:] = 0.0
        columns = tiles(env.reset(seed=trial.seed if episode == 0 else None)[0][None])[0]
        action, value = choose(columns)
        ended = cut = False
        while not (ended or cut):
            observation, reward, ended, cut, _ = env.step(action)
            traces *= decay
            traces[:, columns] = 0.0
            traces[action, columns] = 1.0
            error = (-float(ended) if setting.failure else float(reward)) - value
            if not ended:
                after = tiles(observation[None])[0]
                following, ahead = choose(after)
                error += setting.discount * ahead
            weights += np.multiply(traces, step * error, out=change)
            if not ended:
                columns, action = after, following
                value = float(weights[action, columns].sum())
        episode += 1
        if episode % setting.every == 0 and trial.look(greedy(weights, tiles)):
            return


# ---- Batches of transitions


class Batch:
    """All transitions so far."""

    def __init__(self, trial: Trial) -> None:
        self.trial, self.rng, self.envs = trial, np.random.default_rng(trial.seed), [trial.env()]
        self.k = int(self.envs[0].action_space.n)
        self.rows: list[tuple[Array, int, float, Array, bool]] = []

    def play(self, policy: Policy, episodes: int) -> None:
        """Play episodes side by side."""
        while len(self.envs) < episodes:
            self.envs.append(self.trial.env())
        envs = self.envs[:episodes]
        playing = list(enumerate(envs))
        seen = np.array([env.reset(seed=int(self.rng.integers(2**31)))[0] for env in envs])
        for level in range(self.trial.limit):
            before, numbers = seen.copy(), [i for i, _ in playing]
            going = []
            for (i, env), action in zip(playing, policy(level, seen[numbers]).tolist(), strict=True):
                seen[i], reward, ended, cut, _ = env.step(action)
                self.rows.append((before[i], action, float(reward), seen[i].copy(), ended))
                if not (ended or cut):
                    going.append((i, env))
            playing = going
            if not playing:
                break

    def arrays(self) -> tuple[Array, Actions, Array, Array, NDArray[np.bool_]]:
        """Return observations, actions, rewards, next observations, and whether the episode ended there."""
        before, actions, rewards, after, ended = map(np.array, zip(*self.rows, strict=True))
        return before, actions, rewards, after, ended


class LSPI(NamedTuple):
    """Settings of LSPI-Rmax."""

    tiles: Callable[[], Tiles]
    cells: Callable[[], Tiles]
    """The grid in which visits are counted."""
    most: float
    """Value of what is not known: the largest that there can be."""
    discount: float
    visits: int = 1
    """Visits to a cell with an action from which on the pair is known."""
    ridge: float = 0.01
    every: int = 5
    """Episodes between two policies, played side by side."""


PAIRS = [((0, 1), 6, 2), ((2, 3), 6, 2), ((0, 2), 6, 2), ((1, 3), 6, 2)]

LSPIS = {
    "MountainCar-v0": LSPI(
        lambda: Tiles(CAR, [((0, 1), 8, 4)]), lambda: Tiles(CAR, [((0, 1), 8, 1)]), 0.0, 0.99, visits=3
    ),
    "CartPole-v1": LSPI(lambda: Tiles(CART, PAIRS), lambda: Tiles(CART, [(ALL, 4, 1)]), 20.0, 0.95),
    "Acrobot-v1": LSPI(lambda: Tiles(ACROBOT, PAIRS, angles), lambda: Tiles(ACROBOT, [(ALL, 6, 1)], angles), 0.0, 0.99),
}


def lspi(trial: Trial) -> None:
    """LSPI (Lagoudakis and Parr 2003) with exploration as in R-max (Li, Littman and Mansley 2009).

    LSTDQ with all transitions so far, until the weights stay, at most 20 times. The value of a pair that is not known
    is `most`, as a target and as the value of what follows.
    """
    from scipy.linalg import solve
    from scipy.sparse import csr_array

    setting = LSPIS[trial.id]
    tiles, cells, batch = setting.tiles(), setting.cells(), Batch(trial)
    weights, visits = np.zeros((batch.k, tiles.dimension)), np.zeros((batch.k, cells.dimension), dtype=np.int64)
    size = weights.size

    def features(columns: NDArray[np.int64], actions: Actions, present: NDArray[np.bool_]) -> Any:
        """Return the features of states and actions, (n, K d); 0 where they are not present."""
        n, m = columns.shape
        places = (columns + actions[:, None] * tiles.dimension).ravel()
        return csr_array((np.repeat(present.astype(float), m), places, np.arange(n + 1) * m), shape=(n, size))

    def optimistic(columns: NDArray[np.int64], known: NDArray[np.bool_]) -> Array:
        """Return the values (K, n) of states."""
        return np.where(known, weights[:, columns].sum(axis=2), setting.most)

    def explore(level: int, observations: Array) -> Actions:
        known = visits[:, cells(observations)[:, 0]] >= setting.visits
        actions: Actions = optimistic(tiles(observations), known).argmax(axis=0)
        return actions

    while True:
        batch.play(explore, setting.every)
        before, actions, rewards, after, ended = batch.arrays()
        here, there, cell, each = tiles(before), tiles(after), cells(before)[:, 0], np.arange(len(actions))
        visits[:] = 0
        np.add.at(visits, (actions, cell), 1)
        known, ahead = visits[actions, cell] >= setting.visits, visits[:, cells(after)[:, 0]] >= setting.visits
        phi = features(here, actions, each >= 0)
        sums = (phi.T @ phi).toarray() + setting.ridge * np.eye(size)
        for _ in range(20):
            best = optimistic(there, ahead).argmax(axis=0)
            learned = known & ~ended & ahead[best, each]
            worth = setting.discount * setting.most * (known & ~ended & ~learned)
            target = np.where(known, rewards + worth, setting.most)
            cross = (phi.T @ features(there, best, learned)).toarray()
            found = solve(sums - setting.discount * cross, phi.T @ target).reshape(weights.shape)
            moved = float(np.abs(found - weights).max())
            weights = found
            if moved < 1e-4 * max(1.0, float(np.abs(weights).max())):
                break
        if trial.look(greedy(weights, tiles)):
            return


# ---- Networks

# Hyperparameters of RL Baselines3 Zoo (Raffin 2020): hyperparams/dqn.yml and ppo.yml at commit 22e3ff2, April 2026.
# Schedules "lin_x" fall linearly to 0.
NET = {"net_arch": [256, 256]}
ZOO_DQN: dict[str, dict[str, Any]] = {
    "CartPole-v1": {
        "n_timesteps": 50_000, "learning_rate": 2.3e-3, "batch_size": 64, "buffer_size": 100_000,
        "learning_starts": 1000, "gamma": 0.99, "target_update_interval": 10, "train_freq": 256, "gradient_steps": 128,
        "exploration_fraction": 0.16, "exploration_final_eps": 0.04, "policy_kwargs": NET,
    },
    "MountainCar-v0": {
        "n_timesteps": 120_000, "learning_rate": 4e-3, "batch_size": 128, "buffer_size": 10_000,
        "learning_starts": 1000, "gamma": 0.98, "target_update_interval": 600, "train_freq": 16, "gradient_steps": 8,
        "exploration_fraction": 0.2, "exploration_final_eps": 0.07, "policy_kwargs": NET,
    },
    "Acrobot-v1": {
        "n_timesteps": 100_000, "learning_rate": 6.3e-4, "batch_size": 128, "buffer_size": 50_000,
        "learning_starts": 0, "gamma": 0.99, "target_update_interval": 250, "train_freq": 4, "gradient_steps": -1,
        "exploration_fraction": 0.12, "exploration_final_eps": 0.1, "policy_kwargs": NET,
    },
}  # fmt: skip
ZOO_DQN["LunarLander-v3"] = ZOO_DQN["Acrobot-v1"]  # the Zoo has the same numbers for both
ZOO_PPO: dict[str, dict[str, Any]] = {
    "CartPole-v1": {
        "n_timesteps": 100_000, "n_envs": 8, "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98,
        "n_epochs": 20, "ent_coef": 0.0, "learning_rate": "lin_0.001", "clip_range": "lin_0.2",
    },
    "MountainCar-v0": {
        "normalize": True, "n_timesteps": 1_000_000, "n_envs": 16, "n_steps": 16, "gae_lambda": 0.98, "gamma": 0.99,
        "n_epochs": 4, "ent_coef": 0.0,
    },
    "Acrobot-v1": {
        "normalize": True, "n_timesteps": 1_000_000, "n_envs": 16, "n_steps": 256, "gae_lambda": 0.94, "gamma": 0.99,
        "n_epochs": 4, "ent_coef": 0.0,
    },
    "LunarLander-v3": {
        "n_timesteps": 1_000_000, "n_envs": 16, "n_steps": 1024, "batch_size": 64, "gae_lambda": 0.98, "gamma": 0.999,
        "n_epochs": 4, "ent_coef": 0.01,
    },
}  # fmt: skip


def dqn(trial: Trial) -> None:
    """DQN of Stable-Baselines3, settings of RL Baselines3 Zoo; a look each 2,000 steps."""
    network(trial, "DQN", ZOO_DQN[trial.id], 2000)


def ppo(trial: Trial) -> None:
    """PPO of Stable-Baselines3, settings of RL Baselines3 Zoo; a look each 5,000 steps."""
    network(trial, "PPO", ZOO_PPO[trial.id], 5000)


def network(trial: Trial, name: str, settings: dict[str, Any], every: int) -> None:
    """Train a network on one thread for the Zoo's number of steps, or until the trial is over."""
    import stable_baselines3
    import torch
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    torch.set_num_threads(1)
    given = dict(settings)
    steps, n_envs, normalize = given.pop("n_timesteps"), given.pop("n_envs", 1), given.pop("normalize", False)
    given = {key: falling(value) for key, value in given.items()}
    env: Any = DummyVecEnv([trial.env] * n_envs)
    if normalize:
        env = VecNormalize(env, gamma=given["gamma"])

    def policy(level: int, observations: Array) -> Actions:
        seen = observations.astype(np.float32)
        actions: Actions = model.predict(env.normalize_obs(seen) if normalize else seen, deterministic=True)[0]
        return actions

    class Looks(BaseCallback):
        """Show the policy each `every` steps."""

        due, over = every, False

        def _on_step(self) -> bool:
            if self.num_timesteps >= self.due:
                self.due += every
                self.over = trial.look(policy)
            return not self.over

    model = getattr(stable_baselines3, name)("MlpPolicy", env, seed=trial.seed, device="cpu", **given)
    looks = Looks()
    model.learn(steps, callback=looks)
    if not looks.over:
        trial.look(policy, last=True)


def falling(value: Any) -> Any:
    """Return the schedule that "lin_x" names: x times the share of the steps that are left."""
    if not (isinstance(value, str) and value.startswith("lin_")):
        return value
    start = float(value.removeprefix("lin_"))
    return lambda left: left * start


LEARNERS: dict[str, Callable[[Trial], None]] = {
    "dmq.learn": ours,
    "Sarsa(λ)": sarsa,
    "LSPI": lspi,
    "DQN": dqn,
    "PPO": ppo,
}
"""The contestants by name."""

ZOO = ("DQN", "PPO")
"""Those whose budget is the number of steps of their settings."""

NEEDS = {"DQN": "stable_baselines3", "PPO": "stable_baselines3"}
"""The module that a contestant needs beside this package and Gymnasium."""
