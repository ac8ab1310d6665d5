#!/usr/bin/env python3
r"""Makes tests/data/tokenizer/files/ and splits.json: tokenizers in each file format, trained here
on a page of text with the real families' expressions, and the results of independent
implementations for the texts of make_tokenizer_golden.py.

  files/NAME/tokenizer.json or tokenizer.model or tiktoken.model (with config.json), and ids.json:
                the ids of each text by Hugging Face tokenizers, sentencepiece or tiktoken; tekken.json
                by mistral_common
  splits.json   by pre-tokenizer name, one number per text: a hash of the ends of its words, split
                by the family's expressions in Hugging Face tokenizers

Made with Python 3.11, tokenizers 0.23.3, tiktoken 0.14, sentencepiece 0.2.3,
mistral_common 1.13.1, seed 20.
Usage: make_tokenizer_files.py OUT_DIR
"""
import base64
import io
import json
import pathlib
import sys

import sentencepiece
import tiktoken
from mistral_common.tokens.tokenizers.tekken import Tekkenizer
from make_tokenizer_golden import (DEEPSEEK, DEFAULT, GPT2, LLAMA3, QWEN2, corpus, hard_texts)
from tokenizers import AddedToken, Regex, Tokenizer, models, trainers
from tokenizers import decoders as D
from tokenizers import normalizers as N
from tokenizers import pre_tokenizers as P

VOCABULARY = 420
ENDINGS = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
WIDE = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SLASH_TAIL = TAIL.replace("[\\r\\n]*", "[\\r\\n/]*", 1)
LEAD = r"[^\r\n\p{L}\p{N}]?"


def cased(endings, upper=UPPER, lower=LOWER):
    return LEAD + upper + "*" + lower + "+" + endings + "|" + LEAD + upper + "+" + lower + "*" + endings


def kimi(endings):
    outside = r"&&[^\p{Han}]]"
    return (r"[\p{Han}]+|" + cased(endings, UPPER[:-1] + outside, LOWER[:-1] + outside) +
            r"|\p{N}{1,3}" + TAIL)


GPT4O = cased("(?:" + ENDINGS + ")?") + r"|\p{N}{1,3}" + SLASH_TAIL
V3_WORDS = ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"
            "[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+")
V3 = [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
      V3_WORDS + "[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]
BLOOM = " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"
SPACES = [512, 256, 128, 64, 32, 16, 8, 4, "1,2"]
FAMILIES = {
    "llama-bpe": [LLAMA3], "qwen2": [QWEN2], "gpt-2": [GPT2], "smollm": [r"\p{N}", GPT2],
    "deepseek-llm": DEEPSEEK, "default": DEFAULT,
    "minicpm5": [r"\p{N}{1,3}", LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}+")],
    "jais-2": [LLAMA3[:LLAMA3.index(r"|\s+(?!\S)")] +
               "".join(r"|\s{%s}(?!\S)" % n for n in SPACES) + r"|\s{1}"],
    "qwen35": [ENDINGS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|"
               r"\s*[\r\n]+|\s+(?!\S)|\s+"],
    "ufakzeka": [QWEN2[QWEN2.index("[^"):]],
    "laguna": [r"[^\n]+|[\n]+", QWEN2],
    "bailingmoe": [ENDINGS + r"|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|"
                   r"\s*[\r\n]|\s+(?!\S)|\s+"],
    "seed-coder": [ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|"
                   r"\s*[\r\n]+|\s+(?!\S)|\s+"],
    "exaone-moe": [ENDINGS + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}|"
                   r" ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"],
    "gpt-4o": [GPT4O], "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", GPT4O],
    "tekken": [cased("") + r"|\p{N}" + SLASH_TAIL],
    "kimi-k2": [kimi("(?:" + ENDINGS + ")?")],
    "youtu": ["[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b"
              "\uff0c\u3001-\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+|"
              "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
              cased("(?:" + ENDINGS + ")?") + r"|\p{N}" + SLASH_TAIL],
    "deepseek-coder": ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u0800-\u9fa5\uac00-\ud7ff]+",
                       r"\p{N}"],
    "deepseek-v3": V3,
    "spark2_5": V3[:2] + [V3_WORDS + "|[\r\n]|\\s+(?!\\S)|\\s+", r"\p{N}"],
    "afmoe": [r"\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|\z))",
              "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f"
              "\u2f00-\u2fdf\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f"
              "\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+", V3[2]],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
    "bloom": [BLOOM], "viking": [BLOOM, r"\p{N}"],
    "superbpe": [r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
    "chameleon": ["<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z", "([\\t\\n]|    |  )", r"\p{N}",
                  r"[\p{P}!-/:-@\[-`{-~]", GPT2],
    "gemma4": [r"[^\n]+|[\n]+"],
}
ADDED = [AddedToken("<tool>", normalized=False), AddedToken("\u2021", normalized=True),
         AddedToken("the", single_word=True, normalized=False),
         AddedToken("<s>", lstrip=True, normalized=False),
         AddedToken("<think", rstrip=True, normalized=False)]
