"""Settings of TLS -> `ssl.SSLContext`.

`TlsContext` holds the current one; new connections use `context`, and a reload replaces it as a whole. What is read
belongs together: files that change while they are read are read again, so certificate and key are of one generation.
What cannot work is an OperatorError; what some peers refuse is a doubt (`Loaded.doubts`).
"""

from __future__ import annotations

import ssl
import time
from typing import TYPE_CHECKING, NamedTuple

from shoal.proxy.config.problems import OperatorError, Problem
from shoal.proxy.config.reread import identity_of
from shoal.proxy.config.secret import read_file, read_private_file, read_secret
from shoal.proxy.config.security import ClientAuth, ClusterTls, ListenerTls
from shoal.proxy.net.tls.certificates import covers, is_early, time_problem
from shoal.proxy.net.tls.shown import keep_shown_certificates

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from shoal.proxy.config.security import Secret
    from shoal.proxy.config.settings import Settings
    from shoal.proxy.net.tls.certificates import Certificate

__all__ = ["Loaded", "NotYetValid", "TlsContext", "UsedCertificate", "read_all"]

_ATTEMPTS = 5  # to read files that change at the same time
_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}

Generation = tuple[object, ...]
"""Which contents the files have: path without symlinks, inode, time and size of each."""


class UsedCertificate(NamedTuple):
    setting: str  # "tls.certificate", "tls.ca"
    file: Path
    certificate: Certificate


class Loaded(NamedTuple):
    context: ssl.SSLContext
    own: UsedCertificate | None  # the certificate that is shown to the other side
    trusted: tuple[UsedCertificate, ...]  # empty: the system's CAs, or no certificate is asked for
    doubts: tuple[str, ...] = ()  # it works, but not with every peer

    @property
    def certificates(self) -> tuple[UsedCertificate, ...]:
        return self.trusted if self.own is None else (self.own, *self.trusted)


class NotYetValid(OperatorError):
    """A certificate can be used from some time on."""

    def __init__(self, problems: tuple[Problem, ...], since: float = 0.0) -> None:
        super().__init__(problems)
        self.since = since


class TlsContext:
    """The context of one listener (`settings` is a ListenerTls) or of one cluster (ClusterTls).

    `where` names it in errors. `names`: those that a listener's certificate must have. `prepare` is applied to each new
    context. Raises OperatorError.
    """

    def __init__(
        self,
        settings: ListenerTls | ClusterTls,
        where: str,
        *,
        names: Sequence[str] = (),
        clock: Callable[[], float] = time.time,
        prepare: Callable[[ssl.SSLContext], None] | None = None,
    ) -> None:
        self.settings = settings
        self.where = where
        self._names = names
        self._clock = clock
        self._prepare = prepare
        self._files = _files_of(settings)
        self.generation: Generation = ()
        self.refused_until: float | None = None  # the present files are not valid before
        self.loaded = self._load()

    @property
    def context(self) -> ssl.SSLContext:
        return self.loaded.context

    @property
    def server_name(self) -> str | None:
        """For a cluster: what is expected in the brokers' certificates instead of their host."""
        return self.settings.server_name if isinstance(self.settings, ClusterTls) else None

    def current_generation(self) -> Generation:
        """Differs from `generation` when a file has changed."""
        return tuple(map(identity_of, self._files))

    def reload(self) -> None:
        """Read all files again. Raises OperatorError: then the former context stays."""
        self.loaded = self._load()

    def unverified(self) -> ssl.SSLContext:
        """For a second look at a broker whose certificate is refused: it verifies nothing, so nothing is sent with it.

        Raises OSError (ssl.SSLError too).
        """
        assert isinstance(self.settings, ClusterTls)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _tune(context, self.settings, self.where)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context

    def _load(self) -> Loaded:
        for attempt in range(_ATTEMPTS):
            generation = self.current_generation()
            self.refused_until = None
            try:
                loaded = self._read()
            except OperatorError as error:
                if generation == self.current_generation() or attempt == _ATTEMPTS - 1:
                    self.generation = generation  # the same error is not found again
                    self.refused_until = error.since if isinstance(error, NotYetValid) else None
                    raise
                continue
            if generation == self.current_generation():
                if self._prepare is not None:
                    self._prepare(loaded.context)
                self.generation = generation
                return loaded
        raise OperatorError.of(f"{self.where}: tls", "its files change again and again while they are read")

    def _read(self) -> Loaded:
        if isinstance(self.settings, ListenerTls):
            return _server(self.settings, self.where, self._names, self._clock())
        return _client(self.settings, self.where, self._clock())


