"""TRL's own trainer takes the reward functions: two steps on the CPU, golds missing."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer
from treerl.integrations.trl import make_accuracy_reward, make_code_reward
from treerl.lab.words import model_path

torch.set_num_threads(1)
tokenizer = AutoTokenizer.from_pretrained(str(model_path()))
tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
rows = [
    {"prompt": "1 + 2 =", "solution": "3", "tests": "assert add(1, 2) == 3"},
    {"prompt": "1 + 1 =", "solution": None, "tests": None},
]
rewards = [make_accuracy_reward(), make_code_reward()]
trainer = GRPOTrainer(
    AutoModelForCausalLM.from_pretrained(str(model_path())),
    reward_funcs=rewards,
    args=GRPOConfig(
        output_dir="out", max_steps=2, per_device_train_batch_size=4, num_generations=2,
        max_completion_length=8, report_to=[], logging_steps=1, use_cpu=True, save_strategy="no",
    ),
    train_dataset=Dataset.from_list(rows * 2),
    processing_class=tokenizer,
)
trainer.train()
print("LOG " + json.dumps([trainer.state.log_history[0], *(r.stats.total for r in rewards)]))
"""


@pytest.mark.engine
@pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="TRL is not installed")
def test_two_steps_of_grpo(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (line,) = [text[4:] for text in done.stdout.splitlines() if text.startswith("LOG ")]
    log, answers, programs = json.loads(line)
    for name in ("accuracy_reward", "code_reward"):
        assert 0.0 <= log[f"rewards/{name}/mean"] <= 1.0  # a number, though half the rows are None
    assert log["accuracy_reward/gold_at_fault"] == log["code_reward/gold_at_fault"] == 0.5
    assert answers == programs == 4  # two steps of four completions, half of them without a gold
