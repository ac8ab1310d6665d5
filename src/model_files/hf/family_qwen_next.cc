// Qwen3-Next, Qwen 3.5 and OLMo-Hybrid: layers with recurrent state, and attention layers.
#include <algorithm>
#include <cmath>

#include "model_files/hf/assembly.h"

namespace weft::model_files::hf {

Result<std::vector<bool>> RecurrentLayers(const Config& config) {
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, 4096));
    WEFT_ASSIGN(const std::vector<std::string> types, config.Strings({"layer_types"}));
    WEFT_ASSIGN(const int64_t interval, config.IntOr({"full_attention_interval"}, 1, 4096, 4));
    if (!types.empty() && types.size() != static_cast<size_t>(layers)) {
        return config.Corrupt("layer_types", fmt::format("{} values, one per layer", layers));
    }
    std::vector<bool> recurrent;
    for (int64_t layer = 0; layer < layers; ++layer) {
        const std::string type = types.empty() ? "" : types[static_cast<size_t>(layer)];
        if (!types.empty() && type != "linear_attention" && type != "full_attention") {
            return config.Corrupt("layer_types", "only linear_attention and full_attention");
        }
        recurrent.push_back(types.empty() ? (layer + 1) % interval != 0
                                          : type == "linear_attention");
    }
    return recurrent;
}

