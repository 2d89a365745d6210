"""Runs that do not heed their budget of seconds."""

import functools
import os
import signal
import time

import obstinate
import pytest
from obstinate import deaf, forever, limited
from sweeping import noted_batches, one, start, wait_until, write

from dmq_fast import experiments
from dmq_fast._support import workers
from dmq_fast._support.workers import WorkerDied, Workers


def blocking(kind, seeds, n=6, **more):
    data = one("obstinate:endless", kind=kind, seeds=n)
    data["algorithms"][0] |= {"seeds": [seeds]}
    return data | {"max_seconds": 0.75, "grace": 0.25} | more


def assert_timed_out(rows, seeds):
    assert [row["seed"] for row in rows if row["status"] == "timeout"] == seeds
    assert {row["status"] for row in rows if row["seed"] not in seeds} <= {"finished"}
    for row in rows:
        if row["seed"] in seeds:
            assert row["error"] == (
                "TimeoutError: the run went on 1 s after its beginning: max_seconds = 0.75 and grace = 0.25"
            )
            assert "in block" in row["details"]["traceback"] and "obstinate.py" in row["details"]["traceback"]
            assert (row["seconds"], row["value"], row["n_trajectories"]) == (1.0, None, None)


SLOW = pytest.mark.slow


@pytest.mark.parametrize("kind", [pytest.param("sleep", marks=SLOW), pytest.param("python", marks=SLOW), "compiled"])
def test_a_worker_ends_a_run_that_blocks(tmp_path, kind):
    summary = experiments.sweep(blocking(kind, [1, 4]), tmp_path, workers=1)
    assert (summary.statuses, summary.failed) == ({"finished": 4, "timeout": 2}, 2)
    assert_timed_out(experiments.load(tmp_path), [1, 4])


def test_the_other_runs_of_its_task_are_done(tmp_path, monkeypatch):
    batches = noted_batches(monkeypatch)
    summary = experiments.sweep(blocking("sleep", [11], n=40), tmp_path, workers=1)
    assert summary.statuses == {"finished": 39, "timeout": 1} and max(map(len, batches)) >= 5
    assert_timed_out(experiments.load(tmp_path), [11])


def test_runs_that_timed_out_are_repeated_on_demand(tmp_path):
    assert experiments.sweep(blocking("sleep", [0], n=2), tmp_path, workers=1).failed == 1
    assert experiments.sweep(blocking("sleep", [0], n=2), tmp_path, workers=1).ran == 0
    # The grace is no part of what a cell is.
    again = experiments.sweep(blocking("sleep", [0], n=2, grace=0.01), tmp_path, workers=1, retry=True)
    assert (again.ran, again.statuses) == (1, {"finished": 1, "timeout": 1})


def test_a_run_without_a_budget_of_seconds_has_no_limit():
    (cell,) = experiments.read(one()).cells
    assert cell.limit is None
    (cell,) = experiments.read(one() | {"max_seconds": 5}).cells
    assert cell.limit == 605.0
    (cell,) = experiments.read(one() | {"max_seconds": 5, "grace": float("inf")}).cells
    assert cell.limit is None
    assert cell.id == experiments.read(one() | {"max_seconds": 5}).cells[0].id


@pytest.mark.parametrize("grace", ["-1", "nan", "true", '"long"', "[1, 2]"])
def test_wrong_graces_are_refused(tmp_path, grace):
    text = f'grace = {grace}\n[[environments]]\nname = "lock"\nhorizon = 3\n[[algorithms]]\nname = "dmq"\n'
    with pytest.raises(experiments.SpecError, match=r"toml: grace: expected a number of seconds >= 0, got"):
        experiments.read(write(tmp_path, text))


def test_a_death_is_not_taken_for_a_timeout():
    def overdue(*call):
        with pytest.raises(WorkerDied) as caught:
            pool.submit(limited, *call).result()
        return caught.value.overdue

    with Workers(1) as pool:
        assert pool.submit(limited, os.getpid, 60.0, "quick").result() != os.getpid()
        assert overdue(os.abort, 60.0, "abort") is None
        name, trace = overdue(forever, 0.1, "slow")
        assert name == "slow" and "in forever" in trace
        assert overdue(os.abort, 60.0, "abort") is None


def test_time_in_which_a_worker_is_stopped_does_not_count(tmp_path):
    """It takes half a second of the three that it has, and is stopped for four."""
    with Workers(1) as pool:
        running = pool.submit(limited, functools.partial(obstinate.nap, str(tmp_path)), 3.0, "stopped")
        wait_until(lambda: list(tmp_path.iterdir()))
        (file,) = tmp_path.iterdir()
        os.kill(int(file.name), signal.SIGSTOP)
        time.sleep(4.0)
        os.kill(int(file.name), signal.SIGCONT)
        assert running.result() == int(file.name)


@SLOW
def test_a_sweep_that_is_suspended_goes_on(tmp_path):
    """As a batch system suspends a job: all its processes."""
    begun = tmp_path / "begun"
    begun.mkdir()
    text = (
        'seeds = 1\nmax_seconds = 2\ngrace = 2\n[[environments]]\nname = "chain"\nhorizon = 3\n[[algorithms]]\n'
        f'name = "obstinate:sleepy"\ndirectory = "{begun}"\nseconds = 1.0\n'
    )
    path, out = write(tmp_path, text), tmp_path / "out"
    with start(path, "--out", out, "--workers", 1) as process:
        wait_until(lambda: list(begun.iterdir()))
        processes = (process.pid, int(next(begun.iterdir()).name))
        for pid in processes:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(6.0)
        for pid in processes:
            os.kill(pid, signal.SIGCONT)
        assert process.wait(timeout=60) == 0
    assert [row["status"] for row in experiments.load(out)] == ["finished"]


def test_a_worker_that_has_taken_the_signal_for_itself_is_ended_all_the_same(monkeypatch):
    monkeypatch.setattr(workers, "PATIENCE", 0.5)
    with Workers(1) as pool, pytest.raises(WorkerDied, match="signal SIGKILL") as caught:
        pool.submit(limited, deaf, 0.1, "deaf").result()
    assert caught.value.overdue == ("deaf", "")
