// Every op is lowered on the CPU, or a row gives the reason.
#include "support/every_op.h"

#include <gtest/gtest.h>

#include "backend/cpu/cpu_device.h"
#include "support/family_model.h"
#include "support/temp_dir.h"

namespace weft::backend {
namespace {

using program::OpKind;
using support::Use;

constexpr const char* kExpanded = "ExpandLoss (program/loss.h) replaces it by other ops";
constexpr support::NotLowered kNotOnTheCpu[] = {
    {OpKind::kLinearCrossEntropy, Use::kTraining, kExpanded},
    {OpKind::kLinearCrossEntropyGrad, Use::kTraining, kExpanded},
};

// The families that have an op of training that no TrainingCase has.
constexpr std::string_view kOddFamilies[] = {
    "gptOss", "gemma4Moe", "deepseekV2", "nemotronHMoe", "qwen3nextMoe", "llama4", "mistralLarge4"};

TEST(EveryOp, OfInferenceLowersOnTheCpu) {
    const auto device = MakeCpuDevice({});
    std::set<OpKind> lowered;
    support::AddCompiled(*device, {support::EveryOp(DType::kQ8_0).program}, support::SmallSteps(),
                         lowered);
    support::ExpectEveryOp(Use::kInference, lowered, kNotOnTheCpu);
}

TEST(EveryOp, OfTrainingLowersOnTheCpu) {
    const auto device = MakeCpuDevice({});
    std::set<OpKind> lowered;
    for (const support::TrainingCase& c : support::kEveryTrainingOp) {
        SCOPED_TRACE(c.Name());
        const support::TrainingRank rank(c);
        support::AddCompiled(*device, rank.program(), c.compile(), lowered);
    }
    const test::TempDir dir;
    for (const support::FamilyCase& c : support::FamilyCases()) {
        if (std::ranges::find(kOddFamilies, c.name) == std::end(kOddFamilies)) continue;
        SCOPED_TRACE(c.name);
        const support::FamilyModel model = support::OpenFamily(c, dir / c.name);
        const auto layout = model::MakeLayout(1, 1, 1, {}).value();
        const auto plan = model::PlanShards(model.hyper, *model.source, layout).value();
        train::GraphOptions options;
        options.rows = options.sequence = 4;
        auto graph =
            train::BuildTrainingGraph(model.hyper, plan.shards, *model.source, options).value();
        CompileOptions compile;
        compile.max_tokens = compile.max_outputs = options.rows;
        support::AddCompiled(*device, graph.program, compile, lowered);
    }
    support::ExpectEveryOp(Use::kTraining, lowered, kNotOnTheCpu);
}

// An op without a lowering is refused before a step runs.
TEST(EveryOp, TheCpuRefusesOthers) {
    const auto device = MakeCpuDevice({});
    program::Program program;
    const program::Shape rows{program::kTokens, 32};
    const program::ValueId dy = program.AddValue({"dy", DType::kF32, rows});
    program.Emit(program::SoftCapGrad{}, {dy, dy}, "dx", rows);
    const auto compiled = device->Compile({program}, support::SmallSteps());
    ASSERT_FALSE(compiled.ok());
    EXPECT_EQ(compiled.error().message,
              "program op 0 (soft_cap_grad): is a training op, but the Program is for inference");
}

}  // namespace
}  // namespace weft::backend
