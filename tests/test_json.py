"""JSON that the package writes is JSON: numbers that it does not have are texts, and read as numbers again."""

import ast
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import showing
from hypothesis import given
from hypothesis import strategies as st

import dmq_fast as dmq
from dmq_fast import experiments
from dmq_fast._support.json_text import from_json, plain, to_json
from dmq_fast.environments import registry

ROOT = Path(dmq.__file__).parent
SHORT = ("--n-samples", 5, "--json")


def strict(text):
    """Read JSON; the bare words that Python adds to it raise."""

    def refuse(word):
        raise ValueError(word)

    return json.loads(text, parse_constant=refuse)


def test_one_module_writes_json():
    writers = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Attribute) and node.attr in ("dump", "dumps", "JSONEncoder") and named(node) == "json")
        or (isinstance(node, ast.ImportFrom) and node.module == "json")
    }
    assert writers == {"_support/json_text.py"}


def named(node):
    return node.value.id if isinstance(node.value, ast.Name) else None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text("abI", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
)


@given(VALUES)
def test_values_survive(value):
    text = to_json(value)
    strict(text)
    assert repr(from_json(text)) == repr(value)  # as text, since NaN differs from itself
    assert plain(text) == plain(json.dumps(value))  # a file that was written before is the same


WORDS = st.lists(
    st.floats()
    | st.sampled_from(["", "\\", "\\\\"]).flatmap(lambda s: st.sampled_from([s + "NaN", s + "-Infinity", s]))
)


@given(WORDS)
def test_texts_that_look_like_numbers_stay_texts(words):
    assert repr(from_json(to_json(words))) == repr(words)
    assert repr(from_json(to_json({"a": words}, indent=2).encode())) == repr({"a": words})


@given(VALUES)
def test_finite_values_are_written_as_before(value):
    try:
        expected = json.dumps(value, allow_nan=False, indent=2)
    except ValueError:
        return
    assert to_json(value, indent=2) == expected


def test_other_types_come_through_the_default():
    array = np.array([1.0, math.inf, math.nan], dtype=np.float32)
    assert strict(to_json({"a": array}, default=np.ndarray.tolist)) == {"a": [1.0, "Infinity", "NaN"]}
    assert strict(to_json({-math.inf: (math.nan,)})) == {"-Infinity": ["NaN"]}
    assert strict(to_json([np.float32(0.5), np.int64(3), array])) == [0.5, 3, [1.0, "Infinity", "NaN"]]
    with pytest.raises(TypeError):
        to_json([math.inf, object()])


def test_parameters_of_an_environment_may_be_infinite(tmp_path, run):
    mine = tmp_path / "capped.py"
    mine.write_text("import dmq_fast as dmq\ndef make(cap, low=0): return dmq.environments.chain(4, rng=0)\n")
    command = ("run", "--env-file", f"{mine}:make", "--make", "cap=Infinity", "--make", "low=NaN", *SHORT)
    code, out, err = run(*command, "--out", tmp_path / "run")
    assert code == 0, err
    for text in (out, (tmp_path / "run" / "run.json").read_text()):
        assert strict(text)["environment_parameters"] == {"cap": "Infinity", "low": "NaN"}
    code, again, _ = run("resume", tmp_path / "run", "--json")
    assert (code, strict(again)) == (0, strict(out))
    assert "cap=inf low=nan" in run("resume", tmp_path / "run")[1]


def test_defaults_of_an_environment_may_be_infinite(monkeypatch, run):
    monkeypatch.setattr(registry, "REGISTRY", dict(registry.REGISTRY))

    @registry.register("capped")
    def capped(horizon: int = 3, cap: float = math.inf, rng=None):
        """Make a chain."""
        return dmq.environments.chain(horizon, rng=rng)

    code, out, err = run("envs", "--json")
    assert code == 0, err
    assert "Infinity" in str(strict(out)["capped"])


def test_a_saved_result_may_hold_numbers_that_are_not_finite(tmp_path):
    result = dmq.DMQ(dmq.environments.chain(3, rng=0), n_samples=5, rng=1).learn()
    result = replace(result, function_class={"name": "mine", "radius": math.inf, "scale": math.nan})
    result.save(tmp_path / "new.npz")
    with np.load(tmp_path / "new.npz") as archive:
        arrays = dict(archive)
    assert strict(arrays["header"].item())["function_class"]["radius"] == "Infinity"
    arrays["header"] = np.array(json.dumps(from_json(arrays["header"].item())))  # as versions before wrote it
    assert "Infinity," in arrays["header"].item()
    np.savez(tmp_path / "old.npz", **arrays)
    for name in ("new.npz", "old.npz"):
        found = dmq.load(tmp_path / name).function_class
        assert found["radius"] == math.inf and math.isnan(found["scale"])


