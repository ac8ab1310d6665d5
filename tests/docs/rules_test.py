#!/usr/bin/env python3
"""Tests the tests of the documents: breaks each rule once and expects a report.

Usage: rules_test.py WEFT
"""
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

import commands_test
import flags_test
import help_flags
import links_test
import messages_test
import pages

WEFT = sys.argv.pop(1)
KNOWN = help_flags.Help(WEFT)
ROOT = pathlib.Path(__file__).parents[2]


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


class Flags(Folder):
    def wrong(self, text):
        self.write("README.md", text)
        return flags_test.faults(self.root, KNOWN)[1]

    def test_takes_what_is_right(self):
        self.assertEqual([], self.wrong(
            "`weft serve MODEL --host 0.0.0.0` and `--local 2`\n"
            "```sh\ngit diff | build/weft run m.gguf --chat -p 'Say --what' -n 4 > out  # --no\n"
            "weft net --local 2\nweft serve m.gguf --port \\\n    8080 --local 2\n"
            "weft train M --data F --output_dir D; weft run M -p x --trace t.json\n"
            "weft train data inspect M --data F && weft key new alice --rate 6 >> keys\n```\n"))

    def test_unknown_flag_of_a_block(self):
        self.assertIn("--hostz", self.wrong("```sh\nweft run m --hostz a\n```\n")[0])

    def test_flag_of_another_command(self):
        self.assertIn("--drain-ms", self.wrong("```bash\nweft run m --drain-ms 3\n```\n")[0])

    def test_unknown_command(self):
        self.assertIn("unknown: sreve", self.wrong("`weft sreve MODEL`")[0])

    def test_unknown_flag_of_a_transcript(self):
        self.assertIn("-q", self.wrong("```text\n$ weft run m -q\nweft run x --zz\n```\n")[0])

    def test_unknown_flag_in_a_sentence(self):
        self.assertIn("--tensor-ranks", self.wrong("Take `--tensor-ranks 2`.")[0])


class Markers(unittest.TestCase):
    def read(self, marker):
        return pages.blocks("p.md", f"Text.\n\n{marker}\n```sh\nweft run m\n```\n")[0]

    def test_reason(self):
        self.assertEqual("two hosts", self.read("<!-- not run: two hosts -->").reason)

    def test_goes_on(self):
        self.assertTrue(self.read("<!-- goes on -->").goes_on)

    def test_none(self):
        self.assertEqual("", self.read("").reason)

    def test_missing_reason(self):
        for marker in ("<!-- not run -->", "<!-- not run: -->", "<!-- skip: two hosts -->"):
            with self.assertRaises(pages.BadMarker):
                self.read(marker)

    def test_of_another_language(self):
        with self.assertRaises(pages.BadMarker):
            self.read("<!-- printed -->")

    def test_place(self):
        self.assertEqual("p.md:5", self.read("").place)


