// Training: runs a Program that Differentiate() made, forward and backward, and the update behind
// it (program/update.h), on one device.
//
//     WEFT_ASSIGN(auto training, device->CompileTraining(program, options));
//     ... training->Write(weight, ...) from the model
//     training->ZeroGradients();
//     WEFT_TRY(training->Run(step, groups));                          // adds to the gradients
//     WEFT_TRY(training->Update(UpdateStage::kSum, step, groups));
//     ... training->Read(norm, ...)
//     WEFT_TRY(training->Update(UpdateStage::kApply, step, groups));  // the weights have changed
//
// Values live in memory that it owns, row-major as in the file, in the types that the Program says;
// the host has them by Read and Write alone. With `overlap` what ZeRO gathers and sums up runs
// beside the ops that do not need it. Results depend on neither the number of threads nor the
// overlap. Thread: one caller; Read of what nothing changes meanwhile, from any.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/executable.h"
#include "base/result.h"
#include "program/chunks.h"

namespace weft::backend {

// kForward keeps in the step's slot what a later kBackward of the slot needs; kEvaluate computes
// losses, and nothing of gradients; kPredict the logits of the first output row in their place.
enum class Pass { kBoth, kForward, kBackward, kEvaluate, kPredict };

// What one forward and backward pass works on. Sequences hold the rows that attend to each other,
// from position 0 on (`position` and `pages` are not looked at); output_rows are the rows with a
// target, below the vocabulary's size. Views, owned by the caller; kBackward looks at none of them.
struct TrainingStep {
    int64_t number = 0;                          // for errors
    std::span<const int32_t> tokens, positions;  // [T]
    std::span<const StepSequence> sequences;
    std::span<const int32_t> output_rows;  // [R], at least one
    std::span<const int32_t> targets;      // [R]
    float loss_gradient = 1;               // dL/d(sum of the rows' losses)
    float side_gradient = 0;               // dL/d(side loss)
    int slot = 0;
    int chunk = 0;  // of the Program: its ops alone run
    Pass pass = Pass::kBoth;
};

// One update of the weights. number: from 1 on; gradients count gradient_scale times.
struct UpdateStep {
    int64_t number = 0;
    double rate = 0, gradient_scale = 1;
};
// The two parts of program::Update.
enum class UpdateStage { kSum, kApply };

struct TrainingOptions {
    // kBF16: operands of matrix products are rounded to it, the sums are float32. kF32, kF16: they
    // are multiplied as they are. What quantized weights become for products is of this type.
    DType compute = DType::kF32;
    int64_t max_tokens = 0, max_outputs = 0;
    int slots = 1;         // (step, chunk)s that may be under way at once
    bool overlap = false;  // gather_shares and reduce_shares run beside other ops
};

// Of a Program's inputs by name, "tokens", "positions", "output_rows" and "targets" (int32) are
// bound, and the gradients of outputs: the loss, and what load_balance writes.
class TrainingExecutable {
  public:
    virtual ~TrainingExecutable() = default;

    virtual const program::Program& program() const = 0;
    // Bytes [first, first + size) of a weight, a gradient or what an optimizer keeps, or of a view
    // of one.
    virtual Status Read(program::ValueId id, int64_t first, std::span<std::byte> out) const = 0;
    virtual Status Write(program::ValueId id, int64_t first, std::span<const std::byte> bytes) = 0;
    virtual void ZeroGradients() = 0;
    // Adds the gradients of loss_gradient * loss. Errors: kUsage (too many rows), those of links.
    virtual Status Run(const TrainingStep& step, const Groups& groups) = 0;
    // Errors: those of links.
    virtual Status Update(UpdateStage stage, const UpdateStep& step, const Groups& groups) = 0;
    // Sum over the rows of the losses of the last step but for kForward; 0 where another stage or
    // chunk has them.
    virtual double loss() const = 0;
    // Of the last step, a kPredict: over the whole vocabulary, the same on all tensor ranks; empty
    // where another stage or chunk has them.
    virtual std::span<const float> logits() const = 0;
    // The side loss of the last step but for kBackward; 0 where there is none here.
    virtual double side_loss() const = 0;
    // Runs the step again, op by op, and says which op first wrote a number that is not finite:
    // "op 17 (mat_mul) l0.attn.q". Empty: none did. Gradients are of no use afterwards.
    virtual Result<std::string> FindNonFinite(const TrainingStep& step, const Groups& groups) = 0;
    // weight_bytes: weights, gradients and what an optimizer keeps.
    virtual MemoryUse memory() const = 0;
    // FLOP/s of products of options.compute, at most: measured for some 20 ms.
    virtual double MeasurePeak() = 0;
    virtual int64_t progress() const = 0;
    // For so long, in all steps, nothing was computed: other ranks were waited for.
    virtual double waited_s() const = 0;
    // From now on seconds of ops are kept: by op, of each time that it ran. Empty: the device
    // can't tell, or was not asked.
    virtual void TimeOps() = 0;
    virtual std::span<const std::vector<float>> op_seconds() const = 0;
};

}  // namespace weft::backend
