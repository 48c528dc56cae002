"""Files in, rows out: every format gives the same thing, one row at a time and in order.

A reader yields a :class:`Row`, or a :class:`~treerl.errors.ProblemError` for a row that cannot be
read, and goes on with the next one; it raises only where the whole file is of no use. Nothing is
read ahead beyond a buffer, so the first rows of a huge file are cheap.

Strings stay strings and numbers keep the text they were written in: a JSON ``1.0`` is
``Number("1.0")``, a csv cell ``007`` is ``"007"``. Bytes that are not UTF-8 become lone surrogates
here (the reader of the rows finds them and says which field they stand in).
"""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from treerl.errors import ProblemError
from treerl.rows import ItemLine, Number, Row, Rows

__all__ = ["SUFFIXES", "Number", "Row", "Rows", "read_rows"]

MAX_ROW_CHARS = 64 * 2**20
"""A longer row means that the file is not what its name says."""

_CHUNK = 2**16
_CUT_OFF = "the file looks cut off: fetch it again, or skip bad rows"
_NOTHING = "name a file that holds rows"


SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
"""The kinds of files that can be read."""

_DECODER = json.JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=Number)


def read_rows(path: Path) -> Rows:
    """Read a jsonl, json, csv, tsv or parquet file by the ending of its name.

    Args:
        path: The file.

    Raises:
        ProblemError: The file is missing, empty, or of no known kind.
    """
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        known = ", ".join(SUFFIXES)
        raise ProblemError("unknown kind of file", file=path, mend=f"the name must end in {known}")
    try:
        with path.open("rb") as stream:
            head = stream.read(4)
        if not head:
            raise ProblemError("the file is empty", file=path, mend=_NOTHING)
        if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise ProblemError("the file is UTF-16", file=path, mend="convert it to UTF-8")
        yield from reader(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ProblemError(f"the file cannot be read ({reason})", file=path) from error


def _open(path: Path) -> TextIO:
    # newline="\n": a line ends at \n alone, and a \r inside a quoted cell stays what it is.
    return path.open(encoding="utf-8-sig", errors="surrogateescape", newline="\n")


# --- JSON -----------------------------------------------------------------------------------------


def _read_jsonl(path: Path) -> Rows:
    with _open(path) as stream:
        is_list = _first_char(stream) == "["
    if is_list:
        yield from _read_json_list(path)
        return
    with _open(path) as stream:
        line = 0
        while text := stream.readline(MAX_ROW_CHARS + 1):
            line += 1
            if len(text) > MAX_ROW_CHARS:
                yield _too_long(path, line)
                while text and not text.endswith("\n"):
                    text = stream.readline(MAX_ROW_CHARS)
            elif text.strip():
                yield _json_row(path, line, text)


def _read_json(path: Path) -> Rows:
    with _open(path) as stream:
        first = _first_char(stream)
        # Many a .json file holds one object a line.
        head = "" if first == "[" else first + stream.readline(MAX_ROW_CHARS)
        is_lines = isinstance(_json_row(path, 1, head), Row) and _first_char(stream) != ""
    if first == "[":
        yield from _read_json_list(path)
        return
    if is_lines:
        yield from _read_jsonl(path)
        return
    with _open(path) as stream:
        whole = _json_row(path, 1, stream.read())
    yield from _rows_of_object(path, whole)


def _rows_of_object(path: Path, whole: Row | ProblemError) -> Rows:
    """Take an object's one list of objects for the rows, else the object itself for a row."""
    if isinstance(whole, ProblemError):
        raise whole
    lists = {
        key: value
        for key, value in whole.fields.items()
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value)
    }
    chats = [key for key, value in lists.items() if "role" in value[0]]
    if len(lists) > 1:
        names = ", ".join(map(repr, lists))
        raise ProblemError(
            f"the object holds several lists ({names})", file=path, mend="keep one list in the file"
        )
    if not lists or chats:
        yield whole
        return
    for number, item in enumerate(next(iter(lists.values())), start=1):
        yield Row(number, item)


def _first_char(stream: TextIO) -> str:
    """Read up to and with the first character that is not white space."""
    while (char := stream.read(1)).isspace():
        pass
    return char


