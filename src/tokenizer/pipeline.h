// A tokenizer as a pipeline: normalizer, matching of added tokens in normalized text,
// pre-tokenizer, word model.
//
// Invalid UTF-8: each invalid byte becomes one U+FFFD, and the byte is restored before the model,
// so that words keep the bytes. If a normalizer adds or removes U+FFFD, bytes are not restored.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/model.h"
#include "tokenizer/normalize.h"
#include "tokenizer/special.h"
#include "tokenizer/split.h"

namespace weft::tokenizer {

// The decoder of a tokenizer.json, applied to one token at a time.
struct PieceRule {
    bool unspell = false;                                      // GPT-2's spelling
    std::vector<std::pair<std::string, std::string>> replace;  // each occurrence, in order
};

struct PipelineParts {
    Normalizer normalizer;
    std::vector<SpecialScanner::Entry> normalized_tokens;
    std::deque<std::string> normalized_texts;  // texts of normalized_tokens
    PreTokenizer words;
    std::unique_ptr<const WordModel> model;
    // nullptr: the model gives the bytes of its tokens.
    std::unique_ptr<const PieceRule> pieces;
};

std::unique_ptr<const TokenModel> MakePipeline(PipelineParts parts);

}  // namespace weft::tokenizer
