"""All errors of `protocol`: they say which side is at fault.

A decoder raises `RemoteProtocolError` for bad network input; any other exception out of a decoder is a bug in Shoal.
"""

__all__ = ["LocalProtocolError", "ProtocolError", "RemoteProtocolError", "TooLarge", "UnsupportedVersion"]


class ProtocolError(Exception):
    """The common base. Raise one of the subclasses."""


class LocalProtocolError(ProtocolError):
    """Shoal's own mistake: it tried to send a message that is not allowed."""


class RemoteProtocolError(ProtocolError):
    """The peer's bytes violate the Kafka protocol."""


class UnsupportedVersion(RemoteProtocolError):
    """A well-formed frame of an API version that Shoal's tables do not know."""


class TooLarge(RemoteProtocolError):
    """Decompressed data is above the limit; no damage was found in what was read."""
