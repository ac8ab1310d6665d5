// Encoders: each token sees all tokens of its text; and ModernBERT's decoders.
//
// BERT (Devlin et al. 2018), RoBERTa (Liu et al. 2019), XLM-RoBERTa (Conneau et al. 2019),
// CamemBERT and DistilBERT (Sanh et al. 2019): vectors of tokens, positions and types are added and
// normed. LayerNorms follow attention and the MLP, so there is no final norm.
//
// ModernBERT (Warner et al. 2024): RoPE, GeGLU, norms before each part except the first; most
// layers have a window. Ettin's decoders (Weller et al. 2025) have the same layers, and a dense
// layer before the output matrix.
#include "families/family.h"

namespace weft::families::bert {

constexpr int64_t kMostPositions = int64_t{1} << 20;

Result<Config> BertAdjust(const Config& config) {
    WEFT_ASSIGN(const std::string kind, config.StringOr({"position_embedding_type"}, "absolute"));
    if (kind != "absolute") return config.Corrupt("position_embedding_type", "'absolute'");
    WEFT_ASSIGN(const bool decodes, config.BoolOr({"is_decoder"}, false));
    if (decodes) return config.Corrupt("is_decoder", "false");
    return config.With(Json{{"rms_norm_eps", nullptr}, {"skipped_positions", 0}});
}

// The positions of a text begin behind the id of the padding token.
Result<Config> RobertaAdjust(const Config& config) {
    WEFT_ASSIGN(const Config adjusted, BertAdjust(config));
    WEFT_ASSIGN(const int64_t pad, config.IntOr({"pad_token_id"}, 0, kMostPositions, 1));
    WEFT_ASSIGN(const int64_t rows,
                config.NeedInt({"max_position_embeddings"}, pad + 2, kMostPositions));
    return adjusted.With(
        Json{{"skipped_positions", pad + 1}, {"max_position_embeddings", rows - pad - 1}});
}

Result<Config> DistilBertAdjust(const Config& config) {
    const Config named = Renamed(config, {{"hidden_size", "dim"},
                                          {"num_hidden_layers", "n_layers"},
                                          {"num_attention_heads", "n_heads"},
                                          {"intermediate_size", "hidden_dim"},
                                          {"hidden_act", "activation"}});
    return BertAdjust(named);
}

// The pooling: a classifier's, or that of sentence-transformers for a folder without modules.
Status BertMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteUngated(config, meta));
    meta.Bool("attention.causal", false);
    WEFT_ASSIGN(const std::vector<std::string> classes, config.Strings({"architectures"}));
    WEFT_ASSIGN(const std::string pooling, config.StringOr({"classifier_pooling"}, "cls"));
    const bool scores = std::ranges::any_of(
        classes, [](const auto& each) { return each.ends_with("ForSequenceClassification"); });
    constexpr int64_t kMean = 1, kCls = 2;
    meta.Int("pooling_type", scores && pooling != "mean" ? kCls : kMean);
    return {};
}

Status AddNorm(Assembly& assembly, const std::string& gguf, const std::string& module, bool bias) {
    WEFT_ASSIGN(MatrixPtr weight,
                assembly.Checked(assembly.Column(module + ".weight"), module + ".weight", 0));
    assembly.AddVector(gguf + ".weight", std::move(weight));
    WEFT_ASSIGN(MatrixPtr shift, assembly.Column(module + ".bias"));
    if (shift == nullptr) return bias ? assembly.Missing(module + ".bias") : Status();
    assembly.AddVector(gguf + ".bias", std::move(shift));
    return {};
}

