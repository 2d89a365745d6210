"""Fixtures of several test files."""

import pytest

from dmq_fast import cli


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
