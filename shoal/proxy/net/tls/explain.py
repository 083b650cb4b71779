"""Words for a TLS handshake that failed: file and subject, the cause, and the way out.

    ssl.SSLError: its reason (an OpenSSL name), or its verify_code  --+
    the first bytes of the peer (it may not speak TLS)               --+--> one sentence
    the peer's certificate, ours, and the files of the settings      --+

An alert is the peer's reason to refuse us; everything else is our reason to refuse the peer.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, NamedTuple

from shoal.protocol.wire.framing import Foreign, foreign_protocol
from shoal.proxy.config.security import ClientAuth, ClusterTls, ListenerTls
from shoal.proxy.net.tls.certificates import date

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shoal.proxy.net.tls.certificates import Certificate
    from shoal.proxy.net.tls.contexts import TlsContext, UsedCertificate

__all__ = ["FIRST_BYTES", "Failure", "explain_broker", "explain_client", "plaintext_broker", "web_server"]

FIRST_BYTES = 512
"""The peer's first bytes: enough for the hello of a client."""

_MOST_NAMES = 6  # in one sentence

# X509_V_ERR_* (openssl/x509_vfy.h)
_SIGNATURE, _NOT_YET_VALID, _EXPIRED, _SELF_SIGNED = 7, 9, 10, 18
_UNKNOWN_ISSUER = frozenset({2, _SIGNATURE, _SELF_SIGNED, 19, 20, 21, 27, 30})
_WRONG_NAME = frozenset({62, 64})
_WRONG_PURPOSE = 26
_WEAK = {66: "its key is too short", 67: "the key of its CA is too short", 68: "a signature of its CA is too weak"}

# Alerts about a certificate that the peer was shown. OpenSSL and Java choose differently for the same problem.
_REFUSED = {
    "TLSV1_ALERT_UNKNOWN_CA": "unknown CA",
    "SSLV3_ALERT_BAD_CERTIFICATE": "bad certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "certificate unknown",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "certificate expired",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "certificate revoked",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "unsupported certificate",
    "TLSV1_ALERT_DECRYPT_ERROR": "decrypt error",
    "TLSV1_ALERT_ACCESS_DENIED": "access denied",
    "TLSV1_ALERT_INSUFFICIENT_SECURITY": "insufficient security",
}
_REQUIRED = "TLSV13_ALERT_CERTIFICATE_REQUIRED"
_VERSION = frozenset(
    {
        "TLSV1_ALERT_PROTOCOL_VERSION",
        "UNSUPPORTED_PROTOCOL",
        "UNKNOWN_PROTOCOL",
        "VERSION_TOO_LOW",
        "INAPPROPRIATE_FALLBACK",
    }
)
_CIPHERS = frozenset(
    {
        "NO_SHARED_CIPHER",
        "NO_SUITABLE_KEY_SHARE",
        "NO_SUITABLE_SIGNATURE_ALGORITHM",
        "NO_SUITABLE_GROUPS",
        "NO_SHARED_GROUPS",
        "WRONG_CIPHER_RETURNED",
        "DH_KEY_TOO_SMALL",
        "BAD_ECPOINT",
    }
)
_HANDSHAKE_FAILURE = "SSLV3_ALERT_HANDSHAKE_FAILURE"
_UNKNOWN_NAME = "TLSV1_UNRECOGNIZED_NAME"


class Failure(NamedTuple):
    error: Exception
    received: bytes = b""  # the peer's first bytes
    shown: Certificate | None = None  # the peer's, if it is known
    name: str | None = None  # that a broker's certificate must have

    @property
    def reason(self) -> str:
        return getattr(self.error, "reason", None) or ""

    @property
    def code(self) -> int:
        return getattr(self.error, "verify_code", 0) if isinstance(self.error, ssl.SSLCertVerificationError) else 0

    @property
    def is_end(self) -> bool:
        """The peer closed or reset the connection."""
        return isinstance(self.error, (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError, EOFError))


# -- brokers -----------------------------------------------------------------------------------------------------------


