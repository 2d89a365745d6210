"""Scores: no shift and no scale of rewards changes them, and what is shown as 100 % is the best."""

import pytest

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
