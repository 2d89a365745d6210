"""The HTML page of a run and of a sweep: complete, self-contained, valid, and safe."""

import contextlib
import json
import math
import re
import shutil
import sqlite3
import sys

import numpy as np
import pytest
import showing
from showing import Outline

import dmq_fast as dmq
from dmq_fast import cli
from dmq_fast.environments import combination_lock
from dmq_fast.experiments.report import metrics, reports
from dmq_fast.experiments.report.reports import run_report, sweep_pictures, sweep_report
from dmq_fast.experiments.sweeps.spec import seeds_of
from dmq_fast.kernels.build import build

pytest.importorskip("matplotlib")


def check(source):
    """What holds of every page."""
    outline = Outline(source)
    assert source.startswith("<!DOCTYPE html>")
    assert len(set(outline.ids)) == len(outline.ids)
    assert set(outline.references) <= set(outline.ids)
    # Nothing is fetched: the only addresses are pictures within the page.
    assert all(address.startswith("data:image/svg+xml;base64,") for address in outline.addresses)
    assert not {"script", "link", "iframe", "object"} & set(outline.tags)
    assert "@import" not in source and "url(http" not in source
    assert 'name="viewport"' in source and "prefers-color-scheme: dark" in source and "@media print" in source
    # Every picture has a name.
    assert outline.tags.count("img") == len(re.findall(r'<img alt="[^"]+"', source))
    # A colour that nobody defines is black as a fill, and none at all as a stroke.
    assert set(re.findall(r"var\(--([\w-]+)\)", source)) <= set(re.findall(r"--([\w-]+):", source))
    return outline


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("saved") / "run"
    command = "run lock --horizon 5 --n-samples 20 --oracle value --seed 3 --quiet --out"
    assert cli.main([*command.split(), str(directory)]) == 0
    return directory


@pytest.fixture
def saved(run_directory, tmp_path):
    """A run directory of the test's own."""
    return shutil.copytree(run_directory, tmp_path / "run")


@pytest.fixture
def plain(monkeypatch):
    """Pages without pictures, which take most of their time."""
    monkeypatch.setattr(reports, "gallery", lambda shown: "")


def test_the_page_of_a_run(run, saved):
    code, out, err = run("report", saved, "--epsilon", 0.2)
    assert (code, out.strip(), err) == (0, str(saved / "report.html"), "")
    source = (saved / "report.html").read_text(encoding="utf-8")
    outline = check(source)
    assert run("report", saved, "--epsilon", 0.2, "--out", saved / "again.html")[0] == 0
    assert (saved / "again.html").read_text(encoding="utf-8") == source
    result, summary = dmq.load(saved / "result.npz"), json.loads((saved / "run.json").read_text())
    assert outline.tags.count("img") == 7
    for words in (
        f"{result.n_trajectories:,}",
        f"{result.counts['oracle_calls']:,}",
        "value / optimum 0.7 / 0.7 (score 100.0%)",
        "dmq-fast run lock --horizon 5 --n-samples 20 --oracle value --seed 3",
        f"{result.key[0]:#018x}",
        f"numpy {np.__version__}",
        f"dmq_fast {build()}",
        "Lemma A.5, premise",
        "proof of Theorem 6.1, invariant 1",
    ):
        assert words in outline.text, words
    certificate = dmq.certificate(
        result, combination_lock(5, n_actions=4, rng=summary["environment_seed"]), epsilon=0.2
    )
    verdicts = [one["holds"] for one in certificate["statements"]]
    assert (outline.text.count(" holds"), outline.text.count(" FAILS")) == (
        sum(verdicts),
        len(verdicts) - sum(verdicts),
    )


