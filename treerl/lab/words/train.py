"""Train the words policy on a CPU.

    python -m treerl.lab.words.train --out DIR [--updates N] [--minutes N] [--seed 0]

Two stages under one cosine schedule. First right solutions and bare sums, until the policy has
learned to calculate; then solutions with the errors of `noise.py`, so that its samples at T=1 go
wrong in the ways the laboratory needs. Equal seeds give equal batches; the run leaves a checkpoint
every `CHECKPOINT_EVERY` updates and the same command goes on from it. `DIR` receives a plain Llama
in bf16 safetensors with its tokenizer, for `transformers`, vLLM and TRL alike.
"""

import argparse
import hashlib
import json
import logging
import random
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch
from transformers import (
    AutoTokenizer,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from treerl.lab.words.noise import NoiseRates, drill, write_solution
from treerl.lab.words.problem import Op
from treerl.lab.words.series import SPEC_SHA256, problem
from treerl.lab.words.templates import VERSION
from treerl.lab.words.tokenizer import CONTEXT, build_tokenizer, save_tokenizer

log = logging.getLogger("treerl.lab.words.train")

CHECKPOINT: Final = "checkpoint.pt"
CHECKPOINT_EVERY: Final = 100
TOKENIZER_PROBLEMS: Final = 6000
IGNORED: Final = -100


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """Everything a run depends on; saved beside the weights.

    Attributes:
        updates: Number of optimizer updates.
        batch: Sequences an update.
        pool: Batches drawn at once and bucketed by length.
        learn_share: Share of the updates that belong to the first stage, without errors.
        drill_share: Share of bare-sum exercises in the first stage.
        drill_results_only: No loss on the operands, which cannot be predicted.
        peak_lr: Learning rate after `warmup` updates, falling by a cosine to `final_lr`.
        threads: CPU threads.
    """

    seed: int = 0
    updates: int = 5500
    batch: int = 32
    pool: int = 16
    learn_share: float = 0.73
    drill_share: float = 0.5
    drill_lines: int = 8
    drill_ops: tuple[Op, ...] = ("+", "-", "-")
    drill_highs: tuple[int, ...] = (99, 99, 99, 99, 300)
    drill_results_only: bool = True
    peak_lr: float = 3e-3
    final_lr: float = 5e-5
    warmup: int = 100
    weight_decay: float = 0.01
    clip: float = 1.0
    hidden: int = 192
    intermediate: int = 576
    layers: int = 4
    heads: int = 6
    threads: int = 2


def build_model(config: TrainConfig, tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Return an untrained Llama whose head dimension (32) vLLM's CPU kernels accept."""
    torch.manual_seed(config.seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=config.hidden,
            intermediate_size=config.intermediate,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.heads,
            head_dim=config.hidden // config.heads,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=True,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


def train_tokenizer(seed: int) -> PreTrainedTokenizerFast:
    """Build the tokenizer from the first problems of the training series."""
    rng = random.Random(f"words tokenizer|{seed}")
    drawn = (problem(i, split="train", seed=seed) for i in range(TOKENIZER_PROBLEMS))
    texts = [f"{p.question}\n{write_solution(p, rng).text}" for p in drawn]
    for _ in range(200):
        question, lines = drill(rng, 8, ("+", "-", "*", "/"))
        texts.append(question + "\n" + "".join(shown + result for shown, result in lines))
    return build_tokenizer(texts)


Example = tuple[list[int], list[int]]
"""Token ids of a whole sequence, and its labels: the same ids, or `IGNORED` where no loss is."""


def _examples(
    config: TrainConfig, tokenizer: PreTrainedTokenizerFast, first: int, n: int, noisy: bool
) -> list[Example]:
    """Write the examples `first .. first + n - 1` of the training stream."""
    rates = NoiseRates() if noisy else NoiseRates().without_errors()
    examples: list[Example] = []
    for index in range(first, first + n):
        rng = random.Random(f"words train|{config.seed}|{index}")
        if not noisy and rng.random() < config.drill_share:
            question, lines = drill(rng, config.drill_lines, config.drill_ops, config.drill_highs)
            pieces = [
                (text, learned or not config.drill_results_only)
                for shown, result in lines
                for text, learned in ((shown, False), (result, True))
            ]
        else:
            told = problem(index, split="train", seed=config.seed)
            question = told.question
            pieces = [(write_solution(told, rng, rates).text, True)]
        turn = [{"role": "user", "content": question}]
        pieces.insert(0, (tokenizer.apply_chat_template(turn, tokenize=False), False))
        encoded = tokenizer([text for text, _ in pieces], add_special_tokens=False)["input_ids"]
        ids: list[int] = []
        labels: list[int] = []
        for piece, (_, learned) in zip(encoded, pieces, strict=True):
            ids += piece
            labels += piece if learned else [IGNORED] * len(piece)
        examples.append(([*ids, tokenizer.eos_token_id], [*labels, tokenizer.eos_token_id]))
    return examples


def _batches(
    config: TrainConfig, tokenizer: PreTrainedTokenizerFast, start: int
) -> Iterator[tuple[Any, Any]]:
    """Yield (input ids, labels), int64 of shape (batch, longest), from update `start` on."""
    pad = tokenizer.pad_token_id
    turn = int(config.updates * config.learn_share) // config.pool
    for pool in range(start // config.pool, -(-config.updates // config.pool)):
        size = config.batch * config.pool
        examples = _examples(config, tokenizer, pool * size, size, noisy=pool >= turn)
        examples.sort(key=lambda example: len(example[0]))
        order = list(range(config.pool))
        random.Random(f"words order|{config.seed}|{pool}").shuffle(order)
        skipped = max(0, start - pool * config.pool)
        for chosen in order[skipped:]:
            rows = examples[chosen * config.batch : (chosen + 1) * config.batch]
            longest = max(len(ids) for ids, _ in rows)
            inputs = torch.full((len(rows), longest), pad)
            labels = torch.full((len(rows), longest), IGNORED)
            for row, (ids, wanted) in enumerate(rows):
                inputs[row, : len(ids)] = torch.tensor(ids)
                labels[row, : len(ids)] = torch.tensor(wanted)
            yield inputs, labels


def _schedule(config: TrainConfig, update: int) -> float:
    """Return the learning rate of an update: linear warm-up, then a cosine."""
    if update < config.warmup:
        return config.peak_lr * (update + 1) / config.warmup
    done = (update - config.warmup) / max(1, config.updates - config.warmup)
    cosine = 0.5 * (1 + float(torch.cos(torch.tensor(done * torch.pi))))
    return config.final_lr + (config.peak_lr - config.final_lr) * cosine


def _save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint by rename, so that an interruption leaves the old or the new one."""
    draft = path.with_suffix(".tmp")
    torch.save(state, draft)
    draft.replace(path)


def train(
    config: TrainConfig,
    out: Path,
    *,
    minutes: float | None = None,
    checkpoint_every: int = CHECKPOINT_EVERY,
) -> bool:
    """Train, or go on training, and save the finished model.

    Args:
        config: What to train.
        out: Folder for checkpoint and result; made if missing.
        minutes: Stop after that much time with a checkpoint, to be continued by another call.
        checkpoint_every: Updates between two checkpoints (and log lines).

    A run may be continued with another configuration of the same model (another length, another
    mixture); `history` in `words.json` says which held from which update on.

    Returns:
        Whether the training is finished.

    Raises:
        ValueError: The checkpoint in `out` belongs to another configuration.
    """
    torch.set_num_threads(config.threads)
    out.mkdir(parents=True, exist_ok=True)
    if not (out / "tokenizer.json").exists():
        save_tokenizer(train_tokenizer(config.seed), out)
    tokenizer = AutoTokenizer.from_pretrained(out)
    model = build_model(config, tokenizer)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config.peak_lr, betas=(0.9, 0.95), weight_decay=config.weight_decay
    )
    start, seconds = 0, 0.0
    history = [{"from_update": 0, "config": asdict(config), "rates": asdict(NoiseRates())}]
    if (out / CHECKPOINT).exists():
        state = torch.load(out / CHECKPOINT, weights_only=True)
        history = _continued(json.loads(state["history"]), history[0], state["update"])
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start, seconds = state["update"], state["seconds"]
        log.info("continuing at update %d", start)
    log.info("%d parameters, vocabulary %d", model.num_parameters(), len(tokenizer))

    def checkpoint(update: int, spent: float) -> None:
        _save_checkpoint(
            out / CHECKPOINT,
            {
                "history": json.dumps(history),
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "update": update,
                "seconds": spent,
            },
        )

    model.train()
    began = time.monotonic()
    losses: list[float] = []
    tokens = 0
    for update, (inputs, labels) in enumerate(_batches(config, tokenizer, start), start):
        if update >= config.updates:
            break
        for group in optimizer.param_groups:
            group["lr"] = _schedule(config, update)
        loss = model(input_ids=inputs, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        tokens += inputs.numel()
        spent = time.monotonic() - began
        if (update + 1) % checkpoint_every == 0:
            mean = sum(losses) / len(losses)
            log.info(
                "update %d loss %.4f, %.1f min, %.0f tokens/s",
                update + 1, mean, (seconds + spent) / 60, tokens / spent,
            )  # fmt: skip
            losses.clear()
            checkpoint(update + 1, seconds + spent)
            if minutes is not None and spent >= minutes * 60:
                return False
    _save(model, tokenizer, history, out, seconds + time.monotonic() - began)
    return True


def _continued(
    history: list[dict[str, Any]], present: dict[str, Any], update: int
) -> list[dict[str, Any]]:
    """Return the history of a run that goes on at `update`, with a new entry if anything changed.

    Raises:
        ValueError: The checkpoint's model, seed or texts are not those of this run.
    """
    present = json.loads(json.dumps({**present, "from_update": update}))
    last = history[-1]
    for field in ("seed", "hidden", "intermediate", "layers", "heads"):
        if last["config"][field] != present["config"][field]:
            raise ValueError(f"the checkpoint has another {field}: choose another folder")
    same = all(last[key] == present[key] for key in ("config", "rates"))
    return history if same else [*history, present]


def _save(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    history: list[dict[str, Any]],
    out: Path,
    seconds: float,
) -> None:
    """Write weights, configurations and `words.json` (version, spec hash, how it was trained)."""
    model = model.to(torch.bfloat16)
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model.save_pretrained(out)
    record = {
        "version": VERSION,
        "spec_sha256": SPEC_SHA256,
        "history": history,
        "parameters": model.num_parameters(),
        "training_minutes": round(seconds / 60, 1),
        "weights_sha256": hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest(),
        "torch": torch.__version__,
    }
    (out / "words.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def main(argv: list[str] | None = None) -> None:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(prog="python -m treerl.lab.words.train")
    parser.add_argument("--out", type=Path, required=True, help="folder for model and checkpoint")
    parser.add_argument("--updates", type=int, default=TrainConfig().updates)
    parser.add_argument("--minutes", type=float, help="stop with a checkpoint after so long")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    config = TrainConfig(seed=args.seed, updates=args.updates)
    if not train(config, args.out, minutes=args.minutes):
        log.info("stopped by --minutes; the same command goes on")


if __name__ == "__main__":
    main()
