"""`shoal probe`: probes the brokers of a cluster one by one, each over its own connection."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import trio

from shoal.command_line import printable
from shoal.protocol.multibatch import messages
from shoal.protocol.multibatch.dialogue import ConnectionEnded, Dialogue, DialogueEnded, unproven
from shoal.protocol.multibatch.probe import Ask, Probe, ProbePlan, clean_up
from shoal.protocol.multibatch.proof import Proof, Result
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.framing import ForeignProtocol
from shoal.proxy.cluster.cluster import Cluster
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.settings import Address
from shoal.proxy.net.broker_client import open_client
from shoal.proxy.net.transport import PeerLost
from shoal.proxy.net.upstream import UpstreamUnreachable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.protocol.multibatch.dialogue import Talk
    from shoal.protocol.multibatch.messages import Metadata
    from shoal.proxy.config.settings import ClusterSettings, Limits
    from shoal.proxy.net.broker_client import BrokerClient
    from shoal.proxy.net.upstream import Upstream

__all__ = ["EXIT_CODES", "ClusterReport", "converse", "probe_cluster", "to_json", "to_text", "unreachable"]

T = TypeVar("T")

EXIT_CODES = {Result.PROVEN: 0, Result.REFUSED: 1, Result.UNSAFE: 4, Result.UNKNOWN: 5}
"""The worst result of all brokers decides; 2 and 3 mean the same as for every command."""

_WORST_FIRST = (Result.UNSAFE, Result.UNKNOWN, Result.REFUSED, Result.PROVEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerReport:
    """`node_id` None: the bootstrap broker, if the cluster did not return its brokers."""

    node_id: int | None
    address: Address
    proof: Proof


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReport:
    cluster_id: str | None
    brokers: tuple[BrokerReport, ...]

    @property
    def result(self) -> Result:
        results = {broker.proof.result for broker in self.brokers}
        return next(result for result in _WORST_FIRST if result in results)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prober:
    """`seconds`: timeout per broker."""

    upstream: Upstream
    topic: str | None
    seconds: float

    async def metadata(self, bootstrap: Sequence[Address]) -> Metadata:
        """Raises DialogueEnded."""
        with trio.move_on_after(self.seconds):
            with open_client(self.upstream, bootstrap) as client:
                return await converse(client, _ask_metadata())
        raise unproven(f"no answer within {self.seconds:g} s")

    async def judge(self, node_id: int, address: Address) -> Proof:
        token = os.urandom(8)
        plan = ProbePlan(node_id=node_id, topic=self.topic, token=token, now=time.time_ns() // 1_000_000)
        probe = Probe(plan)
        try:
            proof = await self._run(probe, address)
        except DialogueEnded as ended:
            proof = ended.proof
        except UpstreamUnreachable as error:
            return unproven(str(error)).proof
        if probe.left_behind and proof.closed:
            left = await self._clean_up(address, probe.left_behind)
            return Proof(result=proof.result, why=proof.why, remedy=proof.remedy, closed=True, left_behind=left)
        return proof

    async def _run(self, probe: Probe, address: Address) -> Proof:
        with trio.move_on_after(self.seconds):
            with open_client(self.upstream, [address]) as client:
                step = probe.start()
                while isinstance(step, Ask):
                    await trio.sleep(step.pause)
                    try:
                        step = probe.answered(await client.exchange(step.frame))
                    except PeerLost:
                        step = probe.lost()
                    except RemoteProtocolError as error:
                        raise unproven(f"the broker's answer to {probe.doing} cannot be read: {error}") from None
                return step
        why = f"no answer to {probe.doing} within {self.seconds:g} s"
        return Proof(result=Result.UNKNOWN, why=why, closed=True, left_behind=probe.left_behind)

    async def _clean_up(self, address: Address, topics: tuple[str, ...]) -> tuple[str, ...]:
        """Delete scratch topics after the broker closed the connection. Returns the topics that are left."""
        with trio.move_on_after(self.seconds):
            try:
                with open_client(self.upstream, [address]) as client:
                    return tuple(await converse(client, clean_up(list(topics))))
            except (UpstreamUnreachable, DialogueEnded):
                pass
        return topics


def _ask_metadata() -> Talk[Metadata]:
    dialogue = Dialogue()
    yield from dialogue.learn_versions()
    frame, version = yield from dialogue.ask(ApiKey.METADATA, messages.metadata_request(()))
    return messages.metadata(frame, version)


async def converse(client: BrokerClient, talk: Talk[T]) -> T:
    """Run a dialogue to its end. Raises UpstreamUnreachable, and DialogueEnded on every other failure."""
    try:
        step = next(talk)
        while True:
            await trio.sleep(step.pause)
            try:
                frame = await client.exchange(step.frame)
            except PeerLost as error:
                if error.is_refusal:
                    raise unproven(str(error), closed=True) from None
                step = talk.throw(ConnectionEnded())
            else:
                step = talk.send(frame)
    except StopIteration as end:
        result: T = end.value
        return result
    except ConnectionEnded:
        remedy = "the port may require TLS (--tls) or a login (--sasl-mechanism)"
        raise unproven("the broker closed the connection without an answer", remedy, closed=True) from None
    except ForeignProtocol as error:
        raise unproven(str(error)) from None
    except RemoteProtocolError as error:
        raise unproven(f"the broker's answer cannot be read: {error}") from None


def unreachable(bootstrap: Sequence[Address], error: Exception) -> tuple[str, str]:
    """(where, what) of an operator's error; `where` is not repeated."""
    where = ",".join(map(str, bootstrap))
    return where, str(error).replace(f": {where}: ", ": ", 1)


