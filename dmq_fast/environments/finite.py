"""Finite episodic MDPs with state features, and their exact solution.

A `FiniteMDP` is the tabular description from which every exact number of the package comes: the
optimal values, the minimum gap, the value and the state distribution of a policy. It is validated when it is
built: features have Euclidean norm at most 1, rewards any sign and size. In the paper (Du, Luo, Wang, Zhang 2019,
section "Preliminaries") they are nonnegative and add up to at most 1 on every path: the value range (0, 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sized
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmq_fast._support.arrays import first_positions, once_each
from dmq_fast._support.checks import check_horizon
from dmq_fast.environments.arrays import (
    MOST_DENSE,
    as_float64,
    as_table,
    digest,
    frozen,
    frozen_csr,
    refuse_where,
)
from dmq_fast.environments.ranges import (
    Edges,
    edges_of,
    ended_states,
    path_sums,
    reachable_states,
    tightest,
    value_range,
)
from dmq_fast.grids import Grid
from dmq_fast.homogeneity import equal_levels
from dmq_fast.kernels import is_sparse
from dmq_fast.observing import TableObserver
from dmq_fast.rewards import RewardModel, ValueRange
from dmq_fast.table_policy import TablePolicy

if TYPE_CHECKING:
    from dmq_fast._support.arrays import Sparse

__all__ = ["FiniteMDP", "PolicyLike"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

TOLERANCE = 1e-9
"""Slack of the checks on probabilities, norms and caps: room for the caller's rounding."""

TRANSITION = ("state", "action", "next state")
FEATURE = ("state", "feature")

FEWEST_SPARSE = 24
"""Number of columns below which sparse features are kept as dense ones, which are as fast there."""


T = TypeVar("T")


class PolicyLike(Protocol):
    """The members of a policy that `FiniteMDP.value` and `FiniteMDP.occupancy` use."""

    @property
    def rules(self) -> Sized:
        """One rule a level."""

    def probabilities(self, level: int, features: Array | Sparse, n_actions: int, /) -> Array:
        """Return the action probabilities, (n, n_actions), of the n states whose features are the rows."""


class _Solution(NamedTuple):
    q: tuple[Array, ...]
    v: tuple[Array, ...]


