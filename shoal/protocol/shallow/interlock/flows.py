"""The connected mirror consumers, by name and by the token in their envelopes."""

from collections import OrderedDict
from collections.abc import Iterator
from hashlib import blake2b
from itertools import count
from typing import NamedTuple

from shoal.protocol.shallow.interlock import explain
from shoal.protocol.shallow.interlock.flow import Flow
from shoal.protocol.shallow.interlock.limits import STOP_BACK_OFF_SECONDS, back_off

__all__ = ["Flows"]


class _Strand(NamedTuple):
    token: int
    times: int
    text: str


class Flows:
    """A flow lives from its first connection to its last; the next life has another token and no evidence.

    The task of a mirror that cannot produce an envelope (max.request.size) fails at the first one. So the next life,
    with the same peer and client id, does not start with another envelope: it backs off, unless one of the old life
    arrives.
    """

    def __init__(self, salt: bytes, most: int) -> None:
        self._most = most
        self._salt = salt
        self._lives = count()
        self._named: dict[tuple[str, str], Flow] = {}
        self._tokens: dict[int, Flow] = {}
        self._stranded: OrderedDict[tuple[str, str], _Strand] = OrderedDict()

    def __iter__(self) -> Iterator[Flow]:
        return iter(self._named.values())

    def __len__(self) -> int:
        return len(self._named)

    def __contains__(self, flow: Flow) -> bool:
        return self._tokens.get(flow.token) is flow

    def join(self, peer: str, client_id: str, connection: int, now: float) -> Flow:
        """Not registered (`flow not in flows`) if there are already `most`."""
        flow = self._named.get((peer, client_id)) or self._new_life(peer, client_id, now)
        if flow in self:
            flow.connections.add(connection)
        return flow

    def adopt(self, flow: Flow, connection: int) -> bool:
        """Try again to register a flow for which there was no room."""
        name = flow.peer, flow.client_id
        if len(self._named) >= self._most or name in self._named:
            return False
        flow.waiting = False
        self._named[name] = self._tokens[flow.token] = flow
        flow.connections.add(connection)
        return True

    def leave(self, flow: Flow, connection: int) -> bool:
        """-> whether it was the last connection."""
        flow.leave(connection)
        flow.waiting = False
        if flow.connections or flow not in self:
            return False
        name = flow.peer, flow.client_id
        del self._named[name], self._tokens[flow.token]
        if flow.is_stranded:
            self._stranded[name] = _Strand(flow.token, flow.stops + 1, explain.stranded(flow))
            if len(self._stranded) > self._most:
                self._stranded.popitem(last=False)
        return True

    def arrived(self, token: int) -> Flow | None:
        """The flow whose envelope has arrived."""
        flow = self._tokens.get(token)
        name = (flow.peer, flow.client_id) if flow else self._strand_of(token)
        if name is not None:
            self._stranded.pop(name, None)
        return flow

    def _strand_of(self, token: int) -> tuple[str, str] | None:
        return next((name for name, strand in self._stranded.items() if strand.token == token), None)

    def _new_life(self, peer: str, client_id: str, now: float) -> Flow:
        life = f"{peer}\0{client_id}\0{next(self._lives)}".encode()
        token = int.from_bytes(blake2b(life, digest_size=8, key=self._salt).digest(), "big")
        flow = Flow(peer=peer, client_id=client_id, token=token)
        strand = self._stranded.get((peer, client_id))
        if strand:
            flow.stops, flow.stopped = strand.times, strand.text
            flow.retry_at = now + back_off(STOP_BACK_OFF_SECONDS, strand.times - 1)
        if len(self._named) < self._most:
            self._named[peer, client_id] = self._tokens[token] = flow
        else:
            flow.waiting = True
        return flow
