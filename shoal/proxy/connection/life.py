"""The life of one connection: its two tasks, and how it ends.

    serve ── wait for first bytes ── log in ── connect ──┬── request pump  (client -> broker)
                                                         └── response pump (broker -> client)

`state` has the life cycle. How it ends, by the first cause:

    client closes          the broker gets a FIN; its remaining answers pass for `close_seconds`
    client resets          the broker gets a reset, which drops requests that it has not started; not while it has
                           requests of Shoal's own
    broker closes          its remaining bytes are sent to the client, then the client's socket is closed
    drain                  no further request is read; the connection ends when every request is answered
    protocol error         both sockets are closed at once

A route's handler may be in the middle of an exchange with the broker when one side closes. If the broker closes, the
handler gets `UpstreamLost`. If the client closes, the handler finishes within `linger_seconds` (so that Shoal knows
what was appended), and its answer is dropped.
"""

from __future__ import annotations

import logging
import math
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from shoal.protocol.schema.headers import read_size
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.framing import FIRST_BYTES, check_frame_size
from shoal.proxy.cluster.ports import NoPort
from shoal.proxy.config.settings import Mode
from shoal.proxy.connection.client_session import ClientSession, NotAllowed, credentials_of
from shoal.proxy.connection.pending import OwnRequest, PendingAnswer
from shoal.proxy.connection.state import Event, State
from shoal.proxy.events.logs import event, more_of_this_kind
from shoal.proxy.net.transport import VIEW, PeerLost, has_all, make_reset, says_something, silent_for, until_readable
from shoal.proxy.net.upstream import UpstreamFault, UpstreamLost, UpstreamRefused, UpstreamUnreachable
from shoal.proxy.statistics import ANSWERED, GENTLE, LOST_ITS_BROKER, LOUD, PATIENT, CloseCause

if TYPE_CHECKING:
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.pending import Backlog
    from shoal.proxy.connection.pumps.pump import Pump

__all__ = ["COMPLAINT_SECONDS", "serve"]

log = logging.getLogger("shoal.connection")

_FAULTS = RemoteProtocolError, PeerLost, UpstreamLost, UpstreamFault, NoPort  # of a pump

_READING_SECONDS = 5.0  # for a client to read its last answer, whatever keeps it (a garbage collector)

COMPLAINT_SECONDS = 10.0  # the same complaint of a listener is logged at most this often


async def serve(connection: Connection) -> None:
    try:
        with connection.scope:
            await _connect(connection)
        if connection.connected:
            await _forward(connection)
        if connection.cause in GENTLE:
            await _close_gently(connection)
    except Exception as error:  # an error in one connection must not end the others
        _log_unexpected(connection, error)
        connection.note(CloseCause.INTERNAL, repr(error))
    finally:
        _close(connection)


async def _connect(connection: Connection) -> None:
    """Until `connected`; or the cause is noted why not."""
    if not await says_something(connection.client.transport):  # a port scan or a health check does not reach the broker
        return connection.note(CloseCause.CLIENT_CLOSED)
    try:
        _check_first_bytes(connection)
    except RemoteProtocolError as error:
        return connection.note(CloseCause.CLIENT_PROTOCOL, str(error))
    connection.report(Event.FIRST_BYTES)
    try:
        session = await _log_in(connection)
        if session is None:
            return None
        connection.logged_in(session)
        connection.identity = connection.cluster.upstream_with(session.credentials)
        upstream, connection.provisional = await connection.bound_port.connect(connection.identity)
    except UpstreamRefused as error:
        return connection.note(CloseCause.UPSTREAM_LOGIN, str(error))
    except UpstreamUnreachable as error:
        return connection.note(CloseCause.UPSTREAM_UNREACHABLE, str(error))
    connection.connected_to(upstream)
    return None


def _check_first_bytes(connection: Connection) -> None:
    """Noise does not reach the broker. Behind TLS there is none. Raises RemoteProtocolError."""
    if not isinstance(connection.client.transport, socket.socket):
        return
    with suppress(OSError):  # the client has left: reading finds it
        head = connection.client.transport.recv(FIRST_BYTES, socket.MSG_PEEK)
        if len(head) == FIRST_BYTES:
            check_frame_size(read_size(head)[0], head, connection.limits.frame_bytes)


