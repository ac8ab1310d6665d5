// Random generations under a grammar, as from a model with random logits.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "grammar/matcher.h"
#include "support/tiny_vocabulary.h"

namespace weft::grammar {

inline std::unique_ptr<tokenizer::Tokenizer> MadeTokenizer(tokenizer::TokenizerData data) {
    auto made = tokenizer::Tokenizer::Make(std::move(data));
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
    return made.ok() ? std::move(made).value() : nullptr;
}

// All bytes, and tokens that cross boundaries of grammars: quotes, brackets, blanks, digits, parts
// of code points.
inline std::shared_ptr<const TokenTrie> CrossingTokens() {
    tokenizer::TokenizerData data = tokenizer::TinyBytePair();
    const auto add = [&](const std::string& bytes) {
        std::string spelt;
        for (const char byte : bytes) spelt += tokenizer::SpellByte(static_cast<uint8_t>(byte));
        data.tokens.push_back(spelt);
        data.types.push_back(1);
    };
    for (const char* text : {"\",",
                             "\":",
                             "\": ",
                             "\", \"",
                             "{\"",
                             "\"}",
                             "\"}]",
                             "},",
                             "}, {",
                             "[{",
                             "[[",
                             "]]",
                             "]}",
                             "12",
                             "345",
                             "0.",
                             "-1",
                             "e+",
                             "true",
                             "false",
                             "null",
                             "name",
                             "ab",
                             "abc",
                             "aaaa",
                             "  ",
                             "\\n",
                             "\\u00",
                             "\\\"",
                             "\n\n",
                             "\xC3\xA9t\xC3\xA9",
                             "\xE2\x82\xAC",
                             "\xE2\x82",
                             "\x82\xAC",
                             "\xF0\x9F",
                             "\x98\x80",
                             "a\xC3",
                             "\xA9\"",
                             "\": \"",
                             "\":[",
                             ", ",
                             "1,",
                             "9}",
                             "e,"}) {
        add(text);
    }
    return TokenTrie::Make(*MadeTokenizer(std::move(data)));
}

inline std::vector<int32_t> TokensOf(std::span<const uint32_t> bits) {
    std::vector<int32_t> tokens;
    for (size_t id = 0; id < bits.size() * 32; ++id) {
        if ((bits[id / 32] >> (id % 32) & 1) != 0) tokens.push_back(static_cast<int32_t>(id));
    }
    return tokens;
}

// Checks each token's bit in a mask against Accept on a copy and against the token's bytes one by
// one.
inline void ExpectMask(const Matcher& matcher, const TokenTrie& trie, const std::string& before) {
    std::vector<uint32_t> bits(trie.mask_words() + 1, 0xFFFFFFFF);
    const Status status = matcher.Allowed(bits);
    ASSERT_TRUE(status.ok()) << status.error().message << " after " << before;
    EXPECT_EQ(bits.back(), 0U);
    for (int32_t id = 0; id < trie.vocab_size(); ++id) {
        Matcher copy = matcher;
        const bool allowed = (bits[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
        ASSERT_EQ(allowed, copy.Accept(id).ok()) << before << " then " << trie.Bytes(id);
        if (trie.IsEnd(id)) {
            ASSERT_EQ(allowed, matcher.CanEnd());
        }
    }
}

// Text of one random generation. Up to `calm` tokens it rarely ends. After that it ends wherever
// the grammar allows, and prefers short tokens, because closing tokens are short.
inline Result<std::string> RandomText(const Matcher& fresh, const TokenTrie& trie,
                                      std::mt19937& random, size_t calm, size_t most = 4000) {
    Matcher matcher = fresh;
    std::string text;
    std::vector<uint32_t> bits(trie.mask_words());
    for (size_t count = 0; count < most; ++count) {
        WEFT_TRY(matcher.Allowed(bits));
        const std::vector<int32_t> tokens = TokensOf(bits);
        if (matcher.CanEnd() && (matcher.Ended() || count >= calm || random() % 8 == 0)) {
            WEFT_TRY(matcher.Accept(trie.ends()[0]));
            return text;
        }
        std::vector<int32_t> inner;
        for (const int32_t token : tokens) {
            if (trie.IsEnd(token)) continue;
            const std::string_view bytes = trie.Bytes(token);
            const bool closes = bytes.find_first_not_of("\"}]") == bytes.npos;
            const size_t weight = closes && count >= calm ? 200 : closes ? 3 : 1;
            inner.insert(inner.end(), weight, token);
        }
        if (inner.empty()) return MakeError(ErrorCode::kCorrupt, "nothing to draw");
        const int32_t token = inner[random() % inner.size()];
        text += trie.Bytes(token);
        WEFT_TRY(matcher.Accept(token));
    }
    return MakeError(ErrorCode::kTimeout, "no end after {} tokens: {}", most, text.substr(0, 200));
}

}  // namespace weft::grammar
