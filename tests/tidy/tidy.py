#!/usr/bin/env python3
"""Checks how the code is written; prints one line for each place that breaks a rule.

    tests/tidy/tidy.py [ROOT]      exit status 0: clean, 1: something was printed

Rules (docs/develop.md says why):
  layers      a folder of src/ includes the folders that its line in src/CMakeLists.txt names, all
              and no others; a line names only folders above it; the table of docs/architecture.md
              says the same, and its second table has a row for each folder below a module
  size        no function over 70 lines, no line over 100 columns
  contract    every header of src/ opens with a comment that says what it is, then #pragma once
  todo        a TODO, FIXME or XXX says what and why: TODO(what: why)
  machine     no path of somebody's own machine; a Markdown page may show one under /home
  former      no name of FORMER in code, no former flag in scripts, strings and command lines
  threads     threads of src/ start in base/start_thread.cc, because a refused one throws
  sleeps      tests wait for events: no sleep outside SLEEPS, in C++, Python and shell, also in
              scripts within strings; Outlast names the time-out that passes
  module      no script has the name of a module of Python's own library: scripts in its folder
              would import it in place of that module
  statics     no object of a GPU's driver in a static: it would outlive libraries that clean up at
              the program's exit
  blanks      no tabs, no blanks at the end of a line, a newline at the end of the file
  budget      no folder of size.tsv has more lines than its limit there, each folder of src/ has a
              limit, and no limit is more than SLACK above the lines
"""
import collections
import pathlib
import re
import shutil
import subprocess
import sys

MOST_FUNCTION_LINES = 70
MOST_COLUMNS = 100
SLACK = 300  # lines
COUNTED = {".h", ".cc", ".c", ".inc", ".comp", ".glsl", ".py", ".sh", ".js", ".html", ".cmake"}
LEAST_CONTRACT_CHARACTERS = 40
FOLDERS = ("src", "tests", "bench", "fuzz", "tools", "web")
CODE = {".h", ".cc", ".py", ".js", ".css", ".html"}
TEXT = CODE | {".md", ".sh", ".cmake", ".txt"}
AT_ROOT = ("quickstart", "test", ".ci/run", "CMakeLists.txt", "README.md", "CHANGELOG.md")

LIBRARY = re.compile(r"^(?:weft_library\((\w+)|target_link_libraries\(weft PRIVATE)([^)]*)\)",
                     re.MULTILINE)
HOUSE_ROW = re.compile(r"\| `(\w+)` \|[^|]*\|([^|]*)\|$")
INCLUDE = re.compile(r'\s*#\s*include\s+"([a-z0-9_]+)/')
WORD = re.compile(r"[A-Za-z_]\w*")
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX)\b(?!\([^():]+: [^()]+\))")
# Written in pieces so that this file does not break its own rule.
MACHINE = re.compile(r"(?<![\w.$}])/" + "(?:home|root|work|Users)" + r"/\w")
MACHINE_OF_PAGE = re.compile(r"(?<![\w.$}])/" + "(?:root|work)" + r"/\w")

# Constructions of threads, which throw where the system refuses one.
STARTS_THREAD = re.compile(r"\bstd::(?:jthread|async)\b|\bpthread_create\b|"
                           r"\bstd::thread(?:\s+\w+)?\s*(?:\((?!\))|\{(?!\}))|"
                           r"\bthread_[({]\s*\[")
GROWS_THREADS = re.compile(r"\b\w*threads_?\.(?:emplace|push)_back\((?!\)|std::move)")
MAY_START_THREAD = "src/base/start_thread.cc"

# Objects of GPU drivers in statics: by a call that opens one, or by the type.
OPENS_DRIVER = re.compile(r"\bstatic\b[^;{]*=[^;{]*\b(?:Open\w*|HostSignal::Make|MakeKernel)\(|"
                          r"\bstatic\b[^;{}()=]*_ptr<[\w:]*\b(?:Device|Kernel|HostSignal)>+ \w+;")

