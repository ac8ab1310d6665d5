#include "train/peak.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/deadline.h"

namespace weft::train {
namespace {

namespace dense = kernels::dense;

// 280 x 448 x 512: whole tiles of every instruction set, 1.9 MB of float32 in all.
constexpr int64_t kRows = 280, kCols = 448, kDepth = 512;
constexpr int64_t kMeasureNs = 20'000'000;

// Of one thread: the best of as many products as there is time for.
double PeakOfThread(const dense::DenseKernels& kernels, dense::Compute compute) {
    const std::vector<float> a(kRows * kDepth, 1.0f), b(kCols * kDepth, 1.0f);
    std::vector<float> c(kRows * kCols);
    dense::GemmArgs args;
    args.a = {a.data(), kDepth, 1};
    args.b = {b.data(), kCols, 1};
    args.c = {c.data(), kCols};
    args.m = kRows, args.n = kCols, args.k = kDepth;
    args.compute = compute;
    std::vector<std::byte> scratch(static_cast<size_t>(kernels.gemm_scratch_bytes(args)));
    const int64_t begin_ns = NowNs();
    int64_t best_ns = INT64_MAX, now_ns = begin_ns;
    // (The first one makes the pages.)
    for (int round = 0; round < 3 || now_ns - begin_ns < kMeasureNs; ++round) {
        const int64_t from_ns = now_ns;
        kernels.gemm(args, scratch, 0, 1);
        now_ns = NowNs();
        best_ns = std::min(best_ns, now_ns - from_ns);
    }
    return 2e9 * static_cast<double>(kRows * kCols * kDepth) / static_cast<double>(best_ns);
}

}  // namespace

double MeasurePeak(backend::TrainingExecutable& training, dense::Compute compute) {
    std::vector<double> peaks(1);
    training.InParts([&](int part, int parts) {
        if (part == 0) peaks.resize(static_cast<size_t>(parts));
    });
    training.InParts([&](int part, int) {
        peaks[static_cast<size_t>(part)] = PeakOfThread(training.dense(), compute);
    });
    return std::accumulate(peaks.begin(), peaks.end(), 0.0);
}

}  // namespace weft::train
