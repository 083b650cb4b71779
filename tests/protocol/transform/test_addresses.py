from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from shoal.protocol.schema.api import API
from shoal.protocol.transform.addresses import ADDRESS_RESPONSES, Endpoint, rewrite_endpoints
from shoal.protocol.wire.errors import LocalProtocolError, RemoteProtocolError, UnsupportedVersion
from shoal.protocol.wire.types import write_tagged_fields
from tests.support.endpoints import read_endpoints
from tests.support.kio_messages import Case, cases, decode_response, entities, for_any, response_frame

NAMES = [f"{API[key].name}Response" for key in ADDRESS_RESPONSES]


def is_address(node_id: int, host: str, port: int) -> bool:
    return node_id >= 0 and host != "" and port > 0


def addresses_in(entity: Any, node_id: int = -1) -> list[Endpoint]:
    """Every host and port in the message, found by kio's field names."""
    if getattr(entity, "endpoint_type", 1) != 1:
        return []
    node_id = getattr(entity, "node_id", getattr(entity, "broker_id", node_id))
    found = []
    if hasattr(entity, "host") and is_address(node_id, entity.host, entity.port):
        found.append(Endpoint(node_id, entity.host, entity.port))
    for field in fields(entity):
        value = getattr(entity, field.name)
        for part in value if isinstance(value, tuple) else [value]:
            if is_dataclass(part):
                found += addresses_in(part, node_id)
    return found


def through_shoal(entity: Any, node_id: int = -1) -> Any:
    """The message with every address replaced, again by kio's field names."""
    if getattr(entity, "endpoint_type", 1) != 1:
        return entity
    node_id = getattr(entity, "node_id", getattr(entity, "broker_id", node_id))
    changes: dict[str, Any] = {}
    if hasattr(entity, "host") and is_address(node_id, entity.host, entity.port):
        changes["host"], changes["port"] = lookup(node_id, entity.host, entity.port)
    for field in fields(entity):
        value = getattr(entity, field.name)
        if isinstance(value, tuple):
            changes[field.name] = tuple(through_shoal(part, node_id) if is_dataclass(part) else part for part in value)
        elif is_dataclass(value):
            changes[field.name] = through_shoal(value, node_id)
    return replace(entity, **changes)


def lookup(node_id: int, host: str, port: int) -> tuple[str, int]:
    """Hosts of every length, including where a compact length grows to two bytes; some addresses are unchanged."""
    if node_id % 5 == 0:
        return host, port
    return "h" * (1 + node_id % 200), 1 + (node_id + port) % 65_535


@for_any(*NAMES, examples=25)
def test_every_address_is_replaced_and_nothing_else(case: Case, entity: Any, data: st.DataObject) -> None:
    entity = with_likely_values(entity, data)
    frame = response_frame(entity)
    expected = through_shoal(entity)
    made = rewrite_endpoints(case.api_key, case.version, frame, lookup)
    if made is frame:
        assert expected == entity
    else:
        joined = b"".join(made)  # type: ignore[arg-type]
        assert joined == response_frame(expected)
        assert decode_response(joined, type(entity)) == expected


def with_likely_values(entity: Any, data: st.DataObject) -> Any:
    """A random int8 is rarely a valid endpoint type."""
    if hasattr(entity, "endpoint_type"):
        return replace(entity, endpoint_type=data.draw(st.sampled_from([1, 1, 1, 2])))
    return entity


@for_any(*NAMES, examples=10)
def test_addresses_are_read_in_order(case: Case, entity: Any, data: st.DataObject) -> None:
    entity = with_likely_values(entity, data)
    make = data.draw(st.sampled_from([bytes, bytearray, memoryview]))
    frame = make(response_frame(entity))
    assert read_endpoints(case.api_key, case.version, frame) == addresses_in(entity)


@pytest.mark.parametrize("case", list(cases(*NAMES)), ids=lambda case: f"{case.name}-v{case.version}")
def test_the_oracle_draws_addresses_for_every_version_that_has_them(case: Case) -> None:
    """Otherwise the two tests above could pass on messages without any address."""
    if case.version >= ADDRESS_RESPONSES[case.api_key]:
        types = st.just(1) if case.name == "DescribeClusterResponse" and case.version else st.none()
        drawn = st.tuples(entities(case), types).map(
            lambda pair: replace(pair[0], endpoint_type=1) if pair[1] else pair[0]
        )
        enough = settings(max_examples=5_000, deadline=None, phases=[Phase.generate], derandomize=True)
        assert find(drawn, lambda entity: addresses_in(entity) != [], settings=enough)


@pytest.mark.parametrize("case", list(cases(*NAMES)), ids=lambda case: f"{case.name}-v{case.version}")
def test_versions_without_addresses_are_not_even_walked(case: Case) -> None:
    if case.version < ADDRESS_RESPONSES[case.api_key]:
        assert rewrite_endpoints(case.api_key, case.version, b"not a frame", lookup) == b"not a frame"
        assert read_endpoints(case.api_key, case.version, b"not a frame") == []
    else:
        with pytest.raises(RemoteProtocolError):
            read_endpoints(case.api_key, case.version, b"not a frame")


def test_other_apis_and_newer_versions() -> None:
    assert read_endpoints(19, 7, b"whatever") == []
    with pytest.raises(UnsupportedVersion):
        read_endpoints(3, 14, bytes(20))


NODE = (2).to_bytes(4) + b"\5real" + (9092).to_bytes(4) + b"\0" + write_tagged_fields([(8, [b"?"])])
SHOAL = (2).to_bytes(4) + b"\6shoal" + (1).to_bytes(4) + b"\0" + write_tagged_fields([(8, [b"?"])])


def metadata_v13(node: bytes) -> bytes:
    tags = write_tagged_fields([(1000, [b"unknown"])])
    payload = bytes(4) + tags + bytes(4) + b"\2" + node + b"\0" + bytes(4) + b"\1" + bytes(2) + tags
    return len(payload).to_bytes(4) + payload


def fetch_v17(node: bytes, future: bytes) -> bytes:
    tags = write_tagged_fields([(0, [b"\2", node]), (3, [future])])
    payload = bytes(4) + b"\0" + bytes(10) + b"\1" + tags
    return len(payload).to_bytes(4) + payload


@given(st.binary(max_size=200))
def test_unknown_tags_keep_their_bytes(future: bytes) -> None:
    made = rewrite_endpoints(3, 13, metadata_v13(NODE), lambda *_: ("shoal", 1))
    assert b"".join(made) == metadata_v13(SHOAL)  # type: ignore[arg-type]
    made = rewrite_endpoints(1, 17, fetch_v17(NODE, future), lambda *_: ("shoal", 1))
    assert b"".join(made) == fetch_v17(SHOAL, future)  # type: ignore[arg-type]


@pytest.mark.parametrize("port", [0, -1, 65_536])
def test_a_lookup_that_names_no_port_is_our_mistake(port: int) -> None:
    with pytest.raises(LocalProtocolError, match="is not a port"):
        rewrite_endpoints(3, 13, metadata_v13(NODE), lambda *_: ("shoal", port))
