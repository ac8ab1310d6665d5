#include "train/lora/lora.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "formats/hf/export.h"
#include "train/lora/adapter.h"

namespace weft::train {
namespace {

using program::Cut;
using program::Op;
using program::OpKind;
using program::Program;
using program::Value;
using program::ValueId;

constexpr int64_t kMostRank = 4096;

bool EndsWithModule(const std::string& module, const std::string& name) {
    return module == name || module.ends_with("." + name);
}

// Whether a word of --lora-targets means the module.
bool Means(const std::string& word, const std::string& module) {
    if (word == "all" || word == "all-linear") return true;
    if (word == "attn") return module.find(".self_attn.") != module.npos;
    if (word == "mlp") return module.find(".mlp.") != module.npos;
    return EndsWithModule(module, word);
}

std::vector<std::string> SplitWords(const std::string& words) {
    std::vector<std::string> out;
    for (size_t begin = 0; begin <= words.size();) {
        const size_t end = std::min(words.find(',', begin), words.size());
        out.push_back(words.substr(begin, end - begin));
        begin = end + 1;
    }
    return out;
}

// The two-dimensional weights of layers, which adapters can be put beside; routers are left alone.
// experts: grows by the modules of experts, which are several matrices in one tensor.
Result<std::vector<LoraTarget>> Linears(const formats::ModelSource& source,
                                        std::vector<std::string>& experts) {
    constexpr std::string_view kKind = ".weight";
    WEFT_ASSIGN(const auto tensors, formats::hf::PlanExport(source, kAdapterPrefix));
    std::vector<LoraTarget> all;
    for (const formats::hf::ExportTensor& tensor : tensors) {
        const bool matrix =
            tensor.name.starts_with("model.layers.") && tensor.name.ends_with(kKind);
        if (matrix && tensor.from->dim_count == 3) {
            experts.push_back(tensor.name.substr(0, tensor.name.size() - kKind.size()));
        }
        const bool router = tensor.from->name.ends_with(".ffn_gate_inp.weight");
        if (!matrix || tensor.from->dim_count != 2 || router) continue;
        all.push_back({tensor.from->name, tensor.name.substr(0, tensor.name.size() - kKind.size()),
                       tensor.from->rows, tensor.from->cols, tensor.pairs_of});
    }
    return all;
}

Status CheckWords(const LoraWords& words) {
    if (words.rank >= 1 && words.rank <= kMostRank && words.alpha > 0 &&
        std::isfinite(words.alpha)) {
        return {};
    }
    return MakeError(ErrorCode::kUsage, "--lora {} --lora-alpha {}: expected 1 to {}, and above 0",
                     words.rank, words.alpha, kMostRank);
}

// Puts adapters in, op by op.
class Adding {
  public:
    Adding(Program& program, const LoraPlan& plan)
        : program_(program), plan_(plan), old_(std::exchange(program.ops, {})) {}

    Result<Adapters> Run() {
        for (Op& op : old_) {
            const LoraTarget* target = TargetOf(op);
            if (target == nullptr) {
                Keep(std::move(op));
                continue;
            }
            if (!seen_.insert(target->tensor).second) {
                return MakeError(ErrorCode::kUnsupported,
                                 "{} is several matrices in one: an adapter beside it is not "
                                 "supported. Leave {} out of --lora-targets",
                                 target->tensor, target->module);
            }
            if (op.as<program::MatMul>().cut == Cut::kColumns) {
                waiting_.push_back({op, target});
                program_.ops.push_back(std::move(op));
            } else {
                Beside(std::move(op), *target);
            }
        }
        WEFT_CHECK(waiting_.empty());
        return std::move(adapters_);
    }

  private:
    struct Waiting {
        Op product;
        const LoraTarget* target;
    };

    const LoraTarget* TargetOf(const Op& op) const {
        if (op.kind() != OpKind::kMatMul) return nullptr;
        return plan_.Find(program_.value(op.inputs[1]).slice.name);
    }

    // A product whose sum over ranks is meant: its adapter stands behind that sum.
    void Keep(Op op) {
        const auto found = std::ranges::find_if(waiting_, [&](const Waiting& w) {
            return std::ranges::find(op.inputs, w.product.outputs[0]) != op.inputs.end();
        });
        if (found == waiting_.end()) {
            program_.ops.push_back(std::move(op));
            return;
        }
        WEFT_CHECK(op.kind() == OpKind::kAllReduce);
        const Waiting waiting = *found;
        waiting_.erase(found);
        const ValueId weight = waiting.product.inputs[1], sum = op.outputs[0];
        const ValueId base = Renamed(sum);
        op.outputs[0] = base;
        program_.ops.push_back(std::move(op));
        const ValueId part = Inner(waiting.product, *waiting.target, Cut::kColumns);
        const ValueId inner =
            program_.Emit(program::AllReduce{}, {part}, program_.value(part).name + ".all",
                          program_.value(part).shape);
        Join(base, inner, weight, *waiting.target, program::MatMul{}, sum);
    }

