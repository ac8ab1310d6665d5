// The way of a text through a tokenizer of parts: normalizer, added tokens that are looked for in
// normalized text, pre-tokenizer, word model.
//
// Invalid UTF-8: each bad byte goes through as one U+FFFD and is put back in front of the model,
// so that words keep the bytes. (Where a normalizer adds or takes away U+FFFD, they stay.)
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

// What Pipeline does about the bytes of tokens: the decoder of a tokenizer.json, applied to one
// token at a time.
struct PieceRule {
    bool unspell = false;                                      // GPT-2's spelling
    std::vector<std::pair<std::string, std::string>> replace;  // each occurrence, in order
};

struct PipelineParts {
    Normalizer normalizer;
    std::vector<SpecialScanner::Entry> normalized_tokens;
    std::deque<std::string> normalized_texts;  // theirs
    PreTokenizer words;
    std::unique_ptr<const WordModel> model;
    // nullptr: the model says what its tokens stand for.
    std::unique_ptr<const PieceRule> pieces;
};

std::unique_ptr<const TokenModel> MakePipeline(PipelineParts parts);

}  // namespace weft::tokenizer
