"""Fuzz targets for what reads files and tables: results, journals, stores, specifications, MDPs, classes, JSON.

Each input is a valid one with one or two things broken. The reader must succeed, and what it returns must be usable, or
raise an error that it documents; `tests/fuzz.py` runs the targets.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import io
import json
import logging
import math
import re
import shutil
import sqlite3
import struct
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from flat import flat
from fuzz import Target
from mutations import DTYPES, JUNK, broken, broken_array, broken_bytes, near, pick
from sweeping import SPEC

import dmq_fast as dmq
from dmq_fast import experiments
from dmq_fast._support.files import FileError
from dmq_fast._support.json_text import from_json, plain, to_json
from dmq_fast.cli.status import status_dict, status_table
from dmq_fast.engine import journal
from dmq_fast.environments import FiniteMDP, chain, combination_lock, from_gymnasium
from dmq_fast.experiments.report.page import parameters_text
from dmq_fast.experiments.sweeps import store
from dmq_fast.experiments.sweeps.spec import SpecError, reread
from dmq_fast.samplers import ExactSampler, RolloutSampler

Generator = np.random.Generator

logging.getLogger("dmq_fast").setLevel(logging.CRITICAL)  # runs log their warnings

# ---- What every target uses


@functools.cache
def folder() -> Path:
    """The directory of this process, removed at its end."""
    memory = Path("/dev/shm")  # where a sync takes no time
    path = Path(tempfile.mkdtemp(prefix="fuzz-", dir=memory if memory.is_dir() else None))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def written(name: str, data: bytes) -> Path:
    """A file in that directory."""
    path = folder() / name
    path.write_bytes(data)
    return path


@contextlib.contextmanager
def only(*errors: type[Exception]) -> Iterator[None]:
    """Let these errors pass, if they have a message, and turn all others into AssertionError, which is a finding."""
    try:
        yield
    except errors as error:
        assert str(error), f"{type(error).__name__} without a message"
        raise
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}") from error


# ---- Results


@functools.cache
def results() -> tuple[tuple[dict[str, Any], dict[str, Any], bytes], ...]:
    """Header, arrays and file of a saved result of each kind."""
    lock = combination_lock(horizon=3, n_actions=2, rng=0)
    runs = [
        dmq.DMQ(lock, n_samples=4, rng=0),
        flat(lock, n_samples=4, variant="paper", oracle="value", rng=1),
        dmq.SelfStopping(chain(3, rng=0), epsilon=0.5, delta=0.5, rng=0),
        dmq.DMQ(ExactSampler(lock, "rational"), n_samples=4, rng=0),
        flat(lock, n_samples=4, rng=0, max_trajectories=10),
        dmq.baselines.REGISTRY["ucb-q"](lock, n_episodes=9, checkpoints=3, rng=0),
        dmq.baselines.REGISTRY["lsvi-ucb"](lock, n_episodes=9, checkpoints=3, rng=0),
    ]
    made = []
    for i, run in enumerate(runs):
        path = written(f"template-{i}.npz", contents(run.learn()))
        with np.load(path) as archive:
            arrays = {name: archive[name] for name in archive.files}
        made.append((json.loads(arrays.pop("header").item()), arrays, path.read_bytes()))
    return tuple(made)


def contents(result: dmq.Result) -> bytes:
    """The file of a result without times and without the warning of a damaged journal."""
    warnings = [text for text in result.warnings if not text.endswith("; the rest of the file was damaged")]
    seconds = dict.fromkeys(result.seconds, 0.25)
    path = folder() / "saved.npz"
    dataclasses.replace(result, seconds=seconds, warnings=tuple(warnings)).save(path)
    return path.read_bytes()


def npy(array: Any) -> bytes:
    """The bytes of a .npy file."""
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=True)
    return file.getvalue()


def claimed(rng: Generator, array: Any) -> bytes:
    """A .npy file whose header claims another shape or type than its data have."""
    shape = pick(rng, ((10**12,), (2**62, 2**62), (-1,), (0,), (3, 3, 3), (1.5,), (), "x", (2**31, 2**31, 4)))
    description = {"descr": pick(rng, DTYPES), "fortran_order": pick(rng, (False, True, 1)), "shape": shape}
    text = repr(description if rng.random() < 0.9 else list(description)).encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + np.asarray(array).tobytes()


def broken_npy(rng: Generator, array: Any) -> bytes:
    """A .npy file with something broken: its bytes, its header or its array."""
    kind = rng.integers(8)
    if kind == 0:
        return broken_bytes(rng, npy(array))
    if kind == 1:
        return claimed(rng, array)
    out = broken_array(rng, array)
    return npy(out if isinstance(out, np.ndarray) else np.array(out, dtype=object))


def result_file(rng: Generator) -> bytes:
    """A saved result with something broken."""
    header, arrays, whole = pick(rng, results())
    if rng.random() < 0.1:
        return broken_bytes(rng, whole)
    members = {f"{name}.npy": npy(array) for name, array in arrays.items()}
    for _ in range(int(pick(rng, (1, 1, 2)))):
        kind = rng.integers(10)
        name = pick(rng, list(arrays))
        if kind < 4:
            header = broken(rng, header)
        elif kind == 4:
            members.pop(f"{name}.npy", None)
        elif kind == 5:
            members[f"{pick(rng, list(arrays))}.npy"] = members.get(f"{name}.npy", b"")
        else:
            members[f"{name}.npy"] = broken_npy(rng, arrays[name])
    odd = ("[" * 100_000, "", "null", "{", '{"format": 1}', '{"format": 1e999}', "1" * 5000)
    text = pick(rng, odd) if rng.random() < 0.05 else json.dumps(header, skipkeys=True)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        if rng.random() < 0.98:
            archive.writestr("header.npy", npy(np.array(text)))
        if rng.random() < 0.05:
            archive.writestr(pick(rng, ("extra.npy", "../outside.npy", "readme", "a/b.npy")), rng.bytes(20))
    return file.getvalue()


def use_result(result: dmq.Result) -> None:
    """Look at all that a result offers, and save it again."""
    assert isinstance(result.n_trajectories, int)
    repr(result)
    if isinstance(result, dmq.DMQResult):
        assert len(result.cover_sizes) == result.policy.horizon
        assert all(call.member < max(result.cover_sizes) for call in result.history)
    if result.theta is not None:
        horizon, n_actions, dimension = result.theta.shape
        assert result.policy.horizon == horizon
        for level in range(horizon):
            action = result.policy.act(level, np.ones(dimension), n_actions=n_actions, rng=np.random.default_rng(0))
            assert 0 <= action < n_actions
    saved = contents(result)
    assert contents(dmq.load(written("again.npz", saved))) == saved


def read_result(rng: Generator) -> None:
    path = written("result.npz", result_file(rng))
    with only(FileError):
        result = dmq.load(path)
    with only():
        use_result(result)


# ---- Journals


@functools.cache
def journals() -> tuple[tuple[Callable[[Path], dmq.DMQ], bytes, list[tuple[int, Any]]], ...]:
    """A run of each kind: how to make it with a journal, what it returns, and the records of its journal."""
    lock = combination_lock(horizon=3, n_actions=2, rng=0)
    settings: list[tuple[FiniteMDP, dict[str, Any]]] = [
        (lock, {"n_samples": 4}),
        (lock, {"n_samples": 4, "accumulate": True, "oracle": "value"}),
        (lock, {"n_samples": 3, "variant": "frugal"}),
        (lock, {"n_samples": 4, "variant": "paper"}),
        (wide(chain(3, rng=0)), {"n_samples": 4, "accumulate": True}),
        (chain(3, rng=0), {"epsilon": 0.5, "delta": 0.5}),
    ]
    made = []
    for i, (env, arguments) in enumerate(settings):
        path = folder() / f"template-{i}.journal"
        run = functools.partial(journalled, env, arguments)
        answer = contents(run(path).learn())
        made.append((run, answer, [timeless(kind, data) for kind, _, data in journal.records(path.read_bytes())]))
    return tuple(made)


def timeless(kind: int, payload: memoryview) -> tuple[int, Any]:
    """A kind and what the record holds, as JSON has it, in which all times are the same."""
    if kind == journal.HEADER:
        return kind, json.loads(bytes(payload))
    record = journal.decision(kind, payload)
    if kind == journal.LEVEL:
        record.floats[:3] = 0.25
    return kind, [0.5, record.calls, list(record.integers), record.floats.tolist()]


def sealed(number: int, kind: int, content: Any) -> bytes:
    """The bytes of a record; ValueError or so where they cannot hold such content."""
    if kind == journal.HEADER:
        return journal.seal(kind, number, json.dumps(content, skipkeys=True).encode())
    elapsed, calls, integers, floats = content
    return journal.seal(kind, number, journal.packed(elapsed, calls, integers, [floats]))


def wide(env: FiniteMDP) -> FiniteMDP:
    """The same with sparse features of 30 dimensions, whose moments are sparse in journals."""
    padded = [np.pad(np.asarray(array), ((0, 0), (0, 30 - env.dimension))) for array in env.features]
    return FiniteMDP(env.P, env.R, [scipy.sparse.csr_array(array) for array in padded], env.start)


def journalled(env: FiniteMDP, arguments: dict[str, Any], path: Path) -> dmq.DMQ:
    """A run with a journal; a budget ends it where a false answer would make it endless."""
    return flat(env, rng=0, journal=path, max_trajectories=3000, **arguments)


def cut_journal(rng: Generator) -> None:
    """A journal whose bytes are damaged: the bytes of the undisturbed run, or an error where the header is."""
    run, answer, records = pick(rng, journals())
    data = b"".join(sealed(number, *record) for number, record in enumerate(records))
    cut = data[: int(rng.integers(len(data) + 1))] if rng.random() < 0.4 else broken_bytes(rng, data)
    path = written("fuzz.journal", cut)
    with only(journal.JournalError):
        result = run(path).learn()
    with only():
        assert contents(result) == answer, "another result than that of the undisturbed run"
        assert not any("could not be written" in warning for warning in result.warnings)


def forged_journal(rng: Generator) -> None:
    """A journal whose records have other content and right checksums: a result, or an error."""
    run, _, records = pick(rng, journals())
    records = list(records)
    for _ in range(int(pick(rng, (1, 1, 1, 2)))):
        at = int(rng.integers(0 if rng.random() < 0.1 else 1, len(records)))
        kind, content = records[at]
        step = rng.integers(20)
        if step < 3:
            records[at : at + 1] = ([], [records[at]] * 2, [pick(rng, records)])[step]
        elif step == 3:
            records[at] = int(rng.integers(1, 9)), content
        else:
            records[at] = kind, broken(rng, content)
        if len(records) < 2:
            return
    parts = []
    for number, record in enumerate(records):
        with contextlib.suppress(TypeError, ValueError, OverflowError, struct.error):  # no record holds such content
            parts.append(sealed(number, *record))
    if rng.random() < 0.1:  # a payload of any bytes
        parts[-1] = journal.seal(int(rng.integers(1, 9)), len(parts) - 1, rng.bytes(int(rng.integers(99))))
    path = written("fuzz.journal", b"".join(parts))
    with only(journal.JournalError):
        journal.read_header(path)
        if rng.random() < 0.1:
            flat(combination_lock(horizon=3, n_actions=2, rng=0), n_samples=4, journal=path)  # takes the key of it
        result = run(path).learn()
    with only():
        assert np.isfinite(result.theta).all()
        assert all(map(math.isfinite, result.seconds.values())), result.seconds
        use_result(result)


# ---- Stores of sweeps

SWEEP = {
    "name": "small",
    "seeds": 2,
    "environments": [{"name": "lock", "horizon": [3, 4], "n_actions": 2}],
    "algorithms": [
        {"name": "dmq", "n_samples": [3, 4]},
        {"name": "ucb-q", "n_episodes": 6, "checkpoints": 3},
        {"name": "self-stopping", "epsilon": 0.5, "max_trajectories": 40},
    ],
}

# Failures, a run in progress, and no times or names of machines, so that it always has the same bytes.
USUAL = """
    UPDATE runs SET status = 'failed', error = 'ValueError: no', value = NULL,
        details = '{"traceback": "Traceback\\n  line"}' WHERE seed = 1 AND algorithm = 'ucb-q';
    UPDATE shards SET shard = '0/2';
    UPDATE specs SET began = 'then';
    UPDATE runs SET seconds = 0.25, timings = '{}', host = 'here', ended = 'then';
    CREATE TEMP TABLE sorted AS SELECT * FROM runs ORDER BY cell, seed;
    DELETE FROM runs;
    INSERT INTO runs SELECT * FROM sorted;
