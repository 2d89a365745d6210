"""Figures of sweeps: a quantity against any parameter, its intervals, and the files that the shell makes of it."""

import itertools
import math

import numpy as np
import pytest
from refusals import refused
from showing import row, texts

from dmq_fast import experiments
from dmq_fast.cli import figures
from dmq_fast.experiments.report import intervals, reports
from dmq_fast.experiments.report import panels as content
from dmq_fast.experiments.report.against import against
from dmq_fast.experiments.report.cells import cells_of
from dmq_fast.experiments.report.panels import panels_of
from dmq_fast.plotting.style import MUTED

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


def by_horizon(horizons=(2, 4), seeds=4, **more):
    return [row(seed, of={"horizon": h}, spent=10 * h * (seed + 1), **more) for h in horizons for seed in range(seeds)]


def measurable(rows):
    return content.measurable(cells_of(rows))


def swept(rows):
    return content.swept(cells_of(rows))


FAILED = {"status": "failed", "value": None, "optimal_value": None, "spent": None}


def points(rows, *arguments, **options):
    """{(title of the panel, name of the line): its points} of a figure."""
    panels = panels_of(rows, *arguments, **options).panels
    return {(panel.title, line.name): line.points for panel in panels for line in panel.lines}


def below(figure):
    return figure._supxlabel.get_text().replace("\n", " ")


# Intervals


def test_statistics():
    x = np.array([[9.0, 1, 2, 3, np.inf, 4, 5, 0]])
    assert intervals.STATISTICS["median"](x) == 3
    assert intervals.STATISTICS["iqm"](x) == np.mean([2, 3, 4, 5])
    assert intervals.STATISTICS["mean"](x[:, :4]) == 3.75
    # A quarter of infinities is cut off, more are not.
    assert intervals.STATISTICS["iqm"](np.array([1.0, 2, 3, np.inf])) == 2.5
    assert intervals.STATISTICS["iqm"](np.array([1.0, 2, np.inf, np.inf])) == np.inf


@pytest.mark.parametrize(("n", "covered"), [(5, 0.85), (10, 0.9)])
def test_the_bootstrap_of_few_runs_is_short(n, covered):
    """How often a 95 % interval holds the true mean; the tolerance is three standard errors of 1,000 samples."""
    samples = np.random.default_rng(1).normal(size=(1000, n))
    found = [intervals.bootstrap([sample], draws=500) for sample in samples]
    share = np.mean([low <= 0 <= high for _, low, high in found])
    assert share == pytest.approx(covered, abs=3 * math.sqrt(covered * (1 - covered) / 1000))
    assert found[0] == intervals.bootstrap([samples[0]], draws=500)


def test_strata_are_resampled_each_for_itself():
    """Strata without variation have an interval without width, though they differ; pooled they would not."""
    assert intervals.bootstrap([[1.0] * 3, [5.0] * 3]) == (3, 3, 3)
    middle, low, high = intervals.bootstrap([[1.0] * 3 + [5.0] * 3])
    assert low < middle == 3 < high


def test_a_single_run_has_no_interval():
    middle, low, high = intervals.bootstrap([[1.0], [2.0]])
    assert middle == 1.5 and math.isnan(low) and math.isnan(high)


def test_infinities_leave_the_interval_open():
    middle, low, high = intervals.bootstrap([[1.0, 2.0, 3.0, np.inf, np.inf]], "median")
    assert (middle, high) == (3, np.inf) and low in (1, 2)


def test_wilson_is_the_inverse_of_the_score_test():
    for k, n, level in itertools.product([0, 3, 10], [10], [0.5, 0.95]):
        rate, low, high = intervals.wilson(k, n, level=level)
        assert rate == k / n
        z = intervals.NormalDist().inv_cdf((1 + level) / 2)
        for end in (low, high):
            if 1e-9 < end < 1 - 1e-9:
                assert abs(rate - end) / math.sqrt(end * (1 - end) / n) == pytest.approx(z)
    assert intervals.wilson(10, 10).high == 1 and intervals.wilson(0, 10).low == 0


