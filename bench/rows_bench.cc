// GB/s of the row-wise kernels of training, counted in bytes read and written, beside a copy's.
//
//     rows_bench [reference|avx2|avx512|amx]
//
// f32 and bf16 are the types of the matrices in memory. Matrices are larger than the caches.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "kernels/kernels.h"

namespace weft::kernels::dense {
namespace {

constexpr int64_t kRows = 16384, kCols = 1536, kCount = kRows * kCols;

// Seconds per call on a team, the best of seven.
template <typename Call>
double Seconds(int threads, const Call& call) {
    double best = 1e9;
    for (int round = 0; round < 7; ++round) {
        const int64_t begin = NowNs();
        {
            std::vector<std::jthread> team;
            for (int part = 1; part < threads; ++part) {
                team.emplace_back([&, part] { call(part, threads); });
            }
            call(0, threads);
        }
        best = std::min(best, static_cast<double>(NowNs() - begin) * 1e-9);
    }
    return best;
}

// Matrices of one type, and the vectors that the kernels need.
struct Memory {
    Element type;
    std::vector<std::vector<float>> all;
    std::vector<float> weight, dw, table, inverse;
    explicit Memory(Element element)
        : type(element),
          all(5, std::vector<float>(static_cast<size_t>(kCount), 0x1.01p-8f)),
          weight(kCols, 1.0f),
          dw(kCols),
          table(static_cast<size_t>(kRows * 64), 0.5f),
          inverse(kRows) {}
    Matrix At(size_t i) { return {all[i].data(), kCols, type}; }
};

void Measure(const Kernels& kernels, Memory& m, int threads) {
    const auto print = [&](const char* name, double matrices, const auto& call) {
        const double bytes = matrices * static_cast<double>(kCount * ElementBytes(m.type));
        fmt::print("{:18} {:>5} {:8} {:8.1f}\n", name, m.type == Element::kF32 ? "f32" : "bf16",
                   threads, bytes / Seconds(threads, call) * 1e-9);
        std::fflush(stdout);
    };
    print("copy", 2, [&](int part, int parts) {
        kernels.scale({m.At(0), kRows, kCols, 1, m.At(1)}, part, parts);
    });
    print("add", 3, [&](int part, int parts) {
        kernels.add({m.At(0), m.At(1), kRows, kCols, m.At(2)}, part, parts);
    });
    print("rms_norm", 2, [&](int part, int parts) {
        kernels.rms_norm({m.At(0), m.weight.data(), 1e-5f, kRows, kCols, kCols, m.At(1)}, part,
                         parts);
    });
    const RmsNormGradArgs norm{m.At(0), m.At(1), m.weight.data(), 1e-5f,       kRows,
                               kCols,   kCols,   m.At(2),         m.dw.data(), m.inverse.data()};
    print("norm_grad_input", 3,
          [&](int part, int parts) { kernels.norm_grad_input(norm, part, parts); });
    print("norm_grad_weight", 2,
          [&](int part, int parts) { kernels.norm_grad_weight(norm, part, parts); });
    print("glu", 3, [&](int part, int parts) {
        kernels.glu({m.At(0), m.At(1), kRows, kCols, m.At(2), Activation::kSilu}, part, parts);
    });
    print("glu_grad", 5, [&](int part, int parts) {
        kernels.glu_grad(
            {m.At(0), m.At(1), m.At(2), kRows, kCols, m.At(3), m.At(4), Activation::kSilu}, part,
            parts);
    });
    print("rope", 2, [&](int part, int parts) {
        kernels.rope({m.At(0), m.table.data(), 1, false, kRows, kCols / 64, 64, 64, m.At(1)}, part,
                     parts);
    });
}

// The optimizer and the loss use separate float32 data.
void MeasureFloats(const Kernels& kernels, Memory& m, int threads) {
    AdamArgs adam;
    adam.p = m.all[0].data(), adam.m = m.all[1].data(), adam.v = m.all[2].data();
    adam.g = m.all[3].data(), adam.g_type = m.type, adam.count = kCount;
    adam.copy = m.type == Element::kF32 ? nullptr : m.all[4].data();
    adam.rate = 1e-3f;
    const double adam_seconds =
        Seconds(threads, [&](int part, int parts) { kernels.adam(adam, part, parts); });
    constexpr double bytes = 28;  // p, m, v twice; g, or g and the copy of p in 16 bits
    fmt::print("{:18} {:>5} {:8} {:8.1f}\n", "adam", m.type == Element::kF32 ? "f32" : "bf16",
               threads, bytes * kCount / adam_seconds * 1e-9);
    constexpr int64_t kVocabulary = 49152, kChunk = 256;
    const std::vector<int32_t> targets(kChunk, 7);
    std::vector<float> losses(kChunk), hits(kChunk);
    std::vector<float> stats(kChunk * LossTerms{}.stats());
    const float dloss = 1;
    const SoftmaxStatsArgs own{m.all[0].data(), targets.data(), kChunk, kVocabulary, 0,
                               stats.data()};
    const CrossEntropyArgs entropy{stats.data(),  targets.data(), kChunk, 1,
                                   losses.data(), hits.data()};
    const CrossEntropyGradArgs grad{m.all[0].data(), stats.data(), targets.data(),
                                    &dloss,          kChunk,       kVocabulary};
    const double loss_seconds = Seconds(threads, [&](int part, int parts) {
        // All three work on this range of a row.
        const kernels::Range mine = kernels::Share(kChunk, 1, part, parts);
        for (int64_t row = mine.begin; row < mine.end; ++row) {
            kernels.softmax_stats(own, static_cast<int>(row), kChunk);
            CrossEntropy(entropy, static_cast<int>(row), kChunk);
            kernels.cross_entropy_grad(grad, static_cast<int>(row), kChunk);
        }
    });
    fmt::print("{:18} {:>5} {:8} {:8.1f}\n", "loss", "f32", threads,
               8.0 * kVocabulary * kChunk / loss_seconds * 1e-9);
}

int Main(int argc, char** argv) {
    CpuLevel level = BestCpuLevel(DetectCpu());
    for (CpuLevel other : UsableCpuLevels(DetectCpu())) {
        if (argc > 1 && std::string_view(argv[1]) == CpuLevelName(other)) level = other;
    }
    const Kernels& kernels = KernelsFor(level);
    fmt::print("kernels: {}\n{:18} {:>5} {:>8} {:>8}\n", CpuLevelName(kernels.level), "kernel", "",
               "threads", "GB/s");
    for (Element type : {Element::kF32, Element::kBf16}) {
        Memory memory(type);
        for (int threads : {1, 2}) {
            Measure(kernels, memory, threads);
            MeasureFloats(kernels, memory, threads);
        }
    }
    return 0;
}

}  // namespace
}  // namespace weft::kernels::dense

int main(int argc, char** argv) {
    return weft::kernels::dense::Main(argc, argv);
}
