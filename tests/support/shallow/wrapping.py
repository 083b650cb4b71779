"""The wrapping of one record set by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.protocol.records.scan import scan
from shoal.protocol.shallow.wrap.wrap import wrap

if TYPE_CHECKING:
    from shoal.protocol.shallow.wrap.wrap import WrapContext, Wrapped
    from shoal.protocol.wire.crc import Buffer

__all__ = ["next_offset", "wrap_record_set"]


def wrap_record_set(frame: Buffer, start: int, end: int, context: WrapContext) -> Wrapped:
    return wrap(frame, scan(frame, start, end), context)


def next_offset(frame: Buffer, start: int, end: int, fetch_offset: int) -> int:
    return scan(frame, start, end).next_offset(fetch_offset)
