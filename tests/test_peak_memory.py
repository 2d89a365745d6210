"""Peak memory does not depend on the number of trajectories."""

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "bench" / "memory.py"

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="VmHWM is Linux's"),
    pytest.mark.skipif(not SCRIPT.exists(), reason="a checkout has it"),
]


@pytest.fixture(scope="module")
def memory():
    spec = importlib.util.spec_from_file_location("memory", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("case", ["finite", "compiled, 2 threads"])
def test_a_hundred_times_as_many_trajectories_need_no_more(memory, case):
    few, many = (memory.measured(case, n) for n in (10**4, 10**6))
    assert many <= (1 + memory.FLAT) * few


def test_what_grows_is_seen(memory, monkeypatch):
    """The measurement detects growth: the returns of 10^6 trajectories, kept at once, take 8 MiB."""
    script = "; ".join(
        [
            "import sys, numpy as np, memory",
            "keep = np.ones(int(sys.argv[1]))",
            "memory.draw('compiled', 10)",
        ]
    )
    monkeypatch.setenv("PYTHONPATH", f"{SCRIPT.parent}:{':'.join(sys.path)}")
    few, many = (
        int(memory.subprocess.run([sys.executable, "-P", "-c", script, str(n)], check=True, capture_output=True).stdout)
        for n in (10**4, 10**6)
    )
    assert many > (1 + memory.FLAT) * few
