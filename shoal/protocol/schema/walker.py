"""Walkers: functions generated from the schema tables, one per message and version, that find the captured fields.

A walker is `walk(buf, pos, end) -> tuple`: the captured values of the top level, then one list of rows per captured
array (see captures.py). It never builds a message and skips other fields, so its cost depends on the number of
partitions, not on bytes.

Each rule against hostile bytes is written once, here. A length below -1 is refused, so `p` never moves backwards. `p`
is compared with `end` after every variable-size field and in every loop iteration, so no result is outside the frame. A
count larger than the bytes left, or than `MAX_ROWS` where rows are built, is refused before the first iteration. Tags
must ascend where one is captured (KIP-482), so a field cannot occur twice. Every exception that a damaged frame causes
becomes `RemoteProtocolError` in one place. Rejected: decoding with a schema library (copies record sets, drops unknown
tags), and hand-written walkers (each must get every rule right).
"""

from collections.abc import Callable
from dataclasses import replace
from struct import Struct
from struct import error as struct_error
from typing import Any, Final, TypeAlias

from shoal.protocol.schema.captures import Captures, Rows, variable
from shoal.protocol.schema.language import FIXED_SIZES, Field, Message
from shoal.protocol.wire.errors import RemoteProtocolError, UnsupportedVersion
from shoal.protocol.wire.types import UVARINT_BYTES, Buffer, skip_tagged_fields

__all__ = ["MAX_ROWS", "Rows", "Walk", "Walkers"]

Walk: TypeAlias = Callable[[Buffer, int, int], tuple[Any, ...]]

MAX_ROWS: Final = 500_000
"""Elements of one captured array, over all its parents. A row takes some 200 bytes, an element as little as one, so a
frame of 100 MB could fill 20 GB. A broker leads far fewer partitions; a cluster has fewer topics."""

_CODES: Final = {"bool": "b", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "int64": "q", "uuid": "16s"}
_LEGACY_LENGTH: Final = {
    "string": ("_int16", 2),
    "bytes": ("_int32", 4),
    "records": ("_int32", 4),
    "array": ("_int32", 4),
}


class Walkers(dict[int, Walk]):
    """`walkers[version]` is the walker of that version, generated on first use (0.3 ms) and cached.

    Raises `UnsupportedVersion` for a version that is not in the table or below `oldest`. With `to_end`, bytes after the
    last field are refused; without it the walk stops after the last captured field.
    """

    def __init__(
        self, message: Message, top: tuple[str, ...] = (), *rows: Rows, oldest: int = 0, to_end: bool = True
    ) -> None:
        super().__init__()
        self._message = message
        self._top = top
        self._rows = rows
        self._oldest = max(oldest, message.versions.low)
        self._to_end = to_end

    def __missing__(self, version: int) -> Walk:
        if not self._oldest <= version <= self._message.versions.high:
            known = f"{self._oldest}-{self._message.versions.high}"
            raise UnsupportedVersion(f"{self._message.name} version {version}: only {known} can be read")
        captures = Captures(self._message, version, self._top, self._rows)
        walk = _Generator(self._message, version, captures).generate(self._rows, to_end=self._to_end)
        self[version] = walk
        return walk


def _more(buf: Buffer, p: int, first: int) -> tuple[int, int]:
    """The rest of an unsigned varint whose `first` byte (its low seven bits count) has the continuation bit."""
    value = first & 0x7F
    for shift in range(7, 7 * UVARINT_BYTES, 7):
        byte = buf[p]
        p += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, p
    raise RemoteProtocolError(f"a varint before {p} does not end within {UVARINT_BYTES} bytes")


