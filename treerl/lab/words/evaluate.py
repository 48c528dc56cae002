"""Measure the words policy on held problems; write `metrics.json` and `MODEL_CARD.md`.

    python -m treerl.lab.words.evaluate [--model DIR] [--n 500] [--samples 4] [--seed 0]

The model card is rendered from `metrics.json` alone, so that no figure in it can be stale.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from treerl.lab.words import model_path
from treerl.lab.words.card import render_card
from treerl.lab.words.problem import WordsProblem
from treerl.lab.words.series import problems
from treerl.lab.words.truth import Kind, judge

BATCH: Final = 125
MAX_NEW_TOKENS: Final = 200
KINDS: Final[tuple[Kind, ...]] = ("slip", "operation", "operand", "answer", "format")


def load(folder: Path) -> tuple[Any, Any]:
    """Load model (float32, evaluation mode) and tokenizer from a local folder."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.eval(), tokenizer


def complete(
    model: Any,
    tokenizer: Any,
    asked: Sequence[WordsProblem],
    *,
    temperature: float,
    seed: int = 0,
) -> list[tuple[str, int]]:
    """Write one solution for each problem.

    Args:
        model: A causal language model of `transformers`.
        tokenizer: Its tokenizer, padding on the left.
        asked: The problems.
        temperature: 0 is greedy.
        seed: Of torch's generator; sampling also depends on the order of the problems.

    Returns:
        For each problem the text and the number of its tokens, the end token included.
    """
    torch.manual_seed(seed)
    results: list[tuple[str, int]] = []
    for first in range(0, len(asked), BATCH):
        prompts = [
            tokenizer.apply_chat_template([{"role": "user", "content": p.question}], tokenize=False)
            for p in asked[first : first + BATCH]
        ]
        inputs = tokenizer(prompts, add_special_tokens=False, padding=True, return_tensors="pt")
        how = {"temperature": temperature, "top_k": 0} if temperature > 0 else {}
        with torch.inference_mode():
            output = model.generate(
                input_ids=inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                max_new_tokens=MAX_NEW_TOKENS,
                do_sample=temperature > 0,
                **how,
            )
        for row in output[:, inputs["input_ids"].shape[1] :].tolist():
            end = row.index(tokenizer.eos_token_id) if tokenizer.eos_token_id in row else len(row)
            ids = row[:end]
            results.append((tokenizer.decode(ids), min(end + 1, len(row))))
    return results


def measure(asked: Sequence[WordsProblem], written: Sequence[tuple[str, int]]) -> dict[str, Any]:
    """Judge solutions and count.

    Returns:
        accuracy (pass@1) with its standard error over problems' solutions, accuracy by template
        set, kinds of first errors (shares), share of right answers with a wrong step, share of
        wrong answers without a wrong step (none but unfinished ones), mean steps and tokens.
    """
    kinds: Counter[str] = Counter()
    right: list[bool] = []
    right_but_wrong_step = unparsed = steps = 0
    by_set: dict[str, list[bool]] = {"P": [], "Q": []}
    for problem, (text, _) in zip(asked, written, strict=True):
        truth = judge(problem, text)
        right.append(truth.final is True)
        by_set[problem.templates].append(truth.final is True)
        unparsed += truth.final is None
        steps += len(truth.verdicts)
        if truth.kind is not None:
            kinds[truth.kind] += 1
            right_but_wrong_step += truth.final is True
    n, errors = len(right), sum(kinds.values())
    accuracy = sum(right) / n
    return {
        "solutions": n,
        "accuracy": round(accuracy, 4),
        "standard_error": round((accuracy * (1 - accuracy) / n) ** 0.5, 4),
        "accuracy_by_templates": {
            name: round(sum(hits) / max(1, len(hits)), 4) for name, hits in by_set.items()
        },
        "unparsed": round(unparsed / n, 4),
        "with_wrong_step": round(errors / n, 4),
        "first_error_kinds": {kind: round(kinds[kind] / max(1, errors), 4) for kind in KINDS},
        "right_answers_with_wrong_step": round(right_but_wrong_step / max(1, sum(right)), 4),
        "mean_steps": round(steps / n, 2),
        "mean_tokens": round(sum(length for _, length in written) / n, 1),
    }


def evaluate(folder: Path, *, n: int, samples: int, seed: int) -> dict[str, Any]:
    """Return the metrics of the model in `folder` over the first `n` held problems."""
    training = json.loads((folder / "words.json").read_text(encoding="utf-8"))
    model, tokenizer = load(folder)
    asked = problems(n)
    began = time.monotonic()
    greedy = measure(asked, complete(model, tokenizer, asked, temperature=0.0))
    sampled: list[tuple[str, int]] = []
    for number in range(samples):
        sampled += complete(model, tokenizer, asked, temperature=1.0, seed=seed + number)
    return {
        "version": training["version"],
        "spec_sha256": training["spec_sha256"],
        "parameters": training["parameters"],
        "vocabulary": len(tokenizer),
        "weights_bytes": (folder / "model.safetensors").stat().st_size,
        "training_minutes": training["training_minutes"],
        "training": training["history"],
        "held_problems": n,
        "samples_each": samples,
        "seed": seed,
        "greedy": greedy,
        "t1": measure(asked * samples, sampled),
        "evaluation_seconds": round(time.monotonic() - began, 1),
    }


def main(argv: list[str] | None = None) -> None:
    """Measure, write metrics and card into the model folder, print the metrics."""
    parser = argparse.ArgumentParser(prog="python -m treerl.lab.words.evaluate")
    parser.add_argument("--model", type=Path, default=model_path())
    parser.add_argument("--n", type=int, default=500, help="held problems")
    parser.add_argument("--samples", type=int, default=4, help="samples at T=1 for each problem")
    parser.add_argument("--seed", type=int, default=0, help="seed of the samples")
    args = parser.parse_args(argv)
    metrics = evaluate(args.model, n=args.n, samples=args.samples, seed=args.seed)
    text = json.dumps(metrics, indent=2)
    (args.model / "metrics.json").write_text(text + "\n", encoding="utf-8")
    (args.model / "MODEL_CARD.md").write_text(render_card(metrics), encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
