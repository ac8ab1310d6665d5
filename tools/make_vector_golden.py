#!/usr/bin/env python3
"""Training curves of losses over vectors, for tests/train/vector_test.py: rewards by TRL, classes by
transformers' Trainer, and embeddings by the formula of sentence-transformers'
MultipleNegativesRankingLoss in torch.

    python3 -m venv venv
    venv/bin/pip install torch==2.13.0 transformers==5.24 trl==1.16 peft==0.21.2
    venv/bin/python tools/make_vector_golden.py build/weft models/abacus \
        tests/data/vector_curves.json

models/abacus/model.gguf is the model; Weft writes it as a folder in float32 (an update with a rate
of 0), with the initial score head of --seed 0, and the initial adapter of --lora 4. The file has the
records, and for each curve the data, the options and the numbers of each update. No randomness:
records come in their order. Everything is computed in float64.
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

# (An epsilon above the rounding errors of gradients, which Adam would magnify.)
STEPS, LR, EPSILON = 6, 1e-4, 1e-4
# (With a scale of 20, larger steps magnify rounding errors: float32 in torch differs from float64 by
# 7e-4 of the gradient norm after two steps of 1e-4.)
TEXT_LR = 1e-5
SUMS = [(47, 38), (12, 9), (60, 25), (33, 33), (71, 18), (5, 90), (28, 14), (99, 1)]


def pairs():
    return [dict(prompt=f"<|user|>What is {a} + {b}?<|assistant|>", chosen=f"{a + b} = {a} + {b}",
                 rejected=f"{a + b + 3}" + "." * (1 + a % 3)) for a, b in SUMS]


def conversations():
    """The prompt is what both lists begin with."""
    def told(a, b, answer):
        return [dict(role="user", content=f"What is {a} + {b}?"),
                dict(role="assistant", content=answer)]
    return [dict(chosen=told(a, b, f"{a + b} = {a} + {b}"), rejected=told(a, b, f"{a + b + 3}."))
            for a, b in SUMS]


def margins():
    return [dict(record, margin=i / 4) for i, record in enumerate(pairs())]


def classes():
    return [dict(text=f"{a} + {b} = {a + b}" + " and more" * (a % 3), label=(a + b) % 3)
            for a, b in SUMS]


def texts():
    return [dict(anchor=f"What is {a} + {b}?", positive=f"{a} + {b} = {a + b}") for a, b in SUMS]


def triplets():
    return [dict(record, negative=f"{a + b} is {a + b + 3}" + " too" * (b % 3))
            for record, (a, b) in zip(texts(), SUMS)]


DATA = dict(pairs=pairs(), conversations=conversations(), margins=margins(), classes=classes(),
            texts=texts(), triplets=triplets())
# data, records of an update, adapter, options of Weft
CURVES = {
    "reward": ("pairs", 4, False, dict(loss="reward")),
    "reward_conversations": ("conversations", 4, False,
                             dict(loss="reward", center_rewards_coefficient=0.1)),
    "reward_margins": ("margins", 4, False, dict(loss="reward")),
    "reward_lora": ("pairs", 4, True, dict(loss="reward")),
    "classes": ("classes", 4, False, dict(loss="classification", num_labels=3)),
    "classes_lora": ("classes", 4, True, dict(loss="classification", num_labels=3)),
    "texts": ("texts", 4, False, dict(loss="contrastive")),
    "triplets_mean": ("triplets", 4, False, dict(loss="contrastive", pooling="mean")),
    "triplets_cls": ("triplets", 8, False,
                     dict(loss="contrastive", pooling="cls", contrastive_scale=5)),
    "triplets_lora": ("triplets", 4, True, dict(loss="contrastive", pooling="mean")),
}
METRICS = ("accuracy", "margin", "mean_reward")


def config_words(out, batch):
    return dict(output_dir=out, max_steps=STEPS, per_device_train_batch_size=batch,
                learning_rate=LR, lr_scheduler_type="constant", weight_decay=0.0,
                adam_epsilon=EPSILON, max_grad_norm=1.0, logging_steps=1, report_to=[],
                save_strategy="no", use_cpu=True, bf16=False, fp16=False,
                gradient_checkpointing=False, remove_unused_columns=False)


def recording(trainer_class, curve):
    class Recording(trainer_class):
        def _get_train_sampler(self, dataset=None):
            return torch.utils.data.SequentialSampler(dataset or self.train_dataset)

        def compute_loss(self, model, inputs, **words):
            loss, outputs = super().compute_loss(model, inputs, **{**words,
                                                                   "return_outputs": True})
            curve.append({"loss": float(loss.detach())})
            if "labels" in inputs:
                right = outputs.logits.argmax(-1) == inputs["labels"]
                curve[-1]["accuracy"] = float(right.double().mean())
            return loss

        def log(self, logs, *args, **words):
            if "grad_norm" in logs:
                curve[-1]["grad_norm"] = float(logs["grad_norm"])
            for name, values in dict(getattr(self, "_metrics", {}).get("train", {})).items():
                if name in METRICS:
                    curve[-1][name] = float(torch.tensor(values, dtype=torch.float64).mean())
            super().log(logs, *args, **words)
    return Recording


def head_curve(model, tokenizer, data, batch, options):
    curve = []
    with tempfile.TemporaryDirectory() as out:
        if options["loss"] == "reward":
            config = trl.RewardConfig(max_length=128, center_rewards_coefficient=options.get(
                "center_rewards_coefficient"), **config_words(out, batch))
            trainer = recording(trl.RewardTrainer, curve)(
                model=model, args=config, train_dataset=Dataset.from_list(data),
                processing_class=tokenizer)
        else:
            rows = [dict(tokenizer(record["text"]), labels=record["label"]) for record in data]
            trainer = recording(transformers.Trainer, curve)(
                model=model, args=transformers.TrainingArguments(**config_words(out, batch)),
                train_dataset=Dataset.from_list(rows), processing_class=tokenizer)
        trainer.train()
    return curve


def pooled(model, tokenizer, text, pooling):
    hidden = model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True)
    hidden = hidden.hidden_states[-1][0]  # after the final norm
    return {"mean": hidden.mean(0), "cls": hidden[0], "last": hidden[-1]}[pooling]


def text_curve(model, tokenizer, data, batch, options):
    curve = []
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=TEXT_LR, eps=EPSILON, weight_decay=0.0)
    for step in range(STEPS):
        records = [data[(step * batch + i) % len(data)] for i in range(batch)]

        def unit(name):
            vectors = [pooled(model, tokenizer, record[name], options.get("pooling", "last"))
                       for record in records]
            return torch.nn.functional.normalize(torch.stack(vectors), dim=-1)
        names = [name for name in ("positive", "negative") if name in records[0]]
        scores = unit("anchor") @ torch.cat([unit(name) for name in names]).T
        scores = scores * options.get("contrastive_scale", 20)
        loss = torch.nn.functional.cross_entropy(scores, torch.arange(batch))
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        right = scores.argmax(-1) == torch.arange(batch)
        curve.append(dict(loss=float(loss.detach()), grad_norm=float(norm),
                          accuracy=float(right.double().mean())))
    return curve


@torch.no_grad()
def after(model, tokenizer, options):
    """The trained model's results for a text."""
    model.eval()
    if options["loss"] == "contrastive":
        vector = pooled(model, tokenizer, "What is 1 + 2?", options.get("pooling", "last"))
        unit = torch.nn.functional.normalize(vector, dim=-1)
        return dict(text="What is 1 + 2?", vector=unit.tolist())
    texts = ["What is 1 + 2?", " It is 3."]
    scores = model(**tokenizer("".join(texts), return_tensors="pt")).logits[0]
    return dict(texts=texts, score=float(scores[0]))


