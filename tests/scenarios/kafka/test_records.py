import json
from collections.abc import Callable, Iterator
from itertools import islice

import pytest
import zstandard

from shoal.scenarios.kafka.content.records import Record, chunks, oddities, orders, sized

Maker = Callable[..., Iterator[Record]]


@pytest.mark.parametrize("make", [orders, oddities])
def test_records_are_the_same_in_every_run_and_other_with_another_seed(make: Maker) -> None:
    assert list(make(500)) == list(make(500))
    assert list(make(500)) != list(make(500, seed=1))


@pytest.mark.parametrize("make", [orders, oddities])
def test_every_record_is_different(make: Maker) -> None:
    made = list(make(9000))

    assert len(made) == 9000
    assert len({(record.timestamp, record.key, record.value, str(record.headers)) for record in made}) == 9000


def test_a_longer_topic_begins_like_a_shorter_one() -> None:
    assert list(islice(orders(9000), 100)) == list(orders(9000))[:100]


def test_orders_are_json_of_which_zstd_leaves_about_a_fifth() -> None:
    values = [record.value or b"" for record in orders(350)]

    assert {len(json.loads(value)["order"]["items"]) for value in values} == {1, 2}
    assert 4 < sum(map(len, values)) / len(zstandard.compress(b"".join(values))) < 6


def test_oddities_have_every_pair_of_null_empty_and_filled_key_and_value() -> None:
    def kind(part: bytes | None) -> str:
        return "null" if part is None else "empty" if part == b"" else "filled"

    pairs = {(kind(record.key), kind(record.value)) for record in oddities(200)}

    assert pairs == {(key, value) for key in ("null", "empty", "filled") for value in ("null", "empty", "filled")}


def test_sized_records_have_the_size_asked_for() -> None:
    assert {len(record.value or b"") for record in sized(5, 1000)} == {1000}


def test_chunks_leave_nothing_out() -> None:
    records = list(orders(10))

    assert [len(chunk) for chunk in chunks(iter(records), 4)] == [4, 4, 2]
    assert [record for chunk in chunks(iter(records), 4) for record in chunk] == records
