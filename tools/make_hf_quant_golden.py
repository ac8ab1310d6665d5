#!/usr/bin/env python3
"""Writes tests/data/hf_quant_golden.safetensors: quantized linear layers and their float weights.

Each case has the tensors of one layer as its format packs them ("CASE/in/qweight"), the weights as
float32 ("CASE/out") and the quantization_config ("CASE/config" in the metadata).

pack-quantized: packed and unpacked by compressed_tensors itself. AWQ and GPTQ are packed here in
numpy, from descriptions of the layouts: AWQ in AutoAWQ's gemm order (nibble i of a word holds
output order[i] of its eight), GPTQ as in GPTQModel (along the inputs, zeros along the outputs, minus
one in the first format). fp8: torch's float8_e4m3fn.

Made with Python 3.11, torch 2.13.0+cpu, compressed-tensors 0.20.0, numpy 2.4.6, seed 7:
    python3 tools/make_hf_quant_golden.py tests/data/hf_quant_golden.safetensors
"""

import json
import sys

import numpy as np
import safetensors.torch
import torch
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32, unpack_from_int32

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]
rng = np.random.default_rng(7)
tensors, metadata = {}, {}


def codes(bits, rows, cols):
    return rng.integers(0, 1 << bits, (rows, cols), dtype=np.int64)


def scales(rows, cols, dtype):
    return torch.from_numpy(rng.uniform(0.003, 0.02, (rows, cols)).astype(np.float32)).to(dtype)


def words(fields, bits, order=None):
    """Packs along the last dim: field i of each group of 32 / bits goes to bits i * bits and up."""
    per = 32 // bits
    fields = fields.reshape(*fields.shape[:-1], -1, per)
    out = np.zeros(fields.shape[:-1], dtype=np.uint64)
    for i in range(per):
        out |= fields[..., order[i] if order else i].astype(np.uint64) << np.uint64(i * bits)
    return torch.from_numpy(out.astype(np.uint32).view(np.int32).copy())


def keep(case, config, parts, weights):
    metadata[f"{case}/config"] = json.dumps(config)
    tensors.update({f"{case}/in/{k}": v.contiguous() for k, v in parts.items()})
    tensors[f"{case}/out"] = torch.as_tensor(weights, dtype=torch.float32).contiguous()


def unfold(q, z, s, group_of):
    """(q - z) * s in float32; q [out, in], z and s [groups, out]."""
    s = s.float().numpy()
    return ((q - z.T[:, group_of]).astype(np.float32) * s.T[:, group_of]).astype(np.float32)


