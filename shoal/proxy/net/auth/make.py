"""Settings -> logins."""

from __future__ import annotations

import hashlib
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from shoal.proxy.config.identity import install_extra
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.secret import read_private_file, read_secret
from shoal.proxy.config.security import Mechanism
from shoal.proxy.net.auth import kerberos, msk
from shoal.proxy.net.auth.bearer import BearerIdentity
from shoal.proxy.net.auth.broker_login import BrokerLogin
from shoal.proxy.net.auth.kerberos import KerberosIdentity
from shoal.proxy.net.auth.passwords import PasswordIdentity

if TYPE_CHECKING:
    from shoal.proxy.config.security import SaslSettings
    from shoal.proxy.config.settings import Limits
    from shoal.proxy.net.auth.identity import Identity, SaslTable

__all__ = ["make_login"]

_SHARE = 0.8  # of the connect timeout, for a command or an issuer: its own error is better than that timeout's
_NEEDS = {Mechanism.GSSAPI: (kerberos.PACKAGE, "gssapi"), Mechanism.AWS_MSK_IAM: (msk.PACKAGE, "msk")}
"""The package that a mechanism needs, and the extra of Shoal that installs it."""


def make_login(settings: SaslSettings, where: SaslTable, limits: Limits) -> BrokerLogin:
    """`where`: the settings, for errors. Raises OperatorError if a package is missing, or a secret cannot be read."""
    package, extra = _NEEDS.get(settings.mechanism, (None, ""))
    if package is not None and find_spec(package) is None:
        what = f"{settings.mechanism} needs the Python package {package}: {install_extra(extra)}"
        raise OperatorError.of(where.key("mechanism"), what)
    identity = _identity(settings, where, limits)
    return BrokerLogin(identity, where, limits, secrets=partial(_secrets, settings, where, identity))


def _secrets(settings: SaslSettings, where: SaslTable, identity: Identity) -> bytes:
    """A digest of all that is read from a file or the environment. Raises OperatorError."""
    read = [identity.material()]
    if settings.client_secret is not None:
        read.append(read_secret(settings.client_secret, where.key("client-secret")).encode())
    if settings.keytab is not None:
        read.append(read_private_file(settings.keytab, where.key("keytab")))
    return hashlib.sha256(b"\0".join(read)).digest()


def _identity(settings: SaslSettings, where: SaslTable, limits: Limits) -> Identity:
    match settings.mechanism:
        case Mechanism.GSSAPI:
            return KerberosIdentity(settings, where)
        case Mechanism.OAUTHBEARER | Mechanism.AWS_MSK_IAM:
            return BearerIdentity(settings, where, limits.connect_timeout * _SHARE)
        case _:
            return PasswordIdentity(settings, where)
