"""Answers in JSON: indented, because people read them too."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from shoal.proxy.admin.http import Response

__all__ = ["as_json"]


def as_json(document: object, status: HTTPStatus = HTTPStatus.OK) -> Response:
    body = msgspec.json.format(msgspec.json.encode(document, enc_hook=str), indent=2)
    return Response(body + b"\n", "application/json", status)
