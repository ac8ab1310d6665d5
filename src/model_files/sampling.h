// How a model's author has its tokens chosen: defaults for whoever asks for nothing else.
//
// A Hugging Face folder says it in generation_config.json (transformers' GenerationConfig), a GGUF
// file in general.sampling.* (llama.cpp's keys: temp, top_k, top_p, min_p, penalty_repeat,
// penalty_last_n). A value of the wrong type or out of range is passed over, with a warning that
// names file and key: a model whose hints are broken can still be run.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model_files/gguf_writer.h"
#include "model_files/metadata.h"
#include "model_files/model_file.h"

namespace weft::model_files {

// What is absent was not said.
struct SamplingHints {
    std::optional<double> temperature{};     // 0 to 100; 0: the likeliest token
    std::optional<int> top_k{};              // 0: all
    std::optional<double> top_p{};           // more than 0, at most 1
    std::optional<double> min_p{};           // 0 to less than 1
    std::optional<double> repeat_penalty{};  // more than 0, at most 100
    std::optional<int> repeat_last{};        // tokens that it looks back at
    std::string file{};                      // where they come from; empty: nothing was said
    std::vector<std::string> warnings{};     // what was passed over, and why

    bool any() const;
};

// Of a folder: its generation_config.json; of any other model: its metadata.
SamplingHints ReadSamplingHints(const ModelSource& source);
// generation_config.json of a folder. `do_sample` false: temperature 0, whatever else it says.
SamplingHints ReadGenerationConfig(const std::string& folder);

// As GGUF's keys; as the members of a generation_config.json.
void WriteSamplingKeys(const SamplingHints& hints, GgufWriter& writer);
nlohmann::json GenerationConfigJson(const SamplingHints& hints);

}  // namespace weft::model_files
