// Runs a step of the executable in parts (step_parts.h). While the host sums the result of a stage
// of one part over the ranks, the device runs a stage of the other part.
#include <algorithm>

#include "backend/gpu/executable.h"
#include "backend/parts.h"

namespace weft::backend::on_gpu {

// The number of parts in which the step runs, whose rows are set in part_rows_; 0: the step runs as
// a whole. All tensor ranks have the same step, options and groups_.parts, so they get the same
// number.
size_t GpuExecutable::PartsOf(const OpRange& ops, const Step& step) {
    if (most_parts_ == 0 || probe_ || tracing_ || step.streams) return 0;
    if (groups_.tensor == nullptr || groups_.tensor->size() == 1 || !groups_.parts) return 0;
    if (ops.begin != 0 || ops.end != program_.ops.size()) return 0;
    const auto sum = std::ranges::find_if(program_.ops, [&](const program::Op& op) {
        return op.kind() == program::OpKind::kAllReduce &&
               program_.value(op.inputs[0]).shape.rank == 2;
    });
    if (sum == program_.ops.end()) return 0;
    const program::Value& addend = program_.value(sum->inputs[0]);
    const int64_t bytes = SumBytes(groups_, addend.dtype, shape_.rows, addend.shape[1]);
    const bool always = options_.overlap == Overlap::kAlways;
    const bool pays =
        bytes >= kLeastSumInParts && groups_.tensor->LeavesCpuIdle(static_cast<size_t>(bytes / 2));
    if (!always && !pays) return 0;
    const int64_t least = always ? 1 : LeastRowsOfPart(program_);
    const DevicePartSpace room{options_.max_tokens, most_parts_};
    const auto count = static_cast<size_t>(DevicePartsOfRows(shape_.rows, least, room));
    if (count < 2) return 0;
    return CutStep(step, least, room.rows(), std::span(part_rows_).first(count)) ? count : 0;
}

Status GpuExecutable::RunInParts(const OpRange& ops, const Step& step) {
    for (size_t i = 0; i < parts_.size(); ++i) WEFT_TRY(BindPart(i, ops, step));
    const Status recorded = RecordParts();
    lowering_.SetTables(tables_.tables());
    WEFT_TRY(recorded);
    reading_.NoteBrought({}, 0);
    backoff_.CountStep();
    bool too_long = false;
    const Status status = RunPartStages(&too_long);
    // After an error of a link, waits until the device is idle.
    if (!status.ok() && broken_.ok()) static_cast<void>(AwaitAll(&too_long));
    for (const Part& part : parts_) {
        if (too_long) recordings_.Drop(part.key);
    }
    const WantedRows& wanted = parts_.back().key.work.wanted;
    if (status.ok() && wanted.value != program::kNoValue) {
        reading_.NoteBrought(wanted, shape_.outputs);
    }
    return status;
}

// Writes the tables of a part, and finds its shape and key. After the last call, the executable has
// the shape and slot of the last part, which has the output rows.
Status GpuExecutable::BindPart(size_t number, const OpRange& ops, const Step& step) {
    Part& part = parts_[number];
    TableMemory& tables = part_tables_[number];
    part.step = part_rows_[number].View(step);
    WEFT_ASSIGN(const bool moved, tables.MakeSpace(gpu_, part.step));
    if (moved) recordings_.Clear();
    tables.Write(part.step);
    part.shape = shape_ = ShapeOfRun(ops, part.step);
    slot_ = static_cast<int>(number) + 1;
    part.key = KeyOf(part.step, ops);
    part.key.options.in_parts = true;
    part.key.options.signal = nullptr;
    return {};
}

// Recording a part may move scratch memory, which drops the recordings of other parts. Repeats
// until all recordings are valid.
Status GpuExecutable::RecordParts() {
    for (size_t kept = 0; kept < parts_.size();) {
        kept = 0;
        for (size_t number = 0; number < parts_.size(); ++number) {
            Part& part = parts_[number];
            kept += recordings_.Find(part.key) != nullptr ? 1 : 0;
            lowering_.SetTables(part_tables_[number].tables());
            WEFT_ASSIGN(part.recording, recordings_.Get(part.key));
        }
    }
    return {};
}

// Stages run in the order 0a 0b 1a 1b ... on the device, and their transfers in the same order on
// the links. After a part's transfer, its next stage is submitted behind the other part's running
// stage.
Status GpuExecutable::RunPartStages(bool* too_long) {
    const bool first_run =
        std::ranges::any_of(parts_, [](const Part& part) { return !part.recording->ran; });
    WEFT_TRY(BeginStages(first_run ? FirstRun::kYes : FirstRun::kNo));
    size_t most = 0;
    for (const Part& part : parts_) {
        part.recording->ran = true;
        most = std::max(most, part.recording->stages.size());
        WEFT_TRY(SubmitStage(part.recording->stages[0], too_long));
    }
    std::vector<RowRange> prompt_rows;
    for (size_t i = 0; i < most; ++i) {
        for (const Part& part : parts_) {
            const auto& stages = part.recording->stages;
            if (i >= stages.size()) continue;
            WEFT_TRY(AwaitFirst(stages[i].submissions.size(), too_long));
            if (stages[i].transfer < 0) continue;
            shape_ = part.shape;
            FindPromptRows(part.step.sequences, 0, shape_.rows, prompt_rows);
            groups_.prompt_rows = prompt_rows;
            WEFT_TRY(Transfer(stages[i].transfer, stages[i].place));
            WEFT_TRY(SubmitStage(stages[i + 1], too_long));
        }
    }
    shape_ = parts_.back().shape;
    return {};
}

}  // namespace weft::backend::on_gpu
