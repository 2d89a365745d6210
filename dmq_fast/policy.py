"""Policies: one rule a level, immutable (paper, section 5)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmq_fast._support.checks import check_horizon, integer
from dmq_fast.kernels import (
    Fixed,
    Greedy,
    Rule,
    Uniform,
    as_csr,
    as_floats,
    as_numbers,
    greedy_actions,
    is_sparse,
)
from dmq_fast.observing import Observer, described, observer_of
from dmq_fast.rules import ExactGreedy, Optimistic
from dmq_fast.table_policy import TablePolicy

if TYPE_CHECKING:
    from dmq_fast._support.arrays import AnySparse, Sparse

__all__ = [
    "FOLLOWS_EXACT",
    "Policy",
    "Sizes",
    "check_policy",
    "check_rule",
    "rules_of",
]

FOLLOWS_EXACT = "only ExactSampler(env, arithmetic=...) in extended precision can follow it"
"""End of messages about an `ExactGreedy` rule where it cannot be followed."""


class Policy:
    """One rule for each of the H levels.

    Parameters
    ----------
    rules : sequence of Rule
        `Uniform()`, `Fixed(action)`, `Greedy(theta_h)` or `ExactGreedy(theta_h)` for levels 0 .. H-1. Policies share
        rules, never copy them.

    Raises
    ------
    TypeError, ValueError
        If an entry is not a rule, or there is none.

    Examples
    --------
    >>> import numpy as np
    >>> policy = Policy.fixed([2, 0, 1])
    >>> policy
    Policy([2][0][1])
    >>> policy.deviate(1, 2, np.zeros((3, 4, 2)))  # as before level 1, action 2 there, then greedy
    Policy([2][2]g)
    >>> Policy.greedy(np.eye(2)[None]).act(0, [[1.0, 0.0], [0.0, 1.0]])
    array([0, 1])
    """

    __slots__ = ("rules",)

    rules: tuple[Rule, ...]
    """One rule for each level."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        rules = tuple(rules)
        if not rules:
            raise ValueError("rules: expected at least one level, got none")
        for level, rule in enumerate(rules):
            if not isinstance(rule, Rule):
                raise TypeError(f"rules: expected a Rule at level {level}, got {type(rule).__name__}")
        object.__setattr__(self, "rules", rules)

    @classmethod
    def _of(cls, rules: tuple[Rule, ...]) -> Policy:
        """Return the policy of these rules, without checks."""
        policy = object.__new__(cls)
        object.__setattr__(policy, "rules", rules)
        return policy

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Policy is immutable; {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"Policy is immutable; {name} cannot be deleted")

    @classmethod
    def uniform(cls, horizon: int) -> Policy:
        """Return the purely random policy over `horizon` levels, the paper's initial policy."""
        return cls([Uniform()] * integer("horizon", horizon, 1))

    @classmethod
    def fixed(cls, actions: Sequence[int] | NDArray[Any]) -> Policy:
        """Return the policy that takes `actions[h]` at level h, whatever the state."""
        return cls([Fixed(action) for action in actions])

    @classmethod
    def greedy(cls, theta: ArrayLike) -> Policy:
        """Return the greedy policy of theta, shape (H, K, d): argmax_a phi(s)^T theta[h, a]."""
        return cls([Greedy(theta_h) for theta_h in as_floats("theta", theta, (None, None, None))])

    @classmethod
    def from_table(cls, actions: ArrayLike | Sequence[ArrayLike], env: Any) -> BoundPolicy:
        """Return the policy of a table of actions in a finite MDP whose features tell its states apart.

        It has the features inside (`bind`), so that it runs in any sampler and acts on what the environment shows.

        Parameters
        ----------
        actions : array_like of int
            Shape (S,): the same actions at every level; (H, S), or H arrays (S_h,); see `TablePolicy.from_table`.
        env : FiniteMDP
            Such as one of one-hot features.

        Raises
        ------
        ValueError
            If the table does not fit, or some states that need different actions look too much alike:
            `TablePolicy.from_table` then has the policy.

        Examples
        --------
        >>> import dmq_fast as dmq
        >>> env = dmq.environments.from_gymnasium("FrozenLake-v1", horizon=10)
        >>> policy = Policy.from_table([3] * 16, env)  # always up
        >>> policy.act_on(0, 0), env.value(policy)
        (3, 0.0)
        """
        table = TablePolicy.from_table(actions, env)
        theta = np.zeros((env.horizon, env.n_actions, env.dimension))
        for level, (rule, features) in enumerate(zip(table.rules, env.features, strict=True)):
            theta[level] = (features.T @ np.eye(env.n_actions)[rule]).T
            wrong = np.flatnonzero((greedy_actions(features, theta[level]) != rule) & ~env.ended[level])
            if wrong.size:
                raise ValueError(
                    f"env: expected features that tell states apart, such as one-hot ones, but those of state "
                    f"{wrong[0]} at level {level} are too much like others'; TablePolicy.from_table has the policy"
                )
        return cls.greedy(theta).bind(env)

    def deviate(self, level: int, action: int, theta: ArrayLike | Policy) -> Policy:
        """Return pi_h^a (paper, equation 1).

        Parameters
        ----------
        level : int
            h, 0 <= h < H: this policy is followed before it.
        action : int
            a, taken at level h.
        theta : array_like of shape (H, K, d), or Policy
            Followed after level h: greedy on theta, or the given policy. A snapshot: nothing that happens to
            the estimates later changes the policy returned.

        Raises
        ------
        TypeError, ValueError
            If level or action is no such integer, or theta of another shape or not finite; the message names it.
        """
        tail, horizon = theta if isinstance(theta, Policy) else Policy.greedy(theta), len(self.rules)
        if not (type(level) is int and 0 <= level < horizon):  # most deviations of a run go on here
            self._rule(level)
        if len(tail.rules) != horizon:
            raise ValueError(f"theta: expected {horizon} levels, got {len(tail.rules)}")
        rule = fixed(action) if type(action) is int else Fixed(action)
        # Concatenation takes two thirds of the time of unpacking.
        return Policy._of(self.rules[:level] + (rule,) + tail.rules[level + 1 :])  # noqa: RUF005

    def replace(self, level: int, rule: Rule) -> Policy:
        """Return the policy that follows `rule` at one level and this policy at the others."""
        self._rule(level)
        if not isinstance(rule, Rule):
            raise TypeError(f"rule: expected a Rule, got {type(rule).__name__}")
        return Policy._of((*self.rules[:level], rule, *self.rules[level + 1 :]))

    def _rule(self, level: int) -> Rule:
        """Return the rule of a level; raise for a level that does not exist."""
        if type(level) is int and 0 <= level < len(self.rules):
            return self.rules[level]  # the usual case, once for every batch of trajectories
        if integer("level", level, 0) >= len(self.rules):
            raise ValueError(f"level: expected an integer < {len(self.rules)}, got {level}")
        return self.rules[level]

    def digest(self, levels: int | None = None) -> bytes:
        """Return a digest of 16 bytes of the rules of the first `levels` levels, by default of all of them.

        Policies with equal rules have equal digests, and others different ones.
        """
        return hashlib.blake2b(b"".join(rule.digest for rule in self.rules[:levels]), digest_size=16).digest()

    @property
    def horizon(self) -> int:
        """Number of levels H."""
        return len(self.rules)

    def act(
        self,
        level: int,
        features: ArrayLike | AnySparse,
        *,
        n_actions: int | None = None,
        rng: np.random.Generator | None = None,
        earned: ArrayLike | None = None,
    ) -> NDArray[np.int64] | int:
        """Return the action of one state, features (d,), or the actions (n,) of a block, features (n, d).

        A block may be a SciPy sparse matrix or array.

        A uniform rule needs `n_actions` and an `rng` to draw from. An `Optimistic` one needs an `rng` for ties, and
        what the trajectories earned before this level, `earned`, a number or (n,); 0 by default.

        Raises
        ------
        TypeError, ValueError
            If the policy has no such level, if the features are not numbers or not as many as the weights of the rule,
            or if `n_actions` or `rng` is missing for a rule that needs it.
        """
        rule = self._rule(level)
        if rng is not None and not isinstance(rng, np.random.Generator):
            raise TypeError(f"rng: expected a numpy.random.Generator, got {type(rng).__name__}")
        dimension = rule.theta.shape[1] if isinstance(rule, Greedy | ExactGreedy) else None
        single = not is_sparse(features) and as_numbers("features", features).ndim == 1
        rows = block_of([features] if single else features, dimension)
        n: int = rows.shape[0]
        if isinstance(rule, Greedy):
            actions = greedy_actions(rows, rule.theta)
        elif isinstance(rule, ExactGreedy):
            actions = rule.actions(rows.toarray() if is_sparse(rows) else rows)
        elif isinstance(rule, Fixed):
            actions = np.full(n, rule.action, dtype=np.int64)
        elif isinstance(rule, Optimistic):
            if rng is None:
                raise ValueError(f"act: the rule of level {level} is optimistic and needs rng")
            before = np.broadcast_to(as_numbers("earned", 0.0 if earned is None else earned), n)
            dense = rows.toarray() if is_sparse(rows) else rows
            actions = rule.actions(dense, before, rng.random(len(dense)))
        elif n_actions is None or rng is None:
            raise ValueError(f"act: the rule of level {level} is uniform and needs n_actions and rng")
        else:
            actions = rng.integers(integer("n_actions", n_actions, 1), size=n)
        return int(actions[0]) if single else actions

    def bind(self, env: Any) -> BoundPolicy:
        """Return this policy with the features of an environment inside, which acts on its observations.

        Parameters
        ----------
        env : FiniteMDP, CompiledEnv, BatchEnvironment or Sampler

        Raises
        ------
        TypeError
            If it shows no features of observations.

        Examples
        --------
        >>> import dmq_fast as dmq
        >>> env = dmq.environments.from_gymnasium("CliffWalking-v1", horizon=20)
        >>> policy = Policy.greedy(env.optimal_theta).bind(env)
        >>> policy.act_on(0, 36)  # the state in which Gymnasium's episodes start: up
        0
        """
        observer = observer_of(env)
        if observer is None:
            raise TypeError(f"env: expected an environment with features of its states, got {type(env).__name__}")
        return BoundPolicy(self.rules, observer)

    def act_on(self, level: int, observation: Any, *, rng: np.random.Generator | None = None) -> Any:
        """Return the action for an observation of the environment that the policy was learned in, or `bind` got.

        Parameters
        ----------
        level : int
        observation : object
            Of an environment that is stepped (Gymnasium's, dm_env's, an object of one's own), one observation, or a
            block of n: an array, or a list of observations that are no arrays. Where it was learned with
            ``history="first"``, the pair of the first observation of the episode and the current one. Of tables, the
            number of a state or n of them (those of Gymnasium where the tables are Gymnasium's); of a
            `BatchEnvironment`, its own states; of a `CompiledEnv`, its own features, before any feature map.
        rng : numpy.random.Generator, optional
            For rules that draw.

        Returns
        -------
        int, or numpy.ndarray of int64, shape (n,)
            As the environment numbers its actions; where they are no integers, the action itself, or a list of n.

        Raises
        ------
        ValueError
            If the policy has no features inside, or the observation does not fit.
        """
        raise ValueError("act_on: this policy has no features inside; policy.bind(env) takes those of an environment")

    def probabilities(self, level: int, features: ArrayLike | AnySparse, n_actions: int) -> NDArray[np.float64]:
        """Return P[a | s], shape (n, K), for the states whose features (n, d), dense or sparse, are given.

        Raises
        ------
        TypeError, ValueError
            As `act`, or if `n_actions` does not fit the rule of the level.
        """
        rows = block_of(features, None)
        rule, n_actions = self._rule(level), integer("n_actions", n_actions, 1)
        check_rule(rule, level, n_actions, None, name="n_actions")
        if isinstance(rule, Uniform):
            return np.full((rows.shape[0], n_actions), 1.0 / n_actions)
        out = np.zeros((rows.shape[0], n_actions))
        out[np.arange(rows.shape[0]), self.act(level, rows)] = 1.0
        return out

    def __eq__(self, other: object) -> bool:
        return self.rules == other.rules if isinstance(other, Policy) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.rules)

    def __repr__(self) -> str:
        letters = "".join(
            "u" if isinstance(rule, Uniform) else f"[{rule.action}]" if isinstance(rule, Fixed) else "g"
            for rule in self.rules
        )
        return f"Policy({letters})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Policy, (self.rules,))


