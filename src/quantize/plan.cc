#include "quantize/plan.h"

#include <algorithm>
#include <charconv>

#include "base/utf8.h"
#include "tokenizer/regex.h"

namespace weft::quantize {
namespace {

constexpr size_t kMostRuleNameBytes = 4096;

// N for "blk.N.", or -1.
int64_t LayerOf(std::string_view name) {
    if (!name.starts_with("blk.")) return -1;
    int64_t layer = -1;
    const auto [end, error] = std::from_chars(name.data() + 4, name.data() + name.size(), layer);
    const bool whole = error == std::errc() && end != name.data() + name.size() && *end == '.';
    return whole && layer >= 0 ? layer : -1;
}

// The architecture's number under that key; for an array (a number per layer), the largest.
Result<int64_t> Hyper(const model_files::ModelSource& source, const std::string& key,
                      int64_t fallback) {
    WEFT_ASSIGN(const std::string architecture, source.meta().StringOr("general.architecture", ""));
    const std::string whole = architecture + "." + key;
    const model_files::MetaEntry* entry = source.meta().Find(whole);
    if (entry == nullptr) return fallback;
    if (entry->type != model_files::MetaType::kArray) return source.meta().Int(whole, 0, 1 << 24);
    WEFT_ASSIGN(const std::vector<int64_t> each, source.meta().Ints(whole));
    return each.empty() ? fallback : *std::ranges::max_element(each);
}

struct CompiledRule {
    const TensorRule* rule;
    tokenizer::Regex regex;
    bool used = false;
};

class Planner {
  public:
    Planner(const model_files::ModelSource& source, const QuantizeOptions& options)
        : source_(source), options_(options), run_(kMostRuleNameBytes) {}
    Result<QuantizePlan> Make();

  private:
    Status ReadFacts();
    Status CompileRules();
    Result<PlannedTensor> PlanOne(const model_files::TensorInfo& tensor);
    Result<PlannedTensor> Choose(const model_files::TensorInfo& tensor);
    CompiledRule* RuleFor(const model_files::TensorInfo& tensor);
    MixPlace PlaceOf(const model_files::TensorInfo& tensor) const;
    Status CheckRounding(const model_files::TensorInfo& tensor, DType to) const;
    Status CheckImportance(const model_files::TensorInfo& tensor, DType to) const;
    Result<const std::vector<float>*> ImportanceOf(const model_files::TensorInfo& tensor) const;

    const model_files::ModelSource& source_;
    const QuantizeOptions& options_;
    tokenizer::RegexRun run_;
    std::vector<CompiledRule> rules_;
    MixFacts facts_;
    std::vector<int64_t> value_layers_;  // layers of the model's kValue tensors, ascending
    // Layers and names of its kDown tensors that are quantized, ascending.
    std::vector<std::pair<int64_t, std::string_view>> downs_;
};

Status Planner::ReadFacts() {
    if (source_.tensors().empty()) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: a vocabulary without weights has nothing to quantize",
                         source_.name());
    }
    WEFT_ASSIGN(facts_.layers, Hyper(source_, "block_count", 0));
    WEFT_ASSIGN(facts_.experts, Hyper(source_, "expert_count", 0));
    WEFT_ASSIGN(const int64_t heads, Hyper(source_, "attention.head_count", 1));
    WEFT_ASSIGN(const int64_t kv_heads, Hyper(source_, "attention.head_count_kv", heads));
    facts_.heads_per_kv = kv_heads > 0 ? heads / kv_heads : 1;
    facts_.tied = source_.FindTensor("output.weight") == nullptr;
    // Files of codebook types are almost always made with an importance matrix.
    const bool books = Info(options_.type.base).name.starts_with("IQ");
    facts_.importance = options_.importance != nullptr || (options_.sizes_only && books);
    facts_.large = facts_.layers == 80 && heads != kv_heads;
    for (const model_files::TensorInfo& tensor : source_.tensors()) {
        const bool value = RoleOf(tensor.name) == Role::kValue;
        if (value) value_layers_.push_back(LayerOf(tensor.name));
        const bool down = RoleOf(tensor.name) == Role::kDown;
        if (down && !IsKept(tensor.name, tensor.dim_count)) {
            downs_.emplace_back(LayerOf(tensor.name), tensor.name);
        }
    }
    std::ranges::sort(value_layers_);
    std::ranges::sort(downs_);
    return {};
}

