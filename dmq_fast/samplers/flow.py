"""`FlowSampler`: counts of trajectories instead of single ones, at a cost that does not grow with their number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.arrays import first_positions
from dmq_fast._support.checks import count
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.kernels import Rule, Stream, transition_edges
from dmq_fast.moments import Moments, Returns
from dmq_fast.policy import Policy
from dmq_fast.samplers._binomial import binomial
from dmq_fast.samplers._finite import FeatureTables, action_of, actions_everywhere
from dmq_fast.samplers.base import Estimate, Sampler, check_tables
from dmq_fast.samplers.request import Request
from dmq_fast.samplers.rollout import RolloutSampler

__all__ = ["FlowSampler"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MOST_GROUPS = 2**20
"""Largest number of groups of trajectories at one level."""

MOST_CELLS = 2**22
"""Largest number of groups times possible outcomes of one step; such an array has 32 MB."""


class FlowSampler(Sampler):
    """Draws the number of trajectories of a finite MDP in each state, level by level, from multinomials.

    The counts of n i.i.d. trajectories are a Markov chain over the levels: given the count of each state, the counts
    of the transitions from it are multinomial and independent of those from other states. So the moments have the joint
    law of those of n trajectories, for any n < 2^63, at a cost that does not grow with n once every state (of a return:
    every pair of origin and state) is visited. Sums of y^2 alone are expectations; see Notes.

    Parameters
    ----------
    env : FiniteMDP

    Raises
    ------
    TypeError, ValueError
        If `env` is no FiniteMDP.

    Notes
    -----
    Probabilities are float64, the rows of `env.P` up to a common factor. Errors of the law from float64: below 10^-7
    in total variation for each binomial while counts stay below 2^53; larger counts are drawn to the 53 bits that
    float64 moments hold, 10^-6 of a standard deviation at n = 2^63 (see `dmq_fast.samplers._binomial`).

    Trajectories are grouped by (origin, state), at most S^2 groups, for the sum of y phi of a return y. The sum of y^2
    is its conditional expectation given all counts (given them, arrivals in a state and departures from it are matched
    uniformly at random): unbiased, of a smaller variance, and, where rewards are not negative, positive exactly when
    one was paid.

    With several levels in `returns_from`, the groups of one are refined by those of the next; ask for one
    at a time where that is too many.

    Examples
    --------
    >>> import dmq_fast as dmq
    >>> sampler = FlowSampler(dmq.environments.combination_lock(horizon=3, rng=0))
    >>> moments = sampler.collect(dmq.Policy.uniform(3), 10**15, stream=dmq.Stream(0), levels=[2])
    >>> moments.second_moment(2).round(6)  # the good state is reached with probability 1/16
    array([[0.0625, 0.    ],
           [0.    , 0.9375]])
    """

    def __init__(self, env: FiniteMDP) -> None:
        check_tables(env)
        self.env = env
        self.horizon = env.horizon
        self.n_actions = env.n_actions
        self.dimension = env.dimension
        self._features = FeatureTables(env.features)
        self._start = _outcomes(
            np.zeros(env.start.size, dtype=np.int64), np.arange(env.start.size), np.zeros(env.start.size), env.start
        )
        # Levels that share arrays share tables: an array is named by the first level that has it.
        self._transitions_of, self._rewards_of = first_positions(env.P), first_positions(env.R)
        # By all that a table depends on; filled when a level first needs it.
        self._tables: dict[tuple[object, ...], Outcomes] = {}

    def collect_chunk(
        self, policy: Policy, n: int, *, rng: Stream, levels: Sequence[int], returns_from: Sequence[int] = ()
    ) -> Moments:
        """Draw the moments of n trajectories; see `Sampler.collect_chunk`.

        Raises
        ------
        TypeError, ValueError
            If an argument does not fit the MDP, n >= 2^63, or there are too many groups; the message names the level.
        ArithmeticError
            If a greedy score overflows; the message names the level.
        """
        n = count("n", n, 0, "; ExactSampler takes any number")
        request = Request.of(self, policy, n, rng, levels, returns_from)
        counts = {h: np.zeros(self.env.n_states[h]) for h in request.levels}
        returns = {h: Returns(np.zeros(self.dimension), 0.0, n) for h in request.returns_from}
        if n > 0 and request.last >= 0:
            self._flow(request, rng.generator(), counts, returns)
        return Moments(n, request.levels, self._features.sums(counts, self._features.fits_rows(n)), returns)

    def _flow(
        self, request: Request, generator: np.random.Generator, counts: dict[int, Floats], returns: dict[int, Returns]
    ) -> None:
        """Fill in the visits of the states, by level, and the returns of n >= 1 trajectories."""
        n, env, stop = request.n, self.env, not request.returns_from
        nowhere = np.zeros(1, dtype=np.int64)
        step = self._start.draw(generator, nowhere, np.array([n]))
        groups = Groups(nowhere, np.array([n]), ()).after(step, env.n_states[0])
        for h in range(request.last + 1):
            n_states = env.n_states[h]
            visits = np.zeros(n_states, dtype=np.int64)
            if groups.seen:
                np.add.at(visits, groups.state, groups.size)
            else:
                visits[groups.state] = groups.size
            if h in counts:
                counts[h] = visits.astype(np.float64)
            if h in returns:
                groups = groups.watched(n_states)
            if h == request.last and stop:
                return
            actions = action_of(request.rules[h], h, env.features[h], visits > 0)
            outcomes = self._outcomes_of(h, paying=bool(groups.seen), uniform=actions is None)
            rows = groups.state if actions is None else groups.state * self.n_actions + actions[groups.state]
            if len(rows) * outcomes.width > MOST_CELLS:
                raise self._too_many(h, len(rows))
            following = env.n_states[h + 1] if h + 1 < self.horizon else 1
            groups = groups.after(outcomes.draw(generator, rows, groups.size), following)
            if len(groups.state) > MOST_GROUPS:
                raise self._too_many(h, len(groups.state))
        count = groups.size.astype(np.float64)
        for h, seen in zip(request.returns_from, groups.seen, strict=True):
            totals = _sums(seen.origin, count * seen.mean, env.n_states[h])
            returns[h] = Returns(self._features.weighted_sum(h, totals), float(count @ seen.square), n)

    def evaluate(self, policy: Policy, n: int, *, stream: Stream) -> Estimate:
        """Estimate the value of `policy` from n >= 1 trajectories; see `Sampler.evaluate`.

        Where returns may be negative, they are those of a `RolloutSampler`, of the same law: moments hold no signs.
        """
        if self.rewards.low < 0.0:
            return RolloutSampler(self.env).evaluate(policy, n, stream=stream)
        return super().evaluate(policy, n, stream=stream)

    def _outcomes_of(self, h: int, paying: bool, uniform: bool) -> Outcomes:
        """Outcomes of a step from level h; rows are states under a uniform rule, state K + action under others."""
        env, last = self.env, h == self.horizon - 1
        transitions = self._transitions_of[h] if h < len(env.P) else None
        key = (transitions, self._rewards_of[h] if paying else None, float(env.caps[h]) * paying, last, uniform)
        if key not in self._tables:
            self._tables[key] = self._tabulate(h, last, paying, uniform)
        return self._tables[key]

    def _tabulate(self, h: int, last: bool, paying: bool, uniform: bool) -> Outcomes:
        env, pairs = self.env, self.env.n_states[h] * self.n_actions
        transitions = env.P[h] if h < len(env.P) else None
        by_edge = env.R[h].ndim == 3
        if transitions is None or (last and not by_edge):
            # The next state of the last action does not matter.
            transitions = np.ones((pairs, 1, 1))
        row, following, share = transition_edges(transitions)
        reward = np.zeros(len(row))
        if paying and by_edge:
            reward = env.R[h].reshape(pairs, -1)[row, following]
        elif paying:
            reward = env.R[h].reshape(pairs)[row]
            cap = float(env.caps[h])
            if cap > 0.0:
                paid = np.minimum(reward, cap)
                share = np.concatenate([share * (cap - paid) / cap, share * paid / cap])
                reward = np.repeat([0.0, cap], len(row))
                row, following = np.tile(row, 2), np.tile(following, 2)
        if last:
            following = np.zeros_like(following)
        if uniform:
            row, share = row // self.n_actions, share / self.n_actions
        return _outcomes(row, following, reward, share)

    def _too_many(self, h: int, n_groups: int) -> ValueError:
        return ValueError(
            f"returns_from: level {h}: expected at most {MOST_GROUPS} groups of trajectories of different origin, with "
            f"{MOST_CELLS} outcomes, got {n_groups} groups; ask for fewer levels in returns_from at a time"
        )

    def fingerprint(self) -> dict[str, str]:
        """Return what the answers depend on besides the environment; see `Sampler.fingerprint`."""
        return {"square": "expected"}

    def actions(self, level: int, rule: Rule) -> NDArray[np.int64] | None:
        """Return the action of a rule in each state of a level; see `Sampler.actions`.

        None where the rule is uniform or a score overflows.
        """
        return actions_everywhere(self.env, level, rule)

    def __reduce__(self) -> tuple[type[FlowSampler], tuple[FiniteMDP]]:
        return (FlowSampler, (self.env,))


class Step(NamedTuple):
    """The outcomes that occur in one step: group, next state, reward and number of trajectories of each."""

    group: Integers
    following: Integers
    reward: Floats | None
    size: Integers


class Outcomes:
    """The possible outcomes of each row, and a way to draw how often each occurs.

    The outcomes of a row are the leaves of a binary tree. Each node splits its count by a binomial draw between
    its halves, with the probability of the less likely one, so that small probabilities keep their relative accuracy.

    Parameters
    ----------
    following : numpy.ndarray of int, shape (rows, width)
        Next states; width is a power of two, filled up with outcomes of probability 0.
    reward : numpy.ndarray, shape (rows, width)
    share : numpy.ndarray, shape (rows, width)
        Probabilities, up to a factor for each row.
    """

    def __init__(self, following: Integers, reward: Floats, share: Floats) -> None:
        self.width = share.shape[1]
        self.following = following
        self.reward = reward if reward.any() else None
        self.splits: list[tuple[Floats, NDArray[np.bool_]]] = []
        while share.shape[1] > 1:
            left, right = share[:, ::2], share[:, 1::2]
            share = left + right
            smaller = np.minimum(left, right)
            # An empty node is never reached.
            self.splits.insert(0, (smaller / np.where(share > 0.0, share, 1.0), left < right))

    def draw(self, generator: np.random.Generator, rows: Integers, count: Integers) -> Step:
        """Draw the outcomes of `count` trajectories in each of `rows`."""
        if self.width == 1:
            reward = None if self.reward is None else self.reward[rows, 0]
            return Step(np.arange(len(rows)), self.following[rows, 0], reward, count)
        cells = count[:, None]
        for smaller, left_is_smaller in self.splits:
            drawn = binomial(generator, cells, smaller[rows])
            halves = np.empty((*cells.shape, 2), dtype=np.int64)
            halves[..., 0] = np.where(left_is_smaller[rows], drawn, cells - drawn)
            halves[..., 1] = cells - halves[..., 0]
            cells = halves.reshape(len(rows), -1)
        group, column = np.nonzero(cells)
        row = rows[group]
        reward = None if self.reward is None else self.reward[row, column]
        return Step(group, self.following[row, column], reward, cells[group, column])


def _outcomes(row: Integers, following: Integers, reward: Floats, share: Floats) -> Outcomes:
    """Return the outcomes with equal ones of a row merged and impossible ones dropped; every row has at least one."""
    possible = share > 0.0
    row, following, reward, share = row[possible], following[possible], reward[possible], share[possible]
    values, rank = np.unique(reward, return_inverse=True)
    key = (row * len(values) + rank) * (int(following.max()) + 1) + following
    key, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    row, following, reward = row[first], following[first], reward[first]
    share = _sums(inverse, share, len(key))
    counts = np.bincount(row)
    column = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    shape = (len(counts), 1 << (int(counts.max()) - 1).bit_length())
    next_states, rewards, shares = np.zeros(shape, dtype=np.int64), np.zeros(shape), np.zeros(shape)
    next_states[row, column], rewards[row, column], shares[row, column] = following, reward, share
    return Outcomes(next_states, rewards, shares)


def _sums(index: Integers, weights: Floats, size: int) -> Floats:
    """Sum of the weights of each index."""
    return np.bincount(index, weights=weights, minlength=size).astype(np.float64, copy=False)


class Seen(NamedTuple):
    """One return under way: the origin of each group, and mean and mean square of its rewards since then."""

    n_states: int
    origin: Integers
    mean: Floats
    square: Floats


class Groups(NamedTuple):
    """Groups of trajectories at one level, which differ in their state or in the returns under way (`seen`)."""

    state: Integers
    size: Integers
    seen: tuple[Seen, ...]

    def watched(self, n_states: int) -> Groups:
        """Begin a return here: the origin of each group is its state."""
        nothing = np.zeros(len(self.state))
        return self._replace(seen=(*self.seen, Seen(n_states, self.state, nothing, nothing)))

    def after(self, step: Step, n_states: int) -> Groups:
        """Return the groups after a step, equal ones merged."""
        if not self.seen:
            count = np.zeros(n_states, dtype=np.int64)
            np.add.at(count, step.following, step.size)
            state = np.flatnonzero(count)
            return Groups(state, count[state], ())
        seen = [self._paid(one, step) for one in self.seen]
        keys = [step.following, *(one.origin for one in seen)]
        index, n_groups, some = _classes(keys, [n_states, *(one.n_states for one in seen)])
        count = np.zeros(n_groups, dtype=np.int64)
        np.add.at(count, index, step.size)
        weight = step.size / count[index]
        merged = [
            Seen(
                one.n_states,
                one.origin[some],
                _sums(index, weight * one.mean, n_groups),
                _sums(index, weight * one.square, n_groups),
            )
            for one in seen
        ]
        return Groups(step.following[some], count, tuple(merged))

    @staticmethod
    def _paid(one: Seen, step: Step) -> Seen:
        origin, mean, square = one.origin[step.group], one.mean[step.group], one.square[step.group]
        if step.reward is None:
            return Seen(one.n_states, origin, mean, square)
        return Seen(one.n_states, origin, mean + step.reward, square + step.reward * (2.0 * mean + step.reward))


def _classes(keys: Sequence[Integers], sizes: Sequence[int]) -> tuple[Integers, int, Integers]:
    """Number the distinct tuples of keys, key i being in [0, sizes[i]): class of each, their number, one of each."""
    code, size = keys[0], sizes[0]
    for key, more in zip(keys[1:], sizes[1:], strict=True):
        if size * more >= 2**62:
            distinct, code = np.unique(code, return_inverse=True)
            size = len(distinct)
        code, size = code * more + key, size * more
    if size > 4 * len(code) + 1024:
        _, some, index = np.unique(code, return_index=True, return_inverse=True)
        return index, len(some), some
    representative = np.full(size, -1)
    representative[code] = np.arange(len(code))
    taken = representative >= 0
    some = representative[taken]
    return (np.cumsum(taken) - 1)[code], len(some), some
