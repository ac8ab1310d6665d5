// Executable: a Program compiled for one device. It runs any range of the Program's ops: a step of
// inference, a forward or backward pass, or an update.
//
// The Executable owns the memory of the values; callers name values by ValueId. Results depend
// neither on the number of threads nor on which transfers overlap with computation.
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

// Whether a step may run as two halves of its rows, so that one half computes during the all-reduce
// of the other. kAuto: where coll::Comm::LeavesCpuIdle recommends it. kAlways: in every step of two
// or more rows (for tests). The same on all ranks of the tensor group. Does not change the bits.
enum class Overlap { kNever, kAuto, kAlways };

// How a device with submissions runs all-reduces over tensor ranks in steps of few rows. kSplit:
// each all-reduce ends a submission. kSpin: the device waits for the host within a submission, if a
// trial shows that it can. kAuto: as kSpin on a GPU where that is faster. Does not change the bits;
// ranks may differ.
enum class DeviceSum { kAuto, kSplit, kSpin };

struct CompileOptions {
    int64_t max_tokens = 512;            // maximum rows of a step
    int64_t max_outputs = 1;             // maximum output rows of a step
    int64_t kv_pages = 0;                // pages in each layer's cache
    int64_t page_tokens = 64;            // positions per page, from program::Target
    int64_t state_slots = 0;             // slots of recurrent state
    std::vector<program::ValueId> keep;  // values that Read() may read
    Overlap overlap = Overlap::kNever;
    DeviceSum device_sum = DeviceSum::kAuto;
    // Programs with chunks only. kBF16: operands of matrix products are rounded to bfloat16, the
    // sums are float32. kF32, kF16: operands are multiplied as they are. Quantized weights are
    // converted to this type for products.
    DType compute = DType::kF32;
    int slots = 1;        // concurrent steps of a chunk
    bool beside = false;  // overlap zero_all_gather, zero_reduce_scatter with other ops
};

// One op of a finished step, for traces and benchmarks.
struct OpTiming {
    int32_t op = 0;
    int64_t begin_ns = 0, end_ns = 0;
    int64_t last_arrival_ns = 0;  // collectives only, else 0
};

// weight_bytes: weights, gradients and optimizer state. kv_bytes: KV caches and recurrent state.
struct MemoryUse {
    uint64_t weight_bytes = 0, kv_bytes = 0, arena_bytes = 0;
};

// Writes rows [row_begin, row_begin + count) of one weight to `out`, in the dtype of its Value,
// packed one after another. The rows of a stack of matrices are numbered consecutively; each call
// asks for rows of one matrix.
using RowSource = std::function<Status(int64_t row_begin, int64_t count, std::span<std::byte> out)>;

// Values that another thread may read while ops run, as long as those ops do not write them.
class HostSnapshot {
  public:
    virtual ~HostSnapshot() = default;
    // As Executable::Read. Thread: any.
    virtual Status Read(program::ValueId id, int64_t first_byte,
                        std::span<std::byte> out) const = 0;
};

// Thread: one caller, except where a function says otherwise.
class Executable {
  public:
    virtual ~Executable() = default;
    virtual const program::Program& program() const = 0;
    // Thread: several threads may load different weights at once.
    virtual Status LoadWeight(program::ValueId id, const RowSource& source) = 0;
    // Runs `ops` on the rows of `step`. Errors: kUsage (more rows than CompileOptions allow), those
    // of links. With CompileOptions::beside, nothing more runs after an error of links.
    virtual Status Run(const program::OpRange& ops, const Step& step,
                       const Communicators& groups) = 0;
    // Reads bytes [first_byte, ...) of a value: a kept value (CompileOptions::keep), a loss
    // (program/loss.h), or a value that outlives the step. Weights of block types cannot be read.
    // `Write` accepts the same values; later ranges of ops use the new contents of a kept value.
    virtual Status Read(program::ValueId id, int64_t first_byte, std::span<std::byte> out) = 0;
    virtual Status Write(program::ValueId id, int64_t first_byte,
                         std::span<const std::byte> bytes) = 0;
    virtual Status ZeroFill(program::Pool pool) = 0;
    // Finds the largest of the first `columns` elements in a row of a kept float32 matrix, in the
    // order of TopK (top.h).
    virtual Status ReadTopK(program::ValueId id, int64_t row, int64_t columns,
                            std::span<Candidate> out) = 0;
    // Copies values that outlive the step. The copy is stable until an op writes one of the values.
    // Errors: those of Read; kOutOfMemory (the host has no memory for a copy of device memory).
    virtual Result<std::unique_ptr<HostSnapshot>> Snapshot(
        std::span<const program::ValueId> ids) = 0;
    virtual MemoryUse memory() const = 0;
    // Timings of the last Run if tracing is on; otherwise empty.
    virtual void SetTracing(bool on) = 0;
    virtual std::span<const OpTiming> timings() const = 0;
    // Times and checksums of transfers.
    virtual TransferLog& transfers() = 0;
    // Calls `probe` after each op that has outputs; `rows` is the row count of the first output.
    // The probe may read the op's outputs as if they were kept. The device waits meanwhile, so this
    // is for checks only. Null: no probe. The probe runs on the thread that calls Run; its first
    // error ends Run.
    using Probe = std::function<Status(int32_t op, int64_t rows)>;
    virtual void SetProbe(Probe probe) = 0;
    // Number of ops finished over all steps. Heartbeats report it as progress.
    virtual int64_t progress() const = 0;

    // All ops of a Program without chunks.
    program::OpRange whole() const { return {0, program().ops.size()}; }
    // Elements [first, first + out.size()) of a float32 value.
    Status ReadFloats(program::ValueId id, int64_t first, std::span<float> out) {
        return Read(id, first * static_cast<int64_t>(sizeof(float)), std::as_writable_bytes(out));
    }
};

// For devices: checks the step's row counts. CheckStep treats any other invalid content as a bug of
// the engine and aborts. Errors: those of Run.
Status CheckStep(const Step& step, const CompileOptions& options);
// Whether the Program ends with one or more Sends and a Recv. The first stage of a pipeline may
// compute the next step while later stages compute the current one: its Program ends with Sends to
// those stages and a Recv of the logits. Such a Program runs in three ranges, divided at
// ExchangeBegin and before the Recv. The values sent must be kept. The ranges of one step run in
// order; the third range of a step may run between the first two ranges of the next step.
bool EndsWithExchange(const program::Program& program);
// Index of the first of these final Sends.
size_t ExchangeBegin(const program::Program& program);

}  // namespace weft::backend