Status Planner::CompileRules() {
    for (const TensorRule& rule : options_.rules) {
        Result<tokenizer::Regex> regex = tokenizer::Regex::Make(rule.pattern);
        if (!regex.ok()) {
            return MakeError(ErrorCode::kUsage, "--tensor '{}': {}", rule.pattern,
                             regex.error().message);
        }
        rules_.push_back({&rule, std::move(regex).value()});
    }
    return {};
}

CompiledRule* Planner::RuleFor(const model_files::TensorInfo& tensor) {
    if (tensor.name.size() > kMostRuleNameBytes || !IsUtf8(tensor.name)) return nullptr;
    tokenizer::RegexRun::Range ignored;
    for (CompiledRule& rule : rules_) {
        if (run_.Next(rule.regex, tensor.name, 0, ignored)) return &rule;
    }
    return nullptr;
}

MixPlace Planner::PlaceOf(const model_files::TensorInfo& tensor) const {
    MixPlace place{};
    place.role = RoleOf(tensor.name);
    place.layer = std::max<int64_t>(0, LayerOf(tensor.name));
    place.values = static_cast<int64_t>(value_layers_.size());
    const auto at = std::ranges::lower_bound(value_layers_, place.layer);
    place.value = at - value_layers_.begin();
    place.down = std::ranges::lower_bound(
                     downs_, std::pair{LayerOf(tensor.name), std::string_view(tensor.name)}) -
                 downs_.begin();
    place.cols = tensor.cols;
    // (MLA's attn_k_b and attn_v_b have three dims as well.)
    place.experts = tensor.name.find("_exps.") != tensor.name.npos;
    return place;
}

Result<PlannedTensor> Planner::Choose(const model_files::TensorInfo& tensor) {
    PlannedTensor planned{&tensor, tensor.dtype, 0, false, nullptr};
    const bool own = Info(tensor.dtype).gguf_type < 0;  // a type that files do not have
    if (tensor.dtype == DType::kI32) return planned;
    if (IsKept(tensor.name, tensor.dim_count)) {
        if (own) planned.to = tensor.dtype == DType::kFP8 ? DType::kBF16 : DType::kF16;
        return planned;
    }
    const Role role = RoleOf(tensor.name);
    if (CompiledRule* rule = RuleFor(tensor); rule != nullptr) {
        rule->used = true;
        planned.to = rule->rule->type;
        if (options_.sizes_only) planned.to = Fallback(planned.to, tensor.cols);
        if (tensor.cols % Info(planned.to).block_elements != 0) {
            return MakeError(ErrorCode::kUsage,
                             "--tensor '{}={}': {} has rows of {}; expected whole blocks of {}",
                             rule->rule->pattern, Info(planned.to).name, tensor.name, tensor.cols,
                             Info(planned.to).block_elements);
        }
        return planned;
    }
    const bool output = role == Role::kOutput || (role == Role::kEmbedding && facts_.tied &&
                                                  !options_.embedding.has_value());
    if (output && options_.output) {
        planned.to = *options_.output;
    } else if (role == Role::kEmbedding && options_.embedding) {
        planned.to = *options_.embedding;
    } else if (options_.pure) {
        planned.to = options_.type.base;
    } else {
        planned.to = MixedType(options_.type, facts_, PlaceOf(tensor));
    }
    const DType fits = Fallback(planned.to, tensor.cols);
    planned.fell_back = fits != planned.to;
    planned.to = fits;
    return planned;
}