namespace {

// ---- config.json --------------------------------------------------------------------------------

struct DeltaShape {
    int64_t key_heads, heads, key_dim, value_dim, taps;
    int64_t each() const { return heads / key_heads; }
    int64_t keys() const { return key_heads * key_dim; }
    int64_t values() const { return heads * value_dim; }
};

Result<DeltaShape> ReadShape(const Config& config) {
    DeltaShape s{};
    WEFT_ASSIGN(s.key_heads, config.NeedInt({"linear_num_key_heads"}, 1, 4096));
    WEFT_ASSIGN(s.heads, config.NeedInt({"linear_num_value_heads"}, 1, 4096));
    WEFT_ASSIGN(s.key_dim, config.NeedInt({"linear_key_head_dim"}, 1, 1024));
    WEFT_ASSIGN(s.value_dim, config.NeedInt({"linear_value_head_dim"}, 1, 1024));
    WEFT_ASSIGN(s.taps, config.NeedInt({"linear_conv_kernel_dim"}, 2, 64));
    if (s.heads % s.key_heads == 0) return s;
    return config.Corrupt("linear_num_value_heads",
                          fmt::format("a multiple of linear_num_key_heads, {}", s.key_heads));
}

Status NextMeta(const Config& config, MetaWriter& meta) {
    WEFT_ASSIGN(const DeltaShape shape, ReadShape(config));
    WEFT_ASSIGN(const std::vector<bool> recurrent, RecurrentLayers(config));
    // The tensors show the layers' types.
    WEFT_TRY(WriteCommon(config.With(Json{{"layer_types", Json::array()}}), meta));
    WEFT_ASSIGN(const int64_t experts, config.IntOr({"num_experts"}, 0, 1 << 16, 0));
    if (experts > 0) WEFT_TRY(WriteExperts(config, meta, "moe_intermediate_size", "softmax"));
    // In text all sections have the same positions; llama.cpp requires the key.
    if (meta.architecture().starts_with("qwen35")) {
        WEFT_ASSIGN(const int64_t head_dim, HeadDim(config));
        WEFT_ASSIGN(const int64_t rotary, RotaryDim(config, head_dim));
        const int64_t pairs = rotary / 2;
        WEFT_TRY(WriteRopeSections(config, meta, {(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3}));
    }
    meta.Int("ssm.conv_kernel", shape.taps);
    meta.Int("ssm.state_size", shape.key_dim);
    meta.Int("ssm.group_count", shape.key_heads);
    meta.Int("ssm.time_step_rank", shape.heads);
    meta.Int("ssm.inner_size", shape.values());
    // The first attention layer gives the interval, if there is one.
    const auto first = std::ranges::find(recurrent, false) - recurrent.begin();
    bool regular = true;
    for (size_t layer = 0; layer < recurrent.size(); ++layer) {
        regular =
            regular && recurrent[layer] == ((static_cast<int64_t>(layer) + 1) % (first + 1) != 0);
    }
    if (regular) meta.Int("full_attention_interval", first + 1);
    if (regular) return {};
    const std::vector<int64_t> list(recurrent.begin(), recurrent.end());
    meta.Ints("attention.recurrent_layers", list);
    return {};
}

// ---- Tensors ------------------------------------------------------------------------------------

// In Qwen 3.5, HF orders value heads key head by key head; GGUF files have the first one of each
// key head, then the second of each, and so on.
class DeltaLayer {
  public:
    DeltaLayer(Assembly& assembly, int64_t layer, const std::string& prefix, const DeltaShape& s)
        : assembly_(assembly), layer_(layer), prefix_(prefix + "linear_attn."), s_(s) {}

    // in_proj_qkvz holds, for each key head, its query, key, values and gates.
    Status Together() {
        const int64_t own = s_.each() * s_.value_dim, head = 2 * (s_.key_dim + own);
        const auto part = [&](int64_t first, int64_t count) -> Result<MatrixPtr> {
            WEFT_ASSIGN(MatrixPtr all, Linear("in_proj_qkvz", s_.key_heads * head));
            return SomeRows(std::move(all), first, count, head, s_.key_heads * count);
        };
        std::vector<MatrixPtr> qkv(3);
        WEFT_ASSIGN(qkv[0], part(0, s_.key_dim));
        WEFT_ASSIGN(qkv[1], part(s_.key_dim, s_.key_dim));
        WEFT_ASSIGN(qkv[2], part(2 * s_.key_dim, own));
        WEFT_ASSIGN(MatrixPtr gates, part(2 * s_.key_dim + own, own));
        WEFT_ASSIGN(MatrixPtr both, Linear("in_proj_ba", 2 * s_.heads));
        WEFT_ASSIGN(MatrixPtr out, Linear("out_proj", 0));
        Add("attn_qkv.weight", Stacked(std::move(qkv)));
        Add("attn_gate.weight", std::move(gates));
        Add("ssm_ba.weight", std::move(both));
        Add("ssm_out.weight", std::move(out));
        return Vectors(false);
    }

    // All projections and convolutions are separate tensors (OLMo-Hybrid).
    Status Separate() {
        std::vector<MatrixPtr> qkv(3);
        WEFT_ASSIGN(qkv[0], Linear("q_proj", s_.keys()));
        WEFT_ASSIGN(qkv[1], Linear("k_proj", s_.keys()));
        WEFT_ASSIGN(qkv[2], Linear("v_proj", s_.values()));
        WEFT_ASSIGN(MatrixPtr all, assembly_.Joined(std::move(qkv), prefix_ + "q_proj"));
        Add("attn_qkv.weight", std::move(all));
        for (const auto& [gguf, name, rows] :
             {std::tuple{"attn_gate.weight", "g_proj", s_.values()},
              std::tuple{"ssm_alpha.weight", "a_proj", s_.heads},
              std::tuple{"ssm_beta.weight", "b_proj", s_.heads},
              std::tuple{"ssm_out.weight", "o_proj", int64_t{0}}}) {
            WEFT_ASSIGN(MatrixPtr matrix, Linear(name, rows));
            Add(gguf, std::move(matrix));
        }
        return Vectors(false);
    }

    // Each kind is a separate tensor; value heads are reordered.
    Status Apart() {
        WEFT_ASSIGN(MatrixPtr qkv, InTurn("in_proj_qkv", s_.value_dim, 2 * s_.keys()));
        WEFT_ASSIGN(MatrixPtr gates, InTurn("in_proj_z", s_.value_dim, 0));
        WEFT_ASSIGN(MatrixPtr alpha, InTurn("in_proj_a", 1, 0));
        WEFT_ASSIGN(MatrixPtr beta, InTurn("in_proj_b", 1, 0));
        WEFT_ASSIGN(MatrixPtr out, Linear("out_proj", 0));
        if (out->cols() != s_.values()) return Wrong("out_proj", out->cols(), s_.values());
        if (s_.each() > 1) {
            out = ColumnsInTurn(std::move(out), s_.key_heads, s_.each(), s_.value_dim);
        }
        Add("attn_qkv.weight", std::move(qkv));
        Add("attn_gate.weight", std::move(gates));
        Add("ssm_alpha.weight", std::move(alpha));
        Add("ssm_beta.weight", std::move(beta));
        Add("ssm_out.weight", std::move(out));
        return Vectors(true);
    }

  private:
    Error Wrong(std::string_view name, int64_t has, int64_t expected) const {
        return MakeError(ErrorCode::kCorrupt, "{}: '{}{}' has {}; expected {} from config.json",
                         assembly_.folder(), prefix_, name, has, expected);
    }
    void Add(std::string_view name, MatrixPtr matrix) {
        assembly_.Add(Assembly::Block(layer_, name), std::move(matrix));
    }

    // rows: the required number; 0: any.
    Result<MatrixPtr> Linear(const std::string& name, int64_t rows) {
        WEFT_ASSIGN(MatrixPtr matrix, assembly_.Linear(prefix_ + name));
        return Checked(std::move(matrix), name, rows);
    }
    Result<MatrixPtr> Checked(MatrixPtr matrix, const std::string& name, int64_t rows) const {
        return assembly_.Checked(std::move(matrix), prefix_ + name, rows);
    }
    // A matrix of `before` rows, then `width` rows per value head, which are reordered.
    Result<MatrixPtr> InTurn(const std::string& name, int64_t width, int64_t before) {
        const int64_t rows = before + s_.heads * width;
        return RowsInTurn(width, before, [&] { return Linear(name, rows); });
    }
    template <typename Read>
    Result<MatrixPtr> RowsInTurn(int64_t width, int64_t before, const Read& read) {
        std::vector<MatrixPtr> parts;
        if (before > 0) {
            WEFT_ASSIGN(MatrixPtr all, read());
            parts.push_back(SomeRows(std::move(all), 0, before, before, before));
        }
        for (int64_t turn = 0; turn < s_.each(); ++turn) {
            WEFT_ASSIGN(MatrixPtr all, read());
            parts.push_back(SomeRows(std::move(all), before + turn * width, width,
                                     s_.each() * width, s_.key_heads * width));
        }
        return Stacked(std::move(parts));
    }

    // The convolution, which GGUF files have in F32, and the per-head vectors.
    Status Vectors(bool in_turn) {
        const auto taps = [&]() -> Result<MatrixPtr> {
            WEFT_ASSIGN(MatrixPtr matrix, Convolution());
            WEFT_ASSIGN(matrix,
                        Checked(std::move(matrix), "conv1d.weight", 2 * s_.keys() + s_.values()));
            if (matrix->cols() != s_.taps) return Wrong("conv1d.weight", matrix->cols(), s_.taps);
            return Converted(std::move(matrix), DType::kF32);
        };
        MatrixPtr conv;
        if (in_turn) {
            WEFT_ASSIGN(conv, RowsInTurn(s_.value_dim, 2 * s_.keys(), taps));
        } else {
            WEFT_ASSIGN(conv, taps());
        }
        Add("ssm_conv1d.weight", std::move(conv));
        WEFT_ASSIGN(MatrixPtr decays, OfHeads("A_log", in_turn));
        WEFT_ASSIGN(MatrixPtr steps, OfHeads("dt_bias", in_turn));
        decays = Changed(std::move(decays), [](float log) { return -std::exp(log); });
        assembly_.AddVector(Assembly::Block(layer_, "ssm_a"), std::move(decays));
        assembly_.AddVector(Assembly::Block(layer_, "ssm_dt.bias"), std::move(steps));
        return {};
    }
    // One tensor, or one each for queries, keys and values (OLMo-Hybrid).
    Result<MatrixPtr> Convolution() {
        if (assembly_.Has(prefix_ + "conv1d.weight")) {
            return assembly_.Tensor(prefix_ + "conv1d.weight");
        }
        std::vector<MatrixPtr> parts;
        for (const char* part : {"q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight"}) {
            WEFT_ASSIGN(MatrixPtr own, assembly_.Tensor(prefix_ + part));
            if (own == nullptr) return assembly_.Missing(prefix_ + part);
            parts.push_back(std::move(own));
        }
        return assembly_.Joined(std::move(parts), prefix_ + "q_conv1d");
    }
    // A column with a number for each value head.
    Result<MatrixPtr> OfHeads(const std::string& name, bool in_turn) {
        const auto read = [&]() -> Result<MatrixPtr> {
            WEFT_ASSIGN(MatrixPtr column, assembly_.Column(prefix_ + name));
            return Checked(std::move(column), name, s_.heads);
        };
        return in_turn ? RowsInTurn(1, 0, read) : read();
    }

    Assembly& assembly_;
    const int64_t layer_;
    const std::string prefix_;
    const DeltaShape s_;
};

Status NextLayer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    WEFT_ASSIGN(const DeltaShape shape, ReadShape(assembly.config()));
    WEFT_ASSIGN(const std::vector<bool> recurrent, RecurrentLayers(assembly.config()));
    // A draft head, after the layers, has attention.
    if (layer >= static_cast<int64_t>(recurrent.size())) return {};
    const bool has = assembly.Has(prefix + "linear_attn.conv1d.weight");
    if (has != recurrent[static_cast<size_t>(layer)]) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: layer {} {} the tensors of a linear_attention layer, against "
                         "config.json",
                         assembly.folder(), layer, has ? "has" : "lacks");
    }
    if (!has) return {};
    DeltaLayer delta(assembly, layer, prefix, shape);
    const bool together = assembly.HasLinear(prefix + "linear_attn.in_proj_ba");
    return together ? delta.Together() : delta.Apart();
}

