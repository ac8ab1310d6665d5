// Executable: a Program compiled for one device. It runs any range of the Program's ops: a step of
// inference, a forward or backward pass, or an update.
//
// The Executable owns the memory of the values; callers refer to values by ValueId. Results do not
// depend on the number of threads or on which transfers overlap with computation.
//
//     Device::Compile(program, options)  ->  Executable          (device.h)
//     Executable::LoadWeight(id, source)       once for each weight that comes from a file
//     Executable::Run(ops, step, groups)       for each step
//     Executable::ReadTopK(id, row, ...)       the most likely tokens; Read: a whole value
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/communicators.h"
#include "backend/step.h"
#include "backend/thread_team.h"
#include "backend/top.h"
#include "backend/transfer_log.h"
#include "base/result.h"
#include "program/model_chunk.h"
#include "program/placement.h"
#include "program/pool.h"

namespace weft::backend {

// Whether a step may run in parts of its rows, so that one part computes during the all-reduces of
// the other parts (backend/parts.h). kAuto: a step runs in parts if coll::Comm::LeavesCpuIdle
// recommends it. kAlways: every step of two or more rows runs in parts (for tests). All ranks of
// the tensor group must have the same setting. kAuto does not change the bits of results. kAlways
// may change them on Vulkan devices, where parts of few rows use other kernels than the whole step.
enum class Overlap { kNever, kAuto, kAlways };

// How a device with submissions runs all-reduces over tensor ranks in steps of few rows. kSplit:
// each all-reduce ends a submission. kSpin: the device waits for the host within a submission, if a
// trial shows that it can. kAuto: as kSpin on GPUs where kSpin is faster. kPeer: as kAuto, and sums
// of steps of any size go through the memory of the host's GPUs (backend/gpu/device/peer_sums.h) if
// a trial shows that this works; with kAuto, they do so only if it is also faster. Ranks may have
// different settings. The settings do not change the bits of results, except that sums through GPU
// memory always have the bits of one-shot sums.
enum class DeviceSum { kAuto, kSplit, kSpin, kPeer };

struct CompileOptions {
    int64_t max_tokens = 512;            // maximum number of rows of a step
    int64_t longest = 0;                 // maximum rows of a sequence in training; 0: max_tokens
    int64_t max_outputs = 1;             // maximum number of output rows of a step
    int64_t output_columns = 1;          // of the value whose gradient the step has
    int64_t kv_pages = 0;                // pages in each layer's cache
    int64_t page_tokens = 64;            // positions per page, from program::Target
    int64_t state_slots = 0;             // slots of recurrent state
    std::vector<program::ValueId> keep;  // values that Read() may read
    Overlap overlap = Overlap::kNever;
    DeviceSum device_sum = DeviceSum::kAuto;
    // Only for Programs with chunks. kBF16: operands of matrix products are rounded to bfloat16,
    // and the sums are float32. kF32, kF16: operands are multiplied as they are. Quantized weights
    // are converted to this type before products.
    DType compute = DType::kF32;
    int slots = 1;  // number of steps of a chunk that may be in progress at once (Step::slot)
    // Not 0: experts' weights stay on the drive as far as they do not fit, and the Executable uses
    // at most this memory in all. Only on processors; others ignore it.
    uint64_t drive_memory = 0;
    std::string drive_file{};  // the model's file, for errors of the drive
    // Not empty: the optimizer's state is in a file in this folder, and does not count as memory.
    // Only on processors.
    std::string optimizer_folder{};
    // By op: the steps that run it (Step::streams); empty: all steps run all ops. The stacks of
    // matrices that only streamed ops read (program::StreamedWeights) have no memory of their own
    // on a device with submissions: LoadWeight keeps their sources, which steps read, on the
    // threads of `readers`.
    std::vector<program::Way> ways{};
    ThreadTeam* readers = nullptr;
    bool beside = false;  // overlap zero_all_gather and zero_reduce_scatter with other ops
};

// One op of a finished step, for traces and benchmarks.
struct OpTiming {
    int32_t op = 0;
    int64_t begin_ns = 0, end_ns = 0;
    int64_t last_arrival_ns = 0;  // when the slowest rank arrived; 0: not a collective
};

// weight_bytes: weights, gradients and optimizer state. kv_bytes: KV caches and recurrent state.
// host_bytes: how many of all these bytes are in memory of the host beside a device
// (backend/placed/).
struct MemoryUse {
    uint64_t weight_bytes = 0, kv_bytes = 0, arena_bytes = 0, host_bytes = 0;
};

// Use of experts on the drive (CompileOptions::drive_memory): hits and misses count experts of a
// layer and a step. ahead: experts that were read before a step needed them; ahead_used: how many
// of these a step then used (they also count as misses). read_s: time during which the drive was
// read; wait_s: how long steps waited for the drive.
struct DriveUse {
    int64_t hits = 0, misses = 0, ahead = 0, ahead_used = 0;
    uint64_t read_bytes = 0;
    double read_s = 0, wait_s = 0;
};

// How many steps used each expert of a layer. weight: a stack of the layer; uses: by matrix of the
// stack.
struct ExpertUse {
    program::ValueId weight = program::kNoValue;
    std::vector<float> uses;
};

// Writes rows [row_begin, row_begin + count) of one weight to `out`, in the dtype of its Value,
// packed one after another. In a stack of matrices, rows are numbered through all matrices, and
// each call requests rows of one matrix.
using RowSource = std::function<Status(int64_t row_begin, int64_t count, std::span<std::byte> out)>;

// Bytes of a value, from first_byte on.
struct ReadPart {
    program::ValueId id = program::kNoValue;
    int64_t first_byte = 0;
    std::span<std::byte> out{};
};
struct WritePart {
    program::ValueId id = program::kNoValue;
    int64_t first_byte = 0;
    std::span<const std::byte> bytes{};
};

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
    // Whether, and as what, ReadRows reads rows of a loaded stack of matrices: `out` gets what
    // LoadWeight got from its source. Only processors have it. Thread: any number of callers.
    virtual bool CanReadRows(program::ValueId) const { return false; }
    virtual Status ReadRows(program::ValueId, int64_t /*row_begin*/, int64_t /*count*/,
                            std::span<std::byte> /*out*/) const {
        return MakeError(ErrorCode::kUnsupported, "this device does not read weights back");
    }
    // Runs `ops` on the rows of `step`. Errors: kUsage (more rows than CompileOptions allows),
    // errors of links. With CompileOptions::beside, the Executable runs nothing more after an error
    // of links.
    virtual Status Run(const program::OpRange& ops, const Step& step,
                       const Communicators& groups) = 0;
    // Whether steps of enough rows can run in parts (CompileOptions::overlap). The all-reduces of
    // such steps differ from those of whole steps, so the ranks of a tensor group must agree on
    // Communicators::parts.
    virtual bool HasParts() const { return false; }
    // Drops everything that was derived from the Communicators of earlier Runs. Call this before
    // these go away.
    virtual void ForgetGroups() {}
    // Read() reads bytes of a value, from first_byte on: a kept value (CompileOptions::keep), a
    // loss (program/loss.h), or a value that outlives the step. Weights of block types cannot be
    // read. Write() accepts the same values; if it changes a kept value, ops that run later use the
    // new contents.
    virtual Status Read(program::ValueId id, int64_t first_byte, std::span<std::byte> out) = 0;
    virtual Status Write(program::ValueId id, int64_t first_byte,
                         std::span<const std::byte> bytes) = 0;
    // As Read or Write of each part. A GPU reads or writes several parts in one submission.
    virtual Status ReadAll(std::span<const ReadPart> parts) {
        for (const ReadPart& part : parts) WEFT_TRY(Read(part.id, part.first_byte, part.out));
        return {};
    }
    virtual Status WriteAll(std::span<const WritePart> parts) {
        for (const WritePart& part : parts) WEFT_TRY(Write(part.id, part.first_byte, part.bytes));
        return {};
    }
    // Elements [first, first + count) of a float32 value that Read accepts, in place, if they are
    // in memory of the host; else an empty span. Valid until the next Run.
    virtual std::span<const float> HostFloats(program::ValueId id, int64_t first,
                                              int64_t count) const = 0;
    virtual Status ZeroFill(program::Pool pool) = 0;
    // Finds the out.size() largest of the first `columns` elements in a row of a kept float32
    // matrix, in the order of TopK (top.h).
    virtual Status ReadTopK(program::ValueId id, int64_t row, int64_t columns,
                            std::span<Candidate> out) = 0;
    // Makes a snapshot of values that outlive the step. It is valid until an op writes one of the
    // values. Errors: as Read; kOutOfMemory (the host has no memory for a copy of device memory).
    virtual Result<std::unique_ptr<HostSnapshot>> Snapshot(
        std::span<const program::ValueId> ids) = 0;
    virtual MemoryUse memory() const = 0;
    virtual DriveUse drive_use() const { return {}; }
    // expert_use counts the uses of experts on the drive. SetExpertUse sets the counts of earlier
    // jobs and begins to read the experts that were used most. Call it after LoadWeight and before
    // Run.
    virtual std::vector<ExpertUse> expert_use() const { return {}; }
    virtual void SetExpertUse(std::span<const ExpertUse>) {}
    // Timings of the last Run if tracing is on; otherwise empty.
    virtual void SetTracing(bool on) = 0;
    virtual std::span<const OpTiming> timings() const = 0;
    // Times and checksums of transfers.
    virtual TransferLog& transfers() = 0;
    // Calls `probe` after each op that has outputs; `rows` is the row count of the first output.
    // The probe may read the op's outputs as if they were kept. The device waits meanwhile, so this
    // is for checks only. A null `probe` removes the probe. The probe runs on the thread that calls
    // Run; if it returns an error, Run returns that error.
    using Probe = std::function<Status(int32_t op, int64_t rows)>;
    virtual void SetProbe(Probe probe) = 0;
    // A number that grows while ops run or end. Heartbeats report it as progress. Thread: any.
    virtual int64_t progress() const = 0;

