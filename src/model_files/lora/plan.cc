#include "model_files/lora/plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "base/text.h"
#include "model_files/hf/export.h"
#include "model_files/lora/adapter.h"
#include "model_files/lora/adapter_config.h"

namespace weft::model_files {
namespace {

constexpr int64_t kMostRank = 4096;

bool EndsWithModule(const std::string& module, const std::string& name) {
    return module == name || module.ends_with("." + name);
}

// Whether an item of --lora-targets selects the module.
bool Means(const std::string& word, const std::string& module) {
    if (word == "all" || word == "all-linear") return true;
    const auto any = [&](std::initializer_list<const char*> parts) {
        return std::ranges::any_of(
            parts, [&](const char* part) { return module.find(part) != module.npos; });
    };
    if (word == "attn") return any({".self_attn.", ".self_attention.", ".attention.", ".attn."});
    if (word == "mlp") return any({".mlp.", ".ffn.", ".feed_forward.", ".fc1", ".fc2"});
    return EndsWithModule(module, word);
}

constexpr std::string_view kWeight = ".weight";

struct Matrices {
    std::vector<hf::ExportTensor> names;  // of all tensors with a name in the folder
    std::vector<LoraTarget> linears;      // 2-D weights of layers, except routers
    std::vector<LoraTarget> routers;      // can be adapted, but training's "all" leaves them out
    std::vector<LoraTarget> fused;        // of a module that holds queries, keys and values
    std::vector<std::string> experts;     // modules of experts, which share one tensor
    std::set<std::string> drafts;         // "model.layers.46.": predict tokens beyond the next
    // "model.embed_tokens" and "model.lm_head"; empty: the class has no such matrix.
    std::string embedding, output;
    std::optional<hf::EndFactors> factors;  // of both, if they are known
    // The model's values of a module, divided by the folder's.
    double FactorOf(std::string_view module) const {
        if (module.empty() || !factors) return 1;
        if (module == embedding) return factors->embedding;
        return module == output ? factors->output : 1;
    }
};

std::string ModuleOf(const hf::ExportTensor& tensor) {
    return tensor.name.substr(0, tensor.name.size() - kWeight.size());
}

// "model.layers.46." of "blk.46.attn_q.weight"; "": of no layer.
std::string LayerOf(const std::string& tensor) {
    constexpr std::string_view kBegin = "blk.";
    const size_t end = tensor.find('.', kBegin.size());
    if (!tensor.starts_with(kBegin) || end == tensor.npos) return "";
    return fmt::format("model.layers.{}.", tensor.substr(kBegin.size(), end - kBegin.size()));
}

Result<Matrices> MatricesOf(const ModelSource& source) {
    Matrices all;
    WEFT_ASSIGN(all.names, hf::FolderNames(source, kAdapterPrefix));
    // The model's class in transformers lacks the layers that predict tokens beyond the next.
    for (const TensorInfo& tensor : source.tensors()) {
        if (tensor.name.find(".nextn.") != tensor.name.npos) {
            all.drafts.insert(LayerOf(tensor.name));
        }
    }
    std::erase_if(all.names, [&](const hf::ExportTensor& tensor) {
        return all.drafts.contains(LayerOf(tensor.from->name));
    });
    WEFT_ASSIGN(all.factors, hf::EndFactorsOf(source));
    WEFT_ASSIGN(all.output, hf::OutputModuleOf(source));
    if (!all.output.empty()) all.output = ModuleInMemory("model." + all.output);
    for (hf::ExportTensor& tensor : all.names) {
        tensor.name = ModuleInMemory(std::move(tensor.name));
        if (tensor.from->name == "token_embd.weight") all.embedding = ModuleOf(tensor);
        const bool matrix =
            tensor.name.starts_with("model.layers.") && tensor.name.ends_with(kWeight);
        if (!matrix) continue;
        const bool fused = tensor.runs.stride > 0;
        if (tensor.from->dim_count == 3 && !fused) all.experts.push_back(ModuleOf(tensor));
        if (tensor.from->dim_count != 2 && !fused) continue;
        const bool router = tensor.from->name.ends_with(".ffn_gate_inp.weight");
        LoraTarget target{tensor.from->name, ModuleOf(tensor), tensor.rows, tensor.from->cols,
                          tensor.pairs_of};
        if (fused) {
            target.row_begin = tensor.row_begin;
            target.runs = tensor.runs;
            target.columns = tensor.columns;
            target.factor = tensor.factor;
            if (tensor.keys) {
                target.form = LoraTarget::Form::kKeys;
                target.experts = tensor.from->dims[2];
            }
            all.fused.push_back(std::move(target));
            continue;
        }
        (router ? all.routers : all.linears).push_back(std::move(target));
    }
    return all;
}

void SetScale(LoraTarget& target, int64_t rank, double alpha, bool rslora) {
    const auto r = static_cast<double>(rank);
    target.rank = rank;
    target.alpha = alpha;
    target.scale = target.factor * alpha / (rslora ? std::sqrt(r) : r);
}

std::string LastName(const std::string& module) {
    return module.substr(module.rfind('.') + 1);
}

// The next step where a file may have other names than the folder that it was made from.
const char* UseFolder(const ModelSource& source) {
    return source.folder().empty() ? " If not, use the model's Hugging Face folder" : "";
}

// The error for an item that selects no matrix; `plan` lists all matrices.
Error NoTarget(const LoraPlan& plan, const std::string& word, const std::string& model,
               const Matrices& matrices) {
    const std::string who = "--lora-targets " + plan.words.targets;
    const auto means = [&](const std::string& module) { return Means(word, module); };
    const auto fused = std::ranges::find_if(matrices.fused, means, &LoraTarget::module);
    if (fused != matrices.fused.end()) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: Weft holds {} of {} in another form, and applies adapters of it "
                         "but trains none. Leave it out, or train it with PEFT",
                         who, fused->module, model);
    }
    const auto expert = std::ranges::find_if(matrices.experts, means);
    if (expert != matrices.experts.end()) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: '{}' is {} of {}, and adapters for experts are not supported. Leave "
                         "it out: the experts then stay unchanged",
                         who, word, *expert, model);
    }
    if (plan.Modules().empty()) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: {} has no matrix that a LoRA adapter of Weft can change", who, model);
    }
    return MakeError(ErrorCode::kUsage,
                     "{}: no layer of {} has '{}'. Expected all, attn, mlp, or some of: {}", who,
                     model, word, fmt::join(plan.Modules(), ", "));
}

