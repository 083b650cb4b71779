"""Every mistake in a handshake is a sentence with subject, file, cause and way out: one row for each, both sides."""

from __future__ import annotations

import ssl
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import trustme

from shoal.proxy.config.security import ClientAuth, ClusterTls, ListenerTls
from shoal.proxy.net.tls.contexts import TlsContext
from shoal.proxy.net.tls.explain import Failure, explain_broker, explain_client
from shoal.proxy.net.tls.pem import read_certificate
from shoal.proxy.net.tls.shown import shown_certificate
from tests.support.certificates import DAY, Pair, ca_file, pair

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CA = trustme.CA(organization_name="Good", organization_unit_name="CA")
SAME_NAME = trustme.CA(organization_name="Good", organization_unit_name="CA")
OTHER = trustme.CA(organization_name="Other", organization_unit_name="CA")
NOW = time.time()
HELLO_SIZE = 512


class Ended(NamedTuple):
    """How both sides of a handshake in memory ended."""

    client: Exception | None
    server: Exception | None
    to_client: bytes
    to_server: bytes
    server_side: ssl.SSLObject


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str = "localhost") -> Ended:
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()  # to the server, to the client
    sides = {
        "client": client.wrap_bio(down, up, server_hostname=name),
        "server": server.wrap_bio(up, down, server_side=True),
    }
    first = {"client": b"", "server": b""}
    errors: dict[str, Exception] = {}
    for _ in range(6):
        for which, side in sides.items():
            if which not in errors:
                try:
                    side.do_handshake()
                    side.read(1)  # an alert of TLS 1.3 follows the handshake
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLError as error:
                    errors[which] = error
            out, other = (up, "server") if which == "client" else (down, "client")
            data = out.read()
            first[other] = first[other] or data[:HELLO_SIZE]
            out.write(data)
    return Ended(errors.get("client"), errors.get("server"), first["client"], first["server"], sides["server"])


def server_of(files: Pair, *, client_ca: trustme.CA | None = None, change: Callable[[Any], None] | None = None) -> Any:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    if client_ca is not None:
        client_ca.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    if change is not None:
        change(context)
    return context


def at_most_1_2(context: ssl.SSLContext) -> None:
    context.maximum_version = ssl.TLSVersion.TLSv1_2


def at_most_1_1(context: ssl.SSLContext) -> None:
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1


def other_cipher(context: ssl.SSLContext) -> None:
    at_most_1_2(context)
    context.set_ciphers("ECDHE-ECDSA-AES128-SHA256")


def unknown_name(context: ssl.SSLContext) -> None:
    context.sni_callback = lambda *_: ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME


def expired(directory: Path, ca: trustme.CA, name: str = "old") -> Pair:
    return pair(directory, ca, name=name, start=NOW - 9 * DAY, end=NOW - DAY)


# -- brokers -----------------------------------------------------------------------------------------------------------

