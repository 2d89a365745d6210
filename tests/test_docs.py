"""README.md and docs/: blocks run, commands parse, links lead somewhere, and the tests that are named exist."""

import argparse
import ast
import inspect
import re
import runpy
import shlex
import tomllib
from pathlib import Path
from unittest import mock

import pytest

import dmq_fast as dmq
from dmq_fast import cli

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXTS = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in PAGES}

# Pages that are only linked: they have no blocks of their own.
LINKED = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]

# What may be missing: extras that blocks use.
EXTRAS = {"gymnasium", "matplotlib", "mpmath", "numba", "pandas", "pyarrow", "sklearn", "tqdm"}

# Rooms whose public classes a page shows in use.
ROOMS = [dmq, dmq.baselines, dmq.environments, dmq.experiments, dmq.features, dmq.samplers, dmq.theory]


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


SECTIONS = {(page, heading): found for page, text in TEXTS.items() for heading, found in sections(text).items()}
COMMANDS = [(page, line, words) for page, line, source in blocks("sh") for words in words_of(source)]
OURS = [(page, line, words) for page, line, words in COMMANDS if Path(words[0]).name == "dmq-fast"]


def test_blocks_are_found():
    pages = {"README.md", "docs/tutorial.md", "docs/environments.md", "docs/kernels.md", "docs/experiments.md"}
    assert pages <= {page for page, _ in SECTIONS}
    shell, run, not_run = "```sh\nls\n```\n", "```python\n# a\n```\n", "<!-- not run: no -->\n```python\nb\n```\n"
    text = f"## One\n{shell}{run}{not_run}## Two\n{run}"
    assert sections(text) == {"One": [(5, "# a\n")], "Two": [(13, "# a\n")]}
    assert [*words_of("a --b=c 'd e' && f; g \\\n  h  # i\n")] == [["a", "--b=c", "d e"], ["f"], ["g", "h"]]
    assert len(OURS) > 20


@pytest.mark.parametrize(("page", "heading"), SECTIONS, ids=lambda name: name.removeprefix("docs/"))
def test_the_blocks_of_a_section_run(page, heading, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "docs"}
    for line, source in SECTIONS[page, heading]:
        # Empty lines first, so that a traceback has the page's line numbers.
        code = compile("\n" * line + source, page, "exec")
        try:
            # What a block registers is gone after it.
            with mock.patch.dict(dmq.experiments.algorithms.REGISTRY):
                exec(code, names)
        except ModuleNotFoundError as error:
            if error.name not in EXTRAS:
                raise
            pytest.skip(f"{error.name} is not installed")


class Parsed(Exception):
    """The arguments of a command are right."""


@pytest.mark.parametrize(("page", "line", "words"), OURS, ids=[" ".join(words) for _, _, words in OURS])
def test_commands_parse(page, line, words, monkeypatch):
    parse = argparse.ArgumentParser.parse_args

    def parse_and_stop(self, *arguments, **options):
        parse(self, *arguments, **options)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_stop)
    with pytest.raises((Parsed, SystemExit)) as stop:
        cli.main(words[1:])
    # --help ends the program with code 0, a mistake with code 2.
    assert stop.type is Parsed or stop.value.code in (0, None), f"{page}, line {line}: {' '.join(words)}"


@pytest.mark.parametrize(("page", "line", "source"), blocks("toml"), ids=lambda value: str(value)[:30])
def test_specifications_are_right(page, line, source):
    assert dmq.experiments.read(tomllib.loads(source)).n_runs > 0, f"{page}, line {line}"


def anchors(text):
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        path = page.parent / file if file else page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path.read_text(encoding="utf-8")), target


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.name)
def test_paths_exist(page):
    """A page names files of the checkout; `name` and `_name` stand for those that a reader adds."""
    paths = re.findall(
        r"(?<![\w./])((?:\.ci|bench|dmq_fast|docs|src_pyx|tests)/[\w./-]*)", page.read_text(encoding="utf-8")
    )
    named = [path.rstrip(".") for path in paths if not re.search(r"(?<![a-z])name\b", path)]
    missing = [path for path in named if not (ROOT / path).exists()]
    assert not missing


def test_lines_of_the_algorithms_are_those_of_the_code():
    tables = re.search(
        r"^## Algorithm 1$.*?^## What surrounds", TEXTS["docs/paper-and-code.md"], re.MULTILINE | re.DOTALL
    )
    calls = set(re.findall(r"self(?:\.\w+)+", tables[0]))
    assert len(calls) >= 10
    assert calls <= set(re.findall(r"self(?:\.\w+)+", (ROOT / "dmq_fast/dmq.py").read_text(encoding="utf-8")))


def test_every_page_is_linked_from_the_readme():
    assert all(f"]({page})" in TEXTS["README.md"] for page in TEXTS if page != "README.md")


def public_classes():
    """Return the names of the classes of `ROOMS`."""
    found = {name for room in ROOMS for name in room.__all__ if inspect.isclass(getattr(room, name))}
    return sorted(found)


@pytest.mark.parametrize("name", public_classes())
def test_every_public_class_is_shown_in_use(name):
    assert any(re.search(rf"\b{name}\b", source) for _, _, source in blocks("python")), name


# The tests that pages name: `tests/test_x.py::test_y`, or `tests/test_x.py` for a whole file.

FINDINGS = re.split(r"^## ([A-Z])\. ", TEXTS["docs/findings.md"], flags=re.MULTILINE)
PARTS = re.split(r"^### \(([iv]+)\) ", FINDINGS[FINDINGS.index("E") + 1], flags=re.MULTILINE)


def named_tests(text):
    """Yield the pairs of file and test function that a text names."""
    yield from re.findall(r"`tests/(test_\w+\.py)::(test_\w+)`", text)


def functions_of(file):
    tree = ast.parse((Path(__file__).parent / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("page", TEXTS)
def test_named_tests_exist(page):
    missing = [f"{file}::{name}" for file, name in named_tests(TEXTS[page]) if name not in functions_of(file)]
    assert not missing
    # Nothing that looks like the name of a test is spelled another way, which nobody would check.
    assert len(re.findall(r"\btest_\w+`", TEXTS[page])) == len([*named_tests(TEXTS[page])])


def test_every_finding_names_a_test():
    assert FINDINGS[1::2] == list("ABCDEFGHIJKLMNO")
    assert PARTS[1::2] == ["i", "ii", "iii", "iv", "v", "vi", "vii"]
    assert all(any(named_tests(text)) for text in FINDINGS[2::2] + PARTS[2::2])


@pytest.mark.parametrize("path", sorted(ROOT.glob("bench/[!tc]*.py")), ids=lambda path: path.stem)
def test_scripts_of_the_bench_can_be_imported(path, monkeypatch):
    """Those that have not lost a name in the package which they import."""
    monkeypatch.syspath_prepend(path.parent)
    if "matplotlib" in path.read_text():
        pytest.importorskip("matplotlib")
    runpy.run_path(str(path), run_name="imported")
