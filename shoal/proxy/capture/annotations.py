"""What a listener's path adds to the index rows of a request. Nothing without an index."""

from __future__ import annotations

from functools import lru_cache

from shoal.protocol.capture.index.columns import Handling
from shoal.protocol.capture.index.pending import RequestAnnotation, Treatment

__all__ = ["CONVERTED", "OWN", "raw"]

OWN = RequestAnnotation(treatment=Treatment(handling=Handling.OWN))
CONVERTED = RequestAnnotation(treatment=Treatment(handling=Handling.RAW, reason="converted for an old client"))


@lru_cache(maxsize=100)
def raw(reason: str) -> RequestAnnotation:
    """A request that passes unchanged."""
    return RequestAnnotation(treatment=Treatment(handling=Handling.RAW, reason=str(reason)))
