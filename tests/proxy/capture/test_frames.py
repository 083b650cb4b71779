"""The raw capture: the files have what clients sent and received, traffic never waits for it, and disks may be full."""

from __future__ import annotations

import logging
import os
import random
import socket
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.capture.frames.pcapng import CapturedFrame, Sender
from shoal.proxy.capture.frame_files import RawFiles
from shoal.proxy.capture.frame_tap import LOST, FrameTap
from shoal.proxy.capture.frames import FrameCapture
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.settings import RawCaptureSettings
from tests.support import rig
from tests.support.captures.capture_index import whole_raw_capture
from tests.support.tiny_disk import tiny_disk

PROXY = "0badcafe"
LIMIT = 1 << 20
NUMBERS = count(1)  # of connections


def capture(directory: Path, **options: Any) -> FrameCapture:
    return FrameCapture(RawCaptureSettings(directory=directory, **options), PROXY, LIMIT)


def _contents(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in directory.glob("shoal-*.pcapng")]


def _tap(got: list[CapturedFrame], room: bool = True) -> FrameTap:
    def put(captured: CapturedFrame) -> bool:
        got.append(captured)
        return True

    return FrameTap(CapturedFrame(0, PROXY, 1, Sender.CLIENT, b""), 100, lambda _: room, put)


class Wire:
    """A client and the tapped side of its connection."""

    def __init__(self, raw: FrameCapture) -> None:
        self.client, inner = socket.socketpair()
        inner.setblocking(False)
        self.tapped = raw.tap(inner, next(NUMBERS), 1, "a test")

    def ask(self, *frames: bytes) -> None:
        self.client.sendall(b"".join(frames))
        buffer, missing = memoryview(bytearray(1 << 16)), sum(map(len, frames))
        while missing:
            missing -= self.tapped.recv_into(buffer)

    def close(self) -> None:
        self.tapped.close()
        self.client.close()


_PAYLOADS = st.lists(st.binary(max_size=30), max_size=6)


@given(_PAYLOADS, st.data(), st.booleans())
def test_frames_are_told_apart_however_their_bytes_come(payloads: list[bytes], draw: st.DataObject, room: bool) -> None:
    frames = [len(payload).to_bytes(4, "big") + payload for payload in payloads]
    data = b"".join(frames)
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=6)))
    got: list[CapturedFrame] = []
    tap = _tap(got, room)
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        tap.feed(memoryview(data)[start:end], 5)

    assert [(one.frame, one.time_ns, one.withheld) for one in got] == [
        (frame, 5, None if room else LOST) for frame in frames
    ]
    assert tap.claimed is None


@pytest.mark.parametrize("size", [-1, 101])
def test_what_is_no_frame_ends_the_capture_of_its_connection(size: int) -> None:
    got: list[CapturedFrame] = []
    tap = _tap(got)
    tap.feed(memoryview(size.to_bytes(4, "big", signed=True) + b"\0\0\0\0"), 5)

    assert tap.given_up
    assert not got


async def test_what_the_client_sent_and_got_is_captured_through_the_proxy(tmp_path: Path) -> None:
    raw = RawCaptureSettings(directory=tmp_path)
    rng = random.Random(5)
    asked = [rig.request(12, 0, number, rng.randbytes(rng.choice((0, 10, 200_000)))) for number in range(20)]
    answers = [rig.response(number, rng.randbytes(rng.choice((0, 10, 200_000)))) for number in range(20)]

    async def answer(broker: rig.BrokerSide, frame: bytes) -> None:
        await broker.send(answers[rig.correlation_id(frame)])

    async with rig.rig(answer, raw_capture=raw) as proxied:
        client = await proxied.client()
        for frame in asked:
            await client.send_in_chunks(frame, rng)
        got = [await client.frame() for _ in answers]
    frames = whole_raw_capture(tmp_path)

    assert [one.frame for one in frames if one.sender is Sender.CLIENT] == asked
    assert [one.frame for one in frames if one.sender is Sender.BROKER] == got
    assert all(first.time_ns <= second.time_ns for first, second in pairwise(frames))
    assert not any(one.withheld for one in frames)


