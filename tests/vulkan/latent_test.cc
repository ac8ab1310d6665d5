// Latent attention on a GPU against kernels/reference, over random sizes and types; copies of
// pages.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/sparse.h"
#include "support/nightly.h"
#include "vulkan/matrix_of.h"
#include "vulkan/plain_cache.h"

namespace weft::backend::on_gpu {
namespace {

using kernels::Sequence;
using kernels::test::AttentionCase;
using kernels::test::AttentionShape;
using kernels::test::kUlp;
using kernels::test::Random;
using program::kTokens;
using program::ValueId;
using test::BenchEmitter;
using test::PlainCache;
using test::StepContents;

// Two sequences, whose "keys" are the cached rows: the latent vector, followed by the key.
struct LatentCase {
    int64_t rank = 0, rope = 0, heads = 0;
    AttentionShape shape;
    AttentionCase problem;
    PlainCache cache;
    std::vector<float> latent, key, q_latent, q_key;  // of the step's rows
    int64_t top = 0;                                  // number of chosen positions; 0: all
    std::vector<int32_t> chosen;
    int64_t stride = 1;        // not 1: `chosen` has positions of windows of this many
    std::vector<float> sinks;  // of the heads, or none

    // most: number of chosen positions; 0: all. keyed: the cache also has rotated keys.
    LatentCase(Random& random, int number, int64_t most = 0, bool keyed = true)
        : rank(most > 0 ? 96 : random.Pick<int64_t>({32, 96, 512})),
          rope(keyed ? 32 * random.Int(1, 2) : 0),
          heads(random.Pick<int64_t>({1, 3, 16, 20})),
          shape(MakeShape(random, number)),
          problem(shape, static_cast<uint32_t>(number)),
          cache(shape.dtype, shape, 1, problem.PageCount(), shape.head_dim) {
        q_latent = random.Normals(problem.Rows() * heads * rank);
        q_key = random.Normals(problem.Rows() * heads * rope);
        for (size_t s = 0; s < 2; ++s) {
            const Sequence& sequence = problem.sequences()[s];
            cache.Write(sequence, problem.keys(s), 0, sequence.position);
            for (int64_t t = sequence.position; t < problem.Tokens(s); ++t) {
                const auto row = problem.keys(s).begin() + t * (rank + rope);
                latent.insert(latent.end(), row, row + rank);
                key.insert(key.end(), row + rank, row + rank + rope);
            }
        }
        if (most > 0) Choose(random, most);
    }
    // Chooses by random scores; `most` is so large that some rows have fewer positions.
    void Choose(Random& random, int64_t most) {
        top = most;
        kernels::ForIndexRows(problem.sequences(), [&](int64_t, auto&, int64_t, int64_t keys) {
            std::vector<int32_t> row(static_cast<size_t>(top));
            const std::vector<float> scores = random.Normals(keys);
            keys <= top ? kernels::ChooseAll(keys, row) : kernels::ChooseHighest(scores, row);
            chosen.insert(chosen.end(), row.begin(), row.end());
        });
    }
    // Replaces the choice by that of `windows` windows of `each` positions.
    void ChooseWindows(Random& random, int64_t windows, int64_t each) {
        stride = each;
        top = (windows + 1) * each - 1;
        chosen.clear();
        kernels::ForIndexRows(problem.sequences(), [&](int64_t, auto&, int64_t, int64_t keys) {
            std::vector<int32_t> of(static_cast<size_t>(windows)), row;
            const std::vector<float> scores = random.Normals(keys / each);
            keys / each <= windows ? kernels::ChooseAll(keys / each, of)
                                   : kernels::ChooseHighest(scores, of);
            for (const int32_t window : of) {
                for (int64_t i = 0; window >= 0 && i < each; ++i) {
                    row.push_back(static_cast<int32_t>(window * each + i));
                }
            }
            for (int64_t at = keys / each * each; at < keys; ++at) {
                row.push_back(static_cast<int32_t>(at));
            }
            row.resize(static_cast<size_t>(top), -1);
            chosen.insert(chosen.end(), row.begin(), row.end());
        });
    }
    AttentionShape MakeShape(Random& random, int number) const {
        AttentionShape made;
        made.dtype = kernels::test::RandomCacheType(random);
        made.head_dim = rank + rope;
        made.heads = made.group = 1;
        made.sequences = {{random.Int(0, 300), number % 2 == 0 ? 1 : 12}, {random.Int(0, 70), 2}};
        return made;
    }
    // Also writes the step's own rows.
    void WriteAll() {
        for (size_t s = 0; s < 2; ++s) {
            const Sequence& sequence = problem.sequences()[s];
            cache.Write(sequence, problem.keys(s), sequence.position, problem.Tokens(s));
        }
    }
    std::vector<float> Expected() const {
        std::vector<float> expected(static_cast<size_t>(problem.Rows() * heads * rank));
        kernels::LatentAttentionArgs args;
        args.sequences = problem.sequences();
        args.q_latent = q_latent.data();
        args.q_key = q_key.data();
        args.heads = heads, args.rank = rank, args.rope = rope;
        args.cache = cache.cache;
        args.scale = problem.scale();
        args.out = expected.data();
        if (!sinks.empty()) args.sinks = sinks.data();
        if (top == 0) {
            kernels::reference::LatentAttention(args, 0, 1);
        } else {
            kernels::KernelsFor(CpuLevel::kReference).latent({args, chosen.data(), top}, 0, 1);
        }
        return expected;
    }
    // The float32 reference is off by as much as the GPU: twice the bound that AttentionCase
    // derives for one of them, with rank + rope dims and at most 312 keys, plus the error of the
    // GPU's exp. For normal values, scale * sum |q k| is below 2 sqrt(dims).
    double Bound() const {
        const double dims = static_cast<double>(rank + rope);
        const double score = (dims + 4) * kUlp * 2 * std::sqrt(dims);
        const double most = std::max(test::MostOf(problem.keys(0)), test::MostOf(problem.keys(1)));
        return 2 * most * (4 * score + (2 * 312 + 40) * kUlp) + test::MoreBound(shape, 104, most);
    }
    // Queries with 8 bits, which f16 holds exactly.
    void MakeQueriesCoarse() {
        for (std::vector<float>* queries : {&q_latent, &q_key}) {
            for (float& x : *queries) x = kernels::test::Rounded(DType::kBF16, x);
        }
    }
    // The additional error if weights are rounded to f16, and elements of blocks as well.
    double MatrixBound() const {
        const bool codes = Info(shape.dtype).quantized;
        const double dims = static_cast<double>(rank + rope), part = codes ? 2 : 1;
        const double e =
            std::exp((codes ? 0x1p-10 : 0) * 2 * std::sqrt(dims)) * (1 + part * 0x1p-10 + 0x1p-13) -
            1;
        return 2 * e / (1 - e) *
               std::max(test::MostOf(problem.keys(0)), test::MostOf(problem.keys(1)));
    }
};

void CheckLatent(const std::shared_ptr<gpu::Device>& device, LatentCase& c,
                 const Arithmetic& arithmetic = {}) {
    const bool matrix = arithmetic.matrix != Arithmetic::Matrix::kNone;
    const double bound = c.Bound() + (matrix ? c.MatrixBound() : 0);
    BenchEmitter e(device, {.rows = static_cast<int32_t>(c.problem.Rows()), .positions = 512});
    e.set_arithmetic(arithmetic);
    e.SetStep(test::StepOf(c.problem.sequences()));
    const ValueId held =
        e.AddCache({c.shape.dtype, 1, c.shape.page_tokens, c.rank + c.rope}, c.problem.PageCount());
    std::ranges::copy(c.cache.bytes, e.CacheBytes(held).begin());
    const ValueId out = e.AddFloats({kTokens, c.heads * c.rank});
    const bool keyed = c.rope > 0;
    std::vector<ValueId> inputs = {e.AddFloats({kTokens, c.heads * c.rank}, c.q_latent)};
    if (keyed) inputs.push_back(e.AddFloats({kTokens, c.heads * c.rope}, c.q_key));
    inputs.push_back(e.AddFloats({kTokens, c.rank}, c.latent));
    if (keyed) inputs.push_back(e.AddFloats({kTokens, c.rope}, c.key));
    if (!c.sinks.empty()) inputs.push_back(e.AddVector(c.sinks));
    if (c.top > 0) inputs.push_back(e.AddInts({kTokens, c.top}, c.chosen));
    // (The op that makes the choice defines the meaning of its entries.)
    if (c.stride != 1) e.AddOp(program::IndexTopK{c.stride, true}, {}, {inputs.back()});
    inputs.push_back(held);
    const program::LatentAttention op{c.heads, c.problem.scale(), !c.sinks.empty(), keyed};
    const Status lowered = e.Lower(op, inputs, {out});
    ASSERT_TRUE(lowered.ok()) << lowered.error().message;
    const Status ran = e.Run();
    ASSERT_TRUE(ran.ok()) << ran.error().message;
    c.WriteAll();
    ASSERT_TRUE(std::ranges::equal(c.cache.bytes, e.CacheBytes(held)));
    const std::vector<float> got = e.Floats(out), expected = c.Expected();
    for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_FALSE(!(std::fabs(double{got[i]} - double{expected[i]}) <= bound))
            << "element " << i << ": " << got[i] << ", expected " << expected[i];
    }
}

TEST(VulkanLatent, EqualsTheReference) {
    WEFT_VULKAN(device);
    Random random(5);
    for (int number = 0; number < 6; ++number) {
        LatentCase problem(random, number);
        CheckLatent(device, problem);
        ASSERT_FALSE(HasFatalFailure()) << "case " << number;
    }
}

// Queries of all heads of some rows fill the fragments.
TEST(VulkanLatent, OnMatrixUnits) {
    WEFT_VULKAN(device);
    Random random(7);
    const Arithmetic arithmetic{.matrix = test::MatrixOf(device->description())};
    for (int number = 1; number < (weft::test::Nightly() ? 21 : 3); number += 2) {
        LatentCase problem(random, number);  // of 14 rows
        problem.MakeQueriesCoarse();
        CheckLatent(device, problem, arithmetic);
        ASSERT_FALSE(HasFatalFailure()) << "case " << number;
    }
}

TEST(VulkanLatent, OfChosenPositionsEqualsTheReference) {
    WEFT_VULKAN(device);
    Random random(8);
    for (int number = 0; number < 3; ++number) {
        LatentCase problem(random, number, number == 0 ? 200 : number == 1 ? 60 : 5);
        CheckLatent(device, problem);
        ASSERT_FALSE(HasFatalFailure()) << "case " << number << ", " << problem.top;
    }
}

// Sinks (Hy4), rows without a key, and positions of windows (GLM 5.3), with lists of one and of
// several chunks, and for rows that see fewer positions than a list holds.
TEST(VulkanLatent, WithSinksWithoutKeysAndOfWindows) {
    WEFT_VULKAN(device);
    Random random(11);
    for (int number = 0; number < 8; ++number) {
        if (!weft::test::InTurn(static_cast<size_t>(number + number / 2), 2)) continue;
        const int64_t most = std::vector<int64_t>{0, 200, 60, 5}[static_cast<size_t>(number / 2)];
        LatentCase problem(random, number, most, number % 4 < 2);
        if (number != 7) problem.sinks = random.Normals(problem.heads, 2);
        if (most > 0 && number % 4 >= 2) problem.ChooseWindows(random, most / 4, 4);
        CheckLatent(device, problem);
        ASSERT_FALSE(HasFatalFailure()) << "case " << number << ", " << problem.top;
    }
}

// Writes only the rows of a sequence that end a window.
void WriteEnds(PlainCache& cache, const Sequence& sequence, const std::vector<float>& rows,
               const kernels::Windows& windows) {
    const int64_t dim = cache.cache.head_dim, all = sequence.position + sequence.row_count;
    std::vector<float> ends;
    for (int64_t token = 0; token < all; ++token) {
        if (!windows.Ends(token)) continue;
        ends.insert(ends.end(), rows.begin() + token * dim, rows.begin() + (token + 1) * dim);
    }
    cache.Write(sequence, ends, 0, windows.Seen(all - 1));
}

// All dispatches but the write of keys take long over long contexts, so they can be split by rows.
void ExpectSplits(BenchEmitter& e, int64_t rows) {
    const std::vector<Dispatch> dispatches = e.TakeDispatches();
    for (size_t i = 0; i < dispatches.size(); ++i) {
        EXPECT_EQ(dispatches[i].MostParts(), i == 0 ? 1 : rows);
        e.Emit(dispatches[i]);
    }
}

// Scores are integers, so any order of sums gives the same result, and many are equal. Some cases
// choose windows of 4 positions, and some of these list the windows' positions.
TEST(VulkanIndexer, ChoosesWhatTheReferenceChooses) {
    WEFT_VULKAN(device);
    Random random(9);
    for (int number = 0; number < 12; ++number) {
        const bool positions = number >= 8;
        const kernels::Windows windows = number < 4 ? kernels::Windows{} : kernels::Windows{4, 4};
        const int64_t heads = random.Int(1, 9), dim = random.Pick<int64_t>({32, 64});
        const int64_t top = random.Pick<int64_t>({1, 7, 40, 400});
        AttentionShape shape;
        shape.dtype = random.Pick({DType::kF32, DType::kF16});
        shape.head_dim = dim;
        shape.heads = shape.group = 1;
        shape.sequences = {{random.Int(0, 300), number % 2 == 0 ? 1 : 12}, {random.Int(0, 70), 2}};
        AttentionCase problem(shape, static_cast<uint32_t>(number));
        shape.page_tokens /= windows.row_positions;
        PlainCache cache(shape.dtype, shape, 1, problem.PageCount(), dim);
        const auto whole = [&](int64_t count, int64_t most) {
            std::vector<float> values(static_cast<size_t>(count));
            for (float& value : values) value = static_cast<float>(random.Int(-most, most));
            return values;
        };
        std::vector<float> keys;
        for (const Sequence& s : problem.sequences()) {
            const int64_t all = s.position + s.row_count;
            const std::vector<float> rows = whole(all * dim, 2);
            WriteEnds(cache, s, rows, windows);
            keys.insert(keys.end(), rows.begin() + s.position * dim, rows.end());
        }
        const std::vector<float> q = whole(problem.Rows() * heads * dim, 2);
        const std::vector<float> weights = whole(problem.Rows() * heads, 3);
        std::vector<float> scratch(static_cast<size_t>(kernels::IndexScratch(heads, dim, 512)));
        std::vector<float> shared(static_cast<size_t>(kernels::kIndexSharedRows * 512));
        const int64_t columns = positions ? (top + 1) * windows.stride - 1 : top;
        std::vector<int32_t> expected(static_cast<size_t>(problem.Rows() * columns));
        const kernels::IndexRows rows{problem.sequences(),
                                      q.data(),
                                      weights.data(),
                                      heads,
                                      dim,
                                      top,
                                      cache.cache,
                                      scratch.data(),
                                      static_cast<int64_t>(scratch.size()),
                                      512,
                                      shared.data(),
                                      windows,
                                      positions};
        const kernels::SparseKernels& kernels = kernels::KernelsFor(CpuLevel::kReference);
        kernels.index_scores({rows}, 0, 1);
        kernels.index_choose({rows, expected.data()}, 0, 1);

        BenchEmitter e(device, {.rows = static_cast<int32_t>(problem.Rows()), .positions = 512});
        e.SetStep(test::StepOf(problem.sequences()));
        const ValueId held =
            e.AddCache({shape.dtype, 1, shape.page_tokens, dim}, problem.PageCount());
        std::ranges::copy(cache.bytes, e.CacheBytes(held).begin());
        const ValueId chosen = e.AddInts({kTokens, columns});
        const Status lowered =
            e.Lower(program::IndexTopK{windows.stride, positions},
                    {e.AddFloats({kTokens, heads * dim}, q), e.AddFloats({kTokens, dim}, keys),
                     e.AddFloats({kTokens, heads}, weights), held},
                    {chosen});
        ASSERT_TRUE(lowered.ok()) << lowered.error().message;
        ExpectSplits(e, problem.Rows());
        const Status ran = e.Run();
        ASSERT_TRUE(ran.ok()) << ran.error().message;
        EXPECT_TRUE(std::ranges::equal(cache.bytes, e.CacheBytes(held)));
        EXPECT_EQ(e.Ints(chosen), expected) << "case " << number << ", top " << top;
    }
}

TEST(VulkanPages, PagesAreCopiedInOrder) {
    WEFT_VULKAN(device);
    Random random(6);
    for (const auto& [dtype, dims, tokens] : {std::tuple{DType::kF16, 64, 64},
                                              {DType::kF32, 3, 5},
                                              {DType::kF16, 3, 5},
                                              {DType::kQ8_0, 32, 64}}) {
        BenchEmitter e(device, {.rows = 1, .positions = 64});
        StepContents step;
        step.copies = {0, 3, 3, 5, 1, 3, 5, 1};
        e.SetStep(step);
        const ValueId a = e.AddCache({dtype, 2, tokens, dims}, 6);
        const ValueId b = e.AddCache({dtype, 1, tokens, dims}, 6);
        const std::array<CachePlace, 2> places = {e.Cache(a), e.Cache(b)};
        std::array<std::vector<std::byte>, 2> expected;
        for (size_t i = 0; i < 2; ++i) {
            const std::span<std::byte> bytes = e.CacheBytes(i == 0 ? a : b);
            for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Int(0, 255));
            expected[i].assign(bytes.begin(), bytes.end());
            const auto page = static_cast<size_t>(places[i].PageBytes());
            for (size_t c = 0; c < step.copies.size(); c += 2) {
                std::memcpy(expected[i].data() + static_cast<size_t>(step.copies[c + 1]) * page,
                            expected[i].data() + static_cast<size_t>(step.copies[c]) * page, page);
            }
        }
        ASSERT_TRUE(LowerPageCopies(e, places, 4).ok());
        const Status ran = e.Run();
        ASSERT_TRUE(ran.ok()) << ran.error().message;
        EXPECT_TRUE(std::ranges::equal(expected[0], e.CacheBytes(a)));
        EXPECT_TRUE(std::ranges::equal(expected[1], e.CacheBytes(b)));
    }
}

}  // namespace
}  // namespace weft::backend::on_gpu
