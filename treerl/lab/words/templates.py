"""Every text of the words lab: names, things, and the two disjoint template sets P and Q.

A template is a pair of tuples, the wordings of set P and those of set Q. Both sets say the same
thing, keep the same cue words (buy, lose, half, each, together, ...) and differ in how they are
put, so rules written by somebody who has seen only P have a fair chance on Q. No wording may
appear in both sets, and every tuple has exactly `VARIANTS` entries, so that one random draw picks
"the same" wording in either set. Change nothing here without a new `VERSION`: the weights in
`model/` were trained on exactly these texts.
"""

from typing import Final, Literal

TemplateSet = Literal["P", "Q"]
Template = tuple[tuple[str, ...], tuple[str, ...]]

VERSION: Final = "1"
VARIANTS: Final = 2

NAMES: Final = (
    "Tom", "Ana", "Ben", "Mia", "Leo", "Zoe", "Sam", "Eva", "Max", "Ida", "Raj", "Lin",
)  # fmt: skip
THINGS: Final = (
    "apples", "pens", "books", "coins", "cards", "shells", "stamps", "marbles", "cookies",
    "pears", "stickers", "buttons",
)  # fmt: skip

# --- what the question says ----------------------------------------------------------------------
QUESTION: Final[dict[str, Template]] = {
    "have": (
        ("{name} has {n} {things}.", "{name} starts with {n} {things}."),
        ("There are {n} {things} in {name}'s box.", "At first {n} {things} belong to {name}."),
    ),
    "distractor": (
        ("{name} also has {n} {others}.", "{name} has {n} {others} too."),
        ("Next to them lie {n} {others}.", "The box holds {n} {others} as well."),
    ),
    "buy": (
        ("{name} buys {n} more {things}.", "Then {name} buys {n} {things}."),
        ("Later {n} extra {things} are bought.", "At the shop {name} decides to buy another {n}."),
    ),
    "find": (
        ("{name} finds {n} {things}.", "Then {name} finds {n} more {things}."),
        ("On the way home another {n} {things} are found.", "A search helps to find {n} {things}."),
    ),
    "give": (
        ("{name} gives away {n} {things}.", "Then {name} gives {n} {things} away."),
        ("Later {n} of the {things} are given to a child.", "A neighbour is given {n} {things}."),
    ),
    "lose": (
        ("{name} loses {n} {things}.", "Then {name} loses {n} of the {things}."),
        ("Sadly {n} {things} get lost.", "Through a hole in the bottom {n} {things} are lost."),
    ),
    "bags": (
        (
            "{name} picks up {n} bags of {m} {things}.",
            "{name} gets {n} bags with {m} {things} each.",
        ),
        ("Then {n} bags, each holding {m} {things}, arrive.", "Add to this {n} full bags of {m}."),
    ),
    "children": (
        (
            "{name} hands {m} {things} to each of {n} children.",
            "{n} children take {m} {things} each.",
        ),
        (
            "Each of {n} children receives {m} {things}.",
            "For each of the {n} children {m} go away.",
        ),
    ),
    "half": (
        ("{name} sells half of the {things}.", "Then {name} sells half of them."),
        ("Half of all the {things} get sold.", "A trader comes and half are sold."),
    ),
    "double": (
        ("{name} doubles the number of {things}.", "Then {name} doubles the {things}."),
        ("A delivery makes the {things} double.", "The number of {things} becomes the double."),
    ),
    "ask_now": (
        ("How many {things} does {name} have now?", "How many {things} are left at the end?"),
        ("What is the final number of {things}?", "Find how many {things} remain with {name}."),
    ),
    "share": (
        (
            "{name} shares the {things} equally among {n} friends. How many does each friend get?",
            "The {things} are shared equally by {n} friends. How many for each friend?",
        ),
        (
            "If {n} friends share all {things} in equal parts, what goes to each friend?",
            "Of the {things} {n} friends take an equal share. What does each of them take?",
        ),
    ),
    "rival_more": (
        ("{friend} has {n} more {things} than {name}.", "{friend} has {n} more than {name}."),
        ("With {friend} there are {n} more {things}.", "{friend} owns {n} more than that."),
    ),
    "rival_fewer": (
        ("{friend} has {n} fewer {things} than {name}.", "{friend} has {n} fewer than {name}."),
        ("With {friend} there are {n} fewer {things}.", "{friend} owns {n} fewer than that."),
    ),
    "rival_times": (
        (
            "{friend} has {n} times as many {things} as {name}.",
            "{friend} has {n} times as many as {name}.",
        ),
        ("With {friend} there are {n} times the {things}.", "{friend} owns {n} times that number."),
    ),
    "ask_together": (
        ("How many {things} do they have together?", "How many do both have together?"),
        ("Together, what number of {things} is it?", "Count the {things} of both together."),
    ),
    "ask_more_than": (
        (
            "{friend} has {n} {things}. How many more does {name} have than {friend}?",
            "{friend} has only {n} {things}. How many more {things} does {name} have?",
        ),
        (
            "By how many more {things} does {name} beat {friend}, who owns {n}?",
            "{friend} owns {n} of them. What is it that {name} has more?",
        ),
    ),
    "pool_boxes": (
        (
            "They put all the {things} into {n} equal boxes. How many are in each box?",
            "All {things} go into {n} boxes equally. How many {things} does each box hold?",
        ),
        (
            "Together it all fills {n} boxes in equal parts. What does each box contain?",
            "With everything packed into {n} equal boxes, what number is in each box?",
        ),
    ),
    "item": (
        (
            "{name} buys {n} {things} at {m} dollars each.",
            "{name} buys {n} {things} for {m} dollars each.",
        ),
        (
            "A basket gets {n} {things}, each at {m} dollars.",
            "Each of {n} {things} has a price of {m} dollars.",
        ),
    ),
    "item_more": (
        (
            "{name} also buys {n} {others} at {m} dollars each.",
            "Also {name} buys {n} {others} for {m} dollars each.",
        ),
        (
            "Into it go {n} {others}, each at {m} dollars.",
            "Each of {n} {others} has a price of {m} dollars.",
        ),
    ),
    "coupon": (
        ("A coupon takes {n} dollars off the total.", "{name} uses a coupon of {n} dollars."),
        ("Thanks to a coupon {n} dollars come off.", "There is a coupon worth {n} dollars."),
    ),
    "ask_cost": (
        ("How much does {name} pay?", "How many dollars does {name} pay in the end?"),
        ("What does {name} have to pay?", "Which sum in dollars is to pay?"),
    ),
    "ask_change": (
        (
            "{name} pays with {n} notes of {m} dollars. How much change does {name} get?",
            "{name} pays with {n} notes of {m} dollars each. How many dollars are the change?",
        ),
        (
            "On the desk lie {n} notes, each of {m} dollars, to pay. What is the change?",
            "To pay, {name} takes {n} notes of {m} dollars. What change comes back?",
        ),
    ),
    "ask_split": (
        (
            "{n} friends share the cost equally. How much does each friend pay?",
            "The cost is shared equally by {n} friends. How many dollars for each friend?",
        ),
        (
            "With {n} friends in equal parts, what has each friend to pay?",
            "An equal share of it falls to {n} friends. What does each of the friends pay?",
        ),
    ),
    "earn": (
        (
            "{name} earns {m} dollars an hour and works {n} hours.",
            "{name} works {n} hours for {m} dollars an hour.",
        ),
        (
            "For work of {n} hours, each hour pays {m} dollars to {name}.",
            "In {n} hours {name} works, {m} dollars come each hour.",
        ),
    ),
    "tip": (
        ("{name} gets a tip of {n} dollars.", "Then {name} gets {n} dollars as a tip."),
        ("A tip of {n} dollars is added.", "Someone leaves {n} dollars, a tip."),
    ),
    "spend": (
        ("{name} spends {n} dollars on food.", "Then {name} spends {n} dollars."),
        ("Of the money {n} dollars are spent.", "For a ticket {n} dollars get spent."),
    ),
    "save": (
        ("{name} saves half of the money.", "Then {name} saves half of it."),
        ("Half of the money is saved.", "A bank account saves half of this."),
    ),
    "ask_saved": (
        ("How much does {name} save?", "How many dollars does {name} save?"),
        ("What sum in dollars has been saved?", "What is in the bank for {name}?"),
    ),
    "ask_money": (
        ("How much money does {name} have?", "How many dollars does {name} have now?"),
        ("What sum of money is with {name}?", "Find the dollars {name} holds."),
    ),
}