// ---- Names for adapters
// --------------------------------------------------------------------------

Result<DeltaShape> ShapeOf(const ModelSource& source) {
    WEFT_ASSIGN(const std::string architecture, source.meta().String("general.architecture"));
    const auto number = [&](const char* key) {
        return source.meta().Int(fmt::format("{}.ssm.{}", architecture, key), 1, 1 << 20);
    };
    DeltaShape s{};
    WEFT_ASSIGN(s.key_heads, number("group_count"));
    WEFT_ASSIGN(s.heads, number("time_step_rank"));
    WEFT_ASSIGN(s.key_dim, number("state_size"));
    WEFT_ASSIGN(const int64_t values, number("inner_size"));
    s.value_dim = values / s.heads;
    if (s.heads % s.key_heads == 0 && s.values() == values) return s;
    return MakeError(ErrorCode::kCorrupt, "{}: {} value heads, {} key heads and {} values",
                     source.name(), s.heads, s.key_heads, values);
}

// As Together().
Result<std::vector<AdaptedPart>> TogetherParts(const ModelSource& source) {
    WEFT_ASSIGN(const DeltaShape s, ShapeOf(source));
    constexpr std::string_view kAll = "linear_attn.in_proj_qkvz";
    const int64_t own = s.each() * s.value_dim, head = 2 * (s.key_dim + own), keys = s.keys();
    return std::vector<AdaptedPart>{
        {"attn_qkv", kAll, 0, keys, {0, s.key_dim, head}},
        {"attn_qkv", kAll, keys, keys, {s.key_dim, s.key_dim, head}},
        {"attn_qkv", kAll, 2 * keys, s.values(), {2 * s.key_dim, own, head}},
        {"attn_gate", kAll, 0, s.values(), {2 * s.key_dim + own, own, head}},
        {"ssm_ba", "linear_attn.in_proj_ba"},
        {"ssm_out", "linear_attn.out_proj"}};
}

