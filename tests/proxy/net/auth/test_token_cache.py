"""One token for all connections: when it is renewed, by one task at a time, and what happens when it cannot be."""

from __future__ import annotations

from functools import partial

import pytest
import trio
import trio.testing

from shoal.proxy.net.auth.backoff import Backoff
from shoal.proxy.net.auth.identity import NoCredentials, SaslTable
from shoal.proxy.net.auth.token_cache import FreshToken, TokenCache

WHERE = SaslTable("sasl", "c")


class Issuer:
    """Gives numbered tokens; `gate` holds it up."""

    def __init__(self, lifetime: float | None = 100.0) -> None:
        self.lifetime = lifetime
        self.now = 1000.0
        self.asked = 0
        self.fails = False
        self.gate: trio.Event | None = None
        self.cache = TokenCache(self.fetch, WHERE, clock=lambda: self.now)

    async def fetch(self) -> FreshToken:
        self.asked += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.fails:
            raise NoCredentials(f"failure {self.asked}")
        return FreshToken(f"token-{self.asked}", self.lifetime)


async def test_a_token_is_renewed_when_80_percent_are_used() -> None:
    issuer = Issuer()
    assert await issuer.cache.get() == "token-1"
    issuer.now += 79
    assert await issuer.cache.get() == "token-1"
    issuer.now += 2
    assert await issuer.cache.get() == "token-2"


async def test_a_token_of_unknown_lifetime_is_used_for_a_minute() -> None:
    issuer = Issuer(None)
    await issuer.cache.get()
    issuer.now += 47
    assert await issuer.cache.get() == "token-1"
    issuer.now += 2
    assert await issuer.cache.get() == "token-2"


async def test_one_renewal_serves_all_who_wait() -> None:
    issuer = Issuer()
    issuer.gate = trio.Event()
    got: list[str] = []

    async def get() -> None:
        got.append(await issuer.cache.get())

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(get)
        await trio.testing.wait_all_tasks_blocked()
        issuer.gate.set()
    assert got == ["token-1"] * 50
    assert issuer.asked == 1


async def test_others_use_the_old_token_during_a_renewal() -> None:
    issuer = Issuer()
    await issuer.cache.get()
    issuer.now += 90
    issuer.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(issuer.cache.get)
        await trio.testing.wait_all_tasks_blocked()
        assert await issuer.cache.get() == "token-1"
        issuer.gate.set()
    assert await issuer.cache.get() == "token-2"


async def test_failures_leave_the_old_token_and_are_spaced() -> None:
    issuer = Issuer()
    await issuer.cache.get()
    issuer.fails = True
    issuer.now += 85
    asked = []
    for _ in range(15):
        assert await issuer.cache.get() == "token-1"
        asked.append(issuer.asked)
        issuer.now += 0.5
    assert asked == [2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 5], "after 1, 2, 4 seconds"
    issuer.now += 8
    with pytest.raises(NoCredentials, match="failure"):
        await issuer.cache.get()
    before = issuer.asked
    with pytest.raises(NoCredentials, match="failure"):
        await issuer.cache.get()
    assert issuer.asked == before
    issuer.fails = False
    issuer.now += 30
    assert await issuer.cache.get() == f"token-{before + 1}"


async def test_a_cancelled_renewal_is_nothing() -> None:
    issuer = Issuer()
    issuer.gate = trio.Event()
    with trio.move_on_after(0.01):
        await issuer.cache.get()
    issuer.gate.set()
    assert await issuer.cache.get() == "token-2"


async def test_a_token_that_a_broker_refused_is_not_used_again() -> None:
    issuer = Issuer()
    await issuer.cache.get()
    issuer.cache.discard()
    assert await issuer.cache.get() == "token-2"


def test_a_token_is_not_shown() -> None:
    assert "secret" not in repr(FreshToken("secret", 1.0))


# -- refused logins ----------------------------------------------------------------------------------------------------


def test_a_refused_identity_is_held_back_longer_and_longer() -> None:
    now = [0.0]
    backoff = Backoff(partial(now.__getitem__, 0))
    assert backoff.held_back(b"a") is None
    for pause in (1, 2, 4, 8, 16, 30, 30):
        backoff.refused(b"a", "why")
        now[0] += pause - 0.01
        assert backoff.held_back(b"a") == "why"
        assert backoff.held_back(b"b") is None, "new credentials are tried at once"
        now[0] += 0.01
        assert backoff.held_back(b"a") is None
    backoff.granted()
    backoff.refused(b"a", "why")
    now[0] += 1
    assert backoff.held_back(b"a") is None


def test_logins_that_are_refused_together_count_once() -> None:
    now = [0.0]
    backoff = Backoff(partial(now.__getitem__, 0))
    backoff.granted()
    for _ in range(20):  # all of them began while the credentials were good
        backoff.refused(b"a", "why")
    now[0] = 1.01
    assert backoff.held_back(b"a") is None
    backoff.refused(b"a", "why")
    now[0] += 1.01
    assert backoff.held_back(b"a") == "why"
    backoff.refused(b"b", "other")
    assert backoff.held_back(b"b") == "other"
