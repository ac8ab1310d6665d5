#!/usr/bin/env python3
"""Training curves of preference losses by TRL, for tests/train/preference_test.py.

    python3 -m venv venv
    venv/bin/pip install torch==2.13.0 transformers==5.24 trl==1.16 peft==0.21.2
    venv/bin/python tools/make_preference_golden.py build/weft models/abacus \
        tests/data/preference_curves.json

models/abacus/model.gguf is the model; Weft writes it as a folder in float32 (an update with a rate
of 0), and the initial adapter of --lora 4. The file has the records, and for each curve the data,
the options and the numbers of each update: loss, gradient norm, and TRL's metrics. The curves below
"continued" start from the adapter of three updates of "dpo_lora" by Weft. No randomness: records
come in their order. TRL computes in float64.
"""
import json
import os
import subprocess
import sys
import tempfile

import torch
import transformers
import trl
from datasets import Dataset
from peft import PeftModel
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

# (An epsilon above the rounding errors of gradients, which Adam would magnify.)
STEPS, LR, EPSILON = 6, 1e-4, 1e-4
SUMS = [(47, 38), (12, 9), (60, 25), (33, 33), (71, 18), (5, 90), (28, 14), (99, 1)]


def turns():
    """The question, and the two answers."""
    return [(f"What is {a} + {b}?", f"{a + b} = {a} + {b}", f"{a + b + 3}" + "." * (1 + a % 3))
            for a, b in SUMS]


def pairs():
    """The control tokens of the model's template are written out."""
    return [dict(prompt=f"<|user|>{question}<|assistant|>", chosen=chosen, rejected=rejected)
            for question, chosen, rejected in turns()]


def conversations():
    """The prompt is what both lists begin with."""
    def told(question, answer):
        return [dict(role="user", content=question), dict(role="assistant", content=answer)]
    return [dict(chosen=told(question, chosen), rejected=told(question, rejected))
            for question, chosen, rejected in turns()]


def singles():
    return [dict(prompt=r["prompt"], completion=r["chosen"] if i % 3 else r["rejected"],
                 label=i % 3 > 0) for i, r in enumerate(pairs())]


DATA = dict(pairs=pairs(), conversations=conversations(), singles=singles())
# data, batch, adapter, options of TRL and of Weft alike. (beta and the rate magnify the rounding
# errors of float32: keep torch's own curve in float32 at a third of the test's bounds or less.)
CURVES = {
    "dpo": ("pairs", 4, False, dict(loss="dpo")),
    "dpo_conversations": ("conversations", 4, False, dict(loss="dpo", beta=0.3)),
    "dpo_lora": ("pairs", 4, True, dict(loss="dpo", beta=0.15)),
    "ipo": ("pairs", 4, False, dict(loss="ipo", beta=0.2)),
    "orpo": ("pairs", 4, False, dict(loss="orpo", beta=0.4)),
    "simpo": ("pairs", 4, False, dict(loss="simpo", beta=2.0, simpo_gamma=1.0,
                                      label_smoothing=0.1)),
    "kto": ("singles", 8, False, dict(loss="kto", desirable_weight=1.5, undesirable_weight=0.75)),
    "kto_of_pairs": ("pairs", 16, False, dict(loss="kto", beta=0.3)),
}
CONTINUED = ("dpo", "ipo", "kto_of_pairs")


def trainer_of(loss):
    return {"dpo": (trl.DPOConfig, trl.DPOTrainer, dict(loss_type=["sigmoid"])),
            "ipo": (trl.DPOConfig, trl.DPOTrainer, dict(loss_type=["ipo"])),
            "orpo": (ORPOConfig, ORPOTrainer, {}),
            "simpo": (CPOConfig, CPOTrainer, dict(loss_type="simpo", cpo_alpha=0.0)),
            "kto": (trl.KTOConfig, trl.KTOTrainer, {})}[loss]


