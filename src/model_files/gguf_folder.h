// A folder of GGUF files given as a model, such as a downloaded repository.
#pragma once

#include <string>

#include "base/result.h"

namespace weft::model_files {

// Whether `path` is a folder that holds GGUF files and no model.safetensors (or its index).
bool IsGgufFolder(const std::string& path);

// The path of the folder's only model: a file, or the first part of a split file. Ignores image
// projectors (mmproj) and importance matrices. Errors: kUsage, with a list, if there are several
// models.
Result<std::string> FindGguf(const std::string& folder);

}  // namespace weft::model_files
