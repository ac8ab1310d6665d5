// Follows an arbitrary grammar with a small vocabulary. Checks that masks and Accept agree and that
// no step takes long.
#pragma once

#include <string_view>
#include <vector>

#include "base/check.h"
#include "grammar/matcher.h"
#include "support/tiny_vocabulary.h"

namespace weft::grammar {

inline const std::shared_ptr<const TokenTrie>& ProbeTokens() {
    static const auto trie = [] {
        const auto tokenizer = tokenizer::Tokenizer::Make(tokenizer::TinyBytePair(
            {"a a", "aa aa", "\" ,", "\" :", "[ [", "1 2", "\xC3\x83 \xC2\xA9"}));
        WEFT_CHECK(tokenizer.ok());
        return TokenTrie::Make(**tokenizer);
    }();
    return trie;
}

// `choices` selects among the allowed tokens.
inline void ProbeGrammar(const GrammarPtr& grammar, std::string_view choices) {
    const TokenTrie& trie = *ProbeTokens();
    auto fresh = Matcher::Make(grammar, ProbeTokens());
    if (!fresh.ok()) return WEFT_CHECK(!fresh.error().message.empty());
    Matcher matcher = *fresh;
    std::string text;
    bool too_ambiguous = false;
    for (const char choice : choices.substr(0, 24)) {
        std::vector<uint32_t> bits(trie.mask_words());
        if (const Status status = matcher.Allowed(bits); !status.ok()) {
            WEFT_CHECK(!status.error().message.empty());
            too_ambiguous = true;
            break;
        }
        std::vector<int32_t> allowed;
        for (int32_t id = 0; id < trie.vocab_size(); ++id) {
            if ((bits[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0) allowed.push_back(id);
        }
        WEFT_CHECK(!allowed.empty());
        const int32_t token = allowed[static_cast<uint8_t>(choice) % allowed.size()];
        const auto other =
            static_cast<int32_t>(static_cast<uint8_t>(choice) * 31 % trie.vocab_size());
        Matcher copy = matcher;
        const Status accepted = copy.Accept(other);
        const bool in_mask = (bits[static_cast<size_t>(other) / 32] >> (other % 32) & 1) != 0;
        WEFT_CHECK(accepted.ok() == in_mask);
        WEFT_CHECK(matcher.Accept(token).ok());
        if (trie.IsEnd(token)) break;
        text += trie.Bytes(token);
    }
    const auto matches = Matches(*grammar, text);
    if (matches.ok() && !too_ambiguous) WEFT_CHECK(*matches == matcher.CanEnd());
}

}  // namespace weft::grammar
