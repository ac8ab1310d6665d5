#!/usr/bin/env python3
"""Kernels in AMD's compiler (RADV's ACO), without a GPU: registers, waves, shared memory, spills,
and instructions of each kernel that a model uses on a Strix Halo (GFX1151) or another GPU.

    bench/kernels.py --radv FOLDER [--family GFX1151,NAVI31,GFX1201] [--model M ...] [--only WORD]
    bench/kernels.py --check    # against bench/kernels.tsv; --record writes that file

FOLDER (or $WEFT_RADV) has Mesa's libvulkan_radeon.so with all of its libraries, the C library
included, or is the root of a Debian that has them (tools/setup.sh, bring_radv). M: a model file or
synthetic:NAME. Needs the target kernel_statistics of the build.

    waves    per SIMD, from registers, shared memory and the size of the workgroup; at most 16
    demand   registers before they are padded up to what the waves allow
    VALU, memory, shared
             instructions of the hottest loop: vector (without products), global memory, shared
             memory. `per` names the unit: 256 weights, a matrix operation, or a turn

Nothing is executed, and the compiler knows no caches: compare two kernels, not a kernel with a
clock. --check fails on spilled registers, scratch memory and more than 64 KiB of shared memory, and
on figures that are worse than the recorded ones of GFX1151. Exit status 77: there is no compiler.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "weft"
RECORD = ROOT / "bench/kernels.tsv"
RECORDED_FAMILY = "GFX1151"
FAMILIES = "GFX1151,NAVI31,GFX1201"
MODELS = ["synthetic:llama-3.1-8b:q4_k:layers=1", "synthetic:llama-3.1-8b:q8_0:layers=1",
          "synthetic:llama-3.1-8b:mxfp4:layers=1", "synthetic:llama-3.2-1b:q4_0:layers=1",
          "synthetic:qwen3-30b-a3b:q4_k:layers=1"]
SKIPPED = 77
# RDNA 3 and 4: registers of a lane of a wave of 32, in steps of 24; shared memory of four SIMDs.
REGISTERS, STEP, SHARED, SIMDS, MOST_WAVES = 1536, 24, 128 << 10, 4, 16
MOST_SHARED = 64 << 10  # of a workgroup
LOWER = ["VALU", "memory", "shared", "LDS"]  # figures that are better if lower


def libraries_of(folder):
    """The folder with the driver's libraries; None: it is not there."""
    for place in (folder / "usr/lib/x86_64-linux-gnu", folder):
        if (place / "libvulkan_radeon.so").exists():
            return place
    return None


def compiled(options, libraries, family):
    """The lines of kernel_statistics."""
    with tempfile.TemporaryDirectory() as folder:
        icd = pathlib.Path(folder) / "radv.json"
        icd.write_text(json.dumps({"file_format_version": "1.0.0", "ICD": {
            "library_path": str(libraries / "libvulkan_radeon.so"), "api_version": "1.4.0"}}))
        env = os.environ | {"RADV_FORCE_FAMILY": family, "VK_DRIVER_FILES": str(icd),
                            "VK_ICD_FILENAMES": str(icd), "MESA_SHADER_CACHE_DISABLE": "true",
                            "XDG_RUNTIME_DIR": folder}
        env.pop("LD_LIBRARY_PATH", None)
        loader = libraries / "ld-linux-x86-64.so.2"
        path = f"{libraries}:/usr/lib/x86_64-linux-gnu"
        program = pathlib.Path(options.build) / "bench/kernel_statistics"
        run = subprocess.run([loader, "--library-path", path, program, *options.model], env=env,
                             capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"kernel_statistics: exit status {run.returncode}\n{run.stderr[-2000:]}")
    return map(json.loads, run.stdout.splitlines())


def loops_of(code):
    """The instructions of each loop: from the target of a backward jump to the last such jump."""
    labels, instructions, ends = {}, [], {}
    for line in code.splitlines():
        words = line.split(";")[0].split()
        if not words:
            continue
        if words[0].endswith(":"):
            labels[words[0][:-1]] = len(instructions)
            continue
        instructions.append(words[0])
        if re.match(r"s_c?branch", words[0]) and words[-1] in labels:
            ends[labels[words[-1]]] = len(instructions)
    return [instructions[begin:end] for begin, end in ends.items()]


def count(instructions, *prefixes):
    return sum(name.startswith(prefixes) for name in instructions)