def main():
    weft, abacus, out = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        tokenizer, curves = None, {}
        for name, (data, batch, adapter, options) in CURVES.items():
            with open(f"{folder}/data.jsonl", "w") as file:
                file.writelines(json.dumps(record) + "\n" for record in DATA[data])
            flags = [part for key, value in options.items()
                     for part in ("--" + key.replace("_", "-"), str(value))]

            def run(where, *more):
                subprocess.run([weft, "train", abacus + "/model.gguf", "--data",
                                f"{folder}/data.jsonl", "--seq-len", "127", "--steps", "1", "--lr",
                                "0", "--dtype", "f32", "--output-dir", where, *flags, *more],
                               check=True)
            base = f"{folder}/{name}"
            run(base, "--save-format", "hf", "--save-type", "F32")
            texts_only = options["loss"] == "contrastive"
            # (Weft writes PEFT adapters for the whole model.)
            kind = transformers.AutoModelForCausalLM if texts_only else \
                transformers.AutoModelForSequenceClassification
            model = kind.from_pretrained(base + "/model", dtype=torch.float64)
            if adapter:
                run(base + "_adapter", "--lora", "4")
                model = PeftModel.from_pretrained(model, base + "_adapter", is_trainable=True)
                model = model.double()
            tokenizer = transformers.AutoTokenizer.from_pretrained(base + "/model")
            tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
            curve_of = text_curve if texts_only else head_curve
            steps = curve_of(model, tokenizer, DATA[data], batch, options)
            curves[name] = dict(data=data, batch=batch, adapter=adapter, options=options,
                                lr=TEXT_LR if texts_only else LR, steps=steps, after=after(model, tokenizer, options))
            print(name, [round(step["loss"], 6) for step in steps])
    with open(out, "w") as file:
        json.dump(dict(made_by=dict(trl=trl.__version__, transformers=transformers.__version__,
                                    torch=torch.__version__),
                       eps=EPSILON, data=DATA, curves=curves),
                  file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    main()
