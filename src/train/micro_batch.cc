#include "train/micro_batch.h"

#include <algorithm>

namespace weft::train {

Status MicroBatch::Fill(std::span<const Sequence> sequences, int64_t vocab,
                        const std::string& model) {
    tokens_.clear();
    positions_.clear();
    output_rows_.clear();
    targets_.clear();
    sequences_.clear();
    for (const Sequence& sequence : sequences) {
        const auto base = static_cast<int32_t>(tokens_.size());
        for (size_t s = 0; s < sequence.begins.size(); ++s) {
            const int32_t begin = sequence.begins[s];
            const bool last = s + 1 == sequence.begins.size();
            const int32_t end = last ? sequence.used : sequence.begins[s + 1];
            sequences_.push_back({base + begin, end - begin, 0, {}});
            for (int32_t i = begin; i < end; ++i) {
                const int32_t target = sequence.targets[static_cast<size_t>(i)];
                const int32_t most = std::max(target, sequence.tokens[static_cast<size_t>(i)]);
                if (most >= vocab) {
                    return MakeError(ErrorCode::kUsage,
                                     "the data have token {}, but {} has a vocabulary of {}: they "
                                     "belong to another tokenizer",
                                     most, model, vocab);
                }
                tokens_.push_back(sequence.tokens[static_cast<size_t>(i)]);
                positions_.push_back(i - begin);
                if (target < 0) continue;
                output_rows_.push_back(base + i);
                targets_.push_back(target);
            }
        }
    }
    empty_ = targets_.empty();
    if (!empty_) return {};
    tokens_ = positions_ = output_rows_ = targets_ = {0};
    sequences_ = {{0, 1, 0, {}}};
    return {};
}

backend::Step MicroBatch::Step(int64_t number, float loss_gradient) const {
    backend::Step step;
    step.number = number;
    step.tokens = tokens_;
    step.positions = positions_;
    step.sequences = sequences_;
    step.output_rows = output_rows_;
    step.targets = targets_;
    step.loss_gradient = empty_ ? 0.0f : loss_gradient;
    return step;
}

}  // namespace weft::train
