#include "model_files/hf/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "model_files/hf/family.h"

namespace weft::model_files::hf {
namespace {

constexpr int64_t kMostTokens = 1ll << 31;
constexpr std::string_view kFull = "full_attention", kSliding = "sliding_attention";
constexpr std::string_view kWindowedBase = "windowed_rope_theta";
constexpr std::string_view kRopeTypes[] = {"default",  "linear", "dynamic",     "yarn",
                                           "longrope", "llama3", "proportional"};
// Keys that a type of RoPE reads, or that change no text: mrope_interleaved orders the positions of
// images.
constexpr std::string_view kKnownKeys[] = {"rope_theta",
                                           "rope_type",
                                           "type",
                                           "factor",
                                           "beta_fast",
                                           "beta_slow",
                                           "mscale",
                                           "mscale_all_dim",
                                           "attention_factor",
                                           "truncate",
                                           "short_factor",
                                           "long_factor",
                                           "low_freq_factor",
                                           "short_mscale",
                                           "high_freq_factor",
                                           "mrope_section",
                                           "long_mscale",
                                           "llama_4_scaling_beta",
                                           "mrope_interleaved",
                                           "partial_rotary_factor",
                                           "original_max_position_embeddings"};

// m(s) of YaRN (Peng et al. 2023).
double Magnitude(double factor, double by) {
    return factor <= 1 ? 1.0 : 0.1 * by * std::log(factor) + 1.0;
}

class Resolver {
  public:
    Resolver(const Config& config, const RopeTraits& traits, const Config& defaults)
        : config_(config), traits_(traits), defaults_(defaults) {}

    Result<Config> Run() {
        WEFT_TRY(traits_.by_layer_type ? FindByLayerType() : FindFlat());
        WEFT_TRY(SetType());
        WEFT_TRY(SetRotated());
        WEFT_TRY(SetSections());
        WEFT_TRY(SetTemperature());
        WEFT_TRY(SetScaling());
        SetUnread();
        out_["rope_theta"] = theta_;
        Json over = {{"rope_parameters", std::move(out_)},
                     {"rope_scaling", nullptr},
                     {"rope_theta", nullptr}};
        if (windowed_theta_ > 0) over[kWindowedBase] = windowed_theta_;
        WEFT_ASSIGN(const Config resolved, Config::Parse(over.dump(), config_.where()));
        return config_.With(resolved);
    }

  private:
    // ---- Locations of the parameters ---------------------------------------------------------

    // rope_parameters; the family's default if config.json has null.
    Result<Config> Parameters() const {
        return config_.Has("rope_parameters") ? config_.Sub({"rope_parameters"})
                                              : defaults_.Sub({"rope_parameters"});
    }
    // The base from `params`; if it has none, from config.json's `key`.
    Result<double> Base(const Config& params, std::string_view key) const {
        if (params.Names("rope_theta")) return OneBase(params, "rope_theta");
        if (config_.Names(key)) return OneBase(config_, key);
        return 10000.0;
    }
    static Result<double> OneBase(const Config& from, std::string_view key) {
        if (!from.Has(key)) return from.Corrupt(key, "a number");
        WEFT_ASSIGN(const double base, from.NeedF64({key}));
        if (base > 1) return base;
        return from.Corrupt(key, "a number above 1");
    }

    // rope_scaling overrides rope_parameters, unless it is empty.
    Status FindFlat() {
        WEFT_ASSIGN(params_, config_.Sub({"rope_scaling"}));
        if (params_.json().empty()) {
            WEFT_ASSIGN(params_, Parameters());
        }
        for (const std::string_view key : {kFull, kSliding}) {
            if (!params_.Names(key)) continue;
            return MakeError(ErrorCode::kUnsupported,
                             "{}: '{}': this model type has one RoPE for all layers, not one per "
                             "layer type",
                             params_.where(), key);
        }
        WEFT_ASSIGN(theta_, Base(params_, "rope_theta"));
        return {};
    }

