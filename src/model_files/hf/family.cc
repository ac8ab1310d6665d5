#include "model_files/hf/family.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/text.h"
#include "model_files/hf/draft_folder.h"
#include "model_files/refused.h"
#include "tensor/ungated.h"

namespace weft::model_files::hf {
namespace {

// Whether `words` has the word.
bool Lists(std::string_view words, std::string_view word) {
    const std::vector<std::string_view> all = Words(words);
    return std::ranges::find(all, word) != all.end();
}

std::vector<const Family*> AllFamilies() {
    std::vector<const Family*> all;
    for (const std::span<const Family> some : AllTables()) {
        for (const Family& family : some) all.push_back(&family);
    }
    return all;
}

// One number, or one per layer; 0 KV heads: a layer without attention.
Status WriteHeads(const Config& config, std::string_view from, std::string_view key,
                  MetaWriter& meta) {
    const int64_t least = key == "attention.head_count" ? 1 : 0;
    if (config.json()[from].is_array()) {
        WEFT_ASSIGN(const std::vector<int64_t> list, config.Ints({from}));
        const bool good = std::ranges::all_of(
            list, [&](int64_t count) { return count >= least && count <= kMostHeads; });
        if (!good) {
            return config.Corrupt(from, fmt::format("numbers of {} to {}", least, kMostHeads));
        }
        meta.Ints(key, list);
        return {};
    }
    WEFT_ASSIGN(const int64_t count, config.NeedInt({from}, 1, kMostHeads));
    meta.Int(key, count);
    return {};
}

}  // namespace

std::string SupportedModelTypes() {
    std::set<std::string_view> names;
    for (const Family* family : AllFamilies()) {
        names.insert(family->model_type);
        for (const std::string_view type : Words(family->also)) names.insert(type);
    }
    return fmt::format("{}", fmt::join(names, ", "));
}

Result<const Family*> FindFamily(const Config& config) {
    if (IsDraftHead(config)) return &HeadFamily(config);
    WEFT_ASSIGN(const std::string type, config.StringOr({"model_type"}, ""));
    WEFT_ASSIGN(const Config text, config.Sub({"text_config"}));
    WEFT_ASSIGN(const std::string inner, text.StringOr({"model_type"}, type));
    for (const std::string& name : {type, inner}) {
        for (const Family* family : AllFamilies()) {
            if (family->model_type != name && !Lists(family->also, name)) continue;
            if (family->fits == nullptr) return family;
            WEFT_ASSIGN(const bool fits, family->fits(config.With(text)));
            if (fits) return family;
        }
    }
    if (type.empty()) return config.Corrupt("model_type", "the type of a language model");
    for (const std::string& name : {type, inner}) {
        const std::string why = WhyRefused(name);
        if (why.empty()) continue;
        return MakeError(ErrorCode::kUnsupported, "{}: model_type '{}' is not supported: {}",
                         config.where(), Shown(type), why);
    }
    const bool sees = config.Has("vision_config");
    return MakeError(ErrorCode::kUnsupported,
                     "{}: model_type '{}'{} is not supported. Supported: {}.", config.where(),
                     Shown(type), sees ? ", a vision-language model," : "", SupportedModelTypes());
}

Result<int64_t> PublishedDraftHeads(const Config& config, const Family& family) {
    return config.IntOr(
        {"num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers", "num_mtp_modules"},
        0, 64, family.draft_heads);
}

const Family* FamilyOfArchitecture(std::string_view architecture) {
    for (const Family* family : AllFamilies()) {
        if (family->architecture == architecture) return family;
    }
    return nullptr;
}

std::optional<QkvRows> RowsOf(QkvOrder order, int64_t heads, int64_t kv_heads, int64_t head_dim) {
    const bool groups = order == QkvOrder::kFourGroups;
    if (head_dim < 1 || kv_heads < 1 || heads % (groups ? 4 : kv_heads) != 0) return std::nullopt;
    const int64_t q = heads * head_dim, kv = kv_heads * head_dim, part = q / 4;
    const int64_t group = q / kv_heads, all = q + 2 * kv, each = group + 2 * head_dim;
    switch (order) {
        case QkvOrder::kWhole: return QkvRows{{0, q, all}, {q, kv, all}, {q + kv, kv, all}};
        case QkvOrder::kFourGroups:
            return QkvRows{{0, part, 3 * part}, {2 * part, part, 3 * part}, {part, part, 3 * part}};
        case QkvOrder::kByKvHead: break;
    }
    return QkvRows{{0, group, each}, {group, head_dim, each}, {group + head_dim, head_dim, each}};
}

std::vector<RuleOf<std::string>> RulesOf(const Family& family) {
    constexpr std::pair<std::string_view, std::string_view> kParts[] = {
        {"gate", "1"}, {"up", "3"}, {"down", "2"}};
    std::vector<RuleOf<std::string>> all;
    for (const std::span<const Rule> rules : family.rules) {
        for (const auto& [gguf, hf, form, needed] : rules) {
            const RuleOf<std::string> whole{std::string(gguf), std::string(hf), form, needed};
            const size_t at = gguf.find('%'), at_hf = hf.find('%');
            if (at == gguf.npos) {
                all.push_back(whole);
                continue;
            }
            for (const auto& [part, number] : kParts) {
                all.push_back(whole);
                all.back().gguf.replace(at, 1, part);
                all.back().hf.replace(at_hf, 1, hf[at_hf - 1] == 'w' ? number : part);
            }
        }
    }
    return all;
}

MetaWriter::MetaWriter(GgufWriter& writer, const Family& family, TensorFacts facts)
    : writer_(writer),
      family_(family),
      prefix_(std::string(family.architecture) + "."),
      facts_(std::move(facts)) {}

void MetaWriter::OfTensors(std::string_view key, double usual) {
    const auto found = facts_.numbers.find(key);
    if (found != facts_.numbers.end()) return writer_.F32s(key, found->second);
    writer_.F32(key, static_cast<float>(usual));
}

std::string_view MetaWriter::architecture() const {
    return family_.architecture;
}

namespace {

constexpr std::string_view kCommonDefaults =
    R"({"max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "tie_word_embeddings": false})";

