// The printed Program is golden text: SmolLM2's at one rank and at two. To accept a change:
// WEFT_UPDATE_GOLDEN=1 build/tests/program_tests --gtest_filter='Print.*', then read the diff.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "program/differentiate.h"
#include "support/paths.h"
#include "support/read_bytes.h"
#include "support/tiny_model.h"

namespace weft::program {
namespace {

void ExpectGolden(const Program& program, const std::string& name) {
    const std::string path = support::TestData("/programs/") + name;
    const std::string text = Print(program);
    if (std::getenv("WEFT_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << text;
    const std::string golden = support::ReadBytes(path);
    ASSERT_FALSE(golden.empty()) << "no " << path;
    size_t at = 0;
    while (at < text.size() && at < golden.size() && text[at] == golden[at]) ++at;
    if (at == text.size() && at == golden.size()) return;
    const size_t line = std::min(text.rfind('\n', at), text.size()) + 1;
    ADD_FAILURE() << name << " differs from here on:\n"
                  << text.substr(line, 400) << "\nexpected:\n"
                  << golden.substr(line, 400);
}

TEST(Print, SmolLm2OnOneRank) {
    const model::Hyper hyper = support::SmolLm2Hyper();
    const support::TinySource source(hyper, DType::kQ4_1);
    ExpectGolden(support::Build(hyper, source, {}, {})[0], "smollm2_tp1.txt");
}

TEST(Print, SmolLm2OnTwoTensorRanks) {
    const model::Hyper hyper = support::SmolLm2Hyper();
    const support::TinySource source(hyper, DType::kQ4_1);
    ExpectGolden(support::Build(hyper, source, {2, 1, {}, {}}, {})[1], "smollm2_tp2_rank1.txt");
}

TEST(Print, ABackwardProgram) {
    model::Hyper hyper = support::TinyHyper("qwen3", true);
    hyper.layers = 1;
    const support::TinySource source(hyper);
    const Program forward = support::Build(hyper, source, {2, 1, {}, {}}, {DType::kF32, false})[1];
    const auto back = Differentiate(forward, {forward.Find("logits"), {}});
    ASSERT_TRUE(back.ok());
    ExpectGolden(back->program, "tiny_qwen3_backward_tp2_rank1.txt");
}

// Each kind has a name of its own.
TEST(Print, EveryOpHasItsName) {
    EXPECT_STREQ(OpName((Op{Embedding{}, {}, {}}).kind()), "embedding");
    EXPECT_STREQ(OpName((Op{SoftmaxStats{}, {}, {}}).kind()), "softmax_stats");
    EXPECT_STREQ(OpName((Op{MatMulGradInput{}, {}, {}}).kind()), "mat_mul_grad_input");
    EXPECT_STREQ(OpName((Op{CrossEntropyGrad{}, {}, {}}).kind()), "cross_entropy_grad");
    std::vector<std::string> names;
    for (size_t i = 0; i < kOpKinds; ++i) {
        const std::string name = OpName(static_cast<OpKind>(i));
        EXPECT_FALSE(name.empty()) << i;
        EXPECT_EQ(std::count(names.begin(), names.end(), name), 0) << name;
        names.push_back(name);
    }
}

}  // namespace
}  // namespace weft::program
