"""Solutions with the errors of a real model, for the policy's training data.

A policy trained on right solutions only would be of no use to a process-reward laboratory, so part
of its training data is corrupted. Each corrupted solution has one error: a *slip* (the written
equation is false), a wrong *operation*, a wrong *operand*, or a wrong final *answer*. Most errors
are carried on, as a real model does: later lines compute with the wrong value. Some are not (the
line is wrong, the next one goes on with the right value), and some hit a side step nobody needs;
those make the right answers with a wrong step that Monte-Carlo labels cannot see.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from treerl.lab.words.problem import OPS, Op, Quantity, WordsProblem, apply
from treerl.lab.words.stories import LIMIT
from treerl.lab.words.templates import ANSWER

ErrorKind = Literal["slip", "operation", "operand", "answer"]
MAX_TRIES: Final = 40


@dataclass(frozen=True, slots=True)
class NoiseRates:
    """How solutions are varied and corrupted; all fields are probabilities or weights.

    Attributes:
        error: Share of the solutions that get an error.
        kinds: Weights of the kinds (slip, operation, operand, answer).
        recover: Probability that a wrong slip or step is *not* carried on: (slip, other).
        side: Probability that a side quantity, where the problem has one, is written down.
        side_error: Probability that the error of a corrupted solution hits the written side step.
        reorder: Probability that steps come in a random valid order instead of story order.
    """

    error: float = 0.16
    kinds: tuple[float, float, float, float] = (0.12, 0.65, 0.18, 0.05)
    recover: tuple[float, float] = (0.2, 0.15)
    side: float = 0.4
    side_error: float = 0.4
    reorder: float = 0.1

    def without_errors(self) -> "NoiseRates":
        """Return the rates of solutions that vary in wording and order but are right."""
        return NoiseRates(0.0, self.kinds, self.recover, self.side, self.side_error, self.reorder)


@dataclass(frozen=True, slots=True)
class Solution:
    """A written solution and the error it was given.

    Attributes:
        lines: The lines, the last one `Answer: ...`.
        error_line: Index of the wrong line; None in a right solution.
        error_kind: Its kind; None in a right solution.
        carried: Whether later lines compute with the wrong value.
    """

    lines: tuple[str, ...]
    error_line: int | None = None
    error_kind: ErrorKind | None = None
    carried: bool = False

    @property
    def text(self) -> str:
        """The lines joined by newlines, without a final one."""
        return "\n".join(self.lines)


@dataclass(frozen=True, slots=True)
class _Equation:
    left: int
    op: Op
    right: int
    value: int

    def __str__(self) -> str:
        return f"{self.left} {self.op} {self.right} = {self.value}."


def _ordered(
    problem: WordsProblem, rng: random.Random, rates: NoiseRates
) -> list[tuple[Quantity, str]]:
    """Choose the steps to write, their order and the wording of their objectives."""
    side = rng.random() < rates.side
    steps = [q for q in problem.derived() if q.needed or side]
    if rng.random() < rates.reorder:
        steps = _shuffled(steps, rng)
    return [(q, rng.choice(q.wordings(problem.templates))) for q in steps]


def _shuffled(steps: list[Quantity], rng: random.Random) -> list[Quantity]:
    """Return the steps in a random order in which no step precedes what it needs."""
    open_steps = list(steps)
    result: list[Quantity] = []
    while open_steps:
        waiting = {q.key for q in open_steps}
        ready = [q for q in open_steps if not waiting.intersection(q.operands)]
        chosen = rng.choice(ready)
        open_steps.remove(chosen)
        result.append(chosen)
    return result


def _right(quantity: Quantity, values: Mapping[str, int]) -> _Equation | None:
    """Return the step's equation over the values believed so far; None if out of range."""
    left, right = (values[key] for key in quantity.operands)
    value = apply(quantity.op, left, right)
    if value is None or not 0 <= value < LIMIT:
        return None
    return _Equation(left, quantity.op, right, value)


def _slip(right: _Equation, rng: random.Random) -> int:
    """Return a wrong result as people write it: a carry forgotten, a digit off, two swapped."""
    how = rng.random()
    if how < 0.35:
        return right.value + rng.choice((-10, 10))
    if how < 0.8:
        return right.value + rng.choice((-3, -2, -1, 1, 2, 3))
    if how < 0.9:
        return right.value + rng.choice((-100, 100, -9, 9))
    return int(str(right.value)[::-1])


