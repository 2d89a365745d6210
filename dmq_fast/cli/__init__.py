"""The command line, ``dmq-fast``, with one module for each command.

No module here imports NumPy, directly or through others, before a command has read its arguments. So ``--help`` and
error messages come at once, and the number of BLAS threads is set before NumPy loads.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from dmq_fast._support.files import fill_standard
from dmq_fast._support.threads import one_thread
from dmq_fast.cli.exit_codes import EXIT_CODES, FAILED, FINISHED, INTERRUPTED
from dmq_fast.cli.terminal import forget_output, own_output, say, signals, spoken_log

__all__ = ["main"]

COMMANDS = {
    "learn": (
        "run",
        "learn a policy within epsilon of the best; dmq-fast learn ENV --help lists what ENV takes",
    ),
    "run": ("run", "run Algorithms 1 to 3 of the paper, with N and R set by hand"),
    "resume": ("run", "continue a run that was saved with --out"),
    "envs": ("listing", "list the environments and their parameters"),
    "algorithms": ("listing", "list the algorithms of sweeps and their parameters"),
    "bench": ("bench", "time the kernels on this machine"),
    "theory": ("theory", "compute the constants of the paper's theorem, and check whether its proof holds with them"),
    "report": ("report", "write a page, figures or tables about a saved run or a sweep"),
    "new-env": ("new_env", "write a project with a compiled environment, to start your own from"),
    "sweep": ("sweep", "do many runs: environments x algorithms x parameters x seeds"),
    "status": ("status", "tell what has become of the runs of a sweep"),
    "exam": ("exam", "let algorithms that stop by themselves take an exam on public environments"),
    "merge": ("merge", "make one store of several, such as those of the shards of a sweep"),
}
"""By name of the command: the module whose function of that name, with underscores, runs it, and what it is for."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; without `argv` this is the program, which owns the process."""
    fill_standard()
    one_thread()
    with signals.listening(), spoken_log():
        try:
            if argv is not None:
                return dispatch(list(argv))
            with own_output():
                return dispatch(sys.argv[1:])
        except KeyboardInterrupt:
            return signals.code(INTERRUPTED)
        except MemoryError as error:  # such as of an environment with far too many levels
            say(f"dmq-fast: no memory left{f': {error}' if str(error) else ''}")
            return FAILED
        except BrokenPipeError:  # the reader of the output, such as `head`, has closed the pipe
            forget_output()
            return FINISHED


def dispatch(arguments: list[str]) -> int:
    """Run the command that comes first among the arguments."""
    if not arguments or arguments[0] not in COMMANDS:
        return overview(arguments)
    name, *rest = arguments
    home, _ = COMMANDS[name]
    code: int = getattr(import_module(f"dmq_fast.cli.{home}"), name.replace("-", "_"))(rest)
    return code


def overview(arguments: list[str]) -> int:
    """Answer a command line without a command: print help or the version, or refuse it."""
    from dmq_fast.cli.options import EXAMPLES, ShowVersion, command_parser

    parser = command_parser(
        description="Difference Maximization Q-learning (Du, Luo, Wang, Zhang 2019).",
        epilog=EXAMPLES + "\n" + EXIT_CODES,
    )
    parser.add_argument("--version", action=ShowVersion, nargs=0, help="show program's version number and exit")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (_, purpose) in COMMANDS.items():
        commands.add_parser(name, help=purpose)
    # The parser returns only for a command after `--`; all other command lines end in it.
    return dispatch([parser.parse_args(arguments).command])