// Keys for which null is a value. For other keys with a default, null is an error.
constexpr std::string_view kNullable[] = {"attn_logit_softcapping",
                                          "final_logit_softcapping",
                                          "rope_parameters",
                                          "sliding_window",
                                          "n_group",
                                          "topk_group",
                                          "norm_topk_prob",
                                          "q_lora_rank",
                                          "attention_chunk_size"};

Status CheckNulls(const Config& whole, const Config& defaults) {
    for (const auto& [key, value] : defaults.json().items()) {
        if (value.is_null() || whole.Has(key) ||
            std::ranges::find(kNullable, key) != std::end(kNullable))
            continue;
        return whole.Corrupt(key, "a value other than null");
    }
    return {};
}

// The config as the family's code in transformers reads it. Keys of routing that a family's router
// does not read have the family's value. Python takes false for null in keys that are tested before
// they are used; a null that says nothing about tied matrices is as if it were absent.
Config WithoutIgnored(Config whole, const Config& defaults, const Family& family) {
    constexpr std::string_view kRouting[] = {"n_group",        "topk_group",
                                             "norm_topk_prob", "scoring_func",
                                             "score_function", "routed_scaling_factor"};
    const auto reset = [&](std::string_view key) {
        whole = whole.Without(key);
        const auto usual = defaults.json().find(key);
        if (usual != defaults.json().end()) whole = whole.With(Json{{std::string(key), *usual}});
    };
    for (const std::string_view key : kRouting) {
        if (whole.Names(key) && !Lists(family.routing, key)) reset(key);
    }
    if (whole.Names("tie_word_embeddings") && !whole.Has("tie_word_embeddings")) {
        reset("tie_word_embeddings");
    }
    for (const std::string_view key : kNullable) {
        if (key != "norm_topk_prob" && whole.Has(key) && whole.json()[key] == false) {
            whole = whole.With(Json{{std::string(key), nullptr}});
        }
    }
    return whole;
}

// Checks that soft caps are absent in families without them.
Status CheckCaps(const Config& whole, const Family& family) {
    for (const std::string_view key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
        if (Lists(family.caps, key) || !whole.Has(key)) continue;
        return whole.Corrupt(key, fmt::format("null: a {} model has no cap", family.model_type));
    }
    return {};
}

Status CheckCausal(const Config& whole) {
    WEFT_ASSIGN(const bool causal, whole.BoolOr({"is_causal"}, true));
    if (causal) return {};
    return whole.Corrupt("is_causal", "true: attention to later tokens is not supported");
}

}  // namespace

