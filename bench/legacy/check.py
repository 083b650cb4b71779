"""Checks that a message is the one that was written at its offset."""

from __future__ import annotations

from bench.legacy.message_sets import Damaged, Message
from bench.legacy.stage import key_of, timestamp_of, value_of

__all__ = ["check"]


def check(message: Message) -> None:
    """Raises Damaged."""
    offset, *found = message
    if found != [timestamp_of(offset), key_of(offset), value_of(offset)]:
        raise Damaged(f"offset {offset} is not what was written: {found}")
