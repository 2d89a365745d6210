"""`Grid`: where the states of an environment stand, and what its actions look like. Pictures of policies ask for it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Grid", "grid_of", "names_of"]

Numbers = NDArray[np.int64]

MOST_CELLS = 2**16
"""Number of cells up to which a grid is kept."""

PLAIN = " .F"

DIRECTIONS = {"LEFT": "<", "DOWN": "v", "RIGHT": ">", "UP": "^"}
"""Names of actions in the modules of Gymnasium's grids, and their arrows."""

CAR = ("position", "velocity")
POLE = ("position", "velocity", "angle", "angular velocity")
NAMES = {"MountainCar-v0": CAR, "mountain-car": CAR, "CartPole-v1": POLE, "cart-pole": POLE}
"""Names of observed numbers, by the name of the environment."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Cells of one or several pictures of a grid.

    Attributes
    ----------
    cells : numpy.ndarray of int, shape (panels, rows, columns)
        The number of the state that stands in a cell, -1 of none. A state that is a pair (row, column) has the number
        row * columns + column.
    titles : tuple of str
        One for each panel.
    letters : tuple of str
        One text for each row, a letter for each cell: S start, G goal, H hole, C cliff, X block, others as they are;
        spaces, dots and F (of a frozen lake) are plain cells.
    arrows : str or None
        A letter for each action: ``<``, ``>``, ``^`` and ``v`` are arrows, others stand for themselves.
    """

    cells: Numbers
    titles: tuple[str, ...] = ("",)
    letters: tuple[str, ...] = ()
    arrows: str | None = None

    @classmethod
    def of_shape(cls, shape: Sequence[int]) -> Grid:
        """Return the grid of states 0, 1, ..., row by row.

        Raises
        ------
        ValueError
            If the shape is not two positive integers.
        """
        sizes = tuple(shape) if isinstance(shape, Sequence | np.ndarray) else ()
        if len(sizes) != 2 or not all(isinstance(n, int | np.integer) and n > 0 for n in sizes):
            raise ValueError(f"shape: expected (rows, columns), two integers > 0, got {shape!r}")
        return cls(np.arange(sizes[0] * sizes[1], dtype=np.int64).reshape(1, *sizes))

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return self.cells.shape[1], self.cells.shape[2]

    def number(self, state: Any) -> int:
        """Return the number of a state, an integer or a pair (row, column); -1 of anything else.

        >>> Grid.of_shape((4, 12)).number((3, 11)), Grid.of_shape((4, 12)).number("left")
        (47, -1)
        """
        try:
            given = np.asarray(state)
        except ValueError:  # of parts of several shapes
            return -1
        if given.dtype.kind not in "iu" or given.shape not in ((), (2,)):
            return -1
        if given.shape == ():
            return int(given)
        row, column = given.tolist()
        rows, columns = self.shape
        return row * columns + column if 0 <= row < rows and 0 <= column < columns else -1

    def letter(self, row: int, column: int) -> str:
        """Return the letter of a cell, a space of a plain one."""
        letter = self.letters[row][column] if self.letters else " "
        return " " if letter in PLAIN else letter

    def with_arrows(self, arrows: str | None) -> Grid:
        """Return the grid with other arrows."""
        return replace(self, arrows=arrows)

    def describe(self) -> dict[str, Any]:
        """Return the grid as data that JSON can hold."""
        return {
            "cells": self.cells.tolist(),
            "titles": list(self.titles),
            "letters": list(self.letters),
            "arrows": self.arrows,
        }

    @classmethod
    def described(cls, data: Mapping[str, Any]) -> Grid:
        """Return the grid that `describe` wrote down; ValueError, TypeError or KeyError if it is none."""
        cells = np.array(data["cells"], dtype=np.int64)
        titles, letters, arrows = tuple(map(str, data["titles"])), tuple(map(str, data["letters"])), data["arrows"]
        if cells.ndim != 3 or len(titles) != len(cells):
            raise ValueError(f"grid: expected cells (panels, rows, columns) with a title each, got shape {cells.shape}")
        if letters and (len(letters), {len(row) for row in letters}) != (cells.shape[1], {cells.shape[2]}):
            raise ValueError("grid: expected a letter for each cell")
        return cls(cells, titles, letters, None if arrows is None else str(arrows))


def grid_of(env: Any, n_actions: int) -> Grid | None:
    """Return the grid of an environment that says it, None of others.

    It says so by attributes: `desc`, a letter for each cell (FrozenLake), or `shape`, (rows, columns) (CliffWalking),
    where states are numbered row by row or are pairs (row, column); and `arrows`, a letter for each action, as in
    `Grid`, or constants LEFT, DOWN, RIGHT and UP in the module of its class. Taxi and the grids of gym_classics are
    known.
    """
    bare = getattr(env, "unwrapped", env)
    if getattr(env, "observation_space", None) != getattr(bare, "observation_space", None):
        return None  # a wrapper shows something else
    try:
        found = taxi(bare) or classic(bare, n_actions) or plain(bare)
    except Exception:  # of any type: attributes of these names may be anything
        return None
    if found is None or found.cells.size > MOST_CELLS:
        return None
    arrows = getattr(bare, "arrows", None) or found.arrows or named_actions(bare, n_actions)
    fits = isinstance(arrows, str) and len(arrows) == n_actions
    return replace(found, arrows=arrows if fits else None)


