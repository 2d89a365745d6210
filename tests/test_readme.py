"""README: every Python block runs, those of a section one after the other."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"

# What may be missing: extras that blocks use.
EXTRAS = {"gymnasium", "numba"}


def sections(text):
    """Return {heading: [(line, source)]}: blocks of ```python; none that a comment "not run: why" stands before."""
    found, heading = {}, ""
    pattern = (
        r"^#+ (?P<heading>[^\n]+)$"
        r"|^(?P<mark><!-- not run: [^\n]+ -->\n)?```(?P<language>\w*)\n(?P<source>.*?)^```$"
    )
    for match in re.finditer(pattern, text, re.MULTILINE | re.DOTALL):
        if match["heading"]:
            heading = match["heading"]
        elif match["language"] == "python" and not match["mark"]:
            line = text.count("\n", 0, match.start("source"))
            found.setdefault(heading, []).append((line, match["source"]))
    return found


SECTIONS = sections(README.read_text(encoding="utf-8"))


def test_blocks_are_found():
    assert {"Use", "Environments without tables", "Compiled environments"} <= set(SECTIONS)
    shell, run, not_run = "```sh\nls\n```\n", "```python\n# a\n```\n", "<!-- not run: no -->\n```python\nb\n```\n"
    text = f"## One\n{shell}{run}{not_run}## Two\n{run}"
    assert sections(text) == {"One": [(5, "# a\n")], "Two": [(13, "# a\n")]}


@pytest.mark.parametrize("heading", SECTIONS)
def test_the_blocks_of_a_section_run(heading, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "readme"}
    for line, source in SECTIONS[heading]:
        # Empty lines first, so that a traceback has README's line numbers.
        code = compile("\n" * line + source, str(README), "exec")
        try:
            exec(code, names)
        except ModuleNotFoundError as error:
            if error.name not in EXTRAS:
                raise
            pytest.skip(f"{error.name} is not installed")
