"""The stories: how facts, events and a question are put together into a problem.

A story is told into a `Draft`, which keeps the text and the graph of quantities in step. A draft
whose numbers do not work out (a negative or too large value, two operations that give the same
result, ...) raises `Reject`, and the generator draws again.
"""

import random
from collections.abc import Callable
from typing import Final

from treerl.lab.words.problem import OPS, Op, Quantity, apply
from treerl.lab.words.templates import (
    NAMES,
    OBJECTIVE,
    QUESTION,
    THINGS,
    VARIANTS,
    TemplateSet,
    wordings,
)

LIMIT: Final = 1000
"""All values are integers in 1 .. LIMIT - 1."""
MAX_GIVEN: Final = 99
"""No number in a question is larger."""
MIN_STEPS: Final = 2
MAX_STEPS: Final = 5
DISTRACTOR_RATE: Final = 0.25
"""Share of collection stories that mention a second kind of thing nobody asks about."""


class Reject(Exception):
    """The numbers drawn so far make no proper problem."""


class Draft:
    """A problem in the making.

    Every random draw is independent of the template set, so that one seed tells the same story
    with the same numbers in the words of P or of Q.
    """

    def __init__(self, rng: random.Random, templates: TemplateSet) -> None:
        self.rng = rng
        self.templates: TemplateSet = templates
        name, friend = rng.sample(NAMES, 2)
        things, others = rng.sample(THINGS, 2)
        self.slots = {
            "name": name,
            "friend": friend,
            "things": things,
            "Things": things.capitalize(),
            "others": others,
        }
        self.sentences: list[str] = []
        self.quantities: list[Quantity] = []

    def say(self, template: str, **numbers: int) -> None:
        """Add a sentence; `numbers` fill the slots n and m."""
        texts = wordings(QUESTION[template], self.templates)
        text = texts[self.rng.randrange(VARIANTS)]
        self.sentences.append(text.format(**self.slots, **numbers))

    def value(self, key: str) -> int:
        """Return the value of a quantity told so far."""
        return next(q.value for q in self.quantities if q.key == key)

    def given(self, key: str, value: int) -> str:
        """Add a number stated in the text or implied by a word (half); return its key."""
        if not 1 <= value <= MAX_GIVEN:
            raise Reject
        self.quantities.append(Quantity(key, "given", (), value))
        return key

    def derive(self, key: str, op: Op, left: str, right: str, objective: str = "") -> str:
        """Add the quantity `left op right` and return its key.

        Args:
            key: Its name, and the name of its objective template unless `objective` is given.
            op: One of the four operations.
            left: Key of the first operand.
            right: Key of the second operand.
            objective: Name of the objective template.

        Raises:
            Reject: The value is out of range, or another operation gives the same value, so that
                a wrong operation would go unseen.
        """
        first, second = self.value(left), self.value(right)
        value = apply(op, first, second)
        if value is None or not 1 <= value < LIMIT:
            raise Reject
        if any(apply(other, first, second) == value for other in OPS if other != op):
            raise Reject
        template = OBJECTIVE[objective or key]
        texts = tuple(tuple(text.format(**self.slots) for text in side) for side in template)
        self.quantities.append(Quantity(key, op, (left, right), value, (texts[0], texts[1])))
        return key

    def pick(self, low: int, high: int) -> int:
        """Draw an integer in low .. high, both included; Reject if there is none."""
        if high < low:
            raise Reject
        return self.rng.randint(low, high)

    def divisor(self, key: str) -> int:
        """Draw a divisor in 2 .. 9 of a quantity smaller than itself; Reject if there is none."""
        value = self.value(key)
        choices = [d for d in range(2, 10) if value % d == 0 and d < value]
        if not choices:
            raise Reject
        return self.rng.choice(choices)


# --- events of a collection: each takes the key of the present amount and returns the next one ---
def _gain(event: str) -> Callable[[Draft, str], str]:
    def tell(draft: Draft, now: str) -> str:
        amount = draft.pick(2, MAX_GIVEN)
        draft.say(event, n=amount)
        return draft.derive(event, "+", now, draft.given(f"{event}_n", amount))

    return tell


def _loss(event: str) -> Callable[[Draft, str], str]:
    def tell(draft: Draft, now: str) -> str:
        amount = draft.pick(2, min(MAX_GIVEN, draft.value(now) - 1))
        draft.say(event, n=amount)
        return draft.derive(event, "-", now, draft.given(f"{event}_n", amount))

    return tell


def _groups(event: str, op: Op) -> Callable[[Draft, str], str]:
    def tell(draft: Draft, now: str) -> str:
        count, size = draft.pick(2, 9), draft.pick(2, 12)
        draft.say(event, n=count, m=size)
        keys = draft.given(f"{event}_n", count), draft.given(f"{event}_m", size)
        return draft.derive(event, op, now, draft.derive(f"{event}_all", "*", *keys))

    return tell


def _scaled(event: str, op: Op) -> Callable[[Draft, str], str]:
    def tell(draft: Draft, now: str) -> str:
        draft.say(event)
        return draft.derive(event, op, now, draft.given(f"{event}_two", 2))

    return tell


