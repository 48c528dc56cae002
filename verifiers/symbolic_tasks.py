"""sympy's side of the pool: builds expressions from trees and answers one question at a time.

Imported inside workers only. Cheap exact tests come first; ``simplify`` and friends last, because
they may run for minutes on true identities and only the caller's clock ends them.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import sympy as sp

from .identity import sample_points
from .parser.evaluate import NoValue, evaluate, is_closed
from .parser.nodes import Node, free_names, from_wire
from .parser.vocabulary import MAGNITUDES

__all__ = [
    "TASKS",
    "Unsupported",
    "antiderivative",
    "build",
    "derivative",
    "equal",
    "identity",
    "symbol",
]

_FUNCTIONS: dict[str, Callable[..., sp.Expr]] = {
    "sin": sp.sin, "cos": sp.cos, "tan": sp.tan, "sec": sp.sec, "csc": sp.csc, "cot": sp.cot,
    "asin": sp.asin, "acos": sp.acos, "atan": sp.atan, "sinh": sp.sinh, "cosh": sp.cosh,
    "tanh": sp.tanh, "ln": sp.log, "exp": sp.exp, "sqrt": sp.sqrt, "abs": sp.Abs,
    "floor": sp.floor, "ceil": sp.ceiling, "arg": sp.arg, "max": sp.Max, "min": sp.Min,
    "gcd": sp.gcd, "lcm": sp.lcm, "binom": sp.binomial,
}  # fmt: skip


class Unsupported(Exception):
    """The tree holds something that sympy is not asked about."""


def symbol(name: str) -> sp.Symbol:
    """Variables are real: that is what school mathematics means."""
    return sp.Symbol(name, real=True)


def build(node: Node) -> Any:
    """Return a sympy object for a tree; numbers were bounded by the exact evaluator first."""
    if not node.args and node.kind == "num":
        value = node.value
        assert isinstance(value, Fraction)
        return sp.Rational(value.numerator, value.denominator)
    if is_closed(node) and node.kind not in ("matrix", "row", "int", "lim", "diff"):
        try:
            value = evaluate(node)
            return sp.Rational(value.numerator, value.denominator)
        except NoValue as problem:
            if problem.reason == "limit":
                raise Unsupported("limit") from None
    kind, args = node.kind, node.args
    if kind == "name":
        return symbol(str(node.value))
    if kind == "const":
        return {"pi": sp.pi, "e": sp.E, "i": sp.I, "inf": sp.oo}[str(node.value)]
    if kind in ("paren", "frac", "money", "qty"):
        return build(args[0])
    if kind == "neg":
        return -build(args[0])
    if kind == "pct":
        return build(args[0]) / 100
    if kind == "deg":
        return build(args[0]) * sp.pi / 180
    if kind == "mag":
        factor = MAGNITUDES[str(node.value)]
        return build(args[0]) * sp.Rational(factor.numerator, factor.denominator)
    if kind == "add":
        return build(args[0]) + build(args[1])
    if kind == "sub":
        return build(args[0]) - build(args[1])
    if kind in ("mul", "of"):
        return build(args[0]) * build(args[1])
    if kind == "div":
        return build(args[0]) / build(args[1])
    if kind == "pow":
        base, exponent = build(args[0]), build(args[1])
        if exponent.is_number and abs(sp.N(exponent, 5)) > 2000:
            raise Unsupported("limit")
        return sp.Pow(base, exponent)
    if kind == "fact":
        return sp.factorial(build(args[0]))
    if kind == "call":
        return _call(str(node.value), args)
    if kind in ("sum", "prod"):
        variable = sp.Symbol(str(node.value), integer=True)
        body, low, high = (build(arg) for arg in args)
        body = body.subs(symbol(str(node.value)), variable)
        if kind == "sum":
            return sp.summation(body, (variable, low, high))
        return sp.product(body, (variable, low, high))
    if kind == "int":
        variable = symbol(str(node.value))
        if len(args) == 1:
            return sp.integrate(build(args[0]), variable)
        return sp.integrate(build(args[0]), (variable, build(args[1]), build(args[2])))
    if kind == "lim":
        name = str(node.value)
        side = name[1:] if name[1:] else "+-"
        target = build(args[1])
        if target in (sp.oo, -sp.oo):
            side = "-" if target is sp.oo else "+"
        return sp.limit(build(args[0]), symbol(name[0]), target, side)
    if kind == "diff":
        return sp.diff(build(args[0]), symbol(str(node.value)))
    if kind == "matrix":
        return sp.Matrix([[build(cell) for cell in row.args] for row in args])
    raise Unsupported(kind)


def _call(function: str, args: tuple[Node, ...]) -> Any:
    if function == "det":
        return build(args[0]).det()
    values = [build(arg) for arg in args]
    if function == "log":
        return sp.log(values[0], values[1] if len(values) == 2 else 10)
    if function == "root":
        return sp.real_root(values[0], values[1])
    if function == "mean":
        return sum(values) / len(values)
    made = _FUNCTIONS.get(function)
    if made is None:
        raise Unsupported(function)
    return made(*values)


def _number_zero(value: sp.Expr) -> bool | None:
    """Is a closed value zero? Decided at 60 digits relative to the size of its parts."""
    if value == 0:
        return True
    if value.has(sp.nan, sp.zoo, sp.oo):
        return None
    approx = sp.N(value, 60, maxn=400)
    if not approx.is_number or approx.has(sp.nan, sp.oo, sp.zoo):
        return None
    size = abs(approx)
    if size > sp.Float(10) ** -45:
        return False
    exact = value.is_zero
    return True if exact is None else bool(exact)


def equal(payload: dict[str, Any]) -> dict[str, Any]:
    """Compare two trees: closed values numerically, others at points, then by simplification."""
    left, right = from_wire(payload["left"]), from_wire(payload["right"])
    try:
        a, b = build(left), build(right)
    except Unsupported as problem:
        return {"equal": None, "reason": str(problem), "output": f"unsupported: {problem}"}
    if isinstance(a, sp.MatrixBase) or isinstance(b, sp.MatrixBase):
        same = isinstance(a, sp.MatrixBase) and isinstance(b, sp.MatrixBase) and a.shape == b.shape
        result = bool(same and all(_number_zero(sp.simplify(x)) for x in (a - b)))
        return {"equal": result, "reason": "sympy", "output": f"{a} vs {b}"}
    if a == b:
        return {"equal": True, "reason": "equal", "output": f"{a} = {b}"[:500]}
    if a.has(sp.oo, -sp.oo, sp.zoo, sp.nan) or b.has(sp.oo, -sp.oo, sp.zoo, sp.nan):
        return {
            "equal": False if a.is_number and b.is_number else None,
            "output": f"{a}, {b}"[:500],
        }
    difference = a - b
    names = sorted(free_names(left) | free_names(right))
    if not difference.free_symbols:
        zero = _number_zero(difference)
        return {
            "equal": zero,
            "reason": "equal_numeric" if zero else "not_equal",
            "output": f"{a} - ({b}) = {sp.N(difference, 20)}"[:500],
        }
    agreed = 0
    for env in sample_points(names):
        point = {symbol(n): sp.Rational(v.numerator, v.denominator) for n, v in env.items()}
        zero = _number_zero(difference.subs(point))
        if zero is False:
            return {"equal": False, "reason": "not_equal", "output": f"differs at {env}"[:500]}
        agreed += zero is True
        if agreed >= 6:
            return {
                "equal": True,
                "reason": "equal_sampled",
                "output": f"agrees at {agreed} points",
            }
    if sp.simplify(difference) == 0:
        return {"equal": True, "reason": "equal", "output": "simplifies to 0"}
    return {"equal": None, "output": "undecided"}


def identity(payload: dict[str, Any]) -> dict[str, Any]:
    """Prove an identity by a normal form: cancel for rational functions, simplify for the rest."""
    try:
        a, b = build(from_wire(payload["left"])), build(from_wire(payload["right"]))
    except Unsupported as problem:
        return {"proved": None, "output": f"unsupported: {problem}"}
    difference = a - b
    top, _ = sp.fraction(sp.together(difference))
    if sp.expand(top) == 0:
        return {"proved": True, "output": "expand(numerator) = 0"}
    reduced = sp.simplify(difference)
    return {"proved": True if reduced == 0 else None, "output": f"simplify: {reduced}"[:300]}


def _same(a: sp.Expr, b: sp.Expr, names: list[str]) -> dict[str, Any]:
    """Compare two expressions: exactly by normal form, else at points."""
    difference = a - b
    if sp.expand(difference) == 0:
        return {"equal": True, "reason": "equal", "output": f"{a}"[:300]}
    agreed = 0
    for env in sample_points(names):
        point = {symbol(n): sp.Rational(v.numerator, v.denominator) for n, v in env.items()}
        zero = _number_zero(difference.subs(point))
        if zero is False:
            shown = ", ".join(f"{n} = {v}" for n, v in env.items())
            return {
                "equal": False,
                "reason": "not_equal",
                "output": f"{a} differs at {shown}"[:500],
            }
        agreed += zero is True
        if agreed >= 6:
            return {"equal": True, "reason": "equal_sampled", "output": f"{a}"[:300]}
    if sp.simplify(difference) == 0:
        return {"equal": True, "reason": "equal", "output": f"{a}"[:300]}
    return {"equal": None, "output": "undecided"}


def derivative(payload: dict[str, Any]) -> dict[str, Any]:
    """Is ``claimed`` the derivative of ``of`` with respect to ``name``?"""
    of, claimed = from_wire(payload["of"]), from_wire(payload["claimed"])
    try:
        value = sp.diff(build(of), symbol(payload["name"]))
        return _same(value, build(claimed), sorted(free_names(of) | free_names(claimed)))
    except Unsupported as problem:
        return {"equal": None, "output": f"unsupported: {problem}"}


def antiderivative(payload: dict[str, Any]) -> dict[str, Any]:
    """Is ``claimed`` an antiderivative of ``of``? Decided by differentiating the claim."""
    return derivative({"of": payload["claimed"], "claimed": payload["of"], "name": payload["name"]})


TASKS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "equal": equal,
    "identity": identity,
    "derivative": derivative,
    "antiderivative": antiderivative,
}
