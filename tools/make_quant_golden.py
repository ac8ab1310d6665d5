#!/usr/bin/env python3
"""Makes tests/data/quant_golden.bin: random blocks of every type with their values by gguf-py.

Made with gguf 0.19.0 and numpy 2.4.6, seed 20. Run: python3 tools/make_quant_golden.py OUT.
Layout, little endian, for each type: u32 gguf_type, u32 bytes, u32 elements; the bytes; the floats.
"""
import struct
import sys

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize

ELEMENTS = 512
# Offsets of the f16 scales in a block: random bytes would make them NaN or inf.
SCALES = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0],
          T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208],
          T.IQ1_S: [0], T.IQ1_M: [], T.IQ2_XXS: [0], T.IQ2_XS: [0], T.IQ2_S: [0], T.IQ3_XXS: [0],
          T.IQ3_S: [0], T.IQ4_NL: [0], T.IQ4_XS: [0], T.TQ1_0: [52], T.TQ2_0: [64], T.MXFP4: []}


def main(path: str) -> None:
    rng = np.random.default_rng(20)
    with open(path, "wb") as out:
        for kind in (T.F32, T.F16, T.BF16, *SCALES):
            per_block, block_bytes = GGML_QUANT_SIZES[kind]
            blocks = rng.integers(0, 256, (ELEMENTS // per_block, block_bytes), dtype=np.uint8)
            if kind not in SCALES:
                values = rng.standard_normal(ELEMENTS).astype(np.float32)
                bits = values.view(np.uint32)
                raw = {T.F32: values, T.F16: values.astype(np.float16),
                       T.BF16: (bits >> 16).astype(np.uint16)}[kind]
                blocks = np.frombuffer(raw.tobytes(), np.uint8).reshape(-1, block_bytes).copy()
            for at in SCALES.get(kind, []):
                scales = (rng.standard_normal(len(blocks)) * 0.05).astype(np.float16)
                scales[0] = np.float16(3e-6)  # a subnormal
                blocks[:, at:at + 2] = scales.view(np.uint8).reshape(-1, 2)
            if kind is T.IQ1_M:  # its f16 is in the upper bits of four words
                words = blocks[:, 48:56].copy().view(np.uint16)
                scale = np.float16(0.03).view(np.uint16)
                words = words & 0x0FFF | (scale >> np.array([0, 4, 8, 12]) & 15).astype(np.uint16) << 12
                blocks[:, 48:56] = words.astype(np.uint16).view(np.uint8)
            floats = dequantize(blocks.reshape(-1), kind).astype(np.float32)
            out.write(struct.pack("<III", kind.value, blocks.nbytes, floats.size))
            out.write(blocks.tobytes() + floats.tobytes())


main(sys.argv[1])