    // All ops of a Program without chunks.
    program::OpRange whole() const { return {0, program().ops.size()}; }
    // Elements [first, first + out.size()) of a float32 value.
    Status ReadFloats(program::ValueId id, int64_t first, std::span<float> out) {
        return Read(id, first * static_cast<int64_t>(sizeof(float)), std::as_writable_bytes(out));
    }
};

// Called by devices: checks the step's row counts. Any other invalid content is a bug of the
// engine, for which CheckStep aborts. Errors: kUsage as in Executable::Run.
Status CheckStep(const Step& step, const CompileOptions& options);
// Called by devices before Read and Write: aborts unless the `count` bytes from `first_byte` on are
// within the value.
void CheckBytes(const program::Value& value, const CompileOptions& options, int64_t first_byte,
                size_t count);

// Writes the gradient of each row's loss, or of each element of its vector (Step::loss_gradient),
// as floats.
void WriteLossGradients(const Step& step, std::byte* to);
// Writes Step::noise_amplitudes; zeros, if there are none.
void WriteNoise(const Step& step, std::byte* to);
// Whether the Program ends with one or more Sends and a Recv. The first stage of a pipeline may
// compute the next step while later stages compute the current one: its Program ends with Sends to
// those stages and a Recv of the logits. Such a Program runs in three ranges of ops, divided at
// ExchangeBegin and before the Recv. The sent values must be kept values. The ranges of one step
// run in order. The third range of a step may run between the first two ranges of the next step.
bool EndsWithExchange(const program::Program& program);
// Index of the first of these final Sends.
size_t ExchangeBegin(const program::Program& program);

}  // namespace weft::backend
