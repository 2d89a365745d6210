"""The runs of a sweep as tables: columns, data frames, CSV files, learning curves."""

import csv
import re
import sys

import pytest

from dmq_fast import experiments
from dmq_fast.experiments.report.latex import comparison
from dmq_fast.experiments.report.metrics import QUANTITIES
from dmq_fast.experiments.report.panels import panels_of

SPEC = {
    "seeds": 2,
    "environments": [{"name": "lock", "horizon": [3, 4]}],
    "algorithms": [
        {"name": "dmq", "n_samples": 10},
        {"name": "rlsvi", "sigma": 0.03, "n_episodes": 40, "checkpoints": 4},
    ],
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    out = tmp_path_factory.mktemp("sweep")
    experiments.sweep(SPEC, out, workers=0)
    return out


@pytest.fixture
def rows(stored):
    return experiments.load(stored)


def curves_of(rows):
    """(cell, seed, episodes, value) of every checkpoint."""
    return [
        (row["cell"], row["seed"], *point)
        for row in rows
        if "curve" in row["details"]
        for point in zip(row["details"]["curve"]["episodes"], row["details"]["curve"]["value"], strict=True)
    ]


def read_csv(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_rows_are_a_list_with_cells(rows):
    assert isinstance(rows, list) and len(rows) == 8
    assert [(cell.algorithm, cell.environment_parameters["horizon"], len(cell.rows)) for cell in rows.cells] == [
        ("dmq", 3, 2), ("rlsvi", 3, 2), ("dmq", 4, 2), ("rlsvi", 4, 2)
    ]  # fmt: skip
    some = experiments.Rows(row for row in rows if row["algorithm"] == "dmq")
    assert len(some.cells) == 2
    assert rows.columns() == experiments.columns(rows)


def test_curves_have_a_line_for_each_checkpoint(rows):
    table = rows.columns(curves=True)
    assert {len(column) for column in table.values()} == {len(curves_of(rows))}
    columns = (table[name] for name in ("cell", "seed", "episodes", "value"))
    assert list(zip(*columns, strict=True)) == curves_of(rows)
    assert set(table["algorithm"]) == {"rlsvi"} and set(table["algorithm.sigma"]) == {0.03}
    assert {"standard_error", "reward", "regret", "environment.horizon", "optimal_value"} <= table.keys()
    without = experiments.Rows(row for row in rows if row["algorithm"] == "dmq")
    assert without.columns(curves=True) == {}


def test_data_frames(rows):
    pytest.importorskip("pandas")
    frame = rows.to_dataframe()
    assert list(frame.columns) == list(rows.columns()) and len(frame) == 8
    means = frame.groupby(["algorithm", "environment.horizon"])["value"].mean()
    assert means["dmq", 3] == pytest.approx(sum(row["value"] for row in rows.cells[0].rows) / 2)
    curves = rows.to_dataframe(curves=True)
    assert curves["value"].tolist() == [value for *_, value in curves_of(rows)]


def test_files_of_curves(rows, tmp_path):
    experiments.export(rows, tmp_path / "curves.csv", curves=True)
    assert [float(one["value"]) for one in read_csv(tmp_path / "curves.csv")] == [v for *_, v in curves_of(rows)]


def test_what_is_missing_is_named(rows, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pandas"):
        rows.to_dataframe()


def test_runs_are_exported_from_the_shell(run, stored, tmp_path):
    runs, curves = tmp_path / "runs.csv", tmp_path / "curves.csv"
    code, out, err = run("report", stored, "--export", runs, "--export-curves", curves)
    assert (code, out.split(), err) == (0, [str(runs), str(curves)], "")
    assert len(read_csv(runs)) == 8 and len(read_csv(curves)) == len(curves_of(experiments.load(stored)))
    assert not (stored / "report.html").exists()


def test_a_latex_table_has_the_numbers_of_the_figure_of_algorithms(run, stored, rows, tmp_path):
    assert run("report", stored, "--export", tmp_path / "t.tex")[0] == 0
    experiments.export(rows, tmp_path / "u.tex")
    text = (tmp_path / "t.tex").read_text()
    assert text == (tmp_path / "u.tex").read_text()
    assert text.count("{") == text.count("}") and text.count("$") % 2 == 0
    lines = [line.removesuffix(r" \\").split(" & ") for line in text.splitlines() if line.endswith(r" \\")]
    heads, *entries = lines
    assert heads == ["environment", "algorithm", "runs", "score", "success rate", "episodes until solved", "seconds"]
    assert [line[:3] for line in entries] == [
        ["lock, horizon = 3", "dmq", "$2$"], ["", "rlsvi", "$2$"],
        ["lock, horizon = 4", "dmq", "$2$"], ["", "rlsvi", "$2$"],
    ]  # fmt: skip
    for y, statistic in (("score", "mean"), ("episodes", "median")):
        panels = panels_of(rows, "algorithm", y).panels
        shown = [point.interval.middle for panel in panels for line in panel.lines for point in line.points]
        column = [
            re.sub(r"\\mathbf|[${},]", "", line[heads.index(QUANTITIES[y].label)].split(" [")[0]) for line in entries
        ]
        assert [float(one) for one in column] == pytest.approx(shown, rel=1e-3), (y, statistic)
    bold = [["mathbf" in entry for entry in line] for line in entries]
    episodes = [bold[i][heads.index("episodes until solved")] for i in range(4)]
    assert episodes[0] != episodes[1] and episodes[2] != episodes[3]


def test_names_in_latex_tables_are_escaped():
    row = {
        "cell": "a", "seed": 0, "environment": "my_env:make", "environment_parameters": {}, "status": "ended",
        "algorithm": "50%_{x}", "algorithm_parameters": {}, "version": "1", "value": 0.9996, "uniform_value": 0.0,
        "optimal_value": 1.0, "n_trajectories": 7, "seconds": 1e-5, "counts": {}, "details": {}, "error": None,
    }  # fmt: skip
    (line,) = (line for line in comparison([row]).splitlines() if "my" in line)
    assert line.startswith(
        r"my\_env:make & 50\%\_\{x\} & $1$ & $0.999$ & $1$ [$0.207$, $1$] & $7$ & $1 \times 10^{-5}$"
    )
    assert comparison([]).count("\n") > 3


def test_exports_that_cannot_be_written_are_refused(run, stored):
    for option, file, message in (
        ("--export", "runs.xls", "expected a file that ends in .csv or .tex, got "),
        ("--export-curves", "none/x.csv", "there is no directory"),
        ("--export-curves", "x.tex", "expected a file that ends in .csv, got "),
    ):
        code, out, err = run("report", stored, option, file)
        assert (code, out) == (2, "") and f"{option}: {message}" in err


def test_a_run_has_no_rows_to_export(run, tmp_path):
    assert run("run", "lock", "--horizon", 3, "--n-samples", 5, "--out", tmp_path)[0] == 0
    code, _, err = run("report", tmp_path, "--export", tmp_path / "x.csv")
    assert code == 2 and "--export: expected the directory of a sweep" in err
