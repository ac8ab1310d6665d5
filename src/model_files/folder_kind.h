// Names the kind of a folder that holds no model for Weft, for errors.
#pragma once

#include <string>

namespace weft::model_files {

// "a LoRA adapter of 'X'. Give ...": what the names of the files show, and the next step. Looks two
// levels deep, at 10,000 names at most. Empty: the names show nothing.
std::string FolderKind(const std::string& folder);

// Whether the folder has a config.json, or GGUF files (IsGgufFolder).
bool HoldsModel(const std::string& folder);

}  // namespace weft::model_files
