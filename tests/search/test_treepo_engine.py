"""Segment trees on a real model: exact log-probs at every depth, one prefill a prompt (C, D4)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the hf engine needs treerl[local]")
pytest.importorskip("transformers", reason="the hf engine needs treerl[local]")

from treerl.engines import HFEngine  # noqa: E402
from treerl.engines.base import Request  # noqa: E402
from treerl.lab import words  # noqa: E402
from treerl.problem import Problem  # noqa: E402
from treerl.protocols import Leaf  # noqa: E402
from treerl.search.growth import Judges, run_sync  # noqa: E402
from treerl.search.treepo import TreePO  # noqa: E402
from treerl.search.treepo_fallback import MinLogprobToken  # noqa: E402
from treerl.search.treepo_presets import preset  # noqa: E402
from treerl.search.treepo_summary import summarise, tree_cost  # noqa: E402
from treerl.tree import Tree  # noqa: E402

pytestmark = pytest.mark.engine

PROBLEMS = [Problem.from_text(p.id, p.question, p.answer) for p in words.problems(2)]
SHORT: dict[str, Any] = {"segment_tokens": 16, "max_tokens": 160, "rewards": False}


@pytest.fixture(scope="module")
def engine() -> Iterator[HFEngine]:
    made = HFEngine.from_pretrained(words.model_path(), max_batch=16)
    yield made
    asyncio.run(made.close())


@pytest.fixture(scope="module")
def model(engine: HFEngine) -> Any:
    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(words.model_path(), dtype=torch.float32)
    return loaded.eval()


def grow(engine: HFEngine, name: str, problems: list[Problem], **options: Any) -> list[Tree]:
    config = preset(name, **{**SHORT, **options})
    growths = [TreePO(p, engine.tokenizer, config, eos_ids=engine.eos_ids) for p in problems]
    run_sync(growths, engine)
    return [growth.tree for growth in growths]


def reference(
    model: Any, prompt: tuple[int, ...], path: tuple[int, ...], temperature: float, top_p: float
) -> np.ndarray:
    """Return the path's log-probs from one plain forward pass, scaled, cut and renormalised."""
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *path]])).logits[0, len(prompt) - 1 : -1]
    logprobs = torch.log_softmax(logits.double() / temperature, dim=-1)
    if top_p < 1:
        ordered, order = logprobs.sort(dim=-1, descending=True)
        before = ordered.exp().cumsum(dim=-1) - ordered.exp()
        kept = torch.zeros_like(logprobs).scatter(1, order, (before < top_p).double())
        logprobs = torch.log_softmax(logprobs.masked_fill(kept == 0, -torch.inf), dim=-1)
    return logprobs[torch.arange(len(path)), torch.tensor(path)].numpy()


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.3])
@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_c2_behaviour_log_probs_at_every_depth(
    engine: HFEngine, model: Any, temperature: float, top_p: float
) -> None:
    (tree,) = grow(
        engine,
        "treepo_paper",
        PROBLEMS[:1],
        width=6,
        fallback=MinLogprobToken(),
        temperature=temperature,
        top_p=top_p,
        max_depth=None,
    )
    assert len({n.depth for n in tree.nodes}) > 2
    for leaf in tree.leaves():
        path = tree.path_ids(leaf)
        ours = np.array(list(chain.from_iterable(n.logprobs for n in tree.path(leaf))))
        assert len(ours) == len(path)
        want = reference(model, tree.prompt_ids, path, temperature, top_p)
        assert np.abs(ours - want).max() < 1e-3


def test_c3_segments_have_the_log_probs_of_one_uninterrupted_run(engine: HFEngine) -> None:
    (tree,) = grow(engine, "flat", PROBLEMS[:1], width=1, temperature=0.0)
    (leaf,) = tree.leaves()
    assert leaf.depth > 2
    whole = asyncio.run(engine.generate(Request("whole", "w", tree.prompt_ids, 160, 0.0)))
    assert tree.path_ids(leaf) == whole.token_ids
    ours = [x for node in tree.path(leaf) for x in node.logprobs]
    assert np.abs(np.subtract(ours, whole.logprobs)).max() < 1e-4
    for tree in grow(engine, "treerl", PROBLEMS, width=8):
        for leaf in tree.leaves():
            ids = tree.context_ids(leaf)
            scored = asyncio.run(engine.score(ids, len(tree.prompt_ids)))
            ours = [x for node in tree.path(leaf) for x in node.logprobs]
            assert np.abs(np.subtract(ours, scored)).max() < 1e-4


def test_d4_every_prompt_is_prefilled_once(engine: HFEngine) -> None:
    for tree in grow(engine, "treerl", PROBLEMS, width=8):
        cost = tree_cost(tree, block_size=1)
        assert cost.prefill.submitted == cost.prefill.cached + cost.prefill.computed
        assert cost.prefill.computed <= len(tree.prompt_ids) + cost.requests - 1


def test_a_real_tree_is_the_same_alone_and_in_company(engine: HFEngine) -> None:
    """In float32 a sample does not depend on its batch; log-probs move in their last bits."""
    alone = grow(engine, "treepo_paper", PROBLEMS[:1], width=6, max_depth=None)[0]
    among = grow(engine, "treepo_paper", PROBLEMS, width=6, max_depth=None)[0]

    def shape(tree: Tree) -> list[Any]:
        return [(n.token_ids, n.seed, n.finish_reason, n.multiplicity, n.meta) for n in tree.nodes]

    assert shape(alone) == shape(among)


def test_rewards_and_text_come_with_a_real_tree(engine: HFEngine) -> None:
    def right(problem: Problem, text: str, leaf: Leaf) -> float:
        return float(text.rstrip().endswith(str(problem.answer)))

    config = preset("treerl", **{**SHORT, "rewards": True}, width=8)
    growths = [TreePO(p, engine.tokenizer, config, eos_ids=engine.eos_ids) for p in PROBLEMS]
    run_sync(growths, engine, Judges(reward=right))
    summaries = [summarise(g.tree) for g in growths]
    assert all(leaf.reward in (0.0, 1.0) for g in growths for leaf in g.tree.leaves())
    assert all(0 <= (s.value or 0.0) <= 1 and s.ess > 1 for s in summaries)
    assert sum(s.value or 0.0 for s in summaries) > 0
