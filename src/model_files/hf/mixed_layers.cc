#include "model_files/hf/mixed_layers.h"

#include <algorithm>

namespace weft::model_files::hf {

Result<std::vector<std::string>> TypesOf(const Config& config, bool (*slides)(int64_t layer)) {
    WEFT_ASSIGN(std::vector<std::string> types, config.Strings({"layer_types"}));
    WEFT_ASSIGN(types, EachLayers(config, "layer_types", std::move(types)));
    if (!types.empty()) return types;
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, kMostLayers));
    for (int64_t layer = 0; layer < layers; ++layer) {
        types.emplace_back(slides(layer) ? kOfWindow : kOfAll);
    }
    return types;
}

Json HeadsByType(const std::vector<std::string>& types, int64_t full, int64_t sliding) {
    Json heads = Json::array();
    for (const std::string& type : types) heads.push_back(type == kOfWindow ? sliding : full);
    return heads;
}

Status WriteMixed(const Config& config, MetaWriter& meta, bool whole_heads) {
    WEFT_ASSIGN(const std::vector<std::string> types, config.Strings({"layer_types"}));
    if (std::ranges::find(types, kOfWindow) == types.end()) return {};
    WEFT_ASSIGN(const int64_t window, config.NeedInt({"sliding_window"}, 1, kMostContext));
    WEFT_TRY(WriteWindow(config, meta, window, nullptr));
    if (whole_heads) {
        WEFT_ASSIGN(const int64_t head_dim, config.NeedInt({"head_dim"}, 2, 1024));
        WEFT_ASSIGN(const Config rope, config.Sub({"rope_parameters"}));
        WEFT_ASSIGN(const double share, rope.F64Or({"windowed_share"}, 1.0));
        meta.Int("rope.dimension_count_swa",
                 static_cast<int64_t>(static_cast<double>(head_dim) * share));
    }
    return WriteWindowedBase(config, meta);
}

}  // namespace weft::model_files::hf
