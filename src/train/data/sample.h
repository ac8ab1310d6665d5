// The tokens of one record, and which of them are learned. A token's loss counts at the position
// before the token, which predicts it. So the first token has no loss.
#pragma once

#include <cstdint>
#include <vector>

#include "train/data/loss_kind.h"

namespace weft::train {

struct Sample {
    // A prompt's token that only the cross-entropy of the chosen answer includes (ORPO).
    static constexpr uint8_t kPromptLoss = 2;

    std::vector<int32_t> tokens;  // at least two
    std::vector<uint8_t> loss;    // one per token: 1 if the token is learned, or kPromptLoss
    // One per token: 1 where one of the samples of a packed record starts (packed_ids.h). Empty:
    // the record is one sample.
    std::vector<uint8_t> starts = {};
    // For a preference: the role of each of its samples, which stay together; else empty.
    std::vector<SampleRole> roles = {};
    double label = 0;            // the number of a class; of a pair, the margin of the rewards
    uint64_t empty_answers = 0;  // learned answers without text and without a call

    // Appends a sample of the same record.
    void Append(const Sample& sample, SampleRole role) {
        roles.push_back(role);
        starts.resize(tokens.size() + sample.tokens.size(), 0);
        starts[tokens.size()] = 1;
        tokens.insert(tokens.end(), sample.tokens.begin(), sample.tokens.end());
        loss.insert(loss.end(), sample.loss.begin(), sample.loss.end());
        empty_answers += sample.empty_answers;
    }
};

}  // namespace weft::train
