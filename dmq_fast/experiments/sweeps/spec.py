"""The specification of a sweep: environments x algorithms x parameters x seeds, from a TOML file.

::

    name = "locks"                     # default: the name of the file
    seeds = 25                         # 0, ..., 24; or a list: [0, 1, 7]
    max_seconds = 60                   # budget of each run: max_seconds, max_trajectories
    grace = 30                         # seconds beyond max_seconds after which a run that still goes on is ended
    evaluate = 1000                    # trajectories that estimate a value if there are no tables to compute it from

    [[environments]]
    name = "lock"                      # a name that dmq-fast envs lists, gym:ID, or module:function
    horizon = [10, 20, 40]             # each element of a list is tried
    n_actions = 4

    [[environments]]
    name = "deep-sea"
    size = 10
    seed = 42                          # one environment for all seeds, instead of one for each

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
`Options`. `function_class` is a text: "linear" or "finite", with arguments of `LinearClass` and `FiniteClass` as in
"finite:eps_s=0.01,penalty=FILE.npy", or "module:function" for a function that returns a `FunctionClass`. A cell records
the names of functions and .npy files, not their contents: after a change of their contents, start a new directory.

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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dmq_fast._support.checks import integer
from dmq_fast._support.imported import imported
from dmq_fast._support.json_text import from_json, not_too_deep, to_json
from dmq_fast._support.names import suggestion
from dmq_fast._support.words import number_of
from dmq_fast.environments import registry
from dmq_fast.experiments.sweeps import algorithms
from dmq_fast.experiments.sweeps.algorithms import Budget, Environment
from dmq_fast.samplers import as_sampler
from dmq_fast.samplers.base import close

__all__ = ["Cell", "Spec", "SpecError", "check_shard", "make_environment", "read", "reread", "seeds_of"]

LOGGER = logging.getLogger(__name__)

Place = tuple[str | int, ...]
"""Keys and indices that lead to a value, such as ("environments", 0, "horizon")."""

LARGEST = 1_000_000
"""Largest number of runs of a specification; more are taken for a mistake."""

GRACE = 600.0
"""Default of ``grace``. It covers the making of the environment and the estimate of the value, too."""

LONGEST = 1e8
"""Largest limit of a run in seconds, three years: what is longer has none."""

TOP = ("name", "seeds", "max_trajectories", "max_seconds", "grace", "evaluate", "environments", "algorithms")
BUDGETS = ("max_trajectories", "max_seconds")


class SpecError(ValueError):
    """A specification is wrong; the message names the key, as in algorithms[0].n_samples. Nothing was run."""


@dataclass(frozen=True)
class Cell:
    """One combination of environment, algorithm and parameters.

    Parameters that were not given have their defaults; those whose default is None are left out. `places` records where
    in the specification each parameter stands. A run that still goes on `grace` seconds after its budget of seconds is
    ended; this is no part of what the cell is, as it changes no result of a run that ends.
    """

    environment: str
    environment_parameters: dict[str, Any]
    environment_seed: int | None
    algorithm: str
    algorithm_parameters: dict[str, Any]
    budget: Budget
    evaluate: int
    places: dict[str, Place] = field(default_factory=dict, compare=False, repr=False)
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
        return hashlib.sha256(to_json(canonical(content), sort_keys=True).encode()).hexdigest()[:20]


@dataclass(frozen=True)
class Spec:
    """A specification whose keys and names are right; `check` finds wrong values."""

    name: str
    seeds: tuple[int, ...]
    cells: tuple[Cell, ...]
    text: str
    source: Source

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
        for cell in self.cells:
            with self.blaming(cell, "environments"):
                wanted = to_json([cell.environment, cell.environment_parameters, cell.environment_seed])
                if made[0] != wanted:
                    dismiss(made[1])
                    made = (wanted, None)
                    made = (wanted, make_environment(cell, environment_seed))
                    as_sampler(made[1])  # refuses what is no environment, which an algorithm would be blamed for
            if made[1] is not None:
                with self.blaming(cell, "algorithms"):
                    algorithm = algorithms.find(cell.algorithm)(made[1], algorithm_seed, **cell.algorithm_parameters)
                    if isinstance(algorithm, algorithms.LearnerAlgorithm):
                        warned.update(f"of {cell.algorithm}: {warning}" for warning in algorithm.warnings)
        dismiss(made[1])
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
                    raise self.source.error(place, rest if named == key else message) from error
            raise self.source.error(cell.places[table], message) from error
        except (Exception, SystemExit):  # see `check`
            return


class Source(NamedTuple):
    """The name of a specification, for its errors."""

    name: str

    def error(self, place: Place, message: str) -> SpecError:
        """Return an error about the value at `place`."""
        return SpecError(": ".join(filter(None, (self.name, dotted(place), message))))


class Choice(NamedTuple):
    """One value of a parameter, and its place in the specification."""

    value: Any
    place: Place


def read(spec: str | os.PathLike[str] | Mapping[str, Any] | Spec) -> Spec:
    """Read a specification.

    Parameters
    ----------
    spec : path, mapping or Spec
        A TOML file, or its contents as ``tomllib.load`` returns them.

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
            text = to_json(spec, default=str)
        return build(dict(spec), "sweep", text, Source("specification"))
    if not isinstance(spec, str | os.PathLike):
        raise TypeError(f"spec: expected a path, a mapping or a Spec, got {spec!r}")
    path = Path(spec)
    data = path.read_bytes()
    with refusing(f"{path}: not TOML"):
        # Some editors write a byte order mark at the beginning of a file.
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
        contents = tomllib.loads(text)
    return build(contents, path.stem, text, Source(str(path)))


