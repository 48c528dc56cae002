"""An engine of somebody else's making, looked at with every answer.

A slip in an engine must cost one request, or end a run in order: never write an odd tree, and
never leave a user with a traceback of code that is not his.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import sysconfig
import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from treerl.config import to_jsonable
from treerl.engines.base import Capabilities, Completion, Engine, Request, Tokenizer
from treerl.engines.checks import check_completion, check_request, read_logprob, room_for
from treerl.engines.tokenizer import ByteTokenizer, HFTokenizer
from treerl.errors import ConfigError, EngineDied, EngineError, TreeRLError

__all__ = ["GuardedEngine", "place_in_code"]

_log = logging.getLogger(__name__)


class GuardedEngine:
    """Passes requests on to an engine and checks what it answers.

    An odd completion becomes an EngineError, so that it costs one node; any other error of the
    engine's code becomes an EngineDied that names the place. Further attributes are the engine's.

    Args:
        engine: The engine to guard.
        name: What to call it in messages, e.g. "--engine my_engines:make".
        warn: Told in a sentence that the engine could not be closed.

    Raises:
        ConfigError: The engine lacks something, or has something else in its place.
    """

    def __init__(
        self, engine: Engine, name: str, *, warn: Callable[[str], None] = _log.warning
    ) -> None:
        self._engine = engine
        self._name = name
        self._warn = warn
        for method in ("generate", "abort", "close"):
            if not callable(getattr(engine, method, None)):
                raise ConfigError(f"{name} has no method `{method}`")
        self.tokenizer: Tokenizer = self._tokenizer()
        self.eos_ids: frozenset[int] = self._eos_ids()
        self.capabilities: Capabilities = self._capabilities()
        # Only of treerl's own tokenizers is it known that the size counts added tokens too.
        own = isinstance(self.tokenizer, HFTokenizer | ByteTokenizer)
        self._vocab_size: int | None = self.tokenizer.vocab_size if own else None  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> Any:
        """Return what else the engine has."""
        if name == "_engine":  # not there yet, e.g. while unpickling
            raise AttributeError(name)
        return getattr(self._engine, name)

    async def generate(self, request: Request) -> Completion:
        """Sample one completion; see :meth:`treerl.engines.base.Engine.generate`."""
        bound = self.capabilities.max_context
        check_request(request, max_context=bound)
        found = await self._ask("generate", request)
        room = room_for(request, bound) if self.capabilities.token_ids else None
        size = self._vocab_size
        try:
            return check_completion(found, request, self.eos_ids, room=room, vocab_size=size)
        except EngineError as error:
            raise EngineError(f"{self._name}: {error}") from error

    async def score(self, token_ids: Sequence[int], start: int) -> list[float]:
        """Return log-probs (nats, temperature 1) of ``token_ids[start:]`` given what precedes."""
        if not self.capabilities.score:
            raise EngineError(f"{self._name} cannot score given tokens")
        found = await self._ask("score", token_ids, start)
        try:
            scores = [read_logprob(x, least=float("-inf")) for x in found]
            if len(scores) != len(token_ids) - start:
                raise ValueError(f"{len(scores)} log-probs of {len(token_ids) - start} tokens")
        except (TypeError, ValueError) as error:
            raise EngineError(f"{self._name}: odd scores: {error}") from error
        return scores

    async def abort(self, request_id: str) -> None:
        """End a request; see :meth:`treerl.engines.base.Engine.abort`."""
        await self._ask("abort", request_id)

    async def close(self) -> None:
        """Free the engine; if that fails, what is finished stays finished."""
        try:
            await self._ask("close")
        except TreeRLError as error:
            self._warn(f"{error}; what is finished is safe all the same")

    async def _ask(self, method: str, *arguments: Any) -> Any:
        try:
            answer = getattr(self._engine, method)(*arguments)
            if not inspect.isawaitable(answer):
                raise EngineDied(f"{self._name}: `{method}` must be an `async def`")
            return await answer
        except TreeRLError:
            raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Nobody cancelled us: the engine let out a cancellation of its own making.
            raise EngineError(f"{self._name}: `{method}` was cancelled inside") from None
        except Exception as error:  # whatever the user's code raises
            hint = "; where one request alone fails, raise treerl.errors.EngineError instead"
            raise EngineDied(
                f"{self._name} fails in `{method}`: {_words(error)}{place_in_code(error)}"
                f"{hint if method == 'generate' else ''}"
            ) from error

    def _tokenizer(self) -> Tokenizer:
        found = self._engine.tokenizer
        for method in ("encode", "decode", "encode_prompt"):
            if not callable(getattr(found, method, None)):
                raise ConfigError(
                    f"{self._name}.tokenizer is {_kind(found)} without `{method}`; HFTokenizer of "
                    "treerl.engines adapts one of transformers"
                )
        return found

    def _eos_ids(self) -> frozenset[int]:
        found: Any = self._engine.eos_ids
        if isinstance(found, Collection) and all(type(i) is int and i >= 0 for i in found):
            return frozenset(found)
        raise ConfigError(f"{self._name}.eos_ids is {_kind(found)}, not a frozenset of token ids")

    def _capabilities(self) -> Capabilities:
        found: Any = self._engine.capabilities
        if not isinstance(found, Capabilities):
            raise ConfigError(
                f"{self._name}.capabilities is {_kind(found)}, not a Capabilities of treerl.engines"
            )
        bound = found.max_context
        if bound is not None and (type(bound) is not int or bound < 2):
            raise ConfigError(
                f"{self._name}.capabilities.max_context is {bound!r}, not a number of tokens"
            )
        try:
            if not isinstance(found.detail, dict):
                raise TypeError(f"it is {_kind(found.detail)}")
            to_jsonable(found.detail)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"{self._name}.capabilities.detail must be an object of JSON values for the "
                f"manifest: {error}"
            ) from error
        can_score = found.score and callable(getattr(self._engine, "score", None))
        return replace(found, score=can_score)


def place_in_code(error: BaseException) -> str:
    """Return " (file, line 3)": where in the user's own code an error arose, "" if nowhere."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(("<", *_OURS))
    ]
    own = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)] or frames
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""


_PACKAGE = Path(__file__).parents[1]
_OURS = tuple(f"{folder}{os.sep}" for folder in {_PACKAGE, _PACKAGE.resolve()})
_LIBRARIES = tuple(
    f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "purelib", "platlib")
)


def _words(error: Exception) -> str:
    said = " ".join(str(error).split())[:300].encode(errors="replace").decode()
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _kind(found: Any) -> str:
    return "None" if found is None else f"a {type(found).__name__}"
