"""Journals: a run that is killed at any moment, any number of times, ends with the result of an undisturbed run."""

import errno
import itertools
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import dmq_fast as dmq
from dmq_fast.engine import journal
from dmq_fast.environments import FiniteMDP, chain, combination_lock, deep_sea
from dmq_fast.samplers import ParallelSampler, RolloutSampler, Sampler

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


@pytest.fixture(autouse=True)
def no_records_of_syncs(monkeypatch):
    """However slow the machine is, journals have the same records."""
    monkeypatch.setattr(journal, "SYNC_EVERY", math.inf)


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
    """Sampler that counts its calls."""

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


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
@pytest.mark.parametrize("name", ENVIRONMENTS)
@pytest.mark.parametrize("most", [20, pytest.param(10**9, marks=pytest.mark.slow)], ids=["some", "all"])
def test_a_journal_that_ends_after_any_record_gives_the_undisturbed_run(tmp_path, name, settings, most):
    env, path = ENVIRONMENTS[name](), tmp_path / "journal"

    def learn():
        sampler = Watched(env)
        result = dmq.DMQ(sampler, n_samples=20, rng=7, journal=path, **settings).learn()
        assert content(result) == content(undisturbed)
        return sampler.calls

    undisturbed = dmq.DMQ(env, n_samples=20, rng=7, **settings).learn()
    calls = undisturbed.counts["sampler_calls"]
    assert learn() == list(range(1, calls + 1))
    whole, redrawn = path.read_bytes(), 0
    for end in spread(boundaries(whole), most):
        path.write_bytes(whole[:end])
        *_, last = 0, *(record.calls for record in journal.decisions(path, whole[:end]))
        drawn = learn()
        assert [call for call in drawn if call > last] == list(range(last + 1, calls + 1))
        # Before the kill: batches not all of whose levels had been tested, one for each open call of Algorithm 3,
        # and what else is looked at again where trajectories serve more than once.
        again = [call for call in drawn if call <= last]
        assert len(set(again)) == len(again)
        assert settings["variant"] == "frugal" or {"reuse", "memo"} & set(settings) or len(again) <= env.horizon
        redrawn += len(again)
        contents = path.read_bytes()
        assert (len(contents), contents[:end]) == (len(whole), whole[:end])
    assert redrawn > 0
    assert learn() == []


@pytest.mark.parametrize("record", [0, 1, 2, 7, -2, -1])
@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.slow)])
def test_a_torn_tail_is_dropped_at_every_byte(tmp_path, record, step):
    path = tmp_path / "journal"
    algorithm = dmq.DMQ(chain(3, rng=0), n_samples=20, rng=7, journal=path)
    expected = content(algorithm.learn())
    whole = path.read_bytes()
    ends = [0, *boundaries(whole)]
    record %= len(ends) - 1
    begin, end = ends[record], ends[record + 1]
    for cut in range(begin, end, step if record > 0 else 20 * step):
        for zeros in (0, 5000):  # after a power cut a file may be longer than what was written of it
            path.write_bytes(whole[:cut] + bytes(zeros))
            assert content(algorithm.learn()) == expected
            assert len(path.read_bytes()) == len(whole)
    if record > 0:
        for position in range(begin, end, step):
            flipped = bytearray(whole[:end])
            flipped[position] ^= 0x10
            path.write_bytes(flipped)
            assert content(algorithm.learn()) == expected
        for rubbish in (
            random.Random(0).randbytes(5000),
            whole[begin : end - 1] + bytes([whole[end - 1] ^ 255]),
        ):
            path.write_bytes(whole[:end] + rubbish)
            assert content(algorithm.learn()) == expected


