"""The summary of a run as lines of labels and texts, for the table of a command and for a page."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dmq_fast._support.words import level_names, rounded
from dmq_fast.results.score import percent, score

__all__ = ["summary_rows"]

PROMISES = {
    "finished": "finished: a policy passed its test",
    "tested": "tested: the value of the policy lies in the interval; nothing is promised of other policies",
    "ended": "ended: N and R were set by hand, which promises nothing about the policy",
}
"""The meanings of the statuses of runs that came to their own end."""

PRINTED = {"R": "ratio", "eps_r": "eps_r", "ridge": "ridge"}
"""Names of constants in the table, and their keys."""


def summary_rows(summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield label and text of each line of a summary."""
    given = summary["environment_parameters"].items()
    described = " ".join(f"{key}={value}" for key, value in given if value is not None)
    yield summary["environment"], described
    yield "", f"H = {summary['horizon']}, K = {summary['n_actions']}, d = {summary['dimension']}"
    given = summary["parameters"]
    if "stopping" in summary:
        share = f"{100 * given['share']:g}% of the way from uniform play to the best" if "share" in given else ""
        # A run that was stopped may not have come to know that way.
        share = share and (f" ({share})" if summary["status"] == "finished" else f" so far (to be {share})")
        described = f"epsilon = {given['epsilon']:g}{share}, delta = {given['delta']:g}"
        described += ", mode = tested" if "tested" in given else f", p_min = {given['p_min']:g}"
    else:
        constants = ", ".join(f"{name} = {given[key]:g}" for name, key in PRINTED.items())
        described = f"N = {given['n_samples']:,}, {constants}"
    yield summary.get("variant", "self-stopping"), f"{described}, seed = {summary['seed']}"
    if summary.get("variant") == "custom":
        yield "options", ", ".join(f"{name} = {value}" for name, value in summary["options"].items())
    # Summaries of older versions have no function class.
    if (described := class_text(summary.get("function_class", {"name": "linear"}))) != "linear":
        yield "function class", described
    if summary["sampler"] != "rollout":
        # Summaries of older versions have no arithmetic.
        digits = summary.get("arithmetic", "float64")
        extended = "" if digits == "float64" else f", {digits}" if digits == "rational" else f", {digits} digits"
        yield "sampler", summary["sampler"] + extended
    yield "status", PROMISES.get(summary["status"], summary["status"])
    yield from value_rows(summary)
    by_purpose = summary["counts"]["trajectories"]
    yield "trajectories", f"{summary['n_trajectories']:,}   " + amounts_text(by_purpose, "{:,}")
    yield from stopping_rows(summary) if "stopping" in summary else cover_rows(summary)
    seconds = dict(summary["seconds"])
    yield "time", f"{seconds.pop('total'):.3g} s   " + amounts_text(seconds, "{:.3g} s")
    for warning in summary["warnings"]:
        yield "warning", warning


