// BLOOM (Le Scao et al. 2022): GPT's layers with ALiBi and a normed embedding.
#include "families/family.h"

namespace weft::families::bloom {

Result<Config> BloomAdjust(const Config& config) {
    WEFT_TRY(config.MustBe("apply_residual_connection_post_layernorm", false));
    return UsualKeys(config, {{"hidden_size", "n_embed"},
                              {"num_hidden_layers", "n_layer"},
                              {"num_attention_heads", "n_head"},
                              {"max_position_embeddings", "seq_length"}});
}

Status BloomLayer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    for (const char* part : {".weight", ".bias"}) {
        if (layer != 0) break;
        const std::string name =
            Assembly::Beside(prefix, "h.", std::string("word_embeddings_layernorm") + part);
        WEFT_ASSIGN(MatrixPtr column, assembly.Checked(assembly.Column(name), name, 0));
        assembly.AddVector(std::string("token_embd_norm") + part, std::move(column));
    }
    return {};
}

constexpr Rule kBloomRules[] = {
    {"attn_output", "self_attention.dense", Form::kLinear},
    {"ffn_up", "mlp.dense_h_to_4h", Form::kLinear},
    {"ffn_down", "mlp.dense_4h_to_h", Form::kLinear},
};

constexpr Family kFolders[] = {
    {.model_type = "bloom",
     .architecture = "bloom",
     .rules = {kPreNormRules, kBloomRules},
     .qkv = {"self_attention.query_key_value"},
     .meta = WriteUngated,
     .layer = BloomLayer,
     .adjust = BloomAdjust,
     .defaults = R"({"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8,
                     "max_position_embeddings": 2048, "hidden_act": "gelu_pytorch_tanh",
                     "layer_norm_epsilon": 1e-5, "tie_word_embeddings": true})",
     .embedding = "word_embeddings",
     .final_norm = "ln_f",
     .layers = "h",
     .path = "transformer",
     .layer_norm = "layer_norm_epsilon",
     .more_tensors = "token_embd_norm.weight token_embd_norm.bias attn_norm.bias "
                     "ffn_norm.bias output_norm.bias "
                     "attn_q.weight attn_k.weight attn_v.weight attn_q.bias attn_k.bias "
                     "attn_v.bias attn_output.bias ffn_up.bias ffn_down.bias"},
};
constexpr Architecture kArchitectures[] = {
    {.family = {"bloom", "BLOOM, BLOOMZ",
                "ALiBi, LayerNorm with biases, a normed embedding, MLPs of GELU without a gate",
                "bloom"},
     .build = GptLayers,
     .traits = {.norms = Norms::kLayer,
                .ungated = Ungated::kGeluTanh,
                .rotates = false,
                .alibi = 8,
                .norms_embedding = true}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::bloom
