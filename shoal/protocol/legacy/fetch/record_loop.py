"""The loop that converts records of magic 2 to messages of magic 0 or 1: source text, generated for each magic.

It runs once per record that an old client reads, so varints are inlined (calls would double its time) from one
template, as in schema/walker.py. It works on a `Window` and leaves it where it stopped.

Rules for hostile bytes. No field is read before the whole record, by its length, is in the window; the position moves
only forward, a length below -1 is refused, and the fields must end where the record ends: that detects every wrong
length. Offsets must ascend and leave room for those of later records, up to the batch's last: so a failure's offset is
always in the batch, and a client that fetches it again meets the failure again. Reading past the window's end is an
IndexError: either the length was cut off there and more bytes are needed, or a field of a whole record exceeds the
record, which is damage now (the window must not grow for it). Varints of more than 32 bits need no separate check: such
values are outside the record, or the batch.
"""

from collections.abc import Callable
from struct import Struct
from textwrap import indent
from typing import Any, Final, TypeAlias
from zlib import crc32

from shoal.protocol.legacy.fetch.window import Window
from shoal.protocol.legacy.message import LOG_OVERHEAD, OVERHEAD
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import VARLONG_BYTES, read_varint

__all__ = ["RECORD_LOOPS", "RecordLoop", "skip_records"]

RecordLoop: TypeAlias = Callable[[Window, list[bytes], int, bool], int]
"""`loop(window, out, room, must)` appends messages to `out` until `room` bytes are used (`window.full`), the window has
no further whole record, or the batch has none; returns their bytes. With `must`, the first is converted even if it is
larger than `room`."""

_VARINT: Final = """\
{x} = w[p]; p += 1
if {x} > 127:
    {x} += (w[p] << 7) - 128; p += 1
    if {x} > 16383:
        {x} += (w[p] << 14) - 16384; p += 1
        if {x} > 2097151: {x}, p = more(w, p - 3)
"""

_FIELD: Final = """\
if {x} & 1:
    if {x} > 1: raise Bad('negative length in a record')
    {x} = -2; {slice} = b''
else:
    {slice} = w[p : p + ({x} >> 1)]; p += {x} >> 1
"""

_LOOP: Final = """\
def loop(window, out, room, must):
    w = window.plain; at = p = window.pos; left = window.left; size = len(w)
    base = window.base_offset; stop = window.last_offset + 1; previous = window.previous; floor = window.floor
    base_timestamp = window.base_timestamp; timestamp = window.append_timestamp; own_timestamps = timestamp is None
    attributes = window.attributes; first = window.first; headers = used = 0
    window.full = False; add = out.append
    try:
        while left:
            at = p
            {length}
            end = p + (n >> 1)
            if n & 1 or end > size: break
            p += 1
            {timestamp}
            {offset}
            offset = base + (o >> 1)
            if o & 1 or offset <= previous or offset + left > stop:
                raise Bad(f'offset {{offset}} after {{previous}}, {{left}} before {{stop}}')
            if offset < floor:
                previous = offset; left -= 1; p = at = end
                continue
            {key}
            {value}
            h = w[p]; p += 1
            if h: h, p = skip_headers(w, p - 1, end)
            if p != end: raise Bad(f'the fields of a record end {{end - p}} bytes before it')
            total = {overhead} + len(key) + len(value)
            if total > room and not must:
                window.full = True
                break
            if own_timestamps: timestamp = base_timestamp + (t >> 1 ^ -(t & 1)) & 0xFFFFFFFFFFFFFFFF
            if first < 0: first = offset
            body = {keyless} + value if k < 0 else {keyed} + key + number(v >> 1) + value
            add(log_head(offset - first, total - {log_overhead}, crc32(body))); add(body)
            previous = offset; left -= 1; headers += h; used += total; room -= total; must = False; at = p
    except IndexError: require_cut(w, at)
    finally:
        window.pos = at; window.left = left; window.previous = previous; window.first = first
        window.counts.dropped_headers += headers
    return used
"""

