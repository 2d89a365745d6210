"""Rows of a store: columns in memory, rows that act like dicts, and quantities of many runs at once."""

import copy
import json
import pickle
import sqlite3
import tracemalloc

import numpy as np
import pytest
from showing import row
from sweeping import one

from dmq_fast import experiments
from dmq_fast._support import described
from dmq_fast.experiments.report import intervals
from dmq_fast.experiments.report.cells import cells_of
from dmq_fast.experiments.report.metrics import QUANTITIES
from dmq_fast.experiments.report.numbers import Numbers
from dmq_fast.experiments.sweeps import store
from dmq_fast.experiments.sweeps.records import peek
from dmq_fast.results.score import score, scores, solved, solves


@pytest.fixture
def stored(tmp_path):
    """Return the directory of a sweep with learning curves and warnings."""
    spec = one(n_samples=[3, 5], seeds=2)
    spec["algorithms"].append({"name": "rlsvi", "sigma": 0.03, "n_episodes": 20, "checkpoints": 4})
    experiments.sweep(spec, tmp_path, workers=0)
    return tmp_path


def as_dicts(directory):
    """Return the rows of a store, each read for itself."""
    with store.reading(directory / store.FILE) as connection:
        return store.rows(connection, "ORDER BY cell, seed")


def many(directory, n):
    """Make a store of n more runs in it, all with texts of their own."""
    with sqlite3.connect(directory / store.FILE) as connection:
        (*names,) = store.COLUMNS
        first = connection.execute(f"SELECT {', '.join(names)} FROM runs").fetchone()
        for seed in range(100, 100 + n):
            given = dict(zip(names, first, strict=True)) | {"seed": seed, "seconds": seed / 1000, "value": 1 / seed}
            given["details"] = json.dumps(json.loads(given["details"]) | {"own": seed})
            connection.execute(f"INSERT INTO runs VALUES ({', '.join('?' * len(names))})", [*given.values()])
    connection.close()


def test_a_row_acts_like_a_dict(stored):
    rows, expected = experiments.load(stored), as_dicts(stored)
    assert rows == expected and expected == list(rows)
    first, plain = rows[0], expected[0]
    assert dict(first) == plain == {**first} and [*first] == [*store.COLUMNS] and len(first) == len(plain)
    assert (first | {"seed": 9})["seed"] == 9 and ({"new": 1} | first)["new"] == 1 and first["seed"] == plain["seed"]
    assert first.get("none", 3) == 3 and "none" not in first and "seed" in first and repr(first) == repr(plain)
    for again in (pickle.loads(pickle.dumps(first)), copy.copy(first), copy.deepcopy(first)):
        assert again == plain
    json.dumps(dict(first))
    with pytest.raises(KeyError):
        first["none"]


def test_a_row_may_be_changed_and_changes_no_other(stored):
    rows, expected = experiments.load(stored), as_dicts(stored)
    rows[0]["algorithm_parameters"]["n_samples"] = 7  # as of a dict
    rows[1]["value"] = 0.25
    del rows[2]["host"]
    assert rows[0]["algorithm_parameters"]["n_samples"] == 7 and dict(rows[0])["algorithm_parameters"]["n_samples"] == 7
    assert rows[1]["value"] == 0.25 and "host" not in rows[2]
    assert rows[3:] == expected[3:]
    assert all(peek(row, name) == row[name] for row in rows for name in row)
    assert [one["algorithm_parameters"] for one in rows[1:]] == [one["algorithm_parameters"] for one in expected[1:]]
    assert {cell.algorithm_parameters["n_samples"] for cell in cells_of(rows) if cell.algorithm == "dmq"} == {3, 5, 7}


