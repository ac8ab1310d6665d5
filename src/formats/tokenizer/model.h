// Inside of a Tokenizer: the checked vocabulary and the interface of the two families.
// Only the files of this folder include it; users take tokenizer.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "formats/tokenizer/tokenizer.h"

namespace weft::formats {

// A TokenizerData whose sizes, types and ids are right, with an index from text to id.
class Vocabulary {
  public:
    static Result<std::unique_ptr<Vocabulary>> Make(TokenizerData data);

    const TokenizerData& data() const { return data_; }
    int32_t size() const { return static_cast<int32_t>(data_.tokens.size()); }
    bool Has(int32_t id) const { return id >= 0 && id < size(); }
    const std::string& Text(int32_t id) const { return data_.tokens[static_cast<size_t>(id)]; }
    TokenType Type(int32_t id) const;
    // The token of this text, or -1. Tokens without text are never found.
    int32_t Find(std::string_view text) const;
    // Frees the merges: a model has its own form of them, and these are megabytes.
    void DropMerges() { std::vector<std::string>().swap(data_.merges); }

  private:
    explicit Vocabulary(TokenizerData data) : data_(std::move(data)) {}
    Status CheckTypesAndScores();
    Status CheckIds() const;
    Status IndexTokens();

    TokenizerData data_;
    std::unordered_map<std::string_view, int32_t> ids_;  // views into data_.tokens
};

// True for the token types that text may become without being asked to.
inline bool IsPlain(TokenType type) {
    return type == TokenType::kNormal || type == TokenType::kUserDefined;
}

// How one family cuts text into tokens. Keeps a reference to the vocabulary it was made from.
class TokenModel {
  public:
    virtual ~TokenModel() = default;
    // Appends the ids of a stretch of text between special tokens (or the ends of the text).
    virtual void Encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
    // The bytes that a token of type normal stands for.
    virtual std::string Bytes(std::string_view text) const = 0;
};

Result<std::unique_ptr<const TokenModel>> MakeBytePairModel(const Vocabulary& vocabulary);
Result<std::unique_ptr<const TokenModel>> MakeSpmModel(const Vocabulary& vocabulary);

// The byte of a token written as <0x0A>, or -1 for any other text.
int ByteOfHexToken(std::string_view text);

}  // namespace weft::formats
