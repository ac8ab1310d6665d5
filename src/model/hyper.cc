#include "model/hyper.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "model/architecture.h"
#include "model/model.h"
#include "model_files/draft_source.h"
#include "model_files/refused.h"

namespace weft::model {
namespace {

constexpr int64_t kMostLayers = 4096, kMostColumns = 1 << 20, kMostHeads = 4096;
constexpr int64_t kMostHeadDim = 512;  // the attention kernels' limit

// An optional number, with a default.
Result<float> Number(const model_files::ModelSource& source, const std::string& key, double least,
                     double most, double fallback) {
    WEFT_ASSIGN(const double value, source.meta().F64Or(key, fallback));
    if (value >= least && value <= most) return static_cast<float>(value);
    return MakeError(ErrorCode::kCorrupt, "{}: {} is {}; expected {} to {}", source.name(), key,
                     value, least, most);
}

Status ReadNorm(const model_files::ModelSource& source, const std::string& prefix, Hyper& hyper) {
    const std::string rms = prefix + "attention.layer_norm_rms_epsilon";
    const Norms norms = TraitsOf(hyper.architecture).norms;
    const bool has_rms = source.meta().Has(rms);
    hyper.layer_norm = norms == Norms::kLayer || norms == Norms::kPlainLayer ||
                       (norms == Norms::kByKey && !has_rms);
    hyper.end_biases = norms == Norms::kLayer;
    hyper.plain_norms = norms == Norms::kPlainLayer || norms == Norms::kPlainRms;
    const bool centered = hyper.layer_norm && !has_rms;
    const std::string key = centered ? prefix + "attention.layer_norm_epsilon" : rms;
    WEFT_ASSIGN(const double eps, source.meta().F64(key));
    hyper.rms_eps = static_cast<float>(eps);
    if (eps >= 0 && eps < 1) return {};
    return MakeError(ErrorCode::kCorrupt, "{}: {} is {}; expected 0 to 1", source.name(), key, eps);
}

Status ReadWindow(const model_files::ModelSource& source, const std::string& prefix, Hyper& hyper) {
    const model_files::Metadata& meta = source.meta();
    const Traits& traits = TraitsOf(hyper.architecture);
    WEFT_ASSIGN(hyper.window,
                meta.IntOr(prefix + "attention.sliding_window", 0, 1ll << 31, traits.window));
    if (hyper.window == 0) return {};
    if (hyper.encoder) hyper.window = hyper.window / 2 + 1;  // files count both sides
    const bool drafts =
        source.FindTensor(fmt::format("blk.{}.nextn.eh_proj.weight", hyper.layers)) != nullptr;
    const int64_t all = hyper.layers + (drafts ? 1 : 0);
    const std::string key = prefix + "attention.sliding_window_pattern";
    const model_files::MetaEntry* entry = meta.Find(key);
    std::vector<int64_t> layers;
    if (entry != nullptr && entry->type == model_files::MetaType::kArray) {
        WEFT_ASSIGN(layers, meta.Ints(key));
        if (static_cast<int64_t>(layers.size()) < hyper.layers) {
            return MakeError(ErrorCode::kCorrupt, "{}: {} names {} layers; the model has {}",
                             source.name(), key, layers.size(), hyper.layers);
        }
    } else {
        WEFT_ASSIGN(const int64_t pattern, meta.IntOr(key, 0, kMostLayers, traits.window_pattern));
        for (int64_t layer = 0; layer < all; ++layer) {
            const int64_t whole = traits.first_sees_all ? 0 : pattern - 1;
            layers.push_back(pattern == 0 || layer % pattern != whole);
        }
    }
    for (int64_t layer = 0; layer < std::min(all, std::ssize(layers)); ++layer) {
        hyper.windowed.push_back(layers[static_cast<size_t>(layer)] != 0);
    }
    return {};
}

// One number for all layers, or one per layer; empty: no such key.
Result<std::vector<float>> ByLayer(const model_files::ModelSource& source, const std::string& key,
                                   const Hyper& hyper) {
    const model_files::MetaEntry* entry = source.meta().Find(key);
    std::vector<float> numbers;
    if (entry == nullptr) return numbers;
    if (entry->type == model_files::MetaType::kArray) return source.meta().Floats(key);
    WEFT_ASSIGN(const double all, source.meta().F64Or(key, 0));
    numbers.assign(static_cast<size_t>(hyper.layers), static_cast<float>(all));
    return numbers;
}

// Limits of gated units.
Result<std::vector<float>> ReadLimits(const model_files::ModelSource& source,
                                      const std::string& key, const Hyper& hyper) {
    WEFT_ASSIGN(std::vector<float> limits, ByLayer(source, key, hyper));
    if (limits.empty()) return limits;
    const auto fits = [](float limit) { return limit >= 0 && limit < 1e6f; };
    if (static_cast<int64_t>(limits.size()) < hyper.layers || !std::ranges::all_of(limits, fits)) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: {} must be a number from 0 for each of {} layers", source.name(), key,
                         hyper.layers);
    }
    return limits;
}

