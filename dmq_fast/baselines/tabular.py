"""Tabular baselines: they observe the state of a finite MDP, or the latent state of a block MDP."""

from __future__ import annotations

from typing import Any

from dmq_fast._support.checks import count, flag
from dmq_fast.baselines.base import Baseline, Estimates, register
from dmq_fast.baselines.table import greedy_on_table
from dmq_fast.environments.compiled import CompiledEnv
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.kernels import DelayedQLearner, Episode, UCBQLearner

__all__ = ["UCBQ", "DelayedQ"]

Environment = FiniteMDP | CompiledEnv


class Tabular(Baseline):
    """A baseline that learns a table of Q and returns its greedy policy."""

    def __init__(self, env: Environment, **options: Any) -> None:
        if isinstance(env, CompiledEnv) and not env.numbered:
            raise TypeError(f"env: expected a FiniteMDP or a block MDP, whose states are numbered, got {env!r}")
        super().__init__(env, **options)

    def estimates(self, learner: Any) -> Estimates:
        """Return the table and its greedy policy."""
        table, env = tuple(learner.table), self.env
        if isinstance(env, FiniteMDP):
            return Estimates(greedy_on_table(table, env, observed=True), table=table)
        assert env.latent is not None
        return Estimates(greedy_on_table(table, env.latent, observed=False), table=table)


@register
class UCBQ(Tabular):
    """Q-learning with upper confidence bounds of the Hoeffding kind.

    At the t-th visit of (h, s, a), with alpha_t = (H + 1) / (H + t),

        Q_h(s, a) <- (1 - alpha_t) Q_h(s, a) + alpha_t (r + min(1, max_b Q_{h+1}(s', b)) + c sqrt(H / t)).

    Parameters
    ----------
    env : FiniteMDP or CompiledEnv
        A finite or block MDP.
    c : float, default 0.05
        >= 0. Stands for the paper's c sqrt(log(S K T / p)), with returns of at most 1 instead of H.
    alpha : float, optional
        A constant step size in (0, 1] instead of the paper's, which for deterministic transitions learns faster.
    clipped : bool, default True
        Keep Q itself at or below 1. The paper does so with V only, where an action that was tried can look better than
        one that was not.
    **options
        As of `Baseline`.

    Notes
    -----
    Jin, Allen-Zhu, Bubeck and Jordan (2018). Is Q-learning provably efficient? NeurIPS. Algorithm 1.
    """

    name = "ucb-q"

    def __init__(
        self, env: Environment, *, c: float = 0.05, alpha: float | None = None, clipped: bool = True, **options: Any
    ) -> None:
        super().__init__(env, c=c, alpha=alpha, clipped=flag("clipped", clipped), **options)

    def learner(self, episode: Episode) -> UCBQLearner:
        """Return the compiled learner."""
        return UCBQLearner(episode, **self.own)


@register
class DelayedQ(Tabular):
    """Delayed Q-learning with a table for every level.

    An entry changes only after m of its visits, to their mean target plus epsilon, and only by 2 epsilon or more.

    Parameters
    ----------
    env : FiniteMDP or CompiledEnv
        A finite or block MDP.
    m : int, default 20
        In [1, 2^63). With deterministic transitions and rewards 1 is enough.
    epsilon : float, default 0.01
        >= 0, the paper's epsilon_1.
    **options
        As of `Baseline`.

    Notes
    -----
    Strehl, Li, Wiewiora, Langford and Littman (2006). PAC model-free reinforcement learning. ICML. Episodes take the
    place of the discount: Q_h looks at level h + 1.
    """

    name = "delayed-q"

    def __init__(self, env: Environment, *, m: int = 20, epsilon: float = 0.01, **options: Any) -> None:
        super().__init__(env, m=count("m", m, 1), epsilon=epsilon, **options)

    def learner(self, episode: Episode) -> DelayedQLearner:
        """Return the compiled learner."""
        return DelayedQLearner(episode, **self.own)

    def counts(self, learner: Any) -> dict[str, Any]:
        """Return the numbers of attempted and successful updates."""
        return {"attempts": learner.n_attempts, "updates": learner.n_updates}

    def warnings(self, learner: Any) -> list[str]:
        """Return whether there was an update at all."""
        return [] if learner.n_updates > 0 else [f"no entry changed: too few episodes for m = {self.own['m']}"]
