"""When a client behaves abnormally: the limits of `abnormal.py`."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Rule"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    floor: int = 1000  # records
    times: float = 8.0
    peers: float = 4.0
    past_windows: int = 3  # minimum of known previous windows