@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.slow)])
def test_a_flipped_bit_in_what_was_synced_is_refused(tmp_path, monkeypatch, step):
    monkeypatch.setattr(journal, "SYNC_EVERY", 0.0)
    path = tmp_path / "journal"
    algorithm = dmq.DMQ(chain(3, rng=0), n_samples=20, rng=7, journal=path)
    algorithm.learn()
    whole = path.read_bytes()
    for position in range(0, boundaries(whole)[-2], step):
        flipped = bytearray(whole)
        flipped[position] ^= 1 << position % 8
        with pytest.raises(dmq.JournalError, match=r"damaged: record|not a journal") as caught:
            journal.read(path, bytes(flipped))
        assert str(path) in str(caught.value)
        if position // step % 50 == 0:
            path.write_bytes(flipped)
            with pytest.raises(dmq.JournalError, match=r"damaged: record|not a journal"):
                algorithm.learn()
            assert path.read_bytes() == bytes(flipped)


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_records_that_were_not_synced_may_be_damaged_in_any_order(tmp_path, step):
    path = tmp_path / "journal"
    algorithm = dmq.DMQ(chain(3, rng=0), n_samples=20, rng=7, journal=path)
    expected = content(algorithm.learn())
    whole = path.read_bytes()
    header, *ends = boundaries(whole)
    for begin, end in itertools.islice(itertools.pairwise([header, *ends]), 0, None, step):
        path.write_bytes(whole[:begin] + bytes(end - begin) + whole[end:])
        assert content(algorithm.learn()) == expected
        assert len(path.read_bytes()) == len(whole)


def test_records_missing_or_twice_are_refused(tmp_path):
    path = tmp_path / "journal"
    algorithm = dmq.DMQ(chain(3, rng=0), n_samples=20, rng=7, journal=path)
    algorithm.learn()
    whole = path.read_bytes()
    a, b, c = boundaries(whole)[:3]
    for wrong in (whole[:a] + whole[b:], whole[:b] + whole[a:], whole[:a] + whole[b:c] + whole[a:b], whole[a:]):
        path.write_bytes(wrong)
        with pytest.raises(dmq.JournalError, match=r"damaged: record \d+ is missing"):
            algorithm.learn()
        assert path.read_bytes() == wrong


def resealed(whole, change):
    """A journal with the payload of some records changed and right checksums; `change` returns None for the others."""
    parts = []
    for kind, number, payload in journal.records(whole):
        new = None if kind == journal.HEADER else change(kind, journal.decision(kind, payload))
        parts.append(journal.seal(kind, number, bytes(payload) if new is None else new))
    return b"".join(parts)


SOUND, ACCUMULATED, STOPPING = {"n_samples": 20}, {"n_samples": 20, "accumulate": True}, {"epsilon": 0.5}


@pytest.mark.parametrize(
    ("settings", "kind", "integers", "floats", "words"),
    [
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
        (
            STOPPING,
            journal.EPISODES,
            lambda i: (i[0], -1, *i[2:]),
            lambda f: f,
            "expected numbers of feature rows >= 0",
        ),
        (STOPPING, journal.EPISODES, lambda i: (i[0], 2**60, *i[2:]), lambda f: f, "expected 3 rewards and"),
        (STOPPING, journal.EPISODES, lambda i: i, lambda f: f[1:], "expected 3 rewards and"),
        (STOPPING, journal.EPISODES, lambda i: i, lambda f: [2.0, *f[1:]], "rewards: expected numbers >= 0"),
    ],
)
def test_records_that_are_no_answers_are_refused(tmp_path, settings, kind, integers, floats, words):
    path, env = tmp_path / "journal", chain(3, rng=0)
    algorithm = dmq.DMQ(env, rng=7, journal=path, **settings)
    algorithm.learn()

    def change(found, record):
        if found != kind:
            return None
        new = integers(record.integers), [floats(record.floats.tolist())]
        return journal.packed(record.elapsed, record.calls, *new)

    wrong = resealed(path.read_bytes(), change)
    path.write_bytes(wrong)
    with pytest.raises(dmq.JournalError, match=f"^{path}: damaged: {journal.NAMES[kind]} after .*: {words}"):
        algorithm.learn()
    assert path.read_bytes() == wrong


