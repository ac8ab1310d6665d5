#!/usr/bin/env python3
"""Writes tests/data/rerank_golden.safetensors: scores of rerankers by CrossEncoder of
sentence-transformers.

A case is a tiny folder: its texts (config.json, tokenizer.json, ...) are in the metadata
("CASE/files"), and its tensors ("CASE/tensors": dtype and shape) come from the formula of
tests/support/tiny_model.h. CrossEncoder loads the written folder and scores the pairs in PAIRS
("CASE/scores": predict; "CASE/logits": without the activation).

Made with Python 3.11, torch 2.13.0+cpu, transformers 5.24.0, sentence-transformers 6.2.0,
tokenizers 0.22, safetensors 0.8.0, numpy 2.4.6:
    python3 tools/make_rerank_golden.py tests/data/rerank_golden.safetensors
"""

import json
import pathlib
import sys
import tempfile

import numpy as np
import safetensors
import safetensors.numpy
import safetensors.torch
import sentence_transformers
import tokenizers
import torch
import transformers
from tokenizers import decoders, models, pre_tokenizers, processors

import golden

PAIRS = [("what is a moon", "the moon is near"), ("what is a moon", "a cat sat on the mat"),
         ("no", "yes"), ("why", "because of the sun, the wind and the rain of the long summer day")]
SIZES = dict(hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=6,
             num_key_value_heads=2, head_dim=16, vocab_size=300, max_position_embeddings=256,
             rms_norm_eps=1e-5, bos_token_id=257, eos_token_id=258, pad_token_id=256,
             tie_word_embeddings=True, initializer_range=0.02)
SPECIAL = ["<pad>", "<bos>", "<eos>", "<turn>"]
TEMPLATE = ("{% for m in messages %}{% if m.role == 'system' %}<turn>{{ m.content }}{% endif %}"
            "{% endfor %}<turn>Q: {{ messages | selectattr('role', 'eq', 'query') | "
            "map(attribute='content') | first }}\nD: {{ messages | selectattr('role', 'eq', "
            "'document') | map(attribute='content') | first }}<turn>")


def byte_tokenizer(post=None):
    """A token per byte, besides "yes", "no" and special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {text: i for i, text in enumerate(alphabet + SPECIAL + ["ye", "yes", "no"])}
    made = tokenizers.Tokenizer(models.BPE(vocabulary, [("y", "e"), ("ye", "s"), ("n", "o")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(SPECIAL)
    if post is not None:
        made.post_processor = post(vocabulary)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>",
        padding_side="left")


def framed(vocabulary):
    return processors.TemplateProcessing(
        single="<bos> $A <eos>", pair="<bos> $A <eos> <eos> $B <eos>",
        special_tokens=[(name, vocabulary[name]) for name in ("<bos>", "<eos>")])


ONE_LABEL = {"num_labels": 1}
TRANSFORMER = "sentence_transformers.base.modules.transformer.Transformer"
CLASSIFIER = {"transformer_task": "sequence-classification", "module_output_name": "scores",
              "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}}}


def alone(**more):
    modules = [{"idx": 0, "name": "0", "path": "", "type": TRANSFORMER}]
    return {"modules.json": json.dumps(modules),
            "sentence_bert_config.json": json.dumps(CLASSIFIER | more)}


def settings(**more):
    return {"config_sentence_transformers.json": json.dumps({"model_type": "CrossEncoder"} | more)}


LOGIT_SCORE = {
    "modules.json": json.dumps([
        {"idx": 0, "name": "0", "path": "", "type": TRANSFORMER},
        {"idx": 1, "name": "1", "path": "1_LogitScore",
         "type": "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"}]),
    "1_LogitScore/config.json": json.dumps({"true_token_id": 261, "false_token_id": 262,
                                            "module_input_name": "causal_logits"}),
    "sentence_bert_config.json": json.dumps({"transformer_task": "text-generation"}),
} | settings()
FORWARD = {"method": "forward", "method_output_name": "logits"}
MESSAGES = {"sentence_bert_config.json": json.dumps({
    "transformer_task": "text-generation", "module_output_name": "causal_logits",
    "modality_config": {"text": FORWARD, "message": FORWARD | {"format": "flat"}}})}

# name: model_type, keys of the config, tokenizer, chat template, other files, kind of the model
CASES = {
    "qwen3": ("qwen3", ONE_LABEL, byte_tokenizer(), None, {}, "SequenceClassification"),
    "llamaFramed": ("llama", ONE_LABEL, byte_tokenizer(framed), None, alone() | settings(
        prompts={"web": "find: "}, default_prompt_name="web",
        activation_fn="torch.nn.modules.linear.Identity"), "SequenceClassification"),
    "llamaCut": ("llama", ONE_LABEL, byte_tokenizer(framed), None,
                 alone(max_seq_length=24) | settings(), "SequenceClassification"),
    "qwen3Answers": ("qwen3", {}, byte_tokenizer(), TEMPLATE, LOGIT_SCORE | MESSAGES, "CausalLM"),
    "qwen3AnswersPlain": ("qwen3", {}, byte_tokenizer(), TEMPLATE, LOGIT_SCORE, "CausalLM"),
}


def run(case):
    model_type, more, tokenizer, template, files, kind = CASES[case]
    config = transformers.AutoConfig.for_model(model_type, **SIZES | more)
    tokenizer.chat_template = template
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        made = getattr(transformers, f"AutoModelFor{kind}").from_config(config)
        made.to(torch.float32).save_pretrained(folder)
        with safetensors.safe_open(folder / "model.safetensors", "pt") as opened:
            shapes = {n: list(opened.get_slice(n).get_shape()) for n in opened.keys()}
        safetensors.torch.save_file(
            {n: golden.hf_tensor(n, s, 1.0) for n, s in shapes.items()},
            folder / "model.safetensors", metadata={"format": "pt"})
        tokenizer.save_pretrained(folder)
        for path, text in files.items():
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text(text)
        kept = {str(path.relative_to(folder)): path.read_text()
                for path in sorted(folder.rglob("*"))
                if path.suffix in (".json", ".jinja") and path.name != "generation_config.json"}
        model = sentence_transformers.CrossEncoder(
            name, device="cpu",
            model_kwargs={"attn_implementation": "eager", "dtype": torch.float64})
        scores = model.predict(PAIRS, batch_size=1)
        logits = model.predict(PAIRS, batch_size=1, activation_fn=torch.nn.Identity())
    meta = {"files": json.dumps(kept),
            "tensors": json.dumps({n: ["F32", s] for n, s in shapes.items()}), "norm_base": "1.0",
            "config": kept["config.json"]}
    return meta, {"scores": scores, "logits": logits}


def main():
    arrays = {}
    metadata = golden.versions() | {"sentence-transformers": sentence_transformers.__version__,
                                    "pairs": json.dumps(PAIRS)}
    for case in CASES:
        meta, own = run(case)
        print(case, own["logits"], own["scores"], file=sys.stderr)
        metadata |= {f"{case}/{key}": value for key, value in meta.items()}
        arrays |= {f"{case}/{key}": value for key, value in own.items()}
    arrays = {name: np.ascontiguousarray(a, dtype=np.float32) for name, a in arrays.items()}
    safetensors.numpy.save_file(arrays, sys.argv[1], metadata=metadata)


if __name__ == "__main__":
    main()
