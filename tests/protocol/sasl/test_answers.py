"""Requests and answers of a server, with kio as the client."""

from __future__ import annotations

import pytest

from shoal.protocol.sasl.answers import answer_authenticate, answer_handshake, read_authenticate, read_handshake
from shoal.protocol.schema.headers import read_request_header
from shoal.protocol.wire.error_codes import ErrorCode
from tests.support.kio_messages import Case, decode_response, entity_type, request_frame


@pytest.mark.parametrize("version", [0, 1])
def test_handshake(version: int) -> None:
    frame = request_frame(entity_type(Case("SaslHandshakeRequest", version))(mechanism="SCRAM-SHA-256"))
    header = read_request_header(frame)
    assert read_handshake(frame, header) == "SCRAM-SHA-256"
    answer = answer_handshake(header, ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["PLAIN", "OAUTHBEARER"])
    read = decode_response(answer, entity_type(Case("SaslHandshakeResponse", version)))
    assert (read.error_code, read.mechanisms) == (33, ("PLAIN", "OAUTHBEARER"))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_authenticate(version: int) -> None:
    frame = request_frame(entity_type(Case("SaslAuthenticateRequest", version))(auth_bytes=b"a token"))
    header = read_request_header(frame)
    assert read_authenticate(frame, header) == b"a token"
    kind = entity_type(Case("SaslAuthenticateResponse", version))
    read = decode_response(answer_authenticate(header, token=b"back", lifetime_ms=60_000), kind)
    assert (read.error_code, read.error_message, read.auth_bytes) == (0, None, b"back")
    if version:
        assert "60000" in repr(read) or "seconds=60" in repr(read)
    failed = answer_authenticate(header, error=ErrorCode.SASL_AUTHENTICATION_FAILED, why="no")
    read = decode_response(failed, kind)
    assert (read.error_code, read.error_message, read.auth_bytes) == (58, "no", b"")