"""


@functools.cache
def stored() -> bytes:
    """The store of a small sweep in one file."""
    out = folder() / "template-sweep"
    with only():
        experiments.sweep(SWEEP, out, workers=0)
    with contextlib.closing(sqlite3.connect(out / store.FILE)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.executescript(USUAL)
        connection.execute("VACUUM")
        return connection.serialize()


CELLS: tuple[Any, ...] = (
    None, 0, 1, -1, 2**62, 1.5, math.inf, math.nan, "", "a", "é", b"", b"\xff\xfe", "[]", "{}", "null", "[1]", "1",
    '{"a": 1}', '"a"', "{", "[" * 5000, "NaN", "failed", "finished", "1/0", "5/2", "x/y", "{\"horizon\": {}}",
    '{"curve": [1]}', '{"curve": {"a": 1}}', '{"curve": {"a": [1], "b": []}}', '{"traceback": 5}', "[[1], {}]",
    "9" * 5000,
)  # fmt: skip
"""What a cell of a table may hold."""

UPDATE = "UPDATE OR IGNORE {table} SET {column} = ?{one}"
CHANGES = (
    *[UPDATE] * 8,
    "ALTER TABLE {table} RENAME COLUMN {column} TO {column}_",
    "DELETE FROM {table}{one}",
    "DROP TABLE {table}",
    "ALTER TABLE {table} RENAME TO {table}_",
    "ALTER TABLE {table} DROP COLUMN {column}",
    f"PRAGMA application_id = {store.APPLICATION + 1}",
    *(f"PRAGMA user_version = {version}" for version in (0, 1, 2, -1)),
    # The same table without types and conditions: SQLite then holds whatever is put in.
    "CREATE TABLE copy AS SELECT * FROM {table}; DROP TABLE {table}; ALTER TABLE copy RENAME TO {table}; " + UPDATE,
)


def break_store(rng: Generator, connection: sqlite3.Connection) -> None:
    """Change one thing in a store."""
    table = pick(rng, ("runs", "runs", "runs", "specs", "shards"))
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    if not columns:  # it was dropped
        return
    column = pick(rng, columns)
    order = f"rowid * {int(rng.integers(1, 99))} % 17"
    one = "" if rng.random() < 0.3 else f" WHERE rowid = (SELECT rowid FROM {table} ORDER BY {order} LIMIT 1)"
    value = pick(rng, CELLS)
    if rng.random() < 0.5:  # one like that which is there
        ((found,),) = connection.execute(f"SELECT {column} FROM {table}{one} LIMIT 1").fetchall() or [(None,)]
        try:
            value = json.dumps(broken(rng, json.loads(found)), skipkeys=True)
        except (TypeError, ValueError, RecursionError):
            value = near(rng, found) if found is None or isinstance(found, int | float | str) else found
        if isinstance(value, list | dict) or (isinstance(value, int) and abs(value) >= 2**63):
            value = json.dumps(value)
        if isinstance(value, str):
            value = value.encode(errors="replace").decode()
    for statement in pick(rng, CHANGES).format(table=table, column=column, one=one).split("; "):
        connection.execute(statement, [value] if "?" in statement else [])


def store_file(rng: Generator) -> bytes:
    """A store with something broken."""
    if rng.random() < 0.15:
        return broken_bytes(rng, stored())
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.deserialize(stored())
        for _ in range(int(rng.integers(1, 3))):
            with contextlib.suppress(sqlite3.Error):
                break_store(rng, connection)
        return connection.serialize()


def load_store(rng: Generator) -> None:
    """The rows of a store, what has become of its runs, and the tables that are made of them."""
    directory, data = folder() / "store", store_file(rng)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    if rng.random() < 0.3 and len(data) > 20:  # with a write-ahead log, as sweeps leave stores
        data = data[:18] + b"\x02\x02" + data[20:]
        if rng.random() < 0.5:
            log = bytes.fromhex("377f0682002de2180000100000000000") + rng.bytes(int(rng.integers(5000)))
            (directory / f"{store.FILE}-wal").write_bytes(broken_bytes(rng, log))
    (directory / store.FILE).write_bytes(data)
    with only(store.StoreError):
        rows, found = experiments.load(directory), experiments.status(directory)
        store.load_specs(directory)
    with only():
        assert sum(found.counts[state] for state in ("done", "failed", "waiting")) == found.counts["runs"]
        to_json(status_dict(found)), status_table(found), repr(rows)
        for curves in (False, True):
            assert len({len(column) for column in rows.columns(curves=curves).values()}) <= 1
        for cell in rows.cells:
            parameters_text(cell.algorithm_parameters)
        experiments.export(rows, folder() / "rows.csv")


# ---- Specifications

SPECS = (
    f"""\