def test_records_that_no_run_writes_are_refused(tmp_path):
    path = tmp_path / "journal"
    algorithm = dmq.DMQ(chain(3, rng=0), n_samples=20, rng=7, journal=path)
    algorithm.learn()
    whole = path.read_bytes()
    for elapsed in (math.nan, math.inf, -1.0):
        path.write_bytes(resealed(whole, lambda kind, record, t=elapsed: journal.packed(t, 1, [0])))
        with pytest.raises(dmq.JournalError, match=r"damaged: record 1 \(expected a time >= 0, got"):
            algorithm.learn()
    path.write_bytes(resealed(whole, lambda kind, record: b"short"))
    with pytest.raises(dmq.JournalError, match=r"damaged: record 1 \(expected at least 20 bytes, got 5\)"):
        algorithm.learn()
    n = len(list(journal.records(whole)))
    path.write_bytes(whole + bytes(100) + journal.seal(journal.SYNCED, n, b"short"))
    algorithm.learn()  # it does not say that the zeros before it were synced


def test_a_key_that_is_none_is_refused(tmp_path):
    path = tmp_path / "journal"
    for key in (None, [], ["0x1"], ["x", "y"], [1, 2], ["-0x1", "0x1"], ["0x1ffffffffffffffff", "0x1"]):
        header = json.dumps({"format": journal.FORMAT, "key": key}).encode()
        path.write_bytes(journal.seal(journal.HEADER, 0, header))
        with pytest.raises(dmq.JournalError, match=f"^{path}: damaged: "):
            dmq.DMQ(chain(3, rng=0), journal=path)
    path.write_bytes(journal.seal(journal.HEADER, 0, b"[" * 100_000))
    with pytest.raises(dmq.JournalError, match=r"the header cannot be read .*nest less deep"):
        dmq.DMQ(chain(3, rng=0), journal=path)


@pytest.mark.parametrize("foreign", [b"My thesis\n" * 100, b"\x00" * 10 + b"x", b"\xd1dmp", b"x", b"PK\x03\x04"])
def test_a_foreign_file_is_refused_and_left_alone(tmp_path, foreign):
    path = tmp_path / "thesis"
    path.write_bytes(foreign)
    for rng in (0, None):
        with pytest.raises(dmq.JournalError, match="not a journal of dmq_fast"):
            dmq.DMQ(chain(3, rng=0), rng=rng, journal=path).learn()
    assert path.read_bytes() == foreign


def other_table():
    env = chain(4, rng=0)
    rewards = [array * (1 - 1e-15) for array in env.R]
    return FiniteMDP(
        env.P, rewards, env.features, env.start, name=env.name, parameters=env.parameters, reward_scale=env.reward_scale
    )


@pytest.mark.parametrize(
    ("env", "settings", "words"),
    [
        (None, {"n_samples": 21}, "parameters.n_samples is 20 there and 21 here"),
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
    ],
)
def test_a_journal_of_another_run_is_refused_by_what_differs(tmp_path, env, settings, words):
    path = tmp_path / "journal"
    mine = {"n_samples": 20, "rng": 7, "max_trajectories": 500, "journal": path}
    dmq.DMQ(chain(4, rng=0), **mine).learn()
    before = path.read_bytes()
    with pytest.raises(dmq.JournalError, match=words) as caught:
        dmq.DMQ(env or chain(4, rng=0), **{**mine, **settings}).learn()
    assert str(caught.value).startswith(f"{path}: the journal of another run: ")
    assert path.read_bytes() == before


def test_given_initial_policies_are_told_apart(tmp_path):
    path = tmp_path / "journal"
    mine = {"n_samples": 20, "rng": 7, "max_trajectories": 500, "journal": path}
    policies = [dmq.Policy.fixed([1, 1, 1]), dmq.Policy.uniform(3), dmq.Policy.greedy(np.ones((3, 3, 5)))]
    env = chain(3, rng=0)
    policies = [policy for policy in policies if not hasattr(policy.rules[0], "theta")] + [
        dmq.Policy.greedy(np.full((3, env.n_actions, env.dimension), value)) for value in (0.0, 1.0)
    ]
    for policy in policies:
        path.unlink(missing_ok=True)
        dmq.DMQ(env, initial=policy, **mine).learn()
        for other in policies:
            if other is not policy:
                with pytest.raises(dmq.JournalError, match="initial is"):
                    dmq.DMQ(env, initial=other, **mine).learn()


