"""Which options the user gave, and which of them belong together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import typer

from treerl.cli.engines import parse_arguments
from treerl.cli.setup import unescape
from treerl.errors import ConfigError

__all__ = ["given_options", "options_of"]


def given_options(ctx: typer.Context, typed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that the user gave, as the rest of the program takes them.

    Args:
        ctx: Knows which options were given.
        typed: Every parameter of the command by its name.

    Raises:
        ConfigError: A value cannot be read.
    """
    given = {
        name: value
        for name, value in typed.items()
        if (source := ctx.get_parameter_source(name)) is not None and source.name != "DEFAULT"
    }
    for name in ("ctx", "out", "config"):
        given.pop(name, None)
    if "url" in given:
        given["url"] = tuple(given["url"])
    if "stop" in given:
        given["stop"] = tuple(map(unescape, given["stop"]))
    if "engine_arg" in given:
        given["engine_arg"] = parse_arguments(given["engine_arg"])
    if "step_delimiter" in given:
        given["step_delimiter"] = unescape(given["step_delimiter"])
        if not given["step_delimiter"]:
            raise ConfigError("the step delimiter must not be empty")
    return given


def options_of(group: Any, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that a dataclass of options holds."""
    names = {f.name for f in fields(group)}
    return {name: value for name, value in chosen.items() if name in names}
