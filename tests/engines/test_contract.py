"""What every engine promises, asked of each one in turn (the cases are in conftest.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import numpy as np
import pytest

from treerl.engines.base import Completion
from treerl.errors import EngineDied, EngineError

T = TypeVar("T")
# vLLM leaves its sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:Unclosed context <zmq:ResourceWarning")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run in a loop of its own, as different drivers do; the bound is a safety net only."""

    async def bounded() -> T:
        return await asyncio.wait_for(work, timeout=240)

    return asyncio.run(bounded())


def samples(case: Any, n: int, *, engine: Any = None, **options: Any) -> list[Completion]:
    """Return completions for seeds 0 … n-1, asked for all at once."""

    async def ask() -> list[Completion]:
        target = engine or case.engine
        asked = [case.request(f"s{i}", **{"seed": i, **options}) for i in range(n)]
        return list(await asyncio.gather(*map(target.generate, asked)))

    return run(ask())


def one(case: Any, *, engine: Any = None, **options: Any) -> Completion:
    return samples(case, 1, engine=engine, **options)[0]


def needs_model(case: Any) -> None:
    if case.reference is None:
        pytest.skip("scripted log-probs are made up")


# Ids ----------------------------------------------------------------------------------------------


def test_ids_are_those_generated_and_are_counted(case: Any) -> None:
    found = samples(case, 32)
    for completion in found:
        assert len(completion.logprobs) == len(completion.token_ids)
        assert completion.usage.generated == len(completion.token_ids)
        assert completion.usage.prompt == len(case.prompt)
        assert 0 <= completion.usage.cached <= completion.usage.prompt
    tokenizer = case.engine.tokenizer
    rebuilt = [tuple(tokenizer.encode(tokenizer.decode(c.token_ids))) for c in found]
    assert any(c.token_ids != text for c, text in zip(found, rebuilt, strict=True)), (
        "ids must not be made from text"
    )


def test_cut_generation_equals_uncut(case: Any) -> None:
    needs_model(case)
    whole = one(case, temperature=0.0, max_tokens=12).token_ids
    ids: tuple[int, ...] = ()
    while len(ids) < len(whole):
        ids += one(case, temperature=0.0, max_tokens=4, prompt_ids=case.prompt + ids).token_ids
    assert ids == whole


# Ends ---------------------------------------------------------------------------------------------


def check_ends(found: Sequence[Completion], eos_ids: frozenset[int]) -> None:
    for completion in found:
        assert not eos_ids & set(completion.token_ids[:-1]), "generation went on after an end token"
        assert (completion.token_ids[-1] in eos_ids) == (completion.finish_reason == "eos")
        assert completion.stop_reason is None


def test_every_end_token_of_a_list_ends(case: Any) -> None:
    found = samples(case, 96, max_tokens=200)
    assert len(case.engine.eos_ids) == 2
    check_ends(found, case.engine.eos_ids)
    assert {c.token_ids[-1] for c in found} >= case.engine.eos_ids


@pytest.mark.parametrize("kept", [1, 0])
def test_a_single_end_token_and_none(case: Any, kept: int) -> None:
    if case.fresh is None or not case.own_ends:
        pytest.skip("the end tokens of this engine are its model's")
    eos_ids = frozenset(sorted(case.engine.eos_ids)[:kept])
    found = samples(case, 64, engine=case.fresh(eos_ids=eos_ids), max_tokens=200)
    check_ends(found, eos_ids)
    assert {c.finish_reason for c in found} >= {"eos" if kept else "length"}
    others = case.engine.eos_ids - eos_ids
    assert any(others & set(c.token_ids) for c in found), "only the model's end tokens end"


def test_an_end_token_may_come_alone(case: Any) -> None:
    completion = one(case, temperature=0.0, prompt_ids=case.end_prompt)
    assert len(completion.token_ids) == 1
    assert completion.token_ids[0] in case.engine.eos_ids
    assert completion.finish_reason == "eos"
    assert case.engine.tokenizer.decode(completion.token_ids) == ""