    Status FindByLayerType() {
        WEFT_ASSIGN(const Config all, Parameters());
        for (const auto& [key, value] : all.json().items()) {
            if (key == kFull || key == kSliding) continue;
            return all.Corrupt(key,
                               "only full_attention and sliding_attention: this model type has one "
                               "RoPE per layer type");
        }
        WEFT_ASSIGN(params_, all.Sub({kFull}));
        WEFT_ASSIGN(const Config windowed, all.Sub({kSliding}));
        const bool named = traits_.windowed_base.empty();
        if (named && !params_.Names("rope_theta")) {
            return all.Corrupt(kFull, "RoPE's parameters, with a rope_theta");
        }
        WEFT_TRY(AddOldScaling(all));
        WEFT_ASSIGN(theta_, Base(params_, "rope_theta"));
        WEFT_ASSIGN(const std::string type, windowed.StringOr({"rope_type", "type"}, "default"));
        if (type != "default") {
            return MakeError(ErrorCode::kUnsupported,
                             "{}: RoPE scaling '{}' in layers with a window is not supported",
                             windowed.where(), Shown(type));
        }
        WEFT_TRY(CheckShare(windowed));
        if (named && !windowed.Names("rope_theta")) return {};  // possibly no layer is windowed
        WEFT_ASSIGN(windowed_theta_, Base(windowed, traits_.windowed_base));
        return CheckWindowedBase(all, windowed);
    }
    // rope_scaling, which older config.json files have in addition to rope_theta.
    Status AddOldScaling(const Config& all) {
        WEFT_ASSIGN(const Config old, config_.Sub({"rope_scaling"}));
        if (old.json().empty()) return {};
        const bool fits = !traits_.windowed_base.empty() && old.Has("rope_type") &&
                          (all.json().empty() || all.Has(kFull));
        if (!fits) {
            return config_.Corrupt("rope_scaling",
                                   "rope_parameters for each layer type, or a rope_scaling with a "
                                   "rope_type");
        }
        params_ = params_.With(old);
        return {};
    }
    // Versions of transformers differ in whether rope_theta also applies to windowed layers.
    Status CheckWindowedBase(const Config& all, const Config& windowed) const {
        if (traits_.windowed_base != "rope_theta" || windowed.Names("rope_theta")) return {};
        WEFT_ASSIGN(const double usual, defaults_.NeedF64({"rope_theta"}));
        if (windowed_theta_ == usual) return {};
        return all.Corrupt(kSliding, fmt::format("its own rope_theta, since that of all layers is "
                                                 "not the usual {}",
                                                 usual));
    }

    // ---- Values ------------------------------------------------------------------------------

    Status SetType() {
        const std::string_view key = params_.Names("rope_type") ? "rope_type" : "type";
        const bool named = params_.Names(key);
        if (named && !params_.Has(key)) return params_.Corrupt(key, "the name of a RoPE scaling");
        WEFT_ASSIGN(type_, params_.StringOr({key}, "default"));
        if (!named && params_.Names("factor")) {
            return params_.Corrupt("rope_type",
                                   "the name of a RoPE scaling, in addition to 'factor'");
        }
        if (type_ == "none" || (traits_.mrope && type_ == "mrope")) type_ = "default";
        if (type_ == "su" || (traits_.only_longrope && type_ == "yarn")) type_ = "longrope";
        const bool known = std::ranges::find(kRopeTypes, type_) != std::end(kRopeTypes);
        if (known && (!traits_.only_longrope || type_ == "default" || type_ == "longrope")) {
            out_["rope_type"] = type_;
            return {};
        }
        return MakeError(ErrorCode::kUnsupported,
                         "{}: RoPE scaling '{}' is not supported{}. Supported: {}.",
                         params_.where(), Shown(type_), known ? " for this type of model" : "",
                         traits_.only_longrope ? "default, longrope"
                                               : fmt::format("{}", fmt::join(kRopeTypes, ", ")));
    }

