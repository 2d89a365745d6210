"""Time in which a process is stopped does not count against a budget of seconds."""

import signal
import subprocess
import sys
import threading
import time

import pytest

import dmq_fast as dmq
from dmq_fast import baselines
from dmq_fast._support import stopwatch
from dmq_fast._support.stopwatch import LONGEST, SLICE, Looks, Stopwatch

LOOKS = {
    "it works": ([(0.25, 0.25), (0.5, 0.5)], 0.0),
    "it waits": ([(0.25, 0.0), (0.5, 0.0)], 0.0),
    "it computes, and keeps the lock of Python": ([(0.25, 0.25), (9.25, 8.0)], 0.0),
    "it was stopped, twice": ([(0.25, 0.25), (9.25, 0.3), (9.5, 0.3), (20.0, 0.4)], 9.0 - SLICE + 10.5 - SLICE),
    "a short stop": ([(LONGEST, 0.0)], 0.0),
}


@pytest.mark.parametrize("name", LOOKS)
def test_a_long_time_without_a_look_and_without_work_was_a_stop(name):
    pairs, stopped = LOOKS[name]
    looks = Looks()
    for now, cpu in pairs:
        looks.look(now, cpu)
    assert looks.stopped == pytest.approx(stopped)


PROGRAM = """
import time
from dmq_fast._support.stopwatch import Stopwatch
watch, began = Stopwatch(1.0), time.perf_counter()
input()
print(time.perf_counter() - began - watch.seconds())
"""


def test_a_stopped_process_has_no_time():
    line = [sys.executable, "-P", "-u", "-c", PROGRAM.replace("input()", "print(); input()")]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        time.sleep(3.0)
        process.send_signal(signal.SIGCONT)
        out, _ = process.communicate("\n")
    assert float(out) >= 3.0 - 2 * SLICE


@pytest.fixture
def suspended(monkeypatch):
    """Let the process seem to have been stopped for a minute, after these many seconds of a run."""
    now, slept = time.perf_counter, []

    def clock():
        return now() + sum(slept)

    monkeypatch.setattr(time, "perf_counter", clock)
    monkeypatch.setattr(stopwatch, "looks", Looks())
    return lambda: slept.append(60.0)


def test_a_run_that_was_suspended_has_its_seconds(suspended, tmp_path):
    """It is suspended once; then it goes on, to its end. So does a baseline, and a run that is resumed."""
    env = dmq.environments.chain(8, rng=0)
    once = iter([suspended])

    def progress(_):
        next(once, lambda: None)()

    learner = dmq.DMQ(env, n_samples=200, rng=0)
    result = learner.learn(max_seconds=20.0, progress=progress, journal=tmp_path / "journal")
    assert result.status == "ended" and result.seconds["total"] > 60.0
    suspended()
    assert learner.learn(max_seconds=20.0, journal=tmp_path / "journal").status == "ended"


def test_a_baseline_that_was_suspended_has_its_seconds(suspended, monkeypatch):
    ucb = baselines.REGISTRY["ucb-q"](dmq.environments.chain(4, rng=0), n_episodes=2000, rng=0)
    evaluate, once = type(ucb._training).evaluate, iter([suspended])

    def evaluated(training):
        next(once, lambda: None)()
        return evaluate(training)

    monkeypatch.setattr(type(ucb._training), "evaluate", evaluated)
    result = ucb.learn(max_seconds=20.0)
    assert (result.status, result.n_trajectories) == ("ended", 2000)


def test_the_thread_ends_and_a_forked_child_begins_afresh(monkeypatch):
    monkeypatch.setattr(stopwatch, "looks", Looks())
    before = threading.active_count()
    watches = [Stopwatch(1.0), Stopwatch(1.0)]
    thread = stopwatch.looks.thread
    assert thread.is_alive() and thread.daemon
    watches[0].close(), watches[0].close()
    assert thread.is_alive() and stopwatch.looks.thread is thread
    watches[1].close()
    assert threading.active_count() == before and stopwatch.looks.thread is None
    stopwatch.begin_afresh()
    assert stopwatch.looks.users == 0


def test_without_a_thread_all_time_counts(monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(stopwatch, "looks", Looks())
    monkeypatch.setattr(threading.Thread, "start", refuse)
    watch = Stopwatch(1.0, before=5.0)
    assert watch.seconds() >= 5.0 and watch.left() < -4.0
    watch.close()
