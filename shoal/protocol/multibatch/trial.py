"""The sets themselves: produced to one partition, and looked for where the answers say that they are."""

from functools import partial
from typing import Final, NamedTuple

from shoal.protocol.api import ApiKey
from shoal.protocol.errors import RemoteProtocolError
from shoal.protocol.multibatch import messages
from shoal.protocol.multibatch.dialogue import PASSING, Dialogue, Ended, Talk, error_name, unknown
from shoal.protocol.multibatch.proof import Proof, Result
from shoal.protocol.multibatch.sets import (
    ReadRecord,
    TestSet,
    damaged_set,
    difference,
    proving_sets,
    read_back,
    repeated_set,
    single_batch,
)

__all__ = ["NAME_A_TOPIC", "SCRATCH_PREFIX", "Place", "Trial", "refusal", "way_out"]

SCRATCH_PREFIX: Final = "__shoal-probe-"
"""Never mirrored: MirrorMaker 2 leaves out `__.*`, and Shoal never wraps it (`eligible.py`)."""

_DENIED: Final = frozenset({29, 31})
_EMPTY_READS: Final = 20
_LOOKS: Final = (0.0, 0.05, 0.1, 0.2, 0.4)  # seconds before each look at the end offset: a follower may be slow
_LEADER, _ALL = 1, -1  # acks

NAME_A_TOPIC: Final = (
    "create a topic with a partition on every broker, let Shoal's clients write and read it, and name it with probe-topic "
    "(shoal probe --topic)"
)
_RIGHTS: Final = f"let the client create and delete topics {SCRATCH_PREFIX}*; or {NAME_A_TOPIC}"


class Place(NamedTuple):
    """`shared`: others may produce to it."""

    topic: str
    partition: int
    shared: bool


