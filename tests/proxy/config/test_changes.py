"""What differs between two configurations, and what may be applied while Shoal runs."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.proxy.config import security
from shoal.proxy.config import settings as settings_module
from shoal.proxy.config.changes import HOW, Applied, Change, Table, diff, how_table, in_force
from shoal.proxy.config.security import ListenerSasl, ListenerTls, Mechanism, Routing, SaslSettings, Secret
from shoal.proxy.config.settings import (
    Address,
    AdminSettings,
    CaptureSettings,
    ClusterSettings,
    ListenerSettings,
    Mode,
    PortMap,
    PortRange,
    Settings,
    ShallowSettings,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

# Replaced as a whole: their fields have no way of their own.
WHOLE = {
    "CaptureSettings",
    "RawCaptureSettings",
    "SaslSettings",
    "NamedCredentials",
    "ListenerSasl",
    "Secret",
    "PortRange",
    "PortMap",
}

CLUSTER = ClusterSettings(name="kafka", bootstrap=(Address("b", 9092),))
PLAIN = ListenerSettings(name="clients", cluster="kafka")
UNWRAP = ListenerSettings(name="target", cluster="kafka", mode=Mode.UNWRAP, port=2)
BASE = Settings(clusters=(CLUSTER,), listeners=(PLAIN, UNWRAP), admin=AdminSettings(listen=Address("127.0.0.1", 9190)))


def settings_classes() -> Iterator[type]:
    for module in (settings_module, security):
        for value in vars(module).values():
            if dataclasses.is_dataclass(value) and isinstance(value, type):
                yield value


def test_every_field_of_every_settings_class_has_a_way() -> None:
    classes = {one.__name__: one for one in settings_classes()}
    assert set(classes) == {one.__name__ for one in HOW} | WHOLE
    for settings_class, ways in HOW.items():
        assert set(ways) == {one.name for one in dataclasses.fields(settings_class)}, settings_class
        for way in ways.values():
            assert not isinstance(way, Table) or way.settings in HOW


def made(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a setting's type."""
    kind = get_args(kind)[0] if hasattr(kind, "__metadata__") else kind
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind)
        return st.builds(kind, **{one.name: made(hints[one.name]) for one in dataclasses.fields(kind)})
    if kind is float:
        return st.sampled_from((0.0, 1.0, 2.5))
    if kind is Path:
        return st.sampled_from((Path("a"), Path("b")))
    if isinstance(kind, UnionType) or get_origin(kind) is Union:
        return st.one_of(*map(made, get_args(kind)))
    if get_origin(kind) is tuple and get_args(kind)[1:] == (...,):
        return st.lists(made(get_args(kind)[0]), max_size=2).map(tuple)
    return st.from_type(kind)


values = made(Settings).map(
    lambda drawn: replace(
        drawn,
        clusters=tuple(replace(x, name=f"c{at}") for at, x in enumerate(drawn.clusters)),
        listeners=tuple(replace(x, name=f"l{at}") for at, x in enumerate(drawn.listeners)),
    ).with_state_files()
)


@settings(max_examples=25)
@given(values, values)
def test_what_is_in_force_needs_no_restart_and_keeps_the_rest(old: Settings, new: Settings) -> None:
    used = in_force(old, new)
    wanted = diff(old, new)
    assert not diff(old, old)
    assert in_force(old, used) == used
    assert all(change.applied is not Applied.RESTART for change in diff(old, used))
    if all(change.applied is not Applied.RESTART for change in wanted):
        assert used == new
    kept = {change.listener for change in wanted if change.applied is Applied.RESTART} - {None}
    possible = [change for change in wanted if change.applied is not Applied.RESTART]
    assert [x.what for x in diff(old, used) if x.listener not in kept] == [
        x.what for x in possible if x.listener not in kept
    ]


@settings(max_examples=25)
@given(values, values)
def test_no_change_shows_a_value(old: Settings, new: Settings) -> None:
    for change in diff(old, new):
        assert repr(change).startswith("Change(what=")
        assert "old=" not in repr(change)
        assert "new=" not in repr(change)


def one(new: Settings, old: Settings = BASE) -> Change:
    (change,) = diff(old, new)
    return change


def admin(host: str = "127.0.0.1", port: int = 9190) -> Settings:
    return replace(BASE, admin=AdminSettings(listen=Address(host, port)))


def listener(**values: Any) -> Settings:
    return replace(BASE, listeners=(replace(PLAIN, **values), UNWRAP))


TLS = ListenerTls(certificate=Path("a"))


