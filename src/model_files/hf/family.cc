#include "model_files/hf/family.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

namespace weft::model_files::hf {
namespace {

constexpr int64_t kMostLayers = 4096, kMostColumns = 1 << 20, kMostHeads = 4096;
constexpr int64_t kMostContext = 1ll << 31;

std::vector<const Family*> AllFamilies() {
    std::vector<const Family*> all;
    for (const std::span<const Family> some :
         {LlamaFamilies(), QwenFamilies(), GemmaFamilies(), Gemma4Families(), DeepseekFamilies(),
          MoeFamilies()}) {
        for (const Family& family : some) all.push_back(&family);
    }
    return all;
}

// The cosines' factor where two multipliers of the magnitude differ; where they are equal it is 1,
// which is what readers of mscale_all_dim take.
Status WriteMagnitude(const RopeConfig& rope, double factor, MetaWriter& meta) {
    const bool both = rope.params.Has("mscale") && rope.params.Has("mscale_all_dim");
    if (!both || rope.params.Has("attention_factor") || factor <= 1) return {};
    WEFT_ASSIGN(const double scale, rope.params.NeedF64({"mscale"}));
    WEFT_ASSIGN(const double all, rope.params.NeedF64({"mscale_all_dim"}));
    if (scale == 0 || all == 0 || scale == all) return {};
    const auto magnitude = [&](double by) { return 0.1 * by * std::log(factor) + 1; };
    meta.F32("rope.scaling.yarn_attn_factor", magnitude(scale) / magnitude(all));
    return {};
}

Status WriteScaling(const Config& config, const RopeConfig& rope, MetaWriter& meta) {
    // The last two are tensors.
    if (rope.type == "default" || rope.type == "llama3" || rope.type == "proportional") return {};
    meta.String("rope.scaling.type", rope.type);
    if (rope.type == "longrope") return {};
    WEFT_ASSIGN(const double factor, rope.params.NeedF64({"factor"}));
    meta.F32("rope.scaling.factor", factor);
    if (rope.type == "linear") return {};
    WEFT_ASSIGN(const int64_t context,
                config.NeedInt({"max_position_embeddings"}, 1, kMostContext));
    WEFT_ASSIGN(const int64_t original,
                rope.params.IntOr({"original_max_position_embeddings"}, 1, kMostContext, context));
    meta.Int("rope.scaling.original_context_length", original);
    const struct {
        std::string_view key, from;
        double times;
    } optional[] = {
        {"rope.scaling.yarn_beta_fast", "beta_fast", 1},
        {"rope.scaling.yarn_beta_slow", "beta_slow", 1},
        {"rope.scaling.yarn_attn_factor", "attention_factor", 1},
        {"rope.scaling.yarn_log_multiplier", "mscale_all_dim", 0.1},
    };
    for (const auto& [key, from, times] : optional) {
        if (!rope.params.Has(from)) continue;
        WEFT_ASSIGN(const double value, rope.params.NeedF64({from}));
        meta.F32(key, value * times);
    }
    WEFT_TRY(WriteMagnitude(rope, factor, meta));
    WEFT_ASSIGN(const bool truncate, rope.params.BoolOr({"truncate"}, true));
    meta.Bool("rope.scaling.yarn_truncate", truncate);
    return {};
}

// One number, or one a layer.
Status WriteKvHeads(const Config& config, int64_t heads, MetaWriter& meta) {
    constexpr std::string_view kKey = "num_key_value_heads";
    if (config.Has(kKey) && config.json()[kKey].is_array()) {
        WEFT_ASSIGN(const std::vector<int64_t> list, config.Ints({kKey}));
        const bool good = std::ranges::all_of(
            list, [](int64_t count) { return count >= 1 && count <= kMostHeads; });
        if (!good) return config.Corrupt(kKey, fmt::format("numbers of 1 to {}", kMostHeads));
        meta.Ints("attention.head_count_kv", list);
        return {};
    }
    WEFT_ASSIGN(const int64_t count, config.IntOr({kKey}, 1, kMostHeads, heads));
    meta.Int("attention.head_count_kv", count);
    return {};
}

}  // namespace

void MetaWriter::Bools(std::string_view key, std::span<const bool> values) {
    const auto type = static_cast<uint32_t>(MetaType::kBool);
    const uint64_t count = values.size();
    std::vector<std::byte> bytes(sizeof type + sizeof count + values.size());
    std::memcpy(bytes.data(), &type, sizeof type);
    std::memcpy(bytes.data() + sizeof type, &count, sizeof count);
    for (size_t i = 0; i < values.size(); ++i) {
        bytes[sizeof type + sizeof count + i] = static_cast<std::byte>(values[i]);
    }
    writer_.Raw(prefix_ + std::string(key), MetaType::kArray, bytes);
}

std::string SupportedModelTypes() {
    std::string names;
    for (const Family* family : AllFamilies()) {
        names += (names.empty() ? "" : ", ") + std::string(family->model_type);
    }
    return names;
}

Result<const Family*> FindFamily(const Config& config) {
    WEFT_ASSIGN(const std::string type, config.StringOr({"model_type"}, ""));
    WEFT_ASSIGN(const Config text, config.Sub({"text_config"}));
    WEFT_ASSIGN(const std::string inner, text.StringOr({"model_type"}, type));
    for (const std::string& name : {type, inner}) {
        for (const Family* family : AllFamilies()) {
            if (family->model_type == name) return family;
        }
    }
    return MakeError(ErrorCode::kUnsupported,
                     "{}: model_type '{}' is not supported. Supported: {}.", config.where(),
                     Shown(type), SupportedModelTypes());
}

Result<Config> TextConfig(const Config& config, const Family& family) {
    WEFT_ASSIGN(const Config defaults, Config::Parse(family.defaults, config.where()));
    WEFT_ASSIGN(const Config text, config.Sub({"text_config"}));
    const Config whole = defaults.With(config).With(text);
    return family.adjust == nullptr ? whole : family.adjust(whole);
}

Result<RopeConfig> ReadRope(const Config& config) {
    RopeConfig rope;
    WEFT_ASSIGN(rope.params, config.Sub({"rope_parameters", "rope_scaling"}));
    WEFT_ASSIGN(const Config full, rope.params.Sub({"full_attention"}));
    if (!full.json().empty()) rope.params = full;
    WEFT_ASSIGN(rope.type, rope.params.StringOr({"rope_type", "type"}, "default"));
    if (rope.type == "none") rope.type = "default";
    if (rope.type == "su") rope.type = "longrope";
    WEFT_ASSIGN(const double outer, config.F64Or({"rope_theta"}, 10000.0));
    WEFT_ASSIGN(rope.theta, rope.params.F64Or({"rope_theta"}, outer));
    constexpr std::string_view kKnown[] = {"default", "linear",   "llama3",
                                           "yarn",    "longrope", "proportional"};
    if (std::ranges::find(kKnown, rope.type) == std::end(kKnown)) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: RoPE scaling '{}' is not supported. Supported: default, linear, "
                         "llama3, yarn, longrope, proportional.",
                         config.where(), Shown(rope.type));
    }
    return rope;
}