def cover_rows(summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the lines about the oracle and the policy covers."""
    counts = summary["counts"]
    yield "oracle calls", f"{counts['oracle_calls']:,}   True {counts['trues']:,}"
    sizes = summary["cover_sizes"]
    printed, sure = summary["printed_cover_bound"], summary["sure_cover_bound"]
    bounds = f"bound: sure {sure:,}" if printed is None else f"bounds: printed {printed:.1f}, sure {sure:,}"
    yield "policies |Pi_h|", f"at most {max(sizes)}   {bounds}"
    for size, levels in equal_levels(sizes):
        yield "", f"{levels}: {size}"


def stopping_rows(summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the lines about the tests of a run that stops by itself."""
    stopping = summary["stopping"]
    rewards = stopping.get("rewards", UNIT)  # not in files of 0.2.0
    unit = {name: rewards[name] for name in UNIT} == UNIT
    yield "stopped", stopping["reason"]
    if "candidates" in stopping:
        yield from tested_rows(stopping)
        return
    if not unit:
        yield "value range", range_text(rewards)
    if stopping["mean_return"] is not None:
        low, high = stopping["interval"]
        ends = ", ".join(rounded(end, 3 if unit else 4) for end in (low, high))
        yield "mean return", f"{rounded(stopping['mean_return'])}, value in [{ends}]"
        bounds = {"unseen outcomes": max(stopping["upsides"]), "noise": stopping["loss_quantile"]}
        if "rare_transitions" in stopping:  # not in files of 0.2.0
            bounds["rare transitions"] = stopping["rare_transitions"]
        yield "upper bounds", ", ".join(f"{name} {rounded(bound, 3)}" for name, bound in bounds.items())
        if (largest := max(stopping["largest_v"])) > 0.0:  # one over the visits
            yield "least visited", f"{1 / largest:,.0f} visits, on the policy's path"
    yield "outcomes considered", f"probability >= {stopping['p_min']:g}"


def tested_rows(stopping: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the lines about the test of a run by returns."""
    if stopping["rewards"]["value_range"] is not None:
        yield "value range", range_text(stopping["rewards"])
    if stopping["mean_return"] is not None:
        low, high = stopping["interval"]
        yield "mean return", f"{rounded(stopping['mean_return'])}, value in [{rounded(low)}, {rounded(high)}]"
    diagnostics = {"predicted by fits": stopping["predicted"], "unseen outcomes may add": stopping["upside"]}
    shown = [f"{name} {rounded(number)}" for name, number in diagnostics.items() if number is not None]
    if shown:
        yield "diagnostics", ", ".join(shown)


UNIT = {"value_range": [0.0, 1.0], "noise": None, "declared": True}
"""The rewards of the paper, of which a summary says nothing."""


def range_text(rewards: Mapping[str, Any]) -> str:
    """Return the range and the noise of rewards, in points, and where they are from."""
    pairs = rewards["value_range"]
    ends = (
        pairs if isinstance(pairs[0], float | int) else [min(low for low, _ in pairs), max(high for _, high in pairs)]
    )
    text = f"({ends[0]:.6g}, {ends[1]:.6g}) points, {'declared' if rewards['declared'] else 'from the returns seen'}"
    if rewards["returns_seen"] is not None:
        low, high = rewards["returns_seen"]
        text += f"; episodes earned {low:.6g} to {high:.6g}"
    return text + ("" if rewards["noise"] is None else f"; noise {rewards['noise']:.3g}")


def value_rows(summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the lines about the value of the returned policy, in points."""
    # Summaries of before have no value of uniform play.
    value, best, uniform = summary["value"], summary["optimal_value"], summary.get("uniform_value")
    shown = None if value is None or best is None or uniform is None else score(value, uniform, best)
    scored = "" if shown is None else f"   (score {percent(shown)})"
    if value is None:
        yield "value", "unknown: not estimated"
    elif (n := summary["value_trajectories"]) is not None:
        error = plus_minus(summary["value_standard_error"])
        yield "value (estimate)", f"{rounded(value, 6)}{error}, mean and standard error of {n:,} fresh trajectories"
        if best is not None:
            yield "optimum", f"{rounded(best, 6)}{scored}"
    else:
        yield "value / optimum", f"{rounded(value, 6)} / {rounded(best, 6)}{scored}"
    if uniform is not None:
        nothing = shown is None and value is not None and best is not None
        n = summary.get("uniform_value_trajectories")
        text = rounded(uniform, 6) if n is None else f"{rounded(uniform, 6)}, mean of {n:,} fresh trajectories"
        yield "uniform play", f"{text}, and no policy is better" if nothing else text


def plus_minus(error: float | None) -> str:
    """Return a standard error as text, nothing for None."""
    return "" if error is None else f" +- {error:.2g}"


def amounts_text(amounts: dict[str, float], form: str) -> str:
    """Return named amounts on one line."""
    return ", ".join(f"{name} {form.format(amount)}" for name, amount in amounts.items())


def equal_levels(sizes: Sequence[int]) -> Iterator[tuple[int, str]]:
    """Yield runs of consecutive levels whose covers have one size: the size, and "level 3" or "levels 3 to 7"."""
    for size, group in itertools.groupby(enumerate(sizes), key=lambda pair: pair[1]):
        yield size, level_names([level for level, _ in group])


def class_text(described: Mapping[str, Any]) -> str:
    """Return the description of a function class, as `FunctionClass.describe` gives it, on one line.

    >>> class_text({"name": "finite", "scale": 2.0, "penalty": None})
    'finite, scale = 2.0'
    """
    given = {key: value for key, value in described.items() if key != "name" and value is not None}
    # Digests of arrays are shortened.
    shown = [f"{key} = {value[:12] if isinstance(value, str) else value}" for key, value in given.items()]
    return ", ".join([described["name"], *shown])
