"""Fill topics through librdkafka, with control over batches.

A run of consecutive records goes to one partition, the next run to the next partition. `Layout.exact` makes one batch
of each run, by flushing after it (librdkafka splits it at `batch.size`, 1 MB, or `batch.num.messages`); otherwise a run
is usually a batch, but the linger time may end it early.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count as counting

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from shoal.scenarios.kafka.errors import TrafficFailed
from shoal.scenarios.kafka.security.clients import ANYBODY, ClientSecurity

from .clients import Setting, client_config, in_thread
from .records import Record, chunks

_EXACT_LINGER_MS = 60_000  # starts before the leader is known; flush() does not wait for it
_CHUNK = 20_000  # records between two checks of the clock and of cancellation: about 50 ms
_FLUSH_S = 120.0
_BLOCKED_S = 0.1
# Limits of the producer's queue; the caller chooses the other settings.
_BOUNDED: dict[str, Setting] = {
    "queue.buffering.max.messages": 50_000,
    "queue.buffering.max.kbytes": 64 * 1024,
    "max.in.flight": 5,
    "message.max.bytes": 32 * 1024 * 1024,
    "linger.ms": 100,
    "delivery.report.only.error": True,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    partitions: int = 1
    """Partitions 0 .. partitions - 1 are filled in turn."""
    run: int = 350
    """Consecutive records for one partition; 350 `orders` are about 31 kB in zstd."""
    exact: bool = False
    """One batch per run, exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    records: tuple[Record, ...]
    commit: bool


DEFAULT_LAYOUT = Layout()
Progress = Callable[[int], None]


class _Filler:
    """A producer that keeps the first delivery failure."""

    def __init__(self, bootstrap: str, topic: str, layout: Layout, settings: dict[str, Setting]) -> None:
        self._topic = topic
        self._layout = layout
        self._error: KafkaError | None = None
        runs: dict[str, Setting] = {"batch.num.messages": layout.run, "batch.size": 1_000_000}
        if layout.exact:
            runs["linger.ms"] = _EXACT_LINGER_MS
        self.producer = Producer({**client_config(bootstrap), **_BOUNDED, **runs, **settings})
        self._batch = counting()
        self._leaders_known = not layout.exact

    def _learn_leaders(self) -> None:
        """Records that wait for a leader are enqueued singly when it is known; a flush would send each at once."""
        try:
            self.producer.list_topics(self._topic, _FLUSH_S)
        except KafkaException as error:
            raise TrafficFailed(f"the leaders of {self._topic} are not known: {error}") from error
        self._leaders_known = True

    def produce(self, records: Iterable[Record]) -> None:
        """Append runs; a run does not continue over two calls."""
        if not self._leaders_known:
            self._learn_leaders()
        for run in chunks(iter(records), self._layout.run):
            partition = next(self._batch) % self._layout.partitions
            for record in run:
                self._one(record, partition)
            if self._layout.exact:
                self.flush()
        self.producer.poll(0)
        self._check()

    def flush(self) -> None:
        left = self.producer.flush(_FLUSH_S)
        self._check()
        if left:
            raise TrafficFailed(f"{left} records for {self._topic} not acknowledged within {_FLUSH_S:g} s")

    def _one(self, record: Record, partition: int) -> None:
        while True:
            try:
                self.producer.produce(
                    self._topic,
                    record.value,
                    record.key,
                    partition,
                    self._delivered,
                    timestamp=record.timestamp,
                    headers=record.headers,
                )
            except BufferError:
                self.producer.poll(_BLOCKED_S)
                self._check()
            else:
                return

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        self._error = self._error or error

    def _check(self) -> None:
        if self._error is not None:
            raise TrafficFailed(f"a record for {self._topic} was not delivered: {self._error}")


async def fill(
    bootstrap: str,
    topic: str,
    records: Iterator[Record],
    *,
    layout: Layout = DEFAULT_LAYOUT,
    progress: Progress = lambda total: None,
    login: ClientSecurity = ANYBODY,
    **settings: Setting,
) -> int:
    """Produce `records` and wait for all acknowledgements; returns their number. `progress` is called regularly.

    `settings` are librdkafka's with `_` for `.`: compression_type="zstd", enable_idempotence=True, acks=1, ...
    Raises TrafficFailed.
    """
    filler = _Filler(bootstrap, topic, layout, client_config(bootstrap, login, **settings))
    done = 0
    for chunk in chunks(records, max(_CHUNK - _CHUNK % layout.run, layout.run)):
        await in_thread(partial(filler.produce, chunk))
        done += len(chunk)
        progress(done)
    await in_thread(filler.flush)
    return done


async def fill_transactions(
    bootstrap: str,
    topic: str,
    transactions: Iterable[Transaction],
    *,
    transactional_id: str,
    layout: Layout = DEFAULT_LAYOUT,
    **settings: Setting,
) -> None:
    """One producer's transactions in sequence; the records of aborted ones are in the log too.

    Raises TrafficFailed.
    """
    wanted = client_config(bootstrap, transactional_id=transactional_id, **settings)
    filler = _Filler(bootstrap, topic, layout, wanted)
    await in_thread(partial(filler.producer.init_transactions, _FLUSH_S))
    for transaction in transactions:
        await in_thread(partial(_transact, filler, transaction))


def _transact(filler: _Filler, transaction: Transaction) -> None:
    filler.producer.begin_transaction()
    filler.produce(transaction.records)
    filler.flush()
    end = filler.producer.commit_transaction if transaction.commit else filler.producer.abort_transaction
    end(_FLUSH_S)