constexpr double kMostAlpha = 1 << 20;

bool GoodScale(int64_t rank, double alpha) {
    return rank >= 1 && rank <= kMostRank && alpha > 0 && alpha <= kMostAlpha;
}

Status CheckWords(const LoraOptions& words) {
    if (GoodScale(words.rank, words.alpha)) return {};
    return MakeError(ErrorCode::kUsage,
                     "--lora {} --lora-alpha {}: expected 1 to {}, and above 0 (at most {:.0f})",
                     words.rank, words.alpha, kMostRank, kMostAlpha);
}

}  // namespace

std::string ModuleInMemory(std::string name) {
    constexpr std::pair<std::string_view, std::string_view> kNames[] = {
        {"block_sparse_moe.gate", "mlp.gate"}, {"embed_out", "lm_head"}};
    for (const auto& [saved, in_memory] : kNames) {
        for (size_t at = name.find(saved); at != name.npos; at = name.find(saved, at + 1)) {
            const size_t end = at + saved.size();
            if (end == name.size() || name[end] == '.' || name[end] == ',') {
                name.replace(at, saved.size(), in_memory);
            }
        }
    }
    return name;
}

std::string WithoutPath(std::string name) {
    // Names in classes that generate text, and (the last two) in classes of features.
    constexpr std::string_view kPaths[] = {"model.language_model.",
                                           "language_model.model.",
                                           "model.decoder.",
                                           "transformer.",
                                           "gpt_neox.",
                                           "gpt_neox_japanese.",
                                           "biogpt.",
                                           "backbone.",
                                           "model.",
                                           "language_model.",
                                           "decoder."};
    const auto* path = std::ranges::find_if(
        kPaths, [&](std::string_view begin) { return name.starts_with(begin); });
    if (path != std::end(kPaths)) name.erase(0, path->size());
    for (const std::string_view layers : {"h.", "blocks."}) {
        if (name.starts_with(layers)) name.replace(0, layers.size(), "layers.");
    }
    return name;
}

