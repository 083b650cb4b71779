"""Why a record set cannot be given to an old client any further: a value, told before the first message of what is concerned."""

from dataclasses import dataclass
from enum import StrEnum

from shoal.protocol.wire.errors import RemoteProtocolError, TooLarge

__all__ = ["Failure", "FailureKind", "UnreadableCodec"]


class FailureKind(StrEnum):
    DAMAGE = "damage"
    """The bytes are not what the format allows: CRC, lengths, offsets out of order."""
    CODEC = "codec"
    """Compressed in a way that this client cannot read (zstd, where the source's codec is kept) or nobody (ids 5-7)."""
    INEXPRESSIBLE = "inexpressible"
    """A record too large, decompressed, to be held: see `DownConversion`."""


class UnreadableCodec(RemoteProtocolError):
    """A codec that this client cannot read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """`offset` is the first that is not given: a consumer who asks for it again gets this again. `text` is for the log."""

    kind: FailureKind
    offset: int
    text: str

    @classmethod
    def of(cls, error: RemoteProtocolError, offset: int, where: str) -> "Failure":
        return cls(kind=_KINDS.get(type(error), FailureKind.DAMAGE), offset=offset, text=f"{where}: {error}")


_KINDS = {UnreadableCodec: FailureKind.CODEC, TooLarge: FailureKind.INEXPRESSIBLE}
