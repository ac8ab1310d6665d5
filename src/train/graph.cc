#include "train/graph.h"

#include <utility>

#include "model/model.h"

namespace weft::train {
namespace {

using program::ValueId;

// Inference hides in float64 sums where ranks cut; training is compared by tolerance.
void MakeFloat32(program::Program& program) {
    for (program::Value& value : program.values) {
        const bool real = value.dtype != DType::kI32;
        if (real) value.dtype = DType::kF32;
    }
    for (program::Op& op : program.ops) {
        if (auto* matmul = std::get_if<program::MatMul>(&op.attributes)) matmul->segment_cols = 0;
    }
}

ValueId AddLoss(program::Program& program, ValueId logits) {
    const ValueId targets = program.AddValue(
        {"targets", DType::kI32, {program::kOutputs}, program::Storage::kInput, {}});
    return program.Emit(program::SoftmaxCrossEntropy{}, {logits, targets}, "loss", {1});
}

}  // namespace

Result<backend::TrainingProgram> BuildTrainingProgram(const model::Hyper& hyper,
                                                      const model::Shard& shard,
                                                      const formats::ModelSource& source) {
    model::BuildOptions build;
    build.kv_dtype = DType::kF32;
    build.cache = false;
    WEFT_ASSIGN(program::Program forward, model::BuildProgram(hyper, shard, source, build));
    MakeFloat32(forward);
    backend::TrainingProgram training;
    const ValueId logits = forward.Find("logits");
    if (logits != program::kNoValue) training.loss = AddLoss(forward, logits);
    program::DifferentiateOptions options;
    options.output = training.loss;
    WEFT_ASSIGN(training.differentiated, program::Differentiate(forward, options));
    return training;
}

}  // namespace weft::train
