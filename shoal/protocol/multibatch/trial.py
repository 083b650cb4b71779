"""Produce the sets to one partition, and read them back at the offsets in the responses."""

from functools import partial
from typing import Final, NamedTuple

from shoal.protocol.multibatch import messages
from shoal.protocol.multibatch.dialogue import PASSING, Dialogue, DialogueEnded, Talk, unproven
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
from shoal.protocol.wire.types import Buffer

__all__ = ["NAME_A_TOPIC", "SCRATCH_PREFIX", "ProbePartition", "Trial", "refusal", "remedy_for"]

SCRATCH_PREFIX: Final = "__shoal-probe-"
"""Never mirrored: MirrorMaker 2 excludes `__.*`, and Shoal never wraps it (`wrap/eligible.py`)."""

_DENIED: Final = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})
# Brokers remember five batches per producer.
_FORGOTTEN: Final = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
_EMPTY_READS: Final = 20
_LOOKS: Final = (0.0, 0.05, 0.1, 0.2, 0.4)  # seconds before each read of the end offset: a follower may be slow
_LEADER, _ALL = 1, -1  # acks

NAME_A_TOPIC: Final = (
    "create a topic with a partition on every broker, let Shoal's clients write and read it, and name it with "
    "probe-topic (shoal probe --topic)"
)
_RIGHTS: Final = f"let the client create and delete topics {SCRATCH_PREFIX}*; or {NAME_A_TOPIC}"
_QUOTA: Final = "raise the quotas of Shoal's clients (consumer_byte_rate, request_percentage)"


class ProbePartition(NamedTuple):
    """`shared`: other clients may produce to it."""

    topic: str
    partition: int
    shared: bool