Broker = tuple["Callable[[Path], Any]", dict[str, Any], str, list[str]]
BROKERS: dict[str, Broker] = {
    # mistake: the broker's context, our settings, the name to connect to, expected words
    "unknown CA": (
        lambda d: server_of(pair(d, OTHER)),
        {},
        "localhost",
        ["CN=server", "signed by OU=CA,O=Other, which is not in ", "ca.pem (tls.ca: OU=CA,O=Good): add its CA"],
    ),
    "CA with the same name": (
        lambda d: server_of(pair(d, SAME_NAME)),
        {},
        "localhost",
        ["CN=server", "another CA with the same name", "ca.pem"],
    ),
    "wrong name": (
        lambda d: server_of(pair(d, CA, "b1.example", "10.0.0.1")),
        {},
        "localhost",
        ["CN=server", "is for b1.example, 10.0.0.1, not for localhost", "server-name", "verify-host-name = false"],
    ),
    "wrong address": (
        lambda d: server_of(pair(d, CA, "b1.example")),
        {},
        "127.0.0.1",
        ["is for b1.example, not for 127.0.0.1"],
    ),
    "expired": (lambda d: server_of(expired(d, CA)), {}, "localhost", ["CN=old", "expired on 20", "renew it at the"]),
    "not yet valid": (
        lambda d: server_of(pair(d, CA, start=NOW + DAY, end=NOW + 9 * DAY)),
        {},
        "localhost",
        ["CN=server", "is not valid before 20", "correct this machine's clock, or use another one at the broker"],
    ),
    "wants a certificate": (
        lambda d: server_of(pair(d, CA), client_ca=CA),
        {},
        "localhost",
        ["wants a certificate of Shoal", "set tls.certificate and tls.key"],
    ),
    "refuses ours": (
        lambda d: server_of(pair(d, CA), client_ca=CA),
        {"certificate": OTHER},
        "localhost",
        ["refuses Shoal's certificate", "CN=shoal", "shoal.pem (unknown CA)", "must have the CA OU=CA,O=Other"],
    ),
    "only 1.2": (
        lambda d: server_of(pair(d, CA), change=at_most_1_2),
        {"min_version": "1.3"},
        "localhost",
        ["no common version of TLS", "at least 1.3"],
    ),
    "no common cipher": (
        lambda d: server_of(pair(d, CA), change=other_cipher),
        {"ciphers": "ECDHE-ECDSA-AES256-GCM-SHA384"},
        "localhost",
        ["no common cipher", "tls.ciphers"],
    ),
    "unknown name": (
        lambda d: server_of(pair(d, CA), change=unknown_name),
        {},
        "localhost",
        ["knows no name 'localhost'", "set tls.server-name"],
    ),
}


@pytest.mark.parametrize("mistake", BROKERS)
def test_brokers(tmp_path: Path, mistake: str) -> None:
    make, keys, name, words = BROKERS[mistake]
    server = make(tmp_path)
    if (own := keys.get("certificate")) is not None:
        files = pair(tmp_path, own, name="shoal")
        keys = {"certificate": files.certificate, "key": files.key}
    tls = TlsContext(ClusterTls(ca=ca_file(tmp_path, CA), **keys), "cluster 'x'")
    ended = handshake(server, tls.context, name)
    assert ended.client is not None
    failure = Failure(ended.client, ended.to_client, name=name)
    if failure.code:
        with_certificate = handshake(server, tls.unverified(), name)
        assert with_certificate.client is None
    shown = read_certificate(_certificate_of(server, tls, name)) if failure.code else None
    text = explain_broker(failure._replace(shown=shown), tls, NOW)
    for word in words:
        assert word in text, text
    assert explain_broker(failure, tls, NOW)  # without the certificate


def _certificate_of(server: ssl.SSLContext, tls: TlsContext, name: str) -> bytes:
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client, other = (
        tls.unverified().wrap_bio(down, up, server_hostname=name),
        server.wrap_bio(up, down, server_side=True),
    )
    for side in (client, other, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    der = client.getpeercert(binary_form=True)
    assert der is not None
    return der


@pytest.mark.parametrize(
    ("received", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "web server without TLS"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "SSH server"),
        (b"hello, who is there?", "is not TLS (first bytes 68 65 6c"),
        (b"", "plaintext listener: remove the cluster's tls"),
    ],
)
def test_brokers_of_another_protocol(tmp_path: Path, received: bytes, words: str) -> None:
    tls = TlsContext(ClusterTls(ca=ca_file(tmp_path, CA)), "cluster 'x'")
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    down.write(received)
    down.write_eof()
    with pytest.raises(ssl.SSLError) as caught:
        tls.context.wrap_bio(down, up, server_hostname="localhost").do_handshake()
    assert words in explain_broker(Failure(caught.value, received, name="localhost"), tls, NOW)


# -- clients -----------------------------------------------------------------------------------------------------------


def client_of(
    ca: trustme.CA = CA, files: Pair | None = None, change: Callable[[Any], None] | None = None
) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ca.configure_trust(context)
    if files is not None:
        context.load_cert_chain(files.certificate, files.key)
    if change is not None:
        change(context)
    return context


