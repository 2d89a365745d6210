"""The file format of a result: .npz with a JSON header and no pickles."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.checks import as_path
from dmq_fast._support.files import FileError, replacing
from dmq_fast._support.json_text import Form, check_form, from_json, to_json
from dmq_fast.kernels import Fixed, Greedy, Rule, Stream, Uniform
from dmq_fast.kernels.build import build
from dmq_fast.policy import BoundPolicy, Policy, rebound
from dmq_fast.results.history import Curve, History, Look, Looks, OracleCall
from dmq_fast.rules import ExactGreedy
from dmq_fast.table_policy import TablePolicy

__all__ = ["FORMS", "read", "renamed", "write"]

# Versions of the file format: raised whenever an older reader could not understand a newer file. Each kind of result
# has its own. Format 2 is that of self-stopping runs in 0.2.0, which have empty covers.
FORMATS = {"dmq": 1, "self-stopping": 3, "baseline": 4}
KINDS = {number: kind for kind, number in FORMATS.items()} | {2: "self-stopping"}

ANY_RUN: dict[str, Form] = {
    "status": str,
    "parameters": dict,
    "counts": dict,
    "seconds": {"total": float, ...: float},
    "key": [str, str],
    "warnings": [str],
}
FORMS: dict[str, dict[str, Form]] = {
    "dmq": ANY_RUN
    | {
        "variant": str,
        "options": dict,
        "parameters": {"n_samples": int, "eps_t": float, "eps_r": float, "ratio": float},
        "function_class": {"name": str},
        "counts": {
            "trajectories": {...: int},
            **dict.fromkeys(("oracle_calls", "trues", "algorithm_2_runs", "sampler_calls"), int),
        },
    },
    "self-stopping": ANY_RUN
    | {
        "parameters": dict.fromkeys(("epsilon", "delta", "p_min", "log_confidence"), float),
        "counts": {"trajectories": {...: int}},
        "stopping": {
            "reason": str,
            "tests_made": int,
            "test_size": int,
            "mean_return": int | float | None,
            "interval": [float, float],
        },
    },
    "baseline": ANY_RUN | {"algorithm": str},
}
"""The entries of headers that the package reads, by kind of result."""


BY_FITS: dict[str, Form] = {"loss_quantile": float, "p_min": float, "disagreements": [dict]}
"""Entries of `stopping` of a run whose promise rests on fits."""

BY_RETURNS: dict[str, Form] = {"candidates": int, "look_ahead": int, "predicted": float | None, "upside": float | None}
"""Those of one whose promise rests on returns."""


def write(path: str | os.PathLike[str], kind: str, fields: Mapping[str, Any]) -> None:
    """Write the fields of a `Result` to a file; see `Result.save`."""
    path = as_path("path", path).resolve()
    header = {"format": FORMATS[kind], "dmq_fast": build()} | {name: fields[name] for name in FORMS[kind]}
    if isinstance(fields["policy"], BoundPolicy):
        header["observer"] = fields["policy"].observer.describe()
    header |= {"key": [f"{word:#018x}" for word in fields["key"]], "warnings": list(fields["warnings"])}
    arrays: dict[str, Any] = {"header": np.array(to_json(header)), **ENCODERS[kind](fields)}
    with replacing(path) as file:
        np.savez_compressed(file, **arrays)


def read(path: str | os.PathLike[str]) -> tuple[str, dict[str, Any]]:
    """Return the kind of the `Result` in a file, and its fields.

    Raises
    ------
    OSError
        If the file cannot be opened.
    FileError
        If it is not a saved result, is damaged, or was written in a newer format.
    """
    path = as_path("path", path)
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
    if not isinstance(version, int) or version not in KINDS:
        raise FileError(
            f"{path}: written in format {version} by dmq_fast {header.get('dmq_fast')}; expected one of "
            f"{', '.join(map(str, sorted(KINDS)))}"
        )
    try:
        return KINDS[version], decode(header, arrays)
    except (ValueError, KeyError, TypeError, IndexError, StopIteration, ArithmeticError) as error:
        raise FileError(f"{path}: damaged ({type(error).__name__}: {error})") from error


def decode(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Return the fields of a result from the contents of its file; ValueError names one that does not fit."""
    kind = KINDS[header["format"]]
    check_form("header", header, FORMS[kind])
    fields = {name: header[name] for name in FORMS[kind]} | DECODERS[kind](header, arrays)
    key = Stream.from_key([int(word, 16) for word in header["key"]]).key
    if "observer" in header:
        fields["policy"] = rebound(fields["policy"].rules, header["observer"])
    return fields | {"key": key, "warnings": tuple(header["warnings"])}


# ---- Runs of Algorithms 1 to 3


