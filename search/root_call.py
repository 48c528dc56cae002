"""The call before the first step: the policy lists the problem's conditions and its objective.

GroundedPRM's root (groundedprm.md §1.1): one request at low temperature. What it returns is read
strictly, kept in the root's ``meta``, and put behind the problem in the prompt of all steps. Where
it fails, the steps get the plain problem, and the root's ``meta`` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from treerl.engines.base import Request, Tokenizer
from treerl.errors import EngineError, PromptTooLong
from treerl.problem import Problem
from treerl.search.growth import Answer, Growth, Judgement, JudgeRequest
from treerl.search.sampling import Sampling
from treerl.seeding import derive_seed
from treerl.steps_json import read_object
from treerl.tree import RunInfo, Tree

__all__ = [
    "ROOT_CALL_ERROR",
    "ROOT_EXAMPLE",
    "ROOT_INSTRUCTION",
    "Conditions",
    "RootCall",
    "read_conditions",
]

ROOT_CALL_ERROR = "root_call_error"
"""Key of the root's ``meta``: why its conditions are missing."""

ROOT_INSTRUCTION = """
Do not solve the problem. Say what it gives and what it asks for, as one JSON object with exactly
these two keys:
"conditions": a list of short sentences, one for each fact that the problem states;
"global_objective": one sentence that says what has to be found.
Write nothing outside the object.
""".strip()
"""The system prompt of the call."""

ROOT_EXAMPLE = (
    "A shelf holds 7 rows of 12 jars. 15 jars break. How many are left?",
    '{"conditions": ["The shelf holds 7 rows of jars.", "Each row has 12 jars.", '
    '"15 jars break."], "global_objective": "Find how many jars are left."}',
)
"""A problem and the answer to the call, shown as an earlier turn."""

TEMPERATURE = 0.1
MAX_TOKENS = 512
_MAX_CONDITIONS, _MAX_CHARS = 64, 2000


class Conditions(NamedTuple):
    """What a problem gives and asks for."""

    conditions: tuple[str, ...]
    global_objective: str

    def as_prompt(self) -> str:
        """Return the text that follows the problem in the prompt of the steps."""
        facts = "\n".join(f"{i}. {fact}" for i, fact in enumerate(self.conditions, start=1))
        return f"Conditions:\n{facts}\nObjective: {self.global_objective}"


def read_conditions(text: str) -> Conditions:
    """Read the answer to the call.

    Raises:
        ValueError: It is not one JSON object with a list of sentences and a sentence; the reason.
    """
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        raise ValueError("the answer holds no JSON object")
    row = read_object(text[start : end + 1])
    conditions, objective = row.get("conditions"), row.get("global_objective")
    if not isinstance(conditions, list) or not 0 < len(conditions) <= _MAX_CONDITIONS:
        raise ValueError(f'"conditions" is no list of 1 to {_MAX_CONDITIONS} sentences')
    for name, value in (*(("conditions", c) for c in conditions), ("global_objective", objective)):
        if not isinstance(value, str) or not value.strip() or len(value) > _MAX_CHARS:
            raise ValueError(f'"{name}" holds something that is no text, or no text at all')
    return Conditions(tuple(map(_clean, conditions)), _clean(objective))


