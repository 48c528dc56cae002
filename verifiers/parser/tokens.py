"""Text to tokens with offsets into the original text.

Plain text and LaTeX share one set of tokens, because models mix them in one line. Characters are
only ever replaced one for one, so that every offset points into the text the caller passed.
"""

from __future__ import annotations

import re
from fractions import Fraction

from .vocabulary import word_set

__all__ = ["MAX_DIGITS", "Token", "math_spans", "read_number", "tokenize"]

MAX_DIGITS = 2000
"""Longest literal that is read as a number; CPython refuses conversions past 4,300 digits."""

_ONE_FOR_ONE = str.maketrans(
    {
        "−": "-", "–": "-", "‐": "-", "‑": "-", "﹣": "-", "－": "-",
        "×": "*", "✕": "*", "✖": "*", "⨯": "*", "·": "*", "⋅": "*", "∙": "*", "∗": "*", "＊": "*",
        "÷": "/", "⁄": "/", "∕": "/", "／": "/", "＋": "+", "＝": "=", "％": "%", "：": ":",
        "（": "(", "）": ")", "［": "[", "］": "]", "｛": "{", "｝": "}", "，": ",", "．": ".",
        "＜": "<", "＞": ">", "＄": "$", "’": "'", "‘": "'", "′": "'", "“": '"', "”": '"',
        "\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u2002": " ", "\u2003": " ", "\t": " ",
        "０": "0", "１": "1", "２": "2", "３": "3", "４": "4",
        "５": "5", "６": "6", "７": "7", "８": "8", "９": "9",
        "￡": "£", "º": "°", "˚": "°", "≦": "≤", "≧": "≥", "⩽": "≤", "⩾": "≥", "∣": "|",
        "µ": "μ",
    }
)  # fmt: skip

_VULGAR = {
    "½": (1, 2), "⅓": (1, 3), "⅔": (2, 3), "¼": (1, 4), "¾": (3, 4), "⅕": (1, 5), "⅖": (2, 5),
    "⅗": (3, 5), "⅘": (4, 5), "⅙": (1, 6), "⅚": (5, 6), "⅛": (1, 8), "⅜": (3, 8), "⅝": (5, 8),
    "⅞": (7, 8),
}  # fmt: skip
_SUPER = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_SUB = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")

RELATIONS = {
    "=": "=", "==": "=", "≈": "≈", "≃": "≈", "≅": "≈", "<": "<", ">": ">", "<=": "<=",
    ">=": ">=", "≤": "<=", "≥": ">=", "≠": "!=", "!=": "!=", "=/=": "!=", "≡": "≡",
}  # fmt: skip

_LATEX_RELATIONS = {
    "approx": "≈", "simeq": "≈", "sim": "≈", "doteq": "≈", "le": "<=", "leq": "<=",
    "leqslant": "<=",
    "ge": ">=", "geq": ">=", "geqslant": ">=", "lt": "<", "gt": ">", "ne": "!=", "neq": "!=",
    "equiv": "≡", "cong": "≡",
}  # fmt: skip
_LATEX_OPERATORS = {
    "cdot": "*", "times": "*", "ast": "*", "div": "/", "pm": "±", "mp": "∓", "cup": "∪", "cap": "∩",
    "lor": "or", "vee": "or", "in": "∈", "setminus": "∖",
    "backslash": "∖", "smallsetminus": "∖", "mid": "|", "vert": "|", "lvert": "|",
    "rvert": "|", "lfloor": "⌊", "rfloor": "⌋", "lceil": "⌈", "rceil": "⌉", "colon": ":",
    "Rightarrow": "⇒", "implies": "⇒", "iff": "⇒", "Leftrightarrow": "⇒", "Longrightarrow": "⇒",
    "longrightarrow": "⇒", "Longleftrightarrow": "⇒", "rightarrow": "→", "to": "→", "mapsto": "→",
    "lbrace": "\\{", "rbrace": "\\}", "lbrack": "[", "rbrack": "]", "langle": "⟨", "rangle": "⟩",
    "ldots": "…", "dots": "…", "cdots": "…", "dotsc": "…", "dotsb": "…", "therefore": "∴",
    "because": "∵", "mod": "mod", "bmod": "mod", "pmod": "pmod", "square": "□",
}  # fmt: skip
_LATEX_SKIP = word_set(
    """left right big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr quad qquad
    displaystyle textstyle limits nolimits hspace vspace thinspace medspace thickspace hfill
    nonumber notag scriptstyle middle bigm Bigm strut phantom hline noindent par newline limits
    allowbreak bf rm it sf tt tiny small normalsize large Large LARGE huge Huge"""
)
_BLACKBOARD = {"R": "ℝ", "Z": "ℤ", "N": "ℕ", "Q": "ℚ", "C": "ℂ"}
_TEXT_COMMANDS = (
    "text|textbf|textit|textrm|texttt|textsf|textnormal|mbox|hbox|mathrm|operatorname|mathbf|mathit"
    "|mathsf|emph|boldsymbol|bold|mathcal|mathfrak|mathbb|bm|underline|textsc"
)

