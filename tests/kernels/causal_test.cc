// Causal attention for training, forward and backward, on every level: results and gradients, and
// bits that do not depend on parts.
#include <gtest/gtest.h>

#include <vector>

#include "support/causal_case.h"
#include "support/nightly.h"

namespace weft::kernels::dense {
namespace {

using causal_case::Case, causal_case::Problem;

const std::vector<Case>& Cases() {
    static const std::vector<Case> cases = {
        {2, 1, 64, 0, 2, {300, 1, 17}, Compute::kF32},
        {2, 1, 64, 0, 2, {300, 1, 17}, Compute::kBf16},
        {3, 3, 72, 0, 1, {5, 128, 64}, Compute::kF32},
        {3, 3, 72, 0, 1, {5, 141, 64}, Compute::kBf16},
        // Heads 4 to 6 of a model with groups of three: a KV head's group is divided.
        {3, 2, 80, 4, 3, {31, 33}, Compute::kF32},
        {3, 2, 80, 4, 3, {31, 33}, Compute::kBf16},
        {1, 1, 256, 0, 1, {65}, Compute::kF32},
        {1, 1, 256, 0, 1, {65}, Compute::kBf16},
        {2, 1, 64, 0, 2, {300, 1, 17}, Compute::kBf16, Element::kBf16},
        {3, 2, 80, 4, 3, {31, 33}, Compute::kBf16, Element::kBf16},
        {3, 3, 72, 0, 1, {5, 128, 64}, Compute::kF32, Element::kBf16},
        {3, 3, 72, 0, 1, {5, 141, 64}, Compute::kF32, Element::kF16},
        {3, 2, 80, 4, 3, {31, 33}, Compute::kBf16, Element::kF16},
        // Several blocks of keys and queries for parts to divide.
        {2, 1, 16, 0, 2, {700, 90}, Compute::kBf16, Element::kBf16},
        // Windows of one key, odd, of whole blocks and between, of all rows and more; soft caps.
        {2, 1, 16, 0, 2, {150, 1, 7}, Compute::kF32, Element::kF32, 1},
        {2, 1, 16, 0, 2, {700, 90}, Compute::kF32, Element::kF32, 37},
        {2, 1, 16, 0, 2, {700, 90}, Compute::kBf16, Element::kBf16, 37},
        {2, 1, 16, 0, 2, {700, 90}, Compute::kBf16, Element::kF16, 256},
        {1, 1, 24, 0, 1, {513, 300, 2}, Compute::kF32, Element::kBf16, 299},
        {3, 2, 80, 4, 3, {129, 33}, Compute::kF32, Element::kF32, 129},
        {3, 2, 80, 4, 3, {129, 33}, Compute::kBf16, Element::kBf16, 1000},
        {2, 1, 64, 0, 2, {300, 1, 17}, Compute::kF32, Element::kF32, 0, 0.7f},
        {2, 1, 64, 0, 2, {300, 1, 17}, Compute::kBf16, Element::kBf16, 0, 50},
        {3, 2, 80, 4, 3, {31, 333}, Compute::kF32, Element::kF32, 5, 2.5f},
        {3, 2, 80, 4, 3, {31, 333}, Compute::kBf16, Element::kF16, 130, 1},
        // ALiBi.
        {3, 3, 24, 2, 1, {31, 300}, Compute::kF32, Element::kF32, 0, 0, 0.25f},
        {3, 3, 64, 0, 1, {131}, Compute::kBf16, Element::kBf16, 37, 0, 0.5f},
    };
    return cases;
}

template <typename F>
void ForLevels(const F& test) {
    for (CpuLevel level : UsableCpuLevels(DetectCpu())) {
        for (size_t i = 0; i < Cases().size(); ++i) {
            // (The daily suite runs each case at some of the levels.)
            if (!weft::test::InTurn(i + static_cast<size_t>(level), 2)) continue;
            SCOPED_TRACE(testing::Message() << CpuLevelName(level) << ", case " << i);
            test(KernelsFor(level), Problem(static_cast<uint32_t>(i), Cases()[i]));
            if (testing::Test::HasFatalFailure()) return;
        }
    }
}

TEST(Causal, ForwardAndGradients) {
    ForLevels([](const Kernels& kernels, const Problem& problem) {
        problem.Expect(problem.Run(kernels, 1));
    });
}

TEST(Causal, BitsDoNotDependOnParts) {
    ForLevels([](const Kernels& kernels, const Problem& problem) {
        if (kernels.level == CpuLevel::kReference) return;
        const Problem::Results whole = problem.Run(kernels, 1);
        for (int parts : {2, 3, 5, 40}) EXPECT_TRUE(problem.Run(kernels, parts) == whole) << parts;
    });
}

TEST(Causal, KeysOutsideOfAllWindowsOfABlockAreNotRead) {
    const Case sliding = {2, 1, 16, 0, 2, {1100, 40}, Compute::kF32, Element::kF32, 100};
    for (CpuLevel level : UsableCpuLevels(DetectCpu())) {
        SCOPED_TRACE(CpuLevelName(level));
        const Kernels& kernels = KernelsFor(level);
        Problem problem(1, sliding);
        const Problem::Results whole = problem.Run(kernels, 1);
        problem.Poison(300);
        const Problem::Results poisoned = problem.Run(kernels, 1);
        // A block of up to 256 keys is read whole.
        for (int64_t row = 1 + 300 + 256 + 128 + 100; row < 1101; ++row) {
            for (int64_t column = 0; column < 32; ++column) {
                ASSERT_EQ(poisoned.out.At(row, column), whole.out.At(row, column)) << row;
                ASSERT_EQ(poisoned.dq.At(row, column), whole.dq.At(row, column)) << row;
            }
        }
    }
}

}  // namespace
}  // namespace weft::kernels::dense
