"""KRaft clusters of real brokers on this machine.

A cluster starts with n combined nodes (broker and controller; 1 or 3), all voters. Brokers can be added later. Nodes
keep ports and data across restarts, under one work directory: `node-<id>/{server.properties,data,log}`.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

import trio
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from .content.clients import client_config
from .errors import HarnessError, NotReady
from .java.jars import DEFAULT_VERSION, jars
from .java.jvm import Jvm, agent_option, jmx_options, write_properties
from .ports import LOOPBACK
from .process import Process, Usage, together, until
from .security.certificates import LOCAL_NAMES, Identity
from .security.clients import ANYBODY, ClientSecurity
from .security.kdc import Kdc
from .security.listeners import BrokerSecurity, BrokerTls
from .security.tokens import TokenIssuer
from .settings import NodeSettings, Ports, new_cluster_id, scram_arguments

START_TIMEOUT_S = 180.0  # 10 s, on a machine that has nothing else to do
STOP_TIMEOUT_S = 30.0
_MAX_REPLICATION = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    version: str = DEFAULT_VERSION
    nodes: int = 1
    properties: Mapping[str, str] = field(default_factory=dict)
    """Broker properties that override those of `settings.py`."""
    users: Mapping[str, str] = field(default_factory=dict)
    """Passwords by name, for SASL PLAIN and SCRAM on `Cluster.sasl_bootstrap`."""
    tls: BrokerTls | None = None
    """With it, `Cluster.ssl_bootstrap`, and with users or tokens `Cluster.sasl_ssl_bootstrap`."""
    tokens: TokenIssuer | None = None
    """With it, SASL OAUTHBEARER."""
    kdc: Kdc | None = None
    """With it, SASL GSSAPI; clients of secured listeners know the brokers as localhost."""
    reauthenticate_ms: Mapping[str, int] = field(default_factory=dict)
    """How long a SASL session lasts (KIP-368), by mechanism; without an entry it does not end."""
    proxied_as: str | None = None
    """A host name, `{}` for the node id: brokers get a listener that advertises it (`Node.proxied_address`), and the
    secured listeners advertise it. A name that only a proxy resolves is unreachable for a client without the proxy."""
    relayed_as: Mapping[str, str] = field(default_factory=dict)
    """More plaintext listeners: by name in capitals, the host that each advertises (`Ports.relayed`)."""
    jmx: bool = False
    """Expose the brokers' metrics (`metrics.py`)."""
    heap: str = "512m"
    quick: bool = True
    """See `Jvm.quick`: False where CPU or throughput is measured."""
    jvm_options: tuple[str, ...] = ()
    """JVM options of the brokers, such as "-Xlog:gc"."""
    agent: bool = False
    """Brokers accept several batches per partition in a Produce request: `Node.agent` of every node."""