async def _log_in(connection: Connection) -> ClientSession | None:
    """None: the client is not let in, and the cause is noted. Raises UpstreamUnreachable."""
    if connection.listener.login is None:
        principal = connection.client.principal
        try:
            credentials = credentials_of(principal, connection.listener.settings)
        except NotAllowed as error:
            connection.note(error.cause, str(error))
            return None
        return ClientSession(principal=principal, credentials=credentials)
    try:
        return await connection.listener.login.log_in(connection, connection.client.transport)
    except RemoteProtocolError as error:
        connection.note(CloseCause.CLIENT_PROTOCOL, str(error))
    except PeerLost as error:
        connection.note(CloseCause.CLIENT_LOST, str(error))
    return None


async def _forward(connection: Connection) -> None:
    async with trio.open_nursery() as connection.tasks:
        _replace_scope(connection, connection.tasks.cancel_scope)
        connection.tasks.start_soon(_run_responses, connection, name="the answers of a connection")
        await _run_requests(connection)


def _replace_scope(connection: Connection, scope: trio.CancelScope) -> None:
    """The nursery's own serves from now on: a scope takes half a kilobyte of an idle connection."""
    scope.deadline = connection.scope.deadline
    if connection.scope.cancel_called:
        scope.cancel()
    connection.scope = scope


async def _run_requests(connection: Connection) -> None:
    with connection.request_scope:
        try:
            await connection.requests.run()
        except _FAULTS as error:
            _note_fault(connection, error, CloseCause.CLIENT_PROTOCOL)
        else:
            _note_end(connection, connection.requests, CloseCause.CLIENT_CLOSED)
    if connection.backlog is not None and connection.cause in PATIENT:
        if connection.cause is CloseCause.CLIENT_CLOSED:
            connection.backlog.leaves()
        await _settle(connection, connection.backlog)
    connection.report(Event.REQUESTS_ENDED)
    connection.responses.no_more_requests()
    if connection.state is State.CLOSING or connection.responses.quiet:
        connection.abort(CloseCause.DRAINED)
    elif connection.cause in LOST_ITS_BROKER:  # what it has sent before is still to be read
        connection.end_within(connection.limits.close_seconds)
    elif connection.cause is CloseCause.CLIENT_CLOSED:
        connection.end_within(connection.limits.close_seconds)
        with suppress(OSError):
            connection.broker_transport.shutdown(socket.SHUT_WR)
    elif connection.cause not in ANSWERED:
        connection.scope.cancel()


async def _settle(connection: Connection, backlog: Backlog) -> None:
    """A client that has closed its sending side may still read. A drain has its own deadline; where the broker has
    closed this connection, the answers come over others, within a time of their own.
    """
    is_left = connection.cause is CloseCause.CLIENT_CLOSED
    with trio.move_on_after(connection.limits.close_seconds if is_left else math.inf):
        await backlog.settled()


async def _run_responses(connection: Connection) -> None:
    try:
        try:
            await connection.responses.run()
        except _FAULTS as error:
            _note_fault(connection, error, CloseCause.UPSTREAM_PROTOCOL)
        else:
            _note_end(connection, connection.responses, CloseCause.UPSTREAM_CLOSED)
        connection.requests.no_more_answers()  # before a handler's exchange gets the last ones: it must post no more
    finally:
        connection.report(Event.ANSWERS_ENDED)
        connection.responses.fail_asked()
    if connection.handling:
        connection.end_within(connection.limits.linger_seconds)
    else:
        connection.request_scope.cancel()


def _note_fault(connection: Connection, error: Exception, protocol: CloseCause) -> None:
    """A pump has ended with an error; `protocol`: what a protocol error of its source is."""
    match error:
        case RemoteProtocolError():
            cause = protocol
        case PeerLost(side=side) if side is connection.client.transport:
            connection.was_reset |= error.is_reset and not connection.requests.ended
            cause = CloseCause.CLIENT_LOST
        case PeerLost():
            cause = CloseCause.UPSTREAM_PROTOCOL if error.is_refusal else CloseCause.UPSTREAM_LOST
        case UpstreamLost():
            cause = CloseCause.UPSTREAM_LOST
        case UpstreamFault():
            cause = CloseCause.UPSTREAM_PROTOCOL
        case _:
            cause = CloseCause.NO_PORT
    connection.note(cause, str(error))


