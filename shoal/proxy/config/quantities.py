"""Formats quantities and times for people. MB = 1,000,000 bytes, as for disks and networks."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["codes", "counted", "increases", "megabytes", "rate", "reasons", "utc"]


Code = TypeVar("Code", bound=StrEnum)


def counted(count: int, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def megabytes(size: int) -> str:
    return (
        f"{size / 1e6:,.0f} MB"
        if size >= 100_000_000
        else f"{size / 1e6:,.1f} MB"
        if size >= 100_000
        else f"{size / 1e3:,.1f} kB"
    )


def utc(at: float) -> str:
    """`at`: seconds since 1970. ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def rate(size: int, seconds: float) -> str:
    return f"{megabytes(int(size / seconds) if seconds > 0 else 0)}/s"


def reasons(counts: Mapping[Code, int]) -> str:
    return ", ".join(f"{why}: {count:,}" for why, count in counts.items())


def codes(counts: Mapping[Code, int]) -> dict[str, int]:
    """For machines: the name of each member instead of its text."""
    return {why.name.lower(): count for why, count in counts.items()}


def increases(now: Mapping[Code, int], before: Mapping[Code, int]) -> dict[Code, int]:
    """Reason -> increase, the most frequent reason first; only reasons that increased."""
    more = {why: now.get(why, 0) - before.get(why, 0) for why in {**before, **now}}
    return dict(sorted(((why, count) for why, count in more.items() if count), key=lambda item: -item[1]))
