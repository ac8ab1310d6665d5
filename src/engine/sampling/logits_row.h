// LogitsRow: the logits of one output row of a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/executable.h"
#include "base/result.h"
#include "engine/rank/row_ask.h"

namespace weft::engine {

// The row stays on its device until Top, CopyTo or All reads it. Valid until the next step.
// Thread: one caller, and the thread that runs steps if the row is on a device.
class LogitsRow {
  public:
    // A row in host memory, [vocab], with at least one logit.
    LogitsRow(std::span<const float> logits)  // NOLINT: implicit on purpose
        : columns_(logits.size()), values_(logits) {}
    LogitsRow(const std::vector<float>& logits)  // NOLINT: implicit on purpose
        : LogitsRow(std::span<const float>(logits)) {}
    // The first `columns` columns of row `row` of the executable's value `id`, whose rows have
    // `width` columns. All() stores them in `buffer`.
    LogitsRow(backend::Executable& executable, program::ValueId id, int64_t row, int64_t width,
              int64_t columns, std::vector<float>& buffer)
        : columns_(static_cast<size_t>(columns)),
          executable_(&executable),
          id_(id),
          row_(row),
          width_(width),
          buffer_(&buffer) {}

    // A row on another pipeline stage, of which rank 0 has only the part in `answer`.
    LogitsRow(const RowAnswer& answer) : columns_(answer.columns), answer_(&answer) {}

    size_t size() const { return columns_; }
    // The token that the last pipeline stage drew, with the row's largest logit. Returns null if
    // that stage drew no token.
    const backend::Candidate* drawn() const {
        const bool draws = answer_ != nullptr && answer_->kind == RowRequest::Kind::kToken;
        return draws ? answer_->best.data() : nullptr;
    }
    Status Top(std::span<backend::Candidate> out) const;
    Status CopyTo(std::vector<float>& out) const;
    // All logits. The span is valid until the next call of All for a row with the same buffer.
    Result<std::span<const float>> All() const;
    // All logits, if they are in memory of the host; else an empty span. Valid until the next step.
    std::span<const float> InHostMemory() const;

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
