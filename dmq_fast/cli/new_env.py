"""``dmq-fast new-env``: write a project with a compiled environment, to start one's own from."""

from __future__ import annotations

import importlib.util
import keyword
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path

from dmq_fast._support.files import make_directory
from dmq_fast.cli.exit_codes import FINISHED, SHORT_EXIT_CODES
from dmq_fast.cli.files import write_text
from dmq_fast.cli.options import command_parser
from dmq_fast.cli.terminal import not_saved, show, signals, told, usage_error

__all__ = ["new_env"]

KINDS = {
    "numba": "functions in Python that numba compiles when the file is loaded; needs numba",
    "cython": "functions in Cython with a pyproject.toml; needs Cython and a C compiler",
}
"""By name of a folder in ``templates``: its line in ``--help``."""

PLACEHOLDER, SUFFIX = "NAME", ".in"


def new_env(arguments: Sequence[str]) -> int:
    """Run ``dmq-fast new-env KIND NAME``."""
    parser = command_parser(
        "new-env",
        description="Write the directory NAME with a small compiled environment that works, its tests and a README "
        "with the commands that build, check and learn it.",
        epilog="kinds:\n" + "".join(f"  {kind:<8} {line}\n" for kind, line in KINDS.items()) + "\n" + SHORT_EXIT_CODES,
    )
    parser.add_argument("kind", choices=KINDS, metavar="KIND", help=" or ".join(KINDS))
    parser.add_argument("name", metavar="NAME", help="of the directory and of the Python module in it")
    options = parser.parse_args(arguments)
    directory = Path(options.name)
    with signals.held():
        try:
            check_name(options.name)
            make_directory(directory)
        except (ValueError, OSError) as error:
            return usage_error(f"new-env: {told(error)}")
        try:
            for name, text in project(options.kind, options.name):
                write_text(directory / name, text)
        except OSError as error:
            return not_saved("new-env", error)
        return signals.code(show("new-env", f"{directory}: see {directory / 'README.md'}", FINISHED))


def check_name(name: str) -> None:
    """Raise ValueError if a module cannot have this name, or another one has it."""
    if not (name.isidentifier() and name.isascii()) or keyword.iskeyword(name):
        near = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)
        hint = f"; perhaps {near}" if near != name and near.isidentifier() and near.strip("_") else ""
        raise ValueError(f"NAME: expected a name for a Python module, got {name!r}{hint}")
    if Path(name).exists():
        raise FileExistsError(f"NAME: {name} exists already")
    if importlib.util.find_spec(name) is not None:
        raise ValueError(f"NAME: expected a name that no other module has, got {name!r}, which can be imported")


def project(kind: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of each file of a project."""
    for template in files("dmq_fast.cli").joinpath("templates", kind).iterdir():
        if template.name.endswith(SUFFIX):
            text = template.read_text(encoding="utf-8")
            yield template.name.removesuffix(SUFFIX).replace(PLACEHOLDER, name), text.replace(PLACEHOLDER, name)
