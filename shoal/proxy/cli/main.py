"""`shoal mirror`, `shoal run`, `shoal check`, `shoal probe`.

They return exit codes: see `exit_codes.py`.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import platform
import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.command_line import OutputError, say
from shoal.proxy.cli.doctor import (
    ClientSecurity,
    ShoalListeners,
    Unreadable,
    check_mirror,
    client_address,
    decoded,
    needed,
    read_mirror,
    render,
)
from shoal.proxy.cli.exit_codes import MUST_CHANGE, OK, exit_code, operator_problems
from shoal.proxy.cli.flags.arguments import NO_OTHERS, parse_arguments
from shoal.proxy.cli.flags.cluster import as_cluster_flag, used_cluster
from shoal.proxy.cli.flags.mirror import (
    adopt_former_state,
    default_state_dir,
    in_flags,
    mirror_clusters,
    mirror_listeners,
    mirror_settings,
)
from shoal.proxy.cli.flags.setting import written
from shoal.proxy.cli.mm2_lines import Wiring, wiring_lines
from shoal.proxy.cli.serving.hang_up import noted_hang_ups
from shoal.proxy.cluster.state_files import require_state_dir
from shoal.proxy.config.identity import shoal_version
from shoal.proxy.config.parse import parse_address
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.quantities import counted
from shoal.proxy.config.reread import identity_of
from shoal.proxy.config.rules.consistency import run_limit_problem
from shoal.proxy.config.rules.doubts import doubts
from shoal.proxy.config.settings import Limits, Mode
from shoal.proxy.config.toml import load_config
from shoal.proxy.events.logs import event, set_up_logs

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from shoal.proxy.cli.doctor import Mirror
    from shoal.proxy.cli.serving.run import Source
    from shoal.proxy.config.settings import Settings

__all__ = ["main"]

log = logging.getLogger("shoal.cli")


def main(arguments: Sequence[str] | None = None, others: Mapping[str, str] = NO_OTHERS) -> int:
    """`others`: further subcommands and their descriptions. They are listed in the help and implemented elsewhere."""
    flags = parse_arguments(arguments, others)
    run, worded = _COMMANDS[flags.command], _WORDED.get(flags.command)
    return exit_code(partial(run, flags), worded, as_json=getattr(flags, "json", False))


def _mirror(flags: argparse.Namespace) -> int:
    settings = mirror_settings(flags)
    wrap, unwrap = settings.listeners
    lines = _wiring(ShoalListeners(wrap=wrap, unwrap=unwrap, clusters=settings.clusters), flags)
    if flags.print_only:
        say(lines, end="")
        return OK
    settings = _with_flags(settings, flags)
    with noted_hang_ups() as hung_up:
        from shoal.proxy.cli.serving.run import Source  # loads slowly, see `_serve`

        set_up_logs(settings.log)
        _log_start("flags", flags.state_dir or default_state_dir())
        adopt_former_state(flags)
        return _serve(settings, lines, Source(hung_up=hung_up, takeover=flags.takeover))


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
    def load() -> Settings:
        return _with_flags(load_config(flags.config), flags)

    with noted_hang_ups() as hung_up:
        from shoal.proxy.cli.serving.run import Source  # loads slowly, see `_serve`

        identity = identity_of(flags.config)
        settings = load()
        set_up_logs(settings.log)
        _log_start(str(flags.config), settings.state_dir)
        watched = flags.config if flags.watch else None
        source = Source(load=load, file=watched, identity=identity, hung_up=hung_up, takeover=flags.takeover)
        return _serve(settings, "", source)


def _with_flags(settings: Settings, flags: argparse.Namespace) -> Settings:
    """Flags override the file."""
    return dataclasses.replace(
        settings,
        limits=dataclasses.replace(settings.limits, **written(flags, "limits")),
        log=dataclasses.replace(settings.log, **written(flags, "log")),
        admin=dataclasses.replace(settings.admin, **written(flags, "admin")),
    )


def _serve(settings: Settings, announcement: str, source: Source) -> int:
    from shoal.proxy.cli.serving.run import run  # trio and the proxy load slowly; `check` and --help need neither

    try:
        run(settings, lambda: _announce(announcement), source)
    except BaseException as error:
        if settings.log.format == "json":  # people read the text that `exit_code` prints
            _log_failure(error)
        raise
    return OK


def _log_failure(error: BaseException) -> None:
    problems = operator_problems(error)
    for problem in problems:
        log.error("could-not-run", extra=event(str(problem), setting=problem.where, error=problem.what))
    if not problems and isinstance(error, Exception):
        log.critical("ended-by-error", exc_info=error, extra=event("Shoal ends: an error in Shoal itself"))


def _log_start(configuration: str, state_dir: Path | None) -> None:
    values = {
        "version": shoal_version(),
        "pid": os.getpid(),
        "configuration": configuration,
        "state_dir": None if state_dir is None else str(state_dir),
        "python": platform.python_version(),
        "trio": version("trio"),
    }
    text = (
        f"shoal {values['version']} starts: pid {values['pid']}, configuration {configuration}, state "
        f"{state_dir or 'not kept'}, Python {values['python']}, trio {values['trio']}"
    )
    log.info("starting", extra=event(text, **values))


def _announce(text: str) -> None:
    """If standard output is on a full disk, the proxy continues."""
    try:
        say(text, end="")
    except OutputError as error:
        log.error("output-failed", extra=event(f"standard output: {error}", error=str(error)))


def _check(flags: argparse.Namespace) -> int:
    settings = None if flags.config is None else load_config(flags.config)
    if flags.file is None:
        if settings is None:
            raise OperatorError.of(
                "shoal check", "give the file to check, or -c shoal.toml, or both (see shoal check --help)"
            )
        if settings.capture is not None or settings.raw_capture is not None:
            from shoal.proxy.capture.index import require_directory  # loads slowly, see `_serve`

            if settings.capture is not None:
                require_directory(settings.capture)
            if settings.raw_capture is not None:
                require_directory(settings.raw_capture, "capture.raw.directory")
        require_state_dir(settings.state_dir, create=False)
        warnings = list(doubts(settings))
        if settings.has_tls:
            from shoal.proxy.net.tls.reload import certificate_warnings  # loads slowly, see `_serve`

            warnings += certificate_warnings(settings)
        if any(x.sasl for x in settings.listeners):
            from shoal.proxy.listener.login.files import require_login_files  # loads slowly, see `_serve`

            require_login_files(settings)
        for warning in warnings:
            say(f"warning: {warning}")
        listeners = settings.listeners
        say(f"{flags.config}: OK: {counted(len(listeners), 'listener')} ({', '.join(x.name for x in listeners)})")
        return OK
    shoal = _shoal(flags, settings)
    report = check_mirror(_read_mirror(flags.file), shoal)
    say(render(report, _name(flags.file)), end="")
    return MUST_CHANGE if report.must_change else OK


def _name(file: str) -> str:
    return "standard input" if file == "-" else file


def _read_mirror(file: str) -> Mirror:
    try:
        return read_mirror(decoded(sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()))
    except OSError as error:
        raise OperatorError.of(_name(file), f"cannot be read: {error.strerror}") from None
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
    say(to_json(report) if flags.json else to_text(report), end="")
    return EXIT_CODES[report.result]


_COMMANDS = {"mirror": _mirror, "run": _run, "check": _check, "probe": _probe}
_WORDED = {"mirror": in_flags, "probe": as_cluster_flag}  # their problems name flags
