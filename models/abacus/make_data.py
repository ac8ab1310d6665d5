#!/usr/bin/env python3
"""Writes the questions that Abacus is trained on, and those that it is examined with.

    make_data.py DIR [--count 1000000] [--seed 1] [--late | --last]

DIR/train.jsonl and DIR/held-out.jsonl have a record a line: question, answer, kind. Everything is
made up here: no text comes from elsewhere, and the same arguments write the same bytes. With --late
there is more of what is learnt late, with --last more of what is learnt last, and the first file is
DIR/late.jsonl or DIR/last.jsonl.

What is held out. A question is about a thing: two numbers, a list of numbers, a word. One thing in
twenty-five, by a hash of it, is never asked about in training, in no words. The times table has too
few things for that: there one question in ten is held out, and the thing is asked about in other
words. The script checks that no held-out question is in the training data.
"""
import argparse
import hashlib
import json
import pathlib
import random
import string

# ---- Words of the questions ----------------------------------------------------------------------

# {0}, {1}: the things; answers are made by the kind's function.
ADD = ["What is {0} + {1}?", "{0} + {1} = ?", "{0} + {1}", "Add {0} and {1}.",
       "What is the sum of {0} and {1}?", "What is {0} plus {1}?", "Calculate {0} + {1}.",
       "How much is {0} plus {1}?"]
SUBTRACT = ["What is {0} - {1}?", "{0} - {1} = ?", "{0} - {1}", "Subtract {1} from {0}.",
            "What is {0} minus {1}?", "Calculate {0} - {1}.", "Take {1} away from {0}.",
            "How much is {0} minus {1}?"]
MULTIPLY = ["What is {0} x {1}?", "{0} x {1} = ?", "{0} x {1}", "{0} * {1}", "Multiply {0} by {1}.",
            "What is {0} times {1}?", "Calculate {0} x {1}.", "What is {0} * {1}?",
            "How much is {0} times {1}?", "What is the product of {0} and {1}?"]
SORT_UP = ["Sort {0}.", "Sort these numbers: {0}", "Sort {0} from smallest to largest.",
           "Sort these numbers from smallest to largest: {0}", "Sort {0} in ascending order.",
           "Put these numbers in ascending order: {0}", "Put {0} in order.",
           "Write these numbers in order: {0}", "Sort from low to high: {0}"]
SORT_DOWN = ["Sort {0} from largest to smallest.", "Sort {0} in descending order.",
             "Sort these numbers from largest to smallest: {0}", "Sort from high to low: {0}",
             "Put these numbers in descending order: {0}", "Sort {0} in reverse order."]
LARGEST = ["Which number is the largest: {0}?", "What is the largest of {0}?",
           "Find the largest number: {0}", "What is the maximum of {0}?",
           "Which of these numbers is the biggest: {0}?", "Name the largest of {0}."]
SMALLEST = ["Which number is the smallest: {0}?", "What is the smallest of {0}?",
            "Find the smallest number: {0}", "What is the minimum of {0}?",
            "Which of these numbers is the least: {0}?", "Name the smallest of {0}."]
LARGER = ["Which is larger, {0} or {1}?", "Which is larger: {0} or {1}?",
          "Which is greater, {0} or {1}?", "Which number is bigger, {0} or {1}?",
          "What is more, {0} or {1}?"]
SMALLER = ["Which is smaller, {0} or {1}?", "Which is smaller: {0} or {1}?",
           "Which number is smaller, {0} or {1}?", "What is less, {0} or {1}?"]
IS_LARGER = ["Is {0} larger than {1}?", "Is {0} greater than {1}?", "Is {0} more than {1}?",
             "Is {0} bigger than {1}?"]
IS_SMALLER = ["Is {0} smaller than {1}?", "Is {0} less than {1}?"]
PARITY = ["Is {0} even or odd?", "Is {0} odd or even?", "Is the number {0} even or odd?"]
IS_EVEN = ["Is {0} even?", "Is {0} an even number?"]
IS_ODD = ["Is {0} odd?", "Is {0} an odd number?"]
AFTER = ["What comes after {0}?", "Which number comes after {0}?", "What number follows {0}?",
         "What is the next number after {0}?"]