def _clean(text: Any) -> str:
    # JSON can spell half a surrogate pair, which no file can hold.
    words = " ".join(str(text).split())
    return words.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class RootCall:
    """The call, then another growth, as one :class:`~treerl.search.growth.Growth`.

    Args:
        problem: What to solve.
        tokenizer: The engine's.
        sampling: How the steps are sampled.
        start: Starts the search on a tree that holds the prompt alone.
        run: Where seeds come from.
        system: System prompt of the steps, unless the problem has its own.
        template_options: Passed to the chat template.
        max_context: The engine's context in tokens; None is unbounded.

    Raises:
        PromptTooLong: The plain prompt leaves no room in the context.
    """

    def __init__(
        self,
        problem: Problem,
        tokenizer: Tokenizer,
        sampling: Sampling,
        start: Callable[[Tree], Growth],
        *,
        run: RunInfo,
        system: str | None = None,
        template_options: dict[str, Any] | None = None,
        max_context: int | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._start = start
        self._growth: Growth | None = None
        self._system = system
        self._prompt = sampling.steps.prompt
        self._options = template_options
        self._max_context = max_context
        self._wanted = sampling.max_tokens
        plain = self._encode(self._prompt(problem.conversation(system)))
        self.tree = Tree(problem, plain, run)
        if max_context is not None and len(plain) >= max_context:
            raise PromptTooLong(
                f"problem '{problem.id}': the prompt has {len(plain)} tokens and the context "
                f"{max_context}; shorten the prompt or take a model with a longer context"
            )
        self._out: list[Request | JudgeRequest] = []
        request = self._call(problem, run)
        if request is None:
            self._begin("the call's own prompt leaves no room in the context")
        else:
            self.tree.ledger.requests += 1
            self._out.append(request)

    @property
    def done(self) -> bool:
        """True once the search is."""
        return self._growth is not None and self._growth.done

    def ready(self) -> list[Request | JudgeRequest]:
        """Return the call, then the search's requests."""
        if self._growth is not None:
            return self._growth.ready()
        out, self._out = self._out, []
        return out

    def tell(self, request_id: str, answer: Answer) -> None:
        """Take the answer to the call, or pass an answer on to the search."""
        if self._growth is not None:
            self._growth.tell(request_id, answer)
            return
        assert not isinstance(answer, Judgement)
        ledger = self.tree.ledger
        if isinstance(answer, EngineError):
            ledger.failed_requests += 1
            self._begin(f"{type(answer).__name__}: {answer}")
            return
        ledger.book(answer.usage)
        ledger.discarded += answer.usage.generated
        try:
            found = read_conditions(self._tokenizer.decode(answer.token_ids))
        except ValueError as error:
            self._begin(str(error))
        else:
            self._begin(self._put(found))

    def _call(self, problem: Problem, run: RunInfo) -> Request | None:
        question, answer = ROOT_EXAMPLE
        prompt = self._encode(
            [
                {"role": "system", "content": ROOT_INSTRUCTION},
                {"role": "user", "content": question},
                {"role": "assistant", "content": answer},
                {"role": "user", "content": problem.text},
            ]
        )
        room = MAX_TOKENS
        if self._max_context is not None:
            room = min(room, self._max_context - len(prompt))
        if room < 1:
            return None
        tree_id = f"{problem.id}/{run.visit}/{run.tree_index}"
        seed = derive_seed("conditions", run.seed, problem.id, run.visit, run.tree_index)
        return Request(f"{tree_id}#root", tree_id, prompt, room, TEMPERATURE, seed=seed)

    def _put(self, found: Conditions) -> str | None:
        """Put the conditions into the prompt; say why not, where they leave too little room."""
        problem = self.tree.problem
        conversation = problem.conversation(self._system)
        asked = max(i for i, m in enumerate(conversation) if m["role"] == "user")
        conversation[asked]["content"] += f"\n\n{found.as_prompt()}"
        prompt = self._encode(self._prompt(conversation))
        if self._max_context is not None:
            plain = min(self._wanted, self._max_context - len(self.tree.prompt_ids))
            if 2 * min(self._wanted, self._max_context - len(prompt)) < plain:
                return (
                    f"with the conditions the prompt has {len(prompt)} tokens of a context of "
                    f"{self._max_context}: less than half the room for steps would be left"
                )
        tree = Tree(problem, prompt, self.tree.run, self.tree.ledger)
        tree.root.meta = {
            "conditions": list(found.conditions),
            "global_objective": found.global_objective,
        }
        self.tree = tree
        return None

    def _begin(self, error: str | None) -> None:
        if error is not None:
            self.tree.root.meta = {ROOT_CALL_ERROR: error}
        self._growth = self._start(self.tree)

    def _encode(self, conversation: Sequence[dict[str, str]]) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode_prompt(list(conversation), options=self._options))
