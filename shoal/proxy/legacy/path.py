"""The path of a listener with `legacy = true`: clients of Kafka 0.8-0.10 on brokers without their versions (KIP-896).

    Fetch v0-v3              -> fetch.py: fetched in a newer version, converted piece by piece (KIP-283)
    Produce v0-v2            -> produce.py: converted to v2 batches, produced as v3
    ListOffsets v0, ...      -> translated.py: the same request in a newer version (protocol/legacy/translate.py)
    ApiVersions              -> minima are lowered to the translated versions
    Metadata v0-v2, ...      pass; only error codes unknown to such a client are replaced (protocol/legacy/answers.py)
    everything else          the path below: plain, or coalescing

Newer versions of these APIs use the path below, so old and new clients may share a listener. Requests after a
translated one wait for its answer: a broker also handles the requests of a connection one by one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from shoal.protocol.legacy.answers import CHECKED, say_known
from shoal.protocol.legacy.errors import CLIENT_VERSIONS, downgrade_error, newest_spoken
from shoal.protocol.legacy.translate import TRANSLATIONS
from shoal.protocol.legacy.versions import UPSTREAM_VERSION, lower_minima
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.headers import read_request_prefix
from shoal.proxy.connection.pending import EditAnswer
from shoal.proxy.connection.routes import Decision, Route, Wait, table
from shoal.proxy.legacy.budget import GRACE
from shoal.proxy.legacy.clients import LegacyClients
from shoal.proxy.legacy.counters import LegacyTally
from shoal.proxy.legacy.fetch import LegacyFetches
from shoal.proxy.legacy.produce import MAX_PLAIN, LegacyProduces
from shoal.proxy.legacy.session import QUIET_SECONDS
from shoal.proxy.legacy.translated import answer_translated
from shoal.proxy.listener.plain import PlainPath

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shoal.protocol.schema.headers import RequestHeader
    from shoal.protocol.wire.types import Buffer
    from shoal.proxy.config.settings import ListenerSettings
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.listener_api import Path
    from shoal.proxy.connection.pending import Answer, PendingAnswer
    from shoal.proxy.connection.routes import RouteTable
    from shoal.proxy.listener.listener import Listener
    from shoal.proxy.statistics import PathStatistics

__all__ = ["LegacyPath"]

_SERVED_BELOW = {**UPSTREAM_VERSION, ApiKey.FETCH: 4}
"""API -> the first version that is not translated; from Fetch v4 on, record sets are those of the log."""


class LegacyPath:
    """`base` (default: the plain path) serves requests without translation; `settings`: `[listener.legacy-options]`.

    `grace`: seconds, of the budget; `quiet`: seconds, of a connection's KeepAlive; `max_plain`: bytes of a message set.
    """

    def __init__(
        self,
        listener: Listener,
        base: Path[Connection] | None = None,
        *,
        grace: float = GRACE,
        quiet: float = QUIET_SECONDS,
        max_plain: int = MAX_PLAIN,
    ) -> None:
        self.listener = listener
        self.base: Path[Connection] = base or PlainPath(listener)
        self.settings = listener.settings.legacy_options
        self.clients = LegacyClients(listener.name)
        self.tally = LegacyTally()
        self.fetches = LegacyFetches(self.settings, self.tally, self.clients.shown, grace=grace, quiet=quiet)
        self._handles = {
            ApiKey.FETCH: self.fetches.handle,
            ApiKey.PRODUCE: LegacyProduces(self.tally, self.clients.shown, max_plain=max_plain).handle,
            **dict.fromkeys(TRANSLATIONS, self._translate),
        }
        own = {key: self._spoken(key) for key in CLIENT_VERSIONS}
        own[ApiKey.API_VERSIONS] = self._versions()
        self.routes: RouteTable[Connection] = table({**self.base.routes, **own})

    # -- routes ----------------------------------------------------------------------------------------------------

    def _spoken(self, key: int) -> Route[Connection]:
        """Old versions of an API are held for its handler, or pass with checked error codes; new ones use the base."""
        below = self.base.routes.get(key) or Route()
        ours, newest = _SERVED_BELOW.get(key, 0), newest_spoken(key)
        checked = EditAnswer(partial(self._downgrade_errors, below.answer)) if key in CHECKED else None

        def decide(connection: Connection, first: memoryview) -> Answer[Connection] | Decision | Wait | None:
            _, _, version, _ = read_request_prefix(first)
            decision = _of_base(below, connection, first, version)
            if not 0 <= version <= newest or decision is Decision.MORE or isinstance(decision, Wait):
                return decision
            if version >= ours:
                return checked or decision
            self.clients.translated(connection)
            return Decision.HOLD

        return Route(decide=decide, handle=self._handles.get(key), takes=below.takes)

    def _versions(self) -> Route[Connection]:
        below = self.base.routes[ApiKey.API_VERSIONS]

        def decide(connection: Connection, first: memoryview) -> Answer[Connection] | Decision | Wait | None:
            _, _, version, _ = read_request_prefix(first)
            decision = _of_base(below, connection, first, version)
            return EditAnswer(partial(_offer, decision)) if isinstance(decision, EditAnswer) else decision

        return Route(decide=decide, handle=below.handle)

    async def _translate(self, connection: Connection, frame: bytearray, header: RequestHeader) -> None:
        await answer_translated(connection, frame, header, self.clients.shown(connection))

    def _downgrade_errors(
        self, below: Answer[Connection] | None, connection: Connection, entry: PendingAnswer, frame: Buffer
    ) -> Buffer | Sequence[Buffer]:
        key, version, at_least = entry.api_key, entry.api_version, self.clients.shown(connection)
        said = say_known(frame, key, version, lambda code: downgrade_error(key, version, code, at_least))
        return below.edit(connection, entry, said) if isinstance(below, EditAnswer) else said

    # -- connections -----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        self.base.begin()

    def opened(self, connection: Connection) -> None:
        self.base.opened(connection)

    def closed(self, connection: Connection) -> None:
        self.fetches.closed(connection)
        self.base.closed(connection)

    def use(self, settings: ListenerSettings) -> None:
        self.settings = self.fetches.settings = settings.legacy_options
        self.base.use(settings)

    def tick(self, now: float) -> None:
        self.clients.tick(now)
        self.base.tick(now)

    def statistics(self) -> tuple[PathStatistics, ...]:
        return (self.fetches.statistics(), *self.base.statistics())

    def gauges(self) -> Mapping[str, Mapping[str, float]]:
        below = self.base.gauges()
        held = {**below.get("held_bytes", {}), "legacy": self.fetches.budget.size - self.fetches.budget.free}
        return {**below, "held_bytes": held}

    def status(self) -> dict[str, object]:
        return {**self.base.status(), "legacy_clients": self.clients.status()}

    def end(self) -> None:
        self.clients.tick(float("inf"))
        self.base.end()


def _of_base(
    below: Route[Connection], connection: Connection, first: memoryview, version: int
) -> Answer[Connection] | Decision | Wait | None:
    if version < below.since:
        return None
    return below.answer if below.decide is None else below.decide(connection, first)


def _offer(
    below: EditAnswer[Connection], connection: Connection, entry: PendingAnswer, frame: Buffer
) -> Buffer | Sequence[Buffer]:
    return below.edit(connection, entry, lower_minima(frame, entry.api_version))