// The first layer brings the tables beside the one of tokens, and their norm.
Status BertLayer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    if (layer != 0) return {};
    const Config& config = assembly.config();
    const size_t end = std::min(prefix.find("encoder."), prefix.find("transformer."));
    const std::string of = prefix.substr(0, end) + "embeddings.";
    WEFT_ASSIGN(const int64_t positions,
                config.NeedInt({"max_position_embeddings"}, 1, kMostPositions));
    WEFT_ASSIGN(const int64_t first, config.NeedInt({"skipped_positions"}, 0, kMostPositions));
    const std::string name = of + "position_embeddings.weight";
    WEFT_ASSIGN(MatrixPtr table, assembly.Checked(assembly.Tensor(name), name, positions + first));
    assembly.Add("position_embd.weight",
                 SomeRows(std::move(table), first, positions, positions + first, positions));
    WEFT_ASSIGN(MatrixPtr types, assembly.Tensor(of + "token_type_embeddings.weight"));
    if (types != nullptr) {
        // (RoBERTa's tokenizers give both texts of a pair type 0.)
        const int64_t rows = types->rows();
        if (first > 0 && rows > 1) types = SomeRows(std::move(types), 0, 1, rows, 1);
        assembly.Add("token_types.weight", std::move(types));
    }
    return AddNorm(assembly, "token_embd_norm", of + "LayerNorm", true);
}

// Older configs name the two bases of RoPE, and the step from one layer without a window to the
// next.
Result<Config> ModernBertAdjust(const Config& config) {
    WEFT_ASSIGN(const int64_t step, config.NeedInt({"global_attn_every_n_layers"}, 1, 4096));
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, 4096));
    WEFT_ASSIGN(const std::string head, config.StringOr({"classifier_activation"}, "gelu"));
    if (head != "gelu") return config.Corrupt("classifier_activation", "'gelu'");
    const auto parameters = config.json().find("rope_parameters");
    for (const char* kind : {"full_attention", "sliding_attention"}) {
        if (parameters == config.json().end() || !parameters->is_object()) break;
        const Json rope = parameters->value(kind, Json::object());
        if (!rope.is_object() || rope.value("rope_type", Json("default")) == "default") continue;
        return config.Corrupt("rope_parameters", "rope_type 'default'");
    }
    Json more{{"rms_norm_eps", nullptr}};
    if (!config.Has("layer_types")) {
        for (int64_t layer = 0; layer < layers; ++layer) {
            more["layer_types"].push_back(layer % step == 0 ? "full_attention"
                                                            : "sliding_attention");
        }
    }
    const KeyNames names = {{"rope_theta", "global_rope_theta"},
                            {"hidden_act", "hidden_activation"}};
    return Renamed(config, names).With(more);
}

Status ModernBertMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(BertMeta(config, meta));
    WEFT_ASSIGN(const int64_t window, config.NeedInt({"local_attention"}, 2, 1 << 20));
    WEFT_TRY(WriteWindow(config, meta, window, nullptr));
    return WriteWindowedBase(config, meta);
}

Status ModernBertLayer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    if (layer != 0) return {};
    return AddNorm(assembly, "token_embd_norm",
                   prefix.substr(0, prefix.find("layers.")) + "embeddings.norm", false);
}

// A window of the decoder is the half of its config's that lies before a token.
Status ModernDecoderMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteUngated(config, meta));
    WEFT_ASSIGN(const int64_t window, config.NeedInt({"local_attention"}, 2, 1 << 20));
    WEFT_TRY(WriteWindow(config, meta, window / 2, nullptr));
    return WriteWindowedBase(config, meta);
}

Status ModernDecoderLayer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    if (layer != 0) return {};
    const std::string dense = "lm_head.dense";
    WEFT_ASSIGN(MatrixPtr weight, assembly.Checked(assembly.Linear(dense), dense, 0));
    assembly.Add("output_proj.weight", std::move(weight));
    WEFT_ASSIGN(MatrixPtr bias, assembly.Column(dense + ".bias"));
    if (bias != nullptr) assembly.AddVector("output_proj.bias", std::move(bias));
    WEFT_TRY(AddNorm(assembly, "output_proj_norm", "lm_head.norm", false));
    return ModernBertLayer(assembly, layer, prefix);
}

