"""Real weights: the model of models/abacus answers questions outside its training data, the same in
every layout.

    abacus_test.py WEFT FOLDER [UNITTEST ARGUMENT...]
"""
import hashlib
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

WEFT, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
MODEL = str(FOLDER / "model.gguf")
LAYOUTS = (["--local", "2", "--tp", "2", "-t", "1"], ["--local", "2", "--pp", "2", "-t", "1"])


# Least percentage of correct answers: of all questions, and of each kind.
LEAST, LEAST_OF_A_KIND = 98, 93


def load(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


exam = load("exam")


def share(records, answers, kind=None):
    """Percentage of right answers to questions of this kind; without a kind, to all questions."""
    asked = [(record["answer"], answer) for record, answer in zip(records, answers)
             if kind in (None, record["kind"])]
    return 100 * sum(right == answer for right, answer in asked) / len(asked)


def weft(*words):
    done = subprocess.run([WEFT, *words], capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise AssertionError(f"weft {' '.join(words)}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


class Data(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        subprocess.run([sys.executable, FOLDER / "make_data.py", cls.path, "--count", "20000"],
                       check=True, capture_output=True, timeout=120)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_the_same_arguments_write_the_same_bytes(self):
        digest = hashlib.sha256((self.path / "train.jsonl").read_bytes()).hexdigest()
        self.assertEqual(digest, "19b0edee48b7710819b2daa022767f774322d3bf78382702c308dbdf0c374b21")
        self.assertEqual((self.path / "held-out.jsonl").read_bytes(),
                         (FOLDER / "held-out.jsonl").read_bytes())

    # Compares only the numbers and words of a question, whatever it asks about them.
    def test_what_is_held_out_is_not_in_the_training_data(self):
        def thing(record):
            words = re.findall(r"[0-9]+|\b[A-Z]{3,}\b", record["question"])
            return record["kind"] if record["kind"] == "neighbour" else "", tuple(sorted(words))

        train = exam.read_questions(self.path / "train.jsonl")
        held = exam.read_questions(FOLDER / "held-out.jsonl")
        texts = {record["question"].lower().rstrip(".?= ") for record in train}
        by_thing = {kind: {thing(record) for record in train if record["kind"] == kind}
                    for kind in {record["kind"] for record in train}}
        for record in held:
            self.assertNotIn(record["question"].lower().rstrip(".?= "), texts)
            if record["kind"] != "multiply":
                self.assertNotIn(thing(record), by_thing[record["kind"]], record)

    def test_the_answers_are_right(self):
        operators = {"+": int.__add__, "-": int.__sub__, "x": int.__mul__, "*": int.__mul__}
        checked = 0
        for record in exam.read_questions(FOLDER / "held-out.jsonl"):
            found = re.search(r"(\d+) ([-+x*]) (\d+)", record["question"])
            numbers = sorted(int(n) for n in re.findall(r"\d+", record["question"]))
            if found:
                expected = operators[found[2]](int(found[1]), int(found[3]))
                self.assertEqual(record["answer"], str(expected), record)
            elif record["kind"].startswith("sort"):
                numbers = numbers[::-1] if record["kind"] == "sort down" else numbers
                self.assertEqual(record["answer"], ", ".join(map(str, numbers)), record)
            elif record["kind"] == "reverse":
                self.assertIn(record["answer"][::-1], record["question"])
            else:
                continue
            checked += 1
        self.assertGreater(checked, 200)


class Exam(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.records = exam.read_questions(FOLDER / "held-out.jsonl")
        cls.answers = exam.ask_all(WEFT, MODEL, cls.records, ["-t", "2"])

    def test_98_of_100_are_right(self):
        self.assertGreaterEqual(share(self.records, self.answers), LEAST)
        for kind in {record["kind"] for record in self.records}:
            self.assertGreaterEqual(share(self.records, self.answers, kind), LEAST_OF_A_KIND, kind)

    def test_layouts_answer_alike(self):
        some = slice(0, None, 4)
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                answers = exam.ask_all(WEFT, MODEL, self.records[some], layout)
                # (A tie of two logits may fall either way: sums are taken in another order.)
                alike = sum(a == b for a, b in zip(answers, self.answers[some]))
                self.assertGreaterEqual(alike, len(answers) - 1)

    def test_a_quantized_copy_answers_nearly_as_well(self):
        with tempfile.TemporaryDirectory() as folder:
            small = str(pathlib.Path(folder) / "q8.gguf")
            weft("quantize", MODEL, small, "Q8_0")
            some = self.records[::2]
            self.assertGreaterEqual(share(some, exam.ask_all(WEFT, small, some, ["-t", "2"])), 97)

    def test_a_chat_answers_the_last_question_alone(self):
        server, address = exam.serve(WEFT, MODEL, ["-t", "1"])
        try:
            turns = [{"role": "system", "content": "Be kind."},
                     {"role": "user", "content": "What is 20 + 22?"},
                     {"role": "assistant", "content": "42"},
                     {"role": "user", "content": "Sort 31, 7, 15."}]
            reply = exam.post(address + "/v1/chat/completions",
                              {"messages": turns, "temperature": 0, "max_tokens": 32})
        finally:
            server.terminate()
            server.communicate()
        self.assertEqual(reply["choices"][0]["message"]["content"], "7, 15, 31")

    def test_run_answers_what_quickstart_asks(self):
        done = weft("run", MODEL, "--greedy", "-p", "What is 47 + 38?", "-n", "16", "--local", "2",
                    "--tp", "2", "-t", "1", "--json")
        self.assertEqual(json.loads(done)["text"].strip(), "85")


class Files(unittest.TestCase):
    def test_the_model_is_small(self):
        self.assertLessEqual(pathlib.Path(MODEL).stat().st_size, 8_000_000)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
