// Losses and gradients of models whose logits are scaled or capped, on the CPU, against float64.
#include <gtest/gtest.h>

#include <cmath>

#include "support/pass_run.h"
#include "support/training.h"

namespace weft::support {
namespace {

Batch NaiveBatch(const Micro& micro) {
    Batch batch;
    batch.tokens.assign(micro.tokens.begin(), micro.tokens.end());
    batch.positions.assign(micro.positions.begin(), micro.positions.end());
    batch.output_rows.assign(micro.rows.begin(), micro.rows.end());
    for (const backend::StepSequence& s : micro.sequences) {
        batch.sequences.push_back({s.row_begin, s.row_count, 0, {}});
    }
    return batch;
}

// Losses and gradients of the loss over all rows, in float64, from the logits back.
std::vector<double> NaiveGradients(const TrainingCase& c, const Micro& micro, Tensors& gradients) {
    const model::Hyper hyper = c.hyper();
    const TinySource source(hyper);
    Batch batch = NaiveBatch(micro);
    const size_t rows = micro.rows.size(), vocab = 50;
    batch.dlogits.assign(rows * vocab, 0);
    Training<double> forward(hyper, source, {});
    forward.Run(batch);
    const std::vector<double> logits = forward.Logits();
    std::vector<double> losses;
    for (size_t i = 0; i < rows; ++i) {
        const double* row = logits.data() + i * vocab;
        double sum = 0;
        for (size_t j = 0; j < vocab; ++j) sum += std::exp(row[j]);
        const auto target = static_cast<size_t>(micro.targets[i]);
        losses.push_back(std::log(sum) - row[target]);
        for (size_t j = 0; j < vocab; ++j) {
            const double onehot = j == target ? 1 : 0;
            batch.dlogits[i * vocab + j] =
                (std::exp(row[j]) / sum - onehot) / static_cast<double>(rows);
        }
    }
    Training<double> both(hyper, source, {});
    both.Run(batch);
    gradients = both.Gradients(0);
    return losses;
}

TEST(TrainedLogits, MayBeScaledAndCapped) {
    for (const TrainingCase& c : {TrainingCase{.architecture = "granite", .scale = 0.3f},
                                  TrainingCase{.architecture = "gemma2", .tied = true, .cap = 2},
                                  TrainingCase{.architecture = "qwen3", .scale = 3, .cap = 1.5f},
                                  TrainingCase{.architecture = "llama",
                                  .recompute = program::Recompute::kFull,
                                  .scale = 0.5f,
                                  .cap = 3}}) {
        SCOPED_TRACE(c.Name());
        TrainingRank rank(c);
        PassRun run(rank, c, 2);
        const Micro micro(1, 40);
        ASSERT_TRUE(run.Forward(micro).ok());
        ASSERT_TRUE(run.Backward(micro).ok());
        Tensors expected;
        const std::vector<double> losses = NaiveGradients(c, micro, expected);
        EXPECT_LE(RelativeError(Cast<double>(run.Losses(micro)), losses), 1e-5);
        size_t compared = 0;
        for (const program::FlatBucket& unit : rank.units()) {
            const std::vector<float> all =
                run.Floats(unit.gradients, static_cast<size_t>(unit.elements));
            for (const program::FlatBucket::Member& member : unit.members) {
                const std::vector<double>& exact = expected.at(member.weight.slice.name);
                const auto first = all.begin() + static_cast<ptrdiff_t>(member.begin);
                const std::vector<double> got(first, first + static_cast<ptrdiff_t>(exact.size()));
                EXPECT_LE(RelativeError(got, exact), 2e-5) << member.weight.name;
                ++compared;
            }
        }
        EXPECT_EQ(compared, expected.size());
    }
}

}  // namespace
}  // namespace weft::support