    Result<double> Rotated() const {
        constexpr std::string_view kShare = "partial_rotary_factor";
        if (params_.Names(kShare)) {
            if (!params_.Has(kShare)) return params_.Corrupt(kShare, "a number");
            return params_.NeedF64({kShare});
        }
        if (config_.Has(kShare)) return config_.NeedF64({kShare});
        if (!config_.Has("rotary_dim")) return 1.0;
        WEFT_ASSIGN(const int64_t head_dim, HeadDim(config_));
        WEFT_ASSIGN(const int64_t rotary, config_.NeedInt({"rotary_dim"}, 2, head_dim));
        return static_cast<double>(rotary) / static_cast<double>(head_dim);
    }
    Status SetRotated() {
        WEFT_ASSIGN(const double share, Rotated());
        const bool any = traits_.partial || type_ == "proportional";
        const Config& from = params_.Names("partial_rotary_factor") ? params_ : config_;
        if (!(share > 0 && share <= 1)) {
            return from.Corrupt("partial_rotary_factor", "more than 0, at most 1");
        }
        if (!any && share != 1) {
            return from.Corrupt(
                from.Has("partial_rotary_factor") ? "partial_rotary_factor" : "rotary_dim",
                "1: this model type rotates whole heads");
        }
        out_["partial_rotary_factor"] = share;
        return {};
    }
    Status SetSections() {
        if (!traits_.mrope || !params_.Names("mrope_section")) return {};
        WEFT_ASSIGN(const std::vector<int64_t> sections, params_.Ints({"mrope_section"}));
        WEFT_ASSIGN(const int64_t head_dim, HeadDim(config_));
        const double share = out_.value("partial_rotary_factor", 1.0);
        const auto rotary = static_cast<int64_t>(static_cast<double>(head_dim) * share);
        int64_t pairs = 0;
        bool fits = sections.size() == 3;
        for (const int64_t section : sections) {
            fits = fits && section >= 0 && section <= rotary;
            if (fits) pairs += section;
        }
        if (!fits || 2 * pairs != rotary) {
            return params_.Corrupt("mrope_section",
                                   fmt::format("three numbers with the sum {}, the rotated pairs "
                                               "of a head",
                                               rotary / 2));
        }
        out_["mrope_section"] = sections;
        return {};
    }
    Status SetTemperature() {
        constexpr std::string_view kBeta = "llama_4_scaling_beta";
        if (!traits_.temperature || !params_.Names(kBeta)) return {};
        WEFT_ASSIGN(const double beta, params_.NeedF64({kBeta}));
        if (!(beta >= 0)) return params_.Corrupt(kBeta, "0 or more");
        WEFT_ASSIGN(const int64_t length,
                    params_.NeedInt({"original_max_position_embeddings"}, 1, kMostTokens));
        out_[kBeta] = beta;
        out_["temperature_length"] = length;
        return {};
    }
    Status CheckShare(const Config& windowed) {
        constexpr std::string_view kShare = "partial_rotary_factor";
        WEFT_ASSIGN(const double usual,
                    traits_.windowed_share ? config_.F64Or({kShare}, 1.0) : Result(1.0));
        WEFT_ASSIGN(const double share, windowed.F64Or({kShare}, usual));
        if (traits_.windowed_share && share > 0 && share <= 1) {
            out_["windowed_share"] = share;
            return {};
        }
        WEFT_ASSIGN(const double others, Rotated());
        const double expected = traits_.windowed_partial ? others : 1.0;
        if (share == expected) return {};
        return windowed.Corrupt("partial_rotary_factor",
                                fmt::format("{} in layers with a window", expected));
    }

    Status SetScaling() {
        WEFT_TRY(RefuseUnknownScales());
        if (type_ == "default") return {};
        if (type_ == "proportional") {
            WEFT_ASSIGN(out_["factor"], Positive("factor", 1.0));
            return {};
        }
        if (type_ == "linear" || type_ == "dynamic") {
            WEFT_ASSIGN(out_["factor"], Positive("factor"));
            return {};
        }
        WEFT_ASSIGN(const int64_t original, Original());
        out_["original_max_position_embeddings"] = original;
        if (type_ == "llama3") return SetLlama3();
        WEFT_ASSIGN(const double factor, FactorOrRatio(original));
        return type_ == "yarn" ? SetYarn(factor) : SetLongRope(factor, original);
    }
    // Refuses keys that other readers apply and transformers ignores.
    Status RefuseUnknownScales() const {
        for (const std::string_view key : {"short_mscale", "long_mscale"}) {
            if (params_.Has(key)) return params_.Corrupt(key, "none: it is not supported");
        }
        WEFT_ASSIGN(const double all, params_.F64Or({"mscale_all_dim"}, 0.0));
        if (type_ == "yarn" || all == 0 || !config_.Has("kv_lora_rank")) return {};
        return params_.Corrupt("mscale_all_dim", "a rope_type of 'yarn' in addition");
    }