Status Planner::CheckRounding(const model_files::TensorInfo& tensor, DType to) const {
    // FP8 may be quantized: many models are published in nothing wider.
    if (tensor.dtype == to || !HasIntegerCodes(tensor.dtype)) return {};
    if (options_.allow_requantize) return {};
    return MakeError(
        ErrorCode::kDenied,
        "{}: tensor '{}' is quantized to {} already; quantizing it again to {} adds a second "
        "error. Start from the F16 or BF16 model, or use --allow-requantize",
        source_.name(), tensor.name, Info(tensor.dtype).name, Info(to).name);
}

// Checks a tensor without importance weights.
Status Planner::CheckImportance(const model_files::TensorInfo& tensor, DType to) const {
    if (options_.sizes_only || !NeedsImportance(RoleOf(tensor.name), to)) return {};
    const std::string_view type = Info(to).name;
    if (options_.importance != nullptr) {
        return MakeError(ErrorCode::kUsage,
                         "{}: no entry for tensor '{}', which is unusable as {} without one. Give "
                         "the tensor another type: --tensor '{}=Q3_K'",
                         options_.importance->path(), tensor.name, type, tensor.name);
    }
    return MakeError(ErrorCode::kUsage,
                     "tensor '{}' would be {}, which is unusable without an importance matrix: {}. "
                     "Types of similar size that need none: Q2_K, Q3_K_S, IQ3_S",
                     tensor.name, type, options_.importance_advice);
}

Result<const std::vector<float>*> Planner::ImportanceOf(
    const model_files::TensorInfo& tensor) const {
    const std::vector<float>* found = options_.importance->Find(tensor.name);
    if (found == nullptr) return found;
    const auto cols = static_cast<size_t>(tensor.cols);
    const auto experts = static_cast<size_t>(tensor.rows / tensor.dims[1]);
    if (found->size() == cols || found->size() == cols * experts) return found;
    return MakeError(ErrorCode::kCorrupt,
                     "{}: '{}' has {} values, but the tensor has {} columns{}. Does the matrix "
                     "belong to another model?",
                     options_.importance->path(), tensor.name, found->size(), tensor.cols,
                     experts > 1 ? fmt::format(" and {} experts", experts) : "");
}

Result<PlannedTensor> Planner::PlanOne(const model_files::TensorInfo& tensor) {
    WEFT_ASSIGN(PlannedTensor planned, Choose(tensor));
    WEFT_TRY(CheckRounding(tensor, planned.to));
    planned.bytes = static_cast<uint64_t>(RowBytes(planned.to, tensor.cols)) *
                    static_cast<uint64_t>(tensor.rows);
    const bool rounded = planned.to != tensor.dtype && Info(planned.to).quantized;
    if (options_.importance != nullptr && rounded) {
        WEFT_ASSIGN(planned.importance, ImportanceOf(tensor));
    }
    if (rounded && planned.importance == nullptr) {
        WEFT_TRY(CheckImportance(tensor, planned.to));
    }
    return planned;
}

Result<QuantizePlan> Planner::Make() {
    WEFT_TRY(ReadFacts());
    WEFT_TRY(CompileRules());
    QuantizePlan plan;
    plan.type = options_.type;
    for (const model_files::TensorInfo& tensor : source_.tensors()) {
        WEFT_ASSIGN(const PlannedTensor planned, PlanOne(tensor));
        plan.bytes += planned.bytes;
        plan.fallen_back += planned.fell_back ? 1 : 0;
        const bool rounded = planned.to != tensor.dtype && Info(planned.to).quantized;
        const bool bare = options_.importance != nullptr && planned.importance == nullptr;
        plan.without_importance += rounded && bare ? 1 : 0;
        plan.tensors.push_back(planned);
    }
    for (const CompiledRule& rule : rules_) {
        if (rule.used || options_.sizes_only) continue;
        return MakeError(ErrorCode::kUsage,
                         "--tensor '{}={}' matches no tensor that is quantized; 'weft inspect {}' "
                         "lists the tensors",
                         rule.rule->pattern, Info(rule.rule->type).name, source_.name());
    }
    return plan;
}

}  // namespace

Result<QuantizePlan> PlanQuantize(const model_files::ModelSource& source,
                                  const QuantizeOptions& options) {
    return Planner(source, options).Make();
}

}  // namespace weft::quantize
