"""Sweeps: right specifications only, every run once, and nothing but time is lost to a kill."""

import contextlib
import csv
import errno
import json
import multiprocessing
import os
import pickle
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import types
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, ThreadPoolExecutor

import fragile
import numpy as np
import obstinate
import pytest
from refusals import refused
from sweeping import ROOT, alive, content, environment_of_tests, noted_batches, one, slow_spec, start, wait_until, write

from dmq_fast import DMQ, FiniteClass, LinearClass, baselines, environments, experiments
from dmq_fast._support.threads import BLAS_THREADS
from dmq_fast._support.workers import WorkerDied, Workers, WorkerStartError
from dmq_fast.experiments.sweeps import algorithms, scheduler, spec, store
from dmq_fast.kernels.build import build

# Specifications


def test_a_specification_is_the_product_of_its_lists(tmp_path):
    found = experiments.read(write(tmp_path))
    assert (found.name, found.seeds, found.n_runs) == ("small", (0, 1, 2), 36)
    cells = [
        (cell.environment, cell.environment_parameters, cell.environment_seed, cell.algorithm_parameters)
        for cell in found.cells
    ]
    environments = [
        ("lock", {"horizon": 3, "n_actions": 3, "p_success": 1.0, "final": 0.7}, None),
        ("lock", {"horizon": 4, "n_actions": 3, "p_success": 1.0, "final": 0.7}, None),
        ("deep-sea", {"size": 4, "stochastic": False}, 42),
    ]
    for environment in environments:
        for variant in ("sound", "paper"):
            for n in (20, 50):
                constants = {"ratio": 2.0, "eps_r": 0.01, "ridge": 0.001}
                expected = {"variant": variant, "n_samples": n, "sampler": "rollout", **constants}
                assert (*environment, expected) in cells
    assert len(cells) == 12


def test_what_is_a_list_by_nature_is_nested():
    (cell,) = experiments.read(one(initial=[[0, 1, 0]])).cells
    assert cell.algorithm_parameters["initial"] == [0, 1, 0]
    two = experiments.read(one(initial=[[0, 1, 0], "uniform"])).cells
    assert [cell.algorithm_parameters["initial"] for cell in two] == [[0, 1, 0], "uniform"]


def test_budgets_of_an_algorithm_replace_those_of_the_sweep():
    data = one("dmq", max_trajectories=[10, 20]) | {"max_seconds": 5, "max_trajectories": 3}
    data["algorithms"].append({"name": "ucb-q", "max_seconds": 0.5})
    found = [(cell.budget.max_trajectories, cell.budget.max_seconds) for cell in experiments.read(data).cells]
    assert found == [(10, 5), (20, 5), (3, 0.5)]


def test_a_cell_is_the_same_however_it_is_written():
    def ids(**parameters):
        return [cell.id for cell in experiments.read(one(**parameters)).cells]

    assert ids() == ids(n_samples=100, variant="sound") == ids(ridge=1e-3, variant=["sound"])
    assert ids(ratio=3) == ids(ratio=3.0) != ids() == ids(ratio=2)
    (left, right) = ids(n_samples=[1, 2])
    assert left != right


OLD_CELLS = {
    "72f48c08726ccaf3f41f": {},
    "9c15c0af4bc29e7d13f8": {"sampler": "exact", "variant": "paper", "ratio": 3, "eps_r": 0.02},
    "a11046f28f0e0aaa04b5": {
        "initial": [[0, 1, 0]], "recheck": False, "oracle": "value", "mixture": "multinomial", "max_policies": 5,
        "max_trajectories": 1000,
    },
    "a6167905d5add38b731e": {"accumulate": True, "reuse": True, "memo": False, "initial": "uniform"},
}  # fmt: skip


@pytest.mark.parametrize("cell", OLD_CELLS)
def test_cells_keep_their_ids_when_parameters_are_added(cell):
    # Ids that version 0.1.0 wrote: a new parameter must default to None, or stored runs would be repeated.
    assert [found.id for found in experiments.read(one(**OLD_CELLS[cell])).cells] == [cell]


WRONG = [
    ("seed = 3", "seed", "expected keys among .*, got 'seed'; did you mean 'seeds'?"),
    ("seeds = 0", "seeds", r"expected an integer >= 1 \(how many\) or .*, got 0"),
    ("seeds = true", "seeds", r"expected an integer >= 1 \(how many\) or .*, got True"),
    ("seeds = []", "seeds", r"expected an integer >= 1 \(how many\) or .*, got \[\]"),
    ("seeds = [0,\n 1,\n -1]", r"seeds\[2\]", r"expected an integer in \[0, 2\^63\), got -1"),
    ("seeds = [5, 7, 5]", r"seeds\[2\]", "the seed 5 a second time"),
    ("name = 3", "name", "expected a string, got 3"),
    ("max_seconds = 0", "max_seconds", "expected a number > 0, got 0"),
    ("max_seconds = inf", "max_seconds", "expected a number > 0, got inf"),
    ("max_trajectories = [1, 2]", "max_trajectories", r"expected an integer >= 1, got \[1, 2\]"),
    ("evaluate = -1", "evaluate", "expected an integer >= 0, got -1"),
]

TABLES = [
    ("horizon = 3", "horizn = 3", r"environments\[0\].horizn", "among horizon, .*, got 'horizn'; did you mean 'hor"),
    ("horizon = 3", "", r"environments\[0\]", "lock: expected the parameter horizon, got none"),
    ("horizon = 3", "horizon = 'three'", r"environments\[0\].horizon", "expected an integer, got 'three'"),
    ("horizon = 3", "horizon = [3, 4,\n0]", r"environments\[0\].horizon\[2\]", "expected an integer >= 1, got 0"),
    ("horizon = 3", "horizon = []", r"environments\[0\].horizon", "an empty list leaves nothing to run"),
    ("horizon = 3", "horizon = [3, 3]", r"environments\[0\].horizon\[1\]", r"second time, first env"),
    ("horizon = 3", "horizon = 3\nseed = -1", r"environments\[0\].seed", r"expected an integer in \[0, 2\^63\)"),
    ("horizon = 3", "horizon = 1979-05-27", r"environments\[0\].horizon", "expected strings, booleans, finite num"),
    ('"lock"', '"lok"', r"environments\[0\].name", "expected one of .*lock, .*, got 'lok'; did you mean 'lock'?"),
    ('"lock"', '"no_such.module:lock"', r"environments\[0\].name", "No module named '.*'; PYTHONPATH=DIR finds"),
    ('"lock"', '"no_such_module:lock"', r"environments\[0\].name", "No module named '.*'; PYTHONPATH=DIR finds"),
    ('"lock"', '"leaving_module:lock"', r"environments\[0\].name", "cannot be imported: SystemExit: 3"),
    ('"lock"', "7", r"environments\[0\].name", "expected a string, got 7"),
    ('name = "lock"', "", r"environments\[0\]", "expected a name, got none"),
    ("[[environments]]", "[environments]", "environments", r"expected at least one table \[\[environments\]\], got"),
    ('"dmq"', '"dqm"', r"algorithms\[0\].name", "one of self-stopping, dmq, .* got 'dqm'; did you mean"),
    ('"dmq"', '"obstinate:ROOT"', r"algorithms\[0\].name", "cannot be imported: AttributeError: module"),
    ('"dmq"', '"dmq"\nn_sample = 3', r"algorithms\[0\].n_sample", "among sampler, .*; did you mean 'n_samples'?"),
    ('"dmq"', '"dmq"\nrng = 3', r"algorithms\[0\].rng", "expected parameters of dmq among"),
    ('"dmq"', '"dmq"\nn_samples = "20"', r"algorithms\[0\].n_samples", "expected an integer, got '20'"),
    ('"dmq"', '"dmq"\nn_samples = [\n 20,\n 0]', r"algorithms\[0\].n_samples\[1\]", "expected an integer >= 1, got"),
    ('"dmq"', '"dmq"\nvariant = "sond"', r"algorithms\[0\].variant", "one of paper, sound, frugal, got"),
    ('"dmq"', '"dmq"\ninitial = [[0, 1]]', r"algorithms\[0\].initial\[0\]", "expected 3 rules, one a level, got 2"),
    ('"dmq"', '"dmq"\nsampler = "flw"', r"algorithms\[0\].sampler", "expected one of rollout, flow, exact, got 'fl"),
    ('"dmq"', '"dmq"\nmax_seconds = [1, -1]', r"algorithms\[0\].max_seconds\[1\]", "expected a number > 0, got -1"),
    ('"dmq"', '"dmq"\nratio = nan', r"algorithms\[0\].ratio", "expected strings, booleans, finite numbers"),
    ('"dmq"', '"dmq"\n[[algorithms]]\nname = "dmq"\nridge = 1e-3', r"algorithms\[1\]", r"second time, first env"),
    ('"dmq"', '"dmq"\nfunction_class = [3]', r".*function_class\[0\]", "a text such as 'finite:scale=2', got 3"),
    ('"dmq"', '"dmq"\nfunction_class = "cubic"', ".*function_class", "expected linear, finite or module:f"),
    ('"dmq"', '"dmq"\nfunction_class = "finite:scale=-1"', ".*function_class", "finite: scale: expected"),
    ('"dmq"', '"dmq"\nfunction_class = "finite"\nratio = 3', ".*function_class", "expected eps_s or eps_t"),
    ('"dmq"', '"dmq"\nfunction_class = "leaving_module:make"', ".*function_class", "cannot be imported: SystemExit: 3"),
    ('"dmq"', '"dmq"\narithmetic = 50', r"algorithms\[0\].arithmetic", "expected only with the sampler exact, got 50"),
    ('"dmq"', '"rlsvi"\nsigma = -1.0', r"algorithms\[0\].sigma", "expected"),
    ('"dmq"', '"lsvi-ucb"\noptimism = "step"', r"algorithms\[0\].optimism", "expected one of flat, steps"),
    ('"dmq"', '"rlsvi"\nsigm = 0.1', r"algorithms\[0\].sigm", "did you mean 'sigma'"),
    ('"dmq"', '"ucb-q"\nn_episodes = 0', r"algorithms\[0\].n_episodes", "expected"),
    ('"dmq"', '"ucb-q"\ncheckpoints = [[5, 0]]', r"algorithms\[0\].checkpoints\[0\]", "expected"),
]  # fmt: skip

