"""TLS and SASL of the clients that go through Shoal: the protocol, what they trust, and where they log in.

Every other client of the mirror (admin, offset syncs, the worker's topics) stays at the brokers, with the cluster's own
lines. So a line for Shoal is always one of the data client, and overrides an inherited one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from shoal.proxy.cli.doctor.client_security import (
    CA_FILE,
    CERTIFICATE_FILE,
    PROTOCOLS,
    ClientSecurity,
    Login,
    jaas_line,
)
from shoal.proxy.cli.doctor.destinations import Destination
from shoal.proxy.cli.doctor.finding import Case, Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shoal.proxy.cli.doctor.properties import Entry

__all__ = ["check_security"]

MUST, SHOULD, NOTE = Severity.MUST, Severity.SHOULD, Severity.NOTE

_BOOTSTRAP, _PROTOCOL = "bootstrap.servers", "security.protocol"
_MECHANISM, _JAAS = "sasl.mechanism", "sasl.jaas.config"
_TRUST = ("ssl.truststore.location", "ssl.truststore.certificates")
_OWN = ("ssl.keystore.location", "ssl.keystore.certificate.chain")
_VERSIONS = "ssl.enabled.protocols"
_HOST_NAMES = "ssl.endpoint.identification.algorithm"
_SIGN_THE_HOST = ("GSSAPI", "AWS_MSK_IAM")


class _Client(NamedTuple):
    """A client of the mirror at a listener of Shoal."""

    case: Case
    name: str  # of `MirrorForm.templates`
    cluster: str  # "source" or "target": whose brokers it would use without Shoal
    security: ClientSecurity

    def find(self, *keys: str) -> Entry | None:
        return next((entry for key in keys if (entry := self.case.flow.find(self.name, key)) is not None), None)

    def likely(self, *keys: str) -> Entry | None:
        """On Connect the producer inherits from the worker, whose lines are not visible: those of the cluster are."""
        if (entry := self.find(*keys)) is not None or not self.inherits_unseen:
            return entry
        return next((entry for key in keys if (entry := self.case.flow.find(self.cluster, key)) is not None), None)

    @property
    def inherits_unseen(self) -> bool:
        return self.case.flow.form.is_connect and self.name == "producer"

    @property
    def protocol(self) -> str:
        entry = self.likely(_PROTOCOL)
        return "PLAINTEXT" if entry is None else entry.value.strip().upper()

    @property
    def logs_in(self) -> bool:
        """After the protocol is corrected."""
        return self.right_protocol.startswith("SASL_")

    @property
    def right_protocol(self) -> str:
        return self.security.protocol(client_logs_in=self.protocol.startswith("SASL_"))

    def line(self, key: str, value: str) -> tuple[str, str]:
        return self.case.flow.key(self.name, key), value

    def at(self, key: str, entry: Entry | None) -> Entry | str:
        return entry or f"{self.line(key, '')[0]} is not set"

    def is_inherited(self, entry: Entry, *keys: str) -> bool:
        """From the lines of the whole cluster."""
        return entry in [self.case.flow.find(self.cluster, key) for key in keys] and self.name != self.cluster

    def shoal_setting(self, section: str) -> str:
        return f"[cluster.{section}] (shoal mirror: --{self.cluster}-{section}-...)"


def check_security(case: Case) -> Iterator[Finding]:
    for client in _clients(case):
        entry = client.likely(_PROTOCOL)
        if entry is not None and "${" in entry.value:
            yield case.finding(NOTE, entry, f"is not literal: make sure that it is {client.right_protocol}")
            continue
        for rule in _RULES:
            yield from rule(client)


def _clients(case: Case) -> Iterator[_Client]:
    """The data clients; and the others of a cluster whose own line leads to Shoal (as exactly-once mode needs it)."""
    shoal = case.shoal
    for name, cluster, listener in (("consumer", "source", shoal.wrap), ("producer", "target", shoal.unwrap)):
        security = ClientSecurity(listener=listener, cluster=shoal.cluster_of(listener))
        yield _Client(case, name, cluster, security)
        brokers = case.flow.find(cluster, _BOOTSTRAP)
        if brokers is not None and Destination(listener.mode.value) in shoal.destinations(brokers.value).values():
            yield _Client(case, cluster, cluster, security)


def _protocol(client: _Client) -> Iterator[Finding]:
    entry, right, now = client.likely(_PROTOCOL), client.right_protocol, client.protocol
    if now != right:
        at = client.at(_PROTOCOL, entry)
        yield client.case.finding(MUST, at, "; ".join(_why(client, now)), client.line(_PROTOCOL, right))
    elif client.inherits_unseen and client.find(_PROTOCOL) is None and client.security.is_special:
        why = f"the worker's own producer.{_PROTOCOL} is not visible here, and Shoal's listener needs {right}: write it"
        yield client.case.finding(SHOULD, client.at(_PROTOCOL, None), why, client.line(_PROTOCOL, right))


def _why(client: _Client, now: str) -> Iterator[str]:
    security = client.security
    if now not in PROTOCOLS:
        yield f"Kafka knows no such protocol: {', '.join(PROTOCOLS)}"
        return
    if security.tls and not now.endswith("SSL"):
        yield "Shoal's listener has TLS ([listener.tls]), so a client without TLS gets no connection"
    if not security.tls and now.endswith("SSL"):
        yield (
            "Shoal's listener has no TLS (if it has, call shoal check with -c shoal.toml, or with the flags of shoal "
            "mirror). This line is right for the clients that go to the brokers: the data client "
            "needs its own. Or give the listener a certificate ([listener.tls], shoal mirror: --listen-tls-cert)"
        )
    if security.login is Login.NOWHERE and now.startswith("SASL_"):
        yield f"Shoal logs in at the brokers itself, by {client.shoal_setting('sasl')}: its clients must not"
    if security.login is Login.SHOAL and not now.startswith("SASL_"):
        yield f"clients log in at Shoal ([listener.sasl]: {', '.join(security.mechanisms)})"


def _login_is_missing(client: _Client) -> Iterator[Finding]:
    """The brokers ask for a login, but neither this client nor Shoal has one."""
    others = _at_brokers(client)
    if client.security.login is not Login.BROKER or client.logs_in or others is None:
        return
    if others.value.upper().startswith("SASL_"):
        why = (
            f"the brokers ask for a login ({others}), and with this line no login happens: either this client "
            f"logs in, through Shoal, or Shoal does, by {client.shoal_setting('sasl')}"
        )
        line = client.line(_PROTOCOL, client.security.protocol(client_logs_in=True))
        yield client.case.finding(MUST, client.at(_PROTOCOL, client.find(_PROTOCOL)), why, line)


def _tls_to_brokers(client: _Client) -> Iterator[Finding]:
    """At the same address, Shoal and the mirror's other clients use the same protocol."""
    cluster, others = client.security.cluster, _at_brokers(client)
    if cluster is None or not cluster.bootstrap or others is None:
        return
    has_tls, addresses = others.value.upper().endswith("SSL"), ",".join(map(str, cluster.bootstrap))
    if has_tls and cluster.tls is None:
        why = f"these brokers use TLS, and Shoal goes to {addresses} without it: add {client.shoal_setting('tls')}"
        yield client.case.finding(MUST, others, why)
    elif cluster.tls is not None and not has_tls:
        why = f"Shoal goes to {addresses} with TLS, and this line is for clients without: one of them is wrong"
        yield client.case.finding(SHOULD, others, why)


