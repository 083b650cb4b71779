"""Configuration files -> entries with line numbers: Java properties (java.util.Properties.load) and Connect's JSON."""

from __future__ import annotations

import codecs
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Entry", "Unreadable", "decoded", "read_connector", "read_properties", "shown"]

_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_NEWLINE = re.compile(r"\r\n|\r|\n")
_BLANKS = " \t\f"
_SEPARATOR = re.compile(r"(?P<key>(?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(?P<value>.*)", re.DOTALL)


class Entry(NamedTuple):
    key: str
    value: str
    line: int  # from 1; 0 = unknown

    def __str__(self) -> str:
        return f"{self.key} = {shown(self.key, self.value)}"


def shown(key: str, value: str) -> str:
    """The value as a report shows it: no secret, but the ${...} of a config provider."""
    is_secret = _SECRET.search(key) or _SECRET_INSIDE.search(value)
    return "[hidden]" if is_secret and not _is_harmless(value) else value


# What names of settings say, and every setting of TLS and SASL that is not known as none: keys may be misspelt.
_SECRET = re.compile(
    r"password|passphrase|secret|token\Z|credential|api\.key|user\.info"
    r"|\b(sasl|ssl)\.(?!(mechanisms?|username|kerberos|login|client|oauthbearer|protocol|provider|endpoint|enabled"
    r"|cipher|engine|principal|keymanager|trustmanager|secure|(ca|crl|certificate|key)\.location"
    r"|(key|trust)store\.(location|type))(\.|\Z))",
    re.IGNORECASE,
)
_SECRET_INSIDE = re.compile(r"LoginModule|PRIVATE KEY")  # whatever the key is: it may be misspelt
_PROVIDED = re.compile(r"\$\{[^}]*\}")
_JAAS_OPTION = re.compile(r"""([\w.]+)\s*=\s*("[^"]*"|'[^']*'|[^\s;]*)""")
_JAAS_NAMES = {"username", "serviceName", "principal", "keyTab", "useKeyTab", "storeKey", "awsProfileName"}


def _is_harmless(value: str) -> bool:
    """Nothing in it can be a secret but what a config provider inserts."""
    texts = [value]
    if "LoginModule" in value:
        texts = [text.strip("\"'") for name, text in _JAAS_OPTION.findall(value) if name not in _JAAS_NAMES]
    return all(_PROVIDED.fullmatch(text.strip()) for text in texts)


class Unreadable(ValueError):
    """The file has another format; the text names the problem."""


def decoded(data: bytes) -> str:
    """JSON is UTF-8. Java reads properties as Latin-1, but files are often UTF-8. Raises `Unreadable`."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in data:
        raise Unreadable("is not a text file in UTF-8 or Latin-1: save it in one of these encodings")
    if data.startswith(codecs.BOM_UTF8):
        raise Unreadable("begins with a byte order mark, which Java reads as part of the first key: save it without")
    try:
        return data.decode()
    except UnicodeDecodeError:
        if data.lstrip().startswith((b"{", b"[")):
            raise Unreadable("is not UTF-8 text, as JSON must be") from None
        return data.decode("latin-1")


def read_properties(text: str) -> list[Entry]:
    """Every `key = value`, in the order of the file. A duplicate key is returned twice (Kafka uses the last)."""
    return [_entry(line, number) for number, line in _logical_lines(text)]


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Without comments and empty lines; continued lines (an odd number of backslashes at the end) joined."""
    joined, first = "", 0
    for number, raw in enumerate(_NEWLINE.split(text), start=1):
        line = raw.lstrip(_BLANKS)
        if not joined and (not line or line[0] in "#!"):
            continue
        first = first or number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            joined += line[:-1]
            continue
        yield first, joined + line
        joined, first = "", 0
    if joined:
        yield first, joined


def _entry(line: str, number: int) -> Entry:
    match = _SEPARATOR.match(line)
    assert match is not None
    return Entry(_unescape(match["key"]), _unescape(match["value"]).strip(), number)


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda m: chr(int(m[1][1:], 16)) if len(m[1]) == 5 else _LETTERS.get(m[1], m[1]), text)


def read_connector(text: str) -> list[Entry]:
    """A connector as for Connect's REST API: `{"name": ..., "config": {...}}`, or its config. Raises `Unreadable`."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise Unreadable(f"is not valid JSON: line {error.lineno} column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise Unreadable("is not a connector: its JSON is nested too deeply") from None
    if not isinstance(found, dict):
        raise Unreadable('is not a connector: expected an object such as {"name": "...", "config": {...}}')
    config: Any = found.get("config", found)
    if not isinstance(config, dict):
        raise Unreadable('is not a connector: "config" is not an object')
    return [Entry(key, _text(value), _line_of(text, key)) for key, value in config.items()]


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _line_of(text: str, key: str) -> int:
    at = text.find(f"{json.dumps(key)}")
    return text.count("\n", 0, at) + 1 if at >= 0 else 0
