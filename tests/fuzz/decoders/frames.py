"""Targets: frames, headers and messages. The first byte of an input chooses the version, the rest is the frame."""

from collections.abc import Callable, Sequence
from functools import partial

from hypothesis import HealthCheck, given, settings

from shoal.protocol.messages.api_versions import intersect
from shoal.protocol.messages.fetch import (
    limit_fetch,
    read_fetch_request,
    read_fetch_response,
    replace_record_sets,
)
from shoal.protocol.messages.metadata import read_metadata_response
from shoal.protocol.messages.produce import peek_acks, read_produce_request, read_produce_response
from shoal.protocol.messages.sessions import FetchSessions
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.headers import read_request_header, response_body
from shoal.protocol.transform.addresses import ADDRESS_RESPONSES, rewrite_endpoints
from shoal.protocol.transform.skim import FetchSkimmer
from shoal.protocol.transform.skim_share import ShareFetchSkimmer
from shoal.protocol.transform.watch import FetchWatcher
from shoal.protocol.wire.framing import check_frame_size
from tests.fuzz.target import Target
from tests.support import kio_messages
from tests.support.endpoints import read_endpoints

__all__ = ["TARGETS", "examples"]

# So that an unknown version is met, too.
_VERSIONS = 24


def examples(name: str) -> list[bytes]:
    """Two frames of every version, the larger ones of a few that kio encodes."""
    return [
        bytes([case.version]) + frame
        for case in kio_messages.cases(name)
        for frame in sorted(set(_encoded(case)), key=len)[-2:]
    ]


def _encoded(case: kio_messages.Case) -> list[bytes]:
    frames = []
    framed = kio_messages.request_frame if case.name.endswith("Request") else kio_messages.response_frame

    @settings(max_examples=12, database=None, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
    @given(kio_messages.entities(case))
    def collect(entity: kio_messages.Entity) -> None:
        frames.append(framed(entity))

    collect()
    return frames


def _versioned(read: Callable[[bytes, int], object]) -> Callable[[bytes], object]:
    def run(data: bytes) -> object:
        return read(data[1:], data[0] % _VERSIONS) if data else None

    return run


def _target(name: str, message: str, read: Callable[[bytes, int], object]) -> Target:
    return Target(name, _versioned(read), partial(examples, message))


def _fetch_request(frame: bytes, version: int) -> None:
    request = read_fetch_request(frame, version)
    sessions = FetchSessions()
    sessions.answered(request, sessions.request(request), request.session_id)
    sessions.request(request)
    limit_fetch(bytearray(frame), request, max_bytes=1 << 20, partition_max_bytes=1 << 18)


def _fetch_response(frame: bytes, version: int) -> None:
    response = read_fetch_response(frame, version)
    for partition in response.partitions:
        assert 0 <= partition.start <= partition.end <= len(frame)
    replace_record_sets(frame, version, [(partition, [b"new"]) for partition in response.partitions])


def _endpoints(api_key: int, frame: bytes, version: int) -> None:
    read_endpoints(api_key, version, frame)
    rewrite_endpoints(api_key, version, frame, lambda node_id, host, port: ("shoal", 19092))


def _skim(frame: bytes, version: int) -> None:
    _streamed(FetchSkimmer(16 + version % 3, len(frame)), frame)


def _skim_share(frame: bytes, version: int) -> None:
    _streamed(ShareFetchSkimmer(version % 3, len(frame)), frame)


def _watch(frame: bytes, version: int) -> None:
    _streamed(FetchWatcher(version, len(frame)), frame)


def _streamed(skimmer: FetchSkimmer, frame: bytes) -> None:
    step = 1 + len(frame) % 7 * 50 + len(frame) // 100  # a hundred pieces at the most, small frames byte by byte
    for start in range(0, len(frame), step):
        chunk = bytearray(frame[start : start + step])
        forward = skimmer.feed(chunk)
        if forward < len(chunk):
            skimmer.finish(frame[start + forward :])
            return


def _header(data: bytes) -> None:
    read_request_header(data)


def _response_header(frame: bytes, version: int) -> None:
    response_body(frame, ApiKey.FETCH, version)


def _frame_size(data: bytes) -> None:
    check_frame_size(int.from_bytes(data[:4], "big", signed=True), data[:4], 100 << 20)


def _openings() -> Sequence[bytes]:
    return [
        b"\0\0\0\x20",
        b"\x16\x03\x01\x02",
        b"GET ",
        b"HTTP",
        b"PROX",
        b"\r\n\r\n",
        b"SSH-",
        b"\xff\xff\xff\xff",
        b"\0",
    ]


def _unversioned(message: str) -> list[bytes]:
    return [seed[1:] for seed in examples(message)]


_ADDRESSES = {
    ApiKey.PRODUCE: "ProduceResponse",
    ApiKey.FETCH: "FetchResponse",
    ApiKey.METADATA: "MetadataResponse",
    ApiKey.FIND_COORDINATOR: "FindCoordinatorResponse",
    ApiKey.DESCRIBE_CLUSTER: "DescribeClusterResponse",
    ApiKey.SHARE_FETCH: "ShareFetchResponse",
    ApiKey.SHARE_ACKNOWLEDGE: "ShareAcknowledgeResponse",
}
assert _ADDRESSES.keys() == ADDRESS_RESPONSES.keys()

TARGETS = [
    Target("framing.check_frame_size", _frame_size, _openings),
    Target("headers.read_request_header", _header, partial(_unversioned, "ProduceRequest")),
    Target("produce.peek_acks", peek_acks, partial(_unversioned, "ProduceRequest")),
    _target("headers.response_body", "FetchResponse", _response_header),
    _target("api_versions.intersect", "ApiVersionsResponse", intersect),
    _target("fetch.read_fetch_request", "FetchRequest", _fetch_request),
    _target("fetch.read_fetch_response", "FetchResponse", _fetch_response),
    _target("metadata.read_metadata_response", "MetadataResponse", read_metadata_response),
    _target("produce.read_produce_request", "ProduceRequest", read_produce_request),
    _target("produce.read_produce_response", "ProduceResponse", read_produce_response),
    _target("skim.FetchSkimmer", "FetchResponse", _skim),
    _target("skim_share.ShareFetchSkimmer", "ShareFetchResponse", _skim_share),
    _target("watch.FetchWatcher", "FetchResponse", _watch),
    *(_target(f"addresses {message}", message, partial(_endpoints, int(key))) for key, message in _ADDRESSES.items()),
]