    Result<double> Positive(std::string_view key, double usual = 0) const {
        if (usual != 0 && !params_.Names(key)) return usual;
        WEFT_ASSIGN(const double value, params_.NeedF64({key}));
        if (value > 0) return value;
        return params_.Corrupt(key, "a number above 0");
    }
    // A number for which null, 0 and absence mean `usual`.
    Result<double> Or(std::string_view key, double usual) const {
        WEFT_ASSIGN(const double value, params_.F64Or({key}, 0.0));
        return value == 0 ? usual : value;
    }
    Result<int64_t> MostPositions() const {
        return config_.NeedInt({"max_position_embeddings"}, 1, kMostTokens);
    }
    // config.json's own key overrides that in the parameters.
    Result<int64_t> Original() const {
        constexpr std::string_view kKey = "original_max_position_embeddings";
        const bool outer = !traits_.by_layer_type && config_.Names(kKey);
        const Config& from = outer ? config_ : params_;
        if (!from.Names(kKey)) return MostPositions();
        if (!from.Has(kKey)) return from.Corrupt(kKey, "a number of tokens");
        return from.NeedInt({kKey}, 1, kMostTokens);
    }
    // null (for longrope also absence) means the ratio by which the context is extended.
    Result<double> FactorOrRatio(int64_t original) const {
        if (params_.Has("factor") || (type_ == "yarn" && !params_.Names("factor"))) {
            return Positive("factor");
        }
        WEFT_ASSIGN(const int64_t most, MostPositions());
        return static_cast<double>(most) / static_cast<double>(original);
    }
    Result<double> AttentionFactor(double usual) const {
        if (!params_.Has("attention_factor")) return usual;
        return Positive("attention_factor");
    }

    Status SetYarn(double factor) {
        const bool latent = config_.Has("kv_lora_rank");
        WEFT_ASSIGN(const double scale, Or("mscale", 0));
        WEFT_ASSIGN(const double all, Or("mscale_all_dim", 0));
        if (latent && all != 0 && !params_.Has("factor")) {
            return params_.Corrupt("factor", "a number, in addition to 'mscale_all_dim'");
        }
        const bool both = scale != 0 && all != 0;
        const double usual =
            both ? Magnitude(factor, scale) / Magnitude(factor, all) : Magnitude(factor, 1);
        WEFT_ASSIGN(out_["attention_factor"], AttentionFactor(usual));
        WEFT_ASSIGN(out_["beta_fast"], Or("beta_fast", 32));
        WEFT_ASSIGN(out_["beta_slow"], Or("beta_slow", 1));
        // null counts as false; `truncate` of a single layer type is ignored by transformers.
        WEFT_ASSIGN(const bool truncate, params_.BoolOr({"truncate"}, !params_.Names("truncate")));
        if (traits_.by_layer_type && !truncate) return params_.Corrupt("truncate", "true");
        out_["truncate"] = truncate;
        out_["factor"] = factor;
        if (latent || traits_.temperature) out_["mscale_all_dim"] = all;
        return {};
    }

    Status SetLongRope(double factor, int64_t original) {
        if (original < 2) {
            return params_.Corrupt("original_max_position_embeddings", "more than 1");
        }
        const double grown = std::log(factor) / std::log(static_cast<double>(original));
        WEFT_ASSIGN(out_["attention_factor"],
                    AttentionFactor(factor <= 1 ? 1 : std::sqrt(1 + grown)));
        for (const std::string_view key : {"short_factor", "long_factor"}) {
            WEFT_ASSIGN(out_[key], params_.Floats({key}));
        }
        return {};
    }

    Status SetLlama3() {
        for (const std::string_view key : {"factor", "low_freq_factor", "high_freq_factor"}) {
            WEFT_ASSIGN(out_[key], Positive(key));
        }
        return {};
    }

    // Names the keys that transformers ignores and another program may apply: vLLM multiplies
    // YaRN's magnitude by attn_factor. The value 1 is neutral.
    void SetUnread() {
        std::vector<std::string> unread;
        for (const auto& [key, value] : params_.json().items()) {
            if (value.is_null() || value == 1) continue;
            if (std::ranges::find(kKnownKeys, key) != std::end(kKnownKeys)) continue;
            unread.push_back(fmt::format("'{}': {}", Shown(key), Shown(value.dump())));
        }
        if (!unread.empty()) out_["unread"] = fmt::format("{}", fmt::join(unread, ", "));
    }