def test_other_versions_and_formats_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "journal"
    algorithm = dmq.DMQ(chain(3, rng=0), n_samples=20, rng=7, journal=path)
    monkeypatch.setattr(journal, "__version__", "0.0.9")
    algorithm.learn()
    monkeypatch.undo()
    with pytest.raises(dmq.JournalError, match=r"dmq_fast is '0\.0\.9' there"):
        algorithm.learn()
    path.unlink()
    monkeypatch.setattr(journal, "FORMAT", 99)
    algorithm.learn()
    monkeypatch.undo()
    with pytest.raises(dmq.JournalError, match="written in format 99 by dmq_fast"):
        algorithm.learn()


def test_without_rng_the_key_of_the_journal_is_used(tmp_path):
    env, path = chain(4, rng=0), tmp_path / "journal"
    first = dmq.DMQ(env, n_samples=20, max_trajectories=300, journal=path).learn()
    again = dmq.DMQ(env, n_samples=20, journal=path).learn()
    assert again.key == first.key
    assert content(again) == content(dmq.DMQ(env, n_samples=20, rng=dmq.Stream.from_key(first.key)).learn())


@pytest.mark.parametrize("variant", ["sound", "frugal"])
@pytest.mark.parametrize("budget", [{"max_trajectories": 333}, {"max_policies": 2}, {"max_seconds": 0.01}])
def test_a_run_out_of_budget_goes_on_with_a_larger_one(tmp_path, budget, variant):
    env, path = deep_sea(12), tmp_path / "journal"
    settings = {"n_samples": 20, "rng": 3, "variant": variant, "journal": path}
    (status,) = budget
    stopped = dmq.DMQ(env, **settings, **budget).learn()
    assert stopped.status == status
    same = dmq.DMQ(env, **settings, **budget).learn()
    assert same.status == status
    if status != "max_seconds":
        assert content(same) == content(stopped)
    assert same.seconds["total"] >= stopped.seconds["total"]
    resumed = dmq.DMQ(env, **settings).learn()
    assert content(resumed) == content(dmq.DMQ(env, n_samples=20, rng=3, variant=variant).learn())
    # And one that is smaller again ends where it would have ended.
    size = path.stat().st_size
    again = dmq.DMQ(env, **settings, max_trajectories=333).learn()
    assert content(again) == content(dmq.DMQ(env, n_samples=20, rng=3, variant=variant, max_trajectories=333).learn())
    assert path.stat().st_size == size


def test_seconds_go_on_counting(tmp_path):
    env, path = deep_sea(80), tmp_path / "journal"
    settings = {"n_samples": 2000, "rng": 0, "journal": path}
    total = 0.0
    for limit in (0.1, 0.4, 1.2):  # more than a replay of the last takes on a busy machine
        result = dmq.DMQ(env, max_seconds=limit, **settings).learn()
        assert result.status == "max_seconds"
        assert limit <= result.seconds["total"]
        assert result.n_trajectories > total
        total = result.n_trajectories
        assert result.seconds["total"] == pytest.approx(sum(result.seconds.values()) - result.seconds["total"])
    # No time is left: the journal is replayed, and nothing is drawn after it.
    result = dmq.DMQ(env, max_seconds=0.2, **settings).learn()
    assert result.status == "max_seconds"
    assert 0 < result.n_trajectories <= total


@pytest.mark.parametrize("variant", ["sound", "frugal"])
def test_resuming_with_workers_and_without_gives_the_same(tmp_path, variant):
    env, path = chain(4, rng=0), tmp_path / "journal"
    settings = {"n_samples": 40_000, "rng": 0, "variant": variant}
    undisturbed = dmq.DMQ(env, **settings).learn()
    expected, third = content(undisturbed), undisturbed.n_trajectories // 3
    settings["journal"] = path
    dmq.DMQ(env, max_trajectories=third, workers=2, **settings).learn()
    dmq.DMQ(env, max_trajectories=2 * third, max_seconds=1e6, **settings).learn()
    with ThreadPoolExecutor(2) as pool:
        assert content(dmq.DMQ(ParallelSampler(RolloutSampler(env), pool), **settings).learn()) == expected


