"""BLAS threads: set to one before NumPy loads, and logged where there are several."""

import os
import re
from pathlib import Path

import pytest

import dmq_fast as dmq
from dmq_fast._support import threads
from dmq_fast.environments import cart_pole
from dmq_fast.experiments.sweeps.scheduler import own_executor
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


def group_files(folder, mounts, cgroup, files):
    """The files of a process in control groups: `mounts` are (root, folder to mount on, kind)."""
    process = folder / "self"
    process.mkdir()
    (process / "cgroup").write_text(cgroup)
    lines = [
        f"{i} 1 0:{i} {root} {str(folder / place).replace(' ', chr(92) + '040')} rw,relatime shared:9 - {kind}"
        for i, (root, place, kind) in enumerate(mounts)
    ]
    (process / "mountinfo").write_text("\n".join(["20 1 8:1 / / rw - ext4 /dev/sda rw", *lines]) + "\n")
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return process


V1 = "cgroup cgroup rw,cpu,cpuacct"
PERIOD = {"c/cpu.cfs_period_us": "100000\n", "c/a/cpu.cfs_period_us": "100000\n"}
GROUPS = {
    "v2, at the root of a container": ([("/", "c", "cgroup2 cgroup2 rw")], "0::/\n", {"c/cpu.max": "150000 100000\n"}),
    "v2, a job and a job step": (
        [("/", "c d", "cgroup2 cgroup2 rw")],
        "0::/job/step\n",
        {"c d/job/cpu.max": "150000 100000\n", "c d/job/step/cpu.max": "max 100000\n"},
    ),
    "v1, mounted with the container's group as its root": (
        [("/docker/x", "c", V1)],
        "5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n",
        PERIOD | {"c/cpu.cfs_quota_us": "150000\n"},
    ),
    "v1 beside v2 without a controller": (
        [("/", "c", V1), ("/", "u", "cgroup2 cgroup2 rw")],
        "4:cpu,cpuacct:/a\n0::/\n",
        PERIOD | {"c/cpu.cfs_quota_us": "-1\n", "c/a/cpu.cfs_quota_us": "150000\n"},
    ),
}


@pytest.mark.parametrize("name", GROUPS)
def test_quotas_of_control_groups_are_found(tmp_path, name):
    assert list(threads.quotas(group_files(tmp_path, *GROUPS[name]))) == [1.5]


def test_what_tells_of_no_quota_limits_nothing(tmp_path):
    assert list(threads.quotas(tmp_path / "none")) == []
    mounts = [("/", "c", "cgroup2 cgroup2 rw"), ("/../..", "d", "cgroup2 cgroup2 rw")]
    files = {"c/a/cpu.max": "what\n", "c/cpu.max": "1 0\n", "d/cpu.max": "max 100000\n"}
    assert list(threads.quotas(group_files(tmp_path, mounts, "7:cpu:/a\n0::/a\n", files))) == []


@pytest.mark.parametrize(("limits", "number"), [([], 4), ([2.5, 3.0], 3), ([0.5], 1), ([16.0], 4)])
def test_a_sweep_has_as_many_workers_as_its_quota_grants(monkeypatch, limits, number):
    monkeypatch.setattr(os, "process_cpu_count", lambda: 4, raising=False)
    monkeypatch.setattr(threads, "quotas", lambda: iter(limits))
    with own_executor(None, 100) as pool:
        assert pool._max_workers == number
    with own_executor(2, 100) as pool:
        assert pool._max_workers == 2  # as asked for


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