# Sleeps, and shell commands with a fixed number.
SLEEP = re.compile(r"\b(?:u|nano|clock_nano)?sleep(?:_for|_until)?\s*\(|\bEvent\(\)\.wait\(\S")
SLEEP_IN_SHELL = re.compile(r"\bsleep +[\"']?[\d.]")
UNNAMED_TIMEOUT = re.compile(r"\b[Oo]utlast\(\s*[\d.'_]+\s*\)")
# The files of tests/ that may sleep: how often, and why. At most eight.
SLEEPS = {
    "tests/support/wait.h": (3, "looks again; a time-out under test passes; a slow client or peer"),
    "tests/support/wait.py": (3, "the same for Python"),
    "tests/support/wait.sh": (1, "looks again"),
    "tests/rdma/lib.guest.sh": (1, "looks again, in a guest without these files"),
    "tests/sim/libc.cc": (3, "replaces these functions by the simulated clock"),
    "tests/submit/ray_test.py": (1, "a rank ends 8 s after SIGTERM, when Ray's own 3 s are over"),
    "tests/vulkan/lost_gpu.cc": (1, "a wait for a hung GPU takes as long as its caller allows"),
}

# Names that code gave up, and the names that it has now: in all folders or, where a name is a
# common word, in the folder of src/ before the colon.
FORMER = """
engine: Active=RunningRequest Flight=InFlightStep Land=CompleteStep Order=Command Say=EmitToken
engine: Lookup=PromptLookup Sweep=ReapFinished flying_=in_flight_
cluster: Company=RankRegistry Door=AdmissionListener Exam=JoinRequest Roll=RendezvousState
cluster: Screening=CandidateCheck Stand=RankWaits Vet=ValidateJoiners
cluster: Newcomers=PendingJoiners PassOver=RejectJoiners SetTerms=SetJoinFingerprint
cluster: Examiner=JoinValidator
coll: Wire=WireType
fleet: Beacon=DiscoveryPacket Herald=Discovery
net: Patience=Waiter
backend: Gate=HostSignal Pace=SubmissionBudget
program: Chunk=ModelChunk Placement=Sharding Unit=FlatBucket kCut=kSharded kPartial=kPartialSum
program: kShare=kRowSharded kWhole=kReplicated
kernels: Prepared=ActivationFormat prepare=quantize_activations
AnswerFamily=ToolCallFormat CircleOf=CycleOf DataWords=DatasetOptions,DataPortOptions
ExportWords=TrainExportOptions FedSource=StreamedSource FeedOthers=StreamWeights
FindMade=FindDerived GatherShares=ZeroAllGather GetOver=RecoverFromLoss
IsTransfer=IsCommunication LayoutWords=TrainLayoutOptions LoraWords=LoraOptions
NoteMade=NoteDerived OllamaWords=OllamaOptions OpenFed=OpenStreamed
OutputWords=OutputFolderOptions PlaceTails=FuseEpilogues PrepareArgs=QuantizeActivationsArgs
ProofRecord=SelfTestRecord ReadTop=ReadTopK ReduceShares=ZeroReduceScatter
RunsBeside=MayOverlap SampleWords=SampleOptions SaveWords=SaveOptions SayLogits=EmitTokens
SayRows=EmitRow ShareOut=ApplyZero StuckRanks=FindDeadlock TakeOrders=DrainCommands
ToolForm=TemplateCapabilities TopOf=TopK TrainStyle=FrameworkProfile WhoGoes=PickEvictee
WithRowShares=ApplySequenceParallel WorstWait=RootWait WriteWords=WriteModelOptions
gather_shares=zero_all_gather reduce_shares=zero_reduce_scatter wide_sums=float64_reductions
"""
FORMER_FLAGS = {"--chunk": "--prefill-chunk", "--kv": "--kv-dtype", "--split": "--tensor-split",
                "--wait-for": "--expect-workers", "--rejoin-ms": "--restart-timeout-ms",
                "--gpu-sum": "--gpu-allreduce", "--wire": "--allreduce-dtype",
                "--lookup": "--prompt-lookup", "--no-proof": "--skip-self-test"}
# Files that hold them on purpose: what takes the former flags, and the test of it.
HOLD_FORMER = ("src/cli/command_line/habit_words.cc", "tests/cli/former_flags_test.py",
               "tests/tidy/tidy_test.py", "CHANGELOG.md")
