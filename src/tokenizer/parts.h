// Parts of a Tokenizer, made by the reader of each file format.
#pragma once

#include <initializer_list>
#include <memory>
#include <vector>

#include "tokenizer/hints.h"
#include "tokenizer/model.h"
#include "tokenizer/special.h"

namespace weft::tokenizer {

struct TokenizerParts {
    std::unique_ptr<Vocabulary> vocabulary;
    std::unique_ptr<const TokenModel> model;  // refers to the vocabulary
    // Tokens that are matched in a text before the model runs: `always` in every text, `on_request`
    // in texts with EncodeOptions::parse_special. `on_request` includes `always`.
    std::vector<SpecialScanner::Entry> always;
    std::vector<SpecialScanner::Entry> on_request;
    // The model gives the bytes of user-defined tokens; else their text is used as is.
    bool user_bytes_by_model = false;
};

// Entries for the tokens of these types.
std::vector<SpecialScanner::Entry> SpecialEntries(const Vocabulary& vocabulary,
                                                  std::initializer_list<TokenType> types);

// Adds the token's lstrip, rstrip and single_word to the lists of `data`.
void AddFlags(const AddedToken& token, TokenizerData& data);

// Sets the type of tokens that begin or end a text or a turn to control. Finds these tokens by the
// ids in `data` and by known names. Otherwise a "</s>" in a user's text would become such a token.
// normal_ones: also change tokens of type normal; otherwise only user-defined tokens.
void TypeMarkers(TokenizerData& data, bool normal_ones);

}  // namespace weft::tokenizer
