"""All metrics of Shoal. A feature adds its rows here."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from shoal.proxy.admin.metrics.core import APIS, CLIENTS, CLUSTERS, PROCESS
from shoal.proxy.admin.metrics.features import COALESCING, LEGACY, SHALLOW
from shoal.proxy.admin.metrics.mirrors import MIRRORS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shoal.proxy.admin.metrics.metric import Metric

__all__ = ["METRICS", "SECTIONS"]

SECTIONS: Mapping[str, tuple[Metric, ...]] = {
    "Requests by API": APIS,
    "Clients": CLIENTS,
    "Clusters and certificates": CLUSTERS,
    "Shallow mirroring": SHALLOW,
    "Mirror lag and gaps": MIRRORS,
    "Coalescing": COALESCING,
    "Legacy clients": LEGACY,
    "Captures and the process": PROCESS,
}
METRICS = tuple(chain.from_iterable(SECTIONS.values()))