class Trial:
    """`current` is the last set that was sent."""

    def __init__(self, dialogue: Dialogue, partition: ProbePartition, token: bytes, now: int) -> None:
        self.current: TestSet | None = None
        self._dialogue = dialogue
        self._target = partition
        self._token = token
        self._now = now

    def run(self) -> Talk[Proof]:
        """Raises `DialogueEnded` with any result other than PROVEN."""
        token, now = self._token, self._now
        end = yield from self._single(single_batch(token, now))
        sets = proving_sets(token, now)
        for test_set in sets:
            end = yield from self._store(test_set, end)
        end = yield from self._refuse(damaged_set(token, now), end)
        stamps, sequences = yield from self._stamps(end)
        sizes = ", ".join(str(len(test_set.batches)) for test_set in sets)
        why = f"sets of {sizes} batches were stored and read back, nothing of a damaged one was"
        return Proof(result=Result.PROVEN, why=f"{why}; {sequences}", stamps=stamps)

    def _single(self, test_set: TestSet) -> Talk[int]:
        """Returns the offset after it."""
        error_code, base = yield from self._produce(test_set)
        if error_code:
            why = refusal(f"{self._target.topic}-{self._target.partition} takes no single batch either", error_code)
            raise unproven(why, remedy_for(error_code))
        return int(base) + len(test_set.records)

    def _store(self, test_set: TestSet, end: int) -> Talk[int]:
        error_code, base = yield from self._produce(test_set)
        if error_code in _DENIED or error_code in PASSING:
            raise unproven(refusal(f"cannot produce to {self._target.topic}", error_code), remedy_for(error_code))
        if error_code:
            raise DialogueEnded(
                Proof(result=Result.REFUSED, why=f"the broker answers {test_set} with {error_name(error_code)}")
            )
        if base < end or (base != end and not self._target.shared):
            raise _unsafe(f"the broker says that {test_set} begin at offset {base}, and the log ended at {end}")
        yield from self._look(test_set, base)
        yield from self._compare(test_set, base)
        return base + len(test_set.records)

    def _look(self, test_set: TestSet, base: int) -> Talk[None]:
        """The end offset must count every record."""
        due = base + len(test_set.records)
        end = -1
        for pause in _LOOKS:
            end = yield from self._end(pause)
            if end >= due:
                break
        if end < due:
            lost = due - end
            raise _unsafe(
                f"the broker took {test_set} with success, but the log ends at {end} instead of {due}: {lost} of "
                f"{len(test_set.records)} records are lost"
            )
        if end > due and not self._target.shared:
            raise _unsafe(f"after {test_set} the log ends at {end} instead of {due}")

    def _compare(self, test_set: TestSet, base: int) -> Talk[None]:
        due = base + len(test_set.records)
        read: list[ReadRecord] = []
        position, empty = base, 0
        while position < due and empty < _EMPTY_READS:
            found = yield from self._read(position)
            empty += not found
            position = max((record.offset + 1 for record in found), default=position)
            read += found
        wrong = difference(test_set.records, base, [record for record in read if record.offset < due])
        if wrong:
            raise _unsafe(f"the broker took {test_set} with success, but when read back, {wrong}")

    def _stamps(self, end: int) -> Talk[tuple[bool, str]]:
        """Does the broker recognise each batch of a set by its producer id and sequence, and know the next sequence?

        If so, Shoal resends batches in doubt one by one. Any other known behaviour is harmless, except losing new
        batches.
        """
        try:
            error_code, producer_id, epoch = yield from self._dialogue.insist(
                ApiKey.INIT_PRODUCER_ID, messages.init_producer(), messages.producer
            )
        except DialogueEnded:
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
        except DialogueEnded as ended:
            if ended.proof.result is Result.UNSAFE:
                raise
            return False, f"batches with sequences were not taken: {ended.proof.why}"
        return True, "batches with sequences are known again one by one"

    def _know(self, test_set: TestSet, base: int, end: int, *, must: bool) -> Talk[None]:
        """Send a batch of the set again, alone: the broker reports it at `base`; an old one may be out of order."""
        error_code, again = yield from self._produce(test_set)
        grown = yield from self._grown(test_set, end)
        if error_code and grown:
            raise _unsafe(f"the broker answers a resent batch with {error_name(error_code)}, and stores it")
        if grown:
            raise _Unstamped("a resent batch with a sequence was stored again")
        if error_code not in ((0,) if must else (0, *_FORGOTTEN)):
            raise _Unstamped(f"a resent batch with a sequence was refused with {error_name(error_code)}")
        if not error_code and again not in (base, -1):
            raise _Unstamped(f"the broker reports a resent batch at offset {again} instead of {base}")

    def _continue(self, test_set: TestSet, begin: TestSet, rest: TestSet, end: int) -> Talk[bool]:
        """Send a set whose beginning the broker has, as a new leader may; True if it now has all of it."""
        error_code, _ = yield from self._produce(test_set)
        if error_code:
            if (yield from self._grown(test_set, end)):
                raise _unsafe(f"the broker answers a partly known set with {error_name(error_code)} and stores a part")
            return False
        grown = end
        for pause in _LOOKS:
            grown = yield from self._end(pause)
            if grown > end:
                break
        found = yield from self._keys(end, grown)
        if found & {record.key for record in begin.records}:
            raise _Unstamped("a resent batch with a sequence was stored again")
        if not found >= {record.key for record in rest.records}:
            raise _unsafe(
                "the broker answers a partly known set with success, and loses its new batches: a new leader may have "
                "a part of any set"
            )
        return True

    def _keys(self, start: int, end: int) -> Talk[set[bytes | None]]:
        """The keys of the records from `start` up to `end` (exclusive)."""
        found, position, empty = set[bytes | None](), start, 0
        while position < end and empty < _EMPTY_READS:
            read = yield from self._read(position)
            empty += not read
            position = max((record.offset + 1 for record in read), default=position)
            found |= {record.key for record in read}
        return found

    def _refuse(self, test_set: TestSet, end: int) -> Talk[int]:
        """All or nothing: an error, and none of its records in the log. Returns the log end offset."""
        error_code, _ = yield from self._produce(test_set)
        if not error_code:
            raise _unsafe(f"the broker takes {test_set} with success: it does not check batches in a set")
        if (yield from self._grown(test_set, end)):
            raise _unsafe(
                f"the broker answers {test_set} with {error_name(error_code)} and stores a part of it: sending it "
                "again would make duplicates"
            )
        return end

    def _grown(self, test_set: TestSet, end: int) -> Talk[bool]:
        """True if records of this set are at `end` or later; in a scratch topic, any records."""
        if (yield from self._end(0.0)) == end:
            return False
        read = yield from self._read(end)
        ours = {record.key for record in test_set.records}
        return not self._target.shared or any(record.key in ours for record in read)

    # -- single requests

    def _produce(self, test_set: TestSet) -> Talk[tuple[int, int]]:
        """Error code and base offset.

        With acks=all the leader answers when consumers can read the set: immediately in a scratch topic, whose only
        replica is the leader; min.insync.replicas does not block it.
        """
        self.current = test_set
        values = messages.produce(
            self._target.topic, self._target.partition, test_set.data, _ALL if self._target.shared else _LEADER
        )
        read = partial(messages.produced, topic=self._target.topic, partition=self._target.partition)
        error_code, base = yield from self._dialogue.insist(ApiKey.PRODUCE, values, read)
        return error_code, base

    def _end(self, pause: float) -> Talk[int]:
        values = messages.end_offset_request(self._target.topic, self._target.partition)
        frame, version = yield from self._dialogue.ask(ApiKey.LIST_OFFSETS, values, pause)
        error_code, end = messages.offset(frame, version, self._target.topic, self._target.partition)
        if error_code:
            raise unproven(
                refusal(f"cannot ask for the end of {self._target.topic}", error_code), remedy_for(error_code)
            )
        return end

    def _read(self, position: int) -> Talk[list[ReadRecord]]:
        """Records from `position` on; empty if there are none yet."""
        values = messages.fetch(self._target.topic, self._target.partition, position)

        def read(frame: Buffer, version: int) -> tuple[int, int, int, Buffer]:
            return *messages.fetched(frame, version, self._target.topic, self._target.partition), frame

        error_code, start, end, frame = yield from self._dialogue.insist(ApiKey.FETCH, values, read)
        if error_code:
            remedy = _QUOTA if error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED else remedy_for(error_code)
            raise unproven(refusal(f"cannot read {self._target.topic}", error_code), remedy)
        try:
            return [record for record in read_back(frame, start, end) if record.offset >= position]
        except RemoteProtocolError as error:
            raise _unsafe(f"after {self.current} the log cannot be read: {error}") from None


class _Unstamped(Exception):
    """The broker ignores sequences, or does not treat them as Shoal requires: batches are sent without them."""


def _unsafe(why: str) -> DialogueEnded:
    return DialogueEnded(Proof(result=Result.UNSAFE, why=why))


def refusal(what: str, error_code: int, message: str = "") -> str:
    return f"{what}: {error_name(error_code)}{f': {message}' if message else ''}"


def remedy_for(error_code: int) -> str:
    return _RIGHTS if error_code in _DENIED else NAME_A_TOPIC
