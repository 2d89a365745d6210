"""Power cuts: what the files of a process may be after one, on a disk that keeps for certain only what was synced.

`recorded` runs a process under the library of power_cut.c, which records its operations on files. `Disk` replays a part
of the record. `Disk.crash` then draws a state in which the disk may be left:

- A file has what it had at its last fsync. Of each later write all, a part or nothing is there, in any order; where
  nothing is there, the file may have grown all the same, by zeros.
- A directory has the names that it had at its last fsync. Each later creation, removal or renaming has taken place or
  not.
"""

import itertools
import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

import pytest
from sweeping import environment_of_tests

OPEN, WRITE, TRUNCATE, SYNC, RENAME, LINK, UNLINK, MKDIR = range(1, 9)
ENTRY = struct.Struct("<IIQQQ")


class Entry(NamedTuple):
    """An operation on the file or directory of an inode; `first` is a path, `second` the data or the new path."""

    kind: int
    inode: int
    offset: int
    first: str
    second: bytes


@cache
def library():
    """Build the library, once in a process; skip the test where it cannot be."""
    if not sys.platform.startswith("linux") or shutil.which("gcc") is None:
        pytest.skip("expected Linux with gcc, whose library records what a process does to files")
    built = Path(mkdtemp(prefix="power-cut-"), "power_cut.so")
    source = Path(__file__).with_name("power_cut.c")
    command = ["gcc", "-Wall", "-Werror", "-O1", "-shared", "-fPIC", "-o", built, source, "-ldl", "-lpthread"]
    subprocess.run(command, check=True)
    return built


def recorded(code, *arguments, record):
    """Run Python code to its end and return what it did to files; `record` is the file of the record."""
    env = environment_of_tests() | {"LD_PRELOAD": str(library()), "POWER_CUT_RECORD": str(record)}
    subprocess.run([sys.executable, "-P", "-c", code, *map(str, arguments)], env=env, check=True, timeout=300)
    return list(entries(record.read_bytes()))


def entries(data):
    """The operations of a record."""
    at = 0
    while at < len(data):
        kind, n, m, inode, offset = ENTRY.unpack_from(data, at)
        at += ENTRY.size
        yield Entry(kind, inode, offset, os.fsdecode(data[at : at + n]), data[at + n : at + n + m])
        at += n + m


class File:
    """A file: its contents, those at the last fsync, and the writes since, as pairs of an offset and data or None."""

    def __init__(self, contents=b""):
        self.contents, self.synced, self.pending = bytearray(contents), contents, []

    def do(self, offset, data):
        """Write data at an offset, or with None cut the file there."""
        change(self.contents, offset, data)
        self.pending.append((offset, data))

    def sync(self):
        self.synced, self.pending = bytes(self.contents), []

    def crashed(self, rng):
        """Contents after a power cut."""
        contents = bytearray(self.synced)
        for kept, (offset, data) in zip(chosen(rng, len(self.pending)), self.pending, strict=True):
            if kept:
                change(contents, offset, data)
            elif data is not None:
                rest = rng.choice(["nothing", "a part", "zeros"])
                if rest == "a part":
                    change(contents, offset, data[: rng.randrange(len(data))])
                if rest == "zeros":
                    contents.extend(bytes(max(0, offset + len(data) - len(contents))))
        return bytes(contents)


class Directory:
    """A directory: its entries by name, those at the last fsync, and the changes since.

    A change is a pair of a name that is removed, or None, and a dict of what is added, which take place together.
    """

    def __init__(self, entries=()):
        self.entries = dict(entries)
        self.sync()

    def do(self, removed, added):
        exchange(self.entries, removed, added)
        self.pending.append((removed, added))

    def sync(self):
        self.synced, self.pending = dict(self.entries), []

    def crashed(self, rng):
        """Entries after a power cut."""
        entries = dict(self.synced)
        for kept, (removed, added) in zip(chosen(rng, len(self.pending)), self.pending, strict=True):
            if kept:
                exchange(entries, removed, added)
        return entries


def change(contents, offset, data):
    """Write data at an offset of a bytearray, or with None cut it there."""
    contents.extend(bytes(max(0, offset - len(contents))))
    if data is None:
        del contents[offset:]
    else:
        contents[offset : offset + len(data)] = data


def exchange(entries, removed, added):
    """Remove a name, if there is one, and add entries."""
    entries.pop(removed, None)
    entries.update(added)


def chosen(rng, n):
    """Which of n operations that were not synced have taken place: all, none, the first ones, or any."""
    way = rng.choice(["all", "none", "first", "any"])
    if way == "any":
        return [rng.random() < 0.5 for _ in range(n)]
    first = {"all": n, "none": 0, "first": rng.randint(0, n)}[way]
    return [i < first for i in range(n)]


