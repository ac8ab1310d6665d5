// The tokenizer of a Hugging Face folder in the words of GGUF: what `tokenizer.ggml.*` would say.
//
// GGUF has no place for the rules of a tokenizer.json, only names of kinds of tokenizers. Which
// name is right is found out, not guessed: of each kind (byte-level BPE with the pre-tokenizers of
// families.h, SentencePiece BPE, BPE over code points) a tokenizer is made from what the metadata
// would say, and the first one that gives the folder's ids for texts of many kinds is taken: fixed
// ones, the vocabulary's own words, random mixtures. Only composed texts (NFC) are compared: what a
// folder's normalizer composes stays as it is with programs that read GGUF files.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace weft::tokenizer {

// `vocabulary`: rows of the model's embedding; tokens that are lacking become unused ones.
// kUnsupported: no kind that GGUF has behaves like it; kCorrupt: more tokens than rows.
Result<TokenizerData> TokenizerForGguf(const std::string& folder, int64_t vocabulary);

}  // namespace weft::tokenizer
