"""Text of a flag or TOML key -> a value. Every error is a `ValueError` that says what is expected."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.proxy.config.cores import usable_cores
from shoal.proxy.config.settings import WILDCARDS, Address, PortMap, PortRange

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shoal.proxy.config.security import Network

__all__ = [
    "LOOPBACK",
    "check_regex",
    "check_topic",
    "check_topic_part",
    "is_loopback",
    "parse_address",
    "parse_addresses",
    "parse_host",
    "parse_network",
    "parse_path",
    "parse_ports",
    "parse_size",
    "parse_workers",
]

LOOPBACK = ("127.0.0.1", "localhost", "::1")

_UNITS = {"": 1, "b": 1, "kib": 1024, "mib": 1024**2, "gib": 1024**3, "kb": 1000, "mb": 1000**2, "gb": 1000**3}
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?\Z|\*\Z")
_IPV6 = re.compile(r"[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?\Z")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")
_MAPPED_BITS = 96  # ::ffff:0:0/96 has the IPv4 addresses
_SCHEMES = re.compile(r"[A-Za-z_]+://")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener on this host."""
    return host in LOOPBACK or host.startswith("127.")


def parse_address(text: str) -> Address:
    """`host:port`, `10.0.0.1:9092` or `[::1]:9092`."""
    entry = text.strip()
    if scheme := _SCHEMES.match(entry):
        raise ValueError(f"{entry!r}: write host:port without {scheme.group()!r}")
    host, colon, port = entry.rpartition(":")
    if not host and (port.isdigit() or colon):
        raise ValueError(f"{entry!r} has no host: write host:port, for example {_example(entry)}")
    if not colon:
        raise ValueError(f"{entry!r} has no port: write host:port, for example {_example(entry)}")
    return Address(_host(host, entry), _port(port, entry))


def _example(entry: str) -> str:
    """The address that was probably meant: a number alone is the port."""
    bare = entry.strip(":")
    return f"127.0.0.1:{bare}" if bare.isdigit() else f"{bare or 'localhost'}:9092"


def _host(host: str, entry: str) -> str:
    if host.startswith("[") and host.endswith("]"):
        if not _IPV6.match(host[1:-1]):
            raise ValueError(f"{entry!r}: {host} is not an IPv6 address")
        return host[1:-1]
    if ":" in host:
        raise ValueError(f"{entry!r}: write the IPv6 address in brackets, for example [::1]:9092")
    if not _HOST.match(host):
        raise ValueError(f"{entry!r}: {host!r} is not a host name")
    return "0.0.0.0" if host == "*" else host


def parse_host(text: str) -> str:
    """A host that clients connect to: a name, or an IPv4 or IPv6 address."""
    entry = text.strip()
    bare = entry[1:-1] if entry.startswith("[") and entry.endswith("]") else entry
    if ":" in bare and _IPV6.match(bare) and bare.count(":") > 1:
        host = bare
    else:
        name, colon, port = entry.rpartition(":")
        if colon and name and port.isdigit():
            raise ValueError(f"{entry!r}: write the host without the port, for example {name}")
        if not _HOST.match(entry):
            raise ValueError(f"{entry!r} is not a host name: write one name or address, for example shoal.example")
        host = entry
    if host in ("*", *WILDCARDS):
        raise ValueError(f"{entry!r} is every address of this machine: write the one that clients use")
    return host


def _port(port: str, entry: str) -> int:
    if not (port.isascii() and port.isdigit() and 1 <= int(port[:6]) <= 65535):
        raise ValueError(f"{entry!r}: port {port!r} is not a number from 1 to 65535")
    return int(port)