def _json_row(path: Path, line: int, text: str) -> Row | ProblemError:
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        return _json_error(path, line, error, len(text.rstrip()))
    except RecursionError:
        return _too_deep(path, line)
    return _object_row(path, line, value)


def _object_row(path: Path, line: int, value: Any) -> Row | ProblemError:
    if not isinstance(value, dict):
        kinds: dict[type, str] = {list: "list", str: "string", Number: "number"}
        kind = kinds.get(type(value), "constant")
        return ProblemError(
            f"the row is a JSON {kind}", file=path, line=line, mend="a row must be an object"
        )
    return Row(line, value)


def _too_deep(path: Path, line: int) -> ProblemError:
    return ProblemError(
        "the JSON is nested too deeply",
        file=path,
        line=line,
        mend="no more than a few hundred levels of lists or objects can be read",
    )


def _json_error(path: Path, line: int, error: json.JSONDecodeError, length: int) -> ProblemError:
    if "\0" in error.doc:
        return ProblemError("the row holds NUL bytes", file=path, line=line, mend=_CUT_OFF)
    if error.pos >= length or error.msg.startswith("Unterminated string"):
        return ProblemError("the JSON breaks off", file=path, line=line, mend=_CUT_OFF)
    return ProblemError(
        f"not valid JSON ({error.msg} at column {error.colno})",
        file=path,
        line=line,
        mend="write one JSON object a line, with double quotes",
    )


def _read_json_list(path: Path) -> Rows:
    """Yield the items of one JSON list, holding one at a time."""
    with _open(path) as stream:
        cursor = _JsonCursor(stream)
        cursor.peek()
        before = cursor.line  # of the bracket, then of the end of the last item
        cursor.pos += 1
        if cursor.peek() == "]":
            raise ProblemError("the list is empty", file=path, mend=_NOTHING)
        for item in itertools.count(1):
            cursor.peek()
            line = ItemLine(cursor.line, item) if cursor.line == before else cursor.line
            try:
                value = cursor.value()
            except json.JSONDecodeError as error:
                # No later item can be found again once the brackets are lost.
                yield _json_error(path, line, error, len(error.doc.rstrip()))
                return
            except RecursionError:
                yield _too_deep(path, line)
                return
            yield _object_row(path, line, value)
            before = cursor.line
            char = cursor.peek()
            if char == "]":
                return
            if char != ",":
                what = "the list breaks off" if not char else f"',' or ']' is missing at {char!r}"
                at = line if cursor.line == line else cursor.line
                yield ProblemError(what, file=path, line=at, mend=_CUT_OFF)
                return
            cursor.pos += 1


class _JsonCursor:
    """A window that moves over a JSON text."""

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.buffer, self.pos, self.line, self.at_end = stream, "", 0, 1, False

    def peek(self) -> str:
        """Return the next character that is not white space, "" at the end."""
        while True:
            if self.pos == len(self.buffer):
                self._more()
                if self.at_end:
                    return ""
            char = self.buffer[self.pos]
            if not char.isspace():
                return char
            self.line += char == "\n"
            self.pos += 1

    def value(self) -> Any:
        """Read one value."""
        while True:
            try:
                value, end = _DECODER.raw_decode(self.buffer, self.pos)
            except json.JSONDecodeError:
                # Perhaps only the buffer's end: read on, doubling, so that the work stays linear.
                if self.at_end or len(self.buffer) - self.pos > MAX_ROW_CHARS:
                    raise
                self._more()
                continue
            if end == len(self.buffer) and not self.at_end:
                self._more()  # a number may go on
                continue
            self.line += self.buffer.count("\n", self.pos, end)
            self.pos = end
            return value

    def _more(self) -> None:
        new = self.stream.read(max(_CHUNK, len(self.buffer) - self.pos))
        self.buffer = self.buffer[self.pos :] + new
        self.pos = 0
        self.at_end = not new


# --- tables ---------------------------------------------------------------------------------------


