"""Scores: no shift and no scale of rewards changes them, and what is shown as 100 % is the best."""

import math
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmq_fast._support.words import four_digits, rounded
from dmq_fast.experiments.report.page import value_text
from dmq_fast.experiments.report.tables import spell
from dmq_fast.results.score import percent, score, solves


@pytest.mark.parametrize("scale", [1.0, 7.0, 1e-6, 3e5])
@pytest.mark.parametrize("shift", [0.0, -3.0, 40.0])
@pytest.mark.parametrize(("value", "expected"), [(0.3, 0.0), (0.9, 1.0), (0.6, 0.5), (0.15, -0.25)])
def test_no_shift_and_no_scale_changes_a_score(scale, shift, value, expected):
    image = [scale * one + shift * scale for one in (value, 0.3, 0.9)]
    assert score(*image) == pytest.approx(expected, abs=1e-9)
    assert solves(*image, 0.5) == (expected >= 0.5)
    assert percent(score(*image)) == percent(expected)


def test_the_best_policy_scores_one_exactly():
    assert score(0.1 + 0.2, -1.0, 0.3) == 1.0
    assert score(0.3 - 1e-6, -1.0, 0.3) < 1.0


def test_where_every_policy_is_optimal_there_is_no_score():
    assert score(-3.0, -3.0, -3.0 + 1e-15) is None
    assert solves(-3.0, -3.0, -3.0 + 1e-15, 0.95)
    assert not solves(-3.1, -3.0, -3.0, 0.95)
    assert score(0.0, 0.0, 0.0) is None


def test_tiny_values_of_uniform_play_are_no_ties():
    assert score(0.0, 1e-48, 2e-48) == pytest.approx(-1.0)


@pytest.mark.parametrize(
    ("given", "shown"),
    [(0.9996, "99.9%"), (1.0 - 2e-9, "99.9%"), (1.0, "100.0%"), (0.95, "95.0%"), (0.3, "30.0%"), (-0.0001, "-0.1%")],
)
def test_shares_are_rounded_down(given, shown):
    assert percent(given) == shown


def test_a_score_above_uniform_play_is_not_shown_as_none_of_the_way():
    assert [percent(one) for one in (0.0004, 0.0, -0.0004, 0.001)] == ["<0.1%", "0.0%", "-0.1%", "0.1%"]


shares = st.one_of(st.floats(-1.0, 1.0), st.floats(0.0, 1e-300), st.floats(1e-17, 1e-3).map(lambda miss: 1.0 - miss))


@settings(deadline=None)
@given(shares, st.integers(1, 9))
def test_what_misses_something_is_never_shown_as_the_whole(share, digits):
    for text in (rounded(share, digits), four_digits(share), spell(share), value_text(share)):
        assert (abs(float(text)) == 1.0) == (abs(share) == 1.0) and (float(text) == 0.0) == (share == 0.0)
    assert abs(float(rounded(share, digits)) - share) <= 10.0**-digits + sys.float_info.min
    if math.isclose(abs(share), 1.0, abs_tol=0.1):
        assert (percent(share) == "100.0%") == (share >= 1.0)
    if share > 1e-9:
        assert percent(share) != "0.0%"