SMALL = '\n[[environments]]\nname = "lock"\nhorizon = 3\n[[algorithms]]\nname = "dmq"\n'


@pytest.mark.parametrize("i", range(0, len(WRONG) + len(TABLES), 10))
def test_wrong_specifications_are_refused_before_anything_runs(tmp_path, i):
    changes = [("", top, key, words) for top, key, words in WRONG] + TABLES
    for old, new, key, words in changes[i : i + 10]:
        assert not old or SMALL.count(old) == 1
        path = write(tmp_path, SMALL.replace(old, new) if old else new + SMALL)
        with pytest.raises(experiments.SpecError, match=rf"spec\.toml: {key}: .*{words}") as caught:
            experiments.sweep(path, tmp_path / "out", workers=0)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "out").exists()


def test_a_byte_order_mark_means_nothing(tmp_path):
    path = tmp_path / "spec.toml"
    path.write_bytes(b"\xef\xbb\xbf" + SMALL.replace("\n", "\r\n").encode())
    assert experiments.read(path).cells == experiments.read(write(tmp_path, SMALL, "plain.toml")).cells


def test_what_is_far_too_long_is_refused_at_once(tmp_path):
    for data in (one(seeds=range(10**15)), one(n_samples=range(10**15))):
        with pytest.raises(experiments.SpecError, match=r"expected at most 1,000,000 .*, got 1,000,000,000,000,000"):
            experiments.read(data)
    seeds = list(range(100_000))
    began = time.perf_counter()
    with pytest.raises(experiments.SpecError, match=r"seeds\[100000\]: the seed 99999 a second time"):
        experiments.read(one(seeds=[*seeds, 99_999]))
    assert time.perf_counter() - began < 5.0


def test_other_specifications_that_are_refused(tmp_path):
    def reading(text):
        return lambda: experiments.read(write(tmp_path, text))

    nested = "[[environments]]\nname = 'lock'\nhorizon" + ".a" * 2000 + " = 1\n[[algorithms]]\nname = 'dmq'\n"
    many = {"name": "chain", "horizon": range(1, 1001)}
    deep = ("a = " + "[" * 5000 + "]" * 5000, "seeds = " + "9" * 5000, "name" + ".a" * 2000 + " = 1")
    wrong = [
        (reading("a = 1\nb = = 2\n"), r"spec\.toml: not TOML: .*line 2"),
        *((reading(text), r"spec\.toml: ") for text in deep),
        *((lambda text=text: spec.reread(text, "name"), "name: ") for text in deep),
        (reading(nested), r"spec\.toml: .*nest less deep"),
        (lambda: experiments.read(tomllib.loads(nested)), r"specification: .*nest less deep"),
        (reading("seeds = 3"), r"spec\.toml: environments: expected at least one .*, got none"),
        (lambda: experiments.read(one(environment=many, seeds=1001)), "at most 1,000,000 runs, got 1000 x 1 x 1001"),
        (lambda: experiments.read(one(ridge=[0.1] * 1001, eps_r=[0.1] * 1000)), "at most 1,000,000 combinations"),
        (
            lambda: experiments.sweep(one(n_samples=0), tmp_path),
            r"^specification: algorithms\[0\]\.n_samples: expected",
        ),
    ]
    refused([(call, experiments.SpecError, words) for call, words in wrong])
    refused(
        [
            (lambda: experiments.read(3), TypeError, "spec: expected a path, a mapping or a Spec, got 3"),
            (lambda: experiments.read(tmp_path / "none.toml"), FileNotFoundError, ""),
        ]
    )


# Seeds


def test_seeds_depend_on_nothing_but_the_run():
    environment, algorithm = spec.seeds_of(5)
    for i, seed in enumerate((environment, algorithm)):
        bits = np.random.SeedSequence(5, spawn_key=(i,)).generate_state(1, np.uint64)[0]
        assert seed == int(bits) // 2
    assert len({seed for run in range(1000) for seed in spec.seeds_of(run)}) == 2000


def test_more_cells_and_seeds_leave_the_others_as_they_are(tmp_path):
    experiments.sweep(one(n_samples=20, seeds=2), tmp_path / "a", workers=0)
    more = one(n_samples=[10, 20, 30], seeds=[7, 1, 0])
    more["environments"].insert(0, {"name": "lock", "horizon": 3})
    experiments.sweep(more, tmp_path / "b", workers=0)
    few, many = (experiments.load(tmp_path / name) for name in "ab")
    assert (len(few), len(many)) == (2, 18)
    assert all(row in content(many) for row in content(few))
    # A store that is there already is added to.
    summary = experiments.sweep(more, tmp_path / "a", workers=0)
    assert (summary.runs, summary.ran, summary.statuses) == (18, 16, {"ended": 18})
    assert content(experiments.load(tmp_path / "a")) == content(many)


def test_function_classes_are_swept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    classes = ["linear", "finite:scale=2,eps_s=0.01"]
    lock = {"name": "lock", "horizon": 3}
    data = one(seeds=1, environment=lock, n_samples=20, function_class=classes)
    assert experiments.sweep(data, "out", workers=0).statuses == {"ended": 2}
    rows = {row["algorithm_parameters"]["function_class"]: row for row in experiments.load("out")}
    assert [*sorted(rows)] == sorted(classes)
    environment_seed, seed = spec.seeds_of(0)
    for text, kind in zip(classes, [LinearClass(), FiniteClass(2.0, eps_s=0.01)], strict=True):
        env = environments.combination_lock(3, rng=environment_seed)
        result = DMQ(env, n_samples=20, function_class=kind, rng=seed).learn()
        assert rows[text]["counts"] == result.counts
        assert rows[text]["details"]["function_class"] == kind.describe()
    # The class that is not given is the linear one, in a cell without that name.
    assert experiments.sweep(one(seeds=1, environment=lock, n_samples=20), "out", workers=0).ran == 1


