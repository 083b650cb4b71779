"""The facts in an envelope's headers, compared with the records that a consumer of the source log would get."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.records.batch import HEADER_SIZE, NewRecord, encode_batch, open_batch, read_batch_header
from shoal.protocol.records.key_sample import KeySampler
from shoal.protocol.records.record import Record
from shoal.protocol.records.recordset import split
from shoal.protocol.shallow.envelope import MAGIC, EnvelopeKey, decode_key
from shoal.protocol.shallow.facts import Facts, contradiction, provenance, read_facts
from shoal.protocol.wire.compression import Codec
from tests.protocol.shallow.strategies import record_sets
from tests.support.batches import consumed
from tests.support.shallow.world import context, flat, some_batch
from tests.support.shallow.wrapping import wrap_record_set


def envelopes(log: bytes, **changes: object) -> list[tuple[EnvelopeKey, Record]]:
    """Those that a wrapped log has, each with its whole record."""
    record_set = flat(wrap_record_set(log, 0, len(log), context(**changes)).parts or [])
    found = []
    for span in split(record_set, 0, len(record_set)).spans:
        _, records = open_batch(record_set, span.start, span.end, limit=1 << 30)
        for record in records:
            if record.key is not None and bytes(record.key[:16]) == MAGIC:
                key = decode_key(record.key)
                assert key is not None
                found.append((key, record))
    return found


def counted(value: bytes) -> tuple[list[NewRecord], list[bytes]]:
    """Records, and the payloads of the batches."""
    spans = split(value, 0, len(value)).spans
    return consumed(value), [value[span.start + HEADER_SIZE : span.end] for span in spans]


@given(record_sets(), st.integers(0, 120), st.sampled_from([2000, 1 << 19]))
def test_the_facts_of_an_envelope_are_those_of_its_records(log: bytes, fetch_offset: int, run_limit: int) -> None:
    for key, record in envelopes(log, fetch_offset=fetch_offset, run_limit=run_limit, sampler=KeySampler(1)):
        records, payloads = counted(bytes(record.value or b""))
        facts = read_facts(record.headers)
        assert facts is not None
        assert (facts.batches, facts.records) == (len(payloads), len(records))
        assert facts.compressed_bytes == sum(map(len, payloads))
        assert facts.min_timestamp is not None
        assert facts.min_timestamp in {one.timestamp for one in records}
        assert facts.max_timestamp == max(one.timestamp for one in records)
        assert facts.has_keys is any(one.key is not None for one in records)
        assert contradiction(facts, key) is None


@given(record_sets(), st.integers(0, 120))
def test_raw_bytes_are_those_of_the_records(log: bytes, fetch_offset: int) -> None:
    for _, record in envelopes(log, fetch_offset=fetch_offset):
        facts, value, plain, names = read_facts(record.headers), bytes(record.value or b""), 0, set[str]()
        assert facts is not None
        for span in split(value, 0, len(value)).spans:
            header = read_batch_header(value, span.start, span.end)
            names.add(header.codec.name.lower())
            inside = [one._replace(offset_delta=None) for one in consumed(value[span.start : span.end])]
            plain += len(encode_batch(inside, base_timestamp=header.base_timestamp)) - HEADER_SIZE
        assert facts.codec == ",".join(sorted(names))
        assert facts.raw_bytes == (None if "lz4" in names else plain)


def test_a_codec_that_states_nothing_among_others() -> None:
    ((_, record),) = envelopes(some_batch(0, codec=Codec.GZIP) + some_batch(3, codec=Codec.LZ4))
    facts = read_facts(record.headers)
    assert facts is not None
    assert (facts.codec, facts.raw_bytes) == ("gzip,lz4", None)


def test_without_a_sample_nothing_is_said_of_keys() -> None:
    log = some_batch(0) + some_batch(3)
    for sampler in (None, KeySampler(0)):
        ((_, record),) = envelopes(log, sampler=sampler)
        assert b"shoal.has-keys" not in {bytes(name) for name, _ in record.headers}


# Reading


def stated(**headers: bytes | None) -> list[tuple[bytes, bytes | None]]:
    return [(b"shoal." + name.replace("_", "-").encode(), value) for name, value in headers.items()]


numbers = st.none() | st.integers(-(1 << 63), (1 << 63) - 1)
names = st.none() | st.just("zstd")


@given(st.builds(Facts, *[numbers] * 4, names, *[numbers] * 2, st.none() | st.booleans()))
def test_what_is_stated_is_read(facts: Facts) -> None:
    assert read_facts(facts.headers()) == (facts if any(fact is not None for fact in facts) else None)


@pytest.mark.parametrize("value", [b"", b"x", b"1.0", b"+1", b"1_0", b" 1", b"9" * 20, None])
def test_what_no_shoal_writes_is_not_stated(value: bytes | None) -> None:
    assert read_facts(stated(batches=value)) is None
    assert read_facts(stated(batches=value, records=b"-1")) == Facts(records=-1)


def test_headers_of_other_shoals_and_of_others_are_ignored() -> None:
    headers = [(b"shoal.future", b"1"), (b"trace", None), *stated(records=b"7", has_keys=b"maybe")]
    assert read_facts(headers) == Facts(records=7)
    assert read_facts([]) is None


@given(st.lists(st.tuples(st.binary(max_size=20), st.none() | st.binary(max_size=40)), max_size=80))
def test_any_headers_are_harmless(headers: Sequence[tuple[bytes, bytes | None]]) -> None:
    assert read_facts(headers) is None or any(name.startswith(b"shoal.") for name, _ in headers)


def test_what_contradicts_the_key_is_named() -> None:
    ((key, record),) = envelopes(some_batch(0) + some_batch(3))
    facts = read_facts(record.headers)
    assert facts is not None
    other = facts._replace(batches=3, records=9)
    assert contradiction(other, key) == "3 batches are stated, 2 are there; 9 records are stated, 6 are there"
    assert contradiction(Facts(records=6), key) is None


# Provenance


def test_provenance_is_one_header_that_people_can_read() -> None:
    name, value = provenance(cluster="a", listener="source", version="1.2", host="höst")
    assert name == b"shoal.provenance"
    assert json.loads(value) == {"cluster": "a", "listener": "source", "shoal": "1.2", "host": "höst"}


def test_provenance_is_bounded() -> None:
    _, value = provenance(cluster="ö" * 1000, listener="b" * 1000, version="1", host="\ud800" * 1000)
    assert json.loads(value)["cluster"] == "ö" * 64
    assert len(value) < 512


def test_headers_never_make_an_envelope_too_large() -> None:
    header = provenance(cluster="a" * 300, listener="b" * 300, version="1", host="c" * 300)
    log = b"".join(some_batch(base, 10) for base in range(0, 1000, 10))
    wrapped = wrap_record_set(log, 0, len(log), context(run_limit=4000, tags=(header,), sampler=KeySampler(1)))
    record_set = flat(wrapped.parts or [])
    assert all(span.end - span.start <= 4000 for span in split(record_set, 0, len(record_set)).spans)
    assert wrapped.envelopes
