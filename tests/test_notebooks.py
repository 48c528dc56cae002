"""Every notebook runs from top to bottom, and is committed small and as it was run."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MAX_BYTES = 200_000


@pytest.mark.engine
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_it_runs(path: Path, tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=240, kernel_name="python3", resources=where).execute()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_it_is_small_and_was_run(path: Path) -> None:
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    assert path.stat().st_size < MAX_BYTES
    text = path.read_text()
    assert '"output_type": "error"' not in text
    assert "site-packages" not in text, "a warning with a machine's path"
    counts = [c.execution_count for c in notebook.cells if c.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1)), "run it from top to bottom and save it"
