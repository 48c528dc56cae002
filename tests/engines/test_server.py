"""The server engine against fake servers: dialects, probe, retries, affinity, secrets.

The fakes hold a small language model of their own and answer through httpx's mock transport. The
SGLang fake is written from its documentation (docs/basic_usage/sampling_params.md, native_api);
no live SGLang was tried.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treerl.engines import ByteTokenizer, ServerEngine
from treerl.engines.address import parse_address, without_secrets
from treerl.engines.base import Completion, Request
from treerl.errors import ConfigError, EngineDied, EngineError

VOCABULARY = 259
EOS = 257


def raw_logits(context: tuple[int, ...]) -> Any:
    rng = np.random.default_rng([len(context), *context[-3:]])
    logits = rng.normal(0, 2, VOCABULARY)
    logits[EOS] -= 3
    return logits


def log_softmax(x: Any) -> Any:
    return x - np.log(np.exp(x - x.max()).sum()) - x.max()


def generate(ids: list[int], n: int, stops: list[int], mode: str, **s: Any) -> dict[str, Any]:
    """Sample n tokens; log-probs in the way of ``mode``."""
    out: dict[str, Any] = {"ids": [], "rows": [], "kind": "length", "matched": None}
    rng = np.random.default_rng(s.get("seed"))
    while len(out["ids"]) < n:
        raw = log_softmax(raw_logits((*ids, *out["ids"])))
        temperature = s["temperature"]
        scaled = log_softmax(raw / (temperature or 1.0))
        order = np.argsort(-scaled)
        mass = np.cumsum(np.exp(scaled[order]))
        kept = order[: int(np.searchsorted(mass, s["top_p"])) + 1]
        nucleus = np.full(VOCABULARY, -np.inf)
        nucleus[kept] = log_softmax(scaled[kept])
        token = int(order[0])
        if temperature > 0:
            token = int(rng.choice(VOCABULARY, p=np.exp(nucleus)))
        out["ids"].append(token)
        out["rows"].append({"processed": nucleus, "temperature": scaled, "raw": raw}[mode])
        if token in stops:
            out["kind"], out["matched"] = "stop", token
            break
    return out


def null(x: float) -> float | None:
    return float(x) if np.isfinite(x) else None


class Fake:
    """A server: routes requests, counts them, and misbehaves on demand.

    Attributes:
        trouble: Called before each generation; may return a response or raise.
    """

    def __init__(self, kind: str = "vllm", mode: str = "processed", *, seeds: bool = True) -> None:
        self.kind, self.mode, self.seeds = kind, mode, seeds
        self.trouble: Callable[[], httpx.Response | None] = lambda: None
        self.hosts: list[str] = []
        self.keys: set[str | None] = set()
        self.queries: set[bytes] = set()
        self.inside = self.most = 0
        self.pause = 0.0

    def transport(self) -> httpx.AsyncBaseTransport:
        return httpx.MockTransport(self.handle)

    async def handle(self, request: httpx.Request) -> httpx.Response:
        self.keys.add(request.headers.get("authorization"))
        self.queries.add(request.url.query)
        path = request.url.path
        if request.method == "GET":
            return self.about(path)
        self.hosts.append(request.url.host)
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            await asyncio.sleep(self.pause)
            if (answer := self.trouble()) is not None:
                return answer
            body = json.loads(request.content)
            return httpx.Response(200, json=getattr(self, self.kind)(path, body))
        finally:
            self.inside -= 1

    def about(self, path: str) -> httpx.Response:
        cards = {
            "vllm": {"/v1/models": {"data": [{"id": "m", "root": "r", "max_model_len": 200}]}},
            "openai": {"/v1/models": {"data": [{"id": "m"}]}},
            "sglang": {
                "/get_model_info": {"model_path": "r"},
                "/get_server_info": {"context_length": 200},
            },
        }[self.kind]
        found = cards.get(path)
        return httpx.Response(404 if found is None else 200, json=found or {})

    def vllm(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert path == "/v1/completions"
        ids, seed = body["prompt"], body.get("seed") if self.seeds else None
        if "prompt_logprobs" in body:
            rows: list[Any] = [None]
            for n in range(1, len(ids)):
                lp = log_softmax(raw_logits(tuple(ids[:n])))
                rows.append({str(ids[n]): {"logprob": float(lp[ids[n]])}})
            return {"choices": [{"prompt_logprobs": rows}]}
        made = generate(
            ids, body["max_tokens"], body["stop_token_ids"], self.mode,
            temperature=body["temperature"], top_p=body["top_p"], seed=seed,
        )  # fmt: skip
        tops = []
        for token, row in zip(made["ids"], made["rows"], strict=True):
            best = [*map(int, np.argsort(-row)[: body["logprobs"]])]
            names = body.get("logprob_token_ids") or best
            tops.append({f"token_id:{i}": max(float(row[i]), -9999.0) for i in {*names, token}})
        return {
            "choices": [
                {
                    "token_ids": made["ids"],
                    "finish_reason": made["kind"],
                    "stop_reason": made["matched"],
                    "logprobs": {
                        "token_logprobs": [
                            float(r[t]) for r, t in zip(made["rows"], made["ids"], strict=True)
                        ],
                        "top_logprobs": tops,
                    },
                }
            ],
            "usage": {"prompt_tokens_details": {"cached_tokens": 2}},
        }

    def sglang(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert path == "/generate"
        s, ids = body["sampling_params"], body["input_ids"]
        if body["logprob_start_len"] == 0:
            entries: list[Any] = [[None, ids[0], None]]
            for n in range(1, len(ids)):
                entries.append(
                    [float(log_softmax(raw_logits(tuple(ids[:n])))[ids[n]]), ids[n], None]
                )
            return {"meta_info": {"input_token_logprobs": entries}}
        made = generate(
            ids, s["max_new_tokens"], s["stop_token_ids"], self.mode,
            temperature=s["temperature"], top_p=s["top_p"], seed=s.get("sampling_seed"),
        )  # fmt: skip
        end = {"type": made["kind"]}
        end |= {"matched": made["matched"]} if made["kind"] == "stop" else {}
        meta = {
            "finish_reason": end,
            "cached_tokens": 3,
            "output_token_logprobs": [
                [float(r[t]), t, None] for r, t in zip(made["rows"], made["ids"], strict=True)
            ],
        }
        if n := body.get("top_logprobs_num"):
            meta["output_top_logprobs"] = [
                [[null(r[i]), int(i), None] for i in np.argsort(-r)[:n]] for r in made["rows"]
            ]
        if chosen := body.get("token_ids_logprob"):
            meta["output_token_ids_logprobs"] = [
                [[null(r[i]), i, None] for i in chosen] for r in made["rows"]
            ]
        return {"text": "…", "output_ids": made["ids"], "meta_info": meta}

    def openai(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert "stop_token_ids" not in body
        made = generate(
            body["prompt"], body["max_tokens"], [EOS], "raw",
            temperature=body["temperature"], top_p=body["top_p"], seed=body.get("seed"),
        )  # fmt: skip
        text = ByteTokenizer().decode(made["ids"])
        for stop in body.get("stop", ()):
            if stop in text:
                text, made["kind"] = text[: text.index(stop)], "stop"
        return {
            "choices": [{"text": text, "finish_reason": made["kind"]}],
            "usage": {"completion_tokens": len(made["ids"])},
        }


def connect(fake: Fake, urls: Any = "http://one", **options: Any) -> ServerEngine:
    settings = {"tokenizer": ByteTokenizer(), "backoff": 0.001, "retries": 3, **options}
    return ServerEngine.connect(urls, transport=fake.transport(), **settings)


def ask(name: str, **options: Any) -> Request:
    settings = {"prompt_ids": (1, 2, 3), "max_tokens": 12, "seed": 5, "tree_id": "t", **options}
    return Request(request_id=name, **settings)


def gather(engine: ServerEngine, *requests: Request) -> list[Any]:
    async def main() -> list[Any]:
        return await asyncio.gather(*map(engine.generate, requests), return_exceptions=True)

    return asyncio.run(main())


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_ids_logprobs_and_counts_come_through(kind: str) -> None:
    engine = connect(Fake(kind))
    assert engine.capabilities.logprobs
    assert engine.capabilities.token_ids
    assert engine.capabilities.seeds
    assert engine.capabilities.logprob_token_ids
    assert engine.capabilities.max_context == 200
    assert engine.capabilities.detail["dialect"] == kind
    assert engine.findings.notes == ()
    (found,) = gather(engine, ask("a", temperature=0.7, top_p=0.9))
    wanted = generate([1, 2, 3], 12, [EOS], "processed", temperature=0.7, top_p=0.9, seed=5)
    assert found.token_ids == tuple(wanted["ids"])
    logprobs = [row[t] for row, t in zip(wanted["rows"], wanted["ids"], strict=True)]
    assert found.logprobs == pytest.approx(logprobs)
    assert found.usage == (3, 2 if kind == "vllm" else 3, len(found.token_ids))


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_ends_and_alternatives(kind: str) -> None:
    engine = connect(Fake(kind))
    free = gather(engine, *(ask(f"f{i}", seed=i, max_tokens=150) for i in range(30)))
    ended = [c for c in free if c.finish_reason == "eos"]
    assert ended
    assert all(c.token_ids[-1] == EOS and c.stop_reason is None for c in ended)
    stop = free[0].token_ids[2]
    (stopped,) = gather(engine, ask("s", seed=0, stop_token_ids=(stop,)))
    assert (stopped.finish_reason, stopped.stop_reason) == ("stop", stop)
    best, chosen = gather(
        engine, ask("b", top_logprobs=4), ask("c", logprob_token_ids=(7, 9), temperature=1.0)
    )
    assert all(4 <= len(row) <= 5 for row in best.top_logprobs)
    assert all(t in row for t, row in zip(best.token_ids, best.top_logprobs, strict=True))
    assert all(set(row) == {7, 9} for row in chosen.top_logprobs)


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_scores(kind: str) -> None:
    ids = (5, 6, 7, 8)
    found = asyncio.run(connect(Fake(kind)).score(ids, 2))
    wanted = [float(log_softmax(raw_logits(ids[:n]))[ids[n]]) for n in (2, 3)]
    assert found == pytest.approx(wanted)


@pytest.mark.parametrize(("mode", "exact"), [("raw", {1.0}), ("temperature", {1.0, 0.5})])
def test_logprobs_of_another_distribution_are_left_out(mode: str, exact: set[float]) -> None:
    engine = connect(Fake(mode=mode))
    assert not engine.capabilities.logprobs
    assert engine.findings.logprobs == mode
    assert engine.findings.notes
    for temperature in (1.0, 0.5):
        full, narrow = gather(
            engine, ask("a", temperature=temperature), ask("b", temperature=temperature, top_p=0.9)
        )
        assert bool(full.logprobs) == (temperature in exact)
        assert not narrow.logprobs


def test_a_server_that_ignores_seeds_is_found_out() -> None:
    engine = connect(Fake(seeds=False))
    assert not engine.capabilities.seeds
    assert "seeds" in " ".join(engine.findings.notes)


def test_a_plain_server_serves_labelling_only() -> None:
    engine = connect(Fake("openai"))
    can = engine.capabilities
    assert not any((can.token_ids, can.logprobs, can.score, can.logprob_token_ids))
    (free,) = gather(engine, ask("a"))
    assert free.logprobs == ()
    text = engine.tokenizer.decode(free.token_ids)
    letter = next(c for c in text[2:] if c != "\ufffd")
    (stopped,) = gather(engine, ask("b", stop=(letter,)))
    assert (stopped.finish_reason, stopped.stop_reason) == ("stop", letter)
    assert engine.tokenizer.decode(stopped.token_ids) == text[: text.index(letter) + 1]
    with pytest.raises(EngineError, match="cannot score"):
        asyncio.run(engine.score((1, 2, 3), 1))


def in_turn(*answers: Any) -> Callable[[], httpx.Response | None]:
    """Give these answers one after another, then none; exceptions are raised."""
    left = list(answers)

    def trouble() -> httpx.Response | None:
        answer = left.pop(0) if left else None
        if isinstance(answer, Exception):
            raise answer
        return answer

    return trouble


def test_faults_that_may_pass_are_tried_again() -> None:
    fake = Fake()
    engine = connect(fake)
    wanted = gather(engine, ask("a"))
    fake.trouble = in_turn(
        httpx.Response(503), httpx.Response(429, headers={"retry-after": "0.01"}),
        httpx.ReadError("broken"),
    )  # fmt: skip
    assert gather(engine, ask("a")) == wanted
    fake.trouble = in_turn(*[httpx.Response(500, text="over \n and over")] * 4)
    (error,) = gather(engine, ask("a"))
    assert isinstance(error, EngineError)
    assert error.retryable
    assert "answered 500: over and over" in str(error)


def test_faults_that_stay_are_not() -> None:
    fake = Fake()
    engine = connect(fake)
    before = len(fake.hosts)
    fake.trouble = in_turn(
        httpx.Response(400, json={"error": {"message": "no such thing"}}),
        httpx.Response(200, text="<html>"),
        httpx.Response(200, json={"choices": []}),
    )
    errors = [gather(engine, ask("a"))[0] for _ in range(3)]
    assert [e.retryable for e in errors] == [False] * 3
    assert "no such thing" in str(errors[0])
    assert len(fake.hosts) == before + 3


def test_a_server_that_cannot_be_reached_any_more_is_dead() -> None:
    fake = Fake()
    engine = connect(fake)
    fake.trouble = in_turn(*[httpx.ConnectError("refused")] * 8)
    (first,) = gather(engine, ask("a"))
    assert isinstance(first, EngineDied)
    assert isinstance(gather(engine, ask("b"))[0], EngineDied)


def test_a_request_moves_to_another_server_when_its_own_fails() -> None:
    fake = Fake()
    engine = connect(fake, ["http://one", "http://two/v1/"])
    fake.hosts.clear()
    fake.trouble = in_turn(httpx.ConnectError("refused"))
    (found,) = gather(engine, ask("a"))
    assert isinstance(found, Completion)
    assert set(fake.hosts) == {"one", "two"}


def test_a_tree_stays_where_its_prefixes_are_until_that_server_is_crowded() -> None:
    fake = Fake()
    engine = connect(fake, ["http://one", "http://two"])
    homes = {}
    for tree in "abcdefgh":
        fake.hosts.clear()
        gather(engine, *(ask(f"{tree}{i}", tree_id=tree) for i in range(3)))
        assert len(set(fake.hosts)) == 1
        homes[tree] = fake.hosts[0]
    assert set(homes.values()) == {"one", "two"}
    fake.hosts.clear()
    fake.pause = 0.02
    gather(engine, *(ask(f"x{i}", tree_id="a") for i in range(40)))
    assert set(fake.hosts) == {"one", "two"}
    assert fake.hosts.count(homes["a"]) >= 20


def test_concurrency_is_bounded() -> None:
    fake = Fake()
    engine = connect(fake, concurrency=3)
    fake.pause, fake.most = 0.005, 0
    gather(engine, *(ask(f"x{i}") for i in range(20)))
    assert fake.most == 3


def test_the_key_comes_from_the_environment_and_is_never_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MY_KEY", "sesame-123")
    fake = Fake()
    with caplog.at_level(logging.DEBUG):
        engine = connect(fake, api_key_env="MY_KEY")
        fake.trouble = in_turn(httpx.ReadError("x"), httpx.Response(401, text="bad key"))
        (error,) = gather(engine, ask("a"))
    assert fake.keys == {"Bearer sesame-123"}
    shown = caplog.text + str(error) + repr(error) + repr(engine) + str(engine.capabilities)
    assert "sesame" not in shown


def test_close_and_abort() -> None:
    fake = Fake()
    engine = connect(fake, concurrency=1)
    fake.pause = 5

    async def main() -> list[Any]:
        tasks = [asyncio.ensure_future(engine.generate(ask(n))) for n in "abcd"]
        await asyncio.sleep(0.05)
        await engine.abort("a")
        await engine.abort("c")
        await asyncio.sleep(0.05)
        await engine.close()
        return await asyncio.gather(*tasks, return_exceptions=True)

    a, b, c, d = asyncio.run(main())
    assert a.finish_reason == c.finish_reason == "abort"
    for error in (b, d, *gather(engine, ask("late"))):
        assert isinstance(error, EngineError)
        assert "closed" in str(error)


def test_what_is_no_server_is_named() -> None:
    fake = Fake()
    fake.trouble = in_turn(*[httpx.ConnectError("refused")] * 99)
    with pytest.raises(ConfigError, match="http://one cannot be used"):
        connect(fake)
    fake.kind = "openai"
    with pytest.raises(ConfigError, match="get_model_info"):
        connect(fake, dialect="sglang")
    with pytest.raises(ConfigError, match="grpc"):
        connect(fake, dialect="grpc")
    with pytest.raises(ConfigError, match="address"):
        connect(fake, [])


# Secrets ------------------------------------------------------------------------------------------

SECRET = "http://us%40er:s3cr%2F3t@one/v1?key=q3cr3t&api-version=1"


def test_what_an_address_hides_is_sent_and_never_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sesame-123")
    token = base64.b64encode(b"us@er:s3cr/3t").decode()
    echo = f"no: s3cr/3t s3cr%2F3t {token} q3cr3t sesame-123 key=q3cr3t&api-version=1"
    fake = Fake(seeds=False, mode="raw")
    with caplog.at_level(logging.DEBUG):
        engine = connect(fake, SECRET)
        errors = []
        for status in (401, 500):
            fake.trouble = in_turn(*[httpx.Response(status, json={"error": echo})] * 4)
            errors += gather(engine, ask("a"))
        fake.trouble = in_turn(*[httpx.ReadError(f"at {SECRET}")] * 4)
        errors += gather(engine, ask("a"))
        fake.trouble = in_turn(httpx.Response(200, json={"choices": [{"token_ids": [echo]}]}))
        errors += gather(engine, ask("a"))
        fake.trouble = in_turn(*[httpx.ConnectError(f"at {SECRET}")] * 99)
        errors += gather(engine, ask("a"))
        with pytest.raises(ConfigError, match="http://one cannot be used") as refused:
            connect(fake, SECRET)
    assert fake.keys == {f"Basic {token}"}
    assert fake.queries == {b"key=q3cr3t&api-version=1"}
    assert "http://one/v1/completions answered 401: no: *** *** *** ***" in str(errors[0])
    assert all(isinstance(error, EngineError) for error in errors)
    said = [repr(e) for e in errors]
    shown = caplog.text + "".join(said) + repr(refused.value) + repr(engine._servers)
    assert "http://one" in shown
    for secret in ("s3cr", token, "q3cr3t", "sesame"):
        assert secret not in shown
    asyncio.run(engine.close())
    assert not logging.getLogger("httpx").filters


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:key@host:1/v1?key=k#f", "https://host:1/v1"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
        ("http://me:pass/word@host/v1?key=k", "http://host/v1"),
        ("http://me:pa?ss@host:8000/v1", "http://host:8000/v1"),
        ("me:pass@host", "host"),
    ],
)
def test_addresses_are_shown_without_what_is_secret(url: str, shown: str) -> None:
    assert without_secrets(url) == shown


@given(
    user=st.text(min_size=1), password=st.text(min_size=1), path=st.sampled_from(["", "/", "/v1/"])
)
def test_any_user_and_password_fit_into_an_address(user: str, password: str, path: str) -> None:
    url = f"http://{quote(user, safe='')}:{quote(password, safe='')}@host:80{path}"
    address = parse_address(url)
    assert address.base == "http://host:80"
    assert address.auth == (user, password)
    assert password in address.secrets()
    assert address.url("/x") == "http://host:80/x"


@pytest.mark.parametrize(
    "url", ["host:8000", "ftp://host", "http://", "http://me:p/s3cr3t@host", "http://h:99999", ""]
)
def test_what_is_no_address_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError, match="no address of a server") as refused:
        connect(Fake(), url)
    assert "s3cr3t" not in str(refused.value)


def test_settings_that_are_no_numbers_and_keys_that_are_none_are_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for bad in ({"timeout": "x"}, {"retries": 1.5}, {"backoff": -1}, {"retries": True}):
        with pytest.raises(ConfigError, match="must be a number"):
            connect(Fake(), **bad)
    monkeypatch.setenv("OPENAI_API_KEY", "ключ s3cr3t")
    with pytest.raises(ConfigError, match="OPENAI_API_KEY holds") as refused:
        connect(Fake())
    assert "s3cr3t" not in str(refused.value)


# Odd answers --------------------------------------------------------------------------------------


def answer_with(**changes: Any) -> httpx.Response:
    """A completion of two tokens with something odd in it."""
    choice = {
        "token_ids": [5, 6],
        "finish_reason": "length",
        "logprobs": {"token_logprobs": [-1.0, -2.0], "top_logprobs": []},
    }
    whole = {"choices": [choice], "usage": None}
    for name, value in changes.items():
        place: Any = whole if name in whole else choice if name in choice else choice["logprobs"]
        place[name] = value
    return httpx.Response(200, content=json.dumps(whole).encode())  # json.dumps writes NaN too


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (httpx.Response(200, content=b"[" * 200_000), "not JSON"),
        (httpx.Response(200, content=b'{"choices": [{"token_ids": [' + b"9" * 5000), "not JSON"),
        (httpx.Response(302, headers={"location": "/login"}), "302"),
        (httpx.Response(400, content=b"[" * 200_000), r"answered 400: \[\[\["),
        (answer_with(token_ids=["a", "b"]), "a token id is 'a'"),
        (answer_with(token_ids="ab"), "a token id is 'a'"),
        (answer_with(token_ids=None), "not a vllm completion"),
        (answer_with(token_ids=[1.5, 2.0]), "a token id is 1.5"),
        (answer_with(token_ids=[None, 1]), "a token id is None"),
        (answer_with(token_ids=[-1, 1]), "a token id is -1"),
        (answer_with(token_ids=[True, False]), "a token id is True"),
        (answer_with(token_ids=[[1], 2]), r"a token id is \[1\]"),
        (answer_with(token_ids=[2**70, 1]), "a token id is 118"),
        (answer_with(token_ids=[5] * 13), "13 tokens, but 12 were asked for"),
        (answer_with(token_ids=[EOS, 6]), "tokens behind an end token"),
        (answer_with(token_logprobs=[-1.0]), "2 tokens, but 1 log-probs"),
        (answer_with(token_logprobs=[-1.0, float("nan")]), "a log-prob is nan"),
        (answer_with(token_logprobs=[float("-inf"), -1.0]), "a log-prob is -inf"),
        (answer_with(token_logprobs=[3.0, -1.0]), "a log-prob is 3.0"),
        (answer_with(token_logprobs=["x", None]), "a log-prob is 'x'"),
        (answer_with(token_logprobs=5), "not a vllm completion"),
        (answer_with(logprobs="x"), "not a vllm completion"),
        (answer_with(usage="x"), "not a vllm completion"),
        (answer_with(usage={"prompt_tokens_details": {"cached_tokens": 1.5}}), "usage is 1.5"),
        (
            answer_with(usage={"prompt_tokens_details": {"cached_tokens": -1}}),
            r"usage is \(3, -1, 2\)",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_odd_answer_costs_one_request(answer: httpx.Response, said: str) -> None:
    fake = Fake()
    engine = connect(fake)
    fake.trouble = in_turn(answer)
    with pytest.raises(EngineError, match=said) as odd:
        raise gather(engine, ask("a"))[0]
    assert not odd.value.retryable
    assert len(str(odd.value)) < 500
    assert isinstance(gather(engine, ask("b"))[0], Completion)


def test_a_broken_body_and_an_odd_wait_are_tried_again() -> None:
    fake = Fake()
    engine = connect(fake)
    wanted = gather(engine, ask("a"))
    fake.trouble = in_turn(
        httpx.DecodingError("incorrect header check"),
        httpx.Response(429, headers=[(b"retry-after", "²".encode())]),
        httpx.Response(503, headers={"retry-after": "nan"}, content=b"[" * 200_000),
    )
    assert gather(engine, ask("a")) == wanted


def test_an_end_token_at_the_limit_ends_the_path_and_cached_tokens_stay_within_the_prompt() -> None:
    fake = Fake()
    engine = connect(fake)
    cached = {"prompt_tokens_details": {"cached_tokens": 10**9}}
    fake.trouble = in_turn(answer_with(token_ids=[5, EOS], usage=cached))
    (found,) = gather(engine, ask("a"))
    assert found.finish_reason == "eos"
    assert found.usage == (3, 3, 2)


def test_odd_scores_and_texts_are_refused() -> None:
    fake = Fake()
    engine = connect(fake)
    for rows in ([None, {"6": {"logprob": None}}], [None, {}], 5, [None]):
        fake.trouble = in_turn(httpx.Response(200, json={"choices": [{"prompt_logprobs": rows}]}))
        with pytest.raises(EngineError, match="not a vllm score"):
            asyncio.run(engine.score((5, 6), 1))
    plain = Fake("openai")
    engine = connect(plain)
    choice = {"text": None, "finish_reason": "stop"}
    plain.trouble = in_turn(httpx.Response(200, json={"choices": [choice]}))
    assert "its text is a NoneType" in str(gather(engine, ask("a"))[0])


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (httpx.Response(200, json={"data": []}), "no list of models: is this an OpenAI-style"),
        (httpx.Response(200, json=[1]), "no list of models: is this an OpenAI-style address?"),
        (httpx.Response(200, text="<html>"), "no list of models: is this an OpenAI-style"),
        (httpx.Response(200, json={"data": ["m"]}), "no list of models: is this an OpenAI-style"),
        (httpx.Response(200, json={"data": [{"id": 5}]}), "names no model"),
        (httpx.Response(302, headers={"location": "/login"}), "/v1/models answered 302"),
        (
            httpx.Response(200, json={"data": [{"id": "m", "max_model_len": "512"}]}),
            "max_model_len is '512'",
        ),
    ],
)
def test_a_server_that_says_odd_things_of_itself_is_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, answer: httpx.Response, said: str
) -> None:
    fake = Fake()
    monkeypatch.setattr(fake, "about", lambda path: answer)
    with pytest.raises(ConfigError) as refused:
        connect(fake)
    assert str(refused.value).startswith("the server at http://one cannot be used: ")
    assert said in str(refused.value)


def test_logprobs_without_alternatives_are_of_no_known_distribution() -> None:
    class Bare(Fake):
        def vllm(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
            answer = super().vllm(path, {**body, "logprob_token_ids": None})
            answer["choices"][0]["logprobs"]["top_logprobs"] = None
            return answer

    engine = connect(Bare())
    assert engine.findings.logprobs == "none"
    assert "no alternatives" in " ".join(engine.findings.notes)
    assert gather(engine, ask("a"))[0].logprobs == ()
