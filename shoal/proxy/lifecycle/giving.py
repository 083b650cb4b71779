"""The Shoal that runs, when another one takes over: it passes on its ports, and then drains.

Until the other one is ready, nothing changes here, except that no new port is bound and no port is written to the state
directory. If the other one fails, this one goes on as before. One that drains already hands over, too: what it has
closed, the other one opens.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final, Protocol

import trio

from shoal.proxy.config.identity import shoal_version
from shoal.proxy.events.logs import LogThrottle, event
from shoal.proxy.lifecycle.accepting import accept
from shoal.proxy.lifecycle.channel import MOST_DESCRIPTORS, VERSION, Channel, ChannelLost, Word
from shoal.proxy.lifecycle.state import ServerState

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from shoal.proxy.lifecycle.state_directory import StateDirectory

__all__ = ["Giver", "Giving"]

log = logging.getLogger("shoal.server")

_HELLO_SECONDS: Final = 5.0
_READY_SECONDS: Final = 60.0  # the other one reads its files and binds further ports


class Giver(Protocol):
    """The server, for another Shoal."""

    @property
    def state(self) -> ServerState: ...

    def listening(self) -> Sequence[tuple[str, socket.socket]]:
        """All sockets that listen, and what each is for."""

    def freeze_ports(self, *, frozen: bool) -> None:
        """While they are held, no port is bound, and none is written to the state directory."""

    def hand_over(self) -> None:
        """Another process accepts clients from now on: accept nothing, and drain."""

    async def until_released(self) -> None:
        """Wait until the mirrors' listeners have ended and their files are closed."""


class Giving:
    """For one Shoal at a time. `close` it when the server has ended: the other one waits for that."""

    def __init__(self, directory: StateDirectory, server: Giver) -> None:
        self._directory = directory
        self._server = server
        self._accepting = trio.CancelScope()
        self._taker: int | None = None  # its process id
        self._gave = False

    async def run(self) -> None:
        """Until cancelled, after the server has ended."""
        if self._directory.control is None:
            return
        listening, throttle = trio.socket.from_stdlib_socket(self._directory.control), LogThrottle()
        async with trio.open_nursery() as nursery:
            with self._accepting:
                while True:
                    nursery.start_soon(self._answer, Channel(await accept(listening, throttle)))

    async def _answer(self, channel: Channel) -> None:
        pid, user = channel.peer()
        takes = False
        try:
            _, hello, _ = await channel.receive(within=_HELLO_SECONDS)
            why = self._refusal(user, hello.get("version"))
            if why is not None:
                return await channel.send(Word.REFUSED, why=why)
            self._taker, takes = pid, True
            await self._give(channel, pid, str(hello.get("shoal")))
        except ChannelLost as error:
            self._log_failed(pid, str(error))
            channel.say_now(Word.REFUSED, why=str(error))  # else it seems that this process has ended
        finally:
            if takes and not self._gave:
                self._taker = None
                self._server.freeze_ports(frozen=False)
            channel.close()

    def _refusal(self, user: int, version: object) -> str | None:
        if user not in (0, os.geteuid()):
            return f"it runs as another user ({user}, not {os.geteuid()})"
        if version != VERSION:
            return f"this Shoal is {shoal_version()}, which hands its ports over in another way: restart it instead"
        if self._taker is not None:
            return f"process {self._taker} is taking over at this moment"
        if self._server.state is ServerState.STARTING:
            return "this Shoal is starting"
        return None

    async def _give(self, channel: Channel, pid: int, version: str) -> None:
        """Raises ChannelLost."""
        text = f"process {pid} (Shoal {version}) asks for the ports"
        log.info("takeover-asked", extra=event(text, pid=pid, version=version))
        self._server.freeze_ports(frozen=True)
        await self._pass_on(channel)
        word, values, _ = await channel.receive(within=_READY_SECONDS)
        if word is not Word.READY:
            return self._log_failed(pid, str(values.get("why", word)))
        await channel.send(Word.GO)
        self._gave = True
        self._accepting.cancel()
        self._directory.give_up()
        text = f"process {pid} has taken over: draining"
        log.info("taken-over", extra=event(text, pid=pid))
        self._server.hand_over()
        await self._server.until_released()
        self._directory.close()
        await channel.send(Word.RELEASED)
        await trio.sleep_forever()  # the end of the channel is the end of this process

    async def _pass_on(self, channel: Channel) -> None:
        lock, control = self._directory.lock, self._directory.control
        assert lock is not None
        assert control is not None
        await channel.send(Word.DIRECTORY, (lock, control.fileno()), pid=os.getpid())
        ports = self._server.listening()
        for first in range(0, len(ports), MOST_DESCRIPTORS):
            some = ports[first : first + MOST_DESCRIPTORS]
            await channel.send(Word.PORTS, [sock.fileno() for _, sock in some], uses=[use for use, _ in some])
        await channel.send(Word.ALL)

    def _log_failed(self, pid: int, why: str) -> None:
        if self._gave:  # it has the ports, and this process ends
            return
        text = f"process {pid} has not taken over: {why}. This Shoal goes on"
        log.warning("takeover-failed", extra=event(text, pid=pid, error=why))
