"""CodeVerifier: does a program pass its tests?

Every test runs the program in a fresh confined process. Output and return values are compared
here, in the caller, so that a program must at least know them. Assert-style tests share a process
with the program they test: one that exits, or ends before their last line, has not passed, but one
that sets out to can patch what they call, or write the record that says they held.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from treerl.verdict import ToolCall, Verdict

from .execute import ExecutionResult, PythonExecutor
from .plain import TooLarge, literal, plain, same_printed, same_value
from .stats import VerifierStats

__all__ = ["CodeTest", "CodeVerdict", "CodeVerifier", "extract_program"]

# before the fence, the fence, its tag, and what else the line holds
_OPENING = re.compile(r"(.*?)(`{3,}|~{3,})[ \t]*(?:\{\.?)?([\w+#-]*)([^`]*)")
_MARK = re.compile(r"\s*(?:(?:[-*+]|\d+[.)])\s+)?")
_PYTHON = frozenset({"python", "py", "python3", "py3"})


@dataclass(frozen=True, slots=True)
class CodeTest:
    """One test: text in and out, a call and its value, or assertions.

    Attributes:
        stdin, stdout: For a program that reads and prints.
        function, args, expected: For a function call: numbers, texts, bytes, None, and lists,
            tuples, sets and dictionaries of them. A tuple equals a list.
        assertion: Code that raises where the program is wrong.

    Raises:
        ValueError: ``args`` or ``expected`` hold something else, or too much of it.
    """

    stdin: str = ""
    stdout: str | None = None
    function: str = ""
    args: tuple[Any, ...] = ()
    expected: Any = None
    assertion: str = ""

    def __post_init__(self) -> None:
        if not self.function:
            return
        try:
            literal(self.args)
            plain(self.args)
            plain(self.expected, strict=True)
        except (TypeError, TooLarge, RecursionError) as error:
            message = str(error) or "a value is too large"
            raise ValueError(f"the test of {self.function}: {message}") from error

    @classmethod
    def prints(cls, stdin: str, stdout: str) -> Self:
        """A test of a whole program."""
        return cls(stdin=stdin, stdout=stdout)

    @classmethod
    def returns(cls, function: str, args: Sequence[Any], expected: Any) -> Self:
        """A test of one call."""
        return cls(function=function, args=tuple(args), expected=expected)

    @classmethod
    def holds(cls, assertion: str) -> Self:
        """A test by assertions."""
        return cls(assertion=assertion)


@dataclass(frozen=True, slots=True)
class CodeVerdict:
    """Outcome of a program against its tests.

    Attributes:
        passed: True if every test passed, False if one failed, None without a program or tests.
        reason: "passed", "failed", "error", "timeout", "limit", "no_program", "no_tests".
        n_passed, n_tests: Counts over the tests that ran and all tests.
        program: The program found in the response.
        calls: One tool call a test that ran.
    """

    passed: bool | None
    reason: str
    n_passed: int = 0
    n_tests: int = 0
    program: str | None = None
    calls: tuple[ToolCall, ...] = ()
    wall_time_s: float = field(default=0.0, compare=False)

    @property
    def verdict(self) -> Verdict:
        """The same in the three words."""
        if self.passed is None:
            return Verdict.UNVERIFIABLE
        return Verdict.SUPPORTED if self.passed else Verdict.REFUTED

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object without the time."""
        return {
            "schema": 1,
            "passed": self.passed,
            "reason": self.reason,
            "n_passed": self.n_passed,
            "n_tests": self.n_tests,
            "program": self.program,
            "calls": [call.to_json() for call in self.calls],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Restore a verdict from :meth:`to_json`."""
        calls = tuple(ToolCall.from_json(call) for call in data["calls"])
        names = ("passed", "reason", "n_passed", "n_tests", "program")
        return cls(**{name: data[name] for name in names}, calls=calls)


def extract_program(response: str, *, think_end: str = "</think>") -> str | None:
    """Return the program of a response: the last code block tagged as Python after the reasoning.

    Without such a block it is the last one without a tag. Blocks of other languages, sessions that
    start with ``>>>`` and a response without fences are no programs. A block that is indented as
    part of a list loses that indentation.
    """
    cut = response.rfind(think_end)
    text = response[cut + len(think_end) :] if cut >= 0 else response
    blocks = [block for block in _blocks(text) if not block[1].lstrip().startswith(">>>")]
    tagged = [body for tag, body in blocks if tag in _PYTHON]
    bare = [body for tag, body in blocks if not tag]
    programs = tagged or bare
    return programs[-1] if programs else None


def _blocks(text: str) -> list[tuple[str, str]]:
    """Return (tag, body) of the fenced blocks; a block that nothing closes is cut off, and none."""
    found: list[tuple[str, str]] = []
    fence, tag, indent = "", "", 0
    body: list[str] = []
    for line in text.replace("\r\n", "\n").split("\n"):
        opening = _opened(line)
        if not fence:
            if opening is not None:
                (fence, tag, indent), body = opening, []
            continue
        bare = line.strip()
        at_margin = len(line) - len(line.lstrip()) <= indent + 3
        if at_margin and opening is not None and opening[1] in _PYTHON:
            (fence, tag, indent), body = opening, []  # nothing closes the one that was open
        elif at_margin and bare.startswith(fence):
            found.append((tag, _dedent(body)))
            fence = ""
        elif bare.endswith(fence) and bare.count(fence) == 1 and bare.strip(fence[0]):
            found.append((tag, _dedent([*body, line[: line.rindex(fence)].rstrip(fence[0])])))
            fence = ""
        else:
            body.append(line)
    return found


def _opened(line: str) -> tuple[str, str, int] | None:
    """Return (fence, tag, indentation) of a line that opens a block; words may stand before it."""
    match = _OPENING.fullmatch(line)
    if match is None:
        return None
    before, fence, tag, rest = match.groups()
    tag = tag.lower()
    if _MARK.fullmatch(before):
        return fence, tag, len(before)
    plain_tag = not rest.strip() and (not tag or tag in _PYTHON)
    return (fence, tag, 0) if plain_tag and fence[0] == "`" else None


def _dedent(lines: list[str]) -> str:
    """Join lines without the indentation of the first; a text in quotes may have less of it."""
    first = next((line for line in lines if line.strip()), "")
    width = len(first) - len(first.lstrip())
    kept = (line[min(width, len(line) - len(line.lstrip())) :] for line in lines)
    return "".join(f"{line}\n" for line in kept)


class CodeVerifier:
    """Runs programs against tests; thread-safe, picklable, never raises for model text.

    Args:
        executor: Sandbox to share; one of its own if None.
        wall_s, cpu_s, memory_mb: Limits of one test.
        stop_at_first_failure: Do not run the tests after the first that fails.
        require_isolation: As in :class:`PythonExecutor`; used for the verifier's own sandbox.
    """

    name = "treerl.code/2"

    def __init__(
        self,
        *,
        executor: PythonExecutor | None = None,
        wall_s: float = 4.0,
        cpu_s: int = 3,
        memory_mb: int = 512,
        stop_at_first_failure: bool = True,
        require_isolation: str = "none",
    ) -> None:
        self.wall_s = wall_s
        self.cpu_s = cpu_s
        self.memory_mb = memory_mb
        self.stop_at_first_failure = stop_at_first_failure
        self.require_isolation = require_isolation
        self.stats = VerifierStats()
        self._owns = executor is None
        if executor is None:
            executor = PythonExecutor(require_isolation=require_isolation)  # type: ignore[arg-type]
        self._executor = executor

    def __getstate__(self) -> dict[str, Any]:
        names = ("wall_s", "cpu_s", "memory_mb", "stop_at_first_failure", "require_isolation")
        state = {name: getattr(self, name) for name in names}
        state["executor"] = None if self._owns else self._executor
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __enter__(self) -> CodeVerifier:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the verifier's own sandbox."""
        if self._owns:
            self._executor.close()

    def verify(
        self, response: str, tests: Sequence[CodeTest], *, is_program: bool = False
    ) -> CodeVerdict:
        """Run a response's program against tests.

        Args:
            response: Model text with a code block, or the program itself.
            tests: What it must do.
            is_program: Take ``response`` as the program.

        Raises:
            TypeError: The response is no text.
        """
        if not isinstance(response, str):
            raise TypeError(f"the response must be text, not {type(response).__name__}")
        began = time.perf_counter()
        program = response if is_program else extract_program(response)
        if program is None:
            verdict = CodeVerdict(None, "no_program", 0, len(tests))
        elif not tests:
            verdict = CodeVerdict(None, "no_tests", 0, 0, program)
        else:
            verdict = self._run(program, tests)
        spent = time.perf_counter() - began
        self.stats.count(verdict.verdict, verdict.reason, verdict.calls, spent)
        return CodeVerdict(
            verdict.passed, verdict.reason, verdict.n_passed, verdict.n_tests, verdict.program,
            verdict.calls, spent,
        )  # fmt: skip

    def _run(self, program: str, tests: Sequence[CodeTest]) -> CodeVerdict:
        calls: list[ToolCall] = []
        passed = 0
        reason = "passed"
        for test in tests:
            outcome, call = self._one(program, test)
            calls.append(call)
            if outcome == "passed":
                passed += 1
                continue
            if reason == "passed":
                reason = outcome
            if self.stop_at_first_failure:
                break
        return CodeVerdict(
            passed == len(tests), reason, passed, len(tests), program[:20_000], tuple(calls)
        )

    def _one(self, program: str, test: CodeTest) -> tuple[str, ToolCall]:
        if test.stdout is not None:
            result = self._execute(program, test.stdin, "treerl_no_value")
            call = result.to_call(program)
            if result.status != "ok":
                return _failure(result), call
            return ("passed" if same_printed(result.stdout, test.stdout) else "failed"), call
        if test.function:
            # a name drawn anew: no program can have set it beforehand
            name = f"treerl_{secrets.token_hex(8)}"
            call_text = f"{test.function}(*{literal(test.args)})"
            result = self._execute(f"{program}\n{name} = {call_text}\n", test.stdin, name)
            call = result.to_call(f"{program}\n{call_text}")
            if result.status != "ok":
                return _failure(result), call
            return ("passed" if same_value(result.value, test.expected) else "failed"), call
        result = self._execute(program, test.stdin, "treerl_no_value", test.assertion)
        call = result.to_call(f"{program}\n{test.assertion}")
        if result.status != "ok":
            failed = result.error.startswith("AssertionError")
            return ("failed" if failed else _failure(result)), call
        return ("passed" if result.checked else "failed"), call

    def _execute(self, code: str, stdin: str, name: str, check: str = "") -> ExecutionResult:
        return self._executor.run(
            code,
            stdin=stdin,
            cpu_s=self.cpu_s,
            wall_s=self.wall_s,
            memory_mb=self.memory_mb,
            result_names=(name,),
            check=check,
        )


def _failure(result: ExecutionResult) -> str:
    return result.status if result.status in ("timeout", "limit") else "error"
