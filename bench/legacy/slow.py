"""Many consumers in one process that each take some KB/s: `python -m bench.legacy.slow`.

Each has a connection with a small receive buffer and segments as on a real network (on loopback a kernel would hold
megabytes for each), requests a megabyte, the client's default, and reads a part of the answer each second. Each message
is verified once it is complete. When the time is over ("end" is printed) a few of them read their answer to its end,
and one more, at full speed: otherwise no answer that takes minutes would be read whole.
The last line is JSON: a `Life` for each.
"""

from __future__ import annotations

import argparse
import json
import socket
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

import trio

from bench.legacy.check import check
from bench.legacy.fetching import AnswerReader, fetch
from bench.legacy.stage import kinds
from shoal.scenarios.kafka.process import together

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.legacy.stage import Kind

BEGIN, END = "begin", "end"
CODECS = ("gzip", "snappy", "lz4")
RECEIVE_BUFFER = 8 * 1024  # the kernel doubles it
SEGMENT = 1448  # bytes in an Ethernet frame
INTERVAL_S = 1.0  # between two bites
CONNECT_S = 30.0
FINISH_S = 40.0
FULL_SPEED = 256 * 1024


@dataclass(slots=True, kw_only=True)
class Life:
    """The figures of one consumer. Seconds are since the start of the run."""

    received: int = 0  # bytes of records, until the time was over
    in_time: int = 0  # messages complete by then
    messages: int = 0  # verified, in all
    answers: int = 0  # read whole
    finished: bool = False  # read two more answers at the end
    padding: int = 0  # bytes
    largest: int = 0  # bytes of an entry
    first_at: float | None = None
    last_at: float = 0.0
    silence: float = 0.0  # the longest, from the first bytes on

    def note(self, received: int, at: float) -> None:
        if self.first_at is None:
            self.first_at = self.last_at = at
        self.received += received
        self.silence = max(self.silence, at - self.last_at)
        self.last_at = at


class Consumer:
    def __init__(self, address: tuple[str, int], kind: Kind, offset: int) -> None:
        self.life = Life()
        self._address, self._kind = address, kind
        self._socket = trio.socket.socket()
        self._answer = AnswerReader(kind.topic, offset, check)

    async def connect(self) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT)
        with trio.fail_after(CONNECT_S):
            await self._socket.connect(self._address)

    async def slowly(self, bite: int, began: float, ends: float) -> None:
        with trio.move_on_at(ends):
            await self._ask()
            while True:
                due = trio.current_time() + INTERVAL_S
                await self._bite(bite, began)
                await trio.sleep_until(due)
        self.life.in_time = self._messages

    async def _bite(self, size: int, began: float) -> None:
        while size > 0:
            received = await self._read(size)
            size -= received
            if received:
                self.life.note(received, trio.current_time() - began)

    async def to_the_end(self) -> None:
        """The current answer, and the next one."""
        wanted = self.life.answers + 2
        with trio.move_on_after(FINISH_S):
            while self.life.answers < wanted:
                await self._read(FULL_SPEED)
            self.life.finished = True

    def close(self) -> None:
        self.life.messages = self._messages
        self._socket.close()

    @property
    def _messages(self) -> int:
        return self.life.messages + (self._answer.records.messages if self._answer.records else 0)

    async def _ask(self) -> None:
        start = self._answer.next_offset % self._kind.end
        self._answer = AnswerReader(self._kind.topic, start, check)
        await self._socket.send(fetch(self._kind.topic, start))

    async def _read(self, most: int) -> int:
        """-> bytes of records. Raises Damaged; ConnectionError if the peer hung up."""
        records = self._answer.records
        data = await self._socket.recv(min(most, self._answer.wanted))
        if not data:
            raise ConnectionError(f"the connection was closed after {self.life}")
        self._answer.feed(data)
        if not self._answer.wanted:
            self._fold()
            await self._ask()
        return len(data) if records else 0

    def _fold(self) -> None:
        self.life.answers += 1
        if records := self._answer.records:
            self.life.messages += records.messages
            self.life.padding += records.padding
            self.life.largest = max(self.life.largest, records.largest)


async def run(options: argparse.Namespace) -> list[Life]:
    """Raises Damaged, ConnectionError; trio.TooSlowError if it cannot connect."""
    crowd = list(_crowd(options))
    await together(*(consumer.connect for consumer in crowd))
    print(BEGIN, flush=True)
    began = trio.current_time()
    ends = began + options.seconds
    await together(*(partial(consumer.slowly, options.bite, began, ends) for consumer in crowd))
    print(END, flush=True)
    last = crowd[: options.finish]
    for consumer in crowd[options.finish :]:
        consumer.close()
    await together(*(consumer.to_the_end for consumer in last))
    for consumer in last:
        consumer.close()
    return [consumer.life for consumer in crowd]


def _crowd(options: argparse.Namespace) -> Iterator[Consumer]:
    """Consumers start at the batches in turn."""
    by_codec = kinds(options.batches)
    for number in range(options.consumers):
        kind = by_codec[CODECS[number % len(CODECS)]]
        batch = number // len(CODECS) % kind.batches
        yield Consumer((options.host, options.port), kind, batch * kind.records)


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--host", required=True)
    for name in ("port", "batches", "consumers", "bite", "finish"):
        arguments.add_argument(f"--{name}", type=int, required=True)
    arguments.add_argument("--seconds", type=float, required=True)
    return arguments


def main() -> None:
    lives = trio.run(run, parser().parse_args())
    print(json.dumps([asdict(life) for life in lives]), flush=True)


if __name__ == "__main__":
    main()
