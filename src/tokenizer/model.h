// Inside of a Tokenizer: the checked vocabulary, and the interfaces of what turns text into tokens.
// Only the files of this folder include it; users take tokenizer.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "tokenizer/split.h"
#include "tokenizer/tokenizer.h"

namespace weft::tokenizer {

// U+2581, which stands for a space in vocabularies of SentencePiece's kind.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

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
    // As Find, but only tokens that text may become without being asked to.
    int32_t FindPlain(std::string_view text) const;
    // Keeps a token out of FindPlain: one that is added to a model's own.
    void SetOutside(int32_t id) { outside_[static_cast<size_t>(id)] = true; }
    // Frees the merges: a model has its own form of them, and these are megabytes.
    void DropMerges() { std::vector<std::string>().swap(data_.merges); }

  private:
    explicit Vocabulary(TokenizerData data) : data_(std::move(data)) {}
    Status CheckTypesAndScores();
    Status CheckIds() const;
    Status IndexTokens();

    TokenizerData data_;
    std::vector<bool> outside_;                          // by id
    std::unordered_map<std::string_view, int32_t> ids_;  // views into data_.tokens
};

// True for the token types that text may become without being asked to.
inline bool IsPlain(TokenType type) {
    return type == TokenType::kNormal || type == TokenType::kUserDefined;
}

// How a stretch of text between special tokens (or the ends of the text) becomes tokens. A model
// keeps a reference to the vocabulary it was made from.
class TokenModel {
  public:
    virtual ~TokenModel() = default;
    // Appends the ids; `first`: the stretch is where the whole text begins.
    virtual void Encode(std::string_view text, bool first, std::vector<int32_t>& ids) const = 0;
    // The bytes that a token of type normal stands for.
    virtual std::string Bytes(std::string_view text) const = 0;
};

// How the words that a pre-tokenizer has cut become tokens.
class WordModel {
  public:
    virtual ~WordModel() = default;
    virtual void Encode(const WordList& list, std::vector<int32_t>& ids) const = 0;
    virtual std::string Bytes(std::string_view text) const = 0;
};

// Two neighbours that join into a third token; the lower rank goes first.
struct PairMerge {
    uint32_t rank;
    int32_t left, right, joined;
};

// The merges of a GGUF file, "left right".
Result<std::vector<PairMerge>> ReadMerges(const Vocabulary& vocabulary);

// For each way to cut token `id` into two tokens a merge whose rank is `id`: tiktoken's rule.
void AppendSplits(const Vocabulary& vocabulary, int32_t id, std::vector<PairMerge>& merges);

// Byte-level BPE over a vocabulary in GPT-2's spelling. `whole_words`: a word that is a token is
// taken as it is.
Result<std::unique_ptr<const WordModel>> MakeBytePairModel(const Vocabulary& vocabulary,
                                                           const std::vector<PairMerge>& merges,
                                                           bool whole_words);

// BPE over code points.
struct CodePointOptions {
    bool whole_words = false;
    bool whole_newlines = false;  // ... but only of words that are line ends
    bool byte_fallback = false;   // a code point without a token becomes the tokens <0xHH>
    bool fuse_unknown = false;    // unknown code points in a row become one unknown token
    int32_t unknown = -1;         // -1: unknown code points leave no trace
};
std::unique_ptr<const WordModel> MakeCodePointPairModel(const Vocabulary& vocabulary,
                                                        const std::vector<PairMerge>& merges,
                                                        CodePointOptions options);

// SentencePiece BPE out of a GGUF file: the text is one word.
Result<std::unique_ptr<const TokenModel>> MakeSpmModel(const Vocabulary& vocabulary);
// The same over words that are cut and marked already, as `.model` files have it. User-defined
// tokens are found inside of words.
Result<std::unique_ptr<const WordModel>> MakeSpmWordModel(const Vocabulary& vocabulary,
                                                          bool byte_fallback);

// Unigram: of all ways to cut a word into tokens the one with the best sum of scores.
struct UnigramOptions {
    bool byte_fallback = false;
    bool fuse_unknown = true;
    // Sums and comparisons in float as SentencePiece has it, with its rule for user-defined
    // tokens; else in double, as Hugging Face tokenizers.
    bool sentencepiece = false;
    int32_t unknown = -1;
    double unknown_score = 0;
};
Result<std::unique_ptr<const WordModel>> MakeUnigramModel(const Vocabulary& vocabulary,
                                                          const std::vector<double>& scores,
                                                          UnigramOptions options);

// With SentencePiece's own rules, from the vocabulary's scores.
Result<std::unique_ptr<const WordModel>> MakeSentencePieceUnigram(const Vocabulary& vocabulary,
                                                                  bool byte_fallback);

// `text` with a space for each U+2581.
std::string UnmarkSpaces(std::string_view text);
// The byte of a token written as <0x0A>, or -1 for any other text.
int ByteOfHexToken(std::string_view text);
// The tokens <0x00> to <0xFF> by byte, -1 where there is none.
std::vector<int32_t> FindByteTokens(const Vocabulary& vocabulary);

}  // namespace weft::tokenizer
