"""Requests of a client that has yet to log in: one frame at a time, and never a byte of the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trio.lowlevel import wait_readable

from shoal.protocol.schema.headers import SIZE_BYTES, read_size
from shoal.protocol.wire.framing import check_frame_size
from shoal.proxy.net.transport import PeerLost

if TYPE_CHECKING:
    from shoal.proxy.net.transport import SocketTransport

__all__ = ["FrameReader"]

_PIECE = 16 * 1024  # memory grows with what arrives, not with what is announced


class FrameReader:
    """`limit`: bytes of a frame."""

    def __init__(self, transport: SocketTransport, limit: int) -> None:
        self._transport = transport
        self._limit = limit

    async def next(self) -> bytearray | None:
        """The whole frame, with its size; None if the client has closed. Raises PeerLost and RemoteProtocolError."""
        frame = bytearray()
        if not await self._read(frame, SIZE_BYTES):
            return None
        (size,) = read_size(frame)
        check_frame_size(size, frame, self._limit)
        await self._read(frame, SIZE_BYTES + size)
        return frame

    async def _read(self, frame: bytearray, end: int) -> bool:
        """Read until `frame` has `end` bytes. Returns False if the client closes before its first one."""
        while len(frame) < end:
            piece = bytearray(min(end - len(frame), _PIECE))
            try:
                size = self._transport.recv_into(memoryview(piece))
            except BlockingIOError:
                await wait_readable(self._transport.fileno())
                continue
            except OSError as error:
                raise PeerLost(self._transport, error) from error
            if not size and not frame:
                return False
            if not size:
                raise PeerLost(self._transport, ConnectionResetError("closed in the middle of a frame"))
            frame += piece[:size]
        return True