_SKIP: Final = """\
def skip(window, count):
    w = window.plain; at = p = window.pos; size = len(w); done = 0
    try:
        while done < count:
            {length}
            p += n >> 1
            if n & 1 or p > size: break
            at = p; done += 1
    except IndexError: pass
    window.pos = at; window.left -= done; window.previous += done
    return done
"""

_HEADS: Final = (
    {"keyless": "head(0, attributes, -1, v >> 1)", "keyed": "keyed(0, attributes, k >> 1)"},
    {"keyless": "head(1, attributes, timestamp, -1, v >> 1)", "keyed": "keyed(1, attributes, timestamp, k >> 1)"},
)
_LAYOUTS: Final = (("bbi", "bbii"), ("bbQi", "bbQii"))  # magic, attributes, [timestamp,] key length, [value length]


def _more(w: bytes, pos: int) -> tuple[int, int]:
    """The whole varint at `pos`, without zigzag decoding."""
    value = shift = 0
    for at in range(pos, pos + VARLONG_BYTES):
        byte = w[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
    raise RemoteProtocolError(f"a varint does not end within {VARLONG_BYTES} bytes")


def _skip_headers(w: bytes, pos: int, end: int) -> tuple[int, int]:
    """The number of headers at `pos`, and their end."""
    count, pos = read_varint(w, pos, end)
    if not 0 <= count <= (end - pos) // 2:
        raise RemoteProtocolError(f"{count} headers cannot be in {end - pos} bytes")
    for least in (0, -1) * count:  # a key is never null
        length, pos = read_varint(w, pos, end)
        if length < least:
            raise RemoteProtocolError(f"a header of {length} bytes")
        pos += max(length, 0)
    return count, pos


def _require_cut(w: bytes, at: int) -> None:
    """RemoteProtocolError unless the record at `at`, or its length field, ends beyond the window."""
    try:
        length, pos = read_varint(w, at, len(w))
    except RemoteProtocolError:
        return
    if 0 <= length <= len(w) - pos:
        raise RemoteProtocolError(f"a field goes on behind the end of a record of {length} bytes")


_VARINTS: Final = {"length": "n", "timestamp": "t", "offset": "o"}
_NAMES: Final[dict[str, Any]] = {
    "Bad": RemoteProtocolError,
    "crc32": crc32,
    "log_head": Struct(">qiI").pack,  # offset, size, crc
    "more": _more,
    "number": Struct(">i").pack,
    "require_cut": _require_cut,
    "skip_headers": _skip_headers,
}


def _generated(template: str, name: str, names: dict[str, Any], **parts: Any) -> Any:
    fields = {part: _VARINT.format(x=x) for part, x in _VARINTS.items()}
    fields |= {part: _VARINT.format(x=x) + _FIELD.format(x=x, slice=part) for part, x in (("key", "k"), ("value", "v"))}
    lines = []
    for line in template.splitlines():
        inner = line.strip().strip("{}")
        lines.append(indent(fields[inner], line[: -len(line.lstrip())]) if inner in fields else line.format(**parts))
    names = _NAMES | names
    exec(compile("\n".join(lines), f"<{name}>", "exec"), names)
    return names


def _record_loop(magic: int) -> RecordLoop:
    keyed, head = (Struct(f">{layout}").pack for layout in _LAYOUTS[magic])
    parts = {"overhead": OVERHEAD[magic], "log_overhead": LOG_OVERHEAD, **_HEADS[magic]}
    names = _generated(_LOOP, f"record loop of magic {magic}", {"head": head, "keyed": keyed}, **parts)
    loop: RecordLoop = names["loop"]
    return loop


RECORD_LOOPS: Final = (_record_loop(0), _record_loop(1))
"""By magic."""

skip_records: Final[Callable[[Window, int], int]] = _generated(_SKIP, "skip records", {})["skip"]
"""`skip_records(window, count)` skips `count` records, or as many as are in the window, by their lengths alone; returns
how many. For batches without gaps, where the offset follows from the record's index."""