def _read_csv(path: Path, delimiter: str = ",") -> Rows:
    with _open(path) as stream:
        # strict: a quote that is never closed is an error instead of one endless cell.
        reader = csv.reader(_bounded_lines(path, stream), delimiter=delimiter, strict=True)
        header: list[str] | None = None
        while True:
            line = reader.line_num + 1
            try:
                cells = _next_record(reader)
            except StopIteration:
                break
            except csv.Error as error:
                yield _csv_error(path, line, str(error))
                continue
            if not cells:
                continue
            if header is None:
                header = _check_header(path, cells)
            elif len(cells) != len(header):
                yield ProblemError(
                    f"the row has {len(cells)} cells, the header {len(header)}",
                    file=path,
                    line=line,
                    mend="put cells that hold the separator or a line break in double quotes",
                )
            else:
                yield Row(line, dict(zip(header, cells, strict=True)))
    if header is None:
        raise ProblemError("the file holds no header line", file=path)


def _next_record(reader: Iterator[list[str]]) -> list[str]:
    # The limit on cells is one for the whole process: lift it for the length of this call only.
    before = csv.field_size_limit(MAX_ROW_CHARS)
    try:
        return next(reader)
    finally:
        csv.field_size_limit(before)


def _bounded_lines(path: Path, stream: TextIO) -> Iterator[str]:
    for line in itertools.count(1):
        text = stream.readline(MAX_ROW_CHARS + 1)
        if not text:
            return
        if len(text) > MAX_ROW_CHARS:
            raise _too_long(path, line)
        yield text


def _check_header(path: Path, cells: list[str]) -> list[str]:
    if double := next((name for name in cells if cells.count(name) > 1), None):
        raise ProblemError(f"the header names {double!r} twice", file=path, line=1)
    return cells


def _csv_error(path: Path, line: int, message: str) -> ProblemError:
    mends = {
        "unexpected end of data": ("a quoted cell is never closed", _CUT_OFF),
        "new-line": ("a bare carriage return", "end lines with \\n, or put the cell in quotes"),
        "expected after": ("text follows a closing quote", "write a quote inside a cell twice"),
        "field larger": (f"a cell is longer than {MAX_ROW_CHARS:,} characters", "close its quotes"),
    }
    for key, (what, mend) in mends.items():
        if key in message:
            return ProblemError(what, file=path, line=line, mend=mend)
    return ProblemError(message, file=path, line=line)


def _too_long(path: Path, line: int) -> ProblemError:
    return ProblemError(
        f"the line is longer than {MAX_ROW_CHARS:,} characters",
        file=path,
        line=line,
        mend="is this the right file?",
    )


def _read_tsv(path: Path) -> Rows:
    return _read_csv(path, "\t")


def _read_parquet(path: Path) -> Rows:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches(batch_size=256):
                for fields in _records(batch):
                    number += 1
                    if isinstance(fields, Exception):
                        yield ProblemError(_one_line(fields), file=path, line=number)
                    else:
                        yield Row(number, fields)
    except pa.ArrowException as error:
        raise ProblemError(
            f"not a readable parquet file ({_one_line(error)})", file=path, mend=_CUT_OFF
        ) from error
    if number == 0:
        raise ProblemError("the file holds no row", file=path, mend=_NOTHING)


def _records(batch: Any) -> Iterator[dict[str, Any] | Exception]:
    """Turn a record batch into dicts, one bad value costing one row."""
    import numpy as np

    # Single-precision numbers as they were meant: 0.1, not 0.10000000149011612.
    narrow = {
        field.name: {"float": np.float32, "halffloat": np.float16}[str(field.type)]
        for field in batch.schema
        if str(field.type) in ("float", "halffloat")
    }
    for offset in range(batch.num_rows):
        try:
            fields: dict[str, Any] = batch.slice(offset, 1).to_pylist()[0]
        except (ValueError, OverflowError, KeyError) as error:
            yield error
            continue
        for name, kind in narrow.items():
            if fields[name] is not None:
                fields[name] = Number(kind(fields[name]))
        yield fields


def _one_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200]


_READERS: dict[str, Callable[[Path], Rows]] = {
    ".jsonl": _read_jsonl,
    ".ndjson": _read_jsonl,
    ".json": _read_json,
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".parquet": _read_parquet,
}
