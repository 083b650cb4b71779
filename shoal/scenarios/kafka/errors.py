"""Errors of the harness; each message says what to do or where to look."""


class HarnessError(Exception):
    """Base of the errors of the harness; never raised itself."""


class SetupError(HarnessError):
    """The machine lacks something: a program, a package, a download."""


class NotReady(HarnessError):
    """A condition was not met before its deadline, or its process ended first; carries the tail of the log."""


class ToolFailed(HarnessError):
    """A command line tool failed; carries its output."""


class TrafficFailed(HarnessError):
    """A record could not be produced or read."""
