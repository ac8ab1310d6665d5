// A model author's sampling defaults, used for requests that set nothing else.
//
// A Hugging Face folder has them in generation_config.json (transformers' GenerationConfig), a GGUF
// file in general.sampling.* (llama.cpp's keys: temp, top_k, top_p, min_p, penalty_repeat,
// penalty_last_n, xtc_probability, xtc_threshold). A value of a wrong type or range is ignored,
// with a warning that names file and key, so that a model with broken hints still runs.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model_files/gguf_writer.h"
#include "model_files/metadata.h"
#include "model_files/model_file.h"

namespace weft::model_files {

// A member without a value: not set by the author. Files set no top-n-sigma and no DRY.
struct SamplingHints {
    std::optional<double> temperature{};      // 0 to 100; 0: greedy
    std::optional<int> top_k{};               // 0: all
    std::optional<double> top_p{};            // more than 0, at most 1
    std::optional<double> min_p{};            // 0 to less than 1
    std::optional<double> repeat_penalty{};   // more than 0, at most 100
    std::optional<int> repeat_last{};         // number of last tokens that the penalty applies to
    std::optional<double> typical_p{};        // more than 0, at most 1
    std::optional<double> top_n_sigma{};      // 0 (all) or more
    std::optional<double> xtc_probability{};  // 0 (off) to 1
    std::optional<double> xtc_threshold{};    // 0 to 1
    std::optional<double> dry_multiplier{};   // 0: off
    std::optional<double> dry_base{};
    std::optional<int> dry_allowed{};     // longest repetition without a penalty
    std::string file{};                   // the file with the hints; empty: there are no hints
    std::vector<std::string> warnings{};  // ignored values, with the reason

    bool any() const;
};

// Reads a folder's generation_config.json, or any other model's metadata.
SamplingHints ReadSamplingHints(const ModelSource& source);
// Reads generation_config.json. If `do_sample` is false, the temperature is 0, even if the file has
// another temperature.
SamplingHints ReadGenerationConfig(const std::string& folder);

// Writes hints as GGUF keys, or as the members of a generation_config.json.
void WriteSamplingKeys(const SamplingHints& hints, GgufWriter& writer);
nlohmann::json GenerationConfigJson(const SamplingHints& hints);

}  // namespace weft::model_files