def hottest(code):
    """The smallest loop with all matrix operations, or with half of the dot products (a gated
    product has two loops); without either, the largest loop."""
    loops = loops_of(code)
    for kind, share in (("v_wmma", 1), ("v_dot4", 0.5)):
        counts = [count(loop, kind) for loop in loops]
        if any(counts):
            return min((loop for loop, has in zip(loops, counts) if has >= share * max(counts)),
                       key=len)
    return max(loops, key=len, default=[])


def instructions_of(line):
    """Instructions of the hottest loop, and of what they are counted."""
    loop = hottest(line["code"])
    wmma, dots = count(loop, "v_wmma"), count(loop, "v_dot4")
    scale, per = 1, "turn"
    if wmma:
        scale, per = 1 / wmma, "matrix op"
    elif dots and line["kernel"].startswith("matvec"):
        rows = line["constants"][1]
        scale, per = 256 * rows / (4 * dots), "256 weights"
    counts = {"VALU": count(loop, "v_") - wmma - dots,
              "memory": count(loop, "global_", "buffer_", "flat_"), "shared": count(loop, "ds_"),
              "all": len(loop)}
    return {name: round(scale * value, 1) for name, value in counts.items()} | {"per": per}


def figures_of(line):
    stats, size = line["statistics"], line["subgroup"]
    waves_of_group = -(-line["constants"][0] // size)
    shared = stats["LDS size"]
    waves = min(MOST_WAVES, REGISTERS * 32 // size // max(stats["VGPRs"], STEP * 32 // size))
    limit = "registers" if waves < MOST_WAVES else ""
    if shared:
        groups = SHARED // shared
        by_shared = groups * waves_of_group / SIMDS
        if by_shared < waves:
            waves, limit = by_shared, "LDS"
    return {"demand": stats.get("Pre-Sched VGPRs", stats["VGPRs"]), "waves": waves, "limit": limit,
            "LDS": shared, "spills": stats["Spilled VGPRs"], "scratch": stats["Scratch size"],
            **instructions_of(line)}


def wrong_with(found, recorded):
    """The faults that --check finds in a kernel's figures; recorded: None if it has no row."""
    wrong = [f"{found[name]} {name}" for name in ("spills", "scratch") if found[name]]
    if found["LDS"] > MOST_SHARED:
        wrong.append(f"{found['LDS']} bytes of LDS")
    for name in LOWER if recorded else []:
        if found[name] > float(recorded[name]):
            wrong.append(f"{name} {found[name]}, recorded {recorded[name]}")
    if recorded and found["waves"] < float(recorded["waves"]):
        wrong.append(f"waves {found['waves']}, recorded {recorded['waves']}")
    return wrong


def read_record():
    if not RECORD.exists():
        return {}
    head, *rows = (line.split("\t") for line in RECORD.read_text().splitlines())
    return {tuple(row[:3]): dict(zip(head, row)) for row in rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--radv", default=os.environ.get("WEFT_RADV", CACHE / "radv"))
    parser.add_argument("--family", default=FAMILIES)
    parser.add_argument("--model", action="append")
    parser.add_argument("--only", default="", help="kernels whose names contain this word")
    parser.add_argument("--build", default=ROOT / "build")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    options.model = options.model or MODELS
    libraries = libraries_of(pathlib.Path(options.radv))
    if libraries is None:
        print(f"skipped: no libvulkan_radeon.so in {options.radv} (--radv or WEFT_RADV)",
              file=sys.stderr)
        return SKIPPED
    recorded, rows, failures = read_record(), [], 0
    for family in options.family.split(","):
        for line in compiled(options, libraries, family):
            if options.only not in line["kernel"]:
                continue
            found = figures_of(line)
            key = (line["kernel"], ",".join(map(str, line["constants"])), str(line["subgroup"]))
            row = dict(zip(("kernel", "constants", "subgroup"), key)) | found
            own = family == RECORDED_FAMILY
            if options.record:
                rows += [row] if own else []
            elif options.check:
                known = recorded.get(key) if own else None
                unknown = [] if known or not own else ["not recorded: use --record"]
                for wrong in wrong_with(found, known) + unknown:
                    failures += 1
                    print(f"{family} {' '.join(key)}: {wrong}")
            else:
                if not rows:
                    print("\t".join(["family", *row]))
                rows.append(row)
                print("\t".join(map(str, [family, *row.values()])), flush=True)
    if options.record:
        lines = ["\t".join(rows[0]), *("\t".join(map(str, row.values())) for row in rows)]
        RECORD.write_text("\n".join(lines) + "\n")
    if options.check:
        print(f"{failures} figures are wrong" if failures else "no figure is wrong")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
