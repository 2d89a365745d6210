"""The parts of a run around Algorithms 1 to 3: options, draws, oracle and regression, ledger, journal, result.

Imports go one way: `draws` and `oracle` use `ledger`, which uses `journal` and `options`.
"""
