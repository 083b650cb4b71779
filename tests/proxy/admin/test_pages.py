"""The pages of a running Shoal, between a fake broker and clients of both sides."""

from __future__ import annotations

from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import kio.schema.metadata.v10.response as metadata_v10
import pytest
import trio
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from shoal.protocol.schema.api import ApiKey
from shoal.proxy.admin.health import Health
from shoal.proxy.admin.http import Request
from shoal.proxy.admin.lag import LoopLag
from shoal.proxy.admin.listener import AdminPort
from shoal.proxy.admin.metrics.metric import code
from shoal.proxy.admin.metrics.table import METRICS
from shoal.proxy.admin.pages import serve_admin
from shoal.proxy.config.settings import Address, Limits
from shoal.proxy.statistics import CloseCause
from tests.proxy.listener.test_plain import metadata
from tests.support.admin import ask, get_json, scrape, values
from tests.support.kio_messages import response_frame
from tests.support.rig import (
    DEADLINE,
    BrokerSide,
    Rig,
    Tls,
    api_key,
    correlation_id,
    echo,
    request,
    rig,
    silent,
    until,
)
from tests.support.tls import server_context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Admin:
    def __init__(self, port: AdminPort) -> None:
        self.port = port.address.port

    async def json(self, path: str) -> Any:
        return await get_json(self.port, path)

    async def metrics(self) -> dict[tuple[str, ...], float]:
        return values(await scrape(self.port))


@asynccontextmanager
async def admin_of(r: Rig) -> AsyncIterator[Admin]:
    port = AdminPort(Address("127.0.0.1", 0))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_admin, port, r.server)
        yield Admin(port)
        nursery.cancel_scope.cancel()


async def test_metrics_count_what_clients_send() -> None:
    async with rig(echo) as r, admin_of(r) as admin:
        client = await r.client()
        frame = request(300, 0, 1, b"hello")
        await client.send(frame)
        answer = await client.frame()
        found = await admin.metrics()
        assert found["shoal_client_requests_total", "test"] == 1
        assert found["shoal_client_received_bytes_total", "test"] == len(frame)
        assert found["shoal_client_sent_bytes_total", "test"] == len(answer)
        assert found["shoal_connections", "test", "open"] == 1
        await client.leave()
        await r.closed()
        found = await admin.metrics()
        assert found["shoal_client_requests_total", "test"] == 1
        assert found["shoal_connections_closed_total", "client_closed", "test"] == 1


async def test_each_cause_of_an_end_is_there_before_it_occurs() -> None:
    """rate() does not see the first step of a series that begins with it."""
    async with rig(echo) as r, admin_of(r) as admin:
        found = await admin.metrics()
        ends = {found["shoal_connections_closed_total", code(cause), "test"] for cause in CloseCause}
        assert ends == {0}


async def test_both_forms_parse_and_have_every_metric() -> None:
    async with rig(echo) as r, admin_of(r) as admin:
        _, text = await ask(admin.port, "/metrics")
        _, open_metrics = await ask(admin.port, "/metrics", "application/openmetrics-text; version=1.0.0")
    plain = {family.name for family in parse_text(text.decode())}
    opened = {family.name for family in parse_open_metrics(open_metrics.decode())}
    names = {metric.name.removesuffix("_total") for metric in METRICS}
    assert names <= plain
    assert {name.removesuffix("_info") for name in names} <= {name.removesuffix("_info") for name in opened}


