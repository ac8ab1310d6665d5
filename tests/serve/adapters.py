"""LoRA adapters with random weights for the tests' model, in PEFT's format."""
import array
import json
import os
import random
import struct

import serving

HIDDEN, RANK = 576, 4  # SmolLM2-135M
ROWS = {"q_proj": 576, "v_proj": 192}


def write_adapter(folder, seed):
    """Writes random weights for Q and V of all layers in PEFT's format."""
    os.makedirs(folder)
    noise = random.Random(seed)
    header, data = {"__metadata__": {"format": "pt"}}, bytearray()
    for layer in range(serving.layers()):
        for module, rows in ROWS.items():
            for which, shape in (("A", (RANK, HIDDEN)), ("B", (rows, RANK))):
                size = 0.04 if which == "A" else 0.3
                values = array.array("f", (noise.uniform(-size, size)
                                           for _ in range(shape[0] * shape[1])))
                name = f"base_model.model.model.layers.{layer}.self_attn.{module}.lora_{which}"
                begin = len(data)
                data += values.tobytes()
                header[name + ".weight"] = {"dtype": "F32", "shape": shape,
                                            "data_offsets": [begin, len(data)]}
    head = json.dumps(header).encode()
    with open(os.path.join(folder, "adapter_model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head + data)
    with open(os.path.join(folder, "adapter_config.json"), "w") as file:
        json.dump({"peft_type": "LORA", "r": RANK, "lora_alpha": 8, "bias": "none",
                   "target_modules": list(ROWS)}, file)


def flags(folder, *names):
    """Writes an adapter of each name into the folder; returns the flags that serve them."""
    words = []
    for seed, name in enumerate(names):
        write_adapter(os.path.join(folder, name), seed)
        words += ["--lora", f"{name}={os.path.join(folder, name)}"]
    return words