bool HasPairedExperts(const ModelSource& source) {
    return std::ranges::any_of(source.tensors(), [](const TensorInfo& tensor) {
        return tensor.name.ends_with(".ffn_gate_exps.bias");
    });
}

std::string LoraTarget::NameA() const {
    const char* end = form == Form::kEmbedding ? "lora_embedding_A" : "lora_A.weight";
    return fmt::format("{}model.{}.{}", kAdapterPrefix, module, end);
}

std::string LoraTarget::NameB() const {
    const char* end = form == Form::kEmbedding ? "lora_embedding_B" : "lora_B.weight";
    return fmt::format("{}model.{}.{}", kAdapterPrefix, module, end);
}

std::string LoraTarget::NameOfLengths() const {
    return fmt::format("{}model.{}.lora_magnitude_vector", kAdapterPrefix, module);
}

std::string LoraWhole::FileName() const {
    return fmt::format("{}model.{}", kAdapterPrefix, name);
}

std::vector<std::string> LoraPlan::Modules() const {
    std::set<std::string> names;
    for (const LoraTarget& target : targets) {
        const std::string name = LastName(target.module);
        names.insert(partial.contains(name) ? target.module : name);
    }
    return {names.begin(), names.end()};
}

const LoraTarget* LoraPlan::Find(std::string_view tensor) const {
    const auto found = std::ranges::find(targets, tensor, &LoraTarget::tensor);
    return found == targets.end() ? nullptr : &*found;
}

bool LoraPlan::ChangesEnds() const {
    const auto at_end = [](const auto& one) {
        return one.tensor == "token_embd.weight" || one.tensor == "output.weight";
    };
    return std::ranges::any_of(targets, at_end) || std::ranges::any_of(wholes, at_end);
}

std::string LoraPlan::LeftOutText() const {
    if (left_out.empty()) return "";
    std::vector<std::string> parts;
    for (const std::string& part : left_out) parts.push_back(part.substr(6, part.size() - 7));
    return fmt::format(
        "{}: Weft applies adapters to the layers of the text model, and leaves out this one's "
        "tensors for {}",
        words.from, hf::Shown(fmt::format("{}", fmt::join(parts, ", "))));
}

namespace {

// Sets `chosen`: whether an item selects each matrix. Returns the index of an item that selects no
// matrix, or npos if each item selects one.
size_t Select(const std::vector<std::string>& wanted, const std::vector<LoraTarget>& linears,
              std::vector<bool>& chosen) {
    std::vector<bool> met(wanted.size(), false);
    chosen.assign(linears.size(), false);
    for (size_t at = 0; at < linears.size(); ++at) {
        for (size_t i = 0; i < wanted.size(); ++i) {
            if (!Means(wanted[i], linears[at].module)) continue;
            chosen[at] = met[i] = true;
        }
    }
    const auto lacks = std::ranges::find(met, false);
    return lacks == met.end() ? std::string::npos : static_cast<size_t>(lacks - met.begin());
}

std::vector<std::string> ItemsOf(const std::string& targets) {
    std::vector<std::string> items;
    if (targets.empty()) return items;
    for (const std::string_view piece : Split(targets, ',')) {
        items.push_back(WithoutPath(std::string(Trim(piece))));
    }
    return items;
}

// "model.lm_head.weight" from "lm_head.weight": in adapter files all names begin so (PlainName).
std::string InFile(const std::string& name) {
    return name.starts_with("model.") ? name : "model." + name;
}

// Finds the matrices that training cannot adapt. Of() returns nothing for another module.
class MergedTargets {
  public:
    MergedTargets(const ModelSource& source, const Matrices& matrices)
        : source_(source), names_(matrices.names), matrices_(matrices) {
        for (const LoraTarget& part : matrices.fused) fused_[part.module].push_back(part);
        for (const hf::ExportTensor& tensor : names_) {
            const bool outside = !tensor.name.starts_with("model.layers.");
            const bool matrix = tensor.from->dim_count == 3 ||
                                (outside && tensor.from->dim_count == 2 && !tensor.turned);
            if (matrix && tensor.runs.stride == 0) parts_.try_emplace(ModuleOf(tensor), &tensor);
        }
    }