Result<Config> TextConfig(const Config& config, const Family& family) {
    WEFT_ASSIGN(const Config common, Config::Parse(kCommonDefaults, config.where()));
    WEFT_ASSIGN(const Config own, Config::Parse(family.defaults, config.where()));
    WEFT_ASSIGN(const Config text, config.Sub({"text_config"}));
    const Config defaults = common.With(own);
    Json named = Json::object();  // keys of the whole model that override text_config
    if (config.Has("model_type")) named["model_type"] = config.json()["model_type"];
    // Multimodal models state for the whole model whether the output matrix is tied. If they say
    // so, their folder may lack that matrix, whatever text_config says.
    constexpr std::string_view kTied = "tie_word_embeddings";
    WEFT_ASSIGN(const bool tied, config.BoolOr({kTied}, true));
    if (!tied) named[kTied] = false;
    if (tied && config.Has("text_config")) named["whole_tie_word_embeddings"] = true;
    Config whole = WithoutIgnored(defaults.With(config).With(text).With(named), defaults, family);
    WEFT_TRY(CheckNulls(whole, defaults));
    WEFT_TRY(CheckCaps(whole, family));
    WEFT_TRY(CheckCausal(whole));
    if (family.adjust != nullptr) {
        WEFT_ASSIGN(whole, family.adjust(whole));
    }
    return ResolveRope(whole, family.rope, defaults);
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
    constexpr std::string_view kNorm = "norm_topk_prob";
    if (config.json().contains(kNorm) && !config.Has(kNorm)) {
        return config.Corrupt(kNorm, "true or false");
    }
    WEFT_ASSIGN(const bool norm, config.BoolOr({kNorm}, false));
    WEFT_ASSIGN(const std::string function,
                config.StringOr({"scoring_func", "score_function"}, std::string(gating)));
    const bool of_roots = function == "sqrtsoftplus" && gating == function;
    if (function != "softmax" && function != "sigmoid" && !of_roots) {
        return config.Corrupt("scoring_func", "'softmax' or 'sigmoid'");
    }
    meta.F32("expert_weights_scale", scale);
    meta.Bool("expert_weights_norm", norm);
    meta.Int("expert_gating_func", of_roots ? 4 : function == "softmax" ? 1 : 2);
    return {};
}

Status WriteNumbers(const Config& config, MetaWriter& meta,
                    std::initializer_list<std::pair<std::string_view, std::string_view>> names) {
    for (const auto& [key, from] : names) {
        WEFT_ASSIGN(const int64_t value, config.NeedInt({from}, 1, 1 << 20));
        meta.Int(key, value);
    }
    return {};
}

namespace {

// Keys that list the kind of each layer: mlp_layer_types, moe_layer_freq (1: experts) and
// moe_layers_enum ("3,4,5": layers with experts).
Status ReadMlpKinds(const Config& config, std::vector<bool>& dense) {
    const Json& json = config.json();
    WEFT_ASSIGN(const std::vector<std::string> types, config.Strings({"mlp_layer_types"}));
    const bool listed = config.Has("moe_layer_freq") && json["moe_layer_freq"].is_array();
    WEFT_ASSIGN(const std::vector<int64_t> has,
                listed ? config.Ints({"moe_layer_freq"}) : Result(std::vector<int64_t>()));
    const bool text = config.Has("moe_layers_enum") && json["moe_layers_enum"].is_string();
    const std::string named = text ? "," + json["moe_layers_enum"].get<std::string>() + "," : "";
    for (size_t layer = 0; layer < dense.size(); ++layer) {
        if (layer < types.size()) dense[layer] = types[layer] == "dense";
        if (layer < has.size()) dense[layer] = has[layer] == 0;
        if (text) dense[layer] = named.find(fmt::format(",{},", layer)) == named.npos;
    }
    return {};
}

}  // namespace

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
    WEFT_TRY(ReadMlpKinds(config, dense));
    return dense;
}

Result<Config> WithDenseLayers(const Config& config) {
    constexpr std::string_view kKey = "mlp_layer_types";
    WEFT_ASSIGN(const std::vector<std::string> types, config.Strings({kKey}));
    if (types.empty()) return config;
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, kMostLayers));
    const bool known = std::ranges::all_of(
        types, [](const std::string& type) { return type == "dense" || type == "sparse"; });
    if (!known || types.size() != static_cast<size_t>(layers)) {
        return config.Corrupt(kKey,
                              fmt::format("'dense' or 'sparse' for each of {} layers", layers));
    }
    const auto leading = std::ranges::find(types, "sparse") - types.begin();
    Json json = {{"first_k_dense_replace", leading}, {"mlp_only_layers", Json::array()}};
    for (int64_t layer = leading; layer < layers; ++layer) {
        if (types[static_cast<size_t>(layer)] == "dense") json["mlp_only_layers"].push_back(layer);
    }
    return config.With(json);
}

