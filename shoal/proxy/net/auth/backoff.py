"""After a refusal: every client connection would log in again, and a broker or an account may be locked by that.

    unproven ── granted ──> good ── refused ──> held back for 1 s, 2 s, 4 s, up to 30 s ── then one login tries

While held back, a login fails with the broker's last words. New credentials are tried at once. Logins that are refused
together, because they began before the first refusal, count as one: a broker that has just started, and does not know
its users yet, must not keep an identity from the others for long.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Backoff", "longer"]

_FIRST_S = 1.0
_LONGEST_S = 30.0


def longer(pause: float) -> float:
    """The seconds to wait after one more failure. `pause`: those after the last one; 0: it is the first."""
    return min(max(pause * 2, _FIRST_S), _LONGEST_S)


class Backoff:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._now = clock
        self.is_good = False  # the last login was granted
        self._why: str | None = None
        self._material = b""
        self._until = -math.inf
        self._pause = 0.0

    def held_back(self, material: bytes) -> str | None:
        """Why no login may be tried now with these credentials; None if one may be."""
        return self._why if self._now() < self._until and material == self._material else None

    def granted(self) -> None:
        self.is_good, self._why, self._pause, self._until = True, None, 0.0, -math.inf

    def refused(self, material: bytes, why: str) -> None:
        is_known = self.held_back(material) is not None
        if material != self._material:
            self._pause = 0.0
        self.is_good, self._why, self._material = False, why, material
        if is_known:
            return
        self._pause = longer(self._pause)
        self._until = self._now() + self._pause