    std::vector<LoraTarget> Of(const AdapterModule& module) const {
        const bool end = module.module == matrices_.embedding || module.module == matrices_.output;
        if (end && !matrices_.embedding.empty()) return {End(module)};
        if (const auto parts = fused_.find(module.module); parts != fused_.end()) {
            return parts->second;
        }
        const auto found = parts_.find(module.module);
        if (found == parts_.end()) return Experts(module);
        const hf::ExportTensor& tensor = *found->second;
        LoraTarget target{tensor.from->name, module.module, tensor.rows, tensor.from->cols, 0};
        target.row_begin = tensor.row_begin;
        return {target};
    }

  private:
    LoraTarget End(const AdapterModule& module) const {
        const TensorInfo* embedding = source_.FindTensor("token_embd.weight");
        WEFT_CHECK(embedding != nullptr);
        const bool head = module.module == matrices_.output;
        LoraTarget target{head ? "output.weight" : embedding->name, module.module, embedding->rows,
                          embedding->cols, 0};
        target.factor = matrices_.FactorOf(module.module);
        if (module.embedding) target.form = LoraTarget::Form::kEmbedding;
        return target;
    }

    // "model.layers.3.mlp.experts", or ...experts.base_layer if both of its parameters have A and
    // B: the shapes show which tensors belong to gate and up.
    std::vector<LoraTarget> Experts(const AdapterModule& module) const {
        constexpr std::string_view kLayers = "model.layers.";
        std::string_view rest = module.module;
        if (rest.ends_with(".base_layer")) rest.remove_suffix(11);
        if (!rest.starts_with(kLayers) || !rest.ends_with(".experts")) return {};
        rest.remove_prefix(kLayers.size());
        const std::string layer(rest.substr(0, rest.find('.')));
        const auto find = [&](const char* which) {
            return FindExperts(fmt::format("blk.{}.ffn_{}_exps.weight", layer, which));
        };
        const TensorInfo *gate = find("gate"), *up = find("up"), *down = find("down");
        if (gate == nullptr || up == nullptr || down == nullptr) return {};
        const int64_t experts = down->dims[2];
        const auto is_stack = [&](const TensorInfo* tensor) {
            return tensor->dim_count == 3 && tensor->dims[2] == experts && experts > 0;
        };
        const bool alike = up->rows == gate->rows && up->cols == gate->cols;
        if (!alike || !is_stack(gate) || !is_stack(up) || !is_stack(down)) return {};
        const auto target = [&](const TensorInfo& tensor, const hf::RowRuns& runs) {
            LoraTarget one{tensor.name, module.module, tensor.rows, tensor.cols, 0};
            one.form = LoraTarget::Form::kExperts;
            one.experts = experts;
            one.runs = runs;
            return one;
        };
        const int64_t wide = gate->rows / experts;
        if (module.a_cols == gate->cols && module.b_rows == 2 * wide) {
            if (HasPairedExperts(source_))
                return {target(*gate, {0, 1, 2}), target(*up, {1, 1, 2})};
            return {target(*gate, {0, wide, 2 * wide}), target(*up, {wide, wide, 2 * wide})};
        }
        if (module.a_cols == down->cols && module.b_rows == down->rows / experts) {
            return {target(*down, {})};
        }
        return {};
    }

    // Only if the folder has the tensor as one matrix per expert, gate before up, or interleaved:
    // other models may exchange them.
    const TensorInfo* FindExperts(const std::string& name) const {
        if (HasPairedExperts(source_)) return source_.FindTensor(name);
        const auto of = [&](const hf::ExportTensor& tensor) { return tensor.from->name == name; };
        const auto found = std::ranges::find_if(names_, of);
        return found != names_.end() && found->from->dim_count == 3 ? found->from : nullptr;
    }

