// Pooled windows of positions: an indexer's choice of windows, and attention to them and to the
// last positions, against plain loops in double; neither parts nor the division of a sequence into
// steps change a row's bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/sparse.h"
#include "program/program.h"
#include "support/kernel_levels.h"
#include "tensor/half.h"

namespace weft::kernels::test {
namespace {

constexpr int64_t kPageTokens = 64, kPages = 12;

Windows WindowsOf(int64_t stride) {
    return {stride, program::RowPositions(stride)};
}

std::vector<int32_t> AnyPages(Random& random) {
    std::vector<int32_t> pages(kPages);
    std::iota(pages.begin(), pages.end(), 0);
    random.Shuffle(pages);
    return pages;
}

// One row per position, or per window of `stride`, of one sequence.
struct Rows {
    std::vector<int32_t> pages;
    std::vector<float> plain;  // [positions / stride, cols]
    std::vector<std::byte> bytes;
    KvCache cache;

    Rows(Random& random, std::vector<int32_t> in, int64_t positions, int64_t stride, int64_t cols)
        : pages(std::move(in)) {
        cache = {DType::kF16, nullptr, 1, kPageTokens / program::RowPositions(stride), cols};
        bytes.resize(static_cast<size_t>(cache.PageStride() * kPages));
        cache.data = bytes.data();
        // Rows of positions that end no window are there, too, and are skipped.
        std::vector<float> all = random.Normals(positions * cols);
        for (float& value : all) value = F16ToF32(F32ToF16(value));
        const Sequence sequence{0, static_cast<int32_t>(positions), 0, pages};
        LatentWriteArgs write;
        write.sequences = {&sequence, 1};
        write.latent = all.data();
        write.rank = cols;
        write.cache = cache;
        write.windows = WindowsOf(stride);
        RunParts(LatentWrite, write, 2);
        for (int64_t end = stride - 1; end < positions; end += stride) {
            plain.insert(plain.end(), all.begin() + end * cols, all.begin() + (end + 1) * cols);
        }
    }
    Sequence Of(int32_t position, int32_t rows) const { return {0, rows, position, pages}; }
};

class Strides : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(All, Strides, testing::Values(2, 4, 64, 128));

TEST_P(Strides, IndexerChoosesWindows) {
    Random random(51);
    const int64_t stride = GetParam(), heads = 3, dim = 20, top = stride < 64 ? 7 : 2;
    const int32_t position = 530, count = 20;
    const Rows keys(random, AnyPages(random), position + count, stride, dim);
    const std::vector<float> q = random.Normals(count * heads * dim);
    const std::vector<float> weights = random.Normals(count * heads);
    for (const Ops& ops : OpLevels()) {
        const auto choose = [&](const Sequence& sequence, int64_t first, int parts) {
            const int64_t positions = kPages * kPageTokens / stride;
            const int64_t floats = IndexScratch(heads, dim, positions);
            std::vector<float> scratch(static_cast<size_t>(floats * parts));
            std::vector<float> shared(static_cast<size_t>(kIndexSharedRows * positions));
            std::vector<int32_t> chosen(static_cast<size_t>(sequence.row_count * top), -2);
            const IndexRows of{{&sequence, 1},
                               q.data() + first * heads * dim,
                               weights.data() + first * heads,
                               heads,
                               dim,
                               top,
                               keys.cache,
                               scratch.data(),
                               floats,
                               positions,
                               shared.data(),
                               WindowsOf(stride)};
            const SparseKernels& kernels = ops;
            RunParts(kernels.index_scores, IndexScoresArgs{of}, parts);
            RunParts(kernels.index_choose, IndexChooseArgs{of, chosen.data()}, parts);
            return chosen;
        };
        const std::vector<int32_t> all = choose(keys.Of(position, count), 0, 3);
        for (int32_t row = 0; row < count; ++row) {
            const std::vector<int32_t> own(all.begin() + row * top, all.begin() + (row + 1) * top);
            EXPECT_EQ(choose(keys.Of(position + row, 1), row, 2), own) << ops.name;
            const int64_t seen = (position + row + 1) / stride;
            std::vector<std::pair<double, int32_t>> scores;
            for (int64_t w = 0; w < seen; ++w) {
                double score = 0;
                for (int64_t h = 0; h < heads; ++h) {
                    const double dot = std::inner_product(keys.plain.begin() + w * dim,
                                                          keys.plain.begin() + (w + 1) * dim,
                                                          q.begin() + (row * heads + h) * dim, 0.0);
                    score +=
                        double{weights[static_cast<size_t>(row * heads + h)]} * std::max(dot, 0.0);
                }
                scores.push_back({-score, static_cast<int32_t>(w)});
            }
            std::ranges::sort(scores);
            std::vector<int32_t> expected;
            for (int64_t i = 0; i < std::min(seen, top); ++i) {
                expected.push_back(scores[static_cast<size_t>(i)].second);
            }
            std::ranges::sort(expected);
            expected.resize(static_cast<size_t>(top), -1);
            EXPECT_EQ(own, expected) << ops.name << " row " << row;
        }
    }
}

struct AttentionCase {
    int64_t stride, heads, width = 40, window = 9, top = 5;
    bool chooses;
    int32_t position = 517, count = 13;
    Rows rows, entries;
    std::vector<float> q, sinks;
    std::vector<int32_t> chosen;

