#!/usr/bin/env python3
"""Speed of a GPU with Weft, as Markdown tables: kernels beside the device's peak copy and
arithmetic speed, attention of prompts beside products, the products of training, the cost of a
submission, and whole models, beside llama.cpp's Vulkan build if it is present.

    python3 bench/gpu.py [--model M ...] [--device vulkan] [--llama FOLDER] [--json FILE]

M: a GGUF file (llama.cpp reads the same file) or synthetic:NAME. --llama: a folder with
llama-bench, built with -DGGML_VULKAN=ON; default: searched on PATH. Each round runs weft and
llama.cpp in turn; ratios are taken within a round. Run nothing else meanwhile. Needs the release
build: ./test --nightly builds it, or cmake --preset release && cmake --build build --target weft
gpu_bench gpu_gemm_bench.
"""
import argparse
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ABACUS = str(ROOT / "models/abacus/model.gguf")
LARGE = "synthetic:llama-3.2-1b:q4_0"
SECONDS = 1800


class Failed(Exception):
    pass


def call(command):
    words = [str(word) for word in command]
    print(f"$ {' '.join(words)}", file=sys.stderr, flush=True)
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=SECONDS)
    if done.returncode != 0:
        raise Failed(f"{' '.join(words)}: exit status {done.returncode}")
    return json.loads(done.stdout)


def speeds(rows):
    """{"prefill": ..., "decode": ...} from llama-bench's fields, and the rows themselves."""
    found = {}
    for row in rows:
        name = "prefill" if row["n_prompt"] else "decode"
        found[name] = row["avg_ts"]
        found[name + " row"] = row
    return found


class Bench:
    def __init__(self, options):
        self.options = options
        self.build = pathlib.Path(options.build)
        self.weft = self.build / "weft"
        self.llama_backend = None
        places = [options.llama] if options.llama else [None]
        self.llama = next(filter(None, (shutil.which("llama-bench", path=p) for p in places)), None)
        if options.llama and self.llama is None:
            raise Failed(f"no llama-bench in {options.llama}")
        for program in (self.weft, self.build / "bench/gpu_bench",
                        self.build / "bench/gpu_gemm_bench"):
            if not program.exists():
                raise Failed(f"{program} is missing: cmake --build build --target weft gpu_bench "
                             "gpu_gemm_bench")

    def version(self):
        told = call([self.weft, "--version", "--json"])
        return f"{told['version']} (commit {told['commit']})"

    def kernels(self):
        words = [self.build / "bench/gpu_bench", self.options.device]
        if self.options.quick:
            words += [1, 256, 16]
        return call(words)

    def training(self):
        words = [self.build / "bench/gpu_gemm_bench", self.options.device]
        if self.options.quick:
            words += [64, 64]
        return call(words)

    def sizes(self):
        prompt, generate = (16, 4) if self.options.quick else (512, 128)
        return ["-p", str(prompt), "-n", str(generate), "-r", "1", "-o", "json"]

    def weft_round(self, model):
        return speeds(call([self.weft, "bench", model, "--device", self.options.device, "--power",
                            *self.sizes()]))

    def llama_round(self, model):
        if self.llama is None or not os.path.exists(model):
            return None
        rows = call([self.llama, "-m", model, "-ngl", "99", *self.sizes()])
        self.llama_backend = rows[0].get("backends", "not told")
        return speeds(rows)

    def rounds(self, model):
        count = 1 if self.options.quick else self.options.rounds
        return [(self.weft_round(model), self.llama_round(model)) for _ in range(count)]


def machine_table(kernels, version):
    cpu = next((line.split(":", 1)[1].strip()
                for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), platform.machine())
    print("| | |\n|---|---|")
    for name, text in (("weft", version), ("device", f"{kernels['name']} ({kernels['kind']})"),
                       ("driver", kernels["driver"]), ("processor", cpu),
                       ("kernel", platform.release()),
                       ("submit + wait", f"{kernels['submit_us']:.1f} us"),
                       ("copies", f"{kernels['copy_gb_s']:.1f} GB/s, read and written by a kernel"),
                       ("transfers", f"{kernels['transfer_gb_s']:.1f} GB/s, by a command"),
                       ("multiplies", f"{kernels['float_tflop_s']:.3g} TFLOP/s in float32")):
        print(f"| {name} | {text} |")


def kernel_table(kernels):
    print(f"\n| weights | matvec, GB/s | of the copy | {kernels['rows']} rows, TFLOP/s |"
          " of float32 |\n|---|---:|---:|---:|---:|")
    for one in kernels["types"]:
        print(f"| {one['type']} | {one['matvec_gb_s']:.1f} | "
              f"{100 * one['matvec_gb_s'] / kernels['copy_gb_s']:.0f} % | "
              f"{one['tile_tflop_s']:.3g} | "
              f"{100 * one['tile_tflop_s'] / kernels['float_tflop_s']:.0f} % |")


