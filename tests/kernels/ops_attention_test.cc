// Attention and the KV cache against the plain formula in double, over random shapes, dtypes, page
// tables and cuts of the heads; a row's bits depend only on the row.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "support/attention_case.h"
#include "support/nightly.h"

namespace weft::kernels::test {
namespace {

void ExpectWithin(const std::vector<float>& got, const std::vector<double>& expected,
                  const std::vector<double>& bound, const std::string& what) {
    ASSERT_EQ(got.size(), expected.size()) << what;
    for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_LE(std::fabs(got[i] - expected[i]), bound[i])
            << what << " element " << i << ": " << got[i] << ", expected " << expected[i];
    }
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::string Describe(const Ops& ops, const AttentionShape& shape, int number) {
    std::string text = ops.name + std::string(" case ") + std::to_string(number) + ": " +
                       std::string(Info(shape.dtype).name) + " and " +
                       std::string(Info(shape.ValueType()).name) + " head_dim " +
                       std::to_string(shape.head_dim) + " heads " + std::to_string(shape.heads) +
                       " from " + std::to_string(shape.first_head) + " group " +
                       std::to_string(shape.group) + " page " + std::to_string(shape.page_tokens);
    text += " window " + std::to_string(shape.window) + " cap " + std::to_string(shape.soft_cap) +
            (shape.sinks ? " sinks" : "") + (shape.chunk ? " in chunks" : "") +
            (shape.ahead ? " ahead" : "") + " value_dim " + std::to_string(shape.ValueDim());
    for (auto [position, rows] : shape.sequences) {
        text += " [" + std::to_string(position) + "+" + std::to_string(rows) + "]";
    }
    return text;
}

// From AVX-512 on, a BF16 cache is multiplied by BF16: queries by keys, weights by values.
AttentionRounding RoundingOf(const Ops& ops, const AttentionShape& shape) {
    if (ops.activation_format(DType::kBF16) != ActivationFormat::kBF16) return {};
    return {shape.dtype == DType::kBF16 ? 0x1p-9 : 0,
            shape.ValueType() == DType::kBF16 ? 0x1p-9 : 0};
}

// Random cases: daily half of them.
int RandomCases(int nightly) {
    return weft::test::Nightly() ? nightly : nightly / 2;
}

TEST(OpsAttention, EqualsThePlainFormula) {
    for (const Ops& ops : OpLevels()) {
        Random random(1);
        for (int number = 0; number < RandomCases(80); ++number) {
            const AttentionShape shape = RandomShape(random);
            AttentionCase problem(shape, static_cast<uint32_t>(number));
            problem.WriteAll(ops);
            std::vector<double> expected, bound;
            problem.Expected(&expected, &bound, RoundingOf(ops, shape));
            problem.HidePagesOutsideWindow();
            const auto parts = static_cast<int>(random.Int(1, 5));
            ExpectWithin(problem.Attend(ops, problem.sequences(), parts), expected, bound,
                         Describe(ops, shape, number));
            if (HasFatalFailure()) return;
        }
    }
}

TEST(OpsAttention, OtherValuesAndChunksEqualThePlainFormula) {
    for (const Ops& ops : OpLevels()) {
        Random random(6);
        for (int number = 0; number < RandomCases(60); ++number) {
            const AttentionShape shape = RandomOtherShape(random);
            AttentionCase problem(shape, static_cast<uint32_t>(number));
            problem.WriteAll(ops);
            std::vector<double> expected, bound;
            problem.Expected(&expected, &bound, RoundingOf(ops, shape));
            problem.HidePagesOutsideWindow();
            const auto parts = static_cast<int>(random.Int(1, 5));
            const std::vector<float> got = problem.Attend(ops, problem.sequences(), parts);
            ExpectWithin(got, expected, bound, Describe(ops, shape, number));
            if (HasFatalFailure()) return;
            ASSERT_TRUE(SameBits(got, problem.Attend(ops, problem.sequences(), parts + 1)))
                << Describe(ops, shape, number);
        }
    }
}

// Divides the rows of `sequences` into steps of at most `most` rows, and computes each step
// separately.
std::vector<float> AttendInSteps(const AttentionCase& problem, const Ops& ops, int32_t most) {
    std::vector<float> all;
    for (Sequence whole : problem.sequences()) {
        while (whole.row_count > 0) {
            Sequence step = whole;
            step.row_count = std::min(whole.row_count, most);
            const std::vector<float> out = problem.Attend(ops, {step}, 1);
            if (all.empty()) all.assign(out.size(), 0);
            const size_t width = out.size() / static_cast<size_t>(problem.Rows());
            const auto begin = static_cast<size_t>(step.row_begin) * width;
            const auto count = static_cast<size_t>(step.row_count) * width;
            std::copy_n(out.begin() + static_cast<int64_t>(begin), count,
                        all.begin() + static_cast<int64_t>(begin));
            whole.row_begin += step.row_count;
            whole.row_count -= step.row_count;
            whole.position += step.row_count;
        }
    }
    return all;
}

TEST(OpsAttention, BitsDependOnTheRowAlone) {
    for (const Ops& ops : OpLevels()) {
        Random random(2);
        for (int number = 0; number < RandomCases(20); ++number) {
            const AttentionShape shape = RandomShape(random);
            const AttentionCase problem(shape, static_cast<uint32_t>(number));
            problem.WriteAll(ops);
            const std::vector<float> whole = problem.Attend(ops, problem.sequences(), 1);
            for (int parts = 2; parts <= 5; ++parts) {
                ASSERT_TRUE(SameBits(whole, problem.Attend(ops, problem.sequences(), parts)))
                    << Describe(ops, shape, number) << ", parts " << parts;
            }
            for (int32_t most : {1, 7, 33}) {
                ASSERT_TRUE(SameBits(whole, AttendInSteps(problem, ops, most)))
                    << Describe(ops, shape, number) << ", in steps of " << most;
            }
        }
    }
}

// Scores so large that exp overflows: the maximum must be subtracted first.
TEST(OpsAttention, LargeScoresStayFinite) {
    for (const Ops& ops : OpLevels()) {
        AttentionShape shape;
        shape.dtype = DType::kF32;
        shape.deviation = 40;
        shape.sequences = {{100, 20}};
        const AttentionCase problem(shape, 3);
        problem.WriteAll(ops);
        std::vector<double> expected, bound;
        problem.Expected(&expected, &bound);
        ExpectWithin(problem.Attend(ops, problem.sequences(), 2), expected, bound, ops.name);
    }
}

// The most that a block moves an element: half a step of its codes (Q4_0, whose codes end at 7: a
// step), the rounding of the f16 numbers at the code's distance, and denormals of f16.
float BlockError(DType dtype, std::span<const float> block) {
    const auto [least, most] = std::minmax_element(block.begin(), block.end());
    const float peak = std::max(std::fabs(*least), std::fabs(*most));
    constexpr float kHalf = 0x1p-11f * 1.001f, kDenormal = 0x1p-25f;
    if (dtype == DType::kQ8_0) return peak * (0.501f / 127 + kHalf) + 127 * kDenormal;
    if (dtype == DType::kQ4_0) return peak * (1.001f / 8 + kHalf) + 8 * kDenormal;
    const float range = *most - *least;
    return range * (0.501f / 31 + kHalf) + std::fabs(*least) * kHalf + 32 * kDenormal;
}

TEST(OpsKvWrite, CacheHoldsTheRoundedRows) {
    for (const Ops& ops : OpLevels()) {
        Random random(4);
        for (int number = 0; number < RandomCases(60); ++number) {
            const AttentionShape shape = RandomShape(random);
            const AttentionCase problem(shape, static_cast<uint32_t>(number));
            const auto parts = static_cast<int>(random.Int(1, 5));
            problem.WriteAll(ops, parts);
            for (size_t s = 0; s < shape.sequences.size(); ++s) {
                for (bool is_key : {true, false}) {
                    const DType dtype = is_key ? shape.dtype : shape.ValueType();
                    const std::vector<float>& given = is_key ? problem.keys(s) : problem.values(s);
                    const std::vector<float> held = problem.Held(s, is_key);
                    const std::vector<float> read = problem.ReadBack(s, is_key);
                    for (size_t i = 0; i < given.size(); ++i) {
                        if (!Info(dtype).quantized) {
                            ASSERT_EQ(read[i], held[i]) << Describe(ops, shape, number);
                            continue;
                        }
                        const std::span block = std::span(given).subspan(i / 32 * 32, 32);
                        ASSERT_LE(std::fabs(read[i] - given[i]), BlockError(dtype, block))
                            << Describe(ops, shape, number);
                    }
                }
            }
        }
    }
}

// One token at a time, in chunks or at once, with any number of parts, at any level: the same
// bytes.
TEST(OpsKvWrite, BytesDependOnTheRowAlone) {
    Random random(5);
    for (int number = 0; number < RandomCases(30); ++number) {
        const AttentionShape shape = RandomShape(random);
        const AttentionCase whole(shape, static_cast<uint32_t>(number));
        whole.WriteAll(OpLevels().front());
        for (const Ops& ops : OpLevels()) {
            const AttentionCase steps(shape, static_cast<uint32_t>(number));
            for (size_t s = 0; s < shape.sequences.size(); ++s) {
                for (int64_t begin = 0; begin < steps.Tokens(s);) {
                    const int64_t end = std::min(begin + random.Int(1, 20), steps.Tokens(s));
                    steps.Write(ops, s, begin, end, static_cast<int>(random.Int(1, 4)));
                    begin = end;
                }
            }
            ASSERT_TRUE(whole.k_bytes() == steps.k_bytes()) << Describe(ops, shape, number);
            ASSERT_TRUE(whole.v_bytes() == steps.v_bytes()) << Describe(ops, shape, number);
        }
    }
}

}  // namespace
}  // namespace weft::kernels::test