class Node:
    """One broker process and its directory."""

    agent: bool
    """Start with the Java agent of `agent/` (`make agent` builds it). Can change between a stop and a start."""

    def __init__(self, settings: NodeSettings, jvm: Jvm, home: Path, *, agent: bool, login: ClientSecurity) -> None:
        self.settings = settings
        self.home = home
        self.agent = agent
        self._jvm = jvm
        self._login = login
        self._config = write_properties(home / "server.properties", settings.properties())
        self._process: Process | None = None

    @property
    def address(self) -> str:
        """Without TLS and SASL, if the broker has such a listener."""
        ports = self.settings.ports
        return f"{LOOPBACK}:{ports.secured['SSL'] if self.settings.security.only_tls else ports.plaintext}"

    @property
    def sasl_address(self) -> str:
        return self.secured_address("SASL")

    @property
    def ssl_address(self) -> str:
        return self.secured_address("SSL")

    @property
    def sasl_ssl_address(self) -> str:
        return self.secured_address("SASL_SSL")

    def secured_address(self, listener: str) -> str:
        """Raises HarnessError when the broker has no such listener."""
        if listener not in self.settings.security.listeners:
            raise HarnessError(f"node {self.settings.node_id} has no listener {listener}: see ClusterSpec")
        return f"{self.settings.security.host}:{self.settings.ports.secured[listener]}"

    @property
    def proxied_address(self) -> str:
        """The address of the listener that `ClusterSpec.proxied_as` asks for."""
        return f"{LOOPBACK}:{self.settings.ports.proxied}"

    @property
    def process(self) -> Process:
        """Raises HarnessError when it was never started."""
        if self._process is None:
            raise HarnessError(f"node {self.settings.node_id} was not started")
        return self._process

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    @property
    def log(self) -> Path:
        return self.home / "log"

    @property
    def data(self) -> Path:
        return self.settings.data

    async def format(self, cluster_id: str) -> None:
        arguments = [
            "format",
            "-t",
            cluster_id,
            "-c",
            str(self._config),
            *scram_arguments(self.settings.security.users),
        ]
        argv = self._jvm.argv("kafka.tools.StorageTool", *arguments)
        formatter = Process(argv, log=self.home / "format.log", name=f"format {self.settings.node_id}")
        await until(lambda: not formatter.running, within=START_TIMEOUT_S, what="format")
        if formatter.exit_code != 0:
            raise NotReady(f"node {self.settings.node_id} could not be formatted\n{formatter.tail()}")

    async def start(self) -> None:
        """Returns once this node answers and lists itself as a broker.

        Raises NotReady with the end of its log, SetupError when the agent is not built.
        """
        if self.running:
            raise HarnessError(f"node {self.settings.node_id} is running already")
        agent = (agent_option(),) if self.agent else ()
        argv = replace(self._jvm, options=(*self._jvm.options, *agent)).argv("kafka.Kafka", str(self._config))
        self._process = Process(argv, log=self.log, name=f"broker {self.settings.node_id}")
        try:
            await self._process.until_printed("Kafka Server started", within=START_TIMEOUT_S)
            await self.wait_for_brokers({self.settings.node_id})
        except BaseException:
            self._process.kill()
            raise

    async def wait_for_brokers(self, wanted: set[int]) -> None:
        """Wait until this node lists all `wanted` node ids. Raises NotReady."""
        await wait_for_brokers(self.address, wanted, process=self._process, login=self._login)

    async def become(self, version: str) -> None:
        """The next start uses this version. metadata.version is kept, so a downgrade works. Raises SetupError."""
        self._jvm = replace(self._jvm, lib=await jars(version))

    def kill(self) -> None:
        self.process.kill()

    async def stop(self) -> bool:
        """A controlled shutdown; True if it ended in time."""
        return await self.process.stop(STOP_TIMEOUT_S)


