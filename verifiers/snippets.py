"""Steps that contain code and state what it prints: run it, compare the output here."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from fractions import Fraction

from treerl.verdict import Claim, ClaimVerdict, Verdict

from .execute import PythonExecutor
from .parser.evaluate import NoValue, evaluate
from .parser.grammar import parse_expression
from .plain import printed_number
from .verdicts import make

__all__ = ["find_code", "judge_code", "same_output"]

_FENCE = re.compile(r"```(?:python|py)\s*\n(?P<code>.*?)```", re.DOTALL | re.IGNORECASE)
_STATED = re.compile(
    r"\s*(?:(?:```(?:output|text)?\s*\n(?P<block>.*?)```)"
    r"|(?:[^\n]{0,40}?\b(?:output|outputs|prints|printed|result|returns|gives)\b(?: is|"
    r" was)?\s*:?\s*"
    r"(?:```(?:output|text)?\s*\n(?P<fenced>.*?)```|`(?P<ticks>[^`\n]+)`|(?P<line>[^\n]+))))",
    re.DOTALL | re.IGNORECASE,
)
_SESSION = re.compile(
    r"(?:^[ \t]*>>> [^\n]*\n(?:[ \t]*\.\.\. ?[^\n]*\n)*(?:(?![ \t]*>>>)[^\n`]+(?:\n|$))*)+",
    re.MULTILINE,
)
_UNREPEATABLE = re.compile(
    r"\b(?:random|time|datetime|uuid|secrets|input|urandom|id|hash|perf_counter)\b"
)
MAX_CODE = 8_000

_shared: PythonExecutor | None = None
_lock = threading.Lock()


def _executor() -> PythonExecutor:
    """One executor for all step verifiers of this process, started on first use."""
    global _shared
    with _lock:
        if _shared is None:
            _shared = PythonExecutor(size=2)
        return _shared


def find_code(step: str) -> Iterator[tuple[int, int, str, str]]:
    """Yield (start, end, program, stated output) of a step."""
    for fence in _FENCE.finditer(step):
        stated = _STATED.match(step, fence.end())
        if stated is None:
            continue
        output = next(
            (
                stated.group(n)
                for n in ("block", "fenced", "ticks", "line")
                if stated.group(n) is not None
            ),
            "",
        )
        if stated.group("line") is not None:
            output = output.strip().strip("*`").rstrip(".")
        if output.strip() and len(fence.group("code")) <= MAX_CODE:
            yield fence.start(), stated.end(), fence.group("code"), output
    for session in _SESSION.finditer(step):
        program, output = _from_session(session.group())
        if program and output.strip() and len(program) <= MAX_CODE:
            yield session.start(), session.end(), program, output


def _from_session(text: str) -> tuple[str, str]:
    """Turn an interactive session into a program that echoes values as the prompt does."""
    statements: list[str] = []
    outputs: list[str] = []
    for line in text.splitlines():
        bare = line.strip()
        if bare.startswith(">>>"):
            statements.append(bare[3:].removeprefix(" "))
        elif bare.startswith("...") and statements:
            statements[-1] += "\n" + line.strip()[3:].removeprefix(" ")
        elif bare:
            outputs.append(bare)
    lines = [f"for s in {statements!r}:", "    exec(compile(s + '\\n', '<session>', 'single'))"]
    return "\n".join(lines), "\n".join(outputs)


def same_output(actual: str, stated: str) -> bool:
    """Equal up to spacing, or equal as numbers at the digits stated.

    What was printed counts as a number only where it is one literal; the step may state it as a
    value (``1/2`` for 0.5) and rounded. For a test's output, see :func:`.plain.same_printed`.
    """
    a, b = actual.split(), stated.split()
    if a == b:
        return True
    if len(a) != len(b) or not a:
        return False
    return all(x == y or _same_number(x, y) for x, y in zip(a, b, strict=True))


def _same_number(actual: str, stated: str) -> bool:
    a, right = printed_number(actual), parse_expression(stated, math=False)
    if a is None or right is None:
        return False
    try:
        b = evaluate(right)
    except NoValue:
        return False
    places = right.places if right.kind == "num" else -1
    if places >= 1:
        return 2 * abs(a - b) <= Fraction(1, 10) ** places
    return a == b


def judge_code(step: str, tools: Sequence[str], wall_s: float) -> Iterator[ClaimVerdict]:
    """Yield a verdict for every program of a step with a stated output."""
    if "python" not in tools or ("```" not in step and ">>>" not in step):
        return
    for start, end, program, stated in list(find_code(step))[:5]:
        claim = Claim(
            "code", step[start:end][:4000], (start, end), None, "prints", stated.strip()[:1000]
        )
        if _UNREPEATABLE.search(program):
            yield make(claim, Verdict.UNVERIFIABLE, "unrepeatable", None)
            continue
        result = _executor().run(program, wall_s=wall_s, cpu_s=max(int(wall_s), 1))
        call = result.to_call(program)
        if result.status != "ok":
            reason = "limit" if result.status in ("timeout", "limit") else "error"
            yield make(claim, Verdict.UNVERIFIABLE, reason, None, calls=(call,))
        elif same_output(result.stdout, stated):
            yield make(claim, Verdict.SUPPORTED, "same_output", "partial", calls=(call,))
        else:
            reading = f"prints {result.stdout.strip()[:200]!r}"
            yield make(claim, Verdict.REFUTED, "other_output", "partial", reading, (call,))
