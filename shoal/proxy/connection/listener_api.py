"""What a connection needs of its listener. The connection knows features and logins only through these interfaces.

They are generic in the connection, which has a layer above them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from shoal.proxy.connection.pending import C

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shoal.proxy.cluster.cluster import Cluster
    from shoal.proxy.config.settings import Address, Limits, ListenerSettings
    from shoal.proxy.connection.client_session import ClientSession
    from shoal.proxy.connection.clients import Clients
    from shoal.proxy.connection.meter import ApiTable
    from shoal.proxy.connection.pace import Pacing
    from shoal.proxy.connection.routes import RouteTable
    from shoal.proxy.events.logs import LogThrottle
    from shoal.proxy.net.transport import Buffer, SocketTransport
    from shoal.proxy.statistics import CloseCause, PathStatistics

__all__ = ["ListenerApi", "LoginApi", "Path"]


class Path(Protocol[C]):
    """A listener's mode. The core knows features only through this interface."""

    routes: RouteTable[C]

    def begin(self) -> None:
        """Before the first client: from now on its files are this process's. Raises OperatorError."""

    def opened(self, connection: C) -> None:
        """A client has sent its first bytes, and its broker is connected."""

    def closed(self, connection: C) -> None: ...

    def tick(self, now: float) -> None:
        """Called every second."""

    def use(self, settings: ListenerSettings) -> None:
        """New settings, as far as they are applied live or to new connections (`config/changes.py`)."""

    def statistics(self) -> tuple[PathStatistics, ...]: ...

    def gauges(self) -> Mapping[str, Mapping[str, float]]:
        """Present quantities beside the counters: by metric, then by label."""

    def status(self) -> dict[str, object]:
        """What /status of the admin listener says beside the counters: facts as JSON values, by name."""

    def end(self) -> None:
        """The listener is closed, and so are its connections."""


class LoginApi(Protocol[C]):
    """Clients log in at Shoal (listener/login)."""

    @property
    def routes(self) -> RouteTable[C]:
        """Those of the path, and of a later login."""

    @property
    def expired(self) -> RouteTable[C]:
        """Those of a connection whose session has ended."""

    async def log_in(self, connection: C, transport: SocketTransport) -> ClientSession | None:
        """None: the client is not let in, and the cause is noted.

        Raises RemoteProtocolError, PeerLost and UpstreamUnreachable.
        """


class ListenerApi(Protocol[C]):
    """The listener, for a connection and its routes."""

    @property
    def name(self) -> str: ...
    @property
    def settings(self) -> ListenerSettings: ...
    @property
    def cluster(self) -> Cluster: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def path(self) -> Path[C]: ...
    @property
    def clients(self) -> Clients: ...
    @property
    def apis(self) -> ApiTable | None:
        """Counters by API; None: they are not counted."""

    @property
    def routes(self) -> RouteTable[C]:
        """Those of the path, and the listener's own."""

    @property
    def pacing(self) -> Pacing: ...
    @property
    def first_routes(self) -> RouteTable[C] | None:
        """The routes of a connection whose client id is not known yet."""

    @property
    def login(self) -> LoginApi[C] | None: ...
    @property
    def throttle(self) -> LogThrottle: ...

    def advertise(self, address: Address, node_id: int, local_host: str) -> tuple[str, int]:
        """The address at which a client reaches the broker. Raises NoPort."""

    def learn(self, frame: Buffer, version: int) -> None:
        """Read from a Metadata answer what shallow mirroring and the index need."""

    def complain(self, event_id: str, text: str, /, **values: object) -> None:
        """Log an error that may recur on every connection, at a limited rate. `values`: the event's other fields."""

    def ended(self, connection: C, cause: CloseCause) -> None:
        """Both sockets of a connection are closed."""
