"""Who is at fault: the whole error tree of `protocol`.

A decoder fed by the network raises `RemoteProtocolError` and nothing else; any other exception out of a decoder is a bug.
"""

__all__ = ["LocalProtocolError", "ProtocolError", "RemoteProtocolError", "TooLarge", "UnsupportedVersion"]


class ProtocolError(Exception):
    """The common base. Raise one of the subclasses."""


class LocalProtocolError(ProtocolError):
    """Shoal's own mistake: a message that may not be sent as asked."""


class RemoteProtocolError(ProtocolError):
    """The peer's bytes are not what the Kafka protocol allows."""


class UnsupportedVersion(RemoteProtocolError):
    """A well-formed frame of an API version that Shoal's tables do not know."""


class TooLarge(RemoteProtocolError):
    """Whole, as far as it was looked into, but its decompressed form is above the limit."""
