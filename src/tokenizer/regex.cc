#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/regex.h"

#include <pcre2.h>

#include <algorithm>
#include <cstdint>

namespace weft::tokenizer {
namespace {

constexpr size_t kMostStackBytes = size_t{64} << 20;
constexpr uint32_t kMostHeapKilobytes = 64 << 10;
constexpr size_t kMostPatternBytes = 64 << 10;

Result<pcre2_code*> Compile(std::string_view pattern, uint32_t options) {
    if (pattern.size() > kMostPatternBytes) {
        return MakeError(ErrorCode::kUnsupported,
                         "a regular expression of {} bytes; expected at most {}", pattern.size(),
                         kMostPatternBytes);
    }
    int error = 0;
    size_t offset = 0;
    pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                     options, &error, &offset, nullptr);
    if (code == nullptr) {
        PCRE2_UCHAR words[160] = {};
        pcre2_get_error_message(error, words, sizeof words);
        return MakeError(ErrorCode::kUnsupported, "regular expression '{}': {} at byte {}",
                         pattern.substr(0, 400), reinterpret_cast<const char*>(words), offset);
    }
    // Without a JIT (no executable memory) PCRE2 interprets: slower, same result.
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    return code;
}

}  // namespace

void Regex::FreeCode::operator()(pcre2_real_code_8* code) const {
    pcre2_code_free(code);
}

Result<Regex> Regex::Make(std::string_view pattern) {
    Regex made;
    WEFT_ASSIGN(pcre2_code * code, Compile(pattern, PCRE2_UTF));
    made.code_.reset(code);
    return made;
}

Result<Regex> Regex::MakeForeign(std::string_view pattern) {
    Regex made;
    WEFT_ASSIGN(const std::string translated, TranslateRegex(pattern));
    WEFT_ASSIGN(pcre2_code * code, Compile(translated, PCRE2_UTF | PCRE2_UCP));
    made.code_.reset(code);
    return made;
}

void RegexRun::Free::operator()(pcre2_real_match_data_8* match) const {
    pcre2_match_data_free(match);
}

void RegexRun::Free::operator()(pcre2_real_match_context_8* context) const {
    pcre2_match_context_free(context);
}

void RegexRun::Free::operator()(pcre2_real_jit_stack_8* stack) const {
    pcre2_jit_stack_free(stack);
}

RegexRun::RegexRun(size_t size_bytes)
    : context_(pcre2_match_context_create(nullptr)), match_(pcre2_match_data_create(1, nullptr)) {
    WEFT_CHECK(context_ != nullptr && match_ != nullptr);
    // The expressions take a few steps a character; anything beyond is a mistake in them.
    const size_t steps = 1'000'000 + 16 * size_bytes;
    pcre2_set_match_limit(context_.get(),
                          static_cast<uint32_t>(std::min<size_t>(steps, UINT32_MAX)));
    pcre2_set_heap_limit(context_.get(), kMostHeapKilobytes);
}

bool RegexRun::Next(const Regex& regex, std::string_view text, size_t at, Range& found) {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    int status = pcre2_match(regex.code_.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK,
                             match_.get(), context_.get());
    if (status == PCRE2_ERROR_JIT_STACKLIMIT && stack_ == nullptr) {
        stack_.reset(pcre2_jit_stack_create(32 << 10, kMostStackBytes, nullptr));
        pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
        status = pcre2_match(regex.code_.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK,
                             match_.get(), context_.get());
    }
    if (status < 0) return false;
    const size_t* range = pcre2_get_ovector_pointer(match_.get());
    if (range[0] > range[1]) return false;  // \K in a look-ahead can do that
    found = {range[0], range[1]};
    return true;
}

}  // namespace weft::tokenizer
