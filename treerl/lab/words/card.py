"""The model card of the words policy, rendered from the measured figures."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

_CARD: Final = """\
---
license: apache-2.0
library_name: transformers
tags: [process-reward, toy-model]
---
# The words policy, version {version}

A Llama of {parameters:,} parameters ({weights} MB of bf16 weights) that solves arithmetic word
problems in plain steps. It is a laboratory animal: small enough for any CPU, and wrong often
enough, in known ways, that process labels can be measured against the truth. It knows nothing else.

    Tom has 12 apples. Then Tom buys 30 apples. Tom sells half of the apples. How many ...?
    Apples after buying: 12 + 30 = 42.
    Apples after selling half: 42 / 2 = 21.
    Answer: 21

## Use
A folder for `transformers` (`AutoModelForCausalLM`, `AutoTokenizer`), vLLM and TRL: plain Llama,
head dimension {head_dim}, context 1,024, byte-level BPE of {vocabulary} tokens, single digits,
specials `<pad> <bos> <eos> <extra_0> ... <extra_7>`. The prompt is `<bos>`, the question and a
newline, which is what the chat template makes of one user message; the solution ends with `<eos>`.
Problems and their truth: `treerl.lab.words.problems`, `treerl.lab.words.judge`.

## Measured
`python -m treerl.lab.words.evaluate --n {held_problems} --samples {samples_each} --seed {seed}` \
over {held_problems} held problems (PQ):

| | greedy | T = 1 |
|---|---|---|
{rows}

## Made
`python -m treerl.lab.words.train --seed {train_seed}`: {updates:,} updates of {batch} sequences in
{minutes} minutes on 2 CPU cores shared with other work. A first stage sees right solutions and bare
sums; from update {turn:,} on it is solutions of which {noise_percent} % (last value) have one error
(`noise.py`). Both template sets are in the training data; the held problems are not.

The run was adjusted while it ran; a new run follows the last row from the start, and so ends with
other weights than these (sha256 in `words.json`).

| from update | schedule length | share of bare sums | their operations | loss on | with errors |
|---|---|---|---|---|---|
{history}

Generator version {version}, spec sha256 `{spec_sha256}`:
change a text and the weights no longer fit it.
"""


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _rows(greedy: Mapping[str, Any], sampled: Mapping[str, Any]) -> str:
    def row(name: str, *keys: str) -> str:
        values: list[Any] = [greedy, sampled]
        for key in keys:
            values = [value[key] for value in values]
        cells = [f"{v}" if keys[0].startswith("mean") else _percent(v) for v in values]
        return f"| {name} | {cells[0]} | {cells[1]} |"

    kinds = [
        row(f"first errors: {kind}", "first_error_kinds", kind)
        for kind in greedy["first_error_kinds"]
    ]
    return "\n".join(
        [
            f"| solutions | {greedy['solutions']} | {sampled['solutions']} |",
            row("pass@1", "accuracy"),
            row("standard error of it", "standard_error"),
            row("pass@1, template set P", "accuracy_by_templates", "P"),
            row("pass@1, template set Q", "accuracy_by_templates", "Q"),
            row("no readable answer", "unparsed"),
            row("solutions with a wrong step", "with_wrong_step"),
            *kinds,
            row("right answers with a wrong step", "right_answers_with_wrong_step"),
            row("lines a solution", "mean_steps"),
            row("tokens a solution", "mean_tokens"),
        ]
    )


def _history(entries: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(
        f"| {entry['from_update']} | {entry['config']['updates']} "
        f"| {entry['config']['drill_share']} | `{' '.join(entry['config']['drill_ops'])}` "
        f"| {'results' if entry['config']['drill_results_only'] else 'whole lines'} "
        f"| {_percent(entry['rates']['error'])} |"
        for entry in entries
    )


def render_card(metrics: Mapping[str, Any]) -> str:
    """Return the card's Markdown; every figure in it comes from `metrics`."""
    training = metrics["training"][-1]["config"]
    return _CARD.format(
        version=metrics["version"],
        parameters=metrics["parameters"],
        weights=f"{metrics['weights_bytes'] / 1e6:.1f}",
        head_dim=training["hidden"] // training["heads"],
        vocabulary=metrics["vocabulary"],
        held_problems=metrics["held_problems"],
        samples_each=metrics["samples_each"],
        seed=metrics["seed"],
        rows=_rows(metrics["greedy"], metrics["t1"]),
        train_seed=training["seed"],
        updates=training["updates"],
        batch=training["batch"],
        minutes=metrics["training_minutes"],
        # Stages change between pools of batches (see `train._batches`).
        turn=int(training["updates"] * training["learn_share"])
        // training["pool"]
        * training["pool"],
        noise_percent=round(100 * metrics["training"][-1]["rates"]["error"]),
        history=_history(metrics["training"]),
        spec_sha256=metrics["spec_sha256"],
    )
