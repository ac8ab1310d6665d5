// A rank's training Program on the CPU, pass by pass.
#pragma once

#include "support/training_case.h"

namespace weft::support {

// A micro-batch: two sequences; every row has a target.
struct Micro {
    explicit Micro(int number, int32_t count = 37) {
        const int32_t first = count > 1 ? count / 3 : count;
        for (int32_t i = 0; i < count; ++i) {
            tokens.push_back((i * 7 + number * 11 + 3) % 50);
            targets.push_back((i * 5 + number * 3 + 1) % 50);
            positions.push_back(i < first ? i : i - first);
            rows.push_back(i);
        }
        sequences.push_back({0, first, 0, {}});
        if (first < count) sequences.push_back({first, count - first, 0, {}});
    }
    backend::Step Step(int slot, bool again) const {
        backend::Step step;
        step.tokens = tokens;
        step.targets = targets;
        step.positions = positions;
        step.output_rows = rows;
        step.sequences = sequences;
        step.loss_gradient = 1.0f / static_cast<float>(tokens.size());
        step.side_gradient = 0.01f;
        step.slot = slot;
        step.again = again;
        return step;
    }
    std::vector<int32_t> tokens, targets, positions, rows;
    std::vector<backend::StepSequence> sequences;
};

class PassRun {
  public:
    PassRun(TrainingRank& rank, const TrainingCase& c, int threads)
        : device_(backend::OpenDevice("cpu", {threads, {}, true, false}).value()),
          executable_(rank.Load(*device_, c.compile())),
          units_(rank.units()),
          chunk_(rank.program().chunks[0]),
          update_(rank.program().update) {
        EXPECT_TRUE(executable_->ZeroFill(program::Pool::kGradient).ok());
    }

    Status Forward(const Micro& micro, int slot = 0) {
        return executable_->Run(chunk_.forward(), micro.Step(slot, false), groups);
    }
    Status Evaluate(const Micro& micro, int slot = 0) {
        return executable_->Run({chunk_.begin, chunk_.predict_begin}, micro.Step(slot, false),
                                groups);
    }
    Status Predict(const Micro& micro, int slot = 0) {
        WEFT_TRY(Forward(micro, slot));
        return executable_->Run(chunk_.predict(), micro.Step(slot, true), groups);
    }
    Status Backward(const Micro& micro, int slot = 0) {
        return executable_->Run(chunk_.backward(), micro.Step(slot, true), groups);
    }
    Status Update() {
        backend::Step step;
        step.again = true;
        step.number = 1;
        step.rate = 0.01;
        WEFT_TRY(executable_->Run(update_.sum(), step, groups));
        return executable_->Run(update_.apply(), step, groups);
    }
    // Runs all passes of a training step.
    Status All(const Micro& micro) {
        WEFT_TRY(Forward(micro));
        WEFT_TRY(Backward(micro));
        WEFT_TRY(Evaluate(micro));
        return Update();
    }

    std::vector<float> Floats(program::ValueId id, size_t count) {
        std::vector<float> floats(count);
        EXPECT_TRUE(executable_->ReadFloats(id, 0, floats).ok());
        return floats;
    }
    std::vector<float> Losses(const Micro& micro) {
        return Floats(chunk_.loss.losses, micro.rows.size());
    }
    std::vector<float> Evaluated(const Micro& micro) {
        return Floats(chunk_.loss.evaluated, micro.rows.size());
    }
    std::vector<float> Predicted() { return Floats(chunk_.loss.predicted, 50); }
    float Balance() { return Floats(chunk_.side_output, 1)[0]; }
    std::vector<float> OfUnits(program::ValueId program::FlatBucket::*what) {
        std::vector<float> all;
        for (const program::FlatBucket& unit : units_) {
            const auto& shape = executable_->program().value(unit.*what).shape;
            const auto floats = Floats(unit.*what, static_cast<size_t>(shape.Elements(0, 0)));
            all.insert(all.end(), floats.begin(), floats.end());
        }
        return all;
    }
    std::vector<float> Gradients() { return OfUnits(&program::FlatBucket::gradients); }
    std::vector<float> Weights() { return OfUnits(&program::FlatBucket::weights); }
    backend::Executable& executable() { return *executable_; }
    const program::ModelChunk& chunk() const { return chunk_; }

    backend::Communicators groups;

  private:
    const std::shared_ptr<backend::Device> device_;
    const std::unique_ptr<backend::Executable> executable_;
    const std::vector<program::FlatBucket>& units_;
    const program::ModelChunk chunk_;
    const program::Update update_;
};

}  // namespace weft::support