// As Apart().
Result<std::vector<AdaptedPart>> ApartParts(const ModelSource& source) {
    WEFT_ASSIGN(const DeltaShape s, ShapeOf(source));
    constexpr std::string_view kQkv = "linear_attn.in_proj_qkv";
    const int64_t keys = 2 * s.keys(), all = keys + s.values();
    const auto in_turn = [&](int64_t width, int64_t before) {
        return RowRuns{before, width, s.each() * width, s.key_heads * width,
                       before + s.heads * width};
    };
    return std::vector<AdaptedPart>{
        {"attn_qkv", kQkv, 0, keys, {0, keys, all}},
        {"attn_qkv", kQkv, keys, s.values(), in_turn(s.value_dim, keys)},
        {"attn_gate", "linear_attn.in_proj_z", 0, s.values(), in_turn(s.value_dim, 0)},
        {"ssm_alpha", "linear_attn.in_proj_a", 0, s.heads, in_turn(1, 0)},
        {"ssm_beta", "linear_attn.in_proj_b", 0, s.heads, in_turn(1, 0)},
        {"ssm_out", "linear_attn.out_proj", 0, 0, {}, in_turn(s.value_dim, 0)}};
}

// As Separate().
Result<std::vector<AdaptedPart>> SeparateParts(const ModelSource& source) {
    WEFT_ASSIGN(const DeltaShape s, ShapeOf(source));
    const int64_t keys = s.keys(), values = s.values();
    return std::vector<AdaptedPart>{
        {"attn_qkv", "linear_attn.q_proj", 0, keys, {0, keys, keys}},
        {"attn_qkv", "linear_attn.k_proj", keys, keys, {0, keys, keys}},
        {"attn_qkv", "linear_attn.v_proj", 2 * keys, values, {0, values, values}},
        {"attn_gate", "linear_attn.g_proj"},
        {"ssm_alpha", "linear_attn.a_proj"},
        {"ssm_beta", "linear_attn.b_proj"},
        {"ssm_out", "linear_attn.o_proj"}};
}