namespace {

// Refuses layer types that the family does not have.
Status CheckLayerTypes(const Config& config) {
    WEFT_ASSIGN(const std::vector<std::string> types, config.Strings({"layer_types"}));
    for (size_t layer = 0; layer < types.size(); ++layer) {
        if (types[layer] == "full_attention" || types[layer] == "sliding_attention") continue;
        return MakeError(ErrorCode::kUnsupported,
                         "{}: layer {} has type '{}'; expected full_attention or sliding_attention",
                         config.where(), layer, Shown(types[layer]));
    }
    return {};
}

// Columns of the MLP: one number, or one per layer; writes nothing if config.json has none.
Status WriteFfn(const Config& config, MetaWriter& meta) {
    constexpr std::string_view kFrom = "intermediate_size", kKey = "feed_forward_length";
    if (config.Has(kFrom) && config.json()[kFrom].is_array()) {
        WEFT_ASSIGN(const std::vector<int64_t> list, config.Ints({kFrom}));
        const bool good = std::ranges::all_of(
            list, [](int64_t columns) { return columns >= 0 && columns <= kMostColumns; });
        if (!good) return config.Corrupt(kFrom, fmt::format("numbers of 0 to {}", kMostColumns));
        meta.Ints(kKey, list);
        return {};
    }
    WEFT_ASSIGN(const int64_t ffn, config.IntOr({kFrom}, 1, kMostColumns, 0));
    if (ffn != 0) meta.Int(kKey, ffn);
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
    constexpr std::string_view kHeads = "num_attention_heads", kKvHeads = "num_key_value_heads";
    if (!config.Has(kHeads)) return config.NeedInt({kHeads}, 1, kMostHeads).error();
    WEFT_TRY(WriteHeads(config, kHeads, "attention.head_count", meta));
    WEFT_TRY(WriteHeads(config, config.Has(kKvHeads) ? kKvHeads : kHeads, "attention.head_count_kv",
                        meta));
    WEFT_ASSIGN(const int64_t context,
                config.IntOr({"max_position_embeddings"}, 1, kMostContext, 4096));
    const std::string_view own = meta.family().layer_norm;
    const bool centered = !own.empty() && !config.Has("rms_norm_eps");
    WEFT_ASSIGN(const double eps, config.F64Or({centered ? own : "rms_norm_eps"}, 1e-6));
    WEFT_ASSIGN(const int64_t vocab, config.NeedInt({"vocab_size"}, 1, 1 << 26));
    WEFT_ASSIGN(const int64_t head_dim, HeadDim(config));
    WEFT_ASSIGN(const int64_t rotary, RotaryDim(config, head_dim));
    WEFT_ASSIGN(const RopeConfig rope, ReadRope(config));
    meta.Int("block_count", layers + meta.draft_heads());
    if (meta.draft_heads() > 0) meta.Int("nextn_predict_layers", meta.draft_heads());
    meta.Int("context_length", context);
    meta.Int("embedding_length", hidden);
    WEFT_TRY(WriteFfn(config, meta));
    if (!config.Has("kv_lora_rank")) {  // else the sizes of latents: latent.cc
        meta.Int("attention.key_length", head_dim);
        WEFT_ASSIGN(const int64_t value_dim, config.IntOr({"v_head_dim"}, 1, 1024, head_dim));
        meta.Int("attention.value_length", value_dim);
    }
    meta.F32(centered ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", eps);
    meta.Int("rope.dimension_count", meta.family().rotary_times * rotary);
    meta.F32("rope.freq_base", rope.theta);
    meta.Int("vocab_size", vocab);
    return WriteRopeScaling(config, meta);
}

Config Renamed(const Config& config, const KeyNames& names) {
    Json over = Json::object();
    for (const auto& [key, old] : names) {
        if (config.Has(old)) over[std::string(key)] = config.json()[old];
    }
    return config.With(over);
}

Result<Config> UsualKeys(const Config& config, const KeyNames& names) {
    const Config renamed = Renamed(config, names);
    WEFT_ASSIGN(const int64_t hidden, renamed.NeedInt({"hidden_size"}, 1, kMostColumns));
    WEFT_ASSIGN(const int64_t heads, renamed.NeedInt({"num_attention_heads"}, 1, 4096));
    WEFT_ASSIGN(const int64_t ffn, renamed.IntOr({"intermediate_size"}, 1, 1 << 22, 4 * hidden));
    WEFT_ASSIGN(const int64_t kv, renamed.IntOr({"num_key_value_heads"}, 1, heads, heads));
    return renamed.With(Json{{"rms_norm_eps", nullptr},  // transformers ignores it
                             {"intermediate_size", ffn},
                             {"num_key_value_heads", kv}});
}

Result<Config> PlainKeys(const Config& config) {
    return UsualKeys(config, {});
}

Result<Config> NoRmsNorms(const Config& config) {
    return config.With(Json{{"rms_norm_eps", nullptr}});
}

KeyNames GptNames() {
    return {{"hidden_size", "n_embd"},
            {"num_hidden_layers", "n_layer"},
            {"num_attention_heads", "n_head"},
            {"intermediate_size", "n_inner"},
            {"max_position_embeddings", "n_positions"},
            {"hidden_act", "activation_function"}};
}

namespace {

Status WriteActivated(const Config& config, MetaWriter& meta, std::string_view usual) {
    constexpr std::pair<std::string_view, Ungated> kNames[] = {
        {"gelu", Ungated::kGelu},          {"gelu_new", Ungated::kGeluTanh},
        {"gelu_fast", Ungated::kGeluTanh}, {"gelu_pytorch_tanh", Ungated::kGeluTanh},
        {"relu", Ungated::kRelu},          {"relu2", Ungated::kReluSquared},
        {"silu", Ungated::kSilu},          {"swish", Ungated::kSilu}};
    WEFT_ASSIGN(const std::string name, config.StringOr({"hidden_act"}, std::string(usual)));
    if (name == usual) return WriteCommon(config, meta, name);
    const auto* const known =
        std::ranges::find(kNames, name, [](const auto& one) { return one.first; });
    if (known == std::end(kNames)) return config.Corrupt("hidden_act", "a known activation");
    meta.String("hidden_activation", UngatedName(known->second));
    return WriteCommon(config, meta, name);
}

}  // namespace

Status WriteUngated(const Config& config, MetaWriter& meta) {
    return WriteActivated(config, meta, "");
}

Status WriteGated(const Config& config, MetaWriter& meta) {
    return WriteActivated(config, meta, "silu");
}

Status WriteClamp(const Config& config, MetaWriter& meta) {
    constexpr std::string_view kKey = "clip_qkv";
    if (!config.Has(kKey)) return {};
    WEFT_ASSIGN(const double limit, config.NeedF64({kKey}));
    if (!(limit > 0)) return config.Corrupt(kKey, "more than 0, or null");
    meta.F32("attention.clamp_kqv", limit);
    return {};
}

Status WriteWindow(const Config& config, MetaWriter& meta, int64_t window,
                   bool (*pattern)(int64_t layer)) {
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, kMostLayers));
    WEFT_ASSIGN(const std::vector<std::string> types, config.Strings({"layer_types"}));
    if (!types.empty() && types.size() != static_cast<size_t>(layers)) {
        return config.Corrupt("layer_types", fmt::format("{} values, one per layer", layers));
    }
    std::vector<bool> slides(static_cast<size_t>(layers));
    bool any = false;
    for (int64_t layer = 0; layer < layers; ++layer) {
        const auto i = static_cast<size_t>(layer);
        slides[i] = types.empty() ? pattern(layer) : types[i] == "sliding_attention";
        any = any || slides[i];
    }
    if (!any) return {};
    if (window <= 0) return config.Corrupt("sliding_window", "a number of tokens above 0");
    meta.Int("attention.sliding_window", window);
    WEFT_ASSIGN(slides, WithDraftHead(config, meta, std::move(slides)));
    meta.Bools("attention.sliding_window_pattern", slides);
    return {};
}

