// The parts of a Hugging Face folder that say how a model makes vectors or scores of texts, for
// export.h: config.json of "...ForSequenceClassification", and the modules of
// sentence-transformers.
#pragma once

#include <map>
#include <string>

#include "model_files/hf/json.h"
#include "model_files/model_file.h"

namespace weft::model_files::hf {

// For a model with a score head (score_head.h), this function sets the class, the labels, and the
// token that pads batches: the tokenizer's, or the token that ends a sequence if it has none.
Status SetScoreConfig(const ModelSource& source, Json& config);

// modules.json and the configuration of its modules, by name, of an embedding model: one whose
// folder has a modules.json, or whose metadata have a pooling_type. Others: none.
// Errors: kUnsupported: a Dense, a LayerNorm or several poolings.
Result<std::map<std::string, std::string>> ModuleFiles(const ModelSource& source);

}  // namespace weft::model_files::hf
