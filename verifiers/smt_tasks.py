"""z3's side of the pool: builds constraints from trees and decides entailment.

Imported inside workers only. The solver's own resource limit makes "unknown" repeatable; the
caller's clock is the last resort.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import z3

from .parser.evaluate import NoValue, evaluate
from .parser.nodes import Node, free_names, from_wire, strip

__all__ = ["TASKS", "Unsupported", "entail"]

RESOURCES = 200_000


class Unsupported(Exception):
    """A tree outside the fragment that z3 is asked about."""


class _Builder:
    def __init__(self, integers: set[str]) -> None:
        # Its own context: terms are numbered from one, so neither the script nor a counter-model
        # depends on what this worker was asked before.
        self.context = z3.Context()
        self.integers = integers
        self.symbols: dict[str, Any] = {}
        self.side: list[Any] = []

    def symbol(self, name: str) -> Any:
        if name not in self.symbols:
            make = z3.Int if name in self.integers else z3.Real
            self.symbols[name] = make(name, self.context)
        return self.symbols[name]

    def term(self, node: Node) -> Any:
        node = strip(node)
        if not free_names(node):
            try:
                value = evaluate(node)
            except NoValue as problem:
                raise Unsupported(problem.reason) from None
            if value.denominator == 1:
                return z3.IntVal(value.numerator, self.context)
            numerator, denominator = str(value.numerator), str(value.denominator)
            return z3.RealVal(numerator, self.context) / z3.RealVal(denominator, self.context)
        kind, args = node.kind, node.args
        if kind == "name":
            return self.symbol(str(node.value))
        if kind in ("qty", "money"):
            return self.term(args[0])
        if kind == "neg":
            return -self.term(args[0])
        if kind in ("add", "sub", "mul"):
            left, right = self.term(args[0]), self.term(args[1])
            return (
                left + right if kind == "add" else left - right if kind == "sub" else left * right
            )
        if kind == "div":
            left, right = self.real(self.term(args[0])), self.real(self.term(args[1]))
            self.side.append(right != 0)  # z3's division is total, ours is not
            return left / right
        if kind == "mod":
            left, right = self.term(args[0]), self.term(args[1])
            if not (z3.is_int(left) and z3.is_int(right)):
                raise Unsupported("mod")
            return left % right
        if kind == "pow":
            exponent = strip(args[1]).value
            if (
                not isinstance(exponent, Fraction)
                or not 1 <= exponent <= 8
                or exponent.denominator != 1
            ):
                raise Unsupported("power")
            base = self.term(args[0])
            result = base
            for _ in range(exponent.numerator - 1):
                result = result * base
            return result
        raise Unsupported(kind)

    @staticmethod
    def real(term: Any) -> Any:
        return z3.ToReal(term) if z3.is_int(term) else term

    def relation(self, node: Node) -> Any:
        left, right = self.term(node.args[0]), self.term(node.args[1])
        if z3.is_int(left) != z3.is_int(right):
            left, right = self.real(left), self.real(right)
        return {
            "=": lambda: left == right, "!=": lambda: left != right, "<": lambda: left < right,
            ">": lambda: left > right, "<=": lambda: left <= right, ">=": lambda: left >= right,
        }[str(node.value)]()  # fmt: skip

    def formula(self, node: Node) -> Any:
        """A relation, or a list of relations joined by "and" or "or"."""
        if node.kind == "list":
            parts = [self.formula(arg) for arg in node.args]
            return z3.Or(*parts) if node.value == "or" else z3.And(*parts)
        return self.relation(node)


def _check(constraints: list[Any], context: z3.Context) -> tuple[str, Any, str]:
    solver = z3.Solver(ctx=context)
    solver.set("rlimit", RESOURCES)
    solver.add(*constraints)
    answer = str(solver.check())
    return answer, solver.model() if answer == "sat" else None, _script(solver.to_smt2())


def _script(text: str) -> str:
    """The script with its generated names counted from one: the same question, the same text."""
    names: dict[str, str] = {}
    text = text.partition("\n")[2]
    return re.sub(r"[?$]x\d+", lambda m: names.setdefault(m.group(), f"?t{len(names) + 1}"), text)[
        :3000
    ]


def _model(model: Any, builder: _Builder) -> dict[str, str]:
    """Rational values of a model, exact; irrational ones are left out."""
    values: dict[str, str] = {}
    for name, symbol in sorted(builder.symbols.items()):
        value = model.eval(symbol, model_completion=True)
        if z3.is_int_value(value):
            values[name] = str(value.as_long())
        elif z3.is_rational_value(value):
            values[name] = f"{value.numerator_as_long()}/{value.denominator_as_long()}"
    return values


def entail(payload: dict[str, Any]) -> dict[str, Any]:
    """Decide whether premises entail or exclude a claim.

    The payload holds ``problem`` and ``context`` (relations), ``claim`` and ``integers``. The
    answer's ``verdict`` is "entailed", "excluded", "independent", "inconsistent" or "unknown";
    ``by`` says whether the problem alone carries it, ``model`` gives a counter-model.
    """
    builder = _Builder(set(payload.get("integers", ())))
    try:
        claim = builder.formula(from_wire(payload["claim"]))
        claim_side, builder.side = builder.side, []
        problem = [builder.formula(from_wire(wire)) for wire in payload["problem"]]
        problem += builder.side
        builder.side = []
        context = [builder.formula(from_wire(wire)) for wire in payload["context"]]
        context += builder.side
    except Unsupported as reason:
        return {"verdict": "unsupported", "output": f"unsupported: {reason}"}
    except z3.Z3Exception as reason:
        return {"verdict": "unsupported", "output": str(reason)[:200]}
    negated = z3.Not(z3.And(claim, *claim_side))
    used = problem + context
    base, _, _ = _check(used, builder.context)
    if base == "unsat" and context:
        used = problem
        base, _, _ = _check(used, builder.context)
    if base == "unsat":
        return {"verdict": "inconsistent", "output": "premises unsat"}
    if base == "unknown":
        return {"verdict": "unknown", "output": "unknown"}
    answer, counter, script = _check([*used, negated], builder.context)
    if answer == "unsat":
        alone = "context"
        if context and problem:
            sole, _, _ = _check([*problem, negated], builder.context)
            alone = "problem" if sole == "unsat" else "context"
        elif problem:
            alone = "problem"
        return {
            "verdict": "entailed",
            "by": alone,
            "output": "unsat(premises, not claim)",
            "script": script,
        }
    values = _model(counter, builder) if answer == "sat" else {}
    if problem:
        excluded, _, script = _check([*problem, claim, *claim_side], builder.context)
        if excluded == "unsat":
            return {
                "verdict": "excluded",
                "output": "unsat(premises, claim)",
                "script": script,
                "model": values,
            }
        if excluded == "unknown":
            return {"verdict": "unknown", "output": "unknown"}
    if answer == "unknown":
        return {"verdict": "unknown", "output": "unknown"}
    return {"verdict": "independent", "output": "sat both ways", "model": values, "script": script}


TASKS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {"entail": entail}
