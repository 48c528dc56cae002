"""Set-up shared by all tests; fixtures of one room live in that room's own conftest."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]

# `python -m pytest` puts the root on sys.path, where `import verifiers` would find our folder
# instead of an installed package. treerl itself is installed and needs no path.
sys.path[:] = [entry for entry in sys.path if Path(entry or os.curdir).resolve() != ROOT]

# Before tokenizers and torch are imported: forks warn, and threads fight over two cores. The models
# of the tests are tiny; a second thread costs them more than it gives.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Tests name local files only; a hub that cannot be reached costs a time-out each.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# A loaded machine is no bug: the time of one example says nothing here.
settings.register_profile("treerl", parent=settings(), deadline=None)
settings.load_profile("treerl")


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of public data sets, read only."""
    value = os.environ.get("TREERL_DATA")
    if not value:
        pytest.skip("TREERL_DATA is not set: the folder of GSM8K/, MATH/, ProcessBench/, …")
    path = Path(value)
    if not path.is_dir():
        pytest.skip(f"TREERL_DATA names no folder: {path}")
    return path


# --- real engines: one session-wide fixture each, imported lazily, its users marked `engine` ---
# Those that only the contract tests need are in tests/engines/conftest.py; one that several rooms
# share belongs here, so that a session loads each model once.
