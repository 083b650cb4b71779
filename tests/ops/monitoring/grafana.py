"""The board as Grafana's JSON, for Grafana 10 and later."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tests.ops.monitoring.board import ROWS, expression
from tests.ops.monitoring.rules import WRITTEN_BY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.ops.monitoring.board import Panel, Steps

__all__ = ["board"]

_SCHEMA: Final = 39  # of Grafana 10.4; later ones migrate it
_COLUMNS: Final = 24
_HEIGHTS: Final = {"stat": 4, "timeseries": 8}
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_GREEN, _ORANGE, _RED = "green", "orange", "red"


def board() -> str:
    document = {
        "uid": "shoal",
        "title": "Shoal",
        "description": f"{WRITTEN_BY}. docs/monitoring.md",
        "tags": ["kafka", "shoal"],
        "schemaVersion": _SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,  # one cross-hair for all panels
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": list(_variables())},
        "annotations": {"list": [_restarts()]},
        "links": [],
        "panels": list(_panels()),
    }
    return json.dumps(document, indent=1) + "\n"


def _variables() -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    yield _choice("job", "label_values(shoal_build_info, job)")
    yield _choice("instance", 'label_values(shoal_build_info{job=~"$job"}, instance)')
    yield _choice("listener", 'label_values(shoal_connections{job=~"$job",instance=~"$instance"}, listener)')


def _choice(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": name,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,  # when the time range changes
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def _restarts() -> dict[str, Any]:
    return {
        "name": "Starts",
        "datasource": _SOURCE,
        "enable": True,
        "iconColor": _ORANGE,
        "expr": 'changes(process_start_time_seconds{job=~"$job",instance=~"$instance"}[1m]) > 0',
        "titleFormat": "{{instance}} has started",
    }


def _panels() -> Iterator[dict[str, Any]]:
    number, top = 0, 0
    for row in ROWS:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": top, "w": _COLUMNS, "h": 1},
            "panels": [],
        }
        top += 1
        left, bottom = 0, top
        for panel in row.panels:
            number += 1
            height = _HEIGHTS[panel.kind]
            if left + panel.width > _COLUMNS:
                left, top = 0, bottom
            yield _panel(panel, number, {"x": left, "y": top, "w": panel.width, "h": height})
            left, bottom = left + panel.width, top + height
        top = bottom


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    made = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": place,
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _SOURCE,
                "expr": expression(query),
                "legendFormat": query.legend or "__auto",
                "instant": panel.kind == "stat",
                "range": panel.kind != "stat",
            }
            for index, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel),
    }
    return made | ({"description": panel.note} if panel.note else {})


def _defaults(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": _colours(panel.steps)}}
    if panel.kind == "stat":
        return defaults | {"color": {"mode": "thresholds"}}
    custom = {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 30 if panel.stacked else 0,
        "showPoints": "never",
        "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
    }
    return defaults | {"min": 0, "color": {"mode": "palette-classic"}, "custom": custom}


def _colours(steps: Steps | None) -> list[dict[str, Any]]:
    if steps is None:
        return [{"color": _GREEN, "value": None}]
    if steps.upward:
        limits = {_GREEN: None, _ORANGE: steps.warning, _RED: steps.critical}
    else:
        limits = {_RED: None, _ORANGE: steps.critical, _GREEN: steps.warning}
    if steps.warning == steps.critical:
        del limits[_ORANGE]
    return [{"color": colour, "value": limit} for colour, limit in limits.items()]


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "stat":
        return {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "colorMode": "value",
            "graphMode": "none",
            "textMode": "name" if panel.title == "Version" else "auto",
        }
    return {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
