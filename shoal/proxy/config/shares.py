"""What each worker gets of the settings, so that what is configured holds for all workers together.

    mirrors     all listeners with mode = "wrap" or "unwrap" are the first worker's: one process has their files, and
                knows what both listeners of a pair have seen
    divided     connections and rates of a listener, clients without a login, memory of a listener or a capture
    as it is    what holds for one connection, one lane or one directory of captures

A limit that has no part for each worker, or a memory that is too small when it is divided, is an error of the
configuration: nothing is rounded up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from shoal.proxy.config.settings import Mode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shoal.proxy.config.settings import ListenerSettings, Settings

__all__ = ["DIVIDED_KEYS", "MOST_WORKERS", "PINNED", "is_pinned", "share_of", "undivided"]

MOST_WORKERS: Final = 128
PINNED: Final = 1
"""The worker that has the mirrors' listeners; the others are 2, 3, ..."""

_OF_LIMITS = ("unauthenticated", "unauthenticated_per_address")
_OF_ACCESS = (
    "connections_per_address",
    "new_connections_per_second",
    "bytes_per_second",
    "client_bytes_per_second",
)
_OF_LISTENER: Mapping[str, tuple[str, ...]] = {
    "": ("max_connections",),
    "access": _OF_ACCESS,
    "coalescing": ("queue_bytes",),
    "legacy_options": ("budget_bytes",),
}
_OF_RAW_CAPTURE = ("queue_bytes",)

DIVIDED_KEYS: Final = (
    *(f"limits.{name}" for name in _OF_LIMITS),
    *(f"{table}.{name}".strip(".") for table, names in _OF_LISTENER.items() for name in names),
    *(f"raw_capture.{name}" for name in _OF_RAW_CAPTURE),
)


def is_pinned(listener: ListenerSettings) -> bool:
    """Whether one worker has the listener for itself."""
    return listener.mode is not Mode.PLAIN


@dataclass(frozen=True, slots=True)
class _Part:
    worker: int
    workers: int

    def of(self, total: Any) -> Any:
        """The parts of all workers add up to the total."""
        if isinstance(total, float):
            return total / self.workers
        return None if total is None else total // self.workers + (self.worker <= total % self.workers)

    def divided(self, settings: Any, names: tuple[str, ...]) -> Any:
        return replace(settings, **{name: self.of(getattr(settings, name)) for name in names})

    def listener(self, settings: ListenerSettings) -> ListenerSettings:
        if is_pinned(settings):
            return settings
        tables = {
            table: self.divided(getattr(settings, table), names) for table, names in _OF_LISTENER.items() if table
        }
        divided: ListenerSettings = self.divided(replace(settings, **tables), _OF_LISTENER[""])
        return divided


def share_of(settings: Settings, worker: int) -> Settings:
    """The settings of one worker of `settings.workers`; those of the only one are the whole."""
    if settings.workers == 1:
        return settings
    part = _Part(worker, settings.workers)
    listeners = tuple(part.listener(x) for x in settings.listeners if worker == PINNED or not is_pinned(x))
    raw = settings.raw_capture
    return replace(
        settings,
        workers=1,
        listeners=listeners,
        limits=part.divided(settings.limits, _OF_LIMITS),
        raw_capture=None if raw is None else part.divided(raw, _OF_RAW_CAPTURE),
    )


def undivided(settings: Settings) -> Iterator[tuple[int | None, str, float]]:
    """What has no part for each worker: (index of the listener, key, value). None: it is no listener's."""
    for name in _OF_LIMITS:
        if 0 < (value := getattr(settings.limits, name)) < settings.workers:
            yield None, f"limits.{name}", value
    for index, listener in enumerate(settings.listeners):
        for table, names in _OF_LISTENER.items() if not is_pinned(listener) else ():
            for name in names:
                value = getattr(getattr(listener, table) if table else listener, name)
                if isinstance(value, int) and 0 < value < settings.workers:
                    yield index, f"{table}.{name}".strip("."), value
