#include "train/lora/lora.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

namespace weft::train {
namespace {

using program::Cut;
using program::Op;
using program::OpKind;
using program::Program;
using program::Value;
using program::ValueId;

// Adds adapters op by op.
class Adding {
  public:
    Adding(Program& program, const LoraPlan& plan)
        : program_(program), plan_(plan), old_(std::exchange(program.ops, {})) {}

    Result<Adapters> Run() {
        for (Op& op : old_) {
            const LoraTarget* target = TargetOf(op);
            if (target == nullptr) {
                WEFT_TRY(Keep(std::move(op)));
                continue;
            }
            WEFT_TRY(Claim(op, *target));
            if (op.as<program::MatMul>().cut == Cut::kColumns) {
                waiting_.push_back({op, target});
                program_.ops.push_back(std::move(op));
            } else {
                AddAdapter(std::move(op), *target);
            }
        }
        WEFT_CHECK(waiting_.empty());
        for (const Value& value : program_.values) {
            if (value.storage != program::Storage::kWeight) continue;
            const LoraTarget* target = plan_.Find(value.slice.name);
            if (target == nullptr || claimed_.contains(target->tensor)) continue;
            return MakeError(ErrorCode::kUnsupported,
                             "{} is not read by a plain product, so it cannot have an adapter. "
                             "Leave {} out of --lora-targets",
                             target->tensor, target->module);
        }
        return std::move(adapters_);
    }

  private:
    struct Waiting {
        Op product;
        const LoraTarget* target;
    };
    // A tensor with an adapter: the products that read its rows and share the input x.
    struct Claimed {
        ValueId x = program::kNoValue;
        ValueId inner = program::kNoValue;  // scale * x . A^T, which these products share
        std::vector<std::pair<int64_t, int64_t>> rows;
    };

    const LoraTarget* TargetOf(const Op& op) const {
        if (op.kind() != OpKind::kMatMul) return nullptr;
        return plan_.Find(program_.value(op.inputs[1]).slice.name);
    }

    // Products of different rows of one tensor (Q, K and V of Phi-3) share A, and each has its own
    // rows of B.
    Status Claim(const Op& op, const LoraTarget& target) {
        const Value& weight = program_.value(op.inputs[1]);
        const int64_t begin = weight.slice.row_begin, end = begin + weight.shape[0];
        Claimed& claimed = claimed_[target.tensor];
        bool fits = claimed.rows.empty() ||
                    (claimed.x == op.inputs[0] && op.as<program::MatMul>().cut != Cut::kColumns);
        for (const auto& [other_begin, other_end] : claimed.rows) {
            fits = fits && (end <= other_begin || other_end <= begin);
        }
        if (!fits) {
            return MakeError(ErrorCode::kUnsupported,
                             "several products use {} with different inputs or the same rows, so "
                             "it cannot have an adapter. Leave {} out of --lora-targets",
                             target.tensor, target.module);
        }
        claimed.x = op.inputs[0];
        claimed.rows.emplace_back(begin, end);
        return {};
    }

    // Handles a product that is summed over ranks: its adapter follows that sum.
    Status Keep(Op op) {
        const auto found = std::ranges::find_if(waiting_, [&](const Waiting& w) {
            return std::ranges::find(op.inputs, w.product.outputs[0]) != op.inputs.end();
        });
        if (found == waiting_.end()) {
            program_.ops.push_back(std::move(op));
            return {};
        }
        const Waiting waiting = *found;
        // A shared expert's product is added to the experts' sum.
        if (op.kind() != OpKind::kAllReduce) {
            return MakeError(
                ErrorCode::kUnsupported,
                "tensor ranks sum {} together with other products, so an adapter for it is not "
                "supported with --tp. Leave {} out of --lora-targets, or use --pp or --zero",
                waiting.target->tensor, waiting.target->module);
        }
        waiting_.erase(found);
        const ValueId weight = waiting.product.inputs[1], sum = op.outputs[0];
        const ValueId base = Renamed(sum);
        op.outputs[0] = base;
        program_.ops.push_back(std::move(op));
        const ValueId part = Inner(waiting.product, *waiting.target, Cut::kColumns);
        const ValueId inner = program_.EmitLike(program::AllReduce{}, {part},
                                                program_.value(part).name + ".all", part);
        Join(base, Scaled(inner, *waiting.target, sum), weight, *waiting.target, program::MatMul{},
             sum);
        return {};
    }