def reread(text: str, name: str) -> Spec:
    """Read the text of a specification that a store holds: TOML, or JSON where it was given from Python; see `read`."""
    with refusing(f"{name}: not a specification"):
        data = from_json(text) if text.startswith("{") else tomllib.loads(text)
    return build(data, name, text, Source(name))


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


def build(data: dict[str, Any], name: str, text: str, source: Source) -> Spec:
    """Return the specification with these contents."""
    with refusing(source.name):
        return built(data, name, text, source)


def built(data: dict[str, Any], name: str, text: str, source: Source) -> Spec:
    """Return the specification with these contents, which do not nest too deep."""
    refuse_unknown(source, (), data, TOP)
    name = data.get("name", name)
    if not isinstance(name, str):
        raise source.error(("name",), f"expected a string, got {name!r}")
    seeds = read_seeds(source, data)
    limits = {
        key: value for key in BUDGETS if (value := read_budget(source, key, Choice(data.get(key), (key,)))) is not None
    }
    evaluate = data.get("evaluate", 1000)
    if not is_integer(evaluate, 0):
        raise source.error(("evaluate",), f"expected an integer >= 0, got {evaluate!r}")
    grace = data.get("grace", GRACE)
    if isinstance(grace, bool) or not isinstance(grace, int | float) or not grace >= 0:
        raise source.error(("grace",), f"expected a number of seconds >= 0, got {grace!r}")
    sides = [
        list(
            itertools.chain.from_iterable(
                combinations(source, key, i, table) for i, table in read_tables(source, data, key)
            )
        )
        for key in ("environments", "algorithms")
    ]
    if len(sides[0]) * len(sides[1]) * len(seeds) > LARGEST:
        raise source.error(
            (), f"expected at most {LARGEST:,} runs, got {len(sides[0])} x {len(sides[1])} x {len(seeds)}"
        )
    cells: dict[str, Cell] = {}
    for environment, algorithm in itertools.product(*sides):
        cell = make_cell(source, environment, algorithm, limits, evaluate, grace)
        if (twin := cells.setdefault(cell.id, cell)) is not cell:
            first = " with ".join(dotted(twin.places[table]) for table in ("environments", "algorithms"))
            both = f"{cell.environment} {cell.environment_parameters}, {cell.algorithm} {cell.algorithm_parameters}"
            guilty = "algorithms" if twin.places["algorithms"] != cell.places["algorithms"] else "environments"
            place = next(
                (place for key, place in cell.places.items() if twin.places.get(key) != place), cell.places[guilty]
            )
            raise source.error(place, f"the same combination a second time, first {first}: {both}")
    return Spec(name, seeds, tuple(cells.values()), text, source)