    const ModelSource& source_;
    const std::vector<hf::ExportTensor>& names_;
    const Matrices& matrices_;
    // By module. parts_: matrices outside of layers and of single experts; folders have tens of
    // thousands.
    std::map<std::string, std::vector<LoraTarget>> fused_;
    std::map<std::string, const hf::ExportTensor*> parts_;
};

// In the names of classes that have the text model as a part, and in the names of other parts.
constexpr std::string_view kNested = "language_model.";
constexpr const char* kOtherParts[] = {"vision", "visual",      "image",
                                       "audio",  "multi_modal", "speech"};

// Plans what the file of an adapter has.
class FilePlanner {
  public:
    FilePlanner(const ModelSource& source, const AdapterConfig& config, const Matrices& matrices,
                LoraUse use, LoraPlan& plan)
        : source_(source),
          config_(config),
          matrices_(matrices),
          merged_(source, matrices),
          use_(use),
          plan_(plan) {}

    Status Run(const AdapterNames& names) {
        const auto is_nested = [](const AdapterModule& module) {
            return module.saved.find(kNested) != module.saved.npos;
        };
        nested_ = std::ranges::any_of(names.modules, is_nested);
        std::vector<LoraTarget> all = matrices_.linears;
        all.insert(all.end(), matrices_.routers.begin(), matrices_.routers.end());
        std::vector<LoraTarget> others;
        for (const AdapterModule& module : names.modules) {
            if (LeavesOut(module)) continue;
            const auto found = std::ranges::find(all, module.module, &LoraTarget::module);
            if (found != all.end()) {
                WEFT_TRY(Scale(module, *found));
                found->dora = config_.dora;
                continue;
            }
            WEFT_ASSIGN(const std::vector<LoraTarget> more, Others(module));
            for (LoraTarget target : more) {
                WEFT_TRY(Scale(module, target));
                others.push_back(std::move(target));
            }
        }
        for (LoraTarget& matrix : all) {
            if (matrix.rank == 0) {
                plan_.partial.insert(LastName(matrix.module));
            } else {
                plan_.targets.push_back(std::move(matrix));
            }
        }
        for (LoraTarget& target : others) plan_.targets.push_back(std::move(target));
        WEFT_TRY(AddWholes(names));
        if (!plan_.targets.empty() || !plan_.wholes.empty()) return {};
        return MakeError(ErrorCode::kUnsupported, "{}. It has no others", plan_.LeftOutText());
    }

  private:
    // Whether the module is in another part of a multimodal model, or in a layer that predicts
    // tokens beyond the next.
    bool LeavesOut(const AdapterModule& module) {
        constexpr std::string_view kModel = "model.", kLayers = "model.layers.";
        const std::string name = module.module + ".";
        const size_t begin = (name.starts_with(kLayers) ? kLayers : kModel).size();
        std::string part = name.substr(0, name.find('.', begin) + 1);
        bool other = matrices_.drafts.contains(part);
        if (begin == kModel.size() && part != matrices_.output + "." && part != "model.score.") {
            const bool inside = module.saved.find(kNested) != module.saved.npos;
            const auto has = [&](const char* word) { return part.find(word) != part.npos; };
            other = !inside && (nested_ || std::ranges::any_of(kOtherParts, has));
        }
        if (other) plan_.left_out.insert(std::move(part));
        return other;
    }

    // `rows`: of tokens, in an adapter that changes the embedding or the output matrix.
    Status CheckTokens(const AdapterModule& module, int64_t rows) const {
        const TensorInfo* const table = source_.FindTensor("token_embd.weight");
        if (table == nullptr || rows == 0 || rows == table->rows) return {};
        return MakeError(
            ErrorCode::kUnsupported,
            "{}: '{}' has rows for {} tokens, and {} has rows for {}. Was the adapter "
            "trained after resize_token_embeddings()? Merge it with PEFT into the "
            "model of that size, and use the merged model with the adapter's tokenizer",
            plan_.words.from, hf::Shown(module.saved), rows, source_.name(), table->rows);
    }

