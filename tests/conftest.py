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
