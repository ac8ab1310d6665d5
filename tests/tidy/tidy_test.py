#!/usr/bin/env python3
"""Breaks each rule of tidy.py once in a made-up tree and expects a report; a clean tree passes."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

import tidy

TIDY = pathlib.Path(__file__).with_name("tidy.py")
CONTRACT = "// What this header is for, said in one line of some length.\n#pragma once\n"


class Tidy(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        self.libraries = "weft_library(base fmt::fmt)\nweft_library(net weft_base rt)\n"
        self.put("src/CMakeLists.txt", self.libraries)
        self.put("src/base/a.h", CONTRACT)
        self.put("src/net/b.cc", '#include "base/a.h"\n\nvoid F() {\n    G();\n}\n')

    def put(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run_tidy(self):
        done = subprocess.run([sys.executable, TIDY, self.root], capture_output=True, text=True)
        return done.returncode, done.stdout

    def expect(self, name, text, report):
        self.put(name, text)
        status, out = self.run_tidy()
        self.assertEqual(status, 1, out)
        self.assertIn(f"{name}:{report}", out)

    def test_clean(self):
        status, out = self.run_tidy()
        self.assertEqual(status, 0, out)
        self.assertIn("3 files, 0 places", out)

    def test_layers(self):
        self.expect("src/base/c.cc", '#include "net/b.h"\n', "1: base/ includes net/, which its")
        self.expect("src/base/c.cc", '\n#include "odd/b.h"\n', "2: base/ includes odd/")
        self.expect("src/odd/c.cc", "int x;\n", "1: folder src/odd is not among")

    def test_families(self):
        report = "1: compares an architecture's name"
        for code in ('if (h.architecture == "gemma3") F();', 'x = arch.architecture() != "llama";',
                     'return architecture.starts_with("gemma");',
                     'if (model.type == "phi3") F();', 'if (f.model_type.starts_with("q")) F();',
                     'return "gemma" == shape.architecture;'):
            self.expect("src/base/c.cc", code + "\n", report)
        self.put("src/base/c.cc", "int x;\n")
        self.put("src/base/families/gemma.cc", 'bool x = architecture == "gemma3";\n')
        self.assertEqual(self.run_tidy()[0], 0)

    def test_budget(self):
        table = "tests/tidy/size.tsv"
        self.put(table, "folder\tmost lines\twhy\nsrc/base\t2\t\nsrc/net\t5\tmore\n")
        self.assertEqual(self.run_tidy()[0], 0)
        self.expect(table, "folder\tmost lines\twhy\nsrc/base\t1\t\nsrc/net\t5\t\n",
                    "2: src/base has 2 lines, at most 1: remove 1")
        self.expect(table, "folder\tmost lines\twhy\nsrc/base\t2\t\nsrc/net\t900\t\n",
                    "3: src/net has 5 lines: lower the limit of 900")
        self.expect(table, "folder\tmost lines\twhy\nsrc/base\t2\t\n",
                    "1: no limit for src/net")

    def test_growth(self):
        git = ["git", "-C", self.root, "-c", "user.name=a", "-c", "user.email=a"]
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "a"]):
            subprocess.run([*git, *words], check=True)
        self.put("src/net/b.cc", "int a;\nint b;\n")
        self.assertIn("tidy: lines: src/net +2 -5\n", self.run_tidy()[1])

    def test_libraries(self):
        self.put("src/net/b.cc", "int x;\n")
        line = "2: net names weft_base, but includes nothing of base/"
        self.expect("src/CMakeLists.txt", self.libraries, line)
        self.put("src/base/c.cc", '#include "net/b.h"\n')
        upwards = "weft_library(base\n  fmt::fmt weft_net)\nweft_library(net)\n"
        self.expect("src/CMakeLists.txt", upwards, "1: base names weft_net, which is not above it")

    def test_program(self):
        """Subcommands are not a library: the program's own line names the folders that they
        include."""
        program = "add_executable(weft x)\ntarget_link_libraries(weft PRIVATE weft_base\n  CLI11)\n"
        self.put("src/CMakeLists.txt", self.libraries + program)
        self.expect("src/cli/c.cc", '#include "net/b.h"\n', "1: cli/ includes net/")
        self.put("src/cli/c.cc", '#include "base/a.h"\n')
        self.assertEqual(self.run_tidy()[0], 0)

    def test_house(self):
        row = "| `net` | links | hw |\n"
        self.expect("docs/architecture.md", row, "1: net: src/CMakeLists.txt says: none")
        self.expect("docs/architecture.md", row, "1: no row for the folder base")
        self.expect("docs/architecture.md", row + "| `odd` | x | |\n", "2: odd: ")
        rows = "| `base` | errors | |\n| `net` | links | |\n"
        self.put("docs/architecture.md", rows)
        status, out = self.run_tidy()
        self.assertEqual(status, 0, out)
        self.put("src/net/tcp/a.cc", "int x;\n")
        self.put("src/net/shm/ring/a.cc", "int x;\n")
        self.expect("docs/architecture.md", rows, "1: no row for the folder net/tcp")
        deep = rows + "| `net/tcp`, `shm` | kinds |\n| `net/shm/ring`%s | a ring |\n"
        self.expect("docs/architecture.md", deep % ", `x`", "4: there is no folder src/net/shm/x")
        self.put("docs/architecture.md", deep % "")
        self.assertEqual(self.run_tidy()[0], 0)

    def test_sizes(self):
        self.expect("src/net/d.cc", "// " + "x" * 98 + "\n", "1: 101 columns")
        self.put("src/net/d.cc", "// " + "\u00e9" * 97 + "\n" + "int x;\n" * 899)
        self.assertEqual(self.run_tidy()[0], 0)

    def test_functions(self):
        body = "    G();\n" * 69
        head = "namespace weft {\n\nint x =\n    3;\nvoid F(int a,\n       int b) {\n"
        self.expect("src/net/d.cc", f"{head}{body}}}\n\n}}  // namespace weft\n",
                    "5: a function of 72 lines")
        member = "struct S {\n    int x;\n    void F() {\n" + "        G();\n" * 69 + "    }\n};\n"
        self.expect("src/net/d.cc", member, "3: a function of 71 lines")
        self.put("src/net/d.cc", "void F() {\n" + "    G();\n" * 68 + "}\n" +
                 "constexpr int kTable[] = {\n" + "    1,\n" * 100 + "};\n")
        status, out = self.run_tidy()
        self.assertEqual(status, 0, out)

    def test_contract(self):
        late = "#pragma once\n// " + "too late, " * 7 + "\n"
        self.expect("src/net/d.h", late, "1: a header opens")
        self.expect("src/net/d.h", CONTRACT.replace("#pragma once\n", ""), "1: no #pragma once")

    def test_threads(self):
        for line in ("std::thread one([] {});", "std::thread([] {}).detach();", "std::jthread one;",
                     "auto one = std::async(F);", "threads.emplace_back([] {});",
                     "threads_.push_back(F);", "thread_([] {});", "std::thread one{F};"):
            text = f"std::vector<std::thread> a;\nvoid G() {{\n    {line}\n}}\n"
            self.expect("src/net/c.cc", text,
                        "3: threads start by base/start_thread.h")
        self.put("src/net/c.cc", "std::vector<std::thread> threads;\n"
                 "std::thread two{};  // std::async\nvoid G() {\n"
                 "    StartThread(threads.emplace_back(), F);\n"
                 "    threads.push_back(std::move(two));\n}\n")
        self.put("src/base/start_thread.cc", "std::thread one([] {});\n")
        self.assertEqual(self.run_tidy()[0], 0)

    def test_statics(self):
        for code in ("static const auto held = gpu::Device::Open(api, 0);",
                     "static const std::shared_ptr<Device> device = OpenVulkan();",
                     "static std::map<int, std::unique_ptr<gpu::Kernel>> kernels;"):
            self.expect("tests/gpu/c.cc", f"int x;\nvoid F() {{\n    {code}\n}}\n",
                        "3: a driver's object in a static")
        self.put("tests/gpu/c.cc", "static Result<std::shared_ptr<Device>> Open() {\n"
                                   "    return Device::Open(0);\n}\n")
        self.assertEqual(self.run_tidy()[0], 0)

    def test_sleeps(self):
        nap, report = "sle" + "ep", "a test waits for an event"
        for name, line in (
                ("tests/a.cc", f"    ::u{nap}(100);\n"), ("tests/a.h", f"std::{nap}_for(one);\n"),
                ("tests/a.cc", f"    ::{nap} (2);\n"), ("tests/a.py", f"time.{nap}(2)\n"),
                ("tests/a.cc", f'Run("until x; do {nap} 0.1; done");\n'),
                ("tests/a.py", f"SCRIPT = 'until x; do {nap} 0.1; done'\n"),
                ("tests/a.sh", f"{nap} 1\n"), ("tests/a.py", "threading.Event()" + ".wait(2)\n")):
            self.expect(name, "\n" + line, f"2: {report}")
            (self.root / name).unlink()
        self.expect("tests/a.cc", "\nOut" + "last(1'500);\n", "2: name the time-out")
        self.put("tests/a.cc", f"// {nap}(1)\nOutlast(2 * timeout_ms); OthersSleep();\n")
        self.put("tests/a.sh", f"{nap} infinity & {nap} $((2 * bound_s))\n")
        self.put("src/net/b.cc", f'#include "base/a.h"\n\nvoid F() {{\n    {nap}(1);\n}}\n')
        status, out = self.run_tidy()
        self.assertEqual(status, 0, out)

    def test_sleeps_that_are_allowed(self):
        self.assertLessEqual(len(tidy.SLEEPS), 8)
        (place, (most, _)), = list(tidy.SLEEPS.items())[:1]
        line = "u" + "sle" + "ep(1);\n"
        self.put(place, most * line)
        self.assertEqual(self.run_tidy()[0], 0)
        self.expect(place, (most + 1) * line, f"{most + 1}: a test waits for an event")
        self.expect(place, (most - 1) * line, f"1: SLEEPS of tidy.py allows {most}")

    def test_module(self):
        self.expect("bench/types.py", "X = 1\n", "1: hides Python's own module 'types'")
        self.expect("tests/net/queue.py", "X = 1\n", "1: hides Python's own module 'queue'")

    def test_text(self):
        todo = "TO" + "DO"
        self.expect("src/net/d.cc", f"// {todo}: later\n", "1: unfinished work")
        self.expect("src/net/d.cc", f"// {todo}(me) later\n", "1: unfinished work")
        self.expect("src/net/d.cc", "// see /ho" + "me/someone/x\n", "1: a path of one machine")
        self.expect("docs/x.md", "see /ro" + "ot/x\n", "1: a path of one machine")
        self.expect("src/net/d.cc", "int\tx;\n", "1: a tab")
        self.expect("src/net/d.cc", "int x; \n", "1: blanks at the end")
        self.expect("src/net/d.cc", "int x;", "1: no newline")
        self.put("src/net/d.cc", f"// {todo}(huge pages: needs a kernel that has them)\n")
        self.put("docs/x.md", "$HOME/.cache, src/net/work/x, /ho" + "me/alice/model.gguf\n")
        status, out = self.run_tidy()
        self.assertEqual(status, 0, out)


    def test_former(self):
        self.expect("tests/net/d.cc", "int x = TopOf(y);\n", "1: TopOf is TopK now")
        self.expect("src/net/d.cc", "\nPatience wait;\n", "2: Patience is Waiter now")
        self.expect("src/net/d.cc", 'F("--kv", 1);\n', "1: --kv is --kv-dtype now")
        self.expect("docs/x.md", "`weft run m --chunk 8`\n", "1: --chunk is --prefill-chunk now")
        self.put("src/net/d.cc", '// Patience, TopOf.\nint TopOfAll = F("Patience --kv-tokens");\n')
        self.put("src/base/d.cc", "int Patience;\n")
        self.put("tests/net/d.cc", "int Patience;\n")
        self.put("docs/x.md", "Another program has --split.\n`weft run m --kv-dtype q8_0`\n")
        status, out = self.run_tidy()
        self.assertEqual(status, 0, out)


if __name__ == "__main__":
    unittest.main()
