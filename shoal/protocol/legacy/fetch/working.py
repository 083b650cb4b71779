"""The memory that a conversion may hold beside its source record set, and how it requests more before using it.

The memory to open a batch is known from its first bytes (`plain_stream.working_bytes`), for a record from its length.
Both are checked here before decompressing; if the limit is too low, nothing has changed, and the caller tries again
with more.
"""

from typing import Final

__all__ = ["COPIES", "WantsMore", "Working"]

COPIES: Final = 6
"""Maximum copies of a record while it becomes a message: its steps, joined; its value, message and wrapper, before and
after compression. Measured in tests/protocol/legacy/fetch/test_down_working.py."""


class WantsMore(Exception):
    """`size` bytes are needed at once, and were not allowed."""

    def __init__(self, size: int) -> None:
        super().__init__(f"{size} bytes are needed")
        self.size = size


class Working:
    """The memory of one conversion, in bytes. `limit`: allowed from here on; `most`: the peak granted so far."""

    __slots__ = ("limit", "most")

    def __init__(self) -> None:
        self.limit = self.most = 0

    def require(self, size: int) -> None:
        """Raises WantsMore."""
        if size > self.limit:
            raise WantsMore(size)
        self.most = max(self.most, size)
