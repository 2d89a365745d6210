"""The records of runs: every oracle call with the potential at each True, learning curves, and looks of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.words import number_of

__all__ = ["PHASES", "RETURNED", "Curve", "History", "Look", "Looks", "OracleCall"]

RETURNED = -1
"""Value of `target` and `action` in an oracle call that tests the returned policy instead of a pi_h^a."""


class OracleCall(NamedTuple):
    """One oracle call (Algorithm 3, line 5).

    `call` is the number of the sampler call that drew D~. Its policy was pi_h^a for h = `target`, a = `action` and
    pi_h = cover[h][`member`], or the returned policy where `target` is -1. `level` is h', `decision` the answer, and
    `value` the oracle's v (NaN where it was not computed).
    """

    call: int
    target: int
    action: int
    member: int
    level: int
    decision: bool
    value: float


class History(Sequence[OracleCall]):
    """Sequence of every oracle call of a run, in order. `columns` returns it as arrays.

    Attributes
    ----------
    n_calls : int
        Number of calls.

    Notes
    -----
    The calls of one scan, on consecutive levels of one batch of trajectories, are kept as one record. Plain columns
    would be simpler, but a run on the lock of 100 levels makes 66,657 calls in 1,362 scans: records take 0.6 MB and
    0.4 ms of the run, columns 3.3 MB and 10 ms, and their ratio grows with the horizon.

    Examples
    --------
    >>> import dmq_fast as dmq
    >>> env = dmq.environments.combination_lock(horizon=5, n_actions=3, rng=0)
    >>> history = dmq.DMQ(env, n_samples=20, rng=1).learn().history
    >>> history[0]
    OracleCall(call=5, target=3, action=0, member=0, level=4, decision=False, value=nan)
    >>> columns = history.columns()
    >>> int(columns["decision"].sum()) == len(history.potentials)
    True
    """

    def __init__(self) -> None:
        self._records: list[tuple[int, ...]] = []
        self._values: dict[int, NDArray[np.float64]] = {}
        self._potentials: list[tuple[float, float]] = []
        self._columns: dict[str, NDArray[Any]] | None = None
        self.n_calls = 0

    def append(
        self,
        call: int,
        target: int,
        action: int,
        member: int,
        top: int,
        bottom: int,
        decision: bool,
        values: NDArray[np.float64],
    ) -> None:
        """Append the calls on levels top, top - 1, ..., bottom: all False, except for `decision` at the bottom."""
        if len(values):
            self._values[len(self._records)] = values
        self._records.append((call, target, action, member, top, bottom, decision))
        self._columns = None
        self.n_calls += top - bottom + 1

    def note_potential(self, before: float, after: float) -> None:
        """Append log det(S + eps_r I) before and after the M_2 of the next True is added to S."""
        self._potentials.append((before, after))

    @property
    def potentials(self) -> NDArray[np.float64]:
        """The potential of Lemma A.5 at each True, in order, shape (Trues, 2): before and after its M_2 is added.

        NaN where eps_r is too small for S + eps_r I to have a Cholesky factor in float64, and in results of files that
        hold no potentials.
        """
        return np.array(self._potentials, dtype=np.float64).reshape(-1, 2)

    def freeze(self) -> History:
        """Return a copy that later appends do not change."""
        copy = History()
        copy._records, copy._values, copy.n_calls = list(self._records), dict(self._values), self.n_calls
        copy._potentials = list(self._potentials)
        return copy

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the calls as arrays of equal length by field of `OracleCall`; read-only, computed once."""
        if self._columns is None:
            self._columns = self._expand()
            for column in self._columns.values():
                column.setflags(write=False)
        return self._columns

    def _expand(self) -> dict[str, NDArray[Any]]:
        records = np.array(self._records, dtype=np.int64).reshape(-1, 7)
        tops, bottoms = records[:, 4], records[:, 5]
        lengths = tops - bottoms + 1
        columns: dict[str, NDArray[Any]] = {
            name: np.repeat(records[:, i], lengths) for i, name in enumerate(OracleCall._fields[:4])
        }
        last = np.cumsum(lengths) - 1
        offset = np.arange(self.n_calls) - np.repeat(last - lengths + 1, lengths)
        columns["level"] = np.repeat(tops, lengths) - offset
        columns["decision"] = np.zeros(self.n_calls, dtype=bool)
        columns["decision"][last] = records[:, 6] != 0
        columns["value"] = np.full(self.n_calls, np.nan)
        for i, values in self._values.items():
            if len(values) == lengths[i]:
                columns["value"][last[i] + 1 - lengths[i] : last[i] + 1] = values
        return columns

    def __len__(self) -> int:
        return self.n_calls

    def __iter__(self) -> Iterator[OracleCall]:
        columns = self.columns()
        return map(OracleCall._make, zip(*(columns[name].tolist() for name in OracleCall._fields), strict=True))

    @overload
    def __getitem__(self, index: int) -> OracleCall: ...
    @overload
    def __getitem__(self, index: slice) -> list[OracleCall]: ...
    def __getitem__(self, index: int | slice) -> OracleCall | list[OracleCall]:
        positions = range(self.n_calls)[index]
        if isinstance(positions, range):
            return [self[i] for i in positions]
        columns = self.columns()
        return OracleCall(*(columns[name][positions].item() for name in OracleCall._fields))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, History):
            return NotImplemented
        mine, theirs = self.columns(), other.columns()
        same = all(np.array_equal(mine[k], theirs[k], equal_nan=k == "value") for k in mine)
        return same and np.array_equal(self.potentials, other.potentials, equal_nan=True)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<History of {number_of(self.n_calls, 'oracle call')}>"


