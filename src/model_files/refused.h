// Current models that Weft does not support, and the feature each needs: for error messages and the
// list of `weft models`. When Weft supports an architecture, its row is removed.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace weft::model_files {

struct RefusedModel {
    std::string_view architecture;  // general.architecture in GGUF files; empty: there are no such
                                    // files
    std::string_view model_type;    // in config.json; that of its text_config may end in "_text"
    std::string_view models;        // "DeepSeek V4 Flash, Pro"
    std::string_view needs;         // "KV compressors, hyper-connections"
};

// Sorted by model.
std::span<const RefusedModel> RefusedModels();

// "DeepSeek V4 Flash, Pro; it needs KV compressors, hyper-connections" for an architecture or a
// model type; "": not listed.
std::string WhyRefused(std::string_view word);

}  // namespace weft::model_files
