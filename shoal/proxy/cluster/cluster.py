"""One upstream cluster: addresses of its brokers, names and ids of its topics."""

from __future__ import annotations

import logging
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING

import trio

from shoal.protocol.capture.index.rows import ConnectionInfo
from shoal.protocol.messages.metadata import encode_metadata_request, read_metadata_response
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.framing import TLS_BROKER, ForeignProtocol
from shoal.proxy.cluster.multi_batch import MultiBatchProofs
from shoal.proxy.events.logs import LogThrottle, event, more_of_this_kind
from shoal.proxy.net.auth.identity import SaslTable
from shoal.proxy.net.auth.make import make_login
from shoal.proxy.net.broker_client import open_client
from shoal.proxy.net.transport import PeerLost
from shoal.proxy.net.upstream import Contact, Upstream, UpstreamRefused, UpstreamUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shoal.protocol.capture.index.tap import Tap
    from shoal.protocol.messages.metadata import MetadataResponse
    from shoal.protocol.wire.types import Topic
    from shoal.proxy.capture.index import Capture
    from shoal.proxy.config.reread import Reread
    from shoal.proxy.config.security import ClusterTls, SaslSettings
    from shoal.proxy.config.settings import Address, ClusterSettings, Limits
    from shoal.proxy.net.auth.broker_login import BrokerLogin
    from shoal.proxy.net.tls.contexts import TlsContext
    from shoal.proxy.net.transport import Transport

__all__ = ["CLIENT_ID", "Cluster", "NotAnswered", "NotLearned", "NotReached"]

log = logging.getLogger("shoal.cluster")

# Ids of topics that clients requested: a large cluster has 10,000 topics; an entry is ~200 bytes.
_TOPIC_LIMIT = 100_000
# With topic ids, known to all brokers since 2.8; topics are never created by it.
_METADATA_VERSION = 10
CLIENT_ID = "shoal"


class NotLearned(Exception):
    """The cluster did not answer the metadata request; the message says why."""


class NotAnswered(NotLearned):
    """A broker, or the kernel of one that hangs, accepted the connection, and nothing came in time."""


class NotReached(NotLearned):
    """No broker accepted a connection, or the address is not that of a Kafka broker."""


