"""Difference Maximization Q-learning: Algorithms 1 to 3 of Du, Luo, Wang and Zhang (2019).

Levels are 0 .. H-1 here and 1 .. H in the paper; comments give the lines of its boxes. The algorithms learn everything
from trajectories, through three collaborators in `dmq_fast.covers`: `Draws` collects trajectories, `Oracle` checks them
for a distribution shift, `Regression` fits predictors. Streams, memory, journal, budgets and clocks are theirs. Where a
line goes beyond the paper, its comment names the finding (docs/findings.md) behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dmq_fast.arithmetic import Arithmetic
from dmq_fast.covers.cover import CoverMoments
from dmq_fast.covers.draws import Draws
from dmq_fast.covers.memory import Batch
from dmq_fast.covers.options import Options
from dmq_fast.covers.oracle import Oracle, Regression
from dmq_fast.moments import Moment
from dmq_fast.policy import Policy
from dmq_fast.results.history import RETURNED

__all__ = ["DifferenceMaximization"]


class DifferenceMaximization:
    """The global variables of section 5, and the algorithms that change them.

    Attributes
    ----------
    greedy : Policy
        The estimates f_h^a = phi^T theta_h^a, as the policy that is greedy on them. Replaced, never changed in place,
        so that every policy built from it is a snapshot. Zero where `learned` is still False.
    learned : list of bool
        For each level, whether Algorithm 2 has finished on it.
    cover : list of H lists of Policy
        Pi_h.
    moments : CoverMoments
        S_h by level = sum over pi in Pi_h of the second moment of N states drawn with pi: all that is kept of D_h.
    """

    def __init__(
        self,
        initial: Sequence[Policy],
        options: Options,
        arithmetic: Arithmetic,
        draws: Draws,
        oracle: Oracle,
        regression: Regression,
        report: Callable[[int], object],
    ) -> None:
        self.horizon, self.n_actions, self.dimension = draws.sizes
        self.options, self.arithmetic = options, arithmetic
        self.draws, self.oracle, self.regression, self.report = draws, oracle, regression, report
        zero = arithmetic.greedy(arithmetic.zeros((self.n_actions, self.dimension)))
        self.greedy = Policy([zero] * self.horizon)
        self.learned = [False] * self.horizon
        self.cover = [list(initial) for _ in range(self.horizon)]
        self.moments = CoverMoments(self.horizon, self.dimension, oracle.solver, arithmetic)

    def algorithm_1(self) -> None:
        """Algorithm 1: learn every level, from the last to the first. Line 3 returns `greedy`."""
        for h in reversed(range(self.horizon)):  # line 1
            shifted = self.finds_shift(self.algorithm_2, h)  # line 2
        if self.options.recheck:  # finding B: repeat until neither Algorithm 2 nor a test of the policy finds a shift
            while shifted or self.finds_shift(self.check_returned_policy):
                shifted = self.finds_shift(self.algorithm_2, 0)

    def algorithm_2(self, h: int) -> None:
        """Algorithm 2: learn the predictors f_h^a of a level, then draw D_h anew."""
        theta = self.arithmetic.zeros((self.n_actions, self.dimension))
        data: list[Batch] = []
        size = len(self.cover[h])
        for a in range(self.n_actions):  # line 1
            self.draws.begin_action(h)
            self.algorithm_3(h, a)  # line 2
            cover_a = [pi.deviate(h, a, self.greedy) for pi in self.cover[h]]  # line 4, equation 1
            pairs = self.draws.pairs(cover_a, h)  # lines 3 and 5 to 8
            theta[a] = self.regression.fit(pairs, h)  # line 9, equation 2
            data += pairs
        second_moment = self.draws.states(self.cover[h], h, data, self.kept(h))  # lines 10 to 13
        # Publish theta_h and S_h together, only now: no step above reads the estimates of level h.
        self.greedy = self.greedy.replace(h, self.arithmetic.greedy(theta))
        self.moments.replace(h, second_moment)
        self.learned[h] = True
        assert len(self.cover[h]) == size, "only covers of later levels grow while level h is learned"
        self.report(h)

    def algorithm_3(self, h: int, a: int) -> None:
        """Algorithm 3: check that the later levels predict well where action a at level h leads."""
        later = range(h + 1, self.horizon)
        again = bool(later)  # after the last level there is nothing to check
        while again:
            again = False
            for member, pi in enumerate(self.cover[h]):  # line 1
                pi_a = pi.deviate(h, a, self.greedy)
                batch = self.draws.trajectories(pi_a, h)  # line 2
                for level in self.oracle.shifted(self.moments, batch, later, (h, a, member)):  # lines 3 to 6
                    self.add(pi_a, level, batch)  # line 7
                    self.algorithm_2(level)  # line 8
                    again = self.options.recheck  # finding B: earlier checks used the old predictors of `level`

    def check_returned_policy(self) -> None:
        """Test the policy to be returned, which mixes the pi_0^a over start states (finding B, beyond the paper)."""
        policy = self.greedy
        batch = self.draws.returned(policy)
        for level in self.oracle.shifted(self.moments, batch, range(self.horizon), (RETURNED, RETURNED, 0)):
            self.add(policy, level, batch)
            self.algorithm_2(level)

    def add(self, policy: Policy, level: int, batch: Batch) -> None:
        """Add a policy to Pi_level: the oracle returned True on `batch`, trajectories of this policy."""
        self.cover[level].append(policy)
        if self.options.accumulate:  # finding C: S_level grows by the M2 of the True
            self.moments.add(level, self.draws.second_moment(batch, level))
            size, bound = len(self.cover[level]), self.oracle.cover_bound
            assert size <= bound, f"level {level}: |Pi_h| = {size} exceeds its sure bound {bound}"
        else:
            # D_level is redrawn and may miss states of this batch, so the oracle could return True on it without end.
            self.draws.spend(batch)

    def kept(self, h: int) -> Moment | None:
        """Return S_h if `accumulate` keeps it (finding C); None without it, and before level h is first learned."""
        return self.moments[h] if self.options.accumulate and self.learned[h] else None

    def finds_shift(self, step: Callable[..., None], *arguments: int) -> bool:
        """Take a step; return whether the oracle answered True in it."""
        before = self.oracle.n_trues
        step(*arguments)
        return self.oracle.n_trues > before
