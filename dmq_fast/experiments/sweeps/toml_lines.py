"""The line of every key in a TOML text, which tomllib does not tell."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

__all__ = ["Place", "line_of", "lines"]

Place = tuple[str | int, ...]
"""Keys and indices that lead to a value: ("algorithms", 0, "n_samples", 1)."""

# One alternative a token; what none of them matches is whitespace or part of a number, date, true or false.
TOKEN = re.compile(
    r"""
      (?P<string>\"{3}(?:\\.|[^\\])*?\"{3,5}|'{3}.*?'{3,5}|"(?:\\.|[^"\\])*"|'[^']*')
    | (?P<comment>\#[^\n]*)
    | (?P<newline>\n)
    | (?P<mark>[\[\]{},=.])
    | (?P<bare>[A-Za-z0-9_+:-]+)
    | (?P<space>[ \t\r]+)
    """,
    re.VERBOSE | re.DOTALL,
)


def lines(text: str) -> dict[Place, int]:
    """Return the line, counted from 1, on which each key, table and element of an array is first named.

    Parameters
    ----------
    text : str
        What ``tomllib.loads`` accepts; of anything else the answer is arbitrary.
    """
    return Scanner(text).found


def line_of(found: dict[Place, int], place: Place) -> int | None:
    """Return the line of `place`, or of the nearest thing around it; None where nothing of it is in the text."""
    while place:
        if place in found:
            return found[place]
        place = place[:-1]
    return None


class Token:
    """A piece of the text and the line on which it begins."""

    def __init__(self, kind: str, text: str, line: int) -> None:
        self.kind, self.text, self.line = kind, text, line


def tokens(text: str) -> Iterator[Token]:
    """Split a text, comments and spaces left out."""
    line = 1
    for match in TOKEN.finditer(text):
        if match.lastgroup not in ("comment", "space"):
            yield Token(str(match.lastgroup), match.group(), line)
        line += match.group().count("\n")


class Scanner:
    """Walks through a text once."""

    def __init__(self, text: str) -> None:
        self.found: dict[Place, int] = {}
        self.tokens = [*tokens(text), Token("newline", "\n", 0)]
        self.position = 0
        self.sizes: dict[Place, int] = {}  # of arrays of tables
        table: Place = ()
        while self.position < len(self.tokens):
            if self.at("\n"):
                self.position += 1
            elif self.at("["):
                table = self.header()
            else:
                self.pair(table)

    def at(self, *texts: str) -> bool:
        """Whether the next token is one of these; a string never is."""
        token = self.tokens[self.position]
        return token.kind != "string" and token.text in texts

    def note(self, place: Place, line: int) -> None:
        """Keep the first line of a place."""
        self.found.setdefault(place, line)

    def header(self) -> Place:
        """Read ``[a.b]`` or ``[[a.b]]``; return the place of the table that it opens."""
        line = self.tokens[self.position].line
        self.position += 1
        is_array = self.at("[")
        self.position += is_array
        keys = self.keys()
        self.position += 1 + is_array
        place: Place = ()
        for i, key in enumerate(keys):
            place = (*place, key)
            self.note(place, line)
            last = i == len(keys) - 1
            if last and is_array:
                self.sizes[place] = self.sizes.get(place, 0) + 1
            if place in self.sizes:
                place = (*place, self.sizes[place] - 1)
                self.note(place, line)
        return place

    def keys(self) -> list[str]:
        """Read a dotted key."""
        keys: list[str] = []
        while True:
            token = self.tokens[self.position]
            # The TOML reader knows about escapes in quoted keys.
            keys.append(next(iter(tomllib.loads(f"{token.text} = 0"))))
            self.position += 1
            if not self.at("."):
                return keys
            self.position += 1

    def pair(self, table: Place) -> None:
        """Read ``key = value``."""
        line = self.tokens[self.position].line
        place = table
        for key in self.keys():
            place = (*place, key)
            self.note(place, line)
        self.position += 1
        self.value(place)

    def value(self, place: Place) -> None:
        """Read a value."""
        if self.at("["):
            self.position += 1
            index = 0
            while not self.at("]"):
                if self.at(",", "\n"):
                    self.position += 1
                    continue
                self.note((*place, index), self.tokens[self.position].line)
                self.value((*place, index))
                index += 1
        elif self.at("{"):
            self.position += 1
            while not self.at("}"):
                if self.at(",", "\n"):
                    self.position += 1
                else:
                    self.pair(place)
        else:
            # A number or date may be several tokens.
            while not self.at(",", "\n", "]", "}"):
                self.position += 1
            return
        self.position += 1
