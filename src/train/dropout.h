// Checks for dropout that a model's config.json requests for training. Weft trains without dropout.
#pragma once

#include <string>

#include "base/result.h"

namespace weft::train {

// Passes if transformers' dropout keys (attention_dropout, resid_pdrop, ...) of a Hugging Face
// folder are absent or 0. Ignores keys of heads that Weft lacks (classifier_dropout). Errors:
// kUnsupported, naming the key and its value; kNotFound and kCorrupt of the file.
Status CheckDropout(const std::string& folder);

}  // namespace weft::train
