// Internals of a Tokenizer: the checked vocabulary, and interfaces of the models that turn text
// into tokens. Included only in this folder; others use tokenizer.h.
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

// U+2581, which replaces spaces in SentencePiece vocabularies.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

// TokenizerData with checked sizes, types and ids, and an index from text to id.
class Vocabulary {
  public:
    static Result<std::unique_ptr<Vocabulary>> Make(TokenizerData data);

    const TokenizerData& data() const { return data_; }
    int32_t size() const { return static_cast<int32_t>(data_.tokens.size()); }
    bool Has(int32_t id) const { return id >= 0 && id < size(); }
    const std::string& Text(int32_t id) const { return data_.tokens[static_cast<size_t>(id)]; }
    TokenType Type(int32_t id) const;
    // The token with this text, or -1. Tokens with empty text are never found.
    int32_t Find(std::string_view text) const;
    // As Find, but only for tokens that ordinary text may become.
    int32_t FindPlain(std::string_view text) const;
    // Excludes an added token from FindPlain.
    void SetOutside(int32_t id) { outside_[static_cast<size_t>(id)] = true; }
    // Frees the merges (megabytes), since a model stores its own form of them.
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

// Whether ordinary text may become a token of this type.
inline bool IsPlain(TokenType type) {
    return type == TokenType::kNormal || type == TokenType::kUserDefined;
}

// Turns a stretch of text between special tokens into tokens. A model keeps a reference to the
// vocabulary that it was made from.
class TokenModel {
  public:
    virtual ~TokenModel() = default;
    // Appends the ids. `first`: the stretch is at the beginning of the whole text.
    virtual void Encode(std::string_view text, bool first, std::vector<int32_t>& ids) const = 0;
    // The bytes of a normal token.
    virtual std::string Bytes(std::string_view text) const = 0;
};

// Turns the words of a pre-tokenizer into tokens.
class WordModel {
  public:
    virtual ~WordModel() = default;
    virtual void Encode(const WordList& list, std::vector<int32_t>& ids) const = 0;
    virtual std::string Bytes(std::string_view text) const = 0;
};

// Two adjacent tokens that merge into a third; lower ranks merge first.
struct PairMerge {
    uint32_t rank;
    int32_t left, right, joined;
};

// Reads the merges of a GGUF file, "left right".
Result<std::vector<PairMerge>> ReadMerges(const Vocabulary& vocabulary);

// Appends a merge of rank `id` for each way to split token `id` into two tokens (tiktoken's rule).
void AppendSplits(const Vocabulary& vocabulary, int32_t id, std::vector<PairMerge>& merges);

// Byte-level BPE with a vocabulary in GPT-2's spelling. `whole_words`: a word that is a token is
// used whole.
Result<std::unique_ptr<const WordModel>> MakeBytePairModel(const Vocabulary& vocabulary,
                                                           const std::vector<PairMerge>& merges,
                                                           bool whole_words);

// BPE over code points.
struct CodePointOptions {
    bool whole_words = false;
    bool whole_newlines = false;  // as whole_words, for words that are only line ends
    bool byte_fallback = false;   // a code point without a token becomes byte tokens <0xHH>
    bool fuse_unknown = false;    // consecutive unknown code points become one unknown token
    int32_t unknown = -1;         // -1: unknown code points are dropped
};
std::unique_ptr<const WordModel> MakeCodePointPairModel(const Vocabulary& vocabulary,
                                                        const std::vector<PairMerge>& merges,
                                                        CodePointOptions options);

// SentencePiece BPE of a GGUF file: the whole text is one word.
Result<std::unique_ptr<const TokenModel>> MakeSpmModel(const Vocabulary& vocabulary);
// SentencePiece BPE of a `.model` file, for words already split and marked. User-defined tokens are
// matched inside words.
Result<std::unique_ptr<const WordModel>> MakeSpmWordModel(const Vocabulary& vocabulary,
                                                          bool byte_fallback);

// Unigram: splits a word into the tokens with the highest sum of scores.
struct UnigramOptions {
    bool byte_fallback = false;
    bool fuse_unknown = true;
    // Computes in float and treats user-defined tokens as SentencePiece does. Otherwise computes in
    // double, as Hugging Face tokenizers do.
    bool sentencepiece = false;
    int32_t unknown = -1;
    double unknown_score = 0;
};
Result<std::unique_ptr<const WordModel>> MakeUnigramModel(const Vocabulary& vocabulary,
                                                          const std::vector<double>& scores,
                                                          UnigramOptions options);

// WordPiece (Schuster and Nakajima 2012): from left to right, the longest token that continues the
// word. A word that is too long or cannot be divided so becomes the unknown token.
struct WordPieceOptions {
    std::string prefix;      // of tokens that continue a word: "##"
    int64_t most_points;     // code points of a word
    std::string begin = {};  // of tokens that begin a word: U+2581 in GGUF files
};
// Errors: kCorrupt if the vocabulary has no unknown token.
Result<std::unique_ptr<const WordModel>> MakeWordPieceModel(const Vocabulary& vocabulary,
                                                            WordPieceOptions options);

// A Unigram model with SentencePiece's rules and the vocabulary's scores.
Result<std::unique_ptr<const WordModel>> MakeSentencePieceUnigram(const Vocabulary& vocabulary,
                                                                  bool byte_fallback);

// Replaces each U+2581 in `text` by a space.
std::string UnmarkSpaces(std::string_view text);
// The byte of a token written as <0x0A>; -1 for other texts.
int ByteOfHexToken(std::string_view text);
// Ids of the tokens <0x00> to <0xFF>; -1 if missing.
std::vector<int32_t> FindByteTokens(const Vocabulary& vocabulary);

}  // namespace weft::tokenizer
