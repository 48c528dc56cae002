"""Importing engines costs nothing until one is named."""

from __future__ import annotations

import subprocess
import sys

import treerl.engines as engines


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_room_loads_no_heavy_library() -> None:
    heavy = "('torch', 'transformers', 'vllm', 'numpy')"
    code = f"import sys, treerl.engines; print([m for m in {heavy} if m in sys.modules])"
    assert python(code) == "[]"


def test_every_public_name_resolves_and_unknown_ones_do_not() -> None:
    assert engines.__all__ == sorted(engines.__all__)
    for name in engines.__all__:
        assert name in dir(engines)
        if not name.startswith("VLLM"):  # needs a library of its own
            assert getattr(engines, name) is not None
    assert not hasattr(engines, "GhostEngine")


def test_a_missing_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import treerl.engines\n"
        "from treerl.errors import MissingExtra\n"
        "try:\n    treerl.engines.HFEngine\n"
        "except MissingExtra as error:\n    print(error)"
    )
    assert python(code) == "the hf engine needs an optional part: pip install 'treerl[local]'"
