"""What differs between two configurations, and how each difference is applied while Shoal runs.

    old, new ── diff ──> changes ── in_force ──> the settings that are used from now on

`HOW` names the way of every field of every settings class, so that no new key is forgotten. What needs a restart stays
as it is: a listener with such a change stays as a whole. Values never go into a log: only `Change.what` does.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.proxy.config.schema import key_of
from shoal.proxy.config.security import AccessSettings, ClusterTls, ListenerTls, Routing
from shoal.proxy.config.settings import (
    WILDCARDS,
    Address,
    AdminSettings,
    ClusterSettings,
    CoalesceSettings,
    LegacySettings,
    Limits,
    ListenerSettings,
    LogSettings,
    Mode,
    PortRange,
    Settings,
    ShallowSettings,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["HOW", "Applied", "Change", "Table", "diff", "how_table", "in_force"]


class Applied(StrEnum):
    LIVE = "live"  # at once, for open connections too
    NEW_CONNECTIONS = "new connections"  # open ones keep what they began with
    REOPENED = "reopened"  # open connections of the listener drain; new ones are accepted on the same ports meanwhile
    RESTART = "restart"  # not applied


LIVE, NEW, REOPENED, RESTART = Applied


class Table(NamedTuple):
    """A table of its own. `toggled`: how it is applied that the table comes or goes."""

    settings: type
    toggled: Applied


NAMED: None = None
"""A field that identifies what it belongs to, or is computed from another one, or has a name of its own in `diff`."""

HOW: Mapping[type, Mapping[str, Applied | Table | None]] = {
    Settings: {
        "clusters": NAMED,
        "listeners": NAMED,
        "limits": Table(Limits, LIVE),
        "log": Table(LogSettings, LIVE),
        "admin": Table(AdminSettings, LIVE),
        "capture": RESTART,
        "tags": NEW,  # of new files; envelopes have those of their listener
        "raw_capture": RESTART,
        "state_dir": RESTART,
        "workers": RESTART,
    },
    AdminSettings: {"listen": LIVE, "topic_labels": LIVE},
    LogSettings: dict.fromkeys(("level", "format", "report_every"), LIVE),
    Limits: {
        "frame_bytes": NEW,
        "held_response_bytes": NEW,
        "held_request_bytes": NEW,
        "in_flight": NEW,
        "connect_timeout": NEW,
        "frame_timeout": NEW,
        "stall_timeout": NEW,
        "idle_timeout": NEW,
        "drain": LIVE,
        "drain_wait_seconds": LIVE,
        "drain_seconds": LIVE,
        "linger_seconds": NEW,
        "close_seconds": NEW,
        "keepalive_idle": NEW,
        "keepalive_interval": NEW,
        "keepalive_count": NEW,
        "login_timeout": NEW,
        "login_frame_bytes": NEW,
        "unauthenticated": NEW,
        "unauthenticated_per_address": NEW,
        "stall_report": LIVE,
        "stall_exit": LIVE,
    },
    ClusterSettings: {
        "name": NAMED,
        "bootstrap": NEW,
        "multi_batch": LIVE,
        "probe_topic": LIVE,
        "tls": Table(ClusterTls, NEW),
        "sasl": NEW,
        "credentials": NEW,
    },
    ClusterTls: dict.fromkeys(
        (
            "ca",
            "certificate",
            "key",
            "key_password",
            "verify_host_name",
            "server_name",
            "min_version",
            "ciphers",
        ),
        NEW,
    ),
    ListenerSettings: {
        "name": NAMED,
        "cluster": REOPENED,
        "host": LIVE,
        "port": LIVE,
        "nodes": LIVE,
        "advertised_host": LIVE,
        "mode": RESTART,
        "pair": REOPENED,
        "shallow": Table(ShallowSettings, REOPENED),
        "coalesce": REOPENED,
        "coalescing": Table(CoalesceSettings, LIVE),
        "legacy": REOPENED,
        "legacy_options": Table(LegacySettings, REOPENED),
        "producers_file": NAMED,
        "mirrored_file": NAMED,
        "max_connections": NEW,
        "tls": Table(ListenerTls, REOPENED),
        "routing": REOPENED,
        "broker_host": REOPENED,
        "advertised_port": LIVE,
        "sasl": REOPENED,
        "principals": REOPENED,
        "access": Table(AccessSettings, LIVE),
        "proxy_protocol": NEW,
    },
    ListenerTls: dict.fromkeys(
        (
            "certificate",
            "key",
            "key_password",
            "client_ca",
            "client_auth",
            "principal",
            "min_version",
            "ciphers",
        ),
        NEW,
    ),
    AccessSettings: {
        "addresses": LIVE,  # clients that may no longer connect are drained
        "principals": LIVE,
        "client_ids": LIVE,
        "connections_per_address": NEW,
        "new_connections_per_second": NEW,
        "bytes_per_second": NEW,
        "client_bytes_per_second": NEW,
    },
    ShallowSettings: {
        "mirror_clients": NEW,
        "deep_topics": LIVE,
        "same_offsets": REOPENED,  # where a mirror is in such a topic is known from its first request on
        "without_agent": REOPENED,
        "follow_log_start": LIVE,
        "partition_by_key": REOPENED,
        "run_limit": LIVE,
        "min_batch_bytes": LIVE,
        "claim_check_bytes": LIVE,
        "fetch_max_bytes": REOPENED,  # the interlock's bounds follow from it
        "partition_max_bytes": LIVE,
        "tags": LIVE,
        "same_cluster": REOPENED,
        "any_producer": REOPENED,
        "unpaired": REOPENED,
        "on_gap": LIVE,
        "evidence_seconds": REOPENED,
        "evidence_bytes": REOPENED,
        "producer_slots": RESTART,  # the file of an unwrap listener has so many
        "plain_compression": RESTART,  # a retry must be what it was
    },
    CoalesceSettings: {
        "linger": LIVE,
        "request_bytes": LIVE,
        "request_batches": LIVE,
        "set_batches": LIVE,
        "in_flight": LIVE,
        "patience": LIVE,
        "queue_bytes": LIVE,
        "ignore_client_ids": REOPENED,  # requests of two lanes would overtake each other
    },
    LegacySettings: {
        "chunk_bytes": REOPENED,  # leases of the budget are sized by them
        "budget_bytes": REOPENED,
        "fetch_bytes": REOPENED,
        "compression": NEW,
        "isolation": NEW,
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """`what`: for the log: "listener 'clients': access.addresses". `name`: of the listener or cluster, if it is one's.

    `old`, `new`: None for one that comes or goes.
    """

    what: str
    old: Any = field(repr=False)
    new: Any = field(repr=False)
    applied: Applied
    listener: str | None = None
    cluster: str | None = None


def diff(old: Settings, new: Settings) -> tuple[Change, ...]:
    """All differences, in the order of the fields; the same settings have none."""
    return (
        *(Change(what=key, old=a, new=b, applied=_of_server(how, a, b)) for key, a, b, how in _changed("", old, new)),
        *_clusters(old, new),
        *_listeners(old, new),
    )


def _changed(prefix: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any, Applied]]:
    for name, how in HOW[type(old)].items():
        a, b = getattr(old, name), getattr(new, name)
        if a == b or how is NAMED:
            continue
        key = f"{prefix}{key_of(name)}"
        if not isinstance(how, Table):
            yield key, a, b, how
        elif a is None or b is None:
            yield key, a, b, how.toggled
        else:
            yield from _changed(f"{key}.", a, b)


def _of_server(how: Applied, old: object, new: object) -> Applied:
    if isinstance(old, Address) and isinstance(new, Address) and old.port == new.port:
        return _of_host(how, old.host, new.host)
    return how


def _of_host(how: Applied, old: str, new: str) -> Applied:
    """The kernel refuses a port on all addresses while one address has it."""
    return RESTART if old != new and {old, new} & set(WILDCARDS) else how


def _clusters(old: Settings, new: Settings) -> Iterator[Change]:
    before, after = ({cluster.name: cluster for cluster in x.clusters} for x in (old, new))
    for name in (*before, *(after.keys() - before.keys())):
        what = f"cluster {name!r}"
        if name not in before or name not in after:
            verb = "added" if name in after else "removed"
            yield Change(what=f"{what} {verb}", old=before.get(name), new=after.get(name), applied=LIVE, cluster=name)
            continue
        for key, a, b, how in _changed("", before[name], after[name]):
            yield Change(what=f"{what}: {key}", old=a, new=b, applied=how, cluster=name)


def _listeners(old: Settings, new: Settings) -> Iterator[Change]:
    before, after = ({listener.name: listener for listener in x.listeners} for x in (old, new))
    for name in (*before, *(listener.name for listener in new.listeners if listener.name not in before)):
        what = f"listener {name!r}"
        if name not in before or name not in after:
            verb = "added" if name in after else "removed"
            yield Change(what=f"{what} {verb}", old=before.get(name), new=after.get(name), applied=LIVE, listener=name)
            continue
        found = [*_changed("", _without_state(before[name]), _without_state(after[name]))]
        for key, a, b, how in found:
            yield Change(
                what=f"{what}: {key}",
                old=a,
                new=b,
                applied=_of_listener(key, how, before[name], after[name]),
                listener=name,
            )
        if not any(how is REOPENED for *_, how in found) and _login(old, before[name]) != _login(new, after[name]):
            cluster = after[name].cluster
            yield Change(
                what=f"{what}: who logs in at cluster {cluster!r}", old=None, new=None, applied=REOPENED, listener=name
            )


def _without_state(listener: ListenerSettings) -> ListenerSettings:
    """State files follow from `state_dir`."""
    nodes = replace(listener.nodes, state_file=None) if isinstance(listener.nodes, PortRange) else listener.nodes
    return replace(listener, nodes=nodes, producers_file=None, mirrored_file=None)


def _of_listener(key: str, how: Applied, old: ListenerSettings, listener: ListenerSettings) -> Applied:
    """What depends on other settings of the listener."""
    if key == "cluster" and listener.mode is Mode.UNWRAP:
        return RESTART  # all that is known of appended batches is of one cluster
    if key == "listen":
        return _of_host(how, old.host, listener.host)
    if listener.routing is Routing.SNI and key == "advertise":
        return REOPENED  # it is a name in the TLS handshake
    return how


def _login(settings: Settings, listener: ListenerSettings) -> tuple[bool, bool] | None:
    """Whether Shoal logs in at the listener's cluster, and shows a certificate: then clients cannot."""
    for cluster in settings.clusters:
        if cluster.name == listener.cluster:
            return cluster.sasl is not None, cluster.tls is not None and cluster.tls.certificate is not None
    return None


