"""The private names of trio that Shoal uses: its epoll descriptor and its run queue. No other module has any.

They are in trio/_core/_run.py and _io_epoll.py. pyproject.toml admits the releases of trio with which `make
package-check` has run the tests; on another release, or another system, a name may be missing. Then there is no fast
lane, nothing else changes, and `explain` says so in the log.
"""

from __future__ import annotations

import math
import select
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires
from typing import TYPE_CHECKING, NamedTuple, cast

import trio

if TYPE_CHECKING:
    from collections.abc import Sized

__all__ = ["TrioInternals", "explain"]


class TrioInternals(NamedTuple):
    epoll: select.epoll
    runnable: Sized  # tasks
    waiting_for_idle: Sized  # trio.testing.wait_all_tasks_blocked
    autojumps: bool  # trio.testing.MockClock

    @classmethod
    def find(cls) -> TrioInternals | None:
        """Those of the calling task's trio run. None: this trio has others."""
        try:
            runner = trio._core._run.GLOBAL_RUN_CONTEXT.runner
            epoll = cast("object", runner.io_manager._epoll)
            found = cls(
                cast("select.epoll", epoll),
                runner.runq,
                runner.waiting_for_idle,
                runner.clock_autojump_threshold < math.inf,
            )
            len(found.runnable), len(found.waiting_for_idle)
        except (AttributeError, TypeError):
            return None
        return found if isinstance(found.epoll, select.epoll) else None


def explain() -> str:
    """Why there is no fast lane, for the log."""
    return (
        f"this trio ({trio.__version__}) has changed inside: small requests need more CPU with it, and nothing else"
        f" differs; pip install '{_admitted()}'"
    )


def _admitted() -> str:
    """The requirement in this package's own metadata."""
    with suppress(PackageNotFoundError):
        return next((found for found in requires("shoal") or () if found.startswith("trio")), "trio")
    return "trio"
