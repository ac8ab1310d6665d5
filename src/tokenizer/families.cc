#include "tokenizer/families.h"

#include <algorithm>
#include <vector>

namespace weft::tokenizer {
namespace {

#define SPACES WEFT_REGEX_SPACES
#define SPACE_RUNS "[" SPACES "]+(?![^" SPACES "])|[" SPACES "]+"
// Common tail of most families: symbols with following line ends, line ends, and runs of white
// space without their last character, which belongs to the next word.
#define SYMBOLS " ?[^" SPACES R"(\p{L}\p{N}]++)"
#define LINE_ENDS "[" SPACES R"(]*[\r\n]++)"
#define TAIL "|" SYMBOLS R"([\r\n]*+|)" LINE_ENDS "|" SPACE_RUNS
#define SLASH_TAIL "|" SYMBOLS R"([\r\n/]*+|)" LINE_ENDS "|" SPACE_RUNS
#define ENDINGS "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
// As tiktoken's (?i:...), which also matches U+017F as an s.
#define WIDE_ENDINGS "(?i:'(?:[stmd]|re|ve|ll))"
#define LETTERS R"([^\r\n\p{L}\p{N}]?\p{L}++)"
#define ANY_CASE ENDINGS "|" LETTERS
// Words by case, as in GPT-4o: capitals followed by small letters, or capitals only.
#define UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define CASED(endings)                                                                             \
    R"([^\r\n\p{L}\p{N}]?)" UPPER "*" LOWER "++" endings R"(|[^\r\n\p{L}\p{N}]?)" UPPER "++" LOWER \
    "*+" endings
// Kimi-K2: as above without Han, which forms its own words. "A*B+" with these composite classes
// would store a backtracking point per character, so the alternatives are written without
// backtracking: capitals, a small letter and more; or up to the last letter in both classes; or
// capitals only.
#define KIMI_BOTH R"((?!\p{sc:Han})[\p{Lm}\p{Lo}\p{M}])"
#define KIMI(endings)                                                                              \
    R"(\p{sc:Han}++|[^\r\n\p{L}\p{N}]?(?:(?:[\p{Lu}\p{Lt}]|)" KIMI_BOTH                            \
    R"()*+\p{Ll}(?:\p{Ll}|)" KIMI_BOTH R"()*+|(?:[\p{Lu}\p{Lt}]*+(?:)" KIMI_BOTH ")++)++)" endings \
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}]++)" endings R"(|\p{N}{1,3}+)" TAIL

constexpr const char* kGpt2 = R"('(?:[stmd]|re|ve|ll)| ?\p{L}++| ?\p{N}++|)" SYMBOLS "|" SPACE_RUNS;
constexpr const char* kLlama3 = ANY_CASE R"(|\p{N}{1,3}+)" TAIL;
constexpr const char* kQwen2 = ANY_CASE R"(|\p{N})" TAIL;
constexpr const char* kQwen35 = ENDINGS R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]++|\p{N}| ?[^)" SPACES
                                        R"(\p{L}\p{M}\p{N}]++[\r\n]*+|)" LINE_ENDS "|" SPACE_RUNS;
constexpr const char* kGpt4o = CASED("(?:" ENDINGS ")?+") R"(|\p{N}{1,3}+)" SLASH_TAIL;
constexpr const char* kTekken = CASED("") R"(|\p{N})" SLASH_TAIL;
constexpr const char* kBloom =
    " ?[^(" SPACES R"(|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]++)";
// DeepSeek LLM: letters of cased scripts, punctuation, and CJK blocks, by code point.
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
constexpr const char* kDeepSeekCjk = R"([\x{800}-\x{9FA5}\x{AC00}-\x{D7FF}]++)";

// DeepSeek V3: digits, Han and kana, then letters and symbols.
constexpr const char* kHanAndKana = R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]++)";
#define V3_WORDS \
    R"([!-/:-@\[-`{-~][A-Za-z]++|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]++| ?[\p{P}\p{S}]++)"
constexpr const char* kDeepSeekV3 = V3_WORDS R"([\r\n]*+|)" LINE_ENDS "|" SPACE_RUNS;
constexpr const char* kSpark = V3_WORDS R"(|[\r\n]|)" SPACE_RUNS;
constexpr const char* kYoutuScripts =
    R"([\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]++|[\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019})"
    R"(\x{2014}\x{FF1A}\x{FF1B}\x{FF0C}\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]++|)"
    R"([\x{3105}-\x{312F}]++|[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]++)";
constexpr const char* kAfmoeScripts =
    R"([\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{F900}-\x{FAFF}\x{3040}-\x{309F}\x{30A0}-\x{30FF})"
    R"(\x{FF65}-\x{FF9F}\x{2F00}-\x{2FDF}\x{E40}-\x{E7F}\x{E80}-\x{EFF}\x{1780}-\x{17FF})"
    R"(\x{1000}-\x{109F}\x{AA60}-\x{AA7F}\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]++)";

