"""`shoal mirror`, `shoal run`, `shoal check`, `shoal probe`.

Exit codes: 0 done, 1 `check` found something that must change, 2 wrong input, 3 could not run.
"""

from __future__ import annotations

import dataclasses
import gc
import logging
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.proxy.cli.doctor import (
    ClientSecurity,
    ShoalListeners,
    Unreadable,
    check_mirror,
    client_address,
    needed,
    read_mirror,
    render,
)
from shoal.proxy.cli.exit_codes import MUST_CHANGE, OK, exit_code
from shoal.proxy.cli.flags.arguments import NO_OTHERS, parse_arguments
from shoal.proxy.cli.flags.cluster import as_cluster_flag, used_cluster
from shoal.proxy.cli.flags.mirror import (
    adopt_former_state,
    in_flags,
    mirror_clusters,
    mirror_listeners,
    mirror_settings,
)
from shoal.proxy.cli.flags.setting import written
from shoal.proxy.cli.mm2_lines import Wiring, wiring_lines
from shoal.proxy.cluster.state_files import require_state_dir
from shoal.proxy.config.checks import run_limit_problem
from shoal.proxy.config.doubts import doubts
from shoal.proxy.config.parse import parse_address
from shoal.proxy.config.quantities import counted
from shoal.proxy.config.settings import Limits, Mode
from shoal.proxy.config.toml import load_config
from shoal.proxy.errors import OperatorError
from shoal.proxy.logs import set_up_logs

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from shoal.proxy.cli.doctor import Mirror
    from shoal.proxy.config.settings import Settings

__all__ = ["main"]

log = logging.getLogger("shoal.cli")


def main(arguments: Sequence[str] | None = None, others: Mapping[str, str] = NO_OTHERS) -> int:
    """`others`: further subcommands and their descriptions. They are listed in the help and implemented elsewhere."""
    flags = parse_arguments(arguments, others)
    return exit_code(partial(_COMMANDS[flags.command], flags), _WORDED.get(flags.command, str))


def _mirror(flags: argparse.Namespace) -> int:
    settings = mirror_settings(flags)
    wrap, unwrap = settings.listeners
    lines = _wiring(ShoalListeners(wrap=wrap, unwrap=unwrap, clusters=settings.clusters), flags)
    if flags.print_only:
        _print(lines)
        return OK
    settings = _with_flags(settings, flags)
    set_up_logs(settings.log)
    adopt_former_state(flags)
    return _serve(settings, lines)


def _wiring(shoal: ShoalListeners, flags: argparse.Namespace) -> str:
    source, target = (parse_address(client_address(listener)) for listener in (shoal.wrap, shoal.unwrap))
    wiring = Wiring(
        source=source,
        target=target,
        source_alias=flags.source_alias,
        target_alias=flags.target_alias,
        needed=needed(shoal),
        security={
            client: ClientSecurity(listener=listener, cluster=shoal.cluster_of(listener))
            for client, listener in (("consumer", shoal.wrap), ("producer", shoal.unwrap))
        },
    )
    return wiring_lines(wiring, flags.form)


def _run(flags: argparse.Namespace) -> int:
    return _serve(_with_flags(load_config(flags.config), flags), "")


def _with_flags(settings: Settings, flags: argparse.Namespace) -> Settings:
    """Flags override the file."""
    return dataclasses.replace(
        settings,
        limits=dataclasses.replace(settings.limits, **written(flags, "limits")),
        log=dataclasses.replace(settings.log, **written(flags, "log")),
    )


def _serve(settings: Settings, announcement: str) -> int:
    from shoal.proxy.cli.run import run  # trio and the proxy load slowly; `check` and --help need neither

    set_up_logs(settings.log)
    _tune_garbage_collection()
    run(settings, lambda: _announce(announcement))
    return OK


def _tune_garbage_collection() -> None:
    """Collect less often than the default of every 700 objects.

    A record set of tiny batches makes a thousand tuples that are freed with it. With the default, collections run in
    between, find them alive, and take 6 % of the CPU of such a mirror. Cycles are few, and now live a little longer.
    """
    gc.set_threshold(2_000)


