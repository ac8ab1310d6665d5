// A recording holds the commands for all steps of one shape, with barriers. The commands are
// divided into stages, and each stage into submissions. A transfer to or from other ranks ends a
// stage.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "backend/gpu/device/peer_sums.h"
#include "backend/gpu/memory/buffers.h"
#include "backend/gpu/record/lowering.h"
#include "backend/gpu/record/submission_budget.h"
#include "base/result.h"
#include "gpu/device.h"
#include "program/hazards.h"

namespace weft::backend::on_gpu {

// One submission: the work of ops [first_op, last_op].
struct Submission {
    std::unique_ptr<gpu::Commands> commands;
    int32_t first_op = -1, last_op = -1;
    int32_t ops = 0;       // number of ops whose work ends in this submission
    int32_t shows = -1;    // with each_op: the op whose result the probe sees after this
                           // submission; -1: none
    double estimate = 0;   // SubmissionBudget::Estimate
    bool waits = false;    // it waits for the host, so the budget ignores its duration
    bool divides = false;  // can be divided further
    // For traces: the ops of this submission. If the device has a clock, the submission records
    // times: time 0 is the beginning of the submission, and time i + 1 is the end of the op
    // timed[i].
    std::vector<int32_t> timed;
};

// A value that the device hands to the host's processor (program/placement.h): the send, its buffer
// (Buffers::HandedAt), and the recv before which the host reads it.
struct Handed {
    int32_t op = -1;
    uint64_t offset = 0;
    int32_t before = -1;
};

// Streamed weights [begin, end).
struct WeightRange {
    size_t begin = 0, end = 0;
};

// A stage is a sequence of submissions. After them, the host runs a transfer, or waits for an
// earlier transfer that runs at the same time as submissions ("beside" them).
struct Stage {
    std::vector<Submission> submissions;
    std::vector<int32_t> exchanged;  // sums over ranks and runs of the host that the host computes
                                     // while a submission waits (host_signal.h)
    std::vector<Handed> handed;      // for `exchanged` and for `transfer`
    int32_t transfer = -1;           // op; -1: none
    OperandPlace place;              // place of the transfer's operands
    // Whether the transfer runs beside later stages. The transfer starts when the submissions of
    // this stage are done.
    bool beside = false;
    // Op of an earlier transfer that runs beside submissions and whose result the next stage reads;
    // -1: none.
    int32_t collects = -1;
    bool goes_on = false;  // the host does not wait at the end of this stage
    // The host starts the next run (`handed`) when this stage is done, and later stages may run
    // meanwhile. (The transfer of such a stage receives the run's results.)
    bool hands = false;
    // The streamed weights that the host brings before this stage, and those whose places are free
    // once this stage is done (weight_ring.h).
    WeightRange brings, frees;
};

struct Recording {
    std::deque<Stage> stages;  // stable addresses
    int64_t used = 0;          // time of the last use
    bool ran = false;          // has run before; a driver may compile kernels in their first run
    bool cut = false;          // its submissions were divided because of their estimated duration;
                               // `slowness`: SubmissionBudget::slowness() at that time
    double slowness = 0;
    int64_t dispatches = 0, barriers = 0;  // totals
    int64_t peer_sums = 0;                 // sums through windows (PeerSums)
};

struct RecordOptions {
    bool each_op = false;  // a submission per op
    bool trace = false;
    bool clock = false;                  // the device has a clock
    bool beside = false;                 // overlap transfers with submissions (program::MayOverlap)
    bool in_parts = false;               // the step is part StepWork::slot of a step (step_parts.h)
    const HostSignal* signal = nullptr;  // null: every transfer ends a stage
    const PeerSums* peers = nullptr;     // null: sums go through host memory
    auto operator<=>(const RecordOptions&) const = default;
};

// IsInPlace: whether a transfer's input and output are the same memory. ReadsOutput: whether the
// transfer reads the old contents of its output.
bool IsInPlace(const program::Op& transfer);
bool ReadsOutput(const program::Op& transfer);

// Whether the sum goes through windows.
bool IsPeerSum(const PeerSums* peers, const program::Program& program, const program::Op& op,
               const StepShape& shape);

class Recorder {
  public:
    Recorder(const program::Program& program, const Buffers& buffers, Lowering& lowering,
             gpu::Device& device, const SubmissionBudget& budget, const StepShape& shape,
             const RecordOptions& options);
    // run: called with each stage as soon as it is recorded, so that the device starts early; null:
    // no stage runs. Errors: kUnsupported, kOutOfMemory, errors of the device and of `run`.
    using RunStage = std::function<Status(const Stage& stage)>;
    Result<Recording> Record(const StepWork& work, const RunStage& run = nullptr);

  private:
    Status RecordOps(const StepWork& work);
    Status EndStage();
    Status RecordOp(size_t op, std::span<const Dispatch> dispatches);
    void NoteStreamed(size_t op, const Fusion* fusion);
    Status AwaitStreamed();
    Status EndStreamed();
    Status RunMany(int32_t op, std::span<const Dispatch> dispatches, double estimate);
    bool HasSpace(double estimate) const;
    Status RunInParts(int32_t op, const Dispatch& dispatch, uint32_t parts, double estimate);
    Status MakeSpace(double estimate);
    void NoteTimeOf(int32_t op);
    void Run(std::span<const Dispatch> dispatches);
    void Run(const Dispatch& dispatch, const gpu::WorkgroupCounts& groups);
    Status RecordTransfer(size_t op);
    Status BringOut(int32_t op, const OperandPlace& place);
    Status BringIn(int32_t op, const OperandPlace& place);
    int NextHalf() { return static_cast<int>(recording_.peer_sums++ % 2); }
    Status WriteWindow(int32_t op, int half);
    Status SumWindows(int32_t op, int half);
    Guard guard() const { return options_.signal != nullptr ? Guard::kStopWord : Guard::kNone; }
    Status PlaceTransfer(bool beside, OperandPlace& place);
    Status CollectFor(const program::Op& op);
    Status Collect(size_t count);
    Region RegionOf(program::ValueId id) const { return {At(id).address(), OperandBytes(id)}; }
    Status RecordExchange(size_t op);
    Status RecordHandOver(size_t op);
    Status HandBefore(size_t op, const OpRange& range);
    Status TakeBack(size_t op);
    void RecordHanded(const Handed& handed);
    bool CanHandOver(size_t op) const;
    program::ValueId InputOf(const Handed& handed) const;
    Status CopyHanded(int32_t before);
    void NoteHanded(int32_t before);
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
    // For the ops so far that are computed in the place of a later op (Fusion::Moves): their
    // estimated time and their number.
    double moved_estimate_ = 0;
    int32_t moved_ = 0;
    program::Hazards<Region> hazards_;
    // Ends of the streamed weights that ops so far read, that stages bring, and that stages free.
    size_t wanted_weights_ = 0, brought_weights_ = 0, freed_weights_ = 0;
    bool moved_weights_ = false;  // some of them are read in the place of a later op
    // Values for the host's next run, not recorded yet.
    std::vector<Handed> handed_;
    uint64_t handed_bytes_ = 0;
    int32_t posted_ = -1;         // the recv of the run that has its values already; -1: none
    bool posted_inside_ = false;  // within the submission
    // Transfers that run beside submissions, in order, whose results were not collected yet.
    struct Pending {
        int32_t op = -1;
        OperandPlace place;
        Region result;
    };
    std::vector<Pending> pending_;
    int next_place_ = 0;  // places are used in turn
};

}  // namespace weft::backend::on_gpu
