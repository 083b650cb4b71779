"""The file of a replay's figures. They are printed first: on a full disk only the file is missing."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from shoal.proxy.errors import OperatorError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["write_figures"]


def write_figures(path: Path, figures: object) -> None:
    """Written completely or not at all. Raises OperatorError."""
    hidden = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden.write_text(json.dumps(figures, indent=1) + "\n")
        hidden.replace(path)
    except OSError as error:
        with suppress(OSError):
            hidden.unlink()
        what = f"{path} cannot be written: {error.strerror}: make room, or choose another directory"
        raise OperatorError.of("--out", what) from None
