"""Fixtures that several files use."""

import pytest

from dmq_fast import cli


@pytest.fixture
def run(capsys):
    """Run the command line: exit code, standard output, standard error."""

    def call(*arguments):
        try:
            code = cli.main([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = stop.code
        out, err = capsys.readouterr()
        return code, out, err

    return call
