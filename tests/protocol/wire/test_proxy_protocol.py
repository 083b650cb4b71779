"""PROXY protocol headers: golden bytes, every length, every damage."""

from __future__ import annotations

import ipaddress
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.wire.crc import crc32c
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.proxy_protocol import LONGEST, read_proxy_header

SIGNATURE = bytes.fromhex("0d0a0d0a000d0a515549540a")


def v2(command: int, family: int, content: bytes) -> bytes:
    return SIGNATURE + bytes((command, family)) + struct.pack(">H", len(content)) + content


def tlv(kind: int, value: bytes) -> bytes:
    return struct.pack(">BH", kind, len(value)) + value


IPV4 = bytes((192, 0, 2, 1, 192, 0, 2, 9)) + struct.pack(">HH", 51000, 9092)
IPV6 = ipaddress.ip_address("2001:db8::1").packed + bytes(16) + struct.pack(">HH", 51000, 9092)
WITH_CRC = v2(0x21, 0x11, IPV4 + tlv(3, bytes(4)) + tlv(5, b"id"))
CRC = WITH_CRC.replace(tlv(3, bytes(4)), tlv(3, crc32c(WITH_CRC).to_bytes(4, "big")))

HEADERS = [
    (b"PROXY TCP4 192.0.2.1 192.0.2.9 51000 9092\r\n", "192.0.2.1", 51000),
    (b"PROXY TCP6 2001:db8::1 ::1 51000 9092\r\n", "2001:db8::1", 51000),
    (b"PROXY UNKNOWN\r\n", None, 0),
    (b"PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff::1 65535 65535\r\n", None, 0),
    (v2(0x21, 0x11, IPV4), "192.0.2.1", 51000),
    (v2(0x21, 0x21, IPV6), "2001:db8::1", 51000),
    (v2(0x21, 0x11, IPV4 + tlv(1, b"h2") + tlv(0x20, b"\x01\0\0\0\0")), "192.0.2.1", 51000),
    (v2(0x20, 0x00, b""), None, 0),
    (v2(0x20, 0x11, IPV4), None, 0),
    (v2(0x21, 0x00, b"anything"), None, 0),
    (v2(0x21, 0x31, bytes(216)), None, 0),
    (CRC, "192.0.2.1", 51000),
]


@pytest.mark.parametrize(("data", "host", "port"), HEADERS)
def test_a_header_has_the_client_s_address(data: bytes, host: str | None, port: int) -> None:
    for rest in (b"", b"\x00\x00\x00\x10", b"PROXY "):
        assert read_proxy_header(data + rest) == (len(data), host, port)
    for end in range(len(data)):
        assert read_proxy_header(data[:end]) is None


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x00\x00\x00\x20", "no PROXY protocol header"),
        (b"\x16\x03\x01", "no PROXY protocol header"),
        (b"PROXX", "no PROXY protocol header"),
        (b"PROXY TCP4 192.0.2.1 192.0.2.9 51000 9092\n", "CR LF"),
        (b"PROXY \r\n", "PROXY"),
        (b"PROXY TCP4 192.0.2.1 192.0.2.9 51000\r\n", "PROXY TCP4"),
        (b"PROXY TCP4 192.0.2.1 192.0.2.9 51000 70000\r\n", "70000"),
        (b"PROXY TCP4 192.0.2.1 192.0.2.9 -1 9092\r\n", "-1"),
        (b"PROXY TCP4 ::1 192.0.2.9 51000 9092\r\n", "::1"),
        (b"PROXY TCP6 fe80::1%eth0 ::1 51000 9092\r\n", "eth0"),
        (b"PROXY TCP4 192.0.2.256 192.0.2.9 51000 9092\r\n", "256"),
        (b"PROXY UDP4 192.0.2.1 192.0.2.9 51000 9092\r\n", "UDP4"),
        (b"PROXY UNKNOWN " + b"x" * 200, "107 bytes"),
        (v2(0x11, 0x11, IPV4), "0x11"),
        (v2(0x22, 0x11, IPV4), "0x22"),
        (v2(0x21, 0x12, IPV4), "0x12"),
        (v2(0x21, 0x11, IPV4[:-1]), "too few"),
        (v2(0x21, 0x11, IPV4 + b"\x01"), "incomplete TLV"),
        (v2(0x21, 0x11, IPV4 + b"\x01\x00\x09x"), "longer"),
        (SIGNATURE + b"\x21\x11\xff\xff", "at most 4096"),
        (CRC[:-1] + b"x", "checksum"),
    ],
)
def test_a_wrong_header_is_an_error_that_names_it(data: bytes, words: str) -> None:
    with pytest.raises(RemoteProtocolError, match=words):
        read_proxy_header(data)


@given(st.binary(max_size=300) | st.binary(max_size=300).map(lambda rest: SIGNATURE + rest))
def test_any_bytes_are_a_header_or_an_error(data: bytes) -> None:
    try:
        found = read_proxy_header(data)
    except RemoteProtocolError:
        return
    assert found is None or found.size <= len(data)
    assert found is not None or len(data) < LONGEST


@given(st.sampled_from([data for data, _, _ in HEADERS]), st.data())
def test_a_damaged_header_is_a_header_or_an_error(data: bytes, draw: st.DataObject) -> None:
    at = draw.draw(st.integers(0, len(data) - 1))
    damaged = data[:at] + draw.draw(st.binary(min_size=1, max_size=1)) + data[at + 1 :]
    try:
        found = read_proxy_header(damaged)
    except RemoteProtocolError:
        return
    assert found is None or found.size <= len(damaged)


@given(
    st.ip_addresses(),
    st.integers(0, 0xFFFF),
    st.lists(st.tuples(st.integers(0x20, 0xFF), st.binary(max_size=40)), max_size=5),
)
def test_both_versions_give_back_what_was_written(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int, tlvs: list[tuple[int, bytes]]
) -> None:
    size, family = (4, 0x11) if address.version == 4 else (16, 0x21)
    text = f"PROXY TCP{address.version} {address} {address} {port} 1\r\n".encode()
    packed = address.packed + bytes(size) + struct.pack(">HH", port, 1) + b"".join(tlv(*one) for one in tlvs)
    for data in (text, v2(0x21, family, packed)):
        assert read_proxy_header(data) == (len(data), str(address), port)
