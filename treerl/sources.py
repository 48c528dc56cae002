"""Where rows come from: a file, a folder of files, or the Hugging Face hub.

Plain files in a folder are read here and not through ``datasets``, whose csv and json readers turn
text into numbers.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from treerl.errors import ProblemError
from treerl.readers import SUFFIXES, Row, Rows, read_rows

__all__ = ["open_source"]

_HUB_ID = re.compile(r"[\w.-]+(?:/[\w.-]+)?(?::[\w.-]+)?")
_SAVED = ("dataset_dict.json", "dataset_info.json")


def open_source(source: str | Path, split: str | None = None) -> tuple[str, str, Rows]:
    """Find the rows of a source.

    Args:
        source: A path or a hub id, "name:configuration" where it has several.
        split: Which split; a file has none.

    Returns:
        What to call the source in messages, the front part of ids, and its rows.

    Raises:
        ProblemError: There is no such source, or the split is not settled.
    """
    path = Path(source).expanduser()
    if path.is_file():
        if split is not None:
            raise ProblemError(
                f"a file has no split {split!r}", file=path, mend="leave the split out"
            )
        return str(path), _safe(path.stem), read_rows(path)
    if path.is_dir():
        if any((path / name).exists() for name in _SAVED):
            return _open_dataset(str(path), split, saved=True)
        return _open_folder(path, split)
    name = str(source)
    if path.suffix.lower() in SUFFIXES or not _HUB_ID.fullmatch(name) or path.is_absolute():
        raise ProblemError("there is no such file or folder", file=name)
    return _open_dataset(name, split, saved=False)


def _safe(stem: str) -> str:
    return "".join(c if c.isprintable() else "_" for c in stem) or "problem"


def _open_folder(folder: Path, split: str | None) -> tuple[str, str, Rows]:
    """Take the folder's data files of a split: "test.jsonl", "test-00000-of-00002.parquet"."""
    inner = [folder, folder / "data"]
    files = sorted(
        path
        for place in inner
        if place.is_dir()
        for path in place.iterdir()
        if path.suffix.lower() in SUFFIXES and path.is_file() and path.name[0] not in "._"
    )
    splits: dict[str, list[Path]] = {}
    for path in files:
        splits.setdefault(re.sub(r"-\d+-of-\d+$", "", path.stem), []).append(path)
    if not splits:
        raise ProblemError(
            "the folder holds no data file", file=folder, mend=f"known are {', '.join(SUFFIXES)}"
        )
    chosen = _choose(str(folder), list(splits), split)
    stem = chosen if len(splits[chosen]) == 1 else f"{folder.name}-{chosen}"
    rows = itertools.chain.from_iterable(map(read_rows, splits[chosen]))
    where = splits[chosen][0] if len(splits[chosen]) == 1 else folder / chosen
    return str(where), _safe(stem), rows


def _choose(source: str, splits: list[str], split: str | None) -> str:
    listed = ", ".join(splits)
    if split is None:
        if len(splits) == 1:
            return splits[0]
        raise ProblemError(f"there are several splits: {listed}", file=source, mend="choose one")
    if split not in splits:
        raise ProblemError(f"there is no split {split!r}", file=source, mend=f"there are: {listed}")
    return split


def _open_dataset(source: str, split: str | None, *, saved: bool) -> tuple[str, str, Rows]:
    """Open a data set through the ``datasets`` library."""
    import datasets

    name, _, config = (source, "", "") if saved else source.partition(":")
    try:
        if saved:
            opened = datasets.load_from_disk(name)
        else:
            opened = _load_from_hub(name, config or None)
    except Exception as error:  # whatever the library and the network may raise
        reason = str(error).strip().partition("\n")[0][:200]
        what = "the saved data set" if saved else "no such file or folder, and the hub data set"
        raise ProblemError(
            f"{what} cannot be loaded ({type(error).__name__}: {reason})",
            file=source,
            mend="check the name and the network, or give a path",
        ) from error
    splits = list(opened) if isinstance(opened, dict) else [split or str(opened.split or "train")]
    chosen = _choose(source, splits, split)
    table = opened[chosen] if isinstance(opened, dict) else opened
    return source, _safe(f"{Path(name).name}-{chosen}"), _dataset_rows(source, table)


def _load_from_hub(name: str, config: str | None) -> Any:
    """Open a hub data set as a stream; the cells of csv files stay text."""
    import datasets

    builder = datasets.load_dataset_builder(name, config)
    opened = datasets.load_dataset(name, config, streaming=True)
    if not any(kind.__name__ == "Csv" for kind in type(builder).__mro__):
        return opened
    columns = next(iter(next(iter(opened.values()))))
    text = datasets.Features({column: datasets.Value("string") for column in columns})
    return datasets.load_dataset(name, config, streaming=True, features=text, keep_default_na=False)


def _dataset_rows(source: str, table: Any) -> Rows:
    rows: Iterator[dict[str, Any]] = iter(table)
    for number in itertools.count(1):
        try:
            fields = next(rows)
        except StopIteration:
            return
        except Exception as error:  # a shard that cannot be fetched or parsed
            reason = str(error).strip().partition("\n")[0][:200]
            message = f"the data set breaks off ({reason})"
            raise ProblemError(message, file=source, line=number) from error
        yield Row(number, dict(fields))