    const Config& config_;
    const RopeTraits& traits_;
    const Config& defaults_;
    Config params_;  // for layers without a window
    std::string type_;
    double theta_ = 0, windowed_theta_ = 0;
    Json out_ = Json::object();
};

// The first part of the pairs rotates, with the frequencies that they would have if all did.
std::vector<float> ProportionalFactors(const RopeConfig& rope, int64_t rotary_dim) {
    const auto turned = static_cast<size_t>(rope.rotated * static_cast<double>(rotary_dim) / 2);
    std::vector<float> factors(static_cast<size_t>(rotary_dim / 2), 1e30f);
    std::fill_n(factors.begin(), turned, static_cast<float>(rope.factor));
    return factors;
}

}  // namespace

Result<Config> ResolveRope(const Config& config, const RopeTraits& traits, const Config& defaults) {
    return Resolver(config, traits, defaults).Run();
}

Result<RopeConfig> ReadRope(const Config& config) {
    RopeConfig rope;
    WEFT_ASSIGN(rope.params, config.Sub({"rope_parameters"}));
    WEFT_ASSIGN(rope.type, rope.params.StringOr({"rope_type"}, "default"));
    WEFT_ASSIGN(rope.theta, rope.params.F64Or({"rope_theta"}, 10000.0));
    WEFT_ASSIGN(rope.rotated, rope.params.F64Or({"partial_rotary_factor"}, 1.0));
    WEFT_ASSIGN(rope.factor, rope.params.F64Or({"factor"}, 1.0));
    WEFT_ASSIGN(rope.original,
                rope.params.IntOr({"original_max_position_embeddings"}, 1, kMostTokens, 0));
    WEFT_ASSIGN(rope.attention_factor, rope.params.F64Or({"attention_factor"}, 1.0));
    return rope;
}

Result<int64_t> HeadDim(const Config& config) {
    if (config.Has("kv_lora_rank")) return config.NeedInt({"qk_rope_head_dim"}, 0, 1024);
    if (config.Has("head_dim")) return config.NeedInt({"head_dim"}, 1, 1024);
    WEFT_ASSIGN(const int64_t hidden, config.NeedInt({"hidden_size"}, 1, 1 << 20));
    WEFT_ASSIGN(const int64_t heads, config.NeedInt({"num_attention_heads"}, 1, 4096));
    return config.IntOr({"head_dim"}, 1, 1024, std::clamp<int64_t>(hidden / heads, 1, 1024));
}

Result<int64_t> RotaryDim(const Config& config, int64_t head_dim) {
    WEFT_ASSIGN(const RopeConfig rope, ReadRope(config));
    const double share = rope.type == "proportional" ? 1.0 : rope.rotated;
    const auto rotary = static_cast<int64_t>(static_cast<double>(head_dim) * share);
    if (rotary >= 2 || head_dim == 0) return rotary;  // 0: latents without rotated columns
    return rope.params.Corrupt("partial_rotary_factor",
                               fmt::format("such that at least 2 of the {} dims of a head are "
                                           "rotated",
                                           head_dim));
}

Result<std::vector<float>> Llama3Factors(const RopeConfig& rope, int64_t rotary_dim) {
    WEFT_ASSIGN(const double factor, rope.params.NeedF64({"factor"}));
    WEFT_ASSIGN(const double low, rope.params.NeedF64({"low_freq_factor"}));
    WEFT_ASSIGN(const double high, rope.params.NeedF64({"high_freq_factor"}));
    WEFT_ASSIGN(const double context, rope.params.NeedF64({"original_max_position_embeddings"}));
    if (!(factor > 0) || !(low > 0) || !(high >= low) || !(context > 0)) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: Llama 3's RoPE scaling needs factor > 0 and high_freq_factor >= "
                         "low_freq_factor > 0; found {}, {} and {}",
                         rope.params.where(), factor, high, low);
    }
    std::vector<float> factors;
    for (int64_t i = 0; i < rotary_dim / 2; ++i) {
        const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim);
        const double wavelength = 2 * std::numbers::pi / std::pow(rope.theta, exponent);
        const double turns = context / wavelength;
        // Llama 4 Scout has no frequencies between the two.
        const double blend = high == low ? (turns >= low ? 1.0 : 0.0)
                                         : std::clamp((turns - low) / (high - low), 0.0, 1.0);
        factors.push_back(static_cast<float>(1.0 / ((1.0 - blend) / factor + blend)));
    }
    return factors;
}