_SPECIAL_CHARS = "πτ√∞∅∈∪∩∖±∓…⌊⌋⌈⌉⇒→↔⟹⟶∴∵°∫∑∏θαβγδελμνρσφψωϕΔΩℝℤℕℚℂ"
# Digits as ASCII only: \d would let Arabic-Indic and other digits through as numbers.
_PATTERN = re.compile(
    r"(?P<skip>\s+|<<[^<>\n]{0,200}>>|\\[,!;:> ~]|~|\\(?=\s)|\u200b|\ufeff|\*\*(?=\s|$)"
    r"|\\(?:text)?color\s?\{[A-Za-z0-9!]*\})"
    r"|(?P<num>[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]+(?:[eE][+-]?[0-9]{1,5}(?![0-9A-Za-z]))?)?"
    r"|[0-9]{1,3}(?:(?:\{,\}|\\,|,\\!|\\!|,\\,)\s?[0-9]{3})+(?![0-9])(?:\.[0-9]+)?"
    r"|[0-9]+\.(?=\\(?:overline|bar))"
    r"|[0-9]+\.[0-9]+\s?(?:\.\.\.?|…|\\(?:l?dots|dots[co])(?![A-Za-z]))(?![0-9])"
    r"|(?:[0-9]+(?:\.[0-9]+)?|(?<![0-9A-Za-z)])\.[0-9]+)(?:[eE][+-]?[0-9]{1,5}(?![0-9A-Za-z]))?)"
    r"|(?P<vulgar>[½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞])"
    r"|(?P<super>⁻?[⁰¹²³⁴⁵⁶⁷⁸⁹]+)|(?P<subs>[₀₁₂₃₄₅₆₇₈₉]+)"
    r"|\\(?P<text>" + _TEXT_COMMANDS + r")\s?\{(?P<textbody>[^{}]*)\}"
    r"|\\begin\{(?P<begin>[a-z]+\*?)\}(?:\{[lcr| ]*\}|\[[a-z]\])?|\\end\{(?P<end>[a-z]+\*?)\}"
    r"|(?P<degree>\^\s?(?:\{\s?\\circ\s?\}|\\circ(?![A-Za-z]))|\\degree\b|°)"
    r"|\\(?P<cmd>[A-Za-z]+)\*?"
    r"|(?P<row>\\\\(?:\[[0-9a-z. ]{1,8}\])?)"
    r"|(?P<dollar>\$\$|\$)|(?P<math>\\[()\[\]])|(?P<escaped>\\[$%{}&#_|])"
    r"|(?P<word>[A-Za-z]{3,}(?:-[A-Za-z]{2,})+|(?<![A-Za-z0-9])[A-Za-z]-[A-Za-z]{3,}"
    r"|[A-Za-z]+(?:'[a-z]{1,2}(?![A-Za-z]))?|[À-ÖØ-öø-ÿ]+)"
    r"|(?P<rel>=/=|(?<![0-9A-Za-z)}])!=|==|<=|>=|[=≈≃≅<>≤≥≠≡])"
    r"|(?P<op>\*\*|[-+*/^()\[\]{}|!%,;:.&'\"?_#@⟨⟩∼¢£€¥₹" + _SPECIAL_CHARS + r"])"
    r"|(?P<other>.)",
    re.DOTALL,
)