def explain_broker(failure: Failure, tls: TlsContext, now: float) -> str:
    settings = tls.settings
    assert isinstance(settings, ClusterTls)
    reason = failure.reason
    if failure.code:
        return _bad_broker(failure, tls, now)
    if reason in _REFUSED or reason == _REQUIRED:
        return _refused_by_broker(_REFUSED.get(reason, "certificate required"), tls)
    if reason in _VERSION:
        return (
            f"no common version of TLS: Shoal wants at least {settings.min_version} (tls.min-version); see the "
            "broker's ssl.enabled.protocols"
        )
    if reason == _HANDSHAKE_FAILURE:
        wants = "" if tls.loaded.own else ", or it wants a client certificate (set tls.certificate)"
        return f"the broker refuses the handshake: no common cipher (tls.ciphers, ssl.cipher.suites){wants}"
    if reason in _CIPHERS:
        return f"no common cipher ({reason}): compare tls.ciphers with the broker's ssl.cipher.suites"
    if reason == _UNKNOWN_NAME:
        return f"the broker, or a proxy in front of it, knows no name {failure.name!r}: set tls.server-name"
    if (words := _FOREIGN_BROKERS.get(foreign_protocol(failure.received))) is not None:
        return words
    if failure.is_end and not failure.received:
        return (
            "the broker closed the connection at the TLS hello: its port may be that of a plaintext listener: remove "
            "the cluster's tls, or use the port of an SSL listener"
        )
    if failure.is_end:
        wants = "" if tls.loaded.own else ": it may want a client certificate (set tls.certificate)"
        return f"the broker closed the connection in the middle of the TLS handshake{wants}"
    if failure.received and failure.received[0] not in _TLS_RECORDS:
        return f"the answer to the TLS hello is not TLS (first bytes {failure.received[:8].hex(' ')})"
    return f"the TLS handshake failed: {_text(failure.error)}"


_TLS_RECORDS = frozenset({0x14, 0x15, 0x16, 0x17})
_FOREIGN_BROKERS: Mapping[Foreign | None, str] = {
    Foreign.HTTP_ANSWER: "the address is that of a web server without TLS, not of a Kafka broker",
    Foreign.HTTP: "the address is not that of a Kafka broker: it speaks HTTP",
    Foreign.SSH: "the address is that of an SSH server, not of a Kafka broker",
}


def plaintext_broker() -> str:
    """A second look has shown it."""
    return (
        "the broker does not use TLS: this is the port of a plaintext listener: remove the cluster's tls, or use the "
        "port of an SSL listener"
    )


def web_server() -> str:
    """A second look has shown it."""
    return _FOREIGN_BROKERS[Foreign.HTTP_ANSWER]


def _bad_broker(failure: Failure, tls: TlsContext, now: float) -> str:
    shown = failure.shown
    its = f"its certificate {shown.subject}" if shown is not None else "its certificate"
    if failure.code in _WRONG_NAME:
        names = f"is for {_listed(shown.names)}, not for" if shown is not None and shown.names else "is not for"
        return (
            f"{its} {names} {failure.name}: use a name of the certificate in bootstrap and in the broker's "
            "advertised.listeners; or set tls.server-name to such a name, or tls.verify-host-name = false"
        )
    return f"{its} {_fault(failure, tls, now, _OF_BROKERS)}"


def _refused_by_broker(alert: str, tls: TlsContext) -> str:
    own = tls.loaded.own
    if own is None:
        return (
            f"the broker wants a certificate of Shoal ({alert}; its ssl.client.auth is required): set tls.certificate "
            "and tls.key"
        )
    return (
        f"the broker refuses Shoal's certificate {own.certificate.subject} from {own.file} ({alert}): its "
        f"ssl.truststore must have the CA {own.certificate.issuer}"
    )


# -- clients -----------------------------------------------------------------------------------------------------------


