#!/usr/bin/env python3
r"""Evaluates Jinja expressions over texts with jinja2, into tests/data/chat/text_golden.json.

The expressions cover the methods of str and the filters on texts; the texts have white space,
letters, digits and marks of many scripts at both ends. An expression that fails is recorded as
`null`. "letters" holds the texts whose full case mappings differ from the simple ones.

Made with Python 3.11 (Unicode 14), jinja2 3.1.6; no randomness.
Usage: make_text_golden.py DATA_FOLDER
"""
import json
import pathlib
import sys

import jinja2

SPACES = "\u3000\u00a0\u2028\u0085\u001c\u001f\u2003\u202f\t\n\x0b\x0c\r "
NOT_SPACES = "\u200b\ufeff\u180e\u2060"
TEXTS = [
    "", " ", "abc\u3000", "\u3000\u3000abc", "abc\uff0c", "\U0001f642a\U0001f642", "a\u00e9b\u00e9c",
    SPACES + "x" + SPACES, NOT_SPACES + "x" + NOT_SPACES, "a\u0085b\u2028c\u2029d\r\ne\x1cf\x1dg\x1eh\x1fi",
    "\u65e5\u672c\u8a9e\u3000\u6587\u5b57\u3002", "\u4f60\u597d\uff0c\u4e16\u754c\uff01", " a b  c ",
    "\u00a0a\u00a0\u00a0b\u2003c\u00a0", "aaa", "aaaaaab", "abababa", "\u00e9\u00e9\u00e9", "x,y,,z",
    ",\u3001,\u3001", "stra\u00dfe \u0130stanbul \ufb01n \u0149n", "\u039f\u0394\u039f\u03a3 \u03a3 \u03a3\u03a3. A\u03a3'b A\u03a3'",
    "\u01c5x \u01c4x \u01c6x", "\u1f80\u1fb2\u1fb7 \u1f88", "o'neill-mc \u65e5abc (x)[y]{z}<w", "\u1d43\u2170\u24b6\u24d0 \U00010428\U00010400",
    "a-b_c d.e", "\x1c42", "\x0b42\x85", "\u4e00\u4e8c\u4e09", "\u0661\u0662\u0663", "\uff11\uff12", "\u00b2\u2460\u00bd\u2167", "12", " 42 ", "\u300042\u3000",
    "0x1f", "-0X1F", "+7", "0b11", "0o17", "1_000", "1__0", "_1", "1_", "3.9", "-3.9e2", "1e400", "nan",
    "-Infinity", "infinit", "1_0.5_0", "1_e5", "12abc", "zz", "\u0663.\u0665", "0", "007", "e\u0301\u0301",
    "\U0001f1e9\U0001f1ea\U0001f44d\U0001f3fd", "\uff0c", "UPPER", "lower", "Title Case", "line\n", "\n\nx\n\n",
]
CHARS = ["\u3000", "\uff0c", "\U0001f642", "\u00e9", "x\u3001,", "\n", "abc", "\u0301", ""]
SEPARATORS = [" ", "\u00e9", "\u3000", ",", "aa", "aba", "\u3001,", "\n", "\u2028"]


def expressions():
    for method in ("upper()", "lower()", "capitalize()", "title()", "casefold()", "isalpha()",
                   "isdigit()", "isnumeric()", "isdecimal()", "isalnum()", "isspace()", "isupper()",
                   "islower()", "istitle()", "isascii()", "isprintable()", "strip()", "lstrip()",
                   "rstrip()", "split()", "rsplit()", "split(None, 1)", "rsplit(None, 1)",
                   "split(maxsplit=2)", "rsplit(maxsplit=2)", "splitlines()", "splitlines(true)",
                   "center(7)", "center(12, '*')", "ljust(9)", "rjust(9, '.')",
                   "find('b', 2)", "rfind('\u00e9', 0, 3)", "find('')", "rfind('')",
                   "find('', 99)", "startswith('a', 1)", "startswith(('\u3000', 'a'))",
                   "endswith('\u3000')", "endswith(('\uff0c', '\\n'))", "endswith('b', 0, 2)",
                   "count('')", "count('a', 1)", "count('\u00e9', none, -1)"):
        yield f"x.{method}"
    for chars in CHARS:
        literal = json.dumps(chars, ensure_ascii=False)
        for method in ("strip", "lstrip", "rstrip", "removeprefix", "removesuffix"):
            yield f"x.{method}({literal})"
        yield f"x | trim({literal})"
        yield f"x | replace({literal}, '<>')"
        yield f"x.replace({literal}, '\u00f6', 2)"
        yield f"x | replace({literal}, '', 1)"
    for separator in SEPARATORS:
        literal = json.dumps(separator, ensure_ascii=False)
        for method in ("split", "rsplit"):
            yield f"x.{method}({literal})"
            yield f"x.{method}({literal}, 1)"
            yield f"x.{method}({literal}, 2)"
        for method in ("partition", "rpartition", "count", "find", "rfind"):
            yield f"x.{method}({literal})"
    for each in ("trim", "upper", "lower", "capitalize", "title", "length", "wordcount", "reverse",
                 "list", "first", "last", "indent", "indent(2, true, true)", "center(11)",
                 "int", "int(-1)", "int(base=16)", "int(-1, 16)", "int(base=2)", "int(base=8)",
                 "int(base=0)", "int(9, base=36)", "int(base=1)", "float", "float(-1.5)",
                 "tojson", "string", "escape", "unique | list", "sort | join"):
        yield f"x | {each}"
    for each in ("x[0]", "x[-1]", "x[1:3]", "x[-3:]", "x[::-1]", "x[::2]", "x is upper",
                 "x is lower", "[x]", "'%s' % x", "'a' in x", "x < '\u3000'"):
        yield each


def special_letters():
    for point in range(0x110000):
        letter = chr(point)
        if 0xD800 <= point < 0xE000:
            continue
        if any(len(one) > 1 for one in (letter.upper(), letter.lower(), letter.title())):
            yield letter


def evaluate(environment, expression, text):
    try:
        return environment.from_string("{{ " + expression + " }}").render(x=text)
    except Exception:  # the renderer's error, whatever its type
        return None


def main():
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    # As in transformers: JSON without HTML escapes.
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    rows = [[expression, [evaluate(environment, expression, text) for text in TEXTS]]
            for expression in expressions()]
    letters = [[letter, letter.upper(), letter.lower(), letter.title(), letter.capitalize(),
                letter.casefold()] for letter in special_letters()]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    text = ('{"texts": ' + json.dumps(TEXTS, ensure_ascii=False) + ',\n"letters": '
            + json.dumps(letters, ensure_ascii=False) + ',\n"rows": [\n' + ",\n".join(lines) + "\n]}\n")
    (pathlib.Path(sys.argv[1]) / "chat" / "text_golden.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
