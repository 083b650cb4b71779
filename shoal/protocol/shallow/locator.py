"""A locator: ONE record of Shoal's own, given to a mirror of a mirror topic, and never stored.

When it comes back to the target listener, Shoal knows the copy's name and leader, asks the leader where the copy ends,
and answers the mirror as if the record were stored. A token in the name of its only header identifies it:

    shoal.same-offsets/ token: 32 hex digits  / crc: 8 hex digits, CRC-32C of everything before

A broker with the agent refuses the record, if the mirror does not produce through Shoal; another broker stores it.
"""

from typing import NamedTuple

from shoal.protocol.records.batch import NewRecord, encode_batch
from shoal.protocol.records.record import Headers
from shoal.protocol.shallow.token import sealed_name, token_in

__all__ = ["LocatorRecord", "locator_batch", "read_locator"]

_PREFIX = b"shoal.same-offsets/"
_VALUE = b"Shoal asks where the copy of this partition ends; this record is not stored"


class LocatorRecord(NamedTuple):
    """One that came back. `is_intact`: nothing has changed it on its way."""

    token: bytes
    is_intact: bool


def locator_batch(token: bytes, offset: int, leader_epoch: int = -1) -> bytes:
    """The batch that a mirror gets at `offset`, its next one."""
    record = NewRecord(0, None, _VALUE, ((sealed_name(_PREFIX, token), b""),))
    return encode_batch([record], base_offset=offset, leader_epoch=leader_epoch)


def read_locator(key: object, value: object, headers: Headers) -> LocatorRecord | None:
    """None: an ordinary record. A transform of the mirror may add headers."""
    for name, _ in headers:
        token = token_in(_PREFIX, name)
        if token is not None:
            is_whole = isinstance(value, bytes | bytearray | memoryview) and bytes(value) == _VALUE
            return LocatorRecord(token, is_intact=key is None and is_whole and len(headers) == 1)
    return None
