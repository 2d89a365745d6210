"""The pages of ``dmq-fast report DIR``: one HTML page about a run or a sweep, which loads no other file.

Pictures are part of the page, as SVG in the colours of its light or dark theme. Needs matplotlib, the extra ``plot``.
"""

from __future__ import annotations

import itertools
import math
import shlex
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmq_fast._support.html_text import escape
from dmq_fast._support.words import number_of, ranges
from dmq_fast._version import __version__
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.experiments.report import pictures
from dmq_fast.experiments.report.against import pages, plot
from dmq_fast.experiments.report.cells import (
    SHOWN,
    CellRuns,
    by_message,
    cells_of,
    counted,
    in_order,
    known,
    labeller,
    natural,
    parameters_by_name,
    seeds_of_some,
    settings,
    split_parameters,
    warned,
)
from dmq_fast.experiments.report.csv_export import as_specified
from dmq_fast.experiments.report.metrics import GOOD, by_policy, by_reward, check_share, has_curve, verdict_on
from dmq_fast.experiments.report.page import (
    Picture,
    definitions,
    formula,
    gallery,
    header,
    html_table,
    messages,
    page,
    parameters_text,
    section,
    tiles,
)
from dmq_fast.experiments.report.panels import panels_of
from dmq_fast.experiments.sweeps.runs import FAILURES
from dmq_fast.learners.named import class_text
from dmq_fast.plotting.canvas import WIDTH
from dmq_fast.results.result import DMQResult, SelfStoppingResult
from dmq_fast.theory.certificate import certificate
from dmq_fast.theory.certificate_table import four_digits, level_columns, level_groups

if TYPE_CHECKING:
    pass

__all__ = ["run_pictures", "run_report", "sweep_pictures", "sweep_report"]


def run_report(
    result: DMQResult | SelfStoppingResult,
    summary: Mapping[str, Any],
    *,
    command: Sequence[str] | None = None,
    mdp: FiniteMDP | None = None,
    epsilon: float | None = None,
    notes: Sequence[str] = (),
) -> str:
    """Return the page of one run.

    Parameters
    ----------
    result : DMQResult or SelfStoppingResult
    summary : mapping
        The summary that ``dmq-fast run --json`` prints.
    command : sequence of str, optional
        The command of the run.
    mdp : FiniteMDP, optional
        The environment of the run, for the exact part of the certificate and for the pictures of visits.
    epsilon : float, optional
        Target accuracy for the certificate.
    notes : sequence of str
        Notes to the reader, such as on numbers that could not be computed.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    TypeError, ValueError
        If the MDP does not fit the result.
    """
    given = {key: value for key, value in summary["environment_parameters"].items() if value is not None}
    body = [
        header(summary["environment"], result.name, given),
        tiles(run_tiles(result, summary)),
        messages("warning", result.warnings),
        messages("note", notes),
        section("Pictures", gallery(run_pictures(result, mdp))),
    ]
    if isinstance(result, DMQResult):
        body.append(section("Certificate", certificate_section(certificate(result, mdp, epsilon=epsilon))))
        body.append(section("Run", run_tables(result, summary)))
    else:
        body.append(section("Run", stopping_tables(result, summary)))
    body.append(section("Reproduce", reproduce_run(result, summary, command)))
    return page(f"{summary['environment']}: {result.name}", body)


