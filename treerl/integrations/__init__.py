"""Adapters to other people's training loops, and what they share.

Importing this package or one of its modules loads neither torch nor the loop's own library.
"""

from __future__ import annotations

import ast
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from treerl.golds import UnmarkedAnswer, extract_gold
from treerl.verdict import AnswerVerdict

if TYPE_CHECKING:
    from treerl.verifiers import AnswerVerifier, CodeTest

__all__ = ["PerProcess", "completion_text", "judge_answer", "plain_data", "read_tests"]

T = TypeVar("T")


class PerProcess(Generic[T]):
    """An object made when a process first asks for it, in every process anew.

    No lock is held while it is made, so neither threads nor a fork at the wrong moment can block
    it. Pickling takes the recipe along, never the object.

    Args:
        make: The recipe; importable, and cheap: threads that come first together may all call it.
        first: The object of this process, if there is one already.
    """

    def __init__(self, make: Callable[[], T], first: T | None = None) -> None:
        self.make = make
        self._made: dict[int, T] = {} if first is None else {os.getpid(): first}

    def __getstate__(self) -> dict[str, Any]:
        return {"make": self.make, "_made": {}}

    def get(self) -> T:
        """Return this process's object."""
        pid = os.getpid()
        found = self._made.get(pid)
        # setdefault is atomic: whoever comes second takes what is there.
        return found if found is not None else self._made.setdefault(pid, self.make())


def completion_text(completion: Any) -> str:
    """Return the text that a model wrote: a string, or a chat's last turn of the assistant.

    A turn may hold its text in parts, as chats with images do. What holds no text is empty.
    """
    if isinstance(completion, str):
        return completion
    if not isinstance(completion, Sequence):
        return ""
    turns = [turn for turn in completion if isinstance(turn, Mapping)]
    said = [turn for turn in turns if turn.get("role", "assistant") == "assistant"]
    content = said[-1].get("content") if said else None
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, Sequence) else ()
    texts = [part.get("text") for part in parts if isinstance(part, Mapping)]
    return "".join(text for text in texts if isinstance(text, str))


def plain_data(value: Any) -> Any:
    """Return a cell of a table as plain Python data; arrays become lists."""
    tolist = getattr(value, "tolist", None)
    return value if tolist is None else tolist()


def judge_answer(verifier: AnswerVerifier, response: str, gold: Any) -> AnswerVerdict:
    r"""Compare a response with a gold that stands in a data set.

    Args:
        verifier: What compares.
        response: The model's text.
        gold: Text, a number, or a list of just one; also a worked solution that ends with
            ``#### x`` or marks its answer with ``\boxed{x}``.

    Returns:
        The verifier's verdict, or one whose ``gold_at_fault`` is true and whose reason is
        "gold_missing", "gold_several", "gold_kind", "gold_unmarked" (a worked solution that does
        not say what its answer is) or "gold_unreadable" (nothing in its mark, or a mark left open).
    """
    gold = plain_data(gold)
    if isinstance(gold, Sequence) and not isinstance(gold, str):
        if len(gold) > 1:
            return AnswerVerdict(None, "gold_several")
        gold = plain_data(gold[0]) if gold else None
    if gold is None or (isinstance(gold, float) and math.isnan(gold)):
        return AnswerVerdict(None, "gold_missing")
    if isinstance(gold, bool) or not isinstance(gold, str | int | float):
        return AnswerVerdict(None, "gold_kind")
    text = str(gold)
    if not text.strip():
        return AnswerVerdict(None, "gold_missing")
    try:
        answer = extract_gold(text, worked=True)
    except UnmarkedAnswer:
        return AnswerVerdict(None, "gold_unmarked")
    except ValueError:
        return AnswerVerdict(None, "gold_unreadable")
    return verifier.verify(response, answer)


def read_tests(value: Any) -> list[CodeTest]:
    """Read the unit tests of a data set's row.

    Args:
        value: A :class:`CodeTest`, an assertion (text that Python runs), an object, a list of
            these, or JSON text of any. An object has "assertion", or "stdin" and "stdout", or
            "function", "args" and "expected", or it holds many tests as lists: "inputs" and
            "outputs", with "fn_name" where these are arguments and values.

    Raises:
        ValueError: There is no test, or one that cannot be read. Nothing is guessed: a program
            must not pass because its tests were lost.
    """
    value = plain_data(value)
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ValueError("the tests are no valid JSON") from error
    if isinstance(value, Sequence) and not isinstance(value, str):
        tests = [test for item in value for test in _tests_of(plain_data(item))]
    else:
        tests = _tests_of(value)
    if not tests:
        raise ValueError("there are no tests")
    return tests


def _tests_of(value: Any) -> list[CodeTest]:
    from treerl.verifiers import CodeTest

    if isinstance(value, CodeTest):
        return [value]
    if isinstance(value, str):
        return [CodeTest.holds(_checked(value))]
    if not isinstance(value, Mapping):
        raise ValueError(f"a test is text or an object, not {type(value).__name__}")
    # Tables give every row all the fields of any; those that a test does not have are null.
    cells = {name: plain_data(cell) for name, cell in value.items()}
    given = {name: cell for name, cell in cells.items() if cell is not None}
    if "inputs" in given or "outputs" in given:
        return _listed(given)
    if "function" in given:
        if "expected" not in cells or not isinstance(args := given.get("args"), list | tuple):
            raise ValueError("a test of a function needs 'args', a list, and 'expected'")
        return [CodeTest.returns(str(given["function"]), args, cells["expected"])]
    if "stdout" in given:
        return [CodeTest.prints(_input(given.get("stdin", "")), _input(given["stdout"]))]
    if isinstance(given.get("assertion"), str):
        return [CodeTest.holds(_checked(given["assertion"]))]
    raise ValueError("a test needs 'assertion', 'stdout', 'function', or 'inputs' and 'outputs'")


def _listed(given: Mapping[str, Any]) -> list[CodeTest]:
    from treerl.verifiers import CodeTest

    inputs, outputs = given.get("inputs"), given.get("outputs")
    if not isinstance(inputs, list | tuple) or not isinstance(outputs, list | tuple):
        raise ValueError("'inputs' and 'outputs' are lists")
    if len(inputs) != len(outputs):
        raise ValueError("'inputs' and 'outputs' differ in length")
    pairs = [(plain_data(a), plain_data(b)) for a, b in zip(inputs, outputs, strict=True)]
    name = given.get("fn_name")
    if name is None:
        return [CodeTest.prints(_input(a), _input(b)) for a, b in pairs]
    if not all(isinstance(a, list | tuple) for a, _ in pairs):
        raise ValueError("with 'fn_name', each of the 'inputs' is a list of arguments")
    return [CodeTest.returns(str(name), a, b) for a, b in pairs]


def _input(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and all(isinstance(line, str) for line in value):
        return "\n".join(value)
    raise ValueError("input and output are text or lists of lines")


_INERT = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom


def _checked(assertion: str) -> str:
    """Refuse what every program passes: text that defines things but tests nothing."""
    try:
        body = ast.parse(assertion).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError("an assertion is no Python") from error
    runs = [node for node in body if not isinstance(node, _INERT | ast.Assign | ast.AnnAssign)]
    if not any(isinstance(n, ast.Assert | ast.Call | ast.Raise) for r in runs for n in ast.walk(r)):
        raise ValueError("the assertions test nothing: they only define")
    return assertion