// Files have the parameters of xIELU before softplus, which keeps them positive.
Status ReadXielu(const model_files::ModelSource& source, Hyper& hyper) {
    if (hyper.ungated != Ungated::kXielu) return {};
    std::vector<float> columns[4];
    constexpr const char* kKeys[] = {"xielu.alpha_p", "xielu.alpha_n", "xielu.beta", "xielu.eps"};
    for (size_t i = 0; i < std::size(kKeys); ++i) {
        WEFT_ASSIGN(columns[i], ByLayer(source, kKeys[i], hyper));
        const auto fits = [](float number) { return std::fabs(number) < 1e4f; };
        if (columns[i].size() >= static_cast<size_t>(hyper.layers) &&
            std::ranges::all_of(columns[i], fits)) {
            continue;
        }
        return MakeError(ErrorCode::kCorrupt, "{}: {} must be a number for each of {} layers",
                         source.name(), kKeys[i], hyper.layers);
    }
    const auto positive = [](float raw) {
        return std::max(raw, 0.0f) + std::log1p(std::exp(-std::fabs(raw)));
    };
    for (size_t layer = 0; layer < static_cast<size_t>(hyper.layers); ++layer) {
        const float beta = columns[2][layer];
        hyper.xielu.push_back({positive(columns[0][layer]), beta + positive(columns[1][layer]),
                               beta, columns[3][layer]});
    }
    return {};
}

// A tensor of one number; 1 if the file has none.
Result<float> OneNumber(const model_files::ModelSource& source, std::string_view name) {
    const model_files::TensorInfo* info = source.FindTensor(name);
    if (info == nullptr) return 1.0f;
    if (info->rows != 1 || info->cols != 1) {
        return MakeError(ErrorCode::kCorrupt, "{}: tensor {} is [{}, {}]; expected one number",
                         source.name(), name, info->rows, info->cols);
    }
    WEFT_ASSIGN(const std::vector<float> values, source.ReadFloats(*info));
    return values.front();
}

// Factors of the whole embedding and output matrix (Falcon-H1).
Status ReadEndScales(const model_files::ModelSource& source, Hyper& hyper) {
    WEFT_ASSIGN(const float embedding, OneNumber(source, "token_embd.scale"));
    WEFT_ASSIGN(const float output, OneNumber(source, "output.scale"));
    hyper.embedding_scale *= embedding;
    hyper.logit_scale *= output;
    return {};
}

// The activation of MLPs: the architecture's, or that which the file names.
Status ReadUngated(const model_files::ModelSource& source, const std::string& prefix,
                   Hyper& hyper) {
    hyper.ungated = TraitsOf(hyper.architecture).ungated;
    hyper.gates_ungated = TraitsOf(hyper.architecture).gates_ungated;
    const std::string key = prefix + "hidden_activation";
    if (!source.meta().Has(key)) return ReadXielu(source, hyper);
    WEFT_ASSIGN(const std::string name, source.meta().String(key));
    for (const Activation gated : {Activation::kSilu, Activation::kGeluTanh}) {
        if (hyper.ungated || name != ActivationName(gated)) continue;
        hyper.activation = gated;
        return {};
    }
    if (!hyper.ungated) hyper.gates_ungated = true;
    const auto* const known = std::ranges::find(kEveryUngated, name, UngatedName);
    const bool experts = hyper.gates_ungated && hyper.moe.experts > 0;
    if (known == std::end(kEveryUngated) || *known == Ungated::kClamp || experts) {
        return MakeError(ErrorCode::kUnsupported, "{}: {} is '{}', which is not supported{}",
                         source.name(), key, name, experts ? " for experts" : "");
    }
    hyper.ungated = *known;
    return ReadXielu(source, hyper);
}

