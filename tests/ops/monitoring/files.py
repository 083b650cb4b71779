"""All files that are written from the source, and what they must have in them now."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.ops.monitoring import grafana, guide, rules
from tests.ops.monitoring.alerts import GUIDE

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BOARD", "ROOT", "RULES", "TRIALS", "wanted"]

ROOT: Final = Path(__file__).parents[3]
BOARD: Final = ROOT / "deploy/grafana/shoal.json"
RULES: Final = ROOT / "deploy/prometheus" / rules.RULES_FILE
TRIALS: Final = ROOT / "deploy/prometheus/shoal.rules.test.yaml"
_CHART: Final = ROOT / "deploy/helm/shoal/files"  # Helm reads only files of the chart


def wanted() -> Mapping[Path, str]:
    board, made = grafana.board(), rules.rules()
    text = ROOT / GUIDE
    return {
        BOARD: board,
        RULES: made,
        TRIALS: rules.trials(),
        _CHART / BOARD.name: board,
        _CHART / RULES.name: made,
        text: guide.written(text.read_text(encoding="utf-8")),
    }
