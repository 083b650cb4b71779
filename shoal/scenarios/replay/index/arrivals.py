"""What is played: produce requests as they came, without what was in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from shoal.protocol.wire.compression import Codec

__all__ = ["ALL", "NEWEST_PRODUCE", "Arrival", "Part"]

ALL = -1  # acks
NEWEST_PRODUCE = 12  # the last version that names topics by their names


class Part(NamedTuple):
    """One record batch. `size`: bytes of the batch, its header too; `raw_size`: of its records without compression, None: not known."""

    topic: str
    partition: int
    records: int
    size: int
    raw_size: int | None
    codec: Codec


class Arrival(NamedTuple):
    """`at`: seconds since the beginning. `connection`: any number that tells client connections apart."""

    at: float
    connection: int
    client_id: str | None
    version: int
    acks: int
    parts: tuple[Part, ...]