class BoundPolicy(Policy):
    """A policy with the features of an environment inside; equal to the policy without them.

    Attributes
    ----------
    observer : Observer
        What turns observations into features.
    """

    __slots__ = ("observer",)

    observer: Observer

    def __init__(self, rules: Sequence[Rule], observer: Observer) -> None:
        super().__init__(rules)
        object.__setattr__(self, "observer", observer)

    def act_on(self, level: int, observation: Any, *, rng: np.random.Generator | None = None) -> Any:
        """Return the action for an observation; see `Policy.act_on`."""
        seen = self.observer.see(level, observation)
        given: Any = self.act(level, seen.features, n_actions=self.observer.n_actions, rng=rng)
        return self.observer.named(given, seen.alone)

    def __reduce__(self) -> tuple[Any, ...]:
        # As in a file: an environment in the observer may be one that cannot be pickled.
        return (rebound, (self.rules, self.observer.describe()))


def rebound(rules: Sequence[Rule], data: dict[str, Any]) -> BoundPolicy:
    """Return a policy with the observer that was written down."""
    return BoundPolicy(rules, described(data))


def block_of(features: Any, dimension: int | None) -> NDArray[np.float64] | Sparse:
    """Return features (n, d), checked, in the form in which they came: dense or sparse."""
    convert: Any = as_csr if is_sparse(features) else as_floats
    rows: NDArray[np.float64] = convert("features", features, (None, dimension))
    return rows


