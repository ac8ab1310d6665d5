#include "backend/executable.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace weft::backend {

namespace {

void CheckSlots(const StepSequence& sequence, int64_t slots) {
    const auto is_slot = [&](int32_t slot) { return slot >= 0 && slot < slots; };
    WEFT_CHECK(sequence.state_from == -1 || is_slot(sequence.state_from));
    WEFT_CHECK(is_slot(sequence.state_to));
    int32_t least = sequence.row_begin;
    for (const auto& [row, slot] : sequence.state_writes) {
        WEFT_CHECK(row >= least && row < sequence.row_begin + sequence.row_count && is_slot(slot));
        least = row;
    }
}

}  // namespace

Status CheckStep(const Step& step, const CompileOptions& options) {
    WEFT_CHECK(step.slot >= 0 && step.slot < options.slots);
    if (step.again) return {};
    const auto tokens = static_cast<int64_t>(step.tokens.size());
    const auto outputs = static_cast<int64_t>(step.output_rows.size());
    if (tokens < 1 || tokens > options.max_tokens || outputs > options.max_outputs) {
        return MakeError(
            ErrorCode::kUsage,
            "step {}: {} rows and {} result rows; expected 1 to {} rows and at most {} result rows",
            step.number, tokens, outputs, options.max_tokens, options.max_outputs);
    }
    WEFT_CHECK(step.positions.size() == step.tokens.size());
    WEFT_CHECK(step.targets.empty() || step.targets.size() == step.output_rows.size());
    for (const StepSequence& sequence : step.sequences) {
        const int64_t end = int64_t{sequence.position} + sequence.row_count;
        const auto pages = static_cast<int64_t>(sequence.pages.size());
        WEFT_CHECK(sequence.row_begin >= 0 && sequence.row_begin + sequence.row_count <= tokens);
        const bool cached = options.kv_pages > 0 && step.targets.empty();
        WEFT_CHECK(!cached || end <= pages * options.page_tokens);
        WEFT_CHECK(sequence.adapter >= 0);
        for (int32_t page : sequence.pages) WEFT_CHECK(page >= 0 && page < options.kv_pages);
        if (options.state_slots > 0) CheckSlots(sequence, options.state_slots);
    }
    for (const auto& [from, to] : step.copies) {
        WEFT_CHECK(from >= 0 && from < options.kv_pages && to >= 0 && to < options.kv_pages);
    }
    for (int32_t row : step.output_rows) WEFT_CHECK(row >= 0 && row < tokens);
    WEFT_CHECK(step.wanted.top >= 0 && step.wanted.top <= step.wanted.columns);
    return {};
}

void CheckBytes(const program::Value& value, const CompileOptions& options, int64_t first_byte,
                size_t count) {
    int64_t all = 0;
    if (value.storage == program::Storage::kState) {
        all = program::StateBytes(value, options.kv_pages * options.page_tokens);
    } else if (value.storage == program::Storage::kSlots) {
        all = program::SlotBytes(value) * options.state_slots;
    } else {
        all = RowBytes(value.dtype, value.shape.Elements(options.max_tokens, options.max_outputs));
    }
    WEFT_CHECK(first_byte >= 0 && first_byte <= all);
    WEFT_CHECK(std::cmp_less_equal(count, all - first_byte));
}

void WriteLossGradients(const Step& step, std::byte* to) {
    const size_t rows = step.output_rows.size(), weights = step.row_weights.size();
    WEFT_CHECK(weights == 0 || (rows > 0 && weights % rows == 0));
    for (size_t i = 0; i < std::max(rows, weights); ++i) {
        const float weight = weights == 0 ? 1.0f : step.row_weights[i];
        const float gradient = step.loss_gradient * weight;
        std::memcpy(to + i * sizeof(float), &gradient, sizeof(float));
    }
}

void WriteNoise(const Step& step, std::byte* to) {
    const size_t bytes = step.tokens.size() * sizeof(float);
    if (step.noise_amplitudes.empty()) {
        std::memset(to, 0, bytes);
    } else {
        std::memcpy(to, step.noise_amplitudes.data(), bytes);
    }
}

bool EndsWithExchange(const program::Program& program) {
    const std::vector<program::Op>& ops = program.ops;
    const size_t count = ops.size();
    return count > 2 && ops[count - 2].kind() == program::OpKind::kSend &&
           ops[count - 1].kind() == program::OpKind::kRecv;
}

size_t ExchangeBegin(const program::Program& program) {
    size_t begin = program.ops.size() - 1;
    while (begin > 0 && program.ops[begin - 1].kind() == program::OpKind::kSend) --begin;
    return begin;
}

}  // namespace weft::backend