def explain_client(failure: Failure, tls: TlsContext, now: float) -> str | None:
    """None: nothing to log, as for a health check that connects and leaves."""
    settings = tls.settings
    assert isinstance(settings, ListenerTls)
    received, reason = failure.received, failure.reason
    if not received:
        return None
    if received[0] not in _TLS_RECORDS and (words := _not_tls(received)) is not None:
        return words
    if failure.code:
        return _bad_client(failure, tls, now)
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return (
            f'the client has no certificate, and client-auth is "{settings.client_auth}": give it one of a CA in '
            f'{settings.client_ca} (ssl.keystore.location), or set client-auth = "{ClientAuth.OPTIONAL}"'
        )
    if reason in _REFUSED:
        return _refused_by_client(reason, tls)
    if reason in _VERSION:
        return (
            f"the client speaks {_versions(received)}, and this listener at least TLS {settings.min_version} "
            "(tls.min-version): upgrade the client, or see its ssl.enabled.protocols"
        )
    if reason in _CIPHERS or reason == _HANDSHAKE_FAILURE:
        return (
            f"no common cipher ({reason}): compare tls.ciphers ({settings.ciphers or 'the default'}) with the client's "
            "ssl.cipher.suites"
        )
    if reason == "CALLBACK_FAILED":
        return "the client asks for a name that is not ASCII (SNI): correct its bootstrap.servers"
    if failure.is_end:
        own = tls.loaded.own
        subject = own.certificate.subject if own is not None else "of Shoal"
        return (
            "the client closed the connection in the middle of the TLS handshake: it may not trust the certificate "
            f"{subject}"
        )
    return f"the TLS handshake failed: {_text(failure.error)}"


def _not_tls(received: bytes) -> str | None:
    foreign = foreign_protocol(received)
    if (words := _FOREIGN_CLIENTS.get(foreign)) is not None:
        return words
    if received[:1] == b"\0" and len(received) >= _KAFKA_HEADER:
        return (
            f"the client{_client_id(received)} speaks Kafka without TLS, and this port needs TLS: set its "
            "security.protocol to SSL (with a login: SASL_SSL)"
        )
    if received[:1] == b"\x80":
        return "the client sends an SSL 2 hello: upgrade it"
    return f"the client does not speak TLS, and this port needs it (first bytes {received[:8].hex(' ')})"


_FOREIGN_CLIENTS: Mapping[Foreign | None, str] = {
    Foreign.HTTP: "the client speaks HTTP without TLS: this is a Kafka port with TLS",
    Foreign.HTTP_ANSWER: "the client speaks HTTP without TLS: this is a Kafka port with TLS",
    Foreign.SSH: "the client speaks SSH: this is a Kafka port with TLS",
    Foreign.PROXY: (
        "a PROXY protocol header from an address that is not in proxy-protocol: add the load balancer's network there, "
        "or turn the header off"
    ),
}
_KAFKA_HEADER = 8  # size, API key, version
_CLIENT_ID_AT = 12  # behind the correlation id


def _client_id(request: bytes) -> str:
    """From the header of a request."""
    size = int.from_bytes(request[_CLIENT_ID_AT : _CLIENT_ID_AT + 2])
    client_id = request[_CLIENT_ID_AT + 2 : _CLIENT_ID_AT + 2 + size]
    if not size or size > 250 or len(client_id) < size:
        return ""
    return f" {client_id.decode(errors='replace')!r}"


def _bad_client(failure: Failure, tls: TlsContext, now: float) -> str:
    shown = failure.shown
    its = f"the client's certificate {shown.subject}" if shown is not None else "the client's certificate"
    return f"{its} {_fault(failure, tls, now, _OF_CLIENTS)}"


def _refused_by_client(reason: str, tls: TlsContext) -> str:
    own = tls.loaded.own
    assert own is not None
    subject, issuer, names = own.certificate.subject, own.certificate.issuer, own.certificate.names
    trust = f"its ssl.truststore needs the CA {issuer}"
    name = f"it must connect to a name of the certificate: {_listed(names)}"
    causes = {
        "TLSV1_ALERT_UNKNOWN_CA": trust,
        "SSLV3_ALERT_BAD_CERTIFICATE": name,  # OpenSSL
        "SSLV3_ALERT_CERTIFICATE_UNKNOWN": f"{trust}, and {name}",  # Java has one alert for both
        "SSLV3_ALERT_CERTIFICATE_EXPIRED": f"valid until {date(own.certificate.not_after)}",
    }
    why = causes.get(reason, f"{trust}, and {name}")
    return f"the client refuses the certificate {subject} from {own.file} ({_REFUSED[reason]}): {why}"


