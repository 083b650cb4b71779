"""The sets themselves: produced to one partition, and looked for where the answers say that they are."""

from functools import partial
from typing import Final, NamedTuple

from shoal.protocol.multibatch import messages
from shoal.protocol.multibatch.dialogue import PASSING, Dialogue, Ended, Talk, unknown
from shoal.protocol.multibatch.proof import Proof, Result
from shoal.protocol.multibatch.sets import (
    ReadRecord,
    TestSet,
    damaged_set,
    difference,
    proving_sets,
    read_back,
    single_batch,
    stamped_sets,
)
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.wire.error_codes import ErrorCode, error_name
from shoal.protocol.wire.errors import RemoteProtocolError

__all__ = ["NAME_A_TOPIC", "SCRATCH_PREFIX", "Place", "Trial", "refusal", "way_out"]

SCRATCH_PREFIX: Final = "__shoal-probe-"
"""Never mirrored: MirrorMaker 2 leaves out `__.*`, and Shoal never wraps it (`wrap/eligible.py`)."""

_DENIED: Final = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})
# Brokers remember five batches.
_FORGOTTEN: Final = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
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
        stamps, told = yield from self._stamps(end)
        sizes = ", ".join(str(len(one.batches)) for one in sets)
        why = f"sets of {sizes} batches were stored and read back, nothing of a damaged one was"
        return Proof(result=Result.PROVEN, why=f"{why}; {told}", stamps=stamps)

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

    def _stamps(self, end: int) -> Talk[tuple[bool, str]]:
        """Does the broker know each batch of a set by its producer id and sequence, and where the next one begins? So Shoal sends what
        is in doubt again, batch by batch. What the broker does instead is no danger, if known; losing new batches is."""
        try:
            error_code, producer_id, epoch = yield from self._dialogue.insist(
                ApiKey.INIT_PRODUCER_ID, messages.init_producer(), messages.producer
            )
        except Ended:
            return False, "it gives no producer ids"
        if error_code:
            return False, f"it gives no producer id: {error_name(error_code)}"
        first, second = stamped_sets(self._token, self._now, producer_id, epoch)
        begin = second.part(0, 1, "the first of two with sequences")
        rest = second.part(1, 2, "the second of two with sequences")
        try:
            end = yield from self._store(first, end)
            newest, oldest = first.part(len(first.batches) - 1, len(first.batches), "again"), first.part(0, 1, "again")
            yield from self._know(newest, end - len(newest.records), end, must=True)
            yield from self._know(oldest, end - len(first.records), end, must=False)
            end = yield from self._store(begin, end)
            if not (yield from self._continue(second, begin, rest, end)):
                yield from self._store(rest, end)
        except _Unstamped as cause:
            return False, str(cause)
        except Ended as ended:
            if ended.proof.result is Result.UNSAFE:
                raise
            return False, f"batches with sequences were not taken: {ended.proof.why}"
        return True, "batches with sequences are known again one by one"

    def _know(self, one: TestSet, base: int, end: int, *, must: bool) -> Talk[None]:
        """A batch of the set comes again, alone: it lies at `base`, and may be out of order where it is an old one."""
        error_code, again = yield from self._produce(one)
        grown = yield from self._grown(one, end)
        if error_code and grown:
            raise _unsafe(f"the broker answers a batch that comes again with {error_name(error_code)}, and stores it")
        if grown:
            raise _Unstamped("a batch with a sequence that came again was stored again")
        if error_code not in ((0,) if must else (0, *_FORGOTTEN)):
            raise _Unstamped(f"a batch with a sequence that came again was refused with {error_name(error_code)}")
        if not error_code and again not in (base, -1):
            raise _Unstamped(
                f"of a batch that came again the broker says that it is at offset {again} instead of {base}"
            )

    def _continue(self, one: TestSet, begin: TestSet, rest: TestSet, end: int) -> Talk[bool]:
        """A set of which the broker has the beginning, as a leader may that was a follower. -> whether it has all of it now."""
        error_code, _ = yield from self._produce(one)
        if error_code:
            if (yield from self._grown(one, end)):
                raise _unsafe(
                    f"the broker answers a set that it knows in part with {error_name(error_code)} and stores a part"
                )
            return False
        grown = end
        for pause in _LOOKS:
            grown = yield from self._end(pause)
            if grown > end:
                break
        found = yield from self._keys(end, grown)
        if found & {record.key for record in begin.records}:
            raise _Unstamped("a batch with a sequence that came again was stored again")
        if not found >= {record.key for record in rest.records}:
            raise _unsafe(
                "of a set that it knows in part the broker says that it stored it, and loses what is new: a new leader may have a part of "
                "any set"
            )
        return True

    def _keys(self, start: int, end: int) -> Talk[set[bytes | None]]:
        """Of the records from `start` on and before `end`."""
        found, position, empty = set[bytes | None](), start, 0
        while position < end and empty < _EMPTY_READS:
            read = yield from self._read(position)
            empty += not read
            position = max((record.offset + 1 for record in read), default=position)
            found |= {record.key for record in read}
        return found

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


class _Unstamped(Exception):
    """The broker pays no regard to sequences, or not the regard that Shoal relies on: its batches go without."""


def _unsafe(why: str) -> Ended:
    return Ended(Proof(result=Result.UNSAFE, why=why))


def refusal(what: str, error_code: int, message: str = "") -> str:
    return f"{what}: {error_name(error_code)}{f': {message}' if message else ''}"


def way_out(error_code: int) -> str:
    return _RIGHTS if error_code in _DENIED else NAME_A_TOPIC
