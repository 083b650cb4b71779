"""A mirror in exactly-once mode (KIP-618): what it needs of MirrorMaker 2, and the one thing more that it needs with Shoal.

Connect's tasks write their offsets in the transaction of the copies, with the data producer. Where that producer's bootstrap servers
are not the very list of the worker's, Connect takes the worker's offsets topic for another topic (Worker.sameOffsetTopicAsWorker)
and writes each offset a second time, with another producer and outside the transaction, as soon as the first is acknowledged
(ConnectorOffsetBackingStore.set). With MirrorMaker 2 it is the same topic: when the transaction is then aborted, the second offset
stays, and the task goes on behind records that nobody was given. So both lists must be the same, to the letter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.proxy.doctor.finding import Case, Finding, Severity
from shoal.proxy.doctor.places import client_address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.proxy.doctor.properties import Entry

__all__ = ["check_exactly_once", "is_exactly_once"]

_BOOTSTRAP = "bootstrap.servers"
_MODE = "exactly.once.source.support"
_REQUIRED = "exactly.once.support"
_REST = "dedicated.mode.enable.internal.rest"
_ISOLATION = "isolation.level"
_COMMITTED = "read_committed"


def is_exactly_once(case: Case) -> bool:
    mode = case.flow.find("worker", _MODE)
    return _is_required(case) or (mode is not None and mode.value.lower() in ("enabled", "preparing"))


def _is_required(case: Case) -> bool:
    entry = case.flow.find("connector", _REQUIRED)
    return entry is not None and entry.value.lower() == "required"


def check_exactly_once(case: Case) -> Iterator[Finding]:
    if not is_exactly_once(case):
        return
    if case.flow.form.is_connect:
        yield _workers_list(case)
    else:
        yield from _one_list(case)
        yield from _internal_rest(case)
    yield from _isolation(case)


def _one_list(case: Case) -> Iterator[Finding]:
    worker, producer = case.flow.find("target", _BOOTSTRAP), case.flow.find("producer", _BOOTSTRAP)
    if _addresses(worker) != _addresses(producer):
        key, address = f"{case.flow.target}.{_BOOTSTRAP}", client_address(case.shoal.unwrap)
        why = (
            "in exactly-once mode it must be the very list that the data producer has: else Connect writes the offsets a second "
            "time, outside the transaction, and records of an aborted one are lost"
        )
        yield case.finding(Severity.MUST, worker or f"{key} is not written", why, (key, address))


def _addresses(entry: Entry | None) -> set[str]:
    return set() if entry is None else {one.strip() for one in entry.value.split(",")}


def _workers_list(case: Case) -> Finding:
    entry = case.flow.find("producer", _BOOTSTRAP)
    why = (
        "in exactly-once mode the worker's own bootstrap.servers must be this very list, which is not to be seen here: else Connect "
        "writes the offsets a second time, outside the transaction, and records of an aborted one are lost"
    )
    return case.finding(Severity.SHOULD, entry or f"producer.override.{_BOOTSTRAP}", why)


def _internal_rest(case: Case) -> Iterator[Finding]:
    entry = case.flow.entries.get(_REST)
    if entry is None or entry.value.lower() != "true":
        why = "MirrorMaker 2 needs its internal REST server for exactly-once mode (KIP-710), and `listeners` for its address"
        yield case.finding(Severity.MUST, entry or f"{_REST} is not written", why, (_REST, "true"))


def _isolation(case: Case) -> Iterator[Finding]:
    entry = case.flow.find("consumer", _ISOLATION)
    if entry is None or entry.value != _COMMITTED:
        key = case.flow.key("consumer", _ISOLATION)
        severity = Severity.MUST if _is_required(case) else Severity.SHOULD
        why = "in exactly-once mode, too, aborted records are copied, unless the mirror reads committed ones only"
        yield case.finding(severity, entry or f"{key} is not written", why, (key, _COMMITTED))
