"""Wait for a mirror to catch up. End offsets are not enough: a restarted mirror may first deliver many duplicates."""

from shoal.scenarios.kafka.content.compare import Counts, reconcile
from shoal.scenarios.kafka.content.copies import Copy, read_copy
from shoal.scenarios.kafka.content.reading import READ_UNCOMMITTED
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.errors import NotReady, TrafficFailed
from shoal.scenarios.kafka.process import Process, until

_POLL_S = 0.25


async def until_copied(
    source: Copy,
    bootstrap: str,
    topic: str,
    *,
    within: float,
    isolation: str = READ_UNCOMMITTED,
    process: Process | None = None,
) -> Copy:
    """The copy of `topic` once no record of `source` is missing; errors meanwhile are ignored.

    The copy is read again whenever it has grown: for topics of thousands of records. Raises NotReady with the counts,
    immediately if `process` ends.
    """
    waiting = _Waiting(source, bootstrap, topic, isolation)
    what = f"{topic} to hold all of {source.topic}"
    try:
        await until(waiting.is_over, within=within, what=what, process=process, poll_s=_POLL_S)
    except NotReady as error:
        raise NotReady(f"{waiting.counts}: {error}") from None
    assert waiting.copy is not None
    return waiting.copy


class _Waiting:
    def __init__(self, source: Copy, bootstrap: str, topic: str, isolation: str) -> None:
        self._source = source
        self._bootstrap = bootstrap
        self._topic = topic
        self._isolation = isolation
        self._topics = Topics(bootstrap)
        self._total = -1
        self.copy: Copy | None = None
        self.counts: Counts | None = None

    async def is_over(self) -> bool:
        try:
            total = await self._topics.total(self._topic)
            if total != self._total:
                copy = await read_copy(
                    self._bootstrap,
                    self._topic,
                    isolation=self._isolation,
                    timestamp_types=self._source.timestamp_types,
                )
                self._total, self.copy, self.counts = total, copy, reconcile(self._source, copy)
        except TrafficFailed:  # a new topic, or a broker that is starting
            return False
        return self.counts is not None and self.counts.missing == 0
