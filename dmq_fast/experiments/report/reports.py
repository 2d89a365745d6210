"""The pages of ``dmq-fast report DIR``: one HTML page about a run or a sweep, which loads no other file.

Pictures are part of the page, as SVG. Needs matplotlib, the extra ``plot``.
"""

from __future__ import annotations

import shlex
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmq_fast._support.words import number_of, ranges
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.experiments.report import pictures
from dmq_fast.experiments.report.against import plot
from dmq_fast.experiments.report.cells import CellRuns, cells_of, counted, labeller, natural, settings, warned
from dmq_fast.experiments.report.metrics import GOOD, PARTS, check_share
from dmq_fast.experiments.report.numbers import curve_of
from dmq_fast.experiments.report.page import Picture, code, definitions, gallery, grid, header, messages, page, section
from dmq_fast.experiments.report.panels import ALGORITHM, located, measurable, panels_of_cells, swept
from dmq_fast.experiments.report.tables import MEANS, SOLVED, failure_lines, failures_of, summary_of, table_of
from dmq_fast.experiments.sweeps.store import versions_text
from dmq_fast.kernels.build import build
from dmq_fast.plotting.canvas import WIDTH
from dmq_fast.results.result import DMQResult, SelfStoppingResult
from dmq_fast.results.score import scores
from dmq_fast.results.summary import summary_rows
from dmq_fast.rewards import RewardModel
from dmq_fast.theory import certificate_table
from dmq_fast.theory.certificate import certificate

__all__ = ["quantity_pictures", "run_pictures", "run_report", "sweep_pictures", "sweep_report"]


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
    body = [
        header(summary["environment"], result.name),
        messages("note", notes),
        section("Run", definitions(summary_rows(dict(summary)))),
        section("Pictures", gallery(run_pictures(result, mdp))),
    ]
    if isinstance(result, DMQResult):
        # Summaries of 0.2.0 have no rewards: returns were in (0, 1).
        given = summary.get("rewards")
        rewards = None if given is None else RewardModel.of(result.policy, given["value_range"], given["noise"])
        compared = code(certificate_table.table(certificate(result, mdp, epsilon=epsilon, rewards=rewards)))
        body.append(section("Certificate", CERTIFICATE + compared))
    body.append(section("Reproduce", reproduce_run(result, summary, command)))
    return page(f"{summary['environment']}: {result.name}", body)


CERTIFICATE = (
    "<p>This run compared with the statements and premises of the paper's lemmas. A run can do well although premises "
    "fail, as the constants of the proof are far smaller than those that work.</p>"
)


def run_pictures(
    result: DMQResult | SelfStoppingResult, mdp: FiniteMDP | None, width: float = WIDTH
) -> Iterator[Picture]:
    """Yield the pictures for which a run has the data, `width` inches wide."""
    if result.shows_policy(mdp):
        yield Picture(
            result.plot("policy", mdp=mdp, width=width),
            "What was learned",
            "The greedy action of the returned policy, and on a grid or over two observed numbers its value. A dot or "
            "grey: all actions look alike there. Hatched or white: never reached.",
        )
    if isinstance(result, SelfStoppingResult) and len(result.looks):
        yield Picture(
            result.plot("curve", mdp=mdp, width=width),
            "What the run knew",
            "Above: what one outcome that no episode had shown could add to the value, beside ε. Below: the value that "
            "the fits predicted, and the mean return of the test with its interval.",
        )
    if isinstance(result, DMQResult):
        if result.has_potential:
            yield Picture(
                result.plot("cover", width=width),
                "Policies by level, and the potential",
                "Above: |Π_h| of every level. Below: log det(S + ε_r I) after each True of the oracle. It stays "
                "between the least that n Trues add and the most that n policies can reach, as in the proof of Lemma "
                "A.5. Covers cannot grow beyond the point where the two bounds meet.",
            )
        if not np.isnan(result.history.columns()["value"]).all():
            yield Picture(
                result.plot("oracle", width=width),
                "The oracle",
                "The value v of each call, in order. From ε_t on the answer is True: the distribution of states has "
                "shifted from that of the cover.",
            )
        if result.history.n_calls:
            yield Picture(
                result.plot("curve", width=width),
                "The way through the levels",
                "The level whose actions each batch of trajectories checked, from the last to the first, and the level "
                "at which the oracle found a new distribution of states: its cover got a policy, and it was learned "
                "again.",
            )
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