Result<std::vector<bool>> WithDraftHead(const Config& config, const MetaWriter& meta,
                                        std::vector<bool> slides) {
    if (meta.draft_heads() == 0) return slides;
    WEFT_ASSIGN(const std::vector<std::string> types, config.Strings({"mtp_layer_types"}));
    slides.push_back(types.empty() ? meta.family().draft_head->slides
                                   : types[0] == "sliding_attention");
    return slides;
}

Result<std::vector<bool>> LayersOfType(const Config& config, std::string_view type) {
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, kMostLayers));
    WEFT_ASSIGN(const std::vector<std::string> types, config.Strings({"layer_types"}));
    if (types.size() != static_cast<size_t>(layers)) {
        return config.Corrupt("layer_types", fmt::format("{} values, one per layer", layers));
    }
    std::vector<bool> has;
    for (const std::string& each : types) {
        if (each != type && each != "full_attention") {
            return config.Corrupt("layer_types", fmt::format("only {} and full_attention", type));
        }
        has.push_back(each == type);
    }
    return has;
}

Result<Config> WithLayerTypes(const Config& config, int64_t usual, int64_t first) {
    constexpr std::string_view kKey = "sliding_window_pattern";
    if (config.Has("layer_types")) return config;
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, kMostLayers));
    std::string letters;
    int64_t step = usual;
    if (config.Has(kKey) && config.json()[kKey].is_string()) {
        WEFT_ASSIGN(letters, config.StringOr({kKey}, ""));
        if (letters.empty() || letters.find_first_not_of("LG") != letters.npos) {
            return config.Corrupt(kKey, "a number, or a string of the letters L and G");
        }
    } else {
        WEFT_ASSIGN(step, config.IntOr({kKey}, 0, kMostLayers, usual));
    }
    Json types = Json::array();
    for (int64_t layer = 0; layer < layers; ++layer) {
        const int64_t at = layer - first;
        bool slides = config.Has("sliding_window") && at >= 0;
        if (slides && letters.empty()) slides = step > 0 && (at + 1) % step != 0;
        if (slides && !letters.empty()) {
            slides = letters[static_cast<size_t>(at) % letters.size()] == 'L';
        }
        types.push_back(slides ? "sliding_attention" : "full_attention");
    }
    const Json over = {{"layer_types", std::move(types)}};
    return config.With(over);
}

