from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.used_versions import (
    OLDEST_IN_KAFKA_4,
    OTHERS,
    as_set,
    members,
    ranges,
    refused_by_kafka_4,
)
from tests.support.kafka.schemas import Schema, all_schemas, in_version

PAIRS = st.tuples(st.integers(0, 126), st.integers(0, 31))


def requests(kafka: str) -> dict[int, Schema]:
    return {schema["apiKey"]: schema for schema in all_schemas(kafka).values() if schema["type"] == "request"}


def test_what_kafka_4_refuses_is_what_its_schemas_leave_out_of_those_of_3_9() -> None:
    new = requests("4.3.0")
    for key, schema in requests("3.9.1").items():
        for version in range(32):
            is_gone = in_version(schema["validVersions"], version) and not in_version(
                new[key]["validVersions"], version
            )
            assert bool(refused_by_kafka_4(as_set(key, version))) == is_gone or OLDEST_IN_KAFKA_4.get(key) == 32


def test_apis_of_zookeeper_clusters_are_refused_in_every_version() -> None:
    new = requests("4.3.0")
    gone = {key for key in requests("3.9.1") if new[key]["validVersions"] == "none"}
    assert {key for key, oldest in OLDEST_IN_KAFKA_4.items() if oldest == 32} == gone
    assert all(refused_by_kafka_4(as_set(key, version)) for key in gone for version in range(32))


@given(st.sets(PAIRS))
def test_members_are_those_put_in(pairs: set[tuple[int, int]]) -> None:
    used = 0
    for key, version in pairs:
        used |= as_set(key, version)
    assert list(members(used)) == list(members(used | OTHERS)) == sorted(pairs)
    assert not used & OTHERS


@given(st.integers(-(1 << 15), (1 << 15) - 1), st.integers(-(1 << 15), (1 << 15) - 1))
def test_no_request_makes_a_set_large(key: int, version: int) -> None:
    used = as_set(key, version)
    assert used.bit_length() <= 127 * 32 + 1
    assert list(members(used)) == ([] if used == OTHERS else [(key, version)])


def test_ranges_are_written_for_people() -> None:
    used = as_set(ApiKey.FETCH, 2) | as_set(ApiKey.FETCH, 12) | as_set(ApiKey.PRODUCE, 9) | as_set(120, 0) | OTHERS
    assert [str(one) for one in ranges(used)] == ["Produce v9", "Fetch v2-v12", "120 v0"]
    assert [str(one) for one in ranges(refused_by_kafka_4(used))] == ["Fetch v2"]