# What is shown


def test_points_are_statistics_of_the_runs_of_a_cell():
    rows = by_horizon()
    (line,) = points(rows, "horizon", "episodes").values()
    assert [(p.x, p.interval.middle, p.runs) for p in line] == [(2, 40, 4), (4, 80, 4)]
    expected = intervals.bootstrap([[20.0, 40, 60, 80]], "median")
    assert line[0].interval == expected and expected.low < 40 < expected.high
    (line,) = points(rows, "horizon", "episodes", statistic="mean").values()
    assert [p.interval.middle for p in line] == [50, 100]
    (line,) = points(rows, "horizon", "seconds").values()
    assert line[0].interval == (0.5, 0.5, 0.5)


def test_losses_and_success():
    rows = [row(seed, of={"horizon": 3}, value=value) for seed, value in enumerate([0.7, 0.7, 0.67, 0.35])]
    assert points(rows, "horizon", "loss")["lock", "dmq"][0].interval.middle == pytest.approx(0.095)
    assert points(rows, "horizon", "success")["lock", "dmq"][0].interval == intervals.wilson(3, 4)
    assert points(rows, "horizon", "success", share=0.99)["lock", "dmq"][0].interval == intervals.wilson(2, 4)
    assert points(rows, "horizon", "success", share=0.5)["lock", "dmq"][0].interval == intervals.wilson(4, 4)


def test_the_share_decides_until_when_episodes_count():
    curve = {"episodes": [10, 20, 30], "value": [0.2, 0.5, 0.7]}
    rows = [row(of={"horizon": 3}, spent=30, details={"curve": curve, "learned_at": 30})]
    for share, at in ((0.95, 30), (0.7, 20), (0.1, 10)):
        assert points(rows, "horizon", "episodes", share=share)["lock", "dmq"][0].interval.middle == at


def test_unsolved_and_failed_runs_count_as_infinite_and_as_no_success():
    rows = [*by_horizon((3,), 3), row(3, of={"horizon": 3}, value=0.1, spent=9), row(4, of={"horizon": 3}, **FAILED)]
    (line,) = points(rows, "horizon", "episodes").values()
    assert (line[0].runs, line[0].unsolved, line[0].spent) == (5, 2, 9)
    assert line[0].interval.middle == 90 and line[0].interval.high == math.inf
    assert points(rows, "horizon", "success")["lock", "dmq"][0].interval == intervals.wilson(3, 5)
    shown = panels_of(rows, "horizon", "value")
    assert shown.panels[0].lines[0].points[0].runs == 4 and shown.left_out == ["1 failed run"]


def test_without_an_optimum_nothing_is_solved_or_unsolved():
    rows = [*by_horizon(optimal_value=None), row(of={"horizon": 2}, **FAILED)]
    assert measurable(rows) == ["value", "seconds"]
    with pytest.raises(ValueError, match="rows: expected at least one run with horizon and success, got none"):
        panels_of(rows, "horizon", "success")
    rows += by_horizon(environment="chain")
    shown = panels_of(rows, "horizon", "loss")
    assert [panel.title for panel in shown.panels] == ["chain"]
    assert shown.left_out == ["8 runs whose loss is unknown", "1 failed run"]


def test_any_parameter_may_be_the_abscissa():
    rows = [
        row(seed, of={"horizon": h}, by={"n_samples": n, "variant": v}, max_trajectories=b)
        for seed in range(2)
        for h, n, v, b in itertools.product((3, 4), (1, 10), ("sound", "frugal"), (100, 200))
    ]
    assert swept(rows) == ["horizon", "n_samples", "max_trajectories", "variant"]
    assert panels_of(rows).x == "horizon"
    shown = panels_of(rows, "n_samples")
    assert [panel.title for panel in shown.panels] == ["lock, horizon = 3", "lock, horizon = 4"]
    assert len(shown.panels[0].lines) == 4 and not shown.categories
    assert [p.x for p in shown.panels[0].lines[0].points] == [1, 10]
    by_text = panels_of(rows, "variant")
    assert by_text.categories == ["frugal", "sound"]
    assert [p.x for p in by_text.panels[0].lines[0].points] == [0, 1]
    assert [p.x for p in panels_of(rows, "max_trajectories").panels[0].lines[0].points] == [100, 200]


