"""Text to syntax trees: plain text and the LaTeX subset that solutions use.

Nothing in here evaluates text as a program, and nothing computes a number whose size has not
been bounded first.
"""

from __future__ import annotations

from .grammar import Grammar, ParseFailure, parse_expression
from .nodes import Node, from_wire, render, to_wire
from .tokens import Token, tokenize

__all__ = [
    "Grammar",
    "Node",
    "ParseFailure",
    "Token",
    "from_wire",
    "parse_expression",
    "render",
    "to_wire",
    "tokenize",
]