class Cluster:
    """Raises OperatorError if Shoal's credentials cannot be used."""

    def __init__(
        self,
        settings: ClusterSettings,
        limits: Limits,
        *,
        capture: Capture | None = None,
        will_be_asked: bool = False,
    ) -> None:
        self.name = settings.name
        self.settings = settings
        self.bootstrap = settings.bootstrap
        self.limits = limits
        self.logs_in = settings.sasl is not None  # clients do not, then
        self.has_principal = self.logs_in or (settings.tls is not None and settings.tls.certificate is not None)
        self.tls = None if settings.tls is None else _context(settings.name, settings.tls)
        self.contact = Contact(when_silent=self.did_not_answer)
        self._logins: list[BrokerLogin] = []
        self.upstream = self._upstream(settings.sasl, "sasl")
        self._may_have_tls: bool | None = None  # None: not tried
        self.anonymous = Upstream(limits, tls=self.tls, contact=self.contact)  # without a login
        self._upstreams = {
            named.name: self._upstream(named, f"credentials {named.name!r}") for named in settings.credentials
        }
        self.cluster_id: str | None = None
        self.when_identified: list[Callable[[str], None]] = []  # called with the cluster's id when it is known
        # Set when the first metadata request is answered or has failed; None: Shoal itself sends none.
        self.first_metadata = trio.Event() if will_be_asked else None
        self._demands_login = False
        self.brokers: dict[int, Address] = {}
        self.proofs = MultiBatchProofs(settings)
        self.capture = capture  # the traffic index
        self.throttle = LogThrottle()
        self.when_made_anew: list[Callable[[str], None]] = []  # called with the name of a topic that has another id now
        self._names: OrderedDict[bytes, str] = OrderedDict()
        self._ids: OrderedDict[str, bytes] = OrderedDict()
        self._partition_counts: OrderedDict[str, int] = OrderedDict()

    def _upstream(self, sasl: SaslSettings | None, key: str) -> Upstream:
        """Raises OperatorError."""
        login = None if sasl is None else make_login(sasl, SaslTable(key, self.name), self.limits)
        self._logins += [] if login is None else [login]
        return Upstream(self.limits, tls=self.tls, login=login, contact=self.contact)

    def prepare(self, settings: ClusterSettings, limits: Limits) -> Callable[[], None]:
        """-> what applies other settings, and cannot fail: connections begin with them from then on.

        Raises OperatorError.
        """
        made = None if _access(settings) == _access(self.settings) else Cluster(settings, limits)
        return partial(self._apply, settings, limits, made)

    def _apply(self, settings: ClusterSettings, limits: Limits, made: Cluster | None) -> None:
        if settings.bootstrap != self.settings.bootstrap:  # else those that do not answer are still the last ones
            self.bootstrap = settings.bootstrap
        self.settings, self.limits = settings, limits
        self.proofs.use(settings)
        if made is not None:
            self.logs_in, self.has_principal, self.tls = made.logs_in, made.has_principal, made.tls
            self._logins, self._may_have_tls, self.contact.no_broker = made._logins, None, None
            self.upstream, self.anonymous = made.upstream, made.anonymous
            self._upstreams |= made._upstreams  # open connections and their lanes may have names that are gone
        for upstream in (self.upstream, self.anonymous, *self._upstreams.values()):
            upstream.limits, upstream.contact = limits, self.contact

    def reread_secrets(self) -> list[Reread]:
        """Every login reads them anyway; this tells now whether the next one can."""
        return [found for login in self._logins if (found := login.reread()) is not None]

    def __repr__(self) -> str:
        return f"<Cluster {self.name!r}>"

    def addresses(self, node_id: int | None) -> Sequence[Address]:
        """The addresses of a broker; for None or an unknown one the bootstrap addresses."""
        known = None if node_id is None else self.brokers.get(node_id)
        return (known,) if known else self.bootstrap

    def did_not_answer(self, address: Address | None) -> None:
        """It may accept connections, or its kernel does. If it is a bootstrap broker, the others are tried first from
        now on: with one that hangs, nothing else would find the cluster.
        """
        if address in self.bootstrap:
            self.bootstrap = (*(known for known in self.bootstrap if known != address), address)

    def upstream_with(self, credentials: str | None) -> Upstream:
        """The way to the brokers with named credentials; None: those of `[cluster.sasl]`, or none."""
        return self.upstream if credentials is None else self._upstreams[credentials]

    @property
    def credentials(self) -> Sequence[str]:
        """The names for `upstream_with`."""
        return list(self._upstreams)

    @property
    def demands_login(self) -> bool:
        """Clients must log in at the brokers, as far as it is known."""
        return self._demands_login

    def note_login(self, *, is_demanded: bool) -> None:
        self._demands_login = is_demanded

    def watched(
        self, upstream: Transport, listener: str, node_id: int | None, number: int
    ) -> tuple[Tap | None, Transport]:
        """For a new connection to a broker, of client connection `number`: its tap for the index, and its transport."""
        if self.capture is None:
            return None, upstream
        node = -1 if node_id is None else node_id
        return self.capture.tap(
            upstream, ConnectionInfo(connection=number, listener=listener, cluster=self.name, node=node)
        )

    def status(self) -> dict[str, object]:
        """For the admin listener: facts as JSON values."""
        proofs = self.proofs.proofs()
        return {
            "name": self.name,
            "id": self.cluster_id,
            "bootstrap": [str(address) for address in self.bootstrap],
            "brokers": {str(node): str(address) for node, address in sorted(self.brokers.items())},
            "last_connect_failed": self.contact.problem,
            "multi_batch": {
                str(node): {"result": proof.result.value, "why": proof.why, "remedy": proof.remedy}
                for node, proof in sorted(proofs.items())
            },
        }

    def topic_name(self, topic_id: bytes) -> str | None:
        return self._names.get(topic_id)

    def topic_id(self, name: str) -> bytes | None:
        return self._ids.get(name)

    def partition_name(self, topic: Topic, partition: int) -> str:
        """For logs."""
        return f"{self.shown_topic(topic)}-{partition}"

    def shown_topic(self, topic: Topic) -> str:
        """Its name, or its id if the name is not known."""
        return self.topic_name(topic) or topic.hex() if isinstance(topic, bytes) else topic

    def partition_count(self, topic: str) -> int | None:
        return self._partition_counts.get(topic)

    def learn(self, metadata: MetadataResponse) -> None:
        """Take the cluster's id, its topics' ids and their numbers of partitions from a Metadata answer."""
        if metadata.cluster_id and metadata.cluster_id != self.cluster_id:
            self._identified(metadata.cluster_id)
        names, ids, counts = self._names, self._ids, self._partition_counts
        for (name, topic_id), count in zip(metadata.topics, metadata.partition_counts, strict=True):
            if name is not None and topic_id is not None:
                is_new = topic_id not in names  # else a broker that lags behind may name a deleted topic
                names[topic_id] = name
                before = ids.get(name)
                if before is None or is_new:
                    ids[name] = topic_id
                if before is not None and before != ids[name]:
                    self._made_anew(name)
            if name is not None and count:
                counts[name] = count
        for known in (names, ids, counts):
            while len(known) > _TOPIC_LIMIT:
                known.popitem(last=False)

    def _identified(self, cluster_id: str) -> None:
        if self.cluster_id is not None:
            self._log_other_id(self.cluster_id, cluster_id)
        self.cluster_id = cluster_id
        for identified in self.when_identified:
            identified(cluster_id)

    def identify(self, cluster_id: str) -> None:
        """Another worker has asked the brokers."""
        if cluster_id != self.cluster_id:
            self._identified(cluster_id)

    def _log_other_id(self, former: str, now: str) -> None:
        """With addresses of two clusters, each answer may change it."""
        if (left_out := self.throttle.admit("cluster-id-changed", former, now)) is not None:
            text = (
                f"cluster {self.name!r} has another id than before: {now}, not {former}: do its bootstrap addresses "
                f"lead to two clusters?{more_of_this_kind(left_out)}"
            )
            values = event(text, cluster=self.name, cluster_id=now, former_id=former, left_out=left_out or None)
            log.error("cluster-id-changed", extra=values)

    async def until_identified(self) -> None:
        """Or until its id cannot be known yet: Shoal's state files may belong to another cluster."""
        if self.first_metadata is not None and self.cluster_id is None:
            await self.first_metadata.wait()

    def _made_anew(self, name: str) -> None:
        """The topic was deleted and recreated."""
        if (left_out := self.throttle.admit("topic-recreated", name)) is not None:
            text = f"topic {name} of cluster {self.name!r} was made anew{more_of_this_kind(left_out)}"
            values = event(text, cluster=self.name, topic=name, left_out=left_out or None)
            log.info("topic-recreated", extra=values)
        for forget in self.when_made_anew:
            forget(name)

    async def _has_tls(self) -> bool:
        """Whether brokers of a cluster without `tls` use it. Not asked after a no: a plaintext broker logs an error."""
        if self.tls is None and self._may_have_tls is not False:
            from shoal.proxy.net.tls.look import speaks_tls

            self._may_have_tls = await speaks_tls(self.bootstrap)
        return bool(self._may_have_tls)

    async def ask_metadata(self, topics: Sequence[str] | None = ()) -> MetadataResponse:
        """Ask a bootstrap broker over a new connection; None: all topics.

        Raises NotLearned; a cluster that requires SASL does not answer without `[cluster.sasl]`.
        """
        request = encode_metadata_request(_METADATA_VERSION, 0, CLIENT_ID, topics)
        try:
            with (
                open_client(self.upstream, self.bootstrap) as client,
                trio.fail_after(self.limits.connect_timeout * (len(self.bootstrap) + 1)),
            ):
                frame = await client.exchange(request)
            metadata = read_metadata_response(frame, _METADATA_VERSION)
        except trio.TooSlowError:
            self.did_not_answer(client.address)
            raise NotAnswered("no answer in time") from None
        except UpstreamRefused as error:
            raise NotReached(str(error)) from error
        except UpstreamUnreachable as error:
            raise NotReached(f"{error}: check the address" if self.tls is None else str(error)) from error
        except PeerLost as error:
            if error.is_refusal:
                raise NotReached(f"{', '.join(map(str, self.bootstrap))}: {error}") from error
            if await self._has_tls():
                raise self._no_broker(TLS_BROKER) from error
            self.contact.no_broker = None
            self.note_login(is_demanded=not self.logs_in)  # without TLS or SASL, brokers answer
            raise NotLearned(f"{error}: does it want SASL or TLS?") from error
        except ForeignProtocol as error:
            raise self._no_broker(str(error)) from error
        except RemoteProtocolError as error:
            raise NotLearned(str(error)) from error
        self.contact.no_broker = None
        self.note_login(is_demanded=False)
        self.learn(metadata)
        return metadata

    def _no_broker(self, why: str) -> NotReached:
        """Connections alone would look as if brokers answered."""
        self.contact.no_broker = f"{', '.join(map(str, self.bootstrap))}: {why}"
        return NotReached(self.contact.no_broker)


def _access(settings: ClusterSettings) -> object:
    return settings.tls, settings.sasl, settings.credentials


def _context(name: str, tls: ClusterTls) -> TlsContext:
    """Raises OperatorError."""
    from shoal.proxy.net.tls.contexts import TlsContext

    return TlsContext(tls, f"cluster {name!r}")
