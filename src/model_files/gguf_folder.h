// A folder of GGUF files given as a model, as repositories of such files are downloaded.
#pragma once

#include <string>

#include "base/result.h"

namespace weft::model_files {

// Whether `path` is a folder that holds GGUF files and no model.safetensors (or its index).
bool IsGgufFolder(const std::string& path);

// The one model of such a folder: a file, or the first part of a split one. Image projectors
// (mmproj) and importance matrices are left out. kUsage: several models; they are listed.
Result<std::string> FindGguf(const std::string& folder);

}  // namespace weft::model_files
