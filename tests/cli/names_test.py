#!/usr/bin/env python3
"""Names of models (omitted hf:, short names, precedence of paths) and misspelled words.

    names_test.py PROGRAM [UNITTEST ARGUMENT...]
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from cache import Cache
from terminal import PATIENCE

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from nightly import in_turn, some  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = str(ROOT / "models/abacus/model.gguf")
QUESTION = "What is 47 + 38?"
# Repositories whose names lack the size.
SIZES = {"cohereforai_c4ai-command-a-03-2025": "111b", "deepseek-coder-v2-lite": "16b",
         "deepseek-r1-gguf": "671b", "deepseek-v3-gguf": "671b", "deepseek-v3.1-gguf": "671b",
         "deepseek-v3.2": "685b", "deepseek-v4-flash": "284b", "devstral-small-2505": "24b",
         "dots.llm1.inst": "142b", "glm-4.5-air": "106b", "glm-4.5-gguf": "355b",
         "glm-4.6": "355b", "glm-4.7": "355b", "glm-4.7-flash": "30b", "glm-5": "744b",
         "granite-4.0-h-micro": "3b", "granite-4.0-h-small": "32b", "granite-4.0-h-tiny": "7b",
         "granite-4.0-micro": "3b", "hunyuan-a13b-instruct": "80b", "kimi-k2": "1t",
         "ling-flash-2.0": "100b", "ling-mini-2.0": "16b", "llama-4-maverick": "400b",
         "magistral-small": "24b", "mimo-v2-flash": "309b", "minimax-m2": "230b",
         "minimax-m3": "428b", "mistral-large": "123b", "mistral-nemo": "12b",
         "phi-3-medium": "14b", "phi-3.5-mini": "3.8b", "phi-4-gguf": "14b", "phi-4-mini": "3.8b",
         "qwen3-coder-next": "80b", "small-instruct-2409": "22b", "step-3.5-flash": "196b",
         "trinity-large-thinking": "400b", "trinity-mini": "26b"}


class NamesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.cache = Cache(self.folder / "hub")

    def weft(self, *words, status=0, **env):
        done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=PATIENCE,
                              stdin=subprocess.DEVNULL, cwd=self.folder, check=False,
                              env={**os.environ, "HF_HUB_CACHE": str(self.cache.path),
                                   "HF_ENDPOINT": "http://127.0.0.1:9", **env})
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout if status == 0 else done.stderr

    def refused(self, *words, status=2):
        said = self.weft(*words, status=status)
        self.assertEqual(said.count("\n"), 1, said)
        self.assertTrue(said.startswith("weft: error: "), said)
        return said


class Models(NamesTest):
    def test_the_table(self):
        lines = [line.split() for line in (ROOT / "models/short_names.txt").read_text().splitlines()
                 if not line.startswith("#")]
        self.assertTrue(all(len(line) == 2 for line in lines), lines)
        names = [name for name, _ in lines]
        self.assertGreaterEqual(len(names), 30)
        self.assertEqual(names, sorted(set(names)))
        self.assertEqual(len({model for _, model in lines}), len(names), "one model, two names")
        for name, model in lines:
            self.assertRegex(name, r"^[a-z0-9.-]+:e?[0-9.]+[mbt]$")
            self.assertRegex(model, r"^hf:[A-Za-z0-9-]+/[A-Za-z0-9._-]+(:[A-Z0-9_-]+)?$")
            # The sizes must agree: 30b is Qwen3-30B-A3B.
            size, repository = name.split(":")[1], model.lower()
            said = [known for part, known in SIZES.items() if part in repository]
            self.assertTrue(size in repository or size in said, name)
        self.assertEqual(json.loads(self.weft("list", "--names", "--json")), dict(lines))
        self.assertIn("qwen3:8b", self.weft("list", "--names"))

    def test_hf_may_be_left_out(self):
        self.cache.add("o", "n-GGUF", {"n-Q8_0.gguf": MODEL, "n-Q4_0.gguf": MODEL})
        for word in ("o/n-GGUF:Q8_0", "hf:o/n-GGUF:Q8_0", "o/n-GGUF:n-Q8_0.gguf"):
            self.assertIn("85", self.weft("run", word, "--greedy", "-p", QUESTION))
            self.assertIn("llama", self.weft("show", word))
            self.assertIn("parameters", self.weft("inspect", word))
        self.assertIn("85", self.weft("run", "o/n-GGUF:Q8_0", "--greedy", "-p", QUESTION, "--tp",
                                      "2", "-t", "1"))
        said = self.weft("run", "o/n-GGUF", "--greedy", "-p", QUESTION, status=2)
        self.assertIn("n-Q4_0.gguf", said)

    def test_a_short_name(self):
        self.cache.add("Qwen", "Qwen3-8B-GGUF", {"Qwen3-8B-Q4_K_M.gguf": MODEL})
        for word in ("qwen3:8b", "Qwen3:8B"):
            self.assertIn("85", self.weft("run", word, "--greedy", "-p", QUESTION))

    # Every command accepts the names of `weft plan`.
    def test_names_of_plan(self):
        self.cache.add("Qwen", "Qwen3-30B-A3B-GGUF", {"Qwen3-30B-A3B-Q4_K_M.gguf": MODEL,
                                                      "Qwen3-30B-A3B-Q8_0.gguf": MODEL})
        self.cache.add("ggml-org", "gpt-oss-20b-GGUF", {"gpt-oss-20b-mxfp4.gguf": MODEL})
        for turn, word in enumerate((
                "qwen3-30b-a3b:q4_k_m", "qwen3-30b-a3b", "qwen3-30b", "Qwen3_30B-A3B:Q8_0",
                "qwen3:30b-a3b-q8_0", "Qwen3-30B-A3B-Instruct-GGUF:q8_0", "gpt-oss-20b",
                "gpt-oss:20b", "gpt-oss-20b:mxfp4")):
            for index, command in enumerate(("plan", "show", "run")):
                if not in_turn(turn + index, 5):
                    continue
                more = {"plan": ("--machines", "strix-halo"), "run": ("-p", QUESTION)}
                said = self.weft(command, word, *more.get(command, ()))
                self.assertIn({"plan": "tp1", "show": "llama", "run": "85"}[command], said, word)
        said = self.weft("run", "qwen3-30b-a3b:q8_0", "-p", QUESTION, "--draft", "gpt-oss-20b")
        self.assertIn("85", said)
        self.weft("rm", "qwen3-30b-a3b:q8_0", "--yes")
        said = self.refused("show", "qwen3-30b-a3b:q8_0", status=1)
        self.assertNotIn("Did you mean", said)

    def test_files_beside_the_hub(self):
        cache = self.folder / "cache"
        path = cache / "weft/m.gguf"
        (cache / "weft/d.gguf").mkdir(parents=True)
        path.write_bytes(b"GGUF")

        def listed():
            return [model["name"] for model in json.loads(
                self.weft("list", "--json", XDG_CACHE_HOME=str(cache)))]
        self.assertEqual(listed(), [str(path)])
        said = self.weft("rm", str(path), status=2, XDG_CACHE_HOME=str(cache))
        self.assertIn(f"cannot ask whether to remove {path}", said)
        removed = self.weft("rm", listed()[0], "--yes", "--json", XDG_CACHE_HOME=str(cache))
        self.assertEqual(json.loads(removed), {"removed": [
            {"name": str(path), "freed_bytes": 4, "kept_bytes": 0}]})
        self.assertFalse(path.exists())
        self.assertEqual(listed(), [])

    # A known name that is not in the cache: the error gives its repository and the next step.
    def test_names_of_plan_that_are_not_here(self):
        for command in ("run", "show", "inspect"):
            said = self.refused(command, "qwen3-8b:q8_0", status=1)
            self.assertIn("hf:Qwen/Qwen3-8B-GGUF:Q8_0", said)
            self.assertIn("weft pull", said)
        for words in (("pull", "qwen3-8b:q8_0"), ("run", "qwen3-8b:q8_0", "-p", "a", "--pull")):
            said = self.refused(*words, status=1)  # the Hub is not reachable
            self.assertIn("Qwen/Qwen3-8B-GGUF", said)
        # Neither a repository nor a model of this name is known.
        for command in ("pull", "run", "show"):
            self.assertIn("does not run this model yet",
                          self.refused(command, "glm-4.5v", status=1))
            self.assertIn("knows no repository", self.refused(command, "mixtral-8x22b", status=1))
        for word in ("glm-4.5v", "glm-4.6v:q4_k_m"):
            said = self.weft("plan", word, "--machines", "strix-halo", "--explain")
            self.assertIn("Weft does not run this model yet", said)
            self.assertNotIn("run: ", said)
        self.assertIn("nor a model of the Hub", self.refused("pull", "qwen3-9b"))

    # A model's shape is not its weights: other trainings, or types that no file has, are refused by
    # name and never replaced by similar ones.
    def test_other_weights_and_types(self):
        self.cache.add("Qwen", "Qwen3-8B-GGUF", {"Qwen3-8B-Q4_K_M.gguf": MODEL})
        for turn, word in enumerate((
                "qwen3-8b-base", "qwen3-4b-thinking", "qwen3-8b-abliterated",
                "qwen3-8b-uncensored", "gemma-3-4b-pt", "gemma3:4b-it-qat",
                "phi-4-mini-reasoning", "smollm2-135m-base", "qwen3-8b-base:q4_k_m")):
            for index, command in enumerate(("run", "show", "pull")):
                if not in_turn(turn + index, 6):
                    continue
                more = ("-p", "a") if command == "run" else ()
                said = self.refused(command, word, *more, status=1)
                self.assertIn("knows no repository with its weights", said, word)
        for kind in ("awq", "4bit", "fp8", "q4", "gptq", "nvfp4"):
            said = self.refused("show", f"qwen3-8b:{kind}", status=1)
            self.assertIn(f"have the type {kind}", said)
            self.assertIn("qwen3-8b:q4_k_m", said)
        self.assertIn("TYPE 'q9_k' is unknown", self.refused("show", "qwen3-8b:Q9_K", status=1))
        self.assertIn("85", self.weft("run", "qwen3-8b:latest", "--greedy", "-p", QUESTION))

    def test_addresses_of_pages(self):
        self.cache.add("o", "n-GGUF", {"n-Q8_0.gguf": MODEL, "n-Q4_0.gguf": MODEL})
        for word in ("hf.co/o/n-GGUF:Q8_0", "huggingface.co/o/n-GGUF:Q4_0",
                     "https://huggingface.co/o/n-GGUF/blob/main/n-Q8_0.gguf",
                     "https://huggingface.co/o/n-GGUF/resolve/main/n-Q8_0.gguf?download=true"):
            self.assertIn("85", self.weft("run", word, "--greedy", "-p", QUESTION), word)
        for word in ("https://huggingface.co/o/n-GGUF", "hf.co/o/n-GGUF",
                     "https://huggingface.co/o/n-GGUF/tree/main/"):
            self.assertIn("n-Q4_0.gguf", self.weft("run", word, "-p", "a", status=2), word)

    def test_unknown_names(self):
        for command in (("run", "-p", "a"), ("show",), ("serve",)):
            said = self.refused(*command, "command-r9b", status=1)
            self.assertIn("nor a model of the Hub", said)
            self.assertIn("command-r", said.split("with the same start")[-1])
            said = self.refused(*command, "mistral-large-3", status=1)
            self.assertNotIn("Did you mean", said)

    # The command that `weft plan --explain` prints runs as printed.
    def test_the_printed_command_runs(self):
        self.cache.add("Qwen", "Qwen3-30B-A3B-GGUF", {"Qwen3-30B-A3B-Q4_K_M.gguf": MODEL})
        for word in some(("qwen3-30b", "qwen3:30b", "qwen3-30b:UD-Q4_K_XL", "qwen3-30b-a3b:q4_k_m",
                          "hf:Qwen/Qwen3-30B-A3B-GGUF:Q4_K_M", MODEL)):
            said = self.weft("plan", word, "--machines", "epyc-9654", "--explain", "--context",
                             "64")
            line = re.search(r"^run: weft (.*)$", said, re.MULTILINE)[1]
            self.assertIn("85", self.weft(*line.split(), "-p", QUESTION), line)
        # On several hosts it downloads, and the others get their parts.
        said = self.weft("plan", "qwen3-30b", "--machines", "2xstrix-halo,roce", "--explain")
        self.assertRegex(said, r"run: weft run qwen3-30b:q4_k_m --pull --weights-from 0 --hosts")
        # The first host is too slow for the best layout, so another one has rank 0.
        slow = ("plan", "llama-3.2-1b", "--machines", "raspberry-pi-5,2xstrix-halo,roce",
                "--explain")
        self.assertRegex(self.weft(*slow), r"run on host2: weft run .*--hosts host3:7000 ")
        self.assertRegex(self.weft(*slow, "--hosts", "b,c"), r"run on b: weft run .*--hosts c ")

    def test_a_type_is_assumed_and_said(self):
        said = self.weft("plan", "qwen3-235b", "--machines", "2xstrix-halo,usb4")
        self.assertIn("no type is named: q4_k_m, the usual one, is assumed", said)
        self.assertNotIn("No layout fits", said)
        said = self.weft("plan", "qwen3-235b", "--machines", "strix-halo")
        self.assertIn("No layout fits", said)
        self.assertIn("weft plan qwen3-235b:q3_k_m --machines strix-halo", said)
        self.assertIn(" <- fastest", self.weft("plan", "qwen3-235b:q3_k_m", "--machines",
                                               "strix-halo"))
        said = self.weft("plan", "deepseek-r1:q8_0", "--machines", "raspberry-pi-5")
        self.assertIn("No smaller type fits", said)
        # A repository of safetensors has BF16; gpt-oss has its own type.
        said = self.weft("plan", "Qwen/Qwen3-8B", "--machines", "strix-halo")
        self.assertIn("BF16 is assumed", said)
        self.assertNotIn("assumed", self.weft("plan", "gpt-oss-20b", "--machines", "strix-halo"))

    def test_a_path_wins(self):
        self.cache.add("o", "n", {"n.gguf": __file__})
        (self.folder / "o").mkdir()
        shutil.copy(MODEL, self.folder / "o/n")
        shutil.copy(MODEL, self.folder / "qwen3:8b")
        shutil.copy(MODEL, self.folder / "a file: with blanks")
        for word in ("o/n", "qwen3:8b", "a file: with blanks", "./o/n"):
            self.assertIn("85", self.weft("run", word, "--greedy", "-p", QUESTION), word)

    def test_what_was_tried(self):
        said = self.refused("run", "o/n:Q8_0", "-p", "a", status=1)
        for word in ("o/n:Q8_0: no such file or folder", "hf:o/n:Q8_0", str(self.cache.path),
                     "weft pull hf:o/n:Q8_0"):
            self.assertIn(word, said)
        said = self.refused("run", "qwen3:8b", "-p", "a", status=1)
        for word in ("qwen3:8b: no such file or folder", "hf:Qwen/Qwen3-8B-GGUF:Q4_K_M",
                     "weft pull"):
            self.assertIn(word, said)
        said = self.refused("run", "models/none.gguf", "-p", "a", status=1)
        self.assertNotIn("hf:", said)
        self.assertIn("models/none.gguf", said)

    def test_misspelt_short_names(self):
        for word in ("qwen3:8bb", "qwn3:8b", "qwne3:8b"):
            said = self.refused("run", word, "-p", "a", status=1)
            self.assertIn("Did you mean 'qwen3:8b'?", said)
        said = self.refused("show", "qwen3", status=1)
        for name in ("qwen3:0.6b", "qwen3:8b"):
            self.assertIn(name, said)
        self.assertIn("Did you mean 'qwen3:8b'?", self.refused("pull", "qwen3:8bb"))
        self.assertIn("Did you mean 'qwen3:8b'?", self.refused("rm", "qwen3:8bb", "--yes"))
        self.assertNotIn("Did you mean", self.refused("show", "zebra", status=1))

    def test_pull_asks_for_what_the_name_stands_for(self):
        said = self.refused("pull", "qwen3:8b", "--timeout", "1", status=1)
        self.assertIn("Qwen/Qwen3-8B-GGUF", said)
        said = self.refused("run", "qwen3:8b", "--pull", "-p", "a", status=1)
        self.assertIn("Qwen/Qwen3-8B-GGUF", said)
        self.assertIn("short name", self.refused("run", MODEL, "--pull", "-p", "a"))


# Commands on the help page of their parent command.
IMPLIED = (("hosts", "list"), ("net", "table"), ("train", "run"))


class CommandNamesAsValues(NamesTest):
    """A word after a command belongs to that command, even if another command has the same name."""

    def commands(self, *above):
        said = self.weft("completion", "--", *above, "")
        names = re.findall(r"^([a-z][a-z-]*)\t", said, re.MULTILINE)
        self.assertTrue(names, said)
        return names

    def assert_page(self, *words):
        name = "-".join(("WEFT", *words)).replace("-", r"\-").upper()
        self.assertIn(f".TH {name} 1 ", self.weft("man", *words))

    def test_each_has_its_manual_page(self):
        for name in some(self.commands(), 6):
            self.assert_page(name)
        for above in ("hosts", "job", "key", "net", "train"):
            for name in some(self.commands(above), 6):
                if (above, name) not in IMPLIED:
                    self.assert_page(above, name)
        self.assert_page("train", "data", "inspect")

    def test_the_status_is_that_of_the_command(self):
        said = self.refused("rm", "-y", "Foo/Bar", "list", status=1)
        self.assertIn("hf:Foo/Bar", said)
        # ("weft up" accepts a word of the key.)
        self.assertIn("'list' is not a word of a key", self.refused("up", "list"))
        for words in (("inspect", "models", "list"),
                      ("bench", MODEL, "list"),
                      ("train", "data", "inspect", MODEL, "--data", "a", "list"),
                      ("net", "allreduce", "table"), ("list", "list")):
            self.assertIn(f"takes no further word: '{words[-1]}'", self.refused(*words))

    def test_files(self):
        for name in some(("show", "list", "inspect", "run")):
            shutil.copy(MODEL, self.folder / name)
            self.assertIn("parameters", self.weft("inspect", name))
            self.assertIn("85", self.weft("run", name, "--greedy", "-p", QUESTION))
            self.assertIn("85", self.weft("run", "--greedy", "-p", QUESTION, name))


def lasting(version):
    """The JSON of `weft version` without the free memory of GPUs, which changes."""
    return re.sub(r'("free_bytes": ?)[0-9]+', r"\1", version)


class OtherWords(NamesTest):
    def test_help_and_version(self):
        self.assertEqual(self.weft("help"), self.weft("--help"))
        self.assertEqual(self.weft("help", "run"), self.weft("run", "--help"))
        self.assertEqual(self.weft("help", "train", "data"), self.weft("train", "data", "--help"))
        self.assertEqual(lasting(self.weft("version", "--json")),
                         lasting(self.weft("--version", "--json")))

    def test_a_checkpoint_that_is_not_there(self):
        said = self.refused("train", MODEL, "--data", "synthetic:random-tokens:25:8", "--steps",
                            "1", "-t", "1", "--resume", "nosuch", "--output-dir",
                            str(self.folder / "out"), status=1)
        self.assertRegex(said, r"--resume \S*nosuch: there is no such file or folder")


class Habits(NamesTest):
    """Flags and commands that users of llama.cpp, Ollama and vLLM type."""

    def test_the_prompt_behind_the_model(self):
        for words in some((
                      ("run", MODEL, QUESTION), ("run", MODEL, *QUESTION.split()),
                      ("run", "-n", "8", MODEL, QUESTION), ("run", MODEL, "-n", "8", QUESTION),
                      ("chat", MODEL, QUESTION), ("run", "-m", MODEL, QUESTION),
                      ("run", QUESTION, "-m", MODEL), ("run", "--model=" + MODEL, "-p", QUESTION),
                      ("run", "-p", QUESTION, "--model", MODEL))):
            self.assertIn("85", self.weft(*words), words)
        for more in (("-p", "b"), ("-f", MODEL)):
            self.assertIn("are both prompts", self.refused("run", MODEL, "a", *more))
        self.assertIn("is empty", self.refused("run", MODEL, " "))

    # `cat TEXT | weft run MODEL QUESTION` ignores the text; a message says so, and suggests a form
    # that does not.
    def test_text_on_standard_input_beside_a_prompt(self):
        for text in ("a text\n", ""):
            done = subprocess.run([PROGRAM, "run", MODEL, "--greedy", QUESTION], input=text,
                                  capture_output=True, text=True, timeout=PATIENCE, check=True)
            self.assertEqual("does not read standard input" in done.stderr, text != "")

    def test_flags_that_mean_the_same(self):
        for flags in some((
                      ("-c", "64"), ("--ctx-size=64",), ("--max-model-len", "64"),
                      ("--max_model_len", "64"), ("--temperature", "0"), ("--n-predict", "8"),
                      ("-s", "7"), ("-tp", "2", "-t", "1"), ("--tensor-parallel-size=2", "-t", "1"),
                      ("-ub", "32"), ("-dev", "cpu"), ("-r", "xyz"), ("-sys", "Be short."))):
            said = self.weft("run", MODEL, "-p", QUESTION, *flags)
            if "-sys" not in flags:
                self.assertIn("85", said, flags)
        for flags in some((
                      ("--max-num-seqs", "2"), ("--served-model-name", "a"), ("-c", "64"),
                      ("--max-num-batched-tokens", "64"), ("--no-enable-prefix-caching",),
                      ("--disable-log-requests",), ("--ssl-certfile", "a", "--ssl-keyfile", "b"))):
            said = self.refused("serve", "no/such.gguf", *flags, "--port", "0", status=1)
            self.assertIn("no/such.gguf", said)
        # llama.cpp has a flag for each type of the KV cache.
        for flags, types in ((("-ctk", "q8_0", "--cache-type-v=q4_0"), ("q8_0", "q4_0")),
                             (("--cache_type_k=q5_1",), ("q5_1", "f16")),
                             (("-ctv", "q8_0"), ("f16", "q8_0"))):
            (row,) = json.loads(self.weft("bench", MODEL, *flags, "-p", "0", "-n", "1", "-r", "1",
                                          "-o", "json"))
            self.assertEqual((row["type_k"], row["type_v"]), types)
        self.assertIn("--kv-dtype q3: expected f16",
                      self.refused("run", MODEL, QUESTION, "-ctk", "q3"))
        self.assertIn("-ctv needs a type", self.refused("run", MODEL, QUESTION, "-ctv"))
        # A value that looks like a flag is a value, and a command's own flags keep their meaning.
        said = self.weft("run", MODEL, "--raw", "-n", "1", "-p=-c", "--stop", "-ngl", "--json")
        self.assertIn("tokens", said)
        self.assertIn("2 ranks", self.refused("run", MODEL, QUESTION, "--tp", "3", "--local", "2"))

    def test_what_to_do_instead(self):
        names = set(re.findall(r"--[a-z][a-z-]+", self.weft("run", "--help") +
                               self.weft("serve", "--help")))
        for flag in some((
                     "-fa", "--flash-attn", "--jinja", "-np", "-b", "-ts",
                     "--rpc", "--mlock", "--no-mmap", "-ctkd", "-hf", "--grammar", "-i",
                     "--api-key", "--gpu-memory-utilization", "--dtype", "--quantization",
                     "--enable-expert-parallel", "--trust-remote-code", "--enforce-eager",
                     "--tool-call-parser", "--tokenizer", "--revision", "--download-dir",
                     "--data-parallel-size", "--cpu-offload-gb", "--keepalive", "--model-dir",
                     "--metrics"), 6):
            said = self.refused("serve", MODEL, flag, "1")
            self.assertIn(f"'weft serve' has no flag {flag}: ", said)
            advised = set(re.findall(r"--[a-z][a-z-]+", said.split(f"{flag}: ")[1]))
            self.assertLessEqual(advised, names, said)
            self.refused("run", MODEL, flag + "=1", "-p", "a")
        for turn, command in enumerate((("run", MODEL, "2+3"), ("serve", MODEL),
                                        ("bench", MODEL))):
            for index, flags in enumerate((
                          ("-nkvo",), ("-ngld99",), ("-tb", "2"),
                          ("-fit", "on"), ("-st",), ("--color",), ("--think",), ("--think=false",),
                          ("--hidethinking",), ("--nowordwrap",), ("--format", "json"),
                          ("--rope-scaling", "yarn"), ("--override-kv", "a=int:1"), ("-lv", "1"),
                          ("--hf-overrides", "{}"), ("--cpu_offload_gb", "4"), ("-sm", "row"),
                          ("-sysf", "x"), ("--mirostat", "2"), ("-hff", "x.gguf"), ("-sm=row",))):
                if not in_turn(turn + index, 6):
                    continue
                said = self.refused(*command, *flags)
                flag = flags[0].split("=")[0].rstrip("0123456789").replace("_", "-")
                self.assertIn(f"'weft {command[0]}' has no flag {flag}: ", said)
                advised = set(re.findall(r"--[a-z][a-z-]+", said.split(f"{flag}: ")[1]))
                self.assertLessEqual(advised - {"--devices"}, names, said)
        self.assertIn("presence_penalty", self.refused("serve", MODEL, "--presence-penalty", "1"))
        self.assertIn("its own seed", self.refused("serve", MODEL, "--seed", "1"))
        for flag in ("--port", "--host"):
            self.assertIn("weft serve MODEL --host", self.refused("run", MODEL, flag, "1"))
        for word in ("ps", "stop", "create", "push", "cp"):
            self.assertIn(f"there is no 'weft {word}': ", self.refused(word, "a"))
        self.assertIn("weft serve MODEL, such as", self.refused("serve"))
        self.assertIn("weft run MODEL, such as", self.refused("run"))
        self.assertIn("needs a MODEL after it", self.refused("run", "-m"))

    def test_flags_of_programs_that_train(self):
        names = set(re.findall(r"--[a-z][a-z-]+", self.weft("train", "--help")))
        train = ("train", "no/such.gguf", "--output-dir", str(self.folder / "trained"))
        same = ("--learning_rate", "1e-4", "--num_train_epochs", "2", "--max_steps=3",
                "--per_device_train_batch_size", "1", "--gradient_accumulation_steps", "2",
                "--cutoff_len", "64", "--lr_scheduler_type", "constant_with_warmup",
                "--max_grad_norm", "1", "--lora_rank", "4", "--lora_target_modules", "all",
                "--save_steps", "5", "--save_total_limit", "1", "--val_size", "0.1",
                "--resume_from_checkpoint", "True", "--dataset", "no/such.jsonl", "--use_rslora",
                "--warmup_ratio", "0.1")
        said = self.refused(*train, *same, status=1)
        self.assertIn("no/such", said)
        self.assertIn("no/such", self.refused("train", "--model_name_or_path", "no/such.gguf",
                                              "--no-output", "--data", "a", status=1))
        for flag in some(("--bf16", "--load_in_4bit", "--gradient_checkpointing", "--adam-beta1",
                          "--logging_steps", "--evaluation_strategy", "--do_train",
                          "--packing", "--template", "--train_on_inputs", "--fsdp",
                          "--nproc-per-node", "--metric_for_best_model", "--flash_attn",
                          "--global-batch-size"), 6):
            said = self.refused(*train, "--data", "a", flag, "1")
            name = flag.replace("_", "-")
            self.assertIn(f"'weft train' has no flag {name}: ", said)
            advised = set(re.findall(r"--[a-z][a-z-]+", said.split(f"{name}: ")[1]))
            self.assertLessEqual(advised, names, said)

    def test_a_value_of_an_unknown_flag_is_no_model(self):
        for turn, (flag, meant) in enumerate((
                            ("--max-seq", "--max-seqs"), ("--prot", "--port"), ("--nmae", "--name"),
                            ("--zebra-crossing", ""), ("--max_seq", "--max-seqs"), ("-x", ""),
                            ("-zebra", ""), ("-prot", "--port"), ("-vx", ""))):
            for index, words in enumerate((
                    (MODEL, flag, "4"), (flag, "4", MODEL), (flag + "=4", MODEL),
                    ("-m", MODEL, flag, "4", "5"), (flag, "4", "-m", MODEL))):
                if not in_turn(turn + index, 6):
                    continue
                said = self.refused("serve", *words)
                self.assertIn(f"'weft serve' has no flag {flag}.", said)
                hint = f"Did you mean '{meant}'?"
                self.assertEqual(hint in said, bool(meant), said)

    def test_one_dash_before_a_long_name(self):
        for flags in some((
                      ("-temp", "0"), ("-temp=0",), ("-temperature", "0"), ("-n-predict", "8"),
                      ("-c128",), ("-n8",), ("-n", "8", "-seed", "7"), ("-ub32",), ("-s42",),
                      ("-predict", "8"), ("-ctx-size=64",), ("-t1",))):
            self.assertIn("85", self.weft("run", MODEL, "-p", QUESTION, *flags), flags)
        self.assertIn("85", self.weft("run", MODEL, "-prompt", QUESTION))
        self.assertIn("85", self.weft("run", MODEL, "-p" + QUESTION, "-vt1"))
        self.assertIn("85", self.weft("run", MODEL, "-p=" + QUESTION, "-n=8"))
        for flag, meant in (("-nfoo", ""), ("-tmp", "--temp"), ("-theads", "--threads"),
                            ("-nep", "--ep")):
            said = self.refused("run", MODEL, "-p", "a", flag, "1")
            self.assertIn(f"'weft run' has no flag {flag}.", said)
            self.assertIn(meant, said)
        self.assertIn("has no flag -help-all", self.refused("show", MODEL, "-help-all"))

    def test_values_that_mean_the_same(self):
        context = next(int(entry["value"])
                       for entry in json.loads(self.weft("inspect", MODEL, "--json"))["metadata"]
                       if entry["key"] == "llama.context_length")
        for flags in some((
                      ("-n", "-2"), ("--predict=-2",), ("--top-k", "-1"), ("--top-k=-1",),
                      ("--seed", "-1"), ("-s", "-1", "-n", "8"), ("-dev", "none"), ("-c", "0"),
                      ("--ctx", "auto"), ("--max-model-len", "-1"), ("--max-model-len=auto",),
                      ("--ctx", "0.2k"), ("--ctx", str(context)), ("--presence-penalty", "0.1"),
                      ("--frequency-penalty", "0.1"), ("--generation-config", "vllm"))):
            self.assertIn("85", self.weft("run", MODEL, QUESTION, "--temp", "0", *flags), flags)
        for value, tokens in (("0", context), ("0.1k", 100), ("0.125K", 128), ("128", 128)):
            said = self.refused("run", MODEL, "a " * 2 * context, "--ctx", value)
            self.assertIn(f"--ctx {tokens} leaves no room", said)
        for value in ("k", "1q", "kk", "1e99k", "-2", "-1k", "1.5", "nank"):
            self.assertIn("--ctx", self.refused("run", MODEL, "a", "--ctx", value))
        seeds = {json.loads(self.weft("run", MODEL, "a", "--seed", "-1", "--json"))["seed"]
                 for _ in range(2)}
        self.assertEqual(len(seeds), 2)
        said = json.loads(self.weft("run", MODEL, QUESTION, "--json", "--presence-penalty", "1",
                                    "--frequency-penalty", "2"))
        self.assertIn("presence-penalty 1, frequency-penalty 2", said["sampling"])
        said = self.refused("run", MODEL, "a", "--presence-penalty", "200")
        self.assertIn("--presence-penalty 200", said)

    def test_a_model_without_a_command(self):
        self.cache.add("o", "n-GGUF", {"n-Q8_0.gguf": MODEL})
        (self.folder / "m").mkdir()
        shutil.copy(MODEL, self.folder / "m" / "model.gguf")
        (self.folder / "hf").mkdir()
        (self.folder / "hf" / "config.json").write_text("{}")
        for word in (MODEL, "qwen3:8b", "qwen3-8b:q4_k_m", "o/n-GGUF:Q8_0", "hf:o/n", "m", "./m",
                     "hf", "no/such.gguf", "M.GGUF", "synthetic:qwen3-0.6b", "gpt-oss-120b"):
            for more in some(((), ("hello",), ("--temp", "0")), 3):
                self.assertIn(f"weft run {word}, or weft serve", self.refused(word, *more))
        for words in (("-m", MODEL), ("--model", MODEL, "-p", "a"), ("-hf", "o/n"),
                      ("--model=" + MODEL,)):
            self.assertIn("the command comes first", self.refused(*words))
        (self.folder / "rnu").mkdir()
        self.assertIn("Did you mean 'run'?", self.refused("rnu"))

    def test_commands_that_mean_the_same(self):
        self.assertEqual(self.weft("ls", "--names"), self.weft("list", "--names"))
        self.assertEqual(self.weft("chat", "--help"), self.weft("run", "--help"))
        self.assertIn("Qwen/Qwen3-8B-GGUF", self.refused("download", "qwen3:8b", status=1))
        self.assertEqual(self.weft("tags", "--names"), self.weft("list", "--names"))
        for word, meant in (("generate", "run"), ("cli", "run"), ("info", "show"), ("delete", "rm"),
                            ("finetune", "train"), ("rpc-server", "worker"), ("server", "serve"),
                            ("benchmark", "bench")):
            self.assertEqual(self.weft(word, "--help"), self.weft(meant, "--help"))
        for word in ("login", "status", "logs", "embed", "convert", "imatrix", "upgrade", "whoami"):
            self.assertIn(f"there is no 'weft {word}': ", self.refused(word, "a"))
        version = self.weft("--version")
        for words in (("version",), ("version", "-v"), ("-v",), ("-V",), ("--version", "-v"),
                      ("-version",)):
            self.assertEqual(self.weft(*words), version)


class Units(NamesTest):
    def command(self, *words, **env):
        """The words of the printed unit's command, and the unit."""
        unit = self.weft(*words, "--unit", XDG_CONFIG_HOME=str(self.folder), **env)
        start, = re.findall(r"(?m)^ExecStart=(.*)$", unit)
        return re.findall(r'"([^"]*)"', start)[1:], unit

    def test_only_a_model_becomes_a_path(self):
        shutil.copy(MODEL, self.folder / "abacus")
        for words in (("--name", "abacus"), ("--served-model-name", "abacus"), ("-a", "abacus"),
                      ("--served_model_name=abacus",), ("-name", "abacus"), ("--alias", "abacus")):
            for model in (("abacus",), ("-m", "abacus"), ("--model=abacus",)):
                typed = ("serve", *words, *model, "--restart")
                place = len(words) + len(model)
                expected = list(typed)
                expected[place] = expected[place].replace("abacus", "./abacus")
                self.assertEqual(self.command(*typed)[0], expected)
        for draft in ("--draft", "-md", "--model-draft", "--model_draft"):
            words, _ = self.command("serve", MODEL, draft, "abacus", "--name", "abacus",
                                    "--no-prefix-cache", "--restart")
            self.assertEqual(words[2:6], [draft, "./abacus", "--name", "abacus"])

    def test_models_of_a_file_become_paths(self):
        for name in ("abacus", "small"):
            shutil.copy(MODEL, self.folder / name)
        file = self.folder / "weft.toml"
        for line, words in (('model = "abacus"', ["./abacus"]),
                            ('model = "x=abacus"', ["x=./abacus"]),
                            (f'model = "{MODEL}"', []),
                            ('draft = "small"\nmodel = "abacus"', ["--draft=./small", "./abacus"])):
            file.write_text(line + "\n")
            typed = ["--config", "weft.toml", "--restart"]
            self.assertEqual(self.command("serve", *typed)[0], ["serve", *words, *typed])

    def test_no_password_is_in_a_unit(self):
        secrets = {name: "https://me:secret@h:1" for name in
                   ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "http_proxy", "HF_ENDPOINT")}
        secrets["all_proxy"] = "me:secret@h:1"
        _, unit = self.command("serve", MODEL, "--restart", HF_HUB_CACHE="/a@b", **secrets)
        self.assertNotIn("secret", unit)
        self.assertIn('"HF_HUB_CACHE=/a@b"', unit)
        _, unit = self.command("serve", MODEL, "--restart", HTTPS_PROXY="http://h:1")
        self.assertIn('"HTTPS_PROXY=http://h:1"', unit)

    def test_folders_are_one_word(self):
        key = self.folder / "key"
        key.touch(0o600)
        key.write_text("a-shared-key-of-the-tests")
        for name in ("models", "runs"):
            (self.folder / name).mkdir()
        up = ("up", "--key-file", str(key), "--folders")
        words, _ = self.command(*up, "models,runs")
        self.assertEqual(words[-2:], ["--folders", "models,runs"])
        said = self.refused(*up, "models", "runs", "--unit")
        self.assertIn("excludes --key-file", said)