class Token:
    """A token: its kind, its canonical text and its offsets.

    Kinds: num, word, cmd, text, op, rel, money, math (a delimiter), begin, end, row, deg, sup,
    subs, other. ``value`` and ``places`` are set on numbers; ``gap`` is 1 after space and 2 after a
    line end; ``math`` says whether the token stands between math delimiters.
    """

    __slots__ = ("end", "gap", "kind", "math", "places", "start", "text", "value")

    def __init__(
        self,
        kind: str,
        text: str,
        start: int,
        end: int,
        gap: int = 0,
        value: Fraction | None = None,
        places: int = -1,
    ) -> None:
        self.kind = kind
        self.text = text
        self.start = start
        self.end = end
        self.gap = gap
        self.value = value
        self.places = places
        self.math = False

    def __repr__(self) -> str:
        return f"{self.kind}:{self.text!r}"


_ORDINAL = re.compile(r"(?:st|nd|rd|th)(?![A-Za-z])")
_NUMBER_NOISE = re.compile(r"[,{}\\!\s]")


def read_number(text: str) -> tuple[Fraction, int] | None:
    """Return value and shown decimal places of an ASCII literal, None if it is too long."""
    if len(text) > MAX_DIGITS:
        return None
    if text.isdigit():
        return Fraction(int(text)), -1
    cut = None if text[-1].isdigit() else _GOES_ON.search(text)
    if cut is not None:
        return _unended(text[: cut.start()])
    plain = _NUMBER_NOISE.sub("", text).rstrip(".…")
    if text[-1] == "." and "overline" not in text and plain.isdigit():
        return Fraction(int(plain)), 0
    mantissa, mark, exponent = plain.partition("e") if "e" in plain else plain.partition("E")
    whole, dot, decimals = mantissa.partition(".")
    value = Fraction(int((whole or "0") + decimals), 10 ** len(decimals))
    places = len(decimals) if dot else -1
    if mark:
        power = int(exponent)
        if abs(power) > MAX_DIGITS:
            return None
        value = value * Fraction(10) ** power
        places = max(places, 0) - power
        places = places if places > 0 else -1
    return value, places


_GOES_ON = re.compile(r"\s?(?:\.\.\.?|…|\\[a-z]+)$")
_REPEATS = re.compile(
    r"(?P<lead>[0-9]*?)(?P<block>(?P<digit>[0-9])(?P=digit){2,}|(?P<pair>[0-9]{2,})(?P=pair)+)"
)


def _unended(text: str) -> tuple[Fraction, int]:
    """Value of ``0.333...`` and ``3.14...``.

    Digits that repeat go on for ever. Where none do, the number lies between the digits shown and
    the next ones: its middle stands for it, so that half a place is what it may be off.
    """
    whole, _, decimals = text.partition(".")
    shown = Fraction(int(whole + decimals), 10 ** len(decimals))
    match = _REPEATS.fullmatch(decimals)
    block = match and (match["pair"] or match["digit"])
    if len(decimals) == 2 and decimals[0] == decimals[1]:
        block = decimals[0]
    if not block:
        return shown + Fraction(1, 2 * 10 ** len(decimals)), len(decimals)
    return shown + Fraction(int(block), (10 ** len(block) - 1) * 10 ** len(decimals)), len(decimals)


