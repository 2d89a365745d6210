"""What every kernel does with its arguments, by its own description: layouts, refusals, copies and who owns what.

`fuzz_kernels` reads from stubs and docstrings what a function or method takes, and draws it. Here nothing is spoilt, so
that most calls succeed; then one argument at a time comes in another layout, which must not change a bit, or is none at
all, which must be refused by its name and change nothing.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import pickle
import re

import numpy as np
import pytest
import twins
from fuzz_kernels import (
    CLASSES,
    FUNCTIONS,
    KINDS,
    MAKERS,
    REFUSALS,
    Call,
    Input,
    described,
    made_by,
    methods_of,
    parameters,
    snapshot,
)

from dmq_fast import kernels

pytestmark = pytest.mark.kernels

# The readers of arguments themselves, of which tests/test_validate.py and tests/test_sparse_kernels.py tell.
READERS = {"as_floats", "as_numbers", "as_csr", "as_positive", "is_sparse"}
# Numbers that compiled code reads as C does, without a name in the refusal.
C_NUMBERS = {"n", "deadline", "floor", "impatience"}
# Those whose results are in float32 where their rows are (tests/test_ridge.py, tests/test_arms.py).
SINGLE = {(name, method) for name in ("Ridge", "RidgeArms") for method in ("leverage", "predict", "upper")}
CALLS = [(name, None) for name in FUNCTIONS if name not in READERS]
CALLS += [(name, None) for name in KINDS if name not in MAKERS]
CALLS += [(name, method) for name in KINDS for method in methods_of(getattr(kernels, name))]
CALLS += [(name, method) for name in KINDS for method in dir(getattr(kernels, name)) if method.startswith("from_")]


class Right(Input):
    """Draws arguments that are right, with arrays of small integers, which every layout holds."""

    def __init__(self, seed):
        super().__init__(np.random.default_rng(seed))
        self.rate = 0.0

    def laid(self, x):
        return x

    def sparse(self, n, d):
        return self.numbers((n, d))

    def positive(self, zero=False):
        return float(self.rng.integers(1, 9)) / 8

    def indices(self, n, most):
        return self.rng.integers(0, most, n)

    def numbers(self, shape, mild=False):
        return self.rng.integers(-4, 5, shape).astype(float)


class Trial:
    """One call, the same for equal seeds, of which arguments may be replaced."""

    def __init__(self, name, method, seed):
        given, owner = Right(seed), getattr(kernels, name)
        self.made = None
        if method is not None and not method.startswith("from_"):
            self.made = MAKERS.get(name, made_by(name))(Call(given))
            self.made = self.made[0] if isinstance(self.made, list) else self.made
        if isinstance(self.made, kernels.Ridge):  # with rows enough to take one away
            d, targets = self.made.dimension, self.made.targets
            self.made.update_rows(100 * np.eye(d), np.ones(d) if targets is None else np.ones((d, targets)))
        call, self.wanted = Call(given, self.made), parameters(owner, method)
        call.arguments(self.wanted)
        self.function = owner if method is None else getattr(owner if self.made is None else self.made, method)
        self.arguments = call.drawn
        self.before = state_of(self.made)

    def run(self, **changes):
        """Return the result and the object, to the bit."""
        given = self.arguments | changes
        named = {p.name: given[p.name] for p in self.wanted if p.name in given and p.keyword}
        result = self.function(*(given[p.name] for p in self.wanted if p.name in given and not p.keyword), **named)
        return bits(result), state_of(self.made), result

    def numbers(self):
        """The arguments that are numbers of any type or arrays of them, as arrays; no buffers, no C numbers."""
        plain = {p.name for p in self.wanted if "NDArray" in p.kind and "Like" not in p.kind} | C_NUMBERS
        numbers = {
            name: np.asarray(value)
            for name, value in self.arguments.items()
            if isinstance(value, np.ndarray | float) and name not in plain
        }
        return {name: value for name, value in numbers.items() if value.dtype == np.float64 and value.size}


def bits(result):
    if isinstance(result, tuple | list):
        return [bits(one) for one in result]
    if isinstance(result, np.ndarray):
        return result.dtype.str, result.shape, result.tobytes()
    return snapshot(result) if type(result) in CLASSES else repr(result)


def outcome_of(trial, changes):
    """What comes of a call with other arguments, to the bit, or its refusal."""
    try:
        return trial.run(**changes)[:2]
    except (*REFUSALS, RuntimeError, ArithmeticError) as error:
        return str(error)


def state_of(made):
    return None if made is None else snapshot(made)


@functools.cache
def seeds_of(name, method):
    """Seeds of calls that succeed, and that answer the same again: two, and those that give other arguments."""
    found, seen = [], set()
    for seed in range(40):
        try:
            trial = Trial(name, method, seed)
            if getattr(trial.made, "dimension", 0) > 10**4:
                continue
            same = trial.run()[:2] == Trial(name, method, seed).run()[:2]
        except (*REFUSALS, RuntimeError, ArithmeticError):
            continue
        if same and (len(found) < 2 or trial.arguments.keys() - seen):
            found, seen = [*found, seed], seen | trial.arguments.keys()
    return found


def accepted(name, method):
    """Calls that succeed, with their seeds, not yet made."""
    return [(seed, Trial(name, method, seed)) for seed in seeds_of(name, method)]


def too_long(trial, name, value):
    """The array with one entry too many along each axis whose length others determine, and with two axes too many."""
    letters = {p.name: {letter for shape in p.shapes for letter in shape} for p in trial.wanted}
    known = set(Call(None, trial.made).sizes).union(
        *(letters[other] for other in letters if other != name and trial.arguments.get(other) is not None)
    )
    own = next((s for p in trial.wanted if p.name == name for s in p.shapes if len(s) == value.ndim), ())
    for axis, letter in enumerate(own):
        if letter in known - {"..."} and getattr(trial.made, "inputs", 2) > 1:
            yield np.concatenate([value, np.take(value, [0], axis)], axis)
    if "..." not in letters[name]:
        yield value[None, None]


def test_almost_all_calls_succeed():
    """The planner's wait for a plan, an episode's for its features, and dense maps have no sparse form."""
    never = {(name, method) for name, method in CALLS if not seeds_of(name, method)}
    waiting = {("OptimisticPlanner", method) for method in ("regret", "table", "upsides")}
    dense = {(name, "sparse") for name in ("Fourier", "Identity", "Nystrom", "RBF", "RandomFourier")}
    assert never <= waiting | dense | {("Episode", "step")}


every_call = pytest.mark.parametrize(("name", "method"), CALLS)


@every_call
def test_every_layout_gives_the_same_bits(name, method):
    """The same numbers in other types and layouts, and one array as two arguments; all are left as they were."""
    for seed, trial in accepted(name, method):
        expected, arrays = Trial(name, method, seed).run()[:2], trial.numbers()
        before = {key: value.tobytes() for key, value in arrays.items()}
        for key, value in arrays.items():
            for layout, other in twins.layouts(value).items():
                if (name, method) in SINGLE and getattr(other, "dtype", None) == np.float32:
                    continue
                if np.array_equal(np.asarray(other, dtype=np.float64), value):
                    assert Trial(name, method, seed).run(**{key: other})[:2] == expected, (seed, key, layout)
        for key, value in trial.arguments.items():
            if isinstance(value, np.ndarray) and value.dtype == np.int64 and value.ndim:
                for layout, other in twins.integer_layouts(value).items():
                    assert Trial(name, method, seed).run(**{key: other})[:2] == expected, (seed, key, layout)
        for (key, value), (other, second) in itertools.permutations(arrays.items(), 2):
            if value.shape == second.shape:
                shared = outcome_of(Trial(name, method, seed), {key: value, other: value})
                apart = outcome_of(Trial(name, method, seed), {key: value, other: value.copy()})
                assert shared == apart, (seed, key, other)
        assert before == {key: value.tobytes() for key, value in arrays.items()}


@every_call
def test_what_does_not_fit_is_named_and_changes_nothing(name, method):
    for seed, trial in accepted(name, method):
        names, kinds = tuple(p.name for p in trial.wanted), {p.name: p.kind for p in trial.wanted}
        table = []
        for key, value in trial.numbers().items():
            none = [bad for bad in twins.no_numbers(value).values() if bad is not None or "None" not in kinds[key]]
            table += [(key, bad, names) for bad in (*none, *twins.not_finite(value), *too_long(trial, key, value))]
        for key in trial.arguments:
            if re.search(r"\bint\b", kinds[key]):
                table += [(key, bad, "") for bad in ("3", 1j, 2.5, -(2**70))]
        for key, bad, words in table:
            again = Trial(name, method, seed)
            with pytest.raises((TypeError, ValueError, OverflowError, IndexError)) as error:
                pytest.fail(f"{seed}, {key}: {bad!r} gave {again.run(**{key: bad})}")
            assert str(error.value).startswith(words), (seed, key, bad)
            assert state_of(again.made) == again.before, (seed, key, bad)


def arrays_in(value):
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, tuple | list):
        for one in value:
            yield from arrays_in(one)


@every_call
def test_what_comes_out_and_what_goes_in_is_the_callers(name, method):
    for _, trial in accepted(name, method):
        shown = []
        for attribute in trial.before or ():
            with contextlib.suppress(ValueError, RuntimeError):
                shown.append(getattr(trial.made, attribute))
        result = trial.run()[2]
        kept = result if type(result) in CLASSES and trial.made is None and name in KINDS else trial.made
        after, arguments = state_of(kept), [value.tobytes() for value in trial.numbers().values()]
        for array in arrays_in([result, shown]):
            if array.flags.writeable:
                array[...] = 1
        assert arguments == [value.tobytes() for value in trial.numbers().values()]
        for array in arrays_in(list(trial.arguments.values())):
            array[...] = 1
        assert state_of(kept) == after


@pytest.mark.parametrize("name", [name for name in KINDS if described(getattr(kernels, name), "__reduce__")])
def test_copies_answer_the_same_and_share_nothing(name):
    """By every protocol of pickle; what is asked of a copy changes the copy alone."""
    makers = [copy.copy, copy.deepcopy, getattr(getattr(kernels, name), "copy", copy.copy)]
    makers += [lambda made, p=p: pickle.loads(pickle.dumps(made, p)) for p in range(2, pickle.HIGHEST_PROTOCOL + 1)]
    for method in methods_of(getattr(kernels, name)) or [None]:
        for seed, trial in accepted(name, method):
            made = trial.made if method else trial.run()[2]
            answers = []
            for make in makers:
                before, other = snapshot(made), make(made)
                assert type(other) is type(made) and snapshot(other) == before
                assert type(made).__repr__ is object.__repr__ or repr(other) == repr(made)
                if method:
                    again = Trial(name, method, seed)
                    again.function = getattr(other, method)
                    answers.append((again.run()[0], snapshot(other)))
                assert snapshot(made) == before
            assert all(answer == answers[0] for answer in answers), (seed, method)


@pytest.mark.parametrize("name", [name for name in KINDS if described(getattr(kernels, name), "__setstate__")])
def test_states_that_are_none_are_refused_and_change_nothing(name):
    """Of a pickle: of another version, without a part, or with one that is no number or of another shape."""
    for method in methods_of(getattr(kernels, name)):
        for _, trial in accepted(name, method):
            trial.run()
            made, before = trial.made, state_of(trial.made)
            state = made.__reduce__()[2]
            assert bits(made.__setstate__(state)) == bits(None) and state_of(made) == before
            bad = [None, [], {}, 1, *({**state, "version": version} for version in (0, -1, None, "1", 1.5))]
            for key in state.keys() - {"version"}:
                bad.append({other: part for other, part in state.items() if other != key})
                bad += [{**state, key: part} for part in (None, "x", -np.inf, np.full((7, 3, 1), 1.0))]
                if isinstance(state[key], np.ndarray) and state[key].size:
                    bad += [{**state, key: part} for part in (state[key] * np.nan, state[key][None])]
            for one in bad:
                with pytest.raises((TypeError, ValueError), match=r"^state"):
                    pytest.fail(f"{one} gave {made.__setstate__(one)}")
                assert state_of(made) == before


@pytest.mark.parametrize("name", KINDS)
def test_objects_are_made_whole_and_what_they_show_cannot_be_set(name):
    kind = getattr(kernels, name)
    with contextlib.suppress(StopIteration):
        made = next(trial.made for method in methods_of(kind) for _, trial in accepted(name, method))
        for attribute in snapshot(made):
            with pytest.raises((AttributeError, TypeError)):
                setattr(made, attribute, 1)
    if any(parameter.required for parameter in parameters(kind)):
        with pytest.raises(TypeError):
            kind.__new__(kind)
