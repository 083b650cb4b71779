"""Files of TLS: good ones become contexts; every mistake is an error with setting, file, cause and way out."""

from __future__ import annotations

import os
import re
import ssl
import subprocess
import time
from pathlib import Path, PosixPath
from typing import TYPE_CHECKING

import pytest
import trustme

from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.security import ClientAuth, ClusterTls, ListenerTls, Secret
from shoal.proxy.net.tls.contexts import TlsContext
from tests.support.certificates import DAY, Pair, ca_file, encrypted, pair, write_key

if TYPE_CHECKING:
    from collections.abc import Callable

CA = trustme.CA(organization_name="Example CA")
OTHER = trustme.CA(organization_name="Another CA")
NOW = time.time()


def listener(files: Pair, **keys: object) -> ListenerTls:
    return ListenerTls(**{"certificate": files.certificate, "key": files.key, **keys})  # type: ignore[arg-type]


def problem_of(settings: ListenerTls | ClusterTls, now: float | None = None) -> str:
    with pytest.raises(OperatorError) as caught:
        TlsContext(settings, "listener 'x'", clock=lambda: time.time() if now is None else now)
    assert len(caught.value.problems) == 1
    return str(caught.value)


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str = "localhost") -> tuple[ssl.SSLObject, ...]:
    """In memory. Raises ssl.SSLError."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [client.wrap_bio(down, up, server_hostname=name), server.wrap_bio(up, down, server_side=True)]
    waiting = list(sides)
    while waiting:
        for side in list(waiting):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(side)
    return tuple(sides)


def test_both_sides_speak(tmp_path: Path) -> None:
    server = TlsContext(listener(pair(tmp_path, CA)), "listener 'x'").context
    client = TlsContext(ClusterTls(ca=ca_file(tmp_path, CA)), "cluster 'y'").context
    sides = handshake(server, client)
    assert [side.version() for side in sides] == ["TLSv1.3"] * 2
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, client, "elsewhere.example")


def test_certificate_and_key_in_one_file(tmp_path: Path) -> None:
    files = pair(tmp_path, CA)
    both = tmp_path / "both.pem"
    write_key(both, files.key_bytes + files.certificate.read_bytes())
    loaded = TlsContext(ListenerTls(certificate=both), "listener 'x'").loaded
    assert loaded.own is not None
    assert loaded.own.certificate.names == ("localhost", "127.0.0.1")


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
def test_encrypted_key(tmp_path: Path, ending: str) -> None:
    files = pair(tmp_path, CA)
    write_key(files.key, encrypted(files.key_bytes, "päss word"))
    write_key(tmp_path / "password", f"päss word{ending}".encode())
    TlsContext(listener(files, key_password=Secret(file=tmp_path / "password")), "listener 'x'")


def test_encrypted_key_with_password_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = pair(tmp_path, CA)
    write_key(files.key, encrypted(files.key_bytes, "x1"))
    monkeypatch.setenv("SHOAL_TEST_PASSWORD", "x1")
    TlsContext(listener(files, key_password=Secret(env="SHOAL_TEST_PASSWORD")), "listener 'x'")


def test_minimum_version_and_options(tmp_path: Path) -> None:
    files = pair(tmp_path, CA)
    new, old = (TlsContext(listener(files, min_version=version), "x").context for version in ("1.3", "1.2"))
    client = TlsContext(ClusterTls(ca=ca_file(tmp_path, CA)), "y").context
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    assert handshake(old, client)[0].version() == "TLSv1.2"
    with pytest.raises(ssl.SSLError):
        handshake(new, client)
    for option in (ssl.OP_NO_RENEGOTIATION, ssl.OP_NO_COMPRESSION):
        assert old.options & option
    assert not old.options & ssl.OP_NO_TICKET


def test_ciphers(tmp_path: Path) -> None:
    files = pair(tmp_path, CA)
    server = TlsContext(listener(files, ciphers="ECDHE-ECDSA-AES256-GCM-SHA384"), "x").context
    client = TlsContext(ClusterTls(ca=ca_file(tmp_path, CA)), "y").context
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    cipher = handshake(server, client)[0].cipher()
    assert cipher is not None
    assert cipher[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"


@pytest.mark.parametrize("auth", list(ClientAuth))
@pytest.mark.parametrize("shown", ["none", "good", "other"])
def test_client_certificates(tmp_path: Path, auth: ClientAuth, shown: str) -> None:
    client_ca = None if auth is ClientAuth.NONE else ca_file(tmp_path, CA)
    server = TlsContext(listener(pair(tmp_path, CA), client_ca=client_ca, client_auth=auth), "x").context
    keys: dict[str, Path] = {}
    if shown != "none":
        own = pair(tmp_path, CA if shown == "good" else OTHER, name="client")
        keys = {"certificate": own.certificate, "key": own.key}
    client = TlsContext(ClusterTls(ca=ca_file(tmp_path, CA, "trusted"), **keys), "y").context  # type: ignore[arg-type]
    refused = (auth is ClientAuth.REQUIRED and shown == "none") or (auth is not ClientAuth.NONE and shown == "other")
    if refused:
        with pytest.raises(ssl.SSLError):
            handshake(server, client)
    else:
        assert bool(handshake(server, client)[1].getpeercert()) == (shown == "good" and auth is not ClientAuth.NONE)


def test_a_self_signed_certificate_can_be_trusted(tmp_path: Path) -> None:
    made = tmp_path / "self.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost -days 2"
    key = tmp_path / "self.key"
    subprocess.run([*command.split(), "-keyout", str(key), "-out", str(made)], check=True, capture_output=True)
    key.chmod(0o600)
    server = TlsContext(ListenerTls(certificate=made, key=key), "x").context
    handshake(server, TlsContext(ClusterTls(ca=made), "y").context)


def _missing(files: Pair, _: Path) -> ListenerTls:
    return listener(files, certificate=files.certificate.with_name("no.pem"))


def _dangling(files: Pair, directory: Path) -> ListenerTls:
    (directory / "link.pem").symlink_to("gone/tls.crt")
    return listener(files, certificate=directory / "link.pem")


def _text(files: Pair, directory: Path) -> ListenerTls:
    (directory / "text.pem").write_text("hello")
    return listener(files, certificate=directory / "text.pem")


def _empty(files: Pair, directory: Path) -> ListenerTls:
    (directory / "empty.pem").touch()
    return listener(files, certificate=directory / "empty.pem")


def _der(files: Pair, directory: Path) -> ListenerTls:
    (directory / "x.der").write_bytes(ssl.PEM_cert_to_DER_cert(CA.cert_pem.bytes().decode()))
    return listener(files, certificate=directory / "x.der")


def _jks(files: Pair, directory: Path) -> ListenerTls:
    (directory / "x.jks").write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    return listener(files, certificate=directory / "x.jks")


def _swapped(files: Pair, _: Path) -> ListenerTls:
    return ListenerTls(certificate=files.key, key=files.certificate)


def _no_key(files: Pair, _: Path) -> ListenerTls:
    files.certificate.chmod(0o600)
    return ListenerTls(certificate=files.certificate)


def _other_key(files: Pair, directory: Path) -> ListenerTls:
    return listener(files, key=pair(directory, CA, name="other").key)


def _ca_first(files: Pair, _: Path) -> ListenerTls:
    files.certificate.write_bytes(CA.cert_pem.bytes() + files.certificate.read_bytes())
    return listener(files)


def _cut(files: Pair, _: Path) -> ListenerTls:
    text = files.certificate.read_text().splitlines()
    files.certificate.write_text("\n".join([*text[:3], *text[6:]]))
    return listener(files)


def _no_password(files: Pair, _: Path) -> ListenerTls:
    write_key(files.key, encrypted(files.key_bytes, "right-password"))
    return listener(files)


def _wrong_password(files: Pair, directory: Path) -> ListenerTls:
    write_key(files.key, encrypted(files.key_bytes, "right-password"))
    write_key(directory / "password", b"wrong-password\n")
    return listener(files, key_password=Secret(file=directory / "password"))


def _unset(files: Pair, _: Path) -> ListenerTls:
    return listener(files, key_password=Secret(env="SHOAL_NO_SUCH_VARIABLE"))


def _open_password(files: Pair, directory: Path) -> ListenerTls:
    (directory / "password").write_text("x")
    (directory / "password").chmod(0o644)
    return listener(files, key_password=Secret(file=directory / "password"))


def _open_key(files: Pair, _: Path) -> ListenerTls:
    files.key.chmod(0o644)
    return listener(files)


def _expired(_: Pair, directory: Path) -> ListenerTls:
    return listener(pair(directory, CA, name="old", start=NOW - 9 * DAY, end=NOW - DAY))


def _early(_: Pair, directory: Path) -> ListenerTls:
    return listener(pair(directory, CA, name="young", start=NOW + DAY, end=NOW + 9 * DAY))


def _weak(_: Pair, directory: Path) -> ListenerTls:
    made = Pair(directory / "weak.pem", directory / "weak.key")
    command = "openssl req -x509 -newkey rsa:1024 -nodes -subj /CN=weak -days 2"
    command += f" -keyout {made.key} -out {made.certificate}"
    subprocess.run(command.split(), check=True, capture_output=True)
    made.key.chmod(0o600)
    return listener(made)


def _ca_without_certificates(files: Pair, _: Path) -> ListenerTls:
    return listener(files, client_ca=files.key, client_auth=ClientAuth.REQUIRED)


def _indented(files: Pair, _: Path) -> ListenerTls:
    lines = files.certificate.read_text().splitlines()
    files.certificate.write_text("\n".join(f"  {line}" for line in lines))
    return listener(files)


class Vanishing(PosixPath):
    """A file that is removed when Shoal has read it, and OpenSSL has not."""

    uses = 0  # a look whether it has changed, the read, OpenSSL

    def __fspath__(self) -> str:
        Vanishing.uses += 1
        path = str(self)
        if Vanishing.uses == 3:
            os.unlink(path)
        return path


def _vanishing(files: Pair, _: Path) -> ListenerTls:
    return listener(files, certificate=Vanishing(files.certificate))


def _ciphers_of_tls_1_3(files: Pair, _: Path) -> ListenerTls:
    return listener(files, ciphers="TLS_AES_256_GCM_SHA384")


def _unknown_ciphers(files: Pair, _: Path) -> ListenerTls:
    return listener(files, ciphers="NOT-A-CIPHER")


def _directory(files: Pair, directory: Path) -> ListenerTls:
    return listener(files, certificate=directory)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_missing, ["tls.certificate", "no.pem cannot be read: No such file"]),
        (_dangling, ["tls.certificate", "link.pem", "symbolic link to gone/tls.crt"]),
        (_directory, ["tls.certificate", "cannot be read: Is a directory"]),
        (_text, ["tls.certificate", "text.pem is not a PEM file"]),
        (_empty, ["tls.certificate", "empty.pem is empty"]),
        (_der, ["tls.certificate", "x.der is a certificate in DER form", "openssl x509 -inform DER"]),
        (_jks, ["tls.certificate", "x.jks is a Java key store", "keytool -importkeystore"]),
        (_swapped, ["tls.certificate", "server.key has no certificate, only: ", "PRIVATE KEY"]),
        (_no_key, ["tls.certificate", "server.pem has no private key, only: CERTIFICATE", "set key"]),
        (_other_key, ["tls.key", "server.pem and ", "other.key: ", "CN=server", "not a pair"]),
        (_ca_first, ["tls.key", "its first certificate is", "the key fits certificate 2, CN=server", "put that one"]),
        (_cut, ["tls.certificate", "server.pem its certificate is damaged"]),
        (_no_password, ["tls.key", "server.key has an encrypted key: set key-password"]),
        (_wrong_password, ["tls.key", "server.key cannot be decrypted: key-password is wrong"]),
        (_unset, ["tls.key-password", "environment variable SHOAL_NO_SUCH_VARIABLE is not set"]),
        (_open_password, ["tls.key-password", "can be read or changed by every user (mode 0644): chmod 0640"]),
        (_open_key, ["tls.key", "server.key can be read", "chmod 0640", "defaultMode: 0440"]),
        (_expired, ["tls.certificate", "old.pem: CN=old", "expired on 20", "renew it"]),
        (_early, ["tls.certificate", "young.pem: CN=young", "is not valid before", "clock"]),
        (_weak, ["tls.certificate", "weak.pem: OpenSSL refuses CN=weak: its key is too short", "2048"]),
        (_ca_without_certificates, ["tls.client-ca", "server.key has no certificate, only"]),
        (_indented, ["tls.key", "OpenSSL cannot load", "server.pem with ", "server.key (", "openssl x509 -in"]),
        (_vanishing, ["tls.certificate", "server.pem cannot be read: No such file"]),
        (_unknown_ciphers, ["tls.ciphers", 'no cipher of TLS 1.2 in "NOT-A-CIPHER"', "openssl ciphers"]),
        (_ciphers_of_tls_1_3, ["tls.ciphers", "Those of TLS 1.3 (TLS_...) are always enabled"]),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_mistakes(tmp_path: Path, make: Callable[[Pair, Path], ListenerTls], words: list[str]) -> None:
    problem = problem_of(make(pair(tmp_path, CA), tmp_path))
    assert problem.startswith("listener 'x': ")
    for word in words:
        assert word in problem
    assert "\n" not in problem
    for secret in ("right-password", "wrong-password"):
        assert secret not in problem


def test_ca_of_the_cluster_is_expired(tmp_path: Path) -> None:
    problem = problem_of(ClusterTls(ca=ca_file(tmp_path, CA)), now=NOW + 366 * 1100 * DAY)
    assert "tls.ca: " in problem
    assert "expired on" in problem


@pytest.mark.parametrize("mode", [0o400, 0o440, 0o640, 0o600])
def test_rights_of_kubernetes_secrets(tmp_path: Path, mode: int) -> None:
    """The link is readable by everybody, the file is not."""
    files = pair(tmp_path, CA)
    files.key.chmod(mode)
    link = tmp_path / "link.key"
    link.symlink_to(files.key.name)
    TlsContext(listener(files, key=link), "listener 'x'")


def test_names_that_the_certificate_does_not_have(tmp_path: Path) -> None:
    settings = listener(pair(tmp_path, CA, "shoal.example", "*.brokers.example"))
    good = ("shoal.example", "broker-1.brokers.example")
    assert TlsContext(settings, "listener 'x'", names=good).loaded.doubts == ()
    (doubt,) = TlsContext(settings, "listener 'x'", names=("other.example", "a.b.brokers.example")).loaded.doubts
    assert f"listener 'x': tls.certificate: {tmp_path}/server.pem: CN=server,OU=" in doubt
    assert "is not for other.example and a.b.brokers.example, where clients connect" in doubt


@pytest.mark.parametrize("order", ["012", "021", "01", "02", "0"])
def test_order_of_the_chain(tmp_path: Path, order: str) -> None:
    """It is Shoal's certificate, that of the intermediate CA, that of the root; not all clients sort them."""
    root = trustme.CA(organization_name="Root")
    files = pair(tmp_path, trustme.CA(parent_cert=root, organization_name="Intermediate"))
    parts = re.findall(rb"-----BEGIN.*?END CERTIFICATE-----\n", files.certificate.read_bytes(), re.DOTALL)
    parts = [*parts[:2], root.cert_pem.bytes()]
    files.certificate.write_bytes(b"".join(parts[int(number)] for number in order))
    doubts = TlsContext(listener(files), "listener 'x'").loaded.doubts
    assert bool(doubts) == (order in ("021", "02"))
    assert all("has not signed the one before" in doubt for doubt in doubts)


