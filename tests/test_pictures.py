"""Pictures: what is drawn is what the data say, in every format."""

import io
import itertools
import re

import numpy as np
import pytest
import showing
from flat import flat
from refusals import refused

import dmq_fast as dmq
from dmq_fast import Policy
from dmq_fast.baselines import REGISTRY
from dmq_fast.environments import combination_lock, river_swim
from dmq_fast.experiments.report import pictures
from dmq_fast.plotting.style import look

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture(scope="module")
def swim():
    return river_swim(4, 6)


@pytest.fixture(scope="module")
def result(swim):
    return flat(swim, n_samples=20, eps_r=1e-3, oracle="value", rng=0).learn()


def row(horizon, spent, algorithm="dmq"):
    return showing.row(algorithm=algorithm, of={"horizon": horizon, "n_actions": 3}, spent=spent)


def bytes_of(figure, form):
    file = io.BytesIO()
    figure.savefig(file, format=form)
    return file.getvalue()


def texts(figure):
    return [text.get_text() for text in showing.texts(figure)]


def every_picture(swim, result):
    t = np.linspace(0, 1000, 50)
    rows = [row(h, 10 * h * (seed + 1), algorithm=a) for h in (2, 4) for seed in range(3) for a in ("dmq", "other")]
    return {
        "against": pictures.against(rows, "horizon", "episodes"),
        "learning_curves": pictures.learning_curves({"a": (t, np.array([t, 2 * t])), "b": (t, t)}, optimum=900.0),
        "cover_and_potential": result.plot("cover"),
        "oracle_values": result.plot("oracle"),
        "visits": pictures.visits(swim, result.cover),
        "trajectories_by_purpose": pictures.trajectories_by_purpose(
            {"a": result.trajectories, "b": {"check": 5, "new": 7}}
        ),
    }


def test_every_picture_saves_and_leaves_nothing_behind(swim, result):
    before = dict(matplotlib.rcParams)
    for name, figure in every_picture(swim, result).items():
        assert bytes_of(figure, "svg").startswith(b"<?xml"), name
        assert figure.get_figwidth() == pytest.approx(3.3)
    assert dict(matplotlib.rcParams) == before
    assert not matplotlib._pylab_helpers.Gcf.figs


def test_text_stays_within_the_picture_and_apart(swim, result):
    for name, figure in every_picture(swim, result).items():
        figure.draw_without_rendering()
        box = figure.bbox
        for text in figure.findobj(matplotlib.text.Text):
            if text.get_visible() and text.get_text() and text.axes is not None and text.get_clip_on() is False:
                extent = text.get_window_extent()
                assert extent.x0 >= box.x0 - 1 and extent.x1 <= box.x1 + 1, (name, text.get_text())


def test_any_number_of_series_can_be_told_apart():
    looks = [look(i) for i in range(500)]
    assert len({(one.colour, one.line) for one in looks}) == 500
    assert len({(one.colour, one.marker) for one in looks[:81]}) == 81
    names = [f"algorithm {i}" for i in range(20)]
    t = np.arange(10.0)
    for figure in (pictures.learning_curves({name: (t, t + i) for i, name in enumerate(names)}),):
        (axes,) = figure.axes
        keys = {(line.get_color(), str(line._dash_pattern), line.get_marker()) for line in axes.lines}
        assert len(keys) == 20
        # Where colours repeat, a name alone does not say which line is its own.
        named = figure.legends[0].get_lines()
        assert {(line.get_color(), str(line._dash_pattern), line.get_marker()) for line in named} == keys


def test_names_are_text_and_fit():
    names = [
        "dmq_sound_v2",
        "$a_1$ and $",
        "a name, rather long = 0.001, with_a_word_that_is_longer_than_any_line_of_it",
    ]
    names += [f"algorithm {i}" for i in range(24)]
    t = np.arange(10.0)
    for figure in (
        pictures.learning_curves({name: (t, t) for name in names}),
        pictures.trajectories_by_purpose({name: {"check": 2, "my_$purpose$": 3} for name in names}),
    ):
        figure.draw_without_rendering()
        found = [text for text in figure.findobj(matplotlib.text.Text) if text.get_visible() and text.get_text()]
        shown = {re.sub(r"\s+", "", text.get_text().replace(r"\$", "$")): text for text in found}
        boxes = []
        for name in names:
            text = shown[re.sub(r"\s+", "", name)]
            assert not matplotlib.cbook.is_math_text(text.get_text())
            boxes.append(text.get_window_extent())
            assert boxes[-1].x0 >= -1 and boxes[-1].x1 <= figure.bbox.x1 + 1, name
            assert boxes[-1].y0 >= -1 and boxes[-1].y1 <= figure.bbox.y1 + 1, name
        boxes.sort(key=lambda box: box.y0)
        assert all(low.y1 <= high.y0 + 0.3 * 7.5 / 72 * figure.dpi for low, high in itertools.pairwise(boxes))


