#include "model_files/hf/kimi_delta.h"

#include <cmath>

namespace weft::model_files::hf {
namespace {

struct KdaShape {
    int64_t heads = 0, dim = 0, taps = 0;
    int64_t columns() const { return heads * dim; }
};

Result<KdaShape> ReadKdaShape(const Config& config) {
    KdaShape s;
    WEFT_ASSIGN(s.heads, config.NeedInt({"linear_num_heads"}, 1, 4096));
    WEFT_ASSIGN(s.dim, config.NeedInt({"linear_head_dim"}, 1, 1024));
    WEFT_ASSIGN(s.taps, config.NeedInt({"linear_conv_kernel_dim"}, 2, 64));
    WEFT_ASSIGN(const int64_t heads, config.NeedInt({"num_attention_heads"}, 1, 4096));
    if (s.heads == heads) return s;
    return config.Corrupt("linear_num_heads",
                          fmt::format("the same as num_attention_heads, {}", heads));
}

}  // namespace

Status TakeRenamed(const Config& config, Json& over) {
    WEFT_TRY(config.MustBe("attention_bias", false));
    WEFT_ASSIGN(const int64_t step, config.IntOr({"moe_layer_freq"}, 1, 4096, 1));
    if (step != 1) return config.Corrupt("moe_layer_freq", "1");
    const std::pair<const char*, const char*> names[] = {
        {"model_max_length", "max_position_embeddings"},
        {"moe_renormalize", "norm_topk_prob"},
        {"num_expert_group", "n_group"},
        {"num_experts_per_token", "num_experts_per_tok"},
        {"num_shared_experts", "n_shared_experts"},
        {"moe_router_activation_func", "scoring_func"}};
    for (const auto& [from, to] : names) {
        if (config.Has(from)) over[to] = config.json()[from];
        // (transformers reads null as false.)
        const bool null = config.json().contains(from) && config.json()[from].is_null();
        if (null && to == std::string_view("norm_topk_prob")) over[to] = false;
    }
    return {};
}

Status KdaMeta(const Config& config, MetaWriter& meta) {
    WEFT_ASSIGN(const KdaShape shape, ReadKdaShape(config));
    WEFT_ASSIGN(const std::vector<bool> kda, LayersOfType(config, "linear_attention"));
    WEFT_ASSIGN(const int64_t rotary, config.NeedInt({"qk_rope_head_dim"}, 0, 1024));
    Json heads = Json::array();  // KV heads by layer
    for (const bool none : kda) heads.push_back(none ? 0 : 1);
    const Json json = {{"layer_types", Json::array()},
                       {"num_key_value_heads", std::move(heads)},
                       {"head_dim", rotary}};
    WEFT_TRY(WriteCommon(config.With(json), meta));
    WEFT_TRY(LatentMeta(config, meta));
    meta.Int("ssm.conv_kernel", shape.taps);
    meta.Int("kda.head_dim", shape.dim);
    return {};
}

Status KdaLayer(Assembly& assembly, int64_t layer, const std::string& module, float sign) {
    WEFT_ASSIGN(const KdaShape shape, ReadKdaShape(assembly.config()));
    const auto checked = [&](MatrixPtr matrix, const std::string& name, int64_t rows,
                             int64_t cols) -> Result<MatrixPtr> {
        if (matrix != nullptr && matrix->rows() == rows && matrix->cols() == cols) return matrix;
        return MakeError(ErrorCode::kCorrupt,
                         "{}: tensor '{}' is missing, or does not have the shape {} x {} of "
                         "config.json",
                         assembly.folder(), name, rows, cols);
    };
    for (const char* each : {"q", "k", "v"}) {
        const std::string name = fmt::format("{}{}_conv1d.weight", module, each);
        WEFT_ASSIGN(MatrixPtr taps, assembly.Tensor(name));
        WEFT_ASSIGN(taps, checked(std::move(taps), name, shape.columns(), shape.taps));
        assembly.Add(Assembly::Block(layer, fmt::format("ssm_conv1d_{}.weight", each)),
                     Converted(std::move(taps), DType::kF32), {shape.taps, 1, shape.columns()});
    }
    const std::string rates = module + "A_log", steps = module + "dt_bias";
    WEFT_ASSIGN(MatrixPtr column, assembly.Column(rates));
    WEFT_ASSIGN(column, checked(std::move(column), rates, shape.heads, 1));
    column = Changed(std::move(column), [sign](float log) { return sign * std::exp(log); });
    assembly.Add(Assembly::Block(layer, "ssm_a"), std::move(column), {1, shape.heads});
    WEFT_ASSIGN(MatrixPtr bias, assembly.Column(steps));
    WEFT_ASSIGN(bias, checked(std::move(bias), steps, shape.columns(), 1));
    assembly.AddVector(Assembly::Block(layer, "ssm_dt.bias"), std::move(bias));
    return {};
}

}  // namespace weft::model_files::hf
