"""The flags of `shoal mirror` -> `Settings`: a wrap listener for the source, paired with an unwrap listener."""

from __future__ import annotations

import logging
import os
import re
import zlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.proxy.cli.flags.security import cluster_security, listener_tls, to_flag
from shoal.proxy.cli.flags.setting import written
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.rules.consistency import check_settings
from shoal.proxy.config.settings import (
    Address,
    CaptureSettings,
    ClusterSettings,
    ListenerSettings,
    Mode,
    MultiBatch,
    PortRange,
    RawCaptureSettings,
    Settings,
    ShallowSettings,
)
from shoal.proxy.events.logs import event

if TYPE_CHECKING:
    import argparse

    from shoal.proxy.config.problems import Problem

__all__ = [
    "adopt_former_state",
    "default_state_dir",
    "in_flags",
    "mirror_clusters",
    "mirror_listeners",
    "mirror_settings",
]

log = logging.getLogger("shoal.listener")

_BROKER_PORTS = 100  # after the port of the listener, without --*-ports
_SIDES = ("source", "target")


def mirror_settings(flags: argparse.Namespace) -> Settings:
    """Raises `OperatorError` that names the flag."""
    _require_clear(flags)
    settings = Settings(
        clusters=mirror_clusters(flags),
        listeners=mirror_listeners(flags),
        capture=None if flags.capture is None else CaptureSettings(directory=flags.capture),
        raw_capture=_raw_capture(flags),
        tags=dict(flags.tag),
        state_dir=flags.state_dir,
    )
    if problems := check_settings(settings, _flag):
        raise OperatorError(tuple(dict.fromkeys(map(to_flag, problems))))
    return settings


def _require_clear(flags: argparse.Namespace) -> None:
    """What the settings would hide. Raises OperatorError."""
    names = [name for name, _ in flags.tag]
    if twice := [name for name in names if names.count(name) > 1]:
        raise OperatorError.of("--tag", f"{twice[0]} is given twice: one of the values would be lost")
    if flags.source_alias == flags.target_alias:
        what = f"is that of the source, {flags.source_alias}: MirrorMaker 2 needs two names"
        raise OperatorError.of("--target-alias", what)


def mirror_clusters(flags: argparse.Namespace) -> tuple[ClusterSettings, ClusterSettings]:
    """(source, target), as far as the flags define them: `shoal check` has no addresses. Raises `OperatorError`."""
    source, target = (_cluster(flags, side) for side in _SIDES)
    return replace(source, multi_batch=MultiBatch.NEVER), replace(target, **written(flags, "cluster"))


def _cluster(flags: argparse.Namespace, side: str) -> ClusterSettings:
    security = cluster_security(flags, f"{side}-")
    return ClusterSettings(name=side, bootstrap=getattr(flags, side, ()), tls=security.tls, sasl=security.sasl)


def _raw_capture(flags: argparse.Namespace) -> RawCaptureSettings | None:
    if flags.capture_raw is not None:
        return RawCaptureSettings(directory=flags.capture_raw, topics=frozenset(flags.capture_topic))
    if flags.capture_topic:
        raise OperatorError.of("--capture-topic", "needs --capture-raw: the index holds all topics")
    return None


def mirror_listeners(flags: argparse.Namespace) -> tuple[ListenerSettings, ListenerSettings]:
    """(wrap, unwrap), as far as the flags define them: `shoal check` has no clusters and no broker ports."""
    shallow = ShallowSettings.of(**written(flags, "shallow"), tags=dict(flags.tag))
    tls = listener_tls(flags)
    wrap, unwrap = (
        ListenerSettings(
            name=side,
            cluster=side,
            host=getattr(flags, f"{side}_listen").host,
            port=getattr(flags, f"{side}_listen").port,
            advertised_host=flags.advertise,
            nodes=_ports(flags, side),
            mode=mode,
            pair=pair,
            producers_file=_beside(flags, side, ".producers") if mode is Mode.UNWRAP else None,
            mirrored_file=_beside(flags, side, ".mirrored") if mode is Mode.WRAP else None,
            shallow=shallow,
            tls=tls,
        )
        for side, mode, pair in (("source", Mode.WRAP, "target"), ("target", Mode.UNWRAP, None))
    )
    return wrap, unwrap


def _ports(flags: argparse.Namespace, side: str) -> PortRange:
    port: int = getattr(flags, f"{side}_listen").port
    written: PortRange | None = getattr(flags, f"{side}_ports", None)
    first, last = (written.first, written.last) if written else (port + 1, min(port + _BROKER_PORTS, 65535))
    bootstrap: tuple[Address, ...] = getattr(flags, side, ())
    return PortRange(first=first, last=last, state_file=_state_file(flags, side, port, bootstrap))


def _beside(flags: argparse.Namespace, side: str, suffix: str) -> Path | None:
    state_file = _ports(flags, side).state_file
    return state_file and state_file.with_suffix(suffix)


def _state_file(flags: argparse.Namespace, side: str, port: int, bootstrap: tuple[Address, ...]) -> Path | None:
    """One file per listener. The file names its cluster, so the bootstrap list may change."""
    if not bootstrap:
        return None
    directory: Path = flags.state_dir or default_state_dir()
    return directory / f"{side}-{port}.json"


def adopt_former_state(flags: argparse.Namespace) -> None:
    """Rename the state files of Shoal 0.1, whose names had a hash of the bootstrap list. Overwrites nothing."""
    directory: Path = flags.state_dir or default_state_dir()
    for side in _SIDES:
        port, bootstrap = getattr(flags, f"{side}_listen").port, getattr(flags, side)
        former = f"{side}-{port}-{zlib.crc32(','.join(sorted(map(str, bootstrap))).encode()):08x}"
        for suffix in (".json", ".producers"):
            old, new = directory / f"{former}{suffix}", directory / f"{side}-{port}{suffix}"
            with suppress(OSError):
                if old.exists() and not new.exists():
                    old.rename(new)
                    text = f"renamed {old} to {new.name}"
                    log.info("state-file-renamed", extra=event(text, file=str(old), renamed_to=new.name))


def default_state_dir() -> Path:
    """XDG Base Directory Specification: state that should persist between restarts."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser()) / "shoal"


_FLAGS = {"listen": "--{}-listen", "ports": "--{}-ports", "cluster": "--{}", "pair": "--{}-listen"}


_DIRECTORIES = {
    "capture.directory": "--capture",
    "capture.raw.directory": "--capture-raw",
    "state-dir": "--state-dir",
}


def _flag(index: int, key: str) -> str:
    if key.startswith("tls."):
        return f"listener[{index}].{key}"  # see `to_flag`
    return _FLAGS.get(key, f"--{key.rpartition('.')[2]}").format(_SIDES[index])


def in_flags(problem: Problem) -> Problem:
    """A problem of a running listener, with the flags of `shoal mirror` instead of configuration keys."""
    if problem.where in _DIRECTORIES:
        return problem._replace(where=_DIRECTORIES[problem.where])
    problem = to_flag(problem)
    for side in _SIDES:
        if problem.where == f"listener {side!r}":
            what = re.sub(r"\bwith (listen|ports)$", rf"with --{side}-\1", problem.what)
            return problem._replace(what=what.replace("same-cluster = true", "--same-cluster"))
    return problem
