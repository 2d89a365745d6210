"""What every run has around its algorithm: a ledger of answers, a journal on disk, budgets.

Imports go one way: `ledger` uses `journal` and `budget`.
"""
