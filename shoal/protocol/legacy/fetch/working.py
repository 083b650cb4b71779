"""What a conversion may hold beside the record set that it reads from, and how it asks for more before it takes it.

What opening a batch takes is known from its first bytes (`plain_stream.working_bytes`), what a record takes from its length. Each is
told here before a byte is made; where it is too much, nothing has changed, and the same is tried again when there is more.
"""

from typing import Final

__all__ = ["COPIES", "WantsMore", "Working"]

COPIES: Final = 6
"""Of one record, at most, while a message of its own is made of it: the steps it is read in, joined; its value, message and wrapper, before and
after compression. Measured in tests/protocol/legacy/fetch/test_down_working.py."""


class WantsMore(Exception):
    """`size` bytes are needed at once, and were not allowed."""

    def __init__(self, size: int) -> None:
        super().__init__(f"{size} bytes are needed")
        self.size = size


class Working:
    """One for each conversion. `limit`: bytes that it may hold from here on; `most`: that it was granted at once so far."""

    __slots__ = ("limit", "most")

    def __init__(self) -> None:
        self.limit = self.most = 0

    def require(self, size: int) -> None:
        """Raises WantsMore."""
        if size > self.limit:
            raise WantsMore(size)
        self.most = max(self.most, size)
