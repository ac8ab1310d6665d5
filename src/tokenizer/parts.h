// What a Tokenizer is put together from; each file format has a reader that makes the parts.
#pragma once

#include <memory>
#include <vector>

#include "tokenizer/model.h"
#include "tokenizer/special.h"

namespace weft::tokenizer {

struct TokenizerParts {
    std::unique_ptr<Vocabulary> vocabulary;
    std::unique_ptr<const TokenModel> model;  // keeps references to the vocabulary
    // Tokens that are looked for in a text before the model sees it: always, and on request (these
    // hold the first ones, too).
    std::vector<SpecialScanner::Entry> always;
    std::vector<SpecialScanner::Entry> on_request;
    // Tokens of type user-defined stand for what the model says, not for their text as it is.
    bool user_bytes_by_model = false;
};

// Entries for all tokens of the vocabulary of type user-defined, and with `all` of type control and
// unknown.
std::vector<SpecialScanner::Entry> SpecialEntries(const Vocabulary& vocabulary, bool all);

// Gives the type control to tokens that begin or end a text or a turn (by the ids of `data`, and by
// names that are known), whatever a file calls them: else a "</s>" in a user's text would be one.
// normal_ones: also where it calls them normal, not only user-defined.
void TypeMarkers(TokenizerData& data, bool normal_ones);

}  // namespace weft::tokenizer