Result<int64_t> HeadDim(const Config& config) {
    WEFT_ASSIGN(const int64_t hidden, config.NeedInt({"hidden_size"}, 1, kMostColumns));
    WEFT_ASSIGN(const int64_t heads, config.NeedInt({"num_attention_heads"}, 1, kMostHeads));
    return config.IntOr({"head_dim"}, 1, 1024, std::clamp<int64_t>(hidden / heads, 1, 1024));
}

Result<int64_t> RotaryDim(const Config& config, int64_t head_dim) {
    if (config.Has("rotary_dim")) return config.NeedInt({"rotary_dim"}, 2, head_dim);
    WEFT_ASSIGN(const RopeConfig rope, ReadRope(config));
    if (rope.type == "proportional" && head_dim >= 2) return head_dim;
    WEFT_ASSIGN(const double outer, config.F64Or({"partial_rotary_factor"}, 1.0));
    WEFT_ASSIGN(const double factor, rope.params.F64Or({"partial_rotary_factor"}, outer));
    if (!(factor > 0 && factor <= 1)) {
        return config.Corrupt("partial_rotary_factor", "more than 0, at most 1");
    }
    const auto rotary = static_cast<int64_t>(static_cast<double>(head_dim) * factor);
    if (rotary >= 2) return rotary;
    return config.Corrupt("partial_rotary_factor",
                          fmt::format("such that of {} dims of a head 2 are turned", head_dim));
}

Result<std::vector<float>> Llama3Factors(const RopeConfig& rope, int64_t rotary_dim) {
    WEFT_ASSIGN(const double factor, rope.params.NeedF64({"factor"}));
    WEFT_ASSIGN(const double low, rope.params.NeedF64({"low_freq_factor"}));
    WEFT_ASSIGN(const double high, rope.params.NeedF64({"high_freq_factor"}));
    WEFT_ASSIGN(const double context, rope.params.NeedF64({"original_max_position_embeddings"}));
    if (!(factor > 0) || !(low > 0) || !(high > low) || !(context > 0)) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: Llama 3's RoPE scaling needs factor > 0 and high_freq_factor > "
                         "low_freq_factor > 0; it has {}, {} and {}",
                         rope.params.where(), factor, high, low);
    }
    std::vector<float> factors;
    for (int64_t i = 0; i < rotary_dim / 2; ++i) {
        const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim);
        const double wavelength = 2 * std::numbers::pi / std::pow(rope.theta, exponent);
        const double blend = std::clamp((context / wavelength - low) / (high - low), 0.0, 1.0);
        factors.push_back(static_cast<float>(1.0 / ((1.0 - blend) / factor + blend)));
    }
    return factors;
}

