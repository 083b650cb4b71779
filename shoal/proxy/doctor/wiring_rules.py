"""Do both data clients go through Shoal, each to its own listener?

An envelope that a producer sends past the target listener ends up in a topic. The interlock prevents that: it permits
no envelope before this mirror's records come back through the paired listener. It cannot correct the wiring; these
rules tell the operator how.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from shoal.proxy.doctor.exactly_once_rules import is_exactly_once
from shoal.proxy.doctor.finding import Case, Finding, Severity
from shoal.proxy.doctor.places import Place, client_address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.proxy.config.settings import ListenerSettings
    from shoal.proxy.doctor.mirror import Flow
    from shoal.proxy.doctor.places import Shoal
    from shoal.proxy.doctor.properties import Entry

__all__ = ["check_wiring", "is_beside_another", "is_meant"]

_KEY = "bootstrap.servers"


class _Side(NamedTuple):
    client: str
    right: Place
    listener: str  # attribute of `Shoal`
    wrong_listener: str
    role: str


_CONSUMER = _Side(
    "consumer", Place.WRAP, "wrap", "target", "the mirror's data consumer reads past Shoal: nothing is wrapped"
)
_PRODUCER = _Side(
    "producer", Place.UNWRAP, "unwrap", "source",
    "the mirror's data producer writes past Shoal: an envelope would end up in a topic, so Shoal does not wrap",
)  # fmt: skip


def _places(flow: Flow, client: str, shoal: Shoal) -> set[Place]:
    entry = flow.find(client, _KEY)
    return set() if entry is None else set(shoal.places(entry.value).values())


def _goes_through(flow: Flow, shoal: Shoal) -> bool:
    """True if both data clients use their listener only."""
    return _places(flow, "consumer", shoal) == {Place.WRAP} and _places(flow, "producer", shoal) == {Place.UNWRAP}


def is_meant(flow: Flow, shoal: Shoal) -> bool:
    """True if at least one data client of the flow uses Shoal, correctly or not."""
    places = _places(flow, "consumer", shoal) | _places(flow, "producer", shoal)
    return bool(places & {Place.WRAP, Place.UNWRAP})


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
    places = case.shoal.places(entry.value)
    if set(places.values()) == {side.right}:
        yield from _check_whole_cluster(case, side)
        return
    severity, why = _wrong(places, side)
    write = [] if severity is Severity.NOTE else [(key, address)]
    yield case.finding(severity, _at(case, side, entry), why, *write)


def _at(case: Case, side: _Side, entry: Entry) -> Entry | str:
    """The line to change. The cluster's line stays; then it is the line to add."""
    key = case.flow.key(side.client, _KEY)
    whole = case.flow.find("source" if side is _CONSUMER else "target", _KEY)
    return (
        entry if entry != whole else f"{key} is not set; falls back to {entry.key} (line {entry.line}), which can stay"
    )


def _wrong(places: dict[str, Place], side: _Side) -> tuple[Severity, str]:
    """Severity and reason; the worst reason wins."""
    found = set(places.values())
    if found & ({Place.WRAP, Place.UNWRAP} - {side.right}):
        return Severity.MUST, f"this is Shoal's {side.wrong_listener} listener: the listeners are swapped"
    if Place.PLAIN in found:
        return (
            Severity.MUST,
            f"this listener of Shoal has mode plain: the {side.client} needs mode = {side.right.value}",
        )
    if Place.DIRECT in found and side.right in found:
        past = ", ".join(entry for entry, place in places.items() if place is Place.DIRECT)
        return (
            Severity.MUST,
            f"the list has Shoal and brokers ({past}): the client may choose any of them, so {side.role}",
        )
    if Place.DIRECT in found:
        return Severity.MUST, side.role
    unknown = ", ".join(entry for entry, place in places.items() if place is Place.UNKNOWN)
    return (
        Severity.NOTE,
        f"{unknown or 'nothing'} is not a literal address: make sure that it is Shoal's",
    )


def _check_whole_cluster(case: Case, side: _Side) -> Iterator[Finding]:
    """The cluster's own line also leads to Shoal: it works, with more clients than needed."""
    whole = case.flow.find("source" if side is _CONSUMER else "target", _KEY)
    if side is _PRODUCER and is_exactly_once(case):  # required there
        return
    if whole is not None and side.right in case.shoal.places(whole.value).values():
        why = "admin clients and internal topics also go through Shoal: it works, but only the data clients need it"
        yield case.finding(Severity.NOTE, whole, why)


def is_beside_another(case: Case) -> bool:
    """The consumer line is shared with a correct flow, and this flow's producer writes to another cluster."""
    others = [flow for flow in case.flows if flow is not case.flow and flow.source == case.flow.source]
    consumer, producer = (_places(case.flow, client, case.shoal) for client in ("consumer", "producer"))
    return Place.WRAP in consumer and Place.UNWRAP not in producer and any(_goes_through(f, case.shoal) for f in others)


def _other_target(case: Case) -> Finding:
    shared = case.flow.find("consumer", _KEY)
    brokers = case.flow.find("source", _KEY)
    assert shared is not None
    right = next(flow for flow in case.flows if _goes_through(flow, case.shoal))
    why = (
        f"this line also sends the consumer of {case.flow.name} to Shoal, but its producer does not use Shoal: "
        f"set the line for {right.name} only"
    )
    direct = "the brokers of the source" if brokers is None else brokers.value
    return case.finding(
        Severity.MUST,
        shared,
        why,
        (right.form.per_flow["consumer"].format(flow=right.name, k=_KEY), client_address(case.shoal.wrap)),
        (case.flow.form.per_flow["consumer"].format(flow=case.flow.name, k=_KEY), direct),
    )
