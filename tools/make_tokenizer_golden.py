#!/usr/bin/env python3
r"""Makes tests/data/tokenizer/: difficult texts, small vocabularies of each tokenizer family, and
the token ids of these texts from independent implementations.

  texts.json       the texts, the same for all families
  FAMILY.json      a vocabulary trained here, and per text the ids without and (if they differ)
                   with special tokens parsed
  smollm2.json     ids with the real vocabulary of SmolLM2-135M-Instruct (with --smollm2 FILE.gguf)

Byte-level BPE comes from Hugging Face `tokenizers` with the family's pre-tokenizer, and is checked
against `tiktoken` if the family uses one expression. SPM comes from `sentencepiece`.
Three differences from the families' own tokenizer.json are deliberate, because files name their
pre-tokenizer by llama.cpp's convention: Qwen2's NFC normalization is omitted, deepseek-llm keeps
runs of digits together, and contractions in any case are ASCII ('s, 'S, but not '\u017f).

Made with Python 3.11, tokenizers 0.23.3, tiktoken 0.14, sentencepiece 0.2.3, gguf 0.19, seed 20.
Usage: make_tokenizer_golden.py OUT_DIR [--smollm2 FILE.gguf] [--gguf DIR]
(--gguf also writes each vocabulary as a GGUF file, to test it in other programs.)
"""
import argparse
import io
import json
import pathlib
import random
import re

import sentencepiece
import tiktoken
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers, trainers

SEED = 20
VOCABULARY = 900
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>",
           "<|end_header_id|>", "<|eot_id|>", "<|a|>", "<|a|><|b|>", "<think"]