class Trial:
    """`current` is the set that was sent last."""

    def __init__(self, dialogue: Dialogue, place: Place, token: bytes, now: int) -> None:
        self.current: TestSet | None = None
        self._dialogue = dialogue
        self._place = place
        self._token = token
        self._now = now

    def run(self) -> Talk[Proof]:
        """A result other than PROVEN comes as `Ended`."""
        token, now = self._token, self._now
        end = yield from self._single(single_batch(token, now))
        sets = proving_sets(token, now)
        for one in sets:
            end = yield from self._store(one, end)
        end = yield from self._refuse(damaged_set(token, now), end)
        repeats, told = yield from self._repeat(end)
        sizes = ", ".join(str(len(one.batches)) for one in sets)
        why = f"sets of {sizes} batches were stored and read back, nothing of a damaged one was"
        return Proof(result=Result.PROVEN, why=f"{why}; {told}", repeats=repeats)

    def _single(self, one: TestSet) -> Talk[int]:
        """-> the offset behind it."""
        error_code, base = yield from self._produce(one)
        if error_code:
            why = refusal(f"{self._place.topic}-{self._place.partition} takes no single batch either", error_code)
            raise unknown(why, way_out(error_code))
        return int(base) + len(one.records)

    def _store(self, one: TestSet, end: int) -> Talk[int]:
        error_code, base = yield from self._produce(one)
        if error_code in _DENIED or error_code in PASSING:
            raise unknown(refusal(f"cannot produce to {self._place.topic}", error_code), way_out(error_code))
        if error_code:
            raise Ended(Proof(result=Result.REFUSED, why=f"the broker answers {one} with {error_name(error_code)}"))
        if base < end or (base != end and not self._place.shared):
            raise _unsafe(f"the broker says that {one} begin at offset {base}, and the log ended at {end}")
        yield from self._look(one, base)
        yield from self._compare(one, base)
        return base + len(one.records)

    def _look(self, one: TestSet, base: int) -> Talk[None]:
        """The end offset must count every record."""
        due = base + len(one.records)
        end = -1
        for pause in _LOOKS:
            end = yield from self._end(pause)
            if end >= due:
                break
        if end < due:
            lost = due - end
            raise _unsafe(
                f"the broker took {one} with success, but the log ends at {end} instead of {due}: {lost} of {len(one.records)} "
                "records are lost"
            )
        if end > due and not self._place.shared:
            raise _unsafe(f"after {one} the log ends at {end} instead of {due}")

    def _compare(self, one: TestSet, base: int) -> Talk[None]:
        due = base + len(one.records)
        read: list[ReadRecord] = []
        position, empty = base, 0
        while position < due and empty < _EMPTY_READS:
            found = yield from self._read(position)
            empty += not found
            position = max((record.offset + 1 for record in found), default=position)
            read += found
        wrong = difference(one.records, base, [record for record in read if record.offset < due])
        if wrong:
            raise _unsafe(f"the broker took {one} with success, but of what is read back {wrong}")

    def _repeat(self, end: int) -> Talk[tuple[bool, str]]:
        """Is a set with a producer id stored once, though it comes twice? What the broker does instead is no danger, if known."""
        try:
            answer = yield from self._dialogue.insist(
                ApiKey.INIT_PRODUCER_ID, messages.init_producer(), messages.producer
            )
        except Ended:
            return False, "it gives no producer ids"
        error_code, producer_id, epoch = answer
        if error_code:
            return False, f"it gives no producer id: {error_name(error_code)}"
        one = repeated_set(self._token, self._now, producer_id, epoch)
        try:
            base = (yield from self._store(one, end)) - len(one.records)
        except Ended as ended:
            if ended.proof.result is Result.UNSAFE:
                raise
            return False, f"one with a producer id was not: {ended.proof.why}"
        error_code, again = yield from self._produce(one)
        grown = yield from self._grown(one, base + len(one.records))
        if error_code and grown:
            raise _unsafe(f"the broker answers a repeated set with {error_name(error_code)} and stores a part of it")
        if error_code:
            return False, f"a repeated one was refused with {error_name(error_code)}"
        known = again == base and not grown
        return known, "a repeated one was stored once" if known else "a repeated one was stored again"

    def _refuse(self, one: TestSet, end: int) -> Talk[int]:
        """All or nothing: an error, and none of its records in the log. -> where the log ends."""
        error_code, _ = yield from self._produce(one)
        if not error_code:
            raise _unsafe(f"the broker takes {one} with success: it does not check batches in a set")
        if (yield from self._grown(one, end)):
            raise _unsafe(
                f"the broker answers {one} with {error_name(error_code)} and stores a part of it: sending it again would "
                "make duplicates"
            )
        return end

    def _grown(self, one: TestSet, end: int) -> Talk[bool]:
        """Whether records of this set lie at `end` or behind it; in a scratch topic, any records."""
        if (yield from self._end(0.0)) == end:
            return False
        read = yield from self._read(end)
        ours = {record.key for record in one.records}
        return not self._place.shared or any(record.key in ours for record in read)

    # -- single questions

    def _produce(self, one: TestSet) -> Talk[tuple[int, int]]:
        """Error code and base offset. With acks = all the leader answers when consumers may read it; of a scratch topic, whose
        only replica is the leader, that is at once, and no min.insync.replicas stands in the way."""
        self.current = one
        values = messages.produce(
            self._place.topic, self._place.partition, one.data, _ALL if self._place.shared else _LEADER
        )
        read = partial(messages.produced, topic=self._place.topic, partition=self._place.partition)
        error_code, base = yield from self._dialogue.insist(ApiKey.PRODUCE, values, read)
        return error_code, base

    def _end(self, pause: float) -> Talk[int]:
        values = messages.end_offset_request(self._place.topic, self._place.partition)
        frame, version = yield from self._dialogue.ask(ApiKey.LIST_OFFSETS, values, pause)
        error_code, end = messages.offset(frame, version, self._place.topic, self._place.partition)
        if error_code:
            raise unknown(refusal(f"cannot ask for the end of {self._place.topic}", error_code), way_out(error_code))
        return end

    def _read(self, position: int) -> Talk[list[ReadRecord]]:
        """Records from `position` on; none where there are none yet."""
        values = messages.fetch(self._place.topic, self._place.partition, position)
        frame, version = yield from self._dialogue.ask(ApiKey.FETCH, values)
        error_code, start, end = messages.fetched(frame, version, self._place.topic, self._place.partition)
        if error_code:
            raise unknown(refusal(f"cannot read {self._place.topic}", error_code), way_out(error_code))
        try:
            return [record for record in read_back(frame, start, end) if record.offset >= position]
        except RemoteProtocolError as error:
            raise _unsafe(f"after {self.current} the log cannot be read: {error}") from None


def _unsafe(why: str) -> Ended:
    return Ended(Proof(result=Result.UNSAFE, why=why))


def refusal(what: str, error_code: int, message: str = "") -> str:
    return f"{what}: {error_name(error_code)}{f': {message}' if message else ''}"


def way_out(error_code: int) -> str:
    return _RIGHTS if error_code in _DENIED else NAME_A_TOPIC