class FiniteMDP:
    """An episodic MDP with finitely many states at each of its levels 0, ..., H-1.

    Parameters
    ----------
    P : sequence of array_like or SciPy sparse matrices or arrays
        H-1 transition arrays; ``P[h]`` has shape (S_h, K, S_{h+1}) and rows that sum to 1. With H arrays the
        last one leads to a terminal layer, which only serves rewards that depend on where the last action
        leads. An array object that appears at several levels is converted once and stays shared. A sparse ``P[h]``
        has shape (S_h K, S_{h+1}), and its row s K + a is the distribution of the next state after action a in state s.
    R : sequence of array_like
        H arrays of mean rewards of any sign and size, each (S_h, K), or (S_h, K, S_{h+1}) where the reward depends on
        the next state; the latter with a dense ``P[h]`` only.
    features : sequence of array_like or SciPy sparse matrices or arrays
        H arrays (S_h, d); the rows are the features of the states, of Euclidean norm at most 1. Of sparse ones, nothing
        of size S_h d is made.
    start : array_like, optional
        Distribution of the first state, shape (S_0,). Default: state 0.
    caps : array_like, optional
        H numbers. ``caps[h] > 0``: the reward of level h is ``caps[h]`` with probability ``R[h] / caps[h]``
        and 0 otherwise, for nonnegative ``R[h]``. ``caps[h] == 0``: the reward is ``R[h]`` itself. Default: all 0.
    value_range : pair of float or array_like of shape (H, 2), optional
        Bounds of what the rewards from a level on can add up to, (low, high) or one such pair a level. Default: (0, 1)
        if no reward is negative and no path adds up to more than 1, otherwise `tight_range`.
    name : str, optional
        Name of the environment.
    parameters : mapping, optional
        The generator's arguments, JSON-able.

    Attributes
    ----------
    P, R, features : tuple of ndarray or csr_array
        The arrays above: float64, C-contiguous, read-only. Sparse ones are `scipy.sparse.csr_array`, without stored
        zeros or duplicates; sparse features of fewer than 24 dimensions become dense.
    start, caps : ndarray
        Shapes (S_0,) and (H,), read-only.
    horizon, n_actions, dimension : int
        H, K and d.
    n_states : tuple of int
        S_0, ..., S_{H-1}.
    value_range : numpy.ndarray, shape (H, 2)
        The bounds above, read-only.
    state_numbers : numpy.ndarray of int, or None
        Ascending numbers under which the first states of every level are observed; None: those of their rows.
    row_numbers : numpy.ndarray of int, or None
        Where there are `state_numbers`, those of all rows: the number of the state that a row stands for, -1 of one in
        which episodes have ended.
    grid : Grid or None
        Where the states stand, for pictures.

    Raises
    ------
    TypeError
        If an argument is not numeric (complex numbers, objects and text are refused).
    ValueError
        If a shape, a probability or a norm is out of range, or the rewards of a path add up to something outside of a
        value range that was given; the message names the argument, level, state and action.

    Examples
    --------
    Two levels of two states; action 1 leads to the state that pays with probability 0.8:

    >>> import numpy as np
    >>> import dmq_fast as dmq
    >>> stay = np.eye(2)
    >>> go = np.array([[0.2, 0.8], [0.0, 1.0]])
    >>> env = FiniteMDP(
    ...     P=[np.stack([stay, go], axis=1)],
    ...     R=[np.zeros((2, 2)), [[0.0, 0.0], [1.0, 1.0]]],
    ...     features=[np.eye(2)] * 2,
    ... )
    >>> env.optimal_value, env.gap
    (0.8, 0.8)
    >>> env.value(dmq.Policy.uniform(2))
    0.4

    Every step costs 1 and the last one may pay 5:

    >>> costs = FiniteMDP([np.ones((1, 2, 1))] * 2, [[[-1.0, -1.0]]] * 2 + [[[-1.0, 4.0]]], [[[1.0]]] * 3)
    >>> costs.optimal_value, costs.value_range.tolist()
    (2.0, [[-3.0, 2.0], [-2.0, 3.0], [-1.0, 4.0]])
    """

    @np.errstate(over="ignore")  # sums of absurdly large input become inf, which the checks refuse
    def __init__(
        self,
        P: Iterable[Any],
        R: Iterable[ArrayLike],
        features: Iterable[Any],
        start: ArrayLike | None = None,
        caps: ArrayLike | None = None,
        *,
        value_range: ValueRange = None,
        name: str = "finite-mdp",
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        self.R: tuple[Array, ...] = _arrays("R", R, _rewards)
        self.P: tuple[Array | Sparse, ...] = _arrays("P", P, _probabilities)
        self.features: tuple[Array | Sparse, ...] = _arrays("features", features, _features)
        _check_shapes(self.P, self.R, self.features)
        self.horizon = len(self.R)
        self.n_states = tuple(rewards.shape[0] for rewards in self.R)
        self.n_actions = int(self.R[0].shape[1])
        self.dimension = int(self.features[0].shape[1])
        self.start = _start(start, self.n_states[0])
        self.caps = _caps(caps, self.R)
        self.name = str(name)
        self.parameters = dict(parameters or {})
        self.value_range = self._value_range(value_range)
        self.state_numbers: NDArray[np.integer[Any]] | None = None

    row_numbers: NDArray[np.integer[Any]] | None = None
    grid: Grid | None = None

    def __repr__(self) -> str:
        """Name and sizes."""
        return (
            f"FiniteMDP({self.name!r}, horizon={self.horizon}, n_states={self._states()}, "
            f"n_actions={self.n_actions}, dimension={self.dimension})"
        )

    def _states(self) -> str:
        """Return the numbers of states of the levels, the least and the largest."""
        low, high = min(self.n_states), max(self.n_states)
        return str(low) if low == high else f"{low}..{high}"

    def __getstate__(self) -> dict[str, Any]:
        """Return all attributes but the cached solution, which is cheap to compute again and large to pickle."""
        cached = {key for key, value in vars(type(self)).items() if isinstance(value, cached_property)}
        return {key: value for key, value in vars(self).items() if key not in cached}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the arrays as read-only, which neither pickling nor deep copying keeps."""
        vars(self).update(state)
        for array in (*self.P, *self.R, *self.features, self.start, self.caps, self.value_range):
            frozen_csr(array) if is_sparse(array) else frozen(array)

    @cached_property
    def homogeneous(self) -> bool | tuple[int, ...]:
        """Whether all levels have the same arrays, or labels of the levels if the last one alone has others."""
        return equal_levels(self.P, self.R, self.features, self.caps)

    @cached_property
    def expected_rewards(self) -> tuple[Array, ...]:
        """Mean reward of every state and action: H read-only arrays (S_h, K)."""
        return tuple(
            rewards if rewards.ndim == 2 else frozen((_dense(self.P[level]) * rewards).sum(axis=2))
            for level, rewards in enumerate(self.R)
        )

    @property
    def optimal_q(self) -> tuple[Array, ...]:
        """Q*, H read-only arrays (S_h, K)."""
        return self._solution.q

    @property
    def optimal_v(self) -> tuple[Array, ...]:
        """V*, H read-only arrays (S_h,)."""
        return self._solution.v

    @property
    def optimal_value(self) -> float:
        """Expected optimal return from the start distribution."""
        return float(self.start @ self.optimal_v[0])

    @cached_property
    def optimal_policy(self) -> TablePolicy:
        """The best policy: greedy on Q*, ties to the smallest action.

        Actions whose Q* differs from the largest by at most `gap_tolerance` tie, as rounding decides between them.
        """
        best = zip(self.optimal_q, self.optimal_v, strict=True)
        return TablePolicy([(q >= v[:, None] - self.gap_tolerance).argmax(axis=1) for q, v in best])

    @cached_property
    def reachable(self) -> tuple[Mask, ...]:
        """States that some policy visits with positive probability: H read-only boolean arrays (S_h,)."""
        masks = reachable_states(self.start, self._edges, self.n_states, self.n_actions)
        return tuple(map(frozen, masks))

    @cached_property
    def ended(self) -> tuple[Mask, ...]:
        """States in which the episode has ended: H read-only boolean arrays (S_h,).

        Their features are 0, no reward follows, and they only lead to states that have ended. They are worth 0, which
        is not counted in `tight_range`.
        """
        return tuple(map(frozen, ended_states(self.P, self.R, self.features, self._edges)))

    @cached_property
    def tight_range(self) -> Array:
        """Least and largest sum of the rewards from a level on, over paths of positive probability, (H, 2), read-only.

        Counted are paths from the states that can be reached, but for those in which the episode has ended.
        """
        lows, highs = (path_sums(self.P, self.R, self.caps, self._edges, which) for which in ("least", "largest"))
        counted = [mask & ~ended for mask, ended in zip(self.reachable, self.ended, strict=True)]
        return frozen(tightest(lows, highs, counted))

    @cached_property
    def most_to_go(self) -> Array:
        """Largest sum of the rewards from each level on, (H,), read-only; it falls with the steps left.

        Counted are states that can be reached at some level, or all of a level where levels differ in their states.
        """
        highs = path_sums(self.P, self.R, self.caps, self._edges)
        if len(set(self.n_states)) > 1:
            return frozen(np.array([high.max() for high in highs]))
        some = np.logical_or.reduce(self.reachable)
        return frozen(np.array([high[some].max() for high in highs]))

    @property
    def gap_tolerance(self) -> float:
        """Below this a gap is a tie: 4 eps m Σ_h (S_h + 2), over twice the worst rounding error of a gap.

        Here m is the largest absolute value of `value_range`. The error of a product of a distribution over S states
        with values in [-m, m] is at most m S eps / 2, and the backward recursion adds those of the levels up.
        """
        largest = float(np.abs(self.value_range).max())
        return float(4 * np.finfo(np.float64).eps * largest * sum(size + 2 for size in self.n_states))

    @cached_property
    def gap(self) -> float:
        """Smallest positive V*(s) - Q*(s, a) over reachable states and actions (paper, Suboptimality Gaps).

        Differences up to `gap_tolerance` count as ties; infinity where every action is optimal
        everywhere.
        """
        smallest = np.inf
        for mask, q, v in zip(self.reachable, self.optimal_q, self.optimal_v, strict=True):
            gaps = (v[:, None] - q)[mask]
            smallest = min(smallest, gaps.min(initial=np.inf, where=gaps > self.gap_tolerance))
        return float(smallest)

    @cached_property
    def optimal_theta(self) -> Array:
        """Least-squares (minimum norm) fit of Q* on the reachable states, read-only, shape (H, K, d).

        Sparse features are fitted part by part, no two of which have a state or a feature in common; ValueError where a
        part has more than 2^26 entries, zeros included.
        """
        theta = np.empty((self.horizon, self.n_actions, self.dimension))
        for levels in self._levels_alike():
            mask, features = self.reachable[levels[0]], self.features[levels[0]]
            targets = np.hstack([self.optimal_q[level][mask] for level in levels])
            fit = _least_squares(features[mask], targets)
            theta[levels] = fit.T.reshape(len(levels), self.n_actions, self.dimension)
        return frozen(theta)

    @cached_property
    def realizability_residual(self) -> float:
        """Largest |φ(s)·θ* - Q*(s, a)| over reachable states and actions, for `optimal_theta`."""
        return max(
            float(np.abs(phi[mask] @ theta.T - q[mask]).max())
            for mask, phi, theta, q in zip(
                self.reachable, self.features, self.optimal_theta, self.optimal_q, strict=True
            )
        )

    def value(self, policy: PolicyLike) -> float:
        """Exact expected return of a policy.

        Parameters
        ----------
        policy : Policy or TablePolicy
            One rule for each of the H levels.

        Returns
        -------
        float
            In the units of the rewards.

        Raises
        ------
        TypeError, ValueError
            If it is not a policy, or has another number of rules.
        """
        return float(self.start @ self.values(policy)[0])

    def values(self, policy: PolicyLike) -> tuple[Array, ...]:
        """Exact expected rewards from each state and level on under a policy.

        Parameters
        ----------
        policy : Policy or TablePolicy
            One rule for each of the H levels.

        Returns
        -------
        tuple of ndarray
            V^pi, H arrays (S_h,), in the units of the rewards.

        Raises
        ------
        TypeError, ValueError
            If it is not a policy, or has another number of rules.
        """
        check_horizon(policy, self.horizon)
        found: list[Array] = []
        for level in reversed(range(self.horizon)):
            q = self._backup(level, found[-1] if found else None)
            found.append((self._action_probabilities(policy, level) * q).sum(axis=1))
        return tuple(found[::-1])

    def occupancy(self, policy: PolicyLike) -> tuple[Array, ...]:
        """Exact distribution of the state at each level under a policy.

        Parameters
        ----------
        policy : Policy
            One rule for each of the H levels.

        Returns
        -------
        tuple of ndarray
            H arrays (S_h,), each summing to 1.

        Raises
        ------
        TypeError, ValueError
            If it is not a policy, or has another number of rules.
        """
        check_horizon(policy, self.horizon)
        distributions = [self.start.copy()]
        for level in range(self.horizon - 1):
            joint = distributions[-1][:, None] * self._action_probabilities(policy, level)
            distributions.append(joint.ravel() @ _flat(self.P[level]))
        return tuple(distributions)

    def expected_ahead(self, level: int, values: Array) -> Array:
        """Return the expected value of the next state, (S_h, K), from the values (S_{h+1},) of the states there."""
        transitions: Any = self.P[level]
        expected: Array = transitions @ values
        return expected.reshape(-1, self.n_actions)

    def transitions_under(self, level: int, taken: Array) -> Array | Sparse:
        """Return P[s' | s], (S_h, S_{h+1}), where action a is taken in state s with probability ``taken[s, a]``.

        In the form of ``P[level]``, dense or sparse.
        """
        transitions = self.P[level]
        if not is_sparse(transitions):
            return (taken[:, None, :] @ transitions)[:, 0]
        from scipy.sparse import csr_array

        n = transitions.shape[0]
        choices = taken.ravel(), np.arange(n), np.arange(0, n + 1, self.n_actions)
        chosen: Any = csr_array(choices, shape=(len(taken), n))
        followed: Sparse = chosen @ transitions
        return followed

    def distributions_ahead(self, level: int, distributions: Array) -> Array:
        """Return the distributions of the next state, (m, K, S_{h+1}), from m of the state, (m, S_h), by action."""
        transitions = self.P[level]
        if not is_sparse(transitions):
            return np.tensordot(distributions, transitions, axes=1)
        ahead = np.empty((len(distributions), self.n_actions, transitions.shape[1]))
        for action in range(self.n_actions):
            rows: Any = transitions[action :: self.n_actions]
            ahead[:, action] = distributions @ rows
        return ahead

    @property
    def observer(self) -> TableObserver:
        """What turns the numbers of states into features; see `Policy.act_on`."""
        first = None
        if self.grid is not None:
            n = self.n_states[0] if self.state_numbers is None else len(self.state_numbers)
            masks = np.stack([mask[:n] for mask in self.reachable])
            first = np.where(masks.any(axis=0), masks.argmax(axis=0), self.horizon)
        return TableObserver(self.features, self.n_actions, self.state_numbers, self.grid, first)

    def features_of(self, level: int, observation: Any) -> Array:
        """Return the features (d,) of a state of a level, given its number, or (n, d) of n of them.

        A state has the number that it had where the tables came from, by default that of its row.
        """
        phi, alone = self.observer.see(level, observation)
        return phi[0] if alone else phi

    def fingerprint(self) -> dict[str, Any]:
        """Describe the MDP, JSON-able: name, parameters, range of the rewards, and a digest of its arrays."""
        return {
            "name": self.name,
            "parameters": self.parameters,
            "rewards": RewardModel.of(self).describe(),
            "sha256": digest([*self.P, *self.R, *self.features, self.start, self.caps]),
        }

    @cached_property
    def _solution(self) -> _Solution:
        q: list[Array] = []
        v: list[Array] = []
        for level in reversed(range(self.horizon)):
            q.append(frozen(self._backup(level, v[-1] if v else None)))
            v.append(frozen(q[-1].max(axis=1)))
        return _Solution(tuple(q[::-1]), tuple(v[::-1]))

    def _backup(self, level: int, ahead: Array | None) -> Array:
        """Q of a level, (S_h, K), from the values (S_{h+1},) of the next; None after the last level."""
        rewards = self.expected_rewards[level]
        if ahead is None:
            return rewards.copy()
        return rewards + self.expected_ahead(level, ahead)

    def _action_probabilities(self, policy: PolicyLike, level: int) -> Array:
        return policy.probabilities(level, self.features[level], self.n_actions)

    def _levels_alike(self) -> Iterable[list[int]]:
        """Group levels of one feature array and equal reachable states, which share a factorisation."""
        groups: dict[tuple[int, bytes], list[int]] = {}
        for level, (first, mask) in enumerate(zip(first_positions(self.features), self.reachable, strict=True)):
            groups.setdefault((first, mask.tobytes()), []).append(level)
        return groups.values()

    @cached_property
    def _edges(self) -> list[Edges]:
        return edges_of(self.P)

    def _value_range(self, given: ValueRange) -> Array:
        """Return the value range, checked; for rewards as in the paper without a look at all states."""
        if given is None and all(rewards.min() >= 0 for rewards in self.R):
            sums = path_sums(self.P, self.R, self.caps, self._edges)[0]
            if sums[self.start > 0].max() <= 1 + TOLERANCE:
                return frozen(np.tile([0.0, 1.0], (self.horizon, 1)))
        return value_range(given, self.tight_range)


def _arrays(name: str, values: Iterable[Any], convert: Callable[[str, Any], T]) -> tuple[T, ...]:
    """Convert and check a sequence of arrays, each distinct object once; `convert` takes a label and an array."""
    if is_sparse(values):
        raise TypeError(f"{name}: expected a sequence of arrays, one a level, got one sparse array")
    try:
        items = tuple(values)
    except TypeError as error:
        raise TypeError(f"{name}: expected a sequence of arrays, one a level, got {type(values).__name__}") from error
    return tuple(once_each(lambda item, level: convert(f"{name}: level {level}", item), items, range(len(items))))


def _flat(transitions: Array | Sparse) -> Any:
    """Return transitions with a row s K + a for each state and action."""
    return transitions if is_sparse(transitions) else transitions.reshape(-1, transitions.shape[2])


def _dense(transitions: Array | Sparse) -> Array:
    """Return transitions that are dense: others come with no rewards that depend on the next state."""
    assert not is_sparse(transitions)
    return transitions


def _probabilities(label: str, value: Any) -> Array | Sparse:
    transitions = as_table(label, value, TRANSITION)
    if is_sparse(transitions):
        negative = np.flatnonzero(transitions.data < 0)
        if negative.size:
            row = int(np.searchsorted(transitions.indptr, negative[0], side="right")) - 1
            raise ValueError(
                f"{label}, row {row}, next state {transitions.indices[negative[0]]}: expected a probability >= 0, got "
                f"{transitions.data[negative[0]]:.12g}"
            )
        totals: Array = transitions.sum(axis=1)
        refuse_where(np.abs(totals - 1) > TOLERANCE, label, totals, ("row",), "probabilities that sum to 1")
        return transitions
    if transitions.ndim != 3:
        raise ValueError(f"{label}: expected shape (S, K, S'), got {transitions.shape}")
    refuse_where(transitions < 0, label, transitions, TRANSITION, "a probability >= 0")
    sums = transitions.sum(axis=2)
    refuse_where(np.abs(sums - 1) > TOLERANCE, label, sums, TRANSITION, "probabilities that sum to 1")
    return transitions


def _rewards(label: str, value: ArrayLike) -> Array:
    rewards = as_float64(label, value, TRANSITION)
    if rewards.ndim not in (2, 3):
        raise ValueError(f"{label}: expected shape (S, K) or (S, K, S'), got {rewards.shape}")
    return rewards


def _features(label: str, value: Any) -> Array | Sparse:
    features = as_table(label, value, FEATURE)
    if features.ndim != 2:
        raise ValueError(f"{label}: expected shape (S, d), got {features.shape}")
    if is_sparse(features):
        norms = np.sqrt(features.power(2).sum(axis=1))
    else:
        norms = np.linalg.norm(features, axis=1)
    refuse_where(norms > 1 + TOLERANCE, label, norms, FEATURE, "features of Euclidean norm at most 1")
    if is_sparse(features) and features.shape[1] < FEWEST_SPARSE:
        return frozen(features.toarray())
    return features


def _least_squares(features: Array | Sparse, targets: Array) -> Array:
    """Least-squares fit of minimum norm, (d, m), of targets (n, m) to features (n, d)."""
    if not is_sparse(features):
        dense: Any = np.linalg.lstsq(features, targets, rcond=None)[0]
        return np.asarray(dense, np.float64)
    from scipy.sparse import block_array, csr_array
    from scipy.sparse.csgraph import connected_components

    n, d = features.shape
    # Rows and columns that no entries connect have nothing to do with each other.
    graph: Any = block_array([[None, features], [features.T, None]])  # type: ignore[arg-type]
    n_parts, part = connected_components(graph, directed=False)
    heights, widths = np.bincount(part[:n], minlength=n_parts), np.bincount(part[n:], minlength=n_parts)
    fit = np.zeros((d, targets.shape[1]))
    squares: Array = features.power(2).sum(axis=0)
    columns_first: Any = features.T
    products: Array = columns_first @ targets
    alone = (widths[part[n:]] == 1) & (squares > 0)
    fit[alone] = products[alone] / squares[alone, None]
    rows, columns = np.argsort(part[:n], kind="stable"), np.argsort(part[n:], kind="stable")
    sorted_rows = features[rows][:, columns]
    for height, width, bottom, right in zip(heights, widths, heights.cumsum(), widths.cumsum(), strict=True):
        if height == 0 or width < 2:
            continue
        if height * width > MOST_DENSE:
            raise ValueError(
                f"optimal_theta: expected features that fall into parts of at most {MOST_DENSE} entries, zeros "
                f"included, got one of {height} states and {width} features"
            )
        some = sorted_rows[bottom - height : bottom]
        block = csr_array((some.data, some.indices - (right - width), some.indptr), shape=(height, width)).toarray()
        ours = targets[rows[bottom - height : bottom]]
        fit[columns[right - width : right]] = np.linalg.lstsq(block, ours, rcond=None)[0]
    return fit


def _check_shapes(P: tuple[Array | Sparse, ...], R: tuple[Array, ...], features: tuple[Array | Sparse, ...]) -> None:
    """Agreement of the arrays with one another: H, K, d and the number of states of every level."""
    horizon = len(R)
    if horizon == 0:
        raise ValueError("R: expected at least one level (horizon >= 1), got none")
    if len(P) not in (horizon - 1, horizon):
        raise ValueError(f"P: expected {horizon - 1} arrays for the {horizon} levels of R (or {horizon}), got {len(P)}")
    if len(features) != horizon:
        raise ValueError(f"features: expected {horizon} arrays, one for each level of R, got {len(features)}")
    n_actions, dimension = R[0].shape[1], features[0].shape[1]
    for level, rewards in enumerate(R):
        pair = (rewards.shape[0], n_actions)
        _expect_shape(f"R: level {level}", rewards.shape[:2], pair)
        _expect_shape(f"features: level {level}", features[level].shape, (pair[0], dimension))
        if level < len(P):
            last = R[level + 1].shape[0] if level + 1 < horizon else P[level].shape[-1]
            whole = (pair[0] * pair[1], last) if is_sparse(P[level]) else (*pair, last)
            _expect_shape(f"P: level {level}", P[level].shape, whole)
        if rewards.ndim == 3:
            if level == len(P):
                raise ValueError(
                    f"R: level {level}: expected shape (S, K), got {rewards.shape}; rewards of the last "
                    "level that depend on the next state need a transition array P for that level"
                )
            if is_sparse(P[level]):
                raise ValueError(
                    f"R: level {level}: expected shape (S, K), got {rewards.shape}; rewards that depend on the next "
                    "state need a dense P of that level"
                )
            _expect_shape(f"R: level {level}", rewards.shape, P[level].shape)


def _expect_shape(label: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if shape != expected:
        raise ValueError(f"{label}: expected shape {expected}, got {shape}")


def _start(start: ArrayLike | None, n_states: int) -> Array:
    if start is None:
        return frozen(np.eye(1, n_states)[0])
    distribution = as_float64("start", start, ("state",))
    _expect_shape("start", distribution.shape, (n_states,))
    refuse_where(distribution < 0, "start", distribution, ("state",), "a probability >= 0")
    if abs(distribution.sum() - 1) > TOLERANCE:
        raise ValueError(f"start: expected probabilities that sum to 1, got a sum of {distribution.sum():.12g}")
    return distribution


def _caps(caps: ArrayLike | None, R: tuple[Array, ...]) -> Array:
    if caps is None:
        return frozen(np.zeros(len(R)))
    values = as_float64("caps", caps, ("level",))
    _expect_shape("caps", values.shape, (len(R),))
    for level, (cap, rewards) in enumerate(zip(values, R, strict=True)):
        if cap < 0:
            raise ValueError(f"caps: level {level}: expected a cap >= 0, got {cap:.12g}")
        if cap > 0 and rewards.ndim == 3:
            raise ValueError(
                f"caps: level {level}: expected 0 where the rewards depend on the next state, got {cap:.12g}"
            )
        if cap > 0:
            label = f"R: level {level}"
            refuse_where(rewards < 0, label, rewards, TRANSITION, f"a mean >= 0 of a reward of 0 or {cap:.12g}")
            refuse_where(
                rewards > cap * (1 + TOLERANCE), label, rewards, TRANSITION, f"a mean at most the cap {cap:.12g}"
            )
    return values
