"""Both data clients must go through Shoal, each to its own listener.

If the producer bypasses the target listener, an envelope would be stored in a topic. The interlock prevents that: it
permits no envelope before this mirror's records come back through the paired listener. It cannot correct the wiring;
these rules tell the operator how.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from shoal.proxy.cli.doctor.destinations import Destination, client_address
from shoal.proxy.cli.doctor.exactly_once_rules import is_exactly_once
from shoal.proxy.cli.doctor.finding import Case, Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.proxy.cli.doctor.destinations import ShoalListeners
    from shoal.proxy.cli.doctor.mirror import ReplicationFlow
    from shoal.proxy.cli.doctor.properties import Entry
    from shoal.proxy.config.settings import ListenerSettings

__all__ = ["check_wiring", "is_beside_another", "is_meant"]

_KEY = "bootstrap.servers"


class _Side(NamedTuple):
    client: str
    right: Destination
    listener: str  # attribute of `ShoalListeners`
    wrong_listener: str
    role: str


_CONSUMER = _Side(
    "consumer", Destination.WRAP, "wrap", "target", "the mirror's data consumer reads past Shoal: nothing is wrapped"
)
_PRODUCER = _Side(
    "producer", Destination.UNWRAP, "unwrap", "source",
    "the mirror's data producer writes past Shoal: an envelope would end up in a topic, so Shoal does not wrap",
)  # fmt: skip


def _destinations(flow: ReplicationFlow, client: str, shoal: ShoalListeners) -> set[Destination]:
    entry = flow.find(client, _KEY)
    return set() if entry is None else set(shoal.destinations(entry.value).values())


def _goes_through(flow: ReplicationFlow, shoal: ShoalListeners) -> bool:
    """True if both data clients use their listener only."""
    return _destinations(flow, "consumer", shoal) == {Destination.WRAP} and _destinations(flow, "producer", shoal) == {
        Destination.UNWRAP
    }


def is_meant(flow: ReplicationFlow, shoal: ShoalListeners) -> bool:
    """True if at least one data client of the flow uses Shoal, correctly or not."""
    destinations = _destinations(flow, "consumer", shoal) | _destinations(flow, "producer", shoal)
    return bool(destinations & {Destination.WRAP, Destination.UNWRAP})


def check_wiring(case: Case) -> Iterator[Finding]:
    if is_beside_another(case):
        yield _other_target(case)
        return
    for side in (_CONSUMER, _PRODUCER):
        yield from _check_side(case, side)


def _check_side(case: Case, side: _Side) -> Iterator[Finding]:
    listener: ListenerSettings = getattr(case.shoal, side.listener)
    key, address = case.flow.key(side.client, _KEY), client_address(listener)
    entry = case.flow.find(side.client, _KEY)
    if entry is None:
        yield case.finding(Severity.MUST, f"{key} is not set", side.role, (key, address))
        return
    destinations = case.shoal.destinations(entry.value)
    if set(destinations.values()) == {side.right}:
        yield from _check_whole_cluster(case, side)
        return
    severity, why = _wrong(destinations, side)
    write = [] if severity is Severity.NOTE else [(key, address)]
    yield case.finding(severity, _at(case, side, entry), why, *write)


def _at(case: Case, side: _Side, entry: Entry) -> Entry | str:
    """The line to change; a text if only the cluster's line exists, which is kept."""
    key = case.flow.key(side.client, _KEY)
    whole = case.flow.find("source" if side is _CONSUMER else "target", _KEY)
    return (
        entry if entry != whole else f"{key} is not set; falls back to {entry.key} (line {entry.line}), which can stay"
    )


def _wrong(destinations: dict[str, Destination], side: _Side) -> tuple[Severity, str]:
    """Severity and reason; the worst reason wins."""
    found = set(destinations.values())
    if found & ({Destination.WRAP, Destination.UNWRAP} - {side.right}):
        return Severity.MUST, f"this is Shoal's {side.wrong_listener} listener: the listeners are swapped"
    if Destination.PLAIN in found:
        return (
            Severity.MUST,
            f"this listener of Shoal has mode plain: the {side.client} needs mode = {side.right.value}",
        )
    if Destination.DIRECT in found and side.right in found:
        past = ", ".join(entry for entry, place in destinations.items() if place is Destination.DIRECT)
        return (
            Severity.MUST,
            f"the list has Shoal and brokers ({past}): the client may choose any of them, so {side.role}",
        )
    if Destination.DIRECT in found:
        return Severity.MUST, side.role
    unknown = ", ".join(entry for entry, place in destinations.items() if place is Destination.UNKNOWN)
    return (
        Severity.NOTE,
        f"{unknown or 'nothing'} is not a literal address: make sure that it is Shoal's",
    )


def _check_whole_cluster(case: Case, side: _Side) -> Iterator[Finding]:
    """The cluster's own line also leads to Shoal: it works, but more clients than needed use Shoal."""
    whole = case.flow.find("source" if side is _CONSUMER else "target", _KEY)
    if side is _PRODUCER and is_exactly_once(case):  # required there
        return
    if whole is not None and side.right in case.shoal.destinations(whole.value).values():
        why = "admin clients and internal topics also go through Shoal: it works, but only the data clients need it"
        yield case.finding(Severity.NOTE, whole, why)


def is_beside_another(case: Case) -> bool:
    """The consumer line is shared with a correct flow, and this flow's producer writes to another cluster."""
    others = [flow for flow in case.flows if flow is not case.flow and flow.source == case.flow.source]
    consumer, producer = (_destinations(case.flow, client, case.shoal) for client in ("consumer", "producer"))
    return (
        Destination.WRAP in consumer
        and Destination.UNWRAP not in producer
        and any(_goes_through(f, case.shoal) for f in others)
    )


def _other_target(case: Case) -> Finding:
    shared = case.flow.find("consumer", _KEY)
    brokers = case.flow.find("source", _KEY)
    assert shared is not None
    right = next(flow for flow in case.flows if _goes_through(flow, case.shoal))
    why = (
        f"this line also sends the consumer of {case.flow.name} to Shoal, but its producer does not use Shoal: set the "
        f"line for {right.name} only"
    )
    direct = "the brokers of the source" if brokers is None else brokers.value
    return case.finding(
        Severity.MUST,
        shared,
        why,
        (right.form.per_flow["consumer"].format(flow=right.name, k=_KEY), client_address(case.shoal.wrap)),
        (case.flow.form.per_flow["consumer"].format(flow=case.flow.name, k=_KEY), direct),
    )
