"""Reads what a `Secret` names, and other files that only Shoal may read; hides what else may be a secret.

An error names the setting, the file or the environment variable, and the way out; never the value.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit, urlunsplit

from shoal.proxy.config.problems import OperatorError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from shoal.proxy.config.security import Secret

__all__ = ["MASK", "read_file", "read_private_file", "read_secret", "shown_url"]

MASK: Final = "***"

_LARGEST = 4 * 1024 * 1024  # of a certificate bundle; the system's is 200 KiB


def read_secret(secret: Secret, where: str, environment: Mapping[str, str] = os.environ) -> str:
    """The value, without one newline at its end. `where`: the setting. Raises OperatorError."""
    if secret.env is not None:
        if not (value := environment.get(secret.env, "")):
            raise OperatorError.of(where, f"the environment variable {secret.env} is not set or empty")
        return value
    if secret.file is None:
        raise OperatorError.of(where, 'is empty: write { file = "..." } or { env = "NAME" }')
    try:
        text = read_private_file(secret.file, where).decode()
    except UnicodeDecodeError:
        raise OperatorError.of(where, f"{secret.file} is not UTF-8 text") from None
    value = text.removesuffix("\n").removesuffix("\r")
    if not value:
        raise OperatorError.of(where, f"{secret.file} is empty")
    return value


def read_private_file(path: Path, where: str, most: int = _LARGEST) -> bytes:
    """Symlinks are followed; the rights of the file itself count. Raises OperatorError.

    The group may read: Kubernetes gives a secret to a pod's group (`fsGroup`, `defaultMode: 0440`).
    """
    return _read(path, where, most, private=True)


def read_file(path: Path, where: str) -> bytes:
    """Raises OperatorError."""
    return _read(path, where, _LARGEST, private=False)


def _read(path: Path, where: str, most: int, *, private: bool) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe must not block
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise OperatorError.of(where, f"{path} is not a file")
            if private and status.st_mode & 0o007:
                raise OperatorError.of(where, f"{path} {_rights(status)}")
            data = file.read(most + 1)
    except OSError as error:
        raise OperatorError.of(where, f"{path} cannot be read: {_reason(path, error)}") from None
    if len(data) > most:
        raise OperatorError.of(where, f"{path} is larger than {most} bytes: is it the right file?")
    return data


def _reason(path: Path, error: OSError) -> str:
    if isinstance(error, FileNotFoundError) and path.is_symlink():
        return f"it is a symbolic link to {os.readlink(path)}, which does not exist"
    if isinstance(error, PermissionError):
        return f"permission denied for user id {os.geteuid()}: change its owner, its group, or its rights"
    return str(error.strerror)


def _rights(status: os.stat_result) -> str:
    mode = stat.S_IMODE(status.st_mode)
    return (
        f"can be read or changed by every user (mode {mode:04o}): chmod {mode & 0o770:04o}, or in a pod's secret "
        "volume defaultMode: 0440"
    )


def shown_url(url: str) -> str:
    """For logs, errors and pages: without a user, a password and a query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return MASK
    host = parts.netloc.rpartition("@")[2]
    netloc = f"{MASK}@{host}" if host != parts.netloc else host
    return urlunsplit((parts.scheme, netloc, parts.path, MASK if parts.query else "", ""))
