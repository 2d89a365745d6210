"""Journals: a run that is killed at any moment, any number of times, ends with the result of an undisturbed run."""

import contextlib
import errno
import itertools
import json
import math
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from flat import flat
from line import Thin
from sweeping import one

import dmq_fast as dmq
from dmq_fast import experiments
from dmq_fast._support.files import make_directory, replacing
from dmq_fast.engine import journal
from dmq_fast.environments import FiniteMDP, chain, combination_lock, deep_sea
from dmq_fast.experiments.sweeps import scheduler
from dmq_fast.experiments.sweeps.store import Store
from dmq_fast.samplers import RolloutSampler

ENVIRONMENTS = {"lock": lambda: combination_lock(5, 3, rng=0), "chain": lambda: chain(5, rng=0)}
VARIANTS = [
    {"variant": "sound"},
    {"variant": "sound", "oracle": "value"},
    {"variant": "paper"},
    {"variant": "paper", "oracle": "decision", "recheck": True},
    {"variant": "frugal"},
    {"variant": "frugal", "oracle": "value", "initial": [[0] * 5, [1] * 5]},
    {"variant": "sound", "accumulate": True},
    {"variant": "sound", "reuse": True},
    {"variant": "sound", "memo": True},
    {"variant": "paper", "reuse": True},
    {"variant": "frugal", "accumulate": False, "recheck": False},
]


def algorithm(env=None, path=None, *, n_samples=20, rng=7, **settings):
    """Return a DMQ, of the small chain by default, with a journal."""
    return flat(chain(3, rng=0) if env is None else env, n_samples=n_samples, rng=rng, journal=path, **settings)


def content(result):
    """Return everything of a result except its timings."""
    columns = result.history.columns()
    return (
        result.theta.tobytes(),
        [[[rule.__reduce__()[0], getattr(rule, "action", None), theta(rule)] for rule in policy.rules]
         for policies in [*result.cover, [result.policy]] for policy in policies],
        {name: columns[name].tobytes() for name in columns},
        result.counts, result.status, result.options, result.parameters, result.key, result.warnings,
    )  # fmt: skip


def theta(rule):
    return rule.theta.tobytes() if hasattr(rule, "theta") else None


class Watched(RolloutSampler):
    """Sampler that notes its calls."""

    def __init__(self, env):
        super().__init__(env)
        self.calls = []

    def collect(self, policy, n, *, stream, levels, returns_from=()):
        self.calls.append(stream.call)
        return super().collect(policy, n, stream=stream, levels=levels, returns_from=returns_from)

    def collect_chunk(self, policy, n, *, rng, levels, returns_from=()):
        if not self.calls or self.calls[-1] != rng.call:
            self.calls.append(rng.call)
        return super().collect_chunk(policy, n, rng=rng, levels=levels, returns_from=returns_from)


