// LogitsRow: what one row of a step's output says about the next token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/executable.h"
#include "base/result.h"
#include "engine/row_ask.h"

namespace weft::engine {

// One row of logits, that stays on its device until it is asked for. Valid until the next step.
class LogitsRow {
  public:
    // Logits [vocab] of the host's own, at least one.
    LogitsRow(std::span<const float> logits)  // NOLINT: implicit on purpose
        : columns_(logits.size()), values_(logits) {}
    LogitsRow(const std::vector<float>& logits)  // NOLINT: implicit on purpose
        : LogitsRow(std::span<const float>(logits)) {}
    // The first `columns` of row `row` of a kept value; `buffer` is used where all are asked for.
    LogitsRow(backend::Executable& executable, program::ValueId id, int64_t row, int64_t width,
              int64_t columns, std::vector<float>& buffer)
        : columns_(static_cast<size_t>(columns)),
          executable_(&executable),
          id_(id),
          row_(row),
          width_(width),
          buffer_(&buffer) {}

    // What was asked of the row, and nothing else.
    LogitsRow(const RowAnswer& answer) : columns_(answer.columns), answer_(&answer) {}

    size_t size() const { return columns_; }
    // The token that the last pipeline stage drew, with the row's largest logit. Null: it drew
    // none.
    const backend::Candidate* drawn() const {
        const bool draws = answer_ != nullptr && answer_->kind == RowAsk::Kind::kToken;
        return draws ? answer_->best.data() : nullptr;
    }
    Status Top(std::span<backend::Candidate> out) const;
    Status CopyTo(std::vector<float>& out) const;
    // All logits, until another row of the same buffer is asked for.
    Result<std::span<const float>> All() const;

  private:
    size_t columns_;
    std::span<const float> values_;
    const RowAnswer* answer_ = nullptr;
    backend::Executable* executable_ = nullptr;
    program::ValueId id_ = program::kNoValue;
    int64_t row_ = 0, width_ = 0;
    std::vector<float>* buffer_ = nullptr;
};

}  // namespace weft::engine
