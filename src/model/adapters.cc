#include "model/adapters.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "model_files/lora/adapted_source.h"

namespace weft::model {
namespace {

using model_files::AdaptedTensor;
using model_files::kEmbeddingTensor;
using model_files::kOutputTensor;
using program::Adapt;
using program::kNoValue;
using program::Op;
using program::OpKind;
using program::Program;
using program::Value;
using program::ValueId;

// Columns of an adapter that are summed in float32, if its product sums longer segments.
constexpr int64_t kMostSegment = 64;

int64_t SegmentOf(int64_t segment_cols) {
    return std::min(segment_cols, kMostSegment);
}

class Adding {
  public:
    Adding(Program& program, const model_files::ModelSource& source)
        : program_(program), source_(source), adapters_(model_files::AdaptedPartsOf(source)) {}

    Status Run() {
        if (adapters_.empty()) return {};
        std::vector<Op> ops = std::exchange(program_.ops, {});
        for (Op& op : ops) {
            const bool product = op.kind() == OpKind::kMatMul || op.kind() == OpKind::kExpertMatMul;
            const bool beside = product && !waiting_.empty() && op.inputs[0] == shared_input_;
            if (!beside) Release();
            if (op.kind() == OpKind::kEmbedding) {
                AddEmbedding(std::move(op));
                continue;
            }
            program_.ops.push_back(op);
            shared_input_ = op.inputs.empty() ? kNoValue : op.inputs[0];
            AddBeside(op);
        }
        Release();
        WEFT_TRY(CheckAllMet());
        return program::CheckShapes(program_);
    }

  private:
    // The parts of adapters for a tensor; null: none.
    const std::map<int32_t, std::string>* PartsOf(const std::string& tensor) {
        const auto found = adapters_.find(tensor);
        if (found == adapters_.end()) return nullptr;
        met_.insert(tensor);
        return &found->second;
    }

    void AddBeside(const Op& op) {
        if (const auto* product = op.attributes.If<program::MatMul>()) {
            AddToProduct(op, SegmentOf(product->segment_cols));
        } else if (op.kind() == OpKind::kAddBias) {
            Ending ending(*this, op);
            ending.Add(NameOf(op.inputs[1]), {{'d', Adapt::kShift}});
            ending.End(0);
        } else if (const auto* norm = op.attributes.If<program::RmsNorm>()) {
            const int64_t columns = program_.value(op.outputs[0]).shape[1];
            if (norm->plain || (norm->group != columns && !norm->apart)) return;
            Ending ending(*this, op);
            ending.Add(NameOf(op.inputs[1]), {{'g', Adapt::kGain}});
            ending.End(0);
        } else if (const auto* experts = op.attributes.If<program::ExpertMatMul>()) {
            AddToExperts(op, {op.inputs[0], op.inputs[1]}, op.inputs[2],
                         {{}, experts->first_expert, 0});
        } else if (const auto* sum = op.attributes.If<program::ExpertSum>()) {
            AddToExperts(op, {op.inputs[0], op.inputs[1], op.inputs[2]}, op.inputs[3],
                         {{}, sum->first_expert, SegmentOf(sum->segment_cols)});
        }
    }

    const std::string& NameOf(ValueId weight) const { return program_.value(weight).slice.name; }

    void AddToProduct(const Op& op, int64_t segment_cols) {
        Ending ending(*this, op);
        const bool tied = NameOf(op.inputs[1]) == kEmbeddingTensor;
        if (tied) met_.insert(kEmbeddingTensor);  // as a table, if this rank looks tokens up
        ending.Add(tied ? kOutputTensor : NameOf(op.inputs[1]),
                   {{'a', Adapt::kA}, {'b', Adapt::kB}, {'w', Adapt::kA}, {'g', Adapt::kGain}});
        // (With a bias in the product, `t` undoes the factors that the bias gets.)
        if (op.inputs.size() == 3) ending.Add(NameOf(op.inputs[2]), {{'t', Adapt::kShift}});
        ending.End(segment_cols);
    }

    // Collects the parts of an Adapt op that changes the output of `op`.
    class Ending {
      public:
        Ending(Adding& adding, const Op& op) : adding_(adding), op_(op) {}

