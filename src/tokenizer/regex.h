// Regular expressions with PCRE2 and its JIT, for pre-tokenizers and normalizers.
//
// Text must be valid UTF-8. Offsets are bytes. White space is Unicode's White_Space (PCRE2's own \s
// also matches U+180E; no tokenizer does).
//
// MakeForeign accepts the dialect of tokenizer.json, Oniguruma: \s \S \d \w \W \b, nested sets,
// `[a&&[^b]]`, \uHHHH, `$` at line ends, `{1,3}+` as a repetition of `{1,3}`. Constructs with a
// different meaning in PCRE2 are rewritten, or rejected if that is impossible.
//
// Work is limited by counts, not by time, so that all ranks get the same matches however busy a
// machine is. A match that takes more steps than a small multiple of the text's length, or more
// than 64 MB, counts as no match, and all later matches then fail, too. An expression made by
// MakeForeign also has a budget of bytes examined and steps: the square of about 10,000 bytes plus
// 512 times the text's length. (The step counts depend on whether PCRE2 has its JIT; this matters
// only at a limit.) CheckEnds detects expressions with worse than quadratic time before they are
// used. Thread: a Regex is immutable; each thread needs its own RegexRun.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;
struct pcre2_real_jit_stack_8;

namespace weft::tokenizer {

// Contents of a character class for white space.
#define WEFT_REGEX_SPACES \
    R"(\t-\r\x20\x85\xA0\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})"

class Regex {
  public:
    // `pattern` in PCRE2's dialect. kUnsupported: it does not compile.
    static Result<Regex> Make(std::string_view pattern);
    // `pattern` in the dialect of tokenizer.json.
    static Result<Regex> MakeForeign(std::string_view pattern);
    // Tests the expression on runs of one repeated character, for the characters in `pattern` and
    // for common characters. kUnsupported: the steps grow faster than the square of a run's length,
    // so a match might practically never end, or all tests together take more CPU time than
    // `left_ns`, from which their time is subtracted.
    Status CheckEnds(std::string_view pattern, int64_t& left_ns) const;

  private:
    friend class RegexRun;
    struct FreeCode {
        void operator()(pcre2_real_code_8* code) const;
    };
    std::unique_ptr<pcre2_real_code_8, FreeCode> code_;
    bool bounded_ = false;  // has a work budget, because its pattern comes from a file
};

// Match state; made once and used for many matches.
class RegexRun {
  public:
    // `size_bytes`: size of the longest text to be searched. `most_ns`: CPU time limit of the
    // thread, for tests of an expression; 0: no limit, required when tokens depend on the matches.
    explicit RegexRun(size_t size_bytes, int64_t most_ns = 0);

    struct Range {
        size_t begin;
        size_t end;
    };
    // Finds the first match in text[at, text.size()]; look-behind sees text from 0. Returns false
    // if there is no match.
    bool Next(const Regex& regex, std::string_view text, size_t at, Range& found);
    // Whether a limit was hit; Next then finds no more matches.
    bool gave_up() const { return gave_up_; }

  private:
    int Match(const Regex& regex, std::string_view text, size_t at, uint32_t options);
    int BoundedMatch(const Regex& regex, std::string_view text, size_t at);
    bool Spend(uint64_t work);
    struct Free {
        void operator()(pcre2_real_match_data_8* match) const;
        void operator()(pcre2_real_match_context_8* context) const;
        void operator()(pcre2_real_jit_stack_8* stack) const;
    };
    // allocated when the default stack is too small
    std::unique_ptr<pcre2_real_jit_stack_8, Free> stack_;
    std::unique_ptr<pcre2_real_match_context_8, Free> context_;
    std::unique_ptr<pcre2_real_match_data_8, Free> match_;
    uint32_t most_steps_ = 0;  // limit per start offset
    uint64_t budget_ = 0;      // remaining work
    size_t most_starts_;       // start offsets per PCRE2 call
    int64_t end_ns_ = -1;      // limit of the thread's CPU time; -1: none
    bool gave_up_ = false;
};

// Rewrites `pattern` for PCRE2. kUnsupported names a construct that cannot be rewritten.
Result<std::string> TranslateRegex(std::string_view pattern);

}  // namespace weft::tokenizer