# -- both --------------------------------------------------------------------------------------------------------------


class _Side(NamedTuple):
    ca: str  # the setting
    renew: str
    wait: str
    purpose: str


_OF_BROKERS = _Side(
    "tls.ca",
    ": renew it at the broker",
    "use another one at the broker",
    "TLS servers: its extended key usage needs serverAuth",
)
_OF_CLIENTS = _Side(
    "tls.client-ca",
    ": renew it (ssl.keystore.location of the client)",
    "give the client another one (ssl.keystore.location)",
    "TLS clients: its extended key usage needs clientAuth",
)


def _fault(failure: Failure, tls: TlsContext, now: float, side: _Side) -> str:
    """What is wrong with a certificate other than its names."""
    shown = failure.shown
    if failure.code in _UNKNOWN_ISSUER:
        return _unknown_issuer(shown, tls, side.ca)
    if failure.code == _EXPIRED:
        return _expired(shown, now) + side.renew
    if failure.code == _NOT_YET_VALID:
        return _not_yet_valid(shown, now, side)
    if failure.code == _WRONG_PURPOSE:
        return f"is not for {side.purpose}"
    return f"is refused: {_WEAK.get(failure.code) or _text(failure.error)}"


def _unknown_issuer(shown: Certificate | None, tls: TlsContext, setting: str) -> str:
    trusted = tls.loaded.trusted
    place = f"{trusted[0].file} ({setting}: {_subjects(trusted)})" if trusted else f"the system's CAs (set {setting})"
    if shown is None:
        return f"is of no CA in {place}"
    if shown.subject == shown.issuer:
        return f"is self-signed, and not in {place}: add it there"
    if any(used.certificate.subject == shown.issuer for used in trusted):
        return (
            f"is signed by another CA with the same name as that in {place}: the file is probably of an older or newer "
            "one"
        )
    return f"is signed by {shown.issuer}, which is not in {place}: add its CA there"


def _expired(shown: Certificate | None, now: float) -> str:
    if shown is not None and shown.not_after >= now:
        return "is valid, but a CA certificate above it has expired"
    return "has expired" if shown is None else f"expired on {date(shown.not_after)}"


def _not_yet_valid(shown: Certificate | None, now: float, side: _Side) -> str:
    if shown is not None and shown.not_before <= now:
        return "is valid, but a CA certificate above it is not valid yet: correct this machine's clock, or wait"
    when = "yet" if shown is None else f"before {date(shown.not_before)}"
    return f"is not valid {when}: correct this machine's clock, or {side.wait}"


def _subjects(trusted: tuple[UsedCertificate, ...]) -> str:
    return _listed(tuple(used.certificate.subject for used in trusted))


def _listed(names: tuple[str, ...]) -> str:
    more = f", and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _text(error: Exception) -> str:
    """OpenSSL's words, without the place in its source."""
    reason = getattr(error, "reason", None)
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if reason:
        return str(reason).replace("_", " ").lower()
    return str(getattr(error, "strerror", None) or error)


_VERSION_NAMES = {0x0300: "SSL 3", 0x0301: "TLS 1.0", 0x0302: "TLS 1.1", 0x0303: "TLS 1.2", 0x0304: "TLS 1.3"}
_HELLO_VERSION_AT = 9  # record header (5), type (1), length (3)


def _versions(received: bytes) -> str:
    """The highest version of a client's hello. A client that knows TLS 1.3 is not refused for its version alone."""
    version = int.from_bytes(received[_HELLO_VERSION_AT : _HELLO_VERSION_AT + 2])
    return f"at most {_VERSION_NAMES[version]}" if version in _VERSION_NAMES else "another version of TLS"
