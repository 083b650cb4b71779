import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.framing import SUSPICIOUS_SIZE, ForeignProtocol, Sender, check_frame_size

DEFAULT_FRAME_LIMIT = 104_857_600
INT32_MAX = (1 << 31) - 1


def check(first: bytes, limit: int = DEFAULT_FRAME_LIMIT, sender: Sender = Sender.CLIENT) -> None:
    check_frame_size(int.from_bytes(first[:4], signed=True), first, limit, sender)


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (bytes.fromhex("160301020001000200"), "a TLS hello on a plaintext port"),
        (bytes.fromhex("16030100c8010000c4"), "a TLS hello on a plaintext port"),
        (bytes.fromhex("15030300020228"), "a TLS alert on a plaintext port"),
        (b"GET / HTTP/1.1\r\n", "speaks HTTP"),
        (b"POST /", "speaks HTTP"),
        (b"CONNECT host:9092", "speaks HTTP"),
        (b"PRI * HTTP/2.0", "speaks HTTP"),
        (b"HTTP/1.1 400 Bad Request", "an HTTP answer"),
        (b"SSH-2.0-OpenSSH_9.2", "speaks SSH"),
        (b"PROXY TCP4 10.0.0.1", "PROXY protocol"),
        (b"\r\n\r\n\0\r\nQUIT\n", "PROXY protocol"),
    ],
)
@pytest.mark.parametrize("limit", [1000, DEFAULT_FRAME_LIMIT, INT32_MAX])
def test_other_protocols_are_named_whatever_the_limit(first: bytes, message: str, limit: int) -> None:
    with pytest.raises(RemoteProtocolError, match=message):
        check(first, limit)
    with pytest.raises(RemoteProtocolError, match=message):
        check(first[:4], limit)


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (bytes.fromhex("15030300020250"), "the broker answers with a TLS alert.*cluster.tls"),
        (bytes.fromhex("16030300020250"), "the broker uses TLS.*cluster.tls"),
        (b"HTTP/1.1 400 Bad Request", "web server"),
        (b"SSH-2.0-OpenSSH_9.2", "SSH server"),
    ],
)
def test_a_broker_of_another_protocol(first: bytes, message: str) -> None:
    with pytest.raises(ForeignProtocol, match=message):
        check(first, INT32_MAX, Sender.BROKER)


@given(st.integers(0, SUSPICIOUS_SIZE - 1), st.integers(0, INT32_MAX))
def test_a_size_is_allowed_up_to_the_limit(size: int, limit: int) -> None:
    if size <= limit:
        check_frame_size(size, size.to_bytes(4), limit)
    else:
        with pytest.raises(RemoteProtocolError, match=f"a frame of {size} bytes: 0 to {limit}"):
            check_frame_size(size, size.to_bytes(4), limit)


def test_sizes_at_the_edges() -> None:
    check_frame_size(0, bytes(4), 0)
    check_frame_size(INT32_MAX, b"\x7f\xff\xff\xff", INT32_MAX)
    for size in (-1, -(1 << 31)):
        with pytest.raises(RemoteProtocolError, match=f"a frame of {size} bytes"):
            check_frame_size(size, size.to_bytes(4, signed=True), INT32_MAX)
