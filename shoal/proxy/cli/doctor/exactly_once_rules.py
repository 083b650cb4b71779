"""A mirror in exactly-once mode (KIP-618): what MirrorMaker 2 requires, and the one further requirement with Shoal.

Connect's tasks write their offsets in the transaction of the copies, with the data producer. If that producer's
bootstrap servers differ from the worker's, Connect assumes that the worker's offsets topic is another topic
(Worker.sameOffsetTopicAsWorker). It then writes each offset a second time, with another producer and outside the
transaction, once the first is acknowledged (ConnectorOffsetBackingStore.set). With MirrorMaker 2 it is the same topic:
if the transaction is aborted, the second offset remains, and the task continues after records that were never copied.
So both lists must be identical.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.proxy.cli.doctor.destinations import client_address
from shoal.proxy.cli.doctor.finding import Case, Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.proxy.cli.doctor.properties import Entry

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
            "in exactly-once mode it must equal the data producer's list: otherwise Connect also writes the offsets "
            "outside the transaction, and records of an aborted transaction are lost"
        )
        yield case.finding(Severity.MUST, worker or f"{key} is not set", why, (key, address))


def _addresses(entry: Entry | None) -> set[str]:
    return set() if entry is None else {address.strip() for address in entry.value.split(",")}


def _workers_list(case: Case) -> Finding:
    entry = case.flow.find("producer", _BOOTSTRAP)
    why = (
        "in exactly-once mode the worker's own bootstrap.servers (not visible here) must equal this list: otherwise "
        "Connect also writes the offsets outside the transaction, and records of an aborted transaction are lost"
    )
    return case.finding(Severity.SHOULD, entry or f"producer.override.{_BOOTSTRAP}", why)


def _internal_rest(case: Case) -> Iterator[Finding]:
    entry = case.flow.entries.get(_REST)
    if entry is None or entry.value.lower() != "true":
        why = "exactly-once mode needs MirrorMaker 2's internal REST server (KIP-710), and `listeners` for its address"
        yield case.finding(Severity.MUST, entry or f"{_REST} is not set", why, (_REST, "true"))


def _isolation(case: Case) -> Iterator[Finding]:
    entry = case.flow.find("consumer", _ISOLATION)
    if entry is None or entry.value != _COMMITTED:
        key = case.flow.key("consumer", _ISOLATION)
        severity = Severity.MUST if _is_required(case) else Severity.SHOULD
        why = "even in exactly-once mode aborted records are copied, unless the consumer reads committed records only"
        yield case.finding(severity, entry or f"{key} is not set", why, (key, _COMMITTED))