def reproduce_run(
    result: DMQResult | SelfStoppingResult, summary: Mapping[str, Any], command: Sequence[str] | None
) -> str:
    """Return the command, the key, the seeds and the versions of a run."""
    versions = {"dmq_fast": summary.get("version", "unknown"), **summary.get("versions", {})}
    entries = {
        "seed": str(summary.get("seed")),
        "seed of the environment": str(summary.get("environment_seed")),
        "versions of the run": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "this page": f"dmq_fast {build()}",
    }
    return (
        ("" if command is None else "<p>From a shell:</p>" + code(shlex.join(command)))
        + f"<p>The run's key; <code>{type(result).__name__.removesuffix('Result')}(…, rng=Stream.from_key(key))</code> "
        "repeats it on the same environment:</p>"
        + code(f"key = ({', '.join(f'{word:#018x}' for word in result.key)})")
        + definitions(entries.items())
    )


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
    cells = cells_of(rows)
    if not cells:
        raise ValueError("rows: expected at least one run, got none")
    rows = [row for cell in cells for row in cell.rows]
    known = {name: title for name, title in SOLVED.items() if name in measurable(cells)}
    lines_of, failures = [summary_of(cell, known) for cell in cells], failures_of(rows)
    heads, lines = table_of(lines_of, ("runs", "failed"), known | MEANS)
    table = grid(heads, lines, right=range(len(heads) - len(known | MEANS) - 2, len(heads)))
    body = [
        header(name, f"{number_of(len(rows), 'run')} in {number_of(len(cells), 'cell')}"),
        messages("note", notes),
        messages("warning", counted(f"{row['status']}: {row['error']}" for row in failures)),
        messages("warning", versions_text(dict(sorted(Counter(row["version"] for row in rows).items())))),
        messages("warning", warned(rows)),
        section("Runs by cell", (MEANING if known else "") + table),
        section("Failures", code("\n".join(failure_lines(failures, lines_of)))) if failures else "",
        section("Pictures", gallery(pictures_of(cells))),
        section("Reproduce", reproduce_sweep(rows, specs)),
    ]
    return page(name, body)


MEANING = (
    "<p>A score is (V − V<sub>uniform</sub>) / (V* − V<sub>uniform</sub>): 0 for uniform play, 1 for the best policy. "
    f"A policy is good from a score of {GOOD:.0%} on. Good after: at the first checkpoint of a learning curve with "
    "such a policy, which the algorithm does not know. Stopped after: where an algorithm stopped by its own rule, with "
    "such a policy. Until solved: the latter of algorithms that stop by themselves, the former of all others. Episodes "
    "of runs that did not count as inf. Half is earned at the first multiple of 100 episodes with a running mean "
    "reward above the middle of V<sub>uniform</sub> and V*; a run without a learning curve is credited with the reward "
    "of uniform play while it learns. Where a store has no V<sub>uniform</sub> (0.2.0), it counts as 0.</p>"
)


def sweep_pictures(
    rows: Iterable[Mapping[str, Any]], *, width: float = WIDTH, share: float = GOOD, **looks: Any
) -> Iterator[Picture]:
    """Yield the pictures of each environment: quantities against the first parameter, and curves if it has one form.

    They are `width` inches wide, and count a run as solved from this score on; `looks` are further
    arguments of `against.against`.
    """
    check_share(share)
    return pictures_of(cells_of(rows), width=width, share=share, **looks)


def pictures_of(
    cells: Sequence[CellRuns], *, width: float = WIDTH, share: float = GOOD, **looks: Any
) -> Iterator[Picture]:
    """Yield the pictures of `sweep_pictures`, of cells."""
    for environment in dict.fromkeys(cell.environment for cell in cells):
        here = [cell for cell in cells if cell.environment == environment]
        if swept(here):
            for picture in pictures_of_quantities(here, width=width, share=share, **looks):
                yield picture._replace(title=f"{environment}: {picture.title}")
        if len({title for title, _ in settings(here)}) == 1:
            yield from curve_pictures(environment, here, width)
        if not swept(here) and len({cell.algorithm for cell in here}) > 1:
            for picture in pictures_of_quantities(here, ALGORITHM, width=width, share=share, **looks):
                yield picture._replace(title=f"{environment}: {picture.title}")


def quantity_pictures(
    rows: Iterable[Mapping[str, Any]], x: str | None = None, wanted: Sequence[str] | None = None, **looks: Any
) -> Iterator[Picture]:
    """Yield pictures of quantities, by default of all known ones but `PARTS`, against a parameter; see `against`."""
    return pictures_of_quantities(cells_of(rows), x, wanted, **looks)