def questions(result):
    """Return how often the oracle was asked: not where all levels are as they were when the answer was False before."""
    changed, refuted, open_since, n = np.full(result.policy.horizon, -1.0), {}, {}, 0
    for i, (call, target, _, _, top, bottom, decision) in enumerate(result.history._records):
        if target < 0 or call in open_since or changed[bottom : top + 1].max() > refuted.get(call, -2.0):
            n += 1
            began = open_since.pop(call, i - 0.5)
            (open_since if decision and bottom > target + 1 else refuted)[call] = began
        if decision:
            changed[bottom] = i
    return n


def test_the_size_is_that_of_the_decisions(tmp_path):
    for env in (combination_lock(20, 4, rng=0, dimension=9), chain(8, rng=0)):
        for variant, oracle in itertools.product(("sound", "frugal"), ("decision", "value")):
            path = tmp_path / f"{env.name} {variant} {oracle}"
            result = dmq.DMQ(env, n_samples=20, rng=0, variant=variant, oracle=oracle, journal=path).learn()
            header, d = boundaries(path.read_bytes())[0], env.dimension
            values = result.counts["oracle_calls"] if oracle == "value" else 0
            added = result.counts["trues"] if variant == "frugal" else 0
            runs, scans = result.counts["algorithm_2_runs"], len(result.history._records)
            if variant == "frugal" and oracle == "decision":
                scans = questions(result)
                assert scans < len(result.history._records)
            start = journal.HEAD.size + journal.START.size
            assert header < 4000
            assert path.stat().st_size == (
                header
                + scans * (start + 16) + 8 * values + 16 * result.counts["trues"]
                + runs * env.n_actions * (start + 8 + 8 * d)
                + runs * (start + 8 + 8 * 3 + 8 * d * d)
                + added * (start + 8 + 8 * d * d)
            )  # fmt: skip


def test_two_runs_on_one_journal_are_refused(tmp_path):
    path = tmp_path / "journal"
    algorithm = dmq.DMQ(chain(4, rng=0), n_samples=20, rng=7, journal=path)
    seen = []

    def meanwhile(progress):
        with pytest.raises(dmq.JournalError, match="another run is writing") as caught:
            algorithm.learn()
        seen.append(str(caught.value).startswith(str(path)))

    outer = dmq.DMQ(chain(4, rng=0), n_samples=20, rng=7, journal=path, progress=meanwhile)
    expected = outer.learn()
    assert seen and all(seen)
    assert content(algorithm.learn()) == content(expected)


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


def test_an_interrupted_run_goes_on(tmp_path):
    env, path = chain(6, rng=0), tmp_path / "journal"
    expected = dmq.DMQ(env, n_samples=20, rng=0).learn()

    def interrupt(progress):
        if random.Random(progress.n_trajectories).random() < 0.3 and progress.n_trajectories not in seen:
            seen.add(progress.n_trajectories)
            raise KeyboardInterrupt

    seen = set()
    algorithm = dmq.DMQ(env, n_samples=20, rng=0, progress=interrupt, journal=path)
    for _ in range(1000):
        try:
            result = algorithm.learn()
            break
        except KeyboardInterrupt:
            assert algorithm.result().status == "interrupted"
    assert len(seen) > 3
    assert content(result) == content(expected)


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


@pytest.mark.parametrize("writes", [2, 3, 40])
@pytest.mark.parametrize("partial", [False, True])
def test_a_full_disk_costs_the_journal_not_the_run(tmp_path, monkeypatch, writes, partial):
    env, path = chain(4, rng=0), tmp_path / "journal"
    expected = dmq.DMQ(env, n_samples=20, rng=0).learn()
    opened = journal.open_locked
    monkeypatch.setattr(journal, "open_locked", lambda path: Full(opened(path), writes, partial))
    algorithm = dmq.DMQ(env, n_samples=20, rng=0, journal=path)
    result = algorithm.learn()
    assert result.status == "finished"
    assert result.theta.tobytes() == expected.theta.tobytes()
    (warning,) = set(result.warnings) - set(expected.warnings)
    assert str(path) in warning and "No space left" in warning
    # What was written is whole, and can be gone on from.
    assert len(boundaries(path.read_bytes())) == writes - 1
    monkeypatch.undo()
    assert content(algorithm.learn()) == content(expected)


