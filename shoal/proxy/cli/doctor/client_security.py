"""What a client must do at a listener of Shoal: TLS or not, and where it logs in.

TLS ends at Shoal, on both sides. Three settings say who logs in:

    [listener.sasl]   the client logs in at Shoal
    [cluster.sasl]    Shoal logs in at the brokers, the client nowhere
    neither           the client logs in at the brokers, through Shoal, if they ask for it
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from shoal.proxy.config.security import ClientAuth

if TYPE_CHECKING:
    from shoal.proxy.config.settings import ClusterSettings, ListenerSettings

__all__ = [
    "CA_FILE",
    "CERTIFICATE_FILE",
    "PROTOCOLS",
    "SECURITY_KEYS",
    "ClientSecurity",
    "Login",
    "Needed",
    "jaas_line",
    "needed_security",
]

# Examples, for lines that name files of the mirror.
CA_FILE = "/etc/kafka/shoal-ca.pem"
CERTIFICATE_FILE = "/etc/kafka/mirror.pem"
_PASSWORD = "${file:/etc/kafka/shoal.properties:password}"  # by Kafka's FileConfigProvider
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SECURITY_KEYS = (
    "security.protocol", "sasl.mechanism", "sasl.jaas.config", "ssl.cipher.suites", "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm", "ssl.engine.factory.class", "ssl.key.password",
    "ssl.keymanager.algorithm", "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.keystore.location",
    "ssl.keystore.password", "ssl.keystore.type", "ssl.protocol", "ssl.provider",
    "ssl.secure.random.implementation", "ssl.trustmanager.algorithm", "ssl.truststore.certificates",
    "ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type",
)  # fmt: skip
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
_BEST_FIRST = ("SCRAM-SHA-512", "SCRAM-SHA-256", "OAUTHBEARER", "PLAIN")


class Login(StrEnum):
    SHOAL = "at Shoal"
    NOWHERE = "nowhere"
    BROKER = "at the broker"


class Needed(NamedTuple):
    """A line that the mirror needs because the client's default does not suffice."""

    client: str
    key: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    """At one listener. `cluster` None: unknown."""

    listener: ListenerSettings
    cluster: ClusterSettings | None

    @property
    def tls(self) -> bool:
        return self.listener.tls is not None

    @property
    def needs_certificate(self) -> bool:
        return self.listener.tls is not None and self.listener.tls.client_auth is ClientAuth.REQUIRED

    @property
    def login(self) -> Login:
        if self.listener.sasl is not None:
            return Login.SHOAL
        return Login.NOWHERE if self.cluster is not None and self.cluster.sasl is not None else Login.BROKER

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """What Shoal offers for a login at Shoal, the best first."""
        offered = self.listener.sasl.mechanisms if self.listener.sasl is not None else ()
        return tuple(sorted(offered, key=_BEST_FIRST.index))

    def protocol(self, *, client_logs_in: bool) -> str:
        """`client_logs_in`: at the brokers, if that is where clients log in."""
        logs_in = client_logs_in if self.login is Login.BROKER else self.login is Login.SHOAL
        return f"SASL_{'SSL' if self.tls else 'PLAINTEXT'}" if logs_in else "SSL" if self.tls else "PLAINTEXT"

    @property
    def is_special(self) -> bool:
        """The client may need another protocol here than at the brokers."""
        cluster = self.cluster
        return self.tls or self.login is not Login.BROKER or (cluster is not None and cluster.tls is not None)


def jaas_line(mechanism: str) -> str:
    options = "" if mechanism == "OAUTHBEARER" else f' username="mirror" password="{_PASSWORD}"'
    return f"{_MODULES[mechanism]} required{options};"


def needed_security(client: str, security: ClientSecurity) -> tuple[Needed, ...]:
    """The lines for a client that logs in nowhere but, if it must, at Shoal."""
    if not security.is_special:
        return ()
    lines = {"security.protocol": security.protocol(client_logs_in=False)}
    if security.tls:
        lines |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": CA_FILE}
    if security.needs_certificate:
        lines |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": CERTIFICATE_FILE}
    if security.mechanisms:
        mechanism = security.mechanisms[0]
        lines |= {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas_line(mechanism)}
    return tuple(Needed(client, key, value) for key, value in lines.items())