class Disk:
    """The files below a directory, as they were when this was made, and then as operations change them.

    `said` is a file elsewhere: what a process has written there before the power cut is known after it.
    """

    def __init__(self, root, said):
        self.root, self.said = root, said
        self.nodes = {}
        self.tree = self._read(root)
        self.words = File()

    def _read(self, path):
        if path.is_dir():
            node = Directory({child.name: self._read(child) for child in path.iterdir()})
        else:
            node = File(path.read_bytes())
        self.nodes[path.stat().st_ino] = node
        return node

    def _place(self, path):
        """The directory and the name of a path below the root; (None, name) elsewhere."""
        path = Path(path)
        if not path.is_relative_to(self.root) or path == self.root:
            return None, path.name
        node = self.tree
        for name in path.relative_to(self.root).parts[:-1]:
            node = node.entries[name]
        return node, path.name

    def do(self, entry):
        """Repeat an operation."""
        node = self.nodes.get(entry.inode)
        directory, name = self._place(entry.first)
        if entry.kind == OPEN:
            if entry.first == str(self.said):
                self.nodes[entry.inode] = self.words
            elif directory is None:
                self.nodes.pop(entry.inode, None)  # the inode is that of another file now
            else:
                if node is None or directory.entries.get(name) is not node:
                    node = self.nodes[entry.inode] = File()
                    directory.do(None, {name: node})
                if entry.offset:
                    node.do(0, None)
        elif entry.kind == MKDIR and directory is not None:
            self.nodes[entry.inode] = Directory()
            directory.do(None, {name: self.nodes[entry.inode]})
        elif entry.kind == UNLINK and directory is not None:
            directory.do(name, {})
        elif entry.kind in (RENAME, LINK) and directory is not None:
            other, new = self._place(os.fsdecode(entry.second))
            assert other is directory  # the model has no moves between directories
            directory.do(name if entry.kind == RENAME else None, {new: directory.entries[name]})
        elif entry.kind in (WRITE, TRUNCATE) and node is not None:
            node.do(entry.offset, entry.second if entry.kind == WRITE else None)
        elif entry.kind == SYNC and node is not None:
            node.sync()

    @property
    def heard(self):
        """The whole lines that the process has said."""
        *lines, _ = self.words.contents.decode().split("\n")
        return lines

    def file(self, *names):
        """The file of this path below the root; None if there is none."""
        node = self.tree
        for name in names:
            node = node.entries.get(name) if node is not None else None
        return node

    def crash(self, rng, into):
        """Leave in a new directory what a power cut may leave."""
        write_tree(self.tree, into, lambda node: node.crashed(rng))

    def restore(self, into):
        """Leave in a new directory what is there without a power cut."""
        write_tree(self.tree, into, lambda node: node.contents if isinstance(node, File) else node.entries)


def write_tree(node, path, state):
    """Write the state of a node, and of all below it, to a path."""
    if isinstance(node, File):
        path.write_bytes(state(node))
    else:
        path.mkdir()
        for name, child in state(node).items():
            write_tree(child, path / name, state)


class Cut(NamedTuple):
    """One power cut: the disk and what was said before it, and the directory that it left."""

    disk: Disk
    heard: list[str]
    left: Path


def power_cuts(tmp_path, code, *arguments, n, seed=0) -> Iterator[Cut]:
    """Run code with the arguments (root, file to say lines to, *arguments); yield the states of n random power cuts.

    The directory `root` may be there before, with files that were synced. First the replay of all operations is
    compared with the files that the process has left: so the record has seen all of them. Half of the power cuts come
    right after an operation that is no write, as a file is mostly written.
    """
    root, said, record = tmp_path / "disk", tmp_path / "said", tmp_path / "record"
    root.mkdir(exist_ok=True)
    before, disk = Disk(root, said), Disk(root, said)
    operations = recorded(code, root, said, *arguments, record=record)
    for entry in operations:
        disk.do(entry)
    disk.restore(tmp_path / "all")
    assert tree(tmp_path / "all") == tree(root)
    rng = random.Random(seed)
    first = next(i for i, entry in enumerate(operations) if entry.first.startswith(str(root)))
    anywhere = range(first, len(operations) + 1)
    special = [end for end in anywhere if operations[end - 1].kind != WRITE]
    done = 0
    for number, end in enumerate(sorted(rng.choice(rng.choice([anywhere, special])) for _ in range(n))):
        for entry in itertools.islice(operations, done, end):
            before.do(entry)
        done = end
        left = tmp_path / f"cut {number}"
        before.crash(rng, left)
        yield Cut(before, before.heard, left)
        shutil.rmtree(left)


def tree(path):
    """The contents of all files below a directory by path; None for directories."""
    return {str(file.relative_to(path)): None if file.is_dir() else file.read_bytes() for file in path.rglob("*")}
