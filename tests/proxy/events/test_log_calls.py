"""Each log call has an id and fields of the table, and the page shows the table."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import shoal
from shoal.proxy.events.fields import FIELDS, Field, Kind
from shoal.proxy.events.page import page
from shoal.proxy.events.table import EVENTS, SECTIONS
from shoal.proxy.statistics import CloseCause
from tests.support.log_lines import problems

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(shoal.__file__).parent
LEVELS = {"debug", "info", "warning", "error", "critical", "exception", "log"}
COMPLAINTS = {"complain", "_complain"}


class LogCall(NamedTuple):
    where: str
    ids: frozenset[str]
    fields: frozenset[str]


class Reader:
    """The log calls of one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tree = ast.parse(path.read_text(encoding="utf-8"))

    def calls(self) -> Iterator[LogCall]:
        for function in ast.walk(self.tree):
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                for node in _own_nodes(function):
                    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                        yield from self._call(function, node, node.func)

    def _call(self, function: ast.AST, node: ast.Call, called: ast.Attribute) -> Iterator[LogCall]:
        where = f"{self.path.relative_to(ROOT)}:{node.lineno}"
        if isinstance(called.value, ast.Name) and called.value.id == "log" and called.attr in LEVELS:
            shown = node.args[1 if called.attr == "log" else 0]
            if isinstance(shown, ast.Name) and shown.id == "event_id":  # `complain` itself
                return
            extra = next((one.value for one in node.keywords if one.arg == "extra"), None)
            assert extra is not None, f"{where}: no fields: extra=event(...)"
            assert len(node.args) == (2 if called.attr == "log" else 1), f"{where}: the sentence belongs into event()"
            made = _assigned(function, extra) if isinstance(extra, ast.Name) else extra
            assert isinstance(made, ast.Call), f"{where}: extra is not event(...)"
            yield LogCall(where, self._ids(shown), frozenset(_keywords(function, made)))
        elif called.attr in COMPLAINTS and len(node.args) == 2:
            yield LogCall(where, self._ids(node.args[0]), frozenset(_keywords(function, node)))

    def _ids(self, shown: ast.expr) -> frozenset[str]:
        """A constant, or `TABLE[...]`: then every text in the file's tables of events."""
        if isinstance(shown, ast.Constant):
            return frozenset({str(shown.value)})
        assert isinstance(shown, ast.Subscript), f"{self.path}:{shown.lineno}: an id is a constant"
        values = [one.value for one in self.tree.body if isinstance(one, ast.Assign)]
        texts = [value for table in values if isinstance(table, ast.Dict) for value in table.values]
        return frozenset(text.value for text in texts if isinstance(text, ast.Constant) and isinstance(text.value, str))


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Without those of functions inside it."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield child
            yield from _own_nodes(child)


def _assigned(function: ast.AST, name: ast.Name) -> ast.expr | None:
    """The last assignment before the call; the first if there is only one."""
    found = [
        one.value
        for one in _own_nodes(function)
        if isinstance(one, ast.Assign)
        and isinstance(one.targets[0], ast.Name)
        and one.targets[0].id == name.id
        and one.lineno < name.lineno
    ]
    return found[-1] if found else None


def _keywords(function: ast.AST, call: ast.Call) -> Iterator[str]:
    for one in call.keywords:
        if one.arg is not None:
            yield one.arg
        elif isinstance(one.value, ast.Name) and isinstance(made := _assigned(function, one.value), ast.Dict):
            yield from (str(key.value) for key in made.keys if isinstance(key, ast.Constant))


def log_calls() -> list[LogCall]:
    return [call for path in sorted(ROOT.rglob("*.py")) for call in Reader(path).calls()]


def test_each_log_call_has_a_row_and_each_row_a_log_call() -> None:
    calls = log_calls()

    assert {id: call.where for call in calls for id in call.ids if id not in EVENTS} == {}
    assert EVENTS.keys() - {id for call in calls for id in call.ids} == {"log-lines-missing"}  # logs.py makes it itself


def test_each_field_of_a_log_call_is_in_its_row() -> None:
    unknown = {
        (call.where, name) for call in log_calls() for id in call.ids for name in call.fields - {*EVENTS[id].fields}
    }

    assert unknown == set()


def test_the_tables_are_in_order() -> None:
    ids = Counter(row.id for rows in SECTIONS.values() for row in rows)
    assert [id for id, count in ids.items() if count > 1] == []
    assert [id for id in EVENTS if not re.fullmatch(r"[a-z]+(-[a-z0-9]+)*", id)] == []
    assert {name for event in EVENTS.values() for name in event.fields} == FIELDS.keys()
    with_codes = {name for name, field in FIELDS.items() if field.codes is not None}
    assert with_codes == {name for name, field in FIELDS.items() if field.kind in (Kind.CODE, Kind.COUNTS)}


def test_the_page_is_up_to_date() -> None:
    assert page() == (ROOT.parent / "docs" / "events.md").read_text(encoding="utf-8"), (
        "python -m shoal.proxy.events > docs/events.md"
    )


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (Kind.INT, 0, "0"),
        (Kind.INT, 7, True),
        (Kind.BYTES, 7, 7.5),
        (Kind.SECONDS, 7.5, "7.5"),
        (Kind.CODE, "client_closed", "client closed"),
        (Kind.COUNTS, {"client_closed": 1}, {"client closed": 1}),
        (Kind.TEXT, "a", 7),
    ],
)
def test_a_value_of_another_kind_is_found(kind: Kind, good: object, bad: object) -> None:
    field = Field(kind, "", CloseCause)

    assert field.fits(good)
    assert not field.fits(bad)


def test_a_line_that_is_not_as_in_the_tables_is_found() -> None:
    line = {"time": "t", "level": "info", "event": "draining", "message": "m", "signal": "sigterm", "seconds": 5.0}

    assert list(problems(line)) == []
    assert list(problems(line | {"seconds": "5 s"})) == ["draining: seconds = '5 s' is no seconds (with fractions)"]
    assert list(problems(line | {"level": "error"})) == ["draining: level error"]
    assert list(problems(line | {"lines": 5})) == ["draining: no field lines"]
    assert len(list(problems(line | {"event": "a sentence"}))) == 1