def test_a_journal_goes_on_whose_environment_has_a_number_that_is_not_finite(tmp_path, monkeypatch):
    env = dmq.environments.chain(3, rng=0)
    before = type(env).fingerprint
    monkeypatch.setattr(type(env), "fingerprint", lambda self: before(self) | {"cap": math.inf, "scale": math.nan})
    journal = tmp_path / "journal"
    part = dmq.DMQ(env, n_samples=5, rng=1).learn(max_trajectories=40, journal=journal)
    assert part.status == "max_trajectories"
    assert b'"NaN"' in journal.read_bytes() and b": NaN" not in journal.read_bytes()
    assert dmq.DMQ(env, n_samples=5, rng=1).learn(journal=journal).status == "ended"


class Unsure:
    """An algorithm that reports bounds it does not have."""

    def __init__(self, env, rng):
        pass

    def learn(self, budget):
        details = {"bound": math.inf, "curve": np.array([0.0, math.nan]), "name": "Infinite"}
        return experiments.Outcome("finished", 3, details=details)


def test_details_of_a_sweep_may_be_infinite(tmp_path, run):
    spec = {
        "seeds": 1,
        "environments": [{"name": "lock", "horizon": 3}],
        "algorithms": [{"name": f"{__name__}:Unsure"}],
    }
    assert experiments.sweep(spec, tmp_path, workers=0).statuses == {"finished": 1}
    (row,) = experiments.load(tmp_path)
    assert row["details"]["bound"] == math.inf and math.isnan(row["details"]["curve"][1])
    experiments.export([row], tmp_path / "rows.csv")
    text = (tmp_path / "rows.csv").read_text()
    assert '""bound"": ""Infinity""' in text and '""NaN""' in text
    assert experiments.columns([row], curves=True) == {}  # an array is no learning curve


def labelled(env, seed, *, kind):
    """Return an algorithm whose outcome says what it was given."""
    return Labelled(kind)


class Labelled:
    def __init__(self, kind):
        self.kind = kind

    def learn(self, budget):
        said = {"kind": self.kind, "bound": math.inf}
        return experiments.Outcome("finished", 1, counts=said, details=said, warnings=[self.kind])


def test_texts_of_a_sweep_stay_texts(tmp_path):
    kinds = ["plain", "NaN", "Infinity", "-Infinity", "\\NaN"]
    spec = {
        "grace": math.inf,
        "environments": [{"name": "lock", "horizon": 3}],
        "algorithms": [{"name": f"{__name__}:labelled", "kind": kinds}],
    }
    assert experiments.sweep(spec, tmp_path, workers=0).statuses == {"finished": 5}
    rows = experiments.load(tmp_path)
    assert sorted(row["algorithm_parameters"]["kind"] for row in rows) == sorted(kinds)
    for row in rows:
        kind = row["algorithm_parameters"]["kind"]
        assert row["warnings"] == [kind]
        for said in (row["counts"], row["details"]):
            assert said == {"kind": kind, "bound": math.inf}
    state = experiments.status(tmp_path)
    assert (state.counts["done"], state.counts["waiting"], state.notes) == (5, 0, ())


def test_a_parameter_of_an_environment_may_be_the_text_of_a_number(tmp_path, run):
    mine = tmp_path / "named.py"
    mine.write_text("import dmq_fast as dmq\ndef make(kind): return dmq.environments.chain(4, rng=0)\n")
    code, _, err = run("run", "--env-file", f"{mine}:make", "--make", 'kind="NaN"', *SHORT, "--out", tmp_path / "run")
    assert code == 0, err
    found = from_json((tmp_path / "run" / "run.json").read_text())["environment_parameters"]["kind"]
    assert isinstance(found, str) and found.strip('"') == "NaN"


def test_a_baseline_with_numbers_of_numpy_is_saved(tmp_path):
    env = dmq.environments.chain(3, rng=0)
    dmq.baselines.RLSVI(env, sigma=np.float32(0.5), n_episodes=np.int64(5), rng=0).learn().save(tmp_path / "r.npz")
    assert dmq.load(tmp_path / "r.npz").parameters["sigma"] == 0.5


def test_texts_that_utf_8_does_not_have_are_exported_escaped(tmp_path):
    one = {"environment": "file \udcff", "algorithm_parameters": {"\ud800": "\ud800"}}
    experiments.export([one], tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").read_text() == "environment,algorithm.\\ud800\nfile \\udcff,\\ud800\n"


def test_texts_that_utf_8_does_not_have_are_shown_escaped_in_frames_and_pictures():
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib")
    rows = experiments.Rows(showing.row(of={"file": f"{name}\udcff"}) for name in "ab")
    assert rows.to_dataframe()["environment.file"].tolist() == ["a\\udcff", "b\\udcff"]
    figure = rows.plot("file", "value")
    figure.draw_without_rendering()
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["a\\udcff", "b\\udcff"]