Status WindowEverywhere(const Config& config, MetaWriter& meta) {
    if (!config.Has("sliding_window")) return {};
    WEFT_ASSIGN(const int64_t window, config.NeedInt({"sliding_window"}, 1, kMostContext));
    WEFT_ASSIGN(const std::vector<std::string> types, config.Strings({"layer_types"}));
    if (std::ranges::find(types, "full_attention") != types.end()) {
        return config.Corrupt("layer_types", "sliding_attention of all layers of such a model");
    }
    return WriteWindow(config, meta, window, [](int64_t) { return true; });
}

Status WriteUsedWindow(const Config& config, MetaWriter& meta, bool alternate) {
    WEFT_ASSIGN(const bool used, config.BoolOr({"use_sliding_window"}, false));
    if (!used || (!alternate && !config.Has("sliding_window"))) return {};
    WEFT_ASSIGN(const int64_t window, config.NeedInt({"sliding_window"}, 1, kMostContext));
    if (config.Has("layer_types")) {
        return WriteWindow(config, meta, window, [](int64_t) { return false; });
    }
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, kMostLayers));
    WEFT_ASSIGN(const int64_t full, config.IntOr({"max_window_layers"}, 0, kMostLayers, 28));
    Json types = Json::array();
    for (int64_t layer = 0; layer < layers; ++layer) {
        const bool slides = alternate ? layer % 2 == 0 && layer < full : layer >= full;
        types.push_back(slides ? "sliding_attention" : "full_attention");
    }
    const Config typed = config.With(Json{{"layer_types", types}});
    return WriteWindow(typed, meta, window, [](int64_t) { return false; });
}

Status WriteScales(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    const struct {
        std::string_view key, from;
    } scales[] = {{"attention.scale", "attention_multiplier"},
                  {"embedding_scale", "embedding_multiplier"},
                  {"residual_scale", "residual_multiplier"},
                  {"logit_scale", "logits_scaling"}};
    for (const auto& [key, from] : scales) {
        WEFT_ASSIGN(const double value, config.NeedF64({from}));
        meta.F32(key, value);
    }
    return {};
}

Status CheckClampedUnits(const Config& config) {
    WEFT_ASSIGN(const double limit, config.F64Or({"swiglu_limit"}, 7.0));
    if (limit != 7.0) return config.Corrupt("swiglu_limit", "7");
    WEFT_ASSIGN(const double alpha, config.F64Or({"swiglu_alpha"}, 1.702));
    if (alpha != 1.702) return config.Corrupt("swiglu_alpha", "1.702");
    return {};
}

}  // namespace weft::model_files::hf