Result<std::vector<float>> ProportionalFactors(const RopeConfig& rope, int64_t rotary_dim) {
    WEFT_ASSIGN(const double share, rope.params.F64Or({"partial_rotary_factor"}, 1.0));
    WEFT_ASSIGN(const double factor, rope.params.F64Or({"factor"}, 1.0));
    if (!(share > 0 && share <= 1) || !(factor > 0)) {
        return rope.params.Corrupt("partial_rotary_factor", "more than 0, at most 1");
    }
    const auto turned = static_cast<size_t>(share * static_cast<double>(rotary_dim) / 2);
    std::vector<float> factors(static_cast<size_t>(rotary_dim / 2), 1e30f);
    std::fill_n(factors.begin(), turned, static_cast<float>(factor));
    return factors;
}

Result<std::vector<RopeVector>> RopeVectors(const Config& config) {
    WEFT_ASSIGN(const RopeConfig rope, ReadRope(config));
    WEFT_ASSIGN(const int64_t head_dim, HeadDim(config));
    WEFT_ASSIGN(const int64_t rotary, RotaryDim(config, head_dim));
    std::vector<RopeVector> vectors;
    if (rope.type == "llama3") {
        WEFT_ASSIGN(std::vector<float> factors, Llama3Factors(rope, rotary));
        vectors.push_back({"rope_freqs.weight", std::move(factors)});
    }
    if (rope.type == "proportional") {
        WEFT_ASSIGN(std::vector<float> factors, ProportionalFactors(rope, rotary));
        vectors.push_back({"rope_freqs.weight", std::move(factors)});
    }
    if (rope.type != "longrope") return vectors;
    for (const auto& [key, tensor] : {std::pair{"long_factor", "rope_factors_long.weight"},
                                      std::pair{"short_factor", "rope_factors_short.weight"}}) {
        WEFT_ASSIGN(const std::vector<double> numbers, rope.params.Floats({key}));
        if (numbers.size() != static_cast<size_t>(rotary / 2)) {
            return rope.params.Corrupt(key, fmt::format("{} numbers", rotary / 2));
        }
        vectors.push_back({tensor, {numbers.begin(), numbers.end()}});
    }
    return vectors;
}

Status WriteWindowedBase(const Config& config, MetaWriter& meta, double usual) {
    WEFT_ASSIGN(const Config all, config.Sub({"rope_parameters"}));
    WEFT_ASSIGN(const Config rope, all.Sub({"sliding_attention"}));
    WEFT_ASSIGN(const std::string type, rope.StringOr({"rope_type"}, "default"));
    if (type != "default") {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: RoPE scaling '{}' in layers with a window is not supported",
                         config.where(), Shown(type));
    }
    WEFT_ASSIGN(const double base, rope.F64Or({"rope_theta"}, usual));
    meta.F32("rope.freq_base_swa", base);
    return {};
}

Status WriteExperts(const Config& config, MetaWriter& meta, std::string_view width,
                    std::string_view gating) {
    WEFT_ASSIGN(
        const int64_t count,
        config.NeedInt({"num_local_experts", "num_experts", "n_routed_experts"}, 1, 1 << 16));
    WEFT_ASSIGN(const int64_t used,
                config.NeedInt({"num_experts_per_tok", "experts_per_token"}, 1, count));
    WEFT_ASSIGN(const int64_t ffn, config.NeedInt({width}, 1, kMostColumns));
    meta.Int("expert_count", count);
    meta.Int("expert_used_count", used);
    meta.Int("expert_feed_forward_length", ffn);
    const struct {
        std::string_view key, from;
    } numbers[] = {{"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
                   {"expert_shared_count", "n_shared_experts"},
                   {"expert_group_count", "n_group"},
                   {"expert_group_used_count", "topk_group"},
                   {"leading_dense_block_count", "first_k_dense_replace"}};
    for (const auto& [key, from] : numbers) {
        if (!config.Has(from)) continue;
        WEFT_ASSIGN(const int64_t value, config.NeedInt({from}, 0, kMostColumns));
        meta.Int(key, value);
    }
    WEFT_ASSIGN(const double scale, config.F64Or({"routed_scaling_factor"}, 1.0));
    WEFT_ASSIGN(const bool norm, config.BoolOr({"norm_topk_prob"}, false));
    WEFT_ASSIGN(const std::string function,
                config.StringOr({"scoring_func", "score_function"}, std::string(gating)));
    if (function != "softmax" && function != "sigmoid") {
        return config.Corrupt("scoring_func", "'softmax' or 'sigmoid'");
    }
    meta.F32("expert_weights_scale", scale);
    meta.Bool("expert_weights_norm", norm);
    meta.Int("expert_gating_func", function == "softmax" ? 1 : 2);
    return {};
}

Result<std::vector<bool>> DenseLayers(const Config& config) {
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, kMostLayers));
    WEFT_ASSIGN(const int64_t first, config.IntOr({"first_k_dense_replace"}, 0, kMostLayers, 0));
    WEFT_ASSIGN(const int64_t step, config.IntOr({"decoder_sparse_step"}, 1, kMostLayers, 1));
    WEFT_ASSIGN(const std::vector<int64_t> named, config.Ints({"mlp_only_layers"}));
    std::vector<bool> dense;
    for (int64_t layer = 0; layer < layers; ++layer) {
        dense.push_back(layer < first || (layer + 1) % step != 0 ||
                        std::ranges::find(named, layer) != named.end());
    }
    return dense;
}