// Factors and caps that some families put on scores, logits and the residual stream.
Status ReadScales(const model_files::ModelSource& source, const std::string& prefix, Hyper& hyper) {
    const Traits& traits = TraitsOf(hyper.architecture);
    const double root = std::sqrt(static_cast<double>(hyper.hidden));
    const bool by_hidden = hyper.layers == traits.layers_by_hidden;
    const int64_t query_dim = traits.plain_scores ? 1
                              : by_hidden         ? hyper.hidden / hyper.heads
                                                  : hyper.head_dim;
    WEFT_ASSIGN(hyper.attention_scale, Number(source, prefix + "attention.scale", 0, 1e6,
                                              1.0 / std::sqrt(static_cast<double>(query_dim))));
    WEFT_ASSIGN(hyper.attention_cap,
                Number(source, prefix + "attn_logit_softcapping", 0, 1e6, traits.attention_cap));
    WEFT_ASSIGN(hyper.logit_cap,
                Number(source, prefix + "final_logit_softcapping", 0, 1e6, traits.logit_cap));
    if (traits.embeds_by_root) hyper.embedding_scale = static_cast<float>(root);
    hyper.activation = traits.activation;
    if (traits.value_scale) {
        WEFT_ASSIGN(hyper.value_scale,
                    Number(source, prefix + "attention.value_scale", 1e-6, 1e6, 1.0));
    }
    WEFT_ASSIGN(hyper.expert_limits, ReadLimits(source, prefix + "swiglu_clamp_exp", hyper));
    WEFT_ASSIGN(hyper.shared_limits, ReadLimits(source, prefix + "swiglu_clamp_shexp", hyper));
    if (traits.limits_gate) {
        hyper.limits_gate = true;
        const bool shared = !traits.limits_routed;
        if (shared && hyper.shared_limits.empty()) hyper.shared_limits = hyper.expert_limits;
    }
    WEFT_TRY(ReadUngated(source, prefix, hyper));
    WEFT_ASSIGN(hyper.beside, source.meta().BoolOr(prefix + "use_parallel_residual", false));
    WEFT_ASSIGN(hyper.clamp, Number(source, prefix + "attention.clamp_kqv", 0, 1e6, 0));
    if (traits.logit_factor) {
        WEFT_ASSIGN(hyper.logit_scale, Number(source, prefix + "logit_scale", 1e-6, 1e6, 1.0));
    }
    if (!traits.granite_scales) return {};
    // Old MiniCPM files and those of MiniCPM 3 omit the factors.
    const bool cpm = traits.cpm_scales;
    const double depth = std::sqrt(static_cast<double>(hyper.layers));
    const double width = static_cast<double>(hyper.hidden) / 256;
    WEFT_ASSIGN(hyper.embedding_scale,
                Number(source, prefix + "embedding_scale", 1e-6, 1e6, cpm ? 12.0 : 1.0));
    WEFT_ASSIGN(hyper.residual_scale,
                Number(source, prefix + "residual_scale", 1e-6, 1e6, cpm ? 1.4 / depth : 1.0));
    WEFT_ASSIGN(const float divisor,
                Number(source, prefix + "logit_scale", 1e-6, 1e6, cpm ? width : 1.0));
    hyper.logit_scale = 1.0f / divisor;
    return {};
}

// If a file has no length, the query factor starts to grow at the original context of RoPE scaling.
// Files of Llama 4 with position-free layers have neither scale nor length.
Status ReadTemperature(const model_files::ModelSource& source, const std::string& prefix,
                       Hyper& hyper) {
    if (!TraitsOf(hyper.architecture).temperature) return {};
    WEFT_ASSIGN(hyper.temperature.beta, Number(source, prefix + "attention.temperature_scale", 0,
                                               1e3, hyper.chunked ? 0.1 : 0.0));
    WEFT_ASSIGN(hyper.temperature.length,
                source.meta().IntOr(prefix + "attention.temperature_length", 1, 1ll << 31,
                                    hyper.chunked ? 8192 : hyper.ropes.original_context));
    hyper.temperature.offset = hyper.chunked ? 1 : 0;
    return {};
}

// Rejects keys that change the results and are not supported, instead of ignoring them.
Status RefuseUnknownScales(const model_files::ModelSource& source, const std::string& prefix,
                           const Hyper& hyper) {
    std::vector<const char*> unknown;
    const Traits& traits = TraitsOf(hyper.architecture);
    if (!traits.alibi) unknown.push_back("attention.max_alibi_bias");
    if (!traits.clamps && hyper.clamp != 0) unknown.push_back("attention.clamp_kqv");
    if (!traits.temperature) unknown.push_back("attention.temperature_scale");
    if (!traits.value_scale) unknown.push_back("attention.value_scale");
    if (!traits.limits) {
        for (const char* key : {"swiglu_clamp_exp", "swiglu_clamp_shexp"}) unknown.push_back(key);
    }
    if (!traits.granite_scales) {
        for (const char* key : {"embedding_scale", "residual_scale"}) unknown.push_back(key);
        if (!traits.logit_factor) unknown.push_back("logit_scale");
    }
    for (const char* key : {"attention.shared_kv_layers", "embedding_length_per_layer_input"}) {
        if (hyper.layer_columns > 0 || hyper.shared_kv > 0) continue;
        WEFT_ASSIGN(const int64_t value, source.meta().IntOr(prefix + key, 0, 1ll << 31, 0));
        if (value != 0) unknown.push_back(key);
    }
    WEFT_ASSIGN(const bool causal, source.meta().BoolOr(prefix + "attention.causal", true));
    if (!causal && !hyper.encoder) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: {}attention.causal is false; attention to later tokens is not "
                         "supported",
                         source.name(), prefix);
    }
    for (const char* key : unknown) {
        if (!source.meta().Has(prefix + key)) continue;
        return MakeError(ErrorCode::kUnsupported,
                         "{}: {}{} is set, which is not supported for architecture '{}'",
                         source.name(), prefix, key, hyper.architecture);
    }
    return {};
}

