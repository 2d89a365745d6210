"""``dmq-fast theory``, as a user types it."""

import contextlib
import functools
import io
import json
import re

import pytest

from dmq_fast import cli
from dmq_fast.cli.theory import SMALLEST
from dmq_fast.theory import Parameters
from dmq_fast.theory.constants import SMALLEST_LOG

PROBLEM = "theory --gamma .5 --C 1 --d 2 --H 5 --K 2 --epsilon .1".split()


def without(option):
    """The command without one option and its value."""
    at = PROBLEM.index(option)
    return PROBLEM[:at] + PROBLEM[at + 2 :]


def test_the_table_has_both_columns_and_both_lists(run):
    code, out, err = run(*PROBLEM)
    assert (code, err) == (0, "")
    assert out.startswith("epsilon = 0.1, gamma = 0.5, C = 1, delta = 0.1, d = 2, H = 5, K = 2\n")
    assert re.search(r"^ +printed +corrected$", out, re.MULTILINE)
    assert re.search(r"^eps_t +0\.001 +5\.000e-4$", out, re.MULTILINE)
    assert re.search(r"^N +4\.605e\+12 +6\.05\de\+12$", out, re.MULTILINE)
    # The printed premise of the oracle needs C >= 5; lemma A.5's premise holds for small epsilon only.
    assert re.search(r"B <= eps_s +14\.38 +5\.752 +FAILS +none$", out, re.MULTILINE)
    assert re.search(r"  d eps_s <= eps_t +11\.50 +0\.001 +FAILS +1\.876e-6$", out, re.MULTILINE)
    assert "    thresholds; Lemma A.5, premise\n" in out
    assert re.search(r"  2 d log\(d / eps_r\) <= B +58\.03 +71\.90 +holds +1/e$", out, re.MULTILINE)
    assert "printed: for no epsilon above e^-65536 do all of them hold\n" in out
    assert re.search(r"corrected: all of them hold for epsilon up to 5\.796e-7, with N = 1\.40\de\+56, eps_r", out)
    assert "not for DMQ: n_samples: expected at most 2^63 - 1, got 1.41e+56" in out


def test_columns_line_up_whatever_the_numbers(run):
    lines = run(*without("--epsilon"), "--epsilon", "1e-4000")[1].splitlines()
    (top,) = (line for line in lines if line.endswith("corrected"))
    for label in ("eps_t", "eps_s", "N ", "B "):
        (row,) = (line for line in lines if line.startswith(label))
        for column in (top.index("printed"), top.index("corrected")):
            assert row[column - 1] == " " != row[column]
    assert re.search(r"^N +1\.842e\+48004 +", "\n".join(lines), re.MULTILINE)


@functools.cache
def answer(*arguments):
    """What a command prints with --json."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert cli.main([*arguments, "--json"]) == 0
    return json.loads(out.getvalue())


def test_json_holds_what_the_library_says():
    said = answer(*PROBLEM)
    assert said["problem"] | {"d": 2, "H": 5, "K": 2} == said["problem"]
    for name in ("printed", "corrected"):
        parameters = Parameters.from_theorem(0.1, 0.5, 1, 2, 5, 2, corrected=name == "corrected")
        constants = said[name]["constants"]
        for field, number in constants.items():
            assert float(number["value"]) == pytest.approx(float(getattr(parameters, field)))
            assert 10 ** number["log10"] == pytest.approx(float(number["value"]))
        inequalities = [(one["name"], one["holds"]) for one in said[name]["inequalities"]]
        assert inequalities == [(one.name, one.holds) for one in parameters.check()]
        assert said[name]["dmq_arguments"] == pytest.approx(parameters.dmq_arguments())
        assert said[name]["not_runnable"] is None
    assert said["printed"]["largest_epsilon"] is said["printed"]["at_largest_epsilon"] is None
    at = said["corrected"]["at_largest_epsilon"]
    assert at["constants"]["n_samples"]["log10"] > 55
    assert at["dmq_arguments"] is None
    assert "n_samples" in at["not_runnable"]


def test_numbers_beyond_float64_are_read_and_printed():
    constants = answer(*without("--epsilon"), "--epsilon", "1e-500")["printed"]["constants"]
    assert constants["eps_r"] == {"value": "1e-3000", "log10": -3000.0}


def test_an_epsilon_that_was_not_found_is_not_denied(run):
    """The corrected constants hold for every small epsilon, here for smaller ones than are looked at."""
    gamma = [*without("--gamma"), "--gamma", "1e-20000"]
    assert "corrected: for no epsilon above e^-65536 do all of them hold\n" in run(*gamma)[1]
    assert f"e^{SMALLEST_LOG}" == SMALLEST
    smaller = answer(*gamma, "--epsilon", "1e-40020")["corrected"]
    assert all(one["holds"] for one in smaller["inequalities"]) and smaller["largest_epsilon"] is None


def test_delta_counts_in_the_corrected_samples_only():
    few, many = answer(*PROBLEM), answer(*PROBLEM, "--delta", "1e-9")
    assert few["printed"]["constants"] == many["printed"]["constants"]
    assert few["corrected"]["constants"]["n_samples"]["log10"] < many["corrected"]["constants"]["n_samples"]["log10"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*without("--gamma"), "--gamma", "2"], "dmq-fast theory: --gamma: expected 0 < gamma <= 1, got 2"),
        ([*without("--epsilon"), "--epsilon", "1"], "--epsilon: expected 0 < epsilon < 1, got 1"),
        ([*without("--epsilon"), "--epsilon", "1e-99999999"], "--epsilon: expected a finite number of at most"),
        ([*without("--C"), "--C", ".5"], "--C: expected C >= 1, got 0.5"),
        ([*without("--C"), "--C", "nan"], "--C: expected a finite number"),
        ([*PROBLEM, "--delta", "0"], "--delta: expected 0 < delta < 1, got 0"),
        ([*without("--d"), "--d", "0"], "argument --d: expected an integer >= 1, got '0'"),
        ([*without("--gamma"), "--gamma", "half"], "argument --gamma: expected a number, got 'half'"),
        (without("--K"), "the following arguments are required: --K"),
    ],
)
def test_wrong_command_lines_are_refused_by_name(run, arguments, words):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert words in err


def test_defaults_are_a_deterministic_system_and_a_tenth():
    assert answer(*"theory --gamma .5 --d 2 --H 5 --K 2".split()) == answer(*PROBLEM)


def test_it_is_in_the_help(run):
    code, out, _ = run("--help")
    assert code == 0
    assert "dmq-fast theory --gamma 0.5 --d 2 --H 5 --K 2" in out
    code, out, _ = run("theory", "--help")
    assert code == 0
    assert "Low Variance" in out