def test_one_generation(tmp_path: Path) -> None:
    """The directory is swapped between the certificate and the key, as the kubelet does: both are of the second."""
    for number in (1, 2):
        (tmp_path / f"v{number}").mkdir()
        pair(tmp_path / f"v{number}", CA, common_name=f"generation {number}")
    data = tmp_path / "data"
    data.symlink_to("v1")
    settings = ListenerTls(certificate=data / "server.pem", key=data / "server.key")

    def swap() -> float:  # asked for the time, between reading the files
        replacement = tmp_path / "next"
        replacement.symlink_to("v2")
        os.replace(replacement, data)
        return time.time()

    loaded = TlsContext(settings, "listener 'x'", clock=swap).loaded
    assert loaded.own is not None
    assert loaded.own.certificate.subject.startswith("CN=generation 2")


def test_reload_keeps_what_works(tmp_path: Path) -> None:
    files = pair(tmp_path, CA)
    tls = TlsContext(listener(files), "listener 'x'")
    first = tls.context
    files.certificate.write_text("broken")
    assert tls.current_generation() != tls.generation
    with pytest.raises(OperatorError, match="not a PEM file"):
        tls.reload()
    assert tls.context is first
    assert tls.current_generation() == tls.generation
    pair(tmp_path, CA)
    tls.reload()
    assert tls.context is not first
