// Llama's block under other names, with other factors, or with layers that lack a half of it.
#include <algorithm>
#include <cmath>

#include "model_files/hf/assembly.h"
#include "model_files/hf/family.h"

namespace weft::model_files::hf {
namespace {

constexpr int64_t kMostLikeLayers = 4096, kMostLikeColumns = 1 << 20, kMostLikeHeads = 4096;

Error Lacks(const Assembly& assembly, const std::string& name) {
    return MakeError(ErrorCode::kCorrupt, "{}: tensor '{}' is missing", assembly.folder(), name);
}

// ---- InternLM 2 ---------------------------------------------------------------------------------

Status InternLm2Meta(const Config& config, MetaWriter& meta) {
    WEFT_ASSIGN(const bool bias, config.BoolOr({"bias"}, true));
    if (bias) return config.Corrupt("bias", "false: biases are not supported");
    return WriteCommon(config, meta);
}

// wqkv has for each KV head its query heads, its key and its value.
Status InternLm2Layer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    const Config& config = assembly.config();
    WEFT_ASSIGN(const int64_t heads, config.NeedInt({"num_attention_heads"}, 1, kMostLikeHeads));
    WEFT_ASSIGN(const int64_t kv,
                config.IntOr({"num_key_value_heads"}, 1, kMostLikeHeads, heads));
    WEFT_ASSIGN(const int64_t dim, HeadDim(config));
    const std::string name = prefix + "attention.wqkv";
    const int64_t queries = heads / kv * dim, each = queries + 2 * dim;
    const struct {
        const char* gguf;
        int64_t first, count;
    } parts[] = {{"attn_q.weight", 0, queries},
                 {"attn_k.weight", queries, dim},
                 {"attn_v.weight", queries + dim, dim}};
    for (const auto& [gguf, first, count] : parts) {
        WEFT_ASSIGN(MatrixPtr all, assembly.Linear(name));
        if (all == nullptr) return Lacks(assembly, name + ".weight");
        if (heads % kv != 0 || dim % 2 != 0 || all->rows() != kv * each) {
            return MakeError(ErrorCode::kCorrupt,
                             "{}: '{}' has {} rows; by config.json {} query heads and {} KV heads "
                             "of {} columns are {}",
                             assembly.folder(), name, all->rows(), heads, kv, dim, kv * each);
        }
        MatrixPtr part = SomeRows(std::move(all), first, count, each, kv * count);
        if (first <= queries) part = HalvesToPairs(std::move(part), dim);
        assembly.Add(Assembly::Block(layer, gguf), std::move(part));
    }
    return {};
}

constexpr Rule kInternLm2Rules[] = {
    {"attn_norm", "attention_norm", Form::kNorm},
    {"ffn_norm", "ffn_norm", Form::kNorm},
    {"attn_output", "attention.wo", Form::kLinear},
    {"ffn_gate", "feed_forward.w1", Form::kLinear},
    {"ffn_up", "feed_forward.w3", Form::kLinear},
    {"ffn_down", "feed_forward.w2", Form::kLinear},
};

// ---- MiniCPM ------------------------------------------------------------------------------------

// Its factors under the names of Granite's.
Result<Config> MiniCpmAdjust(const Config& config) {
    WEFT_ASSIGN(const int64_t experts, config.IntOr({"num_experts"}, 0, 1 << 16, 0));
    if (experts != 0) return config.Corrupt("num_experts", "0: experts are not supported");
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, kMostLikeLayers));
    WEFT_ASSIGN(const int64_t hidden, config.NeedInt({"hidden_size"}, 1, kMostLikeColumns));
    WEFT_ASSIGN(const int64_t heads, config.NeedInt({"num_attention_heads"}, 1, kMostLikeHeads));
    WEFT_ASSIGN(const double embedding, config.NeedF64({"scale_emb"}));
    WEFT_ASSIGN(const double depth, config.NeedF64({"scale_depth"}));
    WEFT_ASSIGN(const int64_t base, config.NeedInt({"dim_model_base"}, 1, kMostLikeColumns));
    WEFT_ASSIGN(const int64_t dim, config.IntOr({"head_dim"}, 1, 1024, hidden / heads));
    const Json over = {{"embedding_multiplier", embedding},
                       {"residual_multiplier", depth / std::sqrt(static_cast<double>(layers))},
                       {"logits_scaling", static_cast<double>(hidden) / static_cast<double>(base)},
                       {"attention_multiplier", 1 / std::sqrt(static_cast<double>(dim))}};
    WEFT_ASSIGN(const Config named, Config::Parse(over.dump(), config.where()));
    return config.With(named);
}

constexpr Family kLlamaLikeFamilies[] = {
    {.model_type = "internlm2",
     .architecture = "internlm2",
     .rules = {kInternLm2Rules},
     .meta = InternLm2Meta,
     .layer = InternLm2Layer,
     .defaults = R"({"max_position_embeddings": 2048})",
     .embedding = "tok_embeddings"},
    {.model_type = "minicpm",
     .architecture = "minicpm",
     .rules = {kPreNormRules, kAttentionRules, kMlpRules},
     .meta = WriteGranite,
     .pairs = true,
     .adjust = MiniCpmAdjust,
     .defaults = R"({"max_position_embeddings": 2048, "scale_emb": 1, "scale_depth": 1,
                     "dim_model_base": 1, "tie_word_embeddings": true})"},
};

}  // namespace

std::span<const Family> LlamaLikeFamilies() {
    return kLlamaLikeFamilies;
}

}  // namespace weft::model_files::hf