Result<std::vector<RopeVector>> RopeVectors(const Config& config) {
    WEFT_ASSIGN(const RopeConfig rope, ReadRope(config));
    WEFT_ASSIGN(const int64_t head_dim, HeadDim(config));
    WEFT_ASSIGN(const int64_t rotary, RotaryDim(config, head_dim));
    std::vector<RopeVector> vectors;
    if (rope.type == "llama3") {
        WEFT_ASSIGN(std::vector<float> factors, Llama3Factors(rope, rotary));
        WEFT_ASSIGN(const int64_t count,
                    config.IntOr({"rope_factor_count"}, rotary / 2, 512, rotary / 2));
        factors.resize(static_cast<size_t>(count), 1.0f);
        vectors.push_back({"rope_freqs.weight", std::move(factors)});
    }
    if (rope.type == "proportional") {
        vectors.push_back({"rope_freqs.weight", ProportionalFactors(rope, rotary)});
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

Status WriteRopeScaling(const Config& config, MetaWriter& meta) {
    WEFT_ASSIGN(const RopeConfig rope, ReadRope(config));
    WEFT_ASSIGN(const std::string unread, rope.params.StringOr({"unread"}, ""));
    if (!unread.empty()) meta.String("rope.scaling.unread", unread);
    // The last two are stored as tensors.
    if (rope.type == "default" || rope.type == "llama3" || rope.type == "proportional") return {};
    if (rope.type == "dynamic") {  // like "default" up to the trained context
        meta.F32("rope.scaling.dynamic_factor", rope.factor);
        return {};
    }
    meta.String("rope.scaling.type", rope.type);
    if (rope.type == "linear") {
        meta.F32("rope.scaling.factor", rope.factor);
        return {};
    }
    meta.Int("rope.scaling.original_context_length", rope.original);
    double usual = 1;  // the magnitude that readers derive
    if (rope.type == "yarn") {
        WEFT_ASSIGN(const double fast, rope.params.NeedF64({"beta_fast"}));
        WEFT_ASSIGN(const double slow, rope.params.NeedF64({"beta_slow"}));
        WEFT_ASSIGN(const bool truncate, rope.params.BoolOr({"truncate"}, true));
        WEFT_ASSIGN(const double all, rope.params.F64Or({"mscale_all_dim"}, 0.0));
        meta.F32("rope.scaling.factor", rope.factor);
        meta.F32("rope.scaling.yarn_beta_fast", fast);
        meta.F32("rope.scaling.yarn_beta_slow", slow);
        meta.Bool("rope.scaling.yarn_truncate", truncate);
        // Readers then derive the magnitude 1; latent attention scales the softmax instead.
        const double tenth = meta.family().rope.log_multiplier;
        if (all != 0) meta.F32("rope.scaling.yarn_log_multiplier", tenth * all);
        usual = all != 0 ? 1.0 : Magnitude(rope.factor, 1);
    }
    if (std::abs(rope.attention_factor / usual - 1) <= 1e-6) return {};
    if (meta.family().rope.whole_magnitude) {
        meta.F32("rope.scaling.yarn_attn_factor", rope.attention_factor);
    } else {
        meta.F32("rope.scaling.attn_factor", rope.attention_factor / usual);
    }
    return {};
}

Status WriteTemperature(const Config& config, MetaWriter& meta) {
    WEFT_ASSIGN(const RopeConfig rope, ReadRope(config));
    WEFT_ASSIGN(const double beta, rope.params.F64Or({"llama_4_scaling_beta"}, 0.0));
    if (beta == 0) return {};
    WEFT_ASSIGN(const int64_t length, rope.params.NeedInt({"temperature_length"}, 1, kMostTokens));
    meta.F32("attention.temperature_scale", beta);
    meta.Int("attention.temperature_length", length);
    return {};
}

Status WriteRopeSections(const Config& config, MetaWriter& meta, std::vector<int64_t> usual) {
    WEFT_ASSIGN(const RopeConfig rope, ReadRope(config));
    if (rope.params.Has("mrope_section")) {
        WEFT_ASSIGN(usual, rope.params.Ints({"mrope_section"}));
    }
    usual.resize(4);  // GGUF has four sections
    meta.Ints("rope.dimension_sections", usual);
    return {};
}

Status WriteWindowedBase(const Config& config, MetaWriter& meta) {
    if (!config.Has(kWindowedBase)) {
        return config.Corrupt("rope_parameters", "a rope_theta for sliding_attention as well");
    }
    WEFT_ASSIGN(const double base, config.NeedF64({kWindowedBase}));
    meta.F32("rope.freq_base_swa", base);
    return {};
}

}  // namespace weft::model_files::hf
