#!/usr/bin/env python3
"""Training curves of supervised fine-tuning by TRL, for tests/train/sft_test.py.

    python3 -m venv venv
    venv/bin/pip install torch==2.13.0 transformers==5.24 trl==1.16
    venv/bin/python tools/make_sft_golden.py build/weft models/abacus tests/data/sft_curves.json

models/abacus/model.gguf is the model; Weft writes it as a folder in float32 (an update with a rate
of 0). The file has the records, and for each curve the options and the numbers of each update:
loss, gradient norm and token accuracy. Records come in their order. TRL computes in float64. z-loss
is computed here, with torch's cross-entropy, as TRL's compute_loss_func. transformers draws NEFTune's noise; here its numbers are those of
src/tensor/noise.h, with the keys of src/train/micro_batch.cc, and transformers scales them.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers
import transformers.integrations.neftune as neftune
import trl
from datasets import Dataset

# (An epsilon above the rounding errors of gradients, which Adam would magnify.)
STEPS, LR, EPSILON, BATCH, LENGTH = 6, 1e-5, 1e-4, 4, 127
SUMS = [(47, 38), (12, 19), (60, 25), (33, 33), (71, 18), (45, 40), (28, 14), (79, 11)]
# The sum, and an answer that the model has to learn. All records have as many tokens.
DATA = [dict(prompt=f"<|user|>What is {a} + {b}?<|assistant|>", completion=f"{a + b} = {b} + {a}")
        for a, b in SUMS]
# (Noise moves the layers' input; at some scales, as 5 and 1, the gradients there magnify the rounding
# errors of float32: torch's own curve in float32 is then beyond the test's bounds.)
CURVES = {
    "plain": {},
    "label_smoothing": dict(label_smoothing=0.1),
    "z_loss": dict(z_loss=1e-2),
    "both": dict(label_smoothing=0.3, z_loss=1e-3),
    "neftune": dict(neftune_alpha=1.5),
}


def mix(value):
    mask = 2**64 - 1
    value = (value + 0x9E3779B97F4A7C15) & mask
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & mask
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & mask
    return value ^ value >> 31


def noise(rows, positions, columns, update, seed=0):
    """Numbers of [-1, 1) for [rows, positions, columns]."""
    places = np.arange(rows)[:, None] * LENGTH + np.arange(positions)
    keys = np.array([mix(mix(seed ^ mix(update)) ^ int(at)) >> 32 for at in places.flat], np.uint32)
    with np.errstate(over="ignore"):
        bits = keys[:, None] + np.arange(columns, dtype=np.uint32) * np.uint32(0x9E3779B9)
        bits = (bits ^ bits >> np.uint32(16)) * np.uint32(0x7FEB352D)
        bits = (bits ^ bits >> np.uint32(15)) * np.uint32(0x846CA68B)
        bits ^= bits >> np.uint32(16)
    unit = (bits >> np.uint32(8)).astype(np.float64) * 2.0**-23 - 1
    return torch.from_numpy(unit.reshape(rows, positions, columns))


class Recording(trl.SFTTrainer):
    curve = None

    def _get_train_sampler(self, dataset=None):
        return torch.utils.data.SequentialSampler(dataset or self.train_dataset)

    def compute_loss(self, model, inputs, return_outputs=False, **words):
        self.model.update = self.state.global_step + 1
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **words)
        self.curve.append({"loss": float(loss.detach()),
                           "mean_token_accuracy": self._metrics["train"]["mean_token_accuracy"][-1]})
        return (loss, outputs) if return_outputs else loss

    def log(self, logs, *args, **words):
        if "grad_norm" in logs:
            self.curve[-1]["grad_norm"] = float(logs["grad_norm"])
        super().log(logs, *args, **words)


def loss_with_z(options):
    if "z_loss" not in options:
        return None

    def loss(outputs, labels, num_items_in_batch=None):
        wanted = labels[:, 1:]
        logits = outputs.logits[:, :-1][wanted != -100]
        plain = torch.nn.functional.cross_entropy(
            logits, wanted[wanted != -100], label_smoothing=options.get("label_smoothing", 0.0))
        return plain + options["z_loss"] * (torch.logsumexp(logits, -1)**2).mean()
    return loss


def curve_of(folder, tokenizer, options):
    options = dict(options)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    scaled = neftune.neftune_post_forward_hook

    def hook(module, inputs, output):
        """transformers' hook, whose uniform_ takes the numbers of noise()."""
        drawn = torch.Tensor.uniform_

        def take(self, low, high):
            return self.copy_(noise(*self.shape, model.update)).mul_(high)
        torch.Tensor.uniform_ = take
        try:
            return scaled(module, inputs, output)
        finally:
            torch.Tensor.uniform_ = drawn
    neftune.neftune_post_forward_hook = hook
    with tempfile.TemporaryDirectory() as out:
        config = trl.SFTConfig(
            output_dir=out, max_steps=STEPS, per_device_train_batch_size=BATCH, learning_rate=LR,
            lr_scheduler_type="constant", weight_decay=0.0, adam_epsilon=EPSILON,
            max_grad_norm=1.0, logging_steps=1, report_to=[], save_strategy="no", use_cpu=True,
            bf16=False, fp16=False, gradient_checkpointing=False, max_length=LENGTH + 1,
            loss_type="nll", label_smoothing_factor=0.0 if "z_loss" in options else options.get("label_smoothing", 0.0),
            neftune_noise_alpha=options.get("neftune_alpha"))
        trainer = Recording(model=model, args=config, train_dataset=Dataset.from_list(DATA),
                            processing_class=tokenizer, compute_loss_func=loss_with_z(options))
        trainer.curve = []
        trainer.train()
    neftune.neftune_post_forward_hook = scaled
    return trainer.curve


def main():
    weft, abacus, out = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([weft, "train", abacus + "/model.gguf", "--data",
                        "synthetic:random-tokens:9:2", "--seq-len", "8", "--steps", "1", "--lr",
                        "0", "--dtype", "f32", "--output-dir", folder + "/base", "--save-format",
                        "hf", "--save-type", "F32"], check=True)
        base = folder + "/base/model"
        tokenizer = transformers.AutoTokenizer.from_pretrained(base)
        curves = {}
        for name, options in CURVES.items():
            curves[name] = dict(options=options, steps=curve_of(base, tokenizer, options))
            print(name, curves[name]["steps"])
    with open(out, "w") as file:
        json.dump(dict(made_by=dict(trl=trl.__version__, transformers=transformers.__version__,
                                    torch=torch.__version__),
                       lr=LR, eps=EPSILON, batch=BATCH, data=DATA, curves=curves),
                  file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    main()
