"""PEM files: their certificates and keys, and what is wrong with a file.

`ssl` reports most problems of a file as "PEM lib". These functions look first, so that the error has the cause.
"""

from __future__ import annotations

import re
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

from shoal.proxy.net.tls.certificates import Certificate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

__all__ = [
    "BadPem",
    "chain_doubt",
    "check_pair",
    "common_name",
    "private_key",
    "read_certificate",
    "read_certificates",
]

_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.+?-----END \1-----", re.DOTALL)
_PURPOSES = {"server": ExtendedKeyUsageOID.SERVER_AUTH, "client": ExtendedKeyUsageOID.CLIENT_AUTH}


class BadPem(Exception):
    """The message has the cause and the way out; the caller adds setting and file."""


def read_certificate(der: bytes) -> Certificate:
    """Raises ValueError."""
    with _value_errors():
        return _facts(x509.load_der_x509_certificate(der))


def common_name(der: bytes) -> str | None:
    """From its subject; the last one, if it has several. Raises ValueError."""
    with _value_errors():
        names = x509.load_der_x509_certificate(der).subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        return str(names[-1].value) if names else None


@contextmanager
def _value_errors() -> Iterator[None]:
    """A stranger's certificate may be anything that OpenSSL lets pass, and `cryptography` has many errors for it:
    InvalidVersion, DuplicateExtension, TypeError for a bit string in a subject, and more.
    """
    try:
        yield
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(str(error)) from error


def read_certificates(pem: bytes) -> tuple[Certificate, ...]:
    """All certificates of a file, in order; at least one. Raises BadPem."""
    blocks = [match[0] for match in _BLOCK.finditer(pem) if match[1] in _CERTIFICATE]
    if not blocks:
        raise BadPem(_instead_of_certificates(pem))
    found = []
    for number, block in enumerate(blocks, 1):
        try:
            with _value_errors():
                found.append(_facts(x509.load_pem_x509_certificate(block)))
        except ValueError as error:
            which = f"certificate {number} of {len(blocks)}" if len(blocks) > 1 else "its certificate"
            raise BadPem(f"{which} is damaged ({error})") from None
    return tuple(found)


_CERTIFICATE = frozenset({b"CERTIFICATE", b"X509 CERTIFICATE"})


def _facts(certificate: x509.Certificate) -> Certificate:
    return Certificate(
        subject=certificate.subject.rfc4514_string(),
        issuer=certificate.issuer.rfc4514_string(),
        names=_names(certificate),
        not_before=certificate.not_valid_before_utc.timestamp(),
        not_after=certificate.not_valid_after_utc.timestamp(),
        public_key=_public_key(certificate),
        purposes=_extended_key_usage(certificate),
        der=certificate.public_bytes(serialization.Encoding.DER),
    )


def _public_key(certificate: x509.Certificate) -> bytes:
    """Empty: OpenSSL may know its algorithm, `cryptography` does not."""
    with suppress(UnsupportedAlgorithm):
        return certificate.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    return b""


_NO_EXTENSION = (x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType, ValueError)
"""It is missing, or cannot be read."""


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    """Without alternative names, clients and brokers look at the common name."""
    with suppress(*_NO_EXTENSION):
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        dns = extension.get_values_for_type(x509.DNSName)
        return tuple(dns) + tuple(map(str, extension.get_values_for_type(x509.IPAddress)))
    common = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return tuple(str(attribute.value) for attribute in common)


def _extended_key_usage(certificate: x509.Certificate) -> tuple[str, ...] | None:
    with suppress(*_NO_EXTENSION):
        usage = set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
        if ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE not in usage:
            return tuple(name for name, oid in _PURPOSES.items() if oid in usage)
    return None


def _instead_of_certificates(data: bytes) -> str:
    """What a file without PEM certificates is."""
    labels = sorted({match[1].decode() for match in _BLOCK.finditer(data)})
    if labels:
        return f"has no certificate, only: {', '.join(labels)}"
    return _form_of(data) or 'is not a PEM file: it has no whole part from "BEGIN CERTIFICATE" to "END CERTIFICATE"'


