// Executable: a whole Program of inference, compiled for one device, that runs step after step.
//
// Values live in buffers that it owns; callers name them by ValueId.
//
//     Device::Compile(program, options)  ->  Executable       (device.h)
//     Executable::LoadWeight(id, source)     once for each weight
//     Executable::Run(step, groups)          for each step
//     Executable::ReadTop(id, row, ...)      the likeliest tokens; Read: all logits
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/groups.h"
#include "backend/step.h"
#include "backend/top.h"
#include "backend/transfer_log.h"
#include "base/result.h"
#include "program/program.h"

namespace weft::backend {

// Whether a step's rows may run in two halves, one of them computed while the other's sums are on
// the wire: never, where coll::Comm::LeavesCpuIdle says that it is worth it, or in every step of
// two rows and more (for tests). The same on all ranks of the tensor group. Changes no bits.
enum class Overlap { kNever, kAuto, kAlways };

// How a device that work is submitted to sums over tensor ranks in steps of few rows: each ends
// a submission (kSplit), or the device waits in the midst of one for the host (kSpin), if a trial
// shows that it can. kAuto: on a GPU, if that is faster. Changes no bits; each rank may choose.
enum class DeviceSum { kAuto, kSplit, kSpin };

struct CompileOptions {
    int64_t max_tokens = 512;            // most rows of a step (the prefill chunk)
    int64_t max_outputs = 1;             // most output rows of a step
    int64_t kv_pages = 0;                // pages in each layer's cache
    int64_t page_tokens = 64;            // positions of each: the device's (program::Target)
    std::vector<program::ValueId> keep;  // values that Read() may ask for
    Overlap overlap = Overlap::kNever;
    DeviceSum device_sum = DeviceSum::kAuto;
};

// One op of a finished step, for traces and benchmarks.
struct OpTiming {
    int32_t op = 0;
    int64_t begin_ns = 0, end_ns = 0;
    int64_t last_arrival_ns = 0;  // collectives only, else 0
};

struct MemoryUse {
    uint64_t weight_bytes = 0, kv_bytes = 0, arena_bytes = 0;
};

// Gives rows [row_begin, row_begin + count) of one weight, in the dtype of its Value, packed one
// after another into `out`. The rows of a stack of matrices are counted through; one call asks for
// rows of one matrix.
using RowSource = std::function<Status(int64_t row_begin, int64_t count, std::span<std::byte> out)>;

class Executable {
  public:
    virtual ~Executable() = default;
    // Thread: different weights may be loaded from different threads at once.
    virtual Status LoadWeight(program::ValueId id, const RowSource& source) = 0;
    virtual Status Run(const Step& step, const Groups& groups) = 0;
    // Whether the Program's last ops are a Send and a Recv, so that StepParts other than kWhole can
    // run. What is sent must be kept (CompileOptions::keep).
    virtual bool ends_with_exchange() const = 0;
    // Elements [first, first + out.size()) of a kept value (a matrix of float32, row by row).
    virtual Status Read(program::ValueId id, int64_t first, std::span<float> out) = 0;
    // The best of the first `columns` elements of such a value's row, as TopOf has them.
    virtual Status ReadTop(program::ValueId id, int64_t row, int64_t columns,
                           std::span<Candidate> out) = 0;
    virtual MemoryUse memory() const = 0;
    // Timings of the last step where tracing is on, else empty.
    virtual void SetTracing(bool on) = 0;
    virtual std::span<const OpTiming> timings() const = 0;
    // What transfers cost and left.
    virtual TransferLog& transfers() = 0;
    // Calls `probe` after each op whose first output is a float32 [rows, columns] of its own: it
    // may be read then as if it were kept. The device waits meanwhile: for checks, not for speed.
    // Null: none. On the thread that calls Run, which ends with the probe's first error.
    using Probe = std::function<Status(int32_t op, int64_t rows)>;
    virtual void SetProbe(Probe probe) = 0;
    // Counts ops that finished, over all steps: what a heartbeat reports as progress.
    virtual int64_t progress() const = 0;
};

// For devices. What a step may hold is the engine's own doing: anything else is a bug, and ends the
// process.
void CheckStep(const Step& step, const CompileOptions& options, bool ends_with_exchange);
// Executable::ends_with_exchange of this Program.
bool EndsWithExchange(const program::Program& program);

}  // namespace weft::backend
