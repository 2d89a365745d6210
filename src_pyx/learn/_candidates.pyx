"""Policies drawn one after another in one call: all of them, or until the oracle has something to say."""

cimport numpy as cnp

from dmq_fast.kernels._philox cimport Stream
from dmq_fast.kernels._plan cimport Draws, Model, Plan
from dmq_fast.kernels._row_oracle cimport RowScan
from dmq_fast.kernels._validate cimport entries

import numpy as np
from time import perf_counter

from dmq_fast.kernels._dsec import ShiftScan

cnp.import_array()


cdef class _Turns:
    # Draws of n trajectories with policies that follow the same rules from level h on.
    cdef Plan plan
    cdef Draws draws
    cdef Py_ssize_t h, n_actions, dimension
    # What the plan follows before level h.
    cdef tuple last

    def __cinit__(
        self, Model model, list before, tuple policy, Py_ssize_t n, Py_ssize_t h, levels, returns_from, bint in_rows
    ):
        if not before:
            raise ValueError("before: expected at least one policy, got none")
        for rules in before:
            if not isinstance(rules, tuple):
                raise TypeError(f"before: expected tuples of rules, got {type(rules).__name__}")
            if len(rules) != model.horizon:
                raise ValueError(f"before: expected {model.horizon} rules, one a level, got {len(rules)}")
        self.h, self.n_actions, self.dimension, self.last = h, model.n_actions, model.dimension, before[0]
        self.plan = Plan(
            self.last[:h] + policy[h:], model.horizon, model.n_actions, model.dimension, levels, returns_from
        )
        self.draws = model.draws(self.plan, n, in_rows)

    cdef tuple draw(self, tuple rules, Stream stream):
        cdef Py_ssize_t level
        for level in range(self.h):
            if rules[level] is not self.last[level]:
                self.plan.set_rule(level, rules[level], self.n_actions, self.dimension)
        self.last = rules
        moments, squares = np.zeros((self.plan.n_returns, self.dimension)), np.zeros(self.plan.n_returns)
        sums = self.draws.draw(stream, entries(moments), entries(squares))
        return sums, moments, squares


def draw_each(
    Model model not None, list before not None, tuple policy not None, Py_ssize_t n, Stream stream not None,
    Py_ssize_t h, levels, returns_from, bint in_rows,
):
    """Draw n trajectories with each of some policies in turn, as `rollout` does.

    Parameters
    ----------
    model : FiniteModel or CompiledModel
    before : list of tuple of H Rule
        What each policy follows before level h. At least one.
    policy : tuple of H Rule
        What they follow from level h on.
    n : int
        Number of trajectories of each policy, >= 0.
    stream : Stream
        The call of the first policy; policy i is drawn on this call plus i.
    h : int
        0 <= h <= H.
    levels, returns_from, in_rows
        As in `rollout`.

    Returns
    -------
    list of tuple (LevelRows or numpy.ndarray, numpy.ndarray, numpy.ndarray)
        For each policy, what `rollout` returns.

    Raises
    ------
    TypeError, ValueError, ArithmeticError, RuntimeError, KeyboardInterrupt
        As `rollout` does.
    """
    cdef Py_ssize_t i
    if not 0 <= h <= model.horizon:
        raise ValueError(f"h: expected an integer in [0, {model.horizon}], got {h}")
    cdef _Turns turns = _Turns(model, before, policy, n, h, levels, returns_from, in_rows)
    return [turns.draw(before[i], stream.at(stream.call + i)) for i in range(len(before))]


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
    cdef Py_ssize_t i, marginal
    cdef list drawn = []
    cdef double seconds = 0.0, began
    if not isinstance(scan, (RowScan, ShiftScan)):
        raise TypeError(f"scan: expected a RowScan or a ShiftScan, got {type(scan).__name__}")
    marginal = scan.n_marginal
    if not 0 <= h < model.horizon - 1:
        raise ValueError(f"h: expected an integer in [0, {model.horizon - 1}), got {h}")
    cdef _Turns turns = _Turns(model, before, policy, n, h, levels, returns_from, isinstance(scan, RowScan))
    cdef Plan plan = turns.plan
    if plan.n_levels == 0 or plan.wanted[plan.n_levels - 1] - plan.wanted[0] != plan.n_levels - 1:
        raise ValueError(f"levels: expected consecutive levels, got {levels!r}")
    for i in range(len(before)):
        drawn.append(turns.draw(before[i], stream.at(stream.call + i)))
        began = perf_counter()
        found, _ = scan.scan(cover, drawn[i][0], n, plan.wanted[0], model.horizon - 1, h + 1)
        seconds += perf_counter() - began
        if found >= 0 or scan.n_marginal > marginal:
            return drawn, False, seconds
    return drawn, True, seconds