class Curve(NamedTuple):
    """The learning curve at the checkpoints of a run.

    Attributes
    ----------
    episodes : numpy.ndarray of int64, shape (m,)
        Episodes learned from, ascending.
    value : numpy.ndarray, shape (m,)
        Value of the policy that would be returned after so many episodes.
    standard_error : numpy.ndarray, shape (m,)
        0 where the value is exact.
    reward : numpy.ndarray, shape (m,)
        Sum of the returns of all episodes so far, as they were drawn; the regret is ``episodes * optimal_value -
        reward``, which may fall by luck.
    """

    episodes: NDArray[np.int64]
    value: NDArray[np.float64]
    standard_error: NDArray[np.float64]
    reward: NDArray[np.float64]


PHASES = ("explore", "refine", "test")
"""Phases of a self-stopping run; a file holds their numbers."""

APART = 1.02
"""A look is kept where the number of episodes has grown so many times since the one before, or the phase is another."""


class Look(NamedTuple):
    """What a self-stopping run knew after some episodes, in points.

    `upside` is what one outcome that no episode showed may add at the start, by the plan of the moment, and `predicted`
    the value by the fits of the moment. `mean_return` is that of the policy that plays: of the episodes of a test so
    far, or of a candidate of a run by returns. NaN where there is no such number.
    """

    episodes: int
    phase: str
    upside: float
    predicted: float
    mean_return: float = math.nan


class Looks(Sequence[Look]):
    """A small record of a self-stopping run over its episodes, ascending. `columns` returns it as arrays.

    Parameters
    ----------
    looks : iterable of Look, optional

    Examples
    --------
    >>> looks = Looks()
    >>> for n in (1, 100, 101, 103):
    ...     looks.note(Look(n, "explore", 1 / n, 0.5))
    >>> looks.columns()["episodes"].tolist()
    [1, 100, 103]
    """

    def __init__(self, looks: Iterable[Look] = ()) -> None:
        self._looks = list(looks)

    def wants(self, episodes: int, phase: str) -> bool:
        """Return whether a look after so many episodes would be kept."""
        last = self._looks[-1] if self._looks else None
        return last is None or phase != last.phase or episodes >= APART * last.episodes

    def note(self, look: Look) -> None:
        """Keep a look, if it is far enough from the one before."""
        if self.wants(look.episodes, look.phase):
            self._looks.append(look)

    def ended(self, look: Look) -> Looks:
        """Return a copy that ends with this look."""
        kept = self._looks[:-1] if self._looks and self._looks[-1].episodes == look.episodes else self._looks
        return Looks([*kept, look])

    def columns(self) -> dict[str, Any]:
        """Return the looks as columns of equal length by field of `Look`: arrays, and a list of the phases."""
        columns = list(zip(*self._looks, strict=True)) or [()] * len(Look._fields)
        found: dict[str, Any] = {name: np.array(column, dtype=np.float64) for name, column in
                                 zip(Look._fields, columns, strict=True) if name != "phase"}  # fmt: skip
        return found | {"episodes": found["episodes"].astype(np.int64), "phase": list(columns[1])}

    def __len__(self) -> int:
        return len(self._looks)

    @overload
    def __getitem__(self, index: int) -> Look: ...
    @overload
    def __getitem__(self, index: slice) -> list[Look]: ...
    def __getitem__(self, index: int | slice) -> Look | list[Look]:
        return self._looks[index]

    def encode(self) -> NDArray[np.float64]:
        """Return the looks as an array (m, 5) for a file, phases by their numbers."""
        rows = [(one.episodes, PHASES.index(one.phase), *one[2:]) for one in self._looks]
        return np.array(rows, dtype=np.float64).reshape(-1, len(Look._fields))

    @classmethod
    def decode(cls, rows: NDArray[np.float64]) -> Looks:
        """Return the looks that `encode` wrote down; ValueError if they are none."""
        if not (np.isin(rows[:, 1], range(len(PHASES))) & (rows[:, 0] >= 0)).all():
            raise ValueError(f"looks: expected numbers of episodes and phases < {len(PHASES)}, got others")
        return cls(Look(int(n), PHASES[int(phase)], *rest) for n, phase, *rest in rows.tolist())

    def __repr__(self) -> str:
        return f"<{number_of(len(self), 'look')}>"