def test_rows_of_a_cell_stay_together_when_some_were_read(stored):
    rows = experiments.load(stored)
    before = [(cell.id, len(cell.rows)) for cell in rows.cells]
    for some in rows[::2]:
        dict(some)
    assert [(cell.id, len(cell.rows)) for cell in rows.cells] == before
    assert rows.columns() == experiments.columns(as_dicts(stored))
    assert rows.columns(curves=True) == experiments.columns(as_dicts(stored), curves=True)


def test_a_store_of_many_runs_takes_little_memory(stored):
    many(stored, 1000)
    tracemalloc.start()
    rows = experiments.load(stored)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(rows) == 1006
    texts = sum(len(json.dumps(row["details"])) for row in rows) + sum(len(json.dumps(row["timings"])) for row in rows)
    assert held < texts + 1200 * len(rows)  # a dict of 27 entries alone takes as much


def test_quantities_of_many_runs_are_those_of_each(stored):
    rows = [dict(one) for one in experiments.load(stored)]
    rows += [row(seed, value=value, spent=spent) for seed, (value, spent) in enumerate([(0.7, 9), (0.1, 5), (None, 4)])]
    rows += [row(value=None, spent=None, optimal_value=None, status="failed"), row(status="max_seconds", spent=3)]
    numbers = Numbers(rows)
    for name, quantity in QUANTITIES.items():
        expected = [quantity.of(one, 0.95) for one in rows]
        found = [None if np.isnan(x) else x for x in quantity.numbers(numbers, 0.95)]
        assert found == expected, name


def test_scores_of_many_are_the_scores_of_each():
    rng = np.random.default_rng(0)
    value, uniform, optimum = rng.choice([-20.0, -0.3, 0.0, 0.3, 1.0, 1.0 + 1e-13], size=(3, 500))
    found = [None if np.isnan(one) else one for one in scores(value, uniform, optimum).tolist()]
    triples = list(zip(value.tolist(), uniform.tolist(), optimum.tolist(), strict=True))
    assert found == [score(*three) for three in triples]
    assert solved(value, uniform, optimum, 0.95).tolist() == [solves(*three, 0.95) for three in triples]


@pytest.mark.parametrize("n", [2, 3, 4, 11, 40])
def test_the_interval_of_a_median_is_that_of_resamples_without_end(n):
    """Binomial tails: the resampled median is at most the i-th entry where enough draws are."""
    from scipy.stats import binom

    x = np.sort(np.random.default_rng(n).normal(size=n))
    rank = (n - 1) // 2 + 1  # draws that must be at most this entry
    chances = binom.sf(rank - 1, n, np.arange(1, n + 1) / n)
    for level in (0.5, 0.9, 0.95):
        found = intervals.bootstrap([x], "median", level=level)
        assert found[1:] == tuple(x[np.argmax(chances >= end)] for end in ((1 - level) / 2, (1 + level) / 2))


def test_resamples_of_many_runs_are_drawn_in_parts(monkeypatch):
    x = np.random.default_rng(0).normal(size=1000)
    tracemalloc.start()
    monkeypatch.setattr(intervals, "LARGE", 50_000)
    middle, low, high = intervals.bootstrap([x, x[:500]])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5_000_000  # at once they take 24 MB and more
    # The standard error of the mean of both strata; the ends of 2,000 draws are off by a tenth of it.
    error = np.sqrt(1000 * x.var() + 500 * x[:500].var()) / 1500
    assert (middle - low) / error == pytest.approx(1.96, abs=0.2) and (high - middle) / error == pytest.approx(
        1.96, abs=0.2
    )


def test_signatures_and_docstrings_are_read_once_for_all_runs(tmp_path, monkeypatch):
    """They took more than half of what a sweep costs beside its runs."""
    described.read_parameters.cache_clear()
    calls = []
    meanings = described.meanings
    monkeypatch.setattr(described, "meanings", lambda code: calls.append(code) or meanings(code))
    experiments.sweep(one(n_samples=3, seeds=20, environment={"name": "lock", "horizon": 3}), tmp_path, workers=0)
    assert len(calls) == len(set(calls)) < 20