    void Beside(Op op, const LoraTarget& target) {
        const Op product = op;
        const ValueId sum = op.outputs[0], base = Renamed(sum);
        op.outputs[0] = base;
        program::MatMul outer;
        outer.cut = op.as<program::MatMul>().cut;
        outer.shared_rows = op.as<program::MatMul>().shared_rows;
        program_.ops.push_back(std::move(op));
        Join(base, Inner(product, target, Cut::kNone), product.inputs[1], target, outer, sum);
    }

    // A value as `id`, for what the weight alone gives.
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
        const int64_t rank = plan_.words.rank;
        const ValueId a = AddWeight(weight, ".lora_a", {rank, weight.shape[1]},
                                    {.name = target.NameA(), .col_begin = weight.slice.col_begin});
        return program_.Emit(program::MatMul{cut}, {product.inputs[0], a}, y.name + ".lora_a",
                             {y.shape[0], rank});
    }

    // sum = base + scale * inner . B^T
    void Join(ValueId base, ValueId inner, ValueId weight_id, const LoraTarget& target,
              program::MatMul outer, ValueId sum) {
        const Value weight = program_.value(weight_id);
        const ValueId b = AddWeight(weight, ".lora_b", {weight.shape[0], plan_.words.rank},
                                    {.name = target.NameB(), .row_begin = weight.slice.row_begin});
        const Value y = program_.value(sum);
        const ValueId scaled =
            program_.Emit(program::Scale{static_cast<float>(plan_.scale())}, {inner},
                          y.name + ".lora_scaled", program_.value(inner).shape);
        const ValueId added = program_.Emit(outer, {scaled, b}, y.name + ".lora", y.shape);
        program_.ops.push_back({program::Add{}, {base, added}, {sum}});
        adapters_.sums.push_back(sum);
    }

    Program& program_;
    const LoraPlan& plan_;
    std::vector<Op> old_;
    std::set<std::string> seen_;
    std::vector<Waiting> waiting_;  // for the sum over ranks
    Adapters adapters_;
};

}  // namespace

std::string LoraTarget::NameA() const {
    return fmt::format("{}model.{}.lora_A.weight", kAdapterPrefix, module);
}

std::string LoraTarget::NameB() const {
    return fmt::format("{}model.{}.lora_B.weight", kAdapterPrefix, module);
}

double LoraPlan::scale() const {
    const auto rank = static_cast<double>(words.rank);
    return words.alpha / (words.rslora ? std::sqrt(rank) : rank);
}

std::vector<std::string> LoraPlan::Modules() const {
    std::set<std::string> names;
    for (const LoraTarget& target : targets) {
        names.insert(target.module.substr(target.module.rfind('.') + 1));
    }
    return {names.begin(), names.end()};
}

const LoraTarget* LoraPlan::Find(std::string_view tensor) const {
    const auto found = std::ranges::find(targets, tensor, &LoraTarget::tensor);
    return found == targets.end() ? nullptr : &*found;
}

Result<LoraPlan> PlanLora(const formats::ModelSource& source, const LoraWords& words) {
    LoraPlan plan;
    plan.words = words;
    if (!words.from.empty()) {
        WEFT_ASSIGN(plan.words, ReadAdapterConfig(words.from));
        plan.words.seed = words.seed;
    }
    WEFT_TRY(CheckWords(plan.words));
    std::vector<std::string> experts;
    WEFT_ASSIGN(const std::vector<LoraTarget> linears, Linears(source, experts));
    const std::vector<std::string> wanted = SplitWords(plan.words.targets);
    std::vector<bool> met(wanted.size(), false);
    for (const LoraTarget& linear : linears) {
        bool chosen = false;
        for (size_t i = 0; i < wanted.size(); ++i) {
            if (!Means(wanted[i], linear.module)) continue;
            chosen = met[i] = true;
        }
        if (chosen) plan.targets.push_back(linear);
    }
    const auto lacks = std::ranges::find(met, false);
    if (lacks == met.end()) return plan;
    plan.targets = linears;
    const std::string& word = wanted[static_cast<size_t>(lacks - met.begin())];
    const auto expert =
        std::ranges::find_if(experts, [&](const std::string& e) { return Means(word, e); });
    if (expert != experts.end()) {
        return MakeError(ErrorCode::kUnsupported,
                         "--lora-targets {}: '{}' is {} of {}, and adapters beside experts are not "
                         "supported. Leave it out: the experts stay as they are",
                         plan.words.targets, word, *expert, source.name());
    }
    return MakeError(ErrorCode::kUsage,
                     "--lora-targets {}: no layer of {} has '{}'. Expected all, attn, mlp, or some "
                     "of: {}",
                     plan.words.targets, source.name(), word, fmt::join(plan.Modules(), ", "));
}

Result<Adapters> AddAdapters(Program& program, const LoraPlan& plan) {
    return Adding(program, plan).Run();
}

}  // namespace weft::train
