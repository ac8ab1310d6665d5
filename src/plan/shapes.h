// Models without weights: from a config.json, or by the name of a known model. They have metadata
// and a tensor table, like GGUF files, and no numbers.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "model_files/model_file.h"
#include "plan/walk.h"

namespace weft::plan {

// Accepts what model_files::OpenModel accepts, and also
//     NAME[:TYPE]               a known model (plan/names.h): gpt-oss-120b:mxfp4; also names of
//                               repositories and of their files that are not on this host
//     PATH/config.json[:TYPE]   or a folder without safetensors; weights are not needed
// TYPE (FindWeightType: Q4_K_M, Q8_0, 4bit, FP8, ...) sets each tensor's type. The default is what
// 'weft run' holds of such a folder: BF16, or the types of a quantization_config
// (plan/packed_types.h); for gpt-oss, MXFP4 experts as in all its files. draft_head: include the
// draft head if the model is published with one. Errors: kUsage (no such model or type), those of
// the folder's config.json, kUnsupported.
Result<std::unique_ptr<model_files::ModelSource>> OpenShape(const std::string& word,
                                                            bool draft_head = false);

// The quantized type in such a word; "": none.
std::string QuantizedTypeOf(const std::string& word);

// A model and its walk, which borrows the model.
struct OpenedShape {
    std::unique_ptr<model_files::ModelSource> source;
    ModelWalk walk;
    bool is_shape = false;  // has no weights; the caller may choose a type
    std::string note;       // note for the user about its types (plan/packed_types.h); mostly empty
};
// OpenShape, and ModelWalk::Make.
Result<OpenedShape> OpenWalk(const std::string& word, DType kv_dtype = DType::kF16,
                             bool draft_head = false);

// As OpenShape for the text of a config.json. name: the model's name in messages.
Result<std::unique_ptr<model_files::ModelSource>> MakeShape(std::string config_text,
                                                            const std::string& name,
                                                            std::string_view type,
                                                            bool draft_head = false);

}  // namespace weft::plan
