"""What happens to a new client before its first request.

    accept ── admission ──> greeting ──> begin
                  └─ reset     └─ closed, with a cause

Without a header or a handshake to wait for there is no greeting: the connection begins at once, in the step that has
accepted it. Otherwise a task of the listener greets the client; at most `limits.unauthenticated` of them exist.
"""

from __future__ import annotations

import logging
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from shoal.proxy.config.settings import Address
from shoal.proxy.events.logs import event, more_of_this_kind
from shoal.proxy.listener.addresses import group_of, plain_host
from shoal.proxy.listener.admission import OF_AN_ADDRESS, REFUSALS, REPORT_SECONDS, Admission, Refusals
from shoal.proxy.listener.greeting import Greeting, GreetingFailed
from shoal.proxy.listener.syn_filter import MOST_REFUSED, SynFilter
from shoal.proxy.net.transport import make_reset
from shoal.proxy.statistics import LOUD, CloseCause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shoal.proxy.cluster.bound_port import BoundPort
    from shoal.proxy.config.settings import Limits, ListenerSettings
    from shoal.proxy.events.logs import LogThrottle
    from shoal.proxy.listener.admission import Guest, Strangers
    from shoal.proxy.net.client import Client
    from shoal.proxy.net.tls.contexts import TlsContext
    from shoal.proxy.statistics import Tally

__all__ = ["Reception"]

log = logging.getLogger("shoal.listener")

_QUIET_SECONDS = 10.0  # the same failure is logged at most this often
_MOST_READ = 65536
_LEAVE_SECONDS = 1.0  # for a client to close its side, too


