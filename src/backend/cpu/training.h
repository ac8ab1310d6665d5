// Training on the CPU: runs a Program that Differentiate() made, forward and backward.
//
//     WEFT_ASSIGN(auto training, TrainingExecutable::Make(program, options));
//     ... fill training->Floats(weight) from the model
//     training->ZeroGradients();
//     WEFT_TRY(training->Run(step, groups));          // adds to the gradients
//     ... training->gradients() beside training->weights(): what an optimizer walks
//
// Everything in memory is float32 and row-major as in the file, so that weights may change between
// steps. Weights that are trained lie one after another, in the order of their ids, and their
// gradients in the same places of another region; frozen weights lie behind them. One team of
// threads walks the op list; each op is shared out over it, with a barrier after each: an op of a
// training step is long. Thread 0 communicates. Results do not depend on the number of threads.
// Thread: one caller.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/cpu_backend.h"
#include "base/result.h"
#include "kernels/dense/dense.h"
#include "program/differentiate.h"

namespace weft::backend {

// What one forward and backward pass works on. Sequences hold the rows that attend to each other,
// from position 0 on (`position` and `pages` are not looked at); output_rows are the rows with a
// target, below the vocabulary's size. Views, owned by the caller.
struct TrainingStep {
    int64_t number = 0;                          // for errors
    std::span<const int32_t> tokens, positions;  // [T]
    std::span<const StepSequence> sequences;
    std::span<const int32_t> output_rows;  // [R], at least one
    std::span<const int32_t> targets;      // [R]
    float loss_gradient = 1;               // dL/d(sum of the rows' losses)
};

// A Program with its inputs' names: "tokens", "positions", "output_rows", "targets" (int32), the
// loss, and the gradients of what is trained.
struct TrainingProgram {
    program::Differentiated differentiated;
    program::ValueId loss = program::kNoValue;  // kNoValue: another pipeline stage has it
};

struct TrainingOptions {
    CpuOptions cpu;
    bool bf16 = false;  // operands of matrix products are rounded to BF16, the sums are float32
    int64_t max_tokens = 0, max_outputs = 0;
};

class TrainingExecutable {
  public:
    // Errors: kUnsupported (an op that is not for training), kOutOfMemory.
    static Result<std::unique_ptr<TrainingExecutable>> Make(TrainingProgram program,
                                                            const TrainingOptions& options);
    virtual ~TrainingExecutable() = default;

    virtual const program::Program& program() const = 0;
    virtual const std::vector<program::WeightGradient>& trained() const = 0;
    // Of a weight or a gradient.
    virtual std::span<float> Floats(program::ValueId id) = 0;
    virtual std::span<float> weights() = 0;    // the trained ones
    virtual std::span<float> gradients() = 0;  // as long
    virtual void ZeroGradients() = 0;
    // Adds the gradients of loss_gradient * loss. Errors: kUsage (too many rows), those of links.
    virtual Status Run(const TrainingStep& step, const Groups& groups) = 0;
    // Sum over the rows of the last step's losses; 0 where another stage has them.
    virtual double loss() const = 0;
    // weight_bytes: weights and gradients.
    virtual MemoryUse memory() const = 0;
    // The kernels of this CPU, for optimizers.
    virtual const kernels::dense::DenseKernels& dense() const = 0;
    // Runs function(part, parts) on all threads: for what an optimizer does.
    using Work = std::function<void(int part, int parts)>;
    virtual void InParts(const Work& work) = 0;
    virtual int64_t progress() const = 0;
};

}  // namespace weft::backend
