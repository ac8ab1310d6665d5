// Models of today that no architecture here can run, and what each needs: for error messages and
// for the list that `weft models` prints. A row stays until its architecture runs.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace weft::model_files {

struct RefusedModel {
    std::string_view architecture;  // general.architecture of GGUF files; empty: there are none
    std::string_view model_type;    // of config.json
    std::string_view models;        // "DeepSeek V4 Flash, Pro"
    std::string_view needs;         // "KV compressors, hyper-connections"
};

// By model.
std::span<const RefusedModel> RefusedModels();

// " (DeepSeek V4 Flash, Pro; it needs KV compressors, hyper-connections)" of an architecture or a
// model type; "" where neither is known.
std::string WhyRefused(std::string_view word);

}  // namespace weft::model_files