@pytest.mark.parametrize("bound", [1, 2, 7])
def test_max_tokens(case: Any, bound: int) -> None:
    for completion in samples(case, 8, max_tokens=bound):
        if completion.finish_reason == "length":
            assert len(completion.token_ids) == bound
        else:
            assert completion.finish_reason == "eos"
            assert len(completion.token_ids) <= bound


def stops_of(case: Any, completion: Completion, rng: np.random.Generator) -> list[str]:
    """Return substrings of a completion's text, such as a caller might stop at."""
    text = case.engine.tokenizer.decode(completion.token_ids)
    found: list[str] = []
    for _ in range(6):
        begin = int(rng.integers(0, max(1, len(text))))
        stop = text[begin : begin + int(rng.integers(1, 6))]
        if stop and "\ufffd" not in stop:
            found.append(stop)
    return found


def test_stop_strings_across_and_inside_tokens(case: Any) -> None:
    """A stop ends at the first token with which the text holds it, which is kept."""
    rng = np.random.default_rng(0)
    decode = case.engine.tokenizer.decode
    free = samples(case, 24, max_tokens=40)
    across = inside = 0
    for seed, completion in enumerate(free):
        for stop in stops_of(case, completion, rng):
            ids = completion.token_ids
            end = next(n for n in range(1, len(ids) + 1) if stop in decode(ids[:n]))
            stopped = one(case, max_tokens=40, stop=(stop, "never this"), seed=seed)
            assert stopped.token_ids == ids[:end]
            assert (stopped.finish_reason, stopped.stop_reason) == ("stop", stop)
            assert stopped.logprobs == pytest.approx(completion.logprobs[:end], abs=1e-3)
            last = decode(ids[end - 1 : end])
            across += len(stop) > len(last)
            inside += not decode(ids[:end]).endswith(stop)
    assert across
    assert inside or case.reference is None  # scripted tokens are single bytes


def test_stop_token_ids_are_kept(case: Any) -> None:
    free = next(c for c in samples(case, 8, max_tokens=16) if len(c.token_ids) > 3)
    seed = int(np.flatnonzero([c == free for c in samples(case, 8, max_tokens=16)])[0])
    stop = free.token_ids[2]
    stopped = one(case, max_tokens=16, stop_token_ids=(stop,), seed=seed)
    assert stopped.token_ids == free.token_ids[: free.token_ids.index(stop) + 1]
    assert (stopped.finish_reason, stopped.stop_reason) == ("stop", stop)


# Log-probs ----------------------------------------------------------------------------------------


def behaviour(logprobs: Any, temperature: float, top_p: float) -> Any:
    """Return the distribution that is sampled from, from raw log-probs: written from its words."""
    scaled = logprobs / (temperature or 1.0)
    scaled = scaled - np.log(np.exp(scaled).sum(-1, keepdims=True))
    if top_p == 1.0 or temperature == 0.0:
        return scaled
    out = np.full_like(scaled, -np.inf)
    for row, line in enumerate(scaled):
        order = np.argsort(-line)
        mass = np.cumsum(np.exp(line[order]))
        kept = order[: int(np.searchsorted(mass, top_p)) + 1]
        out[row, kept] = line[kept] - np.log(np.exp(line[kept]).sum())
    return out


@pytest.mark.parametrize(
    ("temperature", "top_p"),
    [(1.0, 1.0), (0.7, 1.0), (1.5, 1.0), (1.0, 0.8), (0.6, 0.5), (0.0, 1.0)],
)
def test_logprobs_are_those_of_the_distribution_sampled_from(
    case: Any, temperature: float, top_p: float
) -> None:
    needs_model(case)
    for completion in samples(case, 12, temperature=temperature, top_p=top_p):
        n = len(case.prompt)
        raw = case.reference((*case.prompt, *completion.token_ids))[n - 1 : -1]
        wanted = behaviour(raw, temperature, top_p)[range(len(raw)), completion.token_ids]
        assert np.abs(wanted - completion.logprobs).max() < 1e-3


