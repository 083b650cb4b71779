"""One question to the admin listener of a running Shoal: where it is, one GET, and its JSON."""

from __future__ import annotations

from contextlib import closing
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec

from shoal.command_line import JSON_FLAG, Parser, printable, typed
from shoal.proxy.config.parse import parse_address
from shoal.proxy.config.problems import OperatorError, Problem
from shoal.proxy.config.settings import WILDCARDS, Address
from shoal.proxy.config.toml import load_config
from shoal.proxy.net.web import ConnectionWithDeadline, Deadline

if TYPE_CHECKING:
    import argparse

__all__ = ["DEFAULT", "NoAnswer", "Said", "add_json", "admin_address", "admin_parser", "ask"]

T = TypeVar("T")

DEFAULT: Final = Address("127.0.0.1", 9190)
_SECONDS: Final = 10.0  # an answer of 10,000 clients takes some seconds: the admin listener works slowly
_MOST_BYTES: Final = 64 * 1024 * 1024  # 10,000 clients with long names and every API have less


class NoAnswer(OperatorError):
    """Nothing answers, or not as Shoal does."""


class Said(NamedTuple):
    status: int
    body: bytes

    def read(self, kind: type[T], address: Address) -> T:
        """Raises NoAnswer."""
        try:
            return msgspec.json.decode(self.body, type=kind)
        except (msgspec.DecodeError, RecursionError) as error:
            raise _other(address, f"{error}") from None

    def values(self, address: Address) -> Any:
        """Without a check, for `--json`. Raises NoAnswer."""
        return self.read(object, address)


def admin_parser(name: str, what: str, end: str) -> Parser:
    parser = Parser(prog=f"shoal {name}", description=what, epilog=end)
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--admin",
        type=typed(parse_address),
        metavar="HOST:PORT",
        help=f"the admin listener of the running Shoal (default: {DEFAULT})",
    )
    where.add_argument(
        "-c", "--config", type=Path, metavar="shoal.toml", help="take the address from admin.listen of this file"
    )
    return parser


def add_json(parser: Parser) -> None:
    parser.add_argument(JSON_FLAG, action="store_true", help="print JSON")


def admin_address(flags: argparse.Namespace) -> Address:
    """Raises OperatorError."""
    found: Address = flags.admin or DEFAULT
    if flags.config is not None:
        listen = load_config(flags.config).admin.listen
        if listen is None:
            what = f'has no admin listener: add [admin] listen = "{DEFAULT}", or give --admin HOST:PORT'
            raise OperatorError.of(str(flags.config), what)
        found = listen
    if found.host in WILDCARDS:
        return Address("::1" if ":" in found.host else "127.0.0.1", found.port)
    return found


def ask(address: Address, path: str, *, seconds: float = _SECONDS) -> Said:
    """The answer, whatever its status. Raises NoAnswer."""
    try:
        with (
            Deadline(seconds) as deadline,
            closing(
                ConnectionWithDeadline(address.host, address.port, timeout=seconds, deadline=deadline)
            ) as connection,
        ):
            connection.request("GET", path, headers={"Accept": "application/json", "Connection": "close"})
            answer = connection.getresponse()
            body = answer.read(_MOST_BYTES + 1)
    except TimeoutError:
        what = f"gives no whole answer within {seconds:g} s: is Shoal blocked, or is it another program? See its log"
        raise _no_answer(address, what) from None
    except HTTPException as error:
        raise _other(address, f"{type(error).__name__} {error}") from None
    except OSError as error:
        raise _no_answer(address, f"{error.strerror or error}: {_SWITCH_IT_ON}") from None
    if len(body) > _MOST_BYTES:
        raise _other(address, f"more than {_MOST_BYTES >> 20} MiB for {path}")
    if answer.status == 404:
        raise _no_answer(address, f"has no {path}: it is another version of Shoal, or another program")
    if answer.status == 503 and answer.headers.get_content_type() == "text/plain":  # /readyz says so in JSON
        raise _no_answer(address, f"has no answer to {path}: {printable(body.decode(errors='replace').strip())[:200]}")
    return Said(answer.status, body)


_SWITCH_IT_ON: Final = (
    f"no admin listener answers there. Switch it on: shoal run or mirror with --admin {DEFAULT}, or in shoal.toml "
    f'[admin] listen = "{DEFAULT}"; name another address with --admin HOST:PORT'
)


def _other(address: Address, what: str) -> NoAnswer:
    return _no_answer(address, f"answers, but not as Shoal's admin listener: {printable(what)[:200]}")


def _no_answer(address: Address, what: str) -> NoAnswer:
    return NoAnswer((Problem(str(address), what),))
