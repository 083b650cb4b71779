"""`shoal capture to-pcap`: raw captures, selected and merged into one file that Wireshark opens.

The index has no frames, so this takes `*.pcapng` files. Their frames are merged by time. Connections are renumbered,
since two processes use the same numbers; the first packet of each has the original number. Redacted frames stay
redacted, and the current rules are applied again, since an older Shoal may have redacted less.
"""

from __future__ import annotations

import heapq
from itertools import chain, groupby
from typing import TYPE_CHECKING, Final

from shoal.protocol.capture.frames.frame_filter import FrameFilter
from shoal.protocol.capture.frames.pcapng import CapturedFrame, Encoder
from shoal.scenarios.capture.files import gone_if_it_fails
from shoal.scenarios.capture.frames.files import read_frames

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from shoal.protocol.capture.frames.frame_filter import FrameSelection
    from shoal.scenarios.capture.files import CaptureFile

__all__ = ["merged", "to_pcap"]

_MERGED: Final = "merged"


def to_pcap(
    files: Sequence[CaptureFile],
    out: Path,
    wanted: FrameSelection,
    from_ns: int | None = None,
    to_ns: int | None = None,
) -> int:
    """-> frames written. `out` appears when it is complete. Raises OSError, RemoteProtocolError."""
    hidden = out.with_name(f".{out.name}.part")
    encoder, numbers, written = Encoder(_MERGED), dict[tuple[str, int], int](), 0
    with gone_if_it_fails(hidden), hidden.open("wb") as file:
        for frame in merged(files, wanted):
            if (from_ns is None or frame.time_ns >= from_ns) and (to_ns is None or frame.time_ns < to_ns):
                file.write(_encoded(encoder, numbers, frame))
                written += 1
    hidden.replace(out)
    return written


def merged(files: Sequence[CaptureFile], wanted: FrameSelection) -> Iterator[CapturedFrame]:
    """Frames of several processes by time; the files of one process follow each other."""
    picker = FrameFilter(wanted)
    streams = [_frames(list(group)) for _, group in groupby(sorted(files), key=lambda file: file.proxy or file.path)]
    for frame in heapq.merge(*streams, key=lambda frame: frame.time_ns):
        yield from picker.take(frame)
    yield from picker.close()


def _frames(files: Iterable[CaptureFile]) -> Iterator[CapturedFrame]:
    return chain.from_iterable(read_frames(file.path) for file in files)


def _encoded(encoder: Encoder, numbers: dict[tuple[str, int], int], frame: CapturedFrame) -> bytes:
    key = frame.proxy, frame.connection
    if key in numbers:
        return encoder.frame(frame._replace(connection=numbers[key]))
    numbers[key] = number = len(numbers) + 1
    start = encoder.opened(frame.time_ns, number, frame.node, f"connection {frame.connection} of proxy {frame.proxy}")
    return start + encoder.frame(frame._replace(connection=number))
