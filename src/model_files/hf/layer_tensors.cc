#include "model_files/hf/layer_tensors.h"

#include <algorithm>

#include "base/text.h"
#include "model_files/hf/delta_net.h"

namespace weft::model_files::hf {
namespace {

// A list of one number per layer; empty if the key has another form.
Result<std::vector<int64_t>> ByLayer(const Metadata& meta, const std::string& key) {
    const MetaEntry* entry = meta.Find(key);
    if (entry == nullptr || entry->type != MetaType::kArray) return std::vector<int64_t>();
    return meta.Ints(key);
}

// A layer with one of these has recurrent state.
constexpr std::string_view kTaps[] = {"ssm_conv1d.weight", "ssm_conv1d_q.weight",
                                      "shortconv.conv.weight"};

}  // namespace

Result<LayerTensors> LayerTensors::Of(const FolderConfig& config, int64_t draft_heads) {
    LayerTensors tensors;
    tensors.draft_head_ = draft_heads > 0;
    WEFT_TRY(tensors.ReadNames(config));
    WEFT_TRY(tensors.ReadLayers(config));
    return tensors;
}

Status LayerTensors::ReadNames(const FolderConfig& config) {
    for (const RuleOf<std::string>& rule : RulesOf(*config.family)) {
        known_[rule.gguf + (rule.form == Form::kVector ? "" : ".weight")] = rule.needed;
    }
    constexpr std::string_view kOfMany =
        "attn_q.bias?attention_bias attn_k.bias?attention_bias attn_v.bias?attention_bias "
        "ffn_gate.bias?mlp_bias ffn_up.bias?mlp_bias ffn_down.bias?mlp_bias";
    for (const std::string_view list : {kOfMany, config.family->more_tensors}) {
        for (const std::string_view word : Words(list)) {
            const size_t key = word.find('?');
            bool has = true;
            if (key != word.npos) {
                WEFT_ASSIGN(has, config.config.BoolOr({word.substr(key + 1)}, false));
            }
            const std::string name(word.substr(0, key));
            if (has) known_[name] = true;
            if (!has) known_.erase(name);
        }
    }
    return {};
}

Status LayerTensors::ReadLayers(const FolderConfig& folder) {
    const Config& config = folder.config;
    const Metadata meta("config.json", folder.entries);
    const std::string prefix = std::string(folder.family->architecture) + ".";
    WEFT_ASSIGN(const std::vector<bool> dense, DenseLayers(config));
    WEFT_ASSIGN(const int64_t step,  // Llama 4's
                config.IntOr({"interleave_moe_layer_step"}, 0, 1 << 16, 1));
    WEFT_ASSIGN(const std::vector<int64_t> kv, ByLayer(meta, prefix + "attention.head_count_kv"));
    WEFT_ASSIGN(const std::vector<int64_t> mlp, ByLayer(meta, prefix + "feed_forward_length"));
    WEFT_ASSIGN(const int64_t experts, meta.IntOr(prefix + "expert_count", 0, 1 << 16, 0));
    WEFT_ASSIGN(const int64_t gating, meta.IntOr(prefix + "expert_gating_func", 0, 16, 0));
    WEFT_ASSIGN(const std::vector<std::string> types, config.Strings({"layer_types"}));
    WEFT_ASSIGN(norms_heads_, config.BoolOr({"use_qk_norm"}, false));
    WEFT_ASSIGN(k_is_v_, config.BoolOr({"attention_k_eq_v"}, false));
    corrects_scores_ = gating == 2;
    std::vector<bool> linear;
    if (config.Has("linear_num_value_heads")) {
        WEFT_ASSIGN(linear, RecurrentLayers(config));
    }
    const bool taps =
        std::ranges::any_of(kTaps, [&](std::string_view name) { return known_.contains(name); });
    for (size_t i = 0; i < dense.size(); ++i) {
        Layer layer;
        const bool has_mlp = i >= mlp.size() || mlp[i] > 0;
        layer.attends = i < linear.size() ? !linear[i] : i >= kv.size() || kv[i] > 0;
        // Without lists, each layer has both (Falcon-H1).
        const bool apart = !linear.empty() || !kv.empty();
        layer.has_state = taps && (!apart || (!layer.attends && (mlp.empty() || !has_mlp)));
        layer.has_mlp = has_mlp;
        layer.sparse = experts > 0 && !dense[i] && has_mlp &&
                       (static_cast<int64_t>(i) + 1) % std::max<int64_t>(step, 1) == 0;
        layer.windowed = i < types.size() && types[i] == "sliding_attention";
        layers_.push_back(layer);
    }
    const DraftHeadNames* head = folder.family->draft_head;
    layers_.push_back({.sparse = experts > 0 && (head == nullptr || !head->dense),
                       .windowed = head != nullptr && head->slides});
    return {};
}

bool LayerTensors::Has(int64_t layer, std::string_view tensor) const {
    const auto at = static_cast<size_t>(layer);
    if (layer < 0 || at >= layers_.size()) return false;
    const bool of_head = at + 1 == layers_.size();
    if (tensor.starts_with("nextn.") || of_head) {
        if (!of_head || !draft_head_) return false;
        if (tensor == "nextn.eh_proj.weight" || tensor == "nextn.shared_head_norm.weight") {
            return true;
        }
    }
    const Layer& one = layers_[at];
    if (tensor == "ffn_gate_inp.weight") return one.sparse;
    const auto known = known_.find(tensor);
    if (known == known_.end()) return false;
    if (std::ranges::find(kTaps, tensor) != std::end(kTaps)) return one.has_state;
    return known->second || OfSome(one, tensor);
}

// Tensors that no rule needs in every layer.
bool LayerTensors::OfSome(const Layer& layer, std::string_view tensor) const {
    if (tensor == "attn_sinks.weight") return layer.windowed;
    if (tensor.starts_with("attn_q_norm") || tensor.starts_with("attn_k_norm")) return norms_heads_;
    if (tensor == "post_ffw_norm.weight") return layer.sparse;  // A.X K1
    if (tensor == "attn_v.weight") return layer.attends && (layer.windowed || !k_is_v_);
    if (tensor.starts_with("attn_")) return layer.attends;
    if (tensor.starts_with("exp_probs_b")) return corrects_scores_;
    if (tensor.starts_with("ffn_down.") || tensor.starts_with("ffn_up.")) return layer.has_mlp;
    return true;
}

}  // namespace weft::model_files::hf