    // An error if `name` is the embedding or the output matrix, and its factor is not known.
    Status CheckFactor(const AdapterModule& module, std::string_view name) const {
        const bool end = name == matrices_.embedding || name == matrices_.output;
        if (!end || name.empty() || matrices_.factors.has_value()) return {};
        return MakeError(ErrorCode::kUnsupported,
                         "{}: has '{}', and the file of {} does not state by what factor it "
                         "multiplied this matrix. Use the model's Hugging Face folder",
                         plan_.words.from, hf::Shown(module.saved), source_.name());
    }

    Result<std::vector<LoraTarget>> Others(const AdapterModule& module) const {
        WEFT_TRY(CheckFactor(module, module.module));
        std::vector<LoraTarget> more = merged_.Of(module);
        if (more.empty()) {
            return MakeError(ErrorCode::kUnsupported,
                             "{}: has an adapter for '{}', which is not a matrix of {} that Weft "
                             "can change. Is it an adapter of another model?{}",
                             plan_.words.from, hf::Shown(module.saved), source_.name(),
                             UseFolder(source_));
        }
        const bool head = more[0].tensor == "output.weight";
        if (head || module.embedding) {
            WEFT_TRY(CheckTokens(module, module.embedding ? module.a_cols : module.b_rows));
        }
        const bool fused = more[0].runs.stride > 0 && more[0].form == LoraTarget::Form::kMatrix;
        const bool scales = config_.dora && !fused && (!head || module.embedding);
        if (use_ == LoraUse::kApply && !scales) {
            for (LoraTarget& target : more) target.dora = config_.dora;
            return more;
        }
        return MakeError(ErrorCode::kUnsupported, "{}: has {} for '{}'; expected only {}",
                         plan_.words.from, scales ? "DoRA's A and B" : "an adapter",
                         hf::Shown(module.saved),
                         scales ? "matrices of layers, except experts, and the output matrix"
                                : "matrices of layers in training. 'weft merge MODEL --lora DIR "
                                  "-o OUT' writes a model with it, which you can use");
    }

    // The name to which rank_pattern and alpha_pattern apply: with the parameter's name, if PEFT
    // adapts parameters.
    std::string PatternName(const AdapterModule& module, const LoraTarget& target) const {
        std::string name = module.saved;
        if (target.form == LoraTarget::Form::kExperts) {
            if (name.ends_with(".base_layer")) name.resize(name.size() - 11);
            const bool down = target.tensor.find("_down_") != target.tensor.npos;
            return name + (down ? ".down_proj" : ".gate_up_proj");
        }
        const std::string parameter = name + std::string(kWeight);
        const bool own = std::ranges::any_of(config_.parameters, [&](const std::string& one) {
            return EndsWithModule(parameter, one);
        });
        return own ? parameter : name;
    }

    Status Scale(const AdapterModule& module, LoraTarget& target) const {
        const std::string name = PatternName(module, target);
        const int64_t rank = config_.RankOf(name);
        const double alpha = config_.AlphaOf(name);
        if (!GoodScale(rank, alpha)) {
            return MakeError(ErrorCode::kUnsupported,
                             "{}/adapter_config.json: '{}' has rank {} and alpha {}: expected 1 to "
                             "{}, and above 0 (at most {:.0f})",
                             plan_.words.from, hf::Shown(module.saved), rank, alpha, kMostRank,
                             kMostAlpha);
        }
        SetScale(target, rank, alpha, plan_.words.rslora);
        return {};
    }

    // Each module of the model that was saved according to the config. As in PEFT, a name means the
    // modules whose names end with it, and is ignored if there are none.
    Status CheckSaved(const AdapterNames& names) const {
        for (const std::string& saved : config_.saved) {
            // (PEFT lists both names of a score head, of which a class has one.)
            const bool of_head = saved == "classifier" || saved == "score";
            const auto means = [&](std::string_view tensor) {
                return tensor.find((of_head ? "score" : saved) + ".") != tensor.npos;
            };
            const bool has =
                of_head ? config_.scores
                        : means(matrices_.output + ".") ||
                              std::ranges::any_of(matrices_.names, means, &hf::ExportTensor::name);
            if (!has || std::ranges::any_of(names.wholes, means, &AdapterModule::module)) continue;
            return MakeError(ErrorCode::kCorrupt,
                             "{}/adapter_config.json: modules_to_save has '{}', but no tensor of "
                             "the adapter is of such a module. Save the adapter again",
                             plan_.words.from, hf::Shown(saved));
        }
        return {};
    }