def _announce(text: str) -> None:
    """If standard output is on a full disk, the proxy continues."""
    try:
        _print(text)
    except OperatorError as error:
        log.error("%s", error)


def _print(text: str) -> None:
    """To standard output. A closed pipe (`head`) is ignored. Raises OperatorError."""
    try:
        print(text, end="", flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise OperatorError.of("standard output", f"cannot be written: {error.strerror}") from None


def _check(flags: argparse.Namespace) -> int:
    settings = None if flags.config is None else load_config(flags.config)
    if flags.file is None:
        if settings is None:
            raise OperatorError.of(
                "shoal check", "give the file to check, or -c shoal.toml, or both (see shoal check --help)"
            )
        if settings.capture is not None:
            from shoal.proxy.capture.index import require_directory  # loads slowly, see `_serve`

            require_directory(settings.capture)
        require_state_dir(settings.state_dir, create=False)
        warnings = list(doubts(settings))
        if settings.has_tls:
            from shoal.proxy.net.tls.reload import certificate_warnings  # loads slowly, see `_serve`

            warnings += certificate_warnings(settings)
        if any(x.sasl for x in settings.listeners):
            from shoal.proxy.listener.login.files import require_login_files  # loads slowly, see `_serve`

            require_login_files(settings)
        for warning in warnings:
            print(f"warning: {warning}")
        listeners = settings.listeners
        print(f"{flags.config}: OK: {counted(len(listeners), 'listener')} ({', '.join(x.name for x in listeners)})")
        return OK
    shoal = _shoal(flags, settings)
    report = check_mirror(_read_mirror(flags.file), shoal)
    _print(render(report, _name(flags.file)))
    return MUST_CHANGE if report.must_change else OK


def _name(file: str) -> str:
    return "standard input" if file == "-" else file


def _read_mirror(file: str) -> Mirror:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        return read_mirror(text)
    except OSError as error:
        raise OperatorError.of(_name(file), f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise OperatorError.of(_name(file), "cannot be read: it is not UTF-8 text") from None
    except Unreadable as error:
        raise OperatorError.of(_name(file), str(error)) from None


def _shoal(flags: argparse.Namespace, settings: Settings | None) -> ShoalListeners:
    if settings is None:
        wrap, unwrap = mirror_listeners(flags)
        if (what := run_limit_problem(wrap.shallow, Limits())) is not None:
            raise OperatorError.of("--run-limit", what)
        return ShoalListeners(wrap=wrap, unwrap=unwrap, clusters=mirror_clusters(flags))
    listeners = settings.listeners
    for wrap in listeners:
        pair = next((x for x in listeners if wrap.mode == Mode.WRAP and x.name == wrap.pair), None)
        if pair is not None:
            others = tuple(x for x in listeners if x not in (wrap, pair))
            return ShoalListeners(wrap=wrap, unwrap=pair, others=others, clusters=settings.clusters)
    what = 'has no listener with mode = "wrap" and a pair: a mirror needs one'
    raise OperatorError.of(str(flags.config), what)


def _probe(flags: argparse.Namespace) -> int:
    import trio  # loads slowly, see `_serve`

    from shoal.proxy.cli.probe import EXIT_CODES, probe_cluster, to_json, to_text

    used = used_cluster(flags, flags.bootstrap, "HOST:PORT")
    if used is None:
        raise OperatorError.of("shoal probe", "give HOST:PORT, or -c shoal.toml (see shoal probe --help)")
    report = trio.run(partial(probe_cluster, used.settings, used.limits, topic=flags.topic, seconds=flags.seconds))
    _print(to_json(report) if flags.json else to_text(report))
    return EXIT_CODES[report.result]


_COMMANDS = {"mirror": _mirror, "run": _run, "check": _check, "probe": _probe}
_WORDED = {"mirror": in_flags, "probe": as_cluster_flag}  # their problems name flags
