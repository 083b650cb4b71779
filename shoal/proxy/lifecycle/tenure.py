"""What a process has while it is the Shoal of its state directory, and what it got from the one before."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from shoal.proxy.cluster.state_files import require_state_dir
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.settings import Mode
from shoal.proxy.events.logs import event
from shoal.proxy.lifecycle.channel import PeerEnded
from shoal.proxy.lifecycle.state_directory import InUse, StateDirectory
from shoal.proxy.lifecycle.taking import Taking
from shoal.proxy.listener.sockets import ListeningSockets

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

__all__ = ["ADMIN", "Tenure", "tenure"]

log = logging.getLogger("shoal.server")

_END_SECONDS: Final = 15.0
"""For a Shoal that drains, when the one that took over from it has ended: no process answers for it."""
_LOOK_SECONDS: Final = 0.1

ADMIN = "admin"
"""The use of the admin listener's socket; of other sockets it is the listener's mode."""


class Tenure(NamedTuple):
    """`directory` None: no state is kept. `taking` None: no Shoal was there."""

    directory: StateDirectory | None
    taking: Taking | None
    sockets: ListeningSockets


@asynccontextmanager
async def tenure(path: Path | None, *, takeover: bool = False) -> AsyncIterator[Tenure]:
    """`path`: the state directory. Raises OperatorError, also if another Shoal has it and does not hand it over."""
    if path is None and takeover:
        raise OperatorError.of(
            "--takeover", "needs a state-dir (shoal mirror: --state-dir DIR): the Shoal that runs is found there"
        )
    require_state_dir(path)
    directory, taking = (None, None) if path is None else await _entered(path, takeover=takeover)
    held = Tenure(directory, taking, ListeningSockets())
    for use, sock in () if taking is None else taking.sockets:
        mode = Mode.PLAIN if use == ADMIN else Mode(use)
        held.sockets.offer([(sock.getsockname()[:2], sock)], mode)
    try:
        yield held
    except BaseException as error:
        if taking is not None:
            taking.close(error)
        raise
    finally:
        if taking is not None:
            taking.close()
        if directory is not None:
            directory.close()


async def _entered(path: Path, *, takeover: bool) -> tuple[StateDirectory, Taking | None]:
    """Raises OperatorError."""
    ends_at = trio.current_time() + _END_SECONDS
    while True:
        try:
            directory = StateDirectory.take(path)
        except InUse as error:
            owner = error
        else:
            if takeover:
                text = f"--takeover: no Shoal runs in {path}: an ordinary start"
                log.info("nothing-to-take-over", extra=event(text, directory=str(path)))
            return directory, None
        if not takeover:
            what = f"{path} is in use by {owner}, a Shoal that still runs: stop it, or replace it with --takeover"
            raise OperatorError.of("state-dir", f"{what}, or give each a state-dir of its own")
        try:
            taking = await Taking.ask(path)
        except PeerEnded:
            if trio.current_time() > ends_at:
                what = f"{path} is in use by {owner}, which cannot be asked for its ports: stop it"
                raise OperatorError.of("--takeover", what) from None
            await trio.sleep(_LOOK_SECONDS)
        else:
            return taking.directory, taking