constexpr Rule kModernDecoderRules[] = {
    {"attn_norm", "attn_norm", Form::kNorm, false},
    {"attn_q", "attn.q_proj", Form::kQuery},
    {"attn_k", "attn.k_proj", Form::kKey},
    {"attn_v", "attn.v_proj", Form::kLinear},
    {"attn_output", "attn.Wo", Form::kLinear},
    {"ffn_norm", "mlp_norm", Form::kNorm},
    {"ffn_up", "mlp.Wi", Form::kLinear},
    {"ffn_down", "mlp.Wo", Form::kLinear},
};
constexpr Rule kModernBertRules[] = {
    {"attn_norm", "attn_norm", Form::kNorm, false},
    {"attn_qkv", "attn.Wqkv", Form::kLinear},
    {"attn_output", "attn.Wo", Form::kLinear},
    {"ffn_norm", "mlp_norm", Form::kNorm},
    {"ffn_up", "mlp.Wi", Form::kLinear},
    {"ffn_down", "mlp.Wo", Form::kLinear},
};
constexpr Rule kBertRules[] = {
    {"attn_q", "attention.self.query", Form::kLinear},
    {"attn_k", "attention.self.key", Form::kLinear},
    {"attn_v", "attention.self.value", Form::kLinear},
    {"attn_output", "attention.output.dense", Form::kLinear},
    {"attn_output_norm", "attention.output.LayerNorm", Form::kNorm},
    {"ffn_up", "intermediate.dense", Form::kLinear},
    {"ffn_down", "output.dense", Form::kLinear},
    {"layer_output_norm", "output.LayerNorm", Form::kNorm},
};
constexpr Rule kDistilBertRules[] = {
    {"attn_q", "attention.q_lin", Form::kLinear},
    {"attn_k", "attention.k_lin", Form::kLinear},
    {"attn_v", "attention.v_lin", Form::kLinear},
    {"attn_output", "attention.out_lin", Form::kLinear},
    {"attn_output_norm", "sa_layer_norm", Form::kNorm},
    {"ffn_up", "ffn.lin1", Form::kLinear},
    {"ffn_down", "ffn.lin2", Form::kLinear},
    {"layer_output_norm", "output_layer_norm", Form::kNorm},
};
constexpr std::string_view kBiases =
    "attn_q.bias attn_k.bias attn_v.bias attn_output.bias ffn_up.bias ffn_down.bias "
    "attn_output_norm.bias layer_output_norm.bias";

constexpr Family Bert(std::string_view type, std::string_view also,
                      Result<Config> (*adjust)(const Config&)) {
    return {.model_type = type,
            .also = also,
            .architecture = "bert",
            .rules = {kBertRules},
            .meta = BertMeta,
            .layer = BertLayer,
            .adjust = adjust,
            .defaults = R"({"layer_norm_eps": 1e-12, "max_position_embeddings": 512,
                            "hidden_act": "gelu"})",
            .embedding = "embeddings.word_embeddings",
            .final_norm = "",
            .encoder = true,
            .layers = "encoder.layer",
            .layer_norm = "layer_norm_eps",
            .more_tensors = kBiases};
}

