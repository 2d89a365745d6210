"""BLAS threads: set to one before NumPy loads, and logged where there are several."""

import os
import re
from pathlib import Path

import pytest

import dmq_fast as dmq
from dmq_fast._support import threads
from dmq_fast.environments import cart_pole
from dmq_fast.features import RandomFourier


@pytest.fixture(autouse=True)
def first_run(monkeypatch):
    """Make each test the first run of its process, without any variable that sets the number of threads."""
    monkeypatch.setattr(threads, "_logged", False)
    for variable in threads.BLAS_THREADS:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)


def learn(dimension):
    env = cart_pole(horizon=3, features=RandomFourier(4, dimension, rng=0))
    return dmq.DMQ(env, n_samples=5, rng=0).learn(max_trajectories=20)


def test_the_first_large_run_logs_once_that_blas_may_have_several_threads(caplog):
    learn(threads.LARGEST_WITHOUT_BLAS)
    assert caplog.records == []
    results = [learn(threads.LARGEST_WITHOUT_BLAS + 2) for _ in range(2)]
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("dmq_fast", "WARNING")
    said = record.getMessage()
    assert said.startswith("BLAS may run on several threads") and "OPENBLAS_NUM_THREADS=1" in said
    assert not any("threads" in warning for result in results for warning in result.warnings)


def test_nothing_is_logged_about_one_thread(monkeypatch, caplog):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    learn(64)
    assert caplog.records == []


@pytest.mark.parametrize(
    ("variables", "cpus", "several"),
    [
        ({}, 4, True),
        ({}, 1, False),
        ({"OPENBLAS_NUM_THREADS": "1"}, 4, False),
        ({"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "2"}, 4, True),
    ],
)
def test_the_environment_decides(monkeypatch, variables, cpus, several):
    monkeypatch.setattr(os, "cpu_count", lambda: cpus)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert threads.several_threads() == several


def test_the_largest_dimension_without_blas_is_that_of_the_kernel():
    (source,) = (Path(__file__).parent.parent / "src_pyx").rglob("_moments.pyx")
    (small,) = re.findall(r"^cdef enum:\n    SMALL = (\d+)$", source.read_text(), re.MULTILINE)
    assert threads.LARGEST_WITHOUT_BLAS == int(small)


def test_threads_are_limited_unless_the_environment_sets_them(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    threads.one_thread()
    assert {name: os.environ[name] for name in threads.BLAS_THREADS} == {
        **dict.fromkeys(threads.BLAS_THREADS, "1"),
        "OMP_NUM_THREADS": "3",
    }