def awq(case, out, cols, group):
    q, z = codes(4, out, cols), codes(4, cols // group, out)
    s = scales(cols // group, out, torch.float16)
    parts = {"qweight": words(q.T, 4, AWQ_ORDER), "qzeros": words(z, 4, AWQ_ORDER), "scales": s}
    config = {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True,
              "version": "gemm", "modules_to_not_convert": None}
    keep(case, config, parts, unfold(q, z, s, np.arange(cols) // group))


def gptq(case, bits, out, cols, group, v1, sym, desc_act):
    groups = cols // group
    q = codes(bits, out, cols)
    z = np.full((groups, out), 1 << (bits - 1)) if sym else codes(bits, groups, out)
    if v1 and not sym:
        z = np.maximum(z, 1)  # quantizers store zeros minus one
        z[0, 0] = 1 << bits   # a zero that a field of `bits` bits cannot hold
    s = scales(groups, out, torch.float16)
    group_of = np.arange(cols) // group
    if desc_act:
        group_of = rng.permutation(group_of)
    stored = z - 1 if v1 else z
    parts = {"qweight": words(q, bits).T, "qzeros": words(stored, bits), "scales": s,
             "g_idx": torch.from_numpy(group_of.astype(np.int32))}
    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": desc_act,
              "sym": sym, "checkpoint_format": "gptq" if v1 else "gptq_v2"}
    weights = unfold(q, z, s, group_of)
    if desc_act:  # multiplied in float16, as in torch
        weights = torch.from_numpy(weights).half().float()
    keep(case, config, parts, weights)


def compressed(case, bits, out, cols, group, sym, dtype, order=None):
    groups = cols // group if group else 1
    half = 1 << (bits - 1)
    q = torch.from_numpy(codes(bits, out, cols) - half).to(torch.int8)
    s = scales(out, groups, dtype)
    parts = {"weight_packed": pack_to_int32(q, bits), "weight_scale": s,
             "weight_shape": torch.tensor([out, cols], dtype=torch.int64)}
    z = torch.zeros((out, groups), dtype=torch.int8)
    if not sym:
        z = torch.from_numpy(codes(bits, out, groups) - half).to(torch.int8)
        parts["weight_zero_point"] = pack_to_int32(z, bits, packed_dim=0)
        assert torch.equal(unpack_from_int32(parts["weight_zero_point"], bits, z.shape, 0), z)
    assert torch.equal(unpack_from_int32(parts["weight_packed"], bits, q.shape), q)
    group_of = np.arange(cols) // (group or cols)
    if order == "group":
        group_of = rng.permutation(group_of)
        parts["weight_g_idx"] = torch.from_numpy(group_of.astype(np.int32))
    weights = unfold(q.numpy().astype(np.int64), z.numpy().T.astype(np.int64), s.T, group_of)
    if order == "group":
        weights = torch.from_numpy(weights).to(dtype).float()
    arguments = {"num_bits": bits, "type": "int", "symmetric": sym, "actorder": order,
                 "strategy": "group" if group else "channel", "group_size": group}
    config = {"quant_method": "compressed-tensors", "format": "pack-quantized",
              "quantization_status": "compressed", "ignore": ["lm_head"],
              "config_groups": {"group_0": {"targets": ["Linear"], "weights": arguments,
                                            "input_activations": None}}}
    keep(case, config, parts, weights)


def fp8(case, out, cols, block):
    weight = torch.from_numpy(rng.normal(0, 60, (out, cols)).astype(np.float32))
    weight[0, :4] = torch.tensor([448.0, -448.0, 2.0 ** -9, -0.0])
    weight = weight.to(torch.float8_e4m3fn)
    rows = (out + block[0] - 1) // block[0]
    s = scales(rows, (cols + block[1] - 1) // block[1], torch.float32)
    wide = s.repeat_interleave(block[0], 0)[:out].repeat_interleave(block[1], 1)[:, :cols]
    config = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
              "weight_block_size": block}
    keep(case, config, {"weight": weight, "weight_scale_inv": s},
         (weight.float() * wide).bfloat16().float())


def main():
    awq("awq32", 40, 96, 32)
    awq("awq64", 16, 128, 64)
    gptq("gptq4Sym", 4, 24, 64, 32, True, True, False)
    gptq("gptq4Asym", 4, 16, 96, 32, True, False, False)
    gptq("gptq4V2", 4, 16, 64, 64, False, False, False)
    gptq("gptq8", 8, 12, 96, 32, True, True, False)
    gptq("gptqDescAct", 4, 16, 96, 32, True, False, True)
    compressed("packed4", 4, 20, 96, 32, True, torch.bfloat16)
    compressed("packed4Asym", 4, 20, 96, 32, False, torch.bfloat16)
    compressed("packed4Half", 4, 20, 64, 64, True, torch.float16)
    compressed("packed8Channel", 8, 20, 96, None, True, torch.bfloat16)
    compressed("packed8Asym", 8, 20, 64, 32, False, torch.float16)
    compressed("packed4Order", 4, 20, 96, 32, True, torch.bfloat16, "group")
    compressed("packed4Single", 4, 12, 64, 32, True, torch.float32)
    fp8("fp8", 40, 72, [16, 32])
    safetensors.torch.save_file(tensors, sys.argv[1], metadata=metadata)


main()
