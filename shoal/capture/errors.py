"""What whoever called `shoal capture` can mend."""

from __future__ import annotations

__all__ = ["ToolError"]


class ToolError(Exception):
    """Told in one line, exit code 2."""
