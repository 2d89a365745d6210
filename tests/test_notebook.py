"""What print and notebooks show: certificates, rows and comparisons as tables, pictures, and progress."""

import json
import pickle
import sys

import pytest
from flat import flat

import dmq_fast as dmq
from dmq_fast import experiments
from dmq_fast.baselines import RLSVI
from dmq_fast.environments import chain, combination_lock


@pytest.fixture(scope="module")
def lock():
    return combination_lock(5, n_actions=3, rng=0)


@pytest.fixture(scope="module")
def result(lock):
    return flat(lock, n_samples=20, oracle="value", rng=1).learn()


@pytest.fixture(scope="module")
def stopped(lock):
    return dmq.SelfStopping(lock, epsilon=0.2, rng=1).learn()


@pytest.fixture(scope="module")
def baseline(lock):
    return RLSVI(lock, sigma=0.1, n_episodes=30, rng=0).learn()


def test_certificates(lock, result):
    certificate = dmq.certificate(result, lock, epsilon=0.2)
    text = repr(certificate)
    assert text.count("FAILS") == sum(not one["holds"] for one in certificate["statements"])
    assert "V* = 0.7" in text and certificate["statements"][0]["formula"] in text
    assert "V*" not in repr(dmq.certificate(result))
    # It is a dict in every other respect.
    assert json.loads(json.dumps(certificate)) == certificate == pickle.loads(pickle.dumps(certificate))


def test_rows(tmp_path):
    spec = {"seeds": 2, "environments": [{"name": "lock", "horizon": [3, 4]}], "algorithms": [{"name": "dmq"}]}
    experiments.sweep(spec, tmp_path, workers=0)
    lines = [line.split() for line in repr(experiments.load(tmp_path)).splitlines()]
    assert lines[0] == ["4", "runs:"] and lines[2:] == [["lock", "3", "dmq", "2"], ["lock", "4", "dmq", "2"]]
    many = [{"cell": str(i), "environment": "e", "algorithm": "a", "environment_parameters": {}, "seed": 0,
             "algorithm_parameters": {"k": i}} for i in range(100)]  # fmt: skip
    assert "and 80 more cells" in repr(experiments.Rows(many))
    assert repr(experiments.Rows([{"seed": 0}])) == "[{'seed': 0}]"


# Comparisons


def test_comparisons(lock, result, stopped, baseline):
    table = dmq.compare({"one": result, "two": stopped, "three": baseline}, lock)
    assert table.columns["name"] == ["one", "two", "three"]
    assert table.columns["algorithm"] == ["dmq custom", "self-stopping", "rlsvi"]
    assert table.columns["value"] == [lock.value(one.policy) for one in (result, stopped, baseline)]
    assert table.columns["loss"] == [0.7 - value for value in table.columns["value"]]
    assert table.columns["trajectories"] == [result.n_trajectories, stopped.n_trajectories, 30]
    assert table.columns["oracle_calls"] == [result.counts["oracle_calls"], None, None]
    lines = str(table).splitlines()
    assert len(lines) == 4 and lines[0].startswith("name ") and "oracle calls" in lines[0]
    ends = {
        line.index(f"{n:,}") + len(f"{n:,}") for line, n in zip(lines[1:], table.columns["trajectories"], strict=True)
    }
    assert ends == {lines[0].index("trajectories") + len("trajectories")}


def test_results_without_names_have_those_of_their_algorithms(result, baseline):
    table = dmq.compare([result, result, baseline])
    assert table.columns["name"] == ["dmq custom 1", "dmq custom 2", "rlsvi"]
    assert table.columns["value"] == [None, None, baseline.value] and "loss" not in table.columns
    pandas = pytest.importorskip("pandas")
    assert isinstance(table.to_dataframe(), pandas.DataFrame)


def test_what_cannot_be_compared_is_refused(result):
    with pytest.raises(ValueError, match="results: expected at least one, got none"):
        dmq.compare([])
    with pytest.raises(TypeError, match="results: expected several results, got DMQResult"):
        dmq.compare(result)
    with pytest.raises(TypeError, match="results: expected results of runs, got int"):
        dmq.compare([result, 3])
    with pytest.raises(TypeError, match="mdp: expected a FiniteMDP, got str"):
        dmq.compare([result], "lock")
    with pytest.raises(ValueError, match="expected 7"):
        dmq.compare([result], chain(7, rng=0))


# Pictures


def test_a_result_draws_itself(lock, result, stopped):
    pytest.importorskip("matplotlib")
    png = result.plot()._repr_png_()
    assert png.startswith(b"\x89PNG") and png == result.plot("cover")._repr_png_()
    assert len(result.plot("oracle").axes[0].lines) >= 3
    assert result.plot("visits", mdp=lock, width=5).get_figwidth() == 5
    bars = stopped.plot("trajectories").axes[0].patches
    assert sum(bar.get_width() for bar in bars) == stopped.n_trajectories
    with pytest.raises(
        ValueError,
        match="what: expected one of cover, oracle, policy, value, curve, trajectories, visits, got 'covr'; did you",
    ):
        result.plot("covr")
    with pytest.raises(
        ValueError, match="what: expected one of policy, value, curve, trajectories, visits, got 'oracle'"
    ):
        stopped.plot("oracle")
    with pytest.raises(ValueError, match="mdp: expected the environment of the run for its visits, got none"):
        result.plot("visits")


def test_comparisons_and_rows_draw_themselves(result, baseline, tmp_path):
    pytest.importorskip("matplotlib")
    figure = dmq.compare([result, baseline]).plot(width=4)
    assert sum(bar.get_width() for bar in figure.axes[0].patches) == result.n_trajectories + 30
    spec = {"environments": [{"name": "lock", "horizon": [3, 4]}], "algorithms": [{"name": "dmq"}]}
    experiments.sweep(spec, tmp_path, workers=0)
    (axes,) = experiments.load(tmp_path).plot("horizon", "episodes").axes
    assert axes.lines[0].get_xdata().tolist() == [3, 4]


def test_pictures_without_matplotlib_name_the_extra(result, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r'pictures: expected matplotlib: pip install "dmq-fast\[plot\]"'):
        result.plot()


# Progress


def test_progress_is_a_line_of_text(lock, result, tmp_path, capsys):
    again = flat(lock, n_samples=20, oracle="value", rng=1, progress=True).learn()
    assert (again.theta == result.theta).all()
    assert capsys.readouterr().err.startswith("learned level 4 of 5, ")
    dmq.SelfStopping(lock, epsilon=0.2, rng=1).learn(progress=True)
    assert "unseen outcomes may add" in capsys.readouterr().err
    spec = {"seeds": 3, "environments": [{"name": "lock", "horizon": 3}], "algorithms": [{"name": "dmq"}]}
    experiments.sweep(spec, tmp_path, workers=0, progress=True)
    assert capsys.readouterr().err.startswith("0 of 3 runs, ")
    dmq.DMQ(lock, n_samples=5, rng=1).learn(progress=False)
    assert capsys.readouterr().err == ""
    with pytest.raises(TypeError, match="progress: expected a callable or a bool, got 1"):
        flat(lock, progress=1).learn()
