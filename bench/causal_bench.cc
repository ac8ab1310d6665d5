// Causal attention in training, forward and backward: GFLOP/s of pairs within the mask (forward 4,
// backward 10 FLOPs per pair and dim), for 2048 rows of one sequence or of four, and of one
// sequence with a sliding window. f32 and bf16 are the types in which matrices are stored and
// multiplied.
//
//     causal_bench [reference|avx2|avx512|amx]
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "kernels/kernels.h"
#include "tensor/half.h"

namespace weft::kernels::dense {
namespace {

struct Shape {
    const char* name;
    int64_t heads, kv_heads, head_dim;
};
constexpr Shape kShapes[] = {
    {"smollm2-135m", 9, 3, 64}, {"llama-3.2-1b", 32, 8, 64}, {"llama-3.1-8b", 32, 8, 128}};

constexpr int64_t kRows = 2048;

struct Mask {
    int64_t length;  // per sequence
    int64_t window = 0;
};

std::vector<float> Numbers(int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    uint32_t state = 1;
    for (float& value : values) {
        state = state * 1664525 + 1013904223;
        value = static_cast<float>(state >> 8) * 0x1p-23f - 1;
    }
    return values;
}

// Seconds per call on a team, the best of five.
template <typename Call>
double Seconds(int threads, int64_t scratch_bytes, const Call& call) {
    std::vector<std::vector<std::byte>> scratch(
        static_cast<size_t>(threads), std::vector<std::byte>(static_cast<size_t>(scratch_bytes)));
    double best = 1e9;
    for (int round = 0; round < 5; ++round) {
        const int64_t begin = NowNs();
        {
            std::vector<std::jthread> team;
            for (int part = 1; part < threads; ++part) {
                team.emplace_back([&, part] { call(scratch[static_cast<size_t>(part)], part); });
            }
            call(scratch[0], 0);
        }
        best = std::min(best, static_cast<double>(NowNs() - begin) * 1e-9);
    }
    return best;
}

// A matrix of one of the two types.
struct Values {
    std::vector<float> floats;
    std::vector<uint16_t> halves;
    int64_t stride;
    Element type;
    Values(int64_t rows, int64_t cols, Element element)
        : floats(Numbers(rows * cols)), stride(cols), type(element) {
        for (float x : floats) halves.push_back(F32ToBF16(x));
    }
    Matrix View() {
        if (type == Element::kBf16) return {halves.data(), stride, type};
        return {floats.data(), stride, type};
    }
};

void Measure(const Kernels& kernels, const Shape& shape, const Mask& mask, Element type,
             int threads) {
    const int64_t width = shape.heads * shape.head_dim, kv_width = shape.kv_heads * shape.head_dim;
    Values q(kRows, width, type), dout = q, out = q, dq = q;
    Values k(kRows, kv_width, type), v = k, dk = k, dv = k;
    std::vector<float> lse(static_cast<size_t>(shape.heads * kRows));
    std::vector<Sequence> sequences;
    for (int64_t row = 0; row < kRows; row += mask.length) {
        sequences.push_back({static_cast<int32_t>(row), static_cast<int32_t>(mask.length), 0, {}});
    }
    CausalArgs forward;
    forward.sequences = sequences;
    forward.q = q.View(), forward.k = k.View(), forward.v = v.View(), forward.out = out.View();
    forward.heads = shape.heads, forward.kv_heads = shape.kv_heads;
    forward.head_dim = shape.head_dim, forward.group = shape.heads / shape.kv_heads;
    forward.scale = 0.125f;
    forward.lse = lse.data(), forward.lse_stride = kRows;
    forward.compute = type == Element::kF32 ? Compute::kF32 : Compute::kBf16;
    forward.window = mask.window;
    const CausalGradArgs backward{forward, dout.View(), dq.View(), dk.View(), dv.View()};
    const int64_t most = mask.window == 0 ? mask.length : mask.window;  // of one row
    const int64_t keys = most * (2 * mask.length - most + 1) / 2;       // of all rows of a sequence
    const double pairs = 1e-9 * static_cast<double>(kRows / mask.length * keys * width);
    const double there = Seconds(threads, kernels.causal_scratch_bytes(forward),
                                 [&](std::span<std::byte> scratch, int part) {
                                     kernels.causal(forward, scratch, part, threads);
                                 });
    const double back = Seconds(threads, kernels.causal_grad_scratch_bytes(backward),
                                [&](std::span<std::byte> scratch, int part) {
                                    kernels.causal_grad(backward, scratch, part, threads);
                                });
    fmt::print("{:14} {:>5} {:>6} {:>5} {:8} {:10.2f} {:8.0f} {:10.2f} {:8.0f}\n", shape.name,
               mask.length, mask.window, type == Element::kF32 ? "f32" : "bf16", threads,
               there * 1e3, 4 * pairs / there, back * 1e3, 10 * pairs / back);
    std::fflush(stdout);
}

int Main(int argc, char** argv) {
    CpuLevel level = BestCpuLevel(DetectCpu());
    for (CpuLevel other : UsableCpuLevels(DetectCpu())) {
        if (argc > 1 && std::string_view(argv[1]) == CpuLevelName(other)) level = other;
    }
    const Kernels& kernels = KernelsFor(level);
    fmt::print("kernels: {}\n{:14} {:>5} {:>6} {:>5} {:>8} {:>10} {:>8} {:>10} {:>8}\n",
               CpuLevelName(kernels.level), "model", "rows", "window", "", "threads", "ms",
               "GFLOP/s", "ms back", "GFLOP/s");
    for (const Shape& shape : kShapes) {
        for (const Mask& mask : {Mask{kRows / 4}, Mask{kRows}, Mask{kRows, kRows / 8}}) {
            for (Element type : {Element::kF32, Element::kBf16}) {
                for (int threads : {1, 2}) Measure(kernels, shape, mask, type, threads);
            }
        }
    }
    return 0;
}

}  // namespace
}  // namespace weft::kernels::dense

int main(int argc, char** argv) {
    return weft::kernels::dense::Main(argc, argv);
}
