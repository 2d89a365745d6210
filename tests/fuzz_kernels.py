"""Targets of tests/fuzz.py: everything that `dmq_fast.kernels` exports, drawn from its own descriptions.

What a function or method takes is read, not repeated: names, types and defaults are those of the stubs, shapes those of
the docstrings ("shape (m, d)"), where a letter has one size in a call, and that of the object where it has one. A class
is made and then asked anything in any order. Arguments are drawn right and then spoilt, one thing at a time, as garbage
would be refused at the first check.

An input is a finding where a call ends in anything but a result or a refusal, where a refusal changes an object, where
a result has another shape than its docstring says, or is NaN although nothing was spoilt, and where a copy differs.
Compiled code that reads out of bounds is what the sanitizers see.
"""

import ast
import copy
import functools
import inspect
import pickle
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import twins
from fuzz import REFUSALS, Target
from mutations import broken, broken_array

from dmq_fast import kernels

# Integers at which types end.
EDGES = (-(2**63), -(2**31), -2, -1, 0, 1, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**40)


class Odd(np.ndarray):
    """A subclass of ndarray, as pandas and units have."""


class Input:
    """Draws the arguments of one input. Each is spoilt with a probability that is drawn first, often 0."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.rate = (0.0, 0.0, 0.0, 0.03, 0.1, 0.3)[rng.integers(6)]

    def spoils(self) -> bool:
        return bool(self.rng.random() < self.rate)

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def pick(self, *options: Any) -> Any:
        return options[self.rng.integers(len(options))]

    def size(self, most: int = 5) -> int:
        return int(self.rng.integers(1, most + 1))

    def junk(self) -> Any:
        """Something of another type."""
        return self.pick(
            None, "x", b"x", 1j, object(), [], {}, [[1.0], [1.0, 2.0]], np.array("x"), np.array(None), np.longdouble(1),
            np.ma.masked_array([1.0, 2.0], [True, False]), np.datetime64("2020"), (), [[]], float, np.nan, "1.0",
            kernels.Stream(0), kernels.Fixed(0), kernels.SecondMoment(2), kernels.OneHot(2), (kernels.Uniform(),) * 2,
        )  # fmt: skip

    def integer(self, least: int, most: int) -> Any:
        """An integer in [least, most]."""
        if self.spoils():
            return self.pick(least - 1, most + 1, *EDGES, 1.5, True, np.nan, np.inf, np.array([0]), self.junk())
        value = int(self.rng.integers(least, most + 1))
        return self.pick(
            value, value, value, np.int64(value), np.uint64(value) if value >= 0 else value, np.array(value)
        )

    def count(self, least: int, most: int) -> Any:
        """A number of things to make: an integer in [least, most], or none at all."""
        if self.spoils():
            return self.pick(least - 1, -(2**31), -(2**63), 2**63, 2**64, 10**40, 1.5, np.nan, self.junk())
        return self.pick(int, np.int64)(self.rng.integers(least, most + 1))

    def positive(self, zero: bool = False) -> Any:
        """A number > 0, or >= 0."""
        if self.spoils():
            return self.pick(
                0.0, -0.0, -1.0, np.nan, np.inf, -np.inf, 10**400, -(10**400), 1e308, 5e-324, 1e-310, True, self.junk()
            )
        value = float(self.rng.random() + 0.01)
        if self.chance(0.1):
            value = float(10.0 ** self.rng.integers(-200, 200))
        if zero and self.chance(0.2):
            return 0.0
        return self.pick(
            value, value, value, np.float64(value), np.float32(min(value, 1e30)) if value > 1e-30 else 1, 1
        )

    def numbers(self, shape: tuple[int, ...], mild: bool = False) -> Any:
        """Finite numbers, of which some sets are rank deficient, tiny or huge."""
        x = self.rng.standard_normal(shape)
        kind = self.rng.integers(5 if mild else 12)
        if kind == 1:
            x = np.round(x)
        elif kind == 2:
            x[self.rng.random(shape) < 0.6] = 0.0
        elif kind == 3:
            x *= 0.0
        elif kind == 4 and len(shape) == 2 and shape[0] > 1:
            x[-1] = x[0]
        elif kind > 4:
            x *= self.pick(1e-100, 1e-160, 1e-310, 1e100, 1e150, 1e300, 1.0)
        return x

    def laid(self, x: Any) -> Any:
        """An array of numbers in some layout, or as lists; anything else as it is."""
        if not isinstance(x, np.ndarray) or self.chance(0.7):
            return x
        unaligned = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
        unaligned[...] = x
        repeated = np.broadcast_to(x[:1], x.shape) if x.ndim and len(x) else x
        with np.errstate(all="ignore"):
            return self.pick(*twins.layouts(x).values(), x.view(Odd), unaligned, repeated)

    def array(self, shape: tuple[int, ...], mild: bool = False) -> Any:
        """An array of finite numbers of a shape."""
        x = self.numbers(shape, mild)
        return self.spoilt(x) if self.spoils() else self.laid(x)

    def spoilt(self, x: Any) -> Any:
        """An array with one thing wrong."""
        return self.junk() if self.chance(0.1) else broken_array(self.rng, x)

    def gram(self, d: int) -> Any:
        """A positive semidefinite matrix, perhaps singular, with whatever below its diagonal."""
        x = self.numbers((self.size(2 * d), d))
        with np.errstate(all="ignore"):
            out = x.T @ x
        if self.chance(0.5):
            out += np.eye(d) * float(self.pick(1.0, 1e-3, 1e-12))
        if not np.isfinite(out).all():
            out = np.eye(d)
        if self.chance(0.1):
            out[np.tril_indices(d, -1)] = self.pick(np.nan, np.inf, 7.0)
        if self.chance(0.05):
            out -= 2.0 * np.eye(d)
        return self.spoilt(out) if self.spoils() else self.laid(out)

    def indices(self, n: int, most: int) -> Any:
        """n integers in [0, most)."""
        x = self.rng.integers(0, most, n)
        if self.spoils():
            if self.chance(0.5) and n:
                x = x.astype(object)
                x[self.rng.integers(n)] = self.pick(most, *EDGES)
                try:
                    return np.array(x.tolist())
                except OverflowError:
                    return x
            return self.pick(x.astype(float), x[:-1], x[None], self.junk())
        return self.pick(x, x, x.astype(np.int32), x.astype(np.uint8), x.tolist(), x[::-1], x.astype(">i8"))

    def sparse(self, n: int, d: int) -> Any:
        """A sparse array, whose index arrays were perhaps changed afterwards."""
        x = self.numbers((n, d), mild=True) * (self.rng.random((n, d)) < 0.5)
        out = self.pick(scipy.sparse.csr_array, scipy.sparse.csr_matrix, scipy.sparse.coo_array)(x)
        out = out.asformat(self.pick("csr", "csr", "csr", "coo", "csc", "lil", "dok", "bsr", "dia"))
        if out.format in ("csr", "csc", "bsr") and self.chance(0.2):
            out = type(out)((out.data, out.indices.astype(np.int64), out.indptr.astype(np.int64)), shape=out.shape)
        return self.spoilt(out) if self.spoils() else out

    def rows(self, n: int, d: int, mild: bool = False) -> Any:
        """Rows (n, d), dense or sparse."""
        return self.sparse(n, d) if self.chance(0.3) else self.array((n, d), mild)

    def stream(self) -> Any:
        return (
            self.junk()
            if self.spoils()
            else kernels.Stream(int(self.rng.integers(100)), call=int(self.rng.integers(9)))
        )

    def levels(self, horizon: int) -> Any:
        """Ascending levels."""
        found = [h for h in range(horizon) if self.chance(0.5)]
        if self.spoils():
            return self.pick([0, 0], [1, 0], [-1], [horizon], [2**31], [2**63], ["x"], [0.5], self.junk())
        return self.pick(found, tuple(found), np.array(found, int), range(self.size(horizon)), ())

    def rules(self, horizon: int, n_actions: int, d: int) -> Any:
        """A policy."""
        out = []
        for _ in range(horizon):
            kind = self.rng.integers(3)
            if kind == 0:
                out.append(kernels.Uniform())
            elif kind == 1:
                out.append(kernels.Fixed(int(self.rng.integers(n_actions))))
            else:
                out.append(kernels.Greedy(self.numbers((n_actions, d), mild=True)))
        if self.spoils():
            out[self.rng.integers(horizon)] = self.pick(
                kernels.Fixed(n_actions), kernels.Fixed(2**31 - 1), kernels.Greedy([[1.0] * (d + 1)] * n_actions),
                kernels.Interpreted(), kernels.Greedy(np.full((n_actions, d), 1e308)), self.junk(),
            )  # fmt: skip
        if self.spoils():
            return self.pick(tuple(out[:-1]), (*out, out[0]), out, (), self.junk())
        return tuple(out)


def floats(x: Any) -> Any:
    return np.array(x.toarray() if hasattr(x, "toarray") else x, np.float64)


# What is described: parameters by the stubs and docstrings.


@dataclass(frozen=True)
class Parameter:
    """One argument: its type as the stub has it, the shapes, words and lines of the docstring about it."""

    name: str
    kind: str
    required: bool
    keyword: bool
    shapes: tuple[tuple[str, ...], ...]
    text: str


@functools.cache
def stub(module: str) -> list[ast.stmt]:
    path = Path(kernels.__file__).parent / f"{module.rpartition('.')[2]}.pyi"
    return ast.parse((path if path.exists() else path.with_suffix(".py")).read_text()).body


def shapes_in(text: str) -> tuple[tuple[str, ...], ...]:
    """The tuples behind the word "shape", such as ("m", "d")."""
    found = re.search(r"(?:shape|array_like,|ndarray,|of) (\(.*)", text)
    tuples = re.findall(r"\(([^()]*)\)", found[1]) if found else []
    return tuple(tuple(part.strip() for part in one.split(",") if part.strip()) for one in tuples)


def sections(doc: str | None, title: str) -> Iterator[tuple[str, str, str]]:
    """Names, type and lines of the entries of a section of a numpydoc docstring."""
    found = re.search(rf"^{title}\n-+\n(.*?)(?=^\S[^\n]*\n-+$|\Z)", inspect.cleandoc(doc or ""), re.M | re.S)
    for entry in re.split(r"^(?=\S)", found[1] if found else "", flags=re.M):
        head, _, text = entry.partition("\n")
        names, _, kind = head.partition(" : ")
        for name in names.split(", "):
            yield name, kind or names, text


@functools.cache
def parameters(owner: Any, name: str | None = None) -> tuple[Parameter, ...]:
    """Those of a function or class, or of a method of a class; () if no stub has any."""
    kinds = owner.__mro__[:-1] if isinstance(owner, type) else (owner,)
    for kind in kinds:
        nodes = [node for node in stub(kind.__module__) if getattr(node, "name", None) == kind.__name__]
        if isinstance(owner, type):
            wanted = (name,) if name else ("__new__", "__init__")
            nodes = [node for node in getattr(nodes[0], "body", ()) if getattr(node, "name", None) in wanted]
        if nodes and isinstance(nodes[0], ast.FunctionDef):
            break
    else:
        return ()
    docs = [(getattr(owner, name) if name else owner).__doc__ or ""]
    for other in re.findall(r"`(\w+)`", docs[0]):  # "errors are those of `predict`"
        docs.append(getattr(getattr(owner, other, None) or getattr(kernels, other, None), "__doc__", None) or "")
    about: dict[str, tuple[str, str]] = {}
    for n, k, t in (entry for doc in docs for entry in sections(doc, "Parameters")):
        about[n] = about[n] if n in about and (shapes_in(about[n][0]) or not shapes_in(k)) else (k, t)
    given = nodes[0].args  # the first of several overloads takes everything
    out, positional = [], [*given.posonlyargs, *given.args]
    for i, argument in enumerate([*positional, *given.kwonlyargs]):
        if argument.arg in ("self", "cls", "memo") or argument.annotation is None:
            continue
        every = [node.args for node in nodes if isinstance(node, ast.FunctionDef)]
        same = [a for args in every for a in (*args.args, *args.kwonlyargs) if a.arg == argument.arg and a.annotation]
        kind = " | ".join(dict.fromkeys(ast.unparse(a.annotation) for a in same if a.annotation))
        text = about.get(argument.arg, ("", ""))
        required = i < len(positional) - len(given.defaults) or (
            i >= len(positional) and given.kw_defaults[i - len(positional)] is None
        )
        prose = re.search(rf"\b{argument.arg},? (?:of )?(shape \([^()]*\))", docs[0])
        shapes = shapes_in(text[0]) or shapes_in(prose[1] if prose else "") or UNDESCRIBED.get(argument.arg, ())
        out.append(Parameter(argument.arg, kind, required, i >= len(positional), shapes, " ".join(text)))
    return tuple(out)


# What only the prose of a docstring says.
UNDESCRIBED = {"theta": (("H", "K", "d"),), "scores": (("K",),)}


def described(kind: type, name: str) -> bool:
    """Whether the stub of a class has a method."""
    classes = [node for node in stub(kind.__module__) if getattr(node, "name", None) == kind.__name__]
    return any(getattr(node, "name", None) == name for node in getattr(classes[0], "body", ()))


# How an argument is drawn.


@dataclass
class Call:
    """Sizes by letter, and the arguments drawn so far, of one call on an object or none."""

    given: Input
    made: Any = None

    def __post_init__(self) -> None:
        self.sizes: dict[str, Any] = {}
        self.drawn: dict[str, Any] = {}
        names = {"d": ("dimension", "inputs"), "K": ("n_actions", "n_arms"), "H": ("horizon", "n_levels"), "m": ()}
        for letter, attributes in names.items():
            for name in attributes:
                if isinstance(getattr(self.made, name, None), int):
                    self.sizes.setdefault(letter, getattr(self.made, name))
        if isinstance(self.made, kernels.FeatureMap):
            self.sizes = {"m": self.made.inputs, "d": self.made.dimension}
        if isinstance(self.made, kernels.Transitions):
            self.sizes["s"] = len(self.made.support)
        self.targets = getattr(self.made, "targets", None)
        if self.targets is not None:
            self.sizes["t"] = self.targets

    def size(self, letter: str) -> int:
        if letter.isdigit():
            return int(letter)
        known = getattr(self.made, letter.partition("[")[0], None) if len(letter) > 1 else None  # perhaps one a level
        if isinstance(known, tuple):
            level = self.drawn.get("level")
            known = known[level if isinstance(level, int) and level < len(known) else 0]
        if isinstance(known, int):
            return known
        return int(self.sizes.setdefault(letter, self.given.size(self.given.pick(4, 4, 4, 40))))

    def shape(self, parameter: Parameter) -> tuple[int, ...] | None:
        """One of the shapes that are described; the axis of targets goes with an object that has it."""
        shapes = parameter.shapes
        if hasattr(self.made, "targets"):
            fitting = tuple(one for one in shapes if ("t" in one) == (self.targets is not None))
            if parameter.name == "y" and not fitting:
                return ()
            shapes = fitting or shapes
        if not shapes:
            return None
        chosen = self.given.pick(*shapes)
        stacked = (2,) * int(self.given.chance(0.2)) if "..." in chosen else ()
        return (*stacked, *(self.size(letter) for letter in chosen if letter != "..."))

    def value(self, parameter: Parameter) -> Any:
        given, kind, text = self.given, parameter.kind, parameter.text
        if given.spoils() and given.chance(0.3):
            return given.junk()
        if "None" in kind and given.chance(0.4):
            return None
        if self.made is not None and type(self.made).__name__ in kind.split(" | "):
            return given.pick(self.made, copy.copy(self.made)) if not given.spoils() else given.junk()
        for maker in MAKERS:
            if re.search(rf"\b{maker}\b", kind):
                return MAKERS[maker](self)
        if "tuple[Rule" in kind:
            return given.rules(self.size("H"), self.size("K"), self.size("d"))
        if "Sequence[int]" in kind:
            return given.levels(self.size("H"))
        if kind == "bool":
            return given.pick(True, False, given.junk() if given.rate else False)
        if kind == "str":
            words = re.findall(r'"(\w+)"', text + (type(self.made).__doc__ or "")) or ["flat", "steps", "x"]
            return given.pick(*words) if not given.spoils() else "other"
        if "ArrayLike" in kind or "NDArray" in kind or "_Sparse" in kind:
            return self.array(parameter)
        if parameter.name == "shape":
            return (None,) * max(getattr(self.drawn.get("value"), "ndim", 0), np.ndim(self.drawn.get("value", 0.0)))
        if re.search(r"\bint\b|_Integer", kind):
            return self.integer(parameter)
        if "float" in kind:
            if re.search(r"[\[(]0, 1[\])]", text) and not given.spoils():
                return float(given.rng.random())
            return given.positive(zero="-negative" in text or ">= 0" in text)
        if "SciPy sparse" in text:
            return given.sparse(self.size("m"), self.size("d"))
        if parameter.name == "value":
            return given.array(given.pick((), (3,), (2, 3)))
        return given.pick(given.array((2,)), 1, "x", None)

    def integer(self, parameter: Parameter) -> Any:
        found = re.search(r"0\.\.(\w+)-1", parameter.text)
        if found or parameter.name in ("level", "top", "bottom", "action", "arm"):
            letter = found[1] if found else {"action": "K", "arm": "K"}.get(parameter.name, "H")
            return self.given.integer(0, max(self.size(letter) - 1, 0))
        letter = {"dimension": "d", "d": "d", "inputs": "m", "n_actions": "K", "n_arms": "K", "horizon": "H"}
        if parameter.name in letter and not self.given.spoils():
            self.sizes[letter[parameter.name]] = self.given.size(3) * (2 if "even" in parameter.text.lower() else 1)
            return self.sizes[letter[parameter.name]]
        if parameter.name in ("n", "m", "count", "call", "chunk"):
            return self.given.count(0, self.given.pick(5, 5, 600))
        return self.given.integer(1, 4) if parameter.name not in ("first", "base") else 0

    def array(self, parameter: Parameter) -> Any:
        given, name, shape = self.given, parameter.name, self.shape(parameter)
        if shape is None:
            shape = given.pick((self.size("d"),), (self.size("m"), self.size("d")), (3,), ())
        if name == "states":
            return self.states()
        if isinstance(self.made, kernels.Transitions):
            return self.of_steps(name, shape)
        if name == "indptr" and not given.spoils():
            stops = np.sort(given.rng.integers(0, np.size(self.drawn["indices"]) + 1, given.size()))
            return np.concatenate([[0], stops[1:], [np.size(self.drawn["indices"])]])
        if name == "high" and "low" in self.drawn and not given.spoils():
            return floats(self.drawn["low"]) + 0.1 + given.rng.random(np.shape(self.drawn["low"]))
        if (
            len(shape) >= 2
            and shape[-1] == shape[-2]
            and re.search(r"definite|phi phi\^T|econd moment", parameter.text)
        ):
            return given.gram(shape[-1]) if len(shape) == 2 else np.stack([np.eye(shape[-1])] * shape[0])
        if "probabilities" in name or "S'" in str(parameter.shapes):
            if len(shape) == 1:
                return given.laid((p := given.rng.random(shape) + 0.01) / p.sum())
            return distribution(given, shape) if len(shape) != 2 else scipy.sparse.csr_array(distribution(given, shape))
        if name == "returns" and "NDArray" in parameter.kind:
            return np.full(given.size(9), np.nan) if not given.spoils() else given.spoilt(np.ones(3))
        if re.search(r"\bint", parameter.text.partition("shape")[0]) or "integer" in parameter.kind or name == "tiles":
            most = self.size("K") if "action" in name else max(getattr(self.made, "n_episodes", 0), self.size("d"), 1)
            n = int(np.prod(shape)) if len(shape) == 1 else given.size(3)
            n = 0 if name == "episodes" and self.made.n_episodes == 0 else n
            return np.ones(self.size("m"), int) if name == "tiles" else given.indices(n, most)
        if name in ("weights", "returns", "uniforms", "u", "eps1", "eps2", "width"):
            return given.laid(given.rng.random(shape) + 0.01) if not given.spoils() else given.array(shape)
        if "_Sparse" in parameter.kind and len(shape) == 2:
            return given.rows(*shape, mild=True)
        if isinstance(self.made, kernels.OneHot):
            return given.rng.integers(0, self.made.dimension, shape).astype(float)
        return given.array(shape, mild=given.chance(0.8))

    def states(self) -> Any:
        """States of the level that was drawn, by playing up to it, or other bytes."""
        given, made, n = self.given, self.made, self.size("n")

        def uniforms(count: int) -> Any:
            return given.rng.random((n, count))

        states, level = made.reset(uniforms(made.reset_uniforms)), self.drawn.get("level")
        for h in range(level if isinstance(level, int) and 0 < level < made.horizon else 0):
            made.step(h, states, np.zeros(n, int), uniforms(made.step_uniforms[h]))
        if not given.spoils():
            return states
        anything = given.rng.integers(0, 256, states.shape).astype(np.uint8)
        wrong = states[:, :-1], states.astype(np.int8), np.full_like(states, 255), states[::-1], given.junk()
        return given.pick(anything, *wrong)

    def of_steps(self, name: str, shape: tuple[int, ...]) -> Any:
        """An argument of a method of `Transitions`; sizes come first, and all others of an episode fit them."""
        given, made = self.given, self.made
        if name == "sizes":
            n = int(given.rng.integers(1, made.horizon + 1))
            sizes = given.indices(n, made.dimension)
            sizes = sizes + 1 if isinstance(sizes, np.ndarray) and sizes.dtype == np.int64 else np.ones(n, int)
            self.sizes |= {"n": n, "m": int(sizes.sum())}
            return given.spoilt(sizes) if given.spoils() else sizes
        if name in ("columns", "actions"):
            return given.indices(shape[0], made.dimension if name == "columns" else made.n_actions)
        if name == "unknown":
            return given.rng.random(shape) < 0.3 if not given.spoils() else given.spoilt(np.ones(shape))
        return given.array(shape, mild=True)

    def arguments(self, wanted: tuple[Parameter, ...]) -> tuple[list[Any], dict[str, Any]]:
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for parameter in wanted:
            if not parameter.required and self.given.chance(0.5):
                break
            value = self.drawn[parameter.name] = self.value(parameter)
            if parameter.keyword:
                named[parameter.name] = value
            else:
                positional.append(value)
        return positional, named


def level_rows_of(given: Input, n_levels: int, d: int) -> Any:
    blocks, weights = [], []
    for _ in range(n_levels):
        n = int(given.rng.integers(0, 5))
        x = given.rows(n, d, mild=True)
        blocks.append(x)
        weights.append(given.spoilt(np.ones(n)) if given.spoils() else given.laid(given.rng.random(n) + 0.5))
    return kernels.LevelRows.of(blocks, weights if given.chance(0.5) else None)


def distribution(given: Input, shape: tuple[int, ...]) -> Any:
    p = given.rng.random(shape) * (given.rng.random(shape) < 0.6)
    p[..., 0] += p.sum(axis=-1) == 0.0
    if given.chance(0.3):
        p = np.eye(shape[-1])[given.rng.integers(0, shape[-1], shape[:-1])]
    return p / p.sum(axis=-1, keepdims=True)


def finite_parts(given: Input, horizon: int, n_actions: int, d: int) -> list[Any]:
    """The arguments of a FiniteModel."""
    rng, sizes = given.rng, [given.size(4) for _ in range(horizon + 1)]
    transitions, rewards, features = [], [], []
    for h in range(horizon - int(rng.integers(2))):
        p = distribution(given, (sizes[h], n_actions, sizes[h + 1]))
        transitions.append(scipy.sparse.csr_array(p.reshape(-1, sizes[h + 1])) if given.chance(0.3) else p)
    for h in range(horizon):
        dense = h < len(transitions) and not scipy.sparse.issparse(transitions[h])
        shape = (sizes[h], n_actions, *([sizes[h + 1]] if dense and given.chance(0.3) else []))
        rewards.append(rng.random(shape) / horizon * float(given.pick(0.0, 1.0)))
        x = rng.standard_normal((sizes[h], d)) * (rng.random((sizes[h], d)) < given.pick(0.2, 1.0))
        x /= np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True)) * (1.0 + 1e-12)
        features.append(scipy.sparse.csr_array(x) if given.chance(0.3) else x)
    parts = [transitions, rewards, features, distribution(given, (sizes[0],)), np.full(horizon, 1.0 / horizon)]
    if given.spoils():
        i = int(rng.integers(5))
        if i < 3 and parts[i] and given.chance(0.7):
            j = int(rng.integers(len(parts[i])))
            x = parts[i][j]
            parts[i][j] = given.pick(given.spoilt(x), given.spoilt(x), -x, x * 0.0, given.laid(x))
        elif i < 3:
            parts[i] = given.pick(parts[i][:-1], parts[i] * 2, given.junk())
        else:
            parts[i] = given.pick(given.spoilt(parts[i]), -parts[i], parts[i] * 0.0, parts[i].tolist())
    return parts


def block_of(given: Input, horizon: int, n_actions: int, d: int) -> Any:
    parts = finite_parts(given, horizon, n_actions, d)
    model = kernels.FiniteModel(*parts)
    noise = given.pick("none", "coins", "gaussian")
    options = {
        "noise": noise,
        "n_coins": given.integer(1, given.pick(4, 120)) if noise == "coins" else 0,
        "sigma": given.positive(zero=True) if noise == "gaussian" else 0.0,
        "scale": given.pick(0.2, 0.2, 0.2, given.positive()),
    }
    if given.spoils():
        key = given.pick(*options)
        options[key] = given.pick(given.junk(), *EDGES, "coins", 1.5)
    m = given.size(given.pick(4, 70))
    base = [given.rng.standard_normal((len(floats(x)), m)) / np.sqrt(m) for x in parts[2]]
    if given.spoils():
        base = given.pick(base[:-1], base * 2, [given.spoilt(np.asarray(b, float)) for b in base], given.junk())
    return kernels.BlockModel(model, base, **options)


def compiled_of(given: Input, horizon: int) -> tuple[Any, Any]:
    """An environment and a feature map, or None, that fits it."""
    kind = given.rng.integers(4)
    if kind == 0:
        low, high = [-1.2, -0.07], [0.6, 0.07]
        source = kernels.MountainCar(given.integer(horizon, horizon))
    elif kind == 1:
        low, high = [-2.4, -3.0, -0.21, -3.0], [2.4, 3.0, 0.21, 3.0]
        source = kernels.CartPole(given.integer(horizon, horizon))
    else:
        return kernels.EnvironmentHandle(block_of(given, horizon, given.size(3), given.size(3))), None
    maps = [
        lambda: kernels.Identity(low, high, given.chance(0.5)), lambda: kernels.Fourier(low, high, 1),
        lambda: kernels.TileCoding(low, high, 2, given.size(3)), lambda: kernels.RandomFourier(len(low), 4, 1.0, 0),
        lambda: kernels.RBF([low, high], 1.0), lambda: kernels.Nystrom([low, high], 1.0),
        lambda: kernels.Interpolation([[a, b] for a, b in zip(low, high, strict=True)]),
    ]  # fmt: skip
    feature_map = given.pick(*maps)()
    if given.spoils():
        feature_map = given.pick(kernels.OneHot(3), kernels.Identity([0.0], [1.0]), given.junk())
    return kernels.EnvironmentHandle(source), feature_map


def episode_of(given: Input, horizon: int, numbered: bool = False) -> Any:
    if numbered and not given.spoils():
        env, feature_map = kernels.EnvironmentHandle(block_of(given, horizon, given.size(3), given.size(3))), None
    else:
        env, feature_map = compiled_of(given, horizon)
    return kernels.Episode(env, feature_map, given.stream())


def stream_of(call: Call) -> Any:
    return call.given.stream()


def made_by(name: str) -> Callable[[Call], Any]:
    """Make an object of a public class from its description."""

    def make(call: Call) -> Any:
        kind, inner = getattr(kernels, name), Call(call.given)
        arguments, named = inner.arguments(parameters(kind))
        return kind(*arguments, **named)

    return make


# The episode that fits a planner.
PLAYING: dict[int, Any] = {}


def planner_of(given: Input) -> Any:
    episode = episode_of(given, given.size(3))
    sizes = episode.horizon, episode.n_actions, episode.dimension
    made = kernels.OptimisticPlanner(*sizes, given.positive(), given.positive())
    PLAYING.clear()
    PLAYING[id(made)] = episode
    return made


def nodes_of(given: Input) -> Any:
    """Nodes of one to four coordinates, some of them angles."""
    nodes: list[Any] = []
    for _ in range(given.size(4)):
        places = np.cumsum(given.rng.random(given.size(4) + 1) + 0.01) - 1.0
        nodes.append(int(given.rng.integers(2, 5)) if given.chance(0.3) else given.pick(places, places.tolist()))
    if given.spoils():
        nodes[given.rng.integers(len(nodes))] = given.pick(
            1, 0, 2**31, 2**70, True, [0.0], [1.0, 1.0], [1.0, 0.0], [np.nan, 1.0], [-1.7e308, 1.7e308], given.junk()
        )
    return given.junk() if given.spoils() else given.pick(nodes, tuple(nodes))


def transitions_of(given: Input) -> Any:
    """Transitions with episodes, perhaps with a plan."""
    d, actions = given.integer(1, 4), given.integer(1, 3)
    made = kernels.Transitions(given.integer(1, 4), actions, d, given.positive())
    for _ in range(given.size(3)):
        arguments, _ = Call(given, made).arguments(parameters(kernels.Transitions, "add_rows"))
        made.add_rows(*arguments)
    if given.chance(0.5):
        s, shape = len(made.support), (made.horizon,)
        inverses = np.stack([np.eye(s)] * made.n_actions)
        made.plan(given.rng.random((*shape, made.n_actions, s)), inverses, np.zeros(shape), np.ones(shape))
    return made


# Classes whose arguments must fit each other beyond types and shapes; all others are made by their description.
MAKERS: dict[str, Callable[[Call], Any]] = {
    "FiniteModel": lambda c: kernels.FiniteModel(
        *finite_parts(c.given, c.given.size(4), c.given.size(3), c.given.size(4))
    ),
    "BlockModel": lambda c: block_of(c.given, *(c.given.size(3) for _ in range(3))),
    "EnvironmentHandle": lambda c: compiled_of(c.given, c.given.size(3))[0],
    "CompiledModel": lambda c: kernels.CompiledModel(*compiled_of(c.given, c.given.size(4))),
    "Episode": lambda c: PLAYING.get(id(c.made)) or episode_of(c.given, c.given.size(3), numbered=c.given.chance(0.8)),
    "OptimisticPlanner": lambda c: planner_of(c.given),
    "LevelRows": lambda c: level_rows_of(c.given, c.size("H"), c.size("d")),
    "RowOracle": lambda c: [kernels.RowOracle(c.size("d"), 0.5) for _ in range(c.size("H"))],
    "FeatureMap": lambda c: kernels.Identity([0.0], [1.0]),
    "Interpolation": lambda c: kernels.Interpolation(nodes_of(c.given)),
    "Transitions": lambda c: transitions_of(c.given),
    "Stream": stream_of,
    "Generator": stream_of,
}
# Those that may change by a call that is refused, as it draws or plays before it fails.
PLAYED = (kernels.Episode, kernels.Learner, kernels.OptimisticPlanner)
# Results that nothing promises to be finite, or that are as what was given.
UNCHECKED = {
    "as_floats",
    "as_numbers",
    "log_det",
    "features",
    "step",
    "rollout",
    "returns",
    "trajectories",
    "reset",
    "rows",
}
DOCUMENTED = ("is not finite", "expected a call of `plan`", "returned the code")


def snapshot(made: Any) -> Any:
    """What an object shows of itself, to the bit, its address and counts of what it was asked apart."""
    out: dict[str, Any] = {}
    hidden = {"n_marginal", "n_exact", "address"} if not isinstance(made, PLAYED) else set(dir(made))
    for name in set(dir(made)) - hidden:
        if not name.startswith("_") and not callable(getattr(type(made), name)):
            try:
                value = getattr(made, name)
            except (ValueError, RuntimeError) as error:
                value = str(error)
            value = value.tobytes() if isinstance(value, np.ndarray) else value
            out[name] = value if isinstance(value, int | float | str | bytes | tuple | list | None) else type(value)
    return out


def check_result(call: Call, result: Any, doc: str | None, name: str) -> None:
    """A result of a shape that is described, and finite unless something was spoilt or is not promised."""
    if call.given.rate or name in UNCHECKED:
        return
    parts = result if isinstance(result, tuple) else (result,)
    for value in parts:
        if isinstance(value, float | np.ndarray) and np.asarray(value).dtype.kind == "f":
            assert not np.isnan(value).any(), f"{name}: NaN in {value}"
    entries = [shapes_in(kind) for _, kind, _ in sections(doc, "Returns")]
    if len(entries) == len(parts) == 1 and isinstance(result, np.ndarray) and entries[0]:
        wanted = []
        for one in entries[0]:
            if not all(letter.isdigit() or letter in call.sizes for letter in one):
                return
            wanted.append(tuple(call.size(letter) for letter in one))
        assert result.shape in wanted, f"{name}: shape {result.shape}, described as {wanted}"


def calls(owner: Any, name: str | None, given: Input, made: Any = None) -> Any:
    """Call a function, or a method of an object, with drawn arguments; what is documented to fail raises ValueError."""
    call, function = Call(given, made), owner if name is None else getattr(made, name)
    arguments, named = call.arguments(parameters(owner, name))
    try:
        result = function(*arguments, **named)
    except OverflowError:
        raise
    except (ArithmeticError, RuntimeError, MemoryError) as error:
        assert any(text in str(error) for text in DOCUMENTED) or isinstance(error, MemoryError), repr(error)
        raise ValueError(str(error) or "no memory") from error
    check_result(call, result, function.__doc__, name or owner.__name__)
    return result


def function_target(name: str) -> Callable[[np.random.Generator], None]:
    def run(rng: np.random.Generator) -> None:
        calls(getattr(kernels, name), None, Input(rng))

    return run


def again(given: Input, made: Any) -> None:
    other = given.pick(copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)))(made)
    assert type(other) is type(made) and snapshot(other) == snapshot(made)


def restore(given: Input, made: Any) -> None:
    """The pickle of an object with one thing broken: one that is taken may make any results, but no harm."""
    maker, arguments, *rest = made.__reduce__()
    if rest and given.chance(0.7):
        other = maker(*arguments)
        other.__setstate__(broken(given.rng, rest[0]))
    else:
        arguments = broken(given.rng, arguments)
        # A dimension of 2^31 asks for more memory than there is, as it does anywhere in NumPy.
        arguments = arguments if isinstance(arguments, tuple) else (arguments,)
        other = maker(*(50 if type(one) is int and 50 < one < 2**62 else one for one in arguments))
    if isinstance(other, type(made)):
        snapshot(other)


def methods_of(kind: type) -> list[str]:
    """What can be asked of an object of a class."""
    methods = [n for n in dir(kind) if callable(getattr(kind, n)) and (not n.startswith("_") or n == "__call__")]
    methods = [n for n in methods if n == "__call__" or parameters(kind, n) or n in ("copy", "matrix", "refactor")]
    # What is made of files is in tests/test_saved_kernels.py.
    return [n for n in methods if n not in ("of", "total", "save", "load") and not n.startswith("from_")]


def class_target(name: str) -> Callable[[np.random.Generator], None]:
    kind = getattr(kernels, name)

    def run(rng: np.random.Generator) -> None:
        given = Input(rng)
        try:
            made = MAKERS.get(name, made_by(name))(Call(given))
        except MemoryError as error:
            raise ValueError("no memory") from error
        made = made[0] if isinstance(made, list) else made
        if not isinstance(made, kind):
            raise ValueError("something else was drawn")
        if getattr(made, "dimension", 0) > 10**6:
            raise ValueError("the dimension is too large to go on")
        names = (n for n in methods_of(kind) if n != "sparse" or made.nonzeros)
        steps = [functools.partial(calls, kind, n, given, made) for n in names]
        if described(kind, "__reduce__"):
            steps += [functools.partial(again, given, made)] * 2
            if given.chance(0.2):
                steps.append(functools.partial(restore, given, made))
        refused = None
        for _ in range(given.size(10) if steps else 0):
            before = snapshot(made)
            try:
                given.pick(*steps)()
            except REFUSALS as error:
                assert str(error), "a refusal without a text"
                refused = error
                assert snapshot(made) == before, f"changed by a call that raised {error!r}"
        if refused is not None:
            raise refused

    return run


CLASSES = [getattr(kernels, name) for name in kernels.__all__ if isinstance(getattr(kernels, name), type)]


# Without those that have nothing to ask but what others ask of them.
OTHERS = {"FeatureMap", "Learner", "Rule", "Interpreted", "DsecResult", "MountainCar", "CartPole"}
FUNCTIONS = sorted({n for n in kernels.__all__ if inspect.isroutine(getattr(kernels, n))} - {"heeding", "capsule_at"})
KINDS = sorted({n for n in kernels.__all__ if isinstance(getattr(kernels, n), type)} - OTHERS - {"BlockModel"})
TARGETS = {name: Target(function_target(name), 1.0, (MemoryError,)) for name in FUNCTIONS}
TARGETS |= {name: Target(class_target(name), 2.0, (MemoryError,)) for name in KINDS}
