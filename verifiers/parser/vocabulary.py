"""The words that the grammar knows: functions, constants, magnitudes, stop words, numerals."""

from __future__ import annotations

from fractions import Fraction

__all__ = [
    "CONSTANT_COMMANDS",
    "FUNCTIONS",
    "GREEK",
    "JOINING_WORDS",
    "MAGNITUDES",
    "NUMBER_WORDS",
    "NUMERALS",
    "ORDINALS",
    "POWER_WORDS",
    "STOP_WORDS",
    "UNICODE_LETTERS",
    "word_set",
]


def word_set(text: str) -> frozenset[str]:
    """A set of words, written as a text."""
    return frozenset(text.split())


# name in text -> canonical function
FUNCTIONS = {
    "sin": "sin", "cos": "cos", "tan": "tan", "sec": "sec", "csc": "csc", "cosec": "csc",
    "cot": "cot", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "asin": "asin",
    "acos": "acos", "atan": "atan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "log": "log",
    "ln": "ln", "lg": "log", "exp": "exp", "sqrt": "sqrt", "cbrt": "cbrt", "gcd": "gcd",
    "hcf": "gcd", "lcm": "lcm", "max": "max", "min": "min", "floor": "floor", "ceil": "ceil",
    "abs": "abs", "det": "det", "arg": "arg", "mean": "mean",
}  # fmt: skip

CONSTANT_COMMANDS = {"pi": "pi", "infty": "inf", "infinity": "inf"}
GREEK = word_set(
    """alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi
    rho sigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi
    Omega ell"""
)
UNICODE_LETTERS = {
    "θ": "theta", "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon",
    "λ": "lambda", "μ": "mu", "ν": "nu", "ρ": "rho", "σ": "sigma", "φ": "phi", "ϕ": "phi",
    "ψ": "psi", "ω": "omega", "Δ": "Delta", "Ω": "Omega", "τ": "tau",
}  # fmt: skip

MAGNITUDES = {
    "hundred": Fraction(100), "thousand": Fraction(1000), "million": Fraction(10**6),
    "billion": Fraction(10**9), "trillion": Fraction(10**12), "hundreds": Fraction(100),
    "thousands": Fraction(1000), "millions": Fraction(10**6), "billions": Fraction(10**9),
    "k": Fraction(1000), "dozen": Fraction(12), "dozens": Fraction(12),
}  # fmt: skip

NUMERALS = {
    "zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
    "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14,
    "fifteen": 15, "sixteen": 16, "seventeen": 17, "eighteen": 18, "nineteen": 19, "twenty": 20,
    "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80,
    "ninety": 90, "hundred": 100,
}  # fmt: skip

ORDINALS = {
    "half": Fraction(1, 2), "halves": Fraction(1, 2), "third": Fraction(1, 3),
    "thirds": Fraction(1, 3), "quarter": Fraction(1, 4), "quarters": Fraction(1, 4),
    "fourth": Fraction(1, 4), "fourths": Fraction(1, 4), "fifth": Fraction(1, 5),
    "fifths": Fraction(1, 5), "sixth": Fraction(1, 6), "sixths": Fraction(1, 6),
    "eighth": Fraction(1, 8), "eighths": Fraction(1, 8), "tenth": Fraction(1, 10),
    "tenths": Fraction(1, 10),
}  # fmt: skip

# Words after a number that change it: never its unit.
NUMBER_WORDS = word_set(
    """squared cubed factorial halves thirds fourths fifths sixths sevenths eighths ninths tenths
    elevenths twelfths sixteenths twentieths hundredths thousandths millionths tens doubled double
    tripled triple quadrupled halved twice thrice negative negated inverse inverted reciprocal
    reciprocated repeating recurring repeated quadrillion quadrillions quintillion sextillion
    half third fourth fifth sixth seventh eighth ninth tenth twentieth hundredth thousandth below
    zillion crore crores lakh lakhs gross bn mn"""
)
POWER_WORDS = {"squared": 2, "cubed": 3}

# Words that join sentences: an operand never reaches across them.
JOINING_WORDS = word_set(
    """is are was were be so then and but or which that because since if when while where has have
    had he she they we you i it this these those thus hence therefore means meaning gives gave
    get gets equals equal leaving making makes made total_is let not than as after before"""
)

# Words that never belong to a unit: after them a number stands in a new phrase.
STOP_WORDS = word_set(
    """is are was were be been being and or so for in on of the to then because since as at by from
    if with but which that this these those it its he she they we you i his her their our your
    my not no has have had do does did will would can could should must may might when while
    where who whose what how there here also thus hence therefore now next first second third
    finally because get gets got give gives gave make makes made need needs cost costs spend
    spends spent earn earns earned pay pays paid sell sells sold buy buys bought leaves leave
    left_over minus plus times equals equal divided multiplied over than until after before
    during between into out about approximately roughly nearly around exactly only just all both
    let using find total_of since respectively giving making leaving meaning remainder rounded
    mod choose"""
)