class _Generator:
    """Writes the source of one walker. `p` is the cursor, `n` the last length or count read."""

    def __init__(self, message: Message, version: int, captures: Captures) -> None:
        self._message = message
        self._version = version
        self._captures = captures
        self._flexible = version in message.flexible
        self._lines: list[str] = []
        self._depth = 2
        self._names: dict[str, Any] = {
            "Bad": RemoteProtocolError,
            "_damage": (IndexError, struct_error, UnicodeDecodeError),
            "_int16": Struct(">h").unpack_from,
            "_int32": Struct(">i").unpack_from,
            "_make": tuple.__new__,
            "_more": _more,
            "_skip_tags": skip_tagged_fields,
        }

    def generate(self, rows: tuple[Rows, ...], *, to_end: bool) -> Walk:
        self._names |= {f"_row{number}": spec.row for number, spec in enumerate(rows)}
        self._struct(self._message.fields if to_end else self._until_last_wanted(), "", tags=to_end)
        self._refuse_if("p != end" if to_end else "p > end", "does not end where the frame ends")
        results = [*self._captures.top, *(f"rows{number}" for number in range(len(rows)))]
        self._emit(f"return ({''.join(f'{result}, ' for result in results)})")
        return self._compile(len(rows))

    def _compile(self, lists: int) -> Walk:
        label = f"{self._message.name} v{self._version}"
        head = ["def walk(buf, p, end):", "    try:"]
        for number in range(lists):
            head.append(f"        rows{number} = []; add{number} = rows{number}.append")
        tail = ["    except _damage as error:", f"        raise Bad('{label} is cut short or damaged') from error"]
        source = "\n".join(head + self._lines + tail)
        exec(compile(source, f"<walker of {label}>", "exec"), self._names)
        walk: Walk = self._names["walk"]
        return walk

    def _until_last_wanted(self) -> tuple[Field, ...]:
        fields = self._message.fields
        hits = [index for index, field in enumerate(fields) if self._captures.touches(field.name)]
        return fields[: max(hits, default=-1) + 1]

    # Source lines.

    def _emit(self, line: str) -> None:
        self._lines.append("    " * self._depth + line)

    def _refuse_if(self, condition: str, what: str) -> None:
        self._emit(f"if {condition}: raise Bad(f'{self._message.name} v{self._version}: {what} (at {{p}} of {{end}})')")

    def _assign(self, kind: str, path: str, expression: str) -> None:
        if kind in self._captures.kinds(path):
            self._emit(f"{variable(kind, path)} = {expression}")

    def _uvarint(self, name: str, inline: bool = False) -> None:
        """`inline`: two- and three-byte varints without a call, for the lengths of record sets."""
        self._emit(f"{name} = buf[p]; p += 1")
        if not inline:
            self._emit(f"if {name} > 127: {name}, p = _more(buf, p, {name})")
            return
        self._emit(f"if {name} > 127:")
        self._emit(f"    {name} += (buf[p] << 7) - 128; p += 1")
        self._emit(f"    if {name} > 16383:")
        self._emit(f"        {name} += (buf[p] << 14) - 16384; p += 1")
        self._emit(f"        if {name} > 2097151:")
        self._emit(f"            {name}, p = _more(buf, p - 2, {name})")

    def _length(self, kind: str, what: str, flexible: bool) -> None:
        """`n` = the length or count of a variable-size field; -1 = null."""
        if flexible:
            self._uvarint("n", inline=kind == "records")
            self._emit("n -= 1")
            return
        unpack, size = _LEGACY_LENGTH[kind]
        self._emit(f"n, = {unpack}(buf, p); p += {size}")
        self._refuse_if("n < -1", f"{what} has a negative length")

    # One method for each kind of field.

    def _struct(self, fields: tuple[Field, ...], path: str, *, tags: bool = True) -> None:
        present = [field for field in fields if self._version in field.versions]
        run: list[Field] = []
        for field in present:
            if field.tag is not None:
                continue
            if not field.is_array and field.type in FIXED_SIZES:
                run.append(field)
                continue
            self._fixed(run, path)
            run = []
            self._variable_field(field, f"{path}.{field.name}".lstrip("."))
        self._fixed(run, path)
        if self._flexible and tags:
            self._tagged([field for field in present if field.tag is not None], path)

    def _fixed(self, run: list[Field], path: str) -> None:
        """A run of fixed-size fields: one unpack for those that are captured, one step over the others."""
        layout, targets, size = ">", "", 0
        for field in run:
            name = f"{path}.{field.name}".lstrip(".")
            self._assign("at", name, f"p + {size}")
            wanted = "value" in self._captures.kinds(name)
            layout += _CODES[field.type] if wanted else f"{FIXED_SIZES[field.type]}x"
            targets += f"{variable('value', name)}, " if wanted else ""
            size += FIXED_SIZES[field.type]
        if targets:
            unpack = f"_unpack{len(self._names)}"
            self._names[unpack] = Struct(layout).unpack_from
            self._emit(f"{targets}= {unpack}(buf, p)")
        if size:
            self._emit(f"p += {size}")

    def _variable_field(self, field: Field, path: str) -> None:
        if field.is_array:
            self._array(field, path)
        elif field.type == "struct":
            self._struct(field.fields, path)
        else:
            self._bytes(field, path)

    def _bytes(self, field: Field, path: str) -> None:
        self._assign("at", path, "p")
        self._length(field.type, path, self._flexible and not field.never_flexible)
        self._assign("start", path, "p")
        value = variable("value", path)
        wanted = "value" in self._captures.kinds(path)
        if wanted:
            self._emit(f"q = p; {value} = None")
        self._emit("if n > 0: p += n")
        self._refuse_if("p > end", f"{path} runs past the end")
        self._assign("end", path, "p")
        if wanted:
            self._emit(f"if n >= 0: {value} = str(buf[q:p], 'utf-8')")
            if self._version not in field.nullable:
                self._refuse_if("n < 0", f"{path} may not be null")

    def _array(self, field: Field, path: str) -> None:
        self._assign("at", path, "p")
        self._length("array", path, self._flexible)
        self._assign("count", path, "n if n > 0 else 0")
        self._assign("start", path, "p")
        self._emit("if n > 0:")
        self._depth += 1
        self._refuse_if("n > end - p", f"{path} has more elements than bytes are left")
        size = None if self._captures.goes_into(path) else self._element_size(field)
        if size is None:
            self._loop(field, path)
        else:
            self._emit(f"p += n * {size}")
            self._refuse_if("p > end", f"{path} runs past the end")
        self._depth -= 1
        self._assign("end", path, "p")

    def _loop(self, field: Field, path: str) -> None:
        for number, _ in self._captures.rows.get(path, ()):
            self._refuse_if(f"len(rows{number}) + n > {MAX_ROWS}", f"{path} has more than {MAX_ROWS} elements")
        self._emit("for _ in range(n):")
        self._depth += 1
        self._element(field, path)
        self._refuse_if("p > end", f"{path} runs past the end")
        for number, values in self._captures.rows.get(path, ()):
            row = f"({''.join(f'{value}, ' for value in values)})"
            made = row if self._names[f"_row{number}"] is tuple else f"_make(_row{number}, {row})"
            self._emit(f"add{number}({made})")
        self._depth -= 1

    def _element(self, field: Field, path: str) -> None:
        self._assign("start", f"{path}.*", "p")
        element = replace(field, name="*", is_array=False)
        if field.type in FIXED_SIZES:
            self._fixed([element], path)
        else:
            self._variable_field(element, path if field.type == "struct" else f"{path}.*")

    def _element_size(self, field: Field) -> int | None:
        """Bytes per element, or None when elements differ in size."""
        if field.type != "struct":
            return FIXED_SIZES.get(field.type)
        if self._flexible:
            return None
        present = [inner for inner in field.fields if self._version in inner.versions]
        if any(inner.is_array or inner.type not in FIXED_SIZES for inner in present):
            return None
        return sum(FIXED_SIZES[inner.type] for inner in present)

    def _tagged(self, fields: list[Field], path: str) -> None:
        named = {f"{path}.{field.name}".lstrip("."): field for field in fields}
        wanted = {name: field for name, field in named.items() if self._captures.touches(name)}
        if not wanted:
            self._emit("if buf[p]: p = _skip_tags(buf, p, end)")
            self._emit("else: p += 1")
            return
        for name in wanted:
            for kind in self._captures.kinds(name):
                self._assign(kind, name, self._captures.default(kind, name))
        self._uvarint("tags")
        self._emit("last = -1")
        self._emit("for _ in range(tags):")
        self._depth += 1
        self._tag(wanted)
        self._depth -= 1

    def _tag(self, wanted: dict[str, Field]) -> None:
        self._uvarint("tag")
        self._refuse_if("tag <= last", "tags do not ascend")
        self._emit("last = tag; size_at = p")
        self._uvarint("n")
        self._emit("begin = p; stop = p + n")
        self._refuse_if("stop > end", "a tagged field runs past the end")
        for name, field in wanted.items():
            self._emit(f"if tag == {field.tag}:")
            self._depth += 1
            self._variable_field(field, name)
            self._refuse_if("p != stop", f"{name} does not fill its tagged field")
            for kind, position in (("at", "size_at"), ("start", "begin"), ("end", "stop")):
                self._assign(kind, name, position)
            self._depth -= 1
        self._emit("p = stop")
