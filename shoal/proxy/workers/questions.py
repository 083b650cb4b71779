"""Questions of the supervisor to one worker, and their answers: each by a number.

A worker that is slow answers after the supervisor has given up. Such a late answer is kept, and serves the next
question of the same kind if that has no answer in time either: else a worker that always needs a little longer than its
limit would never be heard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from shoal.proxy.workers.links import LinkLost, Word

if TYPE_CHECKING:
    from shoal.proxy.workers.links import Link

__all__ = ["LATE_SECONDS", "NoAnswer", "Questions"]

_SHARED: Final = (Word.PAGE, Word.COUNTERS)  # one answer serves all that wait for it
LATE_SECONDS: Final = 12.0  # probes of Kubernetes come every 10 s by default


class NoAnswer(Exception):
    """The worker has ended, or does not answer in time."""


class Questions:
    """Those to the other end of `link`."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._next = 1
        self._by_number: dict[int, _Question] = {}
        self._shared: dict[tuple[Word, object], _Question] = {}  # their answers have not been used yet
        self._have_ended = False

    async def ask(self, word: Word, value: object, *, within: float) -> Any:
        """Within so many seconds. Raises NoAnswer. A question that has no answer yet is not sent again."""
        question = self._shared.get((word, value)) if word in _SHARED else None
        late = None if question is None or question.answered_at is None else question
        if question is None or late is not None:
            question = self._put(word, value)
        with trio.move_on_after(within):
            await question.done.wait()
        if question.answered_at is None:
            if late is None or self._have_ended or late.is_old(trio.current_time()):
                raise NoAnswer
            return late.answer
        if word in _SHARED and self._shared.get((word, value)) is question:
            del self._shared[word, value]
        return question.answer

    def answered(self, number: int, answer: object) -> None:
        question = self._by_number.pop(number, None)
        if question is None:  # after its end
            return
        question.answer, question.answered_at = answer, trio.current_time()
        question.done.set()

    def end(self) -> None:
        """The worker has ended: all questions, also later ones, raise NoAnswer."""
        self._have_ended = True
        for question in self._by_number.values():
            question.done.set()
        self._by_number.clear()
        self._shared.clear()

    def _put(self, word: Word, value: object) -> _Question:
        """Raises NoAnswer."""
        if self._have_ended:
            raise NoAnswer
        number, self._next = self._next, self._next + 1
        try:
            self._link.put(word, value, number)
        except LinkLost:
            raise NoAnswer from None
        question = self._by_number[number] = _Question()
        if word in _SHARED:
            self._shared[word, value] = question
        return question


class _Question:
    def __init__(self) -> None:
        self.done = trio.Event()
        self.answered_at: float | None = None
        self.answer: object = None

    def is_old(self, now: float) -> bool:
        return self.answered_at is not None and now - self.answered_at > LATE_SECONDS
