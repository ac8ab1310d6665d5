#define PCRE2_CODE_UNIT_WIDTH 8
#include "formats/tokenizer/split.h"

#include <pcre2.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "formats/utf8.h"

namespace weft::formats {
namespace {

// The inside of a character class: white space as Unicode's White_Space has it. PCRE2's own \s
// adds U+180E, which the tokenizers do not.
#define SPACES \
    R"(\t-\r\x20\x85\xA0\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})"
// What all "modern" families end with: symbols, line ends, and runs of white space that leave
// their last character to the word after them.
#define TAIL                                                                       \
    R"(| ?[^)" SPACES R"(\p{L}\p{N}]++[\r\n]*+|[)" SPACES R"(]*[\r\n]++|[)" SPACES \
    R"(]+(?![^)" SPACES R"(])|[)" SPACES R"(]+)"
#define ANY_CASE_CONTRACTION R"('(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])|)"

constexpr const char* kGpt2 =
    R"('(?:[stmd]|re|ve|ll)| ?\p{L}++| ?\p{N}++| ?[^)" SPACES R"(\p{L}\p{N}]++|[)" SPACES
    R"(]+(?![^)" SPACES R"(])|[)" SPACES R"(]+)";
constexpr const char* kLlama3 =
    ANY_CASE_CONTRACTION R"([^\r\n\p{L}\p{N}]?\p{L}++|\p{N}{1,3}+)" TAIL;
constexpr const char* kQwen2 = ANY_CASE_CONTRACTION R"([^\r\n\p{L}\p{N}]?\p{L}++|\p{N})" TAIL;

// DeepSeek LLM: letters of the cased scripts, punctuation, and the CJK blocks, by code point.
constexpr const char* kDeepSeekLetters =
    "[" SPACES
    "]?["
    R"(A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293})"
    R"(\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A})"
    R"(\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556})"
    R"(\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF})"
    R"(\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D})"
    R"(\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D})"
    R"(\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4})"
    R"(\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4})"
    R"(\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124})"
    R"(\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F})"
    R"(\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4})"
    R"(\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F})"
    R"(\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17})"
    R"(\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3})"
    R"(\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF})"
    R"(\x{1E900}-\x{1E943})"
    "]++";
constexpr const char* kDeepSeekPunctuation =
    "[" SPACES
    R"(]?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]++)";
// White space up to the end of the word. The look-behind lets only the start of a run try: from
// every start a long run in mid-word would cost its length squared.
constexpr const char* kSpacesAtEnd = "(?<![" SPACES "])[" SPACES R"(]++\z)";
constexpr const char* kDeepSeekCjk = R"([\x{800}-\x{9FA5}\x{AC00}-\x{D7FF}]++)";

struct Family {
    std::string_view name;
    std::vector<const char*> passes;
};

const std::vector<Family>& Families() {
    static const std::vector<Family> families = {
        {"default", {R"([\p{P}$+<=>^~|]++)", kGpt2, R"(\p{N}++)", R"([0-9][0-9][0-9])"}},
        {"deepseek-llm",
         {R"([\r\n])", kDeepSeekLetters, kDeepSeekPunctuation, kSpacesAtEnd, kDeepSeekCjk,
          R"(\p{N}++)"}},
        {"gpt-2", {kGpt2}},
        {"llama-bpe", {kLlama3}},
        {"qwen2", {kQwen2}},
        {"smollm", {R"(\p{N})", kGpt2}},
    };
    return families;
}

struct FreeMatch {
    void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
    void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
using Match = std::unique_ptr<pcre2_match_data, FreeMatch>;
using MatchContext = std::unique_ptr<pcre2_match_context, FreeMatch>;

// Appends the ends of the words that `code` cuts text[begin, end) into.
void SplitWord(const pcre2_code* code, pcre2_match_data* match, pcre2_match_context* context,
               std::string_view text, size_t begin, size_t end, std::vector<size_t>& ends) {
    const auto* word = reinterpret_cast<PCRE2_SPTR>(text.data() + begin);
    const size_t size = end - begin;
    for (size_t at = 0; at < size;) {
        // No match, or a limit was hit: the rest stays one word.
        if (pcre2_match(code, word, size, at, PCRE2_NO_UTF_CHECK, match, context) < 0) break;
        const size_t* range = pcre2_get_ovector_pointer(match);
        if (range[1] <= at) break;
        if (range[0] > at) ends.push_back(begin + range[0]);
        ends.push_back(begin + range[1]);
        at = range[1];
    }
    if (ends.empty() || ends.back() != end) ends.push_back(end);
}

// Valid UTF-8 with one U+FFFD for each byte of `text` that is not; bad[i] are the offsets of the
// bad bytes, ascending.
std::string Sanitize(std::string_view text, std::vector<size_t>& bad) {
    std::string valid;
    valid.reserve(text.size() + 16);
    for (size_t at = 0; at < text.size();) {
        const size_t length = CodePointLength(text, at);
        if (length > 0) {
            valid.append(text, at, length);
        } else {
            bad.push_back(at);
            valid += "\xEF\xBF\xBD";
        }
        at += std::max<size_t>(length, 1);
    }
    return valid;
}

}  // namespace

void PreTokenizer::FreeCode::operator()(pcre2_real_code_8* code) const {
    pcre2_code_free(code);
}

Result<PreTokenizer> PreTokenizer::Make(std::string_view name) {
    if (name.empty()) name = "default";
    PreTokenizer made;
    std::string known;
    for (const Family& family : Families()) {
        known += (known.empty() ? "" : ", ") + std::string(family.name);
        if (family.name != name) continue;
        for (const char* pattern : family.passes) {
            int error = 0;
            size_t offset = 0;
            made.passes_.emplace_back(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern),
                                                    PCRE2_ZERO_TERMINATED, PCRE2_UTF, &error,
                                                    &offset, nullptr));
            WEFT_CHECK(made.passes_.back() != nullptr);
            // Without a JIT (no executable memory) PCRE2 interprets: slower, same result.
            pcre2_jit_compile(made.passes_.back().get(), PCRE2_JIT_COMPLETE);
        }
        return made;
    }
    return MakeError(ErrorCode::kUnsupported,
                     "tokenizer: pre-tokenizer '{}' is not supported; supported: {}", name, known);
}

