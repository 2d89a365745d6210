"""The exit codes of ``dmq-fast``, and how ``--help`` explains them."""

from __future__ import annotations

__all__ = [
    "EXIT_CODES",
    "FAILED",
    "FINISHED",
    "INTERRUPTED",
    "NOT_SAVED",
    "OUT_OF_BUDGET",
    "SHORT_EXIT_CODES",
    "TERMINATED",
    "USAGE",
]

FINISHED, FAILED, USAGE, OUT_OF_BUDGET, NOT_SAVED, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 4, 130, 143

EXIT_CODES = """\
exit codes:
  0    the run came to its own end
  1    the environment raised an exception; what was learned until then is reported and saved. Or --check found faults
  2    the command line, a parameter, the output directory or a journal is wrong; nothing was run. Or the environment
       paid rewards that it does not declare; what was learned until then is reported and saved
  3    a budget (--max-...) or a contradiction ended the run; what was learned until then is reported and saved
  4    the run ended, but could not be saved or printed
  130  interrupted by Ctrl-C; what was learned until then is reported and saved
  143  terminated by SIGTERM; what was learned until then is reported and saved
"""
"""Exit codes of a run."""

SHORT_EXIT_CODES = """\
exit codes:
  0    done
  2    the command line, or a file or directory that it names, is wrong; nothing was done
  4    the output could not be saved or printed
  130  interrupted by Ctrl-C; what was complete by then is saved and printed
  143  terminated by SIGTERM; what was complete by then is saved and printed
"""
"""Exit codes of commands that do one thing."""
