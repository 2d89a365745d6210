"""The command line, ``dmq-fast``: one module a command.

Neither this package nor any of its modules imports NumPy, or what does, until a command has read its arguments. So help
and mistakes are answered at once, and the number of BLAS threads is set before NumPy loads.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from dmq_fast._support.threads import one_thread

__all__ = ["main"]

FINISHED, FAILED, USAGE, OUT_OF_BUDGET, NOT_SAVED, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 4, 130, 143

EXIT_CODES = """\
exit codes:
  0    the run finished
  1    the environment failed with an exception of its own; what was learned until then is reported and saved
  2    the command line, a parameter, the output directory or a journal is wrong; nothing was run
  3    a budget (--max-...) ended the run; what was learned until then is reported and saved
  4    the run ended and is reported, but could not be saved
  130  interrupted by Ctrl-C; what was learned until then is reported and saved
  143  terminated (SIGTERM); likewise
"""

# Of the commands that run nothing which could stop half-way.
SHORT_EXIT_CODES = """\
exit codes:
  0    done
  2    the command line, or a file or directory that it names, is wrong; nothing was done
"""
SAVING_EXIT_CODES = f"{SHORT_EXIT_CODES}  4    what came out could not be saved\n"

EXAMPLES = """\
examples:
  dmq-fast run lock --horizon 100 --n-samples 20
  dmq-fast run decoy --horizon 12 --variant paper --ratio 8 --n-samples 2000
  dmq-fast run decoy --horizon 60 --variant paper --ratio 8 --sampler exact
  dmq-fast run gym:FrozenLake-v1 --horizon 20 --make is_slippery=false
  dmq-fast run cart-pole --horizon 50 --max-trajectories 100000
  dmq-fast run --env-file my_env.py:make_env --make size=5
  dmq-fast run chain --horizon 20 --out run1; dmq-fast resume run1
  dmq-fast bench oracle --plot oracle.png
  dmq-fast theory --gamma 0.5 --d 2 --H 5 --K 2
  dmq-fast report run1
  dmq-fast sweep locks.toml --out locks --export locks.csv
"""

# Each command is the function of its name in the module that comes first; then what --help says of it.
COMMANDS = {
    "run": ("run", "learn an environment; dmq-fast run ENV --help lists what ENV takes"),
    "resume": ("run", "go on with a run that --out saved"),
    "envs": ("envs", "list the environments and their parameters"),
    "bench": ("bench", "time the kernels on this machine"),
    "theory": (
        "theory",
        "the constants of the paper's theorem for a problem, and whether its proof goes through with them",
    ),
    "report": ("report", "one HTML page about a run that --out saved, or about a sweep"),
    "sweep": ("sweep", "do many runs: environments x algorithms x parameters x seeds"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    one_thread()
    try:
        return dispatch(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader, such as `head`, has seen enough. What Python flushes at exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINISHED


def dispatch(arguments: list[str]) -> int:
    """Run one command: hand its arguments to its function."""
    if not arguments or arguments[0] not in COMMANDS:
        return overview(arguments)
    name, *rest = arguments
    home, _ = COMMANDS[name]
    code: int = getattr(import_module(f"dmq_fast.cli.{home}"), name)(rest)
    return code


def overview(arguments: list[str]) -> int:
    """Answer a command line that begins with no command: --help, --version, or what is wrong with it."""
    from dmq_fast.cli.options import ShowVersion, command_parser

    parser = command_parser(
        description="Difference Maximization Q-learning (Du, Luo, Wang, Zhang 2019).",
        epilog=EXAMPLES + "\n" + EXIT_CODES,
    )
    parser.add_argument("--version", action=ShowVersion, nargs=0, help="show program's version number and exit")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (_, purpose) in COMMANDS.items():
        commands.add_parser(name, help=purpose)
    # Returns after `--` only: everything else that is right begins with a command.
    return dispatch([parser.parse_args(arguments).command])
