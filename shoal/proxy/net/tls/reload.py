"""Uses new certificates without a restart, and says in time when one expires.

    every 2 s: did a file change?  ── twice the same ──> TlsContext.reload ── info: the new subject and its expiry
    refused files have become valid ──────────────────>         │
    SIGHUP ───────────────────────────────────────────>         └─ error: the old files stay in use

Files count as changed by their content's identity (`contexts.Generation`), so the symbolic links that Kubernetes swaps
count too. A change is used when two looks in a row see the same: a certificate whose key is still being copied is no
error. New connections get the new context, open ones keep theirs.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, NamedTuple

import trio

from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.reread import Outcome, Reread
from shoal.proxy.events.logs import event
from shoal.proxy.net.tls.certificates import date
from shoal.proxy.net.tls.contexts import read_all

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from pathlib import Path

    from shoal.proxy.config.settings import Settings
    from shoal.proxy.net.tls.certificates import Certificate
    from shoal.proxy.net.tls.contexts import Generation, Loaded, TlsContext, UsedCertificate

__all__ = ["CHECK_SECONDS", "Expiry", "Notice", "TlsReload", "certificate_warnings"]

log = logging.getLogger("shoal.tls")

CHECK_SECONDS = 2.0

_DAY = 86_400.0
_NOTICE_DAYS = (1, 7, 30)
_MOST_SUBJECTS = 5  # of a file with many CAs


class TlsReload:
    """The files of all clusters and listeners with TLS."""

    def __init__(
        self,
        contexts: Sequence[TlsContext],
        *,
        check_seconds: float = CHECK_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._contexts = contexts
        self._check_seconds = check_seconds
        self._clock = clock
        self._seen: dict[TlsContext, Generation] = {}  # changed files, at the last look
        self._expiry = Expiry()

    async def run(self) -> None:
        """Runs until cancelled."""
        for tls in self._contexts:
            _log_doubts(tls)
        while True:
            self._log_expiry()
            await trio.sleep(self._check_seconds)
            await self.check()

    def use(self, contexts: Sequence[TlsContext]) -> None:
        """The settings have changed; contexts that are new have just been read."""
        for tls in contexts:
            if tls not in self._contexts:
                _log_doubts(tls)
        self._contexts = contexts
        self._seen = {tls: seen for tls, seen in self._seen.items() if tls in contexts}

    async def check(self) -> None:
        """Look at all files; read those that have changed and have settled."""
        for tls in self._contexts:
            current = await trio.to_thread.run_sync(tls.current_generation)
            if current == tls.generation:
                self._seen.pop(tls, None)
                if tls.refused_until is not None and tls.refused_until <= self._clock():
                    await self._reload(tls)
            elif self._seen.get(tls) == current:
                del self._seen[tls]
                await self._reload(tls)
            else:
                self._seen[tls] = current

    async def reload(self, reported: Collection[str] = ()) -> list[Reread]:
        """Read all files now, changed or not. `reported`: problems that the log has just been given."""
        found = []
        for tls in self._contexts:
            self._seen.pop(tls, None)
            found.append(Reread(f"{tls.where}: tls", await self._reload(tls, reported)))
        return found

    async def _reload(self, tls: TlsContext, reported: Collection[str] = ()) -> Outcome:
        former = tls.loaded.certificates, tls.generation
        try:
            await trio.to_thread.run_sync(tls.reload)  # decrypting a key may take a while
        except OperatorError as error:
            if all(str(problem) in reported for problem in error.problems):
                return Outcome.REFUSED
            again = "" if tls.refused_until is None else f". They are tried again on {date(tls.refused_until)}"
            text = f"TLS files are not used, the former ones remain in use: {error}{again}"
            log.error("tls-files-refused", extra=event(text, setting=tls.where, error=str(error)))
            return Outcome.REFUSED
        if former == (tls.loaded.certificates, tls.generation) and tls.loaded.certificates:
            return Outcome.UNCHANGED  # the system's CAs may have changed, wherever they are
        loaded = _summary(tls.loaded)
        text = f"{tls.where}: new connections use the TLS files as they are now: {loaded}"
        log.info("tls-files-loaded", extra=event(text, setting=tls.where, certificates=loaded))
        _log_doubts(tls)
        self._log_expiry()
        return Outcome.LOADED

    def _log_expiry(self) -> None:
        for notice in self._expiry.notices(((tls.where, tls.loaded) for tls in self._contexts), self._clock()):
            values = event(notice.text, setting=notice.setting, file=str(notice.file), days=notice.days)
            log.log(notice.level, "certificate-expiry", extra=values)


def certificate_warnings(settings: Settings) -> list[str]:
    """What a start would log about certificates. Raises OperatorError for what would end it."""
    contexts = read_all(settings)
    notices = Expiry().notices(((tls.where, tls.loaded) for tls in contexts), time.time())
    return [*(doubt for tls in contexts for doubt in tls.loaded.doubts), *(notice.text for notice in notices)]


def _log_doubts(tls: TlsContext) -> None:
    for doubt in tls.loaded.doubts:
        log.warning("tls-files-doubtful", extra=event(doubt, setting=tls.where))


def _summary(loaded: Loaded) -> str:
    parts = []
    if loaded.own is not None:
        own = loaded.own
        parts.append(f"{own.certificate.subject} from {own.file}, valid until {date(own.certificate.not_after)}")
    if loaded.trusted:
        subjects = _subjects([used.certificate for used in loaded.trusted])
        parts.append(f"CA {subjects} from {loaded.trusted[0].file}")
    return "; ".join(parts) or "the system's CAs"


class Notice(NamedTuple):
    level: int
    text: str
    setting: str
    file: Path
    days: int  # within which the first one expires; 0: it has expired


class Expiry:
    """Which certificates expire soon: each is reported 30, 7 and 1 days ahead, and every day when it has expired."""

    def __init__(self) -> None:
        self._reported: dict[tuple[str, bytes], tuple[int, float]] = {}  # (setting, certificate) -> (days, when)

    def notices(self, used: Iterable[tuple[str, Loaded]], now: float) -> list[Notice]:
        found: list[Notice] = []
        current: set[tuple[str, bytes]] = set()
        for where, loaded in used:
            due: dict[tuple[str, Path, int], list[Certificate]] = {}
            for certificate in loaded.certificates:
                key = (f"{where} {certificate.setting}", certificate.certificate.der)
                current.add(key)
                if (days := self._due(key, certificate, now)) is not None:
                    due.setdefault((certificate.setting, certificate.file, days), []).append(certificate.certificate)
            found += [_notice(setting, file, days, expiring) for (setting, file, days), expiring in due.items()]
        self._reported = {key: value for key, value in self._reported.items() if key in current}
        return found

    def _due(self, key: tuple[str, bytes], one: UsedCertificate, now: float) -> int | None:
        """The notice to give now: 30, 7 or 1 days, or 0 for an expired certificate."""
        left = one.certificate.not_after - now
        days = 0 if left < 0 else next((days for days in _NOTICE_DAYS if left <= days * _DAY), None)
        if days is None:
            return None
        before = self._reported.get(key)
        if before is not None and (days == before[0] > 0 or (days == 0 == before[0] and now - before[1] < _DAY)):
            return None
        self._reported[key] = (days, now)
        return days


def _notice(setting: str, file: Path, days: int, certificates: list[Certificate]) -> Notice:
    first = min(certificate.not_after for certificate in certificates)
    verb = "expires" if len(certificates) == 1 else "expire"
    when = f"{verb} within {days} days, on" if days > 1 else f"{verb} within a day, on" if days else "expired on"
    text = (
        f"{setting}: {file}: {_subjects(certificates)} {when} {date(first)}: renew it; the new file is used without a "
        "restart"
    )
    return Notice(logging.WARNING if days > 1 else logging.ERROR, text, setting, file, days)


def _subjects(certificates: Sequence[Certificate]) -> str:
    more = f" and {len(certificates) - _MOST_SUBJECTS} more" if len(certificates) > _MOST_SUBJECTS else ""
    return ", ".join(certificate.subject for certificate in certificates[:_MOST_SUBJECTS]) + more