def math_spans(text: str) -> set[int]:
    """Return the offsets of those ``$`` that delimit math; the others are money signs.

    A pair delimits math when the closing sign is not glued to a following number, the text inside
    neither starts nor ends in space or an operator, and the pair stands in one paragraph.
    """
    places = [m.start() for m in re.finditer(r"(?<!\\)\$", text)]
    found: set[int] = set()
    i = 0
    while i + 1 < len(places):
        first, second = places[i], places[i + 1]
        if second == first + 1:  # $$ opens or closes a display
            found.update((first, second))
            i += 2
            continue
        inside = text[first + 1 : second]
        after = text[second + 1 : second + 2]
        stripped = inside.strip()
        looks = (
            stripped
            and "\n\n" not in inside
            and len(inside) < 2000
            and not after.isdigit()
            and not (after == "." and text[second + 2 : second + 3].isdigit())
            and stripped[-1] not in "+-*/=(<>×÷"
            and (not inside[-1].isspace() or inside[0].isspace() or "\\" in inside)
        )
        # "$5 and she has $" is prose between two sums; prose has words, math has few.
        if looks and "\\" not in inside and len(re.findall(r"[A-Za-z]{3,}", inside)) > 1:
            looks = False
        if looks:
            found.update((first, second))
            i += 2
        else:
            i += 1
    return found


def tokenize(text: str, *, spaced_thousands: bool = False, math: bool = False) -> list[Token]:
    """Split ``text`` into tokens; never fails.

    Args:
        text: Plain text or LaTeX.
        spaced_thousands: Read ``1 000`` as one number. Only safe where a lone answer is read.
        math: Take the whole text as math, with or without delimiters.
    """
    plain = text.translate(_ONE_FOR_ONE)
    dollars = math_spans(plain) if "$" in plain else set()
    tokens: list[Token] = []
    gap = 0
    for match in _PATTERN.finditer(plain):
        kind = match.lastgroup
        start, end = match.span()
        raw = match.group()
        if kind == "skip":
            gap = 2 if "\n" in raw else max(gap, 1)
            continue
        if kind == "num":
            if _ORDINAL.match(plain, end):
                tokens.append(Token("other", raw, start, end, gap))  # 6th counts nothing
                gap = 0
                continue
            read = read_number(raw)
            if read is None:
                tokens.append(Token("other", "#long", start, end, gap))
            else:
                tokens.append(Token("num", raw, start, end, gap, read[0], read[1]))
        elif kind == "word":
            tokens.append(Token("word", raw, start, end, gap))
        elif kind == "rel":
            tokens.append(Token("rel", RELATIONS[raw], start, end, gap))
        elif kind == "op":
            if raw in "£€¥₹":
                tokens.append(Token("money", raw, start, end, gap))
            else:
                tokens.append(Token("op", "^" if raw == "**" else raw, start, end, gap))
        elif kind == "dollar":
            if raw == "$$" or start in dollars:
                tokens.append(Token("math", raw, start, end, gap))
            else:
                tokens.append(Token("money", "$", start, end, gap))
        elif kind == "cmd":
            word = match.group("cmd")
            if word in _LATEX_SKIP:
                gap = max(gap, 1)
                continue
            if word in _LATEX_RELATIONS:
                tokens.append(Token("rel", _LATEX_RELATIONS[word], start, end, gap))
            elif word in _LATEX_OPERATORS:
                tokens.append(Token("op", _LATEX_OPERATORS[word], start, end, gap))
            else:
                tokens.append(Token("cmd", word, start, end, gap))
        elif kind == "textbody":
            body = match.group("textbody").strip()
            if match.group("text") == "mathrm" and body in ("i", "e"):
                tokens.append(Token("word", body, start, end, gap))
            elif match.group("text") in ("mathbb", "bm") and body in _BLACKBOARD:
                tokens.append(Token("op", _BLACKBOARD[body], start, end, gap))
            else:
                tokens.append(Token("text", body, start, end, gap))
        elif kind == "vulgar":
            value = Fraction(*_VULGAR[raw])
            tokens.append(Token("num", raw, start, end, gap, value, -1))
        elif kind == "super":
            value = Fraction(int(raw.translate(_SUPER)))
            tokens.append(Token("sup", raw, start, end, gap, value, -1))
        elif kind == "subs":
            tokens.append(Token("subs", raw.translate(_SUB), start, end, gap))
        elif kind == "degree":
            tokens.append(Token("deg", "°", start, end, gap))
        elif kind == "escaped":
            sign = raw[1]
            if sign == "$":
                tokens.append(Token("money", "$", start, end, gap))
            elif sign in "{}":
                tokens.append(Token("op", raw, start, end, gap))
            else:
                tokens.append(Token("op", "‖" if sign == "|" else sign, start, end, gap))
        elif kind in ("begin", "end"):
            tokens.append(Token(kind, match.group(kind).rstrip("*"), start, end, gap))
        elif kind in ("row", "math"):
            tokens.append(Token(kind, raw, start, end, gap))
        else:
            tokens.append(Token("other", raw, start, end, gap))
        gap = 0
    if spaced_thousands:
        tokens = _join_thousands(tokens)
    _mark_math(tokens, all_math=math)
    return _resolve_times(tokens)


