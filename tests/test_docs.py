"""README.md and docs/: blocks run, commands parse, links and named tests exist, the reference is complete."""

import argparse
import ast
import functools
import inspect
import os
import re
import runpy
import shlex
import sys
import tomllib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import pytest

import dmq_fast as dmq
from dmq_fast import cli

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXTS = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in PAGES}

# Pages that are only linked: they have no blocks of their own.
LINKED = [*PAGES, *sorted((ROOT / "docs/api").glob("*.md")), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]

# Extras that blocks use: a section that needs a missing one is not run.
EXTRAS = {"gymnasium", "matplotlib", "mpmath", "numba", "pandas", "sklearn"}

ROOMS = ["", ".baselines", ".environments", ".experiments", ".features", ".kernels", ".samplers", ".theory"]


def sections(text, language="python"):
    """Return {heading: [(line, source)]}: blocks of a language; none that a comment "not run: why" stands before."""
    found, heading = {}, ""
    pattern = (
        r"^#+ (?P<heading>[^\n]+)$"
        r"|^(?P<mark><!-- not run: [^\n]+ -->\n)?```(?P<language>\w*)\n(?P<source>.*?)^```$"
    )
    for match in re.finditer(pattern, text, re.MULTILINE | re.DOTALL):
        if match["heading"]:
            heading = match["heading"]
        elif match["language"] == language and not match["mark"]:
            line = text.count("\n", 0, match.start("source"))
            found.setdefault(heading, []).append((line, match["source"]))
    return found


def blocks(language):
    """Return (page, line, source) of every block of a language."""
    return [
        (page, line, source)
        for page, text in TEXTS.items()
        for found in sections(text, language).values()
        for line, source in found
    ]


def words_of(commands):
    """Yield the words of every command of a shell block; `&&` and `;` end one, and a backslash continues a line."""
    for line in commands.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="&;")
        lexer.whitespace_split = True
        command = []
        for word in [*lexer, "&&"]:
            if word.strip("&;"):
                command.append(word)
            elif command:
                yield command
                command = []


def test_blocks_are_found():
    shell, run, not_run = "```sh\nls\n```\n", "```python\n# a\n```\n", "<!-- not run: no -->\n```python\nb\n```\n"
    text = f"## One\n{shell}{run}{not_run}## Two\n{run}"
    assert sections(text) == {"One": [(5, "# a\n")], "Two": [(13, "# a\n")]}
    assert [*words_of("a --b=c 'd e' && f; g \\\n  h  # i\n")] == [["a", "--b=c", "d e"], ["f"], ["g", "h"]]


@pytest.mark.parametrize("page", [page for page, text in TEXTS.items() if sections(text)])
def test_the_blocks_of_a_page_run(page, tmp_path, monkeypatch):
    """Each section in a directory and with names of its own."""
    missing = []
    for number, (heading, found) in enumerate(sections(TEXTS[page]).items()):
        (tmp_path / str(number)).mkdir()
        monkeypatch.chdir(tmp_path / str(number))
        names = {"__name__": "docs"}
        for line, source in found:
            # Empty lines first, so that a traceback has the page's line numbers.
            code = compile("\n" * line + source, page, "exec")
            try:
                # What a block registers is gone after it.
                with mock.patch.dict(dmq.experiments.algorithms.REGISTRY):
                    exec(code, names)
            except ModuleNotFoundError as error:
                if error.name not in EXTRAS:
                    raise
                missing.append(f"{heading}: {error.name}")
                break
    if missing:
        pytest.skip("not installed: " + ", ".join(missing))


class Parsed(Exception):
    """The arguments of a command are right."""


def test_commands_parse(monkeypatch):
    parse = argparse.ArgumentParser.parse_args

    def parse_and_stop(self, *arguments, **options):
        parse(self, *arguments, **options)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_stop)
    commands = [(page, words) for page, _, source in blocks("sh") for words in words_of(source)]
    ours = [(page, words) for page, words in commands if Path(words[0]).name == "dmq-fast"]
    assert len(ours) > 20
    for page, words in ours:
        with pytest.raises((Parsed, SystemExit)) as stop:
            cli.main(words[1:])
        # --help ends the program with code 0, a mistake with code 2.
        assert stop.type is Parsed or stop.value.code in (0, None), f"{page}: {' '.join(words)}"


def test_specifications_are_right():
    for page, line, source in blocks("toml"):
        assert dmq.experiments.read(tomllib.loads(source)).n_runs > 0, f"{page}, line {line}"


def without_blocks(text):
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


