"""The environments of the exam, as data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

from dmq_fast.environments import chain, combination_lock, deep_sea, river_swim
from dmq_fast.environments.gym.tables import make_environment
from dmq_fast.experiments.exam import tables

__all__ = ["TASKS", "Task"]

PACKAGES = {"gymnasium": "gymnasium", "minigrid": "minigrid", "gym_classics": "gym-classics", "bsuite": "bsuite"}
"""By module: the name of the package that has it."""


class Task(NamedTuple):
    """An environment of the exam.

    Attributes
    ----------
    horizon : int
        Number of steps H of an episode, at most: the environment's own limit of steps if that is at most 100 (500 in
        control), otherwise 50, or less where no episode is longer.
    make : callable
        Makes its tables, a `FiniteMDP`, or where there are none the environment of Gymnasium's.
    source : str
        Where the environment comes from.
    needs : str, optional
        Module that has to be installed, beside Gymnasium.
    value_range : tuple of float, optional
        Least and largest sum of rewards from any step on. Default: that of the tables.
    optimum : float, optional
        The best expected return that is known, where there are no tables.
    optimum_source : str
        Where the optimum is from.
    """

    horizon: int
    make: Callable[[], Any]
    source: str
    needs: str | None = None
    value_range: tuple[float, float] | None = None
    optimum: float | None = None
    optimum_source: str = "tables"

    def missing(self) -> str | None:
        """Return what has to be installed for it, None if all is there."""
        modules = ["gymnasium"] + ([self.needs] if self.needs is not None else [])
        names = [PACKAGES[module] for module in modules if find_spec(module) is None]
        return f"needs {' and '.join(names)}: pip install {' '.join(names)}" if names else None


def toy(identifiers: tuple[str, ...], horizon: int, low: float, high: float, **arguments: Any) -> Task:
    """Return an environment of Gymnasium's with a table."""
    made = partial(tables.gymnasium_tables, identifiers, horizon, (low, high), **arguments)
    return Task(horizon, made, f"Gymnasium, {identifiers[0]}")


def grid(identifier: str, horizon: int) -> Task:
    """Return an environment of MiniGrid's."""
    name = f"MiniGrid-{identifier}-v0"
    return Task(horizon, partial(tables.minigrid, name, horizon), f"MiniGrid, {name}, layout of seed 0", "minigrid")


def book(module: str, name: str, low: float, high: float, horizon: int = 50) -> Task:
    """Return an environment of gym_classics."""
    made = partial(tables.sutton_barto, module, name, horizon, (low, high))
    return Task(horizon, made, f"gym_classics, {name}", "gym_classics")


def suite(identifier: str, horizon: int, low: float, high: float, n_starts: int = 1) -> Task:
    """Return an experiment of bsuite's."""
    made = partial(tables.bsuite, identifier, horizon, (low, high), n_starts)
    return Task(horizon, made, f"bsuite, {identifier}", "bsuite")


def control(identifier: str, limit: int, low: float, high: float, optimum: float, source: str) -> Task:
    """Return one of Gymnasium's control tasks."""
    made = partial(make_environment, identifier)
    return Task(limit, made, f"Gymnasium, {identifier}", None, (low, high), optimum, source)


TASKS: dict[str, Task] = {
    "frozen-lake-4-dry": toy(("FrozenLake-v1",), 100, 0.0, 1.0, is_slippery=False),
    "frozen-lake-4": toy(("FrozenLake-v1",), 100, 0.0, 1.0),
    "frozen-lake-8-dry": toy(("FrozenLake-v1",), 50, 0.0, 1.0, map_name="8x8", is_slippery=False),
    "frozen-lake-8": toy(("FrozenLake-v1",), 50, 0.0, 1.0, map_name="8x8"),
    "cliff-walking": toy(("CliffWalking-v1", "CliffWalking-v0"), 50, -5000.0, 0.0),
    "cliff-walking-slippery": toy(("CliffWalking-v1",), 50, -5000.0, 0.0, is_slippery=True),
    "taxi": toy(("Taxi-v4", "Taxi-v3"), 50, -500.0, 20.0),
    "blackjack": Task(20, partial(tables.blackjack, 20), "Gymnasium, Blackjack-v1"),
    "minigrid-empty-5": grid("Empty-5x5", 100),
    "minigrid-empty-8": grid("Empty-8x8", 50),
    "minigrid-door-key-5": grid("DoorKey-5x5", 50),
    "minigrid-four-rooms": grid("FourRooms", 100),
    "classic-gridworld": book("classic_gridworld", "ClassicGridworld", -1.0, 1.0),
    "dyna-maze": book("dyna_maze", "DynaMaze", 0.0, 1.0),
    "sparse-gridworld": book("sparse_gridworld", "SparseGridworld", 0.0, 1.0),
    "windy-gridworld": book("windy_gridworld", "WindyGridworld", -50.0, 0.0),
    "windy-kings": book("windy_gridworld", "WindyGridworldKings", -50.0, 0.0),
    "windy-kings-random": book("windy_gridworld", "WindyGridworldKingsStochastic", -50.0, 0.0),
    "cliff-walk-ending": book("cliff_walk", "CliffWalk", -149.0, 0.0),
    "bsuite-bandit": suite("bandit/0", 1, 0.0, 1.0),
    "bsuite-catch": suite("catch/0", 9, -1.0, 1.0, 5),
    "bsuite-deep-sea-20": suite("deep_sea/5", 20, -1.0, 1.0),
    "river-swim": Task(20, partial(river_swim, n_states=6, horizon=20), "Strehl and Littman 2008; this package"),
    "chain": Task(20, partial(chain, 20, rng=0), "rlberry; this package"),
    "lock": Task(20, partial(combination_lock, 20, n_actions=4, rng=0), "the paper; this package"),
    "deep-sea-10": Task(10, partial(deep_sea, 10, rng=0), "bsuite; this package, by level"),
    "inventory": Task(50, partial(tables.inventory, 50), "Puterman 1994, section 3.2"),
    "queue": Task(50, partial(tables.queue, 50), "de Farias and Van Roy 2003, section 6"),
    "mountain-car": control(
        "MountainCar-v0", 200, -200.0, 0.0, -97.7, "value iteration on 900 x 900 cells, played from 100,000 starts"
    ),
    "cart-pole": control("CartPole-v1", 500, 0.0, 500.0, 500.0, "the limit of steps"),
    "acrobot": control("Acrobot-v1", 500, -500.0, 0.0, -69.1, "best of rl-baselines3-zoo (QR-DQN), 2,138 episodes"),
}
"""By name."""
