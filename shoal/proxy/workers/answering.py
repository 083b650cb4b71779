"""The supervisor's side of the questions: the one that opens ports, and gives them to brokers."""

from __future__ import annotations

import pickle
import socket
from array import array
from typing import TYPE_CHECKING

from shoal.proxy.cluster.ports import NoPort, SavedPorts
from shoal.proxy.workers.asking import MOST_BYTES, Broker, Open, Refused, Saved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import trio

    from shoal.proxy.listener.listener import Listener
    from shoal.proxy.listener.sockets import BindAddress

__all__ = ["answer_questions", "sockets_of"]


async def answer_questions(sock: trio.socket.SocketType, listeners: Callable[[], Mapping[str, Listener]]) -> None:
    """Until the worker has closed its end. `listeners`: those of the time, by name."""
    with sock:
        while True:
            try:
                data = await sock.recv(MOST_BYTES)
                if not data:
                    return
                answer, descriptors = _answer(pickle.loads(data), listeners())
                passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))] if descriptors else []
                await sock.sendmsg([pickle.dumps(answer)], passed)
            except OSError:  # it has ended
                return


def sockets_of(listeners: Iterable[Listener]) -> dict[BindAddress, socket.socket]:
    return {place: sock for listener in listeners for place, sock in listener.ports.places()}


def _answer(question: object, listeners: Mapping[str, Listener]) -> tuple[object, list[int]]:
    match question:
        case Open(place):
            sock = sockets_of(listeners.values()).get(place)
            return (Refused("the supervisor does not listen there"), []) if sock is None else (None, [sock.fileno()])
        case Broker(name, node_id, address) if name in listeners:
            try:
                _, port = listeners[name].ports.advertise(address, node_id, "")
            except NoPort as error:
                return Refused(str(error)), []
            return port, []
        case Saved(name) if name in listeners:
            return listeners[name].ports.state(), []
        case Saved():
            return SavedPorts({}), []
        case _:
            return Refused("the listener was removed by a reload"), []