def run_tiles(result: DMQResult | SelfStoppingResult, summary: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the most important numbers of a run: label, number, and the line below."""
    value, best = summary.get("value"), summary.get("optimal_value")
    if value is None:
        yield "value", "unknown", "not estimated"
    elif best is None:
        error = summary.get("value_standard_error")
        yield "value (estimate)", f"{value:.4g}", "" if error is None else f"± {error:.2g} (standard error)"
    else:
        share = f", {value / best:.1%}" if best > 0 else ""
        yield "value", f"{value:.4g}", f"of V* = {best:.4g}{share}"
    counts = result.counts
    if isinstance(result, SelfStoppingResult):
        yield "trajectories", f"{result.n_trajectories:,}", f"{counts['trajectories']['test']:,} in tests"
        yield "tests", f"{result.stopping['tests_made']:,}", f"p_min = {result.stopping['p_min']:g}"
        yield "seconds", f"{result.seconds['total']:.3g}", result.status.replace("_", " ")
        return
    yield "trajectories", f"{result.n_trajectories:,}", f"N = {result.parameters['n_samples']:,} a policy"
    yield "oracle calls", f"{counts['oracle_calls']:,}", f"{counts['trues']:,} True"
    yield "largest cover", f"{max(result.cover_sizes):,}", f"sure bound {summary['sure_cover_bound']:,}"
    yield "seconds", f"{result.seconds['total']:.3g}", result.status.replace("_", " ")


def run_pictures(
    result: DMQResult | SelfStoppingResult, mdp: FiniteMDP | None, width: float = WIDTH
) -> Iterator[Picture]:
    """Yield the pictures for which a run has the data, `width` inches wide."""
    covered = isinstance(result, DMQResult)
    if isinstance(result, DMQResult) and result.has_potential:
        yield Picture(
            result.plot("cover", width=width),
            "Policies by level, and the potential",
            "Above: |Π_h| of every level. Below: log det(S + ε_r I) after each True of the oracle. It stays between "
            "the least that n Trues add and the most that n policies can reach, as in the proof of Lemma A.5. Covers "
            "cannot grow beyond the point where the two bounds meet.",
        )
    if isinstance(result, DMQResult) and not np.isnan(result.history.columns()["value"]).all():
        yield Picture(
            result.plot("oracle", width=width),
            "The oracle",
            "The value v of each call, in order. From ε_t on the answer is True: the distribution of states has "
            "shifted from that of the cover.",
        )
    if covered:
        yield Picture(
            pictures.trajectories_by_purpose({"this run": result.trajectories}, width=width, height=0.9),
            "Trajectories by purpose",
            "Algorithm 3 draws for checks, Algorithm 2 for regression and states. The last part tests the returned "
            "policy.",
        )
    if mdp is not None and max(mdp.n_states) > 1:
        yield Picture(
            pictures.visits(mdp, result.policy, width=width),
            "Visits of the returned policy",
            "Exact probability of each state at each level. Blank states are never visited; grey ones do not exist at "
            "their level.",
        )
        if isinstance(result, DMQResult):
            yield Picture(
                pictures.visits(mdp, result.cover, width=width),
                "Visits of the covers",
                "Exact probability under the policies of Π_h, the distribution that level h is fitted on.",
            )


def certificate_section(certificate: Mapping[str, Any]) -> str:
    """Return the statements, the exact errors, and the table of levels."""
    rows = [
        [
            f"{formula(one['formula'])}<small>{escape(one['name'])}; {formula(one['source'])}</small>",
            four_digits(one["left"]),
            four_digits(one["right"]),
            '<span class="good">✓ holds</span>' if one["holds"] else '<span class="bad">✗ fails</span>',
        ]
        for one in certificate["statements"]
    ]
    parts = [
        "<p>This run compared with the statements and premises of the paper's lemmas. A run can do well although "
        "premises fail, as the constants of the proof are far smaller than those that work.</p>",
        html_table(["statement", "left", "right", ""], rows, numbers=(1, 2), kind="statements"),
    ]
    exact = certificate["exact"]
    if exact is not None:
        smallest = exact["smallest_epsilon"]
        parts.append(
            definitions(
                {
                    "V, V*": f"{four_digits(exact['value'])}, {four_digits(exact['optimal_value'])}",
                    "loss, and its bound by Lemma A.1": (
                        f"{four_digits(exact['loss'])}, {four_digits(exact['loss_bound'])}"
                    ),
                    "minimum gap γ": four_digits(exact["gap"]),
                    "low variance (assumption 3.1) of the policies checked": four_digits(exact["low_variance"]),
                    "smallest ε that the errors allow": ", ".join(
                        f"{name}: {four_digits(value)}" for name, value in smallest.items()
                    ),
                }
            )
        )
    parts.append("<h3>By level</h3>")
    heads = level_columns(dict(certificate))
    rows = [[escape(cell) for cell in row] for row in level_groups(dict(certificate))]
    parts.append(html_table([formula(head) for head in heads], rows, numbers=range(1, len(heads))))
    return "".join(parts)


def run_tables(result: DMQResult, summary: Mapping[str, Any]) -> str:
    """Return problem, parameters, options, trajectories and times of a run."""
    given = result.parameters
    trajectories = result.counts["trajectories"]
    left = {
        "horizon H, actions K, dimension d": f"{summary['horizon']}, {summary['n_actions']}, {summary['dimension']}",
        "N": f"{given['n_samples']:,}",
        formula("R = ε_t / ε_s"): f"{given['ratio']:g} = {given['eps_t']:g} / {given['eps_s']:g}",
        formula("ε_r"): f"{given['eps_r']:g}",
        formula("λ_ridge"): f"{given['ridge']:g}",
        "function class": class_text(result.function_class),
        "sampler": str(summary["sampler"]),
        **{escape(name): str(value) for name, value in result.options.items()},
    }
    right = {
        **{escape(f"trajectories, {name}"): f"{n:,}" for name, n in trajectories.items()},
        "runs of Algorithm 2": f"{result.counts['algorithm_2_runs']:,}",
        "calls of the sampler": f"{result.counts['sampler_calls']:,}",
        **{escape(f"seconds, {name}"): f"{seconds:.3g}" for name, seconds in result.seconds.items()},
    }
    return f'<div class="pair">{definitions(left)}{definitions(right)}</div>'


def stopping_tables(result: SelfStoppingResult, summary: Mapping[str, Any]) -> str:
    """Return aim, tests, trajectories and times of a run that stopped by itself."""
    given, stopping = result.parameters, result.stopping
    mean, upsides, largest = stopping["mean_return"], stopping["upsides"], stopping["largest_v"]
    low, high = stopping["interval"]
    left = {
        "horizon H, actions K, dimension d": f"{summary['horizon']}, {summary['n_actions']}, {summary['dimension']}",
        "ε, δ": f"{given['epsilon']:g}, {given['delta']:g}",
        "outcomes considered": f"probability >= {stopping['p_min']:g}",
        "why it stopped": stopping["reason"],
        "mean return of the final test": "none was passed" if mean is None else f"{mean:.4g}",
        "value of the policy, confidence 1 − δ": f"[{low:.3f}, {high:.3f}]",
        "largest gain by an outcome never seen": "unknown" if upsides is None else f"{max(upsides):.3g}",
        "loss quantile of the bootstrap": f"{stopping['loss_quantile']:.3g}",
    }
    right = {
        **{escape(f"trajectories, {name}"): f"{n:,}" for name, n in result.counts["trajectories"].items()},
        **{escape(f"seconds, {name}"): f"{seconds:.3g}" for name, seconds in result.seconds.items()},
    }
    parts = [f'<div class="pair">{definitions(left)}{definitions(right)}</div>']
    if upsides is not None:
        heads = ["level h", "largest gain by an outcome never seen from here on", "largest v: 1 / visits"]
        rows = [
            [str(h), f"{upside:.3g}", f"{v:.3g}"] for h, (upside, v) in enumerate(zip(upsides, largest, strict=True))
        ]
        parts.append("<h3>On the states of the final test</h3>" + html_table(heads, rows, numbers=range(3)))
    return "".join(parts)


def reproduce_run(
    result: DMQResult | SelfStoppingResult, summary: Mapping[str, Any], command: Sequence[str] | None
) -> str:
    """Return the command, the key, the seeds and the versions of a run."""
    parts = []
    if command is not None:
        parts.append(f"<p>From a shell:</p><pre><code>{escape(shlex.join(command))}</code></pre>")
    key = ", ".join(f"{word:#018x}" for word in result.key)
    parts.append(
        "<p>The run's key; <code>DMQ(…, rng=Stream.from_key(key))</code> repeats it on the same environment:</p>"
        f"<pre><code>key = ({escape(key)})</code></pre>"
    )
    versions = {"dmq_fast": summary.get("version", "unknown"), **summary.get("versions", {})}
    parts.append(
        definitions(
            {
                "seed": str(summary.get("seed")),
                "seed of the environment": str(summary.get("environment_seed")),
                "versions of the run": ", ".join(f"{name} {version}" for name, version in versions.items()),
                "this page": f"dmq_fast {__version__}",
            }
        )
    )
    return "".join(parts)


def sweep_report(
    rows: Iterable[Mapping[str, Any]], *, name: str = "Sweep", specs: Sequence[str] = (), notes: Sequence[str] = ()
) -> str:
    """Return the page of a sweep.

    Parameters
    ----------
    rows : iterable of mapping
        The rows that `experiments.load` returns.
    name : str
        Title of the page.
    specs : sequence of str
        Texts of the specifications of the runs.
    notes : sequence of str
        Notes to the reader, such as that the sweep has not ended.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If there are no rows.
    """
    rows = [as_specified(row) for row in rows]
    if not rows:
        raise ValueError("rows: expected at least one run, got none")
    cells = cells_of(rows)
    failures = [row for row in rows if row["status"] in FAILURES]
    body = [
        header(name, number_of(len(rows), "run"), {}),
        tiles(sweep_tiles(rows, cells)),
        messages("note", notes),
        messages("warning", counted(f"{row['status']}: {row['error']}" for row in failures)),
        section("Runs by cell", cell_table(cells) + warnings_table(rows)),
        section("Failures", failed_runs(failures)) if failures else "",
        section("Pictures", gallery(sweep_pictures(rows))),
        section("Reproduce", reproduce_sweep(rows, specs)),
    ]
    return page(name, body)


def warnings_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the list of the warnings of the runs, if there are any."""
    said = warned(rows)
    if not said:
        return ""
    return "<h3>Warnings of the runs</h3><ul>" + "".join(f"<li>{escape(one)}</li>" for one in said) + "</ul>"


def failed_runs(failures: Sequence[Mapping[str, Any]]) -> str:
    """Return the cells and seeds of the runs that failed, by message, with the traceback of one of each."""
    parts = []
    for failure in by_message(failures)[:SHOWN]:
        lines = []
        for rows in list(failure.cells.values())[:SHOWN]:
            (cell,) = cells_of(rows)
            sides = (cell.environment, cell.environment_parameters), (cell.algorithm, cell.algorithm_parameters)
            name = ", ".join(" ".join([side, *(f"{k} = {v}" for k, v in some.items())]) for side, some in sides)
            lines.append(f"<li>{escape(f'{name}: {seeds_of_some(rows)}')}</li>")
        n = sum(map(len, failure.cells.values()))
        parts.append(f"<h3>{escape(f'{n:,} x {failure.message}')}</h3><ul>{''.join(lines)}</ul>")
        if failure.trace is not None:
            parts.append(f"<p>Seed {failure.seed}:</p><pre><code>{escape(failure.trace.rstrip())}</code></pre>")
    return "".join(parts)


def sweep_tiles(rows: Sequence[Mapping[str, Any]], cells: Sequence[CellRuns]) -> Iterator[tuple[str, str, str]]:
    """Yield the most important numbers of a sweep: label, number, and the line below."""
    verdicts = [verdict for row in rows if (verdict := verdict_on(row)) is not None]
    yield "runs", f"{len(rows):,}", f"in {number_of(len(cells), 'cell')}"
    if verdicts:
        yield "solved", f"{sum(verdicts) / len(verdicts):.0%}", f"{sum(verdicts):,} of {len(verdicts):,}"
    failed = sum(row["status"] in FAILURES for row in rows)
    yield "failed", f"{failed:,}", f"of {len(rows):,}" if failed else "none"
    drawn = sum(row["n_trajectories"] or 0 for row in rows)
    yield "trajectories", f"{drawn:,}", "in all"
    yield "seconds", f"{sum(row['seconds'] or 0.0 for row in rows):,.3g}", "in all runs together"


def cell_table(cells: Sequence[CellRuns]) -> str:
    """Return the table of cells: how many runs solved the environment, and at what cost."""
    rewarded = any(has_curve(row) for cell in cells for row in cell.rows)
    heads = ["environment", "algorithm", "runs", "solved", "median episodes", *["by reward"] * rewarded, "median value",
             "median seconds"]  # fmt: skip
    split = parameters_by_name(cells)
    lines = []
    for cell in cells:
        verdicts = [verdict_on(row) for row in cell.rows]
        lines.append(
            [
                named(cell.environment, cell.environment_parameters, split[cell.environment][0]),
                named(cell.algorithm, cell.algorithm_parameters, split[cell.algorithm][0]),
                f"{len(cell.rows):,}",
                "–" if None in verdicts else rate(sum(map(bool, verdicts)), len(verdicts)),
                escape(median_episodes([by_policy(row) for row in cell.rows], verdicts)),
                *[escape(median_by_reward(cell.rows))] * rewarded,
                four_digits(median(cell.rows, "value")),
                four_digits(median(cell.rows, "seconds")),
            ]
        )
    common = {
        name: parameters_text({key: value for key, value in shared.items() if value is not None})
        for name, (_, shared) in split.items()
    }
    return (
        f"<p>A run has solved its environment if its policy is worth at least {GOOD:.0%} of the optimum. The median of "
        "episodes counts the other runs as larger than all; where most runs did not solve it, it is a lower bound.</p>"
        + (BY_REWARD if rewarded else "")
        + html_table(heads, lines, numbers=range(2, len(heads)))
        + "<h3>Parameters of all runs</h3>"
        + definitions({escape(name): given for name, given in common.items() if given})
    )


BY_REWARD = (
    "<p>For runs with a learning curve, the episodes count until the first checkpoint with such a policy. By reward: "
    "the first multiple of 100 episodes with a running mean reward above half of the optimum. A run without a learning "
    "curve is credited with no reward while it learns.</p>"
)


def named(name: str, parameters: Mapping[str, Any], which: Sequence[str]) -> str:
    """Return a name, and below it the parameters `which` distinguish its cells."""
    below = parameters_text({key: parameters[key] for key in which if parameters.get(key) is not None})
    return f"{escape(name)}<small>{escape(below)}</small>" if below else escape(name)


def rate(solved_runs: int, runs: int) -> str:
    """Return a success rate with a bar."""
    share = solved_runs / runs
    return f'<span class="rate"><i style="width:{share:.0%}"></i></span> <span class="percent">{share:.0%}</span>'


def median(rows: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Return the median of the known entries of a column."""
    values = known(rows, name)
    return statistics.median(values) if values else None


def median_episodes(rows: Sequence[Mapping[str, Any]], verdicts: Sequence[bool | None]) -> str:
    """Return the median of the episodes until solved; if most runs failed, a bound: the median of their episodes."""
    spent = [row["n_trajectories"] for row in rows if row["n_trajectories"] is not None]
    if not spent:
        return "–"
    needed = statistics.median_low(
        float("inf") if verdict is False else row["n_trajectories"] for row, verdict in zip(rows, verdicts, strict=True)
    )
    return f"{needed:,.0f}" if needed != float("inf") else f"> {statistics.median_low(spent):,.0f}"


def median_by_reward(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the median of the episodes until the mean reward is above half of the optimum."""
    ended = [by_reward(row) for row in rows if row["n_trajectories"] is not None]
    return median_episodes(ended, [row["solved"] for row in ended])


SIZES = ("horizon", "size", "length", "n_states")
"""Parameters that make an environment hard; pictures show the first that varies on the abscissa."""


MOST = 12
"""Largest number of lines or bars of a picture; more of them make several pictures."""


def parts(names: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the end of the title of each picture, such as ", 1 to 11 of 54", and the names of its lines or bars."""
    every = list(dict.fromkeys(names))
    n = math.ceil(len(every) / MOST)
    for i in range(n):
        first, end = len(every) * i // n, len(every) * (i + 1) // n
        yield f", {first + 1} to {end} of {len(every)}" if n > 1 else "", every[first:end]


def sweep_pictures(rows: Sequence[Mapping[str, Any]], width: float = WIDTH, share: float = GOOD) -> Iterator[Picture]:
    """Yield the pictures of every environment, the last of them those of its trajectories by purpose.

    They are `width` inches wide, and count a run as solved from this share of the optimum on.
    """
    check_share(share)
    # In this order a line has the same look in every picture of an environment.
    rows = in_order(map(as_specified, rows))
    label = labeller(rows)
    for title, size, here in by_setting(rows):
        ended = [row for row in here if row["status"] not in FAILURES]
        if not ended:
            continue
        failed = len(here) - len(ended)
        left_out = f"Left out: {failed:,} failed {'run' if failed == 1 else 'runs'}." if failed else ""
        if size is None:
            shown = curve_pictures(title, ended, label, width)
        else:
            shown = size_pictures(title, size, ended, width, share)
        for picture in itertools.chain(shown, purpose_pictures(title, ended, label, width)):
            yield picture._replace(left_out=f"{picture.left_out} {left_out}".strip())


def purpose_pictures(
    title: str, rows: Sequence[Mapping[str, Any]], label: Callable[[Mapping[str, Any]], str], width: float
) -> Iterator[Picture]:
    """Yield pictures of the trajectories by purpose, with a bar for each algorithm and its parameters."""
    groups: dict[str, list[Mapping[str, int]]] = {}
    for row in rows:
        if row["counts"].get("trajectories"):
            groups.setdefault(label(row), []).append(row["counts"]["trajectories"])
    for part, names in parts(groups):
        means = {
            name: {
                purpose: round(statistics.mean(one.get(purpose, 0) for one in groups[name]))
                for purpose in union(groups[name])
            }
            for name in names
        }
        yield Picture(
            pictures.trajectories_by_purpose(means, width=width),
            f"{title}: trajectories by purpose{part}",
            "Means over all runs of an algorithm with the same parameters.",
        )


def union(mappings: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    """Return the names in any of the mappings, in order."""
    return dict.fromkeys(name for one in mappings for name in one)


def by_setting(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str | None, list[Mapping[str, Any]]]]:
    """Yield title, size and runs of each environment; the size is one of `SIZES` that varies, or None.

    Environments that differ in another parameter are separate.
    """
    for environment in dict.fromkeys(row["environment"] for row in rows):
        here = [row for row in rows if row["environment"] == environment]
        names = split_parameters([row["environment_parameters"] for row in here])[0]
        size = next((name for name in SIZES if name in names), None)
        for title, some in settings(here, but=size):
            yield title, size, some


def size_pictures(
    title: str, size: str, rows: Sequence[Mapping[str, Any]], width: float, share: float
) -> Iterator[Picture]:
    """Yield pictures of the episodes until solved against the size of an environment."""
    sizes = [row["environment_parameters"].get(size) for row in rows]
    if not all(isinstance(one, int) for one in sizes) or any(verdict_on(row) is None for row in rows):
        return
    shown = {"episodes": ("until solved", "")}
    if any(map(has_curve, rows)):
        text = "Episodes count in hundreds. A run without a learning curve is credited with no reward while it learns."
        shown["earned"] = ("until half of V* is earned", text)
    for y, (what, caption) in shown.items():
        parts = list(pages(panels_of(rows, f"environment.{size}", y, share=share), width))
        for i, part in enumerate(parts, 1):
            end = f", {i} of {len(parts)}" if len(parts) > 1 else ""
            dashed = any(panel.n_actions is not None for panel in part.panels)
            text = f"{caption} Dashed: about what random exploration needs.".strip() if dashed else caption
            yield Picture(plot(part, width=width), f"{title}: episodes {what}{end}", text)


def curve_pictures(
    title: str, rows: Sequence[Mapping[str, Any]], label: Callable[[Mapping[str, Any]], str], width: float
) -> Iterator[Picture]:
    """Yield pictures of value and regret against episodes."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    unknown = 0
    for row in rows:
        if row.get("optimal_value") and row["value"] is not None:
            groups.setdefault(label(row), []).append(row)
        else:
            unknown += 1
    if not any(map(has_curve, rows)) or not groups:
        return
    left_out = f"Left out: {unknown:,} of {number_of(len(rows), 'run')}, whose value is unknown." if unknown else ""
    values: dict[str, tuple[ArrayLike, ArrayLike]] = {}
    regrets: dict[str, tuple[ArrayLike, ArrayLike]] = {}
    for name, some in groups.items():
        if all(has_curve(row, "regret") for row in some):
            values[name] = on_one_grid(some, "value", lambda row: row["optimal_value"])
            regrets[name] = on_one_grid(some, "regret", lambda row: 1.0)
        else:
            spent = statistics.median(row["n_trajectories"] for row in some)
            values[name] = ([spent], np.array([[row["value"] / row["optimal_value"]] for row in some]))
    for part, names in parts(values):
        yield Picture(
            pictures.learning_curves(
                {name: values[name] for name in names}, optimum=1.0, ylabel="$V/V^*$", xscale="log", width=width
            ),
            f"{title}: value{part}",
            "Value of the policy that would be returned: median and quartiles over the seeds. A marker is the end of "
            "runs without a learning curve.",
            left_out,
        )
        shown = {name: regrets[name] for name in names if name in regrets}
        if not shown:
            continue
        others = "; ".join(name for name in names if name not in regrets)
        yield Picture(
            pictures.learning_curves(shown, among=names, ylabel="regret", xscale="log", yscale="log", width=width),
            f"{title}: regret{part}",
            "Reward of the optimal policy minus the reward so far.",
            f"{left_out} Without a learning curve: {others}.".strip() if others else left_out,
        )


def on_one_grid(
    rows: Sequence[Mapping[str, Any]], name: str, unit: Callable[[Mapping[str, Any]], float]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the checkpoints of the longest run, and a column of every run at them; NaN after the end of a run."""
    curves = [row["details"]["curve"] for row in rows]
    at = np.array(max((curve["episodes"] for curve in curves), key=lambda some: some[-1]), dtype=np.float64)
    y = np.array(
        [
            np.interp(at, curve["episodes"], np.array(curve[name]) / unit(row), right=np.nan)
            for row, curve in zip(rows, curves, strict=True)
        ]
    )
    return at, y


def reproduce_sweep(rows: Sequence[Mapping[str, Any]], specs: Sequence[str]) -> str:
    """Return the specifications, the seeds and the versions of a sweep."""
    parts = []
    for spec in specs:
        parts.append(
            "<p>The specification; <code>dmq-fast sweep SPEC --out DIR</code> does its runs:</p>"
            f"<pre><code>{escape(spec.strip())}</code></pre>"
        )
    seeds = sorted({row["seed"] for row in rows})
    parts.append(
        definitions(
            {
                "seeds": ranges(seeds),
                "versions of the runs": ", ".join(
                    f"dmq_fast {one}" for one in sorted({row["version"] for row in rows}, key=natural)
                ),
                "this page": f"dmq_fast {__version__}",
            }
        )
    )
    return "".join(parts)