# --- what a step says it computes ----------------------------------------------------------------
OBJECTIVE: Final[dict[str, Template]] = {
    "buy": (
        ("{Things} after buying", "{Things} after {name} buys more"),
        ("Number of {things} once bought", "New {things} bought, so now"),
    ),
    "find": (
        ("{Things} after finding", "{Things} after {name} finds more"),
        ("Number of {things} once found", "More {things} found, so now"),
    ),
    "give": (
        ("{Things} after giving away", "{Things} after {name} gives some away"),
        ("Number of {things} once given", "Some {things} given, so now"),
    ),
    "lose": (
        ("{Things} after losing", "{Things} after {name} loses some"),
        ("Number of {things} once lost", "Some {things} lost, so now"),
    ),
    "bags_all": (
        ("{Things} in the bags", "{Things} in all bags"),
        ("What the bags hold", "All bags contain"),
    ),
    "bags": (
        ("{Things} after the bags", "{Things} with the bags"),
        ("Number of {things} plus bags", "Adding what the bags hold"),
    ),
    "children_all": (
        ("{Things} for the children", "{Things} for all children"),
        ("What the children receive", "All children take"),
    ),
    "children": (
        ("{Things} after the children", "{Things} without those of the children"),
        ("Number of {things} minus children", "Taking off what the children receive"),
    ),
    "half": (
        ("{Things} after selling half", "{Things} after {name} sells half"),
        ("Number of {things} with half sold", "Half of the {things}"),
    ),
    "double": (
        ("{Things} after doubling", "{Things} after {name} doubles them"),
        ("Number of {things} made double", "Double the {things}"),
    ),
    "share": (
        ("{Things} for each friend", "Each friend gets"),
        ("Equal share of a friend", "What each of the friends takes"),
    ),
    "rival": (
        ("{Things} of {friend}", "{friend} has"),
        ("What {friend} owns", "Number with {friend}"),
    ),
    "together": (
        ("{Things} together", "{name} and {friend} together"),
        ("Sum of both", "Number of {things} for both together"),
    ),
    "more_than": (
        ("{Things} more than {friend}", "{name} has more by"),
        ("Lead over {friend}", "Number {name} has more"),
    ),
    "boxes": (
        ("{Things} in each box", "Each box holds"),
        ("Content of each box", "What each box contains"),
    ),
    "side": (
        ("{Things} and {others} at the start", "All {things} and {others} at the start"),
        ("Sum of {things} with {others} at first", "At first {things} plus {others} make"),
    ),
    "cost": (
        ("Cost of the {things}", "Price of all {things}"),
        ("What the {things} cost", "For the {things} one pays"),
    ),
    "cost_more": (
        ("Cost of the {others}", "Price of all {others}"),
        ("What the {others} cost", "For the {others} one pays"),
    ),
    "total": (
        ("Total cost", "Cost of everything"),
        ("What all costs in total", "Sum of the prices"),
    ),
    "coupon": (
        ("Cost after the coupon", "Cost with the coupon"),
        ("What it costs minus coupon", "Coupon off leaves to pay"),
    ),
    "paid": (
        ("Money paid", "Dollars {name} pays with"),
        ("What the notes are worth", "Sum of the notes"),
    ),
    "change": (
        ("Change", "Dollars of change"),
        ("What comes back as change", "So the change is"),
    ),
    "split": (
        ("Cost for each friend", "Each friend pays"),
        ("Equal part of the cost", "What each of the friends pays"),
    ),
    "pay": (
        ("Money earned", "Money {name} earns"),
        ("What the hours pay", "Pay for all hours"),
    ),
    "tip": (
        ("Money after the tip", "Money with the tip"),
        ("Sum once the tip is added", "Tip on top makes"),
    ),
    "spend": (
        ("Money after spending", "Money after {name} spends some"),
        ("Sum once some is spent", "Spent some, so left are"),
    ),
    "save": (
        ("Money saved", "Money {name} saves"),
        ("Half of the sum", "What is saved"),
    ),
}  # fmt: skip

ANSWER: Final = "Answer: {value}"


def wordings(template: Template, which: TemplateSet) -> tuple[str, ...]:
    """Return the wordings of one set of a template."""
    return template[0] if which == "P" else template[1]
