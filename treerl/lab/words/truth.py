"""The truth of a solution: which line is the first wrong one, and in what way.

The checker knows the problem's graph of quantities and nothing of the policy. Each line is judged
against the problem's conditions and the (right) lines before it, by these rules:

* The objective in words names a quantity of the problem, and that quantity has one true value. A
  line is right if its equation is true, concludes that value, and uses only known numbers: what
  the text states or implies (half: 2), what can be derived from it without this quantity, and what
  earlier lines established. So any valid order, skipped steps, merged steps (`12 + 30 - 5 = 37`),
  repeated steps and other valid ways (`15 + 15` for `2 * 15`) are right.
* A line whose objective names no quantity of the problem is right if its equation is one of the
  problem's derivations or the inverse of one (a check such as `42 - 30 = 12`), or restates a
  known number.
* `Answer: N` is right if N is the asked value. A missing answer is no error: prefixes are judged.
* Blank lines claim nothing and are right.

Kinds of error, in order of precedence: `format` (no readable claim), `slip` (the written equation
is false), `operation` (another operation than the quantity's derivation has), `operand` (other
numbers), `answer` (the final line is not the asked value). Only lines up to and including the
first error are judged, as what follows an error has no truth of its own.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal

from treerl.lab.words.arithmetic import Expression, NotArithmetic, read_equation
from treerl.lab.words.problem import Quantity, WordsProblem

Kind = Literal["slip", "operation", "operand", "answer", "format"]

_ANSWER: Final = re.compile(
    r"(?:the\s+)?(?:final\s+)?answer\b\s*(?:is\b)?\s*[:=]?(.*)", re.IGNORECASE
)
_NUMBERING: Final = re.compile(r"(?:step\s*)?\d+\s*[.:)]\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Truth:
    """The truth of a solution, or of the beginning of one.

    Attributes:
        verdicts: For each step True (right), False (the first error), or None (after it).
        first_error: Index of the first wrong step; None if no step is wrong.
        kind: Kind of the first error; None if there is none.
        final: Whether the last answer line gives the asked value, whatever the steps are;
            None if there is no readable answer line.
    """

    verdicts: tuple[bool | None, ...]
    first_error: int | None
    kind: Kind | None
    final: bool | None


def judge(problem: WordsProblem, steps: Sequence[str] | str) -> Truth:
    """Judge a solution.

    Args:
        problem: The problem it answers.
        steps: Its steps in order (a step may span several lines), or the whole text, whose
            non-blank lines are then the steps.
    """
    if isinstance(steps, str):
        steps = [line for line in steps.splitlines() if line.strip()]
    checker = _Checker(problem)
    verdicts: list[bool | None] = []
    first_error: int | None = None
    kind: Kind | None = None
    for index, step in enumerate(steps):
        if first_error is not None:
            verdicts.append(None)
            continue
        for line in step.splitlines():
            kind = checker.line(line)
            if kind is not None:
                first_error = index
                break
        verdicts.append(kind is None)
    return Truth(tuple(verdicts), first_error, kind, _final(problem, steps))


def _final(problem: WordsProblem, steps: Sequence[str]) -> bool | None:
    """Return whether the last readable answer line is right; None without one."""
    for line in reversed([line for step in steps for line in step.splitlines()]):
        found = _ANSWER.fullmatch(line.strip())
        sides = None if found is None else _claim(found.group(1))
        if sides is not None:
            return sides[-1].value == int(problem.answer)
    return None


def _claim(text: str) -> tuple[Expression, ...] | None:
    """Read an equation, or a number alone, whose conclusion is one number; None if it is none."""
    try:
        sides = read_equation(text)
    except NotArithmetic:
        return None
    return sides if len(sides[-1].numbers) == 1 else None


def _normal(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(" .,;")


class _Checker:
    """Judges line after line; holds what the right lines so far have established."""

    def __init__(self, problem: WordsProblem) -> None:
        self.problem = problem
        self.values = {q.key: q.value for q in problem.quantities}
        self.objectives = {
            _normal(text): quantity
            for quantity in problem.derived()
            for wordings in quantity.objectives
            for text in wordings
        }
        self.established: set[str] = {q.key for q in problem.quantities if q.op == "given"}

    def line(self, line: str) -> Kind | None:
        """Judge one line; return the kind of its error, or None if it is right."""
        line = line.strip()
        if not line:
            return None
        answer = _ANSWER.fullmatch(line)
        objective, _, equation = ("", "", answer.group(1)) if answer else line.rpartition(":")
        sides = _claim(equation)
        if sides is None:
            return "format"
        conclusion = sides[-1]
        if any(side.value is None or side.value != conclusion.value for side in sides):
            return "slip"
        if answer is not None:
            return None if conclusion.value == int(self.problem.answer) else "answer"
        target = self._target(objective)
        if target is None:
            return self._unnamed(sides[0])
        return self._named(target, sides)

    def _target(self, objective: str) -> Quantity | None:
        """Return the quantity an objective names; a step number before it is ignored."""
        named = self.objectives.get(_normal(objective))
        if named is None:
            named = self.objectives.get(_normal(_NUMBERING.sub("", objective.strip(), count=1)))
        return named

    def _named(self, target: Quantity, sides: Sequence[Expression]) -> Kind | None:
        """Judge a true equation that claims to compute `target`."""
        working = sides[0]
        if working.value != target.value:
            return self._wrong_kind(target, working)
        known = {self.values[key] for key in self._derivable_without(target)}
        known |= {self.values[key] for key in self.established}
        numbers = [number for side in sides[:-1] for number in side.numbers]
        if working.operations and not known.issuperset(numbers):
            return "operand"
        self.established.add(target.key)
        return None

    def _derivable_without(self, target: Quantity) -> set[str]:
        """Return the quantities that do not depend on `target`: usable, written down or not."""
        dependent = {target.key}
        for quantity in self.problem.quantities:
            if dependent.intersection(quantity.operands):
                dependent.add(quantity.key)
        return {q.key for q in self.problem.quantities if q.key not in dependent}

    def _wrong_kind(self, target: Quantity, working: Expression) -> Kind:
        """Say how a true equation misses its quantity."""
        if len(working.operations) == 1:
            return "operation" if working.operations[0] != target.op else "operand"
        same = Counter(working.numbers) == Counter(self._operands(target))
        return "operation" if same else "operand"

    def _operands(self, quantity: Quantity) -> list[Fraction]:
        return [Fraction(self.values[key]) for key in quantity.operands]

    def _unnamed(self, working: Expression) -> Kind | None:
        """Judge a true equation whose objective names no quantity of the problem."""
        if not working.operations:
            known = {self.values[key] for key in self.established}
            return None if working.value in known else "operand"
        for quantity in self.problem.derived():
            if self._derives(quantity, working):
                self.established.add(quantity.key)
                return None
        if any(self._inverts(quantity, working) for quantity in self.problem.derived()):
            return None
        numbers = Counter(working.numbers)
        same = any(Counter(self._operands(q)) == numbers for q in self.problem.derived())
        return "operation" if same else "operand"

    def _derives(self, quantity: Quantity, working: Expression) -> bool:
        """Whether the equation is the quantity's derivation (either order if it commutes)."""
        left, right = self._operands(quantity)
        orders = [(left, right), (right, left)] if quantity.op in "+*" else [(left, right)]
        return working.operations == (quantity.op,) and working.numbers in orders

    def _inverts(self, quantity: Quantity, working: Expression) -> bool:
        """Whether the equation checks the quantity by an inverse operation."""
        left, right = self._operands(quantity)
        value = Fraction(quantity.value)
        inverses = {
            "+": [("-", value, left), ("-", value, right)],
            "*": [("/", value, left), ("/", value, right)],
            "-": [("+", value, right), ("+", right, value), ("-", left, value)],
            "/": [("*", value, right), ("*", right, value), ("/", left, value)],
        }[quantity.op]
        return any(
            working.operations == (operation,) and working.numbers == (first, second)
            for operation, first, second in inverses
        )
