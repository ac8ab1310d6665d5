#include "model/adapters.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "model_files/lora/adapted_source.h"

namespace weft::model {
namespace {

using program::Op;
using program::OpKind;
using program::Program;
using program::Value;
using program::ValueId;

// Columns of an adapter that are summed in float32, if its product sums longer segments.
constexpr int64_t kMostSegment = 64;

class Adding {
  public:
    Adding(Program& program, const model_files::ModelSource& source)
        : program_(program), source_(source), adapters_(model_files::AdaptersByTensor(source)) {}

    Status Run() {
        if (adapters_.empty()) return {};
        std::vector<Op> ops = std::exchange(program_.ops, {});
        for (Op& op : ops) {
            const bool beside = op.kind() == OpKind::kMatMul && !waiting_.empty() &&
                                op.inputs[0] == waiting_.front().inputs[0];
            if (!beside) Release();
            program_.ops.push_back(op);
            if (op.kind() == OpKind::kMatMul) AddAdapterOf(op);
        }
        Release();
        WEFT_TRY(CheckAllMet());
        return program::CheckShapes(program_);
    }

  private:
    void AddAdapterOf(const Op& product) {
        const Value weight = program_.value(product.inputs[1]);
        const auto found = adapters_.find(weight.slice.name);
        if (found == adapters_.end()) return;
        met_.insert(weight.slice.name);
        program::Adapt attributes;
        attributes.adapters = found->second;
        attributes.parts.assign(found->second.size(), program::Adapt::kA | program::Adapt::kB);
        const int64_t segment = product.as<program::MatMul>().segment_cols;
        attributes.segment_cols = std::min(segment, kMostSegment);
        std::vector<ValueId> inputs = {product.inputs[0]};
        for (const int32_t number : found->second) {
            inputs.push_back(AddWeight(weight, number, false));
            inputs.push_back(AddWeight(weight, number, true));
        }
        inputs.push_back(product.outputs[0]);
        waiting_.push_back({std::move(attributes), std::move(inputs), product.outputs});
    }

    ValueId AddWeight(const Value& beside, int32_t number, bool is_b) {
        Value value;
        const auto index = static_cast<size_t>(number);
        value.slice.name = model_files::AdaptedTensor(index, is_b, beside.slice.name);
        const model_files::TensorInfo* tensor = source_.FindTensor(value.slice.name);
        WEFT_CHECK(tensor != nullptr);
        value.name = fmt::format("{}.lora{}_{}", beside.name, number, is_b ? "b" : "a");
        value.dtype = tensor->dtype;
        value.storage = program::Storage::kWeight;
        if (is_b) {
            value.shape = {beside.shape[0], tensor->cols};
            value.slice.row_begin = beside.slice.row_begin;
        } else {
            value.shape = {tensor->rows, beside.shape[1]};
            value.slice.col_begin = beside.slice.col_begin;
        }
        return program_.AddValue(std::move(value));
    }

    void Release() {
        for (Op& op : waiting_) program_.ops.push_back(std::move(op));
        waiting_.clear();
    }

    // Checks only the tensors that this rank's layers read.
    Status CheckAllMet() const {
        for (const Value& value : program_.values) {
            const std::string& tensor = value.slice.name;
            if (!adapters_.contains(tensor) || met_.contains(tensor)) continue;
            return MakeError(ErrorCode::kUnsupported,
                             "{}: tensor {} has an adapter, but is not a separate matrix (experts "
                             "are stacked). Use an adapter without it",
                             source_.name(), tensor);
        }
        return {};
    }

    Program& program_;
    const model_files::ModelSource& source_;
    const std::map<std::string, std::vector<int32_t>> adapters_;
    std::vector<Op> waiting_;  // emitted after the last product that reads the same value
    std::set<std::string> met_;
};

}  // namespace

Status AddAdapters(Program& program, const model_files::ModelSource& source) {
    return Adding(program, source).Run();
}

}  // namespace weft::model
