"""`shoal clients`: the clients, their software and versions, and those that block an upgrade of brokers to Kafka 4."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from shoal.command_line import printable, say
from shoal.proxy.cli.exit_codes import OK
from shoal.proxy.cli.observe.documents import Client, Clients
from shoal.proxy.cli.observe.question import add_json, admin_address, admin_parser, ask
from shoal.proxy.cli.observe.tables import bytes_text, show, table
from shoal.proxy.config.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shoal.command_line import Parser

__all__ = ["main", "parser"]

_END = """\
A client is known by its client id, address, principal and software; clients of
the past are listed since Shoal's start (10,000, then the oldest as one sum).

blocks Kafka 4:
  yes  it has used versions that brokers of Kafka 4 refuse (KIP-896), which are
       listed: upgrade it first, or give it a listener with legacy = true
  no   nothing of the kind so far: clients that are seen seldom need some days
  Brokers of Kafka 2.1 and later offer every version that Kafka 4 needs. With
  older brokers, a client may use old versions only because of them.

examples:
  shoal clients                               # those that block Kafka 4 first
  shoal clients --blocking --apis
  shoal clients --blocking --json | jq -r '.clients[].client_id'
"""
_COLUMNS = ("client id", "host", "software", "listener", ">conns", ">requests", ">received", ">sent", "last seen")


def main(arguments: Sequence[str]) -> int:
    """Raises OperatorError and OutputError."""
    flags = parser().parse_args(arguments)
    address = admin_address(flags)
    said = ask(address, "/clients")
    found = said.read(Clients, address)
    if flags.json:
        values = said.values(address)
        if flags.blocking:
            values["clients"] = [client for client in values["clients"] if client["blocks_kafka_4"]]
        say(json.dumps(values, indent=1))
        return OK
    chosen = [client for client in found.clients if client.blocks_kafka_4 or not flags.blocking]
    chosen.sort(key=lambda one: (not one.blocks_kafka_4, -one.received_bytes - one.sent_bytes, one.client_id or ""))
    if chosen:
        principals = any(client.principal is not None for client in chosen)
        columns = (*_COLUMNS, *(("principal",) if principals else ()), "blocks Kafka 4")
        show(table(columns, (_row(client, principals=principals) for client in chosen)))
    if flags.apis:
        say("\n".join(line for client in chosen for line in _apis(client)))
    say("\n".join(_summary(found)))
    return OK


def parser() -> Parser:
    what = "List the clients of a running Shoal, and those that block an upgrade to Kafka 4."
    found = admin_parser("clients", what, _END)
    found.add_argument("--blocking", action="store_true", help="only clients that block Kafka 4")
    found.add_argument("--apis", action="store_true", help="also the APIs and versions that each client uses")
    add_json(found)
    return found


def _row(client: Client, *, principals: bool) -> Iterator[object]:
    yield from (_name(client), client.host, _software(client), client.listener)
    yield from (client.connections, client.requests, bytes_text(client.received_bytes), bytes_text(client.sent_bytes))
    yield client.last_seen.replace("T", " ").removesuffix("Z")
    if principals:
        yield "" if client.principal is None else client.principal
    yield f"yes: {', '.join(client.blocking)}" if client.blocks_kafka_4 else "no"


def _name(client: Client) -> str:
    return "(none)" if client.client_id is None else client.client_id


def _software(client: Client) -> str:
    """Clients say it from ApiVersions v3 on (KIP-511)."""
    return "unknown" if client.software is None else f"{client.software} {client.software_version or ''}".rstrip()


def _apis(client: Client) -> Iterator[str]:
    yield ""
    yield f"{printable(_name(client))} at {printable(client.host)} ({printable(_software(client))}):"
    for api in client.apis:
        newest = f"-v{api.newest}" if api.newest > api.oldest else ""
        yield f"  {printable(api.api)} v{api.oldest}{newest}"
    if client.other_apis:
        yield "  others, which Shoal does not know"


def _summary(found: Clients) -> Iterator[str]:
    blocking = sum(client.blocks_kafka_4 for client in found.clients)
    connected = sum(client.connections > 0 for client in found.clients)
    yield f"{counted(len(found.clients), 'client')} ({connected} connected now), {blocking} block Kafka 4"
    others = found.others
    if others is not None:
        blocks = (
            f"some block Kafka 4 ({', '.join(others.blocking)})" if others.blocks_kafka_4 else "none blocks Kafka 4"
        )
        yield printable(
            f"and {others.clients} forgotten, which were not seen for the longest time: {others.requests} requests, "
            f"{bytes_text(others.received_bytes)} received, {bytes_text(others.sent_bytes)} sent; {blocks}"
        )
