"""Quantities that the proof of the theorem bounds, computed exactly on a finite MDP.

There are three, of an MDP and its policies: the constant of Low Variance (paper, assumption 3.1), the probability of a
suboptimal action (lemma A.1), and the mean square error of the estimates under the policies of a cover (invariant 1)
and under those that were checked (invariant 2). With finitely many states each is a sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.kernels import as_floats
from dmq_fast.policy import Policy, check_policy
from dmq_fast.results.result import DMQResult

__all__ = [
    "checked_policies",
    "low_variance",
    "policy_values",
    "suboptimal_probability",
    "value_error",
]

Floats = NDArray[np.float64]


def policy_values(mdp: FiniteMDP, policy: Policy) -> tuple[Floats, ...]:
    """Return V^pi as H arrays (S_h,): the expected sum of rewards from each state on.

    Raises
    ------
    ValueError
        If the policy does not fit the MDP.
    """
    check_policy(mdp, policy)
    values: list[Floats] = []
    for level in reversed(range(mdp.horizon)):
        # Q^pi = r + P V^pi
        q = mdp.expected_rewards[level]
        if values:
            q = q + mdp.expected_ahead(level, values[-1])
        probabilities = policy.probabilities(level, mdp.features[level], mdp.n_actions)
        values.append((probabilities * q).sum(axis=1))
    return tuple(values[::-1])


def low_variance(mdp: FiniteMDP, policy: Policy) -> Floats:
    """Return E(V^pi - V*)^2 / (E|V^pi - V*|)^2 at each level, under the policy's own state distribution.

    The constant C of Low Variance (assumption 3.1) is the largest of these ratios over all levels and *deterministic*
    policies; it is never below 1. Policies that choose at random, such as every pi_h^a of a cover that began with the
    uniform policy, may exceed C by any factor (docs/findings.md, A).

    Parameters
    ----------
    mdp : FiniteMDP
    policy : Policy
        The policy pi, with any rules.

    Returns
    -------
    numpy.ndarray, shape (H,)
        1 at levels where no value is lost. Losses of a state up to ``mdp.gap_tolerance`` are rounding and count as 0.

    Raises
    ------
    ValueError
        If the policy does not fit the MDP.
    """
    ratios = np.ones(mdp.horizon)
    values = policy_values(mdp, policy)
    for level, distribution in enumerate(mdp.occupancy(policy)):
        loss = mdp.optimal_v[level] - values[level]
        loss[loss <= mdp.gap_tolerance] = 0.0
        mean = distribution @ loss
        if mean > 0.0:
            # Losses relative to their mean: the squares of tiny ones would underflow.
            ratios[level] = distribution @ (loss / mean) ** 2
    return ratios


def suboptimal_probability(mdp: FiniteMDP, policy: Policy) -> Floats:
    """Return the probability of taking an action of positive gap at each level, under the policy's own distribution.

    This is P[pi(s_h) != pi*(s_h)] of lemma A.1, where every action that ties for the optimum counts as optimal. If
    it is at most epsilon / H at every level, epsilon in units of the value range, the policy is epsilon-optimal.

    Parameters
    ----------
    mdp : FiniteMDP
    policy : Policy

    Returns
    -------
    numpy.ndarray, shape (H,)
        The probabilities. Gaps up to ``mdp.gap_tolerance`` are ties.

    Raises
    ------
    ValueError
        If the policy does not fit the MDP.
    """
    check_policy(mdp, policy)
    probability = np.empty(mdp.horizon)
    for level, distribution in enumerate(mdp.occupancy(policy)):
        wrong = mdp.optimal_v[level][:, None] - mdp.optimal_q[level] > mdp.gap_tolerance
        taken = policy.probabilities(level, mdp.features[level], mdp.n_actions)
        probability[level] = distribution @ (taken * wrong).sum(axis=1)
    return probability


def value_error(mdp: FiniteMDP, theta: ArrayLike, policies: Sequence[Sequence[Policy]]) -> tuple[Floats, ...]:
    """Return E (phi(s_h)^T theta_h^a - Q*(s_h, a))^2 for each level, action, and policy of a cover.

    In squared points, as Q* is in points. In units of the value range, the proof keeps it below gamma^2 epsilon / (4 H)
    for every pi in Pi_h (invariant 1 of the proof of Theorem 6.1).

    Parameters
    ----------
    mdp : FiniteMDP
    theta : array_like, shape (H, K, d)
        Estimates, such as `Result.theta`.
    policies : sequence of H sequences of Policy
        Pi_h, such as `Result.cover`.

    Returns
    -------
    tuple of H numpy.ndarray, each of shape (len(policies[h]), K)
        Entry `[i, a]` of array h is the error of action a under the state distribution of `policies[h][i]`.

    Raises
    ------
    TypeError, ValueError
        If theta, the number of levels or a policy does not fit the MDP.
    """
    estimates = as_floats("theta", theta, (mdp.horizon, mdp.n_actions, mdp.dimension))
    if len(policies) != mdp.horizon:
        raise ValueError(f"policies: expected {mdp.horizon} levels, got {len(policies)}")
    distributions: dict[Policy, tuple[Floats, ...]] = {}
    errors = []
    for level, members in enumerate(policies):
        squares = (mdp.features[level] @ estimates[level].T - mdp.optimal_q[level]) ** 2
        error = np.empty((len(members), mdp.n_actions))
        for i, policy in enumerate(members):
            if policy not in distributions:
                check_policy(mdp, policy)
                distributions[policy] = mdp.occupancy(policy)
            error[i] = distributions[policy][level] @ squares
        errors.append(error)
    return tuple(errors)


class Checked(NamedTuple):
    """Maxima by level, shape (H,), over all pi_h^a of earlier levels h; 0 (error) and 1 (low variance) at the first."""

    error: Floats
    low_variance: Floats


def checked_policies(mdp: FiniteMDP, result: DMQResult) -> Checked:
    """Measure the policies that the oracle checks: pi_h^a for every h, a and pi_h in Pi_h.

    Parameters
    ----------
    mdp : FiniteMDP
        The MDP of the run.
    result : DMQResult
        The run. Policies of its covers act before level h, its policy after it.

    Returns
    -------
    error : numpy.ndarray, shape (H,)
        Largest E (phi(s_h')^T theta_h'^a' - Q*(s_h', a'))^2 over pi_h^a and a', which invariant 2 of the proof of
        Theorem 6.1 bounds by gamma^2 epsilon / (4 H).
    low_variance : numpy.ndarray, shape (H,)
        Largest E(V^pi - V*)^2 / (E|V^pi - V*|)^2 under a pi_h^a, which assumption 3.1 bounds by C. The proof uses it
        at level h + 1, for the bias of the regression on level h. 1 where no value is lost.

    Raises
    ------
    TypeError, ValueError
        If the result does not fit the MDP.
    """
    theta = as_floats("theta", result.theta, (mdp.horizon, mdp.n_actions, mdp.dimension))
    values = policy_values(mdp, result.policy)
    errors, ratios = np.zeros(mdp.horizon), np.ones(mdp.horizon)
    # Row i: the distribution of the state under the i-th pi_h^a, of all h before the level.
    rows = np.empty((0, mdp.n_states[0]))
    occupancies: dict[Policy, tuple[Floats, ...]] = {}
    for level in range(mdp.horizon):
        if level:
            squares = (mdp.features[level] @ theta[level].T - mdp.optimal_q[level]) ** 2
            loss = mdp.optimal_v[level] - values[level]
            loss[loss <= mdp.gap_tolerance] = 0.0
            means = rows @ loss
            some = means > 0.0
            # Losses relative to their mean: the squares of tiny ones would underflow.
            spread = (rows[some] * (loss / means[some, None]) ** 2).sum(axis=1)
            errors[level] = (rows @ squares).max(initial=0.0)
            ratios[level] = spread.max(initial=1.0)
        if level == mdp.horizon - 1:
            break
        taken = result.policy.probabilities(level, mdp.features[level], mdp.n_actions)
        onwards = mdp.transitions_under(level, taken)
        for policy in result.cover[level]:
            if policy not in occupancies:
                check_policy(mdp, policy)
                occupancies[policy] = mdp.occupancy(policy)
        arrivals = np.array([occupancies[policy][level] for policy in result.cover[level]])
        deviations = mdp.distributions_ahead(level, arrivals)  # (|Pi_h|, K, S_h+1)
        rows = np.concatenate([rows @ onwards, deviations.reshape(-1, deviations.shape[-1])])
        # Different ways to the same distribution need not be followed twice.
        rows = np.unique(rows, axis=0)
    return Checked(errors, ratios)
