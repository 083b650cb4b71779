"""The file of a wrap listener with what its mirrors have copied, over restarts: else a gap meanwhile would not be seen.

    shoal mirrored 1
    {"cluster": ..., "closed": ...}
    a line of JSON for each mirror and partition

It is written every few seconds, and when the listener ends. After a kill it is a little behind (`closed` is false); the
rules know what they cannot conclude then. Errors are logged once, and lose only this state.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.protocol.shallow.monitor.mirrors import KeptPosition
from shoal.protocol.shallow.monitor.partition import Position
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.cluster.state_files import NotOurs, put_away, write_lines
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.events.logs import event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

__all__ = ["MirroredFile", "MirroredState"]

log = logging.getLogger("shoal.mirror")

_FIRST = "shoal mirrored 1"


class MirroredState(NamedTuple):
    """`cluster`: the id of the source; None: unknown. `is_exact`: it was written when the listener had ended."""

    cluster: str | None
    is_exact: bool
    positions: Sequence[KeptPosition]


class MirroredFile:
    def __init__(self, listener: str, path: Path, failed: Callable[[], None]) -> None:
        self.path = path
        self._listener = listener
        self._failed = failed
        self._has_failed = False

    def load(self) -> MirroredState | None:
        """None: there is none. Raises OperatorError for a file that is not Shoal's."""
        try:
            if not self.path.exists():
                return None
            lines = self.path.read_text().splitlines()
            if lines and lines[0] != _FIRST and not lines[0].startswith("shoal mirrored "):
                what = str(NotOurs(self.path, "a file of mirrored offsets"))
                raise OperatorError.of(f"listener {self._listener!r}", what)
            if lines[:1] != [_FIRST]:
                raise ValueError("it is empty, or of another version")
            head = json.loads(lines[1])
            cluster = head["cluster"]
            positions = [_decode(json.loads(line)) for line in lines[2:]]
            return MirroredState(None if cluster is None else str(cluster), bool(head["closed"]), positions)
        except (OSError, ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError) as error:
            self.discard(str(error))
            return None

    def discard(self, why: str) -> None:
        name, (what, kept_as) = self._listener, put_away(self.path, why)
        text = f"listener {name!r}: {what}: gaps before now are not seen"
        values = event(text, listener=name, file=str(self.path), kept_as=kept_as, error=why)
        log.warning("mirrored-file-discarded", extra=values)

    def save(self, state: MirroredState) -> None:
        """May be called in a thread."""
        head = {"cluster": state.cluster, "closed": state.is_exact}
        try:
            write_lines(self.path, [_FIRST, json.dumps(head), *map(_encode, state.positions)])
            self._has_failed = False
        except OSError as error:
            self._failed()
            if not self._has_failed:
                self._has_failed = True
                text = (
                    f"listener {self._listener!r}: cannot write {self.path} ({error.strerror or error}): after a "
                    "restart of Shoal, gaps meanwhile are not seen. Make room, or choose another state-dir"
                )
                values = event(text, listener=self._listener, file=str(self.path), error=str(error))
                log.error("mirrored-file-not-written", extra=values)


def _encode(kept: KeptPosition) -> str:
    mirror, (topic, partition), topic_id, position = kept
    return json.dumps([mirror, topic, partition, topic_id and topic_id.hex(), *position])


def _decode(row: Any) -> KeptPosition:
    """Raises ValueError, TypeError, OverflowError."""
    mirror, topic, partition, topic_id, mirrored, given, end, size = row
    position = Position(int(mirrored), int(given), int(end), float(size))
    return KeptPosition(
        str(mirror),
        TopicPartition(str(topic), int(partition)),
        None if topic_id is None else bytes.fromhex(topic_id),
        position,
    )
