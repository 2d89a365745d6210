"""What a run leaves behind, and its file."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from dmq_fast._version import __version__
from dmq_fast.arithmetic import ExactGreedy
from dmq_fast.kernels import Fixed, Greedy, Rule, Uniform
from dmq_fast.policy import Policy

if TYPE_CHECKING:
    from dmq_fast.environments.finite import FiniteMDP

__all__ = ["FileError", "History", "OracleCall", "Result", "load"]

# Version of the file format: raised whenever an older reader could not understand a newer file.
FORMAT = 1


class FileError(ValueError):
    """A file is not one that dmq_fast wrote and this version can read; the message holds its path."""


class OracleCall(NamedTuple):
    """One oracle call (Algorithm 3, line 5).

    `call` is the number of the sampler call that drew D~, `target`, `action` and `member` say with which policy:
    pi_h^a for h = target, a = action and pi_h = cover[h][member], or the returned policy where target is -1.
    `level` is h', `decision` the answer, `value` the oracle's v (NaN where it was not computed).
    """

    call: int
    target: int
    action: int
    member: int
    level: int
    decision: bool
    value: float


class History(Sequence[OracleCall]):
    """Every oracle call of a run, in order.

    Calls on consecutive levels of one batch of trajectories are kept as one record, since a run makes tens of
    thousands.

    Attributes
    ----------
    n_calls : int
        How many calls there are.
    """

    def __init__(self) -> None:
        self._records: list[tuple[int, ...]] = []
        self._values: list[NDArray[np.float64]] = []
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
        """Record the calls on levels top, top - 1, ..., bottom: False but for `decision` at the bottom."""
        self._records.append((call, target, action, member, top, bottom, decision))
        self._values.append(values)
        self._columns = None
        self.n_calls += top - bottom + 1

    def note_potential(self, before: float, after: float) -> None:
        """Record log det(S + eps_r I) before and after the M_2 of the next True is added to S."""
        self._potentials.append((before, after))

    @property
    def potentials(self) -> NDArray[np.float64]:
        """The potential of Lemma A.5 at each True, in order, shape (Trues, 2): before and after its M_2 is added.

        NaN where S + eps_r I has no Cholesky factor in float64, eps_r being too small, and where the file of a result
        does not tell.
        """
        return np.array(self._potentials, dtype=np.float64).reshape(-1, 2)

    def freeze(self) -> History:
        """Return a copy that later appends do not change."""
        copy = History()
        copy._records, copy._values, copy.n_calls = list(self._records), list(self._values), self.n_calls
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
        values = [
            v if len(v) == length else np.full(length, np.nan) for v, length in zip(self._values, lengths, strict=True)
        ]
        columns["value"] = np.concatenate([np.empty(0), *values])
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
        return f"<History of {self.n_calls} oracle calls>"


@dataclass(frozen=True, eq=False)
class Result:
    """What `DMQ.learn` returns. Compared by identity; compare the fields that matter.

    Attributes
    ----------
    policy : Policy
        Greedy on `theta`; at levels that a budget left unlearned, what the initial policy does.
    theta : numpy.ndarray, shape (H, K, d)
        Estimates theta_h^a; zero at levels never learned. Of a run in extended precision, rounded to float64: the rules
        of `policy`, see `arithmetic.ExactGreedy`, hold them exactly, in memory and in a file.
    cover : tuple of H tuples of Policy
        Pi_h.
    history : History
        Every oracle call.
    status : str
        "finished", or why the run ended early: "max_trajectories", "max_policies", "max_seconds", "n_samples",
        "interrupted".
    variant : str
    options, parameters : dict
        How it was run: `Options` and `Parameters` of dmq_fast.dmq, and R as "ratio".
    function_class : dict
        What the `FunctionClass` says of itself: "name", and what else tells it from others.
    counts : dict
        "trajectories" by purpose (check: Algorithm 3; regression, states: Algorithm 2; final: test of the returned
        policy), "oracle_calls", "trues", "algorithm_2_runs", "sampler_calls".
    seconds : dict
        Wall-clock time by phase, and "total".
    key : tuple of two int
        The run's 128-bit key; ``DMQ(..., rng=Stream.from_key(key))`` repeats it.
    warnings : tuple of str
        Reasons to doubt the result.
    """

    policy: Policy
    theta: NDArray[np.float64]
    cover: tuple[tuple[Policy, ...], ...]
    history: History
    status: str
    variant: str
    options: dict[str, Any]
    parameters: dict[str, Any]
    function_class: dict[str, Any]
    counts: dict[str, Any]
    seconds: dict[str, float]
    key: tuple[int, int]
    warnings: tuple[str, ...]

    @property
    def cover_sizes(self) -> tuple[int, ...]:
        """|Pi_h| by level."""
        return tuple(len(policies) for policies in self.cover)

    @property
    def n_trajectories(self) -> int:
        """Trajectories drawn, for whatever purpose."""
        return sum(self.counts["trajectories"].values())

    def certificate(self, mdp: FiniteMDP | None = None, *, epsilon: float | None = None) -> dict[str, Any]:
        """Hold the run against the lemmas of the paper; see `dmq_fast.certificate.certificate`."""
        from dmq_fast.certificate import certificate

        return certificate(self, mdp, epsilon=epsilon)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the result to `path` (.npz, no pickles): to a temporary file first, then moved into place.

        Raises
        ------
        OSError
            If the file cannot be written; what stood at `path` before is unharmed.
        """
        path = Path(path).resolve()
        table = RuleTable()
        arrays = {
            "policy": table.encode([self.policy]),
            "cover": table.encode([policy for policies in self.cover for policy in policies]),
            "cover_sizes": np.array(self.cover_sizes, dtype=np.int64),
            "theta": self.theta,
            **{f"history_{name}": column for name, column in self.history.columns().items()},
            "history_potentials": self.history.potentials,
            **table.arrays(self.theta.shape[1:]),
        }
        header = {
            "format": FORMAT,
            "dmq_fast": __version__,
            "status": self.status,
            "variant": self.variant,
            "options": self.options,
            "parameters": self.parameters,
            "function_class": self.function_class,
            "counts": self.counts,
            "seconds": self.seconds,
            "key": [f"{word:#018x}" for word in self.key],
            "warnings": list(self.warnings),
        }
        with replacing(path) as file:
            np.savez_compressed(file, header=np.array(json.dumps(header)), **arrays)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return (
            f"<Result: {self.status}, {self.variant}, {self.n_trajectories} trajectories, "
            f"|Pi_h| <= {max(self.cover_sizes)}, {len(self.warnings)} warning(s)>"
        )


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file beside `path` for writing; move it to `path` when the block ends well, remove it when not."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        try:
            file = temporary.open("xb")
        except OSError as error:  # it names the temporary file, which nobody asked for
            error.filename = str(path)
            raise
        with file:
            yield file
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def load(path: str | os.PathLike[str]) -> Result:
    """Read a result written by `Result.save`.

    Raises
    ------
    OSError
        If the file cannot be opened.
    FileError
        If it is not a saved result, is damaged, or was written in a newer format.
    """
    path = Path(path)
    with path.open("rb") as file:
        try:
            with np.load(file, allow_pickle=False) as archive:
                # Reading an array stops short of the end of its entry, where the checksum would be looked at.
                if (damaged := archive.zip.testzip()) is not None:
                    raise ValueError(f"checksum of {damaged}")
                arrays = {name: archive[name] for name in archive.files}
            header = json.loads(arrays["header"].item())
            version = header["format"]
        except Exception as error:  # a damaged archive makes zipfile and NumPy raise nearly anything
            raise FileError(f"{path}: not a result saved by dmq_fast, or damaged ({error})") from error
    if version != FORMAT:
        raise FileError(
            f"{path}: written in format {version} by dmq_fast {header.get('dmq_fast')}; expected format {FORMAT}"
        )
    try:
        return decode(header, arrays)
    except (ValueError, KeyError, TypeError, IndexError, StopIteration, ArithmeticError) as error:
        raise FileError(f"{path}: damaged ({type(error).__name__}: {error})") from error


