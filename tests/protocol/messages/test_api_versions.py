from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st

from shoal.protocol.messages.api_versions import EDITED, intersect, offered, unsupported
from shoal.protocol.schema.api import API, ApiKey
from shoal.protocol.wire.errors import RemoteProtocolError
from tests.support.kio_messages import Case, decode_response, entity_type, for_any, response_frame

KEYS = st.sampled_from([*ApiKey, 93, 1000])


def with_likely_keys(entity: Any, data: st.DataObject) -> Any:
    """Random keys are rarely in our tables."""
    keys = [replace(api, api_key=data.draw(KEYS), max_version=data.draw(st.integers(0, 40))) for api in entity.api_keys]
    return replace(entity, api_keys=tuple(keys))


def capped(key: int, newest: int) -> int:
    limit = API[key].newest if key in EDITED else None
    return newest if limit is None else min(newest, limit)


@for_any("ApiVersionsResponse", examples=60)
def test_only_maxima_of_edited_keys_are_lowered(case: Case, entity: Any, data: st.DataObject) -> None:
    entity = with_likely_keys(entity, data)
    if entity.error_code == 35:
        entity = replace(entity, error_code=type(entity.error_code)(0))
    frame = response_frame(entity)
    keys = [replace(api, max_version=capped(api.api_key, api.max_version)) for api in entity.api_keys]
    expected = replace(entity, api_keys=tuple(keys))
    assert offered(frame, case.version) == {api.api_key: api.max_version for api in entity.api_keys}
    made = intersect(frame, case.version)
    assert bytes(made) == response_frame(expected)
    assert (made is frame) == (expected == entity)


@pytest.mark.parametrize("version", [*range(5)])
def test_the_body_of_an_unsupported_version_answer_is_v0(version: int) -> None:
    frame = unsupported(8)
    assert intersect(frame, version) is frame
    assert bytes(intersect(frame[:-2] + b"\0\x09", version)) == frame


def test_the_unsupported_answer_is_what_a_client_reads() -> None:
    decoded = decode_response(unsupported(77), entity_type(Case("ApiVersionsResponse", 0)))
    assert unsupported(77)[4:8] == (77).to_bytes(4)
    assert decoded.error_code == 35
    assert [(api.api_key, api.min_version, api.max_version) for api in decoded.api_keys] == [(18, 0, 4)]


def test_produce_still_starts_at_its_own_minimum() -> None:
    frame = b"\0\0\0\x10" + bytes(4) + b"\0\0" + b"\0\0\0\1" + b"\0\0" + b"\0\0" + b"\0\x63"
    assert bytes(intersect(frame, 0)) == frame[:-2] + b"\0\x0d"


def test_a_remembered_answer_keeps_its_correlation_id_and_its_version() -> None:
    keys = b"\0\0\0\1" + b"\0\0" + b"\0\0" + b"\0\x63"
    lowered = keys[:-1] + b"\x0d"
    for _ in range(2):
        for correlation_id in (b"\0\0\0\1", b"\xff\xff\xff\xfe"):
            for version, rest in ((0, b""), (1, bytes(4))):
                head = b"\0\0\0\x10" + correlation_id + b"\0\0"
                assert bytes(intersect(head + keys + rest, version)) == head + lowered + rest
    with pytest.raises(RemoteProtocolError):
        intersect(b"\0\0\0\x10" + bytes(4) + b"\0\0" + keys, 1)


@pytest.mark.parametrize("keys", [10, 5000])
def test_an_answer_of_any_size_is_lowered(keys: int) -> None:
    head = b"\0\0\0\0" + bytes(4) + b"\0\0" + keys.to_bytes(4)
    unknown, produce = b"\x7f\0" + b"\0\0" + b"\0\x63", b"\0\0" + b"\0\0" + b"\0\x63"
    made = bytes(intersect(head + unknown * (keys - 1) + produce, 0))
    assert made == head + unknown * (keys - 1) + produce[:-1] + b"\x0d"


def test_every_edited_key_has_a_table() -> None:
    assert all(API[key].newest is not None for key in EDITED)
