#!/usr/bin/env python3
"""An adapter of `weft train --lora`, loaded by the package peft, and merged by `weft merge`.

    tests/train/peft_test.py build/weft build/python-packages

Small random models of transformers are trained with LoRA for some updates: Llama, Phi-3 (Q, K and V
in one matrix, gate and up in another), and families whose classes have their layers at other
places. peft's logits of model and adapter equal those of the merged model. Exit status 77: the
packages are missing.
"""
import json
import os
import subprocess
import sys
import tempfile

CONFIG = dict(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
              num_attention_heads=4, num_key_value_heads=2, head_dim=16, tie_word_embeddings=False,
              bos_token_id=1, eos_token_id=2)
DATA = ["--data", "synthetic:random-tokens:17:8", "--seq-len", "16", "-t", "1"]
TOKENS = [3, 250, 17, 99, 4, 180, 31]
# Relative to the largest logit. A sum of 128 products in any order has an error of about sqrt(128)
# * 2^-24 of its size, 7e-7, in each of a row's fifteen matrices: 1e-5 if all errors have the same
# sign.
TOLERANCE = 1e-5


def weft(program, *words):
    done = subprocess.run([program, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


CASES = [("Llama", {}, ["--lora-alpha", "16"]),
         ("Llama", {}, ["--rslora", "--lora-targets", "attn,up_proj"]),
         ("Phi3", dict(pad_token_id=0), ["--lora-alpha", "16"]),
         ("Phi3", dict(pad_token_id=0, sliding_window=5),
          ["--lora-targets", "qkv_proj,gate_up_proj"]),
         ("Bloom", dict(n_layer=2, n_head=4, num_key_value_heads=4, intermediate_size=256), []),
         ("GPTNeoX", dict(num_key_value_heads=4), ["--lora-targets", "attn,mlp"]),
         ("GPTJ", dict(n_embd=64, n_layer=2, n_head=4, rotary_dim=8, num_key_value_heads=4,
                       intermediate_size=256), []),
         ("Mamba2", dict(num_heads=8, head_dim=16, state_size=16, n_groups=2), [])]
# Adapters of PEFT's own making, merged as a folder that transformers reads.
OWN = [("GPTNeoX", dict(num_key_value_heads=4), dict(target_modules=["lm_head", "dense"])),
       ("GPTNeoX", dict(num_key_value_heads=4),
        dict(target_modules=["dense"], modules_to_save=["lm_head"])),
       ("Llama", dict(tie_word_embeddings=True), dict(target_modules=["lm_head", "q_proj"]))]


def check_own(program, folder, torch, peft, model_class, base, how):
    """Merges an adapter of random numbers and compares with PEFT."""
    adapter, merged = os.path.join(folder, "adapter"), os.path.join(folder, "merged")
    made = peft.get_peft_model(model_class.from_pretrained(base, dtype=torch.float32),
                               peft.LoraConfig(r=4, task_type="CAUSAL_LM", **how)).eval()
    ids = torch.tensor([TOKENS])
    with torch.no_grad():
        for one in made.parameters():
            if one.requires_grad:
                one.add_(torch.randn_like(one) * 0.1)
        expected = made(ids).logits
    made.save_pretrained(adapter)
    weft(program, "merge", base, "--lora", adapter, "-o", merged, "--save-format", "hf")
    with torch.no_grad():
        got = model_class.from_pretrained(merged, dtype=torch.float32)(ids).logits
    error = ((got - expected).abs().max() / expected.abs().max()).item()
    print(f"{model_class.__name__} {how}: merged logits differ by {error:.2g}")
    assert error <= TOLERANCE, error


def main():
    program, packages = sys.argv[1:]
    sys.path.append(packages)
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        import peft
        import tokenizers
        import torch
        import transformers
    except ImportError as error:
        print(f"SKIPPED: {error}; this test needs the packages torch, transformers and peft")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(7)
        letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
        tokenizer = tokenizers.Tokenizer(
            tokenizers.models.BPE(vocab={c: i for i, c in enumerate(letters)}, merges=[]))
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = tokenizers.decoders.ByteLevel()
        for number, (family, more, flags) in enumerate(CASES):
            base, out, merged = (os.path.join(folder, f"{name}{number}")
                                 for name in ("base", "out", "merged"))
            config = getattr(transformers, family + "Config")(**CONFIG | more)
            model_class = getattr(transformers, family + "ForCausalLM")
            model_class(config).save_pretrained(base)
            tokenizer.save(os.path.join(base, "tokenizer.json"))
            weft(program, "train", base, *DATA, "--steps", "3", "--lr", "3e-2", "--lora", "4",
                 "--dtype", "f32", "--output-dir", out, *flags)
            form = "hf" if family in ("Llama", "Phi3") else "gguf"
            weft(program, "merge", base, "--lora", out, "-o", merged, "--save-format", form)
            got = torch.tensor(json.loads(weft(
                program, "logits", merged, "--tokens", ",".join(map(str, TOKENS)), "--all",
                "--json", "-t", "1", "--reference"))["logits"]).reshape(len(TOKENS), -1)
            with torch.no_grad():
                fresh = model_class.from_pretrained(base, dtype=torch.float32)
                plain = fresh(torch.tensor([TOKENS])).logits[0]
                adapted = peft.PeftModel.from_pretrained(fresh, out)
                expected = adapted(torch.tensor([TOKENS])).logits[0]
            size = expected.abs().max()
            error = ((got - expected).abs().max() / size).item()
            effect = ((expected - plain).abs().max() / size).item()
            print(f"{family} {flags}: logits differ by {error:.2g}, the adapter's effect is "
                  f"{effect:.2g}")
            assert effect > 0.01, "the adapter says nothing"
            assert error <= TOLERANCE, error
        for number, (family, more, how) in enumerate(OWN):
            model_class = getattr(transformers, family + "ForCausalLM")
            own = os.path.join(folder, f"own{number}")
            base = os.path.join(own, "base")
            model_class(getattr(transformers, family + "Config")(**CONFIG | more)).save_pretrained(
                base)
            tokenizer.save(os.path.join(base, "tokenizer.json"))
            check_own(program, own, torch, peft, model_class, base, how)
    return 0


if __name__ == "__main__":
    sys.exit(main())
