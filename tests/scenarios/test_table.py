import pytest

from shoal.scenarios.table import RULE, number, ratio, render


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    rows = [("", "one", "two"), RULE, ("name", "1", "20,000"), ("other",)]
    assert render(rows).splitlines() == [
        "        one      two",
        "────────────────────",
        "name      1   20,000",
        "other",
    ]


@pytest.mark.parametrize(("value", "shown"), [(1234.56, "1,234.6"), (0.04, "0.0"), (None, "-")])
def test_numbers(value: float | None, shown: str) -> None:
    assert number(value) == shown


@pytest.mark.parametrize(
    ("larger", "smaller", "shown"), [(90, 10, "9.0x"), (1, 3, "0.3x"), (1, 0, "-"), (None, 1, "-"), (1, None, "-")]
)
def test_ratios(larger: float | None, smaller: float | None, shown: str) -> None:
    assert ratio(larger, smaller) == shown
