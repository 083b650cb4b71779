"""What tshark (Debian package; `scripts/setup` installs it) reads from a raw capture, without brokers."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from shoal.protocol.capture.frames.frame_filter import FrameFilter, FrameSelection
from shoal.protocol.capture.frames.pcapng import CapturedFrame, Encoder, Sender
from shoal.protocol.records.batch import NewRecord, encode_batch
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.headers import write_request_header, write_response_header
from shoal.protocol.wire.types import write_int32, write_string

if TYPE_CHECKING:
    from pathlib import Path

FIELDS = ("ip.src", "kafka.api_key", "kafka.client_id", "kafka.topic_name", "kafka.batch_size", "frame.comment")
CLIENT, BROKER = "10.0.0.1", "172.16.0.2"
WITHHELD = "withheld: passwords of PLAIN, proofs of SCRAM, tokens of OAUTHBEARER"


def _frame(sender: Sender, payload: bytes) -> CapturedFrame:
    return CapturedFrame(1_800_000_000_000_000_000, "0badcafe", 1, sender, write_int32(len(payload)) + payload, None, 2)


def _asked(key: int, version: int, correlation_id: int, body: bytes) -> CapturedFrame:
    return _frame(Sender.CLIENT, write_request_header(key, version, correlation_id, "the-producer") + body)


def _answered(key: int, version: int, correlation_id: int, body: bytes) -> CapturedFrame:
    return _frame(Sender.BROKER, write_response_header(key, version, correlation_id) + body)


def _produce(correlation_id: int, records: int, size: int = 10) -> list[CapturedFrame]:
    batch = encode_batch([NewRecord(1_700_000_000_000, b"k", bytes(size)) for _ in range(records)])
    topic = write_int32(1) + write_string("orders") + write_int32(1) + write_int32(3)
    body = write_string(None) + b"\xff\xff" + write_int32(1000) + topic + write_int32(len(batch)) + batch
    answer = topic + bytes(2) + (100).to_bytes(8, "big") + b"\xff" * 8 + bytes(8) + write_int32(0)
    return [_asked(ApiKey.PRODUCE, 7, correlation_id, body), _answered(ApiKey.PRODUCE, 7, correlation_id, answer)]


def _tshark(path: Path, wanted: str, fields: tuple[str, ...]) -> list[tuple[str, ...]]:
    asked = [part for field in fields for part in ("-e", field)]
    command = ["tshark", "-r", str(path), "-Y", wanted, "-T", "fields", *asked]
    told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    return [tuple(line.split("\t")) for line in told.splitlines()]


def test_tshark_reads_topic_client_and_records_and_goes_on_behind_what_is_withheld(tmp_path: Path) -> None:
    login = [_asked(ApiKey.SASL_AUTHENTICATE, 1, 3, b"secret"), _answered(ApiKey.SASL_AUTHENTICATE, 1, 3, b"secret")]
    frames = [*_produce(1, 7), *_produce(2, 90, 3000), *login, *_produce(4, 5)]
    encoder, picker = Encoder("0badcafe"), FrameFilter(FrameSelection())
    start = encoder.opened(frames[0].time_ns, 1, 2, "a client")
    data = start + b"".join(encoder.frame(kept) for frame in frames for kept in picker.take(frame))
    path = tmp_path / "raw.pcapng"
    path.write_bytes(data + encoder.closed(frames[0].time_ns, 1))

    assert _tshark(path, "kafka", FIELDS) == [
        (CLIENT, "0", "the-producer", "orders", "7", ""),
        (BROKER, "0", "", "orders", "", ""),
        (CLIENT, "0", "the-producer", "orders", "90", ""),
        (BROKER, "0", "", "orders", "", ""),
        (CLIENT, "36", "the-producer", "", "", WITHHELD),
        (BROKER, "", "", "", "", WITHHELD),
        (CLIENT, "0", "the-producer", "orders", "5", ""),
        (BROKER, "0", "", "orders", "", ""),
    ]
    assert _tshark(path, "tcp.analysis.flags || ip.checksum.status == 0", ("frame.number",)) == []
    assert b"secret" not in data