std::vector<size_t> PreTokenizer::Split(std::string_view text) const {
    if (text.empty()) return {};
    std::vector<size_t> bad;
    std::string valid;
    std::string_view subject = text;
    if (!IsUtf8(text)) subject = valid = Sanitize(text, bad);

    const MatchContext context(pcre2_match_context_create(nullptr));
    const Match match(pcre2_match_data_create(1, nullptr));
    WEFT_CHECK(context != nullptr && match != nullptr);
    // The expressions take a few steps a character; anything beyond would be a mistake in them.
    const size_t steps = 1'000'000 + 16 * subject.size();
    pcre2_set_match_limit(context.get(),
                          static_cast<uint32_t>(std::min<size_t>(steps, UINT32_MAX)));

    std::vector<size_t> ends = {subject.size()};
    for (const auto& code : passes_) {
        std::vector<size_t> finer;
        finer.reserve(ends.size() + subject.size() / 8);
        size_t begin = 0;
        for (const size_t end : ends) {
            SplitWord(code.get(), match.get(), context.get(), subject, begin, end, finer);
            begin = end;
        }
        ends = std::move(finer);
    }
    // Back to offsets of `text`: each bad byte took three bytes in `subject`.
    size_t passed = 0;
    for (size_t& end : ends) {
        while (passed < bad.size() && bad[passed] + 2 * passed < end) ++passed;
        end -= 2 * passed;
    }
    return ends;
}

}  // namespace weft::formats