class Reception:
    """The new clients of one listener. `begin` serves a client from its first request on, and raises OSError if the
    client has left already. `sockets`: those that listen."""

    def __init__(
        self,
        settings: ListenerSettings,
        limits: Limits,
        strangers: Strangers,
        *,
        tally: Tally,
        throttle: LogThrottle,
        demands_login: Callable[[], bool],
        begin: Callable[[BoundPort, Client, Guest], None],
        sockets: Callable[[], Iterable[socket.socket]],
        tls: TlsContext | None = None,
    ) -> None:
        self._name = settings.name
        self._limits = limits
        self._admission = Admission(settings, strangers)
        self._refusals = Refusals(settings, limits)
        self._syn_filter = SynFilter(settings.name, sockets)
        self._greeting = Greeting(settings, limits, tls)
        self._tally = tally
        self._throttle = throttle
        self._demands_login = demands_login
        self._begin = begin
        self.tasks: trio.Nursery | None = None  # for greetings; cancelled at a drain

    def use(self, settings: ListenerSettings, limits: Limits, tls: TlsContext | None) -> None:
        """For clients that are new from now on."""
        self._limits = limits
        self._admission.use(settings)
        self._refusals.use(settings, limits)
        self._greeting = Greeting(settings, limits, tls)

    def end(self) -> None:
        """The listener accepts no more; another one may go on with its sockets."""
        self._syn_filter.end()

    def welcome(self, bound_port: BoundPort, descriptor: int, host: str) -> None:
        """A new client. One that is refused costs some microseconds.

        Until it is admitted, its close is a reset: a FIN would leave a TIME_WAIT, and perhaps unread bytes.
        """
        self._tally.opened += 1
        host = plain_host(host)
        now = trio.current_time()
        self._syn_filter.arrived(now)
        has_header = self._greeting.begins_with_header(host)
        waits = has_header or self._greeting.has_handshake
        is_stranger = waits or self._demands_login()
        guest = self._admission.admit(None if has_header else host, now, stranger=is_stranger)
        if isinstance(guest, CloseCause):
            os.close(descriptor)
            self._tally.closed[guest] += 1
            self.refused(guest, host)
            if guest in OF_AN_ADDRESS and not has_header and self._syn_filter.refused(group_of(host), now):
                self._log_dropped(host)
            return
        guest.enter(bound_port.turns)
        sock = socket.socket(fileno=descriptor)
        make_reset(sock, undo=True)
        if is_stranger:
            guest.login_by = now + self._limits.login_timeout
        if waits:
            assert self.tasks is not None  # nothing is accepted before `run`
            self.tasks.start_soon(self._greet, self._greeting, bound_port, sock, guest, Address(host, 0), has_header)
            return
        try:
            self._begin(bound_port, self._greeting.now(sock), guest)
        except OSError:  # the client has left already
            self._end(sock, guest, GreetingFailed(CloseCause.CLIENT_CLOSED), Address(host, 0))

    async def _greet(
        self,
        greeting: Greeting,
        bound_port: BoundPort,
        sock: socket.socket,
        guest: Guest,
        peer: Address,
        has_header: bool,
    ) -> None:
        awaited = "PROXY protocol header" if has_header else "TLS handshake"
        try:
            client = greeting.now(sock)
            with trio.fail_at(guest.login_by):
                if has_header:
                    client = await greeting.behind_balancer(client, sock, guest)
                    peer, awaited = client.peer, "TLS handshake"
                client = await greeting.secure(client, sock)
            if self._greeting is not greeting and self._is_shut_out(bound_port, client):
                await _take_leave(sock)
                raise GreetingFailed(CloseCause.DRAINED)
            self._tally.handshakes += greeting.has_handshake
            if not self._demands_login():
                guest.logged_in()
            self._begin(bound_port, client, guest)
        except GreetingFailed as failure:
            self._end(sock, guest, failure, peer)
        except OSError as error:
            self._end(sock, guest, GreetingFailed(CloseCause.CLIENT_LOST, error.strerror or str(error)), peer)
        except trio.TooSlowError:
            what = f"no {awaited} within {self._limits.login_timeout:g} s (limits.login-timeout)"
            self._end(sock, guest, GreetingFailed(CloseCause.LOGIN_TIMEOUT, what), peer)
        except Exception as error:  # one client must not end the others
            self._log_unexpected(error, peer.host)
            self._end(sock, guest, GreetingFailed(CloseCause.INTERNAL, repr(error)), peer)
        except trio.Cancelled:
            await _take_leave(sock)
            self._end(sock, guest, GreetingFailed(CloseCause.DRAINED), peer)
            raise

    def _is_shut_out(self, bound_port: BoundPort, client: Client) -> bool:
        """By a reload, as connections that have begun are (`Listener.prepare`)."""
        return bound_port.is_closed or not self._admission.allows(client.peer.host)

    def _end(self, sock: socket.socket, guest: Guest, failure: GreetingFailed, peer: Address) -> None:
        sock.close()
        guest.ended(trio.current_time())
        self._tally.closed[failure.cause] += 1
        if failure.cause in REFUSALS:
            self.refused(failure.cause, str(failure))
            return
        kind = self._name, failure.cause
        is_loud = failure.cause in LOUD and self._throttle.is_news(f"{failure.cause} {failure}", _QUIET_SECONDS, kind)
        level = logging.WARNING if is_loud else logging.DEBUG
        if not log.isEnabledFor(level):
            return
        left_out = self._throttle.left_out(kind) if is_loud else 0
        detail = f": {failure}" if str(failure) else ""
        values = event(
            f"listener {self._name!r}: connection of {peer.host} ended: {failure.cause}{detail}"
            + more_of_this_kind(left_out),
            listener=self._name,
            host=peer.host,
            cause=failure.cause.name.lower(),
            detail=str(failure) or None,
            left_out=left_out or None,
        )
        log.log(level, "client-not-served", extra=values)

    def _log_unexpected(self, error: Exception, host: str) -> None:
        if self._throttle.is_new_error(error, _QUIET_SECONDS):
            text = f"listener {self._name!r}: unexpected error with a new client at {host}"
            log.exception("client-unexpected-error", extra=event(text, listener=self._name, host=host))

    def refused(self, cause: CloseCause, peer: str) -> None:
        """Log a refusal, which is counted already, now or with later ones."""
        self._refusals.note(cause, peer)
        self._log_refusals(trio.current_time())

    def _log_dropped(self, host: str) -> None:
        if self._throttle.is_news((self._name, self._syn_filter), REPORT_SECONDS):
            text = (
                f"listener {self._name!r}: {host} opens connections that are refused, more than {MOST_REFUSED} in a "
                "second: some of its further attempts are dropped unseen (docs/security.md)"
            )
            log.warning("address-dropped", extra=event(text, listener=self._name, host=host))

    def tick(self, now: float) -> None:
        """Called every second."""
        self._syn_filter.tick(now)
        self._log_refusals(now)

    def _log_refusals(self, now: float) -> None:
        for due in self._refusals.due(now):
            values = event(
                f"listener {self._name!r}: {due.text}",
                listener=self._name,
                cause=due.cause.name.lower(),
                connections=due.connections,
                peer=due.peer,
                setting=due.setting,
            )
            log.warning("connections-refused", extra=values)


async def _take_leave(sock: socket.socket) -> None:
    """FIN, then read until the client's FIN: closing with unread bytes of a handshake would be a reset."""
    with trio.move_on_after(_LEAVE_SECONDS, shield=True), suppress(OSError):
        sock.shutdown(socket.SHUT_WR)
        while True:
            await trio.lowlevel.wait_readable(sock)
            if not sock.recv(_MOST_READ):
                return