def plain(env: Any) -> Grid | None:
    """Return the grid of an environment with `desc` or `shape`."""
    letters = lines(getattr(env, "desc", None))
    shape = getattr(env, "shape", None)
    if letters:
        shape = len(letters), len(letters[0])
    if not isinstance(shape, tuple) or len(shape) != 2:
        return None
    grid = Grid.of_shape(shape)
    n = getattr(getattr(env, "observation_space", None), "n", None)
    if n is not None and n != grid.cells.size:
        return None
    return replace(grid, letters=letters or told_by_table(env, grid))


def lines(desc: Any) -> tuple[str, ...]:
    """Return a map as texts of one length; an empty tuple where it is none."""
    if desc is None:
        return ()
    rows = [
        "".join(one.decode() if isinstance(one, bytes) else str(one) for one in row)
        if not isinstance(row, str)
        else row
        for row in desc
    ]
    return tuple(rows) if rows and len({len(row) for row in rows}) == 1 else ()


def told_by_table(env: Any, grid: Grid) -> tuple[str, ...]:
    """Return the letters of a grid whose transition table says where episodes begin and end."""
    table, starts = getattr(env, "P", None), getattr(env, "initial_state_distrib", None)
    if table is None or starts is None:
        return ()
    ends: dict[int, float] = {}
    for state in range(grid.cells.size):
        for outcomes in table[state].values() if isinstance(table[state], Mapping) else table[state]:
            for chance, following, reward, over in outcomes:
                if over and chance > 0:
                    ends[int(following)] = max(float(reward), ends.get(int(following), -np.inf))
    letters = np.full(grid.cells.size, " ")
    letters[np.flatnonzero(np.asarray(starts) > 0)] = "S"
    cliff = getattr(env, "_cliff", None)
    if isinstance(cliff, np.ndarray) and cliff.shape == grid.shape:
        letters[cliff.ravel()] = "C"
    for state, reward in ends.items():
        letters[state] = "G" if reward == max(ends.values()) else "H"
    return tuple("".join(row) for row in letters.reshape(grid.shape))


def classic(env: Any, n_actions: int) -> Grid | None:
    """Return the grid of an environment of gym_classics: (x, y) with y upwards, behind numbers in any order."""
    dims, decode, n = (getattr(env, name, None) for name in ("dims", "decode", "observation_space"))
    if not isinstance(dims, tuple) or len(dims) != 2 or not callable(decode) or not hasattr(n, "n"):
        return None
    columns, rows = dims
    cells = np.full((1, rows, columns), -1, dtype=np.int64)
    for state in range(int(n.n)):  # type: ignore[union-attr]
        x, y = decode(state)
        cells[0, rows - 1 - y, x] = state
    letters = np.full((rows, columns), " ")
    for name, letter in (("_starts", "S"), ("_blocks", "X"), ("_goals", "G")):
        for x, y in getattr(env, name, ()):
            letters[rows - 1 - y, x] = letter
    return Grid(cells, letters=tuple("".join(row) for row in letters), arrows="^>v<" if n_actions == 4 else None)


def taxi(env: Any) -> Grid | None:
    """Return the grid of a taxi, in which a state is ((row * columns + column) * 5 + passenger) * 4 + destination.

    Eight panels show what a policy is about: the passenger waits at one of four places, or is to get to one.
    """
    places, desc = getattr(env, "locs", None), np.asarray(getattr(env, "desc", None))
    if places is None or desc.ndim != 2 or len(places) != 4:
        return None
    rows, columns = desc.shape[0] - 2, (desc.shape[1] - 1) // 2
    if getattr(env.observation_space, "n", None) != rows * columns * 20:
        return None
    letters = np.full((rows, columns), " ")
    for row, column in places:
        letters[row, column] = desc[row + 1, 2 * column + 1].decode()
    taxis = np.arange(rows * columns, dtype=np.int64).reshape(rows, columns)
    waiting = [(taxis * 5 + i) * 4 + (i + 1) % 4 for i in range(4)]
    inside = [(taxis * 5 + 4) * 4 + i for i in range(4)]
    names = [letters[place] for place in places]
    titles = [f"waits at {name}" for name in names] + [f"drive to {name}" for name in names]
    return Grid(np.stack([*waiting, *inside]), tuple(titles), tuple("".join(row) for row in letters), "v^><PD")


def named_actions(env: Any, n_actions: int) -> str | None:
    """Return the arrows of actions that the module of an environment names by constants."""
    module = sys.modules.get(type(env).__module__)
    numbers = {getattr(module, name, None): arrow for name, arrow in DIRECTIONS.items()}
    return "".join(numbers[a] for a in range(n_actions)) if set(numbers) == set(range(n_actions)) else None


def names_of(env: Any, name: str) -> tuple[str, ...]:
    """Return the names of the numbers that an environment shows: its `observation_names`, or those that are known."""
    own = getattr(getattr(env, "unwrapped", env), "observation_names", None)
    return tuple(map(str, own)) if isinstance(own, tuple | list) else NAMES.get(name, ())