namespace {

// Layers of other kinds, of a model that says so: their tensors are others.
Status CheckLayerTypes(const Config& config) {
    WEFT_ASSIGN(const std::vector<std::string> types, config.Strings({"layer_types"}));
    for (size_t layer = 0; layer < types.size(); ++layer) {
        if (types[layer] == "full_attention" || types[layer] == "sliding_attention") continue;
        return MakeError(ErrorCode::kUnsupported,
                         "{}: layer {} is of type '{}'; full_attention and sliding_attention are "
                         "supported",
                         config.where(), layer, Shown(types[layer]));
    }
    return {};
}

}  // namespace

Status WriteCommon(const Config& config, MetaWriter& meta, std::string_view expected) {
    WEFT_TRY(CheckLayerTypes(config));
    WEFT_ASSIGN(const std::string activation,
                config.StringOr({"hidden_activation", "hidden_act"}, std::string(expected)));
    if (activation != expected) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: hidden_act '{}' is not supported for this model; '{}' is",
                         config.where(), Shown(activation), expected);
    }
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, kMostLayers));
    WEFT_ASSIGN(const int64_t hidden, config.NeedInt({"hidden_size"}, 1, kMostColumns));
    WEFT_ASSIGN(const int64_t heads, config.NeedInt({"num_attention_heads"}, 1, kMostHeads));
    WEFT_TRY(WriteKvHeads(config, heads, meta));
    WEFT_ASSIGN(const int64_t ffn, config.IntOr({"intermediate_size"}, 1, kMostColumns, 0));
    WEFT_ASSIGN(const int64_t context,
                config.IntOr({"max_position_embeddings"}, 1, kMostContext, 4096));
    WEFT_ASSIGN(const double eps, config.F64Or({"rms_norm_eps"}, 1e-6));
    WEFT_ASSIGN(const int64_t vocab, config.NeedInt({"vocab_size"}, 1, 1 << 26));
    WEFT_ASSIGN(const int64_t head_dim, HeadDim(config));
    WEFT_ASSIGN(const int64_t rotary, RotaryDim(config, head_dim));
    WEFT_ASSIGN(const RopeConfig rope, ReadRope(config));
    meta.Int("block_count", layers);
    meta.Int("context_length", context);
    meta.Int("embedding_length", hidden);
    if (ffn != 0) meta.Int("feed_forward_length", ffn);
    meta.Int("attention.head_count", heads);
    if (!config.Has("kv_lora_rank")) {  // else of the latent vector: family_deepseek.cc
        meta.Int("attention.key_length", head_dim);
        meta.Int("attention.value_length", head_dim);
    }
    meta.F32("attention.layer_norm_rms_epsilon", eps);
    meta.Int("rope.dimension_count", rotary);
    meta.F32("rope.freq_base", rope.theta);
    meta.Int("vocab_size", vocab);
    return WriteScaling(config, rope, meta);
}

Status WriteWindow(const Config& config, MetaWriter& meta, int64_t window,
                   bool (*pattern)(int64_t layer)) {
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, kMostLayers));
    WEFT_ASSIGN(const std::vector<std::string> types, config.Strings({"layer_types"}));
    if (!types.empty() && types.size() != static_cast<size_t>(layers)) {
        return config.Corrupt("layer_types", fmt::format("{} of them, one a layer", layers));
    }
    const auto slides = std::make_unique<bool[]>(static_cast<size_t>(layers));
    bool any = false;
    for (int64_t layer = 0; layer < layers; ++layer) {
        const auto i = static_cast<size_t>(layer);
        slides[i] = types.empty() ? pattern(layer) : types[i] == "sliding_attention";
        any = any || slides[i];
    }
    if (!any || window <= 0) return {};
    meta.Int("attention.sliding_window", window);
    meta.Bools("attention.sliding_window_pattern", {slides.get(), static_cast<size_t>(layers)});
    return {};
}

}  // namespace weft::model_files::hf