OF_A_ROW = [
    {"sampler": "rollout", "variant": "paper"},
    {"sampler": "flow", "accumulate": True, "reuse": True, "memo": True, "recheck": False, "oracle": "value"},
    {"sampler": "exact", "arithmetic": "rational", "eps_r": 1e-25, "n_samples": 10**20},
]


@pytest.mark.parametrize("given", OF_A_ROW, ids=lambda given: given["sampler"])
def test_a_row_is_what_the_command_line_gives(tmp_path, run, given):
    experiments.sweep(one(**{"n_samples": 20, **given}, seeds=[4]), tmp_path, workers=0)
    (row,) = experiments.load(tmp_path)
    assert (row["environment_seed"], row["algorithm_seed"]) == spec.seeds_of(4)
    seeds = ["--env-seed", row["environment_seed"], "--seed", row["algorithm_seed"]]
    options = ["--horizon", 3, "--n-samples", 20, "--json"]
    for name, value in given.items():
        option = name.replace("_", "-")
        options += (
            [f"--{option}", value] if not isinstance(value, bool) else [f"--{option}" if value else f"--no-{option}"]
        )
    expected = json.loads(run("run", "chain", *seeds, *options)[1])
    for name in ("value", "optimal_value", "gap", "n_trajectories", "counts", "warnings", "status", "version"):
        assert row[name] == expected[name]
    for name in ("variant", "options", "parameters", "cover_sizes"):
        assert row["details"][name] == expected[name]
    assert row["environment_parameters"].items() <= expected["environment_parameters"].items()
    assert row["timings"].keys() == {"making", "learning", "evaluation", "phases"}
    assert row["timings"]["phases"].keys() == expected["seconds"].keys()
    phases = [row["timings"][phase] for phase in ("making", "learning", "evaluation")]
    assert min(phases) > 0 and sum(phases) <= row["seconds"]


def test_a_value_that_no_table_gives_is_estimated(tmp_path, run):
    data = one(n_samples=20, seeds=2, environment={"name": "obstinate:without_tables", "horizon": 3})
    experiments.sweep(data | {"evaluate": 50}, tmp_path, workers=0)
    for row in experiments.load(tmp_path):
        assert row["optimal_value"] is row["gap"] is None
        assert 0 < row["value"] <= 1 and 0 < row["value_standard_error"] < 0.2
    experiments.sweep(data | {"evaluate": 0}, tmp_path / "none", workers=0)
    assert [row["value"] for row in experiments.load(tmp_path / "none")] == [None, None]


# Baselines and DMQ as algorithms


@pytest.mark.parametrize("name", baselines.REGISTRY)
def test_every_baseline_is_an_algorithm(tmp_path, name):
    """What is stored is what the baseline does when called by hand."""
    # Smaller than any gap: an algorithm that stops by itself plays all episodes too, and says so.
    parameters = {"n_episodes": 300, "checkpoints": 9, **({"epsilon": 1e-9} if name == "bpi-ucbvi" else {})}
    data = one(name, seeds=[5], environment={"name": "deep-sea", "size": 4}, **parameters)
    (cell,) = experiments.read(data).cells
    own = {key: value for key, value in cell.algorithm_parameters.items() if key not in ("n_episodes", "checkpoints")}
    assert own.items() >= {"n_evaluation": 1000}.items()
    experiments.sweep(data, tmp_path, workers=0)
    (row,) = experiments.load(tmp_path)
    env = environments.deep_sea(4, rng=row["environment_seed"])
    result = baselines.REGISTRY[name](env, **parameters, rng=row["algorithm_seed"]).learn()
    assert row["status"] == ("max_trajectories" if name == "bpi-ucbvi" else "ended")
    assert row["n_trajectories"] == 300
    assert row["value"] == env.value(result.policy) and row["optimal_value"] == env.optimal_value
    curve = row["details"]["curve"]
    assert curve["episodes"] == result.curve.episodes.tolist() and curve["value"] == result.curve.value.tolist()
    earned = np.cumsum(result.returns)
    for n, reward, regret in zip(curve["episodes"], curve["reward"], curve["regret"], strict=True):
        assert reward == pytest.approx(earned[n - 1])
        assert regret == pytest.approx(n * env.optimal_value - reward)
    good = [n for n, value in zip(curve["episodes"], curve["value"], strict=True) if value >= 0.95 * env.optimal_value]
    assert row["details"]["learned_at"] == min(good, default=None)
    kept = [n for n in curve["episodes"] if set(curve["episodes"][curve["episodes"].index(n) :]) <= set(good)]
    assert row["details"]["kept_at"] == min(kept, default=None)
    half = [n for n in (100, 200, 300) if earned[n - 1] > n * env.optimal_value / 2]
    assert row["details"]["solved_at"] == min(half, default=None)
    assert row["counts"]["episodes"] == 300


def test_each_learner_has_its_own_parameters():
    algorithms = [{"name": "self-stopping", "epsilon": 0.1}, {"name": "dmq", "variant": "frugal"}]
    spec = experiments.read({"environments": [{"name": "lock", "horizon": 4}], "algorithms": algorithms})
    stopping, frugal = (cell.algorithm_parameters for cell in spec.cells)
    assert stopping == {"epsilon": 0.1, "delta": 0.05, "mode": "auto", "homogeneous": "auto"}
    assert frugal["variant"] == "frugal" and frugal["n_samples"] == 100
    by_level = {"name": "self-stopping", "epsilon": 0.1, "homogeneous": False}
    for algorithm in (by_level, by_level | {"mode": "strict"}):
        alone = experiments.read({"environments": [{"name": "lock", "horizon": 4}], "algorithms": [algorithm]})
        assert alone.cells[0].id == "00d124724a75ea8a300c"  # that of 0.2.0, where it was "dmq" with an epsilon
    assert spec.cells[0].id != alone.cells[0].id


def test_a_sweep_declares_ranges_as_texts(tmp_path):
    """A list is a grid; a text is one range."""
    spec = {
        "environments": [{"name": "deep-sea", "size": 4}],
        "algorithms": [{"name": "self-stopping", "epsilon": "10%", "value_range": ["-1,1", "seen"]}],
    }
    experiments.sweep(spec, tmp_path, workers=0)
    found = {row["algorithm_parameters"]["value_range"]: row for row in experiments.load(tmp_path)}
    ranges = {text: row["details"]["stopping"]["rewards"] for text, row in found.items()}
    assert ranges["-1,1"]["value_range"] == [-1.0, 1.0] and not ranges["seen"]["declared"]
    with pytest.raises(experiments.SpecError, match=r"value_range: expected the least and the largest sum"):
        experiments.read(spec | {"algorithms": [{"name": "dmq", "value_range": "-1"}]}).check()


def test_some_baseline_learns_and_another_does_not(tmp_path):
    """So that the numbers of the test above are not all None."""
    experiments.sweep(
        {
            "environments": [{"name": "deep-sea", "size": 10}],
            "algorithms": [{"name": "rlsvi", "sigma": 0.01}, {"name": "q-learning"}],
        },
        tmp_path,
        workers=0,
    )
    found = {row["algorithm"]: row["details"] for row in experiments.load(tmp_path)}
    assert 0 < found["rlsvi"]["learned_at"] < found["rlsvi"]["solved_at"] <= 300
    assert found["q-learning"]["learned_at"] is found["q-learning"]["solved_at"] is None


