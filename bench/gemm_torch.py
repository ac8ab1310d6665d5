#!/usr/bin/env python3
"""GFLOP/s of PyTorch's matmul for the shapes of gemm_bench, in the three forms of training.

    bench/gemm_torch.py        needs the package torch
"""
import time

import torch

SHAPES = [(2048, 576, 576), (2048, 192, 576), (2048, 1536, 576), (2048, 576, 1536),
          (2048, 49152, 576), (2048, 2048, 2048)]


def seconds(call, rounds):
    best = 1e9
    for _ in range(rounds):
        begin = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begin)
    return best


def main():
    print(f"GFLOP/s, torch {torch.__version__}")
    print(f"{'T':>5} {'out':>6} {'in':>5} {'':13} {'threads':>8} {'f32':>8} {'bf16':>8}")
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for tokens, outs, ins in SHAPES:
            flops = 2e-9 * tokens * outs * ins
            rounds = 3 if flops > 20 else 12
            results = {}
            for dtype in (torch.float32, torch.bfloat16):
                x, w = torch.randn(tokens, ins).to(dtype), torch.randn(outs, ins).to(dtype)
                dy, dw = torch.randn(tokens, outs).to(dtype), torch.zeros(outs, ins).to(dtype)
                y, dx = torch.empty_like(dy), torch.empty_like(x)
                forms = {"y = x W^T": lambda: torch.mm(x, w.t(), out=y),
                         "dx = dy W": lambda: torch.mm(dy, w, out=dx),
                         "dW += dy^T x": lambda: dw.addmm_(dy.t(), x)}
                for name, call in forms.items():
                    results.setdefault(name, []).append(flops / seconds(call, rounds))
            for name, (f32, bf16) in results.items():
                print(f"{tokens:5} {outs:6} {ins:5} {name:13} {threads:8} {f32:8.0f} {bf16:8.0f}")


if __name__ == "__main__":
    main()
