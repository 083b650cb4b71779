"""Targets: the reader of requests that may be joined."""

from shoal.protocol.coalesce.joinable import WhyAlone, read_joinable
from shoal.protocol.coalesce.request import encode_joined
from shoal.protocol.messages.produce import encode_partition, encode_plain_produce
from shoal.protocol.records.batch import NewRecord, encode_batch
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.headers import read_request_header
from shoal.protocol.wire.errors import RemoteProtocolError
from tests.fuzz.target import Target

__all__ = ["TARGETS"]


def _joinable(frame: bytes) -> None:
    """A joinable request, joined with no other, has the same content as before."""
    header = read_request_header(frame)
    if header.api_key != ApiKey.PRODUCE or int.from_bytes(frame[:4], "big") != len(frame) - 4:
        raise RemoteProtocolError("the pump hands over whole frames of this kind")
    found = read_joinable(frame, header)
    if isinstance(found, WhyAlone) or len({part.target.topic for part in found.parts}) > 1 or not found.key.acks:
        return
    sets = {part.target: [part] for part in found.parts}
    assert encode_joined(found.key, header.client_id, header.correlation_id, sets) == frame


def _requests() -> list[bytes]:
    batch = encode_batch([NewRecord(1_700_000_000_000, b"k", b"v")], producer_id=5, producer_epoch=0, base_sequence=9)
    requests = []
    for version in range(3, 14):
        topic = bytes(16) if version == 13 else "t"
        partitions = [encode_partition(version, index, [batch]) for index in (0, 1)]
        requests.append(encode_plain_produce(version, 7, "c", 1, 1000, [(topic, partitions)]))
    return requests


TARGETS = [Target("coalesce.read_joinable", _joinable, _requests)]
