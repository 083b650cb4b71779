"""Old clients as processes that get commands as lines: the tests' side of java/OldClient.java and python_client.py."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

TAKE_S = 20.0
NO_TIMESTAMP, CREATE_TIME, LOG_APPEND_TIME = "NoTimestampType", "CreateTime", "LogAppendTime"


class Record(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp: int = -1
    """Milliseconds; -1 where the client has none."""


class Seen(NamedTuple):
    """A record as a client returned it."""

    partition: int
    offset: int
    record: Record
    timestamp_type: str


class ClientFailed(Exception):
    """The client's error."""


class OldClient:
    """One process, which may have several producers and consumers by name. Blocking; one thread at a time."""

    def __init__(self, argv: Sequence[str], *, log: Path, env: Mapping[str, str]) -> None:
        self.log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *argv],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=dict(env),
                text=True,
                encoding="ascii",
                process_group=0,
            )

    def ask(self, *words: object) -> list[str]:
        """Raises ClientFailed."""
        self._write(words)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.flush()
        answer: list[str] = []
        for line in self._process.stdout:
            if line.startswith("| "):
                answer.append(line[2:].rstrip("\n"))
                continue
            if line == "ok\n":
                return answer
            raise ClientFailed(f"{words}: {line.strip()} ({self.log})")
        raise ClientFailed(f"{words}: ended with {self._process.wait()} ({self.log})")

    def end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    def send(self, producer: str, topic: str, partition: int, records: Iterable[Record]) -> None:
        """See `outcomes` for the results."""
        for record in records:
            self._write(("send", producer, topic, partition, record.timestamp, _word(record.key), _word(record.value)))

    def outcomes(self, producer: str) -> list[str]:
        """For each record sent since: its offset, "-" if the client does not return it, or "error ..."."""
        return self.ask("flush", producer)

    def take(self, consumer: str, count: int, *, within: float = TAKE_S) -> list[Seen]:
        """At most `count` records, fewer if no more arrive in time. Raises ClientFailed if a poll failed."""
        taken = self.ask("take", consumer, count, int(within * 1000))
        wrong = [line for line in taken if line.startswith("error")]
        if wrong:
            raise ClientFailed(f"{wrong[0]} ({len(wrong)} times, {self.log})")
        return [_seen(line) for line in taken]

    def take_through_errors(self, consumer: str, count: int, *, within: float = TAKE_S) -> list[Seen]:
        """The same, ignoring errors of polls while brokers restart."""
        taken = self.ask("take", consumer, count, int(within * 1000))
        return [_seen(line) for line in taken if not line.startswith("error")]

    def _write(self, words: Iterable[object]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")


def _seen(line: str) -> Seen:
    _, partition, offset, timestamp, kind, key, value = line.split(" ")
    return Seen(int(partition), int(offset), Record(_bytes(key), _bytes(value), int(timestamp)), kind)


def _word(value: bytes | None) -> str:
    return "-" if value is None else f"x{value.hex()}"


def _bytes(word: str) -> bytes | None:
    return None if word == "-" else bytes.fromhex(word[1:])