// ALiBi (Press et al. 2022): with n heads, n a power of two, head h has the slope 2^(-bias h / n),
// counted from 1. With more heads, the others have the odd slopes of 2n heads.
Status ReadAlibi(const model_files::ModelSource& source, const std::string& prefix, Hyper& hyper) {
    const Traits& traits = TraitsOf(hyper.architecture);
    if (!traits.alibi) return {};
    WEFT_ASSIGN(const double bias,
                Number(source, prefix + "attention.max_alibi_bias", 0, 1e3, *traits.alibi));
    if (bias == 0) return {};
    hyper.rotates = false;
    const auto heads = static_cast<uint64_t>(hyper.heads), whole = std::bit_floor(heads);
    const double factor = traits.scales_alibi ? static_cast<double>(hyper.attention_scale) : 1.0;
    for (uint64_t head = 0; head < heads; ++head) {
        const bool other = head >= whole;
        const uint64_t step = other ? 2 * (head - whole) + 1 : head + 1;
        const double share =
            static_cast<double>(step) / static_cast<double>(other ? 2 * whole : whole);
        hyper.slopes.push_back(static_cast<float>(factor * std::exp2(-bias * share)));
    }
    return {};
}

// Granite's files mark attention without positions by an unusual key.
Status ReadRotates(const model_files::ModelSource& source, const std::string& prefix,
                   Hyper& hyper) {
    const Traits& traits = TraitsOf(hyper.architecture);
    hyper.rotates = traits.rotates;
    hyper.sections = source.meta().Has(prefix + "rope.dimension_sections");
    if (traits.marks_rotation) {
        WEFT_ASSIGN(hyper.rotates, source.meta().BoolOr(prefix + "rope.scaling.finetuned", true));
    }
    const std::string key = prefix + "rope.layers";
    if (!traits.lists_rotation || !source.meta().Has(key)) return {};
    WEFT_ASSIGN(const std::vector<int64_t> layers, source.meta().Ints(key));
    if (static_cast<int64_t>(layers.size()) < hyper.layers) {
        return MakeError(ErrorCode::kCorrupt, "{}: {} names {} layers; the model has {}",
                         source.name(), key, layers.size(), hyper.layers);
    }
    for (const int64_t rotates : layers) hyper.rotated.push_back(rotates != 0);
    return {};
}

Status CheckHeads(const model_files::ModelSource& source, const HeadShape& shape) {
    if (shape.heads % shape.kv_heads != 0) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: {} query heads cannot be divided evenly over {} KV heads",
                         source.name(), shape.heads, shape.kv_heads);
    }
    const auto fits = [](int64_t dim) { return dim >= 2 && dim <= kMostHeadDim && dim % 2 == 0; };
    if (fits(shape.head_dim) && fits(shape.ValueDim()) && shape.rotary_dim <= shape.head_dim &&
        shape.rotary_dim % 2 == 0) {
        return {};
    }
    return MakeError(ErrorCode::kUnsupported,
                     "{}: head dims (key {}, value {}, rotary {}) are not supported: they must be "
                     "even, those of key and value 2 to {}",
                     source.name(), shape.head_dim, shape.ValueDim(), shape.rotary_dim,
                     kMostHeadDim);
}

bool HasAttention(const model_files::ModelSource& source, int64_t layer) {
    return source.FindTensor(fmt::format("blk.{}.attn_output.weight", layer)) != nullptr;
}

// Numbers of heads: one number, or one per layer. All windowed layers must have the same number,
// and so must all others; 0 for layers without attention.
struct HeadCounts {
    int64_t whole = 0, windowed = 0;
};
// Whether no layer has attention. Its counts of heads then are those of the recurrent layers, and
// tensor ranks divide these.
bool OnlyRecurrent(const model_files::ModelSource& source, const Hyper& hyper) {
    const auto kv =
        source.meta().Ints(std::string(hyper.architecture) + ".attention.head_count_kv");
    if (!kv.ok() || kv->empty() || hyper.recurrent.heads == 0) return false;
    for (size_t layer = 0; layer < kv->size(); ++layer) {
        if ((*kv)[layer] != 0 || HasAttention(source, static_cast<int64_t>(layer))) return false;
    }
    return true;
}

Result<HeadCounts> ReadHeadCounts(const model_files::ModelSource& source, const std::string& key,
                                  const Hyper& hyper, int64_t usual) {
    const model_files::MetaEntry* entry = source.meta().Find(key);
    if (entry == nullptr || entry->type != model_files::MetaType::kArray) {
        WEFT_ASSIGN(const int64_t all, source.meta().IntOr(key, 1, kMostHeads, usual));
        return HeadCounts{all, all};
    }
    WEFT_ASSIGN(const std::vector<int64_t> list, source.meta().Ints(key));
    HeadCounts counts;
    for (int64_t layer = 0; layer < hyper.layers; ++layer) {
        int64_t& known = hyper.IsWindowed(layer) ? counts.windowed : counts.whole;
        const size_t at = static_cast<size_t>(layer);
        const int64_t here = at < list.size() ? list[at] : 0;
        const bool attends = HasAttention(source, layer) && !IsRecurrent(source, layer);
        if (here == 0 && !attends) continue;
        if (here < 1 || here > kMostHeads || (known != 0 && known != here)) {
            return MakeError(ErrorCode::kUnsupported,
                             "{}: {} has {} heads for layer {}; expected the same number in all "
                             "layers with a window, and in all layers without one",
                             source.name(), key, here, layer);
        }
        known = here;
    }
    if (counts.whole == 0 && counts.windowed == 0) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: {} has no heads in any layer; models without attention are not "
                         "supported",
                         source.name(), key);
    }
    if (counts.whole == 0) counts.whole = counts.windowed;
    if (counts.windowed == 0) counts.windowed = counts.whole;
    return counts;
}