def _at_brokers(client: _Client) -> Entry | None:
    """The protocol of the mirror's clients at the brokers, if Shoal uses the same addresses, as far as known."""
    brokers, cluster = client.case.flow.find(client.cluster, _BOOTSTRAP), client.security.cluster
    if brokers is None:
        return None
    addresses = client.case.shoal.destinations(brokers.value)
    if set(addresses.values()) != {Destination.DIRECT}:
        return None
    if cluster is not None and cluster.bootstrap and addresses.keys().isdisjoint(map(str, cluster.bootstrap)):
        return None
    return client.case.flow.find(client.cluster, _PROTOCOL)


def _trust(client: _Client) -> Iterator[Finding]:
    if not client.security.tls:
        return
    entry, case = client.likely(*_TRUST), client.case
    if entry is None:
        why = (
            "without it the client trusts only the public authorities of Java: give it the CA of Shoal's certificate "
            f"as a PEM file (Kafka 2.7 or later), here {CA_FILE}"
        )
        lines = (client.line("ssl.truststore.type", "PEM"), client.line(_TRUST[0], CA_FILE))
        yield case.finding(SHOULD, client.at(_TRUST[0], None), why, *lines)
        return
    password, kind = client.likely("ssl.truststore.password"), client.likely("ssl.truststore.type")
    is_pem = kind is not None and kind.value.upper() == "PEM"
    if is_pem and password is not None:
        why = (
            "Kafka refuses a password for a PEM truststore, and a line cannot unset it: use a PKCS12 truststore with "
            "this password (keytool -importcert -file shoal-ca.pem -storetype PKCS12)"
        )
        lines = (
            client.line("ssl.truststore.type", "PKCS12"),
            client.line(_TRUST[0], CA_FILE.replace(".pem", ".p12")),
        )
        yield case.finding(MUST, password, why, *lines)
    elif client.is_inherited(entry, *_TRUST):
        why = f"this truststore must also hold the CA of Shoal's certificate: {_import(entry, is_pem=is_pem)}"
        yield case.finding(NOTE, entry, why)


def _import(entry: Entry, *, is_pem: bool) -> str:
    if "strimzi" in entry.value or entry.value.startswith("/tmp/kafka/clusters/"):
        return "add its Secret to tls.trustedCertificates of the cluster in the Strimzi resource"
    if is_pem:
        return "append it to this PEM file"
    return "keytool -importcert -alias shoal -file shoal-ca.pem -keystore FILE"