        // weight: the op's weight or bias, whose parts with these letters become those parts.
        void Add(const std::string& tensor,
                 const std::vector<std::pair<char, Adapt::Part>>& letters) {
            const auto* const adapters = adding_.PartsOf(tensor);
            if (adapters == nullptr) return;
            for (const auto& [number, parts] : *adapters) {
                for (const auto& [letter, part] : letters) {
                    if (parts.find(letter) == parts.npos) continue;
                    parts_[number][part] = {tensor, letter};
                }
            }
        }

        void End(int64_t segment_cols) {
            if (parts_.empty()) return;
            Adapt attributes;
            attributes.segment_cols = segment_cols;
            const ValueId y = op_.outputs[0];
            bool has_a = false;
            std::vector<ValueId> inputs;
            for (const auto& [number, parts] : parts_) {
                attributes.adapters.push_back(number);
                uint8_t all = 0;
                for (const auto& [part, from] : parts) {
                    all |= part;
                    has_a = has_a || part == Adapt::kA;
                    inputs.push_back(adding_.PartOf(op_, number, from.first, from.second));
                }
                attributes.parts.push_back(all);
            }
            if (adding_.program_.value(y).shape[0] == program::kOutputs) {
                attributes.of_outputs = true;
                inputs.insert(inputs.begin(), adding_.program_.Find("output_rows"));
            }
            inputs.insert(inputs.begin(), has_a ? op_.inputs[0] : y);
            inputs.push_back(y);
            adding_.waiting_.push_back({std::move(attributes), std::move(inputs), {y}});
        }

      private:
        Adding& adding_;
        const Op& op_;
        // By adapter and part: the model's tensor, and the letter of the adapter's.
        std::map<int32_t, std::map<Adapt::Part, std::pair<std::string, char>>> parts_;
    };

    void AddToExperts(const Op& op, std::vector<ValueId> inputs, ValueId stack,
                      program::ExpertPairs pairs) {
        const auto* const adapters = PartsOf(NameOf(stack));
        if (adapters == nullptr) return;
        for (const auto& [number, parts] : *adapters) {
            pairs.adapters.push_back(number);
            inputs.push_back(Matrix(program_.value(stack), number, 'a', NameOf(stack)));
            inputs.push_back(Matrix(program_.value(stack), number, 'b', NameOf(stack)));
        }
        inputs.push_back(op.outputs[0]);
        if (op.kind() == OpKind::kExpertMatMul) {
            waiting_.push_back({program::AdaptExperts{pairs}, std::move(inputs), op.outputs});
        } else {
            waiting_.push_back({program::AdaptExpertSum{pairs}, std::move(inputs), op.outputs});
        }
    }

    // A part of an adapter for a weight of `op`.
    ValueId PartOf(const Op& op, int32_t number, const std::string& tensor, char letter) {
        for (size_t i = 1; i < op.inputs.size(); ++i) {
            const Value& weight = program_.value(op.inputs[i]);
            const bool tied = tensor == kOutputTensor && weight.slice.name == kEmbeddingTensor;
            if (weight.slice.name == tensor || tied) return Matrix(weight, number, letter, tensor);
        }
        return kNoValue;  // (not reached)
    }

    ValueId Matrix(const Value& model, int32_t number, char letter, const std::string& tensor) {
        const Value beside = model;  // (values may move)
        Value value;
        value.slice.name = AdaptedTensor(static_cast<size_t>(number), letter, tensor);
        const model_files::TensorInfo* info = source_.FindTensor(value.slice.name);
        WEFT_CHECK(info != nullptr);
        const std::string& name = beside.slice.name == tensor ? beside.name : tensor;
        value.name = fmt::format("{}.lora{}_{}", name, number, letter);
        if (const ValueId known = program_.Find(value.name); known != kNoValue) return known;
        value.dtype = info->dtype;
        value.storage = program::Storage::kWeight;
        const program::Shape& shape = beside.shape;
        const bool stack = shape.rank == 3;
        const int64_t rows = shape[stack ? 1 : 0], cols = shape[shape.rank - 1];
        const model_files::TensorInfo* of = source_.FindTensor(beside.slice.name);
        if (letter == 'a') {
            const int64_t rank = stack ? info->rows / of->dims[2] : info->rows;
            value.shape = stack ? program::Shape{shape[0], rank, cols} : program::Shape{rank, cols};
            value.slice.col_begin = beside.slice.col_begin;
            value.slice.matrix_rows = rank;
        } else {
            value.shape = stack ? program::Shape{shape[0], rows, info->cols}
                                : program::Shape{rows, letter == 'w' ? cols : info->cols};
            value.slice.row_begin = beside.slice.row_begin;
            if (letter == 'w') value.slice.col_begin = beside.slice.col_begin;
            value.slice.matrix_rows = beside.slice.matrix_rows;
        }
        value.slice.first_matrix = beside.slice.first_matrix;
        return program_.AddValue(std::move(value));
    }