class Commands(unittest.TestCase):
    def setUp(self):
        self.runner = commands_test.Runner(WEFT, ROOT, None)
        self.addCleanup(self.runner.kit.close)

    def run_page(self, text):
        self.runner.page("p.md", text)
        return self.runner.wrong

    def test_runs_in_one_folder(self):
        self.assertEqual([], self.run_page(
            "```sh\nweft tokenize MODEL --text Hi > tokens   # a file\ntest -s tokens\n```\n"
            "```sh\ntest ! -e tokens\n```\n<!-- goes on -->\n```sh\ntest ! -e tokens\n```\n"))
        self.assertEqual(4, self.runner.ran)

    def test_compares_what_is_printed(self):
        text = "```sh\nprintf 'one\\ntwo\\nthree\\n'\n```\n\n<!-- printed -->\n```text\n{}\n```\n"
        self.assertEqual([], self.run_page(text.format("one\n...\nthree")))
        self.assertEqual(["p.md:8: this is not printed: two"],
                         self.run_page("\n" + text.format("three\ntwo")))

    def test_sees_what_fails(self):
        wrong = self.run_page("```sh\nweft tokenize nothing.gguf --text Hi\ntrue\n```\n")
        self.assertIn("p.md:2: 'weft tokenize nothing.gguf", wrong[0])
        self.assertEqual(0, self.runner.ran)  # later lines are not run

    def test_sees_what_fails_in_a_pipe(self):
        self.assertEqual(1, len(self.run_page("```sh\nfalse | true\n```\n")))

    def test_sees_what_takes_too_long(self):
        self.runner.seconds = 0.2
        self.assertIn("takes more than", self.run_page("```sh\nsleep infinity & wait\n```\n")[0])

    def test_serves(self):
        self.assertEqual([], self.run_page(
            "```sh\nweft serve model.gguf &\n```\n<!-- goes on -->\n```sh\n"
            "curl -s http://127.0.0.1:8080/v1/models\n```\n"))
        self.assertEqual(2, self.runner.ran)

    def test_serves_with_a_second_machine(self):
        self.assertEqual([], self.run_page(
            "```sh\nweft worker --listen 0.0.0.0:7000 --key-file KEY   # there\n"
            "weft run MODEL --hosts second:7000 --key-file KEY -p Hi -n 2\n```\n"))
        self.assertEqual(2, self.runner.ran)

    def test_sees_a_servers_error(self):
        self.assertEqual(1, len(self.run_page(
            "```sh\nweft serve model.gguf\ncurl -s http://127.0.0.1:8080/v1/completions -d '{}'\n"
            "```\n")))

    def test_counts_what_lacks_a_program(self):
        with unittest.mock.patch.dict(commands_test.kit.PROGRAMS, {"mpirun": "no-mpirun"}):
            self.assertEqual([], self.run_page("```sh\nmpirun -n 2 weft run MODEL\ntrue\n```\n"))
        self.assertEqual((1, {"no no-mpirun here": ["p.md:2"]}),
                         (self.runner.ran, self.runner.reasons))

    def test_counts_what_lacks_a_package(self):
        self.runner.kit.packages = "there"
        with unittest.mock.patch.object(commands_test, "nightly", lambda: True):
            self.assertEqual([], self.run_page(
                "<!-- goes on -->\n```python\nimport no_such_package\n```\n"))
        self.assertEqual({"no Python package no_such_package here": ["p.md:3"]},
                         self.runner.reasons)

    def test_sees_a_server_that_ends(self):
        self.assertIn("the process ended with status",
                      self.run_page("```sh\nweft serve nothing.gguf\n```\n")[0])

    def test_counts_what_is_not_run(self):
        self.assertEqual([], self.run_page("<!-- not run: a card -->\n```sh\nfalse\nfalse\n```\n"))
        self.assertEqual((0, 2, {"a card": ["p.md:3"]}),
                         (self.runner.ran, self.runner.read, self.runner.reasons))


class Links(Folder):
    def test_links(self):
        self.write("docs/a.md", "# A page\n```sh\n# not one\n```\n## What `x` is, (2)\n")
        text = ("[a](docs/a.md) [b](docs/a.md#what-x-is-2) [c](https://x.org/y)\n"
                "[d](docs/b.md) [e](docs/a.md#not-one) [f](#here)\n# Here\n")
        self.write("README.md", text)
        self.assertEqual((6, ["README.md: no file for the link docs/b.md",
                              "README.md: no heading for the link docs/a.md#not-one"]),
                         links_test.link_faults(self.root, "README.md", text))

    def test_paths(self):
        files = ["src/net/link.h", "tests/net/link_test.cc"]
        text = ("`net/link.h` tests/net/link_test.cc, `src/NAME/x.cc`, ~/net/link.cc and\n"
                "(tests/net/no_test.cc)\n```\nnet/no.h\n```\n")
        self.assertEqual((3, ["p.md:2: there is no tests/net/no_test.cc"]),
                         links_test.path_faults("p.md", text, files))


class Messages(Folder):
    SAID = {"\0: no data from \0 within \0 ms. Is it alive?"}

    def test_quotation(self):
        self.assertTrue(messages_test.is_said("no data from ... within ... ms. Is it", self.SAID))
        self.assertFalse(messages_test.is_said("no data of ... within ... ms. Is it", self.SAID))

    def test_faults(self):
        text = ("```text\nno data from ... within ...\nno data came from ... within ...\n"
                "a wholly different complaint\n... ms\n```\n")
        count, wrong, reworded = messages_test.quotation_faults("p.md", text, self.SAID)
        self.assertEqual(4, count)
        self.assertEqual(1, len(reworded))
        self.assertIn("p.md:3: the message was reworded", reworded[0])
        self.assertIn("p.md:4: no source has", wrong[0])
        self.assertIn("p.md:5: too little", wrong[1])

    def test_sources(self):
        self.write("src/x.cc", '// "not this one, said nowhere"\n'
                               'Error("one \\"{}\\" of "\n      "{:.2f} GB is here");\n')
        self.assertEqual({'one "\0" of \0 GB is here'}, messages_test.messages(self.root))

    def test_codes(self):
        self.write("src/serve/a.cc", 'Send({429, "words, words", "", "too_many"});\n')
        self.write("docs/api.md", "| 429 | `too_few` |")
        self.assertEqual((1, ["docs/api.md does not name the code too_many"]),
                         messages_test.code_faults(self.root))

    def test_checks(self):
        self.write("docs/doctor.md", "### memlock\n")
        self.assertEqual(1, len(messages_test.check_faults(
            self.root, "weft doctor --check memlock,memlok")[1]))


if __name__ == "__main__":
    unittest.main()
