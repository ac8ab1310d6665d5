// The indexer of blocks and attention to chosen blocks. Choices against a sort, for integer scores,
// which are the same in any order of sums, with many ties. Attention against the reference; and, if
// a row sees no more blocks than it chooses, against full attention, bit for bit. Neither cuts nor
// other rows change anything.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/sparse.h"
#include "support/attention_case.h"

namespace weft::kernels::test {
namespace {

// One sequence over shuffled pages of 16 positions.
struct BlockCase {
    int64_t heads, dim, block, local, top, tokens;
    std::vector<int32_t> pages;
    std::vector<std::byte> bytes;
    std::vector<float> keys, q;
    KvCache cache;

    BlockCase(Random& random, int64_t tokens_)
        : heads(random.Int(1, 5)),
          dim(random.Pick<int64_t>({8, 20, 64})),
          block(random.Pick<int64_t>({1, 3, 16, 40, 130})),
          local(random.Int(1, 3)),
          top(local + random.Int(0, 4)),
          tokens(tokens_),
          pages(static_cast<size_t>(tokens_ / 16 + 1)) {
        std::iota(pages.begin(), pages.end(), 0);
        random.Shuffle(pages);
        cache = {random.Pick({DType::kF32, DType::kF16}), nullptr, 1, 16, dim};
        bytes.resize(pages.size() * static_cast<size_t>(cache.PageStride()));
        cache.data = bytes.data();
        for (int64_t i = 0; i < tokens * heads * dim; ++i) {
            q.push_back(static_cast<float>(random.Int(-2, 2)));
            if (i < tokens * dim) keys.push_back(static_cast<float>(random.Int(-2, 2)));
        }
        for (int64_t position = 0; position < tokens; ++position) {
            reference::WriteValue(cache, pages[static_cast<size_t>(position / 16)], 0,
                                  position % 16, keys.data() + position * dim);
        }
    }
    // The choice for rows [begin, begin + count), which are also the rows of q.
    std::vector<int32_t> Choose(const Ops& ops, int64_t begin, int64_t count, int parts) const {
        const Sequence sequence{0, static_cast<int32_t>(count), static_cast<int32_t>(begin), pages};
        const int64_t scores = BlockScoreFloats(heads, tokens, block);
        const int64_t floats = IndexScratch(heads, dim, scores);
        std::vector<float> scratch(static_cast<size_t>(floats * parts), NAN);
        std::vector<float> shared(static_cast<size_t>(kIndexSharedRows * scores), NAN);
        std::vector<int32_t> chosen(static_cast<size_t>(count * heads * top), -2);
        IndexRows rows{{&sequence, 1},
                       q.data() + begin * heads * dim,
                       nullptr,
                       heads,
                       dim,
                       top,
                       cache,
                       scratch.data(),
                       floats,
                       scores,
                       shared.data()};
        const SparseKernels& kernels = ops;
        const BlockScoresArgs of{rows, block, local};
        RunParts(kernels.block_scores, of, parts);
        RunParts(kernels.block_choose, BlockChooseArgs{of, chosen.data()}, parts);
        return chosen;
    }
    std::vector<int32_t> Expected(int64_t begin, int64_t count) const {
        std::vector<int32_t> all;
        for (int64_t i = 0; i < count * heads; ++i) {
            const int64_t row = begin + i / heads, seen = row / block + 1;
            std::vector<double> scores(static_cast<size_t>(seen), -INFINITY);
            for (int64_t p = 0; p <= row; ++p) {
                const float* query = q.data() + (row * heads + i % heads) * dim;
                const float* key = keys.data() + p * dim;
                double& score = scores[static_cast<size_t>(p / block)];
                score = std::max(score, std::inner_product(query, query + dim, key, 0.0));
            }
            const auto locals = static_cast<std::ptrdiff_t>(std::min(local, seen));
            std::fill(scores.end() - locals, scores.end(), INFINITY);
            std::vector<int32_t> order(static_cast<size_t>(seen));
            std::iota(order.begin(), order.end(), 0);
            std::ranges::stable_sort(order, std::greater{},
                                     [&](int32_t b) { return scores[static_cast<size_t>(b)]; });
            order.resize(static_cast<size_t>(std::min(seen, top)));
            std::ranges::sort(order);
            order.resize(static_cast<size_t>(top), -1);
            all.insert(all.end(), order.begin(), order.end());
        }
        return all;
    }
};

TEST(BlockIndexer, ChoosesTheHighestAndTheLowerOfEqualOnes) {
    Random random(70);
    for (int number = 0; number < 12; ++number) {
        const BlockCase c(random, 300);
        // A few rows, whose blocks the threads divide, and many.
        for (const auto& [begin, count] : {std::pair{297, 3}, {0, 40}, {150, 120}}) {
            const std::vector<int32_t> expected = c.Expected(begin, count);
            for (const Ops& ops : OpLevels()) {
                for (const int parts : {1, 3}) {
                    EXPECT_EQ(c.Choose(ops, begin, count, parts), expected)
                        << ops.name << " case " << number << ", blocks of " << c.block << " in "
                        << parts;
                }
            }
        }
    }
}

TEST(BlockIndexer, StepPartitionDoesNotChangeChoices) {
    Random random(71);
    BlockCase c(random, 200);
    c.q = random.Normals(static_cast<int64_t>(c.q.size()));
    for (const Ops& ops : OpLevels()) {
        const std::vector<int32_t> all = c.Choose(ops, 100, 100, 2);
        std::vector<int32_t> cut;
        for (int64_t row = 100; row < 200; row += 20) {
            const std::vector<int32_t> some = c.Choose(ops, row, row % 40 == 0 ? 20 : 5, 1);
            cut.insert(cut.end(), some.begin(), some.end());
            if (row % 40 == 0) continue;
            const std::vector<int32_t> others = c.Choose(ops, row + 5, 15, 3);
            cut.insert(cut.end(), others.begin(), others.end());
        }
        EXPECT_EQ(cut, all) << ops.name;
    }
}

AttentionShape BlockShape(Random& random) {
    AttentionShape shape;
    shape.dtype = random.Pick({DType::kF32, DType::kF16, DType::kQ8_0, DType::kBF16});
    shape.head_dim = random.Pick<int64_t>({32, 64, 96});
    shape.group = random.Pick<int64_t>({1, 3, 16});
    shape.heads = random.Int(1, shape.group + 2);
    shape.first_head = random.Int(0, 5);
    shape.sequences = {
        {random.Int(0, 400), random.Pick<int64_t>({1, 40})}, {random.Int(0, 60), 3}, {300, 1}};
    return shape;
}

// For each row and KV head, a choice of `top` blocks that always includes its own.
std::vector<int32_t> Choices(Random& random, const AttentionCase& problem, int64_t top,
                             int64_t block) {
    std::vector<int32_t> all;
    for (const Sequence& sequence : problem.sequences()) {
        for (int64_t i = 0; i < sequence.row_count * problem.kv_heads(); ++i) {
            const int64_t own = (sequence.position + i / problem.kv_heads()) / block;
            std::vector<float> scores = random.Normals(own + 1);
            scores.back() = INFINITY;
            std::vector<int32_t> row(static_cast<size_t>(top));
            own < top ? ChooseAll(own + 1, row) : ChooseHighest(scores, row);
            all.insert(all.end(), row.begin(), row.end());
        }
    }
    return all;
}

std::vector<float> AttendBlocks(const AttentionCase& problem, const Ops& ops,
                                const std::vector<Sequence>& sequences,
                                const std::vector<int32_t>& chosen, int64_t top, int64_t block,
                                int parts) {
    return problem.AttendBy(ops, sequences, parts, [&](const AttentionArgs& args) {
        const BlockAttentionArgs of{args, chosen.data(), problem.kv_heads(), top, block};
        RunParts(ops.block_attention, of, parts);
    });
}

TEST(BlockAttention, EqualsTheReferenceForAnyPartition) {
    Random random(72);
    for (int number = 0; number < 16; ++number) {
        const AttentionShape shape = BlockShape(random);
        const AttentionCase problem(shape, static_cast<uint32_t>(number));
        const int64_t block = random.Pick<int64_t>({1, 7, 32, 64, 100, 128});
        const int64_t top = random.Int(1, 5);
        const std::vector<int32_t> chosen = Choices(random, problem, top, block);
        const auto attend = [&](const Ops& ops, const std::vector<Sequence>& sequences, int parts) {
            return AttendBlocks(problem, ops, sequences, chosen, top, block, parts);
        };
        problem.WriteAll(OpLevels()[0]);
        const std::vector<float> expected = attend(OpLevels()[0], problem.sequences(), 1);
        for (const Ops& ops : OpLevels()) {
            const std::vector<float> got = attend(ops, problem.sequences(), 1);
            EXPECT_EQ(got, attend(ops, problem.sequences(), 3)) << ops.name << " " << number;
            // Values are at most 5; scores are below 40, sums of 96 products in another order, then
            // exp. Where the CPU multiplies BF16, queries and weights have an error of 2^-9.
            const bool halves = ops.activation_format(DType::kBF16) == ActivationFormat::kBF16;
            const float bound = halves && shape.dtype == DType::kBF16 ? 0.4f : 1e-4f;
            for (size_t i = 0; i < got.size(); ++i) {
                ASSERT_FALSE(!(std::fabs(got[i] - expected[i]) <= bound))
                    << ops.name << " case " << number << " element " << i << ": " << got[i] << ", "
                    << expected[i];
            }
            // Each row alone.
            const auto width = static_cast<std::ptrdiff_t>(shape.heads * shape.head_dim);
            for (const Sequence& sequence : problem.sequences()) {
                const int32_t last = sequence.row_count - 1, row = sequence.row_begin + last;
                const Sequence one{row, 1, sequence.position + last, sequence.pages};
                const std::vector<float> alone = attend(ops, {one}, 1);
                EXPECT_TRUE(std::equal(alone.begin() + row * width,
                                       alone.begin() + (row + 1) * width,
                                       got.begin() + row * width))
                    << ops.name << " case " << number << " row " << row;
            }
        }
    }
}

TEST(BlockAttention, OfAllBlocksHasTheBitsOfAttention) {
    Random random(73);
    for (int number = 0; number < 6; ++number) {
        const AttentionCase problem(BlockShape(random), static_cast<uint32_t>(number));
        const int64_t block = random.Pick<int64_t>({7, 64, 128}), top = 500 / block + 1;
        const std::vector<int32_t> chosen = Choices(random, problem, top, block);
        for (const Ops& ops : OpLevels()) {
            problem.WriteAll(ops);
            EXPECT_EQ(AttendBlocks(problem, ops, problem.sequences(), chosen, top, block, 2),
                      problem.Attend(ops, problem.sequences(), 2))
                << ops.name << " case " << number;
        }
    }
}

}  // namespace
}  // namespace weft::kernels::test
