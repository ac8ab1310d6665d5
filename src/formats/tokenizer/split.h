// Pre-tokenizers: how byte-level BPE cuts text into words before merging, by the names that GGUF
// files use in `tokenizer.ggml.pre`.
//
// A pre-tokenizer is a list of passes, each a regular expression (PCRE2) over Unicode categories.
// A pass cuts every word of the pass before it: each match is a word, and so is each stretch
// between matches. The expressions are those of the model families, written so that no text takes
// more than linear time; their meaning is that of llama.cpp for the same name.
//
// Invalid UTF-8: each bad byte counts as one U+FFFD while cutting; words keep the bytes.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"

struct pcre2_real_code_8;

namespace weft::formats {

class PreTokenizer {
  public:
    // kUnsupported for an unknown name; the message lists the known ones. Empty is "default".
    static Result<PreTokenizer> Make(std::string_view name);

    // The end of each word in `text`, ascending; the last one is text.size(). Empty for "".
    std::vector<size_t> Split(std::string_view text) const;

  private:
    struct FreeCode {
        void operator()(pcre2_real_code_8* code) const;
    };
    std::vector<std::unique_ptr<pcre2_real_code_8, FreeCode>> passes_;
};

}  // namespace weft::formats