max_seconds = 60
grace = 30
evaluate = 10
{SPEC}
initial = [[0, 1, 0, 1]]
max_trajectories = 100_000
function_class = "finite:scale=2"
""",
    """\
seeds = [0, 3]
[[environments]]
name = "chain"
horizon = 3
fail = [0.1, 2.5e-1]
[[algorithms]]
name = "lsvi-ucb"
n_episodes = 4
checkpoints = [1, 4]
[[algorithms]]
name = "self-stopping"
epsilon = 0.5
mode = 'quick'
""",
    """\
environments = [{name = "river-swim", horizon = 4}, {name = "linear-q", horizon = 3}]
algorithms = [{name = "dmq", sampler = "exact", arithmetic = ["rational", 40], n_samples = 2}]
""",
)
TOKENS = (
    "[", "]", "[[", "]]", "{", "}", "=", ",", ".", "\n", "'", '"', '"""', "#", "0", "-1", "1e400", "nan", "-inf",
    "true", "1979-05-27", "07:32:00", "name", "seeds", "horizon", "n_samples", "max_seconds", "max_trajectories",
    "grace", '"é"', '"\\u0000"', "[[environments]]", "[[algorithms]]", "[algorithms]", '"dmq"', '"lock"', '"gym:x"',
    '"math:sin"', "0x7f", "9223372036854775808", "[]", "[[]]", "{}", "\x00", "\ufeff", "\r\n", "environments",
    '"rational"', '"mirage-lock"', "[" * 3000, "9" * 5000, "[0, 1]", '"lock" = 1', "evaluate", "variant", '"ucb-q"',
    "a.b.c", "seed",
)  # fmt: skip
"""Pieces of TOML. None of them makes a large environment."""


