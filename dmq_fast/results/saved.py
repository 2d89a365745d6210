"""The file format of a result: .npz with a JSON header and no pickles."""

from __future__ import annotations

import os
import zipfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.files import FileError, replacing
from dmq_fast._support.json_text import Form, check_form, from_json, to_json
from dmq_fast._version import __version__
from dmq_fast.kernels import Fixed, Greedy, Rule, Stream, Uniform
from dmq_fast.policy import Policy
from dmq_fast.results.history import History, OracleCall
from dmq_fast.rules import ExactGreedy

__all__ = ["STOPPING", "WITH_COVERS", "read", "write"]

# Versions of the file format: raised whenever an older reader could not understand a newer file. Results without
# covers, of runs that stop by themselves, have the second.
FORMAT, STOPPING_FORMAT = 1, 2

ANY_RUN: dict[str, Form] = {
    "status": str,
    "variant": str,
    "options": dict,
    "parameters": dict,
    "function_class": {"name": str},
    "counts": {"trajectories": {...: int}},
    "seconds": {"total": float, ...: float},
    "key": [str, str],
    "warnings": [str],
}
WITH_COVERS = ANY_RUN | {
    "parameters": {"n_samples": int, "eps_t": float, "eps_r": float, "ratio": float},
    "counts": ANY_RUN["counts"] | dict.fromkeys(("oracle_calls", "trues", "algorithm_2_runs", "sampler_calls"), int),
}
STOPPING = ANY_RUN | {
    "stopping": {
        "reason": str,
        "tests_made": int,
        "test_size": int,
        "mean_return": int | float | None,
        "interval": [float, float],
        "loss_quantile": float,
        "p_min": float,
        "disagreements": [dict],
    }
}
"""What the headers hold that the package reads of a result."""


def write(path: str | os.PathLike[str], result: Any) -> None:
    """Write the fields of a `Result` to a file; see `Result.save`."""
    path = Path(path).resolve()
    table = RuleTable()
    arrays = {
        "policy": table.encode([result.policy]),
        "cover": table.encode([policy for policies in result.cover for policy in policies]).reshape(
            -1, len(result.policy.rules)
        ),
        "cover_sizes": np.array(result.cover_sizes, dtype=np.int64),
        "theta": result.theta,
        **{f"history_{name}": column for name, column in result.history.columns().items()},
        "history_potentials": result.history.potentials,
        **table.arrays(result.theta.shape[1:]),
    }
    header = {
        "format": FORMAT if result.stopping is None else STOPPING_FORMAT,
        "dmq_fast": __version__,
        "status": result.status,
        "variant": result.variant,
        "options": result.options,
        "parameters": result.parameters,
        "function_class": result.function_class,
        "counts": result.counts,
        "seconds": result.seconds,
        "key": [f"{word:#018x}" for word in result.key],
        "warnings": list(result.warnings),
    }
    if result.stopping is not None:
        header["stopping"] = result.stopping
    with replacing(path) as file:
        np.savez_compressed(file, header=np.array(to_json(header)), **arrays)


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the fields of the `Result` in a file.

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
            if not zipfile.is_zipfile(file):  # NumPy would advise to load pickles
                raise ValueError("no .npz archive")
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                # NumPy stops reading an array before the end of its entry, and so never compares the checksum.
                if (damaged := archive.zip.testzip()) is not None:
                    raise ValueError(f"wrong checksum of {damaged}")
                arrays = {name: archive[name] for name in archive.files}
            header = from_json(arrays["header"].item())
            version = header["format"]
        except Exception as error:  # zipfile and NumPy raise many kinds of errors on damaged archives
            raise FileError(f"{path}: not a result saved by dmq_fast, or damaged ({error})") from error
    if version not in (FORMAT, STOPPING_FORMAT):
        raise FileError(
            f"{path}: written in format {version} by dmq_fast {header.get('dmq_fast')}; expected format {FORMAT} or "
            f"{STOPPING_FORMAT}"
        )
    try:
        return decode(header, arrays)
    except (ValueError, KeyError, TypeError, IndexError, StopIteration, ArithmeticError) as error:
        raise FileError(f"{path}: damaged ({type(error).__name__}: {error})") from error


