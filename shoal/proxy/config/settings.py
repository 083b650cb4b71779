"""The settings of the proxy: frozen, validated values.

`toml.py` and `cli/flags/mirror.py` make them from TOML and argv; nothing else in `proxy/` reads a file or a flag. A
field is a key of `shoal.toml`; its annotation gives the written form (`schema.py`), its default is the key's default.
Sizes are bytes, times are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 (schema.py resolves it)
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from shoal.proxy.config.security import (
    AccessSettings,
    ClusterTls,
    ListenerSasl,
    ListenerTls,
    NamedCredentials,
    Network,
    Routing,
    SaslSettings,
    Tags,
)

__all__ = [
    "DEFAULT_MIRROR_CLIENTS",
    "ENVELOPE_OVERHEAD",
    "KIB",
    "LARGEST_BATCH",
    "MIB",
    "WILDCARDS",
    "Address",
    "AdminSettings",
    "ApiKey",
    "CaptureSettings",
    "ClusterSettings",
    "CoalesceSettings",
    "Codec",
    "Directory",
    "Drain",
    "Isolation",
    "LegacySettings",
    "Limits",
    "ListenerSettings",
    "LogSettings",
    "Mode",
    "MultiBatch",
    "NodePorts",
    "OnGap",
    "PortMap",
    "PortRange",
    "RawCaptureSettings",
    "Regex",
    "SetCompression",
    "Settings",
    "ShallowSettings",
    "Size",
    "Tags",
    "TopicName",
    "WithoutAgent",
    "WorkerCount",
]

WILDCARDS = ("", "0.0.0.0", "::")  # all addresses
KIB = 1024
MIB = 1024 * 1024

# run-limit is the whole envelope; the producer's size estimate is slightly larger (AbstractRecords).
ENVELOPE_OVERHEAD = 4 * KIB

# max.message.bytes of a topic by default: a batch of a mirror topic is never raw, so it gets an envelope for itself.
LARGEST_BATCH = 1_048_588

# The data consumer of a MirrorSourceConnector names itself "<client.id>|source->target|...|replication-consumer"
# (MirrorSourceConfig.sourceConsumerConfig); its offset-sync and admin clients end otherwise.
DEFAULT_MIRROR_CLIENTS = r"\|replication-consumer$"

# Annotations for the written form of a value.
Size = Annotated[int, "size"]  # bytes, or "512KiB"
Regex = Annotated[str, "regular expression"]
TopicName = Annotated[str, "topic"]
WorkerCount = Annotated[int, "workers"]  # or "auto": usable cores
HostName = Annotated[str, "host"]  # for clients: no wildcard
ApiKey = Annotated[int, "api"]  # its name
Directory = Annotated[Path, "directory"]  # relative to the directory of shoal.toml
Codec = Literal["gzip", "snappy", "lz4", "zstd"]


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Mode(StrEnum):
    PLAIN = "plain"  # edits addresses only
    WRAP = "wrap"  # source side: puts fetched batches into envelopes
    UNWRAP = "unwrap"  # target side: opens produced envelopes


class MultiBatch(StrEnum):
    AUTO = "auto"  # several batches per partition and request, if the broker is proven to store them
    NEVER = "never"  # one batch per partition and request; no proof is tried


class SetCompression(StrEnum):
    SOURCE = "source"  # the batch's codec
    NONE = "none"


class Drain(StrEnum):
    """What Shoal does after SIGTERM."""

    AT_ONCE = "at-once"  # accept nothing, answer what was asked, end
    UNTIL_CLIENTS_GONE = "until-clients-gone"  # serve until the clients have gone; then the same


class Isolation(StrEnum):
    READ_COMMITTED = "read-committed"
    READ_UNCOMMITTED = "read-uncommitted"


class OnGap(StrEnum):
    REPORT = "report"  # a mirror that passes over source records is logged
    REPORT_RUNNING = "report-running"  # if one consumer does: other Shoals copy for the mirror, too
    STOP = "stop"  # and gets nothing more of the partition until an operator acknowledges it


class WithoutAgent(StrEnum):
    """A topic of `same_offsets` on whose target brokers none has the agent for it."""

    WAIT = "wait"
    ORDINARY = "ordinary"  # it is mirrored as other topics are


@dataclass(frozen=True, slots=True, kw_only=True)
class PortRange:
    """Broker ports come from `first`..`last` (inclusive), in the order in which brokers are discovered.

    With a `state_file` a broker keeps its port across restarts, and its port is bound at start-up.
    """

    first: int
    last: int
    state_file: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PortMap:
    """Node id -> listening port. A broker that is missing in the map is an error that names it."""

    ports: Mapping[int, int]


NodePorts = PortRange | PortMap


MAX_PRODUCER_SLOTS = 1_000_000  # of an unwrap listener


@dataclass(frozen=True, slots=True, kw_only=True)
class ShallowSettings:
    """Shallow mirroring (KIP-712). A wrap listener uses all of it except `plain_compression` and `producer_slots`,
    which are an unwrap listener's."""

    mirror_clients: Regex = DEFAULT_MIRROR_CLIENTS  # searched in the client id
    deep_topics: tuple[Regex, ...] = ()  # these topics are never wrapped
    same_offsets: Regex | None = None  # copies of source topics with such names (whole) are mirror topics of the agent
    without_agent: WithoutAgent = WithoutAgent.WAIT
    follow_log_start: bool = False  # records that the source of a mirror topic has deleted are deleted in the copy
    partition_by_key: bool = (
        False  # for mirrors that choose partitions by key hash (MirrorMaker 1, Brooklin); MirrorMaker 2 does not
    )
    run_limit: Size = 512 * KIB  # of one envelope; half of the producer's default max.request.size
    min_batch_bytes: Size = 4096  # smaller batches are better re-batched by the mirror itself
    claim_check_bytes: Size = 64 * MIB  # of answers whose batches stay here; 0: none
    fetch_max_bytes: Size = 8 * MIB  # of a response that may have to be held
    partition_max_bytes: Size = MIB
    tags: Tags = field(default_factory=dict)  # a header `shoal.tag.<name>` in each envelope
    same_cluster: bool = False  # the pair's cluster may be the source cluster
    any_producer: bool = False  # evidence counts from any producer (protocol/shallow/interlock/way_back.py)
    unpaired: bool = False  # wrap without an unwrap listener in this process
    on_gap: OnGap = OnGap.REPORT  # what happens to a partition of which a mirror passes over records
    evidence_seconds: float = 60.0  # envelopes must arrive at the pair within this time
    evidence_bytes: Size = 64 * MIB  # and before this many bytes are outstanding
    producer_slots: int = (
        16_384  # (producer id, partition) pairs of idempotent mirrors that are tracked at a time; 512 bytes each
    )
    plain_compression: Codec | None = None  # for batches that the mirror sends uncompressed

    @classmethod
    def of(cls, **written: Any) -> ShallowSettings:
        """A larger `run_limit` raises the default fetch sizes: a run is never longer than one fetch."""
        made = cls(**written)
        fetched = {
            name: max(getattr(made, name), made.run_limit) for name in ("fetch_max_bytes", "partition_max_bytes")
        }
        return cls(**(fetched | written))

    @property
    def partition_limit(self) -> int:
        """The partition's fetch limit, so that a fetch makes whole envelopes.

        A run ends before the batch that no longer fits. A fetch of 1 MiB would leave one or two batches over each time,
        which would need another envelope and request.
        """
        whole = self.partition_max_bytes // self.run_limit * self.run_limit
        return whole - self.run_limit // 8 if whole else self.partition_max_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CoalesceSettings:
    """Joining the produce requests of many clients. Limits are per lane (docs/coalescing.md) unless noted."""

    linger: float = 0.0  # an idle lane waits this long for more requests; 0: a lone client gets no added delay
    request_bytes: Size = MIB  # of a joined request: a producer's default max.request.size
    request_batches: int = 1000
    set_batches: int = 64  # per partition in a joined request, if the broker is proven to take them
    in_flight: int = 4  # joined requests without an answer, each on its own connection
    patience: float = 0.1  # before a request may overtake an unanswered one
    queue_bytes: Size = 32 * MIB  # unanswered bytes of the whole listener; above it, reading pauses
    ignore_client_ids: bool = False  # join clients with different ids (no quota depends on the id)


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacySettings:
    """Serving clients of Kafka 0.8-0.10 (KIP-283): memory limits, and the form of converted messages."""

    chunk_bytes: Size = (
        128 * KIB
    )  # of converted messages, made at a time; LazyDownConversionRecordsSend's MAX_READ_SIZE
    budget_bytes: Size = 64 * MIB  # fetched batches and chunks of the listener; requests wait when it is exhausted
    fetch_bytes: Size = MIB  # per response of the broker; a larger batch is still returned whole
    compression: SetCompression = SetCompression.SOURCE  # of converted sets
    isolation: Isolation = Isolation.READ_COMMITTED  # hides aborted records


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    name: str
    bootstrap: tuple[Address, ...]  # tried in turn
    multi_batch: MultiBatch = MultiBatch.AUTO
    probe_topic: TopicName | None = (
        None  # existing topic for the multi-batch proof; None: a scratch topic is created and deleted
    )
    tls: ClusterTls | None = None  # None: plaintext
    sasl: SaslSettings | None = None  # None: Shoal does not log in; clients do, through it
    credentials: tuple[NamedCredentials, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """One named listener: a bootstrap port and a port for every broker of its cluster."""

    name: str
    cluster: str
    host: str = "127.0.0.1"
    port: int = 9092
    nodes: NodePorts = field(default_factory=lambda: PortMap(ports={}))
    advertised_host: HostName | None = None  # None: `host`; for a wildcard, the address that the client connected to
    mode: Mode = Mode.PLAIN
    pair: str | None = None  # wrap: the name of the unwrap listener that the mirror produces to
    shallow: ShallowSettings = field(default_factory=ShallowSettings)
    coalesce: bool = False  # plain: join produce requests of several clients
    coalescing: CoalesceSettings = field(default_factory=CoalesceSettings)
    legacy: bool = False  # plain: serve clients that are too old for the brokers
    legacy_options: LegacySettings = field(default_factory=LegacySettings)
    producers_file: Path | None = None  # unwrap: the sequences of idempotent mirrors, kept over restarts
    mirrored_file: Path | None = None  # wrap: what mirrors have copied, kept over restarts
    max_connections: int = 10_000  # two descriptors and ~18 KiB each
    tls: ListenerTls | None = None  # None: plaintext
    routing: Routing = Routing.PORTS
    broker_host: str | None = None  # sni: the name of a broker, with {node} for its id
    advertised_port: int | None = None  # sni: of the load balancer in front; None: `port`
    sasl: ListenerSasl | None = None  # clients log in at Shoal
    principals: Tags = field(default_factory=dict)  # client principal, or *: name of the cluster's credentials
    access: AccessSettings = field(default_factory=AccessSettings)
    proxy_protocol: tuple[Network, ...] = ()  # peers whose PROXY protocol header is required and trusted

    @property
    def client_names(self) -> tuple[str, ...]:
        """Hosts that clients connect to, and so look for in the certificate; of the brokers' names one example."""
        host = self.advertised_host or self.host
        of_a_broker = () if self.broker_host is None else (self.broker_host.replace("{node}", "1"),)
        return () if host in WILDCARDS else (host.removesuffix("."), *of_a_broker)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of every connection, each with its reason."""

    frame_bytes: Size = 100 * MIB  # socket.request.max.bytes of a broker
    held_response_bytes: Size = 32 * MIB  # an edited response is held whole: Metadata for 100,000 partitions is ~10 MiB
    held_request_bytes: Size = 32 * MIB  # an unwrapped produce request is held whole
    in_flight: int = 10_000  # requests of one connection without an answer; a client's default is 5
    connect_timeout: float = 10.0  # for one bootstrap address or broker
    frame_timeout: float = 60.0  # for an incomplete frame
    stall_timeout: float = 600.0  # for a peer that reads nothing; connections.max.idle.ms of a broker
    idle_timeout: float | None = None  # brokers close idle connections themselves (connections.max.idle.ms)
    drain: Drain = Drain.AT_ONCE
    drain_wait_seconds: float = 15.0  # until-clients-gone; with drain-seconds below Kubernetes' 30 s
    drain_seconds: float = 10.0  # after SIGTERM and this wait, before connections are closed
    linger_seconds: float = 30.0  # a held request may finish for this long after its client disconnects
    close_seconds: float = 5.0  # time to flush the remaining side after the other closes
    keepalive_idle: int = 60
    keepalive_interval: int = 15
    keepalive_count: int = 4
    login_timeout: float = 10.0  # for a PROXY header, the TLS handshake and the SASL login together
    login_frame_bytes: Size = MIB  # of a client that has yet to log in; socket.request.max.bytes is for the others
    unauthenticated: int = 1000  # connections of all listeners that have yet to log in
    unauthenticated_per_address: int = 100
    stall_report: float = 2.0  # if the event loop is blocked for this long, its stacks are logged
    stall_exit: float = 30.0  # then the process exits: by now clients have timed out (request.timeout.ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["human", "json"] = "human"
    report_every: float = 5.0  # seconds between traffic summaries; 0 = none


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminSettings:
    """The admin listener: health, status and metrics over HTTP (docs/metrics.md). It has no login."""

    listen: Address | None = None  # None: off
    topic_labels: bool = False  # lag of each partition of a mirror, with its topic


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSettings:
    """The traffic index (docs/capture.md)."""

    directory: Directory
    max_file_bytes: Size = 128 * MIB
    roll_seconds: float = 300.0  # a file is closed at this age
    max_bytes: Size = 2048 * MIB  # of all index files in the directory, also those of other processes
    flush_seconds: float = 0.25
    has_keys_sample: int = 0  # inspect 1 in N batches for keys; 0 = off


@dataclass(frozen=True, slots=True, kw_only=True)
class RawCaptureSettings:
    """Whole frames in pcapng files. A frame must meet all conditions; an empty condition matches all."""

    directory: Directory
    topics: frozenset[str] = frozenset()
    clients: frozenset[str] = frozenset()  # client ids
    apis: frozenset[ApiKey] = frozenset()
    max_file_bytes: Size = 128 * MIB
    max_bytes: Size = 2048 * MIB  # of all raw captures in the directory; above it, the oldest are removed
    queue_bytes: Size = 64 * MIB  # frames waiting to be written; further ones are dropped and counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    clusters: tuple[ClusterSettings, ...]
    listeners: tuple[ListenerSettings, ...]
    limits: Limits = field(default_factory=Limits)
    log: LogSettings = field(default_factory=LogSettings)
    admin: AdminSettings = field(default_factory=AdminSettings)
    capture: CaptureSettings | None = None  # None: off
    tags: Tags = field(default_factory=dict)  # of all listeners and captures
    raw_capture: RawCaptureSettings | None = None
    state_dir: Directory | None = None  # as configured
    workers: WorkerCount = 1  # processes that serve clients (shoal/proxy/workers)

    def with_state_files(self) -> Settings:
        """Each listener has its files in `state_dir`."""
        return replace(self, listeners=tuple(self._with_state_files(listener) for listener in self.listeners))

    def _with_state_files(self, listener: ListenerSettings) -> ListenerSettings:
        nodes, producers_file, mirrored_file, directory = listener.nodes, None, None, self.state_dir
        if isinstance(nodes, PortRange):
            nodes = replace(nodes, state_file=directory and directory / f"{listener.name}.json")
        if directory is not None and listener.mode is Mode.UNWRAP:
            producers_file = directory / f"{listener.name}.producers"
        if directory is not None and listener.mode is Mode.WRAP:
            mirrored_file = directory / f"{listener.name}.mirrored"
        return replace(listener, nodes=nodes, producers_file=producers_file, mirrored_file=mirrored_file)

    @property
    def locked_files(self) -> list[Path]:
        """Those of `state_dir` that one process has at a time."""
        return [x.producers_file for x in self.listeners if x.producers_file is not None]

    @property
    def has_tls(self) -> bool:
        return any(x.tls for x in self.clusters) or any(x.tls for x in self.listeners)
