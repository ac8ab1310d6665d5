// Helpers for tests of training data: a byte tokenizer, ChatML, files, and samples as text.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "support/temp_dir.h"
#include "support/tiny_vocabulary.h"
#include "train/data/data_set.h"

namespace weft::train {

template <typename T>
T Must(Result<T> result) {
    EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
    WEFT_CHECK(result.ok());
    return std::move(result).value();
}

// Token b is byte b; 256 ends a text, 257 and 258 are ChatML's markers.
inline const tokenizer::Tokenizer& Bytes() {
    static const auto tokenizer = [] {
        tokenizer::TokenizerData data = tokenizer::TinyBytePair();
        data.eot = 258;
        return Must(tokenizer::Tokenizer::Make(std::move(data)));
    }();
    return *tokenizer;
}

inline const chat::Chat& ChatMl() {
    static const chat::Chat chat = Must(chat::Chat::Make("", Bytes()));
    return chat;
}

inline Encoder ByteEncoder(int prompt_type = 1) {
    return Must(Encoder::Make(Bytes(), &ChatMl(), prompt_type));
}

inline std::string WriteText(const test::TempDir& folder, const std::string& name,
                             std::string_view text) {
    const std::string path = folder / name;
    EXPECT_TRUE(WriteFile(path, std::as_bytes(std::span(text))).ok());
    return path;
}

inline std::vector<nlohmann::json> JsonLines(const std::string& text) {
    std::vector<nlohmann::json> lines;
    for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
        lines.push_back(nlohmann::json::parse(text.substr(at, text.find('\n', at) - at)));
    }
    return lines;
}

// The sample as text, with learned parts in brackets: "Question: [yes<|endoftext|>]".
inline std::string Marked(const Sample& sample, const tokenizer::Tokenizer& tokenizer = Bytes()) {
    EXPECT_EQ(sample.tokens.size(), sample.loss.size());
    std::string text;
    bool inside = false;
    for (size_t i = 0; i < sample.tokens.size(); ++i) {
        const bool loss = sample.loss[i] != 0;
        if (loss != inside) text += loss ? '[' : ']';
        inside = loss;
        text += tokenizer.Piece(sample.tokens[i]);
    }
    return inside ? text + "]" : text;
}

inline std::string Marked(std::string_view json, int prompt_type = 1) {
    const auto record = ParseRecord(json);
    if (!record.ok()) return "bad record: " + record.error().message;
    const auto sample = ByteEncoder(prompt_type).Encode(*record);
    return sample.ok() ? Marked(*sample) : "error: " + sample.error().message;
}

}  // namespace weft::train