CONTROL = [AddedToken("<|im_end|>", special=True, normalized=False),
           AddedToken("<|im_start|>", special=True, normalized=False)]
LINES = [line + "\n" for line in corpus()]


def splits(patterns, last=()):
    return P.Sequence([P.Split(Regex(p), "isolated") for p in patterns] + list(last))


def hash_of(text, pre):
    value = end = 0
    for word, _ in pre.pre_tokenize_str(text):
        end += len(word.encode())
        value = (value * 31 + end) % 2**31
    assert end == len(text.encode())
    return value


def byte_pair(pre, normalizer=None, **options):
    tokenizer = Tokenizer(models.BPE(**options))
    tokenizer.pre_tokenizer = pre
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = D.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, show_progress=False,
                                  initial_alphabet=sorted(P.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(LINES, trainer)
    tokenizer.add_tokens(ADDED)
    tokenizer.add_special_tokens(CONTROL)
    return tokenizer


# BPE over code points, as in Llama 2 and Gemma.
def code_points(normalizer, pre, fuse=True, byte_fallback=True):
    learner = Tokenizer(models.BPE(unk_token="<unk>"))
    learner.normalizer = normalizer
    learner.pre_tokenizer = pre or P.Metaspace(prepend_scheme="never")
    bytes_ = [f"<0x{b:02X}>" for b in range(256)] if byte_fallback else []
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY + len(bytes_) + 100, show_progress=False,
                                  special_tokens=["<unk>"] + bytes_, max_token_length=12)
    learner.train_from_iterator([x for x in LINES if "\u6cb3" not in x], trainer)
    learned = json.loads(learner.to_str())
    made = json.loads(Tokenizer(models.BPE(byte_fallback=byte_fallback, fuse_unk=fuse,
                                           unk_token="<unk>")).to_str())
    made["model"].update(vocab=learned["model"]["vocab"], merges=learned["model"]["merges"])
    made["added_tokens"] = [t for t in learned["added_tokens"] if t["content"] == "<unk>"]
    tokenizer = Tokenizer.from_str(json.dumps(made))
    tokenizer.normalizer = normalizer
    if pre:
        tokenizer.pre_tokenizer = pre
    tokenizer.decoder = D.Sequence([D.Replace("\u2581", " "), D.ByteFallback(), D.Fuse(),
                                    D.Strip(" ", 1, 0)])
    tokenizer.add_tokens(ADDED)
    tokenizer.add_special_tokens(CONTROL)
    return tokenizer


