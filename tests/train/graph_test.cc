// Training Programs without a run: the logits that a temperature divides.
#include "train/graph.h"

#include <gtest/gtest.h>

#include <cmath>

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

}  // namespace
}  // namespace weft::train