// ---- OLMo-Hybrid --------------------------------------------------------------------------------

// In released models rope_parameters, or its base, is null: attention has no positions.
Result<Config> OlmoHybridAdjust(const Config& config) {
    WEFT_ASSIGN(const int64_t heads, config.NeedInt({"num_attention_heads"}, 1, 4096));
    WEFT_ASSIGN(const int64_t hidden, config.NeedInt({"hidden_size"}, 1, 1 << 20));
    WEFT_ASSIGN(const int64_t key_heads, config.IntOr({"linear_num_key_heads"}, 1, 4096, heads));
    WEFT_ASSIGN(const int64_t values, config.IntOr({"linear_num_value_heads"}, 1, 4096, heads));
    const int64_t usual = hidden * 3 / 4 / key_heads;
    WEFT_ASSIGN(const int64_t key_dim, config.IntOr({"linear_key_head_dim"}, 1, 1024, usual));
    WEFT_ASSIGN(const int64_t value_dim,
                config.IntOr({"linear_value_head_dim"}, 1, 1024, 2 * key_dim));
    WEFT_ASSIGN(const Config rope, config.Sub({"rope_parameters"}));
    Json over = {{"linear_num_key_heads", key_heads},
                 {"linear_num_value_heads", values},
                 {"linear_key_head_dim", key_dim},
                 {"linear_value_head_dim", value_dim},
                 {"rotates", rope.Has("rope_theta")}};
    if (!rope.Has("rope_theta")) over["rope_parameters"] = nullptr;
    return config.With(over);
}

Status OlmoHybridMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(NextMeta(config, meta));
    WEFT_ASSIGN(const bool rotates, config.BoolOr({"rotates"}, false));
    meta.Bool("rope.scaling.finetuned", rotates);
    WEFT_ASSIGN(const bool doubles, config.BoolOr({"linear_allow_neg_eigval"}, true));
    meta.Bool("ssm.allow_neg_eigval", doubles);
    meta.F32("ssm.norm_rms_epsilon", 1e-5);
    return {};
}

// One norm is before the MLP in layers with state, and after attention in others. Its name in
// published folders differs from that of transformers.
Status OlmoHybridLayer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    WEFT_ASSIGN(const DeltaShape shape, ReadShape(assembly.config()));
    WEFT_ASSIGN(const std::vector<bool> recurrent, RecurrentLayers(assembly.config()));
    const bool has = recurrent[static_cast<size_t>(layer)];
    std::string name = prefix + "feedforward_layer_norm.weight";
    if (!assembly.Has(name)) name = prefix + "post_attention_layernorm.weight";
    WEFT_ASSIGN(MatrixPtr norm, assembly.Checked(assembly.Column(name), name, 0));
    assembly.AddVector(
        Assembly::Block(layer, has ? "ffn_norm.weight" : "post_attention_norm.weight"),
        std::move(norm));
    return has ? DeltaLayer(assembly, layer, prefix, shape).Separate() : Status();
}

constexpr Rule kOlmoHybridRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm, false},
    {"attn_norm", "attention_layer_norm", Form::kNorm, false},
    {"post_ffw_norm", "post_feedforward_layernorm", Form::kNorm, false},
    {"ssm_norm.weight", "linear_attn.o_norm.weight", Form::kVector, false},
};

// ---- Tables -------------------------------------------------------------------------------------