def pictures_of_quantities(
    cells: Sequence[CellRuns],
    x: str | None = None,
    wanted: Sequence[str] | None = None,
    *,
    width: float = WIDTH,
    share: float = GOOD,
    log_x: bool | None = None,
    log_y: bool | None = None,
    **looks: Any,
) -> Iterator[Picture]:
    """Yield the pictures of `quantity_pictures`, of cells."""
    x, place, name = located(cells, x)
    having = [cell for cell in cells if x == ALGORITHM or getattr(cell, place).get(name) is not None]
    known = measurable(having, share)
    for y in wanted or [y for y in known if y not in PARTS]:
        shown = panels_of_cells(cells, x, y, share=share, **looks)
        yield Picture(plot(shown, log_x=log_x, log_y=log_y, width=width), f"{y} by {x}", "")


def curve_pictures(title: str, cells: Sequence[CellRuns], width: float) -> Iterator[Picture]:
    """Yield pictures of score and regret against episodes, of the runs whose score is known.

    Regrets are divided by V* - V_uniform, so that no shift or scale of the rewards changes a picture.
    """
    label = labeller(cells)
    groups: dict[str, list[tuple[Mapping[str, Any], float, float]]] = {}
    for cell in cells:
        known = scores(cell.numbers.value, cell.numbers.uniform, cell.numbers.optimum)
        some = zip(cell.rows, known, cell.numbers.uniform, strict=True)
        groups.setdefault(label(cell), []).extend(one for one in some if not np.isnan(one[1]))
    values: dict[str, tuple[ArrayLike, ArrayLike]] = {}
    regrets: dict[str, tuple[ArrayLike, ArrayLike]] = {}
    for name, found in groups.items():
        if not found:
            continue
        rows = [row for row, _, _ in found]
        if curves := curves_on_one_grid(rows):
            uniform = np.array([[uniform] for _, _, uniform in found])
            spans = np.array([[row["optimal_value"]] for row in rows]) - uniform
            at, value, regret = curves
            values[name] = at, (value - uniform) / spans
            regrets[name] = at, regret / spans
        else:
            known = np.array([[score] for _, score, _ in found])
            values[name] = [statistics.median(row["n_trajectories"] for row in rows)], known
    if not regrets:
        return
    yield Picture(
        pictures.learning_curves(values, optimum=1.0, ylabel="score", xscale="log", width=width),
        f"{title}: score",
        "Score of the policy that would be returned: median and quartiles over the seeds. A marker is the end of runs "
        "without a learning curve.",
    )
    yield Picture(
        pictures.learning_curves(
            regrets, among=values, ylabel="regret$/(V^*-V_u)$", xscale="log", yscale="log", width=width
        ),
        f"{title}: regret",
        "Reward of the optimal policy minus the reward so far, in episodes of uniform play, each of which costs V* - "
        "V_uniform. It is the reward that was drawn, so that a curve may fall by luck.",
    )


def curves_on_one_grid(
    rows: Sequence[Mapping[str, Any]],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]] | None:
    """Return the checkpoints of the longest run, and values and regrets of every run at them; NaN after its end.

    None if a run has no learning curve.
    """
    curves = []
    for row in rows:
        if (curve := curve_of(row, "regret")) is None:
            return None
        curves.append([np.array(curve[name], dtype=np.float64) for name in ("episodes", "value", "regret")])
    at = max((curve[0] for curve in curves), key=lambda some: some[-1])
    value, regret = (np.array([np.interp(at, curve[0], curve[i], right=np.nan) for curve in curves]) for i in (1, 2))
    return at, value, regret


def reproduce_sweep(rows: Sequence[Mapping[str, Any]], specs: Sequence[str]) -> str:
    """Return the specifications, the seeds and the versions of a sweep."""
    done_by = "<p>The specification; <code>dmq-fast sweep SPEC --out DIR</code> does its runs:</p>"
    versions = sorted({row["version"] for row in rows}, key=natural)
    entries = {
        "seeds": ranges(sorted({row["seed"] for row in rows})),
        "versions of the runs": ", ".join(f"dmq_fast {one}" for one in versions),
        "this page": f"dmq_fast {build()}",
    }
    return "".join(done_by + code(spec.strip()) for spec in specs) + definitions(entries.items())