def in_force(old: Settings, new: Settings) -> Settings:
    """`new`, with the former settings where a restart is needed."""
    restart = [change for change in diff(old, new) if change.applied is RESTART]
    kept = {change.listener: change for change in restart if change.listener is not None}
    waiting = {change.what for change in restart}
    former = {listener.name: listener for listener in old.listeners}
    listeners = tuple(former[x.name] if x.name in kept else x for x in new.listeners)
    return replace(
        new,
        listeners=listeners,
        admin=replace(new.admin, listen=old.admin.listen) if "admin.listen" in waiting else new.admin,
        capture=old.capture,
        raw_capture=old.raw_capture,
        state_dir=old.state_dir,
        workers=old.workers,
    ).with_state_files()


def how_table() -> str:
    """Markdown for docs/configuration.md: the keys of each table, by how they are applied."""
    lines = ["| table | live | new | reopened | restart |", "|---|---|---|---|---|"]
    for settings, name in _SHOWN.items():
        by_way = {way: list[str]() for way in Applied}
        for field_name, how in HOW[settings].items():
            if isinstance(how, Table):
                if field_name == "tls":  # the other tables are always there
                    by_way[how.toggled].append("`tls` (comes or goes)")
            elif how is not NAMED:
                by_way[how].append(f"`{key_of(field_name)}`")
        cells = [", ".join(dict.fromkeys(by_way[way])) for way in Applied]
        lines.append(f"| {' | '.join([f'`{name}`', *cells])} |")
    return "\n".join(lines)


_SHOWN = {
    Settings: "top level",
    ClusterSettings: "[[cluster]]",
    ClusterTls: "[cluster.tls]",
    ListenerSettings: "[[listener]]",
    ListenerTls: "[listener.tls]",
    AccessSettings: "[listener.access]",
    ShallowSettings: "[listener.shallow]",
    CoalesceSettings: "[listener.coalescing]",
    LegacySettings: "[listener.legacy-options]",
    Limits: "[limits]",
    LogSettings: "[log]",
    AdminSettings: "[admin]",
}
