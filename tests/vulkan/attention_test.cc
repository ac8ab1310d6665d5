// Attention on a GPU against the plain formula in double (support/attention_case.h), over random
// shapes, types, page tables and partitions of the heads; the values it writes into the cache; that
// a row's bits depend on that row alone; copies of pages.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "support/attention_case.h"
#include "support/nightly.h"
#include "vulkan/plain_cache.h"

namespace weft::backend::vulkan {
namespace {

using kernels::Sequence;
using kernels::test::AttentionCase;
using kernels::test::AttentionShape;
using kernels::test::kUlp;
using kernels::test::Random;
using program::kTokens;
using program::ValueId;
using test::BenchEmitter;
using test::MoreBound;
using test::PlainCache;
using test::StepOf;

int64_t PowerOfTwo(int64_t at_least) {
    int64_t power = 1;
    while (power < at_least) power *= 2;
    return power;
}

std::string Describe(const AttentionShape& shape, int number) {
    std::string text =
        "case " + std::to_string(number) + ": " + std::string(Info(shape.dtype).name) +
        " head_dim " + std::to_string(shape.head_dim) + " heads " + std::to_string(shape.heads) +
        " from " + std::to_string(shape.first_head) + " group " + std::to_string(shape.group) +
        " page " + std::to_string(shape.page_tokens) + " window " + std::to_string(shape.window) +
        " cap " + std::to_string(shape.soft_cap) + (shape.sinks ? " sinks" : "");
    for (auto [position, rows] : shape.sequences) {
        text += " [" + std::to_string(position) + "+" + std::to_string(rows) + "]";
    }
    return text;
}

// Rows [first, first + count) of a problem's sequences, each as a sequence of the step.
struct StepRows {
    size_t sequence = 0;
    int32_t first = 0, count = 0;
};

class AttentionOnGpu {
  public:
    AttentionOnGpu(std::shared_ptr<gpu::Device> device, const AttentionShape& shape,
                   AttentionCase& problem)
        : device_(std::move(device)),
          shape_(shape),
          problem_(problem),
          k_(shape, problem.kv_heads(), problem.PageCount(), shape.head_dim),
          v_(shape, problem.kv_heads(), problem.PageCount(), shape.ValueDim()) {}

    // Returns the result of these rows [rows, heads * ValueDim()], computed as one step whose
    // earlier tokens are in the cache. Checks the values that the step wrote into the caches.
    std::vector<float> Attend(const std::vector<StepRows>& step, bool reference = false) {
        std::vector<Sequence> sequences;
        int32_t rows = 0;
        int64_t positions = 1;
        for (const StepRows& part : step) {
            Sequence sequence = problem_.sequences()[part.sequence];
            sequence.position += part.first;
            sequence.row_count = part.count;
            rows += part.count;
            positions = std::max<int64_t>(positions, sequence.position + part.count);
            sequences.push_back(sequence);
        }
        BenchEmitter e(device_,
                       {.rows = rows, .positions = static_cast<int32_t>(PowerOfTwo(positions))});
        e.set_reference(reference);
        e.SetStep(StepOf(sequences));
        std::vector<ValueId> inputs = Inputs(e, step, sequences);
        const ValueId out = e.AddFloats({kTokens, shape_.heads * shape_.ValueDim()});
        const Status lowered = e.Lower(Op(), inputs, {out});
        EXPECT_TRUE(lowered.ok()) << lowered.error().message;
        const Status ran = e.Run();
        EXPECT_TRUE(ran.ok()) << ran.error().message;
        for (size_t i = 0; i < step.size(); ++i) WriteRows(sequences[i], step[i].sequence, true);
        ExpectCache(e, inputs.end()[-2], k_, "K");
        ExpectCache(e, inputs.back(), v_, "V");
        return e.Floats(out);
    }
    std::vector<StepRows> AllRows() const {
        std::vector<StepRows> all;
        for (size_t s = 0; s < problem_.sequences().size(); ++s) {
            all.push_back({s, 0, problem_.sequences()[s].row_count});
        }
        return all;
    }