def encode_dmq(fields: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return policy, covers, estimates and history as arrays."""
    table, policy, cover, history = RuleTable(), fields["policy"], fields["cover"], fields["history"]
    every = [member for members in cover for member in members]
    return {
        "policy": table.encode([policy]),
        "cover": table.encode(every).reshape(-1, policy.horizon),
        "cover_sizes": np.array([len(members) for members in cover], dtype=np.int64),
        "theta": fields["theta"],
        **{f"history_{name}": column for name, column in history.columns().items()},
        "history_potentials": history.potentials,
        **table.arrays(fields["theta"].shape[1:]),
    }


def decode_dmq(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Return policy, covers, estimates and history; the reverse of `encode_dmq`."""
    policies, theta = policies_of(arrays)
    horizon, n_actions = theta.shape[:2]
    sizes = member(arrays, "cover_sizes", np.int64, (horizon,), least=1)
    if len(policies["cover"]) != sizes.sum():
        raise ValueError(f"cover: expected {sizes.sum()} policies, got {len(policies['cover'])}")
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
    return {
        "policy": policies["policy"][0],
        "theta": theta,
        "cover": tuple(tuple(policies["cover"][end - size : end]) for size, end in zip(sizes, ends, strict=True)),
        "history": history,
        # Version 0.2.0 called every run finished that came to its end.
        "status": "ended" if header["status"] == "finished" else header["status"],
    }


def policies_of(
    arrays: dict[str, NDArray[Any]], names: Sequence[str] = ("policy", "cover")
) -> tuple[dict[str, list[Policy]], NDArray[np.float64]]:
    """Return the policies in these arrays, the one of "policy" among them, and theta."""
    theta = member(arrays, "theta", np.float64, (None, None, None))
    rules = RuleTable.decode(arrays, theta.shape[1:])
    policies = {
        name: [
            Policy([rules[i] for i in row]) for row in member(arrays, name, np.int64, (None, len(theta)), 0, len(rules))
        ]
        for name in names
    }
    if len(policies["policy"]) != 1:
        raise ValueError(f"policy: expected one, got {len(policies['policy'])}")
    return policies, theta


# ---- Self-stopping runs


def encode_stopping(fields: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return policy and estimates as arrays."""
    table = RuleTable()
    policy = table.encode([fields["policy"]])
    arrays = {"policy": policy, "theta": fields["theta"], "looks": fields["looks"].encode()}
    arrays |= {} if fields["units"] is None else {"units": fields["units"]}
    return arrays | table.arrays(fields["theta"].shape[1:])


def decode_stopping(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Return policy and estimates."""
    policies, theta = policies_of(arrays, ["policy"])
    stopping = renamed(header["stopping"])
    tested = "tested" in header["parameters"]
    check_form("header.stopping", stopping, BY_RETURNS if tested else BY_FITS)
    if stopping["mean_return"] is not None and not tested:
        for name in ("upsides", "largest_v"):
            check_form(f"stopping.{name}", by_level := stopping[name], [float])
            if len(by_level) != len(theta):
                raise ValueError(f"stopping.{name}: expected {len(theta)} numbers, got {len(by_level)}")
    # Files of older versions hold no looks and no units.
    looks = (
        Looks.decode(member(arrays, "looks", np.float64, (None, len(Look._fields)))) if "looks" in arrays else Looks()
    )
    units = member(arrays, "units", np.float64, (len(theta), 3)) if "units" in arrays else None
    return {"policy": policies["policy"][0], "theta": theta, "stopping": stopping, "looks": looks, "units": units}


def renamed(stopping: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of a self-stopping run by their present names; version 0.2.0 called upsides gaps."""
    return {"upsides" if name == "gaps" else name: value for name, value in stopping.items()}


# ---- Baselines


def encode_baseline(fields: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return policy, estimates, curve and returns as arrays."""
    arrays = {"returns": fields["returns"], "curve": np.array([column.astype(float) for column in fields["curve"]])}
    if fields["theta"] is not None:
        arrays["theta"] = fields["theta"]
    if fields["table"] is not None:
        arrays["table"] = np.concatenate(fields["table"])
        arrays["table_sizes"] = np.array([len(level) for level in fields["table"]])
    if isinstance(fields["policy"], TablePolicy):
        rules = fields["policy"].rules
        return arrays | {"actions": np.concatenate(rules), "actions_sizes": np.array([len(rule) for rule in rules])}
    table = RuleTable()
    codes = table.encode([fields["policy"]])
    shape = next((rule.theta.shape for rule in fields["policy"].rules if isinstance(rule, Greedy)), (1, 1))
    return arrays | {"policy": codes, **table.arrays(shape)}


def decode_baseline(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Return policy, estimates, curve and returns."""
    curve = member(arrays, "curve", np.float64, (4, None))
    theta = member(arrays, "theta", np.float64, (None, None, None)) if "theta" in arrays else None
    return {
        "policy": baseline_policy(arrays),
        "theta": theta,
        "table": by_level(arrays, "table", np.float64, (None, None)) if "table" in arrays else None,
        "curve": Curve(curve[0].astype(np.int64), *curve[1:]),
        "returns": member(arrays, "returns", np.float64, (None,)),
    }


def baseline_policy(arrays: dict[str, NDArray[Any]]) -> Policy | TablePolicy:
    """Return the policy of a baseline, of states or of features."""
    if "actions" in arrays:
        return TablePolicy(by_level(arrays, "actions", np.int64, (None,)))
    weights = member(arrays, "rule_weights", np.float64, (None, None, None))
    rules = RuleTable.decode(arrays, weights.shape[1:])
    (codes,) = member(arrays, "policy", np.int64, (1, None), 0, len(rules))
    return Policy([rules[i] for i in codes])


def by_level(
    arrays: dict[str, NDArray[Any]], name: str, dtype: type[np.generic], shape: tuple[int | None, ...]
) -> tuple[NDArray[Any], ...]:
    """Return the parts of an array that the array "NAME_sizes" divides into levels."""
    sizes = member(arrays, f"{name}_sizes", np.int64, (None,), 1)
    whole = member(arrays, name, dtype, (int(sizes.sum()), *shape[1:]))
    return tuple(np.split(whole, np.cumsum(sizes)[:-1]))


Encoder = Callable[[Mapping[str, Any]], dict[str, NDArray[Any]]]
Decoder = Callable[[dict[str, Any], dict[str, NDArray[Any]]], dict[str, Any]]

ENCODERS: dict[str, Encoder] = {"dmq": encode_dmq, "self-stopping": encode_stopping, "baseline": encode_baseline}
DECODERS: dict[str, Decoder] = {"dmq": decode_dmq, "self-stopping": decode_stopping, "baseline": decode_baseline}


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
