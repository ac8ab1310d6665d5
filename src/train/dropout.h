// Checks for dropout that a model's config.json requests for training. Weft trains without dropout.
#pragma once

#include <string>

#include "base/result.h"

namespace weft::train {

// Checks that transformers' dropout keys (attention_dropout, resid_pdrop, ...) are absent or 0 in
// the config.json of a Hugging Face folder. Ignores keys of heads that Weft lacks
// (classifier_dropout). Errors: kUnsupported, with the key and its value in the message; kNotFound
// and kCorrupt for the file.
Status CheckDropout(const std::string& folder);

}  // namespace weft::train
