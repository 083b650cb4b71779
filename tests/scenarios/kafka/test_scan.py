"""What the search for envelopes recognises, without brokers. With them: test_mirror.py."""

from confluent_kafka import Message

from shoal.protocol.records.batch import NewRecord
from shoal.protocol.shallow.envelope import MAGIC
from shoal.protocol.shallow.locator import locator_batch
from shoal.protocol.shallow.token import token_header
from shoal.scenarios.kafka.content.scan import own_parts
from tests.support.batches import consumed
from tests.support.shallow.batches import envelope
from tests.support.shallow.world import plain, some_batch

TOKEN = bytes(range(16))


def found(record: NewRecord) -> list[str]:
    key, value = (None if part is None else bytes(part) for part in (record.key, record.value))
    headers: list[tuple[str, str | bytes | None]] = [(bytes(name).decode(), b"") for name, _ in record.headers]
    return list(own_parts(Message(topic="t", key=key, value=value, headers=headers), MAGIC))


def test_an_envelope_is_found_by_its_key_and_by_its_headers() -> None:
    (made,) = plain([seen.record for seen in envelope(some_batch(3))])
    assert found(made) == ["key", "headers"]
    assert found(made._replace(headers=())) == ["key"]
    assert found(made._replace(key=None, value=b"{}")) == ["headers"]


def test_an_envelope_in_a_value_is_found() -> None:
    assert found(NewRecord(1, None, b"payload: " + MAGIC, ())) == ["value"]


def test_a_locator_is_found_by_its_header() -> None:
    (locator,) = plain(consumed(locator_batch(TOKEN, 7)))
    assert found(locator) == ["headers"]


def test_an_ordinary_record_with_a_token_is_not_found() -> None:
    assert found(NewRecord(1, b"k", b"v", ((b"theirs", None), token_header(TOKEN)))) == []


def test_records_of_others_are_not_found() -> None:
    assert found(NewRecord(1, None, None, ())) == []
    assert found(NewRecord(1, b"k", b"v", ((b"shoal.tag.team", b"a"), (b"shoal.", None)))) == []
