"""What an envelope states about its batches, in the headers of its record ("enriched message metadata" before KIP-712).

    shoal.batches, shoal.records     counts
    shoal.compressed-bytes           of the batches, without their headers
    shoal.raw-bytes                  the same without compression; only where every codec states it
    shoal.codec                      "zstd"; several with commas
    shoal.min-timestamp              the smallest base timestamp (ms)
    shoal.max-timestamp
    shoal.has-keys                   1 or 0; only where one of the batches was inspected (key_sample.py)
    shoal.provenance                 JSON: cluster, listener, version and host of the Shoal that made the envelope
    shoal.tag.NAME                   application tags, as they are configured

Numbers are ASCII decimals, so that people can read them with any consumer. They are sums over headers that are read
anyway. The target side reconciles them with what it opens and appends (unwrap/reconcile.py), and needs none of them:
the key alone defines an envelope. So each is optional, unknown ones are ignored, and a Shoal that does not know them
(or one of them) opens the envelope as before; the version in the key stays. A mirror's transform may have removed them.
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

__all__ = ["Facts", "agrees", "contradiction", "facts_of", "provenance", "read_facts"]

Header: TypeAlias = tuple[bytes, bytes]

_MAX_NAME = 64  # characters; it is copied into every envelope
_MAX_HEADERS = 64  # of one record that are looked at
_NUMBER = re.compile(rb"-?[0-9]{1,19}").fullmatch
_CODECS = tuple(Codec)
_CODEC_NAMES = tuple(codec.name.lower() for codec in Codec)
_HEADER_SIZE = 61


class Facts(NamedTuple):
    """None: not stated. Bytes; ms. `codec`: names in the order of the alphabet, with commas."""

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


def facts_of(fields: Sequence[Sequence[int]], payloads: Iterable[Buffer], *, has_keys: bool | None = None) -> Facts:
    """The facts of an envelope with at least one batch, whose codecs are known ones.

    `fields`: by field of `BatchHeader`, its value in each batch. `payloads`: what follows each header; taken only as
    needed.
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
    """What the headers of an envelope's record state; None: nothing.

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
    """Whether the headers state what the key says, at the place and in the form of this Shoal.

    False is not yet a contradiction.
    """
    true = (key.batches, key.records, key.payload - _HEADER_SIZE * key.batches)
    return len(headers) >= len(true) and all(
        [
            header[0] == name and header[1] == b"%d" % fact
            for header, name, fact in zip(headers, _NAMES, true, strict=False)
        ]
    )


def contradiction(facts: Facts, key: EnvelopeKey) -> str | None:
    """Where the headers differ from the key, which the batches were compared with; None: nowhere."""
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
    """The header that names the Shoal that made an envelope: one per listener. Names are cut at 64 characters."""
    says = {"cluster": cluster, "listener": listener, "shoal": version, "host": host}
    value = json.dumps({what: name[:_MAX_NAME] for what, name in says.items()}, ensure_ascii=False)
    return b"shoal.provenance", value.encode("utf-8", "replace")
