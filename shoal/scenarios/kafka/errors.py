"""What can go wrong with the things around the brokers; each message says what to do or where to look."""


class HarnessError(Exception):
    """Base of the errors of the harness; never raised itself."""


class SetupError(HarnessError):
    """Something the machine lacks: a program, a package, a download."""


class NotReady(HarnessError):
    """A condition did not come true before its deadline, or its process ended first; carries the tail of the log."""


class ToolFailed(HarnessError):
    """A command line tool ended with a status other than 0; carries its output."""


class TrafficFailed(HarnessError):
    """A record could not be produced or read."""