def recording(trainer_class, curve):
    class Recording(trainer_class):
        def _get_train_sampler(self, dataset=None):
            return torch.utils.data.SequentialSampler(dataset or self.train_dataset)

        def compute_loss(self, *args, **words):
            loss = super().compute_loss(*args, **words)
            curve.append({"loss": float(loss.detach())})
            return loss

        def log(self, logs, *args, **words):
            if "grad_norm" in logs:
                curve[-1]["grad_norm"] = float(logs["grad_norm"])
            kept = getattr(self, "_metrics", None) or getattr(self, "_stored_metrics")
            for name, values in dict(kept["train"]).items():
                if name.startswith(("rewards/", "logps/")) or name == "kl":
                    curve[-1][name] = float(torch.tensor(values, dtype=torch.float64).mean())
            super().log(logs, *args, **words)
    return Recording


def curve_of(model_folder, adapter, tokenizer, data, batch, with_adapter, options):
    options = dict(options)
    config_class, trainer_class, more = trainer_of(options.pop("loss"))
    curve = []
    model = transformers.AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float64)
    if with_adapter:
        model = PeftModel.from_pretrained(model, adapter, is_trainable=True)
    with tempfile.TemporaryDirectory() as out:
        config = config_class(
            output_dir=out, max_steps=STEPS, per_device_train_batch_size=batch, learning_rate=LR,
            lr_scheduler_type="constant", weight_decay=0.0, adam_epsilon=EPSILON,
            max_grad_norm=1.0, logging_steps=1,
            report_to=[], save_strategy="no", use_cpu=True, bf16=False, fp16=False,
            gradient_checkpointing=False, remove_unused_columns=False, max_length=128,
            **options, **more)
        trainer = recording(trainer_class, curve)(
            model=model, args=config, train_dataset=Dataset.from_list(data),
            processing_class=tokenizer)
        trainer.train()
    return curve


def main():
    weft, abacus, out = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        def run(name, *flags):
            subprocess.run([weft, "train", abacus + "/model.gguf", "--data",
                            "synthetic:random-tokens:9:2", "--seq-len", "8", "--steps", "1", "--lr",
                            "0", "--dtype", "f32", "--output-dir", f"{folder}/{name}", *flags],
                           check=True)
        run("base", "--save-format", "hf", "--save-type", "F32")
        run("adapter", "--lora", "4")
        base = folder + "/base/model"
        tokenizer = transformers.AutoTokenizer.from_pretrained(base)
        curves = {}
        for name, (data, batch, adapter, options) in CURVES.items():
            steps = curve_of(base, folder + "/adapter", tokenizer, DATA[data], batch, adapter,
                             options)
            curves[name] = dict(data=data, batch=batch, adapter=adapter, options=options,
                                steps=steps)
            print(name, [round(step["loss"], 6) for step in steps])
        with open(folder + "/pairs.jsonl", "w") as file:
            file.writelines(json.dumps(record) + "\n" for record in DATA["pairs"])
        subprocess.run([weft, "train", abacus + "/model.gguf", "--data", folder + "/pairs.jsonl",
                        "--seq-len", "127", "--no-shuffle", "--dtype", "f32", "--weight-decay", "0",
                        "--lr", str(LR), "--eps", str(EPSILON), "--lora", "4", "--loss", "dpo",
                        "--beta", "0.15", "--steps", "3", "--micro-batch", "4", "--output-dir",
                        folder + "/trained"], check=True)
        continued = {}
        for name in CONTINUED:
            data, batch, _, options = CURVES[name]
            continued[name] = curve_of(base, folder + "/trained", tokenizer, DATA[data], batch,
                                       True, options)
            print("continued", name, [round(step["loss"], 6) for step in continued[name]])
    with open(out, "w") as file:
        json.dump(dict(made_by=dict(trl=trl.__version__, transformers=transformers.__version__,
                                    torch=torch.__version__),
                       lr=LR, eps=EPSILON, data=DATA, curves=curves, continued=continued),
                  file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    main()
