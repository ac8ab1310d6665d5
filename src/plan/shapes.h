// Opens shapes: models without weights, from a config.json or by the name of a known model. A shape
// has metadata and a table of tensors, like a GGUF file, but no tensor data.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "model_files/lora/adapted_source.h"
#include "model_files/model_file.h"
#include "plan/walk.h"

namespace weft::plan {

// Accepts what model_files::OpenModel accepts, and also
//     NAME[:TYPE]               a known model (plan/names.h): gpt-oss-120b:mxfp4. NAME may be the
//                               name of a repository or its file, which need not be on this host
//     PATH/config.json[:TYPE]   a model's config.json, or a folder that has one; without weights
// TYPE (FindWeightType: Q4_K_M, Q8_0, 4bit, FP8, ...) sets each tensor's type. By default, the
// types are those that 'weft run' holds in memory for such a folder: BF16, or the types of a
// quantization_config (plan/packed_types.h). Experts of gpt-oss are MXFP4 by default, as in all its
// files. draft_head: include the draft head if the model is published with one. Errors: kUsage (no
// such model or type), those of the folder's config.json, kUnsupported.
Result<std::unique_ptr<model_files::ModelSource>> OpenShape(const std::string& word,
                                                            bool draft_head = false);

// The quantized type in a word that OpenShape accepts; "": none.
std::string QuantizedTypeOf(const std::string& word);

// A model and its walk, which refers to `source`.
struct OpenedShape {
    std::unique_ptr<model_files::ModelSource> source;
    ModelWalk walk;
    bool is_shape = false;  // it has no weights, so the caller may choose a type
    std::string note;       // for the user: PackedTypes::note(); mostly empty
};
// OpenShape, and ModelWalk::Make. head: the draft head to include, as of --draft; "": none.
// adapters: to hold in memory beside the model.
Result<OpenedShape> OpenWalk(const std::string& word, KvTypes kv_dtype = {},
                             const std::string& head = "",
                             std::span<const model_files::NamedAdapter> adapters = {});

// Like OpenShape, for the text of a config.json. name: the model's name in messages.
Result<std::unique_ptr<model_files::ModelSource>> MakeShape(const std::string& config_text,
                                                            const std::string& name,
                                                            std::string_view type,
                                                            bool draft_head = false);

}  // namespace weft::plan