def unigram(normalizer, pre):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre
    trainer = trainers.UnigramTrainer(vocab_size=VOCABULARY, show_progress=False,
                                      special_tokens=["<unk>", "</s>"], unk_token="<unk>")
    tokenizer.train_from_iterator([x for x in LINES if "\u6cb3" not in x], trainer)
    tokenizer.decoder = D.Metaspace()
    tokenizer.add_tokens(ADDED)
    tokenizer.add_special_tokens(CONTROL)
    return tokenizer


def word_pieces(normalizer, most=100):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=most))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = P.BertPreTokenizer()
    tokenizer.decoder = D.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=VOCABULARY, show_progress=False,
                                        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    tokenizer.train_from_iterator([x for x in LINES if "\u6cb3" not in x], trainer)
    tokenizer.add_tokens(ADDED)
    tokenizer.add_special_tokens(CONTROL)
    return tokenizer


def json_files():
    level = [P.ByteLevel(add_prefix_space=False, use_regex=False)]
    wide = {name: [FAMILIES[name][0].replace("(?:" + ENDINGS + ")", WIDE).replace(ENDINGS, WIDE)]
            for name in ("llama-bpe", "qwen2", "gpt-4o", "kimi-k2")}
    mark = "\u2581"
    return {
        "llama3": byte_pair(splits(wide["llama-bpe"], level), ignore_merges=True),
        "qwen2": byte_pair(splits(wide["qwen2"], level), N.NFC()),
        "gpt4o": byte_pair(splits(wide["gpt-4o"], level)),
        "kimi": byte_pair(splits(wide["kimi-k2"], level)),
        "gpt2": byte_pair(P.ByteLevel(add_prefix_space=True)),
        "deepseek_v3": byte_pair(splits(V3, level)),
        "falcon": byte_pair(P.Sequence([
            P.Punctuation("contiguous"), P.ByteLevel(add_prefix_space=False), P.Digits(False),
            P.Split(Regex("[0-9][0-9][0-9]"), "isolated")])),
        "llama2": code_points(N.Sequence([N.Prepend(mark), N.Replace(" ", mark)]), None),
        "mistral": code_points(N.Sequence([]), P.Metaspace(prepend_scheme="first", split=False)),
        "gemma": code_points(N.Replace(" ", mark), P.Split(" ", "merged_with_previous")),
        "words": code_points(N.Sequence([N.NFD(), N.StripAccents(), N.Lowercase(), N.Strip()]),
                             P.Sequence([P.Whitespace(), P.Digits(True)]), False, False),
        "cuts": code_points(N.Replace(Regex(r"\s{2,}"), "_"), P.Sequence([
            P.Split(Regex(r"\b"), "isolated"), P.Split("e", "merged_with_next"),
            P.Split(Regex(r"[^\w]"), "contiguous"), P.Split(Regex(r"\d+"), "removed")]),
            True, False),
        "bert": word_pieces(N.BertNormalizer()),
        "bert_cased": word_pieces(N.BertNormalizer(lowercase=False, handle_chinese_chars=False), 9),
        "unigram": unigram(N.NFKC(), P.Metaspace(prepend_scheme="first")),
    }


RULES = "41\t61\nFB01\t66 69\n2460\t31\n3000\t20\n65 301\tE9\nFF21\t41\n2 1\t\n1F600\t3A 29\n"


def sentencepiece_files(folder):
    rules = folder / "rules.tsv"
    rules.write_text(RULES)
    common = {"num_threads": 1, "minloglevel": 2, "character_coverage": 0.985,
              "user_defined_symbols": ["<tool>", "\u2021", "\u2581\u2581"],
              "control_symbols": ["<|im_end|>"]}
    kinds = {
        "sp_bpe": {"model_type": "bpe", "byte_fallback": True, "vocab_size": 640,
                   "normalization_rule_name": "identity", "remove_extra_whitespaces": False},
        "sp_bpe_rules": {"model_type": "bpe", "vocab_size": 400,
                         "normalization_rule_tsv": str(rules)},
        "sp_unigram": {"model_type": "unigram", "byte_fallback": True, "vocab_size": 600,
                       "normalization_rule_tsv": str(rules)},
        "sp_unigram_suffix": {"model_type": "unigram", "vocab_size": 360, "add_dummy_prefix": True,
                              "normalization_rule_name": "identity",
                              "treat_whitespace_as_suffix": True},
    }
    made = {}
    for name, options in kinds.items():
        out = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(x.strip("\n") for x in LINES), model_writer=out,
            **(common | options))
        made[name] = out.getvalue()
    rules.unlink()
    return made