// A step of a family: a regular expression, or one of these names of other steps.
constexpr const char* kSpacesAtEnd = "(spaces at the end)";
constexpr const char* kDigitRuns = "(runs of digits)";
constexpr const char* kDigitWords = "(digits that are words)";
constexpr const char* kDigitSeams = "(seams of digits)";

struct Row {
    std::vector<std::string_view> names;
    std::vector<const char*> steps;
    FamilyTraits traits = {};
};

// In jais-2 a run of white space is split into pieces, and each piece would search for a line end
// through the whole run. The look-behind detects that the search has already failed.
std::vector<Row> LargeRows() {
    const FamilyTraits llama3{.whole_words = true, .adds_bos = true};
    const FamilyTraits whole{.whole_words = true};
    return {
        {{"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
          "jina-v5-nano"},
         {kLlama3},
         llama3},
        {{"glm4", "glm5"}, {kLlama3}, whole},
        {{"dbrx", "smaug-bpe", "chatglm-bpe"}, {kLlama3}},
        {{"minicpm5"}, {R"(\p{N}{1,3}+)", ANY_CASE R"(|\p{N}++)" TAIL}, whole},
        {{"jais-2"},
         {ANY_CASE R"(|\p{N}{1,3}+|)" SYMBOLS R"([\r\n]*+|)"
                   R"((?<!(?![\r\n])[)" SPACES "])" LINE_ENDS "|[" SPACES "]{512}(?![^" SPACES
                   "])|[" SPACES "]{256}(?![^" SPACES "])|[" SPACES "]{128}(?![^" SPACES
                   "])|[" SPACES "]{64}(?![^" SPACES "])|[" SPACES "]{32}(?![^" SPACES "])|[" SPACES
                   "]{16}(?![^" SPACES "])|[" SPACES "]{8}(?![^" SPACES "])|[" SPACES
                   "]{4}(?![^" SPACES "])|[" SPACES "]{1,2}(?![^" SPACES "])|[" SPACES "]"}},
        {{"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan",
          "solar-open", "grok-2"},
         {kQwen2}},
        {{"qwen35"}, {kQwen35}},
        {{"ufakzeka"}, {LETTERS R"(|\p{N})" TAIL}},
        {{"laguna"}, {R"([^\n]++|\n++)", kQwen2}},
        {{"bailingmoe", "bailingmoe2", "llada-moe"},
         {ANY_CASE R"(|\p{N}|)" SYMBOLS R"([\r\n]*+|[)" SPACES R"(]*[\r\n]|)" SPACE_RUNS}},
        {{"seed-coder"},
         {ANY_CASE R"(|\p{N}| ?[^)" SPACES R"(\p{L}\p{N}\r\n]++|)" LINE_ENDS "|" SPACE_RUNS}},
        {{"exaone-moe"},
         {ENDINGS R"(|[^\r\n\p{L}\p{N}]?\p{L}\p{M}*+(?: ?\p{L}\p{M}*+)*+|\p{N}|)" SYMBOLS
                  R"([\r\n/]?+|[)" SPACES R"(]*[\r\n]|)" SPACE_RUNS}},
        {{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, {kGpt4o}},
        {{"granite-embed-multi-97m"}, {kGpt4o}, whole},
        {{"tiny_aya", "cohere2moe"}, {kDigitWords, kGpt4o}},
        {{"tekken"}, {kTekken}, llama3},
        {{"kimi-k2"}, {KIMI("(?:" ENDINGS ")?+")}},
        {{"youtu"}, {kYoutuScripts, CASED("(?:" ENDINGS ")?+") R"(|\p{N})" SLASH_TAIL}, whole},
        {{"deepseek-llm"},
         {R"([\r\n])", kDeepSeekLetters, kDeepSeekPunctuation, kSpacesAtEnd, kDeepSeekCjk,
          R"(\p{N}++)"}},
        {{"deepseek-coder"},
         {R"([\r\n])", "[" SPACES R"(]?\p{L}++)", "[" SPACES R"(]?\p{P}++)", kDeepSeekCjk,
          R"(\p{N})"}},
        {{"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"},
         {R"(\p{N}{1,3}+)", kHanAndKana, kDeepSeekV3}},
        {{"spark2_5"}, {R"(\p{N}{1,3}+)", kHanAndKana, kSpark, R"(\p{N})"}},
        {{"afmoe"}, {kDigitRuns, kAfmoeScripts, kDeepSeekV3}},
    };
}

std::vector<Row> SmallRows() {
    const FamilyTraits bos{.adds_bos = true};
    const FamilyTraits points{.code_points = true};
    return {
        {{"default"}, {R"([\p{P}$+<=>^~|]++)", kGpt2, R"(\p{N}++)", "[0-9][0-9][0-9]"}},
        {{"gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4",
          "jina-es", "jina-de", "jina-v1-en", "jina-v2-es", "jina-v2-de", "jina-v2-code",
          "gigachat", "a.x-4.0", "mellum", "modern-bert", "roberta-bpe"},
         {kGpt2}},
        {{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b",
          "mellum2"},
         {R"(\p{N})", kGpt2}},
        {{"falcon"}, {R"([\p{P}$+<=>^~|`]++)", kGpt2, "[0-9][0-9][0-9]"}},
        {{"bloom", "poro-chat", "gpt3-finnish"}, {kBloom}},
        {{"viking"}, {kBloom, R"(\p{N})"}},
        {{"superbpe"}, {R"(\p{N}++)", kDigitSeams}},
        {{"chameleon"},
         {"<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z", R"([\t\n]|    |  )", R"(\p{N})",
          R"([\p{P}!-/:-@\[-`{-~])", kGpt2},
         bos},
        {{"gemma4", "granite-embed-multi-311m", "sarvam-moe"}, {R"([^\n]++|\n++)"}, points},
    };
}

const std::vector<Row>& Rows() {
    static const std::vector<Row> rows = [] {
        std::vector<Row> all = LargeRows();
        for (Row& row : SmallRows()) all.push_back(std::move(row));
        return all;
    }();
    return rows;
}

const Row* FindRow(std::string_view name) {
    if (name.empty()) name = "default";
    for (const Row& row : Rows()) {
        if (std::find(row.names.begin(), row.names.end(), name) != row.names.end()) return &row;
    }
    return nullptr;
}

Result<std::unique_ptr<const SplitStep>> MakeStep(std::string_view step) {
    if (step == kSpacesAtEnd) return SplitSpacesAtEnd();
    if (step == kDigitRuns) return SplitDigitsFromRight(DigitRule::kRuns);
    if (step == kDigitWords) return SplitDigitsFromRight(DigitRule::kWholeWords);
    if (step == kDigitSeams) return SplitDigitsFromRight(DigitRule::kSeams);
    WEFT_ASSIGN(Regex regex, Regex::Make(step));
    return SplitByRegex(std::move(regex), SplitBehavior::kIsolated, false);
}

}  // namespace

