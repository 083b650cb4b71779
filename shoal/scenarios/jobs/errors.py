"""What the person who started a job can mend."""

__all__ = ["JobError"]


class JobError(Exception):
    """`where` names the argument or file; `what` says the cause and the way out."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}")
        self.where = where
        self.what = what