def ranks_of(tokenizer):
    byte_of, following = {}, 256
    for b in range(256):
        itself = 0x21 <= b <= 0x7e or (b >= 0xa1 and b != 0xad)
        byte_of[chr(b if itself else following)] = b
        following += not itself
    vocabulary = json.loads(tokenizer.to_str())["model"]["vocab"]
    return {bytes(byte_of[c] for c in token): rank for token, rank in vocabulary.items()}


def write(folder, name, file, content, ids):
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / file).write_bytes(content)
    text = json.dumps(ids, separators=(",", ":")).replace("],[", "],\n[")
    (folder / name / "ids.json").write_text(text + "\n")


def tekken_file(folder, tokens, texts):
    """The last token is one more than the model has."""
    special = [{"rank": i, "token_str": name, "is_control": True}
               for i, name in enumerate(("<|unk|>", "<|begin|>", "<|end|>"))]
    vocabulary = [{"rank": i, "token_bytes": base64.b64encode(t).decode(), "token_str": None}
                  for i, t in enumerate(tokens)]
    config = {"pattern": "|".join(FAMILIES["tekken"]), "num_vocab_tokens": len(tokens),
              "default_vocab_size": len(tokens) + 4, "default_num_special_tokens": 5,
              "version": "v7"}
    content = json.dumps({"config": config, "vocab": vocabulary, "special_tokens": special})
    path = folder / "tekken.json"
    path.write_text(content.replace("}, {", "},\n{") + "\n")
    model = Tekkenizer.from_file(path)
    content = path.read_bytes()
    path.unlink()
    return content, [model.encode(t, bos=False, eos=False) for t in texts]


def main():
    out = pathlib.Path(sys.argv[1])
    texts = hard_texts()
    hashes = {name: [hash_of(t, splits(patterns)) for t in texts]
              for name, patterns in FAMILIES.items()}
    text = json.dumps(hashes, separators=(",", ":")).replace("],", "],\n")
    (out / "splits.json").write_text(text + "\n")
    files = out / "files"
    tokenizers = json_files()
    for name, tokenizer in tokenizers.items():
        write(files, name, "tokenizer.json", tokenizer.to_str().encode() + b"\n",
              [tokenizer.encode(t, add_special_tokens=False).ids for t in texts])
    for name, model in sentencepiece_files(out).items():
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        write(files, name, "tokenizer.model", model, [processor.encode(t) for t in texts])
    ranks = ranks_of(tokenizers["kimi"])
    encoding = tiktoken.Encoding("kimi", pat_str=kimi(WIDE + "?"), mergeable_ranks=ranks,
                                 special_tokens={"<|im_end|>": len(ranks) + 2})
    lines = [base64.b64encode(t) + b" %d\n" % r for t, r in sorted(ranks.items(), key=lambda x: x[1])]
    write(files, "tiktoken_kimi", "tiktoken.model", b"".join(lines),
          [encoding.encode(t, allowed_special="all") for t in texts])
    (files / "tiktoken_kimi" / "config.json").write_text('{"model_type": "kimi_k2"}\n')
    content, ids = tekken_file(files, [bytes([b]) for b in range(256)] + sorted(
        (t for t in ranks if len(t) > 1), key=ranks.get), texts)
    write(files, "tekken", "tekken.json", content, ids)


if __name__ == "__main__":
    main()
