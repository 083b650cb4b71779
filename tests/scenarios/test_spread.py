from statistics import StatisticsError

import pytest

from shoal.scenarios.spread import Spread, ratios


def test_a_spread_is_the_median_and_the_extremes_of_the_rounds() -> None:
    assert Spread.of([1.2, 0.9, 1.0, 1.1, 3.0]) == Spread(median=1.1, low=0.9, high=3.0)


@pytest.mark.parametrize(("rounds", "left_out"), [(1, 0), (5, 0), (8, 0), (9, 1), (12, 2), (15, 3)])
def test_more_rounds_make_the_spread_narrower(rounds: int, left_out: int) -> None:
    assert Spread.of(range(rounds)) == ((rounds - 1) / 2, left_out, rounds - 1 - left_out)


def test_one_round_has_no_width() -> None:
    assert Spread.of([1.23456]) == (1.235, 1.235, 1.235)


def test_no_rounds_have_no_spread() -> None:
    with pytest.raises(StatisticsError):
        Spread.of([])


@pytest.mark.parametrize(
    ("now", "before", "above"),
    [
        ((1.3, 1.2, 1.4), (1.0, 0.9, 1.1), True),
        ((1.05, 1.02, 1.4), (1.0, 0.9, 1.1), False),  # the median is within the rounds of the other
        ((1.3, 0.95, 1.4), (1.0, 0.9, 1.1), False),  # a round is below the other's median
        ((1.02, 1.02, 1.02), (1.0, 1.0, 1.0), False),  # too little, although no round varies
        ((1.06, 1.06, 1.06), (1.0, 1.0, 1.0), True),
        ((0.9, 0.8, 1.0), (1.0, 0.9, 1.1), False),
    ],
)
def test_above_is_more_than_the_spread_of_both(
    now: tuple[float, float, float], before: tuple[float, float, float], *, above: bool
) -> None:
    assert Spread(*now).above(Spread(*before)) is above


def test_ratios_are_of_figures_of_the_same_round() -> None:
    assert ratios([2.0, 9.0], [1.0, 3.0]) == [2.0, 3.0]


def test_a_round_without_a_positive_figure_has_no_ratio() -> None:
    assert ratios([None, 2.0, 2.0, -1.0, 6.0], [1.0, None, 0.0, 2.0, 3.0]) == [2.0]


def test_a_side_that_was_not_measured_has_no_ratios() -> None:
    assert ratios([1.0, 2.0], []) == []
