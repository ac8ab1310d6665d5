"""Compiles every kernel for AMD's and NVIDIA's GPUs, without one: what gpu/spirv writes, by hiprtc
and nvrtc (tools/setup.sh brings them); and for the host, as the emulation does. No kernel may use
scratch memory, spill registers, or have more than 64 KiB of shared memory, except those in the
table SCRATCH.

    compile_test.py SPIRV_TEXTS [KERNEL...]     WEFT_COMPILE_TARGETS: other targets, by commas

Exit status 77: a compiler is not there, and the others found nothing wrong."""
import ctypes
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "weft"
HOST_LIBRARIES = "/usr/lib/x86_64-linux-gnu"
EMULATED = pathlib.Path(__file__).parent / "standin/emulated.h"
TARGETS = ["gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1151", "gfx1201",
           "sm_75", "sm_80", "sm_89", "sm_90", "sm_120", "sm_121", "sm_75@12", "sm_90@12", "host"]
# Folders with hiprtc and the library's name there: the older one lacks gfx12 and gfx950.
OLDER, NEWER = ("hip", "libamdhip64.so.5"), ("hip-6", "libhiprtc.so.6")
NO_MATRICES = ["gfx1030"]
MOST_SHARED = 64 << 10
# Bytes of scratch of kernels that do not fit into registers. Attention on matrix units has tiles of
# 64 rows, 64 keys and 128 dims; RADV spills, too, with 32 lanes (2 KB).
SCRATCH = {("attention_matrix", "gfx908"): 196, ("attention_matrix", "gfx950"): 196,
           ("attention_matrix", "gfx90a"): 196, ("attention_matrix", "gfx942"): 196,
           ("attention_matrix", "gfx1100"): 880, ("attention_matrix", "gfx1151"): 880,
           ("attention_matrix", "gfx1201"): 452}


# --- in a process of its own for each target: hiprtc runs under the loader of its libraries ---

def names_of(target):
    hip = target.startswith("gfx")
    call = ctypes.CDLL(hiprtc_of(target)[1] if hip else str(nvrtc_of(target)))
    part = "hiprtc" if hip else "nvrtc"
    return lambda name: getattr(call, part + name)


def compile_one(call, text, options):
    """The code object (nvrtc: none) and the compiler's log; the code is None if it failed."""
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    call("CreateProgram")(ctypes.byref(program), text, b"kernel", 0, None, None)
    given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    failed = call("CompileProgram")(program, len(options), given)
    call("GetProgramLogSize")(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value + 1)
    call("GetProgramLog")(program, log)
    code = None
    if not failed:
        code = b""
        if options[0].startswith("--offload"):
            call("GetCodeSize")(program, ctypes.byref(size))
            buffer = ctypes.create_string_buffer(size.value)
            call("GetCode")(program, buffer)
            code = buffer.raw
    call("DestroyProgram")(ctypes.byref(program))
    return code, log.value.decode(errors="replace")


def number_of(code, key):
    """The number behind a key of the code object's notes, which are MessagePack."""
    at = code.find(b"." + key.encode()) + 1 + len(key)
    kind = code[at]
    return kind if kind < 0x80 else int.from_bytes(code[at + 1:at + 1 + 2 ** (kind - 0xcc)], "big")


def figures(code, log):
    if code:
        return {"registers": number_of(code, "vgpr_count"),
                "scratch": number_of(code, "private_segment_fixed_size"),
                "shared": number_of(code, "group_segment_fixed_size")}
    read = lambda pattern: sum(int(found) for found in re.findall(pattern, log)[:1])
    return {"registers": read(r"Used (\d+) registers"),
            "scratch": read(r"(\d+) bytes stack frame") + read(r"(\d+) bytes spill stores"),
            "shared": read(r"(\d+) bytes smem")}


def check_all(paths):
    for path in paths:
        command = ["c++", "-std=c++20", "-fsyntax-only", "-w", "-DWEFT_EMULATED"]
        run = subprocess.run([*command, "-include", EMULATED, path], capture_output=True, text=True)
        found = {"error": run.stderr[:2000]} if run.returncode else {"scratch": 0, "shared": 0}
        print(json.dumps({"kernel": pathlib.Path(path).name.split(".")[0], **found}), flush=True)


def compile_all(target, options, roomy, paths):
    if target == "host":
        return check_all(paths)
    call = names_of(target)
    for path in paths:
        code, log = compile_one(call, pathlib.Path(path).read_bytes(), options)
        found = {"error": log[:2000]} if code is None else figures(code, log)
        if found.get("scratch") and roomy:
            code, log = compile_one(call, pathlib.Path(path).read_bytes(), [*options, roomy])
            found = figures(code, log)
        print(json.dumps({"kernel": pathlib.Path(path).name.split(".")[0], **found}), flush=True)