def read_seeds(source: Source, data: dict[str, Any]) -> tuple[int, ...]:
    """Return the seeds of a specification."""
    seeds = data.get("seeds", 1)
    if is_integer(seeds, 1):
        if seeds > LARGEST:
            raise source.error(("seeds",), f"expected at most {LARGEST:,} seeds, got {seeds}")
        return tuple(range(seeds))
    if not isinstance(seeds, list | tuple | range) or not seeds:
        raise source.error(("seeds",), f"expected an integer >= 1 (how many) or a list of integers >= 0, got {seeds!r}")
    if len(seeds) > LARGEST:
        raise source.error(("seeds",), f"expected at most {LARGEST:,} seeds, got {len(seeds):,}")
    met: dict[int, None] = {}
    for i, seed in enumerate(seeds):
        if not is_integer(seed, 0):
            raise source.error(("seeds", i), f"expected an integer in [0, 2^63), got {seed!r}")
        if seed in met:
            raise source.error(("seeds", i), f"the seed {seed} a second time")
        met[seed] = None
    return tuple(met)


def read_budget(source: Source, key: str, choice: Choice) -> Any:
    """Return the value of a budget, checked; None for none."""
    value = choice.value
    if value is None:
        return None
    if key == "max_trajectories":
        if not is_integer(value, 1):
            raise source.error(choice.place, f"expected an integer >= 1, got {value!r}")
    elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise source.error(choice.place, f"expected a number > 0, got {value!r}")
    return value