def test_a_name_that_two_have_needs_its_prefix():
    rows = [row(of={"size": s}, by={"size": t}) for s in (1, 2) for t in (3, 4)]
    assert swept(rows) == ["environment.size", "algorithm.size"]
    with pytest.raises(ValueError, match=r"x: expected environment\.size or algorithm\.size, as both were swept"):
        panels_of(rows, "size")
    assert [p.x for p in panels_of(rows, "algorithm.size").panels[0].lines[0].points] == [3, 4]
    assert len(panels_of(rows, "environment.size").panels[0].lines) == 2


def test_runs_without_the_parameter_are_left_out_and_told():
    rows = [row(by={"n_samples": n}) for n in (1, 2)] + [row(algorithm="rlsvi", by={"sigma": 1})] * 3
    shown = panels_of(rows, "n_samples")
    assert shown.left_out == ["3 runs without n_samples"]
    assert "left out: 3 runs without n_samples." in below(against(rows, "n_samples"))


def test_pooled_environments_are_strata():
    rows = [
        row(seed, environment=env, of={"horizon": h}, by={"n_samples": n}, value=value)
        for env, h, value in (("lock", 3, 0.1), ("lock", 4, 0.3), ("chain", 3, 0.5))
        for n in (1, 2)
        for seed in range(3)
    ]
    assert len(panels_of(rows, "n_samples").panels) == 3
    shown = panels_of(rows, "n_samples", pool=True)
    assert [panel.title for panel in shown.panels] == ["2 environments"]
    assert shown.panels[0].lines[0].points[0].interval == pytest.approx((0.3, 0.3, 0.3))
    assert "95 % stratified bootstrap interval" in below(against(rows, "n_samples", pool=True))


UNDRAWABLE = [
    ({"x": "horizn"}, "x: expected a parameter of the runs, such as horizon, shift, kind, got 'horizn'; did you mean"),
    ({"y": "valu"}, "y: expected one of value, loss, score, .*, seconds, got 'valu'; did you mean 'value'"),
    ({"share": 0}, r"share: expected a number in \(0, 1\], got 0"),
    ({"level": 2}, r"level: expected a number in \(0, 1\), got 2"),
    ({"statistic": "max"}, "statistic: expected one of mean, iqm, median, got 'max'"),
    ({"x": "kind", "log_x": True}, "log_x: expected numbers as values of kind, got a, b"),
    ({"x": "shift", "log_x": True}, "log_x: expected positive values of shift, got 0"),
    ({"y": "loss", "log_y": True}, "log_y: expected some loss > 0, got none"),
    ({"rows": []}, "rows: expected at least one run, got none"),
]


def test_what_cannot_be_drawn_is_refused():
    rows = [r for kind, shift in (("a", 0), ("b", 1)) for r in by_horizon(by={"kind": kind, "shift": shift})]
    calls = [(lambda given=given: against(**{"rows": rows} | given), words) for given, words in UNDRAWABLE]
    calls += [
        (lambda: intervals.bootstrap([[1.0]], "mode"), "statistic: expected one of mean, iqm, median, got 'mode'"),
        (lambda: intervals.bootstrap([[], []]), "strata: expected at least one entry"),
        (lambda: intervals.bootstrap([[1.0]], level=1), r"level: expected a number in \(0, 1\), got 1"),
        (lambda: intervals.wilson(0, 0), "n: expected at least 1, got 0"),
    ]
    refused((call, ValueError, words) for call, words in calls)


