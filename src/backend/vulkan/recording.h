// Recordings: the commands of a step's shape, with barriers, divided into submissions, and into
// stages at transfers to other ranks.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "backend/vulkan/buffers.h"
#include "backend/vulkan/lowering.h"
#include "backend/vulkan/submission_budget.h"
#include "base/result.h"
#include "gpu/device.h"
#include "program/hazards.h"

namespace weft::backend::vulkan {

// One submission: the work of ops [first_op, last_op].
struct Submission {
    std::unique_ptr<gpu::Commands> commands;
    int32_t first_op = -1, last_op = -1;
    int32_t ops = 0;       // number of ops that end in it
    int32_t shows = -1;    // with each_op: the op whose result it completes
    double estimate = 0;   // SubmissionBudget::Estimate
    bool waits = false;    // for the host, so its time says nothing about the device
    bool divides = false;  // can be divided further
    // For traces: its ops. If the device has a clock, time 0 is the beginning and time i + 1 the
    // end of timed[i].
    std::vector<int32_t> timed;
};

// Submissions, then a transfer by the host, or the wait for a transfer that runs beside them.
struct Stage {
    std::vector<Submission> submissions;
    std::vector<int32_t> exchanged;  // ops: sums that submissions wait for (host_signal.h)
    int32_t transfer = -1;           // op; -1: none
    OperandPlace place;              // place of its operands
    // The transfer runs beside later stages, once these submissions are done.
    bool beside = false;
    // Op of a transfer that ran beside and whose result the next stage reads; -1: none.
    int32_t collects = -1;
    bool goes_on = false;  // its end does not wait
};

struct Recording {
    std::deque<Stage> stages;  // stable addresses
    int64_t used = 0;  // time of the last use
    bool ran = false;  // has run: a driver may compile kernels at their first run
    bool cut = false;  // divided for its estimated length, at SubmissionBudget::slowness
    double slowness = 0;
    int64_t dispatches = 0, barriers = 0;  // totals
};

struct RecordOptions {
    bool each_op = false;  // a submission per op
    bool trace = false;
    bool clock = false;          // the device has one
    bool beside = false;         // overlap transfers with submissions (program::MayOverlap)
    const HostSignal* signal = nullptr;  // null: every transfer ends a stage
    auto operator<=>(const RecordOptions&) const = default;
};

// Whether a transfer's input is its output; whether it reads the output's old contents.
bool IsInPlace(const program::Op& transfer);
bool ReadsOutput(const program::Op& transfer);

class Recorder {
  public:
    Recorder(const program::Program& program, const Buffers& buffers, Lowering& lowering,
             gpu::Device& device, const SubmissionBudget& budget, const StepShape& shape,
             const RecordOptions& options);
    // run: receives each stage as soon as it is recorded, so that the device starts early; null:
    // nothing runs. Errors: kUnsupported, kOutOfMemory, the device's, those of `run`.
    using RunStage = std::function<Status(const Stage& stage)>;
    Result<Recording> Record(const StepWork& work, const RunStage& run = nullptr);

  private:
    Status RecordOps(const StepWork& work);
    Status EndStage();
    Status RecordOp(size_t op, std::span<const Dispatch> dispatches);
    Status RunInParts(int32_t op, const Dispatch& dispatch, uint32_t parts, double estimate);
    Status MakeRoom(double estimate);
    void NoteTimeOf(int32_t op);
    void Run(std::span<const Dispatch> dispatches);
    void Run(const Dispatch& dispatch, const gpu::WorkgroupCounts& groups);
    Status RecordTransfer(size_t op);
    Status BringIn(int32_t op, const OperandPlace& place);
    Status PlaceTransfer(bool beside, OperandPlace& place);
    Status CollectFor(const program::Op& op);
    Status Collect(size_t count);
    Region RegionOf(program::ValueId id) const { return {At(id).address(), OperandBytes(id)}; }
    Status RecordExchange(size_t op);
    void RunWithSum(const Dispatch& dispatch);
    HostSignal::Exchange ExchangeOf(int32_t op);
    void NoteExchange();
    Status BringRows(program::ValueId id, const OpRange& range);
    Status Open(int32_t op);
    Status Close();
    Status CloseToShow(int32_t op);
    void Touch(std::span<const Region> reads, std::span<const Region> writes);
    void Copy(const Spot& from, const Spot& to, uint64_t bytes);
    Spot At(program::ValueId id) const { return buffers_.At(id, slot_); }
    uint64_t OperandBytes(program::ValueId id) const;

    const program::Program& program_;
    const Buffers& buffers_;
    Lowering& lowering_;
    gpu::Device& device_;
    const SubmissionBudget& budget_;
    const StepShape shape_;
    int slot_ = 0;
    const RecordOptions options_;
    RunStage run_;
    std::vector<program::OpCost> costs_;
    Recording recording_;
    Stage stage_;
    Submission open_;  // commands null: no submission is open
    // Estimated time and number of the ops that are computed in the place of a later op.
    double moved_estimate_ = 0;
    int32_t moved_ = 0;
    program::Hazards<Region> hazards_;
    // Transfers that run beside submissions, in order, whose results were not collected yet.
    struct Pending {
        int32_t op = -1;
        OperandPlace place;
        Region result;
    };
    std::vector<Pending> pending_;
    int next_place_ = 0;  // places are used in turn
};

}  // namespace weft::backend::vulkan
