// Dropout that a model's config.json asks for in training. Weft trains without.
#pragma once

#include <string>

#include "base/result.h"

namespace weft::train {

// Of a Hugging Face folder: transformers' keys (attention_dropout, resid_pdrop, ...) are absent, or
// 0. Those of heads that Weft doesn't have (classifier_dropout) are not looked at. Errors:
// kUnsupported, naming the key and its value; kNotFound and kCorrupt of the file.
Status CheckDropout(const std::string& folder);

}  // namespace weft::train
