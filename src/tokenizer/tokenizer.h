// Tokenizers: text to token ids and back.
//
// Where they come from: `tokenizer.ggml.*` metadata (model_files/read_tokenizer.h), or the files of
// a Hugging Face folder (open.h). The families of GGUF files, by `tokenizer.ggml.model`:
//
// "gpt2"   BPE: a pre-tokenizer (families.h) cuts the text into words, and the merge list joins
//          bytes inside each word, lowest rank first, leftmost first.
// "gemma4" The same over code points, with U+2581 for spaces.
// "llama"  SentencePiece BPE ("SPM"): spaces become U+2581, the whole text is one word, neighbours
//          join into the token of the best score, and what has no token falls back to bytes.
// "t5"     SentencePiece Unigram: the tokens whose scores have the best sum.
//
// A vocabulary is hostile input: Make checks every id, every merge and every type, and names what
// is wrong.
//
// Text is bytes. Invalid UTF-8 is encoded byte by byte, nothing is replaced: with a vocabulary
// that has all 256 byte tokens Decode(Encode(x)) == x for any x. A byte without a token (SmolLM2
// has none for 0x04) leaves no trace, as in the implementations the models were trained with.
//
// Thread: a Tokenizer never changes after Make; all its methods may run at once.
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

// Token types as GGUF numbers them.
enum class TokenType : int32_t {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,      // <|im_start|>: encoded from text only on request, not shown to users
    kUserDefined = 4,  // always found in text before anything else
    kUnused = 5,
    kByte = 6,  // <0x0A>
};

// A tokenizer as a file describes it, nothing checked yet. Ids of -1 mean: there is none.
struct TokenizerData {
    std::string model;                // "gpt2", "llama", ...
    std::string pre;                  // pre-tokenizer of "gpt2"; empty means "default"
    std::vector<std::string> tokens;  // raw vocabulary text by id
    std::vector<float> scores;        // by id; needed by "llama" and "t5", else may be empty
    std::vector<int32_t> types;       // TokenType by id; empty means all normal
    std::vector<std::string> merges;  // "left right", best first; needed by "gpt2"
    int32_t bos = -1;                 // begin of sequence
    int32_t eos = -1;                 // end of sequence
    int32_t eot = -1;                 // end of turn
    int32_t eom = -1;                 // end of message
    int32_t unk = -1;                 // unknown
    int32_t pad = -1;                 // padding
    bool add_bos = false;             // Encode with add_special puts bos in front
    bool add_eos = false;             // ... and eos at the end
    // "llama", "t5": a space before the text and after special tokens.
    bool add_space_prefix = false;
    bool remove_extra_spaces = false;  // "t5": runs of spaces are one, and none at the ends
    std::string charsmap;              // "t5": precompiled_charsmap (charsmap.h), may be empty
    std::vector<int32_t> ends;         // more tokens that end a generation
    // What Encode with add_special puts around a text, in place of bos and eos, where either is
    // not empty.
    std::vector<int32_t> prefix, suffix;
};

// Where the text of a special token begins, and its place among the ids.
struct SpecialMark {
    size_t byte = 0;
    size_t token = 0;
};

struct EncodeOptions {
    bool add_special = true;     // bos and eos where the model wants them
    bool parse_special = false;  // "<|im_end|>" in the text becomes its token. Never for user text
    // Parts of the text, in order and apart, in which (and across whose borders) parse_special
    // finds nothing: words of a user inside a text of ours.
    std::span<const TextRange> plain = {};
    // Where given: gets a mark for each special token found in the text, in order. Words between
    // two special tokens are encoded on their own, so a part of a text can be encoded from a mark.
    std::vector<SpecialMark>* marks = nullptr;
};

// Whether Make knows this model, that is TokenizerData::model.
bool IsTokenizerModel(std::string_view model);

class Vocabulary;
class TokenModel;
class SpecialScanner;
struct TokenizerParts;

class Tokenizer {
  public:
    // kUnsupported: a model or pre-tokenizer Weft does not know (named, with those it knows).
    // kCorrupt: ids out of range, duplicate tokens, merges of unknown tokens, no byte tokens, ...
    static Result<std::unique_ptr<Tokenizer>> Make(TokenizerData data);
    // For readers of other formats (parts.h).
    static std::unique_ptr<Tokenizer> Assemble(TokenizerParts parts);
    ~Tokenizer();
    Tokenizer(const Tokenizer&) = delete;
    Tokenizer& operator=(const Tokenizer&) = delete;

    // Token ids of `text` (at most 1 GiB). Time is O(n log n) whatever the text.
    std::vector<int32_t> Encode(std::string_view text, EncodeOptions options = {}) const;

    // The bytes a token stands for; may be part of a code point. Control tokens give their name.
    // Empty for unused tokens and ids out of range.
    std::string_view Piece(int32_t id) const;
    // All pieces joined; `skip_special` leaves out control and unknown tokens. The space that
    // add_space_prefix puts in front of a text is taken off again.
    std::string Decode(std::span<const int32_t> ids, bool skip_special = true) const;

    int32_t vocab_size() const;
    TokenType Type(int32_t id) const;           // kUnused for ids out of range
    bool IsSpecial(int32_t id) const;           // control or unknown: not shown to users
    bool IsEog(int32_t id) const;               // ends a generation: eos, eot, eom and their like
    int32_t Find(std::string_view text) const;  // the token with exactly this raw text, or -1
    const TokenizerData& data() const;          // as given, without the merges

  private:
    Tokenizer();

    std::unique_ptr<Vocabulary> vocabulary_;
    std::unique_ptr<const TokenModel> model_;
    std::unique_ptr<const SpecialScanner> always_;      // user-defined tokens
    std::unique_ptr<const SpecialScanner> on_request_;  // and control and unknown tokens
    std::vector<std::string> pieces_;                   // bytes by id
    std::vector<bool> eog_;                             // by id
};

}  // namespace weft::tokenizer
