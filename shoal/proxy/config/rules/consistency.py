"""Consistency rules between settings, for TOML and for flags: one rule per function."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from shoal.command_line import did_you_mean, listed
from shoal.protocol.wire.errors import LocalProtocolError
from shoal.proxy.config.identity import envelope_headers
from shoal.proxy.config.problems import Problem
from shoal.proxy.config.rules.access import access_problems
from shoal.proxy.config.rules.login import login_problems
from shoal.proxy.config.rules.sasl import check_cluster_sasl
from shoal.proxy.config.rules.security import check_routing, check_tls
from shoal.proxy.config.settings import (
    ENVELOPE_OVERHEAD,
    KIB,
    MAX_PRODUCER_SLOTS,
    MIB,
    WILDCARDS,
    Mode,
    OnGap,
    PortMap,
    PortRange,
    WithoutAgent,
)
from shoal.proxy.config.shares import MOST_WORKERS, share_of, undivided

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shoal.proxy.config.settings import (
        CaptureSettings,
        CoalesceSettings,
        LegacySettings,
        Limits,
        ListenerSettings,
        RawCaptureSettings,
        Settings,
        ShallowSettings,
    )

__all__ = ["Where", "check_settings", "run_limit_problem"]

Where = Callable[[int, str], str]  # (index of the listener, key) -> the name of the setting in the file or as a flag


def check_settings(settings: Settings, where: Where) -> list[Problem]:
    """All inconsistencies; empty if there is none."""
    return [
        *_names(settings),
        *_clusters_exist(settings, where),
        *_pairs(settings, where),
        *_same_cluster(settings, where),
        *_port_conflicts(settings, where),
        *_positive(settings, where),
        *_sizes(settings, where),
        *_same_offsets(settings, where),
        *_gaps(settings, where),
        *_headers(settings, where),
        *_coalescing(settings, where),
        *_legacy(settings, where),
        *check_tls(settings, where),
        *check_routing(settings, where),
        *_logins(settings, where),
        *_access(settings, where),
        *check_cluster_sasl(settings),
        *_capture(settings),
        *_log(settings),
        *_workers(settings, where),
    ]


def _names(settings: Settings) -> Iterator[Problem]:
    named = (("cluster", [c.name for c in settings.clusters]), ("listener", [x.name for x in settings.listeners]))
    for table, names in named:
        if not names:
            yield Problem(table, f"is missing: write a [[{table}]] table")
        for index, name in enumerate(names):
            if not name:
                yield Problem(f"{table}[{index}].name", "is empty: give it a name")
            if name in names[:index]:
                other = names.index(name)
                yield Problem(
                    f"{table}[{index}].name", f'"{name}" is also the name of {table}[{other}]: names must differ'
                )


def _clusters_exist(settings: Settings, where: Where) -> Iterator[Problem]:
    names = [cluster.name for cluster in settings.clusters]
    for index, listener in enumerate(settings.listeners):
        if listener.cluster not in names:
            hint = did_you_mean(listener.cluster, names)
            what = f'there is no cluster "{listener.cluster}"; {hint}known: {listed(names)}'
            yield Problem(where(index, "cluster"), what)


def _pairs(settings: Settings, where: Where) -> Iterator[Problem]:
    unwraps = [listener.name for listener in settings.listeners if listener.mode == Mode.UNWRAP]
    for index, listener in enumerate(settings.listeners):
        if problem := _pair_problem(listener, unwraps):
            yield Problem(where(index, "pair"), problem)


def _same_cluster(settings: Settings, where: Where) -> Iterator[Problem]:
    """Compares addresses only. At start-up, `shallow/cluster_pair.py` compares the clusters' ids."""
    clusters = {cluster.name: set(cluster.bootstrap) for cluster in settings.clusters}
    sides = {listener.name: listener.cluster for listener in settings.listeners}
    for index, listener in enumerate(settings.listeners):
        target = sides.get(listener.pair or "")
        if target is None or listener.shallow.same_cluster or not {target, listener.cluster} <= clusters.keys():
            continue
        if shared := clusters[listener.cluster] & clusters[target]:
            what = (
                f"{min(shared)} is also a broker of the target: a mirror of a cluster into itself may copy its copies "
                f"forever. Correct the address; or, if copies have other names, set {_SAME_CLUSTER}"
            )
            yield Problem(where(index, "cluster"), what)