def _certificate(client: _Client) -> Iterator[Finding]:
    entry, security = client.likely(*_OWN), client.security
    if entry is None:
        if security.needs_certificate:
            why = 'Shoal\'s listener demands a certificate of its clients (client-auth = "required")'
            lines = (client.line("ssl.keystore.type", "PEM"), client.line(_OWN[0], CERTIFICATE_FILE))
            yield client.case.finding(MUST, client.at(_OWN[0], None), why, *lines)
        return
    if security.needs_certificate or client.logs_in:
        return
    cluster = security.cluster
    why = "TLS ends at Shoal: the brokers see Shoal's certificate, never this one. "
    if cluster is not None and cluster.tls is not None and cluster.tls.certificate is not None:
        yield client.case.finding(NOTE, entry, f"{why}Its principal needs the permissions of the mirror")
    else:
        advice = (
            "If they authenticate clients by certificate, give Shoal one whose principal has the mirror's permissions: "
            f"certificate and key of {client.shoal_setting('tls')}"
        )
        yield client.case.finding(SHOULD, entry, f"{why}{advice}")


def _mechanism(client: _Client) -> Iterator[Finding]:
    if not client.logs_in:
        return
    entry, security, case = client.likely(_MECHANISM), client.security, client.case
    mechanism = "GSSAPI" if entry is None else entry.value.strip().upper()
    if client.inherits_unseen and entry is None:
        return
    at = entry or f"{client.line(_MECHANISM, '')[0]} (default GSSAPI)"
    if security.login is Login.BROKER and mechanism in _SIGN_THE_HOST:
        right = security.protocol(client_logs_in=False).removeprefix("SASL_")
        why = (
            f"{mechanism} signs the host name that the client connects to, so it fails through a proxy. Let Shoal log "
            f'in at the brokers: mechanism = "{mechanism}" of {client.shoal_setting("sasl")}. Then this client does '
            "not log in (PLAIN, SCRAM and OAUTHBEARER also work through Shoal)"
        )
        yield case.finding(MUST, at, why, client.line(_PROTOCOL, right))
    elif security.login is Login.SHOAL:
        if mechanism not in security.mechanisms:
            best = security.mechanisms[0]
            why = f"Shoal's listener offers {', '.join(security.mechanisms)} ([listener.sasl])"
            yield case.finding(MUST, at, why, client.line(_MECHANISM, best), client.line(_JAAS, jaas_line(best)))
        else:
            yield from _login(client, mechanism)


def _login(client: _Client, mechanism: str) -> Iterator[Finding]:
    entry = client.likely(_JAAS)
    if entry is None:
        why = "the client logs in at Shoal: it needs a user of Shoal's users file (shoal users add)"
        yield client.case.finding(SHOULD, client.at(_JAAS, None), why, client.line(_JAAS, jaas_line(mechanism)))
    elif client.is_inherited(entry, _JAAS):
        why = "the brokers' credentials go to Shoal here: make sure that its users file has this user and password"
        yield client.case.finding(NOTE, entry, why)


def _tls_versions(client: _Client) -> Iterator[Finding]:
    entry, tls = client.likely(_VERSIONS), client.security.listener.tls
    if entry is None or tls is None or "${" in entry.value:
        return
    accepted = [f"TLSv{version}" for version in ("1.2", "1.3") if version >= tls.min_version]
    enabled = {version.strip().lower() for version in entry.value.split(",")}
    if enabled.isdisjoint(map(str.lower, accepted)):
        why = (
            f"Shoal's listener takes {' and '.join(accepted)} only ([listener.tls] min-version): no handshake succeeds"
        )
        yield client.case.finding(MUST, entry, why, client.line(_VERSIONS, ",".join(accepted)))


def _host_names(client: _Client) -> Iterator[Finding]:
    if not client.security.tls:
        return
    entry, cluster = client.likely(_HOST_NAMES), client.security.cluster
    if entry is not None and entry.value.strip().lower() != "https":
        why = (
            "the client accepts every certificate of its CAs, whatever its name. Shoal's certificate should have the "
            "host name that the mirror uses (advertise)"
        )
        yield client.case.finding(SHOULD, entry, why, client.line(_HOST_NAMES, "https"))
    if cluster is not None and cluster.tls is not None and not cluster.tls.verify_host_name:
        why = "Shoal accepts every certificate of its CA from these brokers, whatever its name: remove verify-host-name"
        yield client.case.finding(NOTE, f"[cluster.tls] of cluster {cluster.name!r}", why)


_RULES: tuple[Callable[[_Client], Iterator[Finding]], ...] = (
    _protocol,
    _login_is_missing,
    _tls_to_brokers,
    _trust,
    _certificate,
    _mechanism,
    _tls_versions,
    _host_names,
)
