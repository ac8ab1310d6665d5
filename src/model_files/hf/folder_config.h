// The model description of a Hugging Face folder, without its weights: config.json as read by its
// family, and the metadata that a GGUF file would have.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"
#include "model_files/hf/family.h"
#include "model_files/hf/json.h"
#include "model_files/metadata.h"

namespace weft::model_files::hf {

struct FolderConfig {
    std::string text;  // of config.json
    const Family* family = nullptr;
    Config config;                  // the text model's
    std::vector<std::byte> header;  // bytes that `entries` point into
    std::vector<MetaEntry> entries;
};

// Errors: kNotFound (no config.json), kCorrupt, kUnsupported (the architecture).
Result<FolderConfig> ReadFolderConfig(const std::string& path);
// As ReadFolderConfig, from the text of a config.json. path: the folder's name in errors; the
// folder need not exist. facts: Assembled::facts of the folder.
Result<FolderConfig> ParseFolderConfig(std::string text, const std::string& path,
                                       const TensorFacts& facts = {});

}  // namespace weft::model_files::hf
