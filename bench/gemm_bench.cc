// GFLOP/s of the products of training: y = x . W^T, dx = dy . W, dW += dy^T . x, and of the output
// head, one chunk of rows at a time; the first line is the peak of the core's registers.
//
//     gemm_bench [LEVEL]    LEVEL: reference, avx2, avx512 or amx
//
// Column "bf16": float32 in memory, rounded during packing; "halves": all three matrices are
// bfloat16 in memory, as in PyTorch. To compare with PyTorch, run both one right after the other:
//
//     gemm_bench; python3 bench/gemm_torch.py
#include <fmt/format.h>

#include <algorithm>
#include <barrier>
#include <cstdio>
#include <new>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "kernels/kernels.h"

namespace weft::kernels::dense {
namespace {

struct Shape {
    int64_t tokens, outs, ins;
};
constexpr Shape kShapes[] = {{2048, 576, 576},  {2048, 192, 576},  {2048, 1536, 576},
                             {2048, 576, 1536}, {256, 49152, 576}, {512, 49152, 576},
                             {2048, 2048, 2048}};

// Memory in whole cache lines, as in Programs.
template <typename T>
struct Lines {
    using value_type = T;
    static constexpr std::align_val_t kLine{64};
    T* allocate(size_t count) { return static_cast<T*>(::operator new(count * sizeof(T), kLine)); }
    void deallocate(T* at, size_t) { ::operator delete(at, kLine); }
    bool operator==(const Lines&) const { return true; }
};
template <typename T>
using Buffer = std::vector<T, Lines<T>>;

Buffer<float> Random(int64_t count) {
    std::minstd_rand engine(1);
    Buffer<float> values(static_cast<size_t>(count));
    for (float& value : values) value = static_cast<float>(engine() % 2001) / 1000.0f - 1;
    return values;
}

// Seconds per call on a team of `threads`, the best of several.
double Seconds(const Kernels& kernels, const GemmArgs& args, int threads) {
    const auto bytes = static_cast<size_t>(kernels.gemm_scratch_bytes(args));
    const double flops = 2.0 * static_cast<double>(args.m * args.n) * static_cast<double>(args.k);
    const int rounds = flops > 2e10 ? 3 : 12;
    double best = 1e9;
    std::barrier meet(threads);
    const auto work = [&](int part) {
        Buffer<std::byte> scratch(bytes);
        for (int round = 0; round < rounds; ++round) {
            meet.arrive_and_wait();
            const int64_t begin = NowNs();
            kernels.gemm(args, scratch, part, threads);
            meet.arrive_and_wait();
            if (part == 0) best = std::min(best, static_cast<double>(NowNs() - begin) * 1e-9);
        }
    };
    std::vector<std::jthread> team;
    for (int part = 1; part < threads; ++part) team.emplace_back(work, part);
    work(0);
    return best;
}

void Measure(const Kernels& kernels, const Shape& shape, int threads) {
    const int64_t tokens = shape.tokens, outs = shape.outs, ins = shape.ins;
    const Buffer<float> x = Random(tokens * ins), w = Random(outs * ins);
    Buffer<float> y = Random(tokens * outs), dx = x, dw = w;
    const Buffer<uint16_t> x_bf16(x.size(), 0x3f80), w_bf16(w.size(), 0x3f80);
    Buffer<uint16_t> y_bf16(y.size(), 0x3f80);
    Buffer<uint16_t> dx_bf16(dx.size()), dw_bf16(dw.size());
    const auto bf16 = Element::kBf16;
    struct Form {
        const char* name;
        GemmArgs floats, halves;
    };
    Form forms[] = {{"y = x W^T",
                     {{x.data(), ins, 1}, {w.data(), 1, ins}, {y.data(), outs}, tokens, outs, ins},
                     {{x_bf16.data(), ins, 1, bf16},
                      {w_bf16.data(), 1, ins, bf16},
                      {y_bf16.data(), outs, bf16},
                      tokens,
                      outs,
                      ins}},
                    {"dx = dy W",
                     {{y.data(), outs, 1}, {w.data(), ins, 1}, {dx.data(), ins}, tokens, ins, outs},
                     {{y_bf16.data(), outs, 1, bf16},
                      {w_bf16.data(), ins, 1, bf16},
                      {dx_bf16.data(), ins, bf16},
                      tokens,
                      ins,
                      outs}},
                    {"dW += dy^T x",
                     {{y.data(), 1, outs}, {x.data(), ins, 1}, {dw.data(), ins}, outs, ins, tokens},
                     {{y_bf16.data(), 1, outs, bf16},
                      {x_bf16.data(), ins, 1, bf16},
                      {dw_bf16.data(), ins, bf16},
                      outs,
                      ins,
                      tokens}}};
    const double flops = 2e-9 * static_cast<double>(tokens * outs) * static_cast<double>(ins);
    for (Form& form : forms) {
        form.floats.accumulate = form.halves.accumulate = &form == &forms[2];
        const double f32 = Seconds(kernels, form.floats, threads);
        form.floats.compute = form.halves.compute = Compute::kBf16;
        const double rounded = Seconds(kernels, form.floats, threads);
        const double halves = Seconds(kernels, form.halves, threads);
        fmt::print("{:5} {:6} {:5} {:13} {:8} {:8.0f} {:8.0f} {:8.0f}\n", tokens, outs, ins,
                   form.name, threads, flops / f32, flops / rounded, flops / halves);
        std::fflush(stdout);
    }
}

// Peak GFLOP/s of one core with AVX-512 on registers only: the best of several.
#define WEFT_TWELVE(op)                                                  \
    op " %%zmm30, %%zmm31, %%zmm0\n" op " %%zmm30, %%zmm31, %%zmm1\n" op \
       " %%zmm30, %%zmm31, %%zmm2\n" op " %%zmm30, %%zmm31, %%zmm3\n" op \
       " %%zmm30, %%zmm31, %%zmm4\n" op " %%zmm30, %%zmm31, %%zmm5\n" op \
       " %%zmm30, %%zmm31, %%zmm6\n" op " %%zmm30, %%zmm31, %%zmm7\n" op \
       " %%zmm30, %%zmm31, %%zmm8\n" op " %%zmm30, %%zmm31, %%zmm9\n" op \
       " %%zmm30, %%zmm31, %%zmm10\n" op " %%zmm30, %%zmm31, %%zmm11\n"
template <typename Twelve>
double PeakOf(double flops, const Twelve& twelve) {
    double best = 1e9;
    for (int round = 0; round < 10; ++round) {
        const int64_t begin = NowNs();
        for (int i = 0; i < 400000; ++i) twelve();
        best = std::min(best, static_cast<double>(NowNs() - begin) * 1e-9);
    }
    return 400000 * 12 * flops / best * 1e-9;
}
#define WEFT_SPOILT \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11"
void PrintPeak() {
    __asm__ volatile("vpxorq %zmm30, %zmm30, %zmm30\nvpxorq %zmm31, %zmm31, %zmm31");
    const double f32 = PeakOf(32, [] {
        __asm__ volatile(WEFT_TWELVE("vfmadd231ps") : : : WEFT_SPOILT);
    });
    const double bf16 = PeakOf(64, [] {
        __asm__ volatile(WEFT_TWELVE("vdpbf16ps") : : : WEFT_SPOILT);
    });
    fmt::print("registers of one core, AVX-512: f32 {:.0f}, bf16 {:.0f} GFLOP/s\n", f32, bf16);
}

int Main(int argc, char** argv) {
    CpuLevel level = BestCpuLevel(DetectCpu());
    for (CpuLevel other : UsableCpuLevels(DetectCpu())) {
        if (argc > 1 && std::string_view(argv[1]) == CpuLevelName(other)) level = other;
    }
    const Kernels& kernels = KernelsFor(level);
    if (kernels.level >= CpuLevel::kAvx512) PrintPeak();
    fmt::print("GFLOP/s, kernels: {}\n{:>5} {:>6} {:>5} {:13} {:>8} {:>8} {:>8} {:>8}\n",
               CpuLevelName(kernels.level), "T", "out", "in", "", "threads", "f32", "bf16",
               "halves");
    for (int threads : {1, 2}) {
        for (const Shape& shape : kShapes) Measure(kernels, shape, threads);
    }
    return 0;
}

}  // namespace
}  // namespace weft::kernels::dense

int main(int argc, char** argv) {
    return weft::kernels::dense::Main(argc, argv);
}
