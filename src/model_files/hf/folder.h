// A Hugging Face folder (config.json, safetensors) as a ModelSource: metadata with GGUF's keys,
// tensors with GGUF's names and layouts, so that all other code treats it like a GGUF file.
//
// Nothing is converted ahead of time: ReadRows reads and converts the requested slice. Vectors are
// F32; matrices keep the folder's dtype, except that packed integers become blocks in Weft's own
// dtypes (packed.h).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "model_files/model_file.h"

namespace weft::model_files::hf {

bool IsFolder(const std::string& path);

// Errors: kNotFound (a file is missing in the folder), kCorrupt, kUnsupported (architecture,
// quantization method, or an unknown tensor; the message lists what is supported).
// plan (may be null): weight_file.h.
Result<std::unique_ptr<ModelSource>> OpenFolder(const std::string& path, ReadPlan* plan = nullptr);

}  // namespace weft::model_files::hf