FLAG = re.compile("(?<![\\w-])(?:" + "|".join(FORMER_FLAGS) + ")(?![\\w-])")
# Literals and comments.
NO_CODE = re.compile(r'R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


class Folder:
    """A folder of src/: what the build states, and what its files include."""

    def __init__(self, line, names):
        self.line = line
        self.names = names
        self.includes = set()


# Files of families: families/gemma.cc. (Architectures of gpu/ are those of GPUs.)
OF_FAMILY = re.compile(r"/families/|^src/gpu/")
COMPARES_FAMILY = re.compile(
    r"\b\w*(?:architecture|model_type|model\.type)\w*(?:\(\))?"
    r"(?:\s*[=!]=\s*\"|\.(?:starts|ends)_with\()|\"\s*[=!]=\s*[\w.]*(?:architecture|model_type)")
COMPARISONS = {
    "src/tokenizer/open.cc": 2,  # XLM-R and CamemBERT number tokens unlike their SentencePiece file
    "src/tokenizer/read_tiktoken.cc": 1,  # the table's own lookup
    "src/model_files/synthetic.cc": 1,  # made-up models: only Qwen3's have normed heads
    "src/plan/shapes.cc": 1,  # gpt-oss is published in MXFP4 alone
}


def former_names():
    """Folder, or "": former name -> present name."""
    names = {}
    for line in FORMER.split("\n"):
        folder, _, rest = line.rpartition(":")
        names.setdefault(folder, {}).update(pair.split("=") for pair in rest.split())
    return names


FORMER_NAMES = former_names()


def folders_of(root):
    """Name -> Folder, from the lowest to the highest."""
    rules = (root / "src/CMakeLists.txt").read_text()
    return {found[1] or "cli": Folder(rules.count("\n", 0, found.start()) + 1,
                                      re.findall(r"\bweft_(\w+)", found[2]))
            for found in LIBRARY.finditer(rules)}


def check_layers(path, lines, root, folders):
    parts = path.relative_to(root).parts
    if parts[0] != "src" or len(parts) < 3:
        return
    if parts[1] not in folders:
        yield 1, f"folder src/{parts[1]} is not among the libraries of src/CMakeLists.txt"
        return
    folder = folders[parts[1]]
    for number, line in enumerate(lines, 1):
        found = INCLUDE.match(line)
        if not found or found[1] == parts[1]:
            continue
        folder.includes.add(found[1])
        if found[1] not in folder.names:
            yield number, (f"{parts[1]}/ includes {found[1]}/, "
                           f"which its line in src/CMakeLists.txt does not name")


def check_libraries(folders):
    """Checks src/CMakeLists.txt; call it after check_layers has seen every file."""
    below = set()
    for name, folder in folders.items():
        for other in folder.names:
            if other not in below:
                yield folder.line, f"{name} names weft_{other}, which is not above it"
            elif other not in folder.includes:
                yield folder.line, f"{name} names weft_{other}, but includes nothing of {other}/"
        below.add(name)


def check_house(lines, folders):
    """Checks the table of docs/architecture.md: a row for each folder; base is omitted in the
    rows."""
    rows = set()
    for number, line in enumerate(lines, 1):
        found = HOUSE_ROW.match(line)
        if not found:
            continue
        rows.add(found[1])
        said = set(re.findall(r"\w+", found[2]))
        true = set(folders[found[1]].names) - {"base"} if found[1] in folders else set()
        if found[1] not in folders or said != true:
            stated = ", ".join(sorted(true)) or "none"
            yield number, f"{found[1]}: src/CMakeLists.txt says: {stated}"
    for name in folders:
        if name not in rows:
            yield 1, f"no row for the folder {name}"


def check_sub_folders(lines, root):
    """Checks the second table of docs/architecture.md: a row for each folder below a module. The
    first name of a row is a whole one; the others stand in the same parent."""
    named = {}
    for number, line in enumerate(lines, 1):
        if not line.startswith("| `"):
            continue
        first, *others = re.findall(r"`([^`]+)`", line.split("|")[1])
        if "/" not in first:
            continue
        parent = first.rsplit("/", 1)[0]
        named |= {name: number for name in [first, *(f"{parent}/{other}" for other in others)]}
    source = root / "src"
    there = {str(folder.relative_to(source)) for folder in source.glob("*/**/")} - \
        {str(folder.relative_to(source)) for folder in source.glob("*/")}
    for name in sorted(named.keys() - there):
        yield named[name], f"there is no folder src/{name}"
    for name in sorted(there - named.keys()):
        yield 1, f"no row for the folder {name}"


def check_size(path, lines):
    holds_data = path.suffix == ".py" and "tools" in path.parts  # lists of cases for goldens
    for number, line in enumerate(lines, 1):
        if len(line) > MOST_COLUMNS and not holds_data:
            yield number, f"{len(line)} columns; at most {MOST_COLUMNS}"


def check_functions(lines):
    """A function opens at the margin (or, a member, four blanks in) and closes with a lone brace
    there; types and tables close with '};', namespaces with a comment. Blocks inside a function
    look the same at four blanks, but are never longer than the function."""
    for indent in ("", "    "):
        begin = signature = None
        for number, line in enumerate(lines, 1):
            rest = line[len(indent):]
            if not line.strip():
                signature = None
            elif not line.startswith(indent) or rest.startswith((" ", "/", "#")):
                if line.endswith("{") and signature:
                    begin, signature = signature, None
                elif line.endswith(";"):
                    signature = None
            elif rest.startswith("}"):
                first = signature or begin
                if rest == "}" and first and number - first + 1 > MOST_FUNCTION_LINES:
                    yield first, (f"a function of {number - first + 1} lines; "
                                  f"at most {MOST_FUNCTION_LINES}")
                begin = signature = None
            elif rest.endswith("{"):
                begin, signature = signature or number, None
            elif rest.endswith((";", "}", ":")):
                signature = None
            else:
                signature = signature or number


def check_contract(path, lines, root):
    if path.suffix != ".h" or path.relative_to(root).parts[0] != "src":
        return
    comment = []
    for line in lines:
        if not line.startswith("//"):
            break
        comment.append(line[2:].strip())
    if len(" ".join(comment)) < LEAST_CONTRACT_CHARACTERS:
        yield 1, "a header opens with its contract: a comment of what it does"
    if "#pragma once" not in lines:
        yield 1, "no #pragma once"


def check_module(path):
    if path.suffix == ".py" and path.stem in sys.stdlib_module_names:
        yield 1, f"hides Python's own module '{path.stem}' from every script of this folder"


def bare_code(text):
    return NO_CODE.sub(lambda found: "\n" * found[0].count("\n"), text)


def check_threads(path, text, root):
    place = path.relative_to(root)
    if place.parts[0] != "src" or str(place) == MAY_START_THREAD:
        return
    bare = bare_code(text)
    found = list(STARTS_THREAD.finditer(bare))
    if "vector<std::thread>" in bare:
        found += GROWS_THREADS.finditer(bare)
    for each in found:
        yield bare.count("\n", 0, each.start()) + 1, "threads start by base/start_thread.h"


def check_statics(path, text, root):
    if path.relative_to(root).parts[0] not in ("src", "tests", "bench"):
        return
    bare = bare_code(text)
    for found in OPENS_DRIVER.finditer(bare):
        yield bare.count("\n", 0, found.start()) + 1, "a driver's object in a static"


def check_families(path, text, root):
    """What Weft knows of a model family stands in the family's files."""
    place = str(path.relative_to(root))
    if not place.startswith("src/") or OF_FAMILY.search(place):
        return
    lines = [text.count("\n", 0, found.start()) + 1 for found in COMPARES_FAMILY.finditer(text)]
    most = COMPARISONS.get(place, 0)
    for line in lines[most:]:
        yield line, "compares an architecture's name: a fact of a family is a field of its table"
    if len(lines) < most:
        yield 1, f"COMPARISONS of tidy.py allows {most} here; there are {len(lines)}"


def check_sleeps(path, text, root):
    place = str(path.relative_to(root))
    if not place.startswith("tests/") or path.suffix not in {".h", ".cc", ".py", ".sh"}:
        return
    code = bare_code(text) if path.suffix in {".h", ".cc"} else text
    lines = sorted(each_text.count("\n", 0, found.start()) + 1
                   for pattern, each_text in ((SLEEP, code), (SLEEP_IN_SHELL, text))
                   for found in pattern.finditer(each_text))
    most = SLEEPS.get(place, (0,))[0]
    for line in lines[most:]:
        yield line, "a test waits for an event: tests/support/wait.h, wait.py, wait.sh"
    if len(lines) < most:
        yield 1, f"SLEEPS of tidy.py allows {most} sleeps here; there are {len(lines)}"
    for found in UNNAMED_TIMEOUT.finditer(code):
        yield code.count("\n", 0, found.start()) + 1, "name the time-out that passes"


def check_former(path, text, lines, root):
    place = path.relative_to(root)
    if str(place) in HOLD_FORMER:
        return
    for number, line in enumerate(lines, 1):
        found = FLAG.search(line)
        if found and (path.suffix != ".md" or "weft" in line):
            yield number, f"{found[0]} is {FORMER_FLAGS[found[0]]} now"
    if path.suffix not in {".h", ".cc"}:
        return
    names = dict(FORMER_NAMES[""])
    if place.parts[0] == "src":
        names.update(FORMER_NAMES.get(place.parts[1], {}))
    for number, line in enumerate(bare_code(text).split("\n"), 1):
        for word in WORD.findall(line):
            if word in names:
                yield number, f"{word} is {names[word].replace(',', ' or ')} now"


def check_text(path, lines):
    machine = MACHINE_OF_PAGE if path.suffix == ".md" else MACHINE
    for number, line in enumerate(lines, 1):
        if UNFINISHED.search(line):
            yield number, "unfinished work must say what and why: TODO" + "(what: why)"
        if machine.search(line):
            yield number, "a path of one machine"
        if "\t" in line:
            yield number, "a tab"
        if line.endswith((" ", "\r")):
            yield number, "blanks at the end of the line"


def check_file(path, root, folders):
    text = path.read_text(encoding="utf-8", errors="replace")
    lines = text.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    elif lines:
        yield len(lines), "no newline at the end of the file"
    is_self = path.name == "tidy.py"
    if not is_self:
        yield from check_text(path, lines)
        yield from check_former(path, text, lines, root)
        yield from check_sleeps(path, text, root)
    yield from check_module(path)
    if path.suffix in CODE:
        yield from check_size(path, lines)
    if path.suffix in {".h", ".cc"}:
        yield from check_layers(path, lines, root, folders)
        yield from check_functions(lines)
        yield from check_threads(path, text, root)
        yield from check_statics(path, text, root)
        yield from check_families(path, text, root)
        yield from check_contract(path, lines, root)


def files_of(root):
    for folder in FOLDERS + ("docs", "cmake"):
        for path in sorted((root / folder).rglob("*")):
            is_data = folder == "tests" and "data" in path.relative_to(root).parts
            if path.is_file() and path.suffix in TEXT and not is_data:
                yield path
    for name in AT_ROOT:
        if (root / name).is_file():
            yield root / name


def lines_of(folder):
    """Counts lines of code only: nobody reads golden values."""
    return sum(path.read_bytes().count(b"\n") for path in folder.rglob("*")
               if path.suffix in COUNTED and path.is_file())


def check_budget(table, root):
    """The rows of size.tsv: folder, most lines, what users got for the last raise."""
    limits = set()
    for number, line in enumerate(table.read_text().splitlines(), 1):
        if number == 1 or not line:
            continue
        folder, limit, _ = line.split("\t")
        limits.add(folder)
        lines, limit = lines_of(root / folder), int(limit)
        if lines > limit:
            yield number, (f"{folder} has {lines} lines, at most {limit}: remove {lines - limit}, "
                           "or raise the limit and say what users get for it")
        elif limit - lines > SLACK:
            yield number, f"{folder} has {lines} lines: lower the limit of {limit}"
    for folder in sorted(root.glob("src/*/")):
        if f"src/{folder.name}" not in limits:
            yield 1, f"no limit for src/{folder.name}"


def growth(root):
    """'src/serve +20 -3, tests +40 -0': of the uncommitted changes, else of the last commit."""
    if not shutil.which("git"):
        return ""
    for since in ("HEAD", "HEAD~1"):
        stat = subprocess.run(["git", "-c", "safe.directory=*", "-C", root, "diff", "--numstat",
                               since, "--", "src", "tests"], capture_output=True, text=True)
        if stat.stdout:
            break
    counts = collections.defaultdict(lambda: [0, 0])
    for line in stat.stdout.splitlines():
        added, removed, path = line.split("\t", 2)
        parts = path.split("/")
        count = counts["/".join(parts[:2]) if parts[0] == "src" else parts[0]]
        if added != "-":  # (a binary file)
            count[0] += int(added)
            count[1] += int(removed)
    return ", ".join(f"{folder} +{added} -{removed}"
                     for folder, (added, removed) in sorted(counts.items()))


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    folders = folders_of(root)
    checked = 0
    reports = []
    for path in files_of(root):
        checked += 1
        reports += [(path.relative_to(root), *report) for report in check_file(path, root, folders)]
    reports += [("src/CMakeLists.txt", *report) for report in check_libraries(folders)]
    house = root / "docs/architecture.md"
    if house.is_file():
        lines = house.read_text().split("\n")
        checks = [*check_house(lines, folders), *check_sub_folders(lines, root)]
        reports += [("docs/architecture.md", *report) for report in checks]
    budget = root / "tests/tidy/size.tsv"
    if budget.is_file():
        reports += [("tests/tidy/size.tsv", *report) for report in check_budget(budget, root)]
    for place, number, message in reports:
        print(f"{place}:{number}: {message}")
    if grown := growth(root):
        print(f"tidy: lines: {grown}")
    broken = len(reports)
    print(f"tidy: {checked} files, {broken} places to mend")
    return 1 if broken or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
