"""What can be proved or measured about a policy or a result.

The proof of the theorem rests on three quantities of an MDP and its policies: the constant of Low Variance (paper,
assumption 3.1), the probability of a suboptimal action (lemma A.1), and the mean square error of the estimates under
the policies of a cover (invariant 1) and under those that were checked (invariant 2). With finitely many states each is
a sum. What lemmas A.4 to A.6 say about covers and estimates can be held against any run. `certificate` puts all of it
together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.kernels import as_floats, as_positive
from dmq_fast.policy import Policy
from dmq_fast.samplers.protocol import check_policy
from dmq_fast.theory import finite_cover_bound, printed_cover_bound, ridge_norm_bound, sure_cover_bound

if TYPE_CHECKING:
    from dmq_fast.result import Result

__all__ = [
    "Statement",
    "certificate",
    "checked_policies",
    "low_variance",
    "policy_values",
    "suboptimal_probability",
    "value_error",
]

Floats = NDArray[np.float64]

ROUNDING = 1e-9
"""Share of the right side by which the left may be larger: what is compared went through factorisations."""


LARGEST_LOG = 700.0
"""Of a number that float64 holds."""


class Statement(NamedTuple):
    """left <= right, which a lemma says or needs: a name, the formula, where in the paper it is, and both sides."""

    name: str
    formula: str
    source: str
    left: float
    right: float

    @property
    def holds(self) -> bool:
        """Whether left <= right, or they are equal but for rounding."""
        return self.left <= self.right + abs(self.right) * ROUNDING


def policy_values(mdp: FiniteMDP, policy: Policy) -> tuple[Floats, ...]:
    """Return V^pi, H arrays (S_h,): the expected return from each state on.

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
            q = q + mdp.P[level] @ values[-1]
        probabilities = policy.probabilities(level, mdp.features[level], mdp.n_actions)
        values.append((probabilities * q).sum(axis=1))
    return tuple(values[::-1])


