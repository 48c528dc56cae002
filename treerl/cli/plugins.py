"""Objects of the user's own, named as ``module:object`` on the command line."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from treerl.cli.console import say
from treerl.errors import ConfigError, TreeRLError

if TYPE_CHECKING:
    from treerl.engines.base import Engine
    from treerl.protocols import JudgeStep, Reward

__all__ = ["is_plugin", "load_engine", "load_reward", "load_verifier"]

_ENGINE = ("tokenizer", "eos_ids", "capabilities", "generate", "abort", "close")


def is_plugin(spec: str) -> bool:
    """Say whether a name has the form ``module:object``."""
    module, colon, name = spec.partition(":")
    return bool(colon) and all(part.isidentifier() for part in f"{module}.{name}".split("."))


def load_engine(spec: str, model: str | None, arguments: dict[str, Any]) -> Engine:
    """Load the user's engine.

    Args:
        spec: ``module:object``: an engine, or what makes one. A class or function is called with
            the name of the model, if there is one, and the arguments as keywords.
        model: The model's name.
        arguments: Of ``--engine-arg``.

    Raises:
        ConfigError: There is no such object, it fails, or what comes out is no engine.

    Returns:
        The engine, guarded: see :class:`treerl.engines.GuardedEngine`.
    """
    from treerl.engines.guarded import GuardedEngine

    found = _find(spec, "--engine")
    if inspect.isclass(found) or _call(spec, "--engine", _missing, found):
        if not callable(found):
            raise _no_engine(spec, found)
        names = () if model is None else (model,)
        found = _call(spec, "--engine", found, *names, **arguments)
        if _call(spec, "--engine", _missing, found):
            raise _no_engine(f"{spec}(…)", found)
    elif arguments:
        raise ConfigError(f"--engine {spec} is made already; leave --engine-arg out")
    guard = _call(spec, "--engine", GuardedEngine, found, f"--engine {spec}", warn=_warn)
    return cast("Engine", guard)


def _warn(text: str) -> None:
    say(f"  warning: {text}")


def load_reward(spec: str, stack: ExitStack) -> Reward:
    """Load the user's reward; a class is called without arguments first.

    Args:
        spec: ``module:object``.
        stack: Closes the reward at the end, if it is a context manager.

    Raises:
        ConfigError: There is no such object, or it cannot be called with (problem, text, leaf).
    """
    found = _made(spec, "--reward", stack)
    if not callable(found):
        raise ConfigError(
            f"--reward {spec} is {_kind(found)}, which cannot be called with (problem, text, leaf)"
        )
    _check_call(spec, "--reward", found, ("problem", "text", "leaf"))
    return cast("Reward", found)


def load_verifier(spec: str, stack: ExitStack) -> JudgeStep:
    """Load the user's judge of steps; a class is called without arguments first.

    Args:
        spec: ``module:object``.
        stack: Closes the judge at the end, if it is a context manager.

    Raises:
        ConfigError: There is no such object, or it has no name or no ``verify``.
    """
    found = _made(spec, "--verifier", stack)
    if not callable(getattr(found, "verify", None)) or not isinstance(
        getattr(found, "name", None), str
    ):
        raise ConfigError(
            f"--verifier {spec} is {_kind(found)}; it must have `name`, a string, and "
            "verify(step, *, problem, previous_steps)"
        )
    _check_call(spec, "--verifier", found.verify, ("step",), problem="", previous_steps=())
    return cast("JudgeStep", found)


def _made(spec: str, option: str, stack: ExitStack) -> Any:
    found = _find(spec, option)
    if inspect.isclass(found):
        found = _call(spec, option, found)
    if isinstance(found, AbstractContextManager):
        found = stack.enter_context(found)
    return found


def _find(spec: str, option: str) -> Any:
    if not is_plugin(spec):
        raise ConfigError(f"{option} {spec} is no module:object")
    name, _, path = spec.partition(":")
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does; a console script does not
    try:
        found: Any = import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _failed(spec, option, "cannot be imported", error) from error
        raise ConfigError(
            f"{option} {spec}: there is no module '{error.name}' in this folder or among the "
            "installed packages"
        ) from error
    except Exception as error:  # whatever the user's module raises
        raise _failed(spec, option, "cannot be imported", error) from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"{option} {spec}: {name} has no '{path}'")
        found = getattr(found, part)
    return found


def _call(spec: str, option: str, make: Callable[..., Any], *args: Any, **options: Any) -> Any:
    try:
        return make(*args, **options)
    except TreeRLError:
        raise
    except Exception as error:  # whatever the user's code raises
        raise _failed(spec, option, "fails", error) from error


def _failed(spec: str, option: str, what: str, error: Exception) -> ConfigError:
    """Return an error that says where in the user's code it went wrong."""
    from treerl.engines.guarded import place_in_code

    where = place_in_code(error)
    return ConfigError(f"{option} {spec} {what}: {type(error).__name__}: {error}{where}")


def _check_call(
    spec: str, option: str, function: Callable[..., Any], names: tuple[str, ...], **options: Any
) -> None:
    """Refuse a function that cannot be called so, now and not in the night."""
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):  # some builtins have none
        return
    try:
        signature.bind(*names, **options)
    except TypeError as error:
        asked = ", ".join((*names, *(f"{name}=…" for name in options)))
        raise ConfigError(f"{option} {spec} cannot be called with ({asked}): {error}") from error


def _missing(found: Any) -> list[str]:
    return [name for name in _ENGINE if not hasattr(found, name)]


def _no_engine(spec: str, found: Any) -> ConfigError:
    return ConfigError(
        f"--engine {spec} is {_kind(found)} and no engine: it has no "
        f"{', '.join(_missing(found))} (see treerl.engines.Engine)"
    )


def _kind(found: Any) -> str:
    return "None" if found is None else f"a {type(found).__name__}"
