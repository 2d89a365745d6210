"""Finds the line of every key in a TOML text, which tomllib does not report."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

__all__ = ["Place", "key_lines", "line_of"]

Place = tuple[str | int, ...]
"""The keys and indices that lead to a value, such as ("algorithms", 0, "n_samples", 1)."""

# Each alternative matches one kind of token. Text that matches none is part of a number, a date, true or false.
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


def key_lines(text: str) -> dict[Place, int]:
    r"""Return the line, counted from 1, on which each key, table and element of an array first appears.

    Parameters
    ----------
    text : str
        Valid TOML; for other texts the result is arbitrary.

    Examples
    --------
    >>> key_lines("a = 1\n[b]\nc = [2,\n  3]")
    {('a',): 1, ('b',): 2, ('b', 'c'): 3, ('b', 'c', 0): 3, ('b', 'c', 1): 4}
    """
    return Scanner(text).found


def line_of(found: dict[Place, int], place: Place) -> int | None:
    """Return the line of `place`, or else of the nearest table or array that holds it; None if there is none."""
    while place:
        if place in found:
            return found[place]
        place = place[:-1]
    return None


class Token:
    """A token and the line on which it begins."""

    def __init__(self, kind: str, text: str, line: int) -> None:
        self.kind, self.text, self.line = kind, text, line


def tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of a text, without comments and spaces."""
    line = 1
    for match in TOKEN.finditer(text):
        if match.lastgroup not in ("comment", "space"):
            yield Token(str(match.lastgroup), match.group(), line)
        line += match.group().count("\n")


class Scanner:
    """Reads a text once, from its beginning to its end."""

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
        """Whether the next token is one of these marks; a string token never is."""
        token = self.tokens[self.position]
        return token.kind != "string" and token.text in texts

    def note(self, place: Place, line: int) -> None:
        """Record the line of a place, unless an earlier line is recorded."""
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
            # tomllib resolves the escapes in quoted keys.
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