def attention_table(kernels):
    """Beside products of F16 weights, which run on the same units."""
    tiles = next((one["tile_tflop_s"] for one in kernels["types"] if one["type"] == "F16"), None)
    print("\n| attention of a prompt (32 heads, 8 KV heads, 128 dims, f16 cache) | rows | TFLOP/s |"
          " of F16 products |\n|---|---:|---:|---:|")
    for one in kernels["attention"]:
        share = "" if tiles is None else f"{100 * one['tflop_s'] / tiles:.0f} %"
        print(f"| {one['keys']} keys | {one['rows']} | {one['tflop_s']:.3g} | {share} |")


def training_table(training):
    units = "matrix units" if training["matrix_units"] else "no matrix units"
    print(f"\n| products of training ({units}) | rows, n, k | form | TFLOP/s |"
          "\n|---|---|---|---:|")
    for one in training["products"]:
        print(f"| {one['product']} | {one['rows']}, {one['n']}, {one['k']} | {one['form']} | "
              f"{one['tflop_s']:.3g} |")


def shape_table(training):
    if not training["shapes"]:
        return
    print("\n| products on matrix units | rows | invocations | tile: rows x wide x deep | subgroups"
          " along rows | buffers | us | TFLOP/s |\n|---|---:|---:|---|---:|---:|---:|---:|")
    for one in training["shapes"]:
        print(f"| {one['type']}, {one['size']} x {one['size']} | {one['rows']} | "
              f"{one['invocations']} | {' x '.join(map(str, one['tile']))} | {one['down']} | "
              f"{one['buffers']} | {one['us']:.1f} | {one['tflop_s']:.3g} |")


def middle(values):
    return statistics.median(values) if values else None


def text_of(value, form):
    return "" if value is None else format(value, form)


def model_table(models):
    print("\n| model | test | weft, tok/s | llama.cpp, tok/s | ratio | W | J/token |"
          "\n|---|---|---:|---:|---:|---:|---:|")
    for name, rounds in models.items():
        for test in ("prefill", "decode"):
            own = [weft[test] for weft, _ in rounds]
            pairs = [(weft[test], llama[test]) for weft, llama in rounds if llama]
            rows = [weft[test + " row"] for weft, _ in rounds]
            watts = [row["avg_watts"] for row in rows if row["avg_watts"] is not None]
            joules = [row["joules_per_token"] for row in rows
                      if row["joules_per_token"] is not None]
            print(f"| {rows[0]['model_type']} | {test} | {middle(own):.1f} | "
                  f"{text_of(middle([b for _, b in pairs]), '.1f')} | "
                  f"{text_of(middle([a / b for a, b in pairs]), '.2f')} | "
                  f"{text_of(middle(watts), '.1f')} | {text_of(middle(joules), '.3f')} |")
        power = rounds[0][0]["decode row"]
        lines = [f"{s['host']}: {s['sensor']}" for s in power["power_sensors"]]
        for line in lines + power["power_notes"]:
            print(f"\npower ({name}): {line}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", help=f"as often as you like ({LARGE})")
    parser.add_argument("--device", default="vulkan", help="vulkan (the first GPU) or vulkan:N")
    parser.add_argument("--llama", help="the folder of llama-bench")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run to the end?")
    parser.add_argument("--build", default=str(ROOT / "build"))
    parser.add_argument("--json", help="also write all that was measured to this file")
    options = parser.parse_args()
    try:
        bench = Bench(options)
        kernels = bench.kernels()
        training = bench.training()
        computes = kernels["kind"] == "cpu"
        models = {model: bench.rounds(model)
                  for model in options.model or [ABACUS if computes else LARGE]}
    except Failed as failed:
        sys.exit(f"gpu.py: {failed}")
    machine_table(kernels, bench.version())
    kernel_table(kernels)
    attention_table(kernels)
    training_table(training)
    shape_table(training)
    model_table(models)
    if bench.llama_backend:
        print(f"\nllama.cpp's backend: {bench.llama_backend}.")
    if bench.llama is None:
        print("\nWithout llama.cpp: no llama-bench on PATH, nor by --llama.")
    if computes:
        print(f"\n{kernels['name']} computes on the processor: these figures mean nothing for a "
              "GPU.")
    if options.json:
        pathlib.Path(options.json).write_text(
            json.dumps({"kernels": kernels, "training": training, "models": models}, indent=1))


if __name__ == "__main__":
    main()
