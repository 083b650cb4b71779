"""A transport without a socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.proxy.net.transport import Buffer

__all__ = ["NoTransport"]


class NoTransport:
    """A transport that accepts everything, and returns this many bytes."""

    def __init__(self, gives: int) -> None:
        self._gives = gives

    def fileno(self) -> int:
        return -1

    def shutdown(self, how: int, /) -> None:
        pass

    def close(self) -> None:
        pass

    def recv_into(self, buffer: memoryview, /) -> int:
        return self._gives

    def send(self, data: Buffer, /) -> int:
        return len(data)

    def sendmsg(self, buffers: Iterable[Buffer], /) -> int:
        return sum(map(len, buffers))