MINE = {
    "text.usetex": True,
    "font.size": 30,
    "figure.facecolor": "black",
    "axes.grid": True,
    "pdf.fonttype": 3,
    "svg.fonttype": "none",
    "lines.linestyle": "--",
    "savefig.bbox": "tight",
}


def test_settings_of_ones_own_change_no_picture(swim, result):
    def drawn():
        figures = {
            "cover": result.plot("cover"),
            "visits": pictures.visits(swim, result.cover),
            "solved": pictures.against([row(h, 10 * h, algorithm=name) for h in (2, 4) for name in "ab"], y="episodes"),
            "bars": pictures.trajectories_by_purpose({"a": result.trajectories}),
        }
        saved = {}
        for name, figure in figures.items():
            file = io.BytesIO()
            figure.savefig(file, format="svg", metadata={"Date": None})
            saved[name] = file.getvalue()
        return saved

    plain = drawn()
    with matplotlib.rc_context(MINE):
        assert drawn() == plain
        bars = pictures.trajectories_by_purpose({"a": result.trajectories})
        saved = bytes_of(bars, "pdf")
    for file in (saved, bytes_of(bars, "pdf")):
        assert b"/FontFile2" in file and b"/Type3" not in file


def test_every_purpose_has_a_colour_and_a_name():
    counts = {"explore": 5, "refine": 6, "test": 7, "a": 1, "b": 2, "c": 3, "check": 1}
    figure = pictures.trajectories_by_purpose({"run": counts})
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["checks", "explore", "refine", "test", "a", "b", "c"]
    bars = [bar for bar in figure.axes[0].patches if bar.get_width()]
    assert len({(bar.get_facecolor(), bar.get_hatch()) for bar in bars}) == len(bars) == 7


def test_learning_curves_skip_what_has_ended():
    x = [0, 1, 2, 3]
    y = [[0, 1, 2, np.nan], [0, 3, 4, np.nan]]
    (axes,) = pictures.learning_curves({"dmq": (x, y)}).axes
    (line,) = axes.lines
    assert line.get_xdata().tolist() == [0, 1, 2]
    assert line.get_ydata().tolist() == [0, 2, 3]


def test_the_potential_is_that_of_the_history(result):
    top, bottom, *_ = result.plot("cover").axes
    assert [bar.get_height() for bar in top.patches] == list(result.cover_sizes)
    base = result.theta.shape[2] * np.log(result.parameters["eps_r"])
    drawn = [line for line in bottom.lines if line.get_marker() == "o" and len(line.get_xdata()) > 1]
    ends = np.sort(np.concatenate([np.asarray(line.get_ydata()) for line in drawn]))
    assert ends == pytest.approx(np.sort(result.history.potentials.ravel() - base))
    least, most = (np.array(line.get_data()) for line in bottom.lines[:2])
    for line in drawn:
        x, y = line.get_data()
        # After a True, the potential is between the least that Trues add and the most that x policies reach.
        assert (y[1::2] >= np.interp(x[1::2], *least) - 1e-9).all()
        assert (y[1::2] <= np.interp(x[1::2], *most) + 1e-2).all()


def test_bounds_are_drawn_or_said():
    lock = combination_lock(4, n_actions=3, rng=0)
    far = dmq.DMQ(lock, n_samples=20, eps_r=1e-5, rng=0).learn()
    assert any(text.startswith("bounds above: sure ") for text in texts(far.plot("cover")))
    near = dmq.DMQ(lock, n_samples=20, eps_r=0.1, rng=0).learn()
    assert any(text.startswith("printed: ") for text in texts(near.plot("cover")))


