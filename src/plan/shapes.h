// Models of which only the shape is known: config.json without weights, or the name of a well-known
// model. They have metadata and a table of tensors, as GGUF files have them, and no numbers.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "model_files/model_file.h"
#include "plan/walk.h"

namespace weft::plan {

// Takes what model_files::OpenModel takes, and besides
//     NAME[:TYPE]               a well-known model (plan/names.h): gpt-oss-120b:mxfp4; names of
//                               repositories and of their files, too, where they aren't here
//     PATH/config.json[:TYPE]   or a folder without safetensors; no weights are looked for
// TYPE (FindWeightType: Q4_K_M, Q8_0, 4bit, FP8, ...) says each tensor's type;
// unsaid it is what 'weft run' holds of such a folder: BF16, the types of a quantization_config
// (plan/packed_types.h), and MXFP4 for gpt-oss, whose experts have that type in every file.
// draft_head: a shape of a model that is published with a draft head has it, too.
// Errors: kUsage (no such model or type), those of the folder's config.json, kUnsupported.
Result<std::unique_ptr<model_files::ModelSource>> OpenShape(const std::string& word,
                                                            bool draft_head = false);

// The quantized type that such a word says; "" where it says none.
std::string QuantizedTypeOf(const std::string& word);

// A model and its walk, which borrows from it.
struct OpenedShape {
    std::unique_ptr<model_files::ModelSource> source;
    ModelWalk walk;
    bool is_shape = false;  // there are no weights, and a type may be chosen
    std::string note;       // what to tell of its types (plan/packed_types.h); mostly empty
};
// OpenShape, and ModelWalk::Make.
Result<OpenedShape> OpenWalk(const std::string& word, DType kv_dtype = DType::kF16,
                             bool draft_head = false);

// The same of a config.json's text. name: what the model is called in messages.
Result<std::unique_ptr<model_files::ModelSource>> MakeShape(std::string config_text,
                                                            const std::string& name,
                                                            std::string_view type,
                                                            bool draft_head = false);

}  // namespace weft::plan