_SAME_CLUSTER = "same-cluster = true (shoal mirror: --same-cluster)"


def _pair_problem(listener: ListenerSettings, unwraps: list[str]) -> str | None:
    unpaired = listener.shallow.unpaired
    if listener.mode != Mode.WRAP:
        return 'only a listener with mode = "wrap" has a pair: remove it' if listener.pair is not None else None
    if listener.pair is None and not unpaired:
        return (
            f"is missing: name the unwrap listener that the mirror produces to (known: {listed(unwraps)}); or, if "
            "another Shoal process opens the envelopes, set unpaired = true under [listener.shallow]"
        )
    if listener.pair is not None and unpaired:
        return "is set together with unpaired = true: remove one of them"
    if listener.pair is not None and listener.pair not in unwraps:
        hint = did_you_mean(listener.pair, unwraps)
        return f'there is no listener "{listener.pair}" with mode = "unwrap"; {hint}known: {listed(unwraps)}'
    return None


def _headers(settings: Settings, where: Where) -> Iterator[Problem]:
    """The headers of each envelope fit into its size."""
    for index, listener in enumerate(settings.listeners):
        if listener.mode is Mode.WRAP and listener.shallow.tags:
            try:
                envelope_headers(listener)
            except LocalProtocolError as error:
                yield Problem(where(index, "shallow.tags"), str(error))


class _Binding(NamedTuple):
    host: str
    first: int
    last: int
    where: str

    def __str__(self) -> str:
        return f"{self.first}-{self.last}" if self.last > self.first else f"{self.first}"


def _port_conflicts(settings: Settings, where: Where) -> Iterator[Problem]:
    bindings = [b for i, listener in enumerate(settings.listeners) for b in _bindings(listener, i, where)]
    if (admin := settings.admin.listen) is not None:
        bindings.append(_Binding(admin.host, admin.port, admin.port, "admin.listen"))
    for binding, other in itertools.combinations(bindings, 2):
        same_host = binding.host == other.host or {binding.host, other.host} & set(WILDCARDS)
        if same_host and binding.first <= other.last and other.first <= binding.last:
            shared = max(binding.first, other.first)
            what = f"port {shared} is also used by {binding.where} ({binding}): choose ports that do not overlap"
            yield Problem(f"{other.where} ({other})", what)


def _bindings(listener: ListenerSettings, index: int, where: Where) -> Iterable[_Binding]:
    yield _Binding(listener.host, listener.port, listener.port, where(index, "listen"))
    if isinstance(listener.nodes, PortRange):
        yield _Binding(listener.host, listener.nodes.first, listener.nodes.last, where(index, "ports"))
    elif isinstance(listener.nodes, PortMap):
        for port in listener.nodes.ports.values():
            yield _Binding(listener.host, port, port, where(index, "ports"))


# 0 switches these off; all other numbers must be above 0.
_MAY_BE_ZERO = (
    "min-batch-bytes",
    "claim-check-bytes",
    "drain-seconds",
    "linger-seconds",
    "close-seconds",
    "stall-report",
    "stall-exit",
    "coalescing.linger",
    "patience",
    "has-keys-sample",
)

_MOST = {
    "producer-slots": (MAX_PRODUCER_SLOTS, ", which take 512 MB"),
    "keepalive-idle": (32_767, " seconds (Linux)"),
    "keepalive-interval": (32_767, " seconds (Linux)"),
    "keepalive-count": (127, " (Linux)"),
    "connect-timeout": (1_000_000_000, ""),  # a thread (of a token endpoint) cannot wait for ten times as long
}


def _positive(settings: Settings, where: Where) -> Iterator[Problem]:
    numbers = [(f"limits.{name}", value) for name, value in _numbers(settings.limits)]
    for index, listener in enumerate(settings.listeners):
        numbers += [(where(index, f"shallow.{name}"), value) for name, value in _numbers(listener.shallow)]
        if listener.coalesce:
            numbers += [(where(index, f"coalescing.{name}"), value) for name, value in _numbers(listener.coalescing)]
        if listener.legacy:
            numbers += [
                (where(index, f"legacy-options.{name}"), value) for name, value in _numbers(listener.legacy_options)
            ]
        numbers.append((where(index, "max-connections"), listener.max_connections))
    if settings.capture is not None:
        numbers += [(f"capture.{name}", value) for name, value in _numbers(settings.capture)]
    if settings.raw_capture is not None:
        numbers += [(f"capture.raw.{name}", value) for name, value in _numbers(settings.raw_capture)]
    for place, value in numbers:
        if not value > 0 and not (value == 0 and place.endswith(_MAY_BE_ZERO)):  # nan is not above 0
            yield Problem(place, f"{value} is too small: it must be above 0")
        most, why = _most(place)
        if value > most:
            yield Problem(place, f"{value} is too large: at most {most}{why}")