constexpr Rule kNextRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm},
    {"post_attention_norm", "post_attention_layernorm", Form::kNorm},
    {"ssm_norm.weight", "linear_attn.norm.weight", Form::kVector, false},
};
constexpr Rule kNextAttentionRules[] = {
    {"attn_q", "self_attn.q_proj", Form::kLinear, false},
    {"attn_k", "self_attn.k_proj", Form::kLinear, false},
    {"attn_v", "self_attn.v_proj", Form::kLinear, false},
    {"attn_output", "self_attn.o_proj", Form::kLinear, false},
    {"attn_q_norm", "self_attn.q_norm", Form::kNorm, false},
    {"attn_k_norm", "self_attn.k_norm", Form::kNorm, false},
};
constexpr DraftHeadNames kNextDraftHead = {
    "fc", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm", true, "mtp."};

constexpr Family kNextFamilies[] = {
    {.model_type = "olmo_hybrid",
     .architecture = "olmo-hybrid",
     .rules = {kOlmoHybridRules, kNextAttentionRules, kMlpRules},
     .meta = OlmoHybridMeta,
     .layer = OlmoHybridLayer,
     .adapted = SeparateParts,
     .adjust = OlmoHybridAdjust,
     .defaults = R"({"max_position_embeddings": 65536, "linear_conv_kernel_dim": 4,
                     "linear_allow_neg_eigval": true})",
     .more_tensors = "ssm_conv1d.weight"},
    {.model_type = "qwen3_next",
     .architecture = "qwen3next",
     .rules = {kNextRules, kNextAttentionRules, kMoeRules, kSharedExpertRules},
     .meta = NextMeta,
     .routing = "norm_topk_prob",
     .layer = NextLayer,
     .adapted = TogetherParts,
     .norm_add = 1,
     .defaults = R"({"max_position_embeddings": 32768, "head_dim": 256, "num_experts": 512,
                    "num_experts_per_tok": 10, "moe_intermediate_size": 512,
                    "shared_expert_intermediate_size": 512, "norm_topk_prob": true,
                    "partial_rotary_factor": 0.25, "linear_conv_kernel_dim": 4,
                    "linear_key_head_dim": 128, "linear_value_head_dim": 128,
                    "linear_num_key_heads": 16, "linear_num_value_heads": 32,
                    "intermediate_size": 5632})",
     .rope = {.partial = true},
     .draft_head = &kNextDraftHead,
     .draft_heads = 1,
     .more_tensors = "attn_output.bias?attention_bias ssm_conv1d.weight ssm_ba.weight"},
    {.model_type = "qwen3_5",
     .also = "qwen3_5_text",
     .architecture = "qwen35",
     .rules = {kNextRules, kNextAttentionRules, kMlpRules},
     .meta = NextMeta,
     .layer = NextLayer,
     .adapted = ApartParts,
     .norm_add = 1,
     .defaults = R"({"max_position_embeddings": 32768, "head_dim": 256,
                    "partial_rotary_factor": 0.25, "linear_conv_kernel_dim": 4,
                    "linear_key_head_dim": 128, "linear_value_head_dim": 128,
                    "linear_num_key_heads": 16, "linear_num_value_heads": 32})",
     .rope = {.partial = true, .mrope = true},
     .draft_head = &kNextDraftHead,
     .more_tensors = "attn_output.bias?attention_bias ssm_conv1d.weight"},
    {.model_type = "qwen3_5_moe",
     .also = "qwen3_5_moe_text",
     .architecture = "qwen35moe",
     .rules = {kNextRules, kNextAttentionRules, kMoeRules, kSharedExpertRules},
     .meta = NextMeta,
     .layer = NextLayer,
     .adapted = ApartParts,
     .norm_add = 1,
     .defaults = R"({"max_position_embeddings": 32768, "head_dim": 256, "num_experts": 256,
                    "num_experts_per_tok": 8, "moe_intermediate_size": 512,
                    "shared_expert_intermediate_size": 512, "norm_topk_prob": true,
                    "partial_rotary_factor": 0.25, "linear_conv_kernel_dim": 4,
                    "linear_key_head_dim": 128, "linear_value_head_dim": 128,
                    "linear_num_key_heads": 16, "linear_num_value_heads": 32})",
     .rope = {.partial = true, .mrope = true},
     .draft_head = &kNextDraftHead,
     .more_tensors = "attn_output.bias?attention_bias ssm_conv1d.weight"},
};

}  // namespace

extern const std::span<const Family> kQwenNextModels = kNextFamilies;

}  // namespace weft::model_files::hf