@pytest.mark.parametrize(
    ("accept", "is_open"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain;version=0.0.4;q=0.5,*/*;q=0.1", False),
        ("text/plain; version=1.x", False),
        ("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.3", True),
        ("application/openmetrics-text; version=abc", True),
        ("application/openmetrics-text; version=9.9; escaping=?", True),
    ],
)
async def test_any_accept_header_gets_one_of_two_forms(accept: str, is_open: bool) -> None:
    async with rig(echo) as r, admin_of(r) as admin:
        status, text = await ask(admin.port, "/metrics", accept)
        assert status == 200
        assert text.endswith(b"\n# EOF\n") == is_open


async def test_status_says_what_runs() -> None:
    async with rig(echo) as r, admin_of(r) as admin:
        found = await admin.json("/status")
        assert found["listeners"][0]["name"] == "test"
        assert found["clusters"][0]["bootstrap"]
        assert found["state"] == "serving"
        assert found["pid"] > 0


async def test_ready_follows_the_broker_and_the_server() -> None:
    """The broker's port is closed, and open again; then Shoal gets SIGTERM while a client is connected."""
    async with rig(metadata_of_nobody) as r, admin_of(r) as admin:
        ready = await admin.json("/readyz")
        assert ready == {"ready": True, "state": "serving", "clusters": {"c": None}, "listeners": {"test": None}}
        (cluster,) = r.server.clusters.values()
        cluster.contact.note("cannot reach the broker: it is gone")  # as a client's connection has found
        cluster.bootstrap, there = (Address("127.0.0.1", 1),), cluster.bootstrap
        status, body = await ask(admin.port, "/readyz")
        assert status == 503
        assert "127.0.0.1:1: Connection refused" in body.decode()
        cluster.bootstrap = there
        assert (await ask(admin.port, "/readyz"))[0] == 200

        client = await r.client()
        await client.send(request(300, 0, 1))
        await client.frame()
        r.server.drain()
        status, body = await ask(admin.port, "/readyz")
        assert status == 503
        assert b'"state": "draining"' in body or b'"state": "ended"' in body
        assert (await ask(admin.port, "/livez"))[0] == 200


async def test_one_question_at_a_time_goes_to_a_silent_broker() -> None:
    async with rig(silent) as r, admin_of(r) as admin:
        statuses: list[int] = []

        async def ask_once() -> None:
            statuses.append((await ask(admin.port, "/readyz"))[0])

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(ask_once)
        assert len(r.broker.received) == 1
        assert statuses == [503] * 8


async def test_a_web_server_that_accepts_connections_is_no_broker() -> None:
    """Clients that try again and again connect to it."""
    is_broker = False

    async def answer(broker: BrokerSide, frame: bytes) -> None:
        await (metadata_of_nobody(broker, frame) if is_broker else broker.send(b"HTTP/1.1 400 Bad Request\r\n\r\n"))

    async with rig(answer) as r, admin_of(r) as admin:
        (cluster,) = r.server.clusters.values()
        for _ in range(2):
            assert (await ask(admin.port, "/readyz"))[0] == 503
            cluster.contact.note()  # a client's connection has been made
            found = (await admin.json("/status"))["clusters"][0]["last_connect_failed"]
            assert "the address is that of a web server" in found
        is_broker = True
        assert (await ask(admin.port, "/readyz"))[0] == 200
        assert (await admin.json("/status"))["clusters"][0]["last_connect_failed"] is None


async def test_a_cluster_that_only_accepts_connections_is_not_ready() -> None:
    """As the kernel of a broker that hangs does."""
    async with rig(silent) as r, admin_of(r) as admin:
        client = await r.client()
        await client.send(request(300, 0, 1))
        await until(lambda: len(r.broker.received) == 1)
        status, body = await ask(admin.port, "/readyz")
        assert status == 503
        assert b"no answer yet" in body


async def test_a_client_that_was_answered_long_ago_does_not_show_that_its_cluster_answers() -> None:
    """An idle client stays connected to a broker that hangs."""

    async def answer_only_clients(broker: BrokerSide, frame: bytes) -> None:
        await (silent if api_key(frame) == ApiKey.METADATA else echo)(broker, frame)

    async with rig(answer_only_clients) as r, trio.open_nursery() as tasks:
        client = await r.client()
        await client.send(request(300, 0, 1))
        await client.frame()
        for fresh, status in ((60.0, HTTPStatus.OK), (0.0, HTTPStatus.SERVICE_UNAVAILABLE)):
            health = Health(r.server, LoopLag(), tasks, patience=0.01, fresh=fresh)
            assert (await health.ready(Request("/readyz"))).status is status
        tasks.cancel_scope.cancel()


async def test_a_cluster_that_answers_is_ready_while_clients_try_a_broker_that_is_down() -> None:
    async with rig(metadata_of_nobody) as r, admin_of(r) as admin, trio.open_nursery() as nursery:
        (cluster,) = r.server.clusters.values()

        async def try_again_and_again() -> None:
            while True:
                for failure in (None, "cannot reach the broker: it is gone"):
                    cluster.contact.note(failure)
                    await trio.lowlevel.checkpoint()

        nursery.start_soon(try_again_and_again)
        assert {(await ask(admin.port, "/readyz"))[0] for _ in range(20)} == {200}
        nursery.cancel_scope.cancel()


async def test_a_cluster_that_demands_a_login_and_hangs_is_not_ready() -> None:
    async with rig(silent, limits=Limits(connect_timeout=0.01)) as r, admin_of(r) as admin:
        (cluster,) = r.server.clusters.values()
        cluster.note_login(is_demanded=True)
        for _ in range(2):
            status, body = await ask(admin.port, "/readyz")
            assert status == 503
            assert b"no answer" in body


async def test_a_cluster_whose_brokers_use_tls_no_longer_is_ready() -> None:
    """They close the connection of a client that has not logged in, as brokers with SASL do."""

    async def demands_login(broker: BrokerSide, frame: bytes) -> None:
        await broker.stream.aclose()

    async with rig(demands_login, tls=Tls(0)) as r, admin_of(r) as admin:
        r.broker.tls = server_context()
        status, body = await ask(admin.port, "/readyz")
        assert status == 503
        assert b"the broker uses TLS" in body
        r.broker.tls = None
        with trio.fail_after(DEADLINE):
            while (await ask(admin.port, "/readyz"))[0] != 200:  # the question goes on after each
                pass


async def metadata_of_nobody(broker: BrokerSide, frame: bytes) -> None:
    if api_key(frame) == ApiKey.METADATA:
        await broker.send(response_frame(metadata(response=metadata_v10), correlation_id(frame)))
    else:
        await echo(broker, frame)
