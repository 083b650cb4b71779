"""New files are used for new connections, a broken pair is one error, and expiry is reported in time."""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING

import pytest
import trustme

from shoal.proxy.config.reread import Outcome
from shoal.proxy.config.security import ClientAuth, ClusterTls, ListenerTls
from shoal.proxy.net.tls.contexts import TlsContext
from shoal.proxy.net.tls.reload import Expiry, TlsReload
from tests.support.certificates import DAY, Pair, ca_file, pair

if TYPE_CHECKING:
    from pathlib import Path

CA = trustme.CA(organization_name="Good", organization_unit_name="CA")


@pytest.fixture(autouse=True)
def logs(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(logging.getLogger("shoal"), "propagate", True)
    caplog.set_level(logging.INFO, logger="shoal.tls")
    return caplog


def listener(directory: Path, **keys: object) -> TlsContext:
    settings = {"certificate": directory / "server.pem", "key": directory / "server.key", **keys}
    return TlsContext(ListenerTls(**settings), "listener 'x'")  # type: ignore[arg-type]


async def test_a_new_pair_is_used_when_it_has_settled(tmp_path: Path, logs: pytest.LogCaptureFixture) -> None:
    pair(tmp_path, CA, common_name="first")
    tls = listener(tmp_path)
    watch, first = TlsReload([tls]), tls.context
    await watch.check()
    pair(tmp_path, CA, common_name="second")
    await watch.check()
    assert tls.context is first
    await watch.check()
    assert tls.context is not first
    assert len(logs.messages) == 1
    assert "listener 'x': new connections use the TLS files" in logs.text
    assert "CN=second" in logs.text
    assert "valid until " in logs.text
    await watch.check()
    assert len(logs.messages) == 1


async def test_a_pair_that_is_copied_slowly_is_no_error(tmp_path: Path, logs: pytest.LogCaptureFixture) -> None:
    files = pair(tmp_path, CA)
    tls = listener(tmp_path)
    watch, first = TlsReload([tls]), tls.context
    (tmp_path / "new").mkdir()
    new = pair(tmp_path / "new", CA)
    files.certificate.write_bytes(new.certificate.read_bytes())
    await watch.check()
    files.key.write_bytes(new.key_bytes)
    await watch.check()
    await watch.check()
    assert tls.context is not first
    assert [record.levelname for record in logs.records] == ["INFO"]


async def test_a_broken_pair_is_one_error(tmp_path: Path, logs: pytest.LogCaptureFixture) -> None:
    files = pair(tmp_path, CA)
    tls = listener(tmp_path)
    watch, first = TlsReload([tls]), tls.context
    (tmp_path / "other").mkdir()
    files.key.write_bytes(pair(tmp_path / "other", CA).key_bytes)
    for _ in range(5):
        await watch.check()
    assert tls.context is first
    assert [record.levelname for record in logs.records] == ["ERROR"]
    assert "the key does not fit" in logs.text
    assert "the former ones remain in use" in logs.text
    pair(tmp_path, CA)
    for _ in range(3):
        await watch.check()
    assert tls.context is not first


async def test_a_missing_file_is_one_error(tmp_path: Path, logs: pytest.LogCaptureFixture) -> None:
    pair(tmp_path, CA)
    tls = listener(tmp_path)
    watch = TlsReload([tls])
    (tmp_path / "server.key").unlink()
    for _ in range(5):
        await watch.check()
    assert [record.levelname for record in logs.records] == ["ERROR"]


async def test_kubernetes_swaps_a_link(tmp_path: Path, logs: pytest.LogCaptureFixture) -> None:
    """Equal names, sizes and times: the path behind the links is another."""
    for number in (1, 2):
        (tmp_path / f"..{number}").mkdir()
        files = pair(tmp_path / f"..{number}", CA, common_name=f"generation {number}")
        for path in files:
            os.utime(path, (1, 1))
    (tmp_path / "..data").symlink_to("..1")
    for name in ("server.pem", "server.key"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    tls = listener(tmp_path)
    watch = TlsReload([tls])
    (tmp_path / "..next").symlink_to("..2")
    os.replace(tmp_path / "..next", tmp_path / "..data")
    await watch.check()
    await watch.check()
    assert tls.loaded.own is not None
    assert "CN=generation 2" in tls.loaded.own.certificate.subject
    assert len(logs.records) == 1


async def test_a_new_ca_is_used(tmp_path: Path) -> None:
    other = trustme.CA(organization_name="New", organization_unit_name="CA")
    tls = TlsContext(ClusterTls(ca=ca_file(tmp_path, CA)), "cluster 'y'")
    watch = TlsReload([tls])
    ca_file(tmp_path, other)
    await watch.check()
    await watch.check()
    assert [used.certificate.subject for used in tls.loaded.trusted] == ["OU=CA,O=New"]


async def test_a_signal_reads_everything_at_once(tmp_path: Path, logs: pytest.LogCaptureFixture) -> None:
    pair(tmp_path, CA)
    tls = listener(tmp_path, client_ca=ca_file(tmp_path, CA), client_auth=ClientAuth.OPTIONAL)
    first, watch = tls.context, TlsReload([tls])
    assert await watch.reload() == [("listener 'x': tls", Outcome.UNCHANGED)]
    assert tls.context is not first
    assert not logs.messages
    pair(tmp_path, CA)
    assert await watch.reload() == [("listener 'x': tls", Outcome.LOADED)]
    assert "CA OU=CA,O=Good from " in logs.text
    (tmp_path / "server.pem").write_text("broken")
    for _ in range(2):
        assert await watch.reload() == [("listener 'x': tls", Outcome.REFUSED)]
    assert [record.levelname for record in logs.records] == ["INFO", "ERROR", "ERROR"]


@pytest.mark.parametrize("what", ["certificate", "ca"])
async def test_files_that_are_valid_later_are_used_then(
    tmp_path: Path, logs: pytest.LogCaptureFixture, what: str
) -> None:
    now = time.time()
    pair(tmp_path, CA, start=now - DAY)
    ca_file(tmp_path, CA)

    def clock() -> float:
        return now

    settings = ListenerTls(certificate=tmp_path / "server.pem", key=tmp_path / "server.key")
    tls = TlsContext(
        settings if what == "certificate" else ClusterTls(ca=tmp_path / "ca.pem"), "listener 'x'", clock=clock
    )
    watch, first = TlsReload([tls], clock=clock), tls.context
    pair(tmp_path, CA, start=now + DAY)
    if what == "ca":
        (tmp_path / "ca.pem").write_bytes((tmp_path / "server.pem").read_bytes())
    for _ in range(5):
        await watch.check()
    assert tls.context is first
    assert [record.levelname for record in logs.records] == ["ERROR"]
    assert "is not valid before " in logs.text
    assert "They are tried again on " in logs.text
    now += DAY + 1
    for _ in range(5):
        await watch.check()
    assert tls.context is not first
    assert [record.levelname for record in logs.records] == ["ERROR", "INFO"]


async def test_doubts_are_logged_once(tmp_path: Path, logs: pytest.LogCaptureFixture) -> None:
    pair(tmp_path, CA)
    settings = ListenerTls(certificate=tmp_path / "server.pem", key=tmp_path / "server.key")
    watch = TlsReload([TlsContext(settings, "listener 'x'", names=("localhost",))])
    pair(tmp_path, CA, "elsewhere.example")
    for _ in range(4):
        await watch.check()
    assert [record.levelname for record in logs.records] == ["INFO", "WARNING"]
    assert "is not for localhost, where clients connect" in logs.text


def test_expiry_is_reported_30_7_and_1_days_ahead_and_daily_afterwards(tmp_path: Path) -> None:
    now = time.time()
    end = now + 100 * DAY
    made: Pair = pair(tmp_path, CA, start=now - DAY, end=end)
    loaded = TlsContext(
        ClusterTls(ca=ca_file(tmp_path, CA), certificate=made.certificate, key=made.key), "cluster 'y'"
    ).loaded
    expiry, reported = Expiry(), []
    for hours in range(0, 24 * 104, 6):
        for notice in expiry.notices([("cluster 'y'", loaded)], now + hours * 3600):
            reported.append((round((end - now) / DAY - hours / 24), notice.level, notice.text))
    assert [(days, level) for days, level, _ in reported] == [
        (30, logging.WARNING),
        (7, logging.WARNING),
        (1, logging.ERROR),
        (0, logging.ERROR),
        (-1, logging.ERROR),
        (-2, logging.ERROR),
        (-3, logging.ERROR),
    ]
    texts = [text for _, _, text in reported]
    assert texts[0].startswith(f"cluster 'y': tls.certificate: {made.certificate}: CN=server")
    for text, words in zip(texts, ("within 30 days, on", "within 7 days", "within a day", "expired on"), strict=False):
        assert words in text
        assert "renew it; the new file is used without a restart" in text


def test_a_start_shortly_before_expiry_reports_once(tmp_path: Path) -> None:
    now = time.time()
    made = pair(tmp_path, CA, start=now - DAY, end=now + 5 * DAY)
    loaded = TlsContext(ListenerTls(certificate=made.certificate, key=made.key), "listener 'x'").loaded
    expiry = Expiry()
    assert [len(expiry.notices([("listener 'x'", loaded)], now + hour * 3600)) for hour in range(48)] == [1] + [0] * 47


def test_cas_of_one_file_share_a_line(tmp_path: Path) -> None:
    now = time.time()
    path = tmp_path / "cas.pem"
    path.write_bytes(b"".join(trustme.CA(organization_name=f"Org {n}").cert_pem.bytes() for n in range(8)))
    loaded = TlsContext(ClusterTls(ca=path), "cluster 'y'").loaded
    (notice,) = Expiry().notices([("cluster 'y'", loaded)], loaded.trusted[0].certificate.not_after - 3 * DAY)
    assert "and 3 more expire within 7 days" in notice.text
    assert Expiry().notices([("cluster 'y'", loaded)], now) == []
