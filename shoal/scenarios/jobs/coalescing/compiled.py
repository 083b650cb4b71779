"""`numba` where it is installed: array loops at the speed of C. Without it the same functions run in Python, slowly.

Without `_nrt=False` each access to an array within a tuple counts its references, with a locked instruction: ten times
slower. It is allowed where nothing is allocated. A cache on disk saves each Spark worker some seconds; code in an
archive has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["COMPILED", "compiled", "inlined"]

_Function = TypeVar("_Function", bound="Callable[..., Any]")

try:
    import numba
except ModuleNotFoundError:
    COMPILED = False
else:
    COMPILED = True

_OPTIONS: dict[str, Any] = {"error_model": "numpy", "_nrt": False}


def compiled(function: _Function) -> _Function:
    if not COMPILED:
        return function
    made: _Function
    try:
        made = numba.njit(function, nogil=True, cache=True, **_OPTIONS)
    except RuntimeError:
        made = numba.njit(function, nogil=True, **_OPTIONS)
    return made


def inlined(function: _Function) -> _Function:
    """A step of a compiled loop."""
    if not COMPILED:
        return function
    made: _Function = numba.njit(function, inline="always", **_OPTIONS)
    return made