def test_a_disk_full_from_the_start_ends_before_the_work(tmp_path, monkeypatch):
    opened = journal.open_locked
    monkeypatch.setattr(journal, "open_locked", lambda path: Full(opened(path), 0))
    with pytest.raises(dmq.JournalError, match="could not be written"):
        dmq.DMQ(chain(4, rng=0), rng=0, journal=tmp_path / "journal").learn()


def test_a_signal_between_write_and_count_does_no_harm(tmp_path):
    class Interrupted(Full):
        def write(self, data):
            self.writes -= 1
            count = self.file.write(data[: len(data) - 3 if self.partial else len(data)])
            if self.writes == 0:
                raise KeyboardInterrupt
            return count

    env = chain(4, rng=0)
    expected = content(dmq.DMQ(env, n_samples=20, rng=0).learn())
    opened = journal.open_locked
    for writes in (2, 3, 25):
        path = tmp_path / str(writes)
        algorithm = dmq.DMQ(env, n_samples=20, rng=0, journal=path)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(journal, "open_locked", lambda path: Interrupted(opened(path), writes, False))  # noqa: B023
            with pytest.raises(KeyboardInterrupt):
                algorithm.learn()
        # The record is there, and the clock after it.
        assert len(boundaries(path.read_bytes())) == writes + 1
        assert content(algorithm.learn()) == expected


def test_a_file_system_without_locks_is_gone_without(tmp_path, monkeypatch):
    def no_locks(*arguments):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(journal.fcntl, "flock", no_locks)
    journal.open_locked(tmp_path / "journal").close()


@pytest.mark.parametrize("wrong", [3, b"journal", True])
def test_what_is_no_path_is_refused(wrong):
    with pytest.raises(TypeError, match="journal: expected a path"):
        dmq.DMQ(chain(3, rng=0), journal=wrong)


def test_a_path_that_cannot_be_opened_says_so(tmp_path):
    with pytest.raises(FileNotFoundError):
        dmq.DMQ(chain(3, rng=0), rng=0, journal=tmp_path / "no" / "journal").learn()
    with pytest.raises(IsADirectoryError):
        dmq.DMQ(chain(3, rng=0), rng=0, journal=tmp_path).learn()


@pytest.mark.parametrize("rng", [0, None])
def test_pipes_and_devices_are_refused_instead_of_read(tmp_path, rng):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero", "/dev/null"):
        with pytest.raises(dmq.JournalError, match=f"^{path}: expected a regular file$"):
            dmq.DMQ(chain(3, rng=0), rng=rng, journal=path).learn()


class OtherSampler(Sampler):
    """Sampler that is not one of the package."""

    def __init__(self, env, version):
        self.inner, self.version = RolloutSampler(env), version
        self.horizon, self.n_actions, self.dimension = env.horizon, env.n_actions, env.dimension

    def collect_chunk(self, policy, n, **request):
        return self.inner.collect_chunk(policy, n, **request)

    def fingerprint(self):
        return {"version": self.version}


def test_samplers_of_ones_own_can_tell_themselves_apart(tmp_path):
    env, path = chain(4, rng=0), tmp_path / "journal"
    expected = dmq.DMQ(OtherSampler(env, 1), n_samples=20, rng=0, journal=path).learn()
    assert content(dmq.DMQ(OtherSampler(env, 1), n_samples=20, rng=0, journal=path).learn()) == content(expected)
    with pytest.raises(dmq.JournalError, match=r"environment\.fingerprint\.version is 1 there and 2 here"):
        dmq.DMQ(OtherSampler(env, 2), n_samples=20, rng=0, journal=path).learn()


