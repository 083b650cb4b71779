"""What one pass through the groups has done, in words."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from shoal.command_line import listed
from shoal.protocol.wire.error_codes import error_name
from shoal.proxy.cli.asking.survey import by_reason, shown
from shoal.proxy.cli.groups.decision import Verdict
from shoal.proxy.config.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shoal.protocol.wire.types import TopicPartition
    from shoal.proxy.cli.groups.decision import Decision

__all__ = ["Note", "Report"]

_SHOWN = 10  # offsets that a line has
_NOTHING = "no group has committed offsets of partitions that are mirror topics at the target"


class Note(NamedTuple):
    """Something that is not copied. The next pass repeats it; two with the same `key` differ in offsets only."""

    key: str
    text: str


@dataclass(slots=True, kw_only=True)
class Report:
    """`is_partial`: something could not be copied. `is_untried`: a broker has not answered in time."""

    dry_run: bool = False
    copied: list[str] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    is_partial: bool = False
    is_untried: bool = False
    _groups: int = 0
    _counts: Counter[Verdict] = field(default_factory=Counter)

    @property
    def lines(self) -> list[str]:
        return [*self.copied, *(note.text for note in self.notes), self._summary()]

    def group(
        self, name: str, decisions: Mapping[TopicPartition, Decision], codes: Mapping[TopicPartition, int]
    ) -> None:
        """`codes`: the coordinator's answers for what was to be copied."""
        refused = {partition: error_name(code) for partition, code in codes.items() if code}
        rows = {partition: row for partition, row in sorted(decisions.items()) if partition not in refused}
        self._groups += 1
        self._counts.update(row.verdict for row in rows.values())
        if copied := {partition: row for partition, row in rows.items() if row.verdict is Verdict.COPY}:
            what = "would copy" if self.dry_run else "copied"
            self.copied.append(f"{name}: {what} {_offsets({key: str(row.offset) for key, row in copied.items()})}")
        kept = {partition: row for partition, row in rows.items() if row.verdict is Verdict.AHEAD}
        texts = {partition: f"{row.target} (source {row.source})" for partition, row in kept.items()}
        self._note(f"{name}: kept, the target is ahead", texts)
        short = {key: row for key, row in rows.items() if row.is_short and row.verdict is not Verdict.AHEAD}
        texts = {partition: f"{row.offset} (source {row.source})" for partition, row in short.items()}
        self._note(f"{name}: only up to the end of the target's log", texts)
        self.is_partial |= bool(short)
        self.leave_out_partitions(refused, prefix=f"{name}: ")

    def leave_out(self, where: str, why: str, *, is_partial: bool = True, is_untried: bool = False) -> None:
        text = f"{where}: left out: {why}"
        self.notes.append(Note(text, text))
        self.is_partial |= is_partial
        self.is_untried |= is_untried

    def leave_out_partitions(
        self,
        reasons: Mapping[TopicPartition, str],
        *,
        prefix: str = "",
        is_partial: bool = True,
        is_untried: bool = False,
    ) -> None:
        """One note for each reason."""
        for why, partitions in by_reason(reasons).items():
            self.leave_out(prefix + shown(partitions), why, is_partial=is_partial, is_untried=is_untried)

    def _note(self, what: str, offsets: Mapping[TopicPartition, str]) -> None:
        if offsets:
            self.notes.append(Note(f"{what} {list(offsets)}", f"{what}: {_offsets(offsets)}"))

    def _summary(self) -> str:
        if not self._groups:
            return _NOTHING
        copied, in_place, ahead = (self._counts[verdict] for verdict in (Verdict.COPY, Verdict.IN_PLACE, Verdict.AHEAD))
        what = "to copy" if self.dry_run else "copied"
        return (
            f"{counted(self._groups, 'group')}: {counted(copied, 'offset')} {what}, {in_place} in place, {ahead} kept"
        )


def _offsets(offsets: Mapping[TopicPartition, str]) -> str:
    more = f" and {len(offsets) - _SHOWN} more" if len(offsets) > _SHOWN else ""
    texts = [f"{topic}-{partition}:{text}" for (topic, partition), text in offsets.items()]
    return listed(texts[:_SHOWN]) + more
