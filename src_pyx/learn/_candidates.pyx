"""Candidates of Algorithm 3 drawn and checked one after another, until the oracle has something to say."""

cimport numpy as cnp

from dmq_fast.kernels._philox cimport Stream
from dmq_fast.kernels._plan cimport Draws, Model, Plan
from dmq_fast.kernels._row_oracle cimport RowScan
from dmq_fast.kernels._validate cimport entries

import numpy as np
from time import perf_counter

cnp.import_array()


def draw_until_shift(
    Model model not None, scan not None, cover not None, list before not None, tuple policy not None,
    Py_ssize_t n, Stream stream not None, Py_ssize_t h, levels, returns_from,
):
    """Draw n trajectories with each of some policies in turn, as `rollout` does, and scan them, as `scan.scan` does.

    Ends after the first policy for which an answer is True, or marginal.

    Parameters
    ----------
    model : FiniteModel or CompiledModel
    scan : RowScan or ShiftScan
        Without values. Trajectories are drawn in rows for the one, in matrices for the other.
    cover : list of H RowOracle, or numpy.ndarray, shape (H, d, d)
        By level, that of S_h, or S_h.
    before : list of tuple of H Rule
        What each policy follows before level h. At least one.
    policy : tuple of H Rule
        What they follow from level h on.
    n : int
        Number of trajectories of each policy, > 0.
    stream : Stream
        The call of the first policy; policy i is drawn on this call plus i.
    h : int
        0 <= h < H - 1; the levels after it are scanned.
    levels : range
        Consecutive levels whose second moment is wanted, those after h among them.
    returns_from : sequence of int
        Levels whose return to go is wanted.

    Returns
    -------
    drawn : list of tuple (LevelRows or numpy.ndarray, numpy.ndarray, numpy.ndarray)
        For each policy drawn, what `rollout` returns.
    certain : bool
        Whether all answers were False for certain.
    seconds : float
        Time of the scans.

    Raises
    ------
    TypeError, ValueError, ArithmeticError, RuntimeError, KeyboardInterrupt
        As `rollout` and `scan.scan` do.
    """
    cdef Py_ssize_t level, i, d = model.dimension, base, marginal = scan.n_marginal
    cdef Plan plan
    cdef Draws draws
    cdef tuple rules, last = before[0]
    cdef list drawn = []
    cdef bint certain = True
    cdef double seconds = 0.0, began
    if not 0 <= h < model.horizon - 1:
        raise ValueError(f"h: expected an integer in [0, {model.horizon - 1}), got {h}")
    plan = Plan(last[:h] + policy[h:], model.horizon, model.n_actions, d, levels, returns_from)
    if plan.n_levels == 0 or plan.wanted[plan.n_levels - 1] - plan.wanted[0] != plan.n_levels - 1:
        raise ValueError(f"levels: expected consecutive levels, got {levels!r}")
    base = plan.wanted[0]
    draws = model.draws(plan, n, isinstance(scan, RowScan))
    for i in range(len(before)):
        rules = before[i]
        if len(rules) != model.horizon:
            raise ValueError(f"before: expected {model.horizon} rules, one a level, got {len(rules)}")
        for level in range(h):
            if rules[level] is not last[level]:
                plan.set_rule(level, rules[level], model.n_actions, d)
        last = rules
        moments, squares = np.zeros((plan.n_returns, d)), np.zeros(plan.n_returns)
        sums = draws.draw(stream.at(stream.call + i), entries(moments), entries(squares))
        drawn.append((sums, moments, squares))
        began = perf_counter()
        certain = scan.scan(cover, sums, n, base, model.horizon - 1, h + 1)[0] < 0
        seconds += perf_counter() - began
        if not certain or scan.n_marginal > marginal:
            return drawn, False, seconds
    return drawn, True, seconds
