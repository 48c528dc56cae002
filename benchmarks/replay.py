"""Programs that replay two BIG-Bench-Mistake tasks and name the first wrong step.

They run inside PythonExecutor, like any program a user would write for a task of his own; the
verifiers package knows nothing about these tasks. Each reads a JSON list of items from stdin and
leaves the index of the first wrong step of each, None where it finds none, in ``result``.
"""

from __future__ import annotations

TRACKING = r"""
import json, re

def pairs(text, people):
    names = "|".join(people) + "|" + "|".join(sorted({p[0] for p in people}))
    sign = r"\b(%s)\s*(?::|=|->|(?<=[a-z]) has(?: an?| the)?\b)" % names
    found = {}
    spots = list(re.finditer(sign, text))
    for i, spot in enumerate(spots):
        stop = spots[i + 1].start() if i + 1 < len(spots) else len(text)
        who = next(p for p in people if p == spot.group(1) or p[0] == spot.group(1))
        found[who] = text[spot.end():stop].strip().strip(".,;").removesuffix(" and").strip().strip(",")
    return found

def same(said, thing):
    said, thing = said.lower(), thing.lower()
    return bool(said) and (said in thing or thing in said or said.split()[-1] in thing.split()[-2:])

def first_mistake(item):
    question, steps = item["input"], item["steps"]
    people = re.findall(r"[A-Z][a-z]+", question.split(" are ")[0])
    swaps = re.findall(r"(?:First|Then|Finally), (\w+) and (\w+) ", question)
    start = question.split("\n")[0]
    state = {}
    for who in people:
        held = re.search(
            r"\b%s (?:has|gets|is|buys|have)"
            r"(?: (?:dancing with|playing|holding|buys?|an?|the))* ([^,.]+)" % who,
            start.split(": ")[-1],
        )
        state[who] = held.group(1).strip() if held else ""
    options = dict(re.findall(r"\(([A-Z])\) ([^\n]+?)\.?(?:\n|$)", question))
    ending = question.split("Options:")[0].rsplit("At the end", 1)[-1]
    asked = re.findall(r"\b(%s)\b" % "|".join(people), ending)
    at = 0
    for i, step in enumerate(steps):
        answer = re.search(r"answer is \(?([A-Z])\)?", step)
        said = pairs(step, people)
        if said and not answer:
            verb = re.search(r"swap|switch|trade|exchange", step)
            fits = all(same(what, state[who]) for who, what in said.items())
            if not (i == 0 and not verb and fits):
                if at >= len(swaps):
                    return None if fits else i
                a, b = swaps[at]
                at += 1
                state = dict(state)
                state[a], state[b] = state[b], state[a]
                if verb:
                    head = step.split(":")[0]
                    named = {p for p in people if re.search(r"\b(?:%s|%s)\b" % (p, p[0]), head)}
                    if len(named) == 2 and named != {a, b}:
                        return i
            if not all(same(what, state[who]) for who, what in said.items()):
                return i
            continue
        if answer and asked:
            if at != len(swaps):
                return i
            held = state[asked[-1]]
            if not same(options.get(answer.group(1), ""), held):
                return i
    return None

result = [first_mistake(item) for item in json.loads(input())]
"""

SORTING = r"""
import json, re

ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth".split()

def groups(text):
    found = []
    for part in text.split(" < "):
        words = re.findall(r'"([^"]+)"', part)
        number = re.match(r"\W*\((\d+)\)", part)
        if not words:
            return None
        found.append((frozenset(words), int(number.group(1)) if number else None, len(words)))
    return found

def letter(word, at):
    return word[at] if at < len(word) else ""

def expected(words, at):
    buckets = {}
    for word in words:
        buckets.setdefault(letter(word, at), set()).add(word)
    return [(frozenset(buckets[key]), key) for key in sorted(buckets)]

def first_mistake(item):
    words = item["input"].split()
    state = [frozenset(words)]
    depth = {frozenset(words): 0}
    part, at = frozenset(words), 0
    for i, step in enumerate(item["steps"]):
        if "letter" in step and "We now have" not in step and "The answer is" not in step:
            named = re.search(r"subpart \[([^\]]*)\]", step)
            if named:
                part = frozenset(re.findall(r'"([^"]+)"', named.group(1)))
                waiting = [group for group in state if len(group) > 1]
                if not waiting or part != waiting[0]:
                    return i
            position = re.search(r"(?:their|[Tt]he) (\w+) letters?\b", step)
            if position and position.group(1) in ORDINALS:
                at = ORDINALS.index(position.group(1))
            if depth.get(part, 0) != at:
                return i
            listed = re.findall(r'"([^"]+)": "([^"]*)" \((\d+)\)', step)
            if i == 0:  # the words as the solution copied them
                part = frozenset(word for word, _, _ in listed)
                state, depth = [part], {part: 0}
            if frozenset(word for word, _, _ in listed) != part:
                return i
            for word, char, number in listed:
                if letter(word, at) != char or ord(char) - 96 != int(number):
                    return i
            continue
        if "We now have" in step:
            body = step.split("We now have:", 1)[1]
            local, _, rest = body.partition("for the subpart")
            said = groups(local)
            want = expected(part, at)
            if said is None or [g[0] for g in said] != [g[0] for g in want]:
                return i
            if sum(g[2] for g in said) != len(part):
                return i
            where = state.index(part)
            state = state[:where] + [g[0] for g in want] + state[where + 1:]
            for group, _ in want:
                depth[group] = at + 1
            if "we have" in rest:
                full = groups(rest.split("we have", 1)[1])
                if full is None or [g[0] for g in full] != state:
                    return i
            continue
        if "answer is" in step:
            said = step.split("answer is", 1)[1].strip().rstrip(".").split()
            if any(len(group) > 1 for group in state):
                return i
            if said != [next(iter(group)) for group in state]:
                return i
    return None

result = [first_mistake(item) for item in json.loads(input())]
"""

PROGRAMS = {"tracking_shuffled_objects": TRACKING, "word_sorting": SORTING}