def _form_of(data: bytes) -> str | None:
    if not data.strip():
        return "is empty"
    if data.startswith(b"\xfe\xed\xfe\xed"):
        return (
            "is a Java key store (JKS), not PEM: convert it with keytool -importkeystore -deststoretype PKCS12, and "
            "the result with openssl pkcs12 -nodes -out FILE.pem"
        )
    if not data.startswith(b"\x30"):
        return None
    with suppress(ValueError):
        x509.load_der_x509_certificate(data)
        return "is a certificate in DER form, not PEM: convert it with openssl x509 -inform DER -out FILE.pem"
    return "is in binary form, not PEM: if it is PKCS #12, convert it with openssl pkcs12 -nodes -out FILE.pem"


def private_key(pem: bytes, password: str | None) -> PrivateKeyTypes:
    """The first private key of a file. Raises BadPem."""
    block = next((match[0] for match in _BLOCK.finditer(pem) if match[1].endswith(b"PRIVATE KEY")), None)
    if block is None:
        labels = sorted({match[1].decode() for match in _BLOCK.finditer(pem)})
        raise BadPem(
            f"has no private key, only: {', '.join(labels)}: set key to the file with the key"
            if labels
            else _form_of(pem) or 'is not a PEM file: it has no whole part from "BEGIN PRIVATE KEY" to its end'
        )
    is_encrypted = b"ENCRYPTED" in block[:200]
    if is_encrypted and password is None:
        raise BadPem("has an encrypted key: set key-password")
    try:
        return serialization.load_pem_private_key(block, password.encode() if is_encrypted and password else None)
    except (ValueError, TypeError):
        if is_encrypted:
            raise BadPem("cannot be decrypted: key-password is wrong, or the key is damaged") from None
        raise BadPem("has a damaged private key") from None
    except Exception as error:  # UnsupportedAlgorithm
        raise BadPem(f"has a private key that cannot be used: {error}") from None


def check_pair(chain: tuple[Certificate, ...], key: PrivateKeyTypes, purpose: str) -> None:
    """The key fits the first certificate, which is for this purpose. Raises BadPem."""
    public = key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    if chain[0].public_key != public:
        fits = next((number for number, certificate in enumerate(chain, 1) if certificate.public_key == public), None)
        if fits is not None:
            raise BadPem(
                f"its first certificate is {chain[0].subject}, but the key fits certificate {fits}, "
                f"{chain[fits - 1].subject}: put that one first"
            )
        raise BadPem(f"its certificate is {chain[0].subject}, and the key does not fit: they are not a pair")
    if chain[0].purposes is not None and purpose not in chain[0].purposes:
        raise BadPem(
            f"{chain[0].subject} is not for TLS {purpose}s (its extended key usage has no {purpose}Auth), so the other "
            f"side would refuse it: use a certificate with {purpose}Auth"
        )


def chain_doubt(chain: tuple[Certificate, ...]) -> str | None:
    """Each certificate must be signed by the next one; not every client sorts them."""
    for number, (certificate, signer) in enumerate(pairwise(chain), 2):
        if not _has_signed(signer, certificate):
            return (
                f"its certificate {number}, {signer.subject}, has not signed the one before, {certificate.subject}, "
                f"which is of {certificate.issuer}: some clients refuse such a chain. Put each CA after the "
                "certificate that it signed, and remove others"
            )
    return None


def _has_signed(signer: Certificate, one: Certificate) -> bool:
    try:
        x509.load_der_x509_certificate(one.der).verify_directly_issued_by(x509.load_der_x509_certificate(signer.der))
    except (ValueError, TypeError, InvalidSignature):
        return False
    except Exception:  # UnsupportedAlgorithm: OpenSSL knows it, perhaps
        return one.issuer == signer.subject
    return True