def test_a_run_without_a_true_has_a_picture():
    result = dmq.DMQ(combination_lock(1, rng=0), rng=0).learn()
    result.plot("cover").draw_without_rendering()


def test_oracle_values_mark_the_trues(result):
    (axes,) = result.plot("oracle").axes
    columns = result.history.columns()
    (trues,) = [line for line in axes.lines if line.get_marker() == "^"]
    assert (trues.get_xdata() == np.flatnonzero(columns["decision"]) + 1).all()
    assert trues.get_ydata() == pytest.approx(columns["value"][columns["decision"]])
    (false,) = [line for line in axes.lines if line.get_marker() == "o"]
    assert len(false.get_xdata()) == (~columns["decision"]).sum()
    assert (false.get_ydata() < result.parameters["eps_t"]).all()
    assert f"True {result.counts['trues']:,}" in texts(axes.figure)


def test_visits_are_occupancies(swim, result):
    policy = Policy.fixed([1] * 6)
    (image,) = pictures.visits(swim, policy).axes[0].images
    table = np.ma.filled(np.ma.masked_invalid(image.get_array()), 0.0)
    for level, distribution in enumerate(swim.occupancy(policy)):
        assert table[: len(distribution), level] == pytest.approx(
            np.where(distribution > 0, np.maximum(distribution, 1e-4), 0.0)
        )
    (image,) = pictures.visits(swim, result.cover).axes[0].images
    table = np.ma.filled(np.ma.masked_invalid(image.get_array()), 0.0)
    mean = np.mean([swim.occupancy(pi)[3] for pi in result.cover[3]], axis=0)
    assert table[: len(mean), 3] == pytest.approx(np.where(mean > 0, np.maximum(mean, 1e-4), 0.0))


def test_bars_add_up(result):
    figure = pictures.trajectories_by_purpose({"run": result.trajectories})
    bars = figure.axes[0].patches
    assert sum(bar.get_width() for bar in bars) == result.n_trajectories
    assert f"{result.n_trajectories:,}" in texts(figure)


def test_what_cannot_be_drawn_is_refused(swim, result, tmp_path):
    decisions = dmq.DMQ(swim, n_samples=5, rng=0).learn()
    uncalled = dmq.DMQ(combination_lock(1, rng=0), variant="paper", rng=0).learn()
    decisions.save(tmp_path / "run.npz")
    with np.load(tmp_path / "run.npz") as archive:
        np.savez(tmp_path / "old.npz", **{k: archive[k] for k in archive.files if k != "history_potentials"})
    old, curves = dmq.load(tmp_path / "old.npz"), pictures.learning_curves
    wrong = [
        (lambda: pictures.against([]), "rows: expected at least one run"),
        (lambda: curves({}), "curves: expected at least one"),
        (lambda: curves({"a": ([1, 2], [1, 2, 3])}), r"curves\['a'\]: expected x \(n,\) and y \(runs, n\), got \(2,\)"),
        (lambda: curves({"a": ([1], [np.nan])}), "NaN only"),
        (lambda: curves({"a": ([1], [1])}, among=["b"]), r"among: expected the names of all curves, got none of \['a'"),
        (lambda: pictures.trajectories_by_purpose({}), "runs: expected at least one"),
        (lambda: pictures.visits(swim, result.cover[1:]), "policies: expected 6 covers"),
        (lambda: decisions.plot("oracle"), 'this run had oracle="decision"'),
        (lambda: uncalled.plot("oracle"), "expected a run with oracle calls"),
        (lambda: old.plot("cover"), "expected the potential at each True"),
    ]
    refused((call, ValueError, words) for call, words in wrong)


def test_the_learning_curve_of_a_baseline_is_drawn_with_the_optimum(swim):
    result = REGISTRY["rlsvi"](swim, n_episodes=50, rng=0).learn()
    (axes,) = result.plot(mdp=swim).axes
    curve, optimum = (np.asarray(line.get_ydata(), dtype=float) for line in axes.lines[:2])
    assert curve == pytest.approx(result.curve.value) and optimum == pytest.approx(swim.optimal_value)
    assert len(result.plot().axes[0].lines) == 1
    assert sum(bar.get_width() for bar in result.plot("trajectories").axes[0].patches) == 50
    assert result.plot("visits", mdp=swim).axes