def _note_end(connection: Connection, pump: Pump, ended: CloseCause) -> None:
    """`pump` has ended without an error."""
    if connection.client_out.discarding:
        return connection.note(CloseCause.CLIENT_LOST)
    if connection.state is not State.OPEN and not connection.in_flight:
        return connection.note(CloseCause.DRAINED)
    if connection.state is State.OPEN or pump is connection.responses:
        connection.note(ended)
    return None


async def _close_gently(connection: Connection) -> None:
    """FIN, then read until the client's FIN: closing with unread bytes would be a reset, which may destroy answers that
    the client has yet to read.

    A client that sends long after its last answer, or has had none, reads nothing (acks=0), and all that it sends is
    lost: only a reset lets it know.
    """
    transport = connection.client.transport
    was_answered = not connection.connected or connection.client_out.sent
    with trio.move_on_after(connection.limits.close_seconds), suppress(OSError):
        reset_from = trio.current_time() + _READING_SECONDS - (silent_for(transport) if was_answered else math.inf)
        transport.shutdown(socket.SHUT_WR)
        while True:
            await until_readable(transport)
            with suppress(BlockingIOError):
                if not transport.recv_into(VIEW):
                    return
            if trio.current_time() >= reset_from and has_all(transport):
                return make_reset(transport)


def _nothing_of_ours(connection: Connection) -> bool:
    """True if every request that the broker has was passed unchanged from the client."""
    taken = connection.backlog is not None and connection.backlog.unanswered
    asked = any(
        isinstance(entry, PendingAnswer) and isinstance(entry.answer, OwnRequest) for entry in connection.in_flight
    )
    return connection.listener.settings.mode is Mode.PLAIN and not (taken or asked or connection.handling)


def _close(connection: Connection) -> None:
    connection.report(Event.SOCKETS_CLOSED)
    if connection.connected:
        connection.requests.close()
        connection.responses.close()
        if connection.was_reset and _nothing_of_ours(connection):
            make_reset(connection.upstream.transport)
        connection.broker_transport.close()
    connection.client.transport.close()
    if connection.connected:
        # A reset does not wait: the broker has had no time to answer.
        if connection.in_flight and not (connection.responses.received or connection.was_reset):
            connection.cluster.did_not_answer(connection.upstream.address)
        connection.listener.path.closed(connection)
    connection.note(CloseCause.SHUTDOWN)
    connection.listener.clients.ended(connection)
    connection.cluster.proofs.ended(connection)
    assert connection.cause is not None
    subject = f"{connection.bound_port} {connection.cause} {connection.detail}"
    kind = connection.bound_port, connection.cause
    is_loud = connection.cause in LOUD and connection.throttle.is_news(subject, COMPLAINT_SECONDS, kind)
    level = logging.WARNING if is_loud else logging.DEBUG
    if log.isEnabledFor(level):
        _log_end(connection, level, connection.throttle.left_out(kind) if is_loud else 0)
    connection.listener.ended(connection, connection.cause)


def _log_end(connection: Connection, level: int, left_out: int) -> None:
    assert connection.cause is not None
    principal = f", principal {connection.principal}" if connection.principal is not None else ""
    detail = f": {connection.detail}" if connection.detail else ""
    values = event(
        f"listener {connection.listener.name!r}: connection of {connection.peer} "
        f"({connection.shown_client_id}{principal}) to {connection.bound_port} ended: "
        f"{connection.cause}{detail}{more_of_this_kind(left_out)}",
        listener=connection.listener.name,
        peer=str(connection.peer),
        client_id=connection.client_id,
        principal=connection.principal,
        cluster=connection.cluster.name,
        node_id=connection.bound_port.node_id,
        cause=connection.cause.name.lower(),
        detail=connection.detail or None,
        left_out=left_out or None,
    )
    log.log(level, "connection-ended", extra=values)


def _log_unexpected(connection: Connection, error: Exception) -> None:
    if connection.throttle.is_new_error(error, COMPLAINT_SECONDS):
        values = event(
            f"{connection!r}: unexpected error", listener=connection.listener.name, client_id=connection.client_id
        )
        log.exception("connection-unexpected-error", extra=values)
