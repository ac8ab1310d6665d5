// Converts the tokenizer of a Hugging Face folder to GGUF's `tokenizer.ggml.*` metadata.
//
// GGUF cannot store the rules of a tokenizer.json, only the name of a known kind. The kind is
// determined by experiment: for each kind (byte-level BPE with the pre-tokenizers of families.h,
// SentencePiece BPE, BPE over code points) a tokenizer is made from the candidate metadata. The
// first kind that gives the folder's ids for all test texts is chosen. Test texts are fixed texts,
// the vocabulary's own words, and random mixtures. Only composed texts (NFC) are compared, because
// readers of GGUF do not apply a folder's normalizer.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace weft::tokenizer {

// `vocabulary`: number of rows of the model's embedding; rows without a token get a token of type
// unused. kUnsupported: no GGUF kind gives the same ids. kCorrupt: more tokens than rows.
Result<TokenizerData> TokenizerForGguf(const std::string& folder, int64_t vocabulary);

}  // namespace weft::tokenizer