def read_tables(source: Source, data: dict[str, Any], key: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield index and contents of each table ``[[key]]``."""
    given = data.get(key)
    if not isinstance(given, list | tuple) or not given or not all(isinstance(table, Mapping) for table in given):
        got = "none" if given is None else repr(given)
        raise source.error((key,), f"expected at least one table [[{key}]], got {got}")
    for i, table in enumerate(given):
        yield i, dict(table)


def combinations(source: Source, key: str, index: int, table: dict[str, Any]) -> Iterator[dict[str, Choice]]:
    """Yield all combinations of the elements of the lists of a table."""
    place: Place = (key, index)
    if "name" not in table:
        raise source.error(place, "expected a name, got none")
    choices: dict[str, list[Choice]] = {}
    for name, value in table.items():
        if not isinstance(value, list | tuple | range):
            choices[name] = [Choice(value, (*place, name))]
        elif not value:
            raise source.error((*place, name), "an empty list leaves nothing to run")
        elif len(value) > LARGEST:
            raise source.error((*place, name), f"expected at most {LARGEST:,} values, got {len(value):,}")
        else:
            choices[name] = [Choice(element, (*place, name, i)) for i, element in enumerate(value)]
        for choice in choices[name]:
            if not is_storable(choice.value):
                raise source.error(
                    choice.place, f"expected strings, booleans, finite numbers or lists of them, got {choice.value!r}"
                )
    if math.prod(map(len, choices.values())) > LARGEST:
        raise source.error(place, f"expected at most {LARGEST:,} combinations, got more")
    for combination in itertools.product(*choices.values()):
        yield dict(zip(choices, combination, strict=True))


def make_cell(
    source: Source,
    environment: dict[str, Choice],
    algorithm: dict[str, Choice],
    limits: dict[str, Any],
    evaluate: int,
    grace: float,
) -> Cell:
    """Return one cell, after checking the names of its parameters."""
    places: dict[str, Place] = {
        "environments": environment["name"].place[:2],
        "algorithms": algorithm["name"].place[:2],
    }
    for table, choices in (("environments", environment), ("algorithms", algorithm)):
        places |= {f"{table}.{key}": choice.place for key, choice in choices.items()}
    seed = environment.get("seed")
    if seed is not None and not is_integer(seed.value, 0):
        raise source.error(seed.place, f"expected an integer in [0, 2^63), got {seed.value!r}")
    own = {key: read_budget(source, key, algorithm[key]) for key in BUDGETS if key in algorithm}
    algorithm = upgraded(algorithm)
    return Cell(
        environment=environment["name"].value,
        environment_parameters=complete(source, environment, environment_parameters, ("name", "seed")),
        environment_seed=None if seed is None else seed.value,
        algorithm=algorithm["name"].value,
        algorithm_parameters=complete(source, algorithm, algorithm_parameters, ("name", *BUDGETS)),
        budget=Budget(**(limits | own)),
        evaluate=evaluate,
        places=places,
        grace=grace,
    )


def upgraded(choices: dict[str, Choice]) -> dict[str, Choice]:
    """Return the parameters of an algorithm, those of version 0.2.0 in their present form."""
    variant = choices["variant"].value if "variant" in choices else None
    if not algorithms.upgraded(choices["name"].value, choices, variant):
        return choices
    present = {key: choice for key, choice in choices.items() if (key, choice.value) != ("variant", "adaptive")}
    present["name"] = choices["name"]._replace(value="self-stopping")
    if "strict" in present:
        strict = present.pop("strict")
        present["mode"] = strict._replace(value="strict" if strict.value else "quick")
    return present


def complete(source: Source, choices: dict[str, Choice], parameters: Any, reserved: tuple[str, ...]) -> dict[str, Any]:
    """Return the given parameters and the defaults of the others."""
    name = choices["name"]
    if not isinstance(name.value, str):
        raise source.error(name.place, f"expected a string, got {name.value!r}")
    try:
        known: dict[str, Any] | None = parameters(name.value)
    except ValueError as error:
        raise source.error(name.place, str(error).removeprefix("name: ")) from error
    given = {key: choice for key, choice in choices.items() if key not in reserved}
    if known is None:
        return {key: choice.value for key, choice in given.items()}
    for key, choice in given.items():
        if key not in known:
            raise source.error(
                choice.place[:3],
                f"expected parameters of {name.value} among {', '.join([*known, *reserved[1:]])}, got {key!r}"
                f"{suggestion(key, [*known, *reserved[1:]])}",
            )
    for key, default in known.items():
        if default is inspect.Parameter.empty and key not in given:
            raise source.error(name.place[:2], f"{name.value}: expected the parameter {key}, got none")
    values = known | {key: choice.value for key, choice in given.items()}
    return {key: value for key, value in values.items() if key in given or (value is not None and is_storable(value))}


@functools.cache
def environment_parameters(name: str) -> dict[str, Any] | None:
    """Return names and defaults of the parameters of an environment; None if it takes any."""
    if name.startswith(registry.GYMNASIUM_PREFIX):
        return None
    if name in registry.REGISTRY:
        return {parameter.name: parameter.default for parameter in registry.describe()[name]}
    if ":" in name:
        return algorithms.parameters_of(imported("name", name), but=("rng",))
    known = registry.REGISTRY
    raise ValueError(
        f"expected one of {', '.join(known)}, {registry.GYMNASIUM_PREFIX}ID or module:function, got {name!r}"
        f"{suggestion(name, known)}"
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
    if name in registry.REGISTRY or name.startswith(registry.GYMNASIUM_PREFIX):
        return registry.make(name, rng=seed, **parameters)
    factory = imported("name", name)
    if "rng" in inspect.signature(factory).parameters:
        parameters = parameters | {"rng": seed}
    made: Environment = factory(**parameters)
    return made


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


def refuse_unknown(source: Source, place: Place, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Raise SpecError at the first unknown key."""
    for key in given:
        if key not in known:
            raise source.error(
                (*place, key), f"expected keys among {', '.join(known)}, got {key!r}{suggestion(key, known)}"
            )


def dotted(place: Place) -> str:
    """Return a place as text, such as ``environments[0].horizon``."""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")
