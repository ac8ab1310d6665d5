// The indexer and sparse latent attention. Choices against a sort, for integer scores, which are
// the same in any order of sums, with many ties. Attention to chosen positions against the
// reference; and, if all are chosen, against latent attention, bit for bit. Neither the division of
// a sequence into steps nor other sequences change a choice.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/sparse.h"
#include "support/kernel_levels.h"

namespace weft::kernels::test {
namespace {

constexpr int64_t kPageTokens = 16;

// Sequences over the pages of one pool, and a cache with one row per position.
struct PagedRows {
    std::vector<std::vector<int32_t>> pages;
    std::vector<Sequence> sequences;
    std::vector<std::byte> bytes;
    KvCache cache;

    // lengths: position and number of rows of each.
    PagedRows(Random& random, std::vector<std::pair<int32_t, int32_t>> lengths, int64_t cols,
              DType dtype) {
        std::vector<int32_t> free(200);
        std::iota(free.begin(), free.end(), 0);
        random.Shuffle(free);
        int32_t row = 0;
        for (const auto& [position, rows] : lengths) {
            const auto count =
                static_cast<size_t>((position + rows + kPageTokens - 1) / kPageTokens);
            pages.emplace_back(free.end() - static_cast<std::ptrdiff_t>(count), free.end());
            free.resize(free.size() - count);
            sequences.push_back({row, rows, position, {}});
            row += rows;
        }
        for (size_t i = 0; i < pages.size(); ++i) sequences[i].pages = pages[i];
        cache = {dtype, nullptr, 1, kPageTokens, cols};
        bytes.resize(static_cast<size_t>(cache.PageStride() * 200));
        cache.data = bytes.data();
        std::vector<float> values(static_cast<size_t>(cols));
        for (int64_t slot = 0; slot < 200 * kPageTokens; ++slot) {
            for (float& value : values) value = static_cast<float>(random.Int(-2, 2));
            reference::WriteValue(cache, slot / kPageTokens, 0, slot % kPageTokens, values.data());
        }
    }
    std::vector<float> Row(const Sequence& sequence, int64_t position) const {
        std::vector<float> row(static_cast<size_t>(cache.head_dim));
        reference::ReadValue(cache, sequence.pages[static_cast<size_t>(position / kPageTokens)], 0,
                             position % kPageTokens, row.data());
        return row;
    }
};

struct IndexCase {
    int64_t heads, dim, top;
    PagedRows paged;
    std::vector<float> q, weights;
    Windows windows{};
    bool lists_positions = false;

