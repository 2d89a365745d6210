"""Difference Maximization Q-learning in plain NumPy, written line by line from the paper.

The source is Du, Luo, Wang and Zhang, "Provably Efficient Q-learning with Function Approximation via
Distribution Shift Error Checking Oracle" (NeurIPS 2019, arXiv 1906.06321): Algorithms 1 to 3, the sample
form of the oracle (Oracle 4.2) and the linear class of Section 6. Lines are counted as the paper prints
them (loops have no "end" lines). Levels are ``0 .. H-1`` here and ``1 .. H`` there.

This is the reference a fast implementation is compared with, call by call. It is slow on purpose: matrices
are formed, inverted and diagonalised as they are written down, and it imports nothing but NumPy. How
trajectories are drawn is not its business; that is the ``collect`` it is given.

Where the paper leaves a choice open, the choice made is:

- a policy pi_h^a is a snapshot of the estimates at the time it is built;
- the smallest of several maximising actions is taken;
- the estimates of a level are exchanged together, after the loop over the actions (none is read before);
- the mixture of Algorithm 2, line 6 is stratified unless the caller supplies the counts.

What is not in the paper is marked as such: two repairs, switched on together by ``recheck``, and three ways to
draw less, ``accumulate``, ``reuse`` and ``memo``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Batch",
    "Collect",
    "Policy",
    "ReferenceDMQ",
    "Rule",
    "deviate",
    "dsec_oracle",
    "greedy",
    "ridge_regression",
]

Array: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.intp]
Rule: TypeAlias = tuple[Literal["uniform"]] | tuple[Literal["fixed"], int] | tuple[Literal["greedy"], Array]
Policy: TypeAlias = tuple[Rule, ...]
Purpose: TypeAlias = Literal["check", "regression", "states", "final"]

FINAL: Final = -1
"""Stands in the history for target level and action where the returned policy itself is checked."""


@dataclass(frozen=True)
class Batch:
    """What is kept of n trajectories.

    Attributes
    ----------
    gram : mapping of int to ndarray, shape (d, d)
        For each level asked for, the sum of phi phi^T over the n states of that level.
    returns : mapping of int to (ndarray of shape (d,), int)
        For each level h whose returns were asked for, the sum of y phi over the pairs (phi(s_h), y) with y
        the reward collected from level h on, and the number of pairs.
    """

    gram: Mapping[int, Array]
    returns: Mapping[int, tuple[Array, int]]


class Collect(Protocol):
    """Draws trajectories: ``collect(policy, n, levels, returns_from)`` gives the `Batch` of n of them."""

    def __call__(self, policy: Policy, n: int, levels: Sequence[int], returns_from: Sequence[int], /) -> Batch: ...


def greedy(theta: Iterable[Array]) -> Policy:
    """Build the policy that is greedy at every level (Algorithm 1, line 3)."""
    return tuple(("greedy", theta_h) for theta_h in theta)


def deviate(policy: Policy, h: int, action: int, theta: Sequence[Array]) -> Policy:
    """Build pi_h^a from pi_h (equation 1; Algorithm 2, line 4 and Algorithm 3, line 2)."""
    return (*policy[:h], ("fixed", action), *greedy(theta[h + 1 :]))


def ridge_regression(gram: Array, moment: Array, n: int, ridge: float) -> Array:
    """Fit one predictor f_h^a (Algorithm 2, line 9, with the estimator of Section 6)."""
    theta = np.linalg.solve(gram / n + ridge * np.eye(len(gram)), moment / n)
    return np.asarray(theta, dtype=np.float64)


def dsec_oracle(m1: Array, m2: Array, eps_1: float, eps_2: float) -> tuple[bool, float]:
    """Answer the sample-based oracle for the linear class (Oracle 4.2, last display of Section 6)."""
    eigenvalues, vectors = np.linalg.eigh(m1)
    if not eigenvalues[0] > 0:
        raise np.linalg.LinAlgError(f"M1 is not positive definite: smallest eigenvalue {eigenvalues[0]}")
    inverse_root = (vectors / np.sqrt(eigenvalues)) @ vectors.T
    v = eps_1 * float(np.linalg.eigvalsh(inverse_root @ m2 @ inverse_root)[-1])
    return v >= eps_2, v


class ReferenceDMQ:
    """Difference Maximization Q-learning for the linear class (Algorithms 1 to 3).

    Parameters
    ----------
    collect : Collect
        Draws trajectories; called with positional arguments, in the order of the algorithm.
    horizon, n_actions, dimension : int
        H, K and d.
    n_samples : int
        N, the number of trajectories a policy.
    eps_s, eps_t, eps_r : float
        Statistical error, test threshold and regulariser of the oracle.
    ridge : float
        lambda_ridge of the regression.
    initial : Policy, or list of Policy
        The one policy every Pi_h starts from, or several. The paper's is uniform at every level.
    recheck : bool
        False: the algorithm as printed. True: Algorithm 3 repeats its pass, with fresh trajectories, until
        one whole pass has no True; Algorithm 2 is repeated on the first level until one run of it has no
        True; and the returned policy is checked at every level (not in the paper).
    accumulate : bool
        Where the oracle says True, the states it was asked about are those of the new policy in D_h', and no
        policy's states are drawn twice (not in the paper, which draws D_h' anew).
    reuse : bool
        Trajectories of pi_h^a that Algorithm 3 has drawn for the same target and action are the regression data,
        if the policy is still the same; all regression data of a level together are D_h (not in the paper).
    memo : bool
        Trajectories of checks, and with `reuse` of the regression, are kept for good, and a policy that is equal
        to one drawn for the same target is not drawn again (not in the paper). Without `accumulate`, those that
        the oracle has said True about are thrown away.
    features : sequence of H ndarrays, shape (S_h, d), optional
        Features of all states, where they are known: policies are equal then that act the same in all of them.
    mixture : callable, optional
        ``mixture(total, k)`` gives k counts that sum to `total`: how often each policy of Pi_h^a is drawn in
        Algorithm 2, line 6. By default every policy is drawn `n_samples` times.

    Attributes
    ----------
    cover : list of H lists of Policy
        Pi_h.
    history : list of (int, int, int, bool, float)
        Every invocation of the oracle: tested level h', target level h, action a, decision and value v.
        Target and action are -1 where the returned policy is checked.
    counts : dict
        Trajectories drawn for the checks of Algorithm 3 ("check"), for D_h^a ("regression"), for D_h
        ("states") and for the check of the returned policy ("final").
    """

    def __init__(
        self,
        collect: Collect,
        horizon: int,
        n_actions: int,
        dimension: int,
        *,
        n_samples: int,
        eps_s: float,
        eps_t: float,
        eps_r: float,
        ridge: float,
        initial: Policy | list[Policy],
        recheck: bool,
        accumulate: bool = False,
        reuse: bool = False,
        memo: bool = False,
        features: Sequence[Array] | None = None,
        mixture: Callable[[int, int], Sequence[int]] | None = None,
    ) -> None:
        first = initial if isinstance(initial, list) else [initial]
        for policy in first:
            if len(policy) != horizon:
                raise ValueError(f"initial must have one rule a level: expected {horizon}, got {len(policy)}")
        if reuse and mixture is not None:
            raise ValueError("mixture: reuse takes every policy of Pi_h^a equally often")
        self.horizon = horizon
        self.n_actions = n_actions
        self.dimension = dimension
        self.n_samples = n_samples
        self.eps_s = eps_s
        self.eps_t = eps_t
        self.eps_r = eps_r
        self.ridge = ridge
        self.recheck = recheck
        self.accumulate = accumulate
        self.reuse = reuse
        self.memo = memo
        self.features = features
        self.mixture = mixture
        self._collect = collect

        # The global variables of Section 5: f_h^a, Pi_h and D_h (a sum of phi phi^T for each policy).
        self._theta: list[Array] = [_frozen(np.zeros((n_actions, dimension))) for _ in range(horizon)]
        self.cover: list[list[Policy]] = [list(first) for _ in range(horizon)]
        self._states: list[list[Array]] = [[] for _ in range(horizon)]
        # Not in the paper: the trajectories kept, with their policy, by target level.
        self._kept: dict[int, list[tuple[Policy, Batch]]] = {h: [] for h in range(FINAL, horizon)}

        self.history: list[tuple[int, int, int, bool, float]] = []
        self.counts: dict[Purpose, int] = {"check": 0, "regression": 0, "states": 0, "final": 0}

    @property
    def theta(self) -> Array:
        """The estimates of all levels (the f_h^a of Section 5), shape (H, K, d); a copy."""
        return np.stack(self._theta)

    @property
    def policy(self) -> Policy:
        """The greedy policy on the current estimates (Algorithm 1, line 3)."""
        return greedy(self._theta)

    def learn(self) -> Self:
        """Run the algorithm (Algorithm 1), once an object."""
        clean = True
        for h in reversed(range(self.horizon)):  # lines 1 and 2
            clean = self._algorithm_2_is_clean(h)
        if self.recheck:
            self._recheck_first_level(clean)
        return self

    def algorithm_2(self, h: int) -> None:
        """Learn the predictors of a level (Algorithm 2)."""
        n_policies = len(self.cover[h])
        theta_h = np.zeros((self.n_actions, self.dimension))
        data: list[list[Array]] = []
        for a in range(self.n_actions):  # line 1
            if not self.memo:
                self._kept[h] = []
            self.algorithm_3(h, a)  # line 2
            theta_h[a], grams = self._fit(h, a)  # lines 3 to 9
            data.append(grams)
        self._theta[h] = _frozen(theta_h)
        if not self.accumulate or not self._states[h]:
            self._states[h] = self._collect_states(h, data)  # lines 10 to 13
        assert len(self.cover[h]) == n_policies, "only the covers of later levels may grow meanwhile"

    def algorithm_3(self, h: int, a: int) -> None:
        """Check the predictors of all later levels under every pi_h^a (Algorithm 3)."""
        later = range(h + 1, self.horizon)
        if not later:
            return
        passed = False
        while not passed:
            passed = True
            for policy in self.cover[h]:  # line 1
                candidate = deviate(policy, h, a, self._theta)
                batch = self._check_data(candidate, h)  # line 2
                for level in reversed(later):  # line 3
                    if self._oracle(level, batch, h, a):  # lines 4 to 6
                        passed = False
                        self._add(candidate, level, batch, h)  # line 7
                        self.algorithm_2(level)  # line 8
            if not self.recheck:  # the paper makes one pass
                return

    def _fit(self, h: int, a: int) -> tuple[Array, list[Array]]:
        """Draw D_h^a and fit f_h^a to it (Algorithm 2, lines 3 to 9)."""
        policies = [deviate(policy, h, a, self._theta) for policy in self.cover[h]]  # line 4
        gram, moment, n = np.zeros((self.dimension, self.dimension)), np.zeros(self.dimension), 0  # line 3
        grams = []
        for policy, count in zip(policies, self._mixture_counts(len(policies)), strict=True):  # lines 5 and 6
            if count > 0:
                batch = self._regression_data(policy, count, h)  # line 7
                grams.append(batch.gram[h])
                moment_of_policy, pairs = batch.returns[h]
                gram, moment, n = gram + batch.gram[h], moment + moment_of_policy, n + pairs  # line 8
        return ridge_regression(gram, moment, n, self.ridge), grams  # line 9

    def _regression_data(self, policy: Policy, n: int, h: int) -> Batch:
        """Draw trajectories with a policy (Algorithm 2, line 7), or find those of a check."""
        if not self.reuse:
            return self._draw("regression", policy, n, [h], [h])
        batch = self._find(policy, h)
        if batch is None:
            batch = self._draw("regression", policy, n, list(range(h, self.horizon)), [h])
            self._keep(policy, batch, h)
        return batch

    def _mixture_counts(self, k: int) -> Sequence[int]:
        """Tell how often each of the k policies of Pi_h^a is drawn (Algorithm 2, lines 5 and 6)."""
        total = self.n_samples * k
        counts = [self.n_samples] * k if self.mixture is None else [int(c) for c in self.mixture(total, k)]
        if sum(counts) != total or min(counts) < 0:
            raise ValueError(f"mixture must return {k} counts >= 0 that sum to {total}, got {counts}")
        return counts

    def _collect_states(self, h: int, data: list[list[Array]]) -> list[Array]:
        """Draw D_h anew (Algorithm 2, lines 10 to 13); returns the sum of phi phi^T of each policy.

        With `reuse` nothing is drawn: every action has `data` of N states of each policy, and their average is
        taken.
        """
        if self.reuse:
            by_policy = zip(*data, strict=True)
            return [np.sum(grams, axis=0) / self.n_actions for grams in by_policy]
        return [self._draw("states", policy, self.n_samples, [h]).gram[h] for policy in self.cover[h]]

    def _oracle(self, level: int, batch: Batch, target: int, action: int) -> bool:
        """Invoke the oracle on D_h' and a batch (Algorithm 3, lines 4 and 5, with M_1 and M_2 of Section 6)."""
        n_policies = len(self.cover[level])
        if self._states[level]:
            assert len(self._states[level]) == n_policies, "D_h' holds N states of every policy of Pi_h'"
            size_1 = self.n_samples * n_policies
            m1 = sum(self._states[level]) / size_1 + self.eps_r / n_policies * np.eye(self.dimension)
            m2 = batch.gram[level] / self.n_samples
            decision, v = dsec_oracle(m1, m2, self.eps_s / n_policies, self.eps_t)
        else:
            decision, v = True, np.inf
        self.history.append((level, target, action, decision, v))
        return decision

    def _algorithm_2_is_clean(self, h: int) -> bool:
        """Run Algorithm 2 on h (Algorithm 1, line 2); tell whether no oracle call within it said True."""
        before = len(self.history)
        self.algorithm_2(h)
        return not any(decision for _, _, _, decision, _ in self.history[before:])

    def _recheck_first_level(self, clean: bool) -> None:
        """Repeat Algorithm 2 on the first level until it and the final check are clean (not in the paper)."""
        while True:
            while not clean:
                clean = self._algorithm_2_is_clean(0)
            if self._final_check():
                return
            clean = False

    def _final_check(self) -> bool:
        """Check all levels under the policy of Algorithm 1, line 3, as in Algorithm 3 (not in the paper)."""
        candidate = self.policy
        batch = self._check_data(candidate, FINAL)
        passed = True
        for level in reversed(range(self.horizon)):
            if self._oracle(level, batch, FINAL, FINAL):
                passed = False
                self._add(candidate, level, batch, FINAL)
                self.algorithm_2(level)
        return passed

    def _add(self, candidate: Policy, level: int, batch: Batch, target: int) -> None:
        """Add a policy to Pi_h' (Algorithm 3, line 7), whose trajectories the oracle said True about."""
        self.cover[level].append(candidate)
        if self.accumulate:
            self._states[level].append(batch.gram[level])
        else:
            self._kept[target] = [entry for entry in self._kept[target] if entry[1] is not batch]

    def _keep(self, policy: Policy, batch: Batch, target: int) -> None:
        """Keep trajectories, in place of those of an equal policy."""
        others = [entry for entry in self._kept[target] if not self._equal(entry[0], policy)]
        self._kept[target] = [*others, (policy, batch)]

    def _check_data(self, candidate: Policy, target: int) -> Batch:
        """Draw the trajectories of a check (Algorithm 3, line 2), or find them.

        With `reuse` they will be regression data too, and need the states and returns of the target level.
        """
        first, purpose = (0, "final") if target == FINAL else (target + (not self.reuse), "check")
        returns_from = [target] if self.reuse and target != FINAL else []
        # No rule from here on matters for what is asked of the trajectories.
        relevant = self.horizon if returns_from else self.horizon - 1
        batch = self._find(candidate[:relevant], target) if self.memo else None
        if batch is None:
            batch = self._draw(purpose, candidate, self.n_samples, list(range(first, self.horizon)), returns_from)
            self._keep(candidate[:relevant], batch, target)
        return batch

    def _find(self, policy: Policy, target: int) -> Batch | None:
        """Return the trajectories kept of a policy with the same rules, if there are any."""
        return next((batch for kept, batch in self._kept[target] if self._equal(kept, policy)), None)

    def _equal(self, policy: Policy, other: Policy) -> bool:
        """Tell whether two policies have the same rules, or rules that do the same."""
        return all(
            (a[0] == b[0] and np.array_equal(a[1:], b[1:]))
            or (
                self.features is not None
                and "uniform" not in (a[0], b[0])
                and np.array_equal(_actions_of(a, self.features[h]), _actions_of(b, self.features[h]))
            )
            for h, (a, b) in enumerate(zip(policy, other, strict=True))
        )

    def _draw(
        self,
        purpose: Purpose,
        policy: Policy,
        n: int,
        levels: Sequence[int],
        returns_from: Sequence[int] = (),
    ) -> Batch:
        """Draw and count trajectories (Algorithm 2, lines 7 and 12; Algorithm 3, line 2)."""
        self.counts[purpose] += n
        return self._collect(policy, n, list(levels), list(returns_from))


def _actions_of(rule: Rule, phi: Array) -> Integers:
    """Return what a rule that is not uniform does in the states whose features are the rows of phi."""
    if rule[0] == "fixed":
        return np.full(len(phi), rule[1])
    return np.asarray((phi @ rule[1].T).argmax(axis=1))


def _frozen(array: Array) -> Array:
    """Make an array read-only and return it: policies that refer to it are snapshots (equation 1)."""
    array.flags.writeable = False
    return array
