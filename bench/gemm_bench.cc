// GFLOP/s of the products of training: y = x . W^T, dx = dy . W, dW += dy^T . x.
//
//     gemm_bench [LEVEL]    LEVEL: reference, avx2, avx512 or amx
//
// Column "bf16": float32 operands, rounded as they are packed; "halves": operands that are bfloat16
// in memory, as PyTorch's are (whose results are, too; here they are float32). Beside PyTorch, in
// the same run of the machine:
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
#include "kernels/dense/dense.h"

namespace weft::kernels::dense {
namespace {

struct Shape {
    int64_t tokens, outs, ins;
};
constexpr Shape kShapes[] = {{2048, 576, 576},  {2048, 192, 576},   {2048, 1536, 576},
                             {2048, 576, 1536}, {2048, 49152, 576}, {2048, 2048, 2048}};

// Memory as programs have it: whole cache lines.
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

// Seconds of one call on a team of `threads`, the best of some.
double Seconds(const DenseKernels& kernels, const GemmArgs& args, int threads) {
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

void Measure(const DenseKernels& kernels, const Shape& shape, int threads) {
    const int64_t tokens = shape.tokens, outs = shape.outs, ins = shape.ins;
    const Buffer<float> x = Random(tokens * ins), w = Random(outs * ins);
    Buffer<float> y = Random(tokens * outs), dx = x, dw = w;
    const Buffer<uint16_t> x_bf16(x.size(), 0x3f80), w_bf16(w.size(), 0x3f80);
    const Buffer<uint16_t> y_bf16(y.size(), 0x3f80);
    const uint16_t* halves_a[] = {x_bf16.data(), y_bf16.data(), y_bf16.data()};
    const uint16_t* halves_b[] = {w_bf16.data(), w_bf16.data(), x_bf16.data()};
    GemmArgs forms[] = {
        {x.data(), ins, 1, w.data(), 1, ins, y.data(), outs, tokens, outs, ins},
        {y.data(), outs, 1, w.data(), ins, 1, dx.data(), ins, tokens, ins, outs},
        {y.data(), 1, outs, x.data(), ins, 1, dw.data(), ins, outs, ins, tokens, true}};
    constexpr const char* kNames[] = {"y = x W^T", "dx = dy W", "dW += dy^T x"};
    for (int form = 0; form < 3; ++form) {
        const double flops = 2e-9 * static_cast<double>(tokens * outs) * static_cast<double>(ins);
        GemmArgs args = forms[form];
        const double f32 = Seconds(kernels, args, threads);
        args.compute = Compute::kBf16;
        const double bf16 = Seconds(kernels, args, threads);
        args.a_bf16 = halves_a[form], args.b_bf16 = halves_b[form];
        const double halves = Seconds(kernels, args, threads);
        fmt::print("{:5} {:6} {:5} {:13} {:8} {:8.0f} {:8.0f} {:8.0f}\n", tokens, outs, ins,
                   kNames[form], threads, flops / f32, flops / bf16, flops / halves);
        std::fflush(stdout);
    }
}

int Main(int argc, char** argv) {
    CpuLevel level = BestCpuLevel(DetectCpu());
    for (CpuLevel other : kCpuLevels) {
        if (argc > 1 && std::string_view(argv[1]) == CpuLevelName(other)) {
            level = std::min(level, other);
        }
    }
    const DenseKernels& kernels = DenseKernelsFor(level);
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