class FilesOfFlags(NamesTest):
    def run_with(self, text, *words, status=0):
        (self.folder / "weft.toml").write_text(text)
        return self.weft("run", "--config", str(self.folder / "weft.toml"), "-p", "1+1", "-n", "2",
                         *words, status=status)

    def test_the_line_overrides_the_file(self):
        self.run_with('model = "absent.gguf"\nthreads = 1\nseed = 7\n', MODEL, "-t", "1")
        for words in (("-t", "1"), ("-t1",), ("--threads=1",), ("-vt", "1"), ("-vt1",)):
            self.run_with(f'model = "{MODEL}"\nthreads = 0.5\n', *words)
        # The 1 is the value of -t, not a model.
        self.assertIn("absent.gguf", self.run_with('model = "absent.gguf"\n', "-t", "1", status=1))

    def test_what_is_off(self):
        file = self.folder / "weft.toml"
        file.write_text(f'model = "{MODEL}"\nwarmup = false\npower = false\n')
        bench = ("bench", "--config", str(file), "-p", "4", "-n", "1", "-r", "1")
        self.weft(*bench)
        file.write_text(f'model = "{MODEL}"\nwramup = false\n')
        self.assertIn("has no flag --wramup", self.weft(*bench, status=2))


    def test_a_hash_in_a_text_is_no_comment(self):
        for line in ('stop = "a#b"  # a comment', "stop = 'a#b'", 'stop = ["a#b", "c#d"]  # "'):
            self.run_with(f'model = "{MODEL}"\nthreads = 1  # a number\n# {line}\n{line}\n')
        (self.folder / "weft.toml").write_text(f'model = "{MODEL}"\ntext = "a # b" # c\n')
        said = self.weft("tokenize", "--config", str(self.folder / "weft.toml"), "--no-bos",
                         "--json")
        self.assertEqual("".join(json.loads(said)["pieces"]).strip(), "a # b")

    def test_strings_and_lists(self):
        file = self.folder / "weft.toml"
        for value, text in ((r'"a \"b\"\n\u0041"', 'a "b"\nA'), (r"'a \n'", r"a \n"),
                            ("a, b c  # d", "a, b c"), ('"a\tb"', "a\tb"),
                            ("[\n  # c\n  'x y',\n]", "x y")):
            file.write_text(f'\ufeff; a comment\nmodel = "{MODEL}"\r\n"text" = {value}\nno-bos\n')
            said = self.weft("tokenize", "--config", str(file), "--json")
            self.assertEqual("".join(json.loads(said)["pieces"]).strip(" "), text)
        said = self.weft("run", MODEL, "-p", "What is 25 + 3?", "--greedy")
        self.assertEqual(said, "28\n")
        file.write_text(f'model = "{MODEL}"\nstop = [\n"x",  # c\n"8" ]\ngreedy\n')
        said = self.weft("run", "--config", str(file), "-p", "What is 25 + 3?")
        self.assertEqual(said, "2\n")
        for line, fault in (("text = ", "the value is missing"), ('text = "a', "has no end"),
                            (r'text = "\q"', "unknown escape"), ('text = "a" b', "the line's end"),
                            ('text = ["a" "b"]', "',' or ']'"), ('text = ["a",', "no ']'"),
                            ("[serve]", "no [tables]")):
            file.write_text(f"\n{line}\n")
            said = self.refused("tokenize", MODEL, "--config", str(file))
            self.assertRegex(said, "weft.toml: line [23]: .*" + re.escape(fault))

    def test_numbers(self):
        for number, seed in (("8_192", 8192), ("1_2_3", 123), ("08", 8)):
            said = self.run_with(f'model = "{MODEL}"\nseed = {number}\n', "--json")
            self.assertEqual(json.loads(said)["seed"], seed)
        for number in ("1__2", "_1", "1_", '"1_2"', "1_k"):
            said = self.run_with(f'model = "{MODEL}"\nseed = {number}\n', status=2)
            self.assertIn("--seed", said)

    def test_one_file_in_all(self):
        other = self.folder / "other.toml"
        other.write_text("threads = 1\n")
        self.assertIn("names another file of flags", self.run_with(
            f'model = "{MODEL}"\n', "--config", str(other), status=2))
        self.assertIn("names another file of flags", self.run_with(
            f'model = "{MODEL}"\nconfig = "{other}"\n', status=2))


