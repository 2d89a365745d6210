"""Observers: from the observations of an environment to features, so that a learned policy acts on what one sees.

`observer_of` returns the observer of an environment, `Policy.bind` gives it to a policy, whose method `act_on` uses it.
`describe` writes an observer down as data where its feature map has a name; `described` makes it again from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dmq_fast import features as maps
from dmq_fast._support.arrays import first_positions
from dmq_fast.grids import Grid, names_of
from dmq_fast.kernels import FeatureMap, as_floats, as_numbers, is_sparse
from dmq_fast.spaces import Finite, described_space

if TYPE_CHECKING:
    from dmq_fast._support.arrays import Sparse

__all__ = [
    "Anything",
    "ArrayForm",
    "Box",
    "Form",
    "MapObserver",
    "Numbers",
    "Observer",
    "OneHot",
    "StateObserver",
    "States",
    "TableObserver",
    "described",
    "observed",
    "observer_of",
]

Floats = NDArray[np.float64]

MOST_DENSE = 2**22
"""Number of entries up to which one-hot features from a file are dense."""


class Seen(NamedTuple):
    """The features (n, d) of a block of observations, and whether it was one observation alone."""

    features: Floats
    alone: bool


class States(NamedTuple):
    """All states that an environment shows at a level, if they are finitely many.

    Attributes
    ----------
    labels : list
        The observations: numbers, texts and tuples of them; None of one that is not known any more.
    features : numpy.ndarray or csr_array, shape (S, d)
    first : numpy.ndarray of int, shape (S,), or None
        The first level at which each can be reached, H of one that never is; None where that is not known.
    """

    labels: list[Any]
    features: Floats | Sparse
    first: NDArray[np.int64] | None = None


class Box(NamedTuple):
    """The corners of the box in which observed numbers are told apart, (m,) each, and the names of these numbers."""

    low: Floats
    high: Floats
    names: tuple[str, ...]


class Observer(Protocol):
    """The features of observations, and the numbers of actions."""

    @property
    def grid(self) -> Grid | None:
        """Where the states stand, if they stand in a grid."""

    def states(self, level: int) -> States | None:
        """Return the states of a level; None where they are not finitely many, or not known."""

    def box(self) -> Box | None:
        """Return the box of the observations; None where there is none."""

    @property
    def n_actions(self) -> int:
        """Number of actions K."""

    def named(self, actions: NDArray[np.int64], alone: bool) -> Any:
        """Return actions (n,), or the first alone, as the environment names them."""

    def see(self, level: int, observation: Any) -> Seen:
        """Return the features of one observation, or of a block of them."""

    def describe(self) -> dict[str, Any]:
        """Return the observer as data that JSON can hold; where its feature map has no name, who has it."""


class OneHot:
    """Features e_s of discrete observations start, ..., start + n - 1."""

    def __init__(self, n: int, start: int) -> None:
        self.n = n
        self.start = start

    def __call__(self, observations: NDArray[Any]) -> Floats:
        """Return the rows (n, d)."""
        phi = np.zeros((len(observations), self.n))
        phi[np.arange(len(observations)), observations.astype(np.int64) - self.start] = 1.0
        return phi


class Form(Protocol):
    """How observations are kept, so that n of them make a block for a feature map."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one observation in a block."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of a block."""

    def keep(self, observation: Any) -> Any:
        """Return one observation as it is kept; raise TypeError or ValueError if it is none."""

    def block(self, given: Any) -> tuple[NDArray[Any], bool]:
        """Return the block (n, ...) of one or several observations, and whether it was one alone."""

    def describe(self) -> dict[str, Any]:
        """Return the form as data that JSON can hold."""


class ArrayForm:
    """Arrays of one shape and type.

    Parameters
    ----------
    shape, dtype
        Of an observation.
    paired : bool, optional
        Whether the first observation of the episode and the current one, a pair, are kept as one array: joined along
        the first axis.
    flat : bool, optional
        Whether observations, not in pairs, are kept as vectors, as the maps of `features` take them.
    """

    def __init__(self, shape: Sequence[int], dtype: Any, paired: bool = False, flat: bool = False) -> None:
        self.single, self.dtype, self.paired, self.flat = tuple(shape), np.dtype(dtype), paired, flat
        self.shape = (2 * (*self.single, 1)[0], *self.single[1:]) if paired else self.single
        if flat:
            self.shape = (prod(self.single),)

    def keep(self, observation: Any) -> NDArray[Any]:
        """Return one observation as it is kept; see `Form.keep`."""
        if not self.paired:
            return observed("observation", observation, self.single, self.dtype).reshape(self.shape)
        first, current = pair_of(observation)
        parts = [observed("observation", part, self.single, self.dtype) for part in (first, current)]
        return np.concatenate([np.atleast_1d(part) for part in parts])

    def block(self, given: Any) -> tuple[NDArray[Any], bool]:
        """Return the block of one or several observations; see `Form.block`."""
        if self.paired:
            firsts, currents = (ArrayForm(self.single, self.dtype).block(part) for part in pair_of(given))
            if len(firsts[0]) != len(currents[0]):
                raise ValueError(
                    f"observation: expected as many first ones as {len(currents[0])}, got {len(firsts[0])}"
                )
            n = len(firsts[0])
            parts = [part.reshape(n, *(self.single or (1,))) for part in (firsts[0], currents[0])]
            return np.concatenate(parts, axis=1), firsts[1] and currents[1]
        numbers = as_numbers("observation", given)
        alone = numbers.shape == self.single
        block = numbers[None] if alone else numbers
        if block.shape[1:] != self.single or block.ndim != len(self.single) + 1:
            raise ValueError(
                f"observation: expected shape {self.single}, or (n, ...) of n of them, got {numbers.shape}"
            )
        kept = np.ascontiguousarray(observed("observation", block, block.shape, self.dtype))
        return kept.reshape(len(block), *self.shape), alone

    def describe(self) -> dict[str, Any]:
        """Return the form as data; see `Form.describe`."""
        how = {name: True for name, holds in (("paired", self.paired), ("flat", self.flat)) if holds}
        return {"shape": list(self.single), "dtype": self.dtype.str} | how


class Numbers:
    """Elements of a finite space, kept as their numbers."""

    shape: tuple[int, ...] = ()
    dtype = np.dtype(np.int64)

    def __init__(self, space: Finite, name: str = "observation") -> None:
        self.space, self.name = space, name

    def keep(self, observation: Any) -> int:
        """Return the number of an observation; see `Form.keep`."""
        try:
            return self.space.number(observation)
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from error

    def block(self, given: Any) -> tuple[NDArray[Any], bool]:
        """Return the numbers of one observation, or of a list or array of them; see `Form.block`."""
        alone = self.space.is_one(given)
        if not alone and not isinstance(given, list | np.ndarray):
            raise ValueError(f"{self.name}: expected one of the space, or a list of them, got {given!r:.80}")
        return np.array([self.keep(one) for one in ([given] if alone else given)], dtype=np.int64), alone

    def describe(self) -> dict[str, Any]:
        """Return the form as data; see `Form.describe`."""
        return {"space": self.space.describe()}


class Anything:
    """Objects of any kind, kept as they are; several of them make a list.

    Parameters
    ----------
    lists : bool, optional
        Whether an observation is itself a list: then several make an array of objects.
    """

    shape: tuple[int, ...] = ()
    dtype = np.dtype(object)

    def __init__(self, lists: bool = False) -> None:
        self.lists = lists

    def keep(self, observation: Any) -> Any:
        """Return an observation, an array as a copy, as environments may write into theirs; see `Form.keep`."""
        return observation.copy() if isinstance(observation, np.ndarray) else observation

    def block(self, given: Any) -> tuple[NDArray[Any], bool]:
        """Return the block of one observation, or of a list of them; see `Form.block`."""
        if self.lists:
            alone = not (isinstance(given, np.ndarray) and given.dtype == object)
        else:
            alone = not isinstance(given, list)
        several = [given] if alone else given
        block = np.empty(len(several), dtype=object)
        for place, one in enumerate(several):
            block[place] = one
        return block, alone

    def describe(self) -> dict[str, Any]:
        """Return the form as data; see `Form.describe`."""
        return {"any": "list" if self.lists else "object"}


def pair_of(given: Any) -> tuple[Any, Any]:
    """Return the first and the current observation of an episode."""
    if not isinstance(given, tuple) or len(given) != 2:
        raise ValueError(f"observation: expected the pair (first of the episode, current one), got {given!r:.80}")
    return given


def described_form(data: Mapping[str, Any]) -> Form:
    """Return the form that `describe` wrote down."""
    if "space" in data:
        return Numbers(described_space(data["space"]))
    if "any" in data:
        return Anything(data["any"] == "list")
    how = [bool(data.get(name, False)) for name in ("paired", "flat")]
    return ArrayForm(data["shape"], np.dtype(data["dtype"]), *how)


class MapObserver:
    """Observer of observations of one form, by a function from blocks of them to features.

    Parameters
    ----------
    features : callable
        From a block (n, ...) to features (n, d).
    form : Form
    n_actions : int
    first_action : int, optional
        The number that the environment gives to action 0.
    actions : Finite, optional
        The space of actions, where they are not integers.
    grid : Grid, optional
    names : sequence of str, optional
        Of the observed numbers.
    """

    def __init__(
        self,
        features: Callable[[NDArray[Any]], Floats],
        form: Form,
        n_actions: int,
        first_action: int = 0,
        actions: Finite | None = None,
        grid: Grid | None = None,
        names: Sequence[str] = (),
    ) -> None:
        self.features, self.form = features, form
        self.grid, self.names = grid, tuple(names)
        self.n_actions, self.first_action, self.actions = n_actions, first_action, actions

    def named(self, actions: NDArray[np.int64], alone: bool) -> Any:
        """Return actions as the environment names them; see `Observer.named`."""
        if self.actions is None:
            return in_numbers(actions + self.first_action, alone)
        elements = [self.actions.element(action) for action in actions.tolist()]
        return elements[0] if alone else elements

    def see(self, level: int, observation: Any) -> Seen:
        """Return the features of one observation, or of a block (n, ...); see `Observer.see`."""
        block, alone = self.form.block(observation)
        if isinstance(self.features, OneHot):
            low, n = self.features.start, self.features.n
            if block.size and not (low <= block.min() and block.max() < low + n):
                raise ValueError(f"observation: expected one in [{low}, {low + n}), got {block.min()} to {block.max()}")
        features = self.features.known if isinstance(self.features, maps.Seen) else self.features
        return Seen(as_floats("features", features(block), (len(block), None)), alone)

    def states(self, level: int) -> States | None:
        """Return all states, the same at every level; see `Observer.states`."""
        if isinstance(self.features, maps.Seen):
            labels = self.features.labels
            order = sorted_places(labels)
            return States([labels[i] for i in order], units(order, self.features.dimension))
        if not isinstance(self.features, OneHot):
            return None
        n, start = self.features.n, self.features.start
        numbers = range(start, start + n)
        labels = [maps.label_of(self.form.space.element(i)) for i in numbers] if isinstance(self.form, Numbers) else []
        return States(labels or list(numbers), units(range(n), n))

    def box(self) -> Box | None:
        """Return the box of observations that are vectors; see `Observer.box`."""
        if not isinstance(self.form, ArrayForm) or self.form.paired or len(self.form.shape) != 1:
            return None
        corners = corners_of(self.features)
        if corners is None or len(corners[0]) != self.form.shape[0]:
            return None
        numbered = tuple(f"observation {i}" for i in range(len(corners[0])))
        return Box(*corners, self.names if len(self.names) == len(numbered) else numbered)

    def describe(self) -> dict[str, Any]:
        """Return the observer as data; see `Observer.describe`."""
        made: tuple[Any, ...] | None = None
        name = type(self.features).__name__
        if isinstance(self.features, OneHot):
            made = self.features.n, self.features.start
        elif isinstance(self.features, FeatureMap | maps.Seen) and getattr(maps, name, None) is type(self.features):
            made = self.features.__reduce__()[1]  # type: ignore[assignment]
        if made is None:
            return unnamed(self.features)
        described: dict[str, Any] = {
            "kind": "map",
            "features": "one-hot" if isinstance(self.features, OneHot) else name,
            "arguments": [one.tolist() if isinstance(one, np.ndarray) else one for one in made],
            **self.form.describe(),
            "n_actions": self.n_actions,
            "first_action": self.first_action,
        }
        if isinstance(self.features, maps.Seen):
            described["labels"] = self.features.labels
        described |= {"names": list(self.names)} if self.names else {}
        described |= {} if self.grid is None else {"grid": self.grid.describe()}
        return described if self.actions is None else described | {"actions": self.actions.describe()}


def in_numbers(actions: NDArray[np.int64], alone: bool) -> Any:
    """Return actions (n,), or the first alone as an int."""
    return int(actions[0]) if alone else actions


def sorted_places(labels: list[Any]) -> list[int]:
    """Return the places of labels in ascending order; as they are where they cannot be compared.

    >>> sorted_places([(1, 0), (0, 2), (0, 1)]), sorted_places([3, None, 1])
    ([2, 1, 0], [0, 1, 2])
    """
    places = list(range(len(labels)))
    try:
        return sorted(places, key=lambda i: labels[i])
    except TypeError:
        return places


def corners_of(features: Any) -> tuple[Floats, Floats] | None:
    """Return the corners of the box in which a feature map tells numbers apart, if it has one."""
    if isinstance(features, maps.Interpolation):
        nodes = [np.asarray(one, dtype=np.float64) for one in features.nodes]
        if any(one.ndim == 0 for one in nodes):  # an angle
            return None
        return np.array([one[0] for one in nodes]), np.array([one[-1] for one in nodes])
    if isinstance(features, maps.RBF):
        return features.centers.min(axis=0), features.centers.max(axis=0)
    if isinstance(features, maps.Fourier | maps.TileCoding | maps.Identity):
        return features.low, features.high
    return None


class Numbered:
    """An observer of an environment whose actions are 0, ..., K - 1."""

    grid: Grid | None = None

    def states(self, level: int) -> States | None:
        """Return None; see `Observer.states`."""
        return None

    def box(self) -> Box | None:
        """Return None; see `Observer.box`."""
        return None

    def named(self, actions: NDArray[np.int64], alone: bool) -> Any:
        """Return actions as the environment names them; see `Observer.named`."""
        return in_numbers(actions, alone)


class TableObserver(Numbered):
    """Observer of the states of a finite MDP by their numbers.

    Parameters
    ----------
    tables : sequence of H numpy.ndarray or csr_array, each (S_h, d)
        Features of the states.
    n_actions : int
    numbers : numpy.ndarray of int, optional
        Ascending numbers under which the first states of every level are observed. Default: 0, 1, ...
    grid : Grid, optional
    first : numpy.ndarray of int, shape (S,), optional
        The first level at which each state can be reached, H of one that never is.
    """

    def __init__(
        self,
        tables: Sequence[Floats | Sparse],
        n_actions: int,
        numbers: NDArray[np.integer[Any]] | None = None,
        grid: Grid | None = None,
        first: NDArray[np.int64] | None = None,
    ) -> None:
        self.tables, self.n_actions, self.numbers = tuple(tables), n_actions, numbers
        self.grid, self.first = grid, first

    def states(self, level: int) -> States | None:
        """Return the states of a level; see `Observer.states`."""
        table = self.tables[level]
        if self.numbers is None:
            return States(list(range(table.shape[0])), table, self.first)
        return States(self.numbers.tolist(), table[: len(self.numbers)], self.first)

    def see(self, level: int, observation: Any) -> Seen:
        """Return the features of a state, or of n of them; see `Observer.see`."""
        given = as_numbers("observation", observation)
        if given.ndim > 1 or given.dtype.kind not in "iu":
            raise ValueError(f"observation: expected the number of a state, or n of them, got {observation!r:.80}")
        if not 0 <= level < len(self.tables):
            raise ValueError(f"level: expected an integer in [0, {len(self.tables)}), got {level}")
        wanted, table = np.atleast_1d(given), self.tables[level]
        states = wanted if self.numbers is None else np.searchsorted(self.numbers, wanted)
        known = (states >= 0) & (states < (table.shape[0] if self.numbers is None else len(self.numbers)))
        if self.numbers is not None:
            known[known] = self.numbers[states[known]] == wanted[known]
        if not known.all():
            raise ValueError(f"observation: expected a state of level {level}, got {wanted[~known][0]}")
        rows: Any = table[states]
        return Seen(rows.toarray() if is_sparse(rows) else rows, given.ndim == 0)

    def describe(self) -> dict[str, Any]:
        """Return the observer as data, of one-hot features; see `Observer.describe`."""
        columns = [one_hot_columns(table) for table in self.tables]
        if any(one is None for one in columns):
            return unnamed("the tables of a FiniteMDP")
        firsts = first_positions(self.tables)
        places = {first: i for i, first in enumerate(dict.fromkeys(firsts))}
        return {
            "kind": "table",
            "columns": [columns[first] for first in places],
            "levels": [places[first] for first in firsts],
            "dimension": int(self.tables[0].shape[1]),
            "n_actions": self.n_actions,
            "numbers": None if self.numbers is None else self.numbers.tolist(),
            **({} if self.grid is None else {"grid": self.grid.describe()}),
            **({} if self.first is None else {"first": self.first.tolist()}),
        }


class StateObserver(Numbered):
    """Observer of the states of a `BatchEnvironment`, by its own method `features`."""

    def __init__(self, env: Any) -> None:
        self.env, self.n_actions = env, int(env.n_actions)

    def see(self, level: int, observation: Any) -> Seen:
        """Return the features of states as the environment holds them; see `Observer.see`."""
        rows = as_floats("features", self.env.features(level, observation), (None, self.env.dimension))
        return Seen(rows, False)

    def describe(self) -> dict[str, Any]:
        """Return who has the features; see `Observer.describe`."""
        return unnamed(self.env)


class Unnamed(Numbered):
    """Stands for an observer that was written down, but whose feature map has no name: it refuses to see."""

    n_actions = 0

    def __init__(self, owner: str) -> None:
        self.owner = owner

    def see(self, level: int, observation: Any) -> Seen:
        """Raise ValueError."""
        raise ValueError(
            f"act_on: the features of {self.owner} have no name and were not saved; policy.bind(env) takes those of an "
            "environment"
        )

    def describe(self) -> dict[str, Any]:
        """Return who had the features; see `Observer.describe`."""
        return {"kind": "unnamed", "owner": self.owner}


def unnamed(owner: Any) -> dict[str, Any]:
    """Return the data of an observer whose feature map has no name."""
    name = owner if isinstance(owner, str) else getattr(owner, "__qualname__", type(owner).__qualname__)
    return Unnamed(name).describe()


def observer_of(env: Any) -> Observer | None:
    """Return the observer of an environment or of the one that a sampler plays; None where there is none."""
    env = env.unwrapped().env if callable(getattr(env, "collect_chunk", None)) else env
    own: Observer | None = getattr(env, "observer", None)
    if own is not None:
        return own
    features = getattr(env, "features", None)
    if hasattr(env, "handle"):  # a compiled environment: observations are its own features
        shape = (int(env.handle.dimension),)
        form = ArrayForm(shape, np.float64)
        names = names_of(env, str(getattr(env, "name", "")))
        return MapObserver(np.asarray if features is None else features, form, int(env.n_actions), names=names)
    return StateObserver(env) if callable(features) and hasattr(env, "n_actions") else None


def described(data: Mapping[str, Any]) -> Observer:
    """Return the observer that `describe` wrote down.

    Raises
    ------
    ValueError, TypeError, KeyError
        If it is none.

    Examples
    --------
    >>> form = ArrayForm((1,), np.float64)
    >>> written = MapObserver(maps.Fourier([0.0], [1.0], order=1), form, n_actions=2).describe()
    >>> described(written).see(0, [0.0]).features.round(3)
    array([[0.707, 0.707]])
    """
    kind = data["kind"]
    grid = Grid.described(data["grid"]) if "grid" in data else None
    if kind == "unnamed":
        return Unnamed(str(data["owner"]))
    if kind == "table":
        tables = [units(one, int(data["dimension"])) for one in data["columns"]]
        numbers = None if data["numbers"] is None else np.array(data["numbers"], dtype=np.int64)
        first = np.array(data["first"], dtype=np.int64) if "first" in data else None
        n = len(data["columns"][0]) if numbers is None else len(numbers)
        if first is not None and first.shape != (n,):
            raise ValueError(f"observer: expected the first level of each of {n} states, got shape {first.shape}")
        return TableObserver([tables[i] for i in data["levels"]], int(data["n_actions"]), numbers, grid, first)
    if kind != "map" or data["features"] not in ("one-hot", *maps.__all__):
        raise ValueError(f"observer: expected a feature map of dmq_fast.features, got {data.get('features', kind)!r}")
    features = OneHot if data["features"] == "one-hot" else getattr(maps, data["features"])
    make = getattr(features, "from_frequencies", features)  # of what was drawn
    sizes = int(data["n_actions"]), int(data["first_action"])
    actions = described_space(data["actions"]) if "actions" in data else None
    made = make(*data["arguments"])
    if "labels" in data:
        made = maps.Seen(*data["arguments"]).with_labels([untold(one) for one in data["labels"]])
    return MapObserver(made, described_form(data), *sizes, actions, grid, data.get("names", ()))


def untold(label: Any) -> Any:
    """Return a label from JSON, in which tuples are lists."""
    return tuple(map(untold, label)) if isinstance(label, list) else label


def one_hot_columns(table: Floats | Sparse) -> list[int] | None:
    """Return the column of the 1 of each row, -1 of a row of zeros; None of rows that are neither."""
    entries = np.diff(table.indptr) if is_sparse(table) else np.count_nonzero(table, axis=1)
    stored = table.data if is_sparse(table) else table[table != 0.0]
    if (entries > 1).any() or (stored != 1.0).any():
        return None
    columns = np.full(table.shape[0], -1)
    columns[entries == 1] = table.indices if is_sparse(table) else np.nonzero(table)[1]
    found: list[int] = columns.tolist()
    return found


def units(columns: Sequence[int], dimension: int) -> Floats | Sparse:
    """Return the rows of which `one_hot_columns` are these; many of them sparse."""
    places = np.array(columns, dtype=np.int64)
    if not (places.ndim == 1 and (places >= -1).all() and (places < dimension).all()):
        raise ValueError(f"observer: expected columns in [-1, {dimension}), got {columns!r:.80}")
    at, ones = np.flatnonzero(places >= 0), places[places >= 0]
    if len(places) * dimension > MOST_DENSE:
        from scipy.sparse import csr_array

        starts = np.concatenate([[0], np.cumsum(places >= 0)])
        return csr_array((np.ones(len(ones)), ones, starts), shape=(len(places), dimension))
    rows = np.zeros((len(places), dimension))
    rows[at, ones] = 1.0
    return rows


def observed(name: str, value: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return observations in the dtype of their space; those of integers must be integers that it holds."""
    array = as_numbers(name, value)
    if array.shape != shape:
        raise ValueError(f"{name}: expected shape {shape}, got {array.shape}")
    if array.dtype == dtype:
        return array
    with np.errstate(invalid="ignore", over="ignore"):
        kept = array.astype(dtype)
    if dtype.kind in "iub" and not np.array_equal(kept, array):
        raise ValueError(f"{name}: expected numbers that {dtype} holds, got {array[kept != array].flat[0]}")
    return kept