  private:
    program::Attention Op() const {
        program::Attention op;
        op.heads = shape_.heads;
        op.kv_heads = problem_.kv_heads();
        op.head_dim = shape_.head_dim;
        op.first_head = shape_.first_head;
        op.first_kv_head = problem_.first_kv_head();
        op.group = shape_.group;
        op.scale = problem_.scale();
        op.value_dim = shape_.value_dim;
        (shape_.chunk ? op.chunk : op.window) = shape_.window;
        op.soft_cap = shape_.soft_cap;
        op.sinks = shape_.sinks;
        return op;
    }
    // Writes the tokens before the sequence's rows, which those rows attend to, or, with `own`, the
    // rows.
    void WriteRows(const Sequence& sequence, size_t s, bool own) {
        const int64_t begin = own ? sequence.position : problem_.FirstKey(sequence.position);
        const int64_t end = own ? sequence.position + sequence.row_count : sequence.position;
        k_.Write(problem_.sequences()[s], problem_.keys(s), begin, end);
        v_.Write(problem_.sequences()[s], problem_.values(s), begin, end);
    }
    std::vector<ValueId> Inputs(BenchEmitter& e, const std::vector<StepRows>& step,
                                const std::vector<Sequence>& sequences) {
        std::ranges::fill(k_.bytes, std::byte{0xff});
        std::ranges::fill(v_.bytes, std::byte{0xff});
        const int64_t width = shape_.heads * shape_.head_dim;
        const int64_t k_width = problem_.kv_heads() * shape_.head_dim;
        const int64_t v_width = problem_.kv_heads() * shape_.ValueDim();
        const std::vector<float> all = problem_.Queries();
        std::vector<float> q, k, v;
        const auto append = [](std::vector<float>& to, const std::vector<float>& from, int64_t row,
                               int64_t count, int64_t cols) {
            to.insert(to.end(), from.begin() + row * cols, from.begin() + (row + count) * cols);
        };
        for (size_t i = 0; i < step.size(); ++i) {
            const size_t s = step[i].sequence;
            WriteRows(sequences[i], s, false);
            const int64_t first = problem_.sequences()[s].row_begin + step[i].first;
            append(q, all, first, step[i].count, width);
            append(k, problem_.keys(s), sequences[i].position, step[i].count, k_width);
            append(v, problem_.values(s), sequences[i].position, step[i].count, v_width);
        }
        std::vector<ValueId> inputs = {e.AddFloats({kTokens, width}, q),
                                       e.AddFloats({kTokens, k_width}, k),
                                       e.AddFloats({kTokens, v_width}, v)};
        if (shape_.sinks) inputs.push_back(e.AddVector(problem_.sinks()));
        for (const PlainCache* cache : {&k_, &v_}) {
            inputs.push_back(
                e.AddCache({shape_.dtype, problem_.kv_heads(), shape_.page_tokens,
                            cache->cache.head_dim},
                           problem_.PageCount()));
            const std::span<std::byte> bytes = e.CacheBytes(inputs.back());
            std::ranges::copy(cache->bytes, bytes.begin());
        }
        return inputs;
    }
    void ExpectCache(BenchEmitter& e, ValueId id, const PlainCache& expected, const char* name) {
        const std::span<std::byte> held = e.CacheBytes(id);
        for (size_t i = 0; i < expected.bytes.size(); ++i) {
            ASSERT_EQ(static_cast<int>(held[i]), static_cast<int>(expected.bytes[i]))
                << name << " cache, byte " << i << " of " << held.size();
        }
    }

