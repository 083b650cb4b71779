"""Whole frames from values: size, header and body."""

from shoal.protocol.schema.api import API
from shoal.protocol.schema.composer import Values, compose
from shoal.protocol.schema.headers import write_request_header, write_response_header
from shoal.protocol.schema.tables import MESSAGES
from shoal.protocol.wire.types import write_int32

__all__ = ["request_frame", "response_frame"]


def request_frame(api_key: int, api_version: int, correlation_id: int, client_id: str | None, values: Values) -> bytes:
    """Raises what `compose` does."""
    body = compose(MESSAGES[f"{API[api_key].name}Request"], api_version, values)
    return _sized(write_request_header(api_key, api_version, correlation_id, client_id) + body)


def response_frame(api_key: int, api_version: int, correlation_id: int, values: Values) -> bytes:
    """Raises what `compose` does."""
    body = compose(MESSAGES[f"{API[api_key].name}Response"], api_version, values)
    return _sized(write_response_header(api_key, api_version, correlation_id) + body)


def _sized(frame: bytes) -> bytes:
    return write_int32(len(frame)) + frame
