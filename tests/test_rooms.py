"""The order of the rooms of the package: a module imports from its own room and from rooms below it."""

import ast
import functools
import graphlib
from pathlib import Path

import dmq_fast

# From low to high. A module belongs to the longest prefix of its name that is listed.
ROOMS = [
    "_version",
    "_support",
    "plotting",
    "kernels",
    "homogeneity",
    "sklearn",
    "spaces",
    "features",
    "rewards",
    "grids",
    "observing",
    "table_policy",
    "environments",
    "rules",
    "policy",
    "theory.bounds",
    "moments",
    "trajectories",
    "function_class",
    "arithmetic",
    "samplers",
    "results",
    "theory",
    "engine",
    "covers",
    "stopping",
    "tested",
    "dmq",
    "self_stopping",
    "learners",
    "baselines",
    "experiments",
    "cli",
    "__main__",
]

ROOT = Path(dmq_fast.__file__).parent
MODULES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def name_of(path):
    """Name of a module within the package, such as ``samplers.base``; a package has the name of its folder."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module):
    """The longest prefix of a module's name that is a room; None where there is none."""
    parts = module.split(".")
    prefixes = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((prefix for prefix in prefixes if prefix in ROOMS), None)


def exists(module):
    """Whether a name is that of a module or package here, compiled or not."""
    place = ROOT.joinpath(*module.split("."))
    return place.is_dir() or any(place.parent.glob(f"{place.name}.*"))


@functools.cache
def imports_of(path):
    """Return (line, imported module) of every import of this package, wherever it stands in a file."""
    return list(imports(ast.parse(path.read_text()), name_of(path), path.name == "__init__.py"))


def imports(tree, module, is_package):
    """Yield the same of a syntax tree."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                here = ["dmq_fast", *module.split(".")]
                kept = here[: len(here) - node.level + is_package]
                base = ".".join([*kept, *([node.module] if node.module else [])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and called(node) == "import_module" and node.args:
            argument = node.args[0]
            names = [argument.value] if isinstance(argument, ast.Constant) else []
        else:
            continue
        for name in names:
            package, _, rest = name.partition(".")
            if package != "dmq_fast" or not rest:
                continue
            # The last part may be a module or something in one.
            yield node.lineno, rest if exists(rest) else home_of(rest)


def called(call):
    """Name of the function that a call names."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", None)


def home_of(name):
    """Return the module of a name that is not itself a module."""
    before, dot, last = name.rpartition(".")
    return before if dot else dmq_fast._HOMES.get(last, last).partition(":")[0]


def test_every_module_has_a_room_and_every_room_a_module():
    rooms = {room_of(name_of(path)) for path in MODULES}
    assert None not in rooms
    assert rooms == set(ROOMS)


def test_every_module_imports_from_its_own_room_and_those_below():
    against = [
        f"{path.relative_to(ROOT)}:{line} imports {imported}"
        for path in MODULES
        for line, imported in imports_of(path)
        if ROOMS.index(room_of(imported)) > ROOMS.index(room_of(name_of(path)))
    ]
    assert not against


def test_no_module_imports_itself_by_a_detour():
    """Imports inside functions and for type checkers count, so that no circle hides there."""
    graph = {
        name_of(path): {imported for _, imported in imports_of(path) if imported != name_of(path)} for path in MODULES
    }
    list(graphlib.TopologicalSorter(graph).static_order())