constexpr Family kFolders[] = {
    Bert("bert", "", BertAdjust),
    Bert("roberta", "xlm-roberta camembert", RobertaAdjust),
    Like(Bert("distilbert", "", DistilBertAdjust),
         [](Family& family) {
             family.rules = {kDistilBertRules};
             family.defaults = R"({"layer_norm_eps": 1e-12, "max_position_embeddings": 512,
                                   "activation": "gelu"})";
             family.layers = "transformer.layer";
         }),
    {.model_type = "modernbert",
     .architecture = "modern-bert",
     .rules = {kModernBertRules},
     .meta = ModernBertMeta,
     .layer = ModernBertLayer,
     .adjust = ModernBertAdjust,
     .defaults = R"({"norm_eps": 1e-5, "max_position_embeddings": 8192, "hidden_act": "gelu",
                     "local_attention": 128, "global_attn_every_n_layers": 3,
                     "rope_theta": 160000.0, "local_rope_theta": 10000.0})",
     .rope = {.by_layer_type = true, .windowed_base = "local_rope_theta"},
     .embedding = "embeddings.tok_embeddings",
     .final_norm = "final_norm",
     .encoder = true,
     .layer_norm = "norm_eps",
     .more_tensors = "attn_qkv.bias?attention_bias attn_output.bias?attention_bias "
                     "ffn_up.bias?mlp_bias ffn_down.bias?mlp_bias"},
    {.model_type = "modernbert-decoder",
     .architecture = "modern-bert-decoder",
     .rules = {kModernDecoderRules},
     .meta = ModernDecoderMeta,
     .layer = ModernDecoderLayer,
     .adjust = ModernBertAdjust,
     .defaults = R"({"norm_eps": 1e-5, "max_position_embeddings": 8192, "hidden_act": "gelu",
                     "local_attention": 128, "global_attn_every_n_layers": 3,
                     "rope_theta": 160000.0, "local_rope_theta": 10000.0,
                     "tie_word_embeddings": true, "decoder_bias": true})",
     .rope = {.by_layer_type = true, .windowed_base = "local_rope_theta"},
     .embedding = "embeddings.tok_embeddings",
     .final_norm = "final_norm",
     .layer_norm = "norm_eps",
     .more_tensors = "output_proj.weight output_proj.bias?classifier_bias "
                     "output_proj_norm.weight output_proj_norm.bias?norm_bias "
                     "token_embd_norm.weight token_embd_norm.bias?norm_bias "
                     "attn_norm.bias?norm_bias ffn_norm.bias?norm_bias "
                     "output_norm.bias?norm_bias output.bias?decoder_bias "
                     "attn_q.bias?attention_bias attn_k.bias?attention_bias "
                     "attn_v.bias?attention_bias attn_output.bias?attention_bias "
                     "ffn_up.bias?mlp_bias ffn_down.bias?mlp_bias"},
};

ValueId BuildBert(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId q = b.ToHeads(x, "attn_q", false), k = b.ToKvHeads(x, "attn_k", false);
        const ValueId a = b.Attention(q, k, b.ToKvHeads(x, "attn_v", false));
        x = b.Norm(b.Add(x, b.FromHeads(a, "attn_output")), "attn_output_norm", hidden);
        x = b.Norm(b.Add(x, b.Mlp(x)), "layer_output_norm", hidden);
    }
    return x;
}

ValueId BuildModernBert(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId h = layer == 0 ? x : b.Norm(x, "attn_norm", hidden);
        x = b.Add(x, RotatedAttention(b, h, false));
        x = b.Add(x, b.Mlp(b.Norm(x, "ffn_norm", hidden)));
    }
    return x;
}

constexpr Architecture kArchitectures[] = {
    {.family = {"bert", "BERT, RoBERTa, XLM-RoBERTa, DistilBERT: MiniLM, bge, e5, gte (folders)",
                "an encoder: attention to later tokens; learned positions and token types; "
                "LayerNorm behind each part",
                "bert, roberta, distilbert"},
     .build = BuildBert,
     .traits = {.encoder = true,
                .norms = Norms::kLayer,
                .ungated = Ungated::kGelu,
                .rotates = false,
                .norms_embedding = true}},
    {.family = {"modern-bert", "ModernBERT: gte-modernbert, ModernBERT-embed (folders)",
                "an encoder: attention to later tokens, within windows except in each third layer",
                "modernBert, modernBertMean"},
     .build = BuildModernBert,
     .traits = {.encoder = true,
                .window_pattern = 3,
                .first_sees_all = true,
                .norms = Norms::kLayer,
                .ungated = Ungated::kGelu,
                .gates_ungated = true,
                .windowed_base = 10000,
                .norms_embedding = true}},
    {.family = {"modern-bert-decoder", "Ettin decoders (folders)",
                "LayerNorm, GeGLU, windows, RoPE of two bases, a dense layer before the output",
                "modernBertDecoder"},
     .build = BuildModernBert,
     .traits = {.norms = Norms::kLayer,
                .ungated = Ungated::kGelu,
                .gates_ungated = true,
                .windowed_base = 10000,
                .norms_embedding = true}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::bert
