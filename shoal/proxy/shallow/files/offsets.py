"""The file of an unwrap listener with the offsets that it gave to source records (protocol/shallow/translate).

    shoal offsets 1
    {"cluster": ...}                                the id of the target cluster
    {"topic": [cluster, topic], "id": ...}          of the source; another id: the topic was made anew
    {"partitions": [number, topic, partition, source cluster, source topic, source partition]}
    {"begins": [topic, partition, offset]}          older ranges of this target partition have fallen off
    [number, target offset, source offset, records]
    {"forget_target": topic}    {"forget_source": [cluster, topic]}
    {"forget_partitions": [[cluster, topic, partition], ...]}    of the source

Lines are added as records are appended, with one write for each request of a mirror: it goes to the page cache, so a
killed Shoal has lost nothing, and no disk is waited for. A last line that is not complete does not count. At start-up,
and when it has doubled, the file is written anew without what is no longer needed, in a thread.

`shoal translate` reads it, also while Shoal runs.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shoal.protocol.shallow.translate.offset_map import OffsetMap, SourcePartition
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.cluster.state_files import NotOurs, put_away, write_lines
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.events.logs import event
from shoal.proxy.shallow.files.open_file import OpenFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from shoal.protocol.shallow.translate.offset_map import AppendedRange

__all__ = ["OffsetsFile", "OffsetsState", "read_offsets"]

log = logging.getLogger("shoal.unwrap")

_FIRST = "shoal offsets 1"
_GROWTH = 4 * 1024 * 1024
"""The file is written anew when it has grown by so much, and by as much as it had: 140,000 lines, or two minutes of a
mirror with 1,000 requests a second. 200,000 ranges take 0.03 s of the event loop and 0.2 s of a thread."""
_LOST = "shoal translate does not know what is appended from now on"

_Pair = tuple[TopicPartition, SourcePartition]


@dataclass(slots=True)
class OffsetsState:
    """`cluster`: the id of the target; None: unknown. `topic_ids`: by cluster and name, of the source."""

    cluster: str | None = None
    topic_ids: dict[tuple[str, str], bytes] = field(default_factory=dict)
    known: OffsetMap = field(default_factory=OffsetMap)


def read_offsets(path: Path) -> OffsetsState:
    """Raises NotOurs, OSError, and ValueError for a damaged file."""
    text = path.read_text(errors="replace")
    whole = text[: text.rfind("\n") + 1].splitlines()
    if text and not text.startswith("shoal offsets "):
        raise NotOurs(path, "a file of appended offsets")
    if whole and whole[0] != _FIRST:
        raise ValueError(f"it is of another version: {whole[0]!r}")
    state, pairs = OffsetsState(), dict[int, _Pair]()
    try:
        for line in whole[1:]:
            _apply(json.loads(line), state, pairs)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise ValueError(f"a damaged line: {error}") from error
    return state


def _apply(line: Any, state: OffsetsState, pairs: dict[int, _Pair]) -> None:
    """Raises ValueError, TypeError, KeyError, OverflowError."""
    if isinstance(line, list):
        number, *offsets = line
        target_first, source_first, records = map(int, offsets)
        if min(target_first, source_first) < 0 or records <= 0:
            raise ValueError(f"no range: {line}")
        state.known.add(*pairs[number], source_first, target_first, records)
        return
    ((name, value), *_) = dict(line).items()
    match name:
        case "cluster":
            state.cluster = None if value is None else str(value)
        case "topic":
            cluster, topic = value
            state.topic_ids[str(cluster), str(topic)] = bytes.fromhex(line["id"])
        case "partitions":
            number, topic, partition, *source = value
            pairs[int(number)] = _target(topic, partition), _source(*source)
        case "begins":
            topic, partition, offset = value
            state.known.begin(_target(topic, partition), int(offset))
        case "forget_target":
            state.known.forget_target(str(value))
        case "forget_source":
            cluster, topic = map(str, value)
            state.known.forget_source(cluster, topic)
        case "forget_partitions":
            state.known.forget_partitions({SourcePartition(str(a), str(b), int(number)) for a, b, number in value})
        case _:
            raise ValueError(f"unknown: {name}")


def _target(topic: Any, partition: Any) -> TopicPartition:
    return TopicPartition(str(topic), int(partition))


def _source(cluster: Any, topic: Any, partition: Any) -> SourcePartition:
    return SourcePartition(str(cluster), str(topic), int(partition))


class OffsetsFile(OpenFile):
    """Without a path nothing is stored. Errors are logged once, and lose only what is not written."""

    def __init__(self, listener: str, path: Path | None, failed: Callable[[], None] = lambda: None) -> None:
        self._listener = listener
        self._path = path
        self._failed = failed
        self._numbers: dict[_Pair, int] = {}  # never used again for another pair: two versions of the file have them
        self._next_number = 0
        self._size = self._written_size = 0
        self._held: list[str] | None = None  # lines since a new version is being written
        self._is_outdated = False  # that version is of another cluster
        self._has_failed = False

    # -- reading -----------------------------------------------------------------------------------------------------

    def load(self) -> OffsetsState:
        """Raises OperatorError for a file that is not Shoal's."""
        if self._path is None:
            return OffsetsState()
        if not self._exists(self._path):
            text = f"listener {self._listener!r}: new: {self._path}"
            log.info("offsets-file-new", extra=event(text, listener=self._listener, file=str(self._path)))
            return OffsetsState()
        try:
            state = read_offsets(self._path)
        except NotOurs as error:
            raise OperatorError.of(f"listener {self._listener!r}", str(error)) from None
        except (OSError, ValueError) as error:
            self.discard(str(error))
            return OffsetsState()
        text = f"listener {self._listener!r}: loaded {self._path}: {len(state.known)} ranges of offsets"
        values = event(text, listener=self._listener, file=str(self._path), ranges=len(state.known))
        log.info("offsets-file-loaded", extra=values)
        return state

    @staticmethod
    def _exists(path: Path) -> bool:
        try:
            return path.exists()
        except OSError:
            return False

    def discard(self, why: str) -> None:
        """Nothing of it applies."""
        self._let_go()
        self._is_outdated = self._held is not None
        if self._path is None or not self._exists(self._path):
            return
        what, kept_as = put_away(self._path, why)
        text = f"listener {self._listener!r}: {what}: shoal translate knows what is appended from now on"
        values = event(text, listener=self._listener, file=str(self._path), kept_as=kept_as, error=why)
        log.warning("offsets-file-discarded", extra=values)

    # -- adding ------------------------------------------------------------------------------------------------------

    @staticmethod
    def line(value: object) -> str:
        """For `add`."""
        return f"{json.dumps(value)}\n"

    def appended(self, target: TopicPartition, known: AppendedRange) -> str:
        """For `add`."""
        pair = target, known.source
        number, begun = self._numbers.get(pair), ""
        if number is None:
            number = self._number(pair)
            begun = self.line({"partitions": [number, *target, *known.source]})
        return f"{begun}[{number}, {known.target_first}, {known.source_first}, {known.records}]\n"

    def _number(self, pair: _Pair) -> int:
        number = self._numbers[pair] = self._next_number
        self._next_number += 1
        return number

    def add(self, lines: str) -> None:
        """Without an open file they are left out: the next version has what they say."""
        if self._held is not None:
            self._held.append(lines)
        if self._fd is None:
            return
        try:
            data = lines.encode()
            if os.write(self._fd, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._size += len(data)
        except OSError as error:
            self._let_go()
            self._not_written(error)

    @property
    def is_due(self) -> bool:
        """It should be written anew: it has grown, or could not be written."""
        if self._path is None or self._held is not None:
            return False
        return self._fd is None or self._size > 2 * self._written_size + _GROWTH

    # -- writing it anew ---------------------------------------------------------------------------------------------

    def begin_anew(self, state: OffsetsState) -> Iterable[str]:
        """The lines for `write_anew`, which may run in a thread; call `anew` when it has returned."""
        self._held = []
        known, self._numbers = self._numbers, {}
        for pair in state.known.pairs():
            self._numbers[pair] = known[pair] if pair in known else self._number(pair)
        numbers = dict(self._numbers)
        topics = {source[:2] for _, source in numbers}
        for gone in state.topic_ids.keys() - topics:
            del state.topic_ids[gone]
        ranges = [(target, state.known.begins(target), state.known.ranges(target)) for target in state.known.targets()]
        head = [_FIRST, json.dumps({"cluster": state.cluster})]
        head += [json.dumps({"topic": key, "id": topic_id.hex()}) for key, topic_id in state.topic_ids.items()]
        return _lines(head, numbers, ranges)

    def write_anew(self, lines: Iterable[str]) -> int | None:
        """-> the open file; None: it could not be written. May be called in a thread."""
        assert self._path is not None
        try:
            write_lines(self._path, lines)
            return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError as error:
            self._not_written(error)
            return None

    def anew(self, fd: int | None) -> None:
        held, self._held = self._held or [], None
        self._let_go()
        if fd is not None and self._is_outdated:
            os.close(fd)
            fd = None
        self._fd, self._is_outdated = fd, False
        if fd is None:
            return
        self._has_failed = False
        self._size = self._written_size = os.fstat(fd).st_size
        self.add("".join(held))

    def _not_written(self, error: OSError) -> None:
        self._failed()
        if not self._has_failed:
            self._has_failed = True
            why = error.strerror or str(error)
            text = (
                f"listener {self._listener!r}: cannot write {self._path} ({why}): {_LOST}, until there is room. Make "
                "room, or choose another state-dir"
            )
            values = event(text, listener=self._listener, file=str(self._path), error=why)
            log.error("offsets-file-not-written", extra=values)


def _lines(
    head: list[str],
    numbers: dict[_Pair, int],
    logs: list[tuple[TopicPartition, int, list[AppendedRange]]],
) -> Iterator[str]:
    yield from head
    for (target, source), number in numbers.items():
        yield json.dumps({"partitions": [number, *target, *source]})
    for target, begins, ranges in logs:
        if begins:
            yield json.dumps({"begins": [*target, begins]})
        for known in ranges:
            yield f"[{numbers[target, known.source]}, {known.target_first}, {known.source_first}, {known.records}]"
