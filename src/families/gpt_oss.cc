// gpt-oss (OpenAI 2025): every other layer has a window, each head a sink, projections have biases,
// and experts a clamped SwiGLU. Folders have the rows of gate and up in alternate order, in MXFP4
// or as transposed floats.
#include "families/family.h"

namespace weft::families::gpt_oss {

Status GptOssMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_TRY(WriteExperts(config, meta, "intermediate_size", "softmax"));
    WEFT_TRY(CheckClampedUnits(config));
    WEFT_ASSIGN(const int64_t window, config.NeedInt({"sliding_window"}, 1, 1ll << 31));
    return WriteWindow(config, meta, window, [](int64_t layer) { return layer % 2 == 0; });
}

constexpr Rule kGptOssRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm},
    {"post_attention_norm", "post_attention_layernorm", Form::kNorm},
    {"attn_sinks.weight", "self_attn.sinks", Form::kVector},
    {"ffn_gate_inp", "mlp.router", Form::kRouter},
};

// A projection as [experts * rows, cols]; if quantized, from NAME_blocks and NAME_scales.
Result<MatrixPtr> GptOssMatrix(Assembly& assembly, const std::string& name, int64_t experts) {
    WEFT_ASSIGN(MatrixPtr matrix, assembly.Mxfp4(name));
    if (matrix == nullptr) {
        WEFT_ASSIGN(matrix, assembly.Tensor(name));
        if (matrix != nullptr && matrix->rows() % experts == 0) {
            const int64_t group = matrix->rows() / experts;
            matrix = Transposed(std::move(matrix), group);
        }
    }
    if (matrix != nullptr && matrix->rows() % experts == 0) return matrix;
    return MakeError(ErrorCode::kCorrupt,
                     "{}: '{}' is missing, or its rows are not a multiple of {} experts",
                     assembly.folder(), name, experts);
}

// A bias as [experts, size].
Status AddBias(Assembly& assembly, const std::string& gguf, MatrixPtr column, int64_t experts) {
    if (column == nullptr || column->rows() % experts != 0) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: the bias for '{}' is missing, or its size is not a multiple of {} "
                         "experts",
                         assembly.folder(), gguf, experts);
    }
    const int64_t size = column->rows() / experts;
    assembly.Add(gguf, Reshaped(std::move(column), size), {size, experts});
    return {};
}

Status GptOssExperts(Assembly& assembly, int64_t layer, const std::string& prefix) {
    WEFT_ASSIGN(const int64_t experts, assembly.ExpertCount());
    const std::string both = prefix + "mlp.experts.gate_up_proj";
    const std::string down = prefix + "mlp.experts.down_proj";
    for (const int64_t odd : {0, 1}) {
        const std::string part = odd == 0 ? "ffn_gate" : "ffn_up";
        WEFT_ASSIGN(MatrixPtr matrix, GptOssMatrix(assembly, both, experts));
        WEFT_ASSIGN(MatrixPtr bias, assembly.Column(both + "_bias"));
        const int64_t rows = matrix->rows() / 2;
        if (rows < 1 || rows % experts != 0 || bias == nullptr || bias->rows() != 2 * rows) {
            return MakeError(ErrorCode::kCorrupt,
                             "{}: '{}' and its bias do not have the size of gate and up of {} "
                             "experts",
                             assembly.folder(), both, experts);
        }
        assembly.AddExperts(layer, part, SomeRows(std::move(matrix), odd, 1, 2, rows), experts);
        WEFT_TRY(AddBias(assembly, Assembly::Block(layer, part + "_exps.bias"),
                         SomeRows(std::move(bias), odd, 1, 2, rows), experts));
    }
    WEFT_ASSIGN(MatrixPtr matrix, GptOssMatrix(assembly, down, experts));
    WEFT_ASSIGN(MatrixPtr bias, assembly.Column(down + "_bias"));
    assembly.AddExperts(layer, "ffn_down", std::move(matrix), experts);
    return AddBias(assembly, Assembly::Block(layer, "ffn_down_exps.bias"), std::move(bias),
                   experts);
}

constexpr Family kFolders[] = {
    {.model_type = "gpt_oss",
     .architecture = "gpt-oss",
     .rules = {kGptOssRules, kAttentionRules},
     .meta = GptOssMeta,
     .layer = GptOssExperts,
     .defaults = R"({"max_position_embeddings": 131072, "rope_theta": 150000.0,
                     "rms_norm_eps": 1e-5, "head_dim": 64, "sliding_window": 128,
                     "norm_topk_prob": true, "num_local_experts": 128, "intermediate_size": 2880,
                     "rope_parameters": {
                         "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                         "truncate": false, "original_max_position_embeddings": 4096}})",
     .more_tensors = "attn_q.bias attn_k.bias attn_v.bias attn_output.bias ffn_gate_inp.bias "
                     "ffn_gate_exps.bias ffn_up_exps.bias ffn_down_exps.bias"},
};

ValueId BuildGptOss(Builder& b, ValueId x) {
    const auto attend = [&](ValueId h) { return RotatedAttention(b, h, false, true); };
    return PreNormLayers(b, x, attend, "post_attention_norm");
}

constexpr Architecture kArchitectures[] = {
    {.family = {"gpt-oss", "gpt-oss", "windows, sinks, biases, clamped SwiGLU, YaRN", "gptOss"},
     .build = BuildGptOss,
     .experts = true,
     .traits = {.window_pattern = 2,
                .activation = Activation::kClampedSilu,
                .truncates_yarn = false}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::gpt_oss
