"""Shared by the scripts that make golden files of tiny models: the formula of
tests/support/tiny_model.h for weights and tokens, and the output file with versions."""

import math

import numpy as np
import safetensors
import safetensors.numpy
import torch
import transformers


def formula(name, count):
    """Uniform in [-1, 1), from a hash of the stream's name and the element's index."""
    mask = np.uint64(0xFFFFFFFF)
    seed = 2166136261
    for byte in name.encode():
        seed = ((seed ^ byte) * 16777619) & 0xFFFFFFFF
    h = (np.arange(count, dtype=np.uint64) * np.uint64(2654435761) + np.uint64(seed)) & mask
    h = ((h ^ (h >> np.uint64(15))) * np.uint64(2246822519)) & mask
    h = ((h ^ (h >> np.uint64(13))) * np.uint64(3266489917)) & mask
    return ((h ^ (h >> np.uint64(16))) >> np.uint64(8)).astype(np.float64) / 8388608.0 - 1.0


def tensor(name, shape):
    """The values of a GGUF tensor, float32. Vectors are within +-1/4, norms around 1;
    matrices have variance 1 / columns."""
    norm, decay, factor = "norm" in name, name.endswith("ssm_a"), name.endswith(".scale")
    vector = norm or name.endswith(".bias")
    mean = 1.0 if norm else -1.0 if decay else 8.0 if factor else 0.0
    scale = (2.0 if factor else 0.75 if decay else 0.25 if vector
             else math.sqrt(3.0 / shape[-1]))
    values = mean + formula(name, math.prod(shape)) * scale
    return values.astype(np.float32).reshape(shape)


def hf_tensor(name, shape, norm_base):
    """The values of a tensor of a Hugging Face folder; norms are around norm_base."""
    scale = 0.25 if len(shape) <= 1 else math.sqrt(3.0 / shape[-1])
    values = (norm_base if "norm" in name.lower() else 0.0) + formula(name, math.prod(shape)) * scale
    return torch.from_numpy(values.astype(np.float32).reshape(shape))


def tokens(count, vocabulary, name="tokens"):
    return np.floor((formula(name, count) * 0.5 + 0.5) * vocabulary).astype(np.int64)


def to_halves(w, heads, head_dim):
    """Adjacent pairs, as Q and K in llama's GGUF files -> halves, as in HF."""
    return w.reshape(heads, head_dim // 2, 2, -1).swapaxes(1, 2).reshape(w.shape)


def versions():
    return {"torch": torch.__version__, "transformers": transformers.__version__,
            "safetensors": safetensors.__version__, "numpy": np.__version__,
            "seed": "none: tests/support/tiny_model.h's formula"}


def save(tensors, path):
    """Writes tensors as float32."""
    tensors = {k: np.ascontiguousarray(v, dtype=np.float32) for k, v in tensors.items()}
    safetensors.numpy.save_file(tensors, path, metadata=versions())
