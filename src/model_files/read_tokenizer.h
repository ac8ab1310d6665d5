// The tokenizer of a model, from its `tokenizer.ggml.*` metadata.
//
// Defaults for what a file leaves out are those of the GGUF convention: SPM has bos 1, eos 2,
// unknown 0, adds bos and the space prefix; Unigram ("t5") has eos 1, unknown 2, adds eos and the
// space prefix; "gemma4" and some pre-tokenizers (families.h) add bos; nothing else adds anything.
#pragma once

#include <memory>

#include "base/result.h"
#include "model_files/metadata.h"
#include "model_files/model_file.h"
#include "tokenizer/tokenizer.h"

namespace weft::model_files {

// Whether there is one, of whatever kind: a model may be numbers alone.
bool HasTokenizer(const ModelSource& source);

// kNotFound: no tokenizer in the metadata. kCorrupt: values of a wrong type or out of range.
Result<tokenizer::TokenizerData> ReadTokenizer(const Metadata& meta);

// ReadTokenizer and Tokenizer::Make; errors begin with the model's name.
Result<std::unique_ptr<tokenizer::Tokenizer>> LoadTokenizer(const ModelSource& source);

}  // namespace weft::model_files
