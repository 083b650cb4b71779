"""Rules about one setting: one table row each."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, NamedTuple

from shoal.proxy.cli.doctor.client_security import SECURITY_KEYS, Needed
from shoal.proxy.cli.doctor.finding import Case, Finding, Severity
from shoal.proxy.config.settings import ENVELOPE_OVERHEAD, LARGEST_BATCH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shoal.proxy.cli.doctor.destinations import ShoalListeners

__all__ = ["RAW_BATCH_SIZE", "VALUE_RULES", "ValueRule", "check_numbers", "check_spelling", "check_values", "needed"]

MUST, SHOULD, NOTE = Severity.MUST, Severity.SHOULD, Severity.NOTE

RAW_BATCH_SIZE = 131072
"""`batch.size` of the mirror's producer, bytes before compression. The default of 16384 needs more requests."""
# The similarity of fetch.min.bytes and fetch.max.bytes, both valid keys, is 0.87.
_ALIKE = 0.9


class ValueRule(NamedTuple):
    """`value`: the correct value; None = remove the line; "" = no line corrects it."""

    client: str
    key: str
    bad: Callable[[str, Case], bool]
    severity: Severity
    value: str | Callable[[ShoalListeners], int] | None
    why: str
    default: str | None = None  # the client's default, if it may be wrong for this Shoal


def _is(*values: str) -> Callable[[str, Case], bool]:
    return lambda value, _: value.lower() in values


def _is_not(*values: str) -> Callable[[str, Case], bool]:
    return lambda value, _: value.lower() not in values


def _any(value: str, case: Case) -> bool:
    return True


def _below(least: Callable[[ShoalListeners], int]) -> Callable[[str, Case], bool]:
    return lambda value, case: value.isdecimal() and int(value) < least(case.shoal)


def _above(most: Callable[[ShoalListeners], int]) -> Callable[[str, Case], bool]:
    return lambda value, case: value.isdecimal() and int(value) > most(case.shoal)


def _run(shoal: ShoalListeners) -> int:
    return shoal.wrap.shallow.run_limit


def _joined(shoal: ShoalListeners) -> int:
    return max(_run(shoal), RAW_BATCH_SIZE)


def _request(shoal: ShoalListeners) -> int:
    """A batch of a mirror topic is never raw, so it must fit into an envelope whatever its size."""
    batch = LARGEST_BATCH if shoal.wrap.shallow.same_offsets is not None else 0
    return max(_run(shoal), batch) + ENVELOPE_OVERHEAD


def _four_requests(shoal: ShoalListeners) -> int:
    return 4 * _request(shoal)


def _fetch(shoal: ShoalListeners) -> int:
    return shoal.wrap.shallow.fetch_max_bytes


def _polled(shoal: ShoalListeners) -> int:
    return 10


def _timeout(shoal: ShoalListeners) -> int:
    return 30_000


_OF_NUMBERS = (".bytes", ".memory", ".ms", ".records", ".size")
_SEES_ENVELOPES = "an interceptor sees envelopes instead of records"