def studied(**more):
    """A study in which only one algorithm has a parameter that was swept."""
    settings = [("dmq", {"n_samples": n}) for n in (10, 100)] + [("rlsvi", {"sigma": 0.03}), ("ocp", {})]
    return [
        row(seed, environment=env, algorithm=name, by=by, value=0.7 - 0.1 * i, spent=10**i * (seed + 1), **more)
        for env in ("lock", "chain")
        for i, (name, by) in enumerate(settings)
        for seed in range(4)
    ]


def test_algorithms_are_compared_where_no_parameter_is_one_of_all():
    shown = panels_of(studied(), y="score")
    assert (shown.x, shown.categories) == ("algorithm", ["dmq, 10", "dmq, 100", "ocp", "rlsvi"])
    assert [panel.title for panel in shown.panels] == ["chain", "lock"] and not shown.left_out
    found = {line.name: [(p.x, p.runs) for p in line.points] for line in shown.panels[0].lines}
    assert found == {"dmq": [(0, 4), (1, 4)], "ocp": [(2, 4)], "rlsvi": [(3, 4)]}
    assert panels_of([row()]).x == "algorithm"
    assert panels_of(studied(of={"horizon": 3}) + studied(of={"horizon": 4}), y="score").x == "horizon"
    assert panels_of([one for one in studied() if one["algorithm"] == "dmq"]).x == "n_samples"
    assert panels_of(studied(), "n_samples").left_out == ["16 runs without n_samples"]


@pytest.mark.parametrize("y", ["score", "episodes", "success", "loss"])
def test_algorithms_have_rows_with_names_points_and_bars(y):
    rows = studied()
    figure = against(rows, "algorithm", y)
    figure.draw_without_rendering()
    for axes, panel in zip(figure.axes, panels_of(rows, "algorithm", y).panels, strict=True):
        assert [text.get_text().split(",")[0] for text in axes.get_yticklabels()] == ["dmq", "dmq", "ocp", "rlsvi"]
        known = [p for line in panel.lines for p in line.points if math.isfinite(p.interval.middle)]
        drawn = [line for line in axes.lines if line.get_markerfacecolor() != "none"]
        assert sorted(line.get_ydata()[0] for line in drawn) == sorted(p.x for p in known)
        assert sorted(line.get_xdata()[0] for line in drawn) == pytest.approx(sorted(p.interval.middle for p in known))
    for text in texts(figure):
        box = text.get_window_extent()
        assert box.x0 >= -1 and box.x1 <= figure.bbox.x1 + 1 and box.y0 >= -1 and box.y1 <= figure.bbox.y1 + 1


def test_losses_of_which_there_are_none_are_not_below_0():
    (axes,) = against(by_horizon(), "horizon", "loss").axes
    low, high = axes.get_ylim()
    assert high > 0 and low > -0.05 * high


# How it is drawn


@pytest.mark.parametrize(
    ("horizons", "scale"),
    [((5, 10, 20, 40, 100), "log"), ((5, 10, 20), "linear"), (range(5, 105, 5), "linear"), ((0, 1, 100), "linear"),
     ((1, 100), "log"), ((7,), "linear")],
)  # fmt: skip
def test_an_abscissa_is_logarithmic_where_it_spans_more_than_a_decade_by_ratios(horizons, scale):
    (axes,) = against(by_horizon(horizons), "horizon").axes
    assert axes.get_xscale() == scale
    other = scale == "linear" and min(horizons) > 0
    (axes,) = against(by_horizon(horizons), "horizon", log_x=other).axes
    assert axes.get_xscale() == ("log" if other else "linear")


def test_an_ordinate_is_logarithmic_where_positive_numbers_span_more_than_a_decade():
    rows = by_horizon((2, 200))
    for y, scale in (("episodes", "log"), ("value", "linear"), ("seconds", "linear"), ("loss", "linear")):
        (axes,) = against(rows, "horizon", y).axes
        assert axes.get_yscale() == scale, y
    (axes,) = against(rows, "horizon", "episodes", log_y=False).axes
    assert axes.get_yscale() == "linear"


