"""What can be proved or measured about the result of a run.

What lemmas A.4 to A.6 state about covers and estimates can be held against any run; on a finite MDP, `theory.measures`
adds what invariants 1 and 2, equation 3 and lemma A.1 speak of. `certificate` puts all of it together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.kernels import as_positive
from dmq_fast.policy import Policy
from dmq_fast.theory.bounds import finite_cover_bound, printed_cover_bound, ridge_norm_bound, sure_cover_bound
from dmq_fast.theory.measures import (
    checked_policies,
    low_variance,
    policy_values,
    suboptimal_probability,
    value_error,
)

__all__ = [
    "Statement",
    "certificate",
    "checked_policies",
    "low_variance",
    "policy_values",
    "suboptimal_probability",
    "value_error",
]

ROUNDING = 1e-9
"""Share of the right side by which the left may be larger: what is compared went through factorisations."""


LARGEST_LOG = 700.0
"""Of a number that float64 holds."""


class CallRecord(Protocol):
    """The oracle calls of a run: its `History`."""

    @property
    def potentials(self) -> NDArray[np.float64]:
        """Log det(S + eps_r I) before and after each True, shape (Trues, 2)."""

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the calls as arrays by field."""


class RunRecord(Protocol):
    """What a certificate reads of a run: fields of `Result`."""

    @property
    def theta(self) -> NDArray[np.float64]:
        """Estimates, shape (H, K, d)."""

    @property
    def policy(self) -> Policy:
        """The policy returned."""

    @property
    def cover(self) -> tuple[tuple[Policy, ...], ...]:
        """Pi_h by level."""

    @property
    def cover_sizes(self) -> tuple[int, ...]:
        """|Pi_h| by level."""

    @property
    def history(self) -> CallRecord:
        """The oracle calls."""

    @property
    def status(self) -> str:
        """Whether the run finished, or why it ended early."""

    @property
    def variant(self) -> str:
        """Name of the variant."""

    @property
    def options(self) -> dict[str, Any]:
        """Options of the run."""

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of the run."""

    @property
    def function_class(self) -> dict[str, Any]:
        """Description of the function class."""


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


def certificate(result: RunRecord, mdp: FiniteMDP | None = None, *, epsilon: float | None = None) -> dict[str, Any]:
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


def level_records(result: RunRecord) -> Iterator[dict[str, Any]]:
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


def n_initial(result: RunRecord) -> int:
    """How many policies every cover began with."""
    columns = result.history.columns()
    raised = columns["level"][columns["decision"]]
    if result.status == "max_policies":
        raised = raised[:-1]  # The budget refused the policy of the last True.
    trues = np.bincount(raised, minlength=len(result.cover))
    # An interrupt between a True and its policy leaves one level short.
    return int((np.array(result.cover_sizes) - trues).max())


def run_statements(result: RunRecord, levels: Sequence[dict[str, Any]]) -> Iterator[Statement]:
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


def is_plain_linear(result: RunRecord) -> bool:
    """Whether a run was on the linear class of section 6, with the identity in oracle and regression."""
    given = result.function_class
    return bool(given["name"] == "linear" and given.get("regularizer") is None and given.get("penalty") is None)


def linear_statements(result: RunRecord) -> Iterator[Statement]:
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


def finite_statement(result: RunRecord) -> Statement:
    """What takes the place of the potential with finitely many functions: each pair can be told apart so often."""
    given = result.parameters
    return Statement(
        "cover, sure",
        "max |Pi_h| <= m + (floor(eps_s / eps_t) + 1) d (d - 1) / 2",
        "oracle 4.2 for d functions; m is |Pi_h| at first",
        max(result.cover_sizes),
        finite_cover_bound(result.theta.shape[2], given["eps_s"], given["eps_t"], n_initial(result)),
    )


def last_trues(result: RunRecord) -> int | None:
    """Trues in the last test of the returned policy; None where it was never tested."""
    columns = result.history.columns()
    tests = np.flatnonzero(columns["target"] < 0)
    if not tests.size:
        return None
    # Each begins at the last level. Their draws do not tell them apart: with `memo` one serves for several.
    (began,) = np.nonzero(columns["level"][tests] == len(result.cover) - 1)
    return int(columns["decision"][tests[began[-1] :]].sum())


def measure(result: RunRecord, mdp: FiniteMDP, levels: Sequence[dict[str, Any]]) -> dict[str, Any]:
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