def broken_toml(rng: Generator) -> bytes:
    """The text of a specification with some of its words, or of all tokens, removed, replaced, repeated or added."""
    text = pick(rng, SPECS)
    if rng.random() < 0.05:
        return broken_bytes(rng, text.encode())
    parts = [part for part in re.split(r"(\n|[ \t]+|[\[\]{}=,\"'.])", text) if part]
    words = [i for i, part in enumerate(parts) if part.strip(" \n[]{}=,.\"'")]
    numbers = [i for i in words if parts[i].isdigit()]
    for _ in range(int(pick(rng, (1, 1, 1, 2)))):
        places = pick(rng, (numbers, numbers, words, range(len(parts))))
        at, other = pick(rng, places), pick(rng, places)
        near_one = str(near(rng, int(parts[at]) if parts[at].isdigit() else parts[at]))
        parts[at] = pick(rng, (pick(rng, TOKENS), parts[other], near_one, near_one, "", parts[at] + parts[other]))
    return "".join(parts).encode(errors="surrogatepass")


def specification(rng: Generator) -> None:
    """One in TOML or from Python; the shards of a right one are all its runs, and a small one is checked as well."""
    text = rng.random() < 0.8
    given = written("spec.toml", broken_toml(rng)) if text else broken(rng, tomllib.loads(pick(rng, SPECS)))
    if isinstance(given, str):  # a path
        return
    with only(SpecError) if isinstance(given, dict | Path) else only(SpecError, TypeError):
        spec = experiments.read(given)
    with only():
        assert spec.n_runs == len(spec.cells) * len(spec.seeds)
        assert len({cell.id for cell in spec.cells}) == len(spec.cells)
        if spec.n_runs < 1000:
            assert len([run for i in range(3) for run in spec.runs((i, 3))]) == spec.n_runs
        if text:
            assert [cell.id for cell in reread(spec.text, spec.name).cells] == [cell.id for cell in spec.cells]
    parameters = [{**cell.environment_parameters, **cell.algorithm_parameters} for cell in spec.cells]
    sizes = [size for one in parameters for size in one.values() if isinstance(size, int | float)]
    if len(spec.cells) < 20 and not any(size > 50 for size in sizes):  # others are right, and slow
        with only(SpecError):
            spec.check()


