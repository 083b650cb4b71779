"""Logins with a password, and brokers that want them to cost much."""

from __future__ import annotations

import math
import threading

import pytest

from shoal.protocol.sasl.answers import answer_authenticate, answer_handshake, read_authenticate
from shoal.protocol.sasl.login import Granted
from shoal.protocol.sasl.scram import derive
from shoal.protocol.sasl.server import Accepted, Challenge, ScramServer
from shoal.protocol.sasl.users import Users, hash_password
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.headers import read_request_header
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.proxy.config.settings import Address, Limits
from shoal.proxy.net.auth.broker_login import BrokerLogin, BrokerSession
from shoal.proxy.net.auth.identity import SaslTable
from shoal.proxy.net.auth.passwords import PasswordIdentity, SaltedPasswords
from tests.support.secrets import password_login

WHERE = SaslTable("sasl", "kafka")
ADDRESS = Address("broker", 9092)


class Broker:
    """One login after the other, each with a salt of its own."""

    def __init__(self, mechanism: str, *, one_salt: bool = False) -> None:
        self._mechanism = mechanism
        self._one_salt = one_salt
        self.logins = 0

    async def answer(self, frame: bytes) -> bytes:
        header = read_request_header(frame)
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            salt = b"salt" if self._one_salt else b"%d" % self.logins
            hashes = {"shoal": {self._mechanism: hash_password(self._mechanism, "a word", salt, 4096)}}
            self._server = ScramServer(self._mechanism, Users(seed=bytes(32), hashes=hashes), "server")
            return answer_handshake(header, ErrorCode.NONE, (self._mechanism,))
        result = self._server.step(read_authenticate(frame, header))
        assert isinstance(result, Challenge | Accepted)
        self.logins += isinstance(result, Accepted)
        return answer_authenticate(header, token=result.token)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("one_salt", [True, False])
async def test_a_password_is_salted_in_a_thread(mechanism: str, one_salt: bool) -> None:
    threads: list[int] = []

    def derived(digest: str, password: str, salt: bytes, iterations: int) -> bytes:
        threads.append(threading.get_ident())
        return derive(digest, password, salt, iterations)

    identity = PasswordIdentity(password_login("shoal", "a word", mechanism), WHERE, SaltedPasswords(derived))
    login, broker = BrokerLogin(identity, WHERE, Limits()), Broker(mechanism, one_salt=one_salt)
    for _ in range(3):
        await login.again(BrokerSession(login, ADDRESS, Granted(0, 2), math.inf), broker.answer)
    assert broker.logins == 3
    assert len(threads) == (1 if one_salt else 3)
    assert threading.get_ident() not in threads