async def probe_cluster(
    settings: ClusterSettings, limits: Limits, *, topic: str | None, seconds: float
) -> ClusterReport:
    """Raises OperatorError if no bootstrap address can be reached, or refuses TLS or the login."""
    bootstrap = settings.bootstrap
    prober = _Prober(upstream=Cluster(settings, limits).upstream, topic=topic, seconds=seconds)
    try:
        metadata = await prober.metadata(bootstrap)
    except UpstreamUnreachable as error:
        raise OperatorError.of(*unreachable(bootstrap, error)) from None
    except DialogueEnded as ended:
        proof = ended.proof
        if settings.tls is None and proof.closed and await _uses_tls(bootstrap):
            proof = replace(proof, why=_USES_TLS, remedy=_TLS_REMEDY)
        only = BrokerReport(node_id=None, address=bootstrap[0], proof=proof)
        return ClusterReport(cluster_id=None, brokers=(only,))
    reports = []
    for broker in sorted(metadata.brokers):
        address = Address(broker.host, broker.port)
        proof = await prober.judge(broker.node_id, address)
        reports.append(BrokerReport(node_id=broker.node_id, address=address, proof=proof))
    if not reports:
        raise OperatorError.of(",".join(map(str, bootstrap)), "the metadata has no brokers")
    return ClusterReport(cluster_id=metadata.cluster_id, brokers=tuple(reports))


_USES_TLS = "the broker uses TLS: it closes plaintext connections"
_TLS_REMEDY = "--tls-ca FILE, or --tls for a certificate of the system's CAs; in a configuration [cluster.tls]"


async def _uses_tls(addresses: Sequence[Address]) -> bool:
    """Brokers with Java's TLS answer plaintext with an alert, but many others only close the connection."""
    from shoal.proxy.net.tls.look import speaks_tls

    return await speaks_tls(addresses)


def to_json(report: ClusterReport) -> str:
    brokers = [
        {
            "node_id": broker.node_id,
            "address": str(broker.address),
            "result": broker.proof.result.value,
            "why": broker.proof.why,
            "remedy": broker.proof.remedy,
            "left_behind": list(broker.proof.left_behind),
        }
        for broker in report.brokers
    ]
    document = {"cluster_id": report.cluster_id, "result": report.result.value, "brokers": brokers}
    return json.dumps(document, indent=2) + "\n"


_MEANING = {
    Result.PROVEN: "Every broker stores sets: Shoal sends several batches per partition in one request.",
    Result.REFUSED: (
        "Brokers that refuse sets get one batch per partition and request: correct, but slow for small batches.\nThe "
        "Java agent (docs/agent.md) makes an unmodified Apache Kafka 3.9 to 4.3 take them."
    ),
    Result.UNSAFE: (
        "UNSAFE: a broker reports success and loses or changes records. Shoal never sends it a set; no client should."
    ),
    Result.UNKNOWN: (
        "Shoal treats a broker that could not be tried as one that refuses: one batch per partition and request."
    ),
}


def to_text(report: ClusterReport) -> str:
    count = len(report.brokers)
    lines = [f"cluster {report.cluster_id or '(unknown)'}: {count} broker{'s' if count > 1 else ''}", ""]
    width = max(len(str(broker.address)) for broker in report.brokers)
    for broker in report.brokers:
        name = "broker ?" if broker.node_id is None else f"broker {broker.node_id}"
        lines.append(f"  {name}  {broker.address!s:<{width}}  {broker.proof.result.upper():<7}  {broker.proof.why}")
        if broker.proof.remedy:
            lines.append(f"      remedy: {broker.proof.remedy}")
        if broker.proof.left_behind:
            lines.append(f"      not deleted, delete it: {', '.join(broker.proof.left_behind)}")
    return "\n".join([*map(printable, lines), "", _MEANING[report.result], ""])