    AttentionCase(Random& random, int64_t own_stride, bool own_chooses)
        : stride(own_stride),
          heads(random.Pick<int64_t>({1, 6, 40})),
          chooses(own_chooses),
          rows(random, AnyPages(random), position + count, 1, width),
          entries(random, rows.pages, position + count, stride, width),
          q(random.Normals(count * heads * width, 0.5f)),
          sinks(random.Normals(heads, 2)) {
        for (int32_t row = 0; row < count; ++row) {
            const int64_t seen = (position + row + 1) / stride;
            std::vector<int32_t> own(static_cast<size_t>(seen));
            std::iota(own.begin(), own.end(), 0);
            random.Shuffle(own);
            own.resize(static_cast<size_t>(std::min(seen, top)));
            std::ranges::sort(own);
            own.resize(static_cast<size_t>(top), -1);
            chosen.insert(chosen.end(), own.begin(), own.end());
        }
    }
    std::vector<float> Attend(const Ops& ops, int32_t first, int32_t some, int parts) const {
        const Sequence sequence{0, some, position + first, rows.pages};
        const int64_t floats = LatentScratch(width, 0);
        std::vector<float> scratch(static_cast<size_t>(floats * parts));
        std::vector<float> out(static_cast<size_t>(some * heads * width), NAN);
        WindowAttentionArgs args;
        args.sequences = {&sequence, 1};
        args.q = q.data() + first * heads * width;
        args.heads = heads, args.width = width, args.window = window, args.scale = 0.3f;
        args.sinks = sinks.data();
        args.cache = rows.cache;
        args.entries = entries.cache;
        args.windows = WindowsOf(stride);
        if (chooses) args.chosen = chosen.data() + first * top, args.top = top;
        args.scratch = scratch.data(), args.scratch_floats = floats;
        args.out = out.data();
        RunParts(ops.windows, args, parts);
        return out;
    }
    std::vector<double> Expected() const {
        std::vector<double> all;
        for (int32_t row = 0; row < count; ++row) {
            std::vector<const float*> seen;
            const int64_t at = position + row;
            for (int64_t p = std::max<int64_t>(0, at - window + 1); p <= at; ++p) {
                seen.push_back(rows.plain.data() + p * width);
            }
            for (int64_t w = 0; w < (at + 1) / stride; ++w) {
                const auto own = chosen.begin() + row * top;
                if (chooses && std::find(own, own + top, w) == own + top) continue;
                seen.push_back(entries.plain.data() + w * width);
            }
            for (int64_t head = 0; head < heads; ++head) {
                std::vector<double> sum(static_cast<size_t>(width));
                double total = std::exp(double{sinks[static_cast<size_t>(head)]});
                for (const float* key : seen) {
                    const float* query = q.data() + (row * heads + head) * width;
                    const double weight =
                        std::exp(0.3f * std::inner_product(key, key + width, query, 0.0));
                    total += weight;
                    for (int64_t d = 0; d < width; ++d) {
                        sum[static_cast<size_t>(d)] += weight * double{key[d]};
                    }
                }
                for (double& value : sum) all.push_back(value / total);
            }
        }
        return all;
    }
};

TEST_P(Strides, AttentionToWindowsAndTheLastPositions) {
    Random random(52);
    for (const bool chooses : {false, true}) {
        const AttentionCase c(random, GetParam(), chooses);
        const std::vector<double> expected = c.Expected();
        for (const Ops& ops : OpLevels()) {
            const std::vector<float> got = c.Attend(ops, 0, c.count, 1);
            EXPECT_EQ(got, c.Attend(ops, 0, c.count, 3)) << ops.name;
            std::vector<float> pieces;
            for (const auto& [first, some] : {std::pair{0, 1}, std::pair{1, 7}, std::pair{8, 5}}) {
                const std::vector<float> piece = c.Attend(ops, first, some, 2);
                pieces.insert(pieces.end(), piece.begin(), piece.end());
            }
            EXPECT_EQ(got, pieces) << ops.name;
            // Values are at most 4; scores are below 10, sums of 40 products, then exp.
            for (size_t i = 0; i < got.size(); ++i) {
                ASSERT_TRUE(std::fabs(got[i] - expected[i]) <= 2e-5) << ops.name << " " << i;
            }
        }
    }
}

}  // namespace
}  // namespace weft::kernels::test
