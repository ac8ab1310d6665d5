"""Checks cmake/protocol_files.txt: it names every file that defines bytes for other processes,
and the hash of these files changes only with their code.

    protocol_test.py
"""

import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIST = "cmake/protocol_files.txt"

# Folders whose code talks to other processes of a cluster.
FOLDERS = ("net", "coll", "cluster", "fabric", "fleet", "engine", "train")
MARKS = {
    "defines a class that writes or reads fields": re.compile(
        r"^class \w*(?:Writer|Reader|Cursor)\b", re.MULTILINE),
    "defines or declares a function that encodes or decodes": re.compile(
        r"^(?:[\w:<>,&*]+ )+\*?(?:[\w:]+::)?((?:Encode|Decode|Pack|Unpack)(?:[A-Z]\w*)?"
        r"|\w*(?:ToJson|FromJson))\(", re.MULTILINE),
    "checks the layout of a struct": re.compile(
        r"static_assert\((?:offsetof|sizeof\([A-Z]\w+\) [=<]=)"),
}
# They match, but write no data that ranks exchange. A folder ends with a slash.
LOCAL = {
    "src/engine/generate.cc": "reads text of tokens",
    "src/engine/page_store/": "files, with a version of their own",
    "src/train/best_step.cc": "a part of checkpoints' files",
    "src/train/checkpoint/": "files, with a version of their own",
    "src/train/data/": "training data in files and in memory",
    "src/train/log/": "files",
}
# Not found by the marks: ops and data types, whose numbers and names are in messages.
OPS = ("src/program/op_row.h", "src/program/ops.h", "src/program/update.h", "src/tensor/dtype.h")


def listed(root=ROOT):
    lines = (root / LIST).read_text().splitlines()
    return [line for line in lines if not line.startswith("#")]


def marks_of(text):
    return [what for what, mark in MARKS.items() if mark.search(text)]


class ListTest(unittest.TestCase):
    def test_it_is_sorted_and_true(self):
        names = listed()
        self.assertEqual(names, sorted(set(names)))
        for name in names:
            self.assertTrue((ROOT / name).is_file(), name)
        for name in OPS:
            self.assertIn(name, names)

    def test_every_file_that_belongs_there(self):
        names = set(listed())
        missing = []
        for folder in FOLDERS:
            for path in sorted((ROOT / "src" / folder).rglob("*")):
                name = path.relative_to(ROOT).as_posix()
                local = any(name.startswith(place) for place in LOCAL)
                if path.suffix not in (".h", ".cc") or name in names or local:
                    continue
                missing += [f"{name} {what}: add it to {LIST}, or to LOCAL here with the reason"
                            for what in marks_of(path.read_text())]
        self.assertEqual(missing, [])

    def test_a_new_file_would_be_found(self):
        for text in ("class WordWriter {\n", "class Reader final {\n",
                     "std::string EncodeThing(const Thing& thing);\n",
                     "Result<Thing> DecodeThing(View bytes) {\n",
                     "Bytes Encode(const Thing& t) {\n",
                     "std::string Tuning::ToJson() const {\n",
                     "Result<Job> JobFromJson(const std::string& text);\n",
                     "static_assert(sizeof(Head) == 64);\n",
                     "static_assert(offsetof(Head, host) == 16);\n"):
            self.assertTrue(marks_of(text), text)
        for text in ("    writer.Encode(thing);\n", "int64_t Decoded(int64_t n) {\n",
                     "// class Reader\n", "static_assert(sizeof(T) == 1);\n"):
            self.assertFalse(marks_of(text), text)

    # cmake/protocol_hash.cmake does not handle them.
    def test_no_raw_strings(self):
        for name in listed():
            self.assertNotRegex((ROOT / name).read_text(), r'\bR"', name)


class HashTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in (LIST, *listed()):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)
        self.out = self.root / "hash.cc"
        self.before = self.hash()

    def hash(self):
        subprocess.run(["cmake", f"-DROOT={self.root}", f"-DOUT={self.out}", "-P",
                        ROOT / "cmake/protocol_hash.cmake"], check=True, capture_output=True)
        return re.search(r'return "([0-9a-f]{12})";', self.out.read_text())[1]

    def after(self, name, old, new):
        path = self.root / name
        text = path.read_text()
        self.assertIn(old, text, name)
        path.write_text(text.replace(old, new, 1))
        try:
            return self.hash()
        finally:
            path.write_text(text)

    def of(self, text):
        """The hash with `text` in a listed file."""
        (self.root / "src/cluster/worker/admission_listener.h").write_text(text)
        return self.hash()

    def test_code_counts(self):
        for name, old, new in (
                ("src/cluster/frame.h", "kProtocol = ", "kProtocol = 1"),
                ("src/cluster/frame.cc", "m.first, m.busiest", "m.busiest, m.first"),
                ("src/program/ops.h", "int64_t first_row", "int32_t first_row"),
                ("src/program/ops.h", '"rms_norm"', '"rms_normal"'),
                ("src/engine/job.cc", '"threads"', '"thread"'),
                ("src/tensor/dtype.h", "enum class DType", "enum class DType : int")):
            self.assertNotEqual(self.after(name, old, new), self.before, (name, old))
        self.assertEqual(self.hash(), self.before)

    def test_comments_and_white_space_do_not(self):
        written = self.out.stat().st_mtime_ns
        for name in listed():
            text = (self.root / name).read_text()
            (self.root / name).write_text(
                "// It's \"new\" [x; y] \\ ${z}.\n/* as\n * this ** is; \" ' */\n\n"
                + text.replace("\n", " // but not that \" one'\n\n\t", 1).replace(";\n", " ;\n\n"))
        self.assertEqual(self.hash(), self.before)
        self.assertEqual(self.out.stat().st_mtime_ns, written, "a build would compile it again")

    def test_what_looks_like_a_comment(self):
        code = 'auto a = "http://x/*y*/"; char b = \'"\'; char c = \'\\\'\'; int d = 1\'000\'000;'
        same = self.of(code)
        self.assertEqual(self.of(code + " // end"), same)
        self.assertEqual(self.of(code.replace("; ", ";/* ' */ ")), same)
        for old, new in (("//x", "//z"), ("*y*", "*z*"), ("'\"'", "'/'"), ("\\\\'", "\\\\n"),
                         ("1'000'000", "1'000'001"), ("int d", "int e")):
            self.assertNotEqual(self.of(code.replace(old.replace("\\\\", "\\"),
                                                     new.replace("\\\\", "\\"))), same, old)


if __name__ == "__main__":
    unittest.main()