def test_score_equals_a_forward_pass(case: Any) -> None:
    needs_model(case)
    ids = (*case.prompt, *one(case).token_ids)
    for start in (1, len(case.prompt), len(ids) - 1):
        found = run(case.engine.score(ids, start))
        wanted = case.reference(ids)[range(start - 1, len(ids) - 1), list(ids[start:])]
        assert np.abs(wanted - found).max() < 1e-3


def test_top_logprobs_are_the_best_and_the_token_itself(case: Any) -> None:
    needs_model(case)
    completion = one(case, top_logprobs=5)
    n = len(case.prompt)
    raw = case.reference((*case.prompt, *completion.token_ids))[n - 1 : -1]
    assert len(completion.top_logprobs) == len(completion.token_ids)
    for line, token_id, found in zip(
        raw, completion.token_ids, completion.top_logprobs, strict=True
    ):
        best = set(map(int, np.argsort(-line)[:5]))
        assert set(found) == best | {token_id}
        assert all(abs(line[i] - logprob) < 1e-3 for i, logprob in found.items())


def test_chosen_logprobs_are_exactly_those_asked_for(case: Any) -> None:
    if not case.engine.capabilities.logprob_token_ids:
        pytest.skip("this engine cannot report chosen ids")
    completion = one(case, logprob_token_ids=(5, 17))
    n = len(case.prompt)
    raw = case.reference((*case.prompt, *completion.token_ids))[n - 1 : -1]
    for line, found in zip(raw, completion.top_logprobs, strict=True):
        assert set(found) == {5, 17}
        assert all(abs(line[i] - found[i]) < 1e-3 for i in found)


# Seeds --------------------------------------------------------------------------------------------


def test_a_seed_fixes_the_sample_alone_and_in_a_batch(case: Any) -> None:
    together = samples(case, 24)
    again = samples(case, 24)
    alone = [one(case, seed=i) for i in range(24)]
    ids = [c.token_ids for c in together]
    assert [c.token_ids for c in again] == ids
    assert [c.token_ids for c in alone] == ids
    assert len(set(ids)) > 20, "different seeds give different samples"


def test_samples_do_not_depend_on_order_or_company(case: Any) -> None:
    lengths = [(7 * i) % 40 + 1 for i in range(60)]
    prompts = [case.prompt[: 2 + i % (len(case.prompt) - 1)] for i in range(60)]
    asked = [
        case.request(f"o{i}", seed=i, max_tokens=lengths[i], prompt_ids=prompts[i], priority=i % 3)
        for i in range(60)
    ]

    async def ask(order: Sequence[int]) -> dict[int, Completion]:
        found = await asyncio.gather(*(case.engine.generate(asked[i]) for i in order))
        return dict(zip(order, found, strict=True))

    first = run(ask(range(60)))
    second = run(ask(list(np.random.default_rng(1).permutation(60))))
    assert {i: c.token_ids for i, c in first.items()} == {i: c.token_ids for i, c in second.items()}


# Trouble ------------------------------------------------------------------------------------------


def test_bad_requests_fail_alone_with_a_plain_word(case: Any) -> None:
    context = case.context
    bad = {
        "empty prompt": case.request("b0", prompt_ids=()),
        str(context): case.request("b1", prompt_ids=case.prompt[:1] * context),
        "max_tokens=0": case.request("b2", max_tokens=0),
        "top_p=1.5": case.request("b3", top_p=1.5),
        "empty stop": case.request("b4", stop=("",)),
    }
    if case.reference is not None:
        bad["id 100000"] = case.request("b5", prompt_ids=(1, 100_000))
    good = [case.request(f"g{i}", seed=i) for i in range(8)]

    async def ask() -> list[Any]:
        mixed = [*good[:4], *bad.values(), *good[4:]]
        return await asyncio.gather(*map(case.engine.generate, mixed), return_exceptions=True)

    found = run(ask())
    errors = found[4 : 4 + len(bad)]
    for word, error in zip(bad, errors, strict=True):
        assert isinstance(error, EngineError), (word, error)
        assert not error.retryable
        assert word in str(error)
    kept = [c.token_ids for c in [*found[:4], *found[4 + len(bad) :]]]
    assert kept == [c.token_ids for c in samples(case, 8)]