class Steady:
    """BatchEnvironment with a single state and no rewards."""

    horizon, n_actions, dimension, chunk_size = 3, 2, 1, 50

    def reset(self, n, rng):
        return np.full((n, 1), 0.5)

    def features(self, level, states):
        return states

    def step(self, level, states, actions, rng):
        return states, states[:, 0] / 4


class Other(Steady):
    """The same environment with another class name."""


class Told(Steady):
    def __init__(self, size):
        self.size = size

    def fingerprint(self):
        return {"size": self.size}


def in_blocks_of(size):
    env = Steady()
    env.chunk_size = size
    return env


@pytest.mark.parametrize(
    ("mine", "other", "words"),
    [
        (Steady(), Other(), "environment.class is 'Steady' there and 'Other' here"),
        (Told(1), Told(2), "environment.size is 1 there and 2 here"),
        (in_blocks_of(50), in_blocks_of(40), "environment.fingerprint.chunk_size is 50 there and 40 here"),
    ],
)
def test_environments_in_python_are_told_apart(tmp_path, mine, other, words):
    path = tmp_path / "journal"
    expected = dmq.DMQ(mine, n_samples=20, rng=0, journal=path).learn()
    assert content(dmq.DMQ(mine, n_samples=20, rng=0, journal=path).learn()) == content(expected)
    with pytest.raises(dmq.JournalError, match=f"another run: {words}$"):
        dmq.DMQ(other, n_samples=20, rng=0, journal=path).learn()


# What a process does that is killed again and again: a run, and a sign when it starts.
LEARN = """
import sys
import dmq_fast as dmq
from dmq_fast.environments import chain, combination_lock
env = combination_lock(30, 4, rng=0) if sys.argv[1] == "lock" else chain(8, rng=0)
algorithm = dmq.DMQ(env, variant=sys.argv[2], oracle="value", n_samples=int(sys.argv[3]), rng=5,
                    journal=sys.argv[4])
print("ready", flush=True)
algorithm.learn().save(sys.argv[5])
"""


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["paper", "sound", "frugal"])
@pytest.mark.parametrize(("name", "n_samples"), [("lock", 3000), ("chain", 6000)])
def test_kill_9_at_any_moment(tmp_path, variant, name, n_samples):
    def start(directory):
        directory.mkdir(exist_ok=True)
        arguments = [name, variant, n_samples, directory / "journal", directory / "result.npz"]
        return subprocess.Popen(
            [sys.executable, "-P", "-c", LEARN, *map(str, arguments)], stdout=subprocess.PIPE, text=True
        )

    with start(tmp_path / "undisturbed") as process:
        assert process.stdout.readline() == "ready\n"
        began = time.monotonic()
        assert process.wait(timeout=100) == 0
        seconds = time.monotonic() - began
    moments, kills = random.Random(f"{name} {variant}"), 0
    while True:
        with start(tmp_path / "killed") as process:
            assert process.stdout.readline() == "ready\n"
            try:
                # Longer lives after every kill: each start replays the journal, which takes longer on a busy machine.
                process.wait(timeout=moments.uniform(0, seconds * (1 + kills) / 16))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                kills += 1
                assert kills < 200
            else:
                assert process.returncode == 0
                break
    assert kills >= 1
    a, b = (dmq.load(tmp_path / run / "result.npz") for run in ("undisturbed", "killed"))
    assert content(a) == content(b)


def test_resume_goes_on_after_a_budget_and_knows_when_a_run_has_finished(run, tmp_path):
    command = ["run", "gym:FrozenLake-v1", "--horizon", 6, "--make", "is_slippery=false", "--env-seed", 2]
    command += ["--n-samples", 20, "--seed", 4, "--oracle", "value", "--json"]
    expected = json.loads(run(*command)[1])
    assert run(*command, "--max-trajectories", 500, "--out", tmp_path / "a")[0] == 3
    assert run("resume", tmp_path / "a", "--json")[0] == 3
    code, out, err = run("resume", tmp_path / "a", "--json", "--max-trajectories", 10**9)
    assert (code, err) == (0, "")
    summary = json.loads(out)
    saved = json.loads((tmp_path / "a" / "run.json").read_text())
    for key in expected:
        if key != "seconds":
            assert summary[key] == expected[key] == saved[key]
    before = (tmp_path / "a" / "result.npz").read_bytes()
    code, out, err = run("resume", tmp_path / "a", "--json")
    assert code == 0
    assert json.loads(out) == saved
    assert "has finished" in err
    assert (tmp_path / "a" / "result.npz").read_bytes() == before
    code, out, _ = run("resume", tmp_path / "a")
    assert "status                finished" in out


