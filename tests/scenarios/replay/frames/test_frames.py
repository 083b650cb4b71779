"""Captured frames become valid requests to a modern cluster: nothing of the old session remains, and nothing else
changes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from shoal.protocol.capture.frames.pcapng import Encoder
from shoal.protocol.records.batch import open_batch
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import TopicPartition
from shoal.scenarios.replay.frames.ledger import RawLedger, _judge, _mark
from shoal.scenarios.replay.frames.requests import FetchAgain, Interpreter, MetadataAgain, ProduceAgain, RawBatch
from shoal.scenarios.replay.frames.source import read_raw
from shoal.scenarios.replay.ledger import Findings
from tests.support.captures.raw_frames import (
    PROXY,
    START_NS,
    TOPIC,
    TOPIC_ID,
    Recording,
    batch,
    produce,
    short_recording,
)

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.scenarios.replay.frames.requests import Redo


def redone(recording: Recording, names: dict[bytes, str] | None = None) -> tuple[list[Redo], Interpreter]:
    interpreter = Interpreter(names or {})
    return list(interpreter.interpret(recording.frames)), interpreter


def test_batches_come_again_without_their_producer_and_otherwise_as_they_were() -> None:
    redos, _ = redone(short_recording())

    produced = [redo.what for redo in redos if isinstance(redo.what, ProduceAgain)]
    assert [(what.version, what.acks, what.timeout_ms) for what in produced] == [
        (9, -1, 30_000),
        (12, -1, 30_000),
    ] * 2
    batches = [one for what in produced for one in what.batches]
    assert [(one.partition, one.records) for one in batches] == [((TOPIC, at % 2), 5) for at in range(8)]
    for number, one in enumerate(batches):
        header, records = open_batch(one.data, 0, len(one.data), limit=1_000_000)  # the checksum is right
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
        assert one.data == batch(number, header.codec)
        assert len(list(records)) == 5


def test_an_incremental_fetch_becomes_a_full_one() -> None:
    redos, _ = redone(short_recording())

    fetches = [redo.what for redo in redos if isinstance(redo.what, FetchAgain)]
    assert [what.partitions for what in fetches] == [{(TOPIC, 0): 0, (TOPIC, 1): 1_000_000}] * 6
    assert {(what.version, what.max_wait_ms, what.min_bytes, what.max_bytes) for what in fetches} == {
        (12, 40, 1, 1 << 20)
    }


def test_the_rest_is_left_out_and_counted_with_its_reason() -> None:
    redos, interpreter = redone(short_recording())

    assert interpreter.left_out == Counter(
        {
            "Produce: transactional": 1,
            "SaslAuthenticate: withheld by the capture": 1,
            "JoinGroup: belongs to that cluster at that time only": 1,
        }
    )
    (metadata,) = [redo.what for redo in redos if isinstance(redo.what, MetadataAgain)]
    assert (metadata.version, metadata.topics) == (12, (TOPIC,))


def test_a_topic_id_that_nobody_names_is_left_out() -> None:
    recording = Recording()
    recording.ask(1, ApiKey.PRODUCE, 13, produce(TOPIC_ID, {0: batch(1, Codec.NONE)}))

    assert redone(recording)[0] == []
    assert len(redone(recording, {TOPIC_ID: TOPIC})[0]) == 1


def test_a_batch_of_a_transaction_is_left_out() -> None:
    recording = Recording()
    recording.ask(1, ApiKey.PRODUCE, 9, produce(TOPIC, {0: batch(1, Codec.NONE, attributes=0x10)}))

    redos, interpreter = redone(recording)

    assert redos == []
    assert interpreter.left_out == Counter({"Produce: transactional": 1})


@pytest.mark.parametrize("cut", [0, 3, 7, 11, 40, 100])
def test_hostile_frames_are_left_out(cut: int) -> None:
    recording = Recording()
    whole = short_recording().frames
    for frame in whole:
        recording.add(frame.connection, frame.sender, frame.frame[:cut])

    redos, interpreter = redone(recording)

    assert not [redo for redo in redos if isinstance(redo.what, ProduceAgain)]
    assert interpreter.left_out.total() > 0


def written(path: Path, recording: Recording) -> Path:
    encoder = Encoder(PROXY)
    path.write_bytes(b"".join(encoder.frame(frame) for frame in recording.frames))
    return path


def test_a_file_tells_what_its_replay_needs(tmp_path: Path) -> None:
    recorded = read_raw(written(tmp_path / "shoal-0a0b0c0d-00000000.pcapng", short_recording()))

    assert recorded.partitions == {TOPIC: 2}
    assert recorded.requests == Counter({"Fetch": 6, "Produce": 4, "Metadata": 1, "AsItWas": 1})
    assert (recorded.batches, recorded.first_ns) == (8, START_NS)
    assert list(recorded.redos()) == redone(short_recording())[0]


def test_an_id_may_be_named_behind_its_first_use(tmp_path: Path) -> None:
    frames = short_recording().frames
    late = Recording()
    late.frames = [*frames[4:], *frames[2:4]]

    assert read_raw(written(tmp_path / "x.pcapng", late)).batches == 8


def test_what_is_no_capture_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.pcapng").write_bytes(b"no capture at all")
    with pytest.raises(RemoteProtocolError, match="no pcapng"):
        read_raw(tmp_path / "x.pcapng")


def test_equal_batches_are_told_by_their_order_and_a_changed_one_is_missing() -> None:
    one, other = batch(1, Codec.LZ4), batch(2, Codec.LZ4)
    ledger, partition = RawLedger(), TopicPartition("t", 0)
    for data in (one, other, one):
        ledger.sent(RawBatch(partition, data, 5), connection=1)
    marks = ledger._sent[partition]
    found = Findings()

    _judge([_mark(one), _mark(one), _mark(other), _mark(one), _mark(batch(3, Codec.LZ4))], marks, found)

    assert found == Findings(complete=3, out_of_order=1, doubled=1, foreign=1)
