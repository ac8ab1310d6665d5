// Training Programs without a run: the logits that a temperature divides, and the messages between
// stages.
#include "train/graph.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/family_model.h"
#include "support/nightly.h"
#include "support/temp_dir.h"
#include "support/training_case.h"

namespace weft::train {
namespace {

using program::OpKind;

// --temperature divides the logits, whatever the model computes before: scale, soft cap or both.
TEST(TrainingGraph, ATemperatureDividesTheLogits) {
    for (const auto& [scale, cap] :
         {std::pair{1.0f, 0.0f}, {0.25f, 0.0f}, {1.0f, 3.0f}, {0.25f, 3.0f}}) {
        for (const double temperature : {0.05, 0.5, 1.0, 2.0}) {
            const support::TrainingCase c{.scale = scale, .cap = cap};
            const model::Hyper hyper = c.hyper();
            const support::TinySource source(hyper);
            const model::Shard shard =
                model::PlanShards(hyper, source, model::MakeLayout(1, 1, 1, {}).value())->shards[0];
            GraphOptions options;
            options.temperature = temperature;
            const auto graph = BuildTrainingGraph(hyper, {&shard, 1}, source, options);
            ASSERT_TRUE(graph.ok()) << graph.error().message;
            const auto& ops = graph->program.program.ops;
            const auto op = std::ranges::find(ops, OpKind::kLinearCrossEntropy,
                                              [](const program::Op& each) { return each.kind(); });
            ASSERT_NE(op, ops.end());
            const auto& loss = op->as<program::LinearCrossEntropy>();
            const auto logit = [](double x, double factor, double most) {
                return most == 0 ? factor * x : most * std::tanh(factor * x / most);
            };
            for (const double x : {-40.0, -1.0, 0.5, 7.0, 100.0}) {
                const double expected = logit(x, scale, cap) / temperature;
                const double got = logit(x, loss.scale, loss.soft_cap);
                EXPECT_TRUE(std::abs(got - expected) <= 1e-6 * std::abs(expected))
                    << x << ", scale " << scale << ", cap " << cap << ", at " << temperature;
            }
        }
    }
}

// ---- Messages -----------------------------------------------------------------------------------

// The messages that a pass of a stage sends to a rank, or receives from it, in order.
std::vector<std::string> Messages(const TrainingGraph& graph, bool backward, bool sends, int peer) {
    const program::ModelChunk& chunk = graph.program.chunks[0];
    const program::OpRange range = backward ? chunk.backward() : chunk.forward();
    std::vector<std::string> messages;
    for (size_t i = range.begin; i < range.end; ++i) {
        const program::Op& op = graph.program.program.ops[i];
        const auto* send = op.attributes.If<program::Send>();
        const auto* recv = op.attributes.If<program::Recv>();
        if (sends ? send == nullptr || send->peer != peer : recv == nullptr || recv->peer != peer) {
            continue;
        }
        const program::Value& value =
            graph.program.program.value(sends ? op.inputs[0] : op.outputs[0]);
        messages.push_back(fmt::format("{} {}", Info(value.dtype).name, value.shape.Text()));
    }
    return messages;
}

// Neighbors send each other what the other one receives, in both directions. Each stage is built
// from its own weights alone.
void ExpectMatchingStages(const support::FamilyModel& model, int pp, const GraphOptions& options,
                          const std::string& what) {
    const model::Layout layout = model::MakeLayout(pp, 1, pp, {}).value();
    const auto plan = model::PlanShards(model.hyper, *model.source, layout);
    if (!plan.ok()) return;  // (layers that cannot be cut there)
    std::vector<TrainingGraph> stages;
    for (const model::Shard& shard : plan->shards) {
        auto graph = BuildTrainingGraph(model.hyper, {&shard, 1}, *model.source, options);
        if (!graph.ok()) return;  // (a refused model, or a stage without adapters)
        stages.push_back(std::move(*graph));
    }
    for (int stage = 0; stage + 1 < pp; ++stage) {
        const TrainingGraph& first = stages[static_cast<size_t>(stage)];
        const TrainingGraph& second = stages[static_cast<size_t>(stage) + 1];
        const auto forward = Messages(first, false, true, stage + 1);
        EXPECT_FALSE(forward.empty()) << what;
        EXPECT_EQ(forward, Messages(second, false, false, stage)) << what;
        EXPECT_EQ(Messages(second, true, true, stage), Messages(first, true, false, stage + 1))
            << what;
        EXPECT_EQ(Messages(second, true, true, stage).size(), forward.size()) << what;
    }
}

TEST(TrainingGraph, StagesExchangeTheSameMessages) {
    size_t number = 0;
    for (const support::FamilyCase& family : support::FamilyCases()) {
        const bool daily = family.name == "qwen2moe" || family.name == "gptOss" ||
                           family.name == "gemma4" || family.name == "deepseekV2";
        if (!daily && !test::InTurn(number++, 12)) continue;
        const test::TempDir dir;
        const support::FamilyModel model = support::OpenFamily(family, dir / "model");
        for (const bool balance : {false, true}) {
            if (balance && model.hyper.moe.experts == 0) continue;
            for (const char* targets : {"", "all", "attn", "mlp", "down_proj", "o_proj"}) {
                LoraOptions words;
                words.rank = 2;
                words.targets = targets;
                const auto lora = PlanLora(*model.source, words);
                if (*targets != 0 && !lora.ok()) continue;
                GraphOptions options;
                options.rows = options.sequence = 40;
                options.load_balance = balance;
                if (*targets != 0) options.lora = &*lora;
                for (const int pp : {2, 3}) {
                    if (model.hyper.layers < pp) continue;
                    ExpectMatchingStages(
                        model, pp, options,
                        fmt::format("{}, --lora-targets '{}', --pp {}{}", family.name, targets, pp,
                                    balance ? ", load balance" : ""));
                }
            }
        }
    }
}

}  // namespace
}  // namespace weft::train