Status ReadHeads(const model_files::ModelSource& source, const std::string& prefix, Hyper& hyper) {
    const model_files::Metadata& meta = source.meta();
    const std::string count = prefix + "attention.head_count";
    const auto dim = [&](const char* key, int64_t least, int64_t usual) {
        return meta.IntOr(prefix + key, least, 1024, usual);
    };
    if (!meta.Has(count)) return meta.Int(count, 1, kMostHeads).error();
    const bool attends = !OnlyRecurrent(source, hyper);
    HeadCounts heads{hyper.recurrent.heads, hyper.recurrent.heads}, kv = heads;
    if (attends) {
        WEFT_ASSIGN(heads, ReadHeadCounts(source, count, hyper, 0));
    }
    hyper.heads = heads.whole;
    WEFT_ASSIGN(hyper.latent, ReadLatent(source, hyper.architecture));
    if (hyper.latent.rank > 0) {
        hyper.kv_heads = hyper.heads;
        hyper.head_dim = hyper.latent.nope + hyper.latent.rope;
        hyper.rotary_dim = hyper.latent.rope;
        return {};
    }
    if (attends) {
        WEFT_ASSIGN(kv, ReadHeadCounts(source, count + "_kv", hyper, hyper.heads));
    }
    hyper.kv_heads = kv.whole;
    WEFT_ASSIGN(hyper.head_dim,
                dim("attention.key_length", 1, attends ? hyper.hidden / hyper.heads : 2));
    WEFT_ASSIGN(const int64_t value_dim, dim("attention.value_length", 1, hyper.head_dim));
    if (value_dim != hyper.head_dim) hyper.v_head_dim = value_dim;
    WEFT_ASSIGN(hyper.rotary_dim, dim("rope.dimension_count", 2, hyper.head_dim));
    HeadShape windowed;
    windowed.heads = heads.windowed;
    windowed.kv_heads = kv.windowed;
    WEFT_ASSIGN(windowed.head_dim, dim("attention.key_length_swa", 1, hyper.head_dim));
    const bool same_dim = windowed.head_dim == hyper.head_dim;
    WEFT_ASSIGN(const int64_t windowed_value,
                dim("attention.value_length_swa", 1, same_dim ? value_dim : windowed.head_dim));
    if (windowed_value != windowed.head_dim) windowed.v_head_dim = windowed_value;
    WEFT_ASSIGN(windowed.rotary_dim, dim("rope.dimension_count_swa", 2,
                                         same_dim ? hyper.rotary_dim : windowed.head_dim));
    if (TraitsOf(hyper.architecture).halves_rotary) hyper.rotary_dim /= 2;
    const HeadShape whole{hyper.kv_heads, hyper.head_dim, hyper.rotary_dim, hyper.heads,
                          hyper.v_head_dim};
    WEFT_TRY(CheckHeads(source, whole));
    WEFT_TRY(CheckHeads(source, windowed));
    if (!(windowed == whole)) hyper.windowed_heads = windowed;
    return {};
}

// MLP columns: one number, or one per layer, with 0 for a layer without an MLP. MoE models without
// dense layers may give only an expert's columns.
Status ReadFfn(const model_files::ModelSource& source, const std::string& prefix, Hyper& hyper) {
    const std::string key = prefix + "feed_forward_length";
    const std::string of_experts = prefix + "expert_feed_forward_length";
    const model_files::MetaEntry* entry = source.meta().Find(key);
    if (entry == nullptr || entry->type != model_files::MetaType::kArray) {
        // (Ollama's files of Qwen 3.5 with experts have 0.)
        const auto given = source.meta().IntOr(key, 0, kMostColumns, 0);
        const bool experts = given.ok() && *given == 0 && source.meta().Has(of_experts);
        WEFT_ASSIGN(hyper.ffn, source.meta().Int(experts ? of_experts : key, 1, kMostColumns));
        return {};
    }
    WEFT_ASSIGN(std::vector<int64_t> list, source.meta().Ints(key));
    const auto layers = static_cast<size_t>(hyper.layers);
    if (list.size() < layers) {
        return MakeError(ErrorCode::kCorrupt, "{}: {} names {} layers; the model has {}",
                         source.name(), key, list.size(), hyper.layers);
    }
    list.resize(layers);
    hyper.ffn = std::ranges::max(list);
    if (hyper.ffn == 0 && TraitsOf(hyper.architecture).recurrent) {  // no layer has an MLP
        hyper.ffn_columns = std::move(list);
        return {};
    }
    if (hyper.ffn == 0 && std::ranges::min(list) == 0) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: {} has no columns in any layer; models without an MLP are not "
                         "supported",
                         source.name(), key);
    }
    if (hyper.ffn > kMostColumns || std::ranges::min(list) < 0) {
        return MakeError(ErrorCode::kUnsupported, "{}: {} has {} to {} columns; expected 0 to {}",
                         source.name(), key, std::ranges::min(list), hyper.ffn, kMostColumns);
    }
    const auto usual = [&](int64_t columns) { return columns == 0 || columns == hyper.ffn; };
    if (!std::ranges::all_of(list, usual)) hyper.ffn_columns = std::move(list);
    return {};
}

