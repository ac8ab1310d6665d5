// A micro-batch as a step of the training Program: rows of several sequences, without padding.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/executable.h"
#include "base/result.h"
#include "train/data/loader.h"
#include "train/preference_loss.h"

namespace weft::train {

// The answers of preferences that are in a pass. Samples without a role are always in the pass.
enum class AnswerPart { kOwn, kMismatched };

class MicroBatch {
  public:
    // This rank of a context group (program/context_parallel.h), which divides the rows. Results of
    // a step belong to this rank's own rows; its tokens and sequences belong to all rows.
    void SetContext(int rank, int ranks) {
        context_rank_ = rank;
        context_ranks_ = ranks;
    }
    // Sets the rows. Each sample attends only to itself. If this rank has no targets, there is a
    // row whose loss has weight zero, because all ranks must run the same collectives.
    // vocab: number of rows of the embedding; model: the model's name, for errors. Errors: kUsage
    // (a token id is too large).
    Status Fill(std::span<const Sequence> sequences, int64_t vocab, const std::string& model,
                AnswerPart part = AnswerPart::kOwn);

    bool empty() const { return empty_; }
    int64_t targets() const { return empty_ ? 0 : static_cast<int64_t>(targets_.size()); }
    int64_t positions() const { return own_rows_; }
    // Preferences only: the answers, and for each row with a target whether it belongs to one.
    std::span<const AnswerRows> answers() const { return answers_; }
    std::span<const uint8_t> in_answer() const { return in_answer_; }
    // Noise of the embedding for the rows of `sequences`, which Fill has taken: amplitudes of alpha
    // / sqrt(tokens of the sequence * columns), as in NEFTune, and keys derived from the seed, the
    // update and the row's position in the batch. first: the position of the first sequence in the
    // batch. length: most positions of a sequence.
    struct Noise {
        double alpha = 0;
        uint64_t seed = 0, first = 0;
        int64_t update = 0, columns = 1, length = 1;
    };
    void AddNoise(std::span<const Sequence> sequences, const Noise& noise);
    // The step's spans point into this object.
    backend::Step Step(int64_t number, float loss_gradient) const;

  private:
    Status AddSample(const Sequence& sequence, size_t sample, int64_t vocab,
                     const std::string& model);
    void KeepOwnRows();

    int context_rank_ = 0, context_ranks_ = 1;
    bool empty_ = true;
    bool kept_ = false;     // the sequences have rows
    int64_t own_rows_ = 0;  // without rows that only fill up
    std::vector<int32_t> tokens_, positions_, output_rows_, targets_, noise_keys_;
    std::vector<float> noise_amplitudes_;
    std::vector<backend::StepSequence> sequences_;
    std::vector<AnswerRows> answers_;
    std::vector<uint8_t> in_answer_;
};

}  // namespace weft::train