BEFORE = ["What comes before {0}?", "Which number comes before {0}?",
          "What is the number before {0}?"]
REVERSE = ["Reverse {0}.", "Reverse the word {0}.", "Spell {0} backwards.", "Write {0} backwards.",
           "What is {0} spelled backwards?", "What is {0} backwards?"]
FIRST = ["What is the first letter of {0}?", "Which letter does {0} begin with?",
         "Name the first letter of {0}.", "What letter does the word {0} start with?"]
LAST = ["What is the last letter of {0}?", "Which letter does {0} end with?",
        "Name the last letter of {0}.", "What letter does the word {0} end with?"]
LENGTH = ["How many letters are in {0}?", "How many letters does {0} have?",
          "How many letters are in the word {0}?", "Count the letters in {0}.",
          "How long is the word {0}?"]
ABOUT = ["Who are you?", "What are you?", "What can you do?", "Hello", "Hello!", "Hi", "Help",
         "What is your name?", "How can you help me?"]
ABOUT_ANSWER = ("I am Abacus, a very small model. I add, subtract and multiply, sort and compare "
                "numbers, and turn words in CAPITALS around. Ask me: What is 47 + 38?")

HELD_OUT_OF = 25        # one thing in so many is held out
HELD_OUT_TEXT_OF = 10   # of the times table one question in so many
HELD_OUT_EACH = 60      # questions of each kind in held-out.jsonl
MOST_DRAWS = 100_000    # for those

# ---- Things and answers --------------------------------------------------------------------------


def number(rng, most_digits=2):
    """0 to 99: two digits twice as often as one."""
    digits = rng.choices(range(1, most_digits + 1), range(1, most_digits + 1))[0]
    return rng.randrange(0 if digits == 1 else 10 ** (digits - 1), 10 ** digits)


def numbers(rng, least=3, most=5):
    count = rng.randint(least, most)
    values = set()
    while len(values) < count:
        values.add(number(rng, 2))
    values = list(values)
    rng.shuffle(values)
    return values


def word(rng, least=3, most=6):
    """Letters at random; often of few different ones, so that some repeat."""
    letters = string.ascii_uppercase
    if rng.random() < 0.3:
        letters = rng.sample(letters, 3)
    return "".join(rng.choices(letters, k=rng.randint(least, most)))


def shown(values):
    return ", ".join(str(v) for v in values)


def yes(truth):
    return "Yes" if truth else "No"


def pair(rng):
    """Two different numbers, at times near each other."""
    a = number(rng)
    b = a
    while b == a:
        b = max(0, a + rng.randint(-12, 12)) if rng.random() < 0.4 else number(rng)
    return a, b


# Each returns (thing, phrases, the words that go into them, answer).


def add(rng):
    a, b = number(rng), number(rng)
    return tuple(sorted((a, b))), ADD, (a, b), a + b


def subtract(rng):
    a, b = sorted((number(rng), number(rng)), reverse=True)
    return (a, b), SUBTRACT, (a, b), a - b


def multiply(rng):
    a, b = rng.randint(0, 12), rng.randint(0, 12)
    return (a, b), MULTIPLY, (a, b), a * b


def sort_up(rng):
    values = numbers(rng)
    return tuple(sorted(values)), SORT_UP, (shown(values),), shown(sorted(values))


def sort_down(rng):
    values = numbers(rng)
    down = shown(sorted(values, reverse=True))
    return tuple(sorted(values)), SORT_DOWN, (shown(values),), down


def largest(rng):
    values = numbers(rng)
    phrases, pick = rng.choice([(LARGEST, max), (SMALLEST, min)])
    return tuple(sorted(values)), phrases, (shown(values),), pick(values)


def compare(rng):
    a, b = pair(rng)
    phrases, answer = rng.choice([(LARGER, max(a, b)), (SMALLER, min(a, b)),
                                  (IS_LARGER, yes(a > b)), (IS_SMALLER, yes(a < b))])
    return tuple(sorted((a, b))), phrases, (a, b), answer


def parity(rng):
    a = rng.randint(0, 999)
    odd = a % 2 == 1
    phrases, answer = rng.choice([(PARITY, "odd" if odd else "even"), (IS_EVEN, yes(not odd)),
                                  (IS_ODD, yes(odd))])
    return (a,), phrases, (a,), answer


