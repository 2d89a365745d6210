"""The specification of a sweep: environments x algorithms x parameters x seeds, from a TOML file.

::

    name = "locks"                     # default: the name of the file
    seeds = 25                         # 0, ..., 24; or a list: [0, 1, 7]
    max_seconds = 60                   # budget of each run: max_seconds, max_trajectories
    grace = 30                         # seconds beyond max_seconds after which a run that still goes on is ended
    evaluate = 1000                    # trajectories that estimate a value if there are no tables to compute it from

    [[environments]]
    name = "lock"                      # a name that dmq-fast envs lists, gym:ID, bsuite:ID, or module:function
    horizon = [10, 20, 40]             # each element of a list is tried
    n_actions = 4

    [[environments]]
    name = "deep-sea"
    size = 10
    seed = 42                          # one environment for all seeds, instead of one for each

    [[environments]]
    name = "my_module:make"            # the seed reaches a parameter rng or seed of the function; a `seed` in this
    horizon = 20                       # table also its **kwargs. What it does not take itself of horizon, features,
    wrapper = "my_module:wrap"         # history and wrapper is for environments.as_environment

    [[algorithms]]
    name = "dmq"
    variant = ["sound", "paper"]
    n_samples = [20, 100]
    initial = [[0, 1, 0, 1]]           # a value that is a list is written inside a list
    max_trajectories = 100_000         # replaces the budget above; may be a list

    [[algorithms]]
    name = "self-stopping"
    epsilon = [0.05, 0.1]
    mode = "quick"

    [[algorithms]]
    name = "dmq"
    function_class = ["finite:eps_s=0.01", "my_module:make_class"]

Each table stands for all combinations of the elements of its lists. Every environment is combined with every algorithm.
Such a combination is called a cell, and has one run for each seed.

The parameters of the algorithm "self-stopping" are the arguments of `dmq_fast.SelfStopping`. Those of "dmq" are
`sampler` ("rollout", "flow" or "exact"), `arithmetic` of the exact sampler, the arguments of `dmq_fast.DMQ`, and its
`Options`. `function_class` is a text: "linear", or "finite", with arguments of `FiniteClass` as in
"finite:eps_s=0.01,scale=2", or "module:function" for a function that returns a `FunctionClass`. A cell records the
names of functions, not their contents: after a change of their contents, start a new directory.

The names are checked when the file is read, the values before the first run::

>>> from dmq_fast import experiments
>>> spec = experiments.read({
...     "seeds": 25,
...     "environments": [{"name": "lock", "horizon": [10, 20, 40]}],
...     "algorithms": [{"name": "dmq", "variant": ["sound", "paper"]}],
... })
>>> len(spec.cells), spec.n_runs
(6, 150)
>>> spec.cells[0].algorithm_parameters
{'sampler': 'rollout', 'n_samples': 100, 'variant': 'sound', 'ratio': 2.0, 'eps_r': 0.01, 'ridge': 0.001}
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import itertools
import logging
import math
import os
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dmq_fast._support.checks import integer
from dmq_fast._support.imported import imported
from dmq_fast._support.json_text import finite_json, not_too_deep, plain, to_json
from dmq_fast._support.names import suggestion
from dmq_fast._support.words import number_of
from dmq_fast.environments import as_environment, registry
from dmq_fast.environments.seeds import SEEDS, seeded
from dmq_fast.experiments.sweeps import algorithms
from dmq_fast.experiments.sweeps.algorithms import Budget, Environment
from dmq_fast.samplers import as_sampler
from dmq_fast.samplers.base import close

__all__ = ["Cell", "Spec", "SpecError", "check_shard", "make_environment", "read", "reread", "seeds_of"]

LOGGER = logging.getLogger(__name__)

LARGEST = 1_000_000
"""Largest number of runs of a specification; more are taken for a mistake."""

GRACE = 600.0
"""Default of ``grace``. It covers the making of the environment and the estimate of the value, too."""

LONGEST = 1e8
"""Largest limit of a run in seconds, three years: what is longer has none."""

BUDGETS = ("max_trajectories", "max_seconds")

DEFAULTS = {"seeds": 1, "grace": GRACE, "evaluate": 1000, "environments": None, "algorithms": None}
"""Keys of a specification that it need not give, or that are refused as they are."""

KINDS = (bool, int, float, str, list, dict)
"""Types that TOML and JSON have."""

TOP = ("name", *BUDGETS, *DEFAULTS)

DOOR = ("horizon", "features", "history", "wrapper")
"""Arguments of `as_environment` that a table with an environment of one's own may give."""