// DeepSeek-V4's layers without pooled windows rotate keys as sliding-window layers do.
Status ReadWindows(const model_files::ModelSource& source, const std::string& prefix,
                   Hyper& hyper) {
    WEFT_ASSIGN(hyper.windowing,
                ReadWindowing(source, hyper.architecture, hyper.heads, hyper.layers));
    if (!TraitsOf(hyper.architecture).pools_windows) return {};
    if (hyper.window == 0 || hyper.kv_heads != 1 || hyper.v_head_dim != 0) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: {}attention.sliding_window is {}, head_count_kv {}, key_length {} "
                         "and value_length {}; expected a window, one KV head, and keys as long as "
                         "values",
                         source.name(), prefix, hyper.window, hyper.kv_heads, hyper.head_dim,
                         hyper.value_dim());
    }
    hyper.windowed.clear();
    for (int64_t layer = 0; layer < hyper.layers; ++layer) {
        hyper.windowed.push_back(hyper.windowing.StrideOf(layer) == 0);
    }
    return {};
}

// Files of this format may also hold adapters and other additions to a model.
Status CheckType(const model_files::ModelSource& source) {
    WEFT_ASSIGN(const std::string type, source.meta().StringOr("general.type", "model"));
    WEFT_ASSIGN(const std::string name, source.meta().StringOr("general.architecture", ""));
    if (type == "mmproj" || name == "clip") {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: an image projector (mmproj), not a language model. Give the language "
                         "model's file: Weft supports text only",
                         source.name());
    }
    if (model_files::IsDraftArchitecture(name)) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: a draft head, not a language model. Give the model, and this folder "
                         "with --draft",
                         source.name());
    }
    if (type == "imatrix") {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: an importance matrix, not a model. Give it to 'weft quantize "
                         "--imatrix'",
                         source.name());
    }
    const bool adapter = type == "adapter" || source.meta().Has("adapter.type");
    if (!adapter && !source.meta().Has("controlvector.layer_count")) return {};
    return MakeError(ErrorCode::kUnsupported,
                     "{}: holds {}, not a model. Weft reads adapters in the format of the package "
                     "peft: give the model, and the adapter's folder with --lora",
                     source.name(), adapter ? "an adapter" : "a control vector");
}

// Reads the number of layers. Returns the number of prediction layers after them, which predict
// tokens beyond the next; the first of them serves as the draft head (draft_head.h).
Result<int64_t> ReadLayers(const model_files::ModelSource& source, const std::string& prefix,
                           Hyper& hyper) {
    const model_files::Metadata& meta = source.meta();
    WEFT_ASSIGN(hyper.layers, meta.Int(prefix + "block_count", 1, kMostLayers));
    WEFT_ASSIGN(const int64_t beyond,
                meta.IntOr(prefix + "nextn_predict_layers", 0, hyper.layers - 1, 0));
    const std::string first = fmt::format("blk.{}.nextn.eh_proj.weight", hyper.layers - beyond);
    if (!TraitsOf(hyper.architecture).drafts_may_lack || source.FindTensor(first) != nullptr) {
        hyper.layers -= beyond;
    }
    return beyond;
}

