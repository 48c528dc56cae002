"""StepVerifier: what tools can say about one reasoning step.

A step is text and text only; it is read, never run. Closed arithmetic is judged in this process
with exact rationals; what needs sympy or z3 goes to a worker that can be killed, and code that a
step contains goes to the sandbox.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from treerl.verdict import Claim, ClaimVerdict, StepVerdict, Strength, Verdict

from .algebra import claims_identity, find_rewritings, judge_identity
from .calculus import CalculusClaim, find_calculus, has_calculus, link_task
from .chains import scan
from .closed import (
    Link,
    collect_numbers,
    judge_closed,
    links_of,
    states_something,
)
from .conventions import changes_scale, convention_of
from .cues import is_hypothetical, other_arithmetic, unsourced_numbers
from .judges import (
    assigns_value,
    beyond_exact,
    identity_verdict,
    is_alternative,
    judge_rewriting,
    judge_statement,
    maybe_imaginary,
    with_imaginary_unit,
    with_node,
)
from .parser.evaluate import is_closed
from .parser.nodes import Node
from .parser.tokens import Token, tokenize
from .phrases import Statement
from .pool import WorkerPool
from .snippets import judge_code
from .solving import (
    judge_relation,
    link_claim,
    premises_for,
    to_claim_verdict,
)
from .statements import find_statements
from .stats import VerifierStats
from .symbolic_judges import by_sympy, judge_calculus
from .values import find_value_claims, judge_values
from .verdicts import combine

__all__ = ["StepVerifier", "Translator"]

MAX_STEP_CHARS = 20_000
MAX_CLAIMS = 200
_DRAWING = re.compile(r"\[asy\].*?\[/asy\]", re.DOTALL)
TOOLS = ("fraction", "sympy", "z3", "python")

Translator = Callable[[str, str, Sequence[str]], Sequence[str]]
"""(step, problem, earlier steps) -> claims as text in the grammar, never verdicts."""


class StepVerifier:
    """Judges single reasoning steps; thread-safe, deterministic, never raises for model text.

    Args:
        tools: Which tools may be used; "fraction" alone never starts a process.
        translator: Turns a step into further claims; what it says is stored and judged, and its
            verdicts are never stronger than partial.
        pool: Workers to share; one of its own, started when first needed, if None.
        wall_s: Seconds that the tools may spend on one claim.
    """

    name = "treerl.step/2"

    def __init__(
        self,
        *,
        tools: Sequence[str] = TOOLS,
        translator: Translator | None = None,
        pool: WorkerPool | None = None,
        wall_s: float = 3.0,
    ) -> None:
        unknown = set(tools) - set(TOOLS)
        if unknown:
            raise ValueError(f"unknown tools {sorted(unknown)}; choose from {', '.join(TOOLS)}")
        self.tools = tuple(tool for tool in TOOLS if tool in tools)
        self.translator = translator
        self.wall_s = wall_s
        self.stats = VerifierStats()
        self._owns_pool = pool is None
        self._pool = pool if pool is not None else WorkerPool(wall_s=wall_s)

    def __getstate__(self) -> dict[str, Any]:
        return {
            "tools": self.tools,
            "translator": self.translator,
            "wall_s": self.wall_s,
            "pool": None if self._owns_pool else self._pool,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __enter__(self) -> StepVerifier:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the verifier's own workers; a shared pool is left alone."""
        if self._owns_pool:
            self._pool.close()

    def extract_claims(self, step: str) -> list[Claim]:
        """Return the claims of a step that need no context, without calling any tool."""
        return [
            judged.claim
            for judged in StepVerifier(tools=("fraction",))._judge_step(step, "", ())[0]
        ]

    def verify(
        self, step: str, *, problem: str = "", previous_steps: Sequence[str] = ()
    ) -> StepVerdict:
        """Return what the tools say about ``step``.

        Args:
            step: The step's text.
            problem: The problem statement, for carry-over and entailment.
            previous_steps: The steps before it, oldest first.

        Raises:
            TypeError: Something here is no text.
        """
        if isinstance(previous_steps, str):
            raise TypeError("previous_steps must be a list of texts, not one text")
        for text in (step, problem, *previous_steps):
            if not isinstance(text, str):
                raise TypeError(f"steps and problem must be text, not {type(text).__name__}")
        began = time.perf_counter()
        unsourced: tuple[str, ...] = ()
        if len(step) > MAX_STEP_CHARS:
            claims: list[ClaimVerdict] = []
            verdict, reason, strength = Verdict.UNVERIFIABLE, "limit", None
        else:
            try:
                claims, unsourced = self._judge_step(step, problem, previous_steps)
                verdict, reason, strength = combine(claims)
            except RecursionError:  # the caller was deep in its own recursion already
                claims = []
                verdict, reason, strength = Verdict.UNVERIFIABLE, "limit", None
        spent = time.perf_counter() - began
        calls = tuple(call for claim in claims for call in claim.calls)
        self.stats.count(verdict, reason, calls, spent)
        return StepVerdict(verdict, reason, strength, tuple(claims), unsourced, self.name, spent)

    def verify_solution(
        self, steps: Sequence[str], *, problem: str = "", stop_at_first_refuted: bool = False
    ) -> list[StepVerdict]:
        """Judge the steps of a solution in order.

        Args:
            steps: All steps.
            problem: The problem statement.
            stop_at_first_refuted: End the list with the first refuted step.
        """
        verdicts: list[StepVerdict] = []
        for i, step in enumerate(steps):
            verdicts.append(self.verify(step, problem=problem, previous_steps=steps[:i]))
            if stop_at_first_refuted and verdicts[-1].verdict is Verdict.REFUTED:
                break
        return verdicts

    # -- one step -----------------------------------------------------------------------------
    def _judge_step(
        self, step: str, problem: str, previous: Sequence[str]
    ) -> tuple[list[ClaimVerdict], tuple[str, ...]]:
        if "[asy]" in step:  # drawing code; blanked so that offsets stay
            step = _DRAWING.sub(lambda m: " " * len(m.group()), step)
        tokens = tokenize(step)
        found: list[ClaimVerdict] = []
        operands: list[tuple[str, Fraction]] = []
        results: set[Fraction] = set()
        opens: list[Link] = []
        odd = other_arithmetic(f"{problem} {step}")
        for chain in scan(tokens):
            for link in links_of(chain):
                if len(found) >= MAX_CLAIMS:
                    break
                if is_closed(link.left.node) and is_closed(link.right.node):
                    judged = self._closed(step, tokens, link, problem)
                    if judged is not None:
                        found.append(judged)
                        collect_numbers(link, operands, results)
                else:
                    opens.append(link)
        covered = [claim.claim.span for claim in found]
        for statement in find_statements(step):
            if not any(a < statement.end and statement.start < b for a, b in covered):
                judged = judge_statement(step, statement)
                if judged is not None:
                    found.append(_unless_meant_otherwise(judged, step, statement, problem))
        found += self._with_variables(step, tokens, opens, problem, previous)
        if odd:
            found = [_unless_ordinary(claim, odd) for claim in found]
        for code in judge_code(step, self.tools, self.wall_s):
            found.append(code)
        if self.translator is not None:
            found += self._translated(step, problem, previous)
        found.sort(key=lambda claim: claim.claim.span)
        return found, unsourced_numbers(operands, results, problem, tuple(previous))

    def _closed(
        self, step: str, tokens: list[Token], link: Link, problem: str
    ) -> ClaimVerdict | None:
        if link.chain.modulus is None and (not states_something(link) or link.relation == "≡"):
            return None
        judged = judge_closed(step, tokens, link, problem)
        if (
            judged.verdict is Verdict.UNVERIFIABLE
            and judged.reason in ("unsupported", "irrational", "undecided", "free_variable")
            and link.relation == "="
            and "sympy" in self.tools
            and (
                has_calculus(link.left.node) or has_calculus(link.right.node) or beyond_exact(link)
            )
        ):
            return by_sympy(self._pool, self.wall_s, step, link)
        return judged

    # -- claims with variables ----------------------------------------------------------------
    def _with_variables(
        self,
        step: str,
        tokens: list[Token],
        opens: list[Link],
        problem: str,
        previous: Sequence[str],
    ) -> list[ClaimVerdict]:
        found: list[ClaimVerdict] = []
        calculus = (
            list(find_calculus(step, tokens, [problem, *previous])) if "sympy" in self.tools else []
        )
        spans = [(claim.start, claim.end) for claim in calculus]
        found += [judge_calculus(self._pool, self.wall_s, step, claim) for claim in calculus]
        own: list[Node] = []
        for link in opens[:40]:
            if any(a < link.span[1] and link.span[0] < b for a, b in spans):
                continue
            judged, relation = self._open(step, link, problem, previous, own)
            if judged is not None:
                found.append(judged)
            if relation is not None:
                own.append(relation)
        for rewriting in find_rewritings(tokens):
            judged = judge_rewriting(
                step,
                rewriting.left.start,
                rewriting.right.end,
                rewriting.left.node,
                rewriting.right.node,
            )
            if judged is not None:
                found.append(judged)
        if "z3" in self.tools and problem:
            found += self._values(step, problem, previous)
        return found

    def _open(
        self, step: str, link: Link, problem: str, previous: Sequence[str], own: list[Node]
    ) -> tuple[ClaimVerdict | None, Node | None]:
        """Judge one link with variables; returns its verdict and the relation it adds."""
        left, right = link.left.node, link.right.node
        start, end = link.span
        if link.cut or link.chain.modulus is not None or changes_scale(step[start : end + 9]):
            return None, None
        task = link_task(left, right) if "sympy" in self.tools else None
        if task is not None:
            name, of, claimed, variable = task
            claim = CalculusClaim(name, start, end, of, claimed, variable)
            return judge_calculus(self._pool, self.wall_s, step, claim), None
        if link.relation == "=" and (has_calculus(left) or has_calculus(right)):
            if "sympy" not in self.tools:
                return None, None
            return by_sympy(self._pool, self.wall_s, step, link), None
        if link.relation == "=" and "sympy" in self.tools and maybe_imaginary(left, right):
            whole = Link(
                with_node(link.left, with_imaginary_unit(left)),
                "=",
                with_node(link.right, with_imaginary_unit(right)),
                link.chain,
                link.index,
            )
            judged = by_sympy(self._pool, self.wall_s, step, whole)
            if judged.verdict is Verdict.SUPPORTED:
                return judged, None
        if link.relation == "=":
            sampled = judge_identity(left, right)
            if sampled is not None and sampled.equal:
                return identity_verdict(step, start, end, left, right, sampled), None
            if (
                sampled is not None
                and sampled.equal is False
                and claims_identity(step, start, end, left, right)
                and not is_hypothetical(step, start, end, closed=True)
            ):
                return identity_verdict(step, start, end, left, right, sampled), None
        relation = link_claim(link)
        if relation is None or "z3" not in self.tools:
            return None, relation
        if is_hypothetical(step, start, end, closed=False):
            return None, relation
        premises = premises_for(problem, previous, step, own)
        solved = judge_relation(
            relation,
            premises,
            self._pool,
            self.wall_s,
            may_refute=assigns_value(relation) and not is_alternative(step, start, end),
        )
        if solved is None or solved.reason == "restated":
            return None, relation
        judged = to_claim_verdict(step, start, end, relation, solved, "solve")
        return judged, None if solved.verdict is Verdict.REFUTED else relation

    def _values(self, step: str, problem: str, previous: Sequence[str]) -> list[ClaimVerdict]:
        premises = premises_for(problem, previous, step, ())
        if not premises.problem.relations:
            return []
        found = []
        for claim in find_value_claims(step, premises):
            fair = not is_hypothetical(step, claim.start, claim.end, closed=False)
            solved = judge_values(claim, premises, self._pool, self.wall_s, may_refute=fair)
            if solved is not None:
                found.append(to_claim_verdict(step, claim.start, claim.end, None, solved, "solve"))
        return found

    def _translated(self, step: str, problem: str, previous: Sequence[str]) -> list[ClaimVerdict]:
        """Judge a translator's claims; its word is never stronger than partial."""
        assert self.translator is not None
        plain = StepVerifier(tools=self.tools, pool=self._pool, wall_s=self.wall_s)
        found = []
        for text in list(self.translator(step, problem, tuple(previous)))[:20]:
            if not isinstance(text, str) or len(text) > MAX_STEP_CHARS:
                continue
            claims, _ = plain._judge_step(text, problem, previous)
            for judged in claims:
                record = Claim(
                    f"translated:{judged.claim.kind}",
                    judged.claim.text,
                    (0, len(step)),
                    judged.claim.lhs,
                    judged.claim.relation,
                    judged.claim.rhs,
                    judged.claim.premises,
                )
                strength: Strength | None = None if judged.strength is None else "partial"
                found.append(
                    ClaimVerdict(
                        record,
                        judged.verdict,
                        judged.reason,
                        strength,
                        judged.reading,
                        judged.calls,
                    )
                )
        return found


def _unless_ordinary(claim: ClaimVerdict, odd: str) -> ClaimVerdict:
    """Take back a refutation by ordinary arithmetic where another one may be meant."""
    if claim.verdict is Verdict.REFUTED and claim.claim.kind not in ("modular", "number_theory"):
        return replace(claim, verdict=Verdict.UNVERIFIABLE, reason=odd, strength=None)
    return claim


def _unless_meant_otherwise(
    judged: ClaimVerdict, step: str, said: Statement, problem: str
) -> ClaimVerdict:
    """Take back the refutation of a claim in words that may mean something else."""
    if judged.verdict is not Verdict.REFUTED or said.left is None or said.right is None:
        return judged
    args = (said.start, said.end, said.left, said.relation, said.right, problem)
    reason = convention_of(step, *args)
    if not reason:
        return judged
    return replace(judged, verdict=Verdict.UNVERIFIABLE, reason=reason, strength=None)
