"""The quantity half of the grammar: units, rates and the words that describe an operand."""

from __future__ import annotations

from .nodes import Node, ParseFailure, number
from .reader import END, Reader
from .units import parse_unit
from .vocabulary import FUNCTIONS, JOINING_WORDS, POWER_WORDS, STOP_WORDS, word_set

__all__ = ["MATH_UNITS", "WORD_OPERATORS", "QuantityMixin"]

WORD_OPERATORS = frozenset({"times", "multiplied", "divided", "of", "choose"})
_UNIT_LETTERS = frozenset({"m", "g", "h", "s", "L", "l", "A", "J", "N", "W", "V"})


_FRACTION_WORDS = word_set(
    """thirds fourths fifths sixths sevenths eighths ninths tenths sixteenths hundredths thousandths
    factorial"""
)
_PERIODS = word_set("""month year night piece visit trip person box bag bottle pack set""")
MATH_UNITS = frozenset({"cm", "km", "mm", "kg", "ml", "ft", "lb", "oz", "mph"})


class QuantityMixin(Reader):
    """Readers for units and rates; mixed into the grammar."""

    def _compound(self, left: Node) -> bool:
        """True before the second part of a compound quantity such as ``4 feet 6 inches``."""
        following = self.peek(1)
        if left.args[0].kind != "num" or following.kind != "word" or not self.peek().gap:
            return False
        whole, part = parse_unit(str(left.value)), parse_unit(following.text)
        return whole is not None and part is not None and whole[1] == part[1] and whole[0] > part[0]

    def _quantity(self, base: Node, start: int) -> Node | None:
        """Read up to four words after a value as its unit."""
        words: list[str] = []
        raised = self._raised(base, start)
        if raised is not None:
            return raised
        while len(words) < 4:
            token = self.peek()
            if token.gap == 2:
                break
            if token.kind == "text":
                if token.text.lower() in ("and", "or", "if", "for", ""):
                    break
                words.append(token.text)
                self.pos += 1
                break
            if token.kind != "word":
                break
            text = token.text
            low = text.lower()
            if low in _FRACTION_WORDS and not words:
                raise ParseFailure("word")  # "5 tenths": no count of things
            if len(text) == 1:
                glued = not token.gap
                if text not in _UNIT_LETTERS or glued or token.math or words:
                    break
            elif low in STOP_WORDS and low != "out":
                if low == "of" and words and self.peek(1).kind == "word" and len(words) < 3:
                    after = self.peek(1).text.lower()
                    if after not in STOP_WORDS:  # "3 cups of flour"
                        words += [text, self.peek(1).text]
                        self.pos += 2
                        continue
                break
            elif (low in FUNCTIONS and low not in ("min", "max", "mean") and not words) or (
                token.math and not token.gap and low not in MATH_UNITS
            ):
                break
            if low in ("a", "an") and not words:
                break
            words.append(text)
            self.pos += 1
        if not words:
            return None
        self._rate_words(words)
        self._absorb(words)
        return Node("qty", (base,), " ".join(words), -1, self.span_from(start))

    def _raised(self, base: Node, start: int) -> Node | None:
        """``5 squared``; behind a unit the word belongs to that."""
        power = POWER_WORDS.get(self.peek().text.lower())
        if power is None or self.peek().kind != "word" or base.kind not in ("num", "paren"):
            return None
        self.pos += 1
        return Node("pow", (base, number(power)), None, -1, self.span_from(start))

    def _rate(self, base: Node, start: int) -> Node | None:
        """``$3/hour``, ``5 / box``: a rate written with a slash and a word."""
        following = self.peek(1)
        if following.kind != "word" or len(following.text) < 2 or following.gap == 2:
            return None
        low = following.text.lower()
        if low in FUNCTIONS or low in STOP_WORDS or following.math:
            return None
        words: list[str] = [str(base.value)] if base.kind == "qty" else []
        inner = base.args[0] if base.kind == "qty" else base
        self._rate_words(words)
        self._absorb(words)
        return Node("qty", (inner,), " ".join(words), -1, self.span_from(start))

    def _rate_words(self, words: list[str]) -> None:
        """Read ``/ unit``, ``per unit``, ``a week`` and exponents after a unit."""
        while len(words) < 9:
            token = self.peek()
            following = self.peek(1)
            text = token.text
            if token.kind == "op" and text == "/" and following.kind in ("word", "text"):
                letter = following.kind == "word" and len(following.text) == 1
                if letter and following.text not in ("h", "s", "m", "g", "L", "l"):
                    break
                words += ["/", following.text]
                self.pos += 2
                while (  # "$60/large painting"
                    self.peek().kind == "word"
                    and len(self.peek().text) > 1
                    and self.peek().gap == 1
                    and self.peek().text.lower() not in STOP_WORDS
                    and len(words) < 9
                ):
                    words.append(self.peek().text)
                    self.pos += 1
                continue
            if token.kind == "op" and text == "^" and following.kind == "num":
                words += ["^", following.text]
                self.pos += 2
                continue
            if token.kind == "sup" and not token.gap:
                words += ["^", str(token.value)]
                self.pos += 1
                continue
            if token.kind == "word" and text in ("per", "a", "an") and following.kind == "word":
                low = following.text.lower()
                if len(low) == 1 or low in STOP_WORDS:
                    break
                if text != "per" and low not in _PERIODS and parse_unit(low) is None:
                    break
                words += ["/", following.text]
                self.pos += 2
                continue
            break

    def _absorb(self, words: list[str]) -> None:
        """Take words up to an operator or relation into the operand they describe.

        "73 customers for breakfast + 127 …": the words belong to the 73 because an operator
        follows them. Words that join clauses end the search.
        """
        at = self.pos
        taken: list[str] = []
        while at < self.count and len(taken) < 6:
            token = self.tokens[at]
            if token.kind == "word" and token.gap == 1 and not token.math:
                low = token.text.lower()
                if low in JOINING_WORDS or (low in WORD_OPERATORS and low != "of"):
                    return
                if len(low) == 1 and low != "a":
                    return
                if low in ("plus", "minus"):
                    break
                taken.append(token.text)
                at += 1
                continue
            break
        if not taken or at >= self.count:
            return
        token = self.tokens[at]
        following = self.tokens[at + 1] if at + 1 < self.count else END
        operator = token.kind == "op" and token.text in ("+", "-", "*", "/") and token.gap == 1
        value = following.kind in ("num", "money") or (
            following.kind == "op" and following.text == "("
        )
        if (operator and value and following.gap) or (token.kind == "rel" and token.text == "="):
            words += taken
            self.pos = at