// Reads all but the vocabulary and the draft head, by hyper.architecture. Returns the number of
// prediction layers.
Result<int64_t> ReadBody(const model_files::ModelSource& source, Hyper& hyper) {
    const std::string prefix = hyper.architecture + ".";
    const model_files::Metadata& meta = source.meta();
    hyper.encoder = TraitsOf(hyper.architecture).encoder;
    WEFT_ASSIGN(const int64_t beyond, ReadLayers(source, prefix, hyper));
    WEFT_ASSIGN(hyper.hidden, meta.Int(prefix + "embedding_length", 1, kMostColumns));
    WEFT_TRY(ReadFfn(source, prefix, hyper));
    WEFT_ASSIGN(hyper.moe, ReadMoe(source, hyper.architecture, hyper.ffn));
    WEFT_ASSIGN(hyper.recurrent,
                ReadRecurrent(source, hyper.layers, hyper.architecture, hyper.hidden));
    WEFT_ASSIGN(hyper.context, meta.IntOr(prefix + "context_length", 1, 1ll << 31, 4096));
    WEFT_TRY(ReadNorm(source, prefix, hyper));
    WEFT_TRY(ReadWindow(source, prefix, hyper));
    WEFT_TRY(ReadHeads(source, prefix, hyper));
    WEFT_TRY(ReadWindows(source, prefix, hyper));
    WEFT_TRY(ReadScales(source, prefix, hyper));
    WEFT_TRY(ReadEndScales(source, hyper));
    const Architecture* const own = FindArchitecture(hyper.architecture);
    if (own != nullptr && own->read != nullptr) WEFT_TRY(own->read(source, hyper));
    WEFT_TRY(RefuseUnknownScales(source, prefix, hyper));
    WEFT_TRY(ReadRotates(source, prefix, hyper));
    WEFT_TRY(ReadAlibi(source, prefix, hyper));
    WEFT_ASSIGN(hyper.ropes, ReadRopes(source, hyper.architecture, hyper.rotary_dim,
                                       hyper.windowed_heads.rotary_dim, hyper.context));
    if (TraitsOf(hyper.architecture).turns_back) hyper.ropes.TurnBack();
    hyper.context = std::max(hyper.context, hyper.ropes.ExtendedContext());
    WEFT_TRY(ReadTemperature(source, prefix, hyper));
    WEFT_ASSIGN(hyper.indexer, ReadIndexer(source, hyper.architecture, hyper.latent, hyper.layers,
                                           {hyper.kv_heads, hyper.head_dim, hyper.rotary_dim}));
    if (hyper.windowing.pools && hyper.indexer.dim < hyper.rotary_dim) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: {}attention.indexer.key_length is {}; {} columns are rotated",
                         source.name(), prefix, hyper.indexer.dim, hyper.rotary_dim);
    }
    // YaRN scales the scores of rotated rows by m(mscale_all_dim) squared.
    if (hyper.latent.rank > 0 && hyper.latent.rotates) {
        const double sharper =
            1 + hyper.ropes.yarn_log_multiplier * std::log(std::max(1.0, hyper.ropes.yarn_factor));
        hyper.attention_scale *= static_cast<float>(sharper * sharper);
    }
    return beyond;
}

Error NoFit(const model_files::ModelSource& head, std::string_view what, int64_t its,
            std::string_view of_model, int64_t models) {
    return MakeError(ErrorCode::kUsage, "--draft {}: {} is {}; the model's {} is {}", head.name(),
                     what, its, of_model, models);
}

// The layers that the head reads: 2, the middle and the last but two, unless its config names them.
Status ReadReads(const model_files::ModelSource& source, const Hyper& model, Hyper& head) {
    head.reads = {2, model.layers / 2, model.layers - 3};
    const std::string key = head.architecture + ".target_layers";
    if (source.meta().Has(key)) {
        WEFT_ASSIGN(head.reads, source.meta().Ints(key));
    }
    const bool ascends =
        std::ranges::adjacent_find(head.reads, std::greater_equal<>()) == head.reads.end();
    if (!head.reads.empty() && ascends && head.reads[0] >= 0 && head.reads.back() <= model.layers)
        return {};
    return MakeError(ErrorCode::kUsage,
                     "--draft {}: the head reads the model before its layers {}; expected "
                     "different layers of the model's {}, in ascending order (config.json: {})",
                     source.name(), fmt::join(head.reads, ", "), model.layers,
                     head.block > 0 ? "target_layer_ids or aux_hidden_state_layer_ids"
                                    : "eagle_aux_hidden_state_layer_ids");
}

// Whether the shapes of the head's ends fit the model. (Those of its layers are checked with its
// Program.)
Status CheckHead(const model_files::ModelSource& source, const Hyper& model, const Hyper& head) {
    const model_files::Metadata& meta = source.meta();
    const std::string prefix = head.architecture + ".";
    WEFT_ASSIGN(const int64_t vocab, meta.Int(prefix + "vocab_size", 1, 1 << 26));
    WEFT_ASSIGN(const int64_t target, meta.Int(prefix + "target_length", 1, kMostColumns));
    const bool table = source.FindTensor("token_embd.weight") != nullptr;
    const bool output = source.FindTensor("output.weight") != nullptr;
    const bool own = table || output || source.FindTensor("d2t.weight") != nullptr;
    if (vocab != model.vocab && own) {
        return NoFit(source, "vocab_size", vocab, "vocabulary", model.vocab);
    }
    if (head.mask >= model.vocab) {
        return NoFit(source, "mask_token_id", head.mask, "vocabulary", model.vocab);
    }
    if (model.stream_columns() != model.hidden || model.encoder) {
        return MakeError(ErrorCode::kUnsupported,
                         "--draft {}: Weft does not draft with separate heads for models of "
                         "architecture '{}'",
                         source.name(), model.architecture);
    }
    if (target != model.hidden) {
        const char* key = target == head.hidden ? "hidden_size" : "target_hidden_size";
        return NoFit(source, key, target, "hidden size", model.hidden);
    }
    if (!(table && output) && head.hidden != model.hidden) {
        const char* what = table ? "hidden_size without tensor lm_head.weight"
                                 : "hidden_size without tensor embed_tokens.weight";
        return NoFit(source, what, head.hidden, "hidden size", model.hidden);
    }
    WEFT_ASSIGN(const model_files::TensorInfo* fc, source.NeedTensor("fc.weight"));
    const int64_t columns = std::ssize(head.reads) * model.hidden;
    if (fc->cols == columns) return {};
    return MakeError(ErrorCode::kUsage,
                     "--draft {}: tensor fc.weight has {} columns; expected {}, {} times the "
                     "model's hidden size of {}",
                     source.name(), fc->cols, columns, head.reads.size(), model.hidden);
}

