"""The guard around an engine of one's own: odd answers cost a request, errors end in order."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treerl.engines import (
    ByteTokenizer,
    Capabilities,
    Completion,
    GuardedEngine,
    Request,
    ScriptedEngine,
    Usage,
)
from treerl.engines.checks import check_completion
from treerl.errors import ConfigError, EngineDied, EngineError

EOS = ByteTokenizer.eos_id
GOOD = Completion((104, 105, EOS), (-1.0, -0.5, -0.25), "eos", usage=Usage(2, 0, 3))
ASKED = Request("r", "t", (1, 2), max_tokens=8, top_logprobs=1, stop_token_ids=(10,))


class Own(ScriptedEngine):
    """An engine whose completion is made by a function."""

    def __init__(self, make: Callable[[], Any] = lambda: GOOD) -> None:
        super().__init__(lambda request: "hi")
        self.make = make

    async def generate(self, request: Request) -> Any:
        return self.make()


def guard(make: Callable[[], Any] = lambda: GOOD) -> GuardedEngine:
    return GuardedEngine(Own(make), "mine:engine")


def test_a_sound_completion_passes_unchanged_and_the_engine_keeps_its_attributes() -> None:
    engine = guard()
    assert asyncio.run(engine.generate(ASKED)) == GOOD
    assert engine.clock.now() == 0.0
    assert not hasattr(engine, "nothing_of_that_name")
    assert asyncio.run(engine.score((1, 2, 3), 1)) == [-1.0, -1.0]


def test_lists_and_numbers_of_numpy_become_tuples_and_pythons() -> None:
    found = Completion(
        np.array([104, 105, EOS]),  # type: ignore[arg-type]
        [np.float32(-1), -1, np.float64(0)],  # type: ignore[arg-type]
        "eos",
        top_logprobs=[{np.int64(7): np.float32(-1)}] * 3,  # type: ignore[arg-type]
    )
    got = asyncio.run(guard(lambda: found).generate(ASKED))
    assert got == Completion(
        (104, 105, EOS), (-1.0, -1.0, 0.0), "eos", None, ({7: -1.0},) * 3, Usage(2, 0, 3)
    )
    kinds = [*got.token_ids, *got.logprobs, *got.top_logprobs[0].items()]
    assert {type(x) for x in kinds} == {int, float, tuple}
    assert type(next(iter(got.top_logprobs[0]))) is int


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_what_ends_with_an_end_token_ended_with_it(reason: Any) -> None:
    found = GOOD._replace(finish_reason=reason, stop_reason="hi")
    assert asyncio.run(guard(lambda: found).generate(ASKED)) == GOOD


ODD = [
    (lambda: None, "the answer is None, not a Completion"),
    (lambda: "hello", "the answer is 'hello' (str), not a Completion"),
    (lambda: {"token_ids": [1]}, "(dict), not a Completion"),
    (lambda: GOOD._replace(token_ids=(104.0, 105.0, EOS)), "a token id is 104.0 (float)"),
    (lambda: GOOD._replace(token_ids=("a", "b", "c")), "a token id is 'a' (str)"),
    (lambda: GOOD._replace(token_ids="abc"), "token_ids is 'abc' (str)"),
    (lambda: GOOD._replace(token_ids=None), "token_ids is None"),
    (lambda: GOOD._replace(token_ids=(True, 1, EOS)), "a token id is True (bool)"),
    (lambda: GOOD._replace(token_ids=(-1, 1, EOS)), "a token id is -1"),
    (lambda: GOOD._replace(token_ids=(259, 1, EOS)), "is 259, but the vocabulary has 259 ids"),
    (lambda: GOOD._replace(token_ids=(104,) * 9), "9 tokens, but 8 were asked for"),
    (lambda: GOOD._replace(token_ids=(EOS, 104, EOS)), "tokens behind an end token"),
    (lambda: GOOD._replace(token_ids=(10, 104, EOS)), "tokens behind an end token"),
    (lambda: GOOD._replace(token_ids=(104, 105, 106)), "the last token is no end token"),
    (lambda: GOOD._replace(finish_reason="banana"), "finish_reason is 'banana' (str)"),
    (lambda: GOOD._replace(finish_reason=["eos"]), "finish_reason is ['eos'] (list)"),
    (lambda: GOOD._replace(logprobs=(-1.0,)), "3 tokens, but 1 log-probs"),
    (lambda: GOOD._replace(logprobs=None), "logprobs is None"),
    (lambda: GOOD._replace(logprobs=(math.nan,) * 3), "a log-prob is nan"),
    (lambda: GOOD._replace(logprobs=(-math.inf,) * 3), "a log-prob is -inf"),
    (lambda: GOOD._replace(logprobs=(1.0,) * 3), "a log-prob is 1.0"),
    (lambda: GOOD._replace(logprobs=("x",) * 3), "a log-prob is 'x' (str)"),
    (lambda: GOOD._replace(top_logprobs=({1: -1.0},)), "3 tokens, but top_logprobs of 1"),
    (lambda: GOOD._replace(top_logprobs=(1, 2, 3)), "a row of top_logprobs is 1 (int)"),
    (lambda: GOOD._replace(top_logprobs=({"a": -1.0},) * 3), "a token id is 'a' (str)"),
    (lambda: GOOD._replace(usage=None), "usage is None"),
    (lambda: GOOD._replace(usage=Usage(2, 5, 3)), "usage is (2, 5, 3): tokens of"),
    (lambda: GOOD._replace(usage=Usage(2, 0, 1.5)), "a count of usage is 1.5 (float)"),
    (lambda: GOOD._replace(policy_version=None), "policy_version is None"),
    (lambda: GOOD._replace(token_ids=(104,), logprobs=(), finish_reason="stop", stop_reason=[]),
     "stop_reason is [] (list)"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "said"), ODD, ids=[said for _, said in ODD])
def test_an_odd_completion_is_a_failed_request(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(EngineError) as odd:
        asyncio.run(guard(make).generate(ASKED))
    assert type(odd.value) is EngineError
    assert not odd.value.retryable
    assert str(odd.value).startswith("mine:engine: ")
    assert said in str(odd.value)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda x: st.lists(x) | st.dictionaries(st.integers() | st.text(), x),
)


@given(
    found=st.builds(
        Completion,
        st.lists(st.integers(0, 300)) | anything,
        st.lists(st.floats(max_value=0)) | anything,
        st.sampled_from(["eos", "stop", "length", "abort"]) | anything,
        anything,
        st.just(()) | anything,
        st.builds(Usage, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)) | anything,
        st.just("") | anything,
    )
)
def test_whatever_is_in_a_completion_it_is_refused_or_fits_in_a_tree(found: Completion) -> None:
    try:
        got = check_completion(found, ASKED, {EOS}, room=8, vocab_size=259)
    except EngineError:
        return
    assert all(type(i) is int and 0 <= i < 259 for i in got.token_ids)
    assert len(got.token_ids) <= 8
    assert not {EOS, 10} & set(got.token_ids[:-1])
    assert len(got.logprobs) in (0, len(got.token_ids))
    assert all(type(x) is float and math.isfinite(x) for x in got.logprobs)
    assert (got.finish_reason == "eos") == (
        got.token_ids[-1:] == (EOS,) and got.finish_reason != "abort"
    )
    assert 0 <= got.usage.cached <= got.usage.prompt


def test_other_errors_end_the_run_in_order_and_name_the_place() -> None:
    def fails() -> Any:
        raise TimeoutError("the model\nsleeps")

    with pytest.raises(EngineDied) as died:
        asyncio.run(guard(fails).generate(ASKED))
    assert str(died.value).startswith("mine:engine fails in `generate`: TimeoutError: the model s")
    line = fails.__code__.co_firstlineno + 1
    assert f"({__file__}, line {line})" in str(died.value)
    assert "raise treerl.errors.EngineError instead" in str(died.value)


def test_errors_of_the_engines_own_pass() -> None:
    def busy() -> Any:
        raise EngineError("a full queue", retryable=True)

    with pytest.raises(EngineError, match="^a full queue$") as error:
        asyncio.run(guard(busy).generate(ASKED))
    assert error.value.retryable


def test_a_cancellation_from_inside_is_told_apart_from_one_from_outside() -> None:
    def cancelled() -> Any:
        raise asyncio.CancelledError

    with pytest.raises(EngineError, match="`generate` was cancelled inside"):
        asyncio.run(guard(cancelled).generate(ASKED))

    class Slow(ScriptedEngine):
        async def generate(self, request: Request) -> Any:
            await asyncio.sleep(1000)

    async def outside() -> None:
        task = asyncio.create_task(GuardedEngine(Slow(lambda r: "hi"), "x").generate(ASKED))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(outside())


def test_a_close_that_fails_is_a_warning() -> None:
    class Sticky(ScriptedEngine):
        async def close(self) -> None:
            raise ValueError("the door is stuck")

    said: list[str] = []
    asyncio.run(GuardedEngine(Sticky(lambda r: "hi"), "x:y", warn=said.append).close())
    (line,) = said
    assert line.startswith("x:y fails in `close`: ValueError: the door is stuck (")
    assert line.endswith("what is finished is safe all the same")


def test_methods_that_are_no_coroutines_are_named() -> None:
    class Plain(ScriptedEngine):
        def generate(self, request: Request) -> Any:
            return GOOD

    with pytest.raises(EngineDied, match="`generate` must be an `async def`"):
        asyncio.run(GuardedEngine(Plain(lambda r: "hi"), "x").generate(ASKED))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"capabilities": None}, "capabilities is None, not a Capabilities"),
        ({"capabilities": Capabilities(max_context=0)}, "max_context is 0"),
        ({"capabilities": Capabilities(detail=None)}, "detail must be an object"),  # type: ignore[arg-type]
        ({"capabilities": Capabilities(detail={"x": object()})}, "has no JSON form"),
        ({"eos_ids": None}, "eos_ids is None"),
        ({"eos_ids": {"a"}}, "eos_ids is a set, not a frozenset of token ids"),
        ({"tokenizer": None}, "tokenizer is None without `encode`"),
        ({"generate": None}, "has no method `generate`"),
        ({"close": 5}, "has no method `close`"),
    ],
)
def test_what_an_engine_lacks_is_said_at_the_start(changes: dict[str, Any], said: str) -> None:
    engine = Own()
    vars(engine).update(changes)
    with pytest.raises(ConfigError) as refused:
        GuardedEngine(engine, "mine:engine")
    assert str(refused.value).startswith("mine:engine")
    assert said in str(refused.value)


def test_an_engine_without_score_cannot_score() -> None:
    engine = Own()
    engine.score = None  # type: ignore[method-assign, assignment]
    assert not GuardedEngine(engine, "x").capabilities.score
    with pytest.raises(EngineError, match="x cannot score"):
        asyncio.run(GuardedEngine(engine, "x").score((1, 2), 1))


def test_odd_scores_are_refused() -> None:
    for scores in ([-1.0], [-1.0, math.nan], None, ["a", "b"]):
        engine = ScriptedEngine(lambda r: "hi", scorer=lambda ids, start, s=scores: s)  # type: ignore[misc]
        with pytest.raises(EngineError):
            asyncio.run(GuardedEngine(engine, "x").score((1, 2, 3), 1))


def test_ids_made_from_text_are_not_counted() -> None:
    engine = Own(lambda: GOOD._replace(token_ids=(104,) * 20, logprobs=(), finish_reason="length"))
    engine.capabilities = replace(engine.capabilities, token_ids=False)
    assert len(asyncio.run(GuardedEngine(engine, "x").generate(ASKED)).token_ids) == 20
