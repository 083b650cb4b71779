"""Does a cluster contain an envelope, or a locator? Every record of every topic is read, including internal topics."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from operator import methodcaller
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Message, TopicPartition

from shoal.protocol.shallow.envelope import MAGIC
from shoal.protocol.shallow.facts import are_of_envelope
from shoal.protocol.shallow.locator import read_locator
from shoal.protocol.wire import types
from shoal.scenarios.kafka.security.clients import ANYBODY, ClientSecurity

from .reading import READ_TIMEOUT_S, READ_UNCOMMITTED, partition_of, read_from
from .topics import Topics

_KEPT = 100  # findings: one is a failure, a hundred show the pattern


# Where a name is no UTF-8, confluent_kafka 2.16 returns a list with null pointers beside the error. Python checks that
# only for calls from C: a plain call, once it is specialized (PEP 659), goes on with the list, which ends the process.
_headers_of = methodcaller("headers")


class EnvelopeFound(NamedTuple):
    topic: str
    partition: int
    offset: int
    where: str
    """"key", "value" or "headers"."""


def own_parts(message: Message, magic: bytes) -> Iterator[str]:
    """Which parts of a record are an envelope's or a locator's: `magic` in the key or value; the headers, which remain
    if a transform changes key and value. A token is on an ordinary record, and may stray (interlock/tokens.py).
    """
    for where, part in (("key", message.key()), ("value", message.value())):
        if part is not None and magic in part:
            yield where
    with suppress(SystemError):  # a name is no UTF-8
        if names := _headers_of(message):
            headers = [(name.encode(), b"") for name in dict(names)]
            if are_of_envelope(headers) or read_locator(None, None, headers) is not None:
                yield "headers"


class Scanner:
    """`own_parts` of every record; each call continues where the last one ended."""

    def __init__(self, bootstrap: str, *, magic: bytes = MAGIC, login: ClientSecurity = ANYBODY) -> None:
        self._bootstrap = bootstrap
        self._login = login
        self._magic = magic
        self._next: dict[types.TopicPartition, int] = {}
        self._found: list[EnvelopeFound] = []
        self.records = 0
        """Records read so far."""

    async def scan(
        self, *, within: float = READ_TIMEOUT_S, only: Callable[[str], bool] = lambda topic: True
    ) -> list[EnvelopeFound]:
        """All findings so far, at most the first 100, in the topics named `only`. Aborted records are read too.

        Raises TrafficFailed.
        """
        every = await Topics(self._bootstrap, login=self._login).all_partitions()
        topics = {topic: count for topic, count in every.items() if only(topic)}
        starts = [
            TopicPartition(topic, partition, self._next.get(types.TopicPartition(topic, partition), OFFSET_BEGINNING))
            for topic, count in topics.items()
            for partition in range(count)
        ]
        # Retention may have moved the log start offset meanwhile: no error.
        await read_from(
            self._bootstrap,
            starts,
            self._look,
            within=within,
            login=self._login,
            isolation_level=READ_UNCOMMITTED,
            auto_offset_reset="earliest",
        )
        return self._found

    def _look(self, messages: list[Message]) -> None:
        for message in messages:
            offset = message.offset() or 0
            self._next[partition_of(message)] = offset + 1
            for where in own_parts(message, self._magic):
                if len(self._found) < _KEPT:
                    self._found.append(EnvelopeFound(*partition_of(message), offset, where))
        self.records += len(messages)
