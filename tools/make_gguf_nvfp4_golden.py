#!/usr/bin/env python3
"""Writes tests/data/gguf_nvfp4.gguf: tensors of type NVFP4 by gguf-py, and their values.

"a.weight" has no separate scale, "b.weight" has one (and one for activations, which has no
effect), and "c.weight" has three experts with one each. "NAME.expected" is gguf-py's dequantize
times the scale, in float32.

Made with gguf 0.19.0, numpy 2.4.6, seed 5:
    python3 tools/make_gguf_nvfp4_golden.py tests/data/gguf_nvfp4.gguf
"""

import sys

import gguf
import numpy as np
from gguf import quants

NVFP4 = gguf.GGMLQuantizationType.NVFP4
rng = np.random.default_rng(5)
writer = gguf.GGUFWriter(sys.argv[1], "llama")


def add(name, shape, scales=None):
    """Random codes, and all scales from 0 to 448; the first seven are denormal."""
    blocks = rng.integers(0, 256, (*shape[:-1], shape[-1] // 64, 36), dtype=np.uint8)
    blocks[..., :4] = rng.integers(0, 127, blocks[..., :4].shape)
    blocks[..., 0, 0, 1:3] = [0, 3]
    packed = blocks.reshape(*shape[:-1], -1)
    values = quants.dequantize(packed, NVFP4).astype(np.float32)
    writer.add_tensor(f"{name}.weight", packed, raw_dtype=NVFP4)
    if scales is not None:
        writer.add_tensor(f"{name}.scale", scales)
        values = values * scales.reshape((-1,) + (1,) * (len(shape) - 1))
    writer.add_tensor(f"{name}.expected", values.astype(np.float32))


add("a", (5, 192))
add("b", (5, 128), np.array([0.0173], dtype=np.float32))
writer.add_tensor("b.input_scale", np.array([3.0], dtype=np.float32))
add("c", (3, 4, 128), np.array([0.5, 1.7, 0.03], dtype=np.float32))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
