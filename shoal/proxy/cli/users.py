"""`shoal users`: the file of users who log in at Shoal (`[listener.sasl]`, key `users`).

A password comes from the terminal, a file or standard input, never from a flag: other users of the machine can see
those. The file is replaced as a whole, and only its owner can read it.
"""

from __future__ import annotations

import os
import secrets
import stat
import sys
import tempfile
from contextlib import suppress
from dataclasses import replace
from getpass import getpass
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.command_line import Parser, a_path, say, typed, whole
from shoal.protocol.sasl.scram import DIGESTS, LEAST_ITERATIONS, MOST_ITERATIONS
from shoal.protocol.sasl.users import (
    DEFAULT_ITERATIONS,
    SALT_BYTES,
    SEED_BYTES,
    Users,
    check_name,
    hash_password,
    write_users,
)
from shoal.proxy.cli.exit_codes import OK
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.listener.login.users_file import read_users_file

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main", "parser"]

_END = """\
The file is that of users in [listener.sasl] (docs/security.md); add makes it.
It has salted hashes for SCRAM-SHA-256 and SCRAM-SHA-512, which also check the
passwords of PLAIN. A running Shoal reads it again when it changes.

examples:
  shoal users add shoal.users alice                # asks for the password
  shoal users add shoal.users bob --password-file - < bob.password
  shoal users remove shoal.users bob
  shoal users list shoal.users
"""


def main(arguments: Sequence[str]) -> int:
    """Raises OperatorError."""
    flags = parser().parse_args(arguments)
    if flags.command == "list":
        for name in sorted(read_users_file(flags.file, "users").hashes):
            say(name)
        return OK
    if flags.command == "remove":
        users = read_users_file(flags.file, "users")
        if flags.name not in users.hashes:
            raise OperatorError.of(str(flags.file), f"has no user {flags.name!r}: see shoal users list")
        hashes = {name: of_user for name, of_user in users.hashes.items() if name != flags.name}
    else:
        password = _password(flags.password_file)
        users = (
            read_users_file(flags.file, "users")
            if flags.file.exists()
            else Users(seed=secrets.token_bytes(SEED_BYTES), hashes={})
        )
        of_user = {
            digest: hash_password(digest, password, secrets.token_bytes(SALT_BYTES), flags.iterations)
            for digest in DIGESTS
        }
        hashes = {**users.hashes, flags.name: of_user}
    _write(flags.file, replace(users, hashes=hashes))
    return OK


def parser() -> Parser:
    users = Parser(prog="shoal users", description="Add, remove and list users who log in at Shoal.", epilog=_END)
    commands = users.add_subparsers(title="commands", dest="command", required=True)
    for name, what in (
        ("add", "add a user, or change the password"),
        ("remove", "remove a user"),
        ("list", "print the names"),
    ):
        command = commands.add_parser(name, help=what)
        command.add_argument("file", type=a_path, metavar="FILE", help="the users file")
        if name != "list":
            command.add_argument("name", type=typed(check_name), metavar="NAME", help="the user")
        if name == "add":
            what = "file with the password in its first line, or - for standard input (default: ask)"
            command.add_argument("--password-file", metavar="FILE", help=what)
            what = f"rounds of hashing (default: {DEFAULT_ITERATIONS})"
            rounds = whole(LEAST_ITERATIONS, MOST_ITERATIONS)
            command.add_argument("--iterations", type=rounds, default=DEFAULT_ITERATIONS, metavar="N", help=what)
    return users


def _password(file: str | None) -> str:
    password = _asked() if file is None else _first_line(file)
    if not password or "\0" in password:
        raise OperatorError.of("password", "is empty or has a zero byte: no client could log in with it")
    return password


def _first_line(file: str) -> str:
    try:
        text = sys.stdin.readline() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise OperatorError.of("--password-file", f"{file} cannot be read: {reason}") from None
    return text.partition("\n")[0].rstrip("\r")


def _asked() -> str:
    if not sys.stdin.isatty():
        raise OperatorError.of("password", "there is no terminal to ask on: give it with --password-file FILE, or -")
    try:
        password = getpass("Password: ")
        again = getpass("Again: ")
    except (EOFError, KeyboardInterrupt):
        raise OperatorError.of("password", "was not given: nothing is changed") from None
    if password != again:
        raise OperatorError.of("password", "was not the same twice: nothing is changed")
    return password


def _write(file: Path, users: Users) -> None:
    """Replaces the file at once: a reader sees the old or the new one."""
    target = file.resolve()  # a link stays one
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)  # mode 0600
    except OSError as error:
        raise OperatorError.of(str(file), f"cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as new:
            new.write(write_users(users))
            new.flush()
            os.fsync(descriptor)
        with suppress(OSError):  # the file may be of the user that Shoal runs as
            before = target.stat()
            os.chown(name, before.st_uid, before.st_gid)
            Path(name).chmod(0o600 | before.st_mode & stat.S_IRGRP)  # Shoal may be of the group only
        Path(name).replace(target)
    except OSError as error:
        raise OperatorError.of(str(file), f"cannot be written: {error.strerror}") from None
    finally:
        with suppress(OSError):
            Path(name).unlink()
