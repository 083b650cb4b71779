"""A raw capture gives the rows that the tap gives for the same frames, up to where the file is torn or damaged."""

from pathlib import Path

import pyarrow as pa

from shoal.protocol.capture.frames.pcapng import CapturedFrame, Encoder, Sender
from shoal.protocol.capture.index.blocks import Damaged, Torn
from shoal.protocol.wire.compression import Codec
from shoal.scenarios.capture.frames.index import raw_batches
from tests.protocol.capture.index.test_tap import ONE_OF_EACH, fetch_answer, simple_answer, simple_request

PROXY = "0000abcd"


def exchanges(count: int, connection: int = 1) -> list[CapturedFrame]:
    """Fetches with one batch of each codec, and requests without records between them."""
    frames: list[CapturedFrame] = []
    for at in range(count):
        for sender, frame in (
            (Sender.CLIENT, simple_request(1, 4, 2 * at, bytes(20))),
            (Sender.BROKER, fetch_answer(2 * at, ONE_OF_EACH)),
            (Sender.CLIENT, simple_request(12, 0, 2 * at + 1)),
            (Sender.BROKER, simple_answer(2 * at + 1, bytes(2))),
        ):
            frames.append(CapturedFrame(1_000 + len(frames), PROXY, connection, sender, frame))
    return frames


def written(path: Path, frames: list[CapturedFrame]) -> bytes:
    encoder = Encoder(PROXY)
    data = b"".join(encoder.frame(frame) for frame in frames)
    path.write_bytes(data)
    return data


def read(path: Path, columns: list[str] | None = None) -> tuple[list[dict[str, object]], list[Damaged | Torn]]:
    rows: list[dict[str, object]] = []
    faults = []
    for result in raw_batches(path, columns):
        if isinstance(result, pa.RecordBatch):
            rows += result.to_pylist()
        else:
            faults.append(result)
    return rows, faults


def test_frames_become_rows_of_the_index(tmp_path: Path) -> None:
    path = tmp_path / f"shoal-{PROXY}-00000000.pcapng"
    written(path, exchanges(3))
    rows, faults = read(path)
    batches = [row for row in rows if row["kind"] == "batch"]
    assert faults == []
    assert len(batches) == 3 * len(Codec)
    assert len(rows) - len(batches) == 3
    assert {(row["proxy"], row["client"], row["topic"], row["direction"]) for row in batches} == {
        (PROXY, "name", "t", "fetched")
    }
    assert [row["codec"] for row in batches[: len(Codec)]] == [codec.name.lower() for codec in Codec]
    assert [row["records"] for row in batches[: len(Codec)]] == [3 + at for at in range(len(Codec))]


def test_connections_do_not_disturb_each_other(tmp_path: Path) -> None:
    path = tmp_path / "x.pcapng"
    one, other = exchanges(4, 1), exchanges(4, 2)
    written(path, [frame for pair in zip(one, other, strict=True) for frame in pair])
    rows, _ = read(path, ["connection", "records"])
    by_connection = {number: [row["records"] for row in rows if row["connection"] == number] for number in (1, 2)}
    assert by_connection[1] == by_connection[2]
    assert len(rows) == 8 * (len(Codec) + 1)


def test_a_torn_end_costs_the_last_frame(tmp_path: Path) -> None:
    path = tmp_path / "x.pcapng"
    data = written(path, exchanges(5))
    path.write_bytes(data[:-3])
    rows, faults = read(path, ["kind"])
    assert [type(fault) for fault in faults] == [Torn]
    assert len([row for row in rows if row["kind"] == "batch"]) == 5 * len(Codec)


def test_behind_damage_nothing_is_read_and_it_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.pcapng"
    data = bytearray(written(path, exchanges(5)))
    at = len(data) // 2
    del data[at : at + 10]  # block lengths are wrong now; a changed byte within a packet is undetected
    path.write_bytes(data)
    rows, faults = read(path, ["kind"])
    assert [type(fault) for fault in faults] == [Damaged]
    assert 0 < len(rows) < 5 * (len(Codec) + 1)