class SpecError(ValueError):
    """A specification is wrong; the message names the key, as in algorithms[0].n_samples. Nothing was run."""


@dataclass(frozen=True)
class Cell:
    """One combination of environment, algorithm and parameters.

    Parameters that were not given have their defaults; those whose default is None are left out. `places` records where
    in the specification each parameter stands. A worker ends a run that still goes on `grace` seconds after its
    budget of seconds; this is no part of what the cell is, as it changes no result of a run that ends.
    """

    environment: str
    environment_parameters: dict[str, Any]
    environment_seed: int | None
    algorithm: str
    algorithm_parameters: dict[str, Any]
    budget: Budget
    evaluate: int
    places: dict[str, str] = field(default_factory=dict, compare=False, repr=False)
    grace: float = field(default=GRACE, compare=False)

    @property
    def limit(self) -> float | None:
        """Seconds after which a run is ended; None if it has no limit."""
        budget = self.budget.max_seconds
        limit = math.inf if budget is None else budget + self.grace
        return limit if limit < LONGEST else None

    @functools.cached_property
    def id(self) -> str:
        """Hash of all that a run of the cell depends on, except the seed."""
        algorithm, algorithm_parameters = algorithms.identity(self.algorithm, self.algorithm_parameters)
        content = [
            self.environment,
            self.environment_parameters,
            self.environment_seed,
            algorithm,
            algorithm_parameters,
            [self.budget.max_trajectories, self.budget.max_seconds],
            self.evaluate,
        ]
        return hashlib.sha256(finite_json(canonical(content), sort_keys=True).encode()).hexdigest()[:20]


