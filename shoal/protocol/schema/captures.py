"""The items that a walker captures: written once for all versions, resolved for one version here.

Items:

    ErrorCode            the value (int, str or None, bytes of a uuid)
    ErrorCode = 0        the same; 0 in versions without the field, or when a tagged field is absent
    Topic | TopicId      the first of these that the version has
    count Brokers        elements of an array (null = 0)
    at Records           position of the field: of its length; of a tagged field's size
    start Records        position of its content (start == end when null or empty)
    end Records          position after its content
    start *, end *       positions of the whole array element;  * alone = the value of an element of a primitive array

An item in an array's row is looked up in the element, then in the enclosing structs (there it must precede the array).
In one version an item is a local variable of the generated walker, or the literal of its default.
"""

from typing import Any, Final, NamedTuple

from shoal.protocol.schema.language import Field, Message

__all__ = ["Captures", "Rows", "variable"]

_KINDS: Final = ("at", "start", "end", "count")


class Rows(NamedTuple):
    """One list of the result: a row for each element of `array` (a dotted path). `row` is a tuple class."""

    array: str
    items: tuple[str, ...]
    row: type[tuple[Any, ...]] = tuple


class _Item(NamedTuple):
    kind: str
    names: tuple[str, ...]
    default: str | None


def _item(text: str) -> _Item:
    names, _, default = text.partition(" = ")
    kind, space, rest = names.partition(" ")
    if space and kind in _KINDS:
        return _Item(kind, tuple(rest.split(" | ")), default or None)
    return _Item("value", tuple(names.split(" | ")), default or None)


def variable(kind: str, path: str) -> str:
    """The local variable for one capture."""
    return f"{kind}_{path.replace('.', '_').replace('*', 'element')}"


class Captures:
    """The items of one walker in one version.

    `top` and `rows` are source text: expressions for the result, and for each array path those of its rows as (list
    number, expressions). Raises LookupError for an item without a default that the version lacks.
    """

    def __init__(self, message: Message, version: int, top: tuple[str, ...], rows: tuple[Rows, ...]) -> None:
        self._message = message
        self._version = version
        self._wanted: dict[str, set[str]] = {}
        self._defaults: dict[str, str] = {}
        self.top = [self._resolve(item, "") for item in top]
        self.rows: dict[str, list[tuple[int, list[str]]]] = {}
        for number, spec in enumerate(rows):
            if self._exists(spec.array):
                values = [self._resolve(item, spec.array) for item in spec.items]
                self.rows.setdefault(spec.array, []).append((number, values))

    def kinds(self, path: str) -> list[str]:
        """The kinds of capture of the field at `path`."""
        return sorted(self._wanted.get(path, ()))

    def default(self, kind: str, path: str) -> str:
        return self._defaults[variable(kind, path)]

    def touches(self, path: str) -> bool:
        """True if the field at `path`, or anything inside it, is captured."""
        return path in self.rows or any(name == path or name.startswith(f"{path}.") for name in self._wanted)

    def goes_into(self, path: str) -> bool:
        """True if anything in the elements of the array at `path` is captured."""
        return path in self.rows or any(name.startswith(f"{path}.") for name in self._wanted)

    def _resolve(self, text: str, array: str) -> str:
        item = _item(text)
        if item.names == ("*",):
            return "p" if item.kind == "end" else self._want(f"{array}.*", item)
        scope = array
        while True:
            for field in self._fields_of(scope):
                if field.name in item.names:
                    return self._want(f"{scope}.{field.name}".lstrip("."), item)
            if not scope:
                break
            scope = scope.rpartition(".")[0]
        if item.default is None:
            raise LookupError(f"{self._message.name} v{self._version} has no {text} and no default is given")
        return item.default

    def _want(self, path: str, item: _Item) -> str:
        self._wanted.setdefault(path, set()).add(item.kind)
        name = variable(item.kind, path)
        self._defaults[name] = item.default or "None"
        return name

    def _fields_of(self, path: str) -> list[Field]:
        fields = self._message.fields
        for name in filter(None, path.split(".")):
            fields = next(field.fields for field in fields if field.name == name)
        return [field for field in fields if self._version in field.versions]

    def _exists(self, path: str) -> bool:
        outer, _, name = path.rpartition(".")
        return (not outer or self._exists(outer)) and any(field.name == name for field in self._fields_of(outer))