    void AddAdapter(Op op, const LoraTarget& target) {
        const Op product = op;
        const ValueId sum = op.outputs[0], base = Renamed(sum);
        op.outputs[0] = base;
        program::MatMul outer;
        outer.cut = op.as<program::MatMul>().cut;
        outer.shared_rows = op.as<program::MatMul>().shared_rows;
        program_.ops.push_back(std::move(op));
        ValueId& inner = claimed_[target.tensor].inner;
        if (inner == program::kNoValue) {
            inner = Scaled(Inner(product, target, Cut::kNone), target, sum);
        }
        Join(base, inner, product.inputs[1], target, outer, sum);
    }

    // A value like `id`, for the product of the weight alone.
    ValueId Renamed(ValueId id) {
        Value value = program_.value(id);
        value.name += ".base";
        return program_.AddValue(std::move(value));
    }

    ValueId AddWeight(const Value& beside, const char* which, program::Shape shape,
                      program::WeightSlice slice) {
        Value value;
        value.name = beside.name + which;
        value.shape = shape;
        value.storage = program::Storage::kWeight;
        value.slice = std::move(slice);
        adapters_.weights.push_back(program_.AddValue(std::move(value)));
        return adapters_.weights.back();
    }

    // x . A^T
    ValueId Inner(const Op& product, const LoraTarget& target, Cut cut) {
        const Value weight = program_.value(product.inputs[1]);
        const Value y = program_.value(product.outputs[0]);
        const int64_t rank = target.rank;
        const ValueId a = AddWeight(weight, ".lora_a", {rank, weight.shape[1]},
                                    {.name = target.NameA(), .col_begin = weight.slice.col_begin});
        return program_.Emit(program::MatMul{cut}, {product.inputs[0], a}, y.name + ".lora_a",
                             {y.shape[0], rank});
    }

    ValueId Scaled(ValueId inner, const LoraTarget& target, ValueId sum) {
        return program_.EmitLike(program::Scale{static_cast<float>(target.scale)}, {inner},
                                 program_.value(sum).name + ".lora_scaled", inner);
    }

    // sum = base + inner . B^T
    void Join(ValueId base, ValueId inner, ValueId weight_id, const LoraTarget& target,
              program::MatMul outer, ValueId sum) {
        const Value weight = program_.value(weight_id);
        const ValueId b = AddWeight(weight, ".lora_b", {weight.shape[0], target.rank},
                                    {.name = target.NameB(), .row_begin = weight.slice.row_begin});
        const Value y = program_.value(sum);
        const ValueId added = program_.Emit(outer, {inner, b}, y.name + ".lora", y.shape);
        program_.ops.push_back({program::Add{}, {base, added}, {sum}});
        adapters_.sums.push_back(sum);
    }

    Program& program_;
    const LoraPlan& plan_;
    std::vector<Op> old_;
    std::map<std::string, Claimed> claimed_;  // by the tensor's name
    std::vector<Waiting> waiting_;            // whose sum over ranks follows
    Adapters adapters_;
};

}  // namespace

Result<Adapters> AddAdapters(Program& program, const LoraPlan& plan) {
    return Adding(program, plan).Run();
}

Status CheckStages(const LoraPlan& plan, std::span<const model::Shard> shards,
                   const std::string& model) {
    for (const model::Shard& shard : shards) {
        const auto has = [&](int64_t layer) {
            const std::string prefix = fmt::format("blk.{}.", layer);
            return std::ranges::any_of(plan.targets, [&](const LoraTarget& target) {
                return target.tensor.starts_with(prefix);
            });
        };
        bool found = false;
        const model::Span& layers = shard.layers;
        for (int64_t i = layers.begin; i < layers.end && !found; ++i) found = has(i);
        if (found) continue;
        return MakeError(ErrorCode::kUnsupported,
                         "{}: layers {} to {} (from 0) are a pipeline stage, and none of them has "
                         "a matrix for adapters of {}. Use other --lora-targets, or fewer stages",
                         model, layers.begin, layers.end - 1, fmt::join(plan.Modules(), ", "));
    }
    return {};
}

}  // namespace weft::train
