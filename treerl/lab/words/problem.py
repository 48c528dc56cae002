"""The records of the words lab: a quantity, and a problem as a small graph of quantities."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from treerl.lab.words.templates import ANSWER, TemplateSet

Op = Literal["given", "+", "-", "*", "/"]
Split = Literal["train", "held"]
OPS: Final[tuple[Op, ...]] = ("+", "-", "*", "/")


def apply(op: Op, left: int, right: int) -> int | None:
    """Compute `left op right` in the integers; None where there is no integer result."""
    if op == "+":
        return left + right
    if op == "-":
        return left - right
    if op == "*":
        return left * right
    if op == "/" and right != 0 and left % right == 0:
        return left // right
    return None


@dataclass(frozen=True, slots=True)
class Quantity:
    """One number of a problem: stated in its text, or derived from two others.

    Attributes:
        key: Name of the quantity, unique in its problem.
        op: `given`, or the operation that derives it.
        operands: Keys of the two operands, in order; empty if given.
        value: The true value.
        objectives: For a derived quantity, all wordings of set P and of set Q under which a
            solution may announce it.
        needed: Whether the asked quantity depends on it.
    """

    key: str
    op: Op
    operands: tuple[str, ...]
    value: int
    objectives: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    needed: bool = True

    def wordings(self, which: TemplateSet) -> tuple[str, ...]:
        """Return the objective's wordings of one template set."""
        return self.objectives[0] if which == "P" else self.objectives[1]


@dataclass(frozen=True, slots=True)
class WordsProblem:
    """A word problem whose every step has a known truth.

    Attributes:
        id: For example `words-held-000017Q`: split, index, template set (and `-s3-` before the
            index for a seed other than 0). Equal ids are equal problems.
        question: The text of the problem, one line, no final newline.
        answer: The gold answer, a decimal integer as a string.
        quantities: All numbers, operands before what is derived from them.
        asked: Key of the asked quantity.
        templates: The template set of the question.
        kind: The story kind (`collection`, `pair`, `shop`, `wage`).
    """

    id: str
    question: str
    answer: str
    quantities: tuple[Quantity, ...]
    asked: str
    templates: TemplateSet
    kind: str

    def quantity(self, key: str) -> Quantity:
        """Return the quantity named `key`; KeyError if there is none."""
        for quantity in self.quantities:
            if quantity.key == key:
                return quantity
        raise KeyError(f"problem {self.id} has no quantity {key!r}")

    def derived(self) -> tuple[Quantity, ...]:
        """Return the derived quantities in story order, the unneeded ones included."""
        return tuple(q for q in self.quantities if q.op != "given")

    def plan(self) -> tuple[Quantity, ...]:
        """Return the derived quantities that the answer needs, in story order."""
        return tuple(q for q in self.derived() if q.needed)

    def solution(self) -> list[str]:
        """Return the plain right solution, one line a step, the last one `Answer: ...`."""
        values = {q.key: q.value for q in self.quantities}
        lines = [
            f"{q.wordings(self.templates)[0]}: "
            f"{values[q.operands[0]]} {q.op} {values[q.operands[1]]} = {q.value}."
            for q in self.plan()
        ]
        return [*lines, ANSWER.format(value=self.answer)]

    def to_record(self) -> dict[str, Any]:
        """Return a JSON-able record with the keys id, question, answer and metadata."""
        return {
            "id": self.id,
            "question": self.question,
            "answer": self.answer,
            "metadata": {
                "world": "words",
                "kind": self.kind,
                "templates": self.templates,
                "asked": self.asked,
                "quantities": [
                    {
                        "key": q.key,
                        "op": q.op,
                        "operands": list(q.operands),
                        "value": q.value,
                        "objectives": [list(texts) for texts in q.objectives],
                        "needed": q.needed,
                    }
                    for q in self.quantities
                ],
            },
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "WordsProblem":
        """Restore a problem from `to_record`'s result.

        Raises:
            ValueError: The record is not one of the words lab, or a field is missing.
        """
        try:
            meta = record["metadata"]
            if meta["world"] != "words":
                raise ValueError(f"not a words problem: world is {meta['world']!r}")
            quantities = tuple(
                Quantity(
                    key=str(q["key"]),
                    op=cast(Op, q["op"]),
                    operands=tuple(q["operands"]),
                    value=int(q["value"]),
                    objectives=(tuple(q["objectives"][0]), tuple(q["objectives"][1])),
                    needed=bool(q["needed"]),
                )
                for q in meta["quantities"]
            )
            return cls(
                id=str(record["id"]),
                question=str(record["question"]),
                answer=str(record["answer"]),
                quantities=quantities,
                asked=str(meta["asked"]),
                templates=cast(TemplateSet, meta["templates"]),
                kind=str(meta["kind"]),
            )
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(f"not a record of a words problem: {error!r}") from error