async def test_credentials_of_an_old_handshake_are_not_in_the_file(tmp_path: Path) -> None:
    password = b"correct horse battery staple"
    token = b"\0alice\0" + password

    async def answer(broker: rig.BrokerSide, frame: bytes) -> None:
        handshake = rig.api_key(frame) == 17
        await broker.send(rig.response(1, b"\0\0\0\0\0\0") if handshake else b"\0\0\0\0")

    async with rig.rig(answer, raw_capture=RawCaptureSettings(directory=tmp_path)) as proxied:
        client = await proxied.client()
        await client.send(rig.request(17, 0, 1, b"\0\5PLAIN"))
        await client.frame()
        await client.send(len(token).to_bytes(4, "big") + token)
        assert await client.frame() == b"\0\0\0\0"
    (data,) = _contents(tmp_path)

    assert b"PLAIN" in data
    assert password not in data
    assert [one.withheld for one in whole_raw_capture(tmp_path)] == [None, None, *["withheld: a SASL token"] * 2]


def test_more_than_the_queue_holds_is_lost_with_its_header_kept(tmp_path: Path) -> None:
    raw = capture(tmp_path, queue_bytes=10_000)
    frames = [rig.request(3, 0, number, bytes(3000)) for number in range(5)]
    wire = Wire(raw)
    wire.ask(*frames)  # nothing has been taken from the queue yet
    with raw:
        wire.close()
    kept = whole_raw_capture(tmp_path)

    assert [one.withheld for one in kept] == [None, None, LOST, LOST, LOST]
    assert [one.frame for one in kept[:2]] == frames[:2]
    assert [one.frame[8:12] for one in kept] == [number.to_bytes(4, "big") for number in range(5)]
    assert (raw.statistics().written, raw.statistics().lost) == (5, 3)


def test_a_connection_for_whose_headers_there_is_no_room_is_given_up(tmp_path: Path) -> None:
    raw = capture(tmp_path, queue_bytes=2000)
    wire = Wire(raw)
    wire.ask(*(rig.request(3, 0, number, bytes(3000)) for number in range(50)))
    with raw:
        wire.close()

    assert 0 < len(whole_raw_capture(tmp_path)) < 5


def test_connections_that_were_given_up_while_the_disk_hung_take_no_room_afterwards(tmp_path: Path) -> None:
    """Nor do those that came when there was no room: nothing of them is kept."""
    raw, whole = capture(tmp_path, queue_bytes=10_000), rig.request(3, 0, 1, bytes(6000))
    wires = list[Wire]()
    for _ in range(100):
        wires.append(Wire(raw))
        wires[-1].ask(*[whole] * 3)
    with raw:  # now the queue is emptied
        for wire in wires:
            wire.close()
    counts = raw.statistics()
    last = Wire(raw)
    last.ask(whole)
    last.close()

    assert raw.statistics().lost == counts.lost > 100
    assert 0 < counts.written < 40


def test_a_frame_that_never_ends_gives_its_room_back(tmp_path: Path) -> None:
    raw = capture(tmp_path, queue_bytes=10_000)
    for _ in range(5):
        wire = Wire(raw)
        wire.ask(rig.request(3, 0, 1, bytes(6000))[:-1])
        wire.close()
    wire = Wire(raw)
    whole = rig.request(3, 0, 2, bytes(6000))
    wire.ask(whole)
    with raw:
        wire.close()

    assert [one.frame for one in whole_raw_capture(tmp_path)] == [whole]
    assert raw.statistics().lost == 0


def test_files_are_rolled_and_the_oldest_removed(tmp_path: Path) -> None:
    (tmp_path / "shoal-00000000-00000001.pcapng").write_bytes(bytes(40_000))
    with capture(tmp_path, max_file_bytes=20_000, max_bytes=70_000) as raw:
        wire = Wire(raw)
        for number in range(30):
            wire.ask(rig.request(3, 0, number, bytes(3000)))
        wire.close()
    names = sorted(path.name for path in tmp_path.iterdir())

    assert names == [f"shoal-{PROXY}-{number:08d}.pcapng" for number in (3, 4, 5)]
    assert {int.from_bytes(one.frame[8:12], "big") for one in whole_raw_capture(tmp_path)} == set(range(14, 30))
    for path in tmp_path.iterdir():
        assert path.read_bytes().count(b"listener") == path.read_bytes().count(b"a test") - 1 == 0


