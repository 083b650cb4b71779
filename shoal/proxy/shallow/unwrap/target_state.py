"""What an unwrapping listener knows of its target cluster from request to request, and across restarts.

    producers     the sequence numbers of idempotent mirrors       <producers-file>
    deliveries    what of each envelope is appended                .deliveries
    ids           Shoal's own producer ids, and what is in doubt   .doubt
    translation   the offsets that records have at the target      .offsets
    raw           raw batches that may come again                  in memory only

All of it is of one cluster: where the addresses lead to another one, it is dropped.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from shoal.protocol.shallow.unwrap.mirror_producers import MirrorProducers
from shoal.protocol.shallow.unwrap.raw_retries import RawRetries
from shoal.proxy.events.logs import event
from shoal.proxy.shallow.files.deliveries import DeliveriesLog
from shoal.proxy.shallow.files.doubt import load_doubt, save_doubt
from shoal.proxy.shallow.files.producers import ProducersFile
from shoal.proxy.shallow.unwrap.producer_ids import ProducerIds
from shoal.proxy.shallow.unwrap.translation import Translation

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shoal.protocol.wire.compression import Codec
    from shoal.proxy.listener.listener import Listener
    from shoal.proxy.shallow.monitor.monitor import MirrorMonitors

__all__ = ["TargetState"]

log = logging.getLogger("shoal.unwrap")

_SLOTS_USED_UP = (
    "more than {} pairs of producer id and partition of idempotent mirrors are in use: those unused for the longest "
    "time are forgotten, and a mirror that continues with one gets error 45 (OUT_OF_ORDER_SEQUENCE_NUMBER): raise "
    "producer-slots (shoal mirror: --producer-slots) and restart Shoal"
)


class TargetState:
    """The files are read by `begin`, which the listener calls before its first client."""

    def __init__(
        self, listener: Listener, monitors: MirrorMonitors, plain_codec: Codec | None, *, clock: Callable[[], float]
    ) -> None:
        settings = listener.settings
        self._name = settings.name
        self._kept = settings.producers_file
        self._slots = settings.shallow.producer_slots
        self._plain_codec = plain_codec
        self._failed = listener.state_failed
        self._warned_of_slots = False
        self.has_begun = False
        self._file = ProducersFile(self._name, None, slots=0)
        self.producers = self._mirror_producers()
        self.deliveries = DeliveriesLog()
        self.ids = ProducerIds(self._name, clock=clock)
        self.translation = Translation(self._name, monitors, _beside(self._kept, ".offsets"), self._failed)
        self._monitors = monitors
        self.raw = RawRetries(plain_codec)

    def begin(self) -> None:
        self._file = ProducersFile(self._name, self._kept, slots=self._slots, gave_up=self._failed)
        self.producers = self._mirror_producers()
        if self._kept is not None:
            self.deliveries.open(self._kept.with_suffix(".deliveries"), self._failed)
            for doubt in load_doubt(self._kept.with_suffix(".doubt"), failed=self._failed):
                self.ids.restore(*doubt)
        self.translation.begin()
        self._monitors.when_truncated.append(self.translation.source_truncated)
        self.has_begun = True

    def end(self) -> None:
        if self._kept is not None and self.has_begun:
            save_doubt(self._kept.with_suffix(".doubt"), self.ids.in_doubt(), failed=self._failed)
            self.translation.end()
        self._monitors.when_truncated.clear()
        self.deliveries.close()
        self._file.close()  # the last one: it has the lock

    def identified(self, cluster: str) -> None:
        """The cluster is known now. What is of another one is dropped."""
        self.translation.identified(cluster)
        if self._file.of(cluster):
            self.producers = self._mirror_producers()
            self.deliveries = self.deliveries.for_another_cluster()
            self.raw = RawRetries(self._plain_codec)

    def forget(self, topic: str) -> None:
        """The topic was deleted."""
        self.deliveries.forget(topic)
        self.ids.forget_topic(topic)
        self.raw.forget(topic)
        self.translation.forget_target(topic)

    def warn_of_slots(self) -> None:
        """Once, if idempotent mirrors are forgotten."""
        if not self._warned_of_slots and self.producers.statistics().forgotten:
            self._warned_of_slots = True
            text = f"listener {self._name!r}: {_SLOTS_USED_UP.format(self.producers.slots)}"
            log.warning("producer-slots-used-up", extra=event(text, listener=self._name, slots=self.producers.slots))

    def status(self) -> dict[str, object]:
        slots = self.producers.statistics()
        return {
            "translation": self.translation.statistics(),
            "producer_slots": {"known": slots.known, "forgotten": slots.forgotten, "refused": slots.refused},
        }

    def _mirror_producers(self) -> MirrorProducers:
        return MirrorProducers(self._file.slots, keep=self._file.write, plain_codec=self._plain_codec)


def _beside(file: Path | None, suffix: str) -> Path | None:
    return None if file is None else file.with_suffix(suffix)