@pytest.mark.parametrize(
    ("new", "what", "applied"),
    [
        (replace(BASE, limits=replace(BASE.limits, drain_seconds=1)), "limits.drain-seconds", Applied.LIVE),
        (replace(BASE, limits=replace(BASE.limits, in_flight=1)), "limits.in-flight", Applied.NEW_CONNECTIONS),
        (replace(BASE, log=replace(BASE.log, level="debug")), "log.level", Applied.LIVE),
        (admin(port=1), "admin.listen", Applied.LIVE),
        (admin("127.0.0.2"), "admin.listen", Applied.LIVE),
        (admin("0.0.0.0"), "admin.listen", Applied.RESTART),
        (admin("0.0.0.0", 1), "admin.listen", Applied.LIVE),
        (replace(BASE, admin=AdminSettings()), "admin.listen", Applied.LIVE),
        (replace(BASE, capture=CaptureSettings(directory=Path("x"))), "capture", Applied.RESTART),
        (listener(port=7), "listener 'clients': listen", Applied.LIVE),
        (listener(host="127.0.0.2"), "listener 'clients': listen", Applied.LIVE),
        (listener(host="0.0.0.0"), "listener 'clients': listen", Applied.RESTART),
        (listener(advertised_host="x"), "listener 'clients': advertise", Applied.LIVE),
        (listener(nodes=PortMap(ports={1: 7})), "listener 'clients': ports", Applied.LIVE),
        (listener(coalesce=True), "listener 'clients': coalesce", Applied.REOPENED),
        (listener(tls=TLS), "listener 'clients': tls", Applied.REOPENED),
        (
            listener(sasl=ListenerSasl(mechanisms=("PLAIN",))),
            "listener 'clients': sasl",
            Applied.REOPENED,
        ),
        (listener(mode=Mode.WRAP), "listener 'clients': mode", Applied.RESTART),
        (
            listener(shallow=ShallowSettings(deep_topics=("x",))),
            "listener 'clients': shallow.deep-topics",
            Applied.LIVE,
        ),
        (
            replace(BASE, listeners=(PLAIN, replace(UNWRAP, cluster="other"))),
            "listener 'target': cluster",
            Applied.RESTART,
        ),
        (replace(BASE, listeners=(UNWRAP,)), "listener 'clients' removed", Applied.LIVE),
        (
            replace(BASE, clusters=(replace(CLUSTER, bootstrap=(Address("c", 1),)),)),
            "cluster 'kafka': bootstrap",
            Applied.NEW_CONNECTIONS,
        ),
    ],
)
def test_how_a_change_is_applied(new: Settings, what: str, applied: Applied) -> None:
    change = one(new)
    assert (change.what, change.applied) == (what, applied)


def test_a_table_that_is_there_before_and_after_shows_its_keys() -> None:
    both = one(listener(tls=replace(TLS, min_version="1.3")), listener(tls=TLS))
    assert (both.what, both.applied) == ("listener 'clients': tls.min-version", Applied.NEW_CONNECTIONS)


def test_a_name_for_sni_needs_new_connections() -> None:
    sni = listener(routing=Routing.SNI, advertised_host="a", broker_host="b{node}", tls=TLS)
    old = sni.listeners[0]
    assert one(replace(sni, listeners=(replace(old, advertised_host="x"), UNWRAP)), sni).applied is Applied.REOPENED


def test_a_cluster_with_a_login_reopens_its_listeners() -> None:
    login = SaslSettings(mechanism=Mechanism.PLAIN, username="u", password=Secret(env="SECRET"))
    found = {
        change.what: change.applied for change in diff(BASE, replace(BASE, clusters=(replace(CLUSTER, sasl=login),)))
    }
    assert found == {
        "cluster 'kafka': sasl": Applied.NEW_CONNECTIONS,
        "listener 'clients': who logs in at cluster 'kafka'": Applied.REOPENED,
        "listener 'target': who logs in at cluster 'kafka'": Applied.REOPENED,
    }


def test_a_listener_that_needs_a_restart_stays_as_a_whole(tmp_path: Path) -> None:
    old = replace(
        BASE,
        state_dir=tmp_path / "old",
        listeners=(replace(PLAIN, nodes=PortRange(first=1, last=2)), UNWRAP),
    ).with_state_files()
    new = replace(
        old,
        state_dir=tmp_path / "new",
        listeners=(
            replace(old.listeners[0], max_connections=5),
            replace(UNWRAP, port=5, shallow=ShallowSettings(producer_slots=5)),
        ),
    ).with_state_files()
    used = in_force(old, new)
    assert used.listeners == (replace(old.listeners[0], max_connections=5), old.listeners[1])
    assert {change.what for change in diff(old, new) if change.applied is Applied.RESTART} == {
        "state-dir",
        "listener 'target': shallow.producer-slots",
    }
    assert [change.what for change in diff(old, used)] == ["listener 'clients': max-connections"]


def test_the_documentation_has_the_table() -> None:
    text = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text(encoding="utf-8")
    shown = text.partition("<!-- begin: how (tests/proxy/config/test_changes.py) -->\n")[2]
    assert shown.partition("\n<!-- end: how -->")[0] == how_table()
