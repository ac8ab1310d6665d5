// A tokenizer as a pipeline: normalizer, matching of added tokens in normalized text,
// pre-tokenizer, word model.
//
// Normalizer and pre-tokenizer see each invalid byte of UTF-8 as one U+FFFD. The bytes are restored
// before the model runs, unless the normalizer adds or removes U+FFFD.
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
    bool unspell = false;                                      // undo GPT-2's spelling
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
