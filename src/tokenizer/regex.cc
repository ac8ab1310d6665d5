#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/regex.h"

#include <pcre2.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <string>
#include <vector>

namespace weft::tokenizer {
namespace {

constexpr size_t kMostStackBytes = size_t{64} << 20;
constexpr uint32_t kMostHeapKilobytes = 64 << 10;
constexpr size_t kMostPatternBytes = 64 << 10;
// A search stops after so many bytes, or so many steps for each start, to look at the clock.
constexpr size_t kMostWindowBytes = 4096, kWindowSteps = size_t{1} << 22;
constexpr int64_t kBaseNs = 1'000'000'000, kByteNs = 2000;
constexpr uint32_t kCallsPerLook = 64;
constexpr size_t kProbeBytes = 3000;

int64_t ThreadNs() {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

// The characters of ASCII in a pattern, each once.
std::string NamedIn(std::string_view pattern) {
    std::string named;
    for (const char c : pattern) {
        if (static_cast<uint8_t>(c) < 0x80 && named.find(c) == named.npos) named += c;
    }
    return named;
}

// What runs of are looked at: characters of all kinds, and what the pattern names.
std::vector<std::string> Characters(std::string_view named) {
    std::vector<std::string> all = {"a",  "A",  "0",  " ",  "\n",       "\t",
                                    ".",  "-",  "_",  "'",  "\xC3\xA9", "\xE4\xBD\xA0",
                                    "a0", "a ", "aA", "Aa", "a'"};
    for (const char c : named) all.emplace_back(1, c);
    return all;
}

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
    WEFT_ASSIGN(pcre2_code * code,
                Compile(translated, PCRE2_UTF | PCRE2_UCP | PCRE2_USE_OFFSET_LIMIT));
    made.code_.reset(code);
    made.bounded_ = true;
    return made;
}

Status Regex::CheckEnds(std::string_view pattern) const {
    const std::string named = NamedIn(pattern);
    std::string text;
    for (const std::string& character : Characters(named)) {
        text.clear();
        while (text.size() < kProbeBytes) text += character;
        // What no run ends with, and what an expression may look for at the end before all else.
        text += "\x01" + named;
        RegexRun run(text.size());
        RegexRun::Range found{};
        for (size_t at = 0; at < text.size() && run.Next(*this, text, at, found);) {
            at = std::max(found.end, at + 1);
            while (at < text.size() && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) ++at;
        }
        if (!run.gave_up()) continue;
        return MakeError(ErrorCode::kUnsupported,
                         "regular expression '{}' takes more than a million steps for {} bytes of "
                         "'{}': it would not end on longer texts",
                         pattern.substr(0, 400), text.size(), character);
    }
    return {};
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
    most_ns_ = kBaseNs + kByteNs * static_cast<int64_t>(size_bytes);
    window_bytes_ =
        std::clamp<size_t>(kWindowSteps / std::max<size_t>(1, size_bytes), 64, kMostWindowBytes);
    pcre2_set_heap_limit(context_.get(), kMostHeapKilobytes);
}

int RegexRun::Match(const Regex& regex, std::string_view text, size_t at) {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    const auto match = [&] {
        return pcre2_match(regex.code_.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK,
                           match_.get(), context_.get());
    };
    int status = match();
    if (status == PCRE2_ERROR_JIT_STACKLIMIT && stack_ == nullptr) {
        stack_.reset(pcre2_jit_stack_create(32 << 10, kMostStackBytes, nullptr));
        pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
        status = match();
    }
    gave_up_ |= status < 0 && status != PCRE2_ERROR_NOMATCH;
    return status;
}

bool RegexRun::IsTimeUp() {
    // (The clock takes as long as some matches do.)
    if (calls_++ % kCallsPerLook != 0 && window_bytes_ == kMostWindowBytes) return gave_up_;
    const int64_t now = ThreadNs();
    if (begin_ns_ < 0) begin_ns_ = now;
    gave_up_ |= now - begin_ns_ > most_ns_;
    return gave_up_;
}

bool RegexRun::Next(const Regex& regex, std::string_view text, size_t at, Range& found) {
    if (gave_up_) return false;
    int status = PCRE2_ERROR_NOMATCH;
    while (status == PCRE2_ERROR_NOMATCH && !gave_up_) {
        if (regex.bounded_ && IsTimeUp()) return false;
        const size_t last =
            regex.bounded_ ? std::min(text.size(), at + window_bytes_) : text.size();
        pcre2_set_offset_limit(context_.get(), regex.bounded_ ? last : PCRE2_UNSET);
        status = Match(regex, text, at);
        if (last == text.size()) break;
        at = last + 1;
        while (at < text.size() && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) ++at;
    }
    if (status < 0) return false;
    const size_t* range = pcre2_get_ovector_pointer(match_.get());
    if (range[0] > range[1]) return false;  // \K in a look-ahead can do that
    found = {range[0], range[1]};
    return true;
}

}  // namespace weft::tokenizer