@functools.cache
def anchors(path):
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", without_blocks(path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere():
    for page in LINKED:
        for target in re.findall(r"\]\(([^)\s]+)\)", without_blocks(page.read_text(encoding="utf-8"))):
            if target.startswith("https://"):
                continue
            file, _, anchor = target.partition("#")
            path = page.parent / file if file else page
            assert path.exists(), f"{page.name}: {target}"
            assert not anchor or anchor in anchors(path.resolve()), f"{page.name}: {target}"


def test_paths_exist():
    """A page names files of the checkout; `name` and `_name` stand for those that a reader adds."""
    for page in LINKED:
        text = page.read_text(encoding="utf-8")
        for path in re.findall(r"(?<![\w./])((?:\.ci|bench|dmq_fast|docs|src_pyx|tests)/[\w./-]*)", text):
            if not re.search(r"(?<![a-z])name\b", path):
                assert (ROOT / path.rstrip(".")).exists(), f"{page.name}: {path}"


def test_every_page_is_linked_from_the_readme_and_in_the_site():
    pages = [page for page in TEXTS if page != "README.md"]
    assert [page for page in pages if f"]({page})" not in TEXTS["README.md"]] == []
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert [page for page in pages if f": {page.removeprefix('docs/')}\n" not in site] == []


def test_the_lines_of_the_algorithms_are_those_of_the_code():
    """Every piece of code in the tables of docs/paper-and-code.md stands in dmq.py; an ellipsis stands for the rest."""
    tables = re.search(r"^## Algorithm 1$.*?^## What surrounds", TEXTS["docs/paper-and-code.md"], re.M | re.S)[0]
    code = "".join((ROOT / "dmq_fast/dmq.py").read_text(encoding="utf-8").split())
    quotes = {quote for quote in re.findall(r"`([^`]+)`", tables) if not quote.isidentifier()}
    assert len(quotes) >= 10
    pieces = ["".join(piece.split()) for quote in quotes for piece in re.split(r"\.\.\.\)?", quote)]
    assert [piece for piece in pieces if piece not in code] == []


# The reference, docs/api.


def test_every_public_class_and_function_is_in_the_reference():
    """With a docstring, and an example there or in a page; `features.RBF`, which is `kernels.RBF`, is listed once."""
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs/api").glob("*.md"))
    listed = re.findall(r"^::: (\S+)$", pages, re.MULTILINE)
    assert len(set(listed)) == len(listed)
    documented, python = [], "\n".join(source for _, _, source in blocks("python"))
    for path in listed:
        module, _, name = path.rpartition(".")
        if module == "dmq_fast.sklearn" and find_spec("sklearn") is None:
            continue
        value = getattr(import_module(module), name)
        assert inspect.ismodule(value) or path not in sys.modules, f"{path}: the site would show the module"
        documented.append(value)
    for room in ROOMS:
        module = import_module(f"dmq_fast{room}")
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isroutine(value):
                assert any(value is other for other in documented), f"dmq_fast{room}.{name}"
                assert inspect.getdoc(value), name
                assert ">>>" in inspect.getdoc(value) or re.search(rf"\b{name}\b", python), f"{name}: no example"


# The tests that pages name: `tests/test_x.py::test_y`, or `tests/test_x.py` for a whole file.

FINDINGS = re.split(r"^## ([A-Z])\. ", TEXTS["docs/findings.md"], flags=re.MULTILINE)
PARTS = re.split(r"^### \(([iv]+)\) ", FINDINGS[FINDINGS.index("E") + 1], flags=re.MULTILINE)


def named_tests(text):
    """Return the pairs of file and test function that a text names."""
    return re.findall(r"`tests/(test_\w+\.py)::(test_\w+)`", text)


@functools.cache
def functions_of(file):
    tree = ast.parse((Path(__file__).parent / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_named_tests_exist():
    for page, text in TEXTS.items():
        assert [f"{file}::{name}" for file, name in named_tests(text) if name not in functions_of(file)] == [], page
        # Nothing that looks like the name of a test is spelled another way, which nobody would check.
        assert len(re.findall(r"\btest_\w+`", text)) == len(named_tests(text)), page


def test_every_finding_names_a_test():
    assert FINDINGS[1::2] == list("ABCDEFGHIJKLMNOPQ")
    assert PARTS[1::2] == ["i", "ii", "iii", "iv", "v", "vi", "vii"]
    assert all(named_tests(text) for text in FINDINGS[2::2] + PARTS[2::2])


def test_scripts_of_the_bench_can_be_imported(monkeypatch):
    """Those that have not lost a name in the package which they import."""
    monkeypatch.syspath_prepend(ROOT / "bench")
    for path in sorted(ROOT.glob("bench/*.py")):
        if path.stem == "conftest" or path.stem.startswith("test_"):
            continue
        try:
            runpy.run_path(os.fspath(path), run_name="imported")
        except ModuleNotFoundError as error:
            if error.name.partition(".")[0] not in EXTRAS:
                raise