VALUE_RULES = (
    ValueRule(
        "producer", "compression.type", _is_not("none"), MUST, "none",
        "the mirror would compress envelopes, whose content is already compressed: Shoal is there to save that CPU",
    ),
    ValueRule(
        "producer", "max.request.size", _below(_request), MUST, _request,
        "an envelope has up to {run} bytes (run-limit); if it exceeds max.request.size, the task fails with "
        "RecordTooLargeException. Raise it, or lower run-limit",
        "1048576",
    ),
    ValueRule(
        "producer", "buffer.memory", _below(_four_requests), SHOULD, _four_requests,
        "it holds fewer than four envelopes: the mirror would wait for the target instead of reading ahead",
        "33554432",
    ),
    ValueRule(
        "producer", "acks", _is("0"), MUST, "all",
        "without acknowledgements, lost records go unnoticed; MM2's default is all",
    ),
    ValueRule(
        "producer", "acks", _is("1"), SHOULD, "all",
        "records that only the leader has are lost if it fails, as without Shoal; MM2's default is all",
    ),
    ValueRule(
        "producer", "transactional.id", _any, MUST, None,
        "Connect starts no transaction with it, so no record could be sent; exactly-once mode gives each task its own "
        "id",
    ),
    ValueRule(
        "producer", "max.in.flight.requests.per.connection", _is_not("1"), SHOULD, "1",
        "a failed request may be retried after a later one, which reorders records, as without Shoal; MM2's default is "
        "1",
    ),
    ValueRule(
        "producer", "request.timeout.ms", _below(_timeout), SHOULD, _timeout,
        "one request may carry many source batches, appended one after the other; the default is 30000",
    ),
    ValueRule(
        "producer", "interceptor.classes", _any, SHOULD, None,
        _SEES_ENVELOPES,
    ),
    ValueRule(
        "producer", "batch.size", _above(_joined), NOTE, "",
        "several envelopes may share a produced batch: correct, but consumer groups that move to the target read more "
        f"records again. Shoal prints {RAW_BATCH_SIZE}, which is enough",
    ),
    ValueRule(
        "consumer", "max.partition.fetch.bytes", _below(_run), SHOULD, _run,
        "a run cannot be longer than one fetch; run-limit is {run}",
        "1048576",
    ),
    ValueRule(
        "consumer", "fetch.max.bytes", _below(_run), SHOULD, _run,
        "a run cannot be longer than one fetch; run-limit is {run}",
        "52428800",
    ),
    ValueRule(
        "consumer", "fetch.max.bytes", _above(_fetch), NOTE, "",
        "Shoal lowers it to fetch-max-bytes ({fetch}) so that it can hold a response",
    ),
    ValueRule(
        "consumer", "max.poll.records", _below(_polled), SHOULD, "500",
        "it counts envelopes and unwrapped records; few per poll are expensive; the default is 500",
    ),
    ValueRule(
        "consumer", "interceptor.classes", _any, SHOULD, None,
        _SEES_ENVELOPES,
    ),
)  # fmt: skip


def check_values(case: Case) -> Iterator[Finding]:
    """Every wrong value, set or by default. Defaults that are always right are not checked."""
    for rule in VALUE_RULES:
        entry = case.flow.find(rule.client, rule.key)
        value = rule.default if entry is None else entry.value
        if value is None or not rule.bad(value, case):
            continue
        why = rule.why.format(run=_run(case.shoal), fetch=_fetch(case.shoal))
        if rule.value is None and entry is not None:
            yield Finding(severity=rule.severity, flow=case.flow.name, at=entry, why=why, remove=(entry,))
            continue
        better = (
            rule.value
            if isinstance(rule.value, str) or rule.value is None
            else _number(rule.value(case.shoal), rule.default)
        )
        key = case.flow.key(rule.client, rule.key)
        at = entry if entry is not None else f"{key} (default {value})"
        yield case.finding(rule.severity, at, why, *([(key, better)] if better else []))


def needed(shoal: ShoalListeners) -> tuple[Needed, ...]:
    """The lines that a mirror with only defaults needs; with them `check_values` finds nothing."""
    return tuple(
        Needed(rule.client, rule.key, str(rule.value(shoal)))
        for rule in VALUE_RULES
        if rule.default is not None and callable(rule.value) and int(rule.default) < rule.value(shoal)
    )


def _number(least: int, default: str | None) -> str:
    """The client's default if it suffices."""
    return str(max(least, int(default or 0)))


def check_spelling(case: Case) -> Iterator[Finding]:
    """Misspelt keys: a Kafka client only warns about unknown keys."""
    for client in ("consumer", "producer"):
        known = {"bootstrap.servers", *SECURITY_KEYS, *(rule.key for rule in VALUE_RULES if rule.client == client)}
        for key, entry in case.flow.own(client):
            if key in known or not (meant := get_close_matches(key, known, n=1, cutoff=_ALIKE)):
                continue
            why = f"the {client} has no setting {key}; did you mean {meant[0]}?"
            right = entry.key.removesuffix(key) + meant[0]
            is_set = right in case.flow.entries
            yield Finding(
                severity=Severity.SHOULD,
                flow=case.flow.name,
                at=entry,
                why=f"{why} That one is set, too" if is_set else why,
                write=() if is_set else ((right, entry.value),),
                remove=(entry,),
            )


def check_numbers(case: Case) -> Iterator[Finding]:
    """Kafka's clients read sizes and times as plain numbers. Values of a config provider are not checked."""
    for rule in dict.fromkeys((rule.client, rule.key) for rule in VALUE_RULES if rule.key.endswith(_OF_NUMBERS)):
        entry = case.flow.find(*rule)
        if entry is not None and not entry.value.strip().isdecimal() and "${" not in entry.value:
            why = f"{entry.value} is not a plain number (no units, no separators): MM2 would not start"
            yield case.finding(Severity.MUST, entry, why)
