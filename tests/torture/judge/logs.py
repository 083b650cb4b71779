"""Shoal's log: every warning, error or line that is not a log line must have an explanation in the round.

The table has, for each possible line, the faults that explain it. A line is expected if one of them was part of the
round.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

from tests.torture.plan import DOWN

if TYPE_CHECKING:
    from collections.abc import Iterable

_BROKER = set(DOWN)
_MIRROR = {"kill-mirror", "stop-mirror", "pause-mirror"}
_SHOAL = {"kill-shoal", "stop-shoal", "pause-shoal"}
_LINK = {"cut-link", "slow-link", "flap-link", "freeze-link"}
_TOPIC = {"move-leaders", "add-partitions", "recreate-topic"}
_OTHER = {"step-clock", "full-disk", "pause-connector"}
_ANY = _BROKER | _MIRROR | _SHOAL | _LINK | _TOPIC | _OTHER
ALWAYS = "always"


class Expected(NamedTuple):
    pattern: str
    by: frozenset[str]
    """Kinds of faults; ALWAYS: no fault is needed."""


def _expected(pattern: str, *by: Iterable[str]) -> Expected:
    return Expected(pattern, frozenset(kind for kinds in by for kind in kinds))


TABLE: tuple[Expected, ...] = (
    # The relay has the address that Shoal advertises.
    _expected(r"advertised host differs, but the listener is on loopback", {ALWAYS}),
    # A broker without the agent rejects a set.
    _expected(r"gets one batch per partition and request: refused", {ALWAYS}),
    _expected(r"gets one batch per partition and request: unknown", _BROKER, _LINK, _SHOAL, _TOPIC),
    _expected(r"no longer takes several batches", _BROKER, _LINK, _TOPIC),
    _expected(
        r"(check the address|reset by peer|closed the connection)( during the login)?; retried on each", _BROKER, _LINK
    ),
    _expected(r"no answer within .*connect-timeout.*; retried on each", _BROKER, _LINK),
    # A login at Shoal waits for the broker's API versions: the broker or the client is not reached.
    _expected(r"no login in time: limits.login-timeout", _BROKER, _LINK, {"pause-mirror", "pause-shoal"}),
    # The client has ended, or has waited for longer than its own limit.
    _expected(r"the client closed the connection in the middle of the TLS handshake", _LINK, _MIRROR, {"pause-shoal"}),
    # Errors of the target that are retried: its leaders move, its replicas are not in sync, its coordinators are away.
    _expected(r"error (6 \(NOT_LEADER|5 \(LEADER_NOT_AVAIL|3 \(UNKNOWN_TOPIC_OR_PART)", _BROKER, _LINK, _TOPIC),
    _expected(
        r"error (19 \(NOT_ENOUGH_REPLICAS|20 \(NOT_ENOUGH_REPLICAS_AFTER|7 \(REQUEST_TIMED_OUT)", _BROKER, _LINK, _TOPIC
    ),
    # A broker whose disk fails answers this until it has ended; producers refresh metadata and retry.
    _expected(r"error 56 \(KAFKA_STORAGE_ERROR\)", {"fail-disk"}),
    # A user or a broker without producer ids for Shoal: a batch in flight has no number that identifies a retry.
    _expected(r"ended before the broker has answered", _SHOAL, _BROKER, _LINK),
    # Kafka's own answer to a batch that arrives before the coordinator has ended the last transaction: the producer
    # retries.
    _expected(r"error 51", {"exactly-once"}),
    # Retention is faster than a mirror that stood still.
    _expected(r"is not mirrored with its offsets: the source has no offset", {"retention"}),
    _expected(r"the records between were deleted before they were mirrored", {"retention"}),
    # Two sources are copied into one topic.
    _expected(r"does not reconcile: other records stand between those of one envelope", {"merged"}),
    # Clients with batches in it are disconnected, as their own connection to the broker would have been.
    _expected(r"a joined request to .* failed", _BROKER, _LINK),
    # The cost of a restart when a file of Shoal's state could not be written.
    _expected(
        r"[mM]ake room|No space left|discarded .* brokers may get|discarded .* exactly-once mirrors", {"full-disk"}
    ),
    # The source says nothing of where its partitions end.
    _expected(r"does not say where its partitions end", _BROKER, _LINK),
    _expected(r"the topic was deleted and created again|passes over offsets", {"recreate-topic"}),
    # Records that retention deletes while a mirror is away.
    _expected(r"are gone from the log, and .* has not mirrored them", {"retention"}),
    _expected(r"passes over offsets .*: they expired or were deleted", {"retention"}),
    _expected(r"gaps (before now|meanwhile) are not seen|that were stopped at a gap go on", {"full-disk"}),
    # The interlock: a connection of the mirror's producer has closed, or no evidence arrived for a while.
    _expected(r"^(paused|no evidence)\b", _ANY),
    # A record with a token is lost with its connection, or delayed while the mirror can't write.
    _expected(
        r"^(strayed|stopped)\b.*no other client was given|^stopped\b.*given a record with a token",
        _BROKER,
        _LINK,
        _MIRROR,
    ),
    # The same for the first time; or its connection is lost between its first envelopes and their arrival.
    _expected(r"^lost\b", _BROKER, _LINK, _MIRROR),
    # The mirror's connection is lost again between its first envelopes and their arrival (seed 5007).
    _expected(r"^stopped\b.*after it was given its first envelopes", _BROKER, _LINK, _MIRROR),
    # The relay accepts a connection, and then loses its own to the broker.
    _expected(r"closes connections (before it answers|at the next request)", _BROKER, _LINK),
    _expected(r"connection of .* ended: .*(cannot be reached|not reached|unreachable)", _BROKER, _LINK),
)


class Line(NamedTuple):
    level: str
    text: str


def loud_lines(log: str) -> list[Line]:
    """Warnings and errors, and lines that are not JSON: a traceback, a message of the interpreter."""
    lines = []
    for text in log.splitlines():
        if not text.strip():
            continue
        if not text.startswith("{"):
            lines.append(Line("raw", text))
            continue
        try:
            entry = json.loads(text)
        except ValueError:  # a kill in the middle of a line
            continue
        if entry.get("level") in ("warning", "error", "critical"):
            details = {key: value for key, value in entry.items() if key not in ("time", "level", "event")}
            text = entry.get("message") or f"{entry['event']} {details}"
            lines.append(Line(entry["level"], text + entry.get("exception", "")))
    return lines


def unexplained(log: str, kinds: Iterable[str]) -> list[str]:
    """The loud lines that are neither normal in any round nor explained by these kinds of faults, each once."""
    happened = {ALWAYS, *kinds}
    patterns = [re.compile(expected.pattern) for expected in TABLE if expected.by & happened]
    found = (
        f"{line.level}: {line.text}"
        for line in loud_lines(log)
        if not any(pattern.search(line.text) for pattern in patterns)
    )
    return list(dict.fromkeys(found))
