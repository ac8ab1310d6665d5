#!/usr/bin/env python3
"""Tokenizers without an equivalent kind in GGUF: their ids equal those of Hugging Face tokenizers,
read from the folder, from the GGUF file made from it, and from the folder exported from that file.

    tests/tokenizer/oracle_test.py WEFT [PACKAGES]

Exit status 77: the package tokenizers is missing (tests/tokenizer/requirements.txt).
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from nightly import nightly, some  # noqa: E402

SEED, TEXTS, ROWS = 18, 40, 700
CONFIG = {"model_type": "llama", "hidden_size": 32, "intermediate_size": 64,
          "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
          "head_dim": 16, "vocab_size": ROWS, "rms_norm_eps": 1e-5,
          "max_position_embeddings": 64, "tie_word_embeddings": True, "eos_token_id": 0}
WORDS = ("The quick brown fox's 12345 tail don't   jump over the lazy dog; naïve café, Ünder 3.14 "
         "x=y+1\n\tif (a[0] != b) { return -42; }\r\n你好，世界。 日本語 텍스트 Привет "
         "мир สวัสดี 😀👩‍👩 ").split(" ")
# (U+061D is punctuation since Unicode 14, whose tables tokenizers lacks.)
SCRIPTS = [(0x20, 0x7f), (0x20, 0x7f), (0xa0, 0x250), (0x300, 0x370), (0x400, 0x460),
           (0x5d0, 0x61d), (0x620, 0x650), (0x900, 0x980), (0xe00, 0xe60), (0x2000, 0x2070),
           (0x3040, 0x3100), (0x4e00, 0x4f00), (0xac00, 0xad00), (0x1f600, 0x1f650)]


def random_text(rng):
    pieces = []
    for _ in range(rng.randrange(1, 40)):
        kind = rng.random()
        if kind < 0.4:
            pieces.append(rng.choice(WORDS))
        elif kind < 0.6:
            pieces.append(rng.choice([" ", "  ", "\n", "\t", "   ", "\r\n", "\u00a0", "\u3000"]))
        elif kind < 0.75:
            pieces.append(str(rng.randrange(10 ** rng.randrange(1, 9))))
        else:
            low, high = rng.choice(SCRIPTS)
            count = rng.randrange(1, 5)
            pieces.append("".join(chr(rng.randrange(low, high)) for _ in range(count)))
        if rng.random() < 0.5:
            pieces.append(" ")
    return "".join(pieces)


def made(t):
    """The test's tokenizers, by name."""
    P, D, N = t.pre_tokenizers, t.decoders, t.normalizers
    split = lambda pattern, behavior="isolated", invert=False: P.Split(
        t.Regex(pattern), behavior, invert)
    bytes_after = lambda *steps: P.Sequence([*steps, P.ByteLevel(False, use_regex=False)])
    pre = {
        "own-words": bytes_after(split(r"[A-Za-z]+|\p{N}{1,2}|\s+|[^\sA-Za-z\p{N}]+")),
        "digits-apart": bytes_after(P.Digits(True), split(r" ?\p{L}+|\s+(?!\S)|\s+|[^\s\p{L}]+")),
        "removed-behind": bytes_after(split(r"\p{P}", "merged_with_previous"), split(r"\s+",
                                                                            "merged_with_next")),
        "prefix-space": P.ByteLevel(True),
        "punctuation": bytes_after(P.Punctuation("contiguous")),
        "camel-case": bytes_after(split(r"\p{Lu}?\p{Ll}+|\p{Lu}+|\p{N}{1,3}|\s|[^\s\p{L}\p{N}]")),
        "every-letter": bytes_after(split(r"(?=\p{L})", "isolated")),
    }
    result = {}
    for name, steps in pre.items():
        one = t.Tokenizer(t.models.BPE())
        one.pre_tokenizer, one.decoder = steps, D.ByteLevel()
        if name in ("own-words", "camel-case"):
            one.normalizer = N.NFKC() if name == "own-words" else N.Lowercase()
        result[name] = one, t.trainers.BpeTrainer(
            vocab_size=600, show_progress=False, special_tokens=["<|end|>", "<|pad|>"],
            initial_alphabet=P.ByteLevel.alphabet())
    for name, scheme, cut in (("mark-always", "always", True), ("mark-first", "first", False),
                              ("mark-never", "never", True)):
        one = t.Tokenizer(t.models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
        one.pre_tokenizer = P.Sequence([P.Digits(True), P.Metaspace("▁", scheme, cut)])
        one.decoder = D.Metaspace("▁", scheme, cut)
        result[name] = one, t.trainers.BpeTrainer(
            vocab_size=560, limit_alphabet=180, show_progress=False,
            special_tokens=["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))])
    one = t.Tokenizer(t.models.Unigram())
    one.normalizer, one.pre_tokenizer = N.NFKC(), P.Sequence([P.Punctuation(), P.Metaspace()])
    one.decoder = D.Metaspace()
    result["unigram"] = one, t.trainers.UnigramTrainer(
        vocab_size=300, show_progress=False, unk_token="<unk>", special_tokens=["<unk>", "</s>"])
    one = t.Tokenizer(t.models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=12))
    one.normalizer, one.pre_tokenizer = N.BertNormalizer(), P.BertPreTokenizer()
    one.decoder = D.WordPiece()
    result["word-piece"] = one, t.trainers.WordPieceTrainer(
        vocab_size=400, limit_alphabet=90, show_progress=False,
        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    return result


def bytes_of_model(tokenizer, t):
    """Byte tokens belong to the model; only the trainer adds them as added tokens."""
    whole = json.loads(tokenizer.to_str())
    whole["added_tokens"] = [a for a in whole["added_tokens"] if not a["content"].startswith("<0x")]
    return t.Tokenizer.from_str(json.dumps(whole))


def with_bytes(tokenizer, t):
    """A Unigram whose unknown code points fall back to bytes."""
    whole = json.loads(tokenizer.to_str())
    model = whole["model"]
    least = min(score for _, score in model["vocab"])
    model["vocab"] += [[f"<0x{b:02X}>", least - 5] for b in range(256)]
    model["byte_fallback"] = True
    return t.Tokenizer.from_str(json.dumps(whole))


class Case:
    def __init__(self, program, root):
        self.program, self.root = program, pathlib.Path(root)
        new = self.root / "new"
        new.mkdir()
        (new / "config.json").write_text(json.dumps(CONFIG))
        self.weft("train", new, "--from-scratch", "--data", "synthetic:random-tokens:9:4",
                  "--steps", "1", "--seq-len", "8", "-t", "1", "--save-format", "hf",
                  "--output-dir", self.root / "weights")
        self.model = self.root / "weights" / "model"

    def weft(self, *words, fails=False):
        ran = subprocess.run([self.program, *map(str, words)], capture_output=True, text=True,
                             timeout=300)
        assert (ran.returncode != 0) == fails, f"{words}: {ran.returncode}\n{ran.stderr}"
        return ran.stderr if fails else ran.stdout

    def ids(self, model, text):
        path = self.root / "text.txt"
        path.write_bytes(text.encode())
        return json.loads(self.weft("tokenize", model, "--file", path, "--no-bos",
                                    "--json"))["tokens"]

    def put(self, text, config):
        (self.model / "tokenizer.json").write_text(text)
        (self.model / "tokenizer_config.json").write_text(json.dumps(config))

    def check(self, name, tokenizer, rng):
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "note": f"of {name}"}
        self.put(tokenizer.to_str(pretty=True), config)
        gguf, back = self.root / f"{name}.gguf", self.root / f"{name}-back"
        self.weft("quantize", self.model, gguf, "F32")
        kept = "tokenizer.huggingface.json" in self.weft("inspect", gguf)
        if kept:
            self.weft("train", gguf, "--data", "synthetic:random-tokens:9:4", "--steps", "1",
                      "--seq-len", "8", "-t", "1", "--save-format", "hf", "--output-dir", back)
            for file in ("tokenizer.json", "tokenizer_config.json"):
                same = (self.model / file).read_bytes() == (back / "model" / file).read_bytes()
                assert same, f"{name}: {file} is not the same after the way through GGUF"
        texts = [" ".join(random_text(rng) for _ in range(20)),
                 *(random_text(rng) for _ in range(TEXTS // 10)), "", " ", "a", "\n\n a"]
        for text in texts:
            # GGUF's kinds have no normalization forms; a stored tokenizer.json does.
            expected = tokenizer.encode(text, add_special_tokens=False).ids
            for model in (self.model, *((gguf, back / "model") if kept else ())):
                got = self.ids(model, text)
                assert got == expected, f"{name}, {model}:\n{text!r}\n{got}\n{expected}"
        return kept, len(texts)

    def refuses(self, tokenizer, word):
        self.put(tokenizer.to_str(), {})
        for words in (("tokenize", self.model, "--text", "a"),
                      ("quantize", self.model, self.root / "refused.gguf", "F32")):
            said = self.weft(*words, fails=True)
            assert word in said and "tokenizer.json" in said, said


def main():
    program = sys.argv[1]
    sys.path[1:1] = sys.argv[2:]
    try:
        import tokenizers as t
        from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers  # noqa: F401
    except ImportError as error:
        print(f"SKIPPED: no package tokenizers ({error})")
        return 77
    rng = random.Random(SEED)
    page = [random_text(rng) for _ in range(400)] + [" ".join(WORDS)] * 20
    with tempfile.TemporaryDirectory() as folder:
        case = Case(os.path.abspath(program), folder)
        kept = 0
        for name, (tokenizer, trainer) in some(made(t).items(), 3):
            # A Unigram needs a token for every character of its training text.
            tokenizer.train_from_iterator(page[-20:] if name == "unigram" else page, trainer)
            if name == "unigram":
                tokenizer = with_bytes(tokenizer, t)
            if name.startswith("mark"):
                tokenizer = bytes_of_model(tokenizer, t)
            was_kept, texts = case.check(name, tokenizer, rng)
            kept += was_kept
            print(f"{name}: {texts} texts, {'kept' if was_kept else 'a kind of GGUF'}")
        assert kept >= (6 if nightly() else 2), f"only {kept} tokenizers were kept as they are"
        case.refuses(t.Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]")),
                     "WordLevel")
        odd = t.Tokenizer(models.BPE({"a": 0}, []))
        odd.pre_tokenizer = pre_tokenizers.UnicodeScripts()
        case.refuses(odd, "UnicodeScripts")
    return 0


if __name__ == "__main__":
    sys.exit(main())
