"""Responses that pass to legacy clients, and the versions offered to these: against kio."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.api_versions.v0.response import ApiVersion
from kio.schema.errors import ErrorCode

from shoal.protocol.legacy.answers import CHECKED, say_known
from shoal.protocol.legacy.errors import downgrade_error, newest_spoken
from shoal.protocol.legacy.versions import UPSTREAM_VERSION, lower_minima
from shoal.protocol.schema.api import API
from shoal.protocol.wire.errors import RemoteProtocolError
from tests.support.kio_messages import Case, decode_response, entities, entity_type, for_any, response_frame

PASSING = [
    Case(f"{API[key].name}Response", version)
    for key in sorted(CHECKED)
    for version in range(UPSTREAM_VERSION.get(key, 0), newest_spoken(key) + 1)
]


def codes(value: Any) -> Iterator[int]:
    if isinstance(value, tuple):
        for element in value:
            yield from codes(element)
    elif isinstance(value, ErrorCode):
        yield value.value
    elif hasattr(value, "__dataclass_fields__"):
        for field in fields(value):
            yield from codes(getattr(value, field.name))


@pytest.mark.parametrize("case", PASSING, ids=lambda case: f"{case.name}-v{case.version}")
def test_only_unknown_codes_are_replaced(case: Case) -> None:
    key = case.api_key

    def say(code: int) -> int:
        return downgrade_error(key, case.version, code)

    @settings(max_examples=30, deadline=None)
    @given(entities(case))
    def check(entity: Any) -> None:
        frame = response_frame(entity)
        said = say_known(frame, key, case.version, say)
        before = list(codes(entity))
        assert list(codes(decode_response(bytes(said), entity_type(case)))) == [say(code) for code in before]
        assert (said is frame) == all(say(code) == code for code in before)
        assert len(said) == len(frame)

    check()


def test_the_offsets_of_a_client_are_among_what_is_checked() -> None:
    assert Case("OffsetFetchResponse", 2) in PASSING
    assert Case("MetadataResponse", 0) in PASSING
    assert Case("JoinGroupResponse", 1) in PASSING


@settings(max_examples=100)
@given(st.sampled_from(PASSING), st.binary(max_size=60))
def test_damage_is_refused(case: Case, body: bytes) -> None:
    frame = (4 + len(body)).to_bytes(4, "big") + bytes(4) + body
    try:
        say_known(frame, case.api_key, case.version, lambda _: -1)
    except RemoteProtocolError:
        return


def ranges(frame: Any, case: Case) -> dict[int, tuple[int, int]]:
    entity = decode_response(bytes(frame), entity_type(case))
    return {int(api.api_key): (api.min_version, api.max_version) for api in entity.api_keys}


@for_any("ApiVersionsResponse", examples=30)
def test_minima_reach_down_to_what_is_translated(case: Case, entity: Any, data: st.DataObject) -> None:
    if entity.error_code is ErrorCode.unsupported_version and case.version:
        return  # its body is that of v0
    frame = response_frame(entity)
    before, after = ranges(frame, case), ranges(lower_minima(frame, case.version), case)
    for key, (oldest, newest) in before.items():
        is_translated = key in UPSTREAM_VERSION and 0 < oldest <= UPSTREAM_VERSION[key] <= newest
        assert after[key] == (0 if is_translated else oldest, newest)


KAFKA_4_3 = {
    0: (0, 13),
    1: (4, 18),
    2: (1, 11),
    3: (0, 13),
    8: (2, 10),
    9: (1, 10),
    19: (2, 7),
    20: (1, 6),
    30: (1, 3),
    32: (1, 4),
}
FUTURE = {0: (9, 14), 1: (12, 19), 2: (1, 11)}


def offer(versions: dict[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    case = Case("ApiVersionsResponse", 0)
    entity = entity_type(case)
    made: Any = ApiVersion
    keys = tuple(made(api_key=key, min_version=low, max_version=high) for key, (low, high) in versions.items())
    frame = response_frame(entity(error_code=ErrorCode.none, api_keys=keys))
    return ranges(lower_minima(frame, 0), case)


def test_the_offer_of_a_4_3_broker() -> None:
    lowered = {1: (0, 18), 2: (0, 11), 8: (0, 10), 9: (0, 10), 19: (0, 7), 20: (0, 6), 32: (0, 4)}
    assert offer(KAFKA_4_3) == {**KAFKA_4_3, **lowered}


def test_what_a_later_broker_would_refuse_is_not_offered() -> None:
    assert offer(FUTURE) == {**FUTURE, 2: (0, 11)}
