// Models in which windowed layers have their own heads and RoPE.
#pragma once

#include "model_files/hf/family.h"

namespace weft::model_files::hf {

inline constexpr std::string_view kOfWindow = "sliding_attention", kOfAll = "full_attention";

// A list with an entry per layer; further entries belong to multi-token prediction layers and are
// dropped.
template <typename T>
Result<std::vector<T>> EachLayers(const Config& config, const char* key, std::vector<T> list) {
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, kMostLayers));
    if (!list.empty() && static_cast<int64_t>(list.size()) < layers) {
        return config.Corrupt(key, fmt::format("an entry for each of {} layers", layers));
    }
    if (!list.empty()) list.resize(static_cast<size_t>(layers));
    return list;
}

// layer_types; `slides` gives them if the config has none.
Result<std::vector<std::string>> TypesOf(const Config& config, bool (*slides)(int64_t layer));

// One number per layer, by the layer's type.
Json HeadsByType(const std::vector<std::string>& types, int64_t full, int64_t sliding);

// Writes the window and the RoPE of windowed layers; nothing if no layer is windowed.
Status WriteMixed(const Config& config, MetaWriter& meta, bool whole_heads);

}  // namespace weft::model_files::hf