def test_a_logarithmic_ordinate_has_two_labels_at_least():
    for values in ((0.1, 0.3), (0.2, 0.5), (0.02, 0.5), (0.001, 0.6)):
        rows = [row(of={"horizon": h}, value=0.7 - value) for h, value in enumerate(values, 1)]
        figure = against(rows, "horizon", "loss", log_y=True)
        (axes,) = figure.axes
        labels = [text for text in texts(figure) if text in axes.get_yticklabels()]
        assert len(labels) >= 2 and len(axes.yaxis.get_minorticklocs()) > 0, values
        assert not any(text.get_text() for text in axes.get_yticklabels(minor=True)), values


def test_categories_do_not_reach_into_each_other():
    rows = [row(seed, by={"kind": kind, "k": k}) for kind in "abcd" for k in range(8) for seed in range(2)]
    figure = against(rows, "kind", "success")
    figure.draw_without_rendering()
    (axes,) = figure.axes
    x = np.array([line.get_transform().transform(line.get_xydata())[:, 0] for line in axes.lines if line.get_clip_on()])
    assert x.shape == (8, 4) and (x[:, 1:].min(axis=0) > x[:, :-1].max(axis=0)).all()


def test_zeros_are_at_the_bottom_of_a_logarithmic_axis_and_told():
    rows = [row(seed, of={"horizon": h}, value=value) for h, value in ((2, 0.7), (4, 0.6)) for seed in (0, 1)]
    figure = against(rows, "horizon", "loss", log_y=True)
    (axes,) = figure.axes
    low, high = axes.lines[0].get_ydata()
    assert low == axes.get_ylim()[0] > 0 and high == pytest.approx(0.1)
    assert "points at 0 are drawn at the bottom" in below(figure)


def test_the_text_below_says_what_points_and_bands_are():
    rows = by_horizon()
    assert below(against(rows, y="value")) == "Points: mean of 4 runs; bands: 95 % bootstrap interval."
    said = below(against(rows, y="success", level=0.9, share=0.8))
    assert said == "Points: mean of 4 runs; bands: 90 % Wilson interval; solved: a score of at least 80 %."
    assert below(against(by_horizon(seeds=1), y="value", statistic="iqm")) == "Points: interquartile mean of 1 run."
    unsolved = [*rows, *by_horizon(value=0.1)]
    assert "open markers: episodes of unsolved runs, which count as infinite" in below(against(unsolved, y="episodes"))


def test_bands_are_the_intervals():
    figure = against(by_horizon(), y="episodes")
    (axes,) = figure.axes
    (band,) = axes.collections
    expected = [end for p in points(by_horizon(), y="episodes")["lock", "dmq"] for end in p.interval[1:]]
    assert set(expected) <= set(band.get_paths()[0].vertices[:, 1].tolist())
    # Categories have a bar for each point, and no line from one to the next.
    rows = [r for kind in "ab" for r in by_horizon((3,), by={"kind": kind})]
    (axes,) = against(rows, "kind", "episodes").axes
    (bars,) = axes.collections
    assert len(bars.get_segments()) == 2
    assert {line.get_linestyle() for line in axes.lines} == {"None"}
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b"]


def test_episodes_against_the_horizon_have_the_line_of_random_exploration():
    def reference(rows, x="horizon", y="episodes", **options):
        figure = against(rows, x, y, **options)
        return [line for line in figure.axes[0].lines if line.get_color() == MUTED], texts(figure)

    rows = [row(seed, of={"horizon": h, "n_actions": 3}, spent=10**h) for h in (2, 3, 4) for seed in (0, 1)]
    (line,), found = reference(rows)
    x, y = line.get_data()
    assert y == pytest.approx(3.0 ** np.asarray(x)) and (max(x), min(y) >= 50) == (4, True)
    assert "$3^H$" in [text.get_text() for text in found]
    mixed = [*rows, row(9, of={"horizon": 2, "n_actions": 4})]
    short = [row(seed, of={"horizon": h, "n_actions": 3}, spent=5) for h in (8, 900) for seed in (0, 1)]
    for others in ((short,), (rows, "horizon", "seconds"), (rows, "n_actions")):
        assert reference(*others)[0] == []
    assert reference(mixed, pool=True)[0] == [] != reference(mixed)[0]


