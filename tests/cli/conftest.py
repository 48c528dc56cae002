"""Runs to look at: one by a scripted policy, and a tiny real model that writes noise."""

from __future__ import annotations

import inspect
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from treerl.cli.main import main
from treerl.engines import ByteTokenizer, Request, ScriptedEngine
from treerl.prm.pipeline import Labeler
from treerl.problem import Problem
from treerl.protocols import Leaf
from treerl.search.mcts import MCTSConfig
from treerl.search.sampling import Sampling
from treerl.steps import PlainSteps
from treerl.verdict import StepVerdict, Verdict

Treerl = Callable[..., "subprocess.CompletedProcess[str]"]
"""Runs the command with arguments."""


def adds(request: Request) -> str:
    """Add three numbers in two steps, slipping now and then: a function of the request alone."""
    question, _, done = ByteTokenizer().decode(request.prompt_ids).partition("\n")
    a, b, c = (int(word) for word in question.split() if word.isdigit())
    rng, lines = random.Random(request.seed), done.splitlines()
    x = int(lines[0].split()[-1]) if lines else a + b + (rng.random() < 0.3)
    y = int(lines[1].split()[-1]) if len(lines) > 1 else x + c - (rng.random() < 0.2)
    return "\n".join([f"{a} + {b} = {x}", f"{x} + {c} = {y}", f"Answer: {y}"][len(lines) :])


class Adder:
    """Judges "a + b = c"."""

    name = "test.adder/1"

    def verify(
        self, step: str, *, problem: str = "", previous_steps: Sequence[str] = ()
    ) -> StepVerdict:
        words = step.split()
        if len(words) != 5:
            return StepVerdict(Verdict.UNVERIFIABLE, "no_claim", verifier=self.name)
        if int(words[0]) + int(words[2]) == int(words[4]):
            return StepVerdict(Verdict.SUPPORTED, "equal", "partial", verifier=self.name)
        return StepVerdict(Verdict.REFUTED, "unequal", "exact", verifier=self.name)


def sums(count: int) -> list[Problem]:
    return [
        Problem.from_text(f"sum-{i}", f"What is {i} + {i + 3} + {2 * i} ?", str(4 * i + 3))
        for i in range(count)
    ]


def right(problem: Problem, text: str, leaf: Leaf) -> float:
    return float(text.split()[-1] == problem.answer)


def labeler(simulations: int = 16) -> Labeler:
    sampling = Sampling(max_tokens=100, steps=PlainSteps("\n"))
    config = MCTSConfig(simulations=simulations, sampling=sampling)
    return Labeler(reward=right, verifier=Adder(), search=config)


@pytest.fixture(scope="session")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of five problems."""
    out = tmp_path_factory.mktemp("runs") / "sums"
    labeler().run(sums(5), ScriptedEngine(adds), out)
    return out


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of some thousand random weights, with a tokenizer: it writes noise, but fast."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from treerl.lab.words.tokenizer import build_tokenizer

    torch.set_num_threads(1)  # so small a model only loses by sharing its work out
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tokenizer = build_tokenizer(["3 + 4 = 7.\nAnswer: 7\n"] * 8)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=1,
        max_position_embeddings=96,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def problem_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve sums as jsonl."""
    path = tmp_path_factory.mktemp("problems") / "sums.jsonl"
    rows = [{"id": p.id, "question": p.text, "answer": p.answer} for p in sums(12)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to stand in, with a module `mine`: an engine, a judge and a reward of one's own."""
    code = f"""
import random
from treerl.engines import ByteTokenizer, ScriptedEngine
from treerl.verdict import StepVerdict, Verdict

{inspect.getsource(adds)}
{inspect.getsource(Adder)}
{inspect.getsource(right)}
def engine(model=None, **arguments):
    made.append((model, arguments))
    return ScriptedEngine(adds)

made = []
adder = Adder()
number = 7
class Nameless:
    def __call__(self, problem, text, leaf): return 1.0
def fails(model=None): raise ValueError("the model is asleep")
def one(text): return 1.0
"""
    code = code.replace("Request", "object").replace("Sequence[str]", "object")
    code = code.replace("Problem", "object").replace("Leaf", "object")
    (tmp_path / "mine.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    yield tmp_path
    sys.modules.pop("mine", None)


def environment() -> dict[str, str]:
    return {**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1", "TERM": "dumb", "NO_COLOR": "1"}


@pytest.fixture
def quick(capfd: pytest.CaptureFixture[str]) -> Treerl:
    """The command in this process, which has loaded the libraries once and for all."""

    def call(*args: str | Path) -> subprocess.CompletedProcess[str]:
        command = [str(arg) for arg in args]
        capfd.readouterr()
        code = main(command)
        said = capfd.readouterr()
        return subprocess.CompletedProcess(command, code, said.out, said.err)

    return call


@pytest.fixture
def treerl(tmp_path: Path) -> Treerl:
    """The command as a user runs it, in a process and a folder of its own."""

    def call(*args: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "treerl.cli.main", *map(str, args)],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=280,
        )

    return call
