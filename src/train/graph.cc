#include "train/graph.h"

#include <utility>
#include <vector>

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

// A mat_mul with a bias becomes two ops: products are written by many threads at once.
void SplitBiases(program::Program& program) {
    std::vector<program::Op> ops;
    for (program::Op& op : program.ops) {
        const bool has_bias = op.kind() == program::OpKind::kMatMul && op.inputs.size() == 3;
        if (!has_bias) {
            ops.push_back(std::move(op));
            continue;
        }
        const ValueId bias = op.inputs.back(), sum = op.outputs[0];
        program::Value product = program.value(sum);
        product.name += ".product";
        op.inputs.pop_back();
        op.outputs[0] = program.AddValue(std::move(product));
        const ValueId inner = op.outputs[0];
        ops.push_back(std::move(op));
        ops.push_back({program::AddBias{}, {inner, bias}, {sum}});
    }
    program.ops = std::move(ops);
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
    SplitBiases(forward);
    backend::TrainingProgram training;
    const ValueId logits = forward.Find("logits");
    if (logits != program::kNoValue) training.loss = AddLoss(forward, logits);
    program::DifferentiateOptions options;
    options.output = training.loss;
    WEFT_ASSIGN(training.differentiated, program::Differentiate(forward, options));
    return training;
}

}  // namespace weft::train
