"""Tabular baselines: they observe the state of a finite MDP, or the latent state of a block MDP."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.checks import count, flag
from dmq_fast.baselines.base import Baseline, Estimates, register
from dmq_fast.environments.compiled import CompiledEnv
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.homogeneity import AUTO, Homogeneous
from dmq_fast.kernels import (
    BernsteinLearner,
    DelayedQLearner,
    Episode,
    PolicyOptimisationLearner,
    UCBQLearner,
    as_positive,
    is_sparse,
)
from dmq_fast.policy import Policy
from dmq_fast.stopping.aim import as_share
from dmq_fast.table_policy import TablePolicy

if TYPE_CHECKING:
    from dmq_fast._support.arrays import Sparse

__all__ = ["BPIUCBVI", "OPPO", "UCBQ", "DelayedQ"]

Environment = FiniteMDP | CompiledEnv

# Of OPPO: its steps are so long that policies are greedy from far smaller ones on, and sums of them overflow far later.
LARGEST_ALPHA = 1e9


class Tabular(Baseline):
    """A baseline that learns a table of Q and returns its greedy policy."""

    def __init__(self, env: Environment, **options: Any) -> None:
        if isinstance(env, CompiledEnv) and not env.numbered:
            raise TypeError(f"env: expected a FiniteMDP or a block MDP, whose states are numbered, got {env!r}")
        super().__init__(env, **options)

    def estimates(self, learner: Any) -> Estimates:
        """Return the table and its greedy policy."""
        return self.greedy(learner.table)

    def greedy(self, q: Sequence[NDArray[np.float64]]) -> Estimates:
        """Return a table, H arrays (S_h, K), with its greedy policy."""
        table, env = tuple(q), self.env
        if isinstance(env, FiniteMDP):
            return Estimates(greedy_on_table(table, env, observed=True), table=table)
        assert env.latent is not None
        return Estimates(greedy_on_table(table, env.latent, observed=False), table=table)


@register
class UCBQ(Tabular):
    """Q-learning with upper confidence bounds of the Hoeffding kind.

    At the t-th visit of (h, s, a), with alpha_t = (H + 1) / (H + t),

        Q_h(s, a) <- (1 - alpha_t) Q_h(s, a) + alpha_t (r + min(top_{h+1}, max_b Q_{h+1}(s', b)) + c top_h sqrt(H / t)),

    from Q_h = top_h.

    Parameters
    ----------
    env : FiniteMDP or CompiledEnv
        A finite or block MDP.
    c : float, default 0.05
        >= 0. Stands for the paper's c sqrt(log(S K T / p)), with values of at most 1, in units of the range, instead of
        H. It multiplies how far targets scatter; noise s, in these units, makes it c (1 + s).
    alpha : float, optional
        A constant step size in (0, 1] instead of the paper's, which for deterministic transitions learns faster.
    clipped : bool, default True
        Keep Q_h itself at or below top_h. The paper does so with V only, where an action that was tried can look better
        than one that was not.
    optimism : {"flat", "steps"}
        The largest value hoped for at level h = 0, ..., H - 1, top_h: 1 in the place of the paper's H, or H - h, as of
        `LSVIUCB`. With H - h the first large reward may come earlier, but Q needs more visits to fall to its size.
    homogeneous : "auto", bool or sequence of int, default "auto"
        As of `BPIUCBVI`. A step then updates Q_h of all levels h of its label, from the last to the first, and t counts
        the visits at all of them.
    **options
        As of `Baseline`.

    Notes
    -----
    An episode costs O(H K), and O(H² K) where levels share data.

    Sharing is sound as far as optimism goes: Q_h is a weighted mean over the t visits whose next states are independent
    draws from one distribution, so the paper's lemma 4.3, by which Q_h >= Q*_h with high probability, holds at every
    level, with the t of all. Its bound of the regret does not carry over: it charges the error of a target at level
    h + 1 to the episode that went there, and now targets are of states that level h + 1 of that episode did not visit.

    Jin, Allen-Zhu, Bubeck and Jordan (2018). Is Q-learning provably efficient? NeurIPS. Algorithm 1.
    """

    name = "ucb-q"

    def __init__(
        self,
        env: Environment,
        *,
        c: float = 0.05,
        alpha: float | None = None,
        clipped: bool = True,
        optimism: str = "flat",
        homogeneous: Homogeneous = AUTO,
        **options: Any,
    ) -> None:
        options |= {"optimism": optimism, "homogeneous": homogeneous}
        super().__init__(env, c=c, alpha=alpha, clipped=flag("clipped", clipped), **options)

    def learner(self, episode: Episode) -> UCBQLearner:
        """Return the compiled learner."""
        c = as_positive("c", self.own["c"], zero=True) * (1.0 + self.noise)
        return UCBQLearner(episode, **(self.constants | {"c": c}), groups=self.groups)


@register
class DelayedQ(Tabular):
    """Delayed Q-learning with a table for every level.

    An entry changes only after m of its visits, to their mean target plus epsilon, and only by 2 epsilon or more.

    Parameters
    ----------
    env : FiniteMDP or CompiledEnv
        A finite or block MDP.
    m : int, default 20
        In [1, 2^63). With deterministic transitions and rewards 1 is enough. Noise s, in units of the range, makes it
        m (1 + s)², rounded up, so that means are as exact.
    epsilon : float, default 0.01
        >= 0, the paper's epsilon_1, in units of the range.
    homogeneous : "auto", bool or sequence of int, default "auto"
        As of `BPIUCBVI`. A step is then a visit at all levels of its label, from the last to the first.
    **options
        As of `Baseline`.

    Notes
    -----
    An episode costs O(H K), and O(H² K) where levels share data.

    Sharing is sound: an update takes the mean of m targets whose next states are independent draws from one
    distribution, which is all that the paper's proof that Q is optimistic asks of them.

    Strehl, Li, Wiewiora, Langford and Littman (2006). PAC model-free reinforcement learning. ICML. Episodes take the
    place of the discount: Q_h looks at level h + 1.
    """

    name = "delayed-q"

    def __init__(
        self,
        env: Environment,
        *,
        m: int = 20,
        epsilon: float = 0.01,
        homogeneous: Homogeneous = AUTO,
        **options: Any,
    ) -> None:
        super().__init__(env, m=count("m", m, 1), epsilon=epsilon, homogeneous=homogeneous, **options)

    def learner(self, episode: Episode) -> DelayedQLearner:
        """Return the compiled learner."""
        m = min(ceil(self.own["m"] * (1.0 + self.noise) ** 2), 2**63 - 1) if self.noise > 0.0 else self.own["m"]
        return DelayedQLearner(episode, m, self.own["epsilon"], groups=self.groups)

    def counts(self, learner: Any) -> dict[str, Any]:
        """Return the numbers of attempted and successful updates."""
        return {"attempts": learner.n_attempts, "updates": learner.n_updates}

    def warnings(self, learner: Any) -> list[str]:
        """Return whether there was an update at all."""
        return [] if learner.n_updates > 0 else [f"no entry changed: too few episodes for m = {self.own['m']}"]


class Model(Tabular):
    """A baseline that plans in a model of every level and returns the plan without optimism."""

    def estimates(self, learner: Any) -> Estimates:
        """Return Q of the model itself."""
        return self.greedy(learner.fit())


@register
class BPIUCBVI(Model):
    """Optimistic value iteration with bonuses of the Bernstein kind, which stops by itself.

    After every episode, U and L are computed for each pair (s, a) of each level, from the last level to the first, in
    the model of all episodes so far:

        U_h(s, a) = min(cap_h, mean(r + max_b U_{h+1}(s', b)) + bonus),
        L_h(s, a) = max(0, mean(r + max_b L_{h+1}(s', b)) - bonus),
        bonus = c1 sqrt(Var(r + max_b U_{h+1}(s', b)) / n) + c2 / n,   n visits of the pair.

    All is in units of the range. Noise s, in these units, adds c1 s / sqrt(n) to the bonus: the variance of few noisy
    rewards may be far too small.

    Episodes are greedy on U, ties at random. The run stops once min(1, U) - L of the start is at most epsilon. The
    policy returned is then greedy on L, so it is within epsilon of the optimum if U and L are bounds. Where the run has
    not stopped, the policy is greedy on the model itself.

    Parameters
    ----------
    env : FiniteMDP or CompiledEnv
        A finite or block MDP.
    c1 : float, default 1.0
        >= 0. The theorem's is 3 sqrt(log(3 S K H / delta) + log(8 e (n + 1))), far too cautious in practice.
    c2 : float, default 0.3
        >= 0. The theorem's is 14 H (log(3 S K H / delta) + S log(8 e (n + 1))), still more so. A pair whose reward
        comes with chance p is given up where c2 / epsilon visits earned nothing, so with chance
        (1 - p)^(c2 / epsilon): raise c2 where rewards are rare.
    epsilon : float, str or None, default "5%"
        In points, > 0 and less than the width of the range; or a text such as "5%", a share of this width. With None
        the run learns from all its episodes.
    optimism : str, default "steps"
        cap_h, also U of a pair that was never tried: "steps" counts the steps to go, H at the first level and 1 at the
        last; "flat" is 1. Both are upper bounds. With "flat" a path with one unknown pair looks as good as one with
        many.
    homogeneous : "auto", bool or sequence of int, default "auto"
        Whether transitions and rewards are the same at every level, so that visits at one are data for all; or H
        labels: levels of one label are the same, and have as many states. "auto": what the environment declares; tables
        know, a block MDP says so. Nothing tests it during the run. What follows the last step is not shown, so the last
        level learns from all steps, and the others from all but the last. An episode that has ended is then known to
        earn nothing more.
    **options
        As of `Baseline`.

    Notes
    -----
    Sharing is sound: the model of a pair is one of independent draws, whatever level they were seen at, and U and L of
    each level are bounds if the model is close to the truth. The union bound of the theorem is then over the S K pairs
    of a label instead of the S K H of all levels, so log(3 S K H / delta) becomes log(3 S K / delta). A bonus counts
    wherever its pair is met: one that is met k times an episode has to be visited k c2 / epsilon times before the gap
    closes, which keeps the chance to give up a rare reward at (1 - p)^(k c2 / epsilon).

    Where the run has stopped, ``counts["stopped_after"]`` is the number of its episodes. Else that is None, there is a
    warning, and the status is "max_trajectories" if all `n_episodes` were played. ``counts["gap"]`` is the last
    min(1, U) - L of the start, in the environment's own rewards. If there are several first states, the gap is its
    mean over those seen, plus a bonus for the error of the mean: the draw of the start counts as a step. An episode
    costs O(K S + E), S states of all levels, E distinct transitions seen, once for each level that they are data of.

    Menard, Domingues, Jonsson, Kaufmann, Leurent and Valko (2021). Fast active learning for pure exploration in
    reinforcement learning. ICML. There, rewards are known, U and L have a further term mean(U - L) / H, and the rule
    bounds the loss of the policy greedy on U by a recursion of its own. The rule here, U - L and the policy greedy on
    L, is that of BPI-UCRL: Kaufmann, Menard, Domingues, Jonsson, Leurent and Valko (2021). Adaptive reward-free
    exploration. ALT. The bonuses are those of UCBVI and EULER: Azar, Osband and Munos (2017), ICML; Zanette and
    Brunskill (2019), ICML.
    """

    name = "bpi-ucbvi"

    def __init__(
        self,
        env: Environment,
        *,
        c1: float = 1.0,
        c2: float = 0.3,
        epsilon: float | str | None = "5%",
        optimism: str = "steps",
        homogeneous: Homogeneous = AUTO,
        **options: Any,
    ) -> None:
        super().__init__(env, c1=c1, c2=c2, epsilon=epsilon, optimism=optimism, homogeneous=homogeneous, **options)

    def learner(self, episode: Episode) -> BernsteinLearner:
        """Return the compiled learner."""
        constants = self.constants | {"epsilon": self.aim(), "noise": self.noise}
        return BernsteinLearner(episode, **constants, groups=self.groups)

    def aim(self) -> float | None:
        """Return epsilon in units of the range."""
        epsilon, width = self.own["epsilon"], self.rewards.width
        if epsilon is None or isinstance(epsilon, str):
            return None if epsilon is None else as_share(epsilon)
        if as_positive("epsilon", epsilon) >= width:
            raise ValueError(
                f"epsilon: expected a number in (0, {width:g}), the width of the range, or None, got {epsilon!r}"
            )
        return self.rewards.in_units(epsilon)

    def estimates(self, learner: Any) -> Estimates:
        """Return the lower values if the run has stopped, else Q of the model itself."""
        return self.greedy(learner.lower) if learner.stopped else super().estimates(learner)

    def counts(self, learner: Any) -> dict[str, Any]:
        """Return the number of episodes after which the run stopped, or None, and the last gap."""
        stopped_after = learner.n_episodes if learner.stopped else None
        return {"stopped_after": stopped_after, "gap": self.rewards.difference(learner.gap)}

    def warnings(self, learner: Any) -> list[str]:
        """Return a warning if the run ended before it stopped by its rule."""
        if self.stopped(learner) is not False:
            return []
        gap, epsilon = map(self.rewards.difference, (learner.gap, self.aim() or 0.0))
        return [f"not stopped by its rule: the gap is {gap:.3g}, epsilon = {epsilon:g}"]

    def stopped(self, learner: Any) -> bool | None:
        """Return whether the gap is at most epsilon; None without epsilon."""
        return None if self.own["epsilon"] is None else learner.stopped


@register
class OPPO(Model):
    """Optimistic proximal policy optimisation, with tables.

    Episodes follow a stochastic policy pi, at first uniform. After each,

        Q_h(s, a) = min(cap_h, mean(r + V_{h+1}(s')) + beta / sqrt(n)),  V_h(s) = sum_a pi_h(a | s) Q_h(s, a),

    n visits of the pair, backward in the model of all episodes so far, and pi_h(a | s) becomes proportional to
    pi_h(a | s) exp(alpha Q_h(s, a)). The policy returned is greedy on Q of the model itself.

    Parameters
    ----------
    env : FiniteMDP or CompiledEnv
        A finite or block MDP.
    alpha : float, default 1.0
        In [0, 1e9]. The theorem's is sqrt(2 log K / (H² T)), T episodes and returns of up to H: far too small here.
    beta : float, default 0.3
        >= 0. The theorem's is c S K H sqrt(log(S K H T / p)) with tables of S states a level and returns of up to H. It
        multiplies how far targets scatter; noise s, in units of the range, makes it beta (1 + s).
    optimism : str, default "steps"
        cap_h, also Q of a pair that was never tried: "steps", as in the paper, counts the steps to go; "flat" is 1.
    homogeneous : "auto", bool or sequence of int, default "auto"
        As of `BPIUCBVI`. Policies are evaluated in the model of all levels of a label; pi_h stays one for each level.
    **options
        As of `Baseline`.

    Notes
    -----
    The paper's least squares with unit vectors for pairs and a ridge that goes to 0, so tables are exact. An episode
    costs O(K S + E), S states of all levels, E distinct transitions seen, once for each level that they are data of.

    Sharing is sound: the evaluation of pi is least squares on the transitions so far, of which there are more, and its
    error has the same bound in terms of n. The step of the policy does not look at data.

    Cai, Yang, Jin and Wang (2020). Provably efficient exploration in policy optimization. ICML. Algorithm 1. There, the
    rewards of all pairs are shown after each episode and may change, and no policy is returned.
    """

    name = "oppo"

    def __init__(
        self,
        env: Environment,
        *,
        alpha: float = 1.0,
        beta: float = 0.3,
        optimism: str = "steps",
        homogeneous: Homogeneous = AUTO,
        **options: Any,
    ) -> None:
        super().__init__(env, alpha=alpha, beta=beta, optimism=optimism, homogeneous=homogeneous, **options)

    def learner(self, episode: Episode) -> PolicyOptimisationLearner:
        """Return the compiled learner."""
        if as_positive("alpha", self.own["alpha"], zero=True) > LARGEST_ALPHA:
            raise ValueError(f"alpha: expected a number in [0, {LARGEST_ALPHA:g}], got {self.own['alpha']!r}")
        beta = as_positive("beta", self.own["beta"], zero=True) * (1.0 + self.noise)
        return PolicyOptimisationLearner(episode, **(self.constants | {"beta": beta}), groups=self.groups)


def greedy_on_table(table: Sequence[NDArray[np.float64]], latent: FiniteMDP, observed: bool) -> Policy | TablePolicy:
    """Return the policy that is greedy on Q, H arrays (S_h, K), ties to the smallest action.

    A `Policy`, which runs anywhere, where one sees the features of the finite MDP (`observed`) and these are distinct
    unit vectors, so that the table is linear in them; else a `TablePolicy`.
    """
    if not (observed and all(distinct_units(features) for features in latent.features)):
        return TablePolicy([q.argmax(axis=1) for q in table])
    theta = [q.T @ features for q, features in zip(table, latent.features, strict=True)]
    return Policy.greedy(np.array(theta))


def distinct_units(features: NDArray[np.float64] | Sparse) -> bool:
    """Return whether the rows are distinct unit vectors."""
    stored = features.data if is_sparse(features) else features
    units = np.isin(stored, (0.0, 1.0)).all() and (features.sum(axis=1) == 1.0).all()
    return bool(units and (features.sum(axis=0) <= 1.0).all())
