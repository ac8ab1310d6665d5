// Tokenizers: convert text to token ids and back.
//
// Tokenizers are made from `tokenizer.ggml.*` metadata (model_files/read_tokenizer.h) or from the
// files of a Hugging Face folder (open.h). The kinds in GGUF, by `tokenizer.ggml.model`:
//
// "gpt2"   BPE: a pre-tokenizer (families.h) splits the text into words; merges join bytes inside
//          each word, lowest rank first, leftmost first.
// "gemma4" BPE over code points, with U+2581 for spaces.
// "llama"  SentencePiece BPE ("SPM"): spaces become U+2581, the whole text is one word, adjacent
//          tokens merge into the token with the highest score, and the rest falls back to bytes.
// "t5"     SentencePiece Unigram: the tokens with the highest sum of scores.
//
// A vocabulary is hostile input: Make checks every id, merge and type; errors name the fault.
//
// Text is bytes. Invalid UTF-8 is encoded byte by byte and not replaced: with a vocabulary that has
// all 256 byte tokens, Decode(Encode(x)) == x for any x. A byte without a token (SmolLM2 has none
// for 0x04) is dropped, as in the original implementations.
//
// Thread: a Tokenizer is immutable after Make; all methods may run concurrently.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/text_range.h"

namespace weft::tokenizer {

// Token types, with GGUF's numbers.
enum class TokenType : int32_t {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,      // <|im_start|>: matched in text on request only; not shown to users
    kUserDefined = 4,  // matched in text before anything else
    kUnused = 5,
    kByte = 6,  // <0x0A>
};

// A tokenizer as described by a file, unchecked. Ids of -1 mean: none.
struct TokenizerData {
    std::string model;                // "gpt2", "llama", ...
    std::string pre;                  // pre-tokenizer of "gpt2"; empty: "default"
    std::vector<std::string> tokens;  // raw vocabulary texts by id
    std::vector<float> scores;        // by id; required for "llama" and "t5", else may be empty
    std::vector<int32_t> types;       // TokenType by id; empty: all normal
    std::vector<std::string> merges;  // "left right", best first; required for "gpt2"
    int32_t bos = -1;                 // begin of sequence
    int32_t eos = -1;                 // end of sequence
    int32_t eot = -1;                 // end of turn
    int32_t eom = -1;                 // end of message
    int32_t unk = -1;                 // unknown
    int32_t pad = -1;                 // padding
    bool add_bos = false;             // Encode with add_special prepends bos
    bool add_eos = false;             // Encode with add_special appends eos
    // "llama", "t5": insert a space before the text and after special tokens.
    bool add_space_prefix = false;
    bool remove_extra_spaces = false;  // "t5": collapse runs of spaces and trim both ends
    std::string charsmap;              // "t5": precompiled_charsmap (charsmap.h); may be empty
    std::vector<int32_t> ends;         // more tokens that end a generation
    // Tokens that Encode with add_special puts around a text. If prefix or suffix is not empty,
    // both replace bos and eos.
    std::vector<int32_t> prefix, suffix;
    std::vector<int32_t> middle;  // tokens between the two texts of a pair
    // Special and user-defined tokens that include the white space before them or after them, or
    // that match only between characters that are no part of a word.
    std::vector<int32_t> lstrip, rstrip, single_word;
};

// Position of a special token in the text and among the ids.
struct SpecialMark {
    size_t byte = 0;
    size_t token = 0;
};

struct EncodeOptions {
    // Add bos and eos if the model uses them. A text that begins with bos (parse_special) gets no
    // second one.
    bool add_special = true;
    // "<|im_end|>" in the text becomes its token; never use this for user text
    bool parse_special = false;
    // Ascending, disjoint ranges of the text in which (and across whose borders) parse_special
    // matches nothing; for user text inside a template's text.
    std::span<const TextRange> plain = {};
    // If not null: receives a mark for each special token found in the text, in order. Text between
    // two special tokens is encoded independently, so encoding can restart at a mark.
    std::vector<SpecialMark>* marks = nullptr;
};

// Whether Make supports this TokenizerData::model.
bool IsTokenizerModel(std::string_view model);

class Vocabulary;
class TokenModel;
class SpecialScanner;
struct TokenizerParts;

class Tokenizer {
  public:
    // kUnsupported: unknown model or pre-tokenizer; the message names it and lists the known names.
    // kCorrupt: ids out of range, duplicate tokens, merges of unknown tokens, missing byte tokens,
    // ...
    static Result<std::unique_ptr<Tokenizer>> Make(TokenizerData data);
    // Makes a tokenizer from the parts that readers of other formats fill (parts.h).
    static std::unique_ptr<Tokenizer> Assemble(TokenizerParts parts);
    ~Tokenizer();
    Tokenizer(const Tokenizer&) = delete;
    Tokenizer& operator=(const Tokenizer&) = delete;

    // Token ids of `text` (at most 1 GiB). Takes O(n log n) time for any text.
    std::vector<int32_t> Encode(std::string_view text, EncodeOptions options = {}) const;

    // The ids of two texts, with the tokens before, between and behind them, and the index of the
    // second text's first token. most: of all ids; the longer text loses its end first, as in
    // Hugging Face's "longest_first". 0: no limit.
    struct Pair {
        std::vector<int32_t> ids;
        size_t second = 0;
    };
    Pair EncodePair(std::span<const int32_t> first, std::span<const int32_t> second,
                    int64_t most = 0) const;

    // The bytes of a token; may be part of a code point. Control tokens return their name. Empty
    // for unused tokens and ids out of range.
    std::string_view Piece(int32_t id) const;
    // Concatenates the pieces; `skip_special` drops control and unknown tokens. Removes the space
    // that add_space_prefix put in front of a text.
    std::string Decode(std::span<const int32_t> ids, bool skip_special = true) const;

    int32_t vocab_size() const;
    TokenType Type(int32_t id) const;  // kUnused for ids out of range
    bool IsSpecial(int32_t id) const;  // control or unknown: not shown to users
    bool IsEog(int32_t id) const;      // ends a generation: eos, eot, eom and similar
    // Ends a message: ends a generation, or ends one of the messages of a turn ("<|end|>").
    bool EndsMessage(int32_t id) const;
    int32_t Find(std::string_view text) const;  // the token with exactly this raw text, or -1
    const TokenizerData& data() const;          // without the merges

  private:
    Tokenizer();

    std::unique_ptr<Vocabulary> vocabulary_;
    std::unique_ptr<const TokenModel> model_;
    std::unique_ptr<const SpecialScanner> always_;      // user-defined tokens
    std::unique_ptr<const SpecialScanner> on_request_;  // also control and unknown tokens
    std::vector<std::string> pieces_;                   // bytes by id
    std::vector<bool> eog_;                             // by id
    int32_t message_end_ = -1;
};

}  // namespace weft::tokenizer
