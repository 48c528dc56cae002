"""Typed comparison of a predicted answer with a gold answer.

Types first, values second: an interval never equals a number, a list of two never equals a scalar.
The bridges between types are few and named in the comparison's reason.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from .identity import sample
from .intervals import REAL_SETS, RealSet, real_set, same_set
from .measures import compare_units, with_letter_units
from .outcome import NO, YES, Budget, Outcome
from .parser.answer import Answer, read_answer
from .parser.evaluate import NoValue, evaluate, is_closed
from .parser.nodes import Node, free_names
from .rounding import Tolerance, rounding_rule, without_approximation
from .shapes import (
    assigned,
    choice_content,
    constant_of_integration,
    difference,
    has_kind,
    has_pi,
    is_choice,
    is_infinite,
    is_opaque,
    matrix_rows,
    members,
    names_apart,
    plain_value,
    proportion,
    same_shape,
    sign_of_infinity,
    value_side,
    wordlike,
)

__all__ = ["Comparer"]

Symbolic = Callable[[Node, Node, Budget], Outcome]


class Comparer:
    """Compares read answers under fixed policies; made anew for every response.

    Args:
        tolerance: Rounding rules.
        percent: "strict": 50 % is 0.5; "lenient": also 50.
        units: "lenient": a missing unit is fine; "strict": it is not.
        symbolic: Asked when exact evaluation cannot tell (complex numbers, integrals, limits).
        budget: What all comparisons together may take.
    """

    def __init__(
        self,
        tolerance: Tolerance,
        percent: str,
        units: str,
        symbolic: Symbolic | None,
        budget: Budget,
    ) -> None:
        self.tolerance = tolerance
        self.percent = percent
        self.units = units
        self.symbolic = symbolic
        self.budget = budget

    def compare(self, gold: Answer, pred: Answer) -> Outcome:
        """Compare two whole answers."""
        if gold.text and gold.text == pred.text and not pred.hedged:
            words = gold.kind == pred.kind and gold.kind in ("text", "ratio")
            letters = len(gold.text) > 1 and wordlike(gold) and wordlike(pred)
            if words or letters or (gold.node == pred.node and gold.unit == pred.unit):
                return Outcome(True, "identical")
        labelled = pred.kind == "ratio" and gold.node.kind == "name"  # "A: cats"
        if pred.kind == "text" or gold.kind == "text" or labelled:
            return self._texts(gold, pred)
        gold, pred = with_letter_units(gold, pred)
        if pred.hedged and gold.kind not in ("list", "set", "relation"):
            ranges = gold.node.kind in REAL_SETS and real_set(pred.node) is not None
            if not ranges and members(gold.node) is None:  # "x < 3 or x > 5" is one set
                return Outcome(False, "hedged")
        units = compare_units(gold, pred, self.units)
        if units is not None:
            return units
        return self._nodes(gold.node, pred.node)

    # -- words --------------------------------------------------------------------------------
    def _texts(self, gold: Answer, pred: Answer) -> Outcome:
        if gold.node.kind == "name" and is_choice(str(gold.node.value), pred.source):
            return Outcome(True, "choice")
        content = choice_content(pred.source) if pred.kind == "text" else ""
        if content and gold.kind not in ("text", "ratio"):
            return self.compare(gold, read_answer(content))
        if gold.kind != pred.kind and not (wordlike(gold) and wordlike(pred)):
            return Outcome(False, "type")
        return Outcome(gold.text == pred.text and bool(gold.text), "text")

    # -- structures ---------------------------------------------------------------------------
    def _nodes(self, gold: Node, pred: Node) -> Outcome:
        gold, pred = plain_value(gold), plain_value(pred)
        if gold == pred:
            return YES
        if gold.kind == pred.kind == "mod":
            return self._residues(gold, pred)
        kinds = (gold.kind, pred.kind)
        if gold.kind == "rel" or pred.kind == "rel":
            return self._relations(gold, pred)
        both = any(n.kind == "list" and n.value == "and" for n in (gold, pred))
        if both or gold.kind in REAL_SETS or pred.kind in REAL_SETS:
            return self._sets_of_reals(gold, pred)
        if gold.kind == "residue" or pred.kind == "residue":
            return self._residues(gold, pred)
        if gold.kind == "matrix" or pred.kind == "matrix":
            return self._matrices(gold, pred)
        if gold.kind == "ratio" or pred.kind == "ratio":
            return self._ratios(gold, pred)
        if gold.kind == "tuple" or pred.kind == "tuple":
            if set(kinds) <= {"tuple", "list"} or kinds == ("tuple", "set"):
                if pred.kind == "set":
                    return Outcome(False, "type")
                return self._ordered(gold.args, pred.args, gold.value, pred.value)
            return Outcome(False, "type")
        gold_items, pred_items = members(gold), members(pred)
        if gold_items is None and pred_items is not None and len(pred_items) > 1:
            return Outcome(False, "hedged")
        if gold_items is not None or pred_items is not None:
            if gold_items is None and pred.kind == "set" and len(pred_items or ()) == 1:
                return Outcome(False, "type")
            return self._unordered(
                gold_items if gold_items is not None else [gold],
                pred_items if pred_items is not None else [pred],
            )
        return self._expressions(gold, pred)

    def _ordered(
        self, gold: tuple[Node, ...], pred: tuple[Node, ...], left: object, right: object
    ) -> Outcome:
        if len(gold) != len(pred):
            return Outcome(False, "length")
        if left is not None and right is not None and left != right:
            ends = {str(left), str(right)}
            if ends & {"[]", "[)", "(]"} and len(gold) == 2:
                return Outcome(False, "brackets")
        return self._all(gold, pred)

    def _all(self, gold: tuple[Node, ...], pred: tuple[Node, ...]) -> Outcome:
        unsure: Outcome | None = None
        for a, b in zip(gold, pred, strict=True):
            outcome = self._nodes(value_side(a), value_side(b))
            if outcome.equal is False:
                return outcome
            if outcome.equal is None and (unsure is None or outcome.calls):
                unsure = outcome
        return unsure or YES

    def _unordered(self, gold: list[Node], pred: list[Node]) -> Outcome:
        """Equal as sets: every member has a partner on the other side."""
        gold, pred = names_apart(gold), names_apart(pred)
        if len(gold) > 60 or len(pred) > 60:
            return Outcome(None, "limit")
        if any(n.kind == "text" for n in [*gold, *pred]):  # an ellipsis: compare in order
            return self._all(tuple(gold), tuple(pred)) if len(gold) == len(pred) else NO
        unsure: Outcome | None = None
        for one, other in ((gold, pred), (pred, gold)):
            for a in one:
                found: Outcome = NO
                for b in other:
                    outcome = self._nodes(a, b) if one is gold else self._nodes(b, a)
                    if outcome.reason == "limit" and outcome.calls:
                        return outcome  # a tool's time is up: the next pair would wait as long
                    if outcome.equal or (outcome.equal is None and found is NO):
                        found = outcome
                    if outcome.equal:
                        break
                if found is NO:
                    return NO
                if not found.equal:
                    unsure = found
        return unsure or Outcome(True, "same_members")

    def _matrices(self, gold: Node, pred: Node) -> Outcome:
        a, b = matrix_rows(gold), matrix_rows(pred)
        if a is None or b is None:
            return Outcome(False, "type")
        if gold.kind != pred.kind and min(len(a), len(a[0])) != 1:
            return Outcome(False, "type")
        if gold.kind != pred.kind:  # a column vector written as a tuple
            flat_a = [cell for row in a for cell in row]
            flat_b = [cell for row in b for cell in row]
            a, b = [flat_a], [flat_b]
        if [len(row) for row in a] != [len(row) for row in b]:
            return Outcome(False, "shape")
        left = tuple(cell for row in a for cell in row)
        right = tuple(cell for row in b for cell in row)
        return self._all(left, right)

    def _ratios(self, gold: Node, pred: Node) -> Outcome:
        if gold.kind == pred.kind:
            if len(gold.args) != len(pred.args):
                return Outcome(False, "length")
            try:
                a = [evaluate(arg) for arg in gold.args]
                b = [evaluate(arg) for arg in pred.args]
            except NoValue:
                return self._all(gold.args, pred.args)
            if 0 in a or 0 in b:
                return Outcome(a == b, "text")
            return Outcome(all(x * b[0] == y * a[0] for x, y in zip(a, b, strict=True)), "ratio")
        ratio, other = (gold, pred) if gold.kind == "ratio" else (pred, gold)
        if len(ratio.args) != 2 or other.kind != "div":
            return Outcome(False, "type")
        quotient = Node("div", ratio.args)
        return self._expressions(quotient, other)

    def _residues(self, gold: Node, pred: Node) -> Outcome:
        """``3 (mod 7)``: equal moduli and congruent values; a missing modulus is like a unit."""
        moduli = [n.args[1] for n in (gold, pred) if n.kind in ("residue", "mod")]
        values = [n.args[0] if n.kind in ("residue", "mod") else n for n in (gold, pred)]
        if len(moduli) == 2:
            same = self._nodes(*moduli)
            if not same.equal:
                return Outcome(same.equal, "modulus" if same.equal is False else same.reason)
            rest = Node("mod", (Node("sub", (values[0], values[1])), moduli[0]))
            try:
                return Outcome(evaluate(rest) == 0, "congruent")
            except NoValue:
                return self._nodes(values[0], values[1])
        if self.units == "strict" and gold.kind == "residue":
            return Outcome(False, "modulus_missing")
        return self._nodes(values[0], values[1])

    def _sets_of_reals(self, gold: Node, pred: Node) -> Outcome:
        a, b = real_set(gold), real_set(pred)
        if a is None or b is None:
            return Outcome(False, "type")
        return self._real_sets(a, b)

    def _real_sets(self, a: RealSet, b: RealSet) -> Outcome:
        def ends_equal(x: Node, y: Node) -> bool | None:
            return self._expressions(x, y).equal

        same = same_set(a, b, ends_equal)
        return Outcome(same, "same_set" if same else "not_equal" if same is False else "undecided")

    # -- relations ----------------------------------------------------------------------------
    def _relations(self, gold: Node, pred: Node) -> Outcome:
        short = without_approximation(pred)
        if short is not None:
            return self._nodes(gold, short)
        if gold.kind == pred.kind == "rel":
            return self._two_relations(gold, pred)
        relation, other, gold_side = (
            (gold, pred, True) if gold.kind == "rel" else (pred, gold, False)
        )
        operators = set(str(relation.value).split(" "))
        if operators == {"="}:
            value = assigned(relation)
            if value is None:
                return Outcome(False, "type")
            return self._nodes(value, other) if gold_side else self._nodes(other, value)
        if operators == {"in"} and len(relation.args) == 2:
            inner = relation.args[1]
            return self._nodes(inner, other) if gold_side else self._nodes(other, inner)
        if operators == {"≡"} and len(relation.args) == 2 and gold_side:
            return self._nodes(relation.args[1], other)
        if operators == {"≈"} and len(relation.args) == 2 and not gold_side:
            return Outcome(False, "hedged")
        a, b = real_set(relation), real_set(other)
        if a is None or b is None or other.kind not in (*REAL_SETS, "tuple"):
            return Outcome(False, "type")
        return self._real_sets(a, b)

    def _two_relations(self, gold: Node, pred: Node) -> Outcome:
        ga, pa = str(gold.value).split(" "), str(pred.value).split(" ")
        if set(ga) == set(pa) == {"="}:
            if len(gold.args) == len(pred.args) == 2:
                return self._equations(gold, pred)
            left, right = assigned(gold), assigned(pred)
            if left is None or right is None or gold.args[0] != pred.args[0]:
                return Outcome(False, "type")
            return self._nodes(left, right)
        if set(ga) == set(pa) and set(ga) <= {"in", "≡"} and gold.args[0] == pred.args[0]:
            return self._nodes(gold.args[1], pred.args[1])
        names = free_names(gold), free_names(pred)
        if names[0] == names[1] and len(names[0]) == 1:
            a, b = real_set(gold), real_set(pred)
            if a is not None and b is not None:
                return self._real_sets(a, b)
        if ga == pa and len(gold.args) == len(pred.args):
            return self._same_difference(gold, pred)
        flipped = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "!=": "!=", "=": "="}
        if [flipped.get(op) for op in reversed(pa)] == ga:
            turned = Node("rel", tuple(reversed(pred.args)), gold.value)
            return self._same_difference(gold, turned)
        return Outcome(False, "relation")

    def _same_difference(self, gold: Node, pred: Node) -> Outcome:
        """Inequalities in several variables: proportional differences with a positive factor."""
        if len(gold.args) != 2:
            return self._all(gold.args, pred.args)
        factor = proportion(difference(gold), difference(pred))
        if factor is None:
            return Outcome(False, "not_equal")
        if factor > 0 or str(gold.value) in ("=", "!="):
            return Outcome(True, "equivalent")
        return Outcome(False, "not_equal")

    def _equations(self, gold: Node, pred: Node) -> Outcome:
        (gl, gr), (pl, pr) = gold.args, pred.args
        if gl == pl:
            return self._nodes(gr, pr)
        if gl.kind == "call" and pl.kind == "call" and gl != pl:
            return Outcome(False, "name")
        if free_names(gold) != free_names(pred):
            return Outcome(False, "name")
        factor = proportion(difference(gold), difference(pred))
        return Outcome(factor is not None, "equivalent" if factor is not None else "not_equal")

    # -- values -------------------------------------------------------------------------------
    def _expressions(self, gold: Node, pred: Node) -> Outcome:
        gold, pred = plain_value(gold), plain_value(pred)
        if gold == pred:
            return YES
        if not self.budget.left():
            return Outcome(None, "limit")
        if is_infinite(gold) or is_infinite(pred):
            return Outcome(sign_of_infinity(gold) == sign_of_infinity(pred), "infinity")
        if (gold.kind == "based") != (pred.kind == "based"):
            return Outcome(False, "base")
        if gold.kind == pred.kind == "based":
            same_base = str(gold.value).split("_")[1] == str(pred.value).split("_")[1]
            if not same_base:
                return Outcome(False, "base")
        closed = is_closed(gold), is_closed(pred)
        if closed == (True, True):
            return self._numbers(gold, pred)
        if closed[0] != closed[1] and free_names(gold) != free_names(pred):
            found = sample(gold, pred)
            if found.equal is not True:
                return Outcome(False, "free_variable")
        return self._symbolic_equal(gold, pred)

    def _symbolic_equal(self, gold: Node, pred: Node) -> Outcome:
        constant = constant_of_integration(gold)
        if constant is not None:
            other = constant_of_integration(pred, any_case=True)
            if other is None:
                return Outcome(False, "constant_of_integration")
            gold, pred = constant, other
        if is_opaque(gold) or is_opaque(pred):
            return Outcome(same_shape(gold, pred), "structure")
        found = sample(gold, pred)
        if found.equal is not None:
            return Outcome(found.equal, "equal_sampled" if found.equal else "not_equal")
        if self.symbolic is not None:
            return self.symbolic(gold, pred, self.budget)
        return Outcome(None, found.reason)

    def _numbers(self, gold: Node, pred: Node) -> Outcome:
        found = sample(gold, pred)
        if found.equal:
            return YES
        if has_kind(gold, "deg") != has_kind(pred, "deg") and gold.kind in ("deg", "pct"):
            turned = Node(
                "div",
                (
                    Node("mul", (gold.args[0], Node("const", (), "pi"))),
                    Node("num", (), Fraction(180)),
                ),
            )
            if has_pi(pred) and sample(turned, pred).equal:
                return Outcome(True, "radians")
        if self.percent == "lenient" and (gold.kind == "pct") != (pred.kind == "pct"):
            bare_gold = gold.args[0] if gold.kind == "pct" else gold
            bare_pred = pred.args[0] if pred.kind == "pct" else pred
            if sample(bare_gold, bare_pred).equal:
                return Outcome(True, "percent_lenient")
        if found.equal is None:
            if found.reason in ("unsupported", "irrational", "undecided", "undefined") and (
                self.symbolic is not None
            ):
                return self.symbolic(gold, pred, self.budget)
            return Outcome(None, found.reason)
        near = rounding_rule(gold, pred, self.tolerance)
        return Outcome(True, near) if near else NO
