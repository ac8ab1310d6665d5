// A Hugging Face folder (config.json, safetensors) as a ModelSource: metadata with GGUF's keys,
// tensors with GGUF's names and layouts, so that everything above sees no difference to a GGUF
// file.
//
// Nothing is converted ahead of time: ReadRows reads the slice that is asked for and puts it into
// form on the way. Vectors are F32; matrices keep the folder's dtype, packed integers become blocks
// of Weft's own (packed.h).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "model_files/model_file.h"

namespace weft::model_files::hf {

// True where `path` is a folder.
bool IsFolder(const std::string& path);

// Errors: kNotFound (no such file in the folder), kCorrupt, kUnsupported (architecture,
// quantization method or a tensor that Weft has no use for; names what is supported).
// plan (may be null): weight_file.h.
Result<std::unique_ptr<ModelSource>> OpenFolder(const std::string& path, ReadPlan* plan = nullptr);

}  // namespace weft::model_files::hf
