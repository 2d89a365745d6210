"""The environment that the options of ``run`` describe, from the registry or from a Python file."""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from dmq_fast._support.names import suggestion

if TYPE_CHECKING:
    from dmq_fast.environments import FiniteMDP
    from dmq_fast.samplers import Sampler

__all__ = ["Subject", "make_subject"]


class Subject(NamedTuple):
    """An environment with its name, parameters and seed in reports; the seed is None where nothing is drawn from it."""

    env: FiniteMDP | Sampler
    name: str
    parameters: dict[str, Any]
    seed: int | None


def make_subject(name: str | None, options: dict[str, Any], parameters: dict[str, Any], box: str) -> Subject:
    """Make the environment that the options describe; `box` is the kind of features of real numbers by default."""
    from dmq_fast.environments import FiniteMDP, registry
    from dmq_fast.samplers import as_sampler

    if name is None:
        place, seed = options["env_file"], options["env_seed"]
        how = {key: options[key] for key in DOOR if options[key] is not None}
        given = parameters | {key: value for key, value in how.items() if key not in parameters}
        return Subject(load_environment(place, parameters, seed, how | {"box": box}), place, given, seed)
    env = registry.make(name, rng=options["env_seed"], **registry.in_a_box(name, parameters, box))
    subject = env if isinstance(env, FiniteMDP) else as_sampler(env)
    return Subject(subject, env.name, env.parameters, options["env_seed"] if registry.draws(name) else None)


DOOR = ("horizon", "features", "history", "wrapper", "hold")
"""Options of an environment from a file that `as_environment` takes."""


def load_environment(
    place: str, arguments: dict[str, Any], seed: int | None, how: Mapping[str, Any]
) -> FiniteMDP | Sampler:
    """Return the environment that a function makes; `place` is FILE:NAME. ValueError on one line if it fails."""
    from dmq_fast.environments import FiniteMDP, as_environment
    from dmq_fast.environments.seeds import seeded
    from dmq_fast.samplers import as_sampler

    file, _, name = place.rpartition(":")
    if not file or not name:
        raise ValueError(f"--env-file: expected FILE:NAME, such as my_env.py:make_env, got {place!r}")
    path = Path(file).absolute()
    if not path.is_file():
        raise ValueError(f"--env-file: there is no file {file}")
    with blaming(f"{file} does not load", path):
        module = load_module(path)
    factory = getattr(module, name, None)
    if not callable(factory):
        there = f"{type(factory).__name__} of that name"
        if factory is None:
            own = [key for key, value in vars(module).items() if callable(value)]
            there = f"no such name{suggestion(name, own)}"
        raise ValueError(f"--env-file: expected a function {name} in {file}, got {there}")
    if seed is not None:
        try:
            arguments = seeded(factory, seed, asked=True) | arguments
        except ValueError as error:
            raise ValueError(f"--env-seed: {error}") from error
    check_call(name, factory, arguments)
    with blaming(f"{name}() in {file} failed", path):
        made = factory(**arguments)
    try:
        env = as_environment(made, **how)
        return env if isinstance(env, FiniteMDP) else as_sampler(env)
    except (TypeError, ValueError) as error:
        raise ValueError(f"--env-file: {name}() in {file}: {one_line(error)}") from error


def check_call(name: str, factory: Callable[..., Any], arguments: Collection[str]) -> None:
    """Raise ValueError if a function does not take arguments of these names, or needs others."""
    try:
        takes = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # it is compiled, and does not tell
        return
    named = {one.name: one for one in takes if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    if not any(one.kind == one.VAR_KEYWORD for one in takes):
        for key in arguments:
            if key not in named:
                expected = f"arguments of {name} among {', '.join(named)}" if named else f"none, as {name} takes none"
                raise ValueError(f"--make: expected {expected}, got {key!r}{suggestion(key, named)}")
    missing = [key for key, one in named.items() if one.default is one.empty and key not in arguments]
    if missing:
        raise ValueError(f"--make: expected {missing[0]}=VALUE, since {name} has no default for it, got none")


def load_module(path: Path) -> ModuleType:
    """Run a Python file as a module that can be imported by its name, as can the files beside it."""
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    # A module of the same name may be loaded already.
    name = path.stem if path.stem not in sys.modules else f"env_file_{path.stem}"
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextlib.contextmanager
def blaming(what: str, path: Path) -> Iterator[None]:
    """Turn any exception of a user's file into a ValueError on one line, which names the line of the file."""
    try:
        yield
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        where = f", line {lines[-1]}" if lines else ""
        raise ValueError(f"--env-file: {what}: {type(error).__name__}: {one_line(error)}{where}") from error


def one_line(error: BaseException) -> str:
    """Return the message of an exception without line breaks."""
    return " ".join(str(error).split())
