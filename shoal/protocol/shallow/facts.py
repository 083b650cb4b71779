"""Facts about an envelope's batches, in the headers of its record (an "enriched message metadata" idea before KIP-712).

    shoal.batches, shoal.records     counts
    shoal.compressed-bytes           size of the batches without their headers
    shoal.raw-bytes                  the same, uncompressed; only if every codec states it
    shoal.codec                      "zstd"; several are separated by commas
    shoal.min-timestamp              the smallest base timestamp (ms)
    shoal.max-timestamp
    shoal.has-keys                   1 or 0; only if one of the batches was inspected (key_sample.py)
    shoal.provenance                 JSON: cluster, listener, version and host of the Shoal that made the envelope
    shoal.tag.NAME                   configured application tags

Numbers are ASCII decimals, readable with any consumer. They are sums over headers that are read anyway. The target side
compares them with what it opens and appends (unwrap/reconcile.py), but does not need them: the key alone defines an
envelope. So all are optional (a mirror's transform may remove them), unknown ones are ignored, and a new one does not
change the version in the key. But a record with another key that has them is an envelope whose key was changed.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from shoal.protocol.records.batch import CODEC_MASK
from shoal.protocol.records.record import Headers
from shoal.protocol.records.recordset import LOG_OVERHEAD
from shoal.protocol.shallow.envelope import EnvelopeKey
from shoal.protocol.wire.compression import Codec, stated_size
from shoal.protocol.wire.crc import Buffer

__all__ = ["Facts", "agrees", "are_of_envelope", "contradiction", "facts_of", "provenance", "read_facts"]

Header: TypeAlias = tuple[bytes, bytes]

_MAX_NAME = 64  # characters; copied into every envelope
_MAX_HEADERS = 64  # headers of one record that are read
_NUMBER = re.compile(rb"-?[0-9]{1,19}").fullmatch
_CODECS = tuple(Codec)
_CODEC_NAMES = tuple(codec.name.lower() for codec in Codec)
_HEADER_SIZE = 61


class Facts(NamedTuple):
    """None: not stated. Bytes; ms. `codec`: names in alphabetical order, separated by commas."""

    batches: int | None = None
    records: int | None = None
    compressed_bytes: int | None = None
    raw_bytes: int | None = None
    codec: str | None = None
    min_timestamp: int | None = None
    max_timestamp: int | None = None
    has_keys: bool | None = None

    def headers(self) -> tuple[Header, ...]:
        stated = zip(_NAMES, self, strict=True)
        return tuple(
            (name, fact.encode() if isinstance(fact, str) else b"%d" % fact)
            for name, fact in stated
            if fact is not None
        )


_NAMES = tuple(f"shoal.{field.replace('_', '-')}".encode() for field in Facts._fields)
_ALWAYS = frozenset(_NAMES[:3])  # every envelope with batches has them


def facts_of(fields: Sequence[Sequence[int]], payloads: Iterable[Buffer], *, has_keys: bool | None = None) -> Facts:
    """The facts of an envelope with at least one batch; all codecs must be known.

    `fields`: per field of `BatchHeader`, its values in all batches. `payloads`: the bytes after each header; read only
    if needed.
    """
    codecs = {attributes & CODEC_MASK for attributes in set(fields[5])}
    return Facts(
        batches=len(fields[0]),
        records=sum(fields[12]),
        compressed_bytes=sum(fields[1]) + (LOG_OVERHEAD - _HEADER_SIZE) * len(fields[0]),
        raw_bytes=_raw_bytes(fields[5], payloads),
        codec=",".join(sorted([_CODEC_NAMES[codec] for codec in codecs])),
        min_timestamp=min(fields[7]),
        max_timestamp=max(fields[8]),
        has_keys=has_keys,
    )


def _raw_bytes(attributes: Sequence[int], payloads: Iterable[Buffer]) -> int | None:
    total = 0
    for bits, payload in zip(attributes, payloads, strict=True):
        size = stated_size(_CODECS[bits & CODEC_MASK], payload)
        if size is None:
            return None
        total += size
    return total


def read_facts(headers: Headers) -> Facts | None:
    """The facts in the headers of an envelope's record; None: there are none.

    A value that no Shoal writes counts as not stated.
    """
    found = {bytes(name): bytes(value) for name, value in headers[:_MAX_HEADERS] if value is not None}
    codec, has_keys = found.get(b"shoal.codec"), found.get(b"shoal.has-keys", b"")
    facts = Facts(
        batches=_number(found.get(b"shoal.batches")),
        records=_number(found.get(b"shoal.records")),
        compressed_bytes=_number(found.get(b"shoal.compressed-bytes")),
        raw_bytes=_number(found.get(b"shoal.raw-bytes")),
        codec=codec.decode("ascii", "replace") if codec else None,
        min_timestamp=_number(found.get(b"shoal.min-timestamp")),
        max_timestamp=_number(found.get(b"shoal.max-timestamp")),
        has_keys={b"0": False, b"1": True}.get(has_keys),
    )
    return facts if any(fact is not None for fact in facts) else None


def _number(value: bytes | None) -> int | None:
    return int(value) if value is not None and _NUMBER(value) else None


def agrees(headers: Headers, key: EnvelopeKey) -> bool:
    """A fast check: the headers agree with the key, in the order and format of this Shoal.

    False is not necessarily a contradiction.
    """
    true = (key.batches, key.records, key.payload - _HEADER_SIZE * key.batches)
    return len(headers) >= len(true) and all(
        [
            header[0] == name and header[1] == b"%d" % fact
            for header, name, fact in zip(headers, _NAMES, true, strict=False)
        ]
    )


def are_of_envelope(headers: Headers) -> bool:
    """These are the headers of an envelope's record, whatever its key is."""
    return {bytes(name) for name, _ in headers}.issuperset(_ALWAYS)


def contradiction(facts: Facts, key: EnvelopeKey) -> str | None:
    """How the headers differ from the key (which matches the batches); None: they agree."""
    true = {
        "batches": key.batches,
        "records": key.records,
        "compressed_bytes": key.payload - _HEADER_SIZE * key.batches,
    }
    stated = facts._asdict()
    wrong = [
        f"{stated[name]} {name.replace('_', ' ')} are stated, {fact} are there"
        for name, fact in true.items()
        if stated[name] not in (None, fact)
    ]
    return "; ".join(wrong) or None


def provenance(*, cluster: str, listener: str, version: str, host: str) -> Header:
    """The header that names the Shoal that makes an envelope, one per listener. Names are cut at 64 characters."""
    says = {"cluster": cluster, "listener": listener, "shoal": version, "host": host}
    value = json.dumps({what: name[:_MAX_NAME] for what, name in says.items()}, ensure_ascii=False)
    return b"shoal.provenance", value.encode("utf-8", "replace")
