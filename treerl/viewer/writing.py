"""Where a page goes, and its writing."""

from __future__ import annotations

from pathlib import Path

from treerl.errors import ConfigError, StoreError
from treerl.treefile import replace_file
from treerl.viewer.document import page_html
from treerl.viewer.source import PageTrees

__all__ = ["default_path", "write_page"]


def default_path(source: str | Path) -> Path:
    """Return ``view.html`` in a run folder, and the same name with ``.html`` beside a file."""
    path = Path(source)
    return path.with_suffix(".html") if path.is_file() else path / "view.html"


def write_page(trees: PageTrees, out: str | Path, *, force: bool = False) -> int:
    """Write the page, by rename, and return its size in bytes.

    Raises:
        ConfigError: The file exists and ``force`` is not given, or it is a folder.
        StoreError: It cannot be written.
    """
    path = Path(out)
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; name a file, such as {path / 'view.html'}")
    if path.exists() and not force:
        raise ConfigError(f"{path} exists; name another file, or replace it with --force")
    content = page_html(trees.to_json()).encode()
    try:
        replace_file(path, lambda part: _write(part, content))
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error
    return len(content)


def _write(part: Path, content: bytes) -> None:
    part.write_bytes(content)
