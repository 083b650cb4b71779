"""Why a record set cannot be converted further for an old client: a value, set before the first affected message."""

from dataclasses import dataclass
from enum import StrEnum

from shoal.protocol.wire.errors import RemoteProtocolError, TooLarge

__all__ = ["Failure", "FailureKind", "UnreadableCodec"]


class FailureKind(StrEnum):
    DAMAGE = "damage"
    """Invalid bytes: CRC, lengths, offsets out of order."""
    CODEC = "codec"
    """A codec that this client cannot read (zstd, if the source's codec is kept), or an unknown one (ids 5-7)."""
    INEXPRESSIBLE = "inexpressible"
    """A decompressed record too large to hold: see `DownConversion`."""


class UnreadableCodec(RemoteProtocolError):
    """A codec that this client cannot read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """`offset` is the first that is not converted: a consumer that fetches it again gets this failure again. `text` is
    for the log."""

    kind: FailureKind
    offset: int
    text: str

    @classmethod
    def of(cls, error: RemoteProtocolError, offset: int, where: str) -> "Failure":
        return cls(kind=_KINDS.get(type(error), FailureKind.DAMAGE), offset=offset, text=f"{where}: {error}")


_KINDS = {UnreadableCodec: FailureKind.CODEC, TooLarge: FailureKind.INEXPRESSIBLE}