def _most(place: str) -> tuple[float, str]:
    """Above it, the kernel or Python would refuse the number when it is used. (the largest, why)

    Any other time may be inf.
    """
    for key, most in _MOST.items():
        if place.endswith(key):
            return most
    return math.inf, ""


def _numbers(
    values: Limits | ShallowSettings | CoalesceSettings | LegacySettings | CaptureSettings | RawCaptureSettings,
) -> Iterator[tuple[str, float]]:
    for field in dataclasses.fields(values):
        value = getattr(values, field.name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield field.name.replace("_", "-"), value


def _coalescing(settings: Settings, where: Where) -> Iterator[Problem]:
    for index, listener in enumerate(settings.listeners):
        if listener.coalesce and listener.mode != Mode.PLAIN:
            what = f'needs mode = "plain", not "{listener.mode}": a mirror\'s requests are never joined'
            yield Problem(where(index, "coalesce"), what)
        limits = listener.coalescing
        if limits.request_bytes > limits.queue_bytes:
            what = f"{limits.request_bytes} is above queue-bytes ({limits.queue_bytes}): no request could reach it"
            yield Problem(where(index, "coalescing.request-bytes"), what)


def _access(settings: Settings, where: Where) -> Iterator[Problem]:
    for index, key, what in access_problems(settings):
        yield Problem(where(index, key), what)


def _logins(settings: Settings, where: Where) -> Iterator[Problem]:
    for index, key, what in login_problems(settings):
        yield Problem(where(index, key), what)


_CHUNKS = range(16 * KIB, MIB + 1)


def _legacy(settings: Settings, where: Where) -> Iterator[Problem]:
    for index, listener in enumerate(settings.listeners):
        if listener.legacy:
            for key, what in _legacy_problems(listener, settings.limits):
                yield Problem(where(index, key), what)


def _legacy_problems(listener: ListenerSettings, limits: Limits) -> Iterator[tuple[str, str]]:
    options = listener.legacy_options
    if listener.mode != Mode.PLAIN:
        yield (
            "legacy",
            f'needs mode = "plain", not "{listener.mode}": mirrors are never legacy clients',
        )
    if options.chunk_bytes not in _CHUNKS:
        yield "legacy-options.chunk-bytes", f"{options.chunk_bytes} is not between 16KiB and 1MiB"
    if options.fetch_bytes > limits.held_response_bytes:
        limit = limits.held_response_bytes
        what = f"{options.fetch_bytes} is above limits.held-response-bytes ({limit}): Shoal could not hold the response"
        yield "legacy-options.fetch-bytes", what
    if (least := options.fetch_bytes + 2 * options.chunk_bytes) > options.budget_bytes:
        what = f"{options.budget_bytes} is too small for one response: fetch-bytes plus two chunks are {least}"
        yield "legacy-options.budget-bytes", what


def _capture(settings: Settings) -> Iterator[Problem]:
    for place, capture in (("capture", settings.capture), ("capture.raw", settings.raw_capture)):
        if capture is not None and 0 < capture.max_bytes < 2 * capture.max_file_bytes:
            what = f"{capture.max_bytes} is below twice max-file-bytes ({capture.max_file_bytes}): room for two files"
            yield Problem(f"{place}.max-bytes", what)


def _workers(settings: Settings, where: Where) -> Iterator[Problem]:
    count = settings.workers
    if not 1 <= count <= MOST_WORKERS:
        yield Problem("workers", f"{count} is not between 1 and {MOST_WORKERS}")
        return
    for index, key, value in undivided(settings):
        written = key.replace("_", "-")
        what = f"{value} cannot be divided among {count} workers: it must be at least {count}, or workers smaller"
        yield Problem(written if index is None else where(index, written), what)
    if count > 1:
        yield from _shares(settings, where)


def _shares(settings: Settings, where: Where) -> Iterator[Problem]:
    """The last worker has the smallest share, and none of the mirrors."""
    share = share_of(settings, settings.workers)
    places = [index for index, listener in enumerate(settings.listeners) if listener.mode is Mode.PLAIN]

    def whole(index: int, key: str) -> str:
        return where(places[index], key)

    for rule in (_coalescing, _legacy, _access):
        known = set(rule(settings, where))
        for problem in rule(share, whole):
            if problem not in known:
                yield Problem(problem.where, f"{problem.what} (a part of 1/{settings.workers}: see workers)")
    least = settings.workers + 1
    for place, capture in (("capture", settings.capture), ("capture.raw", settings.raw_capture)):
        if capture is not None and 0 < capture.max_bytes < least * capture.max_file_bytes:
            most = f"{least} times max-file-bytes ({capture.max_file_bytes})"
            what = f"{capture.max_bytes} is below {most}: each worker has one"
            yield Problem(f"{place}.max-bytes", what)


def _log(settings: Settings) -> Iterator[Problem]:
    if not settings.log.report_every >= 0:  # nan is not
        yield Problem("log.report-every", f"{settings.log.report_every} is too small: 0 means never")


def _sizes(settings: Settings, where: Where) -> Iterator[Problem]:
    for index, listener in enumerate(settings.listeners):
        shallow = listener.shallow
        if listener.mode == Mode.WRAP and shallow.min_batch_bytes > shallow.run_limit > 0:
            what = f"{shallow.min_batch_bytes} is above run-limit ({shallow.run_limit}): nothing would ever be wrapped"
            yield Problem(where(index, "shallow.min-batch-bytes"), what)
        if listener.mode == Mode.WRAP and (problem := run_limit_problem(shallow, settings.limits)) is not None:
            yield Problem(where(index, "shallow.run-limit"), problem)
        elif listener.mode == Mode.WRAP and shallow.fetch_max_bytes > settings.limits.held_response_bytes:
            limit = settings.limits.held_response_bytes
            what = (
                f"{shallow.fetch_max_bytes} is above limits.held-response-bytes ({limit}): Shoal could not hold such a "
                "response"
            )
            yield Problem(where(index, "shallow.fetch-max-bytes"), what)


def _same_offsets(settings: Settings, where: Where) -> Iterator[Problem]:
    for index, listener in enumerate(settings.listeners):
        if listener.mode is not Mode.WRAP:
            continue
        if listener.shallow.same_offsets is None:
            if listener.shallow.follow_log_start:
                what = "needs same-offsets: other copies have other offsets than their source"
                yield Problem(where(index, "shallow.follow-log-start"), what)
            if listener.shallow.without_agent is WithoutAgent.ORDINARY:
                yield Problem(where(index, "shallow.without-agent"), "needs same-offsets: all topics are ordinary ones")
            continue
        if listener.shallow.without_agent is WithoutAgent.ORDINARY and listener.mirrored_file is None:
            what = 'is "ordinary": set state-dir, where it is kept which topics must not become ordinary'
            yield Problem(where(index, "shallow.without-agent"), what)
        if listener.shallow.partition_by_key:
            what = "needs a mirror that keeps partitions: not with partition-by-key"
            yield Problem(where(index, "shallow.same-offsets"), what)
        if listener.shallow.unpaired:
            what = "needs a pair in the same process, which says where the copies end: not with unpaired"
            yield Problem(where(index, "shallow.same-offsets"), what)


def _gaps(settings: Settings, where: Where) -> Iterator[Problem]:
    for index, listener in enumerate(settings.listeners):
        if listener.mode is Mode.WRAP and listener.shallow.on_gap is OnGap.STOP and listener.mirrored_file is None:
            what = 'is "stop": set state-dir, where gaps are acknowledged (shoal gaps)'
            yield Problem(where(index, "shallow.on-gap"), what)


def run_limit_problem(shallow: ShallowSettings, limits: Limits) -> str | None:
    """An envelope is held whole on both sides: in the Fetch response and in the Produce request."""
    for name, limit in (("response", limits.held_response_bytes), ("request", limits.held_request_bytes)):
        if shallow.run_limit + ENVELOPE_OVERHEAD > limit:
            most = limit - ENVELOPE_OVERHEAD
            return (
                f"{shallow.run_limit} is too large: at most {most}, so that Shoal can hold a {name} with such an "
                f"envelope (limits.held-{name}-bytes is {limit})"
            )
    return None
