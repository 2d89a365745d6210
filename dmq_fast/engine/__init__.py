"""The engine that both algorithms run on: a ledger of answers, a journal on disk, budgets.

Imports go one way: `ledger` uses `journal` and `budget`.
"""
