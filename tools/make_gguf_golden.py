#!/usr/bin/env python3
"""Makes tests/data/gguf_golden*.gguf and the seeds in fuzz/corpus/gguf with gguf-py, which is
independent of Weft's own reader and writer.

Made with gguf 0.19.0 (newer versions work too) and numpy 2.4.6; seed 7:
    pip install gguf && tools/make_gguf_golden.py
tests/model_files/gguf_golden_test.cc repeats the values.
"""
import pathlib
import shutil

import gguf
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT / "tests/data"
CORPUS = ROOT / "fuzz/corpus/gguf"


def add_metadata(writer):
    writer.add_uint8("test.u8", 200)
    writer.add_int8("test.i8", -100)
    writer.add_uint16("test.u16", 60000)
    writer.add_int16("test.i16", -30000)
    writer.add_uint32("test.u32", 4000000000)
    writer.add_int32("test.i32", -2000000000)
    writer.add_float32("test.f32", 0.1)
    writer.add_uint64("test.u64", 2**63 + 1)
    writer.add_int64("test.i64", -(2**62))
    writer.add_float64("test.f64", 0.1)
    writer.add_bool("test.bool", True)
    writer.add_string("test.string", "w\u00e9ft \U0001f9f6")
    writer.add_array("test.ints", [1, -2, 3])
    writer.add_array("test.floats", [0.5, -1.25])
    writer.add_array("test.strings", ["", "a", "\u6f22\u5b57"])
    writer.add_array("test.bools", [True, False])


def add_tensors(writer, random):
    kinds = gguf.GGMLQuantizationType
    writer.add_tensor("ramp", np.arange(24, dtype=np.float32).reshape(2, 3, 4))
    matrix = random.standard_normal((3, 64)).astype(np.float32)
    for kind in (kinds.F16, kinds.BF16, kinds.Q4_0, kinds.Q4_1, kinds.Q8_0):
        packed = gguf.quants.quantize(matrix, kind)
        writer.add_tensor(kind.name.lower(), packed, raw_dtype=kind)


def write(path, **options):
    random = np.random.default_rng(7)
    writer = gguf.GGUFWriter(path, "llama", **options)
    add_metadata(writer)
    add_tensors(writer, random)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    DATA.mkdir(exist_ok=True)
    CORPUS.mkdir(parents=True, exist_ok=True)
    write(DATA / "gguf_golden.gguf")
    write(DATA / "gguf_golden_split.gguf", split_max_tensors=3)
    for path in sorted(DATA.glob("gguf_golden*.gguf")):
        shutil.copy(path, CORPUS / path.name.removesuffix(".gguf"))
        reader = gguf.GGUFReader(path)
        for tensor in reader.tensors:
            print(path.name, tensor.name, tensor.tensor_type.name, list(tensor.shape),
                  bytes(tensor.data.tobytes()[:4]).hex())


if __name__ == "__main__":
    main()
