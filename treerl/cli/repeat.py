"""What a manifest says about the command, and how an earlier run is repeated from it.

The section ``command`` of a manifest has two parts. ``repeat`` holds every option that the run
depends on, and where its input lies: ``--config`` reads it. It does not say which run it is, since
all that labels depend on stands in the other sections too; so a run that goes on keeps the part as
its first command wrote it. ``engine`` holds what labels depend on and no other section says.

What no label depends on (``--active``, ``--max-batch``, ``--device``) is not written down.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin

from treerl.cli.engines import EngineOptions
from treerl.cli.inputs import InputOptions
from treerl.cli.plugins import is_plugin
from treerl.cli.presets import LabelOptions, in_force
from treerl.engines.address import without_secrets as _without_secrets
from treerl.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from treerl.engines.base import Engine
    from treerl.prm.pipeline import Labeler
    from treerl.problem import Problem
    from treerl.search.rollouts import Rollouts

__all__ = ["check_options", "command_of", "differences", "read_config", "with_command"]

R = TypeVar("R", "Labeler", "Rollouts")

_NOT_WRITTEN = ("device", "max_batch", "url")
_NO_MATTER = {
    *("prefix_cache", "batch_tokens", "threads"),
    *("timeout", "retries", "backoff", "api_key_env"),
    *("gpu_memory_utilization", "kv_cache_memory_bytes", "max_num_seqs", "swap_space"),
    *("max_num_batched_tokens", "enforce_eager", "disable_log_stats", "download_dir"),
}
"""Arguments of engines that decide how fast they are, but not what they answer."""


_TOLD: dict[str, tuple[str, ...]] = {
    "treerl": (),
    "engine": ("engine", "model", "dtype", "device"),
    "problems": tuple(f.name for f in fields(InputOptions)),
    "verifier": ("verifier", "tools", "preset"),
    "reward": ("reward",),
}
"""Sections that say with what a run was made, and the options that decide about them."""


def command_of(
    inputs: InputOptions, engine: EngineOptions, options: LabelOptions, live: Engine
) -> dict[str, Any]:
    """Return the section ``command`` of a new run's manifest."""
    repeat: dict[str, Any] = {
        **{name: value for name, value in asdict(inputs).items() if value is not None},
        **{name: value for name, value in asdict(engine).items() if value not in (None, {}, ())},
        **in_force(options, solutions=inputs.solutions is not None),
    }
    repeat = {
        name: _plain(value)
        for name, value in repeat.items()
        if name not in _NOT_WRITTEN and value is not None
    }
    for name in ("problems", "solutions"):
        if name in repeat:
            repeat[name] = _where(repeat[name])
    if engine.url:
        repeat["url"] = [_without_secrets(url) for url in engine.url]
    arguments = {k: v for k, v in engine.engine_arg.items() if k not in _NO_MATTER}
    depends: dict[str, Any] = {
        "arguments": arguments,
        "max_context": live.capabilities.max_context,
    }
    if is_plugin(engine.engine):  # others say what they are in the section "engine"
        depends |= {"object": engine.engine, "model": engine.model}
    return {"repeat": repeat, "engine": depends}


def with_command(run: R, command: dict[str, Any], out: Path) -> R:
    """Return a labeler or roller that writes the section, or keeps that of a run to go on with."""
    from treerl.runfiles import read_json

    path = out / "manifest.json"
    if not path.exists():
        return replace(run, command=command)
    earlier = read_json(path).get("command")
    if not isinstance(earlier, dict):
        return run  # of a program that wrote none
    return replace(run, command={**command, "repeat": earlier.get("repeat")})


def read_config(path: Path, kind: str = "label") -> tuple[dict[str, Any], dict[str, Any]]:
    """Read an earlier run's manifest.

    Args:
        path: A run folder or its manifest.json.
        kind: The command that made the run.

    Returns:
        The manifest and the options to repeat.

    Raises:
        ConfigError: There is no manifest, or none of a run that can be repeated.
    """
    from treerl.runfiles import RUN_SCHEMA, read_json

    file = path / "manifest.json" if path.is_dir() else path
    if not file.exists():
        raise ConfigError(f"--config {path}: there is no {file}")
    try:
        manifest = read_json(file)
    except StoreError as error:
        raise ConfigError(f"--config {path}: {error}") from error
    if manifest.get("schema") != RUN_SCHEMA or manifest.get("kind") != kind:
        raise ConfigError(f"--config {path}: {file} is no manifest of `treerl {kind}`")
    command = manifest.get("command")
    options = command.get("repeat") if isinstance(command, dict) else None
    if not isinstance(options, dict):
        raise ConfigError(
            f"--config {path}: the run was not made by the command line, so {file} does not say "
            "where its problems lie"
        )
    return manifest, dict(options)


def check_options(
    stored: Mapping[str, Any], hints: Mapping[str, Any], config: Path
) -> dict[str, Any]:
    """Return a manifest's options as the command line would have read them.

    Args:
        stored: The options; somebody may have edited them.
        hints: The annotations of the command's parameters.
        config: What to call the manifest in messages.

    Raises:
        ConfigError: An option is unknown, or has a value that the command line would refuse.
    """
    found = {}
    for name, value in stored.items():
        hint = hints.get(name)
        if hint is None:
            raise ConfigError(f"--config {config}: this version has no option '{name}'")
        kinds = list(get_args(hint.__origin__) or (hint.__origin__,))
        if name == "engine_arg":
            kinds = [dict]
        least = getattr(hint.__metadata__[0], "min", None)
        for kind in kinds:
            try:
                found[name] = _as(kind, value, least)
                break
            except ValueError:
                continue
        else:
            raise ConfigError(f"--config {config}: '{name}' cannot be {_short(value)}")
    return found


def _as(kind: Any, value: Any, least: float | None) -> Any:
    """Return a JSON value as an option's type has it.

    Raises:
        ValueError: It is of another type, or too small.
    """
    if kind is type(None) and value is None:
        return None
    if get_origin(kind) is list and isinstance(value, list):
        return tuple(_as(get_args(kind)[0], item, None) for item in value)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind or (least is not None and value < least):
        raise ValueError
    return value


def differences(
    earlier: Mapping[str, Any],
    labeler: Labeler,
    problems: Sequence[Problem],
    engine: Engine,
    *,
    beside: Collection[str],
) -> list[str]:
    """Return in what a run differs from the one that it repeats, a phrase each.

    Args:
        earlier: Manifest of the run to repeat.
        labeler, problems, engine: The new run.
        beside: Options given beside ``--config``: what they change needs no word.
    """
    now = labeler.manifest(problems, engine)
    changed = set(beside) - {"active", "max_batch", "url"}
    told = set(_TOLD) if changed else set(now)
    for section, options in _TOLD.items():
        if changed.intersection(options):
            told.discard(section)
    old, new = dict(_flat(earlier)), dict(_flat(now))
    return [
        f"{key}: {_short(old.get(key))} there, {_short(new.get(key))} now"
        for key in sorted({*old, *new})
        if key.partition(".")[0] in told
        and not key.startswith("command.repeat.")
        and old.get(key) != new.get(key)
    ]


def _flat(value: Mapping[str, Any], front: str = "") -> Iterator[tuple[str, Any]]:
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            yield from _flat(item, f"{front}{key}.")
        elif item is not None:
            yield f"{front}{key}", list(item) if isinstance(item, tuple) else item


def _short(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    return list(value) if isinstance(value, tuple) else value


def _where(source: str) -> str:
    """Return a source such that it is found from any folder."""
    path = Path(source).expanduser()
    return str(path.resolve()) if path.exists() else source
