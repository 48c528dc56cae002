"""What the writer and the reader of run folders share: records, checks and JSON files."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from treerl.errors import StoreError, StoreMismatch
from treerl.tree import Tree
from treerl.treefile import replace_file, tree_from_record, tree_to_record

__all__ = [
    "DAMAGE",
    "RUN_SCHEMA",
    "ProblemResult",
    "check_same",
    "index_of",
    "is_finished",
    "json_line",
    "read_json",
    "refuse_strangers",
    "short_json",
    "write_json",
]

RUN_SCHEMA = "treerl.run/1"


@dataclass(frozen=True, slots=True)
class ProblemResult:
    """Everything a run knows about one problem.

    Attributes:
        index: Position of the problem in the input; decides its place in the shards.
        tree: Its tree, None where the problem failed before it had one.
        labels, conflicts, failures: JSON objects, written as they are.
        volatile: JSON object of times and cache counts.
    """

    index: int
    tree: Tree | None
    labels: list[dict[str, Any]] = field(default_factory=list)
    conflicts: list[dict[str, Any]] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)
    volatile: dict[str, Any] = field(default_factory=dict)

    def to_line(self) -> bytes:
        """Return the journal line, newline included."""
        record = {
            "index": self.index,
            "tree": None if self.tree is None else tree_to_record(self.tree),
            "labels": self.labels,
            "conflicts": self.conflicts,
            "failures": self.failures,
            "volatile": self.volatile,
        }
        return json_line(record)

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        """Restore a result from :meth:`to_line`.

        Raises:
            StoreError: The line is damaged.
        """
        record = json.loads(line)
        tree = record["tree"]
        try:
            return cls(**{**record, "tree": None if tree is None else tree_from_record(tree)})
        except DAMAGE as error:
            index = record.get("index")
            raise StoreError(
                f"the journal's line of problem {index} is damaged ({error!r}); remove the line, "
                "and the problem is done again"
            ) from error


DAMAGE = (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError)
"""What a record that somebody changed raises where it is read."""

_RESULT_FIELDS = {f.name for f in fields(ProblemResult)}
_RECORD_LISTS = ("labels", "conflicts", "failures")


def refuse_strangers(path: Path) -> None:
    """Refuse a folder of something else before anything in it is touched."""
    if (path / "manifest.json").exists():
        return
    lock = path / "LOCK"
    strangers = [p.name for p in path.iterdir() if p.name != "LOCK"]
    if lock.exists() and not (lock.is_file() and lock.read_bytes()[:8] in (b"", b"process ")):
        strangers.append("LOCK")
    # A killed first start can leave a part of its own manifest.
    strangers = [
        n for n in strangers if not (n.startswith(".manifest.json.") and n[-5:] == ".part")
    ]
    if strangers:
        raise StoreMismatch(
            f"{path} is not empty and no run folder (it holds '{strangers[0]}'); "
            "choose a new folder"
        )


def is_finished(path: Path) -> bool:
    """Say whether a run is whole; a damaged summary is an error, not an unfinished run."""
    summary = path / "summary.json"
    if not summary.exists():
        return False
    if "problems" not in read_json(summary):
        raise StoreError(f"{summary} is damaged: it does not say how many problems there are")
    return True


def index_of(line: bytes, count: int | None = None) -> int | None:
    """Return a journal line's problem index, None for a torn or damaged line."""
    if not line.endswith(b"\n"):
        return None
    try:
        record = json.loads(line)
        index = record["index"]
        whole = set(record) == _RESULT_FIELDS and type(index) is int and _is_typed(record)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return index if whole and 0 <= index < (index + 1 if count is None else count) else None


def _is_typed(record: dict[str, Any]) -> bool:
    lists = [record[name] for name in _RECORD_LISTS]
    return (
        all(isinstance(rows, list) and all(isinstance(row, dict) for row in rows) for rows in lists)
        and isinstance(record["volatile"], dict)
        and isinstance(record["tree"], dict | None)
    )


def check_same(old: dict[str, Any], new: dict[str, Any], path: Path) -> None:
    """Refuse a folder of another run; the message names the first parameter that differs."""
    if old.get("schema") != new["schema"]:
        raise StoreMismatch(
            f"{path} has schema {old.get('schema')!r}, this treerl writes {new['schema']!r}; "
            "choose a new folder"
        )
    found = _difference(old, new)
    if found is not None:
        key, there, now = found
        raise StoreMismatch(
            f"{path} belongs to another run: '{key}' is {short_json(there)} there and "
            f"{short_json(now)} "
            "now; choose a new folder, or repeat the run's own options"
        )


def _difference(old: Any, new: Any, key: str = "") -> tuple[str, Any, Any] | None:
    """Return the first place where two JSON objects differ, as a dotted key, with both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}):
            inner = f"{key}.{name}" if key else name
            found = _difference(old.get(name), new.get(name), inner)
            if found is not None:
                return found
        return None
    return None if old == new else (key, old, new)


def short_json(value: Any) -> str:
    """Return a JSON value in at most 80 characters."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "a deep nest"
    return text if len(text) <= 80 else text[:79] + "…"


def json_line(record: dict[str, Any]) -> bytes:
    """Return a JSON object as one line of UTF-8."""
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "surrogatepass") + b"\n"


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON object by rename, keys in order."""
    text = json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True) + "\n"
    replace_file(path, lambda part: _write_text(part, text))


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        StoreError: The file is missing, damaged or holds something else.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
    except RecursionError as error:
        raise StoreError(f"{path} cannot be read: its JSON is nested too deeply") from error
    if not isinstance(value, dict):
        raise StoreError(f"{path} holds no JSON object")
    return value
