"""The words lab: word problems with known step truth, and a tiny policy that solves most of them.

Importing it loads neither torch nor transformers. The frozen policy is a folder for any engine::

    from treerl.lab import words

    problem = words.problems(1)[0]
    words.judge(problem, problem.solution()).first_error     # None
    AutoModelForCausalLM.from_pretrained(words.model_path())
"""

from pathlib import Path

from treerl.lab.words.problem import Quantity, WordsProblem
from treerl.lab.words.series import SPEC_SHA256, problems
from treerl.lab.words.truth import Truth, judge

__all__ = [
    "SPEC_SHA256",
    "Quantity",
    "Truth",
    "WordsProblem",
    "judge",
    "model_path",
    "problems",
]


def model_path() -> Path:
    """Return the folder of the frozen policy (weights, tokenizer, model card)."""
    return Path(__file__).resolve().parent / "model"