    // Rows of the embedding or of the output matrix. If these are one matrix, both change.
    Status AddTokenRows(const AdapterModule& rows) {
        const std::string module = rows.module.substr(0, rows.module.size() - kTokenRows.size());
        const TensorInfo* const table = source_.FindTensor("token_embd.weight");
        WEFT_TRY(CheckFactor(rows, module));
        const std::string saved = rows.saved.substr(0, rows.saved.size() - kTokenRows.size());
        const bool embedding = module == matrices_.embedding;
        const auto found = std::ranges::find_if(
            config_.tokens, [&](const auto& one) { return saved.ends_with(one.first); });
        if (table != nullptr && found != config_.tokens.end() && !found->second.empty()) {
            const int64_t last = *std::ranges::max_element(found->second);
            WEFT_TRY(CheckTokens(rows, std::max(last + 1, table->rows)));
        }
        const bool fits = table != nullptr && !matrices_.embedding.empty() &&
                          (embedding || module == matrices_.output) &&
                          found != config_.tokens.end();
        if (!fits) {
            return MakeError(ErrorCode::kUnsupported,
                             "{}: '{}' is not one of rows of {} that trainable_token_indices lists",
                             plan_.words.from, hf::Shown(rows.saved), source_.name());
        }
        const auto add = [&](const std::string& tensor, const std::string& of) {
            plan_.wholes.push_back(
                {tensor, rows.module, 0, 0, found->second, 0, matrices_.FactorOf(of)});
        };
        if (embedding) add(table->name, module);
        if (!embedding || matrices_.factors->tied) add("output.weight", matrices_.output);
        return {};
    }

    Status AddWholes(const AdapterNames& names) {
        if (use_ != LoraUse::kApply) return {};
        WEFT_TRY(CheckSaved(names));
        for (const AdapterModule& whole : names.wholes) {
            if (LeavesOut(whole)) continue;
            if (whole.module.ends_with(kTokenRows)) {
                WEFT_TRY(AddTokenRows(whole));
                continue;
            }
            const auto is = [&](const hf::ExportTensor& tensor) {
                const bool turned = tensor.turned && tensor.from->dim_count == 2;
                return tensor.from->dim_count < 3 && tensor.runs.stride == 0 && !turned &&
                       InFile(tensor.name) == whole.module;
            };
            const auto found = std::ranges::find_if(matrices_.names, is);
            const bool matrix = whole.module.ends_with(kWeight);
            const std::string module =
                matrix ? whole.module.substr(0, whole.module.size() - kWeight.size()) : "";
            WEFT_TRY(CheckFactor(whole, module));
            const bool head = matrix && module == matrices_.output;
            if (head || (matrix && module == matrices_.embedding)) {
                WEFT_TRY(CheckTokens(whole, whole.b_rows));
            }
            LoraWhole replaced{"", whole.module};
            replaced.factor = matrices_.FactorOf(module);
            if (found != matrices_.names.end()) {
                replaced.tensor = found->from->name;
                replaced.pairs_of = found->pairs_of;
                replaced.add = found->add;
            } else if (head && !matrices_.embedding.empty()) {  // the model uses its embedding
                replaced.tensor = "output.weight";
            } else if (whole.module == "model.score.weight" && whole.b_rows > 0) {
                replaced.tensor = "cls.output.weight";
                replaced.height = whole.b_rows;
            }
            if (!replaced.tensor.empty()) {
                plan_.wholes.push_back(std::move(replaced));
                continue;
            }
            return MakeError(ErrorCode::kUnsupported,
                             "{}: has the tensor '{}', and Weft knows no such tensor of {} alone. "
                             "Save a whole model with PEFT's merge_and_unload",
                             plan_.words.from, hf::Shown(whole.saved), source_.name());
        }
        return {};
    }