class Values(NamesTest):
    def test_a_value_may_look_like_a_flag(self):
        for text in ("--help", "-h", "--json", "--no_bos", "--config", "-n=4", "--x=", "-5", "--"):
            for words in (("--text", text), (f"--text={text}",)):
                said = json.loads(self.weft("tokenize", MODEL, *words, "--no-bos", "--json"))
                self.assertEqual("".join(said["pieces"]).strip(), text)
        said = self.weft("tokenize", MODEL, "--text", "--json")
        self.assertRegex(said, r"\d tokens\n$")
        # An error beside such a value is a line of text.
        self.refused("run", MODEL, "-p", "--json", "--kv-dtype", "x")
        # The flag's other names, and a group of short flags.
        for words in (("--prompt", "--json"), ("-p", "--prefill_chunk"), ("-vp", "--threads")):
            self.refused("run", MODEL, *words, "-n", "2", "--seed", "x")

    def test_a_leading_zero_is_no_octal_number(self):
        said = self.weft("run", MODEL, "-p", "a", "-n", "01", "--seed", "010", "--json")
        self.assertEqual((json.loads(said)["seed"], len(json.loads(said)["tokens"])), (10, 1))
        self.weft("run", MODEL, "-p", "a", "-n", "1", "--ctx", "0128")
        self.assertIn("--seed: '1_0'", self.refused("run", MODEL, "-p", "a", "--seed", "1_0"))
        said = self.refused("serve", MODEL, "--max-body-size", "00", "--port", "0")
        self.assertIn("--max-body-size: '0': expected", said)

    def test_flags_without_effect(self):
        for words, said in ((("inspect", MODEL, "--tp", "2"), "--tp requires --program"),
                            (("inspect", MODEL, "--devices"), "--devices"),
                            (("doctor", "--real-names"), "--real-names requires --save"),
                            (("doctor", "--markdown"), "--markdown requires --list"),
                            (("submit", "--to", "slurm", "--port", "1", "--", "run", "m"),
                             "--port needs --to k8s, ssh")):
            self.assertIn(said, self.refused(*words))

    def test_a_trace_holds_one_configuration(self):
        trace = self.folder / "trace.json"
        bench = ("bench", MODEL, "-p", "4", "-n", "0", "-r", "1", "-t", "1", "--trace", str(trace))
        self.assertIn("one value of each", self.refused(*bench, "--pp", "1,2"))
        self.weft(*bench)
        self.assertTrue(json.loads(trace.read_text())["traceEvents"])

    def test_a_context_without_a_scored_token(self):
        (self.folder / "text").write_text("What is 25 + 3? 28\n" * 20)
        for ctx in ("1", "3"):
            said = self.refused("perplexity", MODEL, "text", "--ctx", ctx)
            self.assertIn(f"--ctx {ctx}: expected 4 or more", said)

    def test_days_of_a_duration(self):
        for time in ("11000:00:00:00", "1:00:00:00", "2-12", "2-12:30", "2-12:30:10", "4:00:00"):
            said = self.refused("run", MODEL, "-p", "a", "--wait", time, "--kv-dtype", "x")
            self.assertNotIn("--wait", said)
        for time in ("12000:00:00:00", "1:1:1:1:1", "2-", "-2", "2-1:1:1:1", "1:-1", "1:2-3"):
            self.assertIn("--wait", self.refused("run", MODEL, "-p", "a", "--wait", time))


