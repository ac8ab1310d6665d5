// Reads a model's tokenizer from its `tokenizer.ggml.*` metadata, or from a tokenizer.json stored
// in the key `tokenizer.huggingface.json` (GGUF specification). The tokenizer.json is used if
// `tokenizer.ggml.model` is missing, "none" or unknown to Weft, or if the pre-tokenizer is unknown.
// The files beside the tokenizer.json are in Weft's own keys `tokenizer.weft.NAME`, one string for
// each file NAME.json.
//
// Defaults for missing keys follow the GGUF convention: SPM has bos 1, eos 2, unknown 0, adds bos
// and the space prefix; Unigram ("t5") has eos 1, unknown 2, adds eos and the space prefix;
// "gemma4" and some pre-tokenizers (families.h) add bos; all others add nothing. A missing
// pre-tokenizer is guessed (pre_tokenizer.h), and LoadTokenizer logs a warning with its name.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "model_files/metadata.h"
#include "model_files/model_file.h"
#include "tokenizer/kept_json.h"
#include "tokenizer/tokenizer.h"

namespace weft::model_files {

inline constexpr const char* kKeptJsonKey = "tokenizer.huggingface.json";
inline constexpr const char* kKeptPrefix = "tokenizer.weft.";

// Keys of Weft for facts that GGUF cannot express: ids of added tokens that include the white space
// beside them, or that match only as whole words.
struct FlagKey {
    const char* key;
    std::vector<int32_t> tokenizer::TokenizerData::*ids;
};
inline constexpr FlagKey kFlagKeys[] = {
    {"tokenizer.huggingface.lstrip", &tokenizer::TokenizerData::lstrip},
    {"tokenizer.huggingface.rstrip", &tokenizer::TokenizerData::rstrip},
    {"tokenizer.huggingface.single_word", &tokenizer::TokenizerData::single_word}};

// Whether the model has a tokenizer of any kind; a model may have only weights.
bool HasTokenizer(const ModelSource& source);

// Errors: kNotFound (no tokenizer in the metadata), kCorrupt (a value has a wrong type or range).
Result<tokenizer::TokenizerData> ReadTokenizer(const Metadata& meta);

// The tokenizer.json stored in the metadata. Errors: kNotFound (the metadata has no
// tokenizer.json), kCorrupt (not a string, or larger than a tokenizer.json may be).
Result<tokenizer::KeptJson> ReadKeptTokenizer(const Metadata& meta);

// Loads the tokenizer: from the model's folder if it has one, else from its metadata. Errors begin
// with the model's name.
Result<std::unique_ptr<tokenizer::Tokenizer>> LoadTokenizer(const ModelSource& source);

}  // namespace weft::model_files
