// What a Hugging Face folder says of its model without its weights: config.json as its family reads
// it, and the metadata that a GGUF file would have.
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
    std::vector<std::byte> header;  // entries point into it
    std::vector<MetaEntry> entries;
};

// Errors: kNotFound (no config.json), kCorrupt, kUnsupported (the architecture).
Result<FolderConfig> ReadFolderConfig(const std::string& path);
// The same of a config.json's text. path: the folder that it belongs to; no such folder need be.
// draft_heads: that the folder has tensors of (Assembled::draft_heads).
Result<FolderConfig> ParseFolderConfig(std::string text, const std::string& path,
                                       int64_t draft_heads = 0);

}  // namespace weft::model_files::hf