def read_all(settings: Settings) -> list[TlsContext]:
    """Read all files of TLS, as a start does. Raises OperatorError with the problems of all clusters and listeners."""
    found: list[TlsContext] = []
    problems: list[Problem] = []
    sides: list[tuple[str, ListenerTls | ClusterTls | None, tuple[str, ...]]] = [
        *((f"cluster {cluster.name!r}", cluster.tls, ()) for cluster in settings.clusters),
        *((f"listener {listener.name!r}", listener.tls, listener.client_names) for listener in settings.listeners),
    ]
    for where, tls, names in sides:
        if tls is not None:
            try:
                found.append(TlsContext(tls, where, names=names))
            except OperatorError as error:
                problems += error.problems
    if problems:
        raise OperatorError(tuple(problems))
    return found


def _files_of(settings: ListenerTls | ClusterTls) -> tuple[Path, ...]:
    ca = settings.client_ca if isinstance(settings, ListenerTls) else settings.ca
    password = settings.key_password.file if settings.key_password is not None else None
    return tuple(path for path in (settings.certificate, settings.key, password, ca) if path is not None)


def _server(settings: ListenerTls, where: str, names: Sequence[str], now: float) -> Loaded:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _tune(context, settings, where)
    own, doubts = _own(
        context, settings.certificate, settings.key, settings.key_password, f"{where}: tls", "server", now
    )
    if missing := [name for name in names if not covers(own.certificate, name)]:
        doubts += (
            f"{own.setting}: {own.file}: {own.certificate} is not for {' and '.join(missing)}, where clients connect: "
            "they refuse it, unless they verify no names. Add the name to the certificate, or correct advertise and "
            "broker-host",
        )
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    trusted: tuple[UsedCertificate, ...] = ()
    if settings.client_ca is not None:
        trusted = _trust(context, settings.client_ca, f"{where}: tls.client-ca", now)
    if settings.client_auth is not ClientAuth.NONE:
        keep_shown_certificates(context)
    return Loaded(context, own, trusted, doubts)


def _client(settings: ClusterTls, where: str, now: float) -> Loaded:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _tune(context, settings, where)
    context.check_hostname = settings.verify_host_name
    own: UsedCertificate | None = None
    doubts: tuple[str, ...] = ()
    if settings.certificate is not None:
        own, doubts = _own(
            context, settings.certificate, settings.key, settings.key_password, f"{where}: tls", "client", now
        )
    trusted: tuple[UsedCertificate, ...] = ()
    if settings.ca is not None:
        trusted = _trust(context, settings.ca, f"{where}: tls.ca", now)
    else:
        _trust_system(context, f"{where}: tls.ca")
    return Loaded(context, own, trusted, doubts)


def _tune(context: ssl.SSLContext, settings: ListenerTls | ClusterTls, where: str) -> None:
    context.minimum_version = _VERSIONS[settings.min_version]
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    if settings.ciphers is not None:
        try:
            context.set_ciphers(settings.ciphers)
        except ssl.SSLError:
            raise OperatorError.of(
                f"{where}: tls.ciphers",
                f'OpenSSL knows no cipher of TLS 1.2 in "{settings.ciphers}": write names as `openssl ciphers -tls1_2` '
                "lists them, for example ECDHE+AESGCM:ECDHE+CHACHA20. Those of TLS 1.3 (TLS_...) are always enabled",
            ) from None