def _mark_math(tokens: list[Token], *, all_math: bool) -> None:
    """Set ``math`` on the tokens between math delimiters."""
    inside = all_math
    for token in tokens:
        if token.kind == "math":
            inside = all_math or (token.text[-1] in "([" if token.text[0] == "\\" else not inside)
        elif token.kind == "begin" or token.kind == "end":
            inside = all_math or token.kind == "begin" or inside
        else:
            token.math = inside


def _join_thousands(tokens: list[Token]) -> list[Token]:
    """Join ``1 000`` and ``11, 111, 111``-style groups into one number."""
    joined: list[Token] = []
    for token in tokens:
        last = joined[-1] if joined else None
        if (
            last is not None
            and last.kind == token.kind == "num"
            and token.gap
            and len(token.text) == 3
            and token.text.isdigit()
            and re.fullmatch(r"[1-9][0-9]{0,2}(?: [0-9]{3})*", last.text)
        ):
            value = (last.value or Fraction(0)) * 1000 + (token.value or 0)
            joined[-1] = Token(
                "num", f"{last.text} {token.text}", last.start, token.end, last.gap, value
            )
        else:
            joined.append(token)
    return joined


def _resolve_times(tokens: list[Token]) -> list[Token]:
    """Turn an ``x`` between two values into a times sign; elsewhere it stays a variable."""
    last = len(tokens) - 1
    for i, token in enumerate(tokens):
        if token.kind != "word":
            continue
        low = token.text.lower()
        if low == "x" and 0 < i < last:
            before, after = tokens[i - 1], tokens[i + 1]
            opens = after.kind in ("num", "money") or (after.kind == "op" and after.text == "(")
            if (
                not opens
                and after.kind == "cmd"
                and after.text in ("frac", "dfrac", "tfrac", "sqrt")
            ):
                opens = token.gap > 0
            value = before.kind in ("num", "deg", "sup") or (
                before.kind == "op" and before.text in (")", "%", "]", "!", "}")
            )
            if not value and before.kind == "word" and len(before.text) > 1 and i >= 2:
                # "7 minutes x 60": a unit stands between number and times sign
                value = any(t.kind == "num" for t in tokens[max(0, i - 4) : i]) and token.gap > 0
            glued = not token.gap and not after.gap and before.kind == "num" and after.kind == "num"
            if value and opens and (glued or after.gap or token.gap):
                tokens[i] = Token("op", "*", token.start, token.end, token.gap)
    return tokens