    std::shared_ptr<gpu::Device> device_;
    const AttentionShape& shape_;
    AttentionCase& problem_;
    PlainCache k_, v_;
};

void ExpectAttention(const std::vector<float>& got, const AttentionCase& problem,
                     const AttentionShape& shape, const std::string& what) {
    std::vector<double> expected, bound;
    problem.Expected(&expected, &bound);
    double most_value = 0;
    for (size_t s = 0; s < problem.sequences().size(); ++s) {
        most_value = std::max(most_value, test::MostOf(problem.values(s)));
    }
    const double more = MoreBound(shape, 104, most_value);
    ASSERT_EQ(got.size(), expected.size()) << what;
    for (size_t i = 0; i < got.size(); ++i) {
        const double error = std::fabs(got[i] - expected[i]);
        ASSERT_FALSE(!(error <= bound[i] + more))
            << what << ", element " << i << ": " << got[i] << ", expected " << expected[i]
            << ", bound " << bound[i] + more;
    }
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void Check(const std::shared_ptr<gpu::Device>& device, const AttentionShape& shape, int number) {
    AttentionCase problem(shape, static_cast<uint32_t>(number));
    const kernels::test::Ops reference{kernels::reference::Table(), "reference"};
    if (shape.dtype == DType::kQ8_0) problem.WriteAll(reference);  // Expected() reads these values
    AttentionOnGpu gpu(device, shape, problem);
    for (const bool simplest : {false, true}) {
        const std::string what =
            Describe(shape, number) + (simplest ? ", the simplest kernel" : "");
        ExpectAttention(gpu.Attend(gpu.AllRows(), simplest), problem, shape, what);
        if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(VulkanAttention, EqualsThePlainFormula) {
    WEFT_VULKAN(device);
    Random random(1);
    for (int number = 0; number < 12; ++number) {
        AttentionShape shape = kernels::test::RandomShape(random);
        shape.first_head = random.Int(0, 2);
        Check(device, shape, number);
        if (HasFatalFailure()) return;
    }
}

TEST(VulkanAttention, OtherValuesAndChunks) {
    WEFT_VULKAN(device);
    Random random(5);
    for (int number = 0; number < (weft::test::Nightly() ? 10 : 5); ++number) {
        AttentionShape shape = kernels::test::RandomOtherShape(random);
        if (number % 2 == 0) shape.sequences = {{random.Int(0, 200), 1}, {random.Int(0, 99), 1}};
        Check(device, shape, number);
        if (HasFatalFailure()) return;
    }
}

TEST(VulkanAttention, StepsOfOneTokenOfManySequences) {
    WEFT_VULKAN(device);
    Random random(2);
    for (int number = 0; number < (weft::test::Nightly() ? 6 : 3); ++number) {
        AttentionShape shape = kernels::test::RandomShape(random);
        shape.sequences.clear();
        for (int64_t i = random.Pick<int64_t>({2, 8, 9, 33}); i > 0; --i) {
            shape.sequences.emplace_back(random.Int(0, 300), 1);
        }
        Check(device, shape, number);
        if (HasFatalFailure()) return;
    }
}

TEST(VulkanAttention, LongContexts) {
    WEFT_VULKAN(device);
    int number = 0;
    for (const int64_t window : {0, 700}) {
        for (const int64_t rows : {1, 3, 20}) {
            AttentionShape shape;
            shape.head_dim = 64, shape.heads = 4, shape.group = 4;
            shape.window = window;
            shape.sinks = rows == 3;
            shape.sequences = {{2000, rows}, {5, 1}};
            Check(device, shape, number++);
            if (HasFatalFailure()) return;
        }
    }
}

// Positions from which a chunk has more than 128 keys.
TEST(VulkanAttention, VeryLongContexts) {
    WEFT_VULKAN(device);
    AttentionShape shape;
    shape.head_dim = 32, shape.heads = 2, shape.group = 2;
    shape.sequences = {{16383, 1}, {17000, 2}};
    Check(device, shape, 1);
}

// A step of single rows uses smaller tiles than a step with a prompt, and gives the same bits.
TEST(VulkanAttention, SmallerTilesHaveTheSameBits) {
    WEFT_VULKAN(device);
    for (const int64_t head_dim : {20, 64, 128}) {
        AttentionShape shape;
        shape.head_dim = head_dim, shape.heads = 4, shape.group = head_dim == 64 ? 1 : 4;
        shape.sequences.clear();
        for (int i = 0; i < 9; ++i) shape.sequences.emplace_back(50 * i, 1);
        shape.sequences.emplace_back(7, 5);
        AttentionCase problem(shape, 7);
        AttentionOnGpu gpu(device, shape, problem);
        std::vector<StepRows> step = gpu.AllRows();
        std::vector<float> all = gpu.Attend(step);
        step.pop_back();
        const std::vector<float> single = gpu.Attend(step);
        all.resize(single.size());
        EXPECT_TRUE(SameBits(all, single)) << head_dim;
    }
}

// Scores large enough to overflow exp.
TEST(VulkanAttention, LargeScoresStayFinite) {
    WEFT_VULKAN(device);
    for (const int64_t rows : {1, 20}) {
        AttentionShape shape;
        shape.dtype = DType::kF32;
        shape.deviation = 40;
        shape.sequences = {{100, rows}};
        Check(device, shape, 3);
    }
}

// (In all these tests, the cache holds NaN before the window.)
TEST(VulkanAttention, PagesOutsideTheWindowAreNotRead) {
    WEFT_VULKAN(device);
    for (const int64_t rows : {1, 2, 12}) {
        AttentionShape shape;
        shape.window = 70;
        shape.sequences = {{400, rows}, {64, 1}};
        AttentionCase problem(shape, 9);
        AttentionOnGpu gpu(device, shape, problem);
        const std::vector<float> seen = gpu.Attend(gpu.AllRows());
        problem.HidePagesOutsideWindow();
        AttentionOnGpu hidden(device, shape, problem);
        EXPECT_TRUE(SameBits(seen, hidden.Attend(hidden.AllRows()))) << rows << " rows";
    }
}

// Sequence 0 has the same bits alone, among others, and in steps of other sizes. Steps of at most 8
// rows use one kernel, larger ones another.
TEST(VulkanAttention, BitsDependOnTheRowAlone) {
    WEFT_VULKAN(device);
    Random random(4);
    for (int number = 0; number < (weft::test::Nightly() ? 8 : 4); ++number) {
        AttentionShape shape = kernels::test::RandomShape(random);
        const auto rows = static_cast<int32_t>(number % 2 == 0 ? 1 : 26);
        shape.sequences = {{random.Int(0, 600), rows}};
        for (int i = 0; i < 7; ++i) shape.sequences.emplace_back(random.Int(0, 900), 1);
        AttentionCase problem(shape, static_cast<uint32_t>(number));
        AttentionOnGpu gpu(device, shape, problem);
        const std::vector<float> alone = gpu.Attend({{0, 0, rows}});
        std::vector<float> among = gpu.Attend(gpu.AllRows());
        among.resize(alone.size());
        ASSERT_TRUE(SameBits(alone, among)) << Describe(shape, number);
        if (rows == 1) {
            const std::vector<float> simplest = gpu.Attend({{0, 0, 1}}, true);
            ASSERT_TRUE(SameBits(alone, simplest)) << Describe(shape, number);
            continue;
        }
        std::vector<float> cut = gpu.Attend({{0, 0, 11}});
        const std::vector<float> rest = gpu.Attend({{0, 11, 15}});
        cut.insert(cut.end(), rest.begin(), rest.end());
        ASSERT_TRUE(SameBits(alone, cut)) << Describe(shape, number) << ", in two steps";
    }
}

}  // namespace
}  // namespace weft::backend::vulkan
