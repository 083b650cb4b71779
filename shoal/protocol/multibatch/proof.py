"""The result of probing one broker with sets of several batches: its cause, and what the operator can do about it."""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Identity", "Proof", "Result"]


class Result(StrEnum):
    PROVEN = "proven"  # every set was stored whole, in order, and read back; nothing of a damaged one was stored
    REFUSED = "refused"  # the broker accepts single batches and returns an error for sets
    UNSAFE = "unsafe"  # the broker reports success, but records are missing or wrong
    UNKNOWN = "unknown"  # the probe could not start or finish


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Identifies a broker: another cluster id, address or set of API versions is another broker.

    `apis` are (key, lowest, highest version), ascending.
    """

    cluster_id: str | None
    node_id: int
    host: str
    port: int
    apis: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """`why` is the cause, `remedy` the fix ("" if none is needed).

    `identity` is None if the probe ended before the broker gave it. `closed`: the broker closed the connection, so
    probing again costs a client its connection. `stamps`: in a set whose batches have sequences of a producer id, the
    broker recognises each batch again, and knows the next sequence. `left_behind` names scratch topics that could not
    be deleted.
    """

    result: Result
    why: str
    remedy: str = ""
    identity: Identity | None = None
    closed: bool = False
    stamps: bool = False
    left_behind: tuple[str, ...] = ()

    @property
    def proven(self) -> bool:
        return self.result is Result.PROVEN