def test_a_budget_caps_the_episodes_of_a_baseline(tmp_path):
    data = one("uniform", seeds=1, n_episodes=50, max_trajectories=[20, 50, 80])
    experiments.sweep(data, tmp_path, workers=0)
    found = {row["max_trajectories"]: (row["n_trajectories"], row["status"]) for row in experiments.load(tmp_path)}
    assert found == {20: (20, "max_trajectories"), 50: (50, "ended"), 80: (50, "ended")}
    experiments.sweep(one("uniform", seeds=1, n_episodes=10**7, max_seconds=1e-6), tmp_path / "time", workers=0)
    (row,) = experiments.load(tmp_path / "time")
    assert row["status"] == "max_seconds" and row["n_trajectories"] < 10**7


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[pytest.mark.slow] if path.stem == "map" else [], id=path.stem)
        for path in sorted((ROOT.parent / "bench" / "experiments").glob("*.toml"))
    ],
)
def test_the_specifications_of_the_bench_are_right(path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT.parent / "bench")  # the map takes two problems from a module there
    found = experiments.read(path)
    found.check()
    assert {cell.algorithm for cell in found.cells} <= set(algorithms.REGISTRY)


def test_factories_of_baselines_are_pickled_by_name():
    for name in baselines.REGISTRY:
        copy = pickle.loads(pickle.dumps(algorithms.find(name)))
        assert copy.kind is baselines.REGISTRY[name]


def test_baselines_on_observations(tmp_path):
    """A table of the states behind them is worth what the finite MDP says; what sees observations is estimated."""
    data = {
        "evaluate": 400,
        "environments": [{"name": "lock-bernoulli", "horizon": 3, "observation": "coins"}],
        "algorithms": [{"name": "ucb-q", "c": 0.005}, {"name": "rlsvi", "n_episodes": 300}],
    }
    experiments.sweep(data, tmp_path, workers=0)
    rows = {row["algorithm"]: row for row in experiments.load(tmp_path)}
    assert [row["optimal_value"] for row in rows.values()] == [0.5, 0.5]
    assert rows["ucb-q"]["value"] == 0.5 and rows["ucb-q"]["value_standard_error"] is None
    assert 0.3 < rows["rlsvi"]["value"] < 0.7 and 0 < rows["rlsvi"]["value_standard_error"] < 0.1
    assert rows["rlsvi"]["details"]["learned_at"] is not None


# Executors


@pytest.fixture(scope="module")
def pool():
    """Two worker processes that the tests of this file share."""
    with Workers(2) as pool:
        yield pool


EXECUTORS = {
    "the pool": lambda pool: contextlib.nullcontext(pool),
    "3 threads": lambda _: ThreadPoolExecutor(3),
    "spawned processes": lambda _: processes(),
    "loky": lambda _: pytest.importorskip("loky").ProcessPoolExecutor(2),
}


def processes(n=2):
    return ProcessPoolExecutor(n, mp_context=multiprocessing.get_context("spawn"))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    directory = tmp_path_factory.mktemp("undisturbed")
    summary = experiments.sweep(write(directory), directory / "out", workers=0)
    assert (summary.runs, summary.ran, summary.failed) == (36, 36, 0)
    return experiments.load(directory / "out")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "kind", ["the pool", "3 threads", *(pytest.param(kind, marks=pytest.mark.slow) for kind in [*EXECUTORS][2:])]
)
def test_any_executor_gives_the_same_rows(tmp_path, undisturbed, pool, kind):
    with EXECUTORS[kind](pool) as executor:
        for ran in (36, 0):
            summary = experiments.sweep(write(tmp_path), tmp_path / "out", executor=executor)
            assert (summary.runs, summary.ran, summary.statuses) == (36, ran, {"ended": 36})
            assert content(experiments.load(tmp_path / "out")) == content(undisturbed)


