// Regular expressions by PCRE2 with its JIT, for pre-tokenizers and normalizers.
//
// Text is UTF-8 (valid: the caller has seen to it), positions are bytes, white space is Unicode's
// White_Space (PCRE2's own \s adds U+180E, which no tokenizer does).
//
// MakeForeign takes the dialect of tokenizer.json, which is Oniguruma's: \s \S \d \w \W \b, sets
// inside of sets, `[a&&[^b]]`, \uHHHH, `$` at line ends, `{1,3}+` as a repeat of a repeat. What
// PCRE2 would read otherwise is rewritten, what can't be is refused.
//
// Work is bounded by counts, never by a clock: a text has the same matches however busy a machine
// is, so that ranks agree. A match that takes more steps than a small multiple of the text's
// length, or more memory than 64 MB, counts as no match, and so does all that comes after it; of
// MakeForeign's, also what comes after the square of some 10,000 bytes and 512 times the text's
// length, in bytes looked at and steps. (Which steps are counted depends on whether PCRE2 has its
// JIT; that shows only where a limit is hit.) Expressions that take more than the square of a
// text's length are found out before any text is there: CheckEnds.
// Thread: a Regex never changes; each thread has its own RegexRun.
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

// Inside of a character class: white space, and everything else.
#define WEFT_REGEX_SPACES \
    R"(\t-\r\x20\x85\xA0\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})"

class Regex {
  public:
    // `pattern` in PCRE2's dialect. kUnsupported: it does not compile.
    static Result<Regex> Make(std::string_view pattern);
    // `pattern` in the dialect of tokenizer.json.
    static Result<Regex> MakeForeign(std::string_view pattern);
    // Whether it ends on runs of like characters, of those that `pattern` names and of the usual
    // ones. kUnsupported: its steps grow faster than the square of their length, without end in
    // practice.
    Status CheckEnds(std::string_view pattern) const;

  private:
    friend class RegexRun;
    struct FreeCode {
        void operator()(pcre2_real_code_8* code) const;
    };
    std::unique_ptr<pcre2_real_code_8, FreeCode> code_;
    bool bounded_ = false;  // by a budget of work: one that somebody else wrote
};

// What matching needs besides the expression; made once for many matches.
class RegexRun {
  public:
    // `size_bytes`: of the longest text that will be searched. `most_ns`: of the thread's time, to
    // find out about an expression; 0, where tokens depend on it: any.
    explicit RegexRun(size_t size_bytes, int64_t most_ns = 0);

    struct Range {
        size_t begin;
        size_t end;
    };
    // The first match in text[at, text.size()], looking back as far as text[0]; false: none.
    bool Next(const Regex& regex, std::string_view text, size_t at, Range& found);
    // A limit was hit: from then on nothing is found.
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
    std::unique_ptr<pcre2_real_jit_stack_8, Free> stack_;  // made when the small one is too small
    std::unique_ptr<pcre2_real_match_context_8, Free> context_;
    std::unique_ptr<pcre2_real_match_data_8, Free> match_;
    uint32_t most_steps_ = 0;  // of a start
    uint64_t budget_ = 0;      // that is left
    size_t most_starts_;       // of a call
    int64_t end_ns_ = -1;      // of the thread's time; -1: none
    bool gave_up_ = false;
};

// `pattern` rewritten for PCRE2; kUnsupported names what can't be.
Result<std::string> TranslateRegex(std::string_view pattern);

}  // namespace weft::tokenizer
