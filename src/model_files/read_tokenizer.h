// The tokenizer of a model, from its `tokenizer.ggml.*` metadata, or from the tokenizer.json that a
// file keeps under `tokenizer.huggingface.json` (the GGUF specification's key). The latter counts
// where `tokenizer.ggml.model` is missing, "none" or of a kind that Weft does not know, or names a
// pre-tokenizer that Weft does not know. What stood beside it is under `tokenizer.weft.*`, Weft's
// own keys: a string for each file, by its name without ".json".
//
// Defaults for what a file leaves out are those of the GGUF convention: SPM has bos 1, eos 2,
// unknown 0, adds bos and the space prefix; Unigram ("t5") has eos 1, unknown 2, adds eos and the
// space prefix; "gemma4" and some pre-tokenizers (families.h) add bos; nothing else adds anything.
// A missing pre-tokenizer is guessed (pre_tokenizer.h); LoadTokenizer logs a warning that names it.
#pragma once

#include <memory>

#include "base/result.h"
#include "model_files/metadata.h"
#include "model_files/model_file.h"
#include "tokenizer/kept_json.h"
#include "tokenizer/tokenizer.h"

namespace weft::model_files {

inline constexpr const char* kKeptJsonKey = "tokenizer.huggingface.json";
inline constexpr const char* kKeptPrefix = "tokenizer.weft.";

// Whether there is one, of whatever kind: a model may be numbers alone.
bool HasTokenizer(const ModelSource& source);

// kNotFound: no tokenizer in the metadata. kCorrupt: values of a wrong type or out of range.
Result<tokenizer::TokenizerData> ReadTokenizer(const Metadata& meta);

// The tokenizer.json that is kept in the metadata; kNotFound: none is. kCorrupt: no string, or
// above what a tokenizer.json may have.
Result<tokenizer::KeptJson> ReadKeptTokenizer(const Metadata& meta);

// Of whichever of these counts; errors begin with the model's name.
Result<std::unique_ptr<tokenizer::Tokenizer>> LoadTokenizer(const ModelSource& source);

}  // namespace weft::model_files