def decode(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Result:
    """Rebuild a result from the contents of its file; ValueError names what does not fit."""
    theta = member(arrays, "theta", np.float64, (None, None, None))
    horizon = len(theta)
    rules = RuleTable.decode(arrays, theta.shape[1:])
    policies = [
        [Policy([rules[i] for i in row]) for row in member(arrays, name, np.int64, (None, horizon), 0, len(rules))]
        for name in ("policy", "cover")
    ]
    sizes = member(arrays, "cover_sizes", np.int64, (horizon,), least=1)
    if len(policies[0]) != 1 or len(policies[1]) != sizes.sum():
        raise ValueError(f"policy, cover: expected 1 and {sizes.sum()} policies, got {[len(p) for p in policies]}")
    ends = np.cumsum(sizes).tolist()
    types = dict.fromkeys(OracleCall._fields, np.int64) | {"decision": np.bool_, "value": np.float64}
    columns = [member(arrays, f"history_{name}", kind, (None,)).tolist() for name, kind in types.items()]
    history = History()
    for call, target, action, policy, level, decision, value in zip(*columns, strict=True):
        history.append(call, target, action, policy, level, level, decision, np.array([value]))
    trues = sum(columns[5])
    arrays.setdefault("history_potentials", np.full((trues, 2), np.nan))
    for before, after in member(arrays, "history_potentials", np.float64, (trues, 2)).tolist():
        history.note_potential(before, after)
    kinds = {"status": str, "variant": str} | dict.fromkeys(
        ("options", "parameters", "function_class", "counts", "seconds"), dict
    )
    for name, kind in (kinds | {"key": list, "warnings": list}).items():
        if not isinstance(header[name], kind):
            raise ValueError(f"{name}: expected {kind.__name__}, got {header[name]!r}")
    return Result(
        policy=policies[0][0],
        theta=theta,
        cover=tuple(tuple(policies[1][end - size : end]) for size, end in zip(sizes, ends, strict=True)),
        history=history,
        key=(int(header["key"][0], 16), int(header["key"][1], 16)),
        warnings=tuple(header["warnings"]),
        **{name: header[name] for name in kinds},
    )


def member(
    arrays: dict[str, NDArray[Any]],
    name: str,
    dtype: type[np.generic],
    shape: tuple[int | None, ...],
    least: int | None = None,
    below: int | None = None,
) -> NDArray[Any]:
    """Return one array of a file if it has this dtype and shape, and entries in this range."""
    array = arrays[name]
    fits = array.ndim == len(shape) and all(want in (None, have) for want, have in zip(shape, array.shape, strict=True))
    # Text is as wide as its longest entry.
    same = array.dtype.kind == "U" if dtype is np.str_ else array.dtype == dtype
    if not (same and fits):
        raise ValueError(f"{name}: expected {dtype.__name__} of shape {shape}, got {array.dtype} of {array.shape}")
    if (least is not None and (array < least).any()) or (below is not None and (array >= below).any()):
        raise ValueError(f"{name}: expected entries in [{least}, {below}), got {array.min()} to {array.max()}")
    return array


class RuleTable:
    """Numbers the distinct rules of many policies: policies share most of theirs."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []
        self.numbers: dict[int, int] = {}

    def encode(self, policies: list[Policy]) -> NDArray[np.int64]:
        """Return the numbers of the policies' rules, shape (len(policies), H)."""
        return np.array([[self._number(rule) for rule in policy.rules] for policy in policies], dtype=np.int64)

    def _number(self, rule: Rule) -> int:
        # By identity: `self.rules` keeps every rule alive, so an id names one rule.
        number = self.numbers.setdefault(id(rule), len(self.rules))
        if number == len(self.rules):
            self.rules.append(rule)
        return number

    def arrays(self, shape: tuple[int, ...]) -> dict[str, NDArray[Any]]:
        """Return the rules as arrays: the fixed action, -1 for uniform, -2 - i for greedy on weights[i].

        Weights that are fractions are counted on behind those of float64, and written in hexadecimal digits.
        """
        codes: list[int] = []
        weights: list[NDArray[np.float64]] = []
        exact: list[list[list[str]]] = []
        exact_at: list[int] = []
        for rule in self.rules:
            if isinstance(rule, Fixed):
                codes.append(rule.action)
            elif isinstance(rule, Greedy):
                codes.append(-2 - len(weights))
                weights.append(rule.theta)
            elif isinstance(rule, ExactGreedy):
                exact_at.append(len(codes))
                codes.append(0)
                exact.append([[f"{w.numerator:x}/{w.denominator:x}" for w in row] for row in rule.exact])
            else:
                codes.append(-1)
        for i, at in enumerate(exact_at, len(weights)):
            codes[at] = -2 - i
        fractions = {"rule_fractions": np.array(exact, dtype=np.str_)} if exact else {}
        return fractions | {
            "rule_codes": np.array(codes, dtype=np.int64),
            "rule_weights": np.array(weights, dtype=np.float64).reshape(-1, *shape),
        }

    @staticmethod
    def decode(arrays: dict[str, NDArray[Any]], shape: tuple[int, ...]) -> list[Rule]:
        """Return the rules of `arrays`, with weights of the given shape (K, d)."""
        weights = member(arrays, "rule_weights", np.float64, (None, *shape))
        greedy: list[Rule] = list(map(Greedy, weights))
        if "rule_fractions" in arrays:
            greedy += map(exact_rule, member(arrays, "rule_fractions", np.str_, (None, *shape)))
        codes = member(arrays, "rule_codes", np.int64, (None,), -1 - len(greedy), shape[0])
        return [Fixed(code) if code >= 0 else Uniform() if code == -1 else greedy[-2 - code] for code in codes.tolist()]


def exact_rule(weights: NDArray[Any]) -> ExactGreedy:
    """Return the rule whose fractions (K, d) are written in hexadecimal digits."""
    parts = [[text.split("/") for text in row] for row in weights]
    return ExactGreedy([[Fraction(int(above, 16), int(below, 16)) for above, below in row] for row in parts])