def parse_addresses(text: str | Sequence[str]) -> tuple[Address, ...]:
    """`a:9092,b:9092` or a list of such entries; at least one, no duplicates."""
    parts = [text] if isinstance(text, str) else text
    for part in parts:
        if len(several := re.split(r"[;|\s]+(?=[^,;|\s])", part.strip().replace(", ", ","))) > 1:
            together = ",".join(x.strip(",") for x in several)
            raise ValueError(f"{part!r}: separate addresses with commas: {together}")
    entries = [entry for part in parts for entry in part.split(",")]
    addresses = tuple(parse_address(entry) for entry in entries if entry.strip())
    if not addresses:
        raise ValueError("no address given: write host:port[,host:port...]")
    for address in addresses:
        if addresses.count(address) > 1:
            raise ValueError(f"{address} is listed twice")
    return addresses


def parse_ports(value: str | Mapping[str, int]) -> PortRange | PortMap:
    """`19093-19192`, or a table of node id -> port."""
    if not value:
        raise ValueError('is empty: write the ports for the brokers, such as "19093-19192" or { 1 = 19093 }')
    if not isinstance(value, str):
        return PortMap(ports={_node_id(node): _port(str(port), f"{node} = {port}") for node, port in value.items()})
    first, dash, last = value.replace(" ", "").partition("-")
    if not dash:
        raise ValueError(f"{value!r} is not a range: write first-last, for example 19093-19192")
    bounds = PortRange(first=_port(first, value), last=_port(last, value))
    if bounds.last < bounds.first:
        raise ValueError(f"{value!r}: the last port is below the first")
    return bounds


def _node_id(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text!r} is not a node id: write the broker's number, for example {{ 1 = 19093 }}")
    return int(text)


def parse_path(text: str) -> Path:
    """`~` is the home directory."""
    if not text:
        raise ValueError("is empty: write a path, or remove the key")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:  # of an unknown user
        raise ValueError(f"{text!r}: {error}") from None


def parse_size(value: int | str) -> int:
    """Bytes: `524288` or `"512KiB"`."""
    if isinstance(value, int):
        return value
    match = re.fullmatch(r"\s*(\d+)\s*([A-Za-z]*)\s*", value)
    if match is None or match.group(2).lower() not in _UNITS:
        raise ValueError(f'{value!r} is not a size: write bytes or, for example, "512KiB" or "8MiB"')
    return int(match.group(1)) * _UNITS[match.group(2).lower()]


def parse_workers(value: int | str) -> int:
    """A number, or `auto`: the usable cores."""
    if isinstance(value, int):
        return value
    if value != "auto":
        raise ValueError(f'{value!r} is not a number of workers: write a number without quotes, or "auto"')
    return usable_cores()


def check_regex(text: str) -> str:
    """Returns `text` if it is a regular expression. The empty one is a forgotten value."""
    if not text:
        raise ValueError('"" matches everything: write ".*" if that is meant')
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from error
    return text


def check_topic(text: str) -> str:
    """Returns `text` if it can be a topic's name."""
    if not _TOPIC.match(text) or text in (".", ".."):
        raise ValueError(f"{text!r} cannot be the name of a topic: at most 249 letters, digits, '.', '_' and '-'")
    return text


def check_topic_part(text: str) -> str:
    """Returns `text` if a topic's name may have it: an alias of a cluster, a prefix."""
    if not _TOPIC.match(text):
        raise ValueError(f"{text!r} cannot be part of a topic's name: 1 to 249 letters, digits, '.', '_' and '-'")
    return text


def parse_network(text: str) -> Network:
    """`10.0.0.0/8`, `::1/128`, or one address. IPv4 networks in IPv6 (`::ffff:10.0.0.0/104`) are what they mean."""
    try:
        network = ipaddress.ip_network(text.strip())
    except ValueError as error:
        raise ValueError(f"{text!r} is not a network: {error}; write it as 10.0.0.0/8") from None
    mapped = network.network_address.ipv4_mapped if isinstance(network, ipaddress.IPv6Network) else None
    if mapped is None or network.prefixlen < _MAPPED_BITS:
        return network
    return ipaddress.IPv4Network((mapped, network.prefixlen - _MAPPED_BITS))