@dataclass(frozen=True)
class Spec:
    """A specification whose keys and names are right; `check` finds wrong values."""

    name: str
    seeds: tuple[int, ...]
    cells: tuple[Cell, ...]
    text: str
    source: str

    @property
    def n_runs(self) -> int:
        """Number of runs."""
        return len(self.cells) * len(self.seeds)

    def runs(self, shard: tuple[int, int] | None = None) -> Iterator[tuple[Cell, int]]:
        """Yield cell and seed of every run, or of those of the shard i of n, given as the pair (i, n).

        A shard has one of every n consecutive runs, each time the next one: so no shard gets a single algorithm, or a
        single seed, where their number divides n.
        """
        for number, run in enumerate(itertools.product(self.cells, self.seeds)):
            if shard is None or (number + number // shard[1]) % shard[1] == shard[0]:
                yield run

    def check(self) -> None:
        """Make every environment and every algorithm once, so that wrong values are refused before the sweep.

        What is known to fail with the parameters of DMQ is logged, each warning once with the number of its cells.

        Raises
        ------
        SpecError
            If one raises a TypeError, ValueError or ImportError. Other exceptions may depend on the seed; the runs
            record them.
        """
        environment_seed, algorithm_seed = seeds_of(self.seeds[0])
        made: tuple[str, Any] = ("", None)
        warned: Counter[str] = Counter()
        unseeded: set[str] = set()
        for cell in self.cells:
            with self.blaming(cell, "environments"):
                wanted = to_json([cell.environment, cell.environment_parameters, cell.environment_seed])
                if made[0] != wanted:
                    dismiss(made[1])
                    made = (wanted, None)
                    made = (wanted, make_environment(cell, environment_seed))
                    if len(self.seeds) > 1 and fixed(cell):
                        unseeded.add(cell.environment)
                    as_sampler(made[1])  # refuses what is no environment, which an algorithm would be blamed for
            if made[1] is not None:
                with self.blaming(cell, "algorithms"):
                    algorithm = algorithms.find(cell.algorithm)(made[1], algorithm_seed, **cell.algorithm_parameters)
                    if isinstance(algorithm, algorithms.LearnerAlgorithm):
                        warned.update(f"of {cell.algorithm}: {warning}" for warning in algorithm.warnings)
        dismiss(made[1])
        for name in sorted(unseeded):
            LOGGER.warning("%s has no parameter rng or seed: it is called in the same way for every seed", name)
        for warning, count in warned.items():
            LOGGER.warning("%s %s", number_of(count, "cell"), warning)

    @contextlib.contextmanager
    def blaming(self, cell: Cell, table: str) -> Iterator[None]:
        """Turn an exception into a SpecError at the parameter that its message begins with."""
        try:
            yield
        except (TypeError, ValueError, ImportError) as error:
            message = " ".join(str(error).split())
            named, _, rest = message.partition(": ")
            for key in named.split(", "):
                if (place := cell.places.get(f"{table}.{key}")) is not None:
                    raise wrong(self.source, place, rest if named == key else message) from error
            raise wrong(self.source, cell.places[table], message) from error
        except (Exception, SystemExit):  # see `check`
            return


class Choice(NamedTuple):
    """One value of a parameter, and its place in the specification, such as "environments[0].horizon[1]"."""

    value: Any
    place: str


def wrong(source: str, place: str, message: str) -> SpecError:
    """Return an error about the value at a place of the specification of this name."""
    return SpecError(": ".join(filter(None, (source, place, message))))


def expect(fits: bool, source: str, choice: Choice, expected: str) -> None:
    """Raise SpecError unless a value fits."""
    if not fits:
        kind = type(choice.value)
        plain = choice.value is None or kind in KINDS
        of_python = "" if plain else f" of the type {kind.__qualname__}; write its text, or a number that stands for it"
        got = "none" if choice.value is None else f"{choice.value!r:.200}{of_python}"
        raise wrong(source, choice.place, f"expected {expected}, got {got}")


def read(spec: str | os.PathLike[str] | Mapping[str, Any] | Spec) -> Spec:
    """Read a specification.

    Parameters
    ----------
    spec : path, mapping or Spec
        A TOML file, or its contents as ``tomllib.load`` returns them. Tuples, ranges, other sequences and arrays stand
        for lists, mappings of any kind for tables, and NumPy's numbers for those of Python.

    Raises
    ------
    OSError
        If the file cannot be read.
    SpecError
        If it is wrong.
    """
    if isinstance(spec, Spec):
        return spec
    if isinstance(spec, Mapping):
        with refusing("specification"):
            data = as_data(spec)
        # After the checks, since only what they accept can be written.
        return replace(build(data, "sweep", "", "specification"), text=as_text(data))
    if not isinstance(spec, str | os.PathLike):
        raise TypeError(f"spec: expected a path, a mapping or a Spec, got {spec!r}")
    path = Path(spec)
    data = path.read_bytes()
    with refusing(f"{path}: not TOML"):
        # Some editors write a byte order mark at the beginning of a file.
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
        contents = tomllib.loads(text)
    return build(contents, path.stem, text, str(path))


def as_data(value: Any) -> Any:
    """Return what a specification from Python holds as TOML has it: dicts, lists, texts, bools, numbers.

    What is nothing of that kind stays as it is, and is refused by `build` with its place.
    """
    if isinstance(value, Mapping):
        return {key: as_data(one) for key, one in value.items()}
    if isinstance(value, str):
        return str.__str__(value)  # of an enumeration, its value
    if isinstance(value, np.ndarray | np.generic):
        return as_data(value.tolist())
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [as_data(one) for one in value] if len(value) <= LARGEST else value
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    return float(value) if isinstance(value, float) else value


def as_text(data: dict[str, Any]) -> str:
    """Return a specification from Python as JSON, in which `grace` may be the text "Infinity"."""
    grace = data.get("grace", 0)
    return finite_json(data if math.isfinite(grace) else data | {"grace": "Infinity"})


def reread(text: str, name: str) -> Spec:
    """Read the text of a specification that a store holds: TOML, or JSON where it was given from Python; see `read`."""
    with refusing(f"{name}: not a specification"):
        data = plain(text) if text.startswith("{") else tomllib.loads(text)
        if isinstance(data.get("grace"), str):
            data["grace"] = float(data["grace"])
    return build(data, name, text, name)


@contextlib.contextmanager
def refusing(beginning: str) -> Iterator[None]:
    """Turn errors at a text that is no TOML or JSON, or nests too deep, into SpecError with this beginning."""
    try:
        with not_too_deep():
            yield
    except SpecError:
        raise
    except ValueError as error:
        raise SpecError(f"{beginning}: {error}") from error


def check_shard(shard: tuple[int, int] | None) -> tuple[int, int] | None:
    """Return a shard as a pair of integers (i, n) with 0 <= i < n; TypeError or ValueError for anything else."""
    if shard is None:
        return None
    if not isinstance(shard, tuple | list) or len(shard) != 2:
        raise TypeError(f"shard: expected a pair (i, n) with 0 <= i < n, got {shard!r}")
    i, n = (integer("shard", number, 0) for number in shard)
    if i >= n:
        raise ValueError(f"shard: expected a pair (i, n) with 0 <= i < n, got {shard!r}")
    return i, n


def build(data: dict[str, Any], name: str, text: str, source: str) -> Spec:
    """Return the specification with these contents; `name` is its default, and `source` that in errors."""
    with refusing(source):
        for key in data:
            known = f"keys among {', '.join(TOP)}"
            if key not in TOP:
                raise wrong(source, key, f"expected {known}, got {key!r}{suggestion(key, TOP)}")
        given = {key: Choice(value, key) for key, value in {"name": name, **DEFAULTS, **data}.items()}
        name, evaluate, grace = (given[key].value for key in ("name", "evaluate", "grace"))
        expect(isinstance(name, str), source, given["name"], "a string")
        expect(is_integer(evaluate, 0), source, given["evaluate"], "an integer >= 0")
        expect(is_number(grace) and grace >= 0, source, given["grace"], "a number of seconds >= 0")
        seeds = read_seeds(source, given["seeds"])
        limits = budgets_of(source, given)
        sides = [list(combinations(source, given[key])) for key in ("environments", "algorithms")]
        if len(sides[0]) * len(sides[1]) * len(seeds) > LARGEST:
            raise wrong(
                source, "", f"expected at most {LARGEST:,} runs, got {len(sides[0])} x {len(sides[1])} x {len(seeds)}"
            )
        cells: dict[str, Cell] = {}
        for environment, algorithm in itertools.product(*sides):
            cell = make_cell(source, environment, algorithm, limits, evaluate, grace)
            if (twin := cells.setdefault(cell.id, cell)) is not cell:
                differing = [place for key, place in cell.places.items() if twin.places.get(key) != place]
                first = " with ".join(twin.places[table] for table in ("environments", "algorithms"))
                both = f"{cell.environment} {cell.environment_parameters}, {cell.algorithm} {cell.algorithm_parameters}"
                raise wrong(source, differing[0], f"the same combination a second time, first {first}: {both}")
        return Spec(name, seeds, tuple(cells.values()), text, source)


def read_seeds(source: str, choice: Choice) -> tuple[int, ...]:
    """Return the seeds of a specification."""
    seeds = choice.value
    if is_integer(seeds, 1):
        seeds = range(seeds)
    many = isinstance(seeds, list | tuple | range) and bool(seeds)
    expect(many, source, choice, "an integer >= 1 (how many) or a list of integers >= 0")
    refuse_too_many(source, "seeds", len(seeds), "seeds")
    met: dict[int, None] = {}
    for i, seed in enumerate(seeds):
        expect(is_integer(seed, 0), source, Choice(seed, f"seeds[{i}]"), "an integer in [0, 2^63)")
        if seed in met:
            raise wrong(source, f"seeds[{i}]", f"the seed {seed} a second time")
        met[seed] = None
    return tuple(met)


def refuse_too_many(source: str, place: str, n: int, things: str) -> None:
    """Raise SpecError where there are far too many of something."""
    if n > LARGEST:
        raise wrong(source, place, f"expected at most {LARGEST:,} {things}, got {n:,}")


def budgets_of(source: str, given: Mapping[str, Choice]) -> dict[str, Any]:
    """Return the budgets that are given, checked."""
    found = {key: given[key] for key in BUDGETS if key in given}
    for key, choice in found.items():
        if key == "max_trajectories":
            expect(is_integer(choice.value, 1), source, choice, "an integer >= 1")
        else:
            expect(is_number(choice.value) and 0 < choice.value < math.inf, source, choice, "a number > 0")
    return {key: choice.value for key, choice in found.items()}


def combinations(source: str, tables: Choice) -> Iterator[dict[str, Choice]]:
    """Yield all combinations of the elements of the lists of each table, ``[[environments]]`` or ``[[algorithms]]``."""
    given, key = tables
    are_tables = isinstance(given, list | tuple) and given and all(isinstance(table, Mapping) for table in given)
    expect(bool(are_tables), source, tables, f"at least one table [[{key}]]")
    for index, table in enumerate(given):
        here = f"{key}[{index}]"
        if "name" not in table:
            raise wrong(source, here, "expected a name, got none")
        choices: dict[str, list[Choice]] = {}
        for name, value in table.items():
            place, listed = f"{here}.{name}", isinstance(value, list | tuple | range)
            if listed and not value:
                raise wrong(source, place, "an empty list leaves nothing to run")
            refuse_too_many(source, place, len(value) if listed else 1, "values")
            choices[name] = [Choice(one, f"{place}[{i}]" if listed else place)
                             for i, one in enumerate(value if listed else [value])]  # fmt: skip
            for choice in choices[name]:
                expect(is_storable(choice.value), source, choice, "strings, booleans, finite numbers or lists of them")
        refuse_too_many(source, here, math.prod(map(len, choices.values())), "combinations")
        for combination in itertools.product(*choices.values()):
            yield dict(zip(choices, combination, strict=True))


def make_cell(
    source: str,
    environment: dict[str, Choice],
    algorithm: dict[str, Choice],
    limits: dict[str, Any],
    evaluate: int,
    grace: float,
) -> Cell:
    """Return one cell, after checking the names of its parameters."""
    places: dict[str, str] = {}
    for table, choices in (("environments", environment), ("algorithms", algorithm)):
        places[table] = table_of(choices)
        places |= {f"{table}.{key}": choice.place for key, choice in choices.items()}
    if (seed := environment.get("seed")) is not None:
        expect(is_integer(seed.value, 0), source, seed, "an integer in [0, 2^63)")
    parameters = complete(source, environment, environment_parameters, ("name", "seed"))
    if seed is not None:
        try:
            check_seed(environment["name"].value, seed.value)
        except (ValueError, ImportError) as error:
            raise wrong(source, seed.place, str(error)) from error
    return Cell(
        environment=environment["name"].value,
        environment_parameters=parameters,
        environment_seed=None if seed is None else seed.value,
        algorithm=algorithm["name"].value,
        algorithm_parameters=complete(source, algorithm, algorithm_parameters, ("name", *BUDGETS)),
        budget=Budget(**(limits | budgets_of(source, algorithm))),
        evaluate=evaluate,
        places=places,
        grace=grace,
    )


def table_of(choices: Mapping[str, Choice]) -> str:
    """Return the place of the table of a combination, such as "algorithms[0]"."""
    return choices["name"].place.partition(".")[0]


def complete(source: str, choices: dict[str, Choice], parameters: Any, reserved: tuple[str, ...]) -> dict[str, Any]:
    """Return the given parameters and the defaults of the others."""
    name = choices["name"]
    expect(isinstance(name.value, str), source, name, "a string")
    try:
        known: dict[str, Any] | None = parameters(name.value)
    except ValueError as error:
        raise wrong(source, name.place, str(error).removeprefix("name: ")) from error
    given = {key: choice.value for key, choice in choices.items() if key not in reserved}
    if known is None:
        return given
    names = [*known, *reserved[1:]]
    for key in given:
        if key not in known:
            message = f"expected parameters of {name.value} among {', '.join(names)}, got {key!r}"
            raise wrong(source, f"{table_of(choices)}.{key}", message + suggestion(key, names))
    for key, default in known.items():
        if default is inspect.Parameter.empty and key not in given:
            raise wrong(source, table_of(choices), f"{name.value}: expected the parameter {key}, got none")
    values = known | given
    return {key: value for key, value in values.items() if key in given or (value is not None and is_storable(value))}


@functools.cache
def environment_parameters(name: str) -> dict[str, Any] | None:
    """Return names and defaults of the parameters of an environment; None if it takes any."""
    if name.startswith(registry.PREFIXES):
        return None
    if name in registry.REGISTRY:
        return {parameter.name: parameter.default for parameter in registry.describe()[name]}
    if ":" in name:
        own = algorithms.parameters_of(imported("name", name), but=SEEDS)
        return None if own is None else dict.fromkeys(DOOR) | own
    known = registry.REGISTRY
    prefixed = ", ".join(f"{prefix}ID" for prefix in registry.PREFIXES)
    raise ValueError(
        f"expected one of {', '.join(known)}, {prefixed} or module:function, got {name!r}{suggestion(name, known)}"
    )


def algorithm_parameters(name: str) -> dict[str, Any] | None:
    """Return names and defaults of the parameters of an algorithm; None if it takes any."""
    factory = algorithms.find(name)
    names = list(inspect.signature(factory).parameters)
    return algorithms.parameters_of(factory, but=names[:2])


def dismiss(env: Environment | None) -> None:
    """Close an environment that was made to check its parameters; the runs tell of what fails there."""
    with contextlib.suppress(Exception):
        close(env)


def make_environment(cell: Cell, seed: int) -> Environment:
    """Make the environment of a cell, from `seed` unless the cell has a seed of its own."""
    seed = seed if cell.environment_seed is None else cell.environment_seed
    name, parameters = cell.environment, cell.environment_parameters
    if is_named(name):
        return registry.make(name, rng=seed, **parameters)
    factory, own = imported("name", name), environment_parameters(name)
    taken = inspect.signature(factory).parameters
    # What the function does not take by name is for the door through which its environment goes.
    door = {key: parameters[key] for key in DOOR if own is not None and key in parameters and key not in taken}
    given = {key: value for key, value in parameters.items() if key not in door}
    made: Environment = as_environment(
        factory(**given, **seeded(factory, seed, asked=cell.environment_seed is not None)), **door
    )
    return made


def is_named(name: str) -> bool:
    """Return whether an environment has a name of the package's, and is not a function of its user's."""
    return name in registry.REGISTRY or name.startswith(registry.PREFIXES)


def check_seed(name: str, seed: int) -> None:
    """Raise ValueError where a seed that was given for an environment would not reach it."""
    if not is_named(name):
        seeded(imported("name", name), seed, asked=True)
    elif not registry.draws(name):
        raise ValueError(f"expected none, as nothing of {name} is drawn from it, got {seed}")


def fixed(cell: Cell) -> bool:
    """Return whether an environment of one's own is made from no seed, whatever that of a run is."""
    if is_named(cell.environment) or cell.environment_seed is not None:
        return False
    return not seeded(imported("name", cell.environment), 0, asked=False)


@functools.lru_cache(maxsize=1 << 16)
def seeds_of(seed: int) -> tuple[int, int]:
    """Return the seeds of environment and algorithm that belong to a seed of the sweep.

    They are the first 63 bits of ``SeedSequence(seed, spawn_key=(0,))`` and ``spawn_key=(1,)``. As they depend on
    nothing else, the runs of a cell do not change when others are added to the sweep, and the runs of one seed in
    different cells are paired: all algorithms learn the same environment, with the same random numbers.
    """
    environment, algorithm = (
        int(np.random.SeedSequence(seed, spawn_key=(i,)).generate_state(1, np.uint64)[0] >> np.uint64(1))
        for i in range(2)
    )
    return environment, algorithm


def canonical(value: Any) -> Any:
    """Return a value in one form for all that are equal: 2.0 becomes 2."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list | tuple):
        return [canonical(element) for element in value]
    if isinstance(value, dict):
        return {key: canonical(element) for key, element in value.items()}
    return value


def is_storable(value: Any) -> bool:
    """Return whether a value can be stored as JSON."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, list | tuple):
        return all(map(is_storable, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_storable(element) for key, element in value.items())
    return isinstance(value, str | bool | int)


def is_integer(value: Any, least: int) -> bool:
    """Return whether a value is an integer >= `least` that SQLite can hold."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**63


def is_number(value: Any) -> bool:
    """Return whether a value is a number, and no bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)
