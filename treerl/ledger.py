"""The ledger: what a tree cost, so that every efficiency claim is a field.

Two equations hold on every tree (law 3 of the design)::

    generated = kept + discarded          (tokens)
    submitted = cached + computed         (prompt tokens)

``kept`` is recounted from the nodes, never booked, so the first equation can fail and is tested.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from treerl.engines.base import Usage

__all__ = ["Ledger"]


@dataclass(slots=True)
class Ledger:
    """Counts of one tree or, summed, of a run. All are tokens unless named otherwise.

    Attributes:
        requests: Requests sent to the engine.
        failed_requests: Of those, requests that ended in an error after all retries.
        generated: New tokens from the policy.
        discarded: Of those, tokens that no node holds: the text of duplicates that were folded
            into a kept node, surplus behind a cut, and the answer to a call for the problem's
            conditions, which enters the prompt as text.
        submitted: Prompt tokens sent.
        cached: Of those, read from a cache. Depends on the engine's state, so it is volatile.
        judged: Judge calls: rewards, step verdicts and step scores together.
    """

    requests: int = 0
    failed_requests: int = 0
    generated: int = 0
    discarded: int = 0
    submitted: int = 0
    cached: int = 0
    judged: int = 0

    @property
    def computed(self) -> int:
        """Prompt tokens that were really prefilled."""
        return self.submitted - self.cached

    def book(self, usage: Usage) -> None:
        """Book one completion."""
        self.generated += usage.generated
        self.submitted += usage.prompt
        self.cached += usage.cached

    def __add__(self, other: Ledger) -> Ledger:
        if not isinstance(other, Ledger):
            return NotImplemented
        return Ledger(
            **{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(Ledger)}
        )

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object without the cache count, which differs from run to run."""
        data = asdict(self)
        del data["cached"]
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Restore a ledger from :meth:`to_json`."""
        return cls(**data)
