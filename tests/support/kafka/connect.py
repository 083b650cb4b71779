"""MirrorMaker 2 as a connector on a Kafka Connect worker in distributed mode, the usual deployment.

The worker's own topics are on the target cluster. Only the connector's configuration, which the REST interface takes as
JSON (`PUT /connectors/NAME/config`), mentions Shoal. Workers with the same aliases are one Connect cluster.
"""

import json
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import trio

from shoal.scenarios.kafka.errors import HarnessError
from shoal.scenarios.kafka.java.jars import jars
from shoal.scenarios.kafka.java.jvm import Jvm, write_properties
from shoal.scenarios.kafka.mirror import START_TIMEOUT_S, Mirror, MirrorSpec
from shoal.scenarios.kafka.ports import LOOPBACK, free_port
from shoal.scenarios.kafka.process import Process, until

SIDECAR = "sidecar.shoal.test"
"""The name of Shoal in the configuration of all workers; each resolves it to its own one's address."""
_MAIN = "org.apache.kafka.connect.cli.ConnectDistributed"
_REQUEST_TIMEOUT_S = 90.0  # the worker's own: a PUT waits until its group has rebalanced
# What `MirrorSpec.properties` sets for a dedicated mirror.
_CONNECTOR: Mapping[str, str] = {
    "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
    "refresh.topics.interval.seconds": "2",
    "sync.topic.acls.enabled": "false",
    "replication.factor": "1",
    "offset-syncs.topic.replication.factor": "1",
}


def worker_properties(spec: MirrorSpec, port: int) -> dict[str, str]:
    """A worker's; its default converters differ from the mirror's, its REST interface is on loopback."""
    name = f"connect-{spec.source_alias}-{spec.target_alias}"
    stores = {store: f"{name}-{store}" for store in ("config", "offset", "status")}
    return {
        "bootstrap.servers": spec.target,
        "group.id": name,
        "listeners": f"http://{LOOPBACK}:{port}",
        "plugin.discovery": "service_load",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        **{f"{store}.storage.topic": topic for store, topic in stores.items()},
        **{f"{store}.storage.replication.factor": "1" for store in stores},
        **{f"{store}.storage.partitions": "1" for store in ("offset", "status")},
    }


def connector_config(spec: MirrorSpec) -> dict[str, str]:
    """Configuration of a MirrorSourceConnector without Shoal, with the values of `spec`."""
    return {
        **_CONNECTOR,
        "source.cluster.alias": spec.source_alias,
        "target.cluster.alias": spec.target_alias,
        "source.cluster.bootstrap.servers": spec.source,
        "target.cluster.bootstrap.servers": spec.target,
        "topics": spec.topics,
        "tasks.max": str(spec.tasks),
    }


class ConnectMirror(Mirror):
    """The worker copies nothing until `configure` creates its connector."""

    def restart(self, spec: MirrorSpec | None = None) -> None:
        if self.running:
            raise HarnessError("the worker is running already")
        self.spec = spec or self.spec
        self._port = free_port()
        write_properties(self._config, self.worker_properties())
        argv = self._jvm.argv(_MAIN, str(self._config))
        self._process = Process(argv, log=self.log, name="Connect worker", env=self.spec.environment)

    def worker_properties(self) -> dict[str, str]:
        return worker_properties(self.spec, self._port)

    async def configure(self, name: str, config: Mapping[str, str]) -> None:
        """Wait until the worker is ready, then create or change the connector. Raises HarnessError with its answer."""
        await until(
            self._answers,
            within=START_TIMEOUT_S,
            what="the Connect worker to answer",
            process=self.process,
            poll_s=0.5,
        )
        await self._ask("PUT", f"/connectors/{name}/config", json.dumps(config))

    async def put(self, path: str) -> None:
        """Send a command without a body, such as `/connectors/NAME/pause`. Raises HarnessError with the worker's
        answer."""
        await self._ask("PUT", path)

    async def described(self, name: str) -> str:
        """The connector in JSON, as the worker serves it."""
        return await self._ask("GET", f"/connectors/{name}")

    async def _answers(self) -> bool:
        try:
            await self._ask("GET", "/connectors")
        except (URLError, ConnectionError, HarnessError):
            return False
        return True

    async def _ask(self, method: str, path: str, body: str = "") -> str:
        headers = {"Content-Type": "application/json"} if body else {}
        url = f"http://{LOOPBACK}:{self._port}{path}"
        request = Request(url, body.encode() or None, headers, method=method)
        return await trio.to_thread.run_sync(_answer, request)


class SidecarWorker(ConnectMirror):
    """One of several workers, with a Shoal beside it, as in a pod: `address` is what `SIDECAR` means for it alone."""

    address = ""  # of its REST interface, by which the other workers know it

    @classmethod
    async def beside(cls, address: str, work: Path, spec: MirrorSpec) -> Self:
        """Starts it, and returns without waiting for it to be ready."""
        names = {SIDECAR: address, "localhost": LOOPBACK, socket.gethostname(): LOOPBACK}
        hosts = work / "hosts"
        hosts.write_text("".join(f"{host} {name}\n" for name, host in names.items()))
        options = (f"-Djdk.net.hosts.file={hosts}",)
        worker = cls(work, spec, Jvm(lib=await jars(spec.version), options=options))
        worker.restart()
        return worker

    def restart(self, spec: MirrorSpec | None = None) -> None:
        super().restart(spec)
        self.address = f"{LOOPBACK}:{self._port}"

    def worker_properties(self) -> dict[str, str]:
        """The group notices a killed worker within seconds, and waits 1 s, not 5 min, for it to come back."""
        return {
            **super().worker_properties(),
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "2000",
            "scheduled.rebalance.max.delay.ms": "1000",
            "offset.flush.interval.ms": "500",
        }

    async def tasks(self, name: str) -> Sequence[tuple[str, str]]:
        """The connector's tasks: address of the worker, and state."""
        status = json.loads(await self._ask("GET", f"/connectors/{name}/status"))
        return [(task["worker_id"], task["state"]) for task in status["tasks"]]


def _answer(request: Request) -> str:
    try:
        with urlopen(request, timeout=_REQUEST_TIMEOUT_S) as answer:
            return str(answer.read(), "utf-8")
    except HTTPError as error:
        with error:
            raise HarnessError(f"{request.full_url}: {error.code} {error.read().decode(errors='replace')}") from error
