"""/metrics: the text, made in slices, so that a scrape of many samples never blocks the event loop for long."""

from __future__ import annotations

import platform
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_open_metrics

from shoal.proxy.admin.http import Response
from shoal.proxy.admin.log_lines import LogLines
from shoal.proxy.admin.metrics.exposition import Exposition
from shoal.proxy.admin.metrics.metric import Snapshot
from shoal.proxy.admin.metrics.mirrors import lags
from shoal.proxy.admin.share import Turn
from shoal.proxy.config.identity import shoal_version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.registry import Collector

    from shoal.proxy.admin.http import Request
    from shoal.proxy.admin.lag import LoopLag
    from shoal.proxy.admin.share import LoopShare
    from shoal.proxy.lifecycle.server import Server

__all__ = ["MetricsPage"]

_TURN_SECONDS: Final = 0.001  # a slice more at most
_PLAIN: Final = "text/plain; version=0.0.4; charset=utf-8"
_OPEN: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_EOF: Final = b"# EOF\n"


class MetricsPage:
    def __init__(self, server: Server, lag: LoopLag, share: LoopShare) -> None:
        self._server = server
        self._lag = lag
        self._share = share
        self._version = shoal_version()
        self._python = platform.python_version()
        self._lines = LogLines.installed()
        self._process = self._process_collector()
        self._plain = Exposition(generate_latest)
        self._open = Exposition(generate_open_metrics)

    def _process_collector(self) -> Collector:
        collectors = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=collectors)
        return collectors

    async def show(self, request: Request) -> Response:
        is_open = _OPEN.partition(";")[0] in request.accept
        pieces = self._pieces(self._open if is_open else self._plain)
        text = bytearray()
        while await self._share.run(partial(_write, pieces, text), turn=Turn.PAGE):
            pass
        if is_open:
            text += _EOF
        return Response(bytes(text), _OPEN if is_open else _PLAIN)

    def _pieces(self, exposition: Exposition) -> Iterator[str]:
        yield from exposition.pieces(self.snapshot())  # taken at the first step
        yield exposition.others(self._process)

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
        statistics, by_topic = server.statistics(), server.settings.admin.topic_labels
        return Snapshot(
            server=statistics,
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
            share=self._share.statistics(),
            log_lines=dict(self._lines.counts),
            lags={listener.name: lags(listener, by_topic=by_topic) for listener in statistics.listeners},
        )


def _write(pieces: Iterator[str], text: bytearray) -> bool:
    """For one turn of the loop; -> whether more follows."""
    end = time.perf_counter() + _TURN_SECONDS
    for piece in pieces:
        text += piece.encode()
        if time.perf_counter() > end:
            return True
    return False
