#include "model_files/lora/plan.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"
#include "model_files/hf/export.h"
#include "model_files/lora/adapter.h"

namespace weft::model_files {
namespace {

constexpr int64_t kMostRank = 4096;

bool EndsWithModule(const std::string& module, const std::string& name) {
    return module == name || module.ends_with("." + name);
}

// Whether an item of --lora-targets selects the module.
bool Means(const std::string& word, const std::string& module) {
    if (word == "all" || word == "all-linear") return true;
    if (word == "attn") return module.find(".self_attn.") != module.npos;
    if (word == "mlp") return module.find(".mlp.") != module.npos;
    return EndsWithModule(module, word);
}

// The 2-D weights of layers, except routers: the matrices that can be adapted. experts: receives
// the modules of experts, which are several matrices in one tensor.
Result<std::vector<LoraTarget>> Linears(const ModelSource& source,
                                        std::vector<std::string>& experts) {
    constexpr std::string_view kKind = ".weight";
    WEFT_ASSIGN(const auto tensors, hf::PlanExport(source, kAdapterPrefix));
    std::vector<LoraTarget> all;
    for (const hf::ExportTensor& tensor : tensors) {
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

// The error for an item that selects no matrix; `plan` lists all matrices.
Error NoTarget(const LoraPlan& plan, const std::string& word, const std::string& model,
               const std::vector<std::string>& experts) {
    const std::string who =
        plan.words.from.empty()
            ? "--lora-targets " + plan.words.targets
            : fmt::format("{}/adapter_config.json: target_modules", plan.words.from);
    const auto expert =
        std::ranges::find_if(experts, [&](const std::string& e) { return Means(word, e); });
    if (expert != experts.end()) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: '{}' is {} of {}, and adapters for experts are not supported. Leave "
                         "it out: the experts then stay unchanged",
                         who, word, *expert, model);
    }
    return MakeError(plan.words.from.empty() ? ErrorCode::kUsage : ErrorCode::kUnsupported,
                     "{}: no layer of {} has '{}'. Expected all, attn, mlp, or some of: {}", who,
                     model, word, fmt::join(plan.Modules(), ", "));
}

Status CheckWords(const LoraOptions& words) {
    if (words.rank >= 1 && words.rank <= kMostRank && words.alpha > 0 &&
        std::isfinite(words.alpha)) {
        return {};
    }
    if (!words.from.empty()) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}/adapter_config.json: r is {}, lora_alpha {}: expected 1 to {}, and "
                         "above 0",
                         words.from, words.rank, words.alpha, kMostRank);
    }
    return MakeError(ErrorCode::kUsage, "--lora {} --lora-alpha {}: expected 1 to {}, and above 0",
                     words.rank, words.alpha, kMostRank);
}

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

Result<LoraPlan> PlanLora(const ModelSource& source, const LoraOptions& words) {
    LoraPlan plan;
    plan.words = words;
    if (!words.from.empty()) {
        WEFT_ASSIGN(plan.words, ReadAdapterConfig(words.from));
        plan.words.seed = words.seed;
    }
    WEFT_TRY(CheckWords(plan.words));
    std::vector<std::string> experts;
    WEFT_ASSIGN(const std::vector<LoraTarget> linears, Linears(source, experts));
    const auto pieces = Split(plan.words.targets, ',');
    std::vector<std::string> wanted;
    for (const std::string_view piece : pieces) wanted.emplace_back(Trim(piece));
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
    return NoTarget(plan, wanted[static_cast<size_t>(lacks - met.begin())], source.name(), experts);
}

}  // namespace weft::model_files
