"""/metrics: the text, made in slices, so that a scrape of many samples never blocks the event loop for long."""

from __future__ import annotations

import platform
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from shoal.proxy.admin.http import Response
from shoal.proxy.admin.log_lines import LogLines
from shoal.proxy.admin.metrics.collector import ShoalCollector
from shoal.proxy.admin.metrics.metric import Snapshot
from shoal.proxy.config.identity import shoal_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from shoal.proxy.admin.http import Request
    from shoal.proxy.admin.lag import LoopLag
    from shoal.proxy.admin.share import LoopShare
    from shoal.proxy.server import Server

    Encode = Callable[[Collector], bytes]

__all__ = ["MetricsPage"]

_SLICE: Final = 64  # samples: half a millisecond
_TURN_SECONDS: Final = 0.001  # a slice more at most
_EOF: Final = b"# EOF\n"


class MetricsPage:
    def __init__(self, server: Server, lag: LoopLag, share: LoopShare) -> None:
        self._server = server
        self._lag = lag
        self._share = share
        self._version = shoal_version()
        self._python = platform.python_version()
        self._lines = LogLines.installed()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(ShoalCollector(self.snapshot))
        ProcessCollector(registry=self._registry)

    async def show(self, request: Request) -> Response:
        encode, content_type = choose_encoder(request.accept)
        pieces = self._pieces(encode)
        text = bytearray()
        while await self._share.run(partial(_write, pieces, text)):
            pass
        if content_type.startswith("application/openmetrics-text"):
            text += _EOF
        return Response(bytes(text), content_type)

    def _pieces(self, encode: Encode) -> Iterator[bytes]:
        for family in self._registry.collect():  # the first step takes the snapshot
            for part in _slices(family):
                yield _text(encode, part)

    def snapshot(self) -> Snapshot:
        server = self._server
        expiries: dict[tuple[str, ...], float] = {}
        for tls in server.tls:
            for used in tls.loaded.certificates:
                key = (tls.where, used.setting, str(used.file))
                expiries[key] = min(used.certificate.not_after, expiries.get(key, float("inf")))
        proofs: dict[tuple[str, ...], float] = {}
        for cluster in server.clusters.values():
            for proof in cluster.proofs.proofs().values():
                proofs[cluster.name, proof.result.value] = proofs.get((cluster.name, proof.result.value), 0) + 1
        return Snapshot(
            server=server.statistics(),
            version=self._version,
            python=self._python,
            state=server.state,
            expiries=expiries,
            proofs=proofs,
            reachable={
                cluster.name: cluster.contact.failure is None
                for cluster in server.clusters.values()
                if cluster.contact.at is not None
            },
            loop_lag=self._lag.histogram,
            share=self._share,
            log_lines=dict(self._lines.counts),
        )


class _Slice(Collector):
    """Some samples of a family; only the first slice of a family has its help text and type."""

    def __init__(self, family: Family, first: int) -> None:
        self.is_first = not first
        self._part = Family(family.name, family.documentation, family.type, family.unit)
        self._part.samples = family.samples[first : first + _SLICE]

    def collect(self) -> Iterable[Family]:
        return (self._part,)


def _slices(family: Family) -> Iterator[_Slice]:
    for first in range(0, max(len(family.samples), 1), _SLICE):
        yield _Slice(family, first)


def _write(pieces: Iterator[bytes], text: bytearray) -> bool:
    """For one turn of the loop; -> whether more follows."""
    end = time.perf_counter() + _TURN_SECONDS
    for piece in pieces:
        text += piece
        if time.perf_counter() > end:
            return True
    return False


def _text(encode: Encode, part: _Slice) -> bytes:
    text = encode(part).removesuffix(_EOF)
    if part.is_first:
        return text
    return b"".join(line for line in text.splitlines(keepends=True) if not line.startswith(b"#"))