def _own(
    context: ssl.SSLContext,
    certificate: Path,
    key: Path | None,
    key_password: Secret | None,
    where: str,
    purpose: str,
    now: float,
) -> tuple[UsedCertificate, tuple[str, ...]]:
    """Check certificate and key, then have OpenSSL load them. -> with doubts about the chain."""
    from shoal.proxy.net.tls.pem import BadPem, chain_doubt, check_pair, private_key, read_certificates

    key_setting = "certificate" if key is None else "key"
    try:
        chain = read_certificates(read_file(certificate, f"{where}.certificate"))
    except BadPem as problem:
        raise OperatorError.of(f"{where}.certificate", f"{certificate} {problem}") from None
    password = None if key_password is None else read_secret(key_password, f"{where}.key-password")
    try:
        parsed = private_key(read_private_file(key or certificate, f"{where}.{key_setting}"), password)
    except BadPem as problem:
        raise OperatorError.of(f"{where}.{key_setting}", f"{key or certificate} {problem}") from None
    try:
        check_pair(chain, parsed, purpose)
    except BadPem as problem:
        files = certificate if key is None else f"{certificate} and {key}"
        raise OperatorError.of(f"{where}.{key_setting}", f"{files}: {problem}") from None
    if out_of_date := time_problem(chain[0], now):
        raise _out_of_date(f"{where}.certificate", f"{certificate}: {out_of_date}", chain[:1], now)
    try:
        context.load_cert_chain(certificate, key, lambda: password or "")  # without a function, OpenSSL asks a terminal
    except ssl.SSLError as error:
        if (why := _REFUSALS.get(getattr(error, "reason", None) or "")) is not None:
            what = f"{certificate}: OpenSSL refuses {chain[0].subject}: {why}"
            raise OperatorError.of(f"{where}.certificate", what) from None
        raise OperatorError.of(f"{where}.{key_setting}", _unreadable(certificate, key, error)) from None
    except OSError as error:  # it was there a moment ago
        files = certificate if key is None else f"{certificate} or {key}"
        raise OperatorError.of(f"{where}.certificate", f"{files} cannot be read: {error.strerror}") from None
    doubt = chain_doubt(chain)
    doubts = () if doubt is None else (f"{where}.certificate: {certificate}: {doubt}",)
    return UsedCertificate(f"{where}.certificate", certificate, chain[0]), doubts


def _out_of_date(setting: str, what: str, found: Sequence[Certificate], now: float) -> OperatorError:
    early = [certificate.not_before for certificate in found if is_early(certificate, now)]
    return NotYetValid((Problem(setting, what),), min(early)) if early else OperatorError.of(setting, what)


_REFUSALS = {
    "EE_KEY_TOO_SMALL": "its key is too short: make one with RSA of at least 2048 bits, or ECDSA P-256",
    "CA_KEY_TOO_SMALL": "the key of a CA in its chain is too short: RSA needs at least 2048 bits",
    "CA_MD_TOO_WEAK": "a signature in its chain is too weak (MD5 or SHA-1): sign with SHA-256",
    "KEY_VALUES_MISMATCH": "the key does not fit: they are not a pair",
}


def _unreadable(certificate: Path, key: Path | None, error: ssl.SSLError) -> str:
    """Spaces before a line, an old way to encrypt a key: `cryptography` reads it, OpenSSL does not, or says no more."""
    return (
        f"OpenSSL cannot load {certificate}{'' if key is None else f' with {key}'} "
        f"({getattr(error, 'reason', None) or 'it does not say why'}): write them again, with "
        f"openssl x509 -in {certificate} and openssl pkcs8 -topk8 -in {key or certificate}"
    )


def _trust(context: ssl.SSLContext, file: Path, setting: str, now: float) -> tuple[UsedCertificate, ...]:
    """An intermediate CA, or a self-signed certificate of a broker, may also be trusted, as Java does."""
    from shoal.proxy.net.tls.pem import BadPem, read_certificates

    try:
        found = read_certificates(read_file(file, setting))
    except BadPem as problem:
        raise OperatorError.of(setting, f"{file} {problem}") from None
    problems = [time_problem(certificate, now) for certificate in found]
    if all(problems):
        raise _out_of_date(setting, f"{file}: {problems[0]}", found, now)
    try:
        context.load_verify_locations(cadata=b"".join(certificate.der for certificate in found))
    except ssl.SSLError as error:
        raise OperatorError.of(setting, f"{file}: OpenSSL cannot load it: {error}") from None
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    return tuple(UsedCertificate(setting, file, certificate) for certificate in found)


def _trust_system(context: ssl.SSLContext, setting: str) -> None:
    paths = ssl.get_default_verify_paths()
    if not (paths.cafile or paths.capath):
        raise OperatorError.of(
            setting, "is missing, and this system has no CA certificates: install ca-certificates, or set ca"
        )
    context.load_default_certs()