def test_the_context_cuts_a_request_that_would_outgrow_it(case: Any) -> None:
    prompt = tuple(case.prompt[i % len(case.prompt)] for i in range(case.context - 3))
    for completion in samples(case, 4, prompt_ids=prompt, max_tokens=50):
        assert len(completion.token_ids) <= 3
        assert completion.finish_reason in ("length", "eos")


def test_abort_returns_what_there_is(case: Any) -> None:
    whole = samples(case, 40, max_tokens=200)

    async def ask() -> list[Completion]:
        asked = [case.request(f"a{i}", seed=i, max_tokens=200) for i in range(40)]
        tasks = [asyncio.ensure_future(case.engine.generate(r)) for r in asked]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for i in range(40):
            await case.engine.abort(f"a{i}")
        await case.engine.abort("never asked")
        return list(await asyncio.gather(*tasks))

    found = run(ask())
    cut = [c for c in found if c.finish_reason == "abort"]
    assert cut
    for part, full in zip(found, whole, strict=True):
        assert part.token_ids == full.token_ids[: len(part.token_ids)]
        assert len(part.logprobs) == len(part.token_ids) == part.usage.generated
    assert any(len(c.token_ids) > 0 for c in cut) or not case.keeps_part


def test_a_cancelled_request_leaves_and_its_name_is_free(case: Any) -> None:
    async def ask() -> Completion:
        task = asyncio.ensure_future(case.engine.generate(case.request("c", max_tokens=200)))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for _ in range(1000):
            try:
                return await case.engine.generate(case.request("c", seed=3))
            except EngineError:  # the name is taken until the worker has heard of the cancellation
                await asyncio.sleep(0.01)
        raise AssertionError("the name is never free")

    assert run(ask()).token_ids == samples(case, 4)[3].token_ids


def test_an_engine_that_dies_says_so_to_everyone(case: Any) -> None:
    if case.dying is None:
        pytest.skip("this engine cannot be killed here")
    engine = case.dying()

    async def ask() -> list[Any]:
        asked = [case.request(f"d{i}", seed=i, max_tokens=100) for i in range(12)]
        found = await asyncio.gather(*map(engine.generate, asked), return_exceptions=True)
        for i in range(4):  # a model that fails may need a few requests more to count as dead
            later = engine.generate(case.request(f"later{i}"))
            found += await asyncio.gather(later, return_exceptions=True)
        return found

    found = run(ask())
    assert all(isinstance(r, (Completion, EngineError)) for r in found)
    assert isinstance(found[-1], EngineDied)
    assert not found[-1].retryable


def test_close_fails_what_waits_and_what_comes(case: Any) -> None:
    if case.fresh is None:
        pytest.skip("another engine costs too much here")
    engine = case.fresh()

    async def ask() -> list[Any]:
        asked = [case.request(f"x{i}", seed=i, max_tokens=200) for i in range(40)]
        tasks = [asyncio.ensure_future(engine.generate(r)) for r in asked]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await engine.close()
        await engine.close()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        late = await asyncio.gather(engine.generate(asked[0]), return_exceptions=True)
        return [*found, *late]

    found = run(ask())
    assert isinstance(found[-1], EngineError)
    assert "closed" in str(found[-1])
    assert all(isinstance(r, (Completion, EngineError)) for r in found)
    assert any(isinstance(r, EngineError) for r in found[:-1])


# The step engine ----------------------------------------------------------------------------------


def test_steps_give_the_same_completions(case: Any) -> None:
    if case.fresh is None or not hasattr(case.engine, "submit"):
        pytest.skip("this engine has no steps")
    engine = case.fresh()
    asked = [case.request(f"s{i}", seed=i) for i in range(12)]
    engine.submit(asked[:5])
    found: dict[str, Any] = {}
    late = asked[5:]
    while done := engine.step():
        found.update(done)
        if late:
            engine.submit([*late, case.request("bad", prompt_ids=())])
            late = []
    assert isinstance(found.pop("bad"), EngineError)
    assert [found[r.request_id].token_ids for r in asked] == [
        c.token_ids for c in samples(case, 12)
    ]
    assert engine.step() == []