def spread(items, most):
    """All items, or about `most` of them at equal distances; the first and the last are always among them."""
    return [*items[: -1 : -(-len(items) // most)], items[-1]]


def boundaries(contents):
    """Return the end of each record in bytes."""
    ends = [0]
    for _, _, payload in journal.records(contents):
        ends.append(ends[-1] + journal.HEAD.size + len(payload))
    assert ends[-1] == len(contents)
    return ends[1:]


def resealed(whole, change):
    """A journal with the payload of some records changed and right checksums; `change` returns None for the others."""
    parts = []
    for kind, number, payload in journal.records(whole):
        new = None if kind == journal.HEADER else change(kind, journal.decision(kind, payload))
        parts.append(journal.seal(kind, number, bytes(payload) if new is None else new))
    return b"".join(parts)


# A journal that ends anywhere, or is damaged


@pytest.mark.parametrize("most", [5, pytest.param(10**9, marks=pytest.mark.slow)], ids=["some", "all"])
def test_a_journal_that_ends_after_any_record_gives_the_undisturbed_run(tmp_path, most):
    for (name, make), settings in zip(itertools.cycle(ENVIRONMENTS.items()), VARIANTS, strict=False):
        env, path = make(), tmp_path / f"{name} {settings}"
        undisturbed = algorithm(env, **settings).learn()
        calls = undisturbed.counts["sampler_calls"]

        def drawn(env=env, path=path, settings=settings, undisturbed=undisturbed):
            sampler = Watched(env)
            assert content(algorithm(sampler, path, **settings).learn()) == content(undisturbed), settings
            return sampler.calls

        assert drawn() == list(range(1, calls + 1))
        whole, redrawn = path.read_bytes(), 0
        for end in spread(boundaries(whole), most):
            path.write_bytes(whole[:end])
            *_, last = 0, *(record.calls for record in journal.read(path, whole[:end]).decisions)
            found = drawn()
            assert [call for call in found if call > last] == list(range(last + 1, calls + 1))
            # Before the kill: batches not all of whose levels had been tested, one for each open call of Algorithm 3,
            # and what else is looked at again where trajectories serve more than once.
            again = [call for call in found if call <= last]
            assert len(set(again)) == len(again) or settings.get("reuse")
            assert settings["variant"] == "frugal" or {"reuse", "memo"} & set(settings) or len(again) <= env.horizon
            redrawn += len(again)
            contents = path.read_bytes()
            assert (len(contents), contents[:end]) == (len(whole), whole[:end])
        assert redrawn > 0 or most < 20
        assert drawn() == []


@pytest.mark.parametrize("step", [31, pytest.param(1, marks=pytest.mark.slow)])
def test_a_record_cut_short_at_any_byte_is_dropped_without_a_word(tmp_path, step):
    path = tmp_path / "journal"
    run = algorithm(path=path)
    expected = content(run.learn())
    whole = path.read_bytes()
    ends = [0, *boundaries(whole)]
    for record in (0, 1, 2, 7, len(ends) - 3, len(ends) - 2):
        begin, end = ends[record], ends[record + 1]
        for cut in range(begin, end, step if record > 0 else 10 * step):
            for zeros in (0, 5000):  # after a power cut a file may be longer than what was written of it
                path.write_bytes(whole[:cut] + bytes(zeros))
                assert content(run.learn()) == expected
                assert len(path.read_bytes()) == len(whole)
        if record > 0:
            broken = whole[begin : end - 1] + bytes([whole[end - 1] ^ 255])
            for rubbish in (random.Random(0).randbytes(5000), broken):
                path.write_bytes(whole[:begin] + rubbish)
                assert content(run.learn()) == expected


@pytest.mark.parametrize("step", [211, pytest.param(7, marks=pytest.mark.slow)])
def test_damage_costs_what_follows_it_and_the_result_names_it(tmp_path, step):
    """Flipped bits, records that are missing, twice, exchanged or zeros, and records that no run writes."""
    path = tmp_path / "journal"
    run = algorithm(path=path)
    expected = run.learn()
    # The second of a record is the number of calls before it.
    timed = lambda kind, record: journal.packed(record.calls, record.calls, record.integers, [record.floats])  # noqa: E731
    whole = resealed(path.read_bytes(), timed)
    ends = header, a, b, *_, end = boundaries(whole)
    begin, first, second, rest = whole[:header], whole[header:a], whole[a:b], whole[a:]
    again = journal.seal(journal.HEADER, 1, whole[journal.HEAD.size : header])
    damaged = [begin + part + rest for part in (
        b"", second, bytes(len(first)), again, journal.seal(journal.CLOCK, 1, b"short"),
        journal.seal(99, 1, journal.packed(1.0, 1)), journal.seal(journal.CLOCK, 1, journal.packed(math.nan, 1, [0])),
    )]  # fmt: skip
    damaged += [begin + second + first + whole[b:], begin + first + whole]
    for position in [*range(header, ends[-2], step), ends[-2] - 1]:
        flipped = bytearray(whole)
        flipped[position] ^= 1 << position % 8
        damaged.append(bytes(flipped))
    for contents in damaged:
        path.write_bytes(contents)
        intact = [record.calls for record in journal.read(path, contents).decisions]
        assert whole[: ends[len(intact)]] == contents[: ends[len(intact)]]
        assert whole[: ends[len(intact) + 1]] != contents[: ends[len(intact) + 1]]
        found = run.learn()
        (warning,) = set(found.warnings) - set(expected.warnings)
        assert warning == f"{path}: resumed from second {max(intact, default=0)}; the rest of the file was damaged"
        assert found.theta.tobytes() == expected.theta.tobytes() and found.history == expected.history
        assert len(path.read_bytes()) == end
        assert run.learn().warnings == expected.warnings  # the file is whole again


def test_a_damaged_header_is_refused(tmp_path):
    """It does not show whose run the file is of."""
    path = tmp_path / "journal"
    run = algorithm(path=path)
    run.learn()
    whole = path.read_bytes()
    wrong = [whole[boundaries(whole)[0] :]]
    for position in (4, 20, 700):
        flipped = bytearray(whole)
        flipped[position] ^= 0x10
        wrong.append(bytes(flipped))
    wrong += [
        journal.seal(journal.HEADER, 0, json.dumps({"format": journal.FORMAT, "key": key}).encode())
        for key in (None, [], ["0x1"], ["x", "y"], [1, 2], ["-0x1", "0x1"], ["0x1ffffffffffffffff", "0x1"])
    ]
    wrong.append(journal.seal(journal.HEADER, 0, b"[" * 100_000))
    for contents in wrong:
        path.write_bytes(contents)
        with pytest.raises(dmq.JournalError, match=f"^{path}: damaged: .*; give another path$"):
            algorithm(path=path, rng=None).learn()
        assert path.read_bytes() == contents


OLD = Path(__file__).parent / "data" / "journal-0.2.0"


def test_journals_of_version_0_2_0_are_read(tmp_path):
    """They hold records of what was synced. This one ends in the middle of a run of `sound`."""
    contents = OLD.read_bytes()
    kinds = [record.kind for record in journal.read(OLD, contents).decisions]
    assert journal.SYNCED in kinds and len(boundaries(contents)) == 1 + len(kinds)
    path = tmp_path / "journal"
    path.write_bytes(contents)
    sampler = Watched(chain(3, rng=0))
    sampler.unwrapped = lambda: RolloutSampler(sampler.env)
    assert content(algorithm(sampler, path).learn()) == content(algorithm().learn())
    assert sampler.calls[0] > 10
    assert path.read_bytes().startswith(contents)


# Records whose checksum is right, and which are no answers

SOUND, ACCUMULATED, STOPPING = {"n_samples": 20}, {"n_samples": 20, "accumulate": True}, {"epsilon": 0.5}

NO_ANSWERS = [
    (SOUND, journal.SCAN, lambda i: i[:1], lambda f: f, "expected 2 integers, got 1"),
    (SOUND, journal.SCAN, lambda i: (99, 0), lambda f: f, "expected -1 or a level in . to ., got 99"),
    (SOUND, journal.SCAN, lambda i: (i[0], -1), lambda f: f, "expected a number of answers >= 0, got -1"),
    (SOUND, journal.SCAN, lambda i: i, lambda f: [*f, *[1.0] * 9], "expected at most . values"),
    (SOUND, journal.FIT, lambda i: (), lambda f: f, r"expected the integer 0 or 1, got \(\)"),
    (SOUND, journal.FIT, lambda i: i, lambda f: f[1:], "expected theta of 5 numbers, got 4"),
    (SOUND, journal.FIT, lambda i: i, lambda f: [*f[1:], math.nan], "expected a finite theta"),
    (SOUND, journal.LEVEL, lambda i: (i[0] + 1, *i[1:]), lambda f: f, "expected level ., got"),
    (SOUND, journal.LEVEL, lambda i: i, lambda f: f[:-1], "expected . x . moments, got"),
    (SOUND, journal.LEVEL, lambda i: i, lambda f: [-1.0, *f[1:]], "expected seconds >= 0, got"),
    (SOUND, journal.LEVEL, lambda i: i[:1], lambda f: [*f[:3], *[math.inf] * 25], "expected finite moments"),
    (SOUND, journal.LEVEL, lambda i: (i[0], 5, 0, 5), lambda f: f[:7], "expected ascending columns below 5"),
    (SOUND, journal.LEVEL, lambda i: (i[0], 6, 0, 4), lambda f: f[:7], "expected dimension 5, got 6"),
    (ACCUMULATED, journal.ADDED, lambda i: (7, *i[1:]), lambda f: f, "expected level ., got"),
    (ACCUMULATED, journal.ADDED, lambda i: i, lambda f: f[1:], "expected . x . moments, got"),
    (STOPPING, journal.EPISODES, lambda i: (), lambda f: f, "expected 1 episodes with 6 rows and actions, got"),
    (STOPPING, journal.EPISODES, lambda i: (i[0], -1, *i[2:]), lambda f: f, "expected numbers of feature rows >= 0"),
    (STOPPING, journal.EPISODES, lambda i: (i[0], 2**60, *i[2:]), lambda f: f, "expected 3 rewards and"),
    (STOPPING, journal.EPISODES, lambda i: i, lambda f: f[1:], "expected 3 rewards and"),
    (STOPPING, journal.EPISODES, lambda i: i, lambda f: [math.inf, *f[1:]], "rewards: expected"),
]


def test_records_that_are_no_answers_are_refused(tmp_path):
    path = tmp_path / "journal"
    for settings, group in itertools.groupby(NO_ANSWERS, key=lambda case: case[0]):
        path.unlink(missing_ok=True)
        run = flat(chain(3, rng=0), rng=7, journal=path, **settings)
        run.learn()
        whole = path.read_bytes()
        for _, kind, integers, floats, words in group:

            def change(found, record, kind=kind, integers=integers, floats=floats):
                new = integers(record.integers), [floats(record.floats.tolist())]
                return journal.packed(record.elapsed, record.calls, *new) if found == kind else None

            wrong = resealed(whole, lambda found, record, c=change, k=kind: c(found, record) if found == k else None)
            path.write_bytes(wrong)
            with pytest.raises(dmq.JournalError, match=f"^{path}: damaged: {journal.NAMES[kind]} after .*: {words}"):
                run.learn()
            assert path.read_bytes() == wrong


def test_an_answer_to_another_question_is_refused(tmp_path):
    path = tmp_path / "journal"
    run = algorithm(path=path)
    run.learn()
    whole = path.read_bytes()
    late = resealed(whole, lambda kind, record: journal.packed(0.0, record.calls + 1, record.integers, [record.floats]))
    path.write_bytes(late)
    with pytest.raises(
        dmq.JournalError, match=r"expected a .* after \d+ calls of the sampler, got a .*; resume the run"
    ):
        run.learn()
    assert path.read_bytes() == late


# Files that are not the journal of this run


@pytest.mark.parametrize("foreign", [b"My thesis\n" * 100, b"\x00" * 10 + b"x", b"\xd1dmp", b"x", b"PK\x03\x04"])
def test_a_foreign_file_is_refused_and_left_alone(tmp_path, foreign):
    path = tmp_path / "thesis"
    path.write_bytes(foreign)
    for rng in (0, None):
        with pytest.raises(dmq.JournalError, match="not a journal of dmq_fast; give another path") as caught:
            algorithm(path=path, rng=rng).learn()
        assert caught.value.path == path and caught.value.remedy == "give another path"
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert path.read_bytes() == foreign


def other_table():
    env = chain(4, rng=0)
    rewards = [array * (1 - 1e-15) for array in env.R]
    return FiniteMDP(env.P, rewards, env.features, env.start, name=env.name, parameters=env.parameters)


DIFFERENCES = [
    (None, {"n_samples": 21}, r"parameters\.n_samples is 20 there and 21 here"),
    (None, {"ratio": 3.0}, "parameters.eps_t is 2.0 there and 3.0 here"),
    (None, {"eps_r": np.nextafter(0.01, 1)}, "parameters.eps_r is 0.01 there and 0.010000000000000002 here"),
    (None, {"ridge": 0.1}, "parameters.ridge"),
    (None, {"variant": "paper"}, "variant is 'sound' there and 'paper' here; options.initial is 'fixed'"),
    (None, {"oracle": "value"}, "options.oracle"),
    (None, {"recheck": False}, "options.recheck"),
    (None, {"accumulate": True}, "options.accumulate is False there and True here"),
    (None, {"reuse": True}, "options.reuse"),
    (None, {"memo": True}, "options.memo"),
    (None, {"mixture": "multinomial"}, "options.mixture"),
    (None, {"initial": [0, 0, 0, 0]}, "options.initial is 'fixed' there and 'given' here; initial is "),
    (None, {"rng": 8}, "key is "),
    (chain(5, rng=0), {}, "environment.horizon is 4 there and 5 here; environment.parameters.horizon"),
    (chain(4, rng=1), {}, "environment.parameters.rng is 0 there and 1 here|environment.sha256"),
    (other_table(), {}, "another run: environment.sha256 is "),
    (Watched(chain(4, rng=0)), {}, "environment.sampler is 'RolloutSampler' there and 'Watched' here"),
]


def test_a_journal_of_another_run_is_refused_by_what_differs(tmp_path):
    path = tmp_path / "journal"
    algorithm(chain(4, rng=0), path, max_trajectories=500).learn()
    before = path.read_bytes()
    for env, settings, words in DIFFERENCES:
        with pytest.raises(dmq.JournalError, match=words) as caught:
            algorithm(env or chain(4, rng=0), path, max_trajectories=500, **settings).learn()
        assert str(caught.value).startswith(f"{path}: the journal of another run: ")
        assert str(caught.value).endswith("; give the arguments of that run, or another path")
    assert path.read_bytes() == before


class Versioned(Thin):
    """Sampler that is not one of the package, with a fingerprint of its own."""

    def __init__(self, env, version):
        super().__init__(RolloutSampler(env))
        self.version = version

    def fingerprint(self):
        return {"version": self.version}


class Steady:
    """BatchEnvironment with a single state and no rewards."""

    horizon, n_actions, dimension = 3, 2, 1

    def __init__(self, chunk_size=50, **more):
        self.chunk_size = chunk_size
        if more:
            self.fingerprint = lambda: more

    def reset(self, n, rng):
        return np.full((n, 1), 0.5)

    def features(self, level, states):
        return states

    def step(self, level, states, actions, rng):
        return states, states[:, 0] / 4


class Other(Steady):
    """The same environment with another class name."""


@pytest.mark.parametrize(
    ("mine", "other", "words"),
    [
        (Steady(), Other(), "class is 'Steady' there and 'Other' here"),
        (Steady(size=1), Steady(size=2), "size is 1 there and 2 here"),
        (Steady(50), Steady(40), r"fingerprint\.chunk_size is 50 there and 40 here"),
        (*(Versioned(chain(4, rng=0), i) for i in (1, 2)), r"fingerprint\.version is 1 there and 2 here"),
    ],
)
def test_environments_and_samplers_of_ones_own_are_told_apart(tmp_path, mine, other, words):
    path = tmp_path / "journal"
    expected = algorithm(mine, path).learn()
    assert content(algorithm(mine, path).learn()) == content(expected)
    with pytest.raises(dmq.JournalError, match=rf"another run: environment\.{words};"):
        algorithm(other, path).learn()


def test_other_versions_and_formats_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "journal"
    run = algorithm(path=path)
    for name, value, words in (
        ("build", lambda: "0.0.9+0a1b2c3d", r"dmq_fast is '0\.0\.9' there"),
        ("FORMAT", 99, "written in format 99 by dmq_fast .*; resume the run with that version"),
    ):
        path.unlink(missing_ok=True)
        monkeypatch.setattr(journal, name, value)
        run.learn()
        monkeypatch.undo()
        with pytest.raises(dmq.JournalError, match=words):
            run.learn()


@pytest.mark.parametrize("wrong", [3, b"journal", True])
def test_what_is_no_path_is_refused(wrong):
    with pytest.raises(TypeError, match="journal: expected a path"):
        algorithm(path=wrong).learn()


@pytest.mark.parametrize("rng", [0, None])
def test_what_is_no_regular_file_is_refused_instead_of_read(tmp_path, rng):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero", "/dev/null"):
        with pytest.raises(dmq.JournalError, match=f"^{path}: expected a regular file; "):
            algorithm(path=path, rng=rng).learn()
    for path, error in ((tmp_path / "no" / "journal", FileNotFoundError), (tmp_path, IsADirectoryError)):
        with pytest.raises(error):
            algorithm(path=path).learn()


# Locks


def test_two_runs_on_one_journal_are_refused(tmp_path):
    path, seen = tmp_path / "journal", []
    run = algorithm(path=path)

    def meanwhile(progress):
        with pytest.raises(dmq.JournalError, match=f"^{path}: another run is writing this journal; wait"):
            run.learn()
        seen.append(progress)

    expected = algorithm(path=path, progress=meanwhile).learn()
    assert seen
    assert content(run.learn()) == content(expected)


def test_a_forked_child_does_not_hold_the_lock(tmp_path):
    path = tmp_path / "journal"
    held = journal.Journal(path, {"x": 1})
    child = os.fork()
    if child == 0:
        time.sleep(30)
        os._exit(0)
    try:
        time.sleep(0.1)
        with pytest.raises(dmq.JournalError, match="another run"):
            journal.check_free(path)
        held.close()
        journal.check_free(path)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_file_system_without_locks_is_gone_without(tmp_path, monkeypatch):
    def no_locks(*arguments):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(journal.fcntl, "flock", no_locks)
    journal.open_locked(tmp_path / "journal").close()


# Going on


def test_without_rng_the_key_of_the_journal_is_used(tmp_path):
    env, path = chain(4, rng=0), tmp_path / "journal"
    first = algorithm(env, path, rng=None, max_trajectories=300).learn()
    again = algorithm(env, path, rng=None).learn()
    assert again.key == first.key
    assert content(again) == content(algorithm(env, rng=dmq.Stream.from_key(first.key)).learn())


@pytest.mark.parametrize("variant", ["sound", "frugal"])
@pytest.mark.parametrize("budget", [{"max_trajectories": 333}, {"max_policies": 2}, {"max_seconds": 0.01}])
def test_a_run_out_of_budget_goes_on_with_a_larger_one(tmp_path, budget, variant):
    env, path = deep_sea(12), tmp_path / "journal"
    (status,) = budget
    stopped, same = (algorithm(env, path, variant=variant, **budget).learn() for _ in range(2))
    assert stopped.status == same.status == status
    if status != "max_seconds":
        assert content(same) == content(stopped)
    assert same.seconds["total"] >= stopped.seconds["total"]
    resumed = algorithm(env, path, variant=variant).learn()
    assert content(resumed) == content(algorithm(env, variant=variant).learn())
    # And one that is smaller again ends where it would have ended.
    size = path.stat().st_size
    again = algorithm(env, path, variant=variant, max_trajectories=333).learn()
    assert content(again) == content(algorithm(env, variant=variant, max_trajectories=333).learn())
    assert path.stat().st_size == size


def test_seconds_go_on_counting(tmp_path):
    env, path = deep_sea(80), tmp_path / "journal"
    total = 0.0
    for limit in (0.1, 0.6):  # more than a replay of the last takes on a busy machine
        result = algorithm(env, path, n_samples=2000, max_seconds=limit).learn()
        assert result.status == "max_seconds"
        assert limit <= result.seconds["total"]
        assert result.n_trajectories > total
        total = result.n_trajectories
        assert result.seconds["total"] == pytest.approx(sum(result.seconds.values()) - result.seconds["total"])
    # No time is left: the journal is replayed, and nothing is drawn after it.
    result = algorithm(env, path, n_samples=2000, max_seconds=0.2).learn()
    assert result.status == "max_seconds"
    assert 0 < result.n_trajectories <= total


# What is written


def test_the_size_is_that_of_the_decisions(tmp_path):
    """Answers of the oracle, fits and moments of levels, each once, and nothing of the trajectories."""
    environments = (combination_lock(20, 4, rng=0, dimension=9), chain(8, rng=0))
    for env, oracle in itertools.product(environments, ("decision", "value")):
        path = tmp_path / f"{env.name} {oracle}"
        result = algorithm(env, path, oracle=oracle).learn()
        header, d = boundaries(path.read_bytes())[0], env.dimension
        runs, start = result.counts["algorithm_2_runs"], journal.HEAD.size + journal.START.size
        values = result.counts["oracle_calls"] if oracle == "value" else 0
        size = (
            header
            + len(result.history._records) * (start + 16) + 8 * values + 16 * result.counts["trues"]
            + runs * env.n_actions * (start + 8 + 8 * d)
            + runs * (start + 8 + 8 * 3 + 8 * d * d)
        )  # fmt: skip
        assert header < 4000
        assert path.stat().st_size == size


class Full:
    """File on a disk that becomes full after a number of writes, in the middle of a record."""

    def __init__(self, file, writes, partial=True):
        self.file, self.writes, self.partial = file, writes, partial

    def write(self, data):
        self.writes -= 1
        if self.writes > 0:
            return self.file.write(data)
        if self.writes == 0 and self.partial:
            return self.file.write(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    def __getattr__(self, name):
        return getattr(self.file, name)


class Interrupted(Full):
    """File in whose write Ctrl-C arrives, when a part or all of a record has been written."""

    def write(self, data):
        self.writes -= 1
        if self.writes == 0:
            self.file.write(data[: len(data) // 2 if self.partial else len(data)])
            raise KeyboardInterrupt
        return self.file.write(data)


@pytest.mark.parametrize("writes", [2, 3, 40])
@pytest.mark.parametrize("partial", [False, True])
def test_what_ends_in_the_middle_of_a_write_does_no_harm(tmp_path, monkeypatch, writes, partial):
    env = chain(4, rng=0)
    expected, opened = algorithm(env).learn(), journal.open_locked
    for kind in (Full, Interrupted):
        path = tmp_path / kind.__name__
        monkeypatch.setattr(journal, "open_locked", lambda path, kind=kind: kind(opened(path), writes, partial))
        run = algorithm(env, path)
        if kind is Full:  # costs the journal, not the run
            result = run.learn()
            assert result.status == expected.status
            assert result.theta.tobytes() == expected.theta.tobytes()
            (warning,) = set(result.warnings) - set(expected.warnings)
            assert str(path) in warning and "No space left" in warning
        else:
            with pytest.raises(KeyboardInterrupt):
                run.learn()
        # What was written is whole, and can be gone on from. After Ctrl-C the clock was recorded.
        assert len(boundaries(path.read_bytes())) == writes - 1 + (kind is Interrupted)
        monkeypatch.undo()
        assert content(run.learn()) == content(expected)


def test_a_disk_full_from_the_start_ends_before_the_work(tmp_path, monkeypatch):
    opened = journal.open_locked
    monkeypatch.setattr(journal, "open_locked", lambda path: Full(opened(path), 0))
    with pytest.raises(dmq.JournalError, match=r"could not be written .*; give a path on another disk"):
        algorithm(path=tmp_path / "journal").learn()


@pytest.fixture
def synced(monkeypatch):
    """Names of the files and directories that were synced, and of those that got their names, in this order."""
    events, fsync, replace = [], os.fsync, Path.replace

    def note_sync(descriptor):
        events.append(f"synced {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name}")
        fsync(descriptor)

    def note_name(self, target):
        events.append(f"named {Path(target).name}")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(Path, "replace", note_name)
    return events


@pytest.mark.skipif(sys.platform != "linux", reason="Linux has the names of open files")
def test_what_a_power_cut_must_not_lose_is_synced(tmp_path, monkeypatch, synced):
    """A journal at its start, its end and about every second; a file that is replaced before it has its name."""
    place = tmp_path / "place"
    make_directory(place / "a" / "b")
    assert synced == ["synced b", "synced a", "synced place", f"synced {tmp_path.name}"][1:]
    synced.clear()
    with replacing(place / "file") as file:
        file.write(b"new")
    first, *rest = synced
    assert first.startswith("synced .file.") and rest == ["named file", "synced place"]
    synced.clear()
    clock = iter(np.arange(10**6) * 0.3)
    monkeypatch.setattr(journal.time, "monotonic", lambda: next(clock))
    opened = journal.Journal(place / "journal", {"x": 1})
    assert synced == ["synced journal", "synced place"]
    synced.clear()
    for _ in range(20):
        opened.record(journal.CLOCK, 0.0, 0)
    assert 3 <= len(synced) <= 7 and set(synced) == {"synced journal"}
    synced.clear()
    opened.close()
    assert synced == ["synced journal"]


def test_a_store_is_synced_when_its_runs_have_taken_a_second(tmp_path, monkeypatch):
    """So a power cut loses runs of less than a second in all."""
    levels, writing, add = [], Store.writing, Store.add

    @contextlib.contextmanager
    def noting(self, *, synced=True):
        with writing(self, synced=synced):
            levels.append(self.connection.execute("PRAGMA synchronous").fetchone()[0])
            yield

    def timed(self, rows):
        levels.append("add")
        add(self, [row | {"seconds": 0.3} for row in rows])

    monkeypatch.setattr(Store, "writing", noting)
    monkeypatch.setattr(Store, "add", timed)
    monkeypatch.setattr(scheduler, "BATCH_RUNS", 1)
    experiments.sweep(one(seeds=9, n_samples=20), tmp_path, workers=0)
    normal, full = 1, 2
    added = [after for before, after in itertools.pairwise(levels) if before == "add"]
    assert added == 2 * [normal, normal, normal, full] + [normal]
    assert levels[0] == full  # the specification


# Processes


def test_a_kill_leaves_a_journal_to_resume_from(run, tmp_path):
    command = ["run", "deep-sea", "--size", 16, "--n-samples", 2000, "--json"]
    expected = json.loads(run(*command)[1])
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "dmq_fast", *map(str, command), "--out", tmp_path], stdout=subprocess.DEVNULL
    )
    with process:
        deadline = time.monotonic() + 60
        while not (tmp_path / "journal").exists() or (tmp_path / "journal").stat().st_size < 10_000:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        process.kill()
        assert process.wait(timeout=20) == -signal.SIGKILL
    code, out, _ = run("resume", tmp_path, "--json")
    assert code == 0
    assert json.loads(out) | {"seconds": None} == expected | {"seconds": None}


def test_a_journal_is_never_a_standard_descriptor(tmp_path):
    """A program without standard output, whose libraries print to it all the same."""
    script = (
        "import os\nimport dmq_fast as dmq\nos.close(1)\nenv = dmq.environments.chain(5, rng=0)\n"
        "def show(progress):\n    try:\n        os.write(1, b'printed')\n    except OSError:\n        pass\n"
        "dmq.DMQ(env, n_samples=20, rng=7).learn(journal='journal', progress=show).save('run.npz')\n"
    )
    subprocess.run([sys.executable, "-P", "-c", script], cwd=tmp_path, check=True)
    assert b"printed" not in (tmp_path / "journal").read_bytes()
    resumed = algorithm(chain(5, rng=0), tmp_path / "journal").learn()
    assert resumed.status == dmq.load(tmp_path / "run.npz").status


# The command `resume`


def test_resume_goes_on_after_a_budget_and_knows_when_a_run_has_finished(run, tmp_path):
    command = ["run", "gym:FrozenLake-v1", "--horizon", 6, "--make", "is_slippery=false", "--env-seed", 2]
    command += ["--n-samples", 20, "--seed", 4, "--oracle", "value", "--json"]
    expected = json.loads(run(*command)[1])
    assert run(*command, "--max-trajectories", 500, "--out", tmp_path / "a")[0] == 3
    (tmp_path / "a").rename(tmp_path / "b")  # a run moves with its directory
    assert run("resume", tmp_path / "b", "--json")[0] == 3
    code, out, err = run("resume", tmp_path / "b", "--json", "--max-trajectories", 10**9)
    assert (code, err) == (0, "")
    saved = json.loads((tmp_path / "b" / "run.json").read_text())
    for key in expected:
        if key != "seconds":
            assert json.loads(out)[key] == expected[key] == saved[key]
    before = (tmp_path / "b" / "result.npz").read_bytes()
    code, out, err = run("resume", tmp_path / "b", "--json")
    assert code == 0
    assert json.loads(out) == saved
    assert "has come to its end" in err
    assert (tmp_path / "b" / "result.npz").read_bytes() == before
    assert f"status                {expected['status']}" in run("resume", tmp_path / "b")[1]
    assert os.listdir(tmp_path) == ["b"]


def test_resume_refuses_by_name_and_warns_of_damage(run, tmp_path):
    def refused(*words):
        code, out, err = run("resume", tmp_path)
        assert (code, out) == (2, "")
        assert all(word in err for word in words), err
        assert "Traceback" not in err

    refused(str(tmp_path), "holds no run")
    run("run", "chain", "--horizon", 4, "--max-trajectories", 500, "--out", tmp_path)
    command = (tmp_path / "command.json").read_text()
    (tmp_path / "command.json").write_text(command.replace('"4"', '"5"'))
    refused(str(tmp_path / "journal"), "environment.horizon is 4 there and 5 here")
    (tmp_path / "command.json").write_text("{}")
    refused("command.json", "not the command of a run")
    (tmp_path / "command.json").write_text(command.replace('"run"', '"rnu"'))
    refused("command.json", "expected learn or run, got 'rnu'")
    (tmp_path / "command.json").write_text(command.replace('"format": 2', '"format": 3'))
    refused("written in format 3")
    (tmp_path / "command.json").write_text(command)
    held = journal.open_locked(tmp_path / "journal")
    refused("another run is writing")
    assert run("run", "chain", "--horizon", 4, "--out", tmp_path, "--overwrite")[0] == 2
    held.close()
    whole = (tmp_path / "journal").read_bytes()
    (tmp_path / "journal").write_bytes(whole[:700] + b"x" + whole[701:])
    refused("damaged")
    position = boundaries(whole)[0] + 50
    (tmp_path / "journal").write_bytes(whole[:position] + b"x" + whole[position + 1 :])
    code, out, err = run("resume", tmp_path, "--max-trajectories", 10**9)
    assert code == 0 and "the rest of the file was damaged" in out + err


def test_out_never_replaces_the_journal_of_a_killed_run_unasked(run, tmp_path):
    run("run", "chain", "--horizon", 4, "--max-trajectories", 500, "--out", tmp_path)
    for name in ("result.npz", "run.json"):
        (tmp_path / name).unlink()
    code, _, err = run("run", "chain", "--horizon", 4, "--out", tmp_path)
    assert code == 2
    assert f"dmq-fast resume {tmp_path}" in err
    assert run("run", "chain", "--horizon", 5, "--out", tmp_path, "--overwrite")[0] == 0
    assert json.loads((tmp_path / "run.json").read_text())["horizon"] == 5