# ---- Environments


def small_mdp(rng: Generator) -> dict[str, Any]:
    """Valid arguments of `FiniteMDP`."""
    horizon, states, actions = (int(rng.integers(1, 4)) for _ in range(3))
    kernel = rng.dirichlet(np.ones(states), (horizon - 1, states, actions))
    sparse = rng.random() < 0.5
    return {
        "P": [scipy.sparse.csr_array(level.reshape(-1, states)) if sparse else level for level in kernel],
        "R": [rng.random((states, actions)) / horizon for _ in range(horizon)],
        "features": [scipy.sparse.csr_array(np.eye(30)[:states]) if sparse else np.eye(states)] * horizon,
        "start": None if rng.random() < 0.5 else rng.dirichlet(np.ones(states)),
        "caps": None if rng.random() < 0.5 else np.ones(horizon),
    }


def finite_mdp(rng: Generator) -> None:
    """The arguments of `FiniteMDP`."""
    given = small_mdp(rng)
    # Each once: to break a broken array further, SciPy would have to read it here.
    for name in rng.permutation(list(given))[: int(pick(rng, (0, 1, 1, 1, 2)))].tolist():
        given[name] = broken(rng, given[name])
    for name in ("value_range", "parameters"):
        if rng.random() < 0.03:
            given[name] = pick(rng, JUNK)
    with only(TypeError, ValueError):
        env = FiniteMDP(**given)
    with only():
        low, high = env.value_range[0]
        slack = 1e-6 * max(1.0, abs(low), abs(high))
        assert low - slack <= env.optimal_value <= high + slack
        env.gap, env.fingerprint(), repr(env)
        uniform = dmq.Policy.uniform(env.horizon)
        assert env.value(uniform) <= env.optimal_value + slack
        RolloutSampler(env).collect(uniform, 3, stream=dmq.Stream(0), levels=list(range(env.horizon)))


