"""Errors that the user of a job can fix."""

__all__ = ["JobError"]


class JobError(Exception):
    """`where` names the argument or file; `what` states the cause and the fix."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}")
        self.where = where
        self.what = what