def test_episodes_until_half_of_the_optimum_is_earned():
    curve = {"episodes": [10, 40], "value": [0.2, 0.7]}
    more = {"details": {"curve": curve, "learned_at": 40, "solved_at": 200}}
    learner = [row(seed, of={"horizon": 2}, algorithm="q", **more) for seed in (0, 1)]
    rows = [*learner, row(0, of={"horizon": 2}, spent=99), row(0, of={"horizon": 4}, value=0.3, spent=50)]
    found = points(rows, "horizon", "earned")
    assert [point.interval.middle for point in found["lock", "q"]] == [200]
    assert [(point.interval.middle, point.unsolved) for point in found["lock", "dmq"]] == [(200, 0), (math.inf, 1)]
    assert measurable(rows)[-2:] == ["earned", "seconds"] and "earned" not in measurable(rows[2:])


def crowded():
    """Figures with many lines, long names, facets, categories, and many values of x."""
    names = ["dmq", "a $name$ with_signs", "an algorithm with a name that is rather long", "x", "y", "z", "u", "v", "w"]
    rows = [
        row(seed, environment=env, of={"horizon": h}, algorithm=name, value=0.7 - 0.05 * i, spent=10**i)
        for env in ("lock", "deep-sea")
        for i, name in enumerate(names)
        for h in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 100, 1000)
        for seed in range(2)
    ]
    texts = ["short", "a longer text of a parameter", "another_one_without_any_space"]
    kinds = [row(seed, by={"kind": kind, "k": k}) for kind in texts for k in (1, 2) for seed in range(2)]
    return [
        (rows, "horizon", "episodes", 3.3),
        (rows, "horizon", "value", 6.8),
        ([r for r in rows if r["algorithm"] in "dmqxyz"], "horizon", "loss", 6.8),
        (kinds, "kind", "value", 3.3),
    ]


@pytest.mark.parametrize("i", range(4))
def test_text_stays_within_a_figure_and_apart(i):
    rows, x, y, width = crowded()[i]
    figure = against(rows, x, y, width=width)
    assert figure.get_figwidth() == width
    found = texts(figure)
    boxes = [(text.get_text(), text.get_window_extent()) for text in found]
    for name, box in boxes:
        assert box.x0 >= -1 and box.x1 <= figure.bbox.x1 + 1, name
        assert box.y0 >= -1 and box.y1 <= figure.bbox.y1 + 1, name
    slack = 0.03 * figure.dpi  # letters are lower than their boxes
    for (one, a), (other, b) in itertools.combinations(boxes, 2):
        beside = a.x1 <= b.x0 + slack or b.x1 <= a.x0 + slack
        assert beside or a.y1 <= b.y0 + slack or b.y1 <= a.y0 + slack, (one, other)


# From the shell


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    out = tmp_path_factory.mktemp("sweep")
    spec = {
        "seeds": 2,
        "environments": [{"name": "lock", "horizon": [3, 4]}],
        "algorithms": [{"name": "dmq", "n_samples": [5, 10]}],
    }
    experiments.sweep(spec, out, workers=0)
    return out


