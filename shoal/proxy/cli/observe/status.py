"""`shoal status`: whether a running Shoal is healthy, and what it does. The exit code says it to scripts."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final

from shoal.command_line import listed, printable, say
from shoal.proxy.cli.exit_codes import MUST_CHANGE, OK
from shoal.proxy.cli.observe.documents import Cluster, Listener, Ready, Status, Worker
from shoal.proxy.cli.observe.problems import problems, unwrapped
from shoal.proxy.cli.observe.question import add_json, admin_address, admin_parser, ask
from shoal.proxy.cli.observe.tables import bytes_text, show, table
from shoal.proxy.config.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shoal.command_line import Parser

__all__ = ["main", "parser"]

_MOST_TOPICS: Final = 20  # of a listener, that are not wrapped
_END = """\
healthy: every port is open, every cluster answers, Shoal serves new clients, no
topic of a mirror has lost its envelopes, and since Shoal's start nothing failed
to reconcile, no source record was passed over, and captures and state files
could be written. A mirror that is behind is not unhealthy.

exit codes: 0 healthy, 1 something is wrong (one line each), 2 no answer

examples:
  shoal status
  shoal status -c /etc/shoal.toml --json | jq -r '.problems[]'
"""


def main(arguments: Sequence[str]) -> int:
    """Raises OperatorError and OutputError."""
    flags = parser().parse_args(arguments)
    address = admin_address(flags)
    said, readiness = ask(address, "/status"), ask(address, "/readyz")
    status, ready = said.read(Status, address), readiness.read(Ready, address)
    found = problems(status, ready, time.time())
    if flags.json:
        values = {"healthy": not found, "problems": found, "ready": readiness.values(address)}
        say(json.dumps({**values, "status": said.values(address)}, indent=1))
    else:
        _show(status, ready, found)
    return MUST_CHANGE if found else OK


def parser() -> Parser:
    found = admin_parser("status", "Say whether a running Shoal is healthy, and what it does.", _END)
    add_json(found)
    return found


def _show(status: Status, ready: Ready, found: list[str]) -> None:
    since = f"{status.started.replace('T', ' ').removesuffix('Z')} UTC"
    say(printable(f"Shoal {status.version} on {status.host} (pid {status.pid}), {status.state} since {since}"))
    say("healthy" if not found else f"NOT HEALTHY: {counted(len(found), 'problem')}")
    for problem in found:
        say(f"  - {printable(problem)}")
    columns = ("listener", "mode", "address", "cluster", ">clients", ">in flight", ">requests", ">received", ">sent")
    say("")
    show(table(columns, map(_listener, status.listeners)))
    say("")
    show(
        table(
            ("cluster", "brokers", "state"),
            (_cluster(cluster, ready.clusters.get(cluster.name)) for cluster in status.clusters),
        )
    )
    if status.workers:
        say("")
        show(table(("worker", "process", "state", ">clients", ">loop lag, s"), map(_worker, status.workers)))
    for listener in status.listeners:
        _show_mirrors(listener)
    if status.certificates:
        say("")
        rows = (
            (certificate.where, certificate.file, certificate.subject, certificate.expires)
            for certificate in status.certificates
        )
        show(table(("certificate of", "file", "subject", "expires"), rows))


def _listener(one: Listener) -> Iterator[object]:
    more = [name for name, is_on in (("tls", one.tls), ("coalesce", one.coalesce), ("legacy", one.legacy)) if is_on]
    yield from (one.name, " ".join([one.mode, *more]), one.address, one.cluster, one.connections, one.in_flight)
    yield one.traffic.get("requests", 0)
    yield bytes_text(one.traffic.get("from_client", 0))
    yield bytes_text(one.traffic.get("to_client", 0))


def _cluster(one: Cluster, why_not: str | None) -> tuple[str, str, str]:
    brokers = ", ".join(f"{node}={address}" for node, address in one.brokers.items()) or ", ".join(one.bootstrap)
    return one.name, brokers, one.last_connect_failed or why_not or "answers"


def _worker(one: Worker) -> tuple[object, ...]:
    state = one.state if one.answers else f"{one.state}, does not answer"
    lag = "" if one.loop_lag_seconds is None else f"{one.loop_lag_seconds:.3f}"
    return one.worker, one.pid, state, one.connections, lag


def _show_mirrors(listener: Listener) -> None:
    if listener.mirrors:
        say("")
        rows = (
            (
                mirror.mirror,
                listener.name,
                mirror.partitions,
                mirror.lag_records,
                bytes_text(mirror.lag_bytes),
                mirror.lag_seconds,
            )
            for mirror in listener.mirrors
        )
        show(table(("mirror", "listener", ">partitions", ">behind, records", ">bytes", ">seconds"), rows))
    if listener.same_offsets is not None:
        copies = listener.same_offsets
        say("")
        what = f"{counted(copies.number_of_partitions, 'partition')} with the offsets of the source"
        say(f"listener {listener.name}: {what}, {len(copies.stopped)} of them stopped")
        if copies.ordinary:
            say(printable(f"without the agent, with other offsets: {listed(copies.ordinary[:_MOST_TOPICS])}"))
    if listener.flows:
        say("")
    for flow in listener.flows:
        wrapped = sum(topic.state == "wrapped" for topic in flow.topics)
        what = (
            f"{counted(flow.connections, 'connection')}, {wrapped} of {counted(flow.number_of_topics, 'topic')} wrapped"
        )
        say(printable(f"mirror {flow.client_id} at {flow.peer}: {what}"))
    raw = list(unwrapped(listener))
    if raw:
        say("")
        show(table(("mirror", "topic", "state", "why it is not wrapped"), raw[:_MOST_TOPICS]))
    if len(raw) > _MOST_TOPICS:
        say(f"and {len(raw) - _MOST_TOPICS} more: shoal status --json")