# --- the test ---

def hiprtc_of(target):
    return NEWER if target.startswith(("gfx12", "gfx950")) else OLDER


def nvrtc_of(target):
    """The compiler's path; None: it is not there. "sm_90@12": the oldest compiler for sm_90."""
    folder = "nvrtc-12" if target.endswith("@12") else "nvrtc"
    return next(iter(sorted((CACHE / folder).glob("libnvrtc.so.*"))), None)


def loader_of(target):
    return CACHE / hiprtc_of(target)[0] / "ld-linux-x86-64.so.2"


def is_there(target):
    if target == "host":
        return True
    if target.startswith("gfx"):
        return loader_of(target).exists()
    return nvrtc_of(target) is not None


def suffix_of(target):
    if not target.startswith("gfx"):
        return "cuda"
    return "hip64" if target.startswith("gfx9") else "hip32"


def command_of(target, header):
    """The command that compiles files for a target, with the options of gpu/spirv/translate.h."""
    hip = target.startswith("gfx")
    name = "kHipOptions" if hip else "kCudaOptions"
    options = re.findall(r'"([^"]*)"', re.search(name + r"\{([^}]*)\}", header)[1])
    if hip:
        options = ["--offload-arch=" + target, *options]
    else:
        options = ["--gpu-architecture=" + target.split("@")[0], "--ptxas-options=-v", *options]
    roomy = "" if hip else re.search(r'kCudaRoomyOption = "([^"]*)"', header)[1]
    command = [sys.executable, __file__, "--compile", target, json.dumps(options), roomy]
    if hip:
        loader = loader_of(target)
        path = f"{loader.parent}:{HOST_LIBRARIES}"
        command = [str(loader), "--library-path", path, *command]
    return command


def compiled(target, paths, header, seen):
    run = subprocess.run([*command_of(target, header), *map(str, paths)], capture_output=True,
                         text=True)
    lines = run.stdout.splitlines()
    seen[target] = [json.loads(line) for line in lines]
    if len(lines) != len(paths):
        seen[target].append({"kernel": "the compiler", "error": run.stderr[-2000:]})


def judged(target, found):
    """A kernel's fault, or None."""
    if "error" in found:
        return found["error"]
    allowed = SCRATCH.get((found["kernel"], target), 0)
    if found["scratch"] > allowed:
        return f"{found['scratch']} bytes of scratch, at most {allowed} expected"
    if found["scratch"] < allowed:
        return f"{found['scratch']} bytes of scratch: the table SCRATCH says {allowed}"
    if found["shared"] > MOST_SHARED:
        return f"{found['shared']} bytes of shared memory, at most {MOST_SHARED}"
    return None


def main():
    texts, wanted = sys.argv[1], sys.argv[2:]
    given = os.environ.get("WEFT_COMPILE_TARGETS")
    every = given.split(",") if given else TARGETS
    targets = [target for target in every if is_there(target)]
    header = (pathlib.Path(__file__).parents[2] / "src/gpu/spirv/translate.h").read_text()
    seen, left = {}, threading.Semaphore(os.cpu_count())
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([texts, folder], check=True)
        names = sorted({path.name.split(".")[0] for path in pathlib.Path(folder).iterdir()})
        names = [name for name in names if not wanted or name in wanted]

        def work(target):
            paths = [pathlib.Path(folder) / f"{name}.{suffix_of(target)}.cc" for name in names]
            if target in NO_MATRICES:
                paths = [path for path in paths if "struct Layout" not in path.read_text()]
            with left:
                compiled(target, paths, header, seen)

        threads = [threading.Thread(target=work, args=(target,)) for target in targets]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    failures = 0
    for target in targets:
        for found in seen[target]:
            wrong = judged(target, found)
            failures += wrong is not None
            print(target, found["kernel"], wrong or found)
    missing = [target for target in every if not is_there(target)]
    print(f"{sum(map(len, seen.values()))} compiled, {failures} failed")
    if missing:
        print(f"skipped: no compiler for {missing} in {CACHE} (./test --nightly brings them)")
    return 1 if failures else 77 if missing else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--compile"]:
        compile_all(sys.argv[2], json.loads(sys.argv[3]), sys.argv[4], sys.argv[5:])
    else:
        sys.exit(main())
