"""Settings of every test process, and fixtures that several test files use."""

import os
import signal

# Before NumPy loads: a test process, such as a worker of pytest-xdist, computes on one thread.
for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

# A process that a shell script starts in the background ignores Ctrl-C, and so do its children. Tests send Ctrl-C.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

from dmq_fast import cli  # noqa: E402

# A deadline would measure what else the machine does.
settings.register_profile("without deadlines", deadline=None)
settings.load_profile("without deadlines")

# CPU seconds of a quick case and the processes that it waited for. It takes less than 2 on an idle machine; a machine
# that others use too takes several times as long. CI takes builds with checks out of this.
CPU = float(os.environ.get("DMQ_FAST_CPU", "10"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Fail a quick case that takes too long; slow ones are marked."""
    before = sum(os.times()[:4])
    outcome = yield
    spent = sum(os.times()[:4]) - before
    if spent > CPU and item.get_closest_marker("slow") is None:
        pytest.fail(f"took {spent:.1f} s of CPU time, expected at most {CPU:g}: mark it as slow, beside a quick one")
    return outcome


@pytest.fixture
def run(capsys):
    """Return a function that runs the command line and returns exit code, standard output and standard error."""

    def call(*arguments):
        try:
            code = cli.main([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = stop.code
        out, err = capsys.readouterr()
        return code, out, err

    return call
