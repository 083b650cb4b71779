"""Which worker accepts the next client of a port: the one with the fewest clients there.

Workers share the sockets that listen. The first one that wakes up would accept, and the kernel wakes the one that went
to sleep last: with few clients, one worker has most of them. Kafka's connections live for hours, so a client stays
where it has come to. (With SO_REUSEPORT the kernel draws lots: of 20 connections, one of two workers often has 13 or
more; and what waits in the queue of a worker that dies is reset. docs/performance.md has the measurements.)

So each worker writes into a table in shared memory how many clients it has at each port, and reads what the others
have. It leaves a new client to a worker that has fewer, for a moment: if it is still there then, that worker is busy or
blocked, and this one accepts, for the next second all that come, or until another one has accepted or lost a client.
Counts are by port, because each client opens a connection to a bootstrap port, where it does little, and one to each
broker: counted together, one worker could get all of one kind.

The table has a row for each port and a number for each worker; each number has one writer. In the row of port 0, the
supervisor notes which workers serve; and behind the last row, that all have begun. Until then no worker accepts, or the
first worker would have all the clients that wait.
"""

from __future__ import annotations

import mmap
import os
from typing import Final

__all__ = ["TurnTable", "Turns"]

_PORTS: Final = 65536
_NUMBER: Final = 4  # bytes
_SERVES: Final = 0  # the row of port 0
_ALL: Final = 1  # one more number


class TurnTable:
    """`workers`: how many there can be. Pages without a number in use need no memory."""

    def __init__(self, descriptor: int, workers: int) -> None:
        self.descriptor = descriptor
        self.workers = workers
        self._memory = mmap.mmap(descriptor, _size(workers))
        self.numbers = memoryview(self._memory).cast("i")

    @classmethod
    def create(cls, workers: int) -> TurnTable:
        descriptor = os.memfd_create("shoal-turns", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, _size(workers))
        return cls(descriptor, workers)

    def close(self) -> None:
        self.numbers.release()
        self._memory.close()
        os.close(self.descriptor)

    def of(self, port: int, worker: int) -> Turns:
        return Turns(self, port, worker)

    def open(self) -> None:
        """By the supervisor: all workers that are to begin have begun."""
        self.numbers[_PORTS * self.workers] = 1

    def note(self, worker: int, *, serves: bool, ports: list[int]) -> None:
        """By the supervisor. `ports`: of which the worker has no clients now."""
        for port in ports:
            self.numbers[port * self.workers + worker - 1] = 0
        self.numbers[_SERVES + worker - 1] = serves


def _size(workers: int) -> int:
    return (_PORTS * workers + _ALL) * _NUMBER


class Turns:
    """At one port, for one worker (1, 2, ...)."""

    __slots__ = ("_numbers", "_own", "_row", "_workers")

    def __init__(self, table: TurnTable, port: int, worker: int) -> None:
        self._numbers = table.numbers
        self._workers = table.workers
        self._row = port * table.workers
        self._own = self._row + worker - 1

    @property
    def have_begun(self) -> bool:
        """Clients may be accepted. True from then on."""
        return bool(self._numbers[_PORTS * self._workers])

    def is_ours(self) -> bool:
        """No worker that serves has fewer clients."""
        numbers, own = self._numbers, self._numbers[self._own]
        return all(numbers[self._row + other] >= own or not numbers[_SERVES + other] for other in range(self._workers))

    def row(self) -> bytes:
        """The number of clients of each worker. The same as before: none has accepted one, and none has lost one."""
        return self._numbers[self._row : self._row + self._workers].tobytes()

    def others(self) -> list[int]:
        """The numbers of the others. One that has changed is awake, or has ended."""
        numbers = self._numbers[self._row : self._row + self._workers].tolist()
        del numbers[self._own - self._row]
        return numbers

    def entered(self) -> None:
        self._numbers[self._own] += 1

    def left(self) -> None:
        self._numbers[self._own] -= 1