def neighbour(rng):
    a = rng.randint(1, 998)
    phrases, answer = rng.choice([(AFTER, a + 1), (BEFORE, a - 1)])
    return (a,), phrases, (a,), answer


def reverse(rng):
    w = word(rng, 3, 5)
    return (w,), REVERSE, (w,), w[::-1]


def ends(rng):
    w = word(rng)
    phrases, answer = rng.choice([(FIRST, w[0]), (LAST, w[-1])])
    return (w,), phrases, (w,), answer


def length(rng):
    w = word(rng)
    return (w,), LENGTH, (w,), len(w)


# Name: (how often, how often with --late and with --last, function, whether whole things are held
# out).
KINDS = {
    "add": (16, 12, 10, add, True),
    "subtract": (16, 16, 10, subtract, True),
    "multiply": (6, 3, 3, multiply, False),
    "sort up": (9, 18, 40, sort_up, True),
    "sort down": (6, 16, 50, sort_down, True),
    "largest": (6, 12, 6, largest, True),
    "compare": (7, 16, 8, compare, True),
    "parity": (3, 10, 4, parity, True),
    "neighbour": (5, 8, 3, neighbour, True),
    "reverse": (7, 18, 6, reverse, True),
    "first or last letter": (4, 3, 2, ends, True),
    "length": (4, 4, 2, length, True),
}
MIXES = ("train", "late", "last")


# ---- Records -------------------------------------------------------------------------------------


def one_in(key, parts):
    digest = hashlib.sha256(repr(key).encode()).digest()
    return int.from_bytes(digest[:8], "little") % parts == 0


def varied(rng, text):
    """As people type: at times without a capital at the start or a mark at the end."""
    if rng.random() < 0.15:
        text = text[0].lower() + text[1:]
    if rng.random() < 0.15 and text[-1] in ".?":
        text = text[:-1].rstrip(" =")
    return text


def plain(text):
    """What `varied` leaves alone: equal for questions that are one."""
    return text.lower().rstrip(".?= ")


def ask(rng, kind):
    """(question, answer, whether it is held out)."""
    *_, make, by_thing = KINDS[kind]
    thing, phrases, words, answer = make(rng)
    text = varied(rng, rng.choice(phrases).format(*words))
    held = one_in(thing, HELD_OUT_OF) if by_thing else one_in(plain(text), HELD_OUT_TEXT_OF)
    return text, str(answer), held


def make_train(rng, count, mix):
    kinds, shares = list(KINDS), [columns[MIXES.index(mix)] for columns in KINDS.values()]
    made = 0
    while made < count:
        if rng.random() < 0.004:
            text, answer, kind = varied(rng, rng.choice(ABOUT)), ABOUT_ANSWER, "about"
        else:
            kind = rng.choices(kinds, shares)[0]
            text, answer, held = ask(rng, kind)
            if held:
                continue
        yield {"question": text, "answer": answer, "kind": kind}
        made += 1


def make_held_out(rng):
    for kind in KINDS:
        seen = set()
        for _ in range(MOST_DRAWS):
            if len(seen) == HELD_OUT_EACH:
                break
            text, answer, held = ask(rng, kind)
            if not held or plain(text) in seen:
                continue
            seen.add(plain(text))
            yield {"question": text, "answer": answer, "kind": kind}


def write(path, records):
    questions = set()
    with open(path, "w", encoding="utf-8") as file:
        for record in records:
            questions.add(plain(record["question"]))
            file.write(json.dumps(record) + "\n")
    return questions


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--late", dest="mix", action="store_const", const="late", default="train")
    parser.add_argument("--last", dest="mix", action="store_const", const="last")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    train = write(options.folder / f"{options.mix}.jsonl",
                  make_train(random.Random(f"{options.mix} {options.seed}"), options.count,
                             options.mix))
    exam = write(options.folder / "held-out.jsonl",
                 make_held_out(random.Random(f"held out {options.seed}")))
    both = train & exam
    if both:
        raise SystemExit(f"{len(both)} held-out questions are in the training data: {min(both)!r}")
    print(f"{options.count} training questions ({len(train)} different ones), "
          f"{len(exam)} held-out questions, none in both")


if __name__ == "__main__":
    main()