    IndexCase(Random& random, std::vector<std::pair<int32_t, int32_t>> lengths, int64_t most_top)
        : heads(random.Int(1, 9)),
          dim(random.Pick<int64_t>({8, 20, 64})),
          top(random.Int(1, most_top)),
          paged(random, std::move(lengths), dim, random.Pick({DType::kF32, DType::kF16})) {
        const int64_t rows = CountRows(paged.sequences);
        for (int64_t i = 0; i < rows * heads * dim; ++i) {
            q.push_back(static_cast<float>(random.Int(-2, 2)));
        }
        for (int64_t i = 0; i < rows * heads; ++i) {
            weights.push_back(static_cast<float>(random.Int(-3, 3)));
        }
    }
    double Score(const Sequence& sequence, int64_t row, int64_t position) const {
        const std::vector<float> key = paged.Row(sequence, position);
        double score = 0;
        for (int64_t h = 0; h < heads; ++h) {
            const float* query = q.data() + (row * heads + h) * dim;
            const double dot = std::inner_product(key.begin(), key.end(), query, 0.0);
            score += double{weights[static_cast<size_t>(row * heads + h)]} * std::max(dot, 0.0);
        }
        return score;
    }
    std::vector<int32_t> Expected() const {
        std::vector<int32_t> all;
        ForIndexRows(paged.sequences, [&](int64_t, const Sequence& s, int64_t row, int64_t keys) {
            std::vector<double> scores;
            for (int64_t p = 0; p < keys; ++p) scores.push_back(Score(s, row, p));
            std::vector<int32_t> order(static_cast<size_t>(keys));
            std::iota(order.begin(), order.end(), 0);
            std::ranges::stable_sort(order, [&](int32_t a, int32_t b) {
                return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
            });
            const auto chosen = static_cast<std::ptrdiff_t>(std::min(keys, top));
            std::sort(order.begin(), order.begin() + chosen);
            all.insert(all.end(), order.begin(), order.begin() + chosen);
            all.insert(all.end(), static_cast<size_t>(top - chosen), -1);
        });
        return all;
    }
    // Chooses for some of the sequences, in `parts` parts; rows of others keep -2.
    std::vector<int32_t> Choose(const Ops& ops, std::span<const Sequence> sequences,
                                int parts) const {
        const SparseKernels& kernels = ops;
        const int64_t rows = CountRows(paged.sequences), positions = 1000;
        const int64_t floats = IndexScratch(heads, dim, positions);
        std::vector<float> scratch(static_cast<size_t>(floats * parts));
        std::vector<float> shared(static_cast<size_t>(kIndexSharedRows * positions));
        const IndexRows of{sequences,     q.data(),    weights.data(), heads,  dim,
                           top,           paged.cache, scratch.data(), floats, positions,
                           shared.data(), windows,     lists_positions};
        std::vector<int32_t> chosen(static_cast<size_t>(rows * of.Columns()), -2);
        RunParts(kernels.index_scores, IndexScoresArgs{of}, parts);
        RunParts(kernels.index_choose, IndexChooseArgs{of, chosen.data()}, parts);
        return chosen;
    }
};

TEST(Indexer, ChoosesTheHighestAndTheLowerOfEqualOnes) {
    Random random(44);
    for (int number = 0; number < 8; ++number) {
        // A few rows, whose positions the threads divide, and many.
        const auto more = static_cast<int32_t>(number % 2 == 0 ? 3 : 40);
        const IndexCase c(random,
                          {{static_cast<int32_t>(random.Int(0, 300)), more}, {0, 5}, {70, 1}}, 40);
        const std::vector<int32_t> expected = c.Expected();
        for (const Ops& ops : OpLevels()) {
            for (const int parts : {1, 3}) {
                EXPECT_EQ(c.Choose(ops, c.paged.sequences, parts), expected)
                    << ops.name << " case " << number << " in " << parts;
            }
        }
    }
}

TEST(Indexer, PartitionAndOtherSequencesDoNotChangeChoices) {
    Random random(45);
    IndexCase c(random, {{90, 30}, {200, 2}}, 20);
    c.q = random.Normals(static_cast<int64_t>(c.q.size()));
    c.weights = random.Normals(static_cast<int64_t>(c.weights.size()));
    for (const Ops& ops : OpLevels()) {
        const std::vector<int32_t> all = c.Choose(ops, c.paged.sequences, 2);
        for (int32_t row = 0; row < 32; ++row) {
            const Sequence& from = c.paged.sequences[row < 30 ? 0 : 1];
            const Sequence one{row, 1, from.position + row - from.row_begin, from.pages};
            const std::vector<int32_t> alone = c.Choose(ops, {&one, 1}, 1);
            const auto begin = row * c.top;
            EXPECT_TRUE(std::equal(alone.begin() + begin, alone.begin() + begin + c.top,
                                   all.begin() + begin))
                << ops.name << " row " << row;
        }
    }
}

// Positions of the chosen windows, then those in no window yet.
TEST(Indexer, ListsThePositionsOfWindows) {
    Random random(46);
    for (int number = 0; number < 6; ++number) {
        const auto more = static_cast<int32_t>(number % 2 == 0 ? 4 : 40);
        IndexCase c(random, {{static_cast<int32_t>(random.Int(0, 150)), more}, {0, 7}}, 12);
        c.windows = {4, 4};
        const std::vector<int32_t> windows = c.Choose(OpLevels()[0], c.paged.sequences, 1);
        c.lists_positions = true;
        std::vector<int32_t> expected;
        ForIndexRows(
            c.paged.sequences, [&](int64_t number_, const Sequence&, int64_t, int64_t keys) {
                const size_t end = expected.size() + static_cast<size_t>((c.top + 1) * 4 - 1);
                for (int64_t i = 0; i < c.top; ++i) {
                    const int32_t window = windows[static_cast<size_t>(number_ * c.top + i)];
                    for (int32_t p = 0; window >= 0 && p < 4; ++p)
                        expected.push_back(window * 4 + p);
                }
                for (int64_t p = keys / 4 * 4; p < keys; ++p) {
                    expected.push_back(static_cast<int32_t>(p));
                }
                expected.resize(end, -1);
            });
        for (const Ops& ops : OpLevels()) {
            EXPECT_EQ(c.Choose(ops, c.paged.sequences, 3), expected)
                << ops.name << " case " << number;
        }
    }
}

TEST(Indexer, OrdersAllFloats) {
    const float inf = std::numeric_limits<float>::infinity();
    const std::vector<float> scores = {-0.0f, 1e-40f, -inf, 0.0f, inf, -1, 3, -0.0f, 3};
    std::vector<int32_t> chosen(6);
    ChooseHighest(scores, chosen);
    EXPECT_EQ(chosen, (std::vector<int32_t>{0, 1, 3, 4, 6, 8}));
    chosen.resize(1);
    ChooseHighest(scores, chosen);
    EXPECT_EQ(chosen, (std::vector<int32_t>{4}));
}

struct LatentRows {
    int64_t heads, rank = 48, rope = 16;
    PagedRows paged;
    std::vector<float> q_latent, q_key, sinks;