async def wait_for_brokers(
    bootstrap: str,
    wanted: set[int],
    *,
    within: float = START_TIMEOUT_S,
    process: Process | None = None,
    login: ClientSecurity = ANYBODY,
) -> None:
    """Wait until the metadata of `bootstrap` lists all `wanted` node ids. Raises NotReady."""
    admin = AdminClient(client_config(bootstrap, login))

    def named() -> bool:
        try:
            return wanted <= set(admin.list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    what = f"{bootstrap} to name brokers {sorted(wanted)}"
    await until(partial(trio.to_thread.run_sync, named), within=within, what=what, process=process)


class Cluster:
    """Use `Cluster.start` or `running_cluster`."""

    def __init__(self, work: Path, spec: ClusterSpec, jvm: Jvm) -> None:
        self.spec = spec
        self.work = work
        self.cluster_id = new_cluster_id()
        self.nodes: dict[int, Node] = {}
        self._jvm = jvm
        ports = {node_id: Ports.draw(spec.relayed_as) for node_id in range(1, spec.nodes + 1)}
        self._voters = {node_id: drawn.controller for node_id, drawn in ports.items()}
        for node_id, drawn in ports.items():
            self._new_node(node_id, drawn)

    @classmethod
    async def start(cls, work: Path, spec: ClusterSpec | None = None) -> "Cluster":
        """Raises SetupError (no Java, no jars, no agent) or NotReady; then no process is left running."""
        spec = spec or ClusterSpec()
        cluster = cls(work, spec, Jvm(lib=await jars(spec.version), heap=spec.heap, quick=spec.quick))
        try:
            await cluster._bring_up(*cluster.nodes)
        except BaseException:
            cluster.kill_all()
            raise
        return cluster

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self.nodes.values())

    @property
    def sasl_bootstrap(self) -> str:
        return ",".join(node.sasl_address for node in self.nodes.values())

    @property
    def ssl_bootstrap(self) -> str:
        return ",".join(node.ssl_address for node in self.nodes.values())

    @property
    def sasl_ssl_bootstrap(self) -> str:
        return ",".join(node.sasl_ssl_address for node in self.nodes.values())

    @cached_property
    def login(self) -> ClientSecurity:
        """How a client of `bootstrap` connects: without TLS, unless the cluster has only TLS."""
        tls = self.spec.tls
        if tls is None or not tls.only:
            return ANYBODY
        needs_identity = tls.client_auth == "required" and tls.client_ca is None
        identity = tls.authority.client("harness") if needs_identity else None
        return ClientSecurity(ca=tls.authority.certificate, identity=identity)

    async def add_broker(self) -> Node:
        """A new node with the next id, broker only. Returns once the whole cluster knows it."""
        node_id = max(self.nodes) + 1
        self._new_node(node_id, Ports.draw(self.spec.relayed_as))
        await self._bring_up(node_id)
        return self.nodes[node_id]

    async def revive(self) -> None:
        """Start every node that is not running. Raises NotReady."""
        dead = [node for node in self.nodes.values() if not node.running]
        if dead:
            await together(*(node.start for node in dead))
            await self.wait_whole()

    async def wait_whole(self) -> None:
        """Wait until every running node lists every running node. Raises NotReady."""
        running = {node_id for node_id, node in self.nodes.items() if node.running}
        nodes = [self.nodes[node_id] for node_id in running]
        await together(*(partial(node.wait_for_brokers, running) for node in nodes))

    def usage(self) -> Usage:
        """Sum over all running nodes."""
        nothing = Usage(cpu_s=0.0, peak_mib=0.0)
        return sum((node.process.usage() for node in self.nodes.values() if node.running), start=nothing)

    def kill_all(self) -> None:
        for node in self.nodes.values():
            if node.running:
                node.kill()

    async def stop(self) -> None:
        """Stop brokers first, then all voters together; never leaves one running."""
        running = [node for node in self.nodes.values() if node.running]
        for is_controller in (False, True):
            await together(*(node.stop for node in running if node.settings.is_controller is is_controller))

    def _new_node(self, node_id: int, ports: Ports) -> None:
        home = self.work / f"node-{node_id}"
        settings = NodeSettings(
            node_id=node_id,
            ports=ports,
            voters=self._voters,
            data=home / "data",
            replication=min(self.spec.nodes, _MAX_REPLICATION),
            security=BrokerSecurity(
                users=self.spec.users,
                tls=self.spec.tls,
                identity=self._identity(node_id),
                tokens=self.spec.tokens,
                kdc=self.spec.kdc,
                reauthenticate_ms=self.spec.reauthenticate_ms,
            ),
            proxied_as=self.spec.proxied_as,
            relayed_as=self.spec.relayed_as,
            quick=self.spec.quick,
            overrides=self.spec.properties,
        )
        jmx = jmx_options(ports.jmx) if self.spec.jmx else ()
        options = (*self._jvm.options, *jmx, *settings.security.jvm_options, *self.spec.jvm_options)
        jvm = replace(self._jvm, options=options)
        self.nodes[node_id] = Node(settings, jvm, home, agent=self.spec.agent, login=self.login)

    def _identity(self, node_id: int) -> Identity | None:
        tls, spec = self.spec.tls, self.spec
        if tls is None or tls.identity is not None:
            return None if tls is None else tls.identity
        names = [spec.proxied_as.format(node_id)] if spec.proxied_as else []
        return tls.authority.server(*names, *LOCAL_NAMES, *spec.relayed_as.values(), name=f"broker-{node_id}")

    async def _bring_up(self, *node_ids: int) -> None:
        nodes = [self.nodes[node_id] for node_id in node_ids]
        await together(*(partial(node.format, self.cluster_id) for node in nodes))
        await together(*(node.start for node in nodes))
        await self.wait_whole()


@asynccontextmanager
async def running_cluster(work: Path, spec: ClusterSpec | None = None) -> AsyncIterator[Cluster]:
    """A cluster for the duration of a block."""
    cluster = await Cluster.start(work, spec)
    try:
        yield cluster
    finally:
        await cluster.stop()
