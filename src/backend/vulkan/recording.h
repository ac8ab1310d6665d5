// Recordings: the commands of a step's shape, with barriers, cut into submissions, and apart where
// values go to other ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/vulkan/buffers.h"
#include "backend/vulkan/lowering.h"
#include "backend/vulkan/pace.h"
#include "base/result.h"
#include "gpu/device.h"
#include "program/hazards.h"

namespace weft::backend::vulkan {

// What is handed to the device at once: work of ops [first_op, last_op].
struct Submission {
    std::unique_ptr<gpu::Commands> commands;
    int32_t first_op = -1, last_op = -1;
    int32_t ops = 0;       // that end in it
    int32_t shows = -1;    // op whose result is there after it, where each op has its own
    double estimate = 0;   // Pace::Estimate
    bool waits = false;    // for the host: its time says nothing of the device
    bool divides = false;  // could be several
    // For traces, its ops. Where the device has a clock, time 0 is the beginning, time i + 1 the
    // end of timed[i].
    std::vector<int32_t> timed;
};

// Submissions, then a transfer by the host.
struct Stage {
    std::vector<Submission> submissions;
    std::vector<int32_t> exchanged;  // sums over ranks in their midst (gate.h): ops
    int32_t transfer = -1;           // op; -1: none
};

struct Recording {
    std::vector<Stage> stages;
    int64_t used = 0;  // when last
    bool ran = false;  // before: a driver may compile kernels when they run for the first time
    bool cut = false;  // for its length, as it was foreseen with this Pace::slowness
    double slowness = 0;
    int64_t dispatches = 0, barriers = 0;  // in all
};

struct RecordOptions {
    bool each_op = false;  // a submission for each
    bool trace = false;
    bool clock = false;          // the device has one
    const Gate* gate = nullptr;  // null: every transfer ends a stage
    auto operator<=>(const RecordOptions&) const = default;
};

class Recorder {
  public:
    Recorder(const program::Program& program, const Buffers& buffers, Lowering& lowering,
             gpu::Device& device, const Pace& pace, const StepShape& shape,
             const RecordOptions& options);
    // Errors: kUnsupported, kOutOfMemory, the device's.
    Result<Recording> Record(const StepWork& work);

  private:
    Status RecordOp(size_t op, std::span<const Dispatch> dispatches);
    Status RunInParts(int32_t op, const Dispatch& dispatch, uint32_t parts, double estimate);
    Status MakeRoom(double estimate);
    void NoteTimeOf(int32_t op);
    void Run(std::span<const Dispatch> dispatches);
    void Run(const Dispatch& dispatch, const gpu::Groups& groups);
    Status RecordTransfer(size_t op);
    Status RecordExchange(size_t op);
    void RunWithSum(const Dispatch& dispatch);
    Gate::Exchange ExchangeOf(int32_t op);
    void NoteExchange();
    Status BringRows(program::ValueId id, const OpRange& range);
    Status Open(int32_t op);
    Status Close();
    Status CloseToShow(int32_t op);
    void Touch(std::span<const Region> reads, std::span<const Region> writes);
    void Copy(const gpu::Buffer& from, uint64_t from_byte, const gpu::Buffer& to, uint64_t to_byte,
              uint64_t bytes);
    uint64_t OperandBytes(program::ValueId id) const;

    const program::Program& program_;
    const Buffers& buffers_;
    Lowering& lowering_;
    gpu::Device& device_;
    const Pace& pace_;
    const StepShape shape_;
    const RecordOptions options_;
    std::vector<program::OpCost> costs_;
    Recording recording_;
    Stage stage_;
    Submission open_;  // commands null: none is open
    // Of ops that are computed where a later one stands.
    double moved_estimate_ = 0;
    int32_t moved_ = 0;
    program::Hazards<Region> hazards_;
};

}  // namespace weft::backend::vulkan
