// Executable: a whole Program of inference, compiled for one device, that runs step after step.
//
// Values live in buffers that it owns; callers name them by ValueId.
//
//     Device::Compile(program, options)  ->  Executable       (device.h)
//     Executable::LoadWeight(id, source)     once for each weight
//     Executable::Run(step, groups)          for each step
//     Executable::Read(id, out)              the logits
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/step.h"
#include "base/result.h"
#include "program/program.h"

namespace weft::backend {

// Whether a step's rows may run in two halves, one of them computed while the other's sums are on
// the wire: never, where coll::Comm::LeavesCpuIdle says that it is worth it, or in every step of
// two rows and more (for tests). The same on all ranks of the tensor group. Changes no bits.
enum class Overlap { kNever, kAuto, kAlways };

struct CompileOptions {
    int64_t max_tokens = 512;            // most rows of a step (the prefill chunk)
    int64_t max_outputs = 1;             // most output rows of a step
    int64_t kv_pages = 0;                // pages in each layer's cache
    int64_t page_tokens = 64;            // positions of each: the device's (program::Target)
    std::vector<program::ValueId> keep;  // values that Read() may ask for
    Overlap overlap = Overlap::kNever;
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
    // The first out.size() elements of a kept value, as float32.
    virtual Status Read(program::ValueId id, std::span<float> out) = 0;
    // The same in place, until the next Run; null where the caller can't read the device's memory.
    virtual const float* View(program::ValueId id) const = 0;
    virtual MemoryUse memory() const = 0;
    // Timings of the last step where tracing is on, else empty.
    virtual void SetTracing(bool on) = 0;
    virtual std::span<const OpTiming> timings() const = 0;
    // What each all-reduce of the last step cost on the wire, microseconds, waiting for the slower
    // rank left out. Always recorded: it costs no clock reads of its own.
    virtual std::span<const float> all_reduce_us() const = 0;
    // Seconds that were spent waiting for other ranks, over all steps.
    virtual double waited_s() const = 0;
    // With checking on: a checksum over every all-reduce's and all-gather's result of the last
    // step, which must be the same on all ranks of the tensor group.
    virtual void SetChecking(bool on) = 0;
    virtual uint64_t ReplicaChecksum() const = 0;
    // Calls `probe` after each op, with what it left in its first output, float32 [rows, columns]
    // (null: with none; outputs of other types are left out). All threads wait meanwhile: for
    // checks, not for speed. On the thread that calls Run.
    using Probe = std::function<void(int32_t op, std::span<const float> data, int64_t rows)>;
    virtual void SetProbe(Probe probe) = 0;
    // Counts ops that finished, over all steps: what a heartbeat reports as progress.
    virtual int64_t progress() const = 0;
};

}  // namespace weft::backend
