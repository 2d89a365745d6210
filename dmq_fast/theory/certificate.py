"""Comparison of the result of a run with the lemmas of the paper.

Lemmas A.4 to A.6 bound the covers and estimates of any run. On a finite MDP, `theory.measures` also computes the
quantities of invariants 1 and 2, equation 3 and lemma A.1. `certificate` collects both.

The function class of a run is known here by its description only, which is all that a saved result holds; so the
classes are told apart by the "name" in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.kernels import as_positive
from dmq_fast.results.result import DMQResult, Result
from dmq_fast.rewards import RewardModel
from dmq_fast.theory.bounds import finite_cover_bound, printed_cover_bound, ridge_norm_bound, sure_cover_bound
from dmq_fast.theory.certificate_table import table
from dmq_fast.theory.measures import (
    checked_policies,
    low_variance,
    policy_values,
    suboptimal_probability,
    value_error,
)

__all__ = [
    "Certificate",
    "Statement",
    "certificate",
    "checked_policies",
    "low_variance",
    "policy_values",
    "suboptimal_probability",
    "value_error",
]

ROUNDING = 1e-9
"""Tolerance for left <= right, relative to the right side: both sides may come from factorisations."""


class Statement(NamedTuple):
    """A statement left <= right of a lemma: its name, formula, place in the paper, and the values of both sides."""

    name: str
    formula: str
    source: str
    left: float
    right: float

    @property
    def holds(self) -> bool:
        """Whether left <= right, or they are equal but for rounding."""
        return self.left <= self.right + abs(self.right) * ROUNDING


# By name: formula, and place in the paper. w_h is the width of the values to go from level h on, and w the largest of
# them: 1 in the paper.
STATEMENTS = {
    "thresholds": ("d eps_s <= eps_t", "Lemma A.5, premise"),
    "thresholds, corrected": ("eps_s <= eps_t", "Lemma A.5, premise without 1/d"),
    "cover, printed": ("max |Pi_h| <= 2 d log(d / eps_r)", "Lemma A.5; through A.6, Theorem 6.1"),
    "cover, sure": (
        "max |Pi_h| <= max {n : (1 + R)^(n-m) <= (1 + n / (d eps_r))^d}",
        "Lemma A.5, corrected; m is |Pi_h| at first",
    ),
    "norm, printed": ("max |theta_h^a| <= y / lambda_ridge, |return| <= y", "Lemma A.4; invariant 1"),
    "norm, corrected": ("max |theta_h^a| <= y / (2 sqrt(lambda_ridge)), |return| <= y", "Lemma A.4, corrected"),
    "growth": (
        "log(1 + R) <= least log det(S + eps_r I) after / before a True",
        "Lemma A.5, first display, corrected",
    ),
    "ceiling": (
        "log det(S + eps_r I) <= d log(eps_r + n / d), n policies",
        "Lemma A.5, second display, corrected",
    ),
    "returned policy": (
        "Trues in the last test of the returned policy <= 0",
        "beyond the paper: invariant 2 for the returned policy",
    ),
    "policy correctness": ("V* - V <= sum_h w_h P[pi(s_h) != pi*(s_h)]", "Lemma A.1"),
    "invariant 1": (
        "max E (f - Q*)^2 <= gamma^2 epsilon / (4 H w), cover",
        "proof of Theorem 6.1, invariant 1",
    ),
    "invariant 2": (
        "max E (f - Q*)^2 <= gamma^2 epsilon / (4 H w), after pi_h^a",
        "proof of Theorem 6.1, invariant 2",
    ),
    "equation 3": (
        "max E (f - Q*)^2 <= gamma^2 epsilon / (4 H w), returned policy",
        "proof of Theorem 6.1, equation 3",
    ),
    "suboptimal actions": ("max_h P[pi(s_h) != pi*(s_h)] <= epsilon / (H w)", "Lemma A.1, premise"),
    "value": ("V* - V <= epsilon", "Theorem 6.1"),
}

# Takes the place of "cover, sure" where the functions are finitely many: each pair can cause only so many Trues.
FINITE_COVER = (
    "max |Pi_h| <= m + (floor(eps_s / eps_t) + 1) d (d - 1) / 2",
    "oracle 4.2 for d functions; m is |Pi_h| at first",
)


def stated(sides: Mapping[str, tuple[float, float]]) -> Iterator[Statement]:
    """Yield the statements of `STATEMENTS` whose sides are given, by name."""
    for name, (left, right) in sides.items():
        yield Statement(name, *STATEMENTS[name], left, right)


class Certificate(dict[str, Any]):
    """A dict that `certificate` returned, which print and notebooks show as a table."""

    def __repr__(self) -> str:
        """Return the table."""
        return table(self)


def certificate(
    result: Result,
    mdp: FiniteMDP | None = None,
    *,
    epsilon: float | None = None,
    rewards: RewardModel | None = None,
) -> Certificate:
    """Compare a run with the lemmas of the paper.

    Parameters
    ----------
    result : DMQResult
        The run.
    mdp : FiniteMDP, optional
        The MDP of the run. It adds exact values, errors and probabilities to the statements about the run's own record.
    epsilon : float, optional
        Target accuracy in points, > 0. It adds the invariants of the proof to the statements.
    rewards : RewardModel, optional
        Range and noise of the rewards of the run. By default those that `mdp` declares; without an MDP the range
        (0, 1). The paper's statements are about returns in [0, 1]: here they are in points, as are values and errors.
        The range multiplies the bounds on estimates, by the largest |return|, and on losses, by the width of the values
        of a level. Where the range is unknown, or rewards are noisy, so that no return is bounded, nothing can be said
        of the length of estimates: these statements are left out, and "notes" says so.

    Returns
    -------
    Certificate
        A dict of JSON values; None where something was not measured.

        - "notes": lines on what cannot be stated.
        - "parameters", "horizon", "n_actions", "dimension", "variant", "status": of the run.
        - "statements": a list of `Statement` as dicts, with "holds".
        - "levels": for each level "cover_size", "oracle_calls", "trues", "nearest_false" (the largest v / eps_t of a
          False) and "raises": for each True the "call", an index of the history, the potential log det(S + eps_r I)
          "before" and "after", the "factor" of the determinant, and the number of "policies" that S then stands for.
          With `mdp` also "error_cover" (invariant 1), "error_checked" (invariant 2), "error_returned" (equation 3),
          "suboptimal" (lemma A.1) and "low_variance" (assumption 3.1).
        - "exact": None, or a dict of "value", "optimal_value", "loss", "loss_bound" (lemma A.1), "gap", "low_variance",
          and "smallest_epsilon": the smallest epsilon for which the errors satisfy invariant 1, invariant 2 and
          equation 3.

    Raises
    ------
    TypeError, ValueError
        If the result has no covers, the MDP does not fit it, or epsilon is not a positive number.

    Examples
    --------
    >>> import dmq_fast as dmq
    >>> env = dmq.environments.combination_lock(horizon=5, n_actions=3, rng=0)
    >>> result = dmq.DMQ(env, n_samples=20, variant="frugal", rng=1).learn()
    >>> found = certificate(result, env)
    >>> found["exact"]["loss"], found["levels"][4]["cover_size"]
    (0.0, 2)
    >>> all(one["holds"] for one in found["statements"])
    True
    """
    if not isinstance(result, DMQResult):
        raise TypeError(f"result: expected a DMQResult, which has covers, got {type(result).__name__}")
    if mdp is not None and not isinstance(mdp, FiniteMDP):
        raise TypeError(f"mdp: expected a FiniteMDP, got {type(mdp).__name__}")
    if epsilon is not None:
        epsilon = as_positive("epsilon", epsilon)
        if mdp is None:
            raise ValueError("epsilon: expected together with an mdp, on which errors are measured; got none")
    horizon, n_actions, dimension = result.theta.shape
    if rewards is None:
        rewards = RewardModel.of(mdp) if mdp is not None else RewardModel.of(result.policy, (0.0, 1.0))
    levels, notes = list(result.levels()), list(unstated(result, rewards))
    statements = list(run_statements(result, levels, rewards))
    exact = None
    if mdp is not None:
        exact = measure(result, mdp, levels)
        statements += stated(exact_sides(exact, levels, epsilon, float(widths_of(mdp).max())))
    found: dict[str, Any] = as_json(
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
            "notes": notes,
        }
    )
    return Certificate(found)


def unstated(result: DMQResult, rewards: RewardModel) -> Iterator[str]:
    """Yield what cannot be said of a run, as the lemmas are about returns in a known range."""
    if result.is_plain_linear and rewards.noise is not None:
        yield "no bound on |theta| (lemma A.4): rewards are noisy, so that no return is bounded"
    elif result.is_plain_linear and not rewards.known:
        yield "no bound on |theta| (lemma A.4): the range of values is unknown; declare value_range"


def run_statements(result: DMQResult, levels: Sequence[dict[str, Any]], rewards: RewardModel) -> Iterator[Statement]:
    """Yield the statements of lemmas A.4 to A.6 on the covers and estimates of a run, for any environment."""
    plain_linear = result.is_plain_linear
    given, dimension = result.parameters, result.theta.shape[2]
    if plain_linear:
        yield from stated(linear_sides(result, rewards))
    elif result.function_class["name"] == "finite":
        bound = finite_cover_bound(dimension, given["eps_s"], given["eps_t"], result.n_initial)
        yield Statement("cover, sure", *FINITE_COVER, max(result.cover_sizes), bound)
    steps = [one for level in levels for one in level["raises"] if not math.isnan(one["factor"])]
    if steps:
        growth = min(one["after"] - one["before"] for one in steps)
        yield from stated({"growth": (math.log1p(given["ratio"]), growth)})
    if steps and plain_linear:
        # The trace of S is at most the number of policies, and for a given trace the determinant is largest where all
        # eigenvalues are equal.
        sides = [(one["after"], dimension * math.log(given["eps_r"] + one["policies"] / dimension)) for one in steps]
        yield from stated({"ceiling": max(sides, key=lambda pair: pair[0] - pair[1])})
    if (shifted := last_trues(result)) is not None:
        yield from stated({"returned policy": (shifted, 0)})


def linear_sides(result: DMQResult, rewards: RewardModel) -> dict[str, tuple[float, float]]:
    """Return both sides of the statements that hold for linear functions only: thresholds, covers and norms.

    Norms are left out where the targets of the regression, returns to go, are not bounded.
    """
    dimension, largest = result.theta.shape[2], max(result.cover_sizes)
    given = result.parameters
    eps_s, eps_t, eps_r, ridge = given["eps_s"], given["eps_t"], given["eps_r"], given["ridge"]
    norms = {}
    if rewards.bounds is not None and rewards.noise is None:
        norm, largest_return = float(np.linalg.norm(result.theta, axis=2).max()), float(np.abs(rewards.bounds).max())
        norms["norm, printed"] = norm, largest_return / ridge
        norms["norm, corrected"] = norm, largest_return * ridge_norm_bound(ridge)
    return {
        "thresholds": (dimension * eps_s, eps_t),
        "thresholds, corrected": (eps_s, eps_t),
        "cover, printed": (largest, printed_cover_bound(dimension, eps_r)),
        "cover, sure": (largest, sure_cover_bound(dimension, given["ratio"], eps_r, result.n_initial)),
    } | norms


def last_trues(result: DMQResult) -> int | None:
    """Return the number of Trues in the last test of the returned policy; None where it was never tested."""
    columns = result.history.columns()
    tests = np.flatnonzero(columns["target"] < 0)
    if not tests.size:
        return None
    # Each test begins at the last level. Call numbers do not separate tests: with `memo` several use one draw.
    (began,) = np.nonzero(columns["level"][tests] == len(result.cover) - 1)
    return int(columns["decision"][tests[began[-1] :]].sum())


def measure(result: DMQResult, mdp: FiniteMDP, levels: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Add exact errors and probabilities on a finite MDP to the records of the levels; return the values of the run."""
    if result.theta.shape != (mdp.horizon, mdp.n_actions, mdp.dimension):
        shape = (mdp.horizon, mdp.n_actions, mdp.dimension)
        raise ValueError(f"mdp: expected (H, K, d) = {result.theta.shape} as in the result, got {shape}")
    covers = value_error(mdp, result.theta, result.cover)
    returned = value_error(mdp, result.theta, [[result.policy]] * mdp.horizon)
    checked = checked_policies(mdp, result)
    wrong, widths = suboptimal_probability(mdp, result.policy), widths_of(mdp)
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
        "loss_bound": float((widths * wrong).sum()),
        "gap": mdp.gap,
        "low_variance": float(ratios.max()),
        "smallest_epsilon": {
            name: float(widths.max()) * (4 * mdp.horizon * max(record[key] for record in levels) / mdp.gap**2)
            for name, key in ERRORS.items()
        },
    }


