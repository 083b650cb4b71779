"""The API versions that clients see, and requests for newer ones (KIP-511), on a real broker."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from shoal.protocol.messages.api_versions import EDITED
from shoal.protocol.schema.api import API
from tests.brokers.proxy.rig.frames import CORRELATION_ID, KEYS, Body, Closed, Entity, Wire, framed, request, response

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shoal.scenarios.kafka.broker import Cluster
    from tests.brokers.proxy.rig.stand import Stand

pytestmark = pytest.mark.kafka
API_VERSIONS = KEYS["api_versions"]
UNSUPPORTED_VERSION = 35
SOFTWARE: Body = {"client_software_name": "test", "client_software_version": "1"}
Range = tuple[int, int]


@pytest.fixture
def direct(brokers: Cluster) -> Iterator[Wire]:
    host, _, port = brokers.nodes[1].proxied_address.rpartition(":")
    with Wire(host, int(port)) as wire:
        yield wire


@pytest.fixture
def shoal(stand: Stand) -> Iterator[Wire]:
    with Wire(*stand.broker(1)) as wire:
        yield wire


def _offered(wire: Wire, version: int) -> dict[int, Range]:
    frame = wire.ask(request("api_versions", version, SOFTWARE))
    assert not isinstance(frame, Closed)
    answer: Entity = response("api_versions", version, frame)
    return {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}


def _capped(key: int, offered: Range) -> Range:
    newest = API[key].newest if key in EDITED else None
    return offered if newest is None else (offered[0], min(newest, offered[1]))


@pytest.mark.parametrize("version", range(5))
def test_only_edited_keys_are_capped_and_no_minimum_changes(direct: Wire, shoal: Wire, version: int) -> None:
    offered = _offered(direct, version)
    assert _offered(shoal, version) == {key: _capped(key, versions) for key, versions in offered.items()}
    assert offered[KEYS["produce"]][0] == 0, "librdkafka does not compress when Produce does not start at 0"


@pytest.mark.parametrize("version", [5, 6, 99])
def test_a_newer_client_is_told_to_ask_again(direct: Wire, shoal: Wire, version: int) -> None:
    answer = _both(direct, shoal, lambda wire: wire.ask(_unknown_version(version)))
    # Header v0 and body v0: an error code, and the only range to retry with.
    assert answer == framed(struct.pack(">ihihhh", CORRELATION_ID, UNSUPPORTED_VERSION, 1, API_VERSIONS, 0, 4))
    _both(direct, shoal, lambda wire: wire.ask(request("api_versions", 0, {})))


def _unknown_version(version: int) -> bytes:
    """Request header v2, and a body that only a future broker can read."""
    return framed(struct.pack(">hhih", API_VERSIONS, version, CORRELATION_ID, -1) + b"\0" + b"\x07unheard-of")


def test_a_version_that_the_broker_lacks_closes_the_connection_alike(direct: Wire, shoal: Wire) -> None:
    frame = framed(struct.pack(">hhih", KEYS["metadata"], 77, CORRELATION_ID, -1) + b"\0\0")
    assert _both(direct, shoal, lambda wire: wire.ask(frame)) == Closed()


def test_an_unknown_api_closes_the_connection_alike(direct: Wire, shoal: Wire) -> None:
    frame = framed(struct.pack(">hhih", 31_000, 0, CORRELATION_ID, -1) + b"\0\0")
    assert _both(direct, shoal, lambda wire: wire.ask(frame)) == Closed()


def _both(direct: Wire, shoal: Wire, call: Callable[[Wire], bytes | Closed]) -> bytes | Closed:
    left, right = call(direct), call(shoal)
    assert left == right
    return left
