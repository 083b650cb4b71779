"""Targets: the index's tap, which looks at all traffic. Whatever passes, it must not raise, and must hold little. And
what reads raw captures: a hostile file ends in an error or in frames, and the rules for what is written never raise.
"""

from shoal.protocol.capture.frames.frame_filter import FrameFilter, FrameSelection
from shoal.protocol.capture.frames.pcapng import CapturedFrame, Encoder, Sender
from shoal.protocol.capture.frames.pcapng_reader import Decoder
from shoal.protocol.capture.index.columns import ROW_SIZE
from shoal.protocol.capture.index.rows import ConnectionInfo
from shoal.protocol.capture.index.sink import MemorySink
from shoal.protocol.capture.index.stream import MAX_PIECE
from shoal.protocol.capture.index.tap import Tap
from shoal.protocol.wire.compression import Codec
from tests.fuzz.decoders.frames import examples
from tests.fuzz.target import Target
from tests.support.captures.produced import a_batch, request_of

__all__ = ["TARGETS"]


class _Sink(MemorySink):
    def add(self, rows: bytes) -> None:
        assert rows
        assert len(rows) % ROW_SIZE == 0

    def drop(self, rows: int) -> None:
        assert rows > 0


def _tap(data: bytes) -> None:
    """The first two bytes: how large the chunks are, and how much of the rest is a request (in 256ths)."""
    if len(data) < 2:
        return
    size, cut = data[0] + 1, 2 + (len(data) - 2) * data[1] // 255
    tap = Tap(ConnectionInfo(connection=1, listener="l", cluster="c"), _Sink())
    for see, part in ((tap.sent, data[2:cut]), (tap.received, data[cut:])):
        for pos in range(0, len(part), size):
            see(memoryview(part)[pos : pos + size], 1)
            assert len(tap._requests._carry) <= MAX_PIECE >= len(tap._answers._carry)
    tap.close()


def _seeds() -> list[bytes]:
    """A request and an answer that belong together, as far as the tap looks."""
    found = []
    for api, key in (("Produce", 0), ("Fetch", 1), ("ApiVersions", 18)):
        for request, answer in zip(examples(f"{api}Request"), examples(f"{api}Response"), strict=False):
            version = answer[0]
            asked = request[1:5] + key.to_bytes(2, "big") + version.to_bytes(2, "big") + answer[5:9] + request[13:]
            whole = asked + answer[1:]
            if len(asked) * 255 // len(whole) < 255:
                found.append(bytes([200, -(-len(asked) * 255 // len(whole))]) + whole)
    return found


_USUAL = [request_of(9, at, {"orders": dict.fromkeys(range(at), a_batch())}) for at in (1, 2)]


def _repeated(data: bytes) -> None:
    """What a producer sends after its usual requests, by calls of two buffers. The first byte: how large these are."""
    tap = Tap(ConnectionInfo(connection=1, listener="l", cluster="c"), _Sink())
    for frame in _USUAL:
        tap.sent(memoryview(frame), 1)
    size = 16 * data[0] + 1 if data else 1
    for pos in range(1, len(data), 2 * size):
        both = memoryview(data)[pos : pos + 2 * size]
        tap.gathered(([both[:size], both[size:]], len(both)), 1)
    tap.close()


def _repeated_seeds() -> list[bytes]:
    sets = {"orders": {0: a_batch(), 1: a_batch(Codec.ZSTD, 900, 100)}, "others": {9: a_batch(Codec.GZIP)}}
    asked = b"".join([request_of(9, 3, sets), request_of(9, 4, {"orders": {0: a_batch(size=300)}})])
    return [bytes([size]) + asked for size in (7, 20, 255)]


def _raw(data: bytes) -> None:
    """The first byte: whether there is a filter on topics."""
    decoder = Decoder()
    picker = FrameFilter(FrameSelection(topics=frozenset({"t"})) if data[:1] > b"\x7f" else FrameSelection())
    for frame in decoder.feed(data[1:]):
        for kept in picker.take(frame):
            assert kept.frame == frame.frame or kept.withheld or kept.sender != frame.sender
    picker.close()


def _raw_seeds() -> list[bytes]:
    bodies = [seed[6:] for seed in _seeds()]
    bodies += [b"\0\x11\0\0\0\0\0\1\0\5title\0\5PLAIN", b"\0a\0b\0"]
    frames = [len(body).to_bytes(4, "big") + body for body in bodies]
    found = []
    for filtered in (b"\0", b"\xff"):
        encoder = Encoder("0badcafe")
        start = encoder.opened(0, 2, 3, "t")
        pieces = [
            encoder.frame(CapturedFrame(1, "0badcafe", 1, sender, frame)) for frame in frames for sender in Sender
        ]
        found.append(filtered + start + b"".join(pieces) + encoder.closed(2, 1))
    return found


TARGETS = [
    Target("capture.tap", _tap, _seeds),
    Target("capture.repeated", _repeated, _repeated_seeds),
    Target("capture.raw", _raw, _raw_seeds),
]
