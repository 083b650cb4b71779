"""How a client connects, as settings of each kind of client:

alice = ClientSecurity(ca=authority.certificate, mechanism="SCRAM-SHA-512", user="alice", password="right")
Producer(client_config(cluster.sasl_ssl_bootstrap) | alice.librdkafka())
KafkaProducer(bootstrap_servers=cluster.sasl_ssl_bootstrap, **alice.kafka_python())
run_tool("TopicCommand", "--command-config", str(alice.write(tmp_path / "client.properties")), ...)
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shoal.scenarios.kafka.security.kdc import SERVICE, kerberos_login

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.scenarios.kafka.security.certificates import Identity
    from shoal.scenarios.kafka.security.kdc import Kdc
    from shoal.scenarios.kafka.security.tokens import TokenIssuer

__all__ = ["ANYBODY", "ClientSecurity"]

_COMMON = "org.apache.kafka.common.security"
_OAUTH_LOGIN = f"{_COMMON}.oauthbearer.OAuthBearerLoginCallbackHandler"
_MODULES = {
    "PLAIN": f"{_COMMON}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_COMMON}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_COMMON}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{_COMMON}.oauthbearer.OAuthBearerLoginModule",
}
SCOPE = "mirror"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    ca: Path | None = None
    """Whom the client trusts; None: no TLS."""
    identity: Identity | None = None
    """The client's own certificate."""
    mechanism: str | None = None
    """None: no SASL."""
    user: str = ""
    """With OAUTHBEARER: the client id at the token endpoint."""
    password: str = ""
    """With OAUTHBEARER: the client secret."""
    tokens: TokenIssuer | None = None
    """With OAUTHBEARER."""
    kdc: Kdc | None = None
    """With GSSAPI: `user` is the principal."""

    @property
    def protocol(self) -> str:
        """The value of `security.protocol`."""
        if self.mechanism is None:
            return "PLAINTEXT" if self.ca is None else "SSL"
        return "SASL_PLAINTEXT" if self.ca is None else "SASL_SSL"

    @property
    def jvm_options(self) -> tuple[str, ...]:
        """JVM options of a Java client."""
        tokens = () if self.tokens is None else (self.tokens.allowed_urls,)
        return tokens if self.kdc is None else (*tokens, *self.kdc.jvm_options)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of a client that is not Java's."""
        return {} if self.kdc is None else self.kdc.environment(self.user)

    def librdkafka(self) -> dict[str, str | int | float | bool]:
        """Settings of confluent_kafka, whose wheels lack GSSAPI; `kcat` has the same as arguments."""
        if self == ANYBODY:
            return {}
        settings: dict[str, str | int | float | bool] = {"security.protocol": self.protocol}
        if self.ca is not None:
            settings["ssl.ca.location"] = str(self.ca)
        if self.identity is not None:
            settings["ssl.certificate.location"] = str(self.identity.certificate)
            settings["ssl.key.location"] = str(self.identity.key)
            settings |= {} if self.identity.password is None else {"ssl.key.password": self.identity.password}
        if self.mechanism is None:
            return settings
        return {**settings, "sasl.mechanism": self.mechanism, **self._librdkafka_credentials()}

    def _librdkafka_credentials(self) -> dict[str, str]:
        if self.kdc is not None:
            return {
                "sasl.kerberos.service.name": SERVICE.split("/")[0],
                "sasl.kerberos.principal": self.kdc.principal(self.user),
                "sasl.kerberos.keytab": str(self.kdc.keytab(self.user)),
            }
        if self.tokens is not None:
            return {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": self.tokens.token_endpoint,
                "sasl.oauthbearer.client.id": self.user,
                "sasl.oauthbearer.client.secret": self.password,
                "sasl.oauthbearer.scope": SCOPE,
            }
        return {"sasl.username": self.user, "sasl.password": self.password}

    def ssl_context(self) -> ssl.SSLContext | None:
        """For Python's own sockets; None: no TLS."""
        if self.ca is None:
            return None
        context = ssl.create_default_context(cafile=self.ca)
        if self.identity is not None:
            context.load_cert_chain(self.identity.bundle)
        return context

    def kcat(self) -> list[str]:
        return [word for key, value in self.librdkafka().items() for word in ("-X", f"{key}={value}")]

    def kafka_python(self) -> dict[str, Any]:
        settings: dict[str, Any] = {"security_protocol": self.protocol}
        if self.ca is not None:
            settings["ssl_cafile"] = str(self.ca)
        if self.identity is not None:
            settings["ssl_certfile"] = str(self.identity.certificate)
            settings["ssl_keyfile"] = str(self.identity.key)
            settings["ssl_password"] = self.identity.password
        if self.mechanism is None:
            return settings
        settings["sasl_mechanism"] = self.mechanism
        if self.tokens is not None:
            return {**settings, "sasl_oauth_token_provider": _token_provider(self.tokens, self.user)}
        if self.kdc is not None:
            return {**settings, "sasl_kerberos_service_name": SERVICE.split("/")[0]}
        return {**settings, "sasl_plain_username": self.user, "sasl_plain_password": self.password}

    def java(self, prefix: str = "") -> dict[str, str]:
        """Properties of a Java client; of MirrorMaker 2 with a `prefix` such as "A."."""
        properties = {"security.protocol": self.protocol}
        if self.ca is not None:
            properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca)}
        if self.identity is not None:
            properties |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.identity.bundle)}
        if self.mechanism is not None:
            properties |= {"sasl.mechanism": self.mechanism, "sasl.jaas.config": self._jaas(self.mechanism)}
        if self.tokens is not None:
            properties["sasl.login.callback.handler.class"] = _OAUTH_LOGIN
            properties["sasl.oauthbearer.token.endpoint.url"] = self.tokens.token_endpoint
        if self.kdc is not None:
            properties["sasl.kerberos.service.name"] = SERVICE.split("/")[0]
        return {f"{prefix}{key}": value for key, value in properties.items()}

    def write(self, path: Path) -> Path:
        """A properties file for Kafka's command line tools."""
        path.write_text("".join(f"{key}={value}\n" for key, value in self.java().items()))
        return path

    def _jaas(self, mechanism: str) -> str:
        if self.kdc is not None:
            return kerberos_login(self.kdc, self.user)
        names = ("username", "password") if self.tokens is None else ("clientId", "clientSecret")
        options = dict(zip(names, (self.user, self.password), strict=True))
        options |= {} if self.tokens is None else {"scope": SCOPE}
        return (
            " ".join([f"{_MODULES[mechanism]} required", *(f'{name}="{value}"' for name, value in options.items())])
            + ";"
        )


ANYBODY = ClientSecurity()
"""Neither TLS nor SASL."""


@dataclass(frozen=True, slots=True)
class _TokenProvider:
    """What kafka-python's SASL asks for tokens."""

    tokens: TokenIssuer
    user: str

    def token(self) -> str:
        return self.tokens.token(self.user)

    def extensions(self) -> dict[str, str]:
        return {}


def _token_provider(tokens: TokenIssuer, user: str) -> _TokenProvider:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    AbstractTokenProvider.register(_TokenProvider)  # kafka-python refuses any other class
    return _TokenProvider(tokens, user)
