#include "model_files/hf/delta_net.h"

#include <algorithm>
#include <cmath>

namespace weft::model_files::hf {
namespace {

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
    Status ByKind() {
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

}  // namespace

Result<std::vector<bool>> RecurrentLayers(const Config& config) {
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, kMostLayers));
    WEFT_ASSIGN(const std::vector<std::string> types, config.Strings({"layer_types"}));
    WEFT_ASSIGN(const int64_t interval, config.IntOr({"full_attention_interval"}, 1, 4096, 4));
    if (!types.empty()) return LayersOfType(config, "linear_attention");
    std::vector<bool> recurrent;
    for (int64_t layer = 1; layer <= layers; ++layer) recurrent.push_back(layer % interval != 0);
    return recurrent;
}

Status DeltaNetMeta(const Config& config, MetaWriter& meta) {
    WEFT_ASSIGN(const DeltaShape shape, ReadShape(config));
    WEFT_ASSIGN(const std::vector<bool> recurrent, RecurrentLayers(config));
    // The tensors show the layers' types.
    WEFT_TRY(WriteCommon(config.With(Json{{"layer_types", Json::array()}}), meta));
    WEFT_ASSIGN(const int64_t experts, config.IntOr({"num_experts"}, 0, 1 << 16, 0));
    if (experts > 0) WEFT_TRY(WriteExperts(config, meta, "moe_intermediate_size", "softmax"));
    // In text all sections have the same positions; llama.cpp requires the key.
    if (meta.family().rope.mrope) {
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

Status AddDeltaNet(Assembly& assembly, int64_t layer, const std::string& prefix, DeltaForm form) {
    WEFT_ASSIGN(const DeltaShape shape, ReadShape(assembly.config()));
    DeltaLayer delta(assembly, layer, prefix, shape);
    switch (form) {
        case DeltaForm::kTogether: return delta.Together();
        case DeltaForm::kByKind: return delta.ByKind();
        case DeltaForm::kSeparate: break;
    }
    return delta.Separate();
}

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

Result<std::vector<AdaptedPart>> ByKindParts(const ModelSource& source) {
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

}  // namespace weft::model_files::hf
