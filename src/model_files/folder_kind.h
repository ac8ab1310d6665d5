// Says, for errors, what a folder is that holds no model for Weft.
#pragma once

#include <string>

namespace weft::model_files {

// Describes the folder's kind and the next step: "a LoRA adapter of 'X'. Give ...". Looks only at
// file names: two levels deep, at most 10,000 names. Returns "" if the names show no known kind.
std::string FolderKind(const std::string& folder);

// Whether the folder has a config.json, or GGUF files (IsGgufFolder).
bool HoldsModel(const std::string& folder);

}  // namespace weft::model_files