def test_a_disk_that_fails_costs_frames_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = tmp_path / "gone"
    directory.mkdir()
    with capture(directory) as raw, caplog.at_level(logging.ERROR, "shoal.capture"):
        directory.rmdir()
        wire = Wire(raw)
        wire.ask(*(rig.request(3, 0, number) for number in range(3)))
        wire.close()

    assert (raw.statistics().written, raw.statistics().lost) == (0, 3)
    assert sum("frames are lost until it can" in record.message for record in caplog.records) == 1


def frame(number: int, size: int = 3000) -> CapturedFrame:
    return CapturedFrame(number, PROXY, 1, Sender.CLIENT, rig.request(3, 0, number, bytes(size)))


@pytest.mark.parametrize("full_at_the_start", [True, False])
def test_a_full_disk_has_every_frame_that_counts_as_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, full_at_the_start: bool
) -> None:
    """A hundred rounds of writing and flushing on a full disk: one log line, no empty files, and afterwards it
    continues."""
    now = 0.0
    with tiny_disk(tmp_path / "disk", 1 << 20) as disk, caplog.at_level(logging.INFO, "shoal.capture"):
        files = RawFiles(RawCaptureSettings(directory=disk.path, max_bytes=1 << 30), PROXY, lambda: now)
        disk.fill(leave=0 if full_at_the_start else 40_960)
        for number in range(100):
            files.write([frame(number)])
            now += 1
            if number % 3 == 0:
                files.flush()
        files.flush()
        written = [one.time_ns for one in whole_raw_capture(disk.path)]
        assert len(written) == files.written == 100 - files.lost
        assert bool(written) is not full_at_the_start
        assert sum(path.stat().st_size for path in disk.path.glob("*.pcapng")) == files.bytes
        assert len(list(disk.path.glob("*.pcapng"))) <= 2
        disk.empty()
        now += 60
        files.write([frame(number) for number in range(100, 103)])
        files.close()
        assert [one.time_ns for one in whole_raw_capture(disk.path)] == [*written, 100, 101, 102]
        first, again = caplog.messages
        assert f"cannot write to {disk.path}: No space left on device: frames are lost until it can" in first
        assert f"({files.lost} frames are missing)" in again


def test_a_disk_that_failed_is_tried_again_after_ten_seconds(tmp_path: Path) -> None:
    now = 0.0
    directory = tmp_path / "gone"
    files = RawFiles(RawCaptureSettings(directory=directory), PROXY, lambda: now)
    files.write([frame(0)])
    directory.mkdir()
    for now in (9.0, 10.0):
        files.write([frame(int(now))])
    files.close()
    assert (files.lost, [one.time_ns for one in whole_raw_capture(directory)]) == (2, [10])


def test_a_file_that_cannot_be_closed_costs_its_frames_and_nothing_else(tmp_path: Path) -> None:
    now = 0.0
    files = RawFiles(RawCaptureSettings(directory=tmp_path), PROXY, lambda: now)
    files.write([frame(0)])
    (path,) = tmp_path.iterdir()
    os.close(next(int(fd.name) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink() and fd.samefile(path)))
    files.flush()
    now = 10.0
    with (tmp_path / "another").open("wb"):
        files.write([frame(1)])
        files.close()
    assert (files.lost, (tmp_path / "another").read_bytes()) == (1, b"")
    assert [one.time_ns for one in whole_raw_capture(tmp_path)] == [1]


def test_what_cannot_be_removed_stops_no_capture(tmp_path: Path) -> None:
    (tmp_path / "shoal-00000000-00000001.pcapng").mkdir()
    files = RawFiles(RawCaptureSettings(directory=tmp_path, max_file_bytes=4000, max_bytes=4000), PROXY)
    files.write([frame(number) for number in range(5)])
    files.close()
    assert (files.written, files.lost) == (5, 0)


def test_only_the_owner_and_the_group_may_read_the_records(tmp_path: Path) -> None:
    files = RawFiles(RawCaptureSettings(directory=tmp_path), PROXY)
    files.write([frame(0)])
    files.close()
    assert [path.stat().st_mode & 0o007 for path in tmp_path.iterdir()] == [0]


def test_a_directory_that_is_not_there_is_the_operators_mistake(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"capture.raw.directory: .*/none is not a directory"):
        capture(tmp_path / "none")
