"""`ExactSampler`: expectations instead of trajectories, the population oracle."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.arrays import once_each
from dmq_fast._support.checks import integer
from dmq_fast.arithmetic import Extended, as_arithmetic
from dmq_fast.environments.arrays import as_dense
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.kernels import Fixed, Greedy, Rule, Stream, Uniform, is_sparse, transition_edges
from dmq_fast.moments import Moments, Returns
from dmq_fast.policy import Policy
from dmq_fast.rules import ExactGreedy
from dmq_fast.samplers._finite import FeatureTables, action_of, actions_everywhere
from dmq_fast.samplers.base import Sampler, check_tables
from dmq_fast.samplers.request import Request

if TYPE_CHECKING:
    from dmq_fast._support.arrays import Sparse

__all__ = ["ExactSampler"]

Floats = NDArray[np.float64]


class ExactSampler(Sampler):
    """Returns n times the expected moments of one trajectory: the paper's Oracle 4.1, the limit n = infinity.

    Parameters
    ----------
    env : FiniteMDP
    arithmetic : "float64", "rational" or int, default "float64"
        Number type of the expectations and, in `DMQ`, of regression, greedy choice and oracle: float64, fractions that
        are never rounded, or mpmath numbers of so many decimal digits (the extra `theory`). All but float64 are for
        small MDPs: a product takes one to three microseconds, in Python.

    Raises
    ------
    TypeError, ValueError
        If there is no such arithmetic.
    ImportError
        If mpmath is needed and not installed.

    Notes
    -----
    Nothing is drawn: the stream of a call is not used, and every call is one chunk. The number of trajectories is only
    a factor: it may be any n >= 0, and DMQ learns the same for all of them up to rounding. With
    ``mixture="multinomial"`` the weights of the policies are still drawn.

    State distributions are carried forwards, first and second moments of the return to go backwards, in
    O(S^2) operations a level (K S^2 under a uniform rule).

    In extended precision the moments are object arrays, the tables of the MDP are taken as the exact numbers that their
    float64 entries are, and n may be any integer: the N = 1e70 of the theorem. `DMQ` then decides by `arithmetic`
    alone: constants far below float64's resolution of S are resolved, greedy rules are exact (`ExactGreedy`), and so
    are ties. A distribution that sums to 1 in float64 may sum to 1 + 1e-16 exactly, so that equations between the
    tables of an MDP hold up to such errors.

    Examples
    --------
    >>> import dmq_fast as dmq
    >>> env = dmq.environments.combination_lock(horizon=3, rng=0)
    >>> request = {"stream": dmq.Stream(0), "levels": [2]}
    >>> ExactSampler(env).collect(dmq.Policy.uniform(3), 100, **request).second_moment(2)
    array([[0.0625, 0.    ],
           [0.    , 0.9375]])
    >>> ExactSampler(env, "rational").collect(dmq.Policy.uniform(3), 10**70, **request).second_moment(2)[0, 0]
    Fraction(1, 16)
    """

    def __init__(self, env: FiniteMDP, arithmetic: str | int = "float64") -> None:
        check_tables(env)
        self.env = env
        self.arithmetic = as_arithmetic(arithmetic)
        self._extended = Expectations(env, self.arithmetic) if isinstance(self.arithmetic, Extended) else None
        self.horizon = env.horizon
        self.n_actions = env.n_actions
        self.dimension = env.dimension
        self._features = FeatureTables(env.features)

    def collect_chunk(
        self, policy: Policy, n: int, *, rng: Stream, levels: Sequence[int], returns_from: Sequence[int] = ()
    ) -> Moments:
        """Return n times the expectations; see `Sampler.collect_chunk`."""
        n = integer("n", n, 0)
        request = Request.of(self, policy, n, rng, levels, returns_from)
        if self._extended is not None:
            return self._extended.moments(request)
        weights = {h: np.zeros(self.env.n_states[h]) for h in request.levels}
        returns = {h: Returns(np.zeros(self.dimension), 0.0, n) for h in request.returns_from}
        if n > 0 and request.last >= 0:
            self._expect(request, weights, returns)
        # The number of trajectories is a factor, and the number of rows that of states.
        in_rows = self._features.fits_rows(self._features.most_rows)
        return Moments(n, request.levels, self._features.sums(weights, in_rows), returns)

    def _expect(self, request: Request, weights: dict[int, Floats], returns: dict[int, Returns]) -> None:
        """Fill in the expected visits of the states, by level, and the returns of n >= 1 trajectories."""
        n = request.n
        occupancy, actions = self._forwards(request.rules, request.last, bool(request.returns_from))
        for h in weights:
            weights[h] = n * occupancy[h]
        if request.returns_from:
            first, second = self._backwards(actions, request.returns_from[0])
            for h in request.returns_from:
                moment = self._features.weighted_sum(h, n * (occupancy[h] * first[h]))
                returns[h] = Returns(moment, float(n * (occupancy[h] @ second[h])), n)

    def _forwards(
        self, rules: Sequence[Rule], last: int, act_at_last: bool
    ) -> tuple[list[Floats], list[NDArray[np.int64] | None]]:
        """Return the state distributions of levels 0 .. last, and the action of each state (None: uniform)."""
        occupancy, actions = [self.env.start], []
        for h in range(last + act_at_last):
            actions.append(action_of(rules[h], h, self.env.features[h], occupancy[h] > 0.0))
            if h < last:
                occupancy.append(occupancy[h] @ self._transitions(h, actions[h]))
        return occupancy, actions

    def _backwards(
        self, actions: Sequence[NDArray[np.int64] | None], first_level: int
    ) -> tuple[dict[int, Floats], dict[int, Floats]]:
        """E[y | s_h] and E[y^2 | s_h] of the return to go y, for h = first_level .. H-1.

        With y = r + y', y' independent of r given the next state: E y^2 = E r^2 + 2 E[r E y'] + E y'^2.
        """
        env = self.env
        first: dict[int, Floats] = {}
        second: dict[int, Floats] = {}
        for h in reversed(range(first_level, env.horizon)):
            rewards, cap = env.R[h], env.caps[h]
            last = h == env.horizon - 1
            if rewards.ndim == 3:
                # r depends on the next state, and so on y'.
                P: Any = env.P[h]  # dense, where rewards depend on the next state
                ahead = np.zeros(P.shape[2]) if last else first[h + 1]
                beyond = np.zeros(P.shape[2]) if last else second[h + 1]
                mean = (P * (rewards + ahead)).sum(axis=2)
                square = (P * (rewards * (rewards + 2.0 * ahead) + beyond)).sum(axis=2)
                first[h], second[h] = _under(mean, actions[h]), _under(square, actions[h])
                continue
            mean = _under(rewards, actions[h])
            # A Bernoulli reward is its cap with probability r / cap.
            square = cap * mean if cap > 0.0 else _under(rewards * rewards, actions[h])
            if not last:
                later = env.expected_ahead(h, first[h + 1])
                square = square + _under(2.0 * rewards * later, actions[h])
                transitions = self._transitions(h, actions[h])
                mean, square = mean + transitions @ first[h + 1], square + transitions @ second[h + 1]
            first[h], second[h] = mean, square
        return first, second

    def _transitions(self, level: int, actions: NDArray[np.int64] | None) -> Any:
        """Return P[s' | s], (S_h, S_{h+1}), under the actions of the states (None: uniform); dense or sparse, as P."""
        P = self.env.P[level]
        if not is_sparse(P):
            return _under(P, actions)
        n, n_actions = self.env.n_states[level], self.env.n_actions
        if actions is None:
            return self.env.transitions_under(level, np.full((n, n_actions), 1.0 / n_actions))
        return P[np.arange(n) * n_actions + actions]

    def actions(self, level: int, rule: Rule) -> NDArray[np.int64] | None:
        """Return the action of a rule in each state of a level; see `Sampler.actions`.

        None where the rule is uniform or a score overflows.
        """
        if self._extended is None:
            return actions_everywhere(self.env, level, rule)
        table = self._extended.table(level, rule)
        return None if table is None else np.array(table)

    def __reduce__(self) -> tuple[type[ExactSampler], tuple[FiniteMDP, str | int]]:
        return (ExactSampler, (self.env, self.arithmetic.name))


def _under(table: Floats, actions: NDArray[np.int64] | None) -> Floats:
    """Average a table by state and action, (S, K, ...), over the rule: (S, ...)."""
    if actions is None:
        average: Floats = table.mean(axis=1)
        return average
    chosen: Floats = table[np.arange(len(table)), actions]
    return chosen


# Actions of the states of a level, or None under a uniform rule.
Table = tuple[int, ...] | None
Objects = NDArray[Any]

CACHE = 2**14
"""Number of state distributions, of second moments and of values that `Expectations` keeps."""


class Expectations:
    """The expectations in extended precision.

    They are stored by the actions taken in each state, so that policies with different theta but the same actions share
    them.

    Parameters
    ----------
    env : FiniteMDP
    arithmetic : Extended
    """

    def __init__(self, env: FiniteMDP, arithmetic: Extended) -> None:
        self.env = env
        self.arithmetic = arithmetic
        self._start = list(arithmetic.convert_array(env.start))
        self._successors = once_each(self._support, env.P)
        self._rewards = once_each(arithmetic.convert_array, env.R)
        self._caps = list(arithmetic.convert_array(env.caps))
        purpose = "extended precision"
        dense = once_each(lambda phi: as_dense("features", phi, purpose), env.features)
        self._dense, self._features = dense, once_each(arithmetic.convert_array, dense)
        self._zero, self._n_actions = arithmetic.convert(0), arithmetic.convert(env.n_actions)
        self._outer = once_each(lambda phi: [np.multiply.outer(row, row) for row in phi], self._features)
        self._occupancy = lru_cache(CACHE)(self._find_occupancy)
        self._second_moment = lru_cache(CACHE)(self._find_second_moment)
        self._ahead = lru_cache(CACHE)(self._find_ahead)

    def _support(self, P: Floats | Sparse) -> list[list[list[tuple[int, Any]]]]:
        """Next states and their probabilities, by state and action."""
        n_actions, convert = self.env.n_actions, self.arithmetic.convert
        n_rows = P.shape[0] if is_sparse(P) else P.shape[0] * n_actions
        out: list[list[list[tuple[int, Any]]]] = [[[] for _ in range(n_actions)] for _ in range(n_rows // n_actions)]
        for row, target, probability in zip(*(part.tolist() for part in transition_edges(P)), strict=True):
            out[row // n_actions][row % n_actions].append((target, convert(probability)))
        return out

    def moments(self, request: Request) -> Moments:
        """Return n times the expectations of a checked request."""
        n, d = request.n, self.env.dimension
        grams = self.arithmetic.zeros((len(request.levels), d, d))
        returns = {h: Returns(self.arithmetic.zeros((d,)), self._zero, n) for h in request.returns_from}
        if n == 0 or request.last < 0:
            return Moments(n, request.levels, grams, returns)
        tables = tuple(self.table(h, rule) for h, rule in enumerate(request.rules[: request.last + 1]))
        for gram, h in zip(grams, request.levels, strict=True):
            gram[...] = n * self._second_moment(tables[:h])
        for h in request.returns_from:
            first, second = self._ahead(h, tables[h:])
            moment, square = self.arithmetic.zeros((d,)), self._zero
            for s, weight in enumerate(self._occupancy(tables[:h])):
                if weight:
                    moment = moment + (weight * first[s]) * self._features[h][s]
                    square += weight * second[s]
            returns[h] = Returns(n * moment, n * square, n)
        return Moments(n, request.levels, grams, returns)

    def table(self, level: int, rule: Rule) -> Table:
        """Return the action in each state of a level."""
        features = self._dense[level]
        if isinstance(rule, Uniform):
            return None
        if isinstance(rule, Fixed):
            return (rule.action,) * len(features)
        if isinstance(rule, Greedy):
            rule = ExactGreedy(rule.theta.tolist())
        assert isinstance(rule, ExactGreedy)
        return tuple(rule.actions(features).tolist())

    def _find_occupancy(self, tables: tuple[Table, ...]) -> list[Any]:
        """Distribution of the states to which the actions of the levels so far lead."""
        if not tables:
            return self._start
        level = len(tables) - 1
        out = [self._zero] * self.env.n_states[level + 1]
        for s, weight in enumerate(self._occupancy(tables[:-1])):
            if weight:
                for share, action in self._choices(tables[-1], s):
                    for following, probability in self._successors[level][s][action]:
                        out[following] += weight * share * probability
        return out

    def _choices(self, table: Table, state: int) -> Sequence[tuple[Any, int]]:
        """Probabilities and actions in a state."""
        if table is None:
            return [(1 / self._n_actions, action) for action in range(self.env.n_actions)]
        return [(1, table[state])]

    def _find_second_moment(self, tables: tuple[Table, ...]) -> Objects:
        """E phi phi^T at the level to which the actions so far lead."""
        total = self.arithmetic.zeros((self.env.dimension,) * 2)
        for weight, square in zip(self._occupancy(tables), self._outer[len(tables)], strict=True):
            if weight:
                total = total + weight * square
        return total

    def _find_ahead(self, level: int, tables: tuple[Table, ...]) -> tuple[list[Any], list[Any]]:
        """E[y | s_h] and E[y^2 | s_h] of the return to go y, for the actions taken from level h on."""
        last = level == self.env.horizon - 1
        first_later, second_later = ([], []) if last else self._ahead(level + 1, tables[1:])
        rewards, cap = self._rewards[level], self._caps[level]
        first, second = [], []
        for s in range(self.env.n_states[level]):
            mean = square = self._zero
            for share, action in self._choices(tables[0], s):
                reward = rewards[s, action]
                if rewards.ndim == 2:
                    # A Bernoulli reward is its cap with probability r / cap.
                    mean += share * reward
                    square += share * (cap * reward if cap > 0 else reward * reward)
                    if last:
                        continue
                # E (r + y')^2 over the next states, r given where it does not depend on them.
                for t, probability in self._successors[level][s][action]:
                    y, y_square = (self._zero, self._zero) if last else (first_later[t], second_later[t])
                    weight = share * probability
                    if rewards.ndim == 2:
                        mean += weight * y
                        square += weight * (2 * reward * y + y_square)
                    else:
                        mean += weight * (reward[t] + y)
                        square += weight * (reward[t] * (reward[t] + 2 * y) + y_square)
            first.append(mean)
            second.append(square)
        return first, second