def test_a_run_without_tables_has_a_page(plain, run, tmp_path):
    run("run", "cart-pole", "--horizon", 4, "--n-samples", 5, "--out", tmp_path)
    code, _, err = run("report", tmp_path)
    assert code == 0
    assert "nothing is exact in the certificate, since this environment has no tables" in err
    outline = check((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "value (estimate)" in outline.text and "Note: nothing is exact" in outline.text
    code, _, err = run("report", tmp_path, "--epsilon", 0.1)
    assert code == 2 and "--epsilon: expected where errors are known exactly" in err


def test_code_of_ones_own_is_not_run_for_a_page(plain, run, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("from dmq_fast.environments import chain\ndef make():\n    return chain(4, rng=0)\n")
    assert run("run", "--env-file", f"{file}:make", "--n-samples", 5, "--out", tmp_path / "run")[0] == 0
    file.write_text("raise SystemExit('must not run')\n")
    code, _, err = run("report", tmp_path / "run")
    assert code == 0
    assert "does not run the code" in err
    check((tmp_path / "run" / "report.html").read_text(encoding="utf-8"))


def test_the_page_of_a_run_with_a_function_class_of_ones_own(plain, run, tmp_path, monkeypatch):
    file = tmp_path / "class_for_a_page.py"
    file.write_text("import dmq_fast\ndef make():\n    return dmq_fast.FiniteClass(2.0, eps_s=0.01)\n")
    monkeypatch.syspath_prepend(tmp_path)
    command = ["run", "lock", "--horizon", 3, "--n-samples", 5, "--function-class"]
    assert run(*command, "class_for_a_page:make", "--out", tmp_path / "run")[0] == 0
    file.write_text("raise SystemExit('must not run')\n")
    del sys.modules["class_for_a_page"]
    code, _, err = run("report", tmp_path / "run")
    assert (code, err) == (0, "")
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    check(page)
    assert "finite, scale = 2.0" in page


def test_another_environment_by_the_same_command_is_noticed(plain, run, saved):
    summary = json.loads((saved / "run.json").read_text())
    (saved / "run.json").write_text(json.dumps(summary | {"optimal_value": 0.5}))
    code, _, err = run("report", saved)
    assert code == 0
    assert "this version makes another environment of that command" in err


def test_a_run_cut_short_has_a_page(plain, run, tmp_path):
    assert run("run", "lock", "--horizon", 6, "--max-trajectories", 300, "--out", tmp_path)[0] == 3
    assert run("report", tmp_path)[0] == 0
    assert "status max_trajectories" in check((tmp_path / "report.html").read_text(encoding="utf-8")).text


def test_names_are_text_not_markup(plain):
    lock = combination_lock(3, n_actions=2, rng=0)
    result = dmq.DMQ(lock, n_samples=5, rng=0).learn()
    evil = '<script>alert("1")</script>&\'x'
    summary = {
        "environment": evil, "environment_parameters": {evil: evil}, "environment_seed": 0, "horizon": 3,
        "n_actions": 2, "dimension": 2, "sampler": evil, "seed": 0, "variant": evil, "status": evil,
        "value": 0.7, "value_trajectories": None, "optimal_value": 0.7,
        "n_trajectories": 5, "counts": result.counts, "parameters": result.parameters, "seconds": result.seconds,
        "cover_sizes": [1], "printed_cover_bound": None, "sure_cover_bound": 5, "warnings": [evil], "version": evil,
    }  # fmt: skip
    outline = check(run_report(result, summary, command=["dmq-fast", evil], mdp=lock, notes=[evil]))
    assert outline.text.count(evil) >= 6


def test_what_has_no_page_is_refused_in_one_line(plain, run, saved, monkeypatch):
    monkeypatch.chdir(saved.parent)
    refused = {
        "nowhere": "report: there is no directory .*nowhere",
        ".": "holds neither a run that has ended nor a sweep",
        "run --out missing/x.html": "--out: there is no directory",
        "run --epsilon 0": "epsilon",
        "run --epsilon x": "--epsilon",
    }
    for arguments, words in refused.items():
        code, out, err = run("report", *arguments.split())
        assert (code, out) == (2, "")
        assert re.search(words, err.splitlines()[-1])


def test_a_damaged_run_is_refused(run, saved):
    for name in ("result.npz", "run.json", "command.json"):
        whole = (saved / name).read_bytes()
        (saved / name).write_bytes(b'{"torn')
        code, out, err = run("report", saved)
        assert (code, out) == (2, "")
        assert name in err.splitlines()[-1]
        assert not (saved / "report.html").exists()
        (saved / name).write_bytes(whole)


def test_without_matplotlib_the_page_is_refused(run, saved, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, out, err = run("report", saved)
    assert (code, out) == (2, "")
    assert 'pip install "dmq-fast[plot]"' in err


def row(environment, algorithm, horizon, seed, *, value=1.0, spent=100, **more):
    """A row of a sweep over horizons; half of its trajectories are checks."""
    counts = {} if spent is None else {"trajectories": {"check": spent // 2, "regression": spent - spent // 2}}
    given = {"optimal_value": 1.0, "error": None, "version": "0.1.0", "counts": counts} | more
    sizes = {"horizon": horizon, "n_actions": 4}
    names = {"environment": environment, "algorithm": algorithm, "cell": f"{environment} {algorithm} {horizon}"}
    return showing.row(seed, value=value, spent=spent, of=sizes, by={"n_samples": 20}, **(names | given))


def rows_of(source):
    """Cells of the first table, row by row."""
    body = re.search(r"<tbody>(.*?)</tbody>", source, re.DOTALL).group(1)
    return [
        [
            " ".join(re.sub(r"<[^>]*>", " ", cell).split())
            for cell in re.findall(r"<td[^>]*>(.*?)</td>", line, re.DOTALL)
        ]
        for line in re.findall(r"<tr[^>]*>(.*?)</tr>", body, re.DOTALL)
    ]


def test_the_table_of_a_sweep():
    rows = [row("lock", "dmq", h, seed, spent=100 * h + seed) for h in (4, 16) for seed in range(5)]
    rows += [row("lock", "other", 4, seed, spent=50, value=1.0 if seed < 3 else 0.2) for seed in range(5)]
    rows += [row("lock", "other", 16, seed, spent=900, value=1.0 if seed < 2 else None) for seed in range(5)]
    rows.append(row("lock", "dmq", 4, 5, status="failed", error="ValueError: no", value=None, spent=None))
    source = sweep_report(rows, name="locks", specs=["seeds = 5 # <b>"])
    outline = check(source)
    # Environment, horizon, algorithm, runs, failed, solved, median episodes, mean value.
    assert [line[:8] for line in rows_of(source)] == [
        ["lock", "4", "dmq", "6", "1", "0.8333", "402", "1"],
        ["lock", "4", "other", "5", "0", "0.6", "50", "0.68"],
        ["lock", "16", "dmq", "5", "0", "1", "1,602", "1"],
        ["lock", "16", "other", "5", "0", "0.4", "inf", "1"],
    ]
    assert "failed: ValueError: no" in outline.text and "seeds = 5 # <b>" in outline.text
    titles = ["lock: score by horizon", "lock: episodes by horizon"]
    assert all(title in outline.text for title in titles) and outline.tags.count("img") == 5


def test_a_sweep_without_optimum_has_no_success_rate():
    rows = [row("cart-pole", "dmq", h, seed, optimal_value=None) for h in (4, 8) for seed in range(2)]
    source = sweep_report(rows)
    outline = check(source)
    assert "solved" not in outline.text and len(rows_of(source)) == 2


def curved(environment, algorithm, horizon, seed, *, learned, solved, **more):
    """A row of an algorithm with a learning curve."""
    episodes = [1, 10, 100]
    curve = {"episodes": episodes, "value": [0.0, 0.5, 1.0], "reward": [0.0, 4.0, 70.0], "regret": [1.0, 6.0, 30.0]}
    details = {"curve": curve, "learned_at": learned, "solved_at": solved}
    return row(environment, algorithm, horizon, seed, details=details, counts={}, **more)


def test_episodes_until_solved_are_those_of_the_curve(monkeypatch):
    rows = [curved("lock", "ucb-q", h, seed, learned=10 * h, solved=200) for h in (4, 8) for seed in range(3)]
    rows += [
        curved("lock", "uniform", h, seed, learned=None, solved=None, spent=900) for h in (4, 8) for seed in (0, 1)
    ]
    rows += [row("lock", "dmq", h, seed, spent=120) for h in (4, 8) for seed in range(3)]
    monkeypatch.setattr(reports, "gallery", lambda shown: " ".join(one.title for one in shown))
    source = sweep_report(rows)
    outline = check(source)
    # Until solved, good after, stopped after, until half is earned. DMQ, which is worth the optimum after 120 episodes,
    # has earned half of it in all after 240: 300 by hundreds.
    assert [line[:10] for line in rows_of(source)[:3]] == [
        ["lock", "4", "dmq", "3", "0", "1", "120", "-", "120", "300"],
        ["lock", "4", "ucb-q", "3", "0", "1", "100", "100", "-", "200"],
        ["lock", "4", "uniform", "2", "0", "1", "100", "100", "-", "inf"],
    ]
    assert "lock: episodes by horizon" in outline.text and "lock: earned by horizon" in outline.text
    assert "lock: good_after by horizon" not in outline.text


def test_what_stops_by_itself_is_solved_where_it_stops():
    """BPI-UCBVI has a curve and a rule when to stop: its episodes mean what those of DMQ mean."""

    def of(name, **more):
        return metrics.QUANTITIES[name].of(curved("lock", "bpi-ucbvi", 4, 0, learned=100, solved=100) | more, 0.95)

    stopped = {"counts": {"stopped_after": 340}, "n_trajectories": 340}
    for more, (good, at, until) in (
        (stopped, (100, 340, 340)),
        (stopped | {"value": 0.9}, (100, math.inf, math.inf)),
        ({"counts": {"stopped_after": None}, "status": "max_trajectories"}, (100, math.inf, math.inf)),
        ({"counts": {"stopped_after": None}, "algorithm_parameters": {"epsilon": None}}, (100, None, 100)),
        ({}, (100, None, 100)),
    ):
        assert (of("good_after", **more), of("stopped_after", **more), of("episodes", **more)) == (good, at, until)
    dmq = row("lock", "dmq", 4, 0, spent=120)
    found = [metrics.QUANTITIES[name].of(dmq, 0.95) for name in ("good_after", "stopped_after", "episodes")]
    assert found == [None, 120, 120]
    cut = metrics.QUANTITIES["episodes"].of(dmq | {"status": "max_trajectories"}, 0.95)
    assert cut == math.inf  # it did not know


def test_scores_of_stores_without_uniform_play_are_shares_of_the_optimum():
    old = row("lock", "dmq", 4, 0, value=0.5)
    assert metrics.QUANTITIES["score"].of(old, 0.95) == 0.5
    assert metrics.QUANTITIES["score"].of(old | {"uniform_value": None}, 0.95) == 0.5
    assert metrics.QUANTITIES["score"].of(old | {"uniform_value": 0.4}, 0.95) == pytest.approx(1 / 6)


def test_the_mean_reward_of_what_learns_first():
    def at(**more):
        return metrics.QUANTITIES["earned"].of(row("lock", "dmq", 4, 0, **more), 0.95)

    # (T - n) value > T / 2; at T = 200 both are equal, which is not enough.
    assert at(spent=100, value=1.0) == 300
    assert at(spent=99, value=1.0) == 200
    assert at(spent=99, value=0.75) == 300
    assert at(spent=99, value=0.5) == at(spent=99, value=None) == at(spent=None) == math.inf


def test_environments_of_one_size_have_learning_curves():
    rows = [curved("swim", "ucb-q", 4, seed, learned=100, solved=100) for seed in range(3)]
    rows += [row("swim", "dmq", 4, seed, spent=120) for seed in range(3)]
    shown = list(sweep_pictures(rows))
    assert [one.title for one in shown[:2]] == ["swim: score", "swim: regret"]
    value, regret = (one.figure.axes[0] for one in shown[:2])
    drawn = [one for one in value.lines if one.get_clip_on()]
    (line,) = (one for one in drawn if len(one.get_xdata()) == 3)
    assert line.get_ydata().tolist() == [0.0, 0.5, 1.0]
    (dot,) = (one for one in drawn if one.get_marker() == "o")
    assert (dot.get_xdata().tolist(), dot.get_ydata().tolist()) == ([120], [1.0])
    (loss,) = regret.lines
    assert loss.get_ydata().tolist() == [1.0, 6.0, 30.0]
    assert loss.get_color() == line.get_color()


def image(row, scale=7.0, shift=-3.0):
    """The row of the same run on an affine image of its environment."""
    worth = {name: scale * row[name] + shift for name in ("value", "uniform_value", "optimal_value")}
    curve = row["details"].get("curve")
    if curve is None:
        return row | worth
    columns = {
        "value": [scale * one + shift for one in curve["value"]],
        "reward": [scale * one + shift * n for n, one in zip(curve["episodes"], curve["reward"], strict=True)],
        "regret": [scale * one for one in curve["regret"]],
    }
    return row | worth | {"details": row["details"] | {"curve": curve | columns}}


def numbers_of(figure):
    """Everything that is drawn in a figure: lines, bands and texts."""
    for axes in figure.axes:
        yield from (line.get_xydata() for line in axes.lines)
        yield from (path.vertices for one in axes.collections for path in one.get_paths())
        yield np.array([*axes.get_xlim(), *axes.get_ylim()])


def test_no_shift_and_no_scale_of_rewards_changes_a_table_or_a_figure():
    known = {"uniform_value": 0.2, "optimal_value": 1.1}
    rows = [curved("swim", "ucb-q", 4, seed, learned=100, solved=100, value=1.1, **known) for seed in range(3)]
    rows += [row("swim", "dmq", 4, seed, spent=120 + seed, value=1.1 - 0.03 * seed, **known) for seed in range(3)]
    rows += [row("lock", "dmq", h, seed, spent=h, value=0.9 + 0.1 * seed, **known) for h in (4, 8) for seed in range(3)]
    images = [image(one) for one in rows]
    heads = re.findall(r"<th[^>]*>(.*?)</th>", sweep_report(rows))
    in_points = [heads.index("mean value"), heads.index("mean optimum")]
    for mine, theirs in zip(rows_of(sweep_report(rows)), rows_of(sweep_report(images)), strict=True):
        for i, (one, other) in enumerate(zip(mine, theirs, strict=True)):
            if i in in_points:
                assert float(other) == pytest.approx(7.0 * float(one) - 3.0, rel=2e-3)
            else:
                assert other == one, heads[i]
    shown, theirs = list(sweep_pictures(rows)), list(sweep_pictures(images))
    assert [one.title for one in shown] == [one.title for one in theirs] and len(shown) > 5
    for one, other in zip(shown, theirs, strict=True):
        assert [text.get_text() for text in showing.texts(one.figure)] == [
            text.get_text() for text in showing.texts(other.figure)
        ]
        for drawn, again in zip(numbers_of(one.figure), numbers_of(other.figure), strict=True):
            np.testing.assert_allclose(again, drawn, rtol=1e-9, atol=1e-9, err_msg=one.title)


def test_environments_that_differ_otherwise_have_pictures_of_their_own():
    rows = []
    for switch in (0.1, 0.0):
        for h in (4, 8):
            parameters = {"horizon": h, "n_actions": 4, "switch": switch}
            rows += [row("lock", "dmq", h, 0, cell=f"{h} {switch}", environment_parameters=parameters)]
    figure = {one.title: one.figure for one in sweep_pictures(rows)}["lock: episodes by horizon"]
    assert [axes.get_title(loc="left") for axes in figure.axes] == [f"lock, switch = {s}" for s in ("0", "0.1")]


def test_cells_with_one_value_in_two_parameters_are_two_lines():
    rows = [
        row("swim", "dmq", h, 0, cell=f"{h} {name}", algorithm_parameters={"eps_s": None, "eps_t": None, name: 2})
        for h in (4, 8) for name in ("eps_s", "eps_t")
    ]  # fmt: skip
    figure = next(sweep_pictures(rows)).figure
    names = {" ".join(text.get_text().split()) for text in figure.legends[0].get_texts()}
    assert {"dmq, eps_s = 2", "dmq, eps_t = 2"} <= names


def test_names_have_no_subscripts_and_seeds_no_gaps(plain):
    versions = ("0.9.0", "0.10.0")
    rows = [row("river_swim", "my_dmq", 4, seed, version=one) for seed in (0, 1, 2, 3, 9) for one in versions]
    source = sweep_report(rows)
    assert ">river_swim</td>" in source and ">my_dmq</td>" in source
    text = check(source).text
    assert "seeds 0 to 3, 9 versions" in text and "dmq_fast 0.9.0, dmq_fast 0.10.0" in text


def test_warnings_that_differ_in_numbers_only_are_one(plain):
    rows = [row("lock", "dmq", 3, seed, warnings=[f"no reward from levels {seed}, 37 to 40 on"]) for seed in range(30)]
    text = check(sweep_report(rows)).text
    assert "30 runs of dmq: no reward from levels 0, 37 to 40 on (others with other numbers)" in text
    assert "more messages" not in text


def test_trajectories_beyond_64_bits_have_pictures():
    rows = [row("lock", name, h, 0, spent=10**18 * h**2, value=v) for h in (3, 9) for name, v in (("a", 1), ("b", 0.5))]
    source = sweep_report(rows)
    check(source)
    assert source.count("<figure>") == 5
    assert [line[6] for line in rows_of(source)] == [f"{9 * 10**18:,}", "inf", f"{81 * 10**18:,}", "inf"]


def test_cells_that_differ_in_budget_or_seed_are_told_apart(plain):
    rows = [
        row("lock", "dmq", 4, seed, cell=f"{fixed} {budget}", max_trajectories=budget, environment_seed=fixed)
        for fixed in (1, 2)
        for budget in (50, 60)
        for seed in (0, 1)
    ]
    cells = [line[:4] for line in rows_of(sweep_report(rows))]
    assert cells == [["lock", f"{fixed}", "dmq", f"{budget}"] for fixed in (1, 2) for budget in (50, 60)]
    # An environment that each seed makes anew has no seed to tell.
    rows = [row("lock", "dmq", 4, seed, environment_seed=seeds_of(seed)[0]) for seed in (0, 1)]
    assert rows_of(sweep_report(rows))[0][:2] == ["lock", "dmq"]


def test_messages_are_counted_and_few(plain):
    rows = [row("lock", "dmq", 3, seed, value=None, spent=None, status="failed", error=f"E{seed % 20}: <b>")
            for seed in range(25)]  # fmt: skip
    rows += [row("lock", "ocp", 3, seed, warnings=["equations contradict"]) for seed in range(3)]
    outline = check(sweep_report(rows, notes=["28 of 30"]))
    shown = " ".join(outline.text.split())
    assert "Note: 28 of 30" in shown
    assert "Warning: 2 runs failed: E0: <b>" in shown and "Warning: 1 run failed: E5: <b>" in shown
    assert "Warning: and 10 more messages in the store" in shown and "E11" not in shown
    assert "3 runs of ocp: equations contradict" in shown
    assert [line[2:4] for line in rows_of(sweep_report(rows))] == [["25", "25"], ["3", "0"]]


def test_failures_are_shown_with_seeds_and_a_traceback(plain):
    failed = {"value": None, "spent": None, "status": "failed", "error": "ValueError: no <b>"}
    rows = [row("lock", "dmq", 3, seed, **failed) for seed in (2, 5)] + [row("lock", "dmq", 4, 7, **failed)]
    rows[0]["details"] = {"traceback": "Traceback:\n  in <lock>\nValueError: no <b>\n"}
    rows.append(row("lock", "dmq", 3, 6))
    shown = check(sweep_report(rows)).text
    assert "3 x ValueError: no <b>" in shown
    assert "lock horizon=3, dmq: seeds 2, 5" in shown and ": seed 7" in shown
    assert "Traceback: in <lock> ValueError: no <b>" in " ".join(shown.split())
    assert "Failures" not in check(sweep_report(rows[-1:])).text


def test_a_sweep_of_failures_has_a_page():
    rows = [row("lock", "dmq", 4, 0, status="crashed", error="died", value=None, spent=None, seconds=None)]
    check(sweep_report(rows))
    with pytest.raises(ValueError, match="rows: expected at least one run"):
        sweep_report([])


def test_the_page_of_a_sweep_from_its_directory(run, tmp_path, monkeypatch):
    spec = tmp_path / "small.toml"
    spec.write_text(
        'name = "small"\nseeds = 2\n[[environments]]\nname = "lock"\nhorizon = [3, 5]\n'
        '[[algorithms]]\nname = "dmq"\nvariant = ["sound", "paper"]\nn_samples = 10\n'
    )
    assert run("sweep", spec, "--out", tmp_path / "out", "--workers", 0, "--quiet")[0] == 0
    code, out, err = run("report", tmp_path / "out")
    assert (code, err) == (0, "")
    source = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    outline = check(source)
    monkeypatch.setattr(reports, "gallery", lambda shown: "")
    assert out.strip() == str(tmp_path / "out" / "report.html")
    assert len(rows_of(source)) == 4
    assert "horizon = [3, 5]" in outline.text
    code, _, err = run("report", tmp_path / "out", "--epsilon", 0.1)
    assert code == 2 and "--epsilon" in err
    with contextlib.closing(sqlite3.connect(tmp_path / "out" / "runs.sqlite")) as connection, connection:
        connection.execute("DELETE FROM runs WHERE seed = 1")
    code, _, err = run("report", tmp_path / "out")
    assert (code, err) == (0, "note: 4 of 8 runs are stored; the sweep has not ended\n")
    assert "4 of 8 runs are stored" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