EVENTS: Final[tuple[Callable[[Draft, str], str], ...]] = (
    _gain("buy"),
    _gain("find"),
    _loss("give"),
    _loss("lose"),
    _groups("bags", "+"),
    _groups("children", "-"),
    _scaled("half", "/"),
    _scaled("double", "*"),
)


def _start(draft: Draft) -> str:
    amount = draft.pick(5, MAX_GIVEN)
    draft.say("have", n=amount)
    return draft.given("start", amount)


def _rival(draft: Draft, now: str) -> str:
    """Tell how many the friend has, compared with the present amount."""
    how = draft.rng.choice(("more", "fewer", "times"))
    if how == "times":
        if draft.value(now) > MAX_GIVEN:
            raise Reject
        amount, op = draft.pick(2, 4), "*"
    elif how == "more":
        amount, op = draft.pick(2, MAX_GIVEN), "+"
    else:
        amount, op = draft.pick(2, min(MAX_GIVEN, draft.value(now) - 1)), "-"
    draft.say(f"rival_{how}", n=amount)
    operation: Op = "*" if op == "*" else "+" if op == "+" else "-"
    return draft.derive("rival", operation, now, draft.given("rival_n", amount))


def collection(draft: Draft) -> str:
    """Somebody's collection grows and shrinks; then it is counted, shared or compared."""
    now = _start(draft)
    if draft.rng.random() < DISTRACTOR_RATE:
        amount = draft.pick(2, MAX_GIVEN)
        draft.say("distractor", n=amount)
        draft.derive("side", "+", now, draft.given("distractor", amount))
    for event in draft.rng.sample(EVENTS, draft.pick(1, 4)):
        now = event(draft, now)
    ending = draft.rng.choice(("now", "now", "share", "together", "more_than"))
    if ending == "share":
        friends = draft.divisor(now)
        draft.say("share", n=friends)
        return draft.derive("share", "/", now, draft.given("friends", friends))
    if ending == "together":
        rival = _rival(draft, now)
        draft.say("ask_together")
        return draft.derive("together", "+", now, rival)
    if ending == "more_than":
        amount = draft.pick(2, min(MAX_GIVEN, draft.value(now) - 1))
        draft.say("ask_more_than", n=amount)
        return draft.derive("more_than", "-", now, draft.given("rival_n", amount))
    draft.say("ask_now")
    return now


def pair(draft: Draft) -> str:
    """Two people compare what they have, and put it together."""
    now = _start(draft)
    rival = _rival(draft, now)
    both = draft.derive("together", "+", now, rival)
    if draft.rng.random() < 0.6:
        boxes = draft.divisor(both)
        draft.say("pool_boxes", n=boxes)
        return draft.derive("boxes", "/", both, draft.given("boxes_n", boxes))
    draft.say("ask_together")
    return both


def shop(draft: Draft) -> str:
    """One or two kinds of goods are bought; a coupon, friends or notes settle the bill."""
    count, price = draft.pick(2, 9), draft.pick(2, 12)
    draft.say("item", n=count, m=price)
    cost = draft.derive("cost", "*", draft.given("item_n", count), draft.given("item_m", price))
    if draft.rng.random() < 0.7:
        count, price = draft.pick(2, 9), draft.pick(2, 12)
        draft.say("item_more", n=count, m=price)
        keys = draft.given("more_n", count), draft.given("more_m", price)
        cost = draft.derive("total", "+", cost, draft.derive("cost_more", "*", *keys))
    if draft.rng.random() < 0.4:
        amount = draft.pick(2, min(30, draft.value(cost) - 1))
        draft.say("coupon", n=amount)
        cost = draft.derive("coupon", "-", cost, draft.given("coupon_n", amount))
    ending = draft.rng.choice(("cost", "change", "change", "split"))
    if ending == "change":
        notes, worth = draft.pick(2, 9), draft.rng.choice((10, 20, 50))
        draft.say("ask_change", n=notes, m=worth)
        paid = draft.derive("paid", "*", draft.given("notes", notes), draft.given("worth", worth))
        return draft.derive("change", "-", paid, cost)
    if ending == "split":
        friends = draft.divisor(cost)
        draft.say("ask_split", n=friends)
        return draft.derive("split", "/", cost, draft.given("friends", friends))
    draft.say("ask_cost")
    return cost


def wage(draft: Draft) -> str:
    """Hours are paid; a tip, a purchase and savings follow."""
    hours, rate = draft.pick(2, 9), draft.pick(3, 15)
    draft.say("earn", n=hours, m=rate)
    money = draft.derive("pay", "*", draft.given("hours", hours), draft.given("rate", rate))
    events = [event for event in ("tip", "spend") if draft.rng.random() < 0.7]
    draft.rng.shuffle(events)
    for event in events:
        money = (_gain if event == "tip" else _loss)(event)(draft, money)
    if draft.rng.random() < 0.4:
        draft.say("save")
        money = draft.derive("save", "/", money, draft.given("save_two", 2))
        draft.say("ask_saved")
    else:
        draft.say("ask_money")
    return money


STORIES: Final[tuple[tuple[str, Callable[[Draft], str], int], ...]] = (
    ("collection", collection, 5),
    ("pair", pair, 2),
    ("shop", shop, 3),
    ("wage", wage, 2),
)
"""Name, teller and weight of each story kind. A teller returns the key of the asked quantity."""