class Table:
    """A stand-in for a Gymnasium environment with a table."""

    def __init__(self, table: Any, initial: Any) -> None:
        self.P, self.initial_state_distrib = table, initial

    @property
    def unwrapped(self) -> Table:
        return self


def gymnasium_table(rng: Generator) -> None:
    """A transition table as Gymnasium's toy-text environments have it."""
    states, actions = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    table: Any = {
        s: {a: [(0.5, int(rng.integers(states)), float(rng.integers(2)), False), (0.5, s, 0.0, bool(rng.integers(2)))]
            for a in range(actions)} for s in range(states)
    }  # fmt: skip
    initial: Any = [1.0 / states] * states
    for _ in range(int(pick(rng, (0, 1, 1, 2)))):
        if rng.random() < 0.15:
            initial = broken(rng, initial)
        else:
            table = broken(rng, table)
    horizon = int(rng.integers(1, 4)) if rng.random() < 0.95 else near(rng, 2)
    if isinstance(horizon, int) and horizon > 100:
        horizon = 5
    with only(TypeError, ValueError):
        env = from_gymnasium(Table(table, initial), horizon)
    with only():
        low, high = env.value_range[0]
        assert low - 1e-6 * (1 + abs(low)) <= env.optimal_value <= high + 1e-6 * (1 + abs(high))


# ---- Function classes and JSON


def json_text(rng: Generator) -> None:
    """A text that is JSON or not."""
    text = json.dumps(broken(rng, pick(rng, results())[0]), skipkeys=True)
    data = text.encode(errors="surrogatepass")
    if rng.random() < 0.7:
        data = broken_bytes(rng, data)
    if rng.random() < 0.05:
        data = pick(rng, (b"[" * 100_000, b'{"a":' * 100_000, b"1" * 5000, b"\xff", b"\xef\xbb\xbf{}", b""))
    with only(ValueError):
        value = (from_json if rng.random() < 0.5 else plain)(data)
    with only():
        assert to_json(from_json(to_json(value))) == to_json(value)


TARGETS = {
    "results": Target(read_result, 5.0),
    "damaged-journals": Target(cut_journal, 2.0),
    "forged-journals": Target(forged_journal, 3.0),
    "stores": Target(load_store, 2.0),
    "specifications": Target(specification, 4.0),
    "finite-mdps": Target(finite_mdp, 5.0),
    "gymnasium-tables": Target(gymnasium_table, 3.0),
    "json": Target(json_text, 3.0),
}
