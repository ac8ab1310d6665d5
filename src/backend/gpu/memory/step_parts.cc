#include "backend/gpu/memory/step_parts.h"

#include <algorithm>

#include "backend/gpu/lower/products.h"
#include "backend/parts.h"
#include "program/communication.h"

namespace weft::backend::on_gpu {
namespace {

using program::OpKind;

static_assert(LeastRowsOfDevicePart(0, 0) > kMostDividedRows,
              "products of a part must add in the order of the whole step's");

bool HasStepRows(const program::Program& program, program::ValueId id) {
    return program.value(id).shape[0] == program::kTokens;
}

// Rows of the sequence before its first output row. The other rows belong to the last part.
int32_t RowsBeforeOutputs(const Step& step, const StepSequence& s) {
    for (const int32_t row : step.output_rows) {  // ascending
        if (row >= s.row_begin) return std::min(s.row_count, row - s.row_begin);
    }
    return s.row_count;
}

// Appends rows [first, first + count) of a sequence.
void Append(const Step& step, const StepSequence& s, int32_t first, int32_t count, StepPart& part) {
    if (count == 0) return;
    const auto begin = static_cast<size_t>(s.row_begin + first), rows = static_cast<size_t>(count);
    const auto row_begin = static_cast<int32_t>(part.tokens.size());
    const auto tokens = step.tokens.subspan(begin, rows);
    const auto positions = step.positions.subspan(begin, rows);
    part.tokens.insert(part.tokens.end(), tokens.begin(), tokens.end());
    part.positions.insert(part.positions.end(), positions.begin(), positions.end());
    const int32_t shift = row_begin - s.row_begin - first;
    StepSequence own = s;
    own.row_begin = row_begin;
    own.row_count = count;
    own.position = s.position + first;
    own.prompt_rows = std::clamp(s.prompt_rows - first, 0, count);
    if (first > 0) own.state_from = s.state_to;
    size_t writes = 0;
    for (const StateWrite& write : s.state_writes) {
        const int32_t row = write.row + shift;
        if (row < row_begin || row >= row_begin + count) continue;
        part.state_writes.push_back({row, write.slot});
        ++writes;
    }
    // (CutStep has reserved memory for all writes.)
    own.state_writes = std::span(part.state_writes).last(writes);
    for (const int32_t row : step.output_rows) {
        const int32_t at = row + shift;
        if (at >= row_begin && at < row_begin + count) part.output_rows.push_back(at);
    }
    part.sequences.push_back(own);
}

}  // namespace

int MostParts(const program::Program& program, const CompileOptions& options) {
    if (options.overlap == Overlap::kNever || options.slots > 1) return 0;
    const auto has_rows = [&](program::ValueId id) { return HasStepRows(program, id); };
    if (std::ranges::any_of(options.keep, has_rows)) return 0;
    bool sums = false;
    for (const program::Op& op : program.ops) {
        const auto* const attention = op.attributes.If<program::Attention>();
        if (attention != nullptr && attention->ahead) return 0;  // a row needs all of its sequence
        if (!program::IsCommunication(op.kind())) continue;
        const bool of_rows =
            std::ranges::any_of(op.inputs, has_rows) || std::ranges::any_of(op.outputs, has_rows);
        if (!of_rows) continue;
        if (op.kind() != OpKind::kAllReduce) return 0;
        sums = true;
    }
    if (!sums) return 0;
    const int64_t parts = DevicePartsOfRows(options.max_tokens, LeastRowsOfPart(program));
    return options.overlap == Overlap::kAuto && parts < 2 ? 0
                                                          : std::max(static_cast<int>(parts), 2);
}

int64_t LeastRowsOfPart(const program::Program& program) {
    int64_t least = LeastRowsOfDevicePart(0, 0);
    for (const program::Op& op : program.ops) {
        if (op.kind() != OpKind::kRoute) continue;
        const int64_t experts = program.value(op.inputs[0]).shape[1];
        const int64_t used = program.value(op.outputs[0]).shape[1];
        least = std::max(least, LeastRowsOfDevicePart(experts, used));
    }
    return least;
}

CompileOptions PartOptions(CompileOptions options, int most_parts) {
    options.max_tokens = DevicePartSpace{options.max_tokens, most_parts}.rows();
    return options;
}

Step StepPart::View(const Step& whole) const {
    Step step = whole;
    step.tokens = tokens;
    step.positions = positions;
    step.output_rows = output_rows;
    step.sequences = sequences;
    step.copies = {};
    return step;
}

bool CutStep(const Step& step, int64_t least, int64_t most, std::span<StepPart> parts) {
    const bool ordered = std::ranges::is_sorted(step.output_rows) &&
                         std::ranges::is_sorted(step.sequences, {}, &StepSequence::row_begin);
    if (!ordered) return false;
    size_t writes = 0;
    for (const StepSequence& s : step.sequences) writes += s.state_writes.size();
    std::vector<int32_t> done(step.sequences.size());  // rows of each sequence in earlier parts
    size_t rows_left = step.tokens.size(), parts_left = parts.size();
    for (StepPart& part : parts) {
        part = {};
        part.state_writes.reserve(writes);
        auto left = static_cast<int32_t>(rows_left / parts_left--);
        for (size_t i = 0; i < done.size(); ++i) {
            const StepSequence& s = step.sequences[i];
            int32_t count = s.row_count - done[i];
            if (&part != &parts.back()) {
                count = std::min(RowsBeforeOutputs(step, s) - done[i], left);
            }
            Append(step, s, done[i], count, part);
            done[i] += count;
            left -= count;
        }
        const auto rows = static_cast<int64_t>(part.tokens.size());
        if (rows < least || rows > most) return false;
        rows_left -= part.tokens.size();
    }
    return true;
}

}  // namespace weft::backend::on_gpu