def widths_of(mdp: FiniteMDP) -> NDArray[np.float64]:
    """Return the width of the values to go from each level on, in points, shape (H,): no gap is larger."""
    bounds = RewardModel.of(mdp).bounds
    return np.ones(mdp.horizon) if bounds is None else bounds[:, 1] - bounds[:, 0]


ERRORS = {"invariant 1": "error_cover", "invariant 2": "error_checked", "equation 3": "error_returned"}
"""Errors that the proof bounds by gamma^2 epsilon / (4 H w): key in the record of a level, by place in the proof."""


def exact_sides(
    exact: dict[str, Any], levels: Sequence[dict[str, Any]], epsilon: float | None, width: float
) -> dict[str, tuple[float, float]]:
    """Return both sides of lemma A.1; with a target epsilon also of the bounds on errors, suboptimal actions, value."""
    sides = {"policy correctness": (exact["loss"], exact["loss_bound"])}
    if epsilon is None:
        return sides
    allowed = exact["gap"] ** 2 * epsilon / (4 * len(levels) * width)
    errors = {name: (max(record[key] for record in levels), allowed) for name, key in ERRORS.items()}
    wrong = max(record["suboptimal"] for record in levels)
    return (
        sides
        | errors
        | {"suboptimal actions": (wrong, epsilon / (len(levels) * width)), "value": (exact["loss"], epsilon)}
    )


def as_json(value: Any) -> Any:
    """Return a JSON value: lists in place of tuples, None in place of numbers that are not finite."""
    if isinstance(value, dict):
        return {key: as_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