def test_resume_moves_with_its_directory(run, tmp_path):
    expected = json.loads(run("run", "chain", "--horizon", 5, "--json", "--workers", 2)[1])
    run("run", "chain", "--horizon", 5, "--workers", 2, "--max-policies", 3, "--out", tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "b")
    code, out, _ = run("resume", tmp_path / "b", "--max-policies", 10**6, "--json")
    assert code == 0
    assert json.loads(out)["counts"] == expected["counts"]
    assert sorted(os.listdir(tmp_path)) == ["b"]


def test_resume_refuses_by_name(run, tmp_path):
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
    (tmp_path / "command.json").write_text(command.replace('"format": 1', '"format": 2'))
    refused("written in format 2")
    (tmp_path / "command.json").write_text(command)
    held = journal.open_locked(tmp_path / "journal")
    refused("another run is writing")
    assert run("run", "chain", "--horizon", 4, "--out", tmp_path, "--overwrite")[0] == 2
    held.close()
    whole = (tmp_path / "journal").read_bytes()
    (tmp_path / "journal").write_bytes(whole[:700] + b"x" + whole[701:])
    refused("damaged")


def test_out_never_replaces_the_journal_of_a_killed_run_unasked(run, tmp_path):
    run("run", "chain", "--horizon", 4, "--max-trajectories", 500, "--out", tmp_path)
    for name in ("result.npz", "run.json"):
        (tmp_path / name).unlink()
    code, _, err = run("run", "chain", "--horizon", 4, "--out", tmp_path)
    assert code == 2
    assert f"dmq-fast resume {tmp_path}" in err
    assert run("run", "chain", "--horizon", 5, "--out", tmp_path, "--overwrite")[0] == 0
    assert json.loads((tmp_path / "run.json").read_text())["horizon"] == 5


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_a_signal_leaves_a_journal_to_resume_from(run, tmp_path, number):
    command = ["run", "deep-sea", "--size", 20, "--n-samples", 2000, "--json"]
    expected = json.loads(run(*command)[1])
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "dmq_fast", *map(str, command), "--out", tmp_path], stdout=subprocess.DEVNULL
    )
    with process:
        deadline = time.monotonic() + 60
        while not (tmp_path / "journal").exists() or (tmp_path / "journal").stat().st_size < 20_000:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.send_signal(number)
        assert process.wait(timeout=20) in (130, 143, -signal.SIGKILL)
    code, out, _ = run("resume", tmp_path, "--json")
    summary = json.loads(out)
    assert code == 0
    assert {key: summary[key] for key in summary if key != "seconds"} == {
        key: expected[key] for key in expected if key != "seconds"
    }


def test_a_journal_is_never_a_standard_descriptor(tmp_path):
    """A program without standard output, whose libraries print to it all the same."""
    script = (
        "import os\nimport dmq_fast as dmq\nos.close(1)\nenv = dmq.environments.chain(5, rng=0)\n"
        "def show(progress):\n    try:\n        os.write(1, b'printed')\n    except OSError:\n        pass\n"
        "dmq.DMQ(env, n_samples=20, rng=0, journal='journal', progress=show).learn().save('run.npz')\n"
    )
    subprocess.run([sys.executable, "-P", "-c", script], cwd=tmp_path, check=True)
    assert b"printed" not in (tmp_path / "journal").read_bytes()
    assert dmq.DMQ(chain(5, rng=0), n_samples=20, rng=0, journal=tmp_path / "journal").learn().status == "finished"
