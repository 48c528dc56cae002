"""From options to an engine with its model."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treerl.cli.console import say
from treerl.cli.plugins import is_plugin, load_engine
from treerl.errors import ConfigError

if TYPE_CHECKING:
    from treerl.engines.base import Engine

__all__ = ["ENGINES", "LAB_WORDS", "EngineOptions", "open_engine", "parse_arguments"]

LAB_WORDS = "lab:words"
"""The little model that comes with treerl."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Which model answers, and how it is run.

    Attributes:
        engine: A key of :data:`ENGINES`, or ``module:object``.
        model: Folder, hub id, :data:`LAB_WORDS`, or what the engine takes for a name.
        url: Addresses of servers.
        dtype: Number format of the weights; None is the engine's default.
        device: None chooses the first GPU, else the CPU.
        max_batch: Requests at once; None is the engine's default.
        max_context: None takes the model's own bound.
        engine_arg: Further arguments of the engine.
    """

    engine: str = "hf"
    model: str | None = None
    url: tuple[str, ...] = ()
    dtype: str | None = None
    device: str | None = None
    max_batch: int | None = None
    max_context: int | None = None
    engine_arg: Mapping[str, Any] = field(default_factory=dict)


def open_engine(options: EngineOptions) -> Engine:
    """Load the model, or find the server.

    Raises:
        ConfigError: There is no such engine, an option does not belong to it, or there is no model
            where it was looked for.
        MissingExtra: The engine's libraries are not installed.
    """
    name = options.engine
    if name in ENGINES:
        return ENGINES[name](options)
    if not is_plugin(name):
        raise ConfigError(f"no engine '{name}'; there are: {', '.join(ENGINES)}, or module:object")
    _refuse(options, "your own engine", "url", "dtype", "device", "max_batch", "max_context")
    return load_engine(name, options.model, dict(options.engine_arg))


def parse_arguments(pairs: Sequence[str]) -> dict[str, Any]:
    """Read ``KEY=VALUE`` pairs; a value that is no JSON is text.

    Raises:
        ConfigError: A pair has no key, or a key stands twice.

    Example:
        >>> parse_arguments(["block_size=16", "quantization=awq"])
        {'block_size': 16, 'quantization': 'awq'}
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not key.isidentifier():
            raise ConfigError(f"--engine-arg {pair!r} is no KEY=VALUE")
        if key in found:
            raise ConfigError(f"--engine-arg {key} is given twice")
        try:
            found[key] = json.loads(text)
        except ValueError:
            found[key] = text
    return found


def _open_hf(options: EngineOptions) -> Engine:
    from treerl.engines.hf import HFEngine

    _refuse(options, "--engine hf", "url")
    known = ("prefix_cache", "batch_tokens", "threads")
    for name, value in options.engine_arg.items():
        _check_known(name, known, "hf")
        if type(value) is not int or value < (name != "prefix_cache"):
            raise ConfigError(f"--engine-arg {name} must be a positive whole number, not {value!r}")
    arguments = dict(options.engine_arg)
    if options.model == LAB_WORDS:
        # Its matrices are so small that sharing them out costs more than it saves, most of all
        # where other programs want the cores too.
        arguments.setdefault("threads", 1)
    try:
        return HFEngine.from_pretrained(
            _path(options),
            dtype="float32" if options.dtype in (None, "auto") else str(options.dtype),
            device=options.device,
            max_batch=options.max_batch or 32,
            max_context=options.max_context,
            **arguments,
        )
    except (RuntimeError, AssertionError) as error:  # torch: no such device, or its memory is full
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"{options.model} cannot be put on the device: {reason}") from error


def _open_vllm(options: EngineOptions) -> Engine:
    _refuse(options, "--engine vllm", "url", "device")
    model = _path(options)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")  # read when vllm is imported
    from treerl.engines.vllm_engine import VLLMEngine

    known = _vllm_arguments()
    for name in options.engine_arg:
        _check_known(name, known, "vllm")
    arguments = dict(options.engine_arg)
    if options.max_batch is not None:
        arguments.setdefault("max_num_seqs", options.max_batch)
    try:
        return VLLMEngine.from_pretrained(
            model, dtype=str(options.dtype or "auto"), max_context=options.max_context, **arguments
        )
    except (TypeError, AssertionError) as error:  # vLLM, of arguments that it cannot use
        raise ConfigError(f"vLLM cannot load {model}: {error}") from error


def _vllm_arguments() -> set[str]:
    """Return what may be passed on; the token of the hub stays in the environment."""
    from vllm.engine.arg_utils import AsyncEngineArgs

    return {f.name for f in fields(AsyncEngineArgs)} - {"model", "dtype", "hf_token"}


def _open_server(options: EngineOptions) -> Engine:
    from treerl.engines.server import ServerEngine

    if not options.url:
        raise ConfigError("--engine server needs --url, the address of the server")
    _refuse(options, "--engine server", "dtype", "device")
    known = ("tokenizer", "dialect", "timeout", "retries", "backoff", "api_key_env")
    for name in options.engine_arg:
        _check_known(name, known, "server")
    arguments = dict(options.engine_arg)
    if options.model is not None:
        is_folder = options.model == LAB_WORDS or Path(options.model).expanduser().is_dir()
        arguments.setdefault("tokenizer", _path(options)) if is_folder else arguments.setdefault(
            "model", options.model
        )
    if options.max_batch is not None:
        arguments["concurrency"] = options.max_batch
    with _without_log("treerl.engines.server"):
        engine = ServerEngine.connect(options.url, max_context=options.max_context, **arguments)
    for note in engine.findings.notes:
        say(f"  note: {note}")
    return engine


ENGINES: dict[str, Callable[[EngineOptions], Engine]] = {
    "hf": _open_hf,
    "vllm": _open_vllm,
    "server": _open_server,
}
"""Engines by name; each imports its libraries when it is opened."""


def _path(options: EngineOptions) -> str:
    """Return the folder or hub id of the model.

    Raises:
        ConfigError: None was given, or the lab has none of that name.
    """
    model = options.model
    if model is None:
        raise ConfigError(f"--engine {options.engine} needs --model, a model folder or a hub id")
    if not model.startswith("lab:"):
        return str(Path(model).expanduser()) if model.startswith("~") else model
    if model != LAB_WORDS:
        raise ConfigError(f"no lab model '{model}'; there is {LAB_WORDS}")
    from treerl.lab.words import model_path

    return str(model_path())


def _refuse(options: EngineOptions, engine: str, *names: str) -> None:
    """Refuse options that the engine would ignore."""
    for name in names:
        if getattr(options, name) not in (None, ()):
            mend = {"device": "; choose it with CUDA_VISIBLE_DEVICES" * ("vllm" in engine)}
            option = name.replace("_", "-")
            raise ConfigError(
                f"--{option} does not belong to {engine}{mend.get(name, '') or '; leave it out'}"
            )


def _check_known(name: str, known: Sequence[str] | set[str], engine: str) -> None:
    if name not in known:
        listed = f": {', '.join(known)}" if len(known) < 20 else " (those of AsyncEngineArgs)"
        raise ConfigError(f"--engine {engine} has no argument '{name}'; it has{listed}")


@contextmanager
def _without_log(name: str) -> Iterator[None]:
    """Keep a logger silent: what it would say is printed in another form."""
    logger = logging.getLogger(name)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