def low_variance(mdp: FiniteMDP, policy: Policy) -> Floats:
    """Return E(V^pi - V*)^2 / (E|V^pi - V*|)^2 at each level, under the policy's own state distribution.

    The constant C of Low Variance (assumption 3.1) is the largest of these ratios over all levels and *deterministic*
    policies; it is never below 1. Policies that choose at random, as every pi_h^a does whose cover began with the
    uniform policy, may exceed C by any factor (finding A in `dmq_fast.theory`).

    Parameters
    ----------
    mdp : FiniteMDP
    policy : Policy
        pi, of any kind of rules.

    Returns
    -------
    numpy.ndarray, shape (H,)
        1 where nothing is lost. Losses of a state up to ``mdp.gap_tolerance`` are rounding and count as 0.

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

    This is P[pi(s_h) != pi*(s_h)] of lemma A.1, where any action may count as optimal that ties for the optimum: if it
    is at most epsilon / H at every level, the policy is epsilon-optimal.

    Parameters
    ----------
    mdp : FiniteMDP
    policy : Policy

    Returns
    -------
    numpy.ndarray, shape (H,)
        Gaps up to ``mdp.gap_tolerance`` are ties.

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

    The proof keeps it below gamma^2 epsilon / (4 H) for every pi in Pi_h (invariant 1 of the proof of Theorem 6.1).

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
        Entry [i, a] of array h is the error of action a where policies[h][i] leads.

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
    """What is largest over all pi_h^a that lead to a level, h before it: each shape (H,), 0 or 1 at the first level."""

    error: Floats
    low_variance: Floats


def checked_policies(mdp: FiniteMDP, result: Result) -> Checked:
    """Measure the policies that the oracle is asked about, pi_h^a for every h, a and pi_h in Pi_h.

    Parameters
    ----------
    mdp : FiniteMDP
        What the result was learned on.
    result : Result
        Its covers are followed before level h, its policy after it.

    Returns
    -------
    error : numpy.ndarray, shape (H,)
        Largest E (phi(s_h')^T theta_h'^a' - Q*(s_h', a'))^2 over pi_h^a and a', which invariant 2 of the proof of
        Theorem 6.1 bounds by gamma^2 epsilon / (4 H).
    low_variance : numpy.ndarray, shape (H,)
        Largest E(V^pi - V*)^2 / (E|V^pi - V*|)^2 under a pi_h^a, which assumption 3.1 bounds by C. It is used at level
        h + 1, for the bias of the regression on level h. 1 where nothing is lost.

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
        transitions = mdp.P[level]
        taken = result.policy.probabilities(level, mdp.features[level], mdp.n_actions)
        onwards = (taken[:, None, :] @ transitions)[:, 0]
        for policy in result.cover[level]:
            if policy not in occupancies:
                check_policy(mdp, policy)
                occupancies[policy] = mdp.occupancy(policy)
        arrivals = np.array([occupancies[policy][level] for policy in result.cover[level]])
        deviations = np.tensordot(arrivals, transitions, axes=1)  # (|Pi_h|, K, S_h+1)
        rows = np.concatenate([rows @ onwards, deviations.reshape(-1, deviations.shape[-1])])
        # Different ways to the same distribution need not be followed twice.
        rows = np.unique(rows, axis=0)
    return Checked(errors, ratios)


def certificate(result: Result, mdp: FiniteMDP | None = None, *, epsilon: float | None = None) -> dict[str, Any]:
    """Hold a run against the lemmas of the paper.

    Parameters
    ----------
    result : Result
    mdp : FiniteMDP, optional
        What it was learned on. With it, values, errors and probabilities are exact; without it only what the run
        itself recorded is looked at.
    epsilon : float, optional
        Target accuracy, > 0, for the invariants of the proof. Without it, the smallest that they allow is returned.

    Returns
    -------
    dict
        What JSON can hold; None where something was not measured.

        - "parameters", "horizon", "n_actions", "dimension", "variant", "status": of the run.
        - "statements": a list of `Statement` as dicts, with "holds".
        - "levels": for each level "cover_size", "oracle_calls", "trues", "nearest_false" (the largest v / eps_t of a
          False) and "raises": for each True the "call", an index of the history, the potential log det(S + eps_r I)
          "before" and "after", the "factor" of the determinant, and the number of "policies" that S then stands for.
          With `mdp` also "error_cover" (invariant 1), "error_checked" (invariant 2), "error_returned" (equation 3),
          "suboptimal" (lemma A.1) and "low_variance" (assumption 3.1).
        - "exact": None, or "value", "optimal_value", "loss", "loss_bound" (lemma A.1), "gap", "low_variance", and
          "smallest_epsilon": for which the errors are as invariants 1 and 2 and equation 3 want them.

    Raises
    ------
    TypeError, ValueError
        If the MDP does not fit the result, or epsilon is no positive number.
    """
    if mdp is not None and not isinstance(mdp, FiniteMDP):
        raise TypeError(f"mdp: expected a FiniteMDP, got {type(mdp).__name__}")
    if epsilon is not None:
        epsilon = as_positive("epsilon", epsilon)
        if mdp is None:
            raise ValueError("epsilon: expected with an mdp only, since without one no error is known")
    horizon, n_actions, dimension = result.theta.shape
    levels = list(level_records(result))
    statements = list(run_statements(result, levels))
    exact = None
    if mdp is not None:
        exact = measure(result, mdp, levels)
        statements += exact_statements(exact, levels, epsilon)
    found: dict[str, Any] = plain(
        {
            "variant": result.variant,
            "status": result.status,
            "horizon": horizon,
            "n_actions": n_actions,
            "dimension": dimension,
            "parameters": result.parameters,
            "epsilon": epsilon,
            "statements": [statement._asdict() | {"holds": statement.holds} for statement in statements],
            "levels": levels,
            "exact": exact,
        }
    )
    return found


def level_records(result: Result) -> Iterator[dict[str, Any]]:
    """What the run recorded of each level."""
    columns = result.history.columns()
    trues = np.flatnonzero(columns["decision"])
    raised: list[list[dict[str, Any]]] = [[] for _ in result.cover]
    for call, (before, after) in zip(trues.tolist(), result.history.potentials.tolist(), strict=True):
        factor = math.exp(min(after - before, LARGEST_LOG))
        step = {"call": call, "before": before, "after": after, "factor": factor}
        raised[columns["level"][call]].append(step)
    initial = n_initial(result)
    for steps in raised:
        for i, step in enumerate(steps):
            step["policies"] = initial + i + 1
    with_value = ~columns["decision"] & ~np.isnan(columns["value"])
    for level, policies in enumerate(result.cover):
        here = columns["level"] == level
        v = columns["value"][here & with_value]
        yield {
            "level": level,
            "cover_size": len(policies),
            "oracle_calls": int(here.sum()),
            "trues": len(raised[level]),
            "nearest_false": float(v.max() / result.parameters["eps_t"]) if v.size else None,
            "raises": raised[level],
        }


def n_initial(result: Result) -> int:
    """How many policies every cover began with."""
    columns = result.history.columns()
    raised = columns["level"][columns["decision"]]
    if result.status == "max_policies":
        raised = raised[:-1]  # The budget refused the policy of the last True.
    trues = np.bincount(raised, minlength=len(result.cover))
    # An interrupt between a True and its policy leaves one level short.
    return int((np.array(result.cover_sizes) - trues).max())


def run_statements(result: Result, levels: Sequence[dict[str, Any]]) -> Iterator[Statement]:
    """What lemmas A.4 to A.6 say about the covers and estimates of a run, on any environment."""
    plain_linear = is_plain_linear(result)
    if plain_linear:
        yield from linear_statements(result)
    elif result.function_class["name"] == "finite":
        yield finite_statement(result)
    steps = [one for level in levels for one in level["raises"] if not math.isnan(one["factor"])]
    if steps:
        yield Statement(
            "growth",
            "log(1 + R) <= least log det(S + eps_r I) after / before a True",
            "Lemma A.5, first display, corrected",
            math.log1p(result.parameters["ratio"]),
            min(one["after"] - one["before"] for one in steps),
        )
    if steps and plain_linear:
        dimension, eps_r = result.theta.shape[2], result.parameters["eps_r"]
        # The trace of S is at most one a policy, and for a given trace equal eigenvalues have the largest product.
        sides = [(one["after"], dimension * math.log(eps_r + one["policies"] / dimension)) for one in steps]
        yield Statement(
            "ceiling",
            "log det(S + eps_r I) <= d log(eps_r + n / d), n policies",
            "Lemma A.5, second display, corrected",
            *max(sides, key=lambda pair: pair[0] - pair[1]),
        )
    if (shifted := last_trues(result)) is not None:
        yield Statement(
            "returned policy",
            "Trues in the last test of the returned policy <= 0",
            "beyond the paper: invariant 2 for what is returned",
            shifted,
            0,
        )


def is_plain_linear(result: Result) -> bool:
    """Whether a run was on the linear class of section 6, with the identity in oracle and regression."""
    given = result.function_class
    return bool(given["name"] == "linear" and given.get("regularizer") is None and given.get("penalty") is None)


def linear_statements(result: Result) -> Iterator[Statement]:
    """What concerns linear functions only."""
    dimension = result.theta.shape[2]
    given = result.parameters
    ratio, eps_r, ridge = given["ratio"], given["eps_r"], given["ridge"]
    largest = max(result.cover_sizes)
    norm = float(np.linalg.norm(result.theta, axis=2).max())
    yield Statement("thresholds", "d eps_s <= eps_t", "Lemma A.5, premise", dimension * given["eps_s"], given["eps_t"])
    yield Statement(
        "thresholds, corrected", "eps_s <= eps_t", "Lemma A.5, premise without 1/d", given["eps_s"], given["eps_t"]
    )
    yield Statement(
        "cover, printed",
        "max |Pi_h| <= 2 d log(d / eps_r)",
        "Lemma A.5; through A.6, Theorem 6.1",
        largest,
        printed_cover_bound(dimension, eps_r),
    )
    yield Statement(
        "cover, sure",
        "max |Pi_h| <= max {n : (1 + R)^(n-m) <= (1 + n / (d eps_r))^d}",
        "Lemma A.5, corrected; m is |Pi_h| at first",
        largest,
        sure_cover_bound(dimension, ratio, eps_r, n_initial(result)),
    )
    yield Statement("norm, printed", "max |theta_h^a| <= 1 / lambda_ridge", "Lemma A.4; invariant 1", norm, 1.0 / ridge)
    yield Statement(
        "norm, corrected",
        "max |theta_h^a| <= 1 / (2 sqrt(lambda_ridge))",
        "Lemma A.4, corrected",
        norm,
        ridge_norm_bound(ridge),
    )


def finite_statement(result: Result) -> Statement:
    """What takes the place of the potential with finitely many functions: each pair can be told apart so often."""
    given = result.parameters
    return Statement(
        "cover, sure",
        "max |Pi_h| <= m + (floor(eps_s / eps_t) + 1) d (d - 1) / 2",
        "oracle 4.2 for d functions; m is |Pi_h| at first",
        max(result.cover_sizes),
        finite_cover_bound(result.theta.shape[2], given["eps_s"], given["eps_t"], n_initial(result)),
    )


def last_trues(result: Result) -> int | None:
    """Trues in the last test of the returned policy; None where it was never tested."""
    columns = result.history.columns()
    tests = np.flatnonzero(columns["target"] < 0)
    if not tests.size:
        return None
    # Each begins at the last level. Their draws do not tell them apart: with `memo` one serves for several.
    (began,) = np.nonzero(columns["level"][tests] == len(result.cover) - 1)
    return int(columns["decision"][tests[began[-1] :]].sum())


def measure(result: Result, mdp: FiniteMDP, levels: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Add what is exact on a finite MDP to the records of the levels; return what concerns all of them."""
    if result.theta.shape != (mdp.horizon, mdp.n_actions, mdp.dimension):
        shape = (mdp.horizon, mdp.n_actions, mdp.dimension)
        raise ValueError(f"mdp: expected (H, K, d) = {result.theta.shape} as the result has, got {shape}")
    covers = value_error(mdp, result.theta, result.cover)
    returned = value_error(mdp, result.theta, [[result.policy]] * mdp.horizon)
    checked = checked_policies(mdp, result)
    wrong = suboptimal_probability(mdp, result.policy)
    ratios = np.maximum(checked.low_variance, low_variance(mdp, result.policy))
    for level, record in enumerate(levels):
        record["error_cover"] = float(covers[level].max())
        record["error_checked"] = float(checked.error[level])
        record["error_returned"] = float(returned[level].max())
        record["suboptimal"] = float(wrong[level])
        record["low_variance"] = float(ratios[level])
    value, best = mdp.value(result.policy), mdp.optimal_value
    loss = best - value
    return {
        "value": value,
        "optimal_value": best,
        "loss": loss if loss > mdp.gap_tolerance else 0.0,
        "loss_bound": float(wrong.sum()),
        "gap": mdp.gap,
        "low_variance": float(ratios.max()),
        "smallest_epsilon": {
            name: 4 * mdp.horizon * max(record[key] for record in levels) / mdp.gap**2 for name, key in ERRORS.items()
        },
    }


ERRORS = {"invariant 1": "error_cover", "invariant 2": "error_checked", "equation 3": "error_returned"}


def exact_statements(
    exact: dict[str, Any], levels: Sequence[dict[str, Any]], epsilon: float | None
) -> Iterator[Statement]:
    """What the proof says about errors, suboptimal actions and values; with a target epsilon, what it wants of them."""
    wrong = max(record["suboptimal"] for record in levels)
    yield Statement(
        "policy correctness",
        "V* - V <= sum_h P[pi(s_h) != pi*(s_h)]",
        "Lemma A.1",
        exact["loss"],
        exact["loss_bound"],
    )
    if epsilon is None:
        return
    horizon = len(levels)
    allowed = exact["gap"] ** 2 * epsilon / (4 * horizon)
    where = {
        "invariant 1": "cover",
        "invariant 2": "after pi_h^a",
        "equation 3": "returned policy",
    }
    for name, key in ERRORS.items():
        yield Statement(
            name,
            f"max E (f - Q*)^2 <= gamma^2 epsilon / (4 H), {where[name]}",
            f"proof of Theorem 6.1, {name}",
            max(record[key] for record in levels),
            allowed,
        )
    yield Statement(
        "suboptimal actions",
        "max_h P[pi(s_h) != pi*(s_h)] <= epsilon / H",
        "Lemma A.1, premise",
        wrong,
        epsilon / horizon,
    )
    yield Statement("value", "V* - V <= epsilon", "Theorem 6.1", exact["loss"], epsilon)


def plain(value: Any) -> Any:
    """Return what JSON can hold: no tuples, None for numbers that are not finite."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
