"""HTTP with a deadline for the whole answer, which `urllib` and `http.client` lack.

`exchange`: with an issuer of tokens, in a thread. It follows no redirects, which could lead a secret elsewhere or to
plain HTTP.
"""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from threading import Timer
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.request import HTTPErrorProcessor, HTTPHandler, HTTPSHandler, build_opener

if TYPE_CHECKING:
    import ssl
    from urllib.request import Request

__all__ = ["Answer", "ConnectionWithDeadline", "Deadline", "exchange"]


class Answer(NamedTuple):
    status: int
    body: bytes


def exchange(request: Request | str, context: ssl.SSLContext, *, seconds: float, most: int) -> Answer:
    """The answer, whatever its status, with at most `most` bytes of its body, and one more if it has more.

    A server that sends byte after byte ends with `seconds` as well, and so does the thread. Raises OSError and
    HTTPException.
    """
    with Deadline(seconds) as deadline:
        opener = build_opener(_Plain(deadline), _Secure(deadline, context), _AnyStatus)
        try:
            with opener.open(request, timeout=seconds) as answer:
                return Answer(answer.status, answer.read(most + 1))
        except ValueError as error:  # of an answer that no HTTP server gives
            raise HTTPException(f"the answer cannot be read: {error}") from error


class Deadline:
    """Ends connections: a thread that reads cannot be interrupted otherwise. Their errors then become TimeoutError."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ends_at = time.monotonic() + seconds
        self._open: list[socket.socket] = []
        self._timer = Timer(seconds, self._end)
        self._timer.daemon = True
        self._timer.start()

    def opened(self, sock: socket.socket) -> None:
        self._open.append(sock)
        if self._is_over:
            self._end()

    @property
    def _is_over(self) -> bool:
        return time.monotonic() >= self._ends_at

    def _end(self) -> None:
        for sock in list(self._open):
            with suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)  # below TLS, if there is any

    def __enter__(self) -> Deadline:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._timer.cancel()
        if self._is_over and (error is None or isinstance(error, OSError | HTTPException)):
            raise TimeoutError(f"no whole answer within {self._seconds:g} s") from None


class ConnectionWithDeadline(HTTPConnection):
    def __init__(self, *given: Any, deadline: Deadline, **more: Any) -> None:
        super().__init__(*given, **more)
        self._deadline = deadline

    def connect(self) -> None:
        super().connect()
        self._deadline.opened(self.sock)


class _SecureConnection(ConnectionWithDeadline, HTTPSConnection):
    """`connect` of HTTPSConnection comes first, with its handshake."""


class _Plain(HTTPHandler):
    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._make = partial(ConnectionWithDeadline, deadline=deadline)

    def http_open(self, req: Request) -> HTTPResponse:
        return self.do_open(self._make, req)


class _Secure(HTTPSHandler):
    def __init__(self, deadline: Deadline, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._make = partial(_SecureConnection, deadline=deadline, context=context)

    def https_open(self, req: Request) -> HTTPResponse:
        return self.do_open(self._make, req)


class _AnyStatus(HTTPErrorProcessor):
    """An error or a redirect is an answer, too."""

    def http_response(self, request: Request, response: HTTPResponse) -> HTTPResponse:
        return response

    https_response = http_response
