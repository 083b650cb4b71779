"""The secured listeners of a broker: SASL (without TLS), SSL and SASL_SSL, and the properties behind them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from shoal.scenarios.kafka.ports import LOOPBACK
from shoal.scenarios.kafka.security.kdc import HOST, SERVICE, kerberos_login

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from shoal.scenarios.kafka.security.certificates import Authority, Identity
    from shoal.scenarios.kafka.security.kdc import Kdc
    from shoal.scenarios.kafka.security.tokens import TokenIssuer

__all__ = ["SCRAM_MECHANISMS", "SECURITY_PROTOCOLS", "BrokerSecurity", "BrokerTls"]

SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
SECURITY_PROTOCOLS: Mapping[str, str] = {"SASL": "SASL_PLAINTEXT", "SSL": "SSL", "SASL_SSL": "SASL_SSL"}
"""By name of the listener."""
_COMMON = "org.apache.kafka.common.security"
_PLAIN = f"{_COMMON}.plain.PlainLoginModule"
_SCRAM = f"{_COMMON}.scram.ScramLoginModule"
_OAUTH = f"{_COMMON}.oauthbearer.OAuthBearerLoginModule"
_OAUTH_VALIDATOR = f"{_COMMON}.oauthbearer.OAuthBearerValidatorCallbackHandler"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerTls:
    """Brokers have the listener SSL, and SASL_SSL if they have a SASL mechanism."""

    authority: Authority
    """Issues a certificate for each broker: for loopback and for the names that the broker advertises."""
    identity: Identity | None = None
    """The certificate of all brokers instead, for example an expired one."""
    client_auth: Literal["none", "requested", "required"] = "none"
    """Whether SSL (not SASL_SSL) wants a certificate from clients."""
    client_ca: Path | None = None
    """Issuer of the clients' certificates; None: `authority`."""
    only: bool = False
    """No listener is without TLS: not PLAINTEXT, SASL or PROXIED, nor the controllers'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSecurity:
    """The security of one broker."""

    users: Mapping[str, str] = field(default_factory=dict)
    tls: BrokerTls | None = None
    identity: Identity | None = None
    """With `tls`: the certificate of this broker."""
    tokens: TokenIssuer | None = None
    kdc: Kdc | None = None
    reauthenticate_ms: Mapping[str, int] = field(default_factory=dict)
    """`connections.max.reauth.ms` by SASL mechanism."""

    @property
    def only_tls(self) -> bool:
        return self.tls is not None and self.tls.only

    @property
    def listeners(self) -> tuple[str, ...]:
        """Names of the listeners, keys of `SECURITY_PROTOCOLS`."""
        sasl, tls = bool(self._modules()), self.tls is not None
        wanted = {"SASL": sasl and not self.only_tls, "SSL": tls, "SASL_SSL": sasl and tls}
        return tuple(name for name, is_wanted in wanted.items() if is_wanted)

    @property
    def jvm_options(self) -> tuple[str, ...]:
        tokens = () if self.tokens is None else (self.tokens.allowed_urls,)
        return tokens if self.kdc is None else (*tokens, *self.kdc.jvm_options)

    @property
    def host(self) -> str:
        """By which clients of secured listeners know the broker."""
        return LOOPBACK if self.kdc is None else HOST

    def properties(self) -> dict[str, str]:
        return {**self._sasl(), **self._tls(), **self._tokens()}

    def _modules(self) -> dict[str, str]:
        """JAAS configuration by mechanism."""
        modules = {}
        if self.users:
            plain = " ".join(f'user_{name}="{password}"' for name, password in self.users.items())
            modules = {"PLAIN": f"{_PLAIN} required {plain};"}
            modules |= dict.fromkeys(SCRAM_MECHANISMS, f"{_SCRAM} required;")
        if self.tokens is not None:
            modules["OAUTHBEARER"] = f"{_OAUTH} required;"
        if self.kdc is not None:
            modules["GSSAPI"] = kerberos_login(self.kdc, SERVICE)
        return modules

    def _sasl(self) -> dict[str, str]:
        modules = self._modules()
        listeners = [name.lower() for name in self.listeners if name.startswith("SASL")]
        properties = {"sasl.enabled.mechanisms": ",".join(modules)} if modules else {}
        if self.kdc is not None:
            properties["sasl.kerberos.service.name"] = SERVICE.split("/")[0]
        for listener in listeners:
            for mechanism, module in modules.items():
                prefix = f"listener.name.{listener}.{mechanism.lower()}"
                properties[f"{prefix}.sasl.jaas.config"] = module
                if mechanism in self.reauthenticate_ms:
                    properties[f"{prefix}.connections.max.reauth.ms"] = str(self.reauthenticate_ms[mechanism])
                if mechanism == "OAUTHBEARER":
                    properties[f"{prefix}.sasl.server.callback.handler.class"] = _OAUTH_VALIDATOR
        return properties

    def _tls(self) -> dict[str, str]:
        if self.tls is None or self.identity is None:
            return {}
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.identity.bundle),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.tls.client_ca or self.tls.authority.certificate),
            "ssl.client.auth": self.tls.client_auth,
        }

    def _tokens(self) -> dict[str, str]:
        if self.tokens is None:
            return {}
        return {
            "sasl.oauthbearer.jwks.endpoint.url": self.tokens.jwks.as_uri(),
            "sasl.oauthbearer.expected.issuer": self.tokens.issuer,
            "sasl.oauthbearer.expected.audience": self.tokens.audience,
        }