USER = ["<tool>", "\u2021", "    <pad>"]

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
# DeepSeek LLM's classes by code point, from its tokenizer.json.
DEEPSEEK_LETTERS = (
    "A-Za-z\\xb5\\xc0-\\xd6\\xd8-\\xf6\\xf8-\\u01ba\\u01bc-\\u01bf\\u01c4-\\u0293\\u0295-\\u02af"
    "\\u0370-\\u0373\\u0376\\u0377\\u037b-\\u037d\\u037f\\u0386\\u0388-\\u038a\\u038c\\u038e-"
    "\\u03a1\\u03a3-\\u03f5\\u03f7-\\u0481\\u048a-\\u052f\\u0531-\\u0556\\u10a0-\\u10c5\\u13a0-"
    "\\u13f5\\u13f8-\\u13fd\\u1c90-\\u1cba\\u1cbd-\\u1cbf\\u1d00-\\u1d2b\\u1d6b-\\u1d77\\u1d79-"
    "\\u1d9a\\u1e00-\\u1f15\\u1f18-\\u1f1d\\u1f20-\\u1f45\\u1f48-\\u1f4d\\u1f50-\\u1f57\\u1f59"
    "\\u1f5b\\u1f5d\\u1f5f-\\u1f7d\\u1f80-\\u1fb4\\u1fb6-\\u1fbc\\u1fbe\\u1fc2-\\u1fc4\\u1fc6-"
    "\\u1fcc\\u1fd0-\\u1fd3\\u1fd6-\\u1fdb\\u1fe0-\\u1fec\\u1ff2-\\u1ff4\\u1ff6-\\u1ffc\\u2102"
    "\\u2107\\u210a-\\u2113\\u2115\\u2119-\\u211d\\u2124\\u2126\\u2128\\u212a-\\u212d\\u212f-"
    "\\u2134\\u2139\\u213c-\\u213f\\u2145-\\u2149\\u214e\\u2183\\u2184\\u2c00-\\u2c7b\\u2c7e-"
    "\\u2ce4\\u2ceb-\\u2cee\\u2cf2\\u2cf3\\ua640-\\ua66d\\ua680-\\ua69b\\ua722-\\ua76f\\ua771-"
    "\\ua787\\ua78b-\\ua78e\\uab70-\\uabbf\\ufb00-\\ufb06\\ufb13-\\ufb17\\uff21-\\uff3a\\uff41-"
    "\\uff5a\\U00010400-\\U0001044f\\U000104b0-\\U000104d3\\U000104d8-\\U000104fb\\U00010c80-"
    "\\U00010cb2\\U00010cc0-\\U00010cf2\\U000118a0-\\U000118df\\U0001e900-\\U0001e943"
).encode().decode("unicode_escape")
DEEPSEEK_PUNCTUATION = "!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002"
DEEPSEEK = ["[\r\n]", "\\s?[" + DEEPSEEK_LETTERS + "]+", "\\s?[" + DEEPSEEK_PUNCTUATION + "]+",
            "\\s+$", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", r"\p{N}+"]
DEFAULT = [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"]


def splits(patterns):
    parts = [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]
    return pre_tokenizers.Sequence(
        parts + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


BYTE_PAIR = {
    "gpt-2": pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    "smollm": pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]),
    "llama-bpe": splits([LLAMA3]),
    "qwen2": splits([QWEN2]),
    "deepseek-llm": splits(DEEPSEEK),
    "default": splits(DEFAULT),
}
ONE_EXPRESSION = {"gpt-2": GPT2, "llama-bpe": LLAMA3, "qwen2": QWEN2}

PROSE = """The mill at the end of the lane had not turned for years, and nobody in the village
could say who'd last seen the miller. He'd left, they said, in the spring of 1987; others swear it
was 1991. I'm told that it's the sort of place where you'll find three clocks and no hour they've
agreed on. Don't ask the ferryman: he wouldn't tell you if he knew. "We're all late," she'd laugh.
for (int i = 0; i < count; ++i) { total += values[i] * 2.5e-3; }  // the sum of all
def mean(xs):\n    return sum(xs) / len(xs) if xs else None\n\tprint("done", 100, 2024, 3.14159)
{"name": "weft", "ranks": [0, 1, 2], "ok": true, "url": "https://example.org/a?b=c&d=%20e"}
Der Fluss f\u00fchrte viel Wasser, und die M\u00fchle stand still; \u00fcber den Br\u00fccken h\u00f6rte man nichts.
L'\u00e9t\u00e9 dernier, le gar\u00e7on a re\u00e7u une lettre \u00e9crite \u00e0 la main. \u00bfQui\u00e9n llam\u00f3 ma\u00f1ana por la noche?
\u041c\u0435\u043b\u044c\u043d\u0438\u0446\u0430 \u0441\u0442\u043e\u044f\u043b\u0430 \u0443 \u0440\u0435\u043a\u0438, \u0438 \u0432\u043e\u0434\u0430 \u0442\u0435\u043a\u043b\u0430 \u043c\u0435\u0434\u043b\u0435\u043d\u043d\u043e. \u039f \u03bc\u03cd\u03bb\u03bf\u03c2 \u03b5\u03af\u03bd\u03b1\u03b9 \u03c0\u03b1\u03bb\u03b9\u03cc\u03c2.
\u6cb3\u8fb9\u7684\u78e8\u574a\u5df2\u7ecf\u5f88\u4e45\u6ca1\u6709\u8f6c\u52a8\u4e86\u3002\u6c34\u8eca\u306f\u3082\u3046\u4f55\u5e74\u3082\u56de\u3063\u3066\u3044\u307e\u305b\u3093\u3002 \ubb3c\ub808\ubc29\uc544\ub294 \uba48\ucdc4\uc2b5\ub2c8\ub2e4.
\u0627\u0644\u0637\u0627\u062d\u0648\u0646\u0629 \u0642\u062f\u064a\u0645\u0629 \u062c\u062f\u0627 \u05d4\u05d8\u05d7\u05e0\u05d4 \u05d9\u05e9\u05e0\u05d4 \u091a\u0915\u094d\u0915\u0940 \u092a\u0941\u0930\u093e\u0928\u0940 \u0939\u0948 \u0e42\u0e23\u0e07\u0e2a\u0e35\u0e40\u0e01\u0e48\u0e32
"""

HARD = """
|a|A| |  |   |\\n|\\n\\n|\\n\\n\\n|\\r\\n|\\r\\n\\r\\n|\\r|\\t|\\t\\t\\t| \\n| \\n |\\n |  \\n  |\\t \\n\\t|hello|Hello|hello world| hello
hello |  hello  world  |hello\\nworld|hello\\n\\nworld|hello \\n world|hello\\n\\n\\n   world|a\\tb\\t\\tc|\\x0b\\x0c|end   |end\\n|end \\n\\n
I'm|I'M|he's|HE'S|we're|We'Re|they've|THEY'VE|I'll|I'LL|she'd|don't|DON'T|'s|'S|''s|'s's|' s|it's's|rock'n'roll|'tis|o'clock|'re're|'l|'ll|'lL|'v|y'all'd've
don\\u2019t|it\\u2019s|'\\u017f|'\\u017fs|'\\u0130|\\u2018quoted\\u2019|\\u201cdouble\\u201d
0|1|12|123|1234|12345|123456|1234567890|3.14159|-273.15|1e-10|1,000,000|0x1F|0b1010|2024-11-20|12:34:56|v1.2.3|a1b2c3|1a|a1|1 2 3|12 345 6789|007|1st 2nd 3rd|100%|$9.99|\\u20ac1.234,56|50\\u00b0C
\\u00b2\\u00b3|x\\u00b2+y\\u00b2|\\u00bd cup|\\u2167|\\u2460\\u2461\\u2462|\\u0663\\u0664\\u0665|\\u096a\\u0968|\\uff11\\uff12\\uff13\\uff14|\\U0001d7d8\\U0001d7d9|\\u4e00\\u4e8c\\u4e09 123 \\u56db
\\u00e9|e\\u0301|caf\\u00e9|cafe\\u0301|na\\u00efve r\\u00e9sum\\u00e9|\\u00c5ngstr\\u00f6m|A\\u030a|\\u0041\\u0301\\u0302\\u0303|stra\\u00dfe STRASSE|\\u01c5\\u01c8|\\ufb01\\ufb02|\\u0130stanbul \\u0131\\u015f\\u0131k|\\u00b5m \\u03bcm|\\u212b \\u2126 \\u212a
\\u4f60\\u597d|\\u4f60\\u597d\\uff0c\\u4e16\\u754c\\uff01|\\u65e5\\u672c\\u8a9e\\u306e\\u30c6\\u30ad\\u30b9\\u30c8|\\u6c34\\u8eca\\u306f\\u56de\\u308b\\u3002|\\ud55c\\uad6d\\uc5b4 \\ubb38\\uc7a5|\\u1112\\u1161\\u11ab|\\u4e2d\\u6587English\\u6df7\\u5408123\\u6570\\u5b57|\\u300c\\u5f15\\u7528\\u300d\\u3001\\u3002|\\u3000\\u5168\\u89d2\\u3000\\u7a7a\\u767d|\\uff21\\uff22\\uff43|\\uff76\\uff80\\uff76\\uff85|\\U00020000\\U0002a6d6|\\u9fff\\u4dbf\\u9fa5\\u9fa6
\\u0627\\u0644\\u0633\\u0644\\u0627\\u0645 \\u0639\\u0644\\u064a\\u0643\\u0645|\\u0645\\u064e\\u0631\\u0652\\u062d\\u064e\\u0628\\u064b\\u0627|\\u200fRTL\\u200e LTR|\\u05e9\\u05dc\\u05d5\\u05dd|\\u05e9\\u05b8\\u05c1\\u05dc\\u05d5\\u05b9\\u05dd|\\u0928\\u092e\\u0938\\u094d\\u0924\\u0947|\\u0915\\u094d\\u0937\\u0924\\u094d\\u0930\\u093f\\u092f|\\u0e2a\\u0e27\\u0e31\\u0e2a\\u0e14\\u0e35\\u0e0a\\u0e32\\u0e27\\u0e42\\u0e25\\u0e01|\\u0ba4\\u0bae\\u0bbf\\u0bb4\\u0bcd|\\u10e5\\u10d0\\u10e0\\u10d7\\u10e3\\u10da\\u10d8|\\u1c90\\u1c91|\\u13a0\\u13a1 \\uab70|\\u1200\\u1208|\\u0f56\\u0f7c\\u0f51|\\u1780\\u17d2\\u1798|\\u1820\\u180e\\u1821
\\u041f\\u0440\\u0438\\u0432\\u0435\\u0442, \\u043c\\u0438\\u0440!|\\u0399\\u03b4\\u03bf\\u03cd|\\u0531\\u0532\\u0561|\\U00010400\\U00010428|\\U0001e900\\U0001e922|\\U0001d400\\U0001d41a|\\u24b6\\u24d0|\\u1d2c\\u1d43|\\u02b0\\u02bc\\u02c8
\\U0001f600|\\U0001f600\\U0001f601|hi\\U0001f600there| \\U0001f600 |\\U0001f44d\\U0001f3fd|\\U0001f469\\u200d\\U0001f469\\u200d\\U0001f467\\u200d\\U0001f466|\\U0001f3f3\\ufe0f\\u200d\\U0001f308|\\U0001f1e9\\U0001f1ea\\U0001f1eb\\U0001f1f7|\\u2764\\ufe0f|\\u0031\\ufe0f\\u20e3|\\U0001f9d1\\U0001f3ff\\u200d\\U0001f680|\\u263a|\\U0001fae8
\\u00a0|a\\u00a0b|\\u00a0\\u00a0a|\\u2003\\u2003x|\\u2028|\\u2029x|a\\u0085b|\\u0085\\n|\\u1680\\u2009\\u202f\\u205f|\\u200b|a\\u200bb|\\ufeff|\\ufeffBOM|\\u00ad|\\u2060|\\u3000\\n|\\u3000\\u3000a| \\u00a0 a|\\u00a0\\n\\u00a0|\\x1c\\x1d\\x1e\\x1f
\\x00|a\\x00b|\\x01\\x02|\\x04\\x06|\\x1b[0m|\\x7f|\\x80\\x9f|\\ufffd|\\ufffe|\\U0010ffff|\\ue000|\\U000f0000|\\u0378|\\u20c0|\\U0001faf0
!|!!|...|a.b|a, b|?!?!|(a)|[b]|{c}|<d>|"e"|`f`|~g~|^h^|a_b|snake_case_name|camelCaseName|kebab-case|SCREAMING_CASE|a/b/c|a\\\\b|@user|#tag|a&b|a&&b|a\\|\\|b|a+=b|a->b|a::b|=>|===|!==|/*c*/|//c|--x|__init__|$x|%s%d|\\u2026|\\u2014\\u2013|\\u00bfqu\\u00e9?|\\u00a1s\\u00ed!|\\u00ab\\u00bb|\\u221a\\u2211\\u222b|\\u2190\\u2192|\\u00a9\\u00ae\\u2122|\\u00a7\\u00b6|+-*/=|<<<>>>|!  !|. . .|.\\n|.\\n\\n|;\\r\\n| ,|\\n.| \\n.|(\\n)|"\\n"
if x:\\n    return 1\\n|def f(a, b=2):\\n\\treturn a+b|for(int i=0;i<10;i++){}|<div class="a">x</div>|SELECT * FROM t WHERE a='b';|C:\\\\Users\\\\a|https://a.b/c?d=e#f|a@b.co|    indented|        deep\\n      less|x = [1,2,3]  # note|\\t\\tif (!a) {\\n\\t\\t\\tb();\\n\\t\\t}|{"a": [1, 2.5, null]}|#include <x.h>\\n|a\\n\\n\\n\\nb|   \\n\\n   \\n   a|\\n \\n \\n|  \\t  \\t|a  \\t\\n  b|0xDEADBEEF|\\\\n\\\\t|\\\\u0041
The mill at the end of the lane had not turned for years.|THE QUICK BROWN FOX|aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa|abababababababababab|                                |thethethethe the the|internationalization|supercalifragilistic|\\u0430\\u0430\\u0430\\u0430|zzzzzzzzz1zzzz|mixedScripts\\u0438\\u4e2d\\u06271|a\\u0301b\\u0301|\\u0301\\u0301|1\\u0301|\\u0915\\u093f1|x\\u20dd|\\u200d\\u200d
<|endoftext|>|<|im_start|>user\\nhi<|im_end|>\\n|<|im_start|>|a<|im_end|>|<|im_end|>b|<|im_end|><|im_end|>|<|im_end|> x|x <|im_end|>|<|im_end |> <|im_end|>|<<|im_end|>>|<|a|><|b|>|<|a|><|a|><|b|>|<|a|><|b|<|a|>|<think>|<thinking|<tool>|a<tool>b|<tool> <tool>|<tool|\\u2021|a\\u2021b\\u2021|    <pad>|     <pad>x|<|start_header_id|>system<|end_header_id|>\\n\\nx<|eot_id|>|<s>|</s>|<unk>|<0x0A>|\\u2581|a\\u2581b|\\u2581\\u2581 \\u2581|\\u0120a \\u010a
"""


def hard_texts():
    texts = [""]
    special = HARD.index("<|endoftext|>")
    for part in (HARD[:special], HARD[special:]):
        for line in part.strip("\n").split("\n"):
            # Special tokens contain bars, so their line is split at bars outside of <|...|>.
            cut = r"(?<!\\)(?<!<)\|(?!>)" if "<|" in line else r"(?<!\\)\|"
            for text in re.split(cut, line):
                text = text.replace("\\|", "|")
                texts.append(text.encode("latin-1", "backslashreplace").decode("unicode_escape"))
    rng = random.Random(SEED)
    pools = ["abcdefgh XYZ", "0123456789", "  \t\n\r", "'s't're've'm'll'd'S'T",
             "\u00e4\u00f6\u00fc\u00df\u00e9\u00f1\u0152", "\u65e5\u672c\u8a9e\u4e2d\u6587\ud55c\u3072\u30ab",
             "\u0627\u0644\u0639\u05d0\u05d1", "\u0939\u093f\u0928\u094d\u0926\u0e44\u0e17",
             "\U0001f600\U0001f469\u200d\U0001f467\U0001f3fd", ".,;:!?()[]{}<>/\\|@#$%^&*-_=+`~\"'",
             "\u00a0\u2003\u3000\u180e\u0085\u2028\u200b", "\u00b2\u00bd\u2167\u2460\u0663", "e\u0301a\u0308",
             "\u2211\u222b\u2192", "\u0436\u03bb\u0416\u039b", "\U0001d400\U00020001"]
    for _ in range(120):
        parts = (rng.choice(pools) for _ in range(rng.randrange(2, 12)))
        texts.append("".join("".join(rng.choice(p) for _ in range(rng.randrange(1, 7))) for p in parts))
    return list(dict.fromkeys(texts))


def corpus():
    rng = random.Random(SEED)
    words = re.findall(r"\S+", PROSE)
    lines = PROSE.split("\n")
    for _ in range(300):
        lines.append(" ".join(rng.choice(words) for _ in range(rng.randrange(3, 15))))
    for _ in range(60):
        lines.append("  " * rng.randrange(4) + "".join(rng.choice("0123456789") for _ in range(6)))
    return lines


def with_added(tokenizer, tokens):
    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.add_tokens([AddedToken(t, normalized=False) for t in tokens])
    return copy


def make_byte_pair(pre, pre_tokenizer, texts):
    tokenizer = Tokenizer(models.BPE(ignore_merges=pre == "llama-bpe"))
    tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator((line + "\n" for line in corpus()), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = [t for t, _ in sorted(model["vocab"].items(), key=lambda item: item[1])]
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    # Special tokens get the ids after the trained ones, in the order of adding.
    plain = with_added(tokenizer, USER)
    parsing = with_added(tokenizer, USER + CONTROL)
    data = {"model": "gpt2", "pre": pre, "tokens": tokens + USER + CONTROL, "merges": merges,
            "types": [1] * len(tokens) + [4] * len(USER) + [3] * len(CONTROL)}
    ids = [plain.encode(t, add_special_tokens=False).ids for t in texts]
    if pre in ONE_EXPRESSION:
        check_with_tiktoken(pre, tokens, texts, ids)
    parsed = [parsing.encode(t, add_special_tokens=False).ids for t in texts]
    return data, ids, parsed


def check_with_tiktoken(pre, tokens, texts, ids):
    byte_of = {}
    following = 256
    for b in range(256):
        itself = 0x21 <= b <= 0x7e or (b >= 0xa1 and b != 0xad)
        byte_of[chr(b if itself else following)] = b
        following += not itself
    ranks = {bytes(byte_of[c] for c in t): i for i, t in enumerate(tokens)}
    encoding = tiktoken.Encoding(pre, pat_str=ONE_EXPRESSION[pre], mergeable_ranks=ranks,
                                 special_tokens={})
    for text, expected in zip(texts, ids):
        if not any(t in text for t in USER):
            assert encoding.encode_ordinary(text) == expected, (pre, text)


def make_spm(texts):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus()), model_writer=out, model_type="bpe", num_threads=1,
        vocab_size=VOCABULARY, byte_fallback=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False, split_digits=True, allow_whitespace_only_pieces=True,
        character_coverage=0.99, minloglevel=2, user_defined_symbols=USER,
        control_symbols=CONTROL)
    processor = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    kinds = [(6, processor.is_byte), (3, processor.is_control), (2, processor.is_unknown),
             (5, processor.is_unused)]
    tokens = [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
    types = []
    for i, token in enumerate(tokens):
        types.append(next((k for k, test in kinds if test(i)), 4 if token in USER else 1))
    data = {"model": "llama", "tokens": tokens, "types": types,
            "scores": [processor.get_score(i) for i in range(len(tokens))],
            "bos": processor.bos_id(), "eos": processor.eos_id(), "unk": processor.unk_id(),
            "add_space_prefix": True}
    special = {t: processor.piece_to_id(t) for t in USER + CONTROL + ["<s>", "</s>", "<unk>"]}

    # As in llama.cpp, each part of the text between special tokens is a separate text.
    def encode(text, names):
        cut = "(" + "|".join(re.escape(n) for n in sorted(names, key=len, reverse=True)) + ")"
        ids = []
        for part in re.split(cut, text):
            ids += [special[part]] if part in names else processor.encode(part) if part else []
        return ids

    return data, [encode(t, USER) for t in texts], [encode(t, list(special)) for t in texts]


def write_gguf(path, data):
    import gguf
    import numpy
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(data["model"])
    if "pre" in data:
        writer.add_tokenizer_pre(data["pre"])
        writer.add_token_merges(data["merges"])
    else:
        writer.add_token_scores(data["scores"])
    writer.add_token_list(data["tokens"])
    writer.add_token_types(data["types"])
    writer.add_bos_token_id(data.get("bos", len(data["tokens"]) - 1))
    writer.add_eos_token_id(data.get("eos", len(data["tokens"]) - 1))
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(64)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tensor("token_embd.weight", numpy.zeros((1, 64), numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def smollm2_ids(path, texts):
    from gguf import GGUFReader
    fields = GGUFReader(path).fields

    def strings(key):
        return [bytes(fields[key].parts[i]).decode() for i in fields[key].data]

    tokens = strings("tokenizer.ggml.tokens")
    merges = [tuple(m.split(" ")) for m in strings("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = BYTE_PAIR["smollm"]
    kinds = fields["tokenizer.ggml.token_type"]
    control = [t for t, i in zip(tokens, kinds.data) if kinds.parts[i][0] == 3]
    parsing = with_added(tokenizer, control)
    return ([tokenizer.encode(t, add_special_tokens=False).ids for t in texts],
            [parsing.encode(t, add_special_tokens=False).ids for t in texts])


def write(path, value):
    path.write_text(json.dumps(value, separators=(",", ":")).replace("],[", "],\n[") + "\n")


def write_family(path, data, ids, parsed):
    differ = {str(i): p for i, (a, p) in enumerate(zip(ids, parsed)) if a != p}
    write(path, {"vocabulary": data, "ids": ids, "parsed": differ})
    print(f"{path.name}: {len(ids)} texts, {len(differ)} with special tokens, "
          f"{path.stat().st_size} bytes")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--smollm2", type=pathlib.Path)
    parser.add_argument("--gguf", type=pathlib.Path)
    args = parser.parse_args()
    texts = hard_texts()
    write(args.out / "texts.json", texts)
    made = {pre: make_byte_pair(pre, split, texts) for pre, split in BYTE_PAIR.items()}
    made["spm"] = make_spm(texts)
    for family, (data, ids, parsed) in made.items():
        write_family(args.out / f"{family}.json", data, ids, parsed)
        if args.gguf:
            write_gguf(args.gguf / f"{family}.gguf", data)
    if args.smollm2:
        write_family(args.out / "smollm2.json", {}, *smollm2_ids(args.smollm2, texts))


if __name__ == "__main__":
    main()
