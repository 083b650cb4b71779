"""The JSON of the admin listener, as far as these commands read it. Keys of other versions of Shoal may be missing."""

from __future__ import annotations

from msgspec import Struct, field

__all__ = [
    "Capture",
    "Certificate",
    "Client",
    "Clients",
    "Cluster",
    "Flow",
    "Listener",
    "Mirror",
    "Ready",
    "Status",
    "Worker",
]


class Versions(Struct):
    api: str
    oldest: int
    newest: int


class Client(Struct, kw_only=True):
    listener: str = ""
    client_id: str | None = None
    host: str = ""
    principal: str | None = None
    software: str | None = None
    software_version: str | None = None
    connections: int = 0
    opened: int = 0
    last_seen: str = ""
    requests: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    blocks_kafka_4: bool = False
    blocking: list[str] = field(default_factory=list)
    apis: list[Versions] = field(default_factory=list)
    other_apis: bool = False
    clients: int = 1


class Clients(Struct):
    clients: list[Client]
    others: Client | None = None


class Topic(Struct, kw_only=True):
    topic: str
    state: str
    why: str | None = None


class Flow(Struct, kw_only=True):
    client_id: str
    peer: str = ""
    connections: int = 0
    number_of_topics: int = 0
    topics: list[Topic] = field(default_factory=list)


class Mirror(Struct, kw_only=True):
    mirror: str
    partitions: int = 0
    unknown: int = 0
    lag_records: int = 0
    lag_bytes: int = 0
    lag_seconds: float = 0.0


class StoppedCopy(Struct, kw_only=True):
    topic: str
    partition: int = 0
    why: str = ""


class SameOffsets(Struct, kw_only=True):
    number_of_partitions: int = 0
    stopped: list[StoppedCopy] = field(default_factory=list)
    ordinary: list[str] = field(default_factory=list)
    undecided: dict[str, str] = field(default_factory=dict)


class Listener(Struct, kw_only=True):
    """Keys of other modes are empty."""

    name: str
    mode: str = ""
    cluster: str = ""
    address: str = ""
    tls: bool = False
    coalesce: bool = False
    legacy: bool = False
    connections: int = 0
    in_flight: int = 0
    state_errors: int = 0
    closed: dict[str, int] = field(default_factory=dict)
    traffic: dict[str, int] = field(default_factory=dict)
    flows: list[Flow] = field(default_factory=list)
    clusters_differ: bool | None = None
    mirrors: list[Mirror] = field(default_factory=list)
    raw_batches: dict[str, int] = field(default_factory=dict)
    mismatches: dict[str, int] = field(default_factory=dict)
    gaps: dict[str, int] = field(default_factory=dict)
    stopped_partitions: int = 0
    same_offsets: SameOffsets | None = None


class Cluster(Struct, kw_only=True):
    name: str
    id: str | None = None
    bootstrap: list[str] = field(default_factory=list)
    brokers: dict[str, str] = field(default_factory=dict)
    last_connect_failed: str | None = None


class Certificate(Struct, kw_only=True):
    where: str
    setting: str = ""
    file: str = ""
    subject: str = ""
    expires: str


class Capture(Struct, kw_only=True):
    """`dropped` in the index, `lost` in the raw capture."""

    written: int = 0
    dropped: int = 0
    lost: int = 0


class Worker(Struct, kw_only=True):
    """One of several processes. `answers`: within the time of one page."""

    worker: int
    pid: int = 0
    state: str = ""
    answers: bool = True
    started: str | None = None
    connections: int = 0
    loop_lag_seconds: float | None = None


class Status(Struct, kw_only=True):
    version: str
    pid: int
    host: str = ""
    started: str = ""
    state: str = ""
    loop_lag_seconds: float = 0.0
    listeners: list[Listener]
    clusters: list[Cluster] = field(default_factory=list)
    certificates: list[Certificate] = field(default_factory=list)
    capture: Capture | None = None
    raw_capture: Capture | None = None
    workers: list[Worker] = field(default_factory=list)


class Ready(Struct, kw_only=True):
    """`clusters`, `listeners` and `workers`: by name or number, why it is not ready."""

    ready: bool
    clusters: dict[str, str | None] = field(default_factory=dict)
    listeners: dict[str, str | None] = field(default_factory=dict)
    workers: dict[str, str | None] = field(default_factory=dict)