def decode(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Return the fields of a result from the contents of its file; ValueError names one that does not fit."""
    theta = member(arrays, "theta", np.float64, (None, None, None))
    horizon, n_actions = theta.shape[:2]
    rules = RuleTable.decode(arrays, theta.shape[1:])
    policies = [
        [Policy([rules[i] for i in row]) for row in member(arrays, name, np.int64, (None, horizon), 0, len(rules))]
        for name in ("policy", "cover")
    ]
    stopping = header["format"] == STOPPING_FORMAT
    sizes = member(arrays, "cover_sizes", np.int64, (horizon,), least=0 if stopping else 1)
    if len(policies[0]) != 1 or len(policies[1]) != sizes.sum():
        raise ValueError(f"policy, cover: expected 1 and {sizes.sum()} policies, got {[len(p) for p in policies]}")
    ends = np.cumsum(sizes).tolist()
    types = dict.fromkeys(OracleCall._fields, np.int64) | {"decision": np.bool_, "value": np.float64}
    ranges = {"call": (0, None), "target": (-1, horizon), "action": (-1, n_actions), "level": (0, horizon)}
    ranges["member"] = (0, int(sizes.max()))
    columns = [
        member(arrays, f"history_{name}", kind, (None,), *ranges.get(name, ())).tolist() for name, kind in types.items()
    ]
    history = History()
    for call, target, action, policy, level, decision, value in zip(*columns, strict=True):
        history.append(call, target, action, policy, level, level, decision, np.array([value]))
    trues = sum(columns[5])
    arrays.setdefault("history_potentials", np.full((trues, 2), np.nan))
    for before, after in member(arrays, "history_potentials", np.float64, (trues, 2)).tolist():
        history.note_potential(before, after)
    form = STOPPING if stopping else WITH_COVERS
    check_form("header", header, form)
    if stopping and header["stopping"]["mean_return"] is not None:
        for name in ("gaps", "largest_v"):
            check_form(f"stopping.{name}", by_level := header["stopping"][name], [float])
            if len(by_level) != horizon:
                raise ValueError(f"stopping.{name}: expected {horizon} numbers, got {len(by_level)}")
    cover = tuple(tuple(policies[1][end - size : end]) for size, end in zip(sizes, ends, strict=True))
    return {name: header[name] for name in form} | {
        "policy": policies[0][0],
        "theta": theta,
        "cover": cover,
        "history": history,
        "key": Stream.from_key([int(word, 16) for word in header["key"]]).key,
        "warnings": tuple(header["warnings"]),
    }


def member(
    arrays: dict[str, NDArray[Any]],
    name: str,
    dtype: type[np.generic],
    shape: tuple[int | None, ...],
    least: int | None = None,
    below: int | None = None,
) -> NDArray[Any]:
    """Return one array of a file; ValueError if it has another dtype or shape, or entries outside this range."""
    array = arrays.get(name)
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{name}: expected an array, got {'none' if array is None else 'another file'}")
    fits = array.ndim == len(shape) and all(want in (None, have) for want, have in zip(shape, array.shape, strict=True))
    # The dtype of text depends on its longest entry.
    same = array.dtype.kind == "U" if dtype is np.str_ else array.dtype == dtype
    if not (same and fits):
        raise ValueError(f"{name}: expected {dtype.__name__} of shape {shape}, got {array.dtype} of {array.shape}")
    if (least is not None and (array < least).any()) or (below is not None and (array >= below).any()):
        raise ValueError(f"{name}: expected entries in [{least}, {below}), got {array.min()} to {array.max()}")
    return array


class RuleTable:
    """Table of the distinct rules of many policies, which share most of theirs."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []
        self.indices: dict[int, int] = {}

    def encode(self, policies: list[Policy]) -> NDArray[np.int64]:
        """Return the index in the table of each rule of the policies, shape (len(policies), H)."""
        return np.array([[self._index(rule) for rule in policy.rules] for policy in policies], dtype=np.int64)

    def _index(self, rule: Rule) -> int:
        # By identity: `self.rules` keeps every rule alive, so that no two rules share an id.
        index = self.indices.setdefault(id(rule), len(self.rules))
        if index == len(self.rules):
            self.rules.append(rule)
        return index

    def arrays(self, shape: tuple[int, ...]) -> dict[str, NDArray[Any]]:
        """Return the rules as arrays: codes, weights of float64, and weights that are fractions, if there are any.

        The code of a rule is its fixed action, -1 for uniform, or -2 - i for greedy on the i-th weights, those of
        float64 first. Fractions are written in hexadecimal digits.
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
    """Return the rule with these weights (K, d), fractions in hexadecimal digits."""
    parts = [[text.split("/") for text in row] for row in weights]
    return ExactGreedy([[Fraction(int(above, 16), int(below, 16)) for above, below in row] for row in parts])
