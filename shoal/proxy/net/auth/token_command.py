"""A token that a command prints, as `aws`, `gcloud` and `az` do."""

from __future__ import annotations

import re
import subprocess
import time
from typing import TYPE_CHECKING

import trio

from shoal.protocol.sasl.oauth import expiry, is_token
from shoal.proxy.net.auth.identity import NoCredentials
from shoal.proxy.net.auth.token_cache import FreshToken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.proxy.net.auth.identity import SaslTable

__all__ = ["fresh_token", "token_from_command"]

_LARGEST = 64 * 1024
_SECRET = re.compile(r"[-_.~+/=A-Za-z0-9]{32,}")  # whatever is so long may be a token, or a part of one
_LINE = 200  # characters of stderr in an error


async def token_from_command(command: Sequence[str], where: SaslTable, seconds: float) -> FreshToken:
    """Raises NoCredentials; its message has the last line of stderr, but nothing that may be a token."""
    setting = f"{where.key('token-command')} ({command[0]})"
    try:
        with trio.fail_after(seconds):
            code, stdout, stderr = await _run(command)
    except trio.TooSlowError:
        raise NoCredentials(f"{setting} did not end within {seconds:g} s") from None
    except OSError as error:
        raise NoCredentials(f"{setting} cannot be started: {error.strerror}") from None
    text = stdout.decode(errors="replace").strip()
    if code:
        lines = stderr.decode(errors="replace").strip().splitlines()
        last = _SECRET.sub("(...)", lines[-1].replace(text, "(...)") if text else lines[-1]) if lines else "no message"
        raise NoCredentials(f"{setting} ended with {_exit_words(code)}: {last[:_LINE]}")
    return fresh_token(text, setting, time.time())


async def _run(command: Sequence[str]) -> tuple[int, bytearray, bytearray]:
    """-> exit code, the beginning of stdout, the end of stderr. Raises OSError if it cannot be started."""
    process = await trio.lowlevel.open_process(
        list(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    stdout, stderr = bytearray(), bytearray()
    try:
        async with process.stdout, process.stderr, trio.open_nursery() as nursery:
            nursery.start_soon(_keep, process.stdout, stdout, slice(_LARGEST + 1, None))
            nursery.start_soon(_keep, process.stderr, stderr, slice(None, -_LARGEST))
        return await process.wait(), stdout, stderr
    finally:
        if process.returncode is None:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()


async def _keep(stream: trio.abc.ReceiveStream, kept: bytearray, too_many: slice) -> None:
    """Read to the end, so that the command never waits for us."""
    async for chunk in stream:
        kept += chunk
        del kept[too_many]


def _exit_words(code: int) -> str:
    return f"exit code {code}" if code > 0 else f"signal {-code}"


def fresh_token(text: str, setting: str, now: float) -> FreshToken:
    """`now`: seconds since 1970. Raises NoCredentials if the text is no token."""
    if len(text) > _LARGEST:
        raise NoCredentials(f"{setting} gives more than {_LARGEST} bytes: it must give a token only")
    if not is_token(text):
        what = "a text that is not only a token" if text else "nothing"
        raise NoCredentials(f"{setting} gives {what}: it must print the token, and nothing else")
    expires = expiry(text)
    return FreshToken(text, None if expires is None else expires - now)