class Misspelt(NamesTest):
    def test_commands(self):
        for word, meant in (("rnu", "run"), ("srve", "serve"), ("bnech", "bench"),
                            ("qauntize", "quantize"), ("Run", "run"), ("lsit", "list")):
            said = self.refused(word, MODEL, "-p", "a")
            self.assertIn(f"no command '{word}'", said)
            self.assertIn(f"Did you mean '{meant}'?", said)
        self.assertIn("Did you mean 'allreduce'?", self.refused("net", "allredcue"))
        for word in ("x", "", "zebra", "\x1b[2J", "é" * 3000):
            said = self.refused(word)
            self.assertNotIn("Did you mean", said)

    def test_flags(self):
        for flag, meant in (("--tpp", "--tp"), ("--tpp=2", "--tp"), ("--transprot", "--transport"),
                            ("--promt", "--prompt"), ("--ignore-oes", "--ignore-eos")):
            said = self.refused("run", MODEL, "-p", "a", flag, "2")
            self.assertIn(f"Did you mean '{meant}'?", said)
            self.assertIn("'weft run' has no flag", said)
        self.assertNotIn("Did you mean", self.refused("run", MODEL, "--zebra-crossing"))
        # Common dashes do not count as similarity.
        self.assertNotIn("Did you mean", self.refused("perplexity", MODEL, "--file", "x"))
        self.assertIn("Did you mean '--version'?", self.refused("--verison"))
        self.assertIn("further word: 'more'", self.refused("tokenize", MODEL, "more"))

    def test_values(self):
        said = self.refused("run", MODEL, "-p", "a", "--transport", "tpc")
        self.assertIn("Did you mean 'tcp'?", said)
        self.assertIn("shm", said)
        said = self.refused("run", MODEL, "-p", "a", "--allreduce-dtype", "bf61")
        self.assertIn("Did you mean 'bf16'?", said)
        self.assertNotIn("Did you mean", self.refused("run", MODEL, "-p", "a", "--allreduce-dtype",
                                                      "zebra"))
        said = self.refused("run", MODEL, "-p", "a", "-n", "abc")
        self.assertIn("-n: 'abc': expected a whole number", said)
        said = self.refused("run", MODEL, "-p", "a", "-n", "-3")
        self.assertIn("-n: '-3': expected -1 to 1073741824", said)

    def test_errors_name_what_was_typed(self):
        for words, expected in (
                (("-n", "1", "-n", "2"), "-n: given 2 times; expected once. Keep one of them."),
                (("-n1", "--predict=2"),
                 "--predict and -n: names of one flag, given 2 times; expected once."),
                (("--temperature", "1", "--temp", "2"), "--temp and --temperature: names of one"),
                (("--max_tokens", "x"), "--max_tokens: 'x': expected a whole number"),
                (("-n",), "-n: the value is missing; expected -1 to 1073741824"),
                (("-t", "0"), "-t: '0': expected 1 to 1024"),
                (("--local", "1.5"), "--local: '1.5': expected a whole number"),
                (("--local="), "--local: the value is missing; expected 1 to 256"),
                (("-n", "1e3"), "-n: '1e3': expected a whole number"),
                (("--tp", "9999999999"), "--tp: '9999999999': expected 1 to 4096"),
                (("--tp", "9" * 30), f"--tp: '{'9' * 30}': expected 1 to 4096"),
                (("--seed", "x"), "--seed: 'x': expected a whole number"),
                (("--seed", "inf"), "--seed: 'inf': expected a whole number"),
                (("--seed", "-1.5"), "--seed: '-1.5': expected a whole number"),
                (("--seed", "9" * 20),
                 f"--seed: '{'9' * 20}': expected 0 to 18446744073709551615"),
                (("-n=x",), "-n: 'x': expected a whole number"),
                (("--temp", "x"), "--temp: 'x': expected a number"),
                (("--temp", "inf"), "--temp: 'inf': expected a finite number"),
                (("--temp", "1", "--temperature", "x"), "--temperature: 'x': expected a number"),
                (("--temperature=x", "--temp", "1"), "--temperature: 'x': expected a number"),
                (("-n", "1", "--predict", "x"), "--predict: 'x': expected a whole number"),
                (("--ctx", "9q"), "--ctx: '9q': expected tokens, as 4096, 8k or auto"),
                (("--ctx",), "--ctx: the value is missing; expected tokens, as 4096, 8k or auto"),
                (("--weights-from", "1"), "--weights-from: '1': expected 0."),
                (("--layers", "0"), "--layers: '0': expected 1 to 4096"),
                (("--transport",), "--transport: the value is missing; expected one of auto, shm"),
                (("--lora",), "--lora: the value is missing; expected DIR"),
                (("--weights-from",), "--weights-from: the value is missing; expected 0."),
                (("--json=abc",), "--json: expected no value")):
            words = (words,) if isinstance(words, str) else words
            self.assertIn(f"weft: error: {expected}", self.refused("run", MODEL, *words))
        for words, expected in (
                (("serve", MODEL, "--max-body-size", "1Q"),
                 "--max-body-size: '1Q': expected a size, as 4096, 16KB or 2MB"),
                (("serve", MODEL, "--max-body-size"),
                 "--max-body-size: the value is missing; expected a size, as 4096, 16KB or 2MB"),
                (("train", MODEL, "--data", "x", "--ep", "9999999999"),
                 "--ep: '9999999999': expected -2147483648 to 2147483647"),
                *((("train", MODEL, "--data", "x", "--sequence-parallel", word),
                   f"--sequence-parallel: '{word}': expected on or off")
                  for word in ("maybe", "yes", "enable", "true", "7", "ON")),
                *((("train", MODEL, "--sequence-parallel", word),
                   "'weft train': --data is missing") for word in ("on", "off", "1", "0")),
                (("pull", "a", "--cacert", "/no/file"), "--cacert: '/no/file': no such file"),
                (("pull", "a", "--cacert", "/" + "x" * 300),
                 f"--cacert: '/{'x' * 300}': File name too long"),
                (("pull", "a", "--cacert", "/"), "--cacert: '/' is a folder; expected a file"),
                (("train", MODEL), "'weft train': --data is missing"),
                (("quantize", "a", "b"), "'weft quantize': TYPE is missing"),
                (("job",), "'weft job' needs a command: ")):
            self.assertIn(f"weft: error: {expected}", self.refused(*words))

    def test_help_names_ranges(self):
        text = self.weft("run", "--help")
        self.assertIn("--local INT:1..256", text)
        self.assertIn("--weights-from INT:0 ", text)
        self.assertIn("local ranks take the GPUs of that kind in turn", text)
        for page in (self.weft("man", "run"), self.weft("man", "serve")):
            self.assertIn("Accepts 1 to 256", page)
            self.assertRegex(page, r"\\-\\-weights\\-from.*\n.*\. Accepts 0\n")

    def test_in_any_locale(self):
        for locale in ("C", "C.UTF-8", "tr_TR.UTF-8", "nonsense"):
            said = self.weft("rnu", status=2, LC_ALL=locale)
            self.assertIn("Did you mean 'run'?", said)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
