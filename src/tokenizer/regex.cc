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
// Initial limits of one PCRE2 call: range of start offsets in bytes, bytes examined beyond them,
// and steps per start.
constexpr size_t kFirstStarts = 2048, kFirstAhead = 2048;
constexpr uint32_t kFirstSteps = 4096;
constexpr size_t kGrowth = 4;
// Budget beyond these limits for all calls of a RegexRun: the square of about 10,000 bytes, plus an
// amount per byte of text.
constexpr uint64_t kBaseBudget = uint64_t{1} << 27, kByteBudget = 512;
constexpr size_t kProbeBytes = 3000, kProbeStarts = 64;

int64_t ThreadNs() {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

// `at`, or the next character boundary.
size_t CharacterFrom(std::string_view text, size_t at) {
    while (at < text.size() && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) ++at;
    return std::min(at, text.size());
}

// The distinct ASCII characters in a pattern.
std::string NamedIn(std::string_view pattern) {
    std::string named;
    for (const char c : pattern) {
        if (static_cast<uint8_t>(c) < 0x80 && named.find(c) == named.npos) named += c;
    }
    return named;
}

// Characters whose runs are tested: of all kinds, and those in the pattern.
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
    // Without a JIT (no executable memory) PCRE2 interprets: slower, same matches.
    const bool partial = (options & PCRE2_USE_OFFSET_LIMIT) != 0;
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE | (partial ? PCRE2_JIT_PARTIAL_HARD : 0));
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

Status Regex::CheckEnds(std::string_view pattern, int64_t& left_ns) const {
    const std::string named = NamedIn(pattern);
    std::string text;
    for (const std::string& character : Characters(named)) {
        text.clear();
        while (text.size() < kProbeBytes) text += character;
        // Characters after the run: one that ends no match, and those that the expression may look
        // for first.
        text += "\x01" + named;
        const int64_t begin_ns = ThreadNs();
        RegexRun run(text.size(), std::max<int64_t>(left_ns, 1));
        RegexRun::Range found{};
        for (size_t at = 0; at < text.size() && run.Next(*this, text, at, found);) {
            at = CharacterFrom(text, std::max(found.end, at + 1));
        }
        left_ns -= ThreadNs() - begin_ns;
        if (!run.gave_up() && left_ns > 0) continue;
        return MakeError(ErrorCode::kUnsupported,
                         "regular expression '{}' takes more than a million steps for {} bytes of "
                         "'{}', or the file's expressions take seconds for such texts, so it would "
                         "practically not finish on longer texts",
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

RegexRun::RegexRun(size_t size_bytes, int64_t most_ns)
    : context_(pcre2_match_context_create(nullptr)), match_(pcre2_match_data_create(1, nullptr)) {
    WEFT_CHECK(context_ != nullptr && match_ != nullptr);
    // The built-in expressions take a few steps per character; more indicates a mistake in them.
    const size_t steps = 1'000'000 + 16 * size_bytes;
    most_steps_ = static_cast<uint32_t>(std::min<size_t>(steps, UINT32_MAX));
    pcre2_set_match_limit(context_.get(), most_steps_);
    pcre2_set_heap_limit(context_.get(), kMostHeapKilobytes);
    budget_ = kBaseBudget + kByteBudget * size_bytes;
    if (most_ns > 0) end_ns_ = ThreadNs() + most_ns;
    most_starts_ = most_ns > 0 ? kProbeStarts : kFirstStarts;
}

int RegexRun::Match(const Regex& regex, std::string_view text, size_t at, uint32_t options) {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    const auto match = [&] {
        return pcre2_match(regex.code_.get(), subject, text.size(), at,
                           PCRE2_NO_UTF_CHECK | options, match_.get(), context_.get());
    };
    int status = match();
    if (status == PCRE2_ERROR_JIT_STACKLIMIT && stack_ == nullptr) {
        stack_.reset(pcre2_jit_stack_create(32 << 10, kMostStackBytes, nullptr));
        pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
        status = match();
    }
    return status;
}

bool RegexRun::Spend(uint64_t work) {
    gave_up_ |= work > budget_;
    budget_ -= std::min(work, budget_);
    return !gave_up_;
}

// A call sees a part of the text. If it needs more text or more steps, it is repeated for a single
// start with higher limits, which is charged to the budget.
int RegexRun::BoundedMatch(const Regex& regex, std::string_view text, size_t at) {
    size_t starts = most_starts_, ahead = kFirstAhead;
    uint32_t steps = std::min(kFirstSteps, most_steps_);
    while (true) {
        gave_up_ |= end_ns_ >= 0 && ThreadNs() > end_ns_;
        if (gave_up_) return PCRE2_ERROR_MATCHLIMIT;
        const size_t last = CharacterFrom(text, std::min(text.size(), at + starts));
        const size_t end = CharacterFrom(text, last + std::min(text.size() - last, ahead));
        pcre2_set_offset_limit(context_.get(), last);
        pcre2_set_match_limit(context_.get(), steps);
        const int status =
            Match(regex, text.substr(0, end), at, end < text.size() ? PCRE2_PARTIAL_HARD : 0);
        if (status == PCRE2_ERROR_NOMATCH) {
            if (last == text.size()) return status;
            at = CharacterFrom(text, last + 1);
            starts = std::min(most_starts_, 2 * starts + 1);
            ahead = kFirstAhead;
            steps = std::min(kFirstSteps, most_steps_);
        } else if (status == PCRE2_ERROR_PARTIAL) {
            // No match begins before the start that reached the end of the visible text.
            at = std::clamp(pcre2_get_ovector_pointer(match_.get())[0], at, last);
            starts = 0;
            ahead *= kGrowth;
            if (!Spend(std::min(ahead, text.size() - at))) return status;
        } else if (status == PCRE2_ERROR_MATCHLIMIT && (starts > 0 || steps < most_steps_)) {
            // PCRE2 does not report which start used the steps.
            const bool alone = starts == 0;
            starts /= 2;
            if (alone) steps = std::min<uint64_t>(uint64_t{steps} * kGrowth, most_steps_);
            if (!Spend(steps)) return status;
        } else {
            return status;
        }
    }
}

bool RegexRun::Next(const Regex& regex, std::string_view text, size_t at, Range& found) {
    if (gave_up_) return false;
    const int status = regex.bounded_ ? BoundedMatch(regex, text, at) : Match(regex, text, at, 0);
    gave_up_ |= status < 0 && status != PCRE2_ERROR_NOMATCH;
    if (status < 0) return false;
    const size_t* range = pcre2_get_ovector_pointer(match_.get());
    if (range[0] > range[1]) return false;  // possible with \K in a look-ahead
    found = {range[0], range[1]};
    return true;
}

}  // namespace weft::tokenizer