Status ReadBlock(const model_files::ModelSource& source, Hyper& head) {
    const model_files::Metadata& meta = source.meta();
    WEFT_ASSIGN(head.block, meta.Int("dflash.block_size", 2, model_files::kMostBlock));
    WEFT_ASSIGN(head.mask, meta.Int("dflash.mask_token_id", 0, INT32_MAX));
    WEFT_ASSIGN(const double scale, meta.F64Or("dflash.input_scale", 1));
    head.embedding_scale = static_cast<float>(scale);
    WEFT_ASSIGN(const std::vector<int64_t> ahead, meta.Ints("dflash.ahead"));
    if (std::ssize(ahead) == head.layers) {
        head.ahead.assign(ahead.begin(), ahead.end());
        return {};
    }
    return MakeError(ErrorCode::kCorrupt,
                     "{}: dflash.ahead has {} values; expected {}, one per "
                     "layer",
                     source.name(), ahead.size(), head.layers);
}

Status ReadHead(const model_files::ModelSource& both, Hyper& model) {
    const std::string architecture = model_files::DraftArchitecture(both);
    if (architecture.empty()) return {};
    const model_files::DraftHeadSource source(both);
    Hyper head;
    head.architecture = architecture;
    WEFT_TRY(ReadBody(source, head));
    const model_files::TensorInfo* output = source.FindTensor("output.weight");
    head.vocab = output == nullptr ? model.vocab : output->rows;
    if (source.meta().Has("dflash.block_size")) {
        WEFT_TRY(ReadBlock(source, head));
    } else {
        WEFT_ASSIGN(head.norm_before_residual, source.meta().Bool("eagle3.norm_before_residual"));
        WEFT_ASSIGN(head.norm_output, source.meta().Bool("eagle3.norm_output"));
    }
    WEFT_TRY(ReadReads(source, model, head));
    WEFT_TRY(CheckHead(source, model, head));
    model.draft_head = false;
    model.head.push_back(std::move(head));
    return {};
}

}  // namespace

Result<Hyper> ReadHyper(const model_files::ModelSource& source) {
    Hyper hyper;
    if (source.tensors().empty()) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: a vocabulary without weights. 'weft tokenize' accepts it, but the "
                         "model cannot be run. Give the model's file",
                         source.name());
    }
    WEFT_TRY(CheckType(source));
    WEFT_ASSIGN(hyper.architecture, source.meta().String("general.architecture"));
    if (!IsSupported(hyper.architecture)) {
        const std::string why = model_files::WhyRefused(hyper.architecture);
        return MakeError(
            ErrorCode::kUnsupported, "{}: architecture '{}' is not supported{}", source.name(),
            hyper.architecture,
            why.empty() ? fmt::format(". Supported: {}.", SupportedArchitectures()) : ": " + why);
    }
    WEFT_ASSIGN(const int64_t beyond, ReadBody(source, hyper));
    WEFT_ASSIGN(const model_files::TensorInfo* table, source.NeedTensor("token_embd.weight"));
    hyper.vocab = table->rows;
    const model_files::TensorInfo* const types = source.FindTensor("token_types.weight");
    if (hyper.encoder && types != nullptr) hyper.token_types = types->rows;
    hyper.tied = source.FindTensor("output.weight") == nullptr;
    const std::string head = fmt::format("blk.{}.nextn.eh_proj.weight", hyper.layers);
    hyper.draft_head =
        beyond > 0 && SupportsDraftHead(hyper.architecture) && source.FindTensor(head) != nullptr;
    WEFT_ASSIGN(hyper.draft_fault, source.meta().StringOr(hyper.architecture + ".nextn_fault", ""));
    WEFT_TRY(ReadHead(source, hyper));
    return hyper;
}

Status CheckContext(const Hyper& hyper, int64_t tokens, std::string_view asked) {
    if (tokens <= hyper.context) return {};
    return MakeError(ErrorCode::kUsage,
                     "{}: the model's trained context, including the RoPE scaling of its file, is "
                     "{} tokens. Ask for {} or less, or use a model with a longer context.",
                     asked, hyper.context, hyper.context);
}

}  // namespace weft::model
