"""The proofs of all brokers of one cluster, and when to probe again. Pure: `now` is monotonic seconds.

no proof             probe
proven               holds while a connection from the time of the proof is open; a new connection checks the broker's
                     identity, and the proof holds if it is the same
a connection is lost the proof is dropped: the broker may come back without its agent
any other result     probed again after `RETRY_SECONDS`, or after a lost connection (a restart may have brought the
                     agent) when `LOSS_SECONDS` have passed; if the broker closed the connection on a set, only after
                     `RETRY_SECONDS`, because each such probe costs a client its connection
unsafe               kept for this broker, even if connections are lost
"""

from dataclasses import dataclass, replace

from shoal.protocol.multibatch.proof import Identity, Proof, Result

__all__ = ["LOSS_SECONDS", "RETRY_SECONDS", "KnownProofs"]

RETRY_SECONDS = 600.0
LOSS_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    proof: Proof
    retry_at: float


class KnownProofs:
    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}
        self._reported: dict[int, tuple[Result, str]] = {}

    def proof(self, node_id: int) -> Proof | None:
        entry = self._entries.get(node_id)
        return entry.proof if entry else None

    def proofs(self) -> dict[int, Proof]:
        return {node_id: entry.proof for node_id, entry in self._entries.items()}

    def lasting(self, identity: Identity) -> Proof | None:
        """The proof that still holds for this broker: proven or unsafe."""
        proof = self.proof(identity.node_id)
        lasting = proof is not None and proof.result in (Result.PROVEN, Result.UNSAFE)
        return proof if proof is not None and lasting and proof.identity == identity else None

    def may_ask(self, node_id: int, now: float) -> bool:
        entry = self._entries.get(node_id)
        return entry is None or entry.proof.proven or now >= entry.retry_at

    def learned(self, node_id: int, proof: Proof, now: float) -> bool:
        """True if this is new to the operator."""
        self._entries[node_id] = _Entry(proof=proof, retry_at=now + RETRY_SECONDS)
        report = (proof.result, proof.why)
        is_news = self._reported.get(node_id) != report
        self._reported[node_id] = report
        return is_news

    def withdrawn(self, node_id: int, why: str, now: float) -> bool:
        """A proven broker refused a set. Returns True if this is new to the operator."""
        old = self.proof(node_id)
        identity = old.identity if old else None
        return self.learned(node_id, Proof(result=Result.REFUSED, why=why, identity=identity), now)

    def lost(self, node_id: int, now: float) -> None:
        """A connection to the broker was lost: the broker may come back changed."""
        entry = self._entries.get(node_id)
        if entry is None or entry.proof.closed:
            return
        if entry.proof.proven:
            del self._entries[node_id]
        else:
            self._entries[node_id] = replace(entry, retry_at=min(entry.retry_at, now + LOSS_SECONDS))