def test_workers_have_one_blas_thread_and_standard_output_is_the_sweeps(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    before = dict(os.environ)
    assert experiments.sweep(one("obstinate:surroundings", seeds=4), tmp_path / "out", workers=1).statuses == {
        "finished": 4
    }
    assert dict(os.environ) == before
    rows = experiments.load(tmp_path / "out")
    assert {row["details"]["pid"] for row in rows}.isdisjoint({os.getpid()})
    for row in rows:
        assert {f"{name}=1" for name in BLAS_THREADS} <= set(row["details"]["environ"])
    out, err = capfd.readouterr()
    assert (out, err.count("a line that is not the sweep's")) == ("", 4)


def test_arguments_of_a_sweep_are_checked(tmp_path):
    def sweeping(**given):
        return lambda: experiments.sweep(one(), tmp_path / "out", **given)

    executor = ThreadPoolExecutor(1)
    refused(
        [
            (sweeping(workers=1, executor=executor), ValueError, "workers, executor: expected at most one"),
            (sweeping(workers=-1), ValueError, r"^workers: expected an integer.*, got"),
            *((sweeping(workers=n), TypeError, r"^workers: expected an integer.*, got") for n in (1.5, True)),
            (sweeping(executor="dask"), TypeError, "executor: expected an Executor or a function that makes one, got"),
            (sweeping(executor=lambda: 3), TypeError, "executor: expected a function that makes an Executor, got int"),
            (sweeping(workers=0, progress=3), TypeError, "progress: expected a callable or a bool, got 3"),
        ]
    )
    assert experiments.load(tmp_path / "out") == []


# Failures


FAILING = {
    "raise": "ZeroDivisionError: of the user's making",
    "note": "ZeroDivisionError: of the user's making\nat level 3",
    "surrogate": r"FileNotFoundError: no \udcff",
    "exit": "SystemExit: 3",
    "cancel": "CancelledError",  # as of a task of asyncio, which is no Exception
    "die": "the worker process died: exit code 9",
    "kill": "the worker process died: signal SIGKILL",
}


@pytest.mark.parametrize(("kinds", "status"), [([*FAILING][:5], "failed"), ([*FAILING][5:], "crashed")])
def test_a_failing_run_costs_that_run_only_and_is_recorded(tmp_path, pool, kinds, status):
    marker, out, bad = tmp_path / "repaired", tmp_path / "out", [2, 5]
    data = one("obstinate:failing", kind=kinds, seeds=8, marker=str(marker))
    data["algorithms"][0] |= {"seeds": [bad]}
    options = {"executor": pool} if status == "crashed" else {"workers": 0}
    summary = experiments.sweep(data, out, **options)
    n = len(kinds)
    assert (summary.statuses, summary.failed) == ({status: 2 * n, "finished": 6 * n}, 2 * n)
    rows = experiments.load(out)
    assert sorted(row["seed"] for row in rows) == sorted(list(range(8)) * n)
    for row in rows:
        if row["seed"] in bad:
            assert (row["status"], row["value"], row["n_trajectories"]) == (status, None, None)
            assert FAILING[row["algorithm_parameters"]["kind"]] in row["error"]
            assert ("in fail" in row["details"].get("traceback", "")) == (status == "failed")
        else:
            assert (row["status"], row["error"], row["n_trajectories"]) == ("finished", None, 7)
    assert experiments.sweep(data, out, workers=0).ran == 0
    marker.touch()
    # What does not belong to the specification is left alone.
    summary = experiments.sweep(data | {"seeds": [0, 2]}, out, workers=0, retry=True)
    assert (summary.ran, summary.statuses) == (n, {"finished": 2 * n})
    assert {row["seed"] for row in experiments.load(out) if row["status"] == status} == {5}
    summary = experiments.sweep(data, out, workers=0, retry=True)
    assert (summary.ran, summary.statuses) == (n, {"finished": 8 * n})


def test_a_worker_that_dies_in_the_midst_of_a_batch_costs_one_run(tmp_path, monkeypatch, pool):
    batches = noted_batches(monkeypatch)
    data = one("obstinate:failing", kind="die", seeds=64)
    data["algorithms"][0] |= {"seeds": [[11]]}
    assert experiments.sweep(data, tmp_path, executor=pool).statuses == {"crashed": 1, "finished": 63}
    assert max(map(len, batches)) >= 4
    assert [row["seed"] for row in experiments.load(tmp_path) if row["status"] == "crashed"] == [11]


NOT_STORED = {
    "nothing": "TypeError: learn: expected a result with the attribute status, got NoneType",
    "no count": "TypeError: learn: expected a result with the attribute n_trajectories, got Result",
    "object": "TypeError: expected a value that JSON can hold, got object",
    "status": "ValueError: learn: expected a status other than failed, crashed, timeout, got crashed",
    "nan": "ValueError: learn: expected a finite value, got nan",
    "infinity": "ValueError: learn: expected a finite value, got inf",
    "negative": "ValueError: learn: expected n_trajectories in [0, 1e308], got -1",
    "endless": f"ValueError: learn: expected n_trajectories in [0, 1e308], got {10**400}",
}


def test_a_result_that_cannot_be_stored_fails_its_run(tmp_path):
    experiments.sweep(one("obstinate:odd", answer=list(NOT_STORED), seeds=1), tmp_path, workers=0)
    rows = experiments.load(tmp_path)
    assert {row["algorithm_parameters"]["answer"]: row["error"] for row in rows} == NOT_STORED
    assert {row["status"] for row in rows} == {"failed"}


def test_what_is_odd_but_right_and_factories_that_fail(tmp_path):
    """An environment that some seeds do not give, a factory that leaves, and a result of another make."""
    data = one(n_samples=20, seeds=2, environment={"name": "obstinate:unlucky", "horizon": 3})
    data["algorithms"] += [{"name": "obstinate:leaving"}, {"name": "obstinate:foreign"}]
    experiments.sweep(data, tmp_path, workers=0)
    found = {(row["algorithm"], row["seed"]): row for row in experiments.load(tmp_path)}
    statuses = {key: row["status"] for key, row in found.items()}
    assert all(found[name, 0]["error"] == "LookupError: no such luck" for name, seed in found if seed == 0)
    assert statuses["dmq", 1] == "ended" and statuses["obstinate:leaving", 1] == "failed"
    row = found["obstinate:foreign", 1]
    assert (row["status"], row["n_trajectories"], row["value"]) == ("max_trajectories", 3, 0.25)
    assert (row["counts"], row["optimal_value"] > 0) == ({"rows": [0, 1]}, True)


def test_counts_beyond_64_bits_are_kept(tmp_path, run):
    spec = write(tmp_path, SMALL.replace('"dmq"', '"obstinate:counting"\nn = [3, 18, 19, 21]'))
    code, _, err = run("sweep", spec, "--out", tmp_path, "--workers", 0, "--export", tmp_path / "runs.csv")
    assert (code, err) == (0, "")
    rows = sorted(experiments.load(tmp_path), key=lambda row: row["algorithm_parameters"]["n"])
    assert [row["n_trajectories"] for row in rows] == [10**3, 10**18, int(1e19), int(1e21)]
    assert [row["counts"]["trajectories"]["check"] for row in rows] == [10**n for n in (3, 18, 19, 21)]
    assert {row["status"] for row in rows} == {r"st\udcff"}
    data = one(n_samples=10**18, sampler=["flow", "exact"], seeds=1)
    assert experiments.sweep(data, tmp_path / "dmq", workers=0).statuses == {"ended": 2}
    for row in experiments.load(tmp_path / "dmq"):
        assert row["n_trajectories"] == float(sum(row["counts"]["trajectories"].values())) > 2**63


def test_an_executor_that_breaks_ends_the_sweep_and_keeps_what_is_stored(tmp_path, pool):
    data = one("obstinate:failing", kind="die", seeds=6)
    data["algorithms"][0] |= {"seeds": [[3]]}
    made = []

    def make():
        made.append(processes(1))
        return made[-1]

    with pytest.raises(BrokenExecutor) as caught:
        experiments.sweep(data, tmp_path, executor=make)
    with pytest.raises(RuntimeError, match=r"shutdown|not usable"):
        made[0].submit(os.getpid)
    assert any("the same call does the remaining ones" in note for note in caught.value.__notes__)
    assert experiments.sweep(data, tmp_path, executor=pool).statuses == {"crashed": 1, "finished": 5}


def test_what_an_executor_cancels_is_no_crash(tmp_path):
    class Cancelling(ThreadPoolExecutor):
        def submit(self, *call, **named):
            future = Future()
            future.cancel()
            future.set_running_or_notify_cancel()
            return future

    with Cancelling(1) as executor, pytest.raises(BrokenExecutor, match="the executor has cancelled runs"):
        experiments.sweep(one(n_samples=20), tmp_path, executor=executor)
    assert experiments.load(tmp_path) == []


def test_what_does_not_reach_a_worker_is_no_crash(tmp_path, monkeypatch, pool):
    monkeypatch.setitem(algorithms.REGISTRY, "homely", obstinate.Homely())
    with pytest.raises(BrokenExecutor, match="a worker cannot do the runs: ImportError: not at home"):
        experiments.sweep(one("homely"), tmp_path, executor=pool)
    monkeypatch.setitem(algorithms.REGISTRY, "local", lambda env, seed: None)
    with pytest.raises((AttributeError, TypeError), match="pickle"):
        experiments.sweep(one("local"), tmp_path, executor=pool)
    assert experiments.load(tmp_path) == []


def test_what_a_worker_has_not_registered_is_no_failure(tmp_path, monkeypatch, pool):
    monkeypatch.setitem(environments.registry.REGISTRY, "mine", environments.chain)
    with pytest.raises(BrokenExecutor, match="environment: mine is registered in the sweeping process only"):
        experiments.sweep(one(n_samples=20, environment={"name": "mine", "horizon": 3}), tmp_path, executor=pool)
    assert experiments.load(tmp_path) == []


def test_workers_that_do_not_come_up_are_no_failures_of_runs(tmp_path):
    call = f"experiments.sweep({one(n_samples=20)!r}, {str(tmp_path / 'out')!r}, workers=1)"
    script = write(tmp_path, f"from dmq_fast import experiments\n{call}\n", "script.py")
    command = [sys.executable, "-P", str(script)]
    done = subprocess.run(command, env=environment_of_tests(), capture_output=True, text=True)
    assert done.returncode == 1
    assert (
        "WorkerStartError: a worker process could not be made ready: RuntimeError: a script must start" in done.stderr
    )
    assert experiments.load(tmp_path / "out") == []


def test_what_the_script_defines_reaches_its_workers(tmp_path):
    script = f"""
from dmq_fast import environments, experiments
environments.registry.REGISTRY["mine"] = environments.chain
def algorithm(env, seed):
    return experiments.algorithms.REGISTRY["dmq"](env, seed, n_samples=20)
experiments.algorithms.REGISTRY["local"] = algorithm
if __name__ == "__main__":
    spec = {one("local", environment={"name": "mine", "horizon": 3})!r}
    print(experiments.sweep(spec, {str(tmp_path / "out")!r}, workers=1).statuses)
"""
    command = [sys.executable, "-P", str(write(tmp_path, script, "script.py"))]
    done = subprocess.run(command, env=environment_of_tests(), capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("{'ended': 3}\n", "")


def test_a_script_on_standard_input_has_workers(tmp_path):
    """There is no file that they could import; what it defines they do not know."""
    script = f"""
from dmq_fast import experiments
def algorithm(env, seed):
    return experiments.algorithms.REGISTRY["dmq"](env, seed, n_samples=20)
experiments.algorithms.REGISTRY["local"] = algorithm
for name in ("dmq", "local"):
    print(experiments.sweep({one()!r} | {{"algorithms": [{{"name": name}}]}}, {str(tmp_path)!r}, workers=1).statuses)
"""
    command = [sys.executable, "-P", "-"]
    done = subprocess.run(command, input=script, env=environment_of_tests(), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "{'ended': 3}\n"), done.stderr
    assert "BrokenExecutor: a worker cannot do the runs: AttributeError: Can't get attribute 'algorithm'" in done.stderr
    assert "standard input defines is not known to worker processes: put it in a file" in done.stderr


def test_workers_are_an_executor():
    with Workers(2) as pool:
        assert list(pool.map(divmod, range(20), [3] * 20)) == [divmod(i, 3) for i in range(20)]
        assert pool.submit(os.getsid, 0).result() != os.getsid(0)  # so Ctrl-C does not reach a worker
        with pytest.raises(ZeroDivisionError) as caught:
            pool.submit(divmod, 1, 0).result()
        assert "in answer_to" in str(caught.value.__cause__)
        with pytest.raises(RuntimeError, match=r"^SystemExit: 3$"):
            pool.submit(sys.exit, 3).result()
        with pytest.raises(RuntimeError, match=r"^Awkward: 1 and 2$"):
            pool.submit(fragile.Fragile.fail, types.SimpleNamespace(failure="raise awkwardly")).result()
        with pytest.raises(TypeError, match="pickle"):
            pool.submit(threading.Lock).result()
        with pytest.raises(WorkerDied, match="exit code 5"):
            pool.submit(os._exit, 5).result()
        last = pool.submit(os.getpid)
    assert last.result() != os.getpid()
    with pytest.raises(RuntimeError, match="shut down"):
        pool.submit(os.getpid)
    pool = Workers(1)
    sleeping, waiting = pool.submit(time.sleep, 600), pool.submit(os.getpid)
    wait_until(sleeping.running)
    pool.kill()
    assert isinstance(sleeping.exception(), WorkerDied) and waiting.cancelled()


def test_only_the_sweep_reacts_to_a_signal_for_all_its_processes(tmp_path):
    """As a batch system or a terminal sends it; a worker that ended by it would count as a crash of its run."""
    with Workers(1) as pool:
        for number in (signal.SIGTERM, signal.SIGINT):
            marker = tmp_path / f"{number}"
            assert pool.submit(obstinate.killed_once, number, str(marker)).result() == "done" and marker.exists()
        os.kill(pool.submit(os.getpid).result(), signal.SIGTERM)  # perhaps before the next task reaches it
        assert pool.submit(obstinate.ended_child).result() == -signal.SIGTERM
        with pytest.raises(WorkerDied, match=r"died: signal SIGTERM$"):
            pool.submit(obstinate.kill_me, signal.SIGTERM).result()


def test_a_worker_that_dies_is_not_waited_for_until_its_children_end(tmp_path):
    with Workers(1) as pool:
        child = tmp_path / "child"
        with pytest.raises(WorkerDied, match="exit code 7"):
            pool.submit(obstinate.die_with_child, str(child)).result(timeout=20)
        os.kill(int(child.read_text()), signal.SIGKILL)


def test_workers_that_cannot_be_started(tmp_path, monkeypatch):
    """No descriptors are left, or the interpreter does not run; there need be no directory for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with Workers(1) as pool:
        assert pool.submit(os.getpid).result() != os.getpid()
    for program, words in (("/no/such/python", "could not be started: "), (shutil.which("true"), "made ready: ")):
        monkeypatch.setattr(sys, "executable", program)
        with Workers(1) as pool, pytest.raises(WorkerStartError, match=words):
            pool.submit(os.getpid).result()


def test_a_run_that_has_ended_is_stored_all_the_same(tmp_path, monkeypatch):
    add, interrupts = store.Store.add, [KeyboardInterrupt]

    def interrupted(self, rows):
        if interrupts:
            raise interrupts.pop()
        add(self, rows)

    monkeypatch.setattr(store.Store, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        experiments.sweep(one(n_samples=20, seeds=2), tmp_path, workers=0)
    (row,) = experiments.load(tmp_path)
    assert row["status"] == "ended"


# Kills


def test_two_sweeps_at_once_share_the_work(tmp_path):
    path, begun = slow_spec(tmp_path)
    experiments.sweep(path, tmp_path / "undisturbed", workers=0)
    for file in begun.iterdir():
        file.unlink()
    with ThreadPoolExecutor(2) as both:
        sweeps = [both.submit(experiments.sweep, path, tmp_path / "shared", workers=0) for _ in range(2)]
        assert all(one.result().statuses == {"ended": 50} for one in sweeps)
    a, b = (experiments.load(tmp_path / name) for name in ("undisturbed", "shared"))
    assert content(a) == content(b)
    # Hardly any run is done twice, whoever begins first.
    assert len(list(begun.iterdir())) <= 75


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow), (signal.SIGKILL, -9)],
)
def test_a_stop_leaves_a_store_to_go_on_with_and_no_process(tmp_path, number, code):
    begun = tmp_path / "begun"
    begun.mkdir()
    text = (
        f'seeds = 3\n[[environments]]\nname = "chain"\nhorizon = 3\n[[algorithms]]\nname = "obstinate:sleepy"\n'
        f'directory = "{begun}"\nseconds = [0.0, 600.0]\n'
    )
    path, out = write(tmp_path, text), tmp_path / "out"
    with start(path, "--out", out, "--workers", 1, start_new_session=True) as process:
        # The worker sleeps, and that what is quick is stored is seen while the sweep has the store open.
        wait_until(lambda: list(begun.iterdir()) and (out / store.FILE).exists())
        os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
        _, err = process.communicate(timeout=20)
        assert process.returncode == code
        assert ("the same command does the remaining runs" in err) == (code > 0) and "Traceback" not in err
    wait_until(lambda: not any(alive(int(file.name)) for file in begun.iterdir()))
    assert all(row["algorithm_parameters"]["seconds"] == 0.0 for row in experiments.load(out))


# The store


def test_runs_can_be_loaded_while_a_sweep_writes(tmp_path):
    seen, failures = [], []

    def look():
        while len(seen) == 0 or seen[-1] < 36:
            try:
                rows = experiments.load(tmp_path / "out")
            except Exception as error:
                failures.append(error)
                return
            assert all(row["status"] == "ended" for row in rows)
            seen.append(len(rows))

    reader = threading.Thread(target=look)
    experiments.sweep(
        write(tmp_path), tmp_path / "out", workers=0,
        progress=lambda _: None if reader.ident else reader.start(),
    )  # fmt: skip
    reader.join(timeout=30)
    assert not failures and not reader.is_alive()
    assert seen == sorted(seen) and len(set(seen)) > 2


def test_a_store_made_by_many_at_once_is_whole(tmp_path):
    def add(i):
        with store.Store(tmp_path / "out") as mine:
            mine.add([row | {"host": str(i)}])

    experiments.sweep(one(n_samples=20, seeds=1), tmp_path / "one", workers=0)
    (row,) = experiments.load(tmp_path / "one")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(24)))
    (found,) = experiments.load(tmp_path / "out")
    assert content([found]) == content([row])


def test_a_file_system_without_links_is_gone_without(tmp_path, monkeypatch):
    def no_links(*paths):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(store.os, "link", no_links)
    experiments.sweep(one(n_samples=20), tmp_path, workers=0)
    assert os.listdir(tmp_path) == [store.FILE]
    assert len(experiments.load(tmp_path)) == 3


@pytest.mark.parametrize(("statement", "there"), [("BEGIN IMMEDIATE", 0), ("COMMIT", 1)])
def test_a_signal_between_two_statements_does_no_harm(tmp_path, statement, there):
    class Interrupted:
        """A connection; a signal comes while it executes `statement`, which Python sees after it."""

        def __init__(self, connection):
            self.connection = connection

        def execute(self, text, *values):
            self.connection.execute(text, *values)
            if text == statement:
                raise KeyboardInterrupt

        def __getattr__(self, name):
            return getattr(self.connection, name)

    experiments.sweep(one(n_samples=20, seeds=2), tmp_path / "out", workers=0)
    first, second = experiments.load(tmp_path / "out")
    with store.Store(tmp_path / "other") as mine:
        connection = mine.connection
        mine.connection = Interrupted(connection)
        with pytest.raises(KeyboardInterrupt):
            mine.add([first])
        mine.connection = connection
        assert len(mine.statuses()) == there
        mine.add([second])
        assert len(mine.statuses()) == there + 1


def test_a_file_that_is_no_store_is_refused_and_left_alone(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no sweep"):
        experiments.load(tmp_path)
    path = tmp_path / store.FILE
    path.write_bytes(b"My thesis\n" * 100)
    for attempt in (lambda: experiments.sweep(one(), tmp_path, workers=0), lambda: experiments.load(tmp_path)):
        with pytest.raises(experiments.StoreError, match=r"runs\.sqlite: file is not a database"):
            attempt()
    assert path.read_bytes() == b"My thesis\n" * 100
    for statements, words in (
        ("CREATE TABLE thesis (page)", "not the store of a sweep"),
        (f"CREATE TABLE runs (x); PRAGMA application_id = {store.APPLICATION}; PRAGMA user_version = 9", "format 9"),
    ):
        path.unlink()
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.executescript(statements)
        for attempt in (lambda: experiments.sweep(one(), tmp_path, workers=0), lambda: experiments.load(tmp_path)):
            with pytest.raises(experiments.StoreError, match=words):
                attempt()


def test_a_damaged_store_is_refused_by_its_path(tmp_path):
    out = tmp_path / "out"
    experiments.sweep(one(n_samples=20, seeds=100), out, workers=0)
    path = out / store.FILE
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + bytes(len(whole) - 8192))
    for attempt in (lambda: experiments.sweep(one(n_samples=20), out, workers=0), lambda: experiments.load(out)):
        with pytest.raises(experiments.StoreError, match=r"out/runs\.sqlite: database disk image is malformed"):
            attempt()
    path.write_bytes(whole)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE runs SET details = '{' WHERE seed = 7")
    with pytest.raises(
        experiments.StoreError, match=r"out/runs\.sqlite: the row of cell '\w+', seed 7, is damaged: Expecting"
    ):
        experiments.load(out)
    for column, value, words in (
        ("details", "[]", "row.details: expected dict, got"),
        ("counts", "[" * 10_000, "nest less deep"),
        ("warnings", "{}", "row.warnings: expected list"),
        ("status", 5, "row.status: expected str"),
        ("value", "x", "row.value: expected"),
        ("n_trajectories", float("inf"), "cannot convert"),
        ("seed", -1, "row.seed: expected an integer >= 0, got -1"),
    ):
        path.write_bytes(whole)
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(f"ALTER TABLE runs RENAME COLUMN {column} TO old")  # a column that takes any type
            connection.execute(f"ALTER TABLE runs ADD COLUMN {column}")
            connection.execute(f"UPDATE runs SET {column} = old")
            connection.execute(f"UPDATE runs SET {column} = ? WHERE old = (SELECT max(old) FROM runs)", [value])
        attempts = [lambda: experiments.load(out), lambda: experiments.merge(tmp_path / "merged", [out])]
        for attempt in attempts:
            with pytest.raises(
                experiments.StoreError, match=rf"out/runs\.sqlite: the row of cell .* is damaged.*{words}"
            ):
                attempt()
    (tmp_path / "other" / store.FILE).mkdir(parents=True)
    with pytest.raises(IsADirectoryError, match=r"out: .*runs\.sqlite is a directory"):
        experiments.sweep(one(), tmp_path / "other", workers=0)
    with pytest.raises(NotADirectoryError, match="out: expected a directory, got the file"):
        experiments.sweep(one(), path, workers=0)


def test_a_store_that_others_keep_locked_is_given_up(tmp_path, run, monkeypatch):
    spec, out = write(tmp_path, SMALL), tmp_path / "out"
    assert run("sweep", spec, "--out", out, "--workers", 0)[0] == 0
    note = store.Store.note

    def meanwhile(self, *given):
        with contextlib.closing(sqlite3.connect(out / store.FILE, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            note(self, *given)

    monkeypatch.setattr(store, "PATIENCE", 0.1)
    monkeypatch.setattr(store.Store, "note", meanwhile)
    code, stdout, err = run("sweep", spec, "--out", out, "--workers", 0)
    assert (code, stdout) == (4, "") and "runs.sqlite: could not be written: database is locked" in err


def test_a_store_nobody_can_write_is_read(tmp_path, monkeypatch):
    experiments.sweep(one(n_samples=20), tmp_path, workers=0)
    expected = experiments.load(tmp_path)
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert experiments.load(tmp_path) == expected
    with pytest.raises(PermissionError, match="is not writable"):
        experiments.sweep(one(n_samples=20), tmp_path, workers=0)


def test_runs_of_another_version_are_pointed_out(tmp_path, monkeypatch):
    for module in ("runs", "scheduler"):
        monkeypatch.setattr(f"dmq_fast.experiments.sweeps.{module}.build", lambda: "0.0.9")
    experiments.sweep(one(n_samples=20, seeds=1), tmp_path, workers=0)
    monkeypatch.undo()
    summary = experiments.sweep(one(n_samples=20, seeds=2), tmp_path, workers=0)
    assert summary.warnings == (f"some of the runs stored in {tmp_path} are of dmq_fast 0.0.9",)
    assert [row["version"] for row in experiments.load(tmp_path)] == ["0.0.9", build()]


# Tables


def test_columns_and_csv(tmp_path):
    data = one(n_samples=20, initial=[[0, 1, 0], "uniform"], seeds=2)
    data["environments"].append({"name": "deep-sea", "size": 3})
    experiments.sweep(data, tmp_path, workers=0)
    rows = experiments.load(tmp_path)
    table = experiments.columns(rows)
    assert {len(column) for column in table.values()} == {8}
    assert set(map(str, table["environment.horizon"])) == {"3", "None"}
    assert table["counts.trajectories.check"] == [row["counts"]["trajectories"]["check"] for row in rows]
    assert table["timings.phases.total"] == [row["timings"]["phases"]["total"] for row in rows]
    assert {str(value) for value in table["algorithm.initial"]} == {"[0, 1, 0]", "uniform"}
    experiments.export(rows, tmp_path / "runs.csv")
    with (tmp_path / "runs.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    assert [float(row["value"]) for row in read] == table["value"]
    assert [row["environment.size"] for row in read] == [str(size or "") for size in table["environment.size"]]
    assert [json.loads(row["warnings"]) for row in read] == table["warnings"]
    with pytest.raises(ValueError, match=r"export: expected a file that ends in \.csv or \.tex, got .*x\.txt"):
        experiments.export(rows, tmp_path / "x.txt")
    assert experiments.columns([]) == {}


# Progress


def test_time_left_comes_from_finished_runs_of_the_same_cell():
    assert scheduler.time_left({"a": 10, "b": 2}, {"a": (4, 8.0), "b": (1, 10.0)}, 2) == (20.0, 0)
    assert scheduler.time_left({"a": 10, "b": 2}, {"a": (4, 8.0), "c": (1, 10.0)}, 2) == (10.0, 1)
    assert scheduler.time_left({"a": 1, "b": 1}, {"a": (1, 1.0), "b": (1, 10.0)}, 8) == (10.0, 0)
    assert scheduler.time_left({"a": 3}, {}, 2) == (None, 1)
    assert scheduler.time_left({"a": 0}, {}, 2) == (0.0, 0)


def test_progress_counts_every_run_once(tmp_path):
    seen = []
    data = one("obstinate:failing", kind="raise", seeds=12)
    data["algorithms"][0] |= {"seeds": [[3, 7]]}
    experiments.sweep(data, tmp_path, workers=0, progress=seen.append)
    assert (seen[0].done, seen[0].seconds_left, seen[0].unseen) == (0, None, 1)
    assert [p.done for p in seen] == sorted(p.done for p in seen)
    assert (seen[-1].done, seen[-1].total, seen[-1].failed, seen[-1].seconds_left) == (12, 12, 2, 0.0)
    seen.clear()
    experiments.sweep(data | {"seeds": 13}, tmp_path, workers=0, progress=seen.append)
    assert (seen[0].done, seen[0].total, seen[0].failed, seen[0].unseen) == (12, 13, 2, 0)


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        ((0, 1000, 0, 0.5, None, 3), "0 of 1,000 runs, 0.5 s, no run has finished yet: time left unknown"),
        ((5, 1000, 2, 12.3, 200.0, 0), "5 of 1,000 runs, 2 failed, 12 s, about 3 min left"),
        ((5, 1000, 0, 12.3, 7200.0, 2), "5 of 1,000 runs, 12 s, more than 2.0 h left (2 cells not yet known)"),
        ((9, 9, 0, 12.3, 0.0, 0), "9 of 9 runs, 12 s"),
    ],
)
def test_progress_is_written_out(progress, text):
    assert scheduler.progress_text(scheduler.SweepProgress(*progress)) == text


# The command


def test_the_command(tmp_path, run):
    path, out = write(tmp_path), tmp_path / "out"
    code, stdout, err = run("sweep", path, "--out", out, "--workers", 0, "--export", tmp_path / "runs.csv")
    warning = "warning: 2 cells of dmq: uniform initial policy with R = 2 >= K = 2: a shift by one action goes unseen\n"
    assert (code, err) == (0, warning)
    lines = stdout.splitlines()
    titles = "environment horizon algorithm n_samples variant runs failed"
    means = "mean value mean optimum mean score mean trajectories mean seconds"
    assert lines[0].split() == [*titles.split(), *means.split()]
    assert [line.split()[0] for line in lines[1:13]] == ["deep-sea"] * 4 + ["lock"] * 8
    assert "small: 36 runs (ended 36), 36 of them now" in stdout
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 37
    code, stdout, err = run("sweep", path, "--out", out, "--json", "--progress")
    summary = json.loads(stdout)
    assert code == 0
    assert (summary["name"], summary["runs"], summary["ran"], summary["statuses"]) == ("small", 36, 0, {"ended": 36})
    assert "36 of 36 runs" in err
    assert len(summary["cells"]) == 12
    rows = experiments.load(out)
    for cell in summary["cells"]:
        mine = [row for row in rows if row["cell"] == cell["cell"]]
        assert (cell["runs"], cell["failed"]) == (3, 0)
        assert cell["value"] == pytest.approx(np.mean([row["value"] for row in mine]))
        assert cell["algorithm_parameters"] == mine[0]["algorithm_parameters"]


def test_a_store_of_the_format_before_is_read_and_goes_on(tmp_path, run):
    """It lacks the value of uniform play; sweeping into it, or merging it, adds the column."""
    experiments.sweep(one("dmq", seeds=4, n_samples=[5]), tmp_path / "whole", workers=0)
    experiments.sweep(one("dmq", seeds=4, n_samples=[5]), tmp_path / "old", workers=0, shard=(0, 2))
    path = tmp_path / "old" / store.FILE
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript("ALTER TABLE runs DROP COLUMN uniform_value; PRAGMA user_version = 1;")
    before = experiments.load(path.parent)
    assert [row["uniform_value"] for row in before] == [None] * 2
    assert experiments.merge(tmp_path / "all", [path.parent, tmp_path / "whole"]).runs == 4
    experiments.sweep(one("dmq", seeds=4, n_samples=[5]), path.parent, workers=0)
    exact = {row["seed"]: row["uniform_value"] for row in experiments.load(tmp_path / "whole")}
    assert None not in exact.values()
    missing = dict.fromkeys(row["seed"] for row in before)
    for directory, expected in ((path.parent, exact | missing), (tmp_path / "all", exact)):
        assert {row["seed"]: row["uniform_value"] for row in experiments.load(directory)} == expected
    assert run("report", path.parent, "--export", tmp_path / "runs.csv")[0] == 0


def test_the_table_tells_environments_of_fixed_seeds_apart(tmp_path, run):
    spec = write(tmp_path, SMALL.replace("horizon = 3", "horizon = 3\nseed = [5, 6]"))
    code, out, _ = run("sweep", spec, "--out", tmp_path, "--workers", 0)
    assert code == 0
    head, *lines = (line.split() for line in out.splitlines()[:3])
    assert [line[head.index("seed")] for line in lines] == ["5", "6"]


def test_exit_codes_of_the_command(tmp_path, run, monkeypatch):
    text = 'seeds = 3\n[[environments]]\nname = "chain"\nhorizon = 3\n[[algorithms]]\nname = "obstinate:failing"\n'
    path = write(tmp_path, text + 'kind = "raise"\nseeds = [[1]]\n')
    code, stdout, _ = run("sweep", path, "--out", tmp_path / "out", "--workers", 0)
    assert code == 1
    assert "spec: 3 runs (failed 1, finished 2)" in stdout and "1 x ZeroDivisionError: of the user's making" in stdout
    code, stdout, err = run("sweep", path, "--out", tmp_path / "out", "--json")
    assert (code, json.loads(stdout)["errors"], err) == (1, {"ZeroDivisionError: of the user's making": 1}, "")
    code, stdout, err = run("sweep", write(tmp_path, "seds = 3", "b.toml"), "--out", tmp_path / "out")
    assert (code, stdout) == (2, "")
    assert "b.toml: seds: expected keys among" in err and err.count("\n") == 1
    for arguments in (
        [tmp_path / "none.toml", "--out", tmp_path / "out"],
        [path, "--out", path],
        [path, "--out", tmp_path / "out", "--export", tmp_path / "x.txt"],
        [path],
        [path, "--out", tmp_path / "out", "--export", tmp_path / "none" / "x.csv"],
        [path, "--out", tmp_path / "out", "--workers", "-1"],
        [path, "--out", tmp_path / "out", "--workers", "1", "--dask", "tcp://nowhere:1"],
    ):
        code, stdout, err = run("sweep", *arguments)
        assert (code, stdout, bool(err)) == (2, "", True)
    assert "expected an integer >= 0, got '-1'" in run("sweep", path, "--out", tmp_path, "--workers", "-1")[2]
    code, stdout, err = run(
        "sweep", path, "--out", tmp_path / "new", "--export", tmp_path / "new" / "x.csv", "--workers", 0
    )
    assert (code, (tmp_path / "new" / "x.csv").exists()) == (1, True)
    monkeypatch.setattr("dmq_fast.experiments.report.export.replacing", full)
    code, stdout, err = run("sweep", path, "--out", tmp_path / "out", "--export", tmp_path / "x.csv")
    assert code == 4
    assert "could not save" in err
    assert "spec: 3 runs" in stdout


def full(path):
    raise OSError("No space left on device")


def test_a_disk_that_fills_up_ends_the_sweep(tmp_path, run, monkeypatch):
    opened = store.Store.__init__

    def small(self, directory):
        opened(self, directory)
        pages = self.connection.execute("PRAGMA page_count").fetchone()[0]
        self.connection.execute(f"PRAGMA max_page_count = {pages + 3}")

    monkeypatch.setattr(store.Store, "__init__", small)
    path, out = write(tmp_path), tmp_path / "out"
    code, stdout, err = run("sweep", path, "--out", out, "--workers", 0)
    assert (code, stdout) == (4, "")
    assert "could not save: " in err and "full" in err
    monkeypatch.undo()
    assert 0 < len(experiments.load(out)) < 36
    assert run("sweep", path, "--out", out, "--workers", 0)[0] == 0