def test_figures_from_the_shell(run, stored, tmp_path):
    out = tmp_path / "made" / "here"
    command = ["report", stored, "--figures", out, "--format", "pdf,svg,png", "--y", "loss", "--width", "two"]
    code, printed, err = run(*command, "--x", "n_samples")
    names = [f"loss-by-n_samples.{form}" for form in ("pdf", "svg", "png")]
    assert (code, printed.split(), err) == (0, [str(out / name) for name in names], "")
    assert sorted(path.name for path in out.iterdir()) == sorted(names)
    pdf = (out / "loss-by-n_samples.pdf").read_bytes()
    assert b"/FontFile2" in pdf and b"/Type3" not in pdf
    assert b"/MediaBox [ 0 0 489.6 " in pdf  # 6.8 inches in points
    assert (out / "loss-by-n_samples.svg").read_bytes().startswith(b"<?xml")
    assert (out / "loss-by-n_samples.png").read_bytes().startswith(b"\x89PNG")
    assert not (stored / "report.html").exists()
    before = {path: path.read_bytes() for path in out.iterdir()}
    assert run(*command, "--x", "n_samples")[0] == 0
    assert {path: path.read_bytes() for path in out.iterdir()} == before


@pytest.fixture
def unrendered(monkeypatch):
    """Figures whose files are empty, since rendering takes most of their time."""
    monkeypatch.setattr(figures, "rendered", lambda figure, form: b"")
    monkeypatch.setattr(reports, "gallery", lambda shown: "")


def test_every_known_quantity_is_drawn_by_default(run, stored, tmp_path, unrendered):
    assert (
        run("report", stored, "--figures", tmp_path, "--x", "horizon", "--y", "all", "--out", tmp_path / "page.html")[0]
        == 0
    )
    expected = [f"{y}-by-horizon.pdf" for y in ("episodes", "score", "seconds", "shortfall", "success")]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*expected, "page.html"])


def test_the_pictures_of_a_page_as_files(run, stored, tmp_path, unrendered):
    assert run("report", stored, "--figures", tmp_path / "sweep", "--format", "svg")[0] == 0
    assert {path.name for path in (tmp_path / "sweep").iterdir()} == {
        f"lock-{y}-by-horizon.svg" for y in ("episodes", "score", "seconds", "shortfall", "success")
    }
    assert run("run", "lock", "--horizon", 3, "--n-samples", 5, "--out", tmp_path / "run")[0] == 0
    assert run("report", tmp_path / "run", "--figures", tmp_path / "figures", "--format", "svg")[0] == 0
    assert "trajectories-by-purpose.svg" in {path.name for path in (tmp_path / "figures").iterdir()}
    code, _, err = run("report", tmp_path / "run", "--figures", tmp_path / "figures", "--y", "loss")
    assert code == 2 and "--y: expected the directory of a sweep" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--y loss", "--y: expected with --figures only"),
        ("--log-x", "--log-x: expected with --figures only"),
        ("--figures OUT --format pdf,jpg", "--format: expected some of pdf, svg, png, got 'jpg'"),
        ("--figures OUT --width three", "--width: expected one, two or a number of inches in [2.5, 20], got 'three'"),
        ("--figures OUT --width nan", "--width: expected one, two or a number of inches in [2.5, 20], got 'nan'"),
        ("--figures OUT --y value --success 2", "--success: expected a number in (0, 1], got 2.0"),
        ("--figures OUT --success 2", "--success: expected a number in (0, 1], got 2.0"),
        ("--figures OUT --y value --interval 1", "--interval: expected a number in (0, 1), got 1.0"),
        ("--figures OUT --y value --statistic mode", "--statistic: expected one of mean, iqm, median, got 'mode'"),
        ("--figures OUT --x length", "--x: expected a parameter of the runs, such as horizon, n_samples, got 'length'"),
        ("--figures OUT --epsilon .1 --y value", "--epsilon: expected with a page only"),
        ("--figures FILE", "--figures: expected a directory, got the file"),
    ],
)
def test_wrong_options_are_named(run, stored, tmp_path, options, message):
    (tmp_path / "file").write_text("")
    given = options.replace("OUT", str(tmp_path / "out")).replace("FILE", str(tmp_path / "file"))
    code, out, err = run("report", stored, *given.split())
    assert (code, out) == (2, "") and message in err
    assert not (tmp_path / "out").exists()
