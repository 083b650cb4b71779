"""Issuers that answer slowly, with garbage, or never to the end: each is an error in words, and its thread ends."""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import contextmanager, suppress
from http.client import HTTPException
from threading import Event, Thread, active_count
from typing import TYPE_CHECKING

import pytest

from shoal.proxy.net.auth.identity import NoCredentials, SaslTable
from shoal.proxy.net.auth.token_endpoint import TokenEndpoint, token_from_endpoint
from shoal.proxy.net.web import exchange
from tests.protocol.sasl.test_oauth import signed
from tests.support.tls import client_context, server_context

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OK = b"HTTP/1.1 200 OK\r\n"
FAILED = b"HTTP/1.1 500 No\r\n"
HUGE = b"9" * 400


@contextmanager
def server(serve: Callable[[socket.socket], None], tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Every connection gets `serve` in a thread, after its request, or else its TLS hello, has begun."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def one(sock: socket.socket) -> None:
            with suppress(OSError), sock if tls is None else tls.wrap_socket(sock, server_side=True) as sock:
                sock.recv(65536)
                serve(sock)
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(65536):  # closing with unread bytes would be a reset
                    pass

        def accept() -> None:
            with suppress(OSError):
                while True:
                    Thread(target=one, args=(listening.accept()[0],), daemon=True).start()

        Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/keys"
        listening.shutdown(socket.SHUT_RDWR)


def drips(head: bytes, stop: Event) -> Callable[[socket.socket], None]:
    def serve(sock: socket.socket) -> None:
        sock.sendall(head)
        while not stop.wait(0.05):
            sock.sendall(b"x")

    return serve


@pytest.mark.parametrize("head", [b"", OK, OK + b"X: ", OK + b"\r\n", FAILED + b"Content-Length: 99999\r\n\r\n"])
def test_an_answer_that_drips_ends_in_time(head: bytes) -> None:
    stop = Event()
    with server(drips(head, stop)) as url:
        began, before = time.monotonic(), active_count()
        with pytest.raises(TimeoutError, match=r"no whole answer within 0\.5 s"):
            exchange(url, ssl.create_default_context(), seconds=0.5, most=100_000)
        assert time.monotonic() - began < 2
        stop.set()
    assert active_count() <= before + 2, "of the server, at most"


@pytest.mark.parametrize(("tls", "head"), [(True, OK), (False, b"\x16\x03\x03\x40\x00")])
def test_an_issuer_that_drips_over_https_ends_in_time(tls: bool, head: bytes) -> None:
    """Behind the handshake, and in it."""
    stop = Event()
    with server(drips(head, stop), server_context() if tls else None) as url:
        context, began = client_context(), time.monotonic()
        with pytest.raises(TimeoutError, match=r"no whole answer within 0\.5 s"):
            exchange(url.replace("http:", "https:"), context, seconds=0.5, most=100_000)
        assert time.monotonic() - began < 5, "it drips until it is stopped"
        stop.set()


ODD = [
    b"",
    b"garbage\r\n\r\n",
    b"\x00\xff" * 1000,
    OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    FAILED + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"HTTP/1.1 302 Go\r\nLocation: http://[bad\r\n\r\n",
    b"HTTP/1.1 302 Go\r\nLocation: \xff\r\n\r\n",
    b"HTTP/1.1 401 No\r\nWWW-Authenticate: Basic\r\n\r\n" + b"[" * 60_000,
    OK + b"\r\n" + b"[" * 60_000,
    OK + b"\r\n" + b"x" * 1_000_000,
    OK + b"\r\n" + b'{"access_token": ["a"]}',
]


@pytest.mark.parametrize("content", ODD)
async def test_any_answer_of_an_issuer_is_a_token_or_an_error_in_words(content: bytes) -> None:
    with server(lambda sock: sock.sendall(content)) as url:
        endpoint = TokenEndpoint(url, "shoal", None, None, SaslTable("sasl", "c"))
        with pytest.raises(NoCredentials, match=r"cluster 'c': sasl\.token-endpoint"):
            await token_from_endpoint(endpoint, "secret", 5.0)


@pytest.mark.parametrize("lifetime", ['"²"', '"' + "9" * 5000 + '"', HUGE.decode(), "NaN", "Infinity", "[]", "true"])
async def test_a_lifetime_that_is_no_number_is_an_unknown_one(lifetime: str) -> None:
    body = f'{{"access_token": "abc", "expires_in": {lifetime}}}'.encode()
    with server(lambda sock: sock.sendall(OK + b"\r\n" + body)) as url:
        endpoint = TokenEndpoint(url, "shoal", None, None, SaslTable("sasl", "c"))
        assert await token_from_endpoint(endpoint, "secret", 5.0) == ("abc", None)


async def test_an_expiry_that_is_no_time_is_an_unknown_one() -> None:
    body = b'{"access_token": "%s"}' % signed(exp=int(HUGE)).encode()
    with server(lambda sock: sock.sendall(OK + b"\r\n" + body)) as url:
        endpoint = TokenEndpoint(url, "shoal", None, None, SaslTable("sasl", "c"))
        assert (await token_from_endpoint(endpoint, "secret", 5.0)).lifetime is None


def test_a_redirect_is_an_answer() -> None:
    seen = []

    def serve(sock: socket.socket) -> None:
        seen.append(1)
        sock.sendall(b"HTTP/1.1 302 Go\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n")

    with server(serve) as url:
        assert exchange(url, ssl.create_default_context(), seconds=5, most=10).status == 302
    assert seen == [1]


def test_an_odd_answer_is_an_http_error() -> None:
    with server(lambda sock: sock.sendall(b"nothing\r\n")) as url, pytest.raises((HTTPException, OSError)):
        exchange(url, ssl.create_default_context(), seconds=5, most=10)
