"""The file with the log of appended batches (protocol/shallow/unwrap/appended_log.py), over an orderly stop.

When Shoal stops, a part of an envelope may be appended: the broker refused the next batch, or did not answer within the
drain timeout. The mirror retries at the next Shoal, which must not append that part again. The file never becomes
wrong, because an envelope's key identifies one copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.protocol.shallow.envelope import EnvelopeKey, decode_key, encode_key
from shoal.protocol.shallow.unwrap.appended_log import Appended, Refusal
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.shallow.files.kept_lines import KeptLines

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from pathlib import Path

    from shoal.protocol.shallow.unwrap.appended_log import AppendedLog

__all__ = ["decode_identity", "encode_identity", "load_deliveries", "save_deliveries"]

_LOST = "an envelope that is appended in part may be appended twice after a restart"


def save_deliveries(path: Path, deliveries: AppendedLog, *, failed: Callable[[], None] = lambda: None) -> None:
    """Errors are logged, and reported to `failed`."""
    _file(path, failed).save(
        [*target, *encode_identity(identity), *done] for (target, identity), done in deliveries.items()
    )


def load_deliveries(path: Path, deliveries: AppendedLog, *, failed: Callable[[], None] = lambda: None) -> None:
    """Load and remove the file. Errors are logged, and reported to `failed`."""
    for target, identity, done in _file(path, failed).take(_decode):
        deliveries.record(target, identity, done)


def _file(path: Path, failed: Callable[[], None]) -> KeptLines:
    return KeptLines(path=path, first="shoal deliveries 1", lost=_LOST, failed=failed)


def _decode(row: Any) -> tuple[TopicPartition, Hashable, Appended]:
    """Raises ValueError, TypeError, RemoteProtocolError."""
    topic, partition, kind, said, *numbers, refusal = row
    batches, records, first, last = map(int, numbers)
    done = Appended(batches, records, first, last, _refusal(refusal))
    return TopicPartition(str(topic), int(partition)), decode_identity(kind, said), done


def _refusal(said: list[Any] | None) -> Refusal | None:
    if said is None:
        return None
    error_code, texts, batches = said
    return Refusal(int(error_code), tuple(map(str, texts)), int(batches))


def encode_identity(identity: Hashable) -> tuple[str, str]:
    """The identity of an item of a plan: an envelope's key, or the digest of plain records beside an envelope."""
    if isinstance(identity, EnvelopeKey):
        return "envelope", encode_key(identity).hex()
    assert isinstance(identity, bytes)
    return "plain", identity.hex()


def decode_identity(kind: str, said: str) -> Hashable:
    """Raises ValueError, TypeError, RemoteProtocolError."""
    identity = decode_key(bytes.fromhex(said)) if kind == "envelope" else bytes.fromhex(said)
    if identity is None:
        raise ValueError("a key that is damaged")
    return identity