    // An adapter's rows find nothing in the model's table, and the other rows nothing in the
    // adapter's.
    void AddEmbedding(Op op) {
        const Value table = program_.value(op.inputs[1]);
        const auto found = adapters_.find(kEmbeddingTensor);
        const bool by_token = op.inputs[0] == program_.Find("tokens");
        if (found == adapters_.end() || !by_token || table.slice.name != kEmbeddingTensor) {
            others_read_tokens_ = others_read_tokens_ || by_token;
            program_.ops.push_back(std::move(op));
            return;
        }
        met_.insert(kEmbeddingTensor);
        const ValueId y = op.outputs[0];
        const Value like = program_.value(y);
        const auto named = [&](const std::string& end) {
            Value value = like;
            value.name += end;
            return program_.AddValue(std::move(value));
        };
        const auto first_row = op.as<program::Embedding>().first_row;
        const ValueId tokens = op.inputs[0];
        ValueId sum = op.outputs[0] = named(".base");
        program_.ops.push_back(std::move(op));
        size_t left = found->second.size();
        for (const auto& [number, parts] : found->second) {
            program::Embedding attributes;
            attributes.first_row = first_row + model_files::FirstTokenOf(source_, number);
            const ValueId own = named(fmt::format(".lora{}", number));
            program_.ops.push_back(
                {attributes, {tokens, Matrix(table, number, 'w', kEmbeddingTensor)}, {own}});
            const ValueId all = --left == 0 ? y : named(fmt::format(".sum{}", number));
            program_.ops.push_back({program::Add{}, {sum, own}, {all}});
            sum = all;
        }
    }

    void Release() {
        for (Op& op : waiting_) program_.ops.push_back(std::move(op));
        waiting_.clear();
    }

    // Checks only the tensors that this rank's layers read.
    Status CheckAllMet() const {
        for (const Value& value : program_.values) {
            const std::string& tensor = value.slice.name;
            if (adapters_.contains(tensor) && !met_.contains(tensor)) return NotMet(tensor);
        }
        if (!adapters_.contains(kEmbeddingTensor)) return {};
        const ValueId tokens = program_.Find("tokens");
        const bool others = std::ranges::any_of(program_.ops, [&](const Op& op) {
            return op.kind() != OpKind::kEmbedding &&
                   std::ranges::find(op.inputs, tokens) != op.inputs.end();
        });
        const int64_t rows = source_.FindTensor(kEmbeddingTensor)->rows;
        const int64_t tables = adapters_.at(kEmbeddingTensor).rbegin()->first + 1;
        const bool fits = rows <= std::numeric_limits<int32_t>::max() / tables;
        return others || others_read_tokens_ || !fits ? NotMet(kEmbeddingTensor) : Status();
    }

    Error NotMet(const std::string& tensor) const {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: an adapter changes tensor {}, which Weft cannot do beside this "
                         "model. 'weft merge MODEL --lora DIR -o OUT' writes a model with the "
                         "adapter, which you can use",
                         source_.name(), tensor);
    }

    Program& program_;
    const model_files::ModelSource& source_;
    const model_files::AdaptedParts adapters_;
    std::vector<Op> waiting_;          // emitted after the last product that reads the same value
    ValueId shared_input_ = kNoValue;  // of the last op
    bool others_read_tokens_ = false;  // another table has rows for tokens
    std::set<std::string> met_;
};

}  // namespace

Status AddAdapters(Program& program, const model_files::ModelSource& source) {
    return Adding(program, source).Run();
}

}  // namespace weft::model