    const ModelSource& source_;
    const AdapterConfig& config_;
    const Matrices& matrices_;
    const MergedTargets merged_;
    bool nested_ = false;  // the adapter's class has the text model as a part
    LoraUse use_;
    LoraPlan& plan_;
};

// The plan of new adapters: `chosen` of the linears.
void PlanNew(const std::vector<bool>& chosen, Matrices& matrices, LoraPlan& plan) {
    for (size_t at = 0; at < chosen.size(); ++at) {
        LoraTarget& linear = matrices.linears[at];
        if (!chosen[at]) {
            plan.partial.insert(LastName(linear.module));
            continue;
        }
        SetScale(linear, plan.words.rank, plan.words.alpha, plan.words.rslora);
        plan.targets.push_back(std::move(linear));
    }
}

}  // namespace

Result<LoraPlan> PlanLora(const ModelSource& source, const LoraOptions& words, LoraUse use) {
    LoraPlan plan;
    plan.words = words;
    AdapterConfig config;
    AdapterNames names;
    if (words.from.empty()) {
        WEFT_TRY(CheckWords(words));
    } else {
        WEFT_ASSIGN(config, ReadAdapterConfig(words.from, use));
        WEFT_ASSIGN(names, ReadAdapterNames(words.from));
        for (std::string& saved : config.saved) {
            saved = ModuleInMemory(WithoutPath(std::move(saved)));
        }
        plan.words = config.words;
        plan.words.targets = ModuleInMemory(std::move(plan.words.targets));
        plan.words.seed = words.seed;
    }
    WEFT_ASSIGN(Matrices matrices, MatricesOf(source));
    for (const std::string& expert : matrices.experts) plan.of_experts.insert(LastName(expert));
    const std::vector<std::string> wanted = ItemsOf(plan.words.targets);
    std::vector<bool> chosen;
    const size_t lacking = Select(wanted, matrices.linears, chosen);
    // (PEFT ignores names in target_modules that no module has.)
    if (lacking != std::string::npos && words.from.empty()) {
        plan.targets = std::move(matrices.linears);
        return NoTarget(plan, wanted[lacking], source.name(), matrices);
    }
    if (words.from.empty()) {
        PlanNew(chosen, matrices, plan);
        return plan;
    }
    // A listed module has an adapter in each layer; a file that lacks one is not whole.
    std::set<std::string_view> present;
    for (const AdapterModule& module : names.modules) present.insert(module.module);
    std::vector<AdapterModule> absent;
    for (size_t at = 0; at < chosen.size(); ++at) {
        const std::string& module = matrices.linears[at].module;
        if (chosen[at] && !present.contains(module)) absent.push_back({module, module});
    }
    // (An adapter that Weft trained lists names that fused modules may have, too, and has no such
    // module.)
    for (const std::string& word : wanted) {
        std::set<std::string> fused;
        for (const LoraTarget& part : matrices.fused) {
            if (Means(word, part.module)) fused.insert(part.module);
        }
        const size_t held = std::erase_if(
            fused, [&](const std::string& module) { return present.contains(module); });
        if (held == 0) continue;
        for (const std::string& module : fused) absent.push_back({module, module});
    }
    for (const std::string& end : {matrices.output, matrices.embedding}) {
        const auto names_it = [&](const std::string& item) { return EndsWithModule(end, item); };
        const auto replaces = [&](const AdapterModule& whole) {
            return whole.module.starts_with(end) || whole.module.starts_with("model.score.");
        };
        if (!matrices.embedding.empty() && !end.empty() && !present.contains(end) &&
            std::ranges::any_of(wanted, names_it) && std::ranges::none_of(names.wholes, replaces)) {
            absent.push_back({end, end});
        }
    }
    names.modules.insert(names.modules.end(), absent.begin(), absent.end());
    WEFT_TRY(FilePlanner(source, config, matrices, use, plan).Run(names));
    return plan;
}

}  // namespace weft::model_files