@lru_cache(maxsize=256)
def fixed(action: int) -> Fixed:
    """Return the rule of one action; the same object for the same action, so that policies share it."""
    return Fixed(action)


class Sizes(Protocol):
    """Anything that has horizon, actions and dimension: an environment or a sampler."""

    @property
    def horizon(self) -> int:
        """Number of levels H."""

    @property
    def n_actions(self) -> int:
        """Number of actions K."""

    @property
    def dimension(self) -> int:
        """Feature dimension d."""


def rules_of(policy: Policy, name: str = "policy") -> tuple[Rule, ...]:
    """Return the rules of a policy; raise TypeError for anything else. `name` is the argument."""
    if not isinstance(policy, Policy):
        raise TypeError(f"{name}: expected a Policy, got {type(policy).__name__}")
    return policy.rules


def check_policy(sizes: Sizes, policy: Policy, *, name: str = "policy", exact: bool = True) -> None:
    """Raise unless `policy` is a Policy that fits the horizon, actions and dimension of `sizes`.

    Compiled rollouts need no more than `rules_of`: they check the rules in compiled code.

    Parameters
    ----------
    sizes : FiniteMDP, CompiledEnv, BatchEnvironment or Sampler
        Anything with `horizon`, `n_actions` and `dimension`.
    policy : Policy
    name : str, optional
        The argument that messages name.
    exact : bool, optional
        Whether `ExactGreedy` rules are accepted.

    Raises
    ------
    TypeError, ValueError
    """
    rules = rules_of(policy, name)
    check_horizon(policy, sizes.horizon, name)
    for level, rule in enumerate(rules):
        if isinstance(rule, ExactGreedy) and not exact:
            raise TypeError(f"{name}: level {level} is an ExactGreedy rule; {FOLLOWS_EXACT}")
        check_rule(rule, level, sizes.n_actions, sizes.dimension, name)


def check_rule(rule: Rule, level: int, n_actions: int, dimension: int | None, name: str = "policy") -> None:
    """Raise ValueError unless a rule fits; a `dimension` of None is not compared. `name` is the argument."""
    if isinstance(rule, Fixed) and rule.action >= n_actions:
        raise ValueError(f"{name}: level {level} takes action {rule.action}, expected < {n_actions}")
    if isinstance(rule, Greedy | ExactGreedy):
        shape = (n_actions, rule.theta.shape[1] if dimension is None else dimension)
        if rule.theta.shape != shape:
            raise ValueError(f"{name}: expected theta of shape {shape} at level {level}, got {rule.theta.shape}")
