// Executable: a Program, compiled for one device, of which any range of ops can be run: a step of
// inference, a forward or a backward pass, an update.
//
// Values live in memory that it owns; callers name them by ValueId. Results depend neither on the
// number of threads nor on what runs beside what.
//
//     Device::Compile(program, options)  ->  Executable          (device.h)
//     Executable::LoadWeight(id, source)       once for each weight that comes from a file
//     Executable::Run(ops, step, groups)       for each step
//     Executable::ReadTopK(id, row, ...)       the likeliest tokens; Read: all of a value
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/communicators.h"
#include "backend/step.h"
#include "backend/top.h"
#include "backend/transfer_log.h"
#include "base/result.h"
#include "program/model_chunk.h"
#include "program/pool.h"

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
    int64_t max_tokens = 512;            // most rows of a step
    int64_t max_outputs = 1;             // most output rows of a step
    int64_t kv_pages = 0;                // pages in each layer's cache
    int64_t page_tokens = 64;            // positions of each: the device's (program::Target)
    int64_t state_slots = 0;             // slots of recurrent state
    std::vector<program::ValueId> keep;  // values that Read() may ask for
    Overlap overlap = Overlap::kNever;
    DeviceSum device_sum = DeviceSum::kAuto;
    // Of a Program with chunks. compute: kBF16: operands of matrix products are rounded to it, the
    // sums are float32; kF32, kF16: they are multiplied as they are. What quantized weights become
    // for products is of this type.
    DType compute = DType::kF32;
    int slots = 1;        // steps of a chunk that may be under way at once
    bool beside = false;  // zero_all_gather and zero_reduce_scatter run beside other ops
};

// One op of a finished step, for traces and benchmarks.
struct OpTiming {
    int32_t op = 0;
    int64_t begin_ns = 0, end_ns = 0;
    int64_t last_arrival_ns = 0;  // collectives only, else 0
};

// weight_bytes: weights, gradients and what an optimizer keeps. kv_bytes: KV caches and recurrent
// state.
struct MemoryUse {
    uint64_t weight_bytes = 0, kv_bytes = 0, arena_bytes = 0;
};

// Gives rows [row_begin, row_begin + count) of one weight, in the dtype of its Value, packed one
// after another into `out`. The rows of a stack of matrices are counted through; one call asks for
// rows of one matrix.
using RowSource = std::function<Status(int64_t row_begin, int64_t count, std::span<std::byte> out)>;

// Values that another thread may read while ops run that do not write them.
class HostSnapshot {
  public:
    virtual ~HostSnapshot() = default;
    // As Executable::Read. Thread: any.
    virtual Status Read(program::ValueId id, int64_t first_byte,
                        std::span<std::byte> out) const = 0;
};

// Thread: one caller, but where a function says otherwise.
class Executable {
  public:
    virtual ~Executable() = default;
    virtual const program::Program& program() const = 0;
    // Thread: different weights may be loaded from different threads at once.
    virtual Status LoadWeight(program::ValueId id, const RowSource& source) = 0;
    // Errors: kUsage (more rows than CompileOptions say), those of links. After an error of links
    // with CompileOptions::beside nothing more runs.
    virtual Status Run(const program::OpRange& ops, const Step& step,
                       const Communicators& groups) = 0;
    // Bytes [first_byte, ...) of a value: a kept one (CompileOptions::keep), a loss (program/
    // loss.h), or one that outlives the step. Weights of block types are none of these. `Write`
    // writes what Read reads; a kept value of the step then is what later ranges of ops find.
    virtual Status Read(program::ValueId id, int64_t first_byte, std::span<std::byte> out) = 0;
    virtual Status Write(program::ValueId id, int64_t first_byte,
                         std::span<const std::byte> bytes) = 0;
    virtual Status ZeroFill(program::Pool pool) = 0;
    // The best of the first `columns` elements of a row of a kept float32 matrix, as TopK has
    // them.
    virtual Status ReadTopK(program::ValueId id, int64_t row, int64_t columns,
                            std::span<Candidate> out) = 0;
    // Copies values that outlive the step. The copy is stable until an op writes one of the values.
    // Errors: those of Read; kOutOfMemory (the host has no memory for a copy of device memory).
    virtual Result<std::unique_ptr<HostSnapshot>> Snapshot(
        std::span<const program::ValueId> ids) = 0;
    virtual MemoryUse memory() const = 0;
    // Timings of the last Run where tracing is on, else empty.
    virtual void SetTracing(bool on) = 0;
    virtual std::span<const OpTiming> timings() const = 0;
    // What transfers cost and left.
    virtual TransferLog& transfers() = 0;
    // Calls `probe` after each op that has outputs, with the rows of the first one: outputs may be
    // read then as if they were kept. The device waits meanwhile: for checks, not for speed. Null:
    // none. On the thread that calls Run, which ends with the probe's first error.
    using Probe = std::function<Status(int32_t op, int64_t rows)>;
    virtual void SetProbe(Probe probe) = 0;
    // Counts ops that finished, over all steps: what a heartbeat reports as progress.
    virtual int64_t progress() const = 0;

    // All ops of a Program without chunks.
    program::OpRange whole() const { return {0, program().ops.size()}; }
    // Elements [first, first + out.size()) of a float32 value.
    Status ReadFloats(program::ValueId id, int64_t first, std::span<float> out) {
        return Read(id, first * static_cast<int64_t>(sizeof(float)), std::as_writable_bytes(out));
    }
};

// For devices. What a step may hold is the engine's own doing: anything else is a bug, and ends the
// process. Errors: as Run's.
Status CheckStep(const Step& step, const CompileOptions& options);
// Whether the Program's last ops are Sends, one or more, and a Recv. The first stage of a pipeline
// may compute the next step while later stages have the last one: its Program ends with Sends to
// them and a Recv of the logits. Such a Program runs in three ranges, parted at ExchangeBegin and
// before the Recv (what is sent must be kept): the ranges of one step in order; the first two of a
// step may have the third of the step before between them.
bool EndsWithExchange(const program::Program& program);
// Where these Sends begin.
size_t ExchangeBegin(const program::Program& program);

}  // namespace weft::backend