Client = tuple["Callable[[Path], ssl.SSLContext]", dict[str, Any], list[str]]
CLIENTS: dict[str, Client] = {
    "distrusts us": (
        lambda _: client_of(OTHER),
        {},
        ["refuses the certificate", "CN=server", "server.pem (unknown CA)", "truststore needs the CA OU=CA,O=Good"],
    ),
    "no certificate": (
        lambda _: client_of(),
        {"client_auth": ClientAuth.REQUIRED},
        ["has no certificate", 'client-auth is "required"', "ca.pem (ssl.keystore.location)"],
    ),
    "certificate of another CA": (
        lambda d: client_of(files=pair(d, OTHER, name="client")),
        {"client_auth": ClientAuth.OPTIONAL},
        ["certificate CN=client", "signed by OU=CA,O=Other, which is not in ", "ca.pem (tls.client-ca: OU=CA,O=Good)"],
    ),
    "certificate of another CA, TLS 1.2": (
        lambda d: client_of(files=pair(d, OTHER, name="client"), change=at_most_1_2),
        {"client_auth": ClientAuth.REQUIRED},
        ["certificate CN=client", "signed by OU=CA,O=Other"],
    ),
    "expired": (
        lambda d: client_of(files=expired(d, CA, "client")),
        {"client_auth": ClientAuth.REQUIRED},
        ["certificate CN=client", "expired on 20", "renew it"],
    ),
    "too old": (lambda _: client_of(change=at_most_1_1), {}, ["at most TLS 1.1", "at least TLS 1.2", "upgrade"]),
    "only 1.2": (
        lambda _: client_of(change=at_most_1_2),
        {"min_version": "1.3"},
        ["at most TLS 1.2", "least TLS 1.3"],
    ),
    "no common cipher": (
        lambda _: client_of(change=other_cipher),
        {"ciphers": "ECDHE-ECDSA-AES256-GCM-SHA384"},
        ["no common cipher", "tls.ciphers (ECDHE-ECDSA-AES256-GCM-SHA384)"],
    ),
}


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("mistake", CLIENTS)
def test_clients(tmp_path: Path, mistake: str) -> None:
    make, keys, words = CLIENTS[mistake]
    files = pair(tmp_path, CA)
    if "client_auth" in keys:
        keys = {**keys, "client_ca": ca_file(tmp_path, CA)}
    tls = TlsContext(ListenerTls(certificate=files.certificate, key=files.key, **keys), "listener 'x'")
    ended = handshake(tls.context, make(tmp_path))
    assert ended.server is not None
    failure = Failure(ended.server, ended.to_server, shown_certificate(ended.server_side))
    text = explain_client(failure, tls, NOW)
    assert text is not None
    for word in words:
        assert word in text, text
    assert explain_client(failure._replace(shown=None), tls, NOW)


@pytest.mark.parametrize(
    ("received", "words"),
    [
        (bytes.fromhex("0000001700120003000000000007") + b"rdkafka", "the client 'rdkafka' speaks Kafka without TLS"),
        (bytes.fromhex("0000001700120003"), "security.protocol to SSL (with a login: SASL_SSL)"),
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP without TLS"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "speaks SSH"),
        (b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n", "proxy-protocol"),
        (b"\xff\xee\xdd\xcc\xbb\xaa", "does not speak TLS, and this port needs it (first bytes ff ee dd cc bb aa)"),
        (bytes.fromhex("802e0103010015000000100000"), "SSL 2"),
        (bytes.fromhex("160301"), "in the middle of the TLS handshake"),
        (b"", None),
    ],
)
def test_clients_of_another_protocol(tmp_path: Path, received: bytes, words: str | None) -> None:
    files = pair(tmp_path, CA)
    tls = TlsContext(ListenerTls(certificate=files.certificate, key=files.key), "listener 'x'")
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    up.write(received)
    up.write_eof()
    with pytest.raises(ssl.SSLError) as caught:
        tls.context.wrap_bio(up, down, server_side=True).do_handshake()
    text = explain_client(Failure(caught.value, received), tls, NOW)
    assert (text is None) == (words is None)
    assert words is None or text is None or words in text
