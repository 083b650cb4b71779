"""What an unwrap listener knows to be appended (protocol/shallow/delivery.py), over an orderly stop.

A part of an envelope may be appended when Shoal stops: its broker refused the next batch, or did not answer before the time to drain was
over. The mirror's retry comes to the next Shoal, which must not append that part again. It is read once, and removed: after a kill
there is none. A line each, in JSON; nothing that it says ever becomes false, since an envelope's key is that of one copy.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from shoal.protocol.errors import RemoteProtocolError
from shoal.protocol.shallow.delivery import Delivered, Refusal, Target
from shoal.protocol.shallow.envelope import EnvelopeKey, decode_key, encode_key

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator
    from pathlib import Path

    from shoal.protocol.shallow.delivery import Deliveries

__all__ = ["load_deliveries", "save_deliveries"]

log = logging.getLogger("shoal.unwrap")

_FIRST = "shoal deliveries 1\n"
_NOT_KEPT = "cannot write %s (%s): an envelope that is appended in part now may be appended twice after a restart"


def save_deliveries(path: Path, deliveries: Deliveries, *, failed: Callable[[], None] = lambda: None) -> None:
    """Logs what goes wrong, and calls `failed`."""
    lines = [json.dumps(_row(target, identity, done)) for (target, identity), done in deliveries.items()]
    new = path.with_name(f"{path.name}.new")
    try:
        if path.exists() and not _is_ours(path.read_text()):
            failed()
            log.warning(_NOT_KEPT, path, "it is not Shoal's: move it away, or choose another state-dir")
            return
        path.unlink(missing_ok=True)
        if lines:
            new.write_text("".join((_FIRST, *(f"{line}\n" for line in lines))))
            new.replace(path)
    except (OSError, ValueError) as error:
        failed()
        with suppress(OSError):
            new.unlink()
        log.warning(_NOT_KEPT, path, f"{error}: make room, or choose another state-dir")


def load_deliveries(path: Path, deliveries: Deliveries, *, failed: Callable[[], None] = lambda: None) -> None:
    """And remove the file. Logs what goes wrong, and calls `failed`."""
    try:
        if not path.exists():
            return
        text = path.read_text()
        if not _is_ours(text):
            raise ValueError("it is not Shoal's")
        for target, identity, done in _rows(text[len(_FIRST) :]):
            deliveries.record(target, identity, done)
        path.unlink()
    except (OSError, ValueError, TypeError, RemoteProtocolError, RecursionError) as error:
        failed()
        log.warning("cannot read %s (%s): an envelope that was appended in part may be appended twice", path, error)


def _is_ours(text: str) -> bool:
    """An empty one, too: where the machine has stopped, a file may have its name and not its content."""
    return not text or text.startswith(_FIRST)


def _row(target: Target, identity: Hashable, done: Delivered) -> list[object]:
    if isinstance(identity, EnvelopeKey):
        return [*target, "envelope", encode_key(identity).hex(), *done]
    assert isinstance(identity, bytes)  # the digest of plain records beside an envelope
    return [*target, "plain", identity.hex(), *done]


def _rows(text: str) -> Iterator[tuple[Target, Hashable, Delivered]]:
    """Raises ValueError, TypeError, RemoteProtocolError, RecursionError."""
    for line in text.splitlines():
        topic, partition, kind, said, *numbers, refusal = json.loads(line)
        identity = decode_key(bytes.fromhex(said)) if kind == "envelope" else bytes.fromhex(said)
        if identity is None:
            raise ValueError("a key that is damaged")
        batches, records, first, last = map(int, numbers)
        yield Target(str(topic), int(partition)), identity, Delivered(batches, records, first, last, _refusal(refusal))


def _refusal(said: list[Any] | None) -> Refusal | None:
    if said is None:
        return None
    error_code, texts, batches = said
    return Refusal(int(error_code), tuple(map(str, texts)), int(batches))
