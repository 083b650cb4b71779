"""Amazon MSK: a token that AWS credentials sign, here and without a network unless a role is assumed.

The brokers take it by OAUTHBEARER. It is for a region, not for a broker: names of hosts have no part in it, so it works
through any proxy.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import trio

from shoal.proxy.net.auth.identity import NoCredentials, in_thread
from shoal.proxy.net.auth.token_cache import FreshToken

if TYPE_CHECKING:
    from shoal.proxy.config.security import SaslSettings
    from shoal.proxy.net.auth.identity import SaslTable

__all__ = ["PACKAGE", "token_of_msk"]

PACKAGE = "aws_msk_iam_sasl_signer"
_SESSION_NAME = "shoal"


async def token_of_msk(settings: SaslSettings, where: SaslTable, seconds: float) -> FreshToken:
    """Raises NoCredentials."""
    try:
        with trio.fail_after(seconds):
            return await in_thread(partial(_sign, settings, where))
    except trio.TooSlowError:
        raise NoCredentials(f"{where}: AWS gave no credentials within {seconds:g} s") from None


def _sign(settings: SaslSettings, where: SaslTable) -> FreshToken:
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as Provider

    region = settings.region
    try:
        if settings.role_arn is not None:
            signed = Provider.generate_auth_token_from_role_arn(region, settings.role_arn, _SESSION_NAME)
        elif settings.profile is not None:
            signed = Provider.generate_auth_token_from_profile(region, settings.profile)
        else:
            signed = Provider.generate_auth_token(region)
    except Exception as error:  # of botocore, and plain ones of the signer
        raise NoCredentials(f"{where}: no token for region {region}: {type(error).__name__}: {error}") from None
    token, expires_ms = signed
    return FreshToken(str(token), expires_ms / 1000 - time.time())
