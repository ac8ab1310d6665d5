#include "train/micro_batch.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "train/data/random.h"

namespace weft::train {

namespace {

bool IsIn(const Sequence& sequence, size_t sample, AnswerPart part) {
    if (sequence.roles.empty()) return true;
    const bool mismatched = sequence.roles[sample] == SampleRole::kMismatched;
    return mismatched == (part == AnswerPart::kMismatched);
}

}  // namespace

Status MicroBatch::Fill(std::span<const Sequence> sequences, int64_t vocab,
                        const std::string& model, AnswerPart part) {
    tokens_.clear();
    positions_.clear();
    output_rows_.clear();
    targets_.clear();
    sequences_.clear();
    answers_.clear();
    in_answer_.clear();
    noise_keys_.clear();
    noise_amplitudes_.clear();
    for (const Sequence& sequence : sequences) {
        for (size_t s = 0; s < sequence.begins.size(); ++s) {
            if (IsIn(sequence, s, part)) WEFT_TRY(AddSample(sequence, s, vocab, model));
        }
    }
    empty_ = targets_.empty();
    kept_ = !empty_;
    if (empty_) {  // (rows without a target change nothing)
        tokens_.clear();
        positions_.clear();
        sequences_.clear();
    }
    KeepOwnRows();
    return {};
}

// Each rank of a context group has a row.
void MicroBatch::KeepOwnRows() {
    const auto ranks = static_cast<size_t>(context_ranks_),
               rank = static_cast<size_t>(context_rank_);
    const size_t real = tokens_.size();
    for (; tokens_.size() < ranks; positions_.push_back(0)) {
        sequences_.push_back({static_cast<int32_t>(tokens_.size()), 1, 0, {}});
        tokens_.push_back(0);
    }
    const size_t begin = tokens_.size() * rank / ranks, end = tokens_.size() * (rank + 1) / ranks;
    own_rows_ = static_cast<int64_t>(std::min(end, real) - std::min(begin, real));
    const auto from = std::ranges::lower_bound(output_rows_, static_cast<int32_t>(begin));
    const auto to = std::ranges::lower_bound(output_rows_, static_cast<int32_t>(end));
    const auto first = from - output_rows_.begin(), count = to - from;
    output_rows_ = {from, to};
    targets_ = {targets_.begin() + first, targets_.begin() + first + count};
    for (int32_t& row : output_rows_) row -= static_cast<int32_t>(begin);
    empty_ = targets_.empty();
    if (empty_) output_rows_ = targets_ = {0};
}

Status MicroBatch::AddSample(const Sequence& sequence, size_t sample, int64_t vocab,
                             const std::string& model) {
    const auto base = static_cast<int32_t>(tokens_.size());
    const int32_t begin = sequence.begins[sample];
    const bool last = sample + 1 == sequence.begins.size();
    const int32_t end = last ? sequence.used : sequence.begins[sample + 1];
    const size_t first = targets_.size();
    sequences_.push_back({base, end - begin, 0, {}});
    for (int32_t i = begin; i < end; ++i) {
        const auto at = static_cast<size_t>(i);
        const int32_t target = sequence.targets[at];
        const int32_t most = std::max(target, sequence.tokens[at]);
        if (most >= vocab) {
            return MakeError(ErrorCode::kUsage,
                             "the data have token {}, but {} has a vocabulary of {}: they "
                             "belong to another tokenizer",
                             most, model, vocab);
        }
        tokens_.push_back(sequence.tokens[at]);
        positions_.push_back(i - begin);
        if (target < 0) continue;
        output_rows_.push_back(base + i - begin);
        targets_.push_back(target);
        if (!sequence.roles.empty()) in_answer_.push_back(sequence.answers[at]);
    }
    if (sequence.roles.empty()) return {};
    answers_.push_back(
        {sequence.roles[sample], first, targets_.size(), sequence.reference[sample]});
    return {};
}

void MicroBatch::AddNoise(std::span<const Sequence> sequences, const Noise& noise) {
    const uint64_t update = Mix(noise.seed ^ Mix(static_cast<uint64_t>(noise.update)));
    for (size_t i = 0; i < sequences.size() && kept_; ++i) {
        const Sequence& sequence = sequences[i];
        if (sequence.begins.empty()) continue;
        // (With the last token of each sample, which has no row.)
        const auto tokens = sequence.used + static_cast<int64_t>(sequence.begins.size());
        const double elements = static_cast<double>(tokens * noise.columns);
        const uint64_t place = (noise.first + i) * static_cast<uint64_t>(noise.length);
        const auto begin = static_cast<uint64_t>(sequence.begins.front());
        for (uint64_t at = begin; at < static_cast<uint64_t>(sequence.used); ++at) {
            noise_keys_.push_back(static_cast<int32_t>(Mix(update ^ (place + at)) >> 32));
            noise_amplitudes_.push_back(static_cast<float>(noise.alpha / std::sqrt(elements)));
        }
    }
    WEFT_CHECK(noise_keys_.size() <= tokens_.size());
    noise_keys_.resize(tokens_.size());  // rows that only fill up have none
    noise_amplitudes_.resize(tokens_.size());
}

backend::Step MicroBatch::Step(int64_t number, float loss_gradient) const {
    backend::Step step;
    step.number = number;
    step.tokens = tokens_;
    step.positions = positions_;
    step.sequences = sequences_;
    step.output_rows = output_rows_;
    step.targets = targets_;
    step.noise_keys = noise_keys_;
    step.noise_amplitudes = noise_amplitudes_;
    step.loss_gradient = empty_ ? 0.0f : loss_gradient;
    return step;
}

}  // namespace weft::train
