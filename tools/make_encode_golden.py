#!/usr/bin/env python3
"""Makes tests/data/encode_golden.bin: random weights, and ggml's rounding error for each type.

Made with ggml 0.25.3 (libggml-base.so of llama.cpp), gguf 0.19.0, numpy 2.4.6, seed 11.
Run: python3 tools/make_encode_golden.py LIBGGML_BASE_SO OUT.
Layout, little endian: u32 cols, u32 rows; rows * cols f16; cols f32 (importance); u32 types; for
each: u32 gguf_type, f64 root mean square error of ggml's result over that of the weights, f64 the
same weighted by the importance.
"""
import ctypes
import struct
import sys

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize

COLS, ROWS = 512, 24
TYPES = (T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.Q2_K, T.Q3_K, T.Q4_K, T.Q5_K, T.Q6_K, T.IQ4_NL,
         T.IQ4_XS, T.MXFP4, T.IQ3_S, T.IQ3_XXS, T.IQ2_S, T.IQ2_XS, T.IQ2_XXS, T.IQ1_S, T.IQ1_M)
NEEDY = TYPES[-6:]  # these need an importance; theirs is the same for all columns


def main(library: str, path: str) -> None:
    ggml = ctypes.CDLL(library)
    floats = ctypes.POINTER(ctypes.c_float)
    chunk = ggml.ggml_quantize_chunk
    chunk.restype = ctypes.c_size_t
    chunk.argtypes = [ctypes.c_int, floats, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64,
                      ctypes.c_int64, floats]
    rng = np.random.default_rng(11)
    weights = rng.standard_normal((ROWS, COLS)) * 0.02
    weights[::3] *= rng.exponential(1.0, (ROWS // 3, COLS))  # heavier tails
    weights[1::3] += 0.01                                    # with an offset from zero
    halves = weights.astype(np.float16)
    x = np.ascontiguousarray(halves.astype(np.float32))
    importance = np.exp(rng.standard_normal(COLS)).astype(np.float32)

    def error(kind, given, weight):
        per_block, block_bytes = GGML_QUANT_SIZES[kind]
        out = np.zeros(x.size // per_block * block_bytes, np.uint8)
        ggml.ggml_quantize_init(int(kind))
        chunk(int(kind), x.ctypes.data_as(floats), out.ctypes.data, 0, ROWS, COLS,
              None if given is None else given.ctypes.data_as(floats))
        off = dequantize(out, kind).reshape(ROWS, COLS).astype(np.float64) - x
        return float(np.sqrt((weight * off**2).sum() / (weight * x.astype(np.float64)**2).sum()))

    with open(path, "wb") as out:
        out.write(struct.pack("<II", COLS, ROWS) + halves.tobytes() + importance.tobytes())
        out.write(struct.pack("<I", len(TYPES)))
        for kind in TYPES:
            flat = np.ones(COLS)
            plain = error(kind, flat.astype(np.float32) if kind in NEEDY else None, flat)
            weighed = error(kind, importance, importance.astype(np.float64))
            out.write(struct.pack("<Idd", kind.value, plain, weighed))
            print(kind.name, plain, weighed)


main(sys.argv[1], sys.argv[2])
