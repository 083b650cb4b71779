"""HTTP/1.1 for the admin listener: one connection's requests, by h11, each with one answer.

    bytes ── h11 ── Request ── `answer` ── Response ── h11 ── bytes

Bounded: `HEADER_BYTES` of a request line and headers, no bodies, `REQUEST_SECONDS` from a request's first byte to the
last byte of its answer, `IDLE_SECONDS` between requests. Only GET and HEAD. Every step of work is a turn in the loop's
share (share.py).
"""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import h11
import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shoal.proxy.admin.share import LoopShare

__all__ = ["HEADER_BYTES", "IDLE_SECONDS", "REQUEST_SECONDS", "HttpConnection", "Request", "Response", "plain"]

HEADER_BYTES: Final = 16 * 1024  # Prometheus sends some 300 bytes; proxies add cookies and tokens
REQUEST_SECONDS: Final = 10.0  # Prometheus' own scrape timeout
IDLE_SECONDS: Final = 150.0  # longer than the usual scrape intervals, so that the connection is kept
_READ_BYTES: Final = 4096
_LAST_SECONDS: Final = 1.0  # to say that there is no page, or to read what a refused client has sent
_LAST_BYTES: Final = 64 * 1024
_PLAIN: Final = "text/plain; charset=utf-8"
_METHODS: Final = (b"GET", b"HEAD")


class Request(NamedTuple):
    path: str  # without the query
    accept: str = ""  # the Accept header


class Response(NamedTuple):
    body: bytes
    content_type: str = _PLAIN
    status: HTTPStatus = HTTPStatus.OK


def plain(status: HTTPStatus, text: str) -> Response:
    return Response(f"{text}\n".encode(), _PLAIN, status)


class HttpConnection:
    """`answer` is called once for each request, and must not raise."""

    def __init__(
        self,
        stream: trio.abc.HalfCloseableStream,
        share: LoopShare,
        answer: Callable[[Request], Awaitable[Response]],
        *,
        request_seconds: float = REQUEST_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._stream = stream
        self._share = share
        self._answer = answer
        self._request_seconds = request_seconds
        self._idle_seconds = idle_seconds
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=HEADER_BYTES)
        self.is_idle = True  # no request has begun

    async def serve(self) -> None:
        """Until the client closes, breaks the protocol or a limit."""
        while await self._first_bytes():
            with trio.move_on_after(self._request_seconds) as deadline:
                self.is_idle = False
                goes_on = await self._exchange()
            if deadline.cancelled_caught or not goes_on:
                return await self._close_gently()
            self.is_idle = True

    async def _first_bytes(self) -> bool:
        """Wait for the next request; -> whether there is one."""
        if self._h11.trailing_data[0]:
            return True
        with trio.move_on_after(self._idle_seconds):
            data = await self._stream.receive_some(_READ_BYTES)
            await self._share.run(partial(self._h11.receive_data, bytes(data)))
            return bool(data)
        return False

    async def _exchange(self) -> bool:
        """Read one request and answer it; -> whether another one may follow."""
        try:
            event = await self._next_event()
        except h11.RemoteProtocolError as error:
            refused = plain(HTTPStatus(error.error_status_hint), f"not an HTTP request that Shoal answers: {error}")
            await self._send(refused, closes=True)
            return False
        if not isinstance(event, h11.Request):  # it has closed before the end of its headers
            return False
        if (refusal := _refusal(event)) is not None:
            await self._send(refusal, is_head=event.method == b"HEAD", closes=True)
            return False
        response = plain(HTTPStatus.SERVICE_UNAVAILABLE, "the page was not ready in time: the machine is too busy")
        with trio.move_on_after(self._request_seconds - _LAST_SECONDS):
            response = await self._answer(_request(event))
        await self._send(response, is_head=event.method == b"HEAD")
        if isinstance(await self._next_event(), h11.EndOfMessage) and self._h11.our_state is h11.DONE:
            self._h11.start_next_cycle()
            return True
        return False

    async def _next_event(self) -> Any:
        """Raises h11.RemoteProtocolError."""
        while (event := await self._share.run(self._h11.next_event)) is h11.NEED_DATA:
            data = await self._stream.receive_some(_READ_BYTES)
            await self._share.run(partial(self._h11.receive_data, bytes(data)))
        return event

    async def _send(self, response: Response, *, is_head: bool = False, closes: bool = False) -> None:
        headers = [
            ("Content-Type", response.content_type),
            ("Content-Length", str(len(response.body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
        ]
        headers += [("Allow", "GET, HEAD")] if response.status is HTTPStatus.METHOD_NOT_ALLOWED else []
        headers += [("Connection", "close")] if closes else []
        status = response.status
        events: list[h11.Event] = [h11.Response(status_code=status, headers=headers, reason=status.phrase)]
        events += [] if is_head else [h11.Data(data=response.body)]
        pieces = [self._h11.send(event) or b"" for event in (*events, h11.EndOfMessage())]
        await self._stream.send_all(b"".join(pieces))

    async def _close_gently(self) -> None:
        """FIN, then read for a moment: closing with unread bytes would reset the connection, and the answer with it."""
        with trio.move_on_after(_LAST_SECONDS):
            await self._stream.send_eof()
            left = _LAST_BYTES
            while left > 0 and (data := await self._stream.receive_some(_READ_BYTES)):
                left -= len(data)


def _refusal(request: h11.Request) -> Response | None:
    headers = dict(request.headers)
    if request.method not in _METHODS:
        return plain(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD")
    if headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers:
        return plain(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "a request with a body is not read")
    return None


def _request(request: h11.Request) -> Request:
    path, _, _ = request.target.decode("latin-1").partition("?")
    accept = b", ".join(value for name, value in request.headers if name == b"accept")
    return Request(path, accept.decode("latin-1"))