    explicit LatentRows(Random& random)
        : heads(random.Pick<int64_t>({1, 5, 40})),
          paged(random, {{100, 3}, {0, 20}, {30, 1}}, 64,
                random.Pick({DType::kF16, DType::kQ8_0, DType::kQ5_1, DType::kQ4_0})) {
        q_latent = random.Normals(24 * heads * rank, 0.3f);
        q_key = random.Normals(24 * heads * rope, 0.3f);
        if (random.Int(0, 1) == 0) sinks = random.Normals(heads);
    }
    std::vector<float> Attend(const Ops& ops, const std::vector<int32_t>& chosen, int parts) const {
        const int64_t floats = LatentScratch(rank, rope);
        std::vector<float> scratch(static_cast<size_t>(floats * parts));
        std::vector<float> out(q_latent.size(), NAN);
        const LatentAttentionArgs args{paged.sequences,
                                       q_latent.data(),
                                       q_key.data(),
                                       heads,
                                       rank,
                                       rope,
                                       paged.cache,
                                       0.2f,
                                       scratch.data(),
                                       floats,
                                       out.data(),
                                       sinks.empty() ? nullptr : sinks.data()};
        if (chosen.empty()) {
            RunParts(ops.latent_attention, args, parts);
        } else {
            const auto top = static_cast<int64_t>(chosen.size()) / 24;
            RunParts(ops.latent, SparseLatentArgs{args, chosen.data(), top}, parts);
        }
        return out;
    }
    // Each row's choice of `top` positions.
    std::vector<int32_t> Choices(Random& random, int64_t top) const {
        std::vector<int32_t> all;
        ForIndexRows(paged.sequences, [&](int64_t, const Sequence&, int64_t, int64_t keys) {
            std::vector<float> scores = random.Normals(keys);
            std::vector<int32_t> row(static_cast<size_t>(top));
            keys <= top ? ChooseAll(keys, row) : ChooseHighest(scores, row);
            all.insert(all.end(), row.begin(), row.end());
        });
        return all;
    }
};

TEST(SparseLatent, EqualsTheReference) {
    Random random(46);
    for (int number = 0; number < 4; ++number) {
        const LatentRows c(random);
        const std::vector<int32_t> chosen = c.Choices(random, random.Int(1, 90));
        const std::vector<float> expected = c.Attend(OpLevels()[0], chosen, 1);
        for (const Ops& ops : OpLevels()) {
            const std::vector<float> got = c.Attend(ops, chosen, 1);
            EXPECT_EQ(got, c.Attend(ops, chosen, 3)) << ops.name;
            for (size_t i = 0; i < got.size(); ++i) {
                // Values are at most 2; scores are below 10, sums of 64 products in another order,
                // then exp.
                ASSERT_FALSE(!(std::fabs(got[i] - expected[i]) <= 1e-4f))
                    << ops.name << " element " << i << ": " << got[i] << ", " << expected[i];
            }
        }
    }
}

TEST(SparseLatent, OfAllPositionsHasTheBitsOfLatentAttention) {
    Random random(47);
    for (int number = 0; number < 3; ++number) {
        const LatentRows c(random);
        const std::vector<int32_t> all = c.Choices(random, 103);
        for (const Ops& ops : OpLevels()) {
            EXPECT_EQ(c.Attend(ops, all, 2), c.Attend(ops, {}, 2)) << ops.name;
        }
        // Together with a row that sees one position more than are chosen.
        const std::vector<int32_t> most = c.Choices(random, 102);
        for (const Ops& ops : OpLevels()) {
            const std::vector<float> got = c.Attend(ops, most, 2), dense = c.Attend(ops, {}, 2);
            const auto same = static_cast<std::ptrdiff_t>(2 * c.heads * c.rank);
            EXPECT_TRUE(std::equal(got.begin(), got.begin() + same, dense.begin())) << ops.name;
        }
    }
}

}  // namespace
}  // namespace weft::kernels::test
