"""Certificates of strangers: what OpenSSL lets pass is read, or is a ValueError."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.security import ClusterTls, ListenerTls
from shoal.proxy.net.tls.contexts import TlsContext
from shoal.proxy.net.tls.pem import common_name, read_certificate
from tests.support.certificates import Strange, strange

if TYPE_CHECKING:
    from pathlib import Path

CA = trustme.CA(organization_name="Example CA")
DER = x509.load_pem_x509_certificate(CA.cert_pem.bytes()).public_bytes(Encoding.DER)
CHANGES = st.lists(st.tuples(st.integers(0, len(DER) - 1), st.integers(0, 255)), min_size=1, max_size=3)


@settings(max_examples=500, deadline=None)
@given(changes=CHANGES)
def test_damaged_certificates_are_value_errors(changes: list[tuple[int, int]]) -> None:
    damaged = bytearray(DER)
    for at, byte in changes:
        damaged[at] = byte
    for read in (read_certificate, common_name):
        try:
            read(bytes(damaged))
        except ValueError:
            continue


def test_a_name_of_an_unknown_kind_hides_no_subject(tmp_path: Path) -> None:
    files = strange(tmp_path, CA, Strange.NAMES)
    der = x509.load_pem_x509_certificate(files.certificate.read_bytes()).public_bytes(Encoding.DER)
    assert read_certificate(der).subject == "CN=strange"


def test_a_subject_that_cannot_be_read_is_a_value_error(tmp_path: Path) -> None:
    files = strange(tmp_path, CA, Strange.SUBJECT)
    der = x509.load_pem_x509_certificate(files.certificate.read_bytes()).public_bytes(Encoding.DER)
    for read in (read_certificate, common_name):
        with pytest.raises(ValueError, match="BitString"):
            read(der)


def test_an_unknown_curve_is_trusted_in_a_ca_and_refused_in_a_key(tmp_path: Path) -> None:
    """OpenSSL knows binary curves, `cryptography` does not."""
    made, key = tmp_path / "ca.pem", tmp_path / "ca.key"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:sect283k1 -nodes -subj /CN=odd -days 90"
    subprocess.run([*command.split(), "-keyout", str(key), "-out", str(made)], check=True, capture_output=True)
    key.chmod(0o600)
    (trusted,) = TlsContext(ClusterTls(ca=made), "cluster 'x'").loaded.trusted
    assert trusted.certificate.subject == "CN=odd"
    with pytest.raises(OperatorError, match=r"tls\.key: .*ca\.key has a private key that cannot be used: Curve "):
        TlsContext(ListenerTls(certificate=made, key=key), "listener 'x'")