def _corrupted(
    quantity: Quantity,
    right: _Equation,
    values: Mapping[str, int],
    kind: ErrorKind,
    rng: random.Random,
) -> _Equation | None:
    """Return a wrong equation of the wanted kind; None if this draw gave none."""
    left, op, second, value = right.left, right.op, right.right, right.value
    if kind == "slip":
        value = _slip(right, rng)
    else:
        if kind == "operation":
            op = rng.choice([other for other in OPS if other != op])
        else:
            place = rng.randrange(2)
            present = (left, second)[place]
            if rng.random() < 0.7:
                wrong = rng.choice([v for k, v in values.items() if k != quantity.operands[place]])
            else:
                wrong = present + rng.choice((-10, -1, 1, 10))
            left, second = (wrong, second) if place == 0 else (left, wrong)
        result = apply(op, left, second)
        if result is None:
            return None
        value = result
    in_range = min(left, second) >= 1 and 0 <= value < LIMIT
    return _Equation(left, op, second, value) if in_range and value != right.value else None


def _write(
    problem: WordsProblem,
    steps: list[tuple[Quantity, str]],
    rng: random.Random,
    target: str | None,
    kind: ErrorKind,
    carried: bool,
) -> Solution | None:
    """Write the lines with an error at step `target`; None if the numbers do not work out."""
    believed = {q.key: q.value for q in problem.quantities if q.op == "given"}
    lines: list[str] = []
    error_line: int | None = None
    for quantity, objective in steps:
        equation = _right(quantity, believed)
        if equation is None:
            return None
        believed_value = equation.value
        if quantity.key == target and kind != "answer":
            wrong = _corrupted(quantity, equation, believed, kind, rng)
            if wrong is None:
                return None
            equation, error_line = wrong, len(lines)
            if carried:
                believed_value = wrong.value
        believed[quantity.key] = believed_value
        lines.append(f"{objective}: {equation}")
    answer = believed[problem.asked]
    if target is None or kind != "answer":
        lines.append(ANSWER.format(value=answer))
    else:
        others = [believed[q.key] for q, _ in steps if believed[q.key] != answer]
        if not others:
            return None
        error_line = len(lines)
        lines.append(ANSWER.format(value=rng.choice(others)))
    if target is None:
        return Solution(tuple(lines))
    return Solution(tuple(lines), error_line, kind, carried)


def write_solution(
    problem: WordsProblem, rng: random.Random, rates: NoiseRates | None = None
) -> Solution:
    """Write a solution as the policy is to learn it, right or with one error.

    Args:
        problem: The problem to solve.
        rng: Source of every choice; the same state writes the same solution.
        rates: The rates of variation and error; the frozen ones by default.
    """
    rates = rates or NoiseRates()
    steps = _ordered(problem, rng, rates)
    clean = _write(problem, steps, rng, None, "slip", False)
    assert clean is not None, "a right solution always works out"
    if rng.random() >= rates.error:
        return clean
    side = [q.key for q, _ in steps if not q.needed]
    for _ in range(MAX_TRIES):
        kind: ErrorKind = rng.choices(("slip", "operation", "operand", "answer"), rates.kinds)[0]
        if kind == "answer":
            target, carried = problem.asked, False
        elif side and rng.random() < rates.side_error:
            target, carried = rng.choice(side), False
        else:
            target = rng.choice([q.key for q, _ in steps if q.needed])
            carried = rng.random() >= rates.recover[0 if kind == "slip" else 1]
        solution = _write(problem, steps, rng, target, kind, carried)
        if solution is not None:
            return solution
    return clean


def drill(
    rng: random.Random, n: int, ops: Sequence[Op], highs: Sequence[int] = (99, 300)
) -> tuple[str, list[tuple[str, str]]]:
    """Return a bare-arithmetic exercise.

    The policy sees these in its first training stage only: carrying is the hardest thing for it
    to learn, and sums in a row teach it faster than sums scattered over stories.

    Args:
        rng: Source of every choice.
        n: Number of lines.
        ops: The operations to draw from; one named twice is drawn twice as often.
        highs: Bounds to draw from for the first number of a sum or difference.

    Returns:
        The question, and for each line what is set (`1: 12 + 30 = `) and what is to be learned
        (`42.` and, except at the end, a newline).
    """
    lines: list[tuple[str, str]] = []
    while len(lines) < n:
        op = rng.choice(ops)
        if op in ("+", "-"):
            left, right = rng.randint(2, rng.choice(highs)), rng.randint(2, 99)
        else:
            right = rng.randint(2, 12)
            left = rng.randint(2, 9) if rng.random() < 0.6 else rng.randint(2, 250)
            left = left * right if op == "/" else left
        value = apply(op, left, right)
        if value is not None and 1 <= value < LIMIT:
            end = "" if len(lines) == n - 1 else "\n"
            lines.append((f"{len(lines) + 1}: {left} {op} {right} = ", f"{value}.{end}"))
    return f"Compute {n} lines.", lines
