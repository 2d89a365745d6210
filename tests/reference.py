"""Difference Maximization Q-learning in plain NumPy, written line by line from the paper.

The source is Du, Luo, Wang and Zhang, "Provably Efficient Q-learning with Function Approximation via
Distribution Shift Error Checking Oracle" (NeurIPS 2019, arXiv 1906.06321): Algorithms 1 to 3, the sample
form of the oracle (Oracle 4.2) and the linear class of Section 6. Lines are counted as the paper prints
them (loops have no "end" lines). Levels are ``0 .. H-1`` here and ``1 .. H`` there.

This is the reference a fast implementation is compared with, call by call. It is slow on purpose: matrices
are formed, inverted and diagonalised as they are written down, and it imports nothing but NumPy. How
trajectories are drawn is not its business; that is the ``collect`` it is given, and `NumpySampler` is one.

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
    "FiniteEnvironment",
    "NumpySampler",
    "Policy",
    "ReferenceDMQ",
    "Rule",
    "TrajectoryLimitError",
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


class TrajectoryLimitError(RuntimeError):
    """The next call would draw more trajectories than allowed."""


def greedy(theta: Iterable[Array]) -> Policy:
    """Build the policy that is greedy at every level (Algorithm 1, line 3).

    Parameters
    ----------
    theta : iterable of H ndarrays, shape (K, d)
        The estimates, one array a level. They are kept, not copied.

    Returns
    -------
    Policy
        H greedy rules.
    """
    return tuple(("greedy", theta_h) for theta_h in theta)


def deviate(policy: Policy, h: int, action: int, theta: Sequence[Array]) -> Policy:
    """Build pi_h^a from pi_h (equation 1; Algorithm 2, line 4 and Algorithm 3, line 2).

    Parameters
    ----------
    policy : Policy
        The roll-in policy pi_h, followed below level h.
    h : int
        Level of the deviation.
    action : int
        The action a taken at level h.
    theta : sequence of H ndarrays, shape (K, d)
        The current estimates; the levels above h are greedy on them. The arrays are kept, not copied: as an
        estimate is exchanged and never changed in place, the policy is a snapshot.

    Returns
    -------
    Policy
        H rules: those of pi_h below h, the action at h, greedy above.
    """
    return (*policy[:h], ("fixed", action), *greedy(theta[h + 1 :]))


def ridge_regression(gram: Array, moment: Array, n: int, ridge: float) -> Array:
    """Fit one predictor f_h^a (Algorithm 2, line 9, with the estimator of Section 6).

    Parameters
    ----------
    gram : ndarray, shape (d, d)
        Sum of phi phi^T over D_h^a.
    moment : ndarray, shape (d,)
        Sum of y phi over D_h^a.
    n : int
        Size of D_h^a.
    ridge : float
        lambda_ridge; it is added to the *mean* of phi phi^T.

    Returns
    -------
    ndarray, shape (d,)
        ``(gram / n + ridge I)^{-1} (moment / n)``.
    """
    theta = np.linalg.solve(gram / n + ridge * np.eye(len(gram)), moment / n)
    return np.asarray(theta, dtype=np.float64)


def dsec_oracle(m1: Array, m2: Array, eps_1: float, eps_2: float) -> tuple[bool, float]:
    """Answer the sample-based oracle for the linear class (Oracle 4.2, last display of Section 6).

    Parameters
    ----------
    m1 : ndarray, shape (d, d)
        Mean of phi phi^T over D_1 plus the regulariser; positive definite.
    m2 : ndarray, shape (d, d)
        Mean of phi phi^T over D_2.
    eps_1, eps_2 : float
        Error allowed on D_1, and the error on D_2 that is too much.

    Returns
    -------
    decision : bool
        True iff ``v >= eps_2``.
    v : float
        ``eps_1 * lambda_max(M1^{-1/2} M2 M1^{-1/2})``, the largest error on D_2 of a function whose error on
        D_1 is at most eps_1.

    Raises
    ------
    numpy.linalg.LinAlgError
        If `m1` is not numerically positive definite.
    """
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
    mixture : callable, optional
        ``mixture(total, k)`` gives k counts that sum to `total`: how often each policy of Pi_h^a is drawn in
        Algorithm 2, line 6. By default every policy is drawn `n_samples` times.
    max_trajectories : int, optional
        `TrajectoryLimitError` is raised in place of a call that would exceed this number.

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
        mixture: Callable[[int, int], Sequence[int]] | None = None,
        max_trajectories: int | None = None,
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
        self.mixture = mixture
        self.max_trajectories = max_trajectories
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

    @property
    def n_trajectories(self) -> int:
        """The number of trajectories drawn so far, whatever for."""
        return sum(self.counts.values())

    def learn(self) -> Self:
        """Run the algorithm (Algorithm 1), once an object.

        Returns
        -------
        ReferenceDMQ
            The object itself; `policy` is what line 3 returns.
        """
        clean = True
        for h in reversed(range(self.horizon)):  # lines 1 and 2
            clean = self._algorithm_2_is_clean(h)
        if self.recheck:
            self._recheck_first_level(clean)
        return self

    def algorithm_2(self, h: int) -> None:
        """Learn the predictors of a level (Algorithm 2).

        Parameters
        ----------
        h : int
            Target level.
        """
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
        """Check the predictors of all later levels under every pi_h^a (Algorithm 3).

        Parameters
        ----------
        h : int
            Target level. The last one has no later levels, and nothing is drawn for it.
        a : int
            Action taken at the target level.
        """
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
        """Draw D_h^a and fit f_h^a to it (Algorithm 2, lines 3 to 9).

        Returns
        -------
        theta : ndarray, shape (d,)
            theta_h^a.
        grams : list of ndarray, shape (d, d)
            The sum of phi phi^T of each policy's states.
        """
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
        """Invoke the oracle on D_h' and a batch (Algorithm 3, lines 4 and 5, with M_1 and M_2 of Section 6).

        Parameters
        ----------
        level : int
            The tested level h'.
        batch : Batch
            `n_samples` trajectories of pi_h^a.
        target, action : int
            h and a, for the history.

        Returns
        -------
        bool
            Its answer; True where D_h' is empty.
        """
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
        """Repeat Algorithm 2 on the first level until it and the final check are clean (not in the paper).

        Parameters
        ----------
        clean : bool
            Whether the run of Algorithm 1, line 2 on the first level had no True.
        """
        while True:
            while not clean:
                clean = self._algorithm_2_is_clean(0)
            if self._final_check():
                return
            clean = False

    def _final_check(self) -> bool:
        """Check all levels under the policy of Algorithm 1, line 3, as in Algorithm 3 (not in the paper).

        Returns
        -------
        bool
            True if no oracle call of it said True.
        """
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
        others = [entry for entry in self._kept[target] if not _equal(entry[0], policy)]
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
        return next((batch for kept, batch in self._kept[target] if _equal(kept, policy)), None)

    def _draw(
        self,
        purpose: Purpose,
        policy: Policy,
        n: int,
        levels: Sequence[int],
        returns_from: Sequence[int] = (),
    ) -> Batch:
        """Draw and count trajectories (Algorithm 2, lines 7 and 12; Algorithm 3, line 2)."""
        if self.max_trajectories is not None and self.n_trajectories + n > self.max_trajectories:
            raise TrajectoryLimitError(
                f"{self.n_trajectories} trajectories drawn, {n} more would exceed {self.max_trajectories}"
            )
        self.counts[purpose] += n
        return self._collect(policy, n, list(levels), list(returns_from))


def _equal(policy: Policy, other: Policy) -> bool:
    """Tell whether two policies have the same rules."""
    return all(a[0] == b[0] and np.array_equal(a[1:], b[1:]) for a, b in zip(policy, other, strict=True))


def _frozen(array: Array) -> Array:
    """Make an array read-only and return it: policies that refer to it are snapshots (equation 1)."""
    array.flags.writeable = False
    return array


class FiniteEnvironment(Protocol):
    """A layered finite Markov decision process (Section 3), with S_h states at level h."""

    @property
    def horizon(self) -> int:
        """Number of levels, H."""

    @property
    def n_actions(self) -> int:
        """Number of actions, K."""

    @property
    def dimension(self) -> int:
        """Dimension of the features, d."""

    @property
    def start(self) -> Array:
        """Distribution of the first state, shape (S_0,)."""

    @property
    def P(self) -> Sequence[Array]:
        """Transitions: H - 1 or H arrays of shape (S_h, K, S_{h+1})."""

    @property
    def R(self) -> Sequence[Array]:
        """Mean rewards: H arrays of shape (S_h, K) or (S_h, K, S_{h+1})."""

    @property
    def features(self) -> Sequence[Array]:
        """Features: H arrays of shape (S_h, d)."""

    @property
    def caps(self) -> Sequence[float] | Array:
        """H numbers: the reward is the cap with probability R / cap, else 0; a cap of 0: it is R."""


class _Transition:
    """Draws the next states of one level (s_{h+1} ~ T(s_h, a_h), Section 3).

    Only successors of positive probability are kept, b of them a row at most, so that a draw costs O(b) and
    a deterministic level (b = 1) is one table look-up.

    Parameters
    ----------
    probabilities : ndarray, shape (n_rows, n_next)
        One distribution over the next states a row.
    """

    def __init__(self, probabilities: Array) -> None:
        width = int((probabilities > 0).sum(axis=1).max())
        by_probability = np.argsort(-probabilities, axis=1, kind="stable")[:, :width]
        self._successors: Integers = np.ascontiguousarray(by_probability, dtype=np.intp)
        cumulative = np.cumsum(np.take_along_axis(probabilities, by_probability, axis=1), axis=1)
        # Divided by its last entry, a row ends in exactly 1 from its last positive probability on. The last
        # column is not needed: it is what is left when no other is above the uniform number.
        self._bounds: Array = np.ascontiguousarray((cumulative / cumulative[:, -1:])[:, :-1])

    def draw(self, rows: Integers, rng: np.random.Generator) -> Integers:
        """Draw one next state for each row index; shape of `rows`, (n,)."""
        width = self._successors.shape[1]
        column: Integers | int
        if width == 1:
            column = 0
        elif width == 2:
            column = (self._bounds[rows, 0] <= rng.random(len(rows))).astype(np.intp)
        else:
            column = (self._bounds[rows] <= rng.random((len(rows), 1))).sum(axis=1, dtype=np.intp)
        drawn: Integers = self._successors[rows, column]
        return drawn


class NumpySampler:
    """Simulates a layered finite process, all trajectories of a call at once (the ``collect`` of Section 3).

    Vectorised over trajectories, with a Python loop over levels. Moments and greedy actions are computed from
    the state counts and once a state where there are no more states than trajectories, and row by row
    otherwise. Rewards are drawn only where a return needs them, and trajectories are cut after the last level
    asked for unless a return is asked for.

    Parameters
    ----------
    env : FiniteEnvironment
        The process; its arrays are read once.
    rng : numpy.random.Generator
        Source of all randomness.
    """

    def __init__(self, env: FiniteEnvironment, rng: np.random.Generator) -> None:
        self.horizon = int(env.horizon)
        self.n_actions = int(env.n_actions)
        self.dimension = int(env.dimension)
        self._rng = rng
        self._features = [np.ascontiguousarray(phi, dtype=np.float64) for phi in env.features]
        self._caps = [float(cap) for cap in env.caps]
        self._start = _Transition(np.asarray(env.start, dtype=np.float64)[None, :])
        # One row for every (state, action), at index state * K + action.
        self._transitions = [_Transition(_rows(p)) for p in env.P]
        # A reward with a cap is stored as the probability of the cap.
        self._rewards: list[Array] = []
        self._reward_needs_next: list[bool] = []
        for reward, cap in zip(env.R, self._caps, strict=True):
            mean = np.asarray(reward, dtype=np.float64) / (cap if cap > 0 else 1.0)
            self._reward_needs_next.append(mean.ndim == 3)
            self._rewards.append(_rows(mean) if mean.ndim == 3 else mean.ravel())

    def __call__(self, policy: Policy, n: int, levels: Sequence[int], returns_from: Sequence[int]) -> Batch:
        """Draw n trajectories (Algorithm 2, lines 7 and 12; Algorithm 3, line 2).

        Parameters
        ----------
        policy : Policy
            H rules.
        n : int
            Number of trajectories.
        levels : sequence of int
            Levels whose sum of phi phi^T is wanted.
        returns_from : sequence of int
            Levels h whose pairs (phi(s_h), return to go) are wanted.

        Returns
        -------
        Batch
            The sums asked for.
        """
        last = self.horizon - 1 if len(returns_from) else max(levels, default=-1)
        gram: dict[int, Array] = {}
        pairs: dict[int, tuple[Integers, Array]] = {}
        states = self._start.draw(np.zeros(n, dtype=np.intp), self._rng)
        for h in range(last + 1):
            if h in levels:
                gram[h] = self._second_moment(h, states)
            if h in returns_from:
                pairs[h] = states, np.zeros(n)
            if h == last and not pairs:
                break
            rows = states * self.n_actions + self._actions(policy[h], h, states)
            if h < last or self._reward_needs_next[h]:
                states = self._transitions[h].draw(rows, self._rng)
            if pairs:
                reward = self._reward(h, rows, states)
                for _, y in pairs.values():
                    y += reward
        return Batch(gram, {h: (self._first_moment(h, at_h, y), n) for h, (at_h, y) in pairs.items()})

    def _actions(self, rule: Rule, h: int, states: Integers) -> Integers | int:
        """Apply one rule of a policy (equation 1): one action a trajectory, or one for all."""
        if rule[0] == "fixed":
            return int(rule[1])
        if rule[0] == "uniform":
            return self._rng.integers(self.n_actions, size=len(states), dtype=np.intp)
        phi = self._features[h]
        actions: Integers
        if len(phi) <= len(states):
            actions = (phi @ rule[1].T).argmax(axis=1)[states]
        else:
            actions = (phi[states] @ rule[1].T).argmax(axis=1)
        return actions

    def _reward(self, h: int, rows: Integers, next_states: Integers) -> Array:
        """Draw the rewards of one level (R(s_h, a_h), Section 3), shape (n,)."""
        table, cap = self._rewards[h], self._caps[h]
        mean: Array = table[rows, next_states] if self._reward_needs_next[h] else table[rows]
        if cap > 0:
            return np.where(self._rng.random(len(rows)) < mean, cap, 0.0)
        return mean

    def _second_moment(self, h: int, states: Integers) -> Array:
        """Sum phi phi^T over states (M_1 and M_2 of Section 6, before the division), shape (d, d)."""
        phi = self._features[h]
        if len(phi) <= len(states):
            return (phi.T * np.bincount(states, minlength=len(phi))) @ phi
        phi = phi[states]
        return phi.T @ phi

    def _first_moment(self, h: int, states: Integers, y: Array) -> Array:
        """Sum y phi over pairs (the right-hand side of the estimator of Section 6), shape (d,)."""
        phi = self._features[h]
        if len(phi) <= len(states):
            return np.bincount(states, weights=y, minlength=len(phi)) @ phi
        return y @ phi[states]


def _rows(array: Array) -> Array:
    """Flatten the (state, action) axes of a table of Section 3: shape (S_h, K, n) to (S_h K, n)."""
    array = np.asarray(array, dtype=np.float64)
    return array.reshape(-1, array.shape[-1])
