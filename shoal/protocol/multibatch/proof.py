"""What is known of one broker and sets of several batches: the result, its cause, and what the operator can do about it."""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Identity", "Proof", "Result"]


class Result(StrEnum):
    PROVEN = "proven"  # every set was stored whole, in order, and read back; a damaged one left nothing
    REFUSED = "refused"  # single batches are taken, sets are not, and the broker says so
    UNSAFE = "unsafe"  # the broker answers success, and records are missing or wrong
    UNKNOWN = "unknown"  # could not be tried, or not to its end


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """By what a broker is known again: another cluster id, address or set of API versions is another broker.

    `apis` are (key, lowest, highest version), ascending.
    """

    cluster_id: str | None
    node_id: int
    host: str
    port: int
    apis: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """`why` is the cause, `remedy` the way out ("" where none is needed).

    `identity` is None where the broker did not get as far as telling it. `closed`: the broker ended the connection, so
    asking again costs a client its connection. `stamps`: of a set whose batches have sequences of a producer id, the broker
    knows each batch again, and where the next one begins. `left_behind` names scratch topics that could not be deleted.
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