std::string FamilyNames() {
    std::vector<std::string_view> names;
    for (const Row& row : Rows()) names.insert(names.end(), row.names.begin(), row.names.end());
    std::sort(names.begin(), names.end());
    std::string list;
    for (const std::string_view name : names) {
        list += (list.empty() ? "" : ", ") + std::string(name);
    }
    return list;
}

FamilyTraits TraitsOf(std::string_view name) {
    const Row* row = FindRow(name);
    return row == nullptr ? FamilyTraits{} : row->traits;
}

std::string_view FamilyName(std::string_view name) {
    const Row* row = FindRow(name);
    return row == nullptr ? std::string_view() : row->names.front();
}

Result<Family> MakeFamily(std::string_view name) {
    const Row* row = FindRow(name);
    if (row == nullptr) {
        return MakeError(ErrorCode::kUnsupported,
                         "tokenizer: pre-tokenizer '{}' is not supported; supported: {}",
                         name.substr(0, 80), FamilyNames());
    }
    SplitSteps steps;
    for (const char* step : row->steps) {
        WEFT_ASSIGN(auto made, MakeStep(step));
        steps.push_back(std::move(made));
    }
    return Family{PreTokenizer(std::move(steps)), row->traits};
}

Result<Family> MakeTiktokenFamily(std::string_view name) {
    static constexpr std::pair<std::string_view, const char*> kPatterns[] = {
        {"kimi-k2", KIMI(WIDE_ENDINGS "?+")},
        {"llama-bpe", WIDE_ENDINGS "|" LETTERS R"(|\p{N}{1,3}+)" TAIL},
        {"qwen", WIDE_ENDINGS "|" LETTERS R"(|\p{N})" TAIL},
        {"o200k", CASED(WIDE_ENDINGS "?+") R"(|\p{N}{1,3}+)" SLASH_TAIL},
    };
    for (const auto& [known, pattern] : kPatterns) {
        if (name != known) continue;
        WEFT_ASSIGN(Regex regex, Regex::Make(pattern));
        SplitSteps steps;
        steps.push_back(SplitByRegex(std::move(regex), SplitBehavior::kIsolated, false));
        return Family{PreTokenizer(std::move(steps)), {.whole_words = true}};
    }
    return MakeError(ErrorCode::kUnsupported,
                     "tokenizer: tiktoken family '{}' is not supported; supported: kimi-k2, "
                     "llama-bpe, o200k, qwen",
                     name.substr(0, 80));
}

}  // namespace weft::tokenizer
