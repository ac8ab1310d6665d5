#include "tokenizer/families.h"

#include <gtest/gtest.h>

#include <chrono>

#include "support/nightly.h"
#include "support/tiny_vocabulary.h"
#include "tokenizer/tokenizer.h"

namespace weft::tokenizer {
namespace {

// One name for each way to split.
constexpr const char* kNames[] = {
    "llama-bpe", "minicpm5",   "jais-2",     "qwen2",        "qwen35",         "ufakzeka",
    "laguna",    "bailingmoe", "seed-coder", "exaone-moe",   "gpt-4o",         "tiny_aya",
    "tekken",    "kimi-k2",    "youtu",      "deepseek-llm", "deepseek-coder", "deepseek-v3",
    "spark2_5",  "afmoe",      "default",    "gpt-2",        "smollm",         "falcon",
    "bloom",     "viking",     "superbpe",   "chameleon",    "gemma4"};

std::vector<std::string> Words(const std::string& name, const std::string& text) {
    const auto family = MakeFamily(name);
    EXPECT_TRUE(family.ok()) << name;
    WordList list(text);
    family->words.Split(list);
    std::vector<std::string> words;
    size_t begin = 0;
    for (const WordList::Word word : list.words) {
        EXPECT_EQ(word.begin, begin);
        EXPECT_GT(word.end, word.begin);
        words.emplace_back(list.Text(word));
        begin = word.end;
    }
    EXPECT_EQ(begin, text.size());
    return words;
}

using List = std::vector<std::string>;

TEST(Split, Families) {
    EXPECT_EQ(Words("gpt-2", "I'll  go 123!\n"), (List{"I", "'ll", " ", " go", " 123", "!", "\n"}));
    EXPECT_EQ(Words("smollm", "x12 3"), (List{"x", "1", "2", " ", "3"}));
    EXPECT_EQ(Words("llama-bpe", "I'LL 12345 a\n\nb"),
              (List{"I", "'LL", " ", "123", "45", " a", "\n\n", "b"}));
    EXPECT_EQ(Words("qwen2", "12 !!\n\n x"), (List{"1", "2", " !!\n\n", " x"}));
    EXPECT_EQ(Words("deepseek-llm", "ab 12\n x \n"),
              (List{"ab", " ", "12", "\n", " x", " ", "\n"}));
    EXPECT_EQ(Words("default", "f(1234)"), (List{"f", "(", "123", "4", ")"}));
    EXPECT_EQ(Words("", "f(1234)"), Words("default", "f(1234)"));
    EXPECT_EQ(Words("laguna", "a \n\nb"), (List{"a", " ", "\n\n", "b"}));
    for (const char* name : kNames) EXPECT_TRUE(Words(name, "").empty());
}

TEST(Split, WhiteSpaceIsUnicodes) {
    for (const char* name : {"gpt-2", "llama-bpe", "qwen2", "smollm"}) {
        for (const char* space : {"\xC2\x85", "\xC2\xA0", "\xE1\x9A\x80", "\xE3\x80\x80"}) {
            EXPECT_EQ(Words(name, std::string("!") + space + space + "!"),
                      (List{"!", space, space, "!"}));
        }
        // U+180E and U+200B are not white space; they are grouped with symbols.
        EXPECT_EQ(Words(name, "!\xE1\xA0\x8E\xE2\x80\x8B!").size(), 1u);
    }
}

TEST(Split, DigitsFromTheRight) {
    EXPECT_EQ(Words("afmoe", "x12345678y1"), (List{"x", "12", "345", "678", "y", "1"}));
    EXPECT_EQ(Words("tiny_aya", "1234567 1234a"), (List{"1", "234", "567", " ", "123", "4", "a"}));
    EXPECT_EQ(Words("superbpe", "ab 1234567"), (List{"ab ", "1", "234", "567"}));
    EXPECT_EQ(Words("superbpe", "12345678"), (List{"12", "345", "678"}));
}

TEST(Split, HanOnItsOwn) {
    EXPECT_EQ(Words("kimi-k2", "Ab\u65e5\u672cI'll\u304b don't"),
              (List{"Ab", "\u65e5\u672c", "I'll", "\u304b", " don't"}));
    EXPECT_EQ(Words("kimi-k2", "AA1234"), (List{"AA", "123", "4"}));
}

// Every name is known, and the error for an unknown name lists them.
TEST(Split, Names) {
    std::string names = FamilyNames();
    size_t count = 0;
    for (size_t at = 0; at < names.size(); ++count) {
        const size_t end = std::min(names.find(", ", at), names.size());
        EXPECT_TRUE(MakeFamily(names.substr(at, end - at)).ok()) << names.substr(at, end - at);
        at = end + 2;
    }
    EXPECT_GE(count, 85u);
    const auto unknown = MakeFamily("tekkon");
    ASSERT_FALSE(unknown.ok());
    EXPECT_EQ(unknown.error().code, ErrorCode::kUnsupported);
    EXPECT_EQ(unknown.error().message,
              "tokenizer: pre-tokenizer 'tekkon' is not supported; supported: " + names);
}

class SplitTime : public testing::TestWithParam<const char*> {};

double SecondsFor(const PreTokenizer& splitter, const std::string& unit, size_t bytes) {
    std::string text;
    while (text.size() < bytes) text += unit;
    text += "x\xCC\x81";
    double best = 1e9;
    for (int round = 0; round < 2; ++round) {
        const auto start = std::chrono::steady_clock::now();
        WordList list(text);
        splitter.Split(list);
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
        best = std::min(best, took.count());
    }
    return best;
}

// Four times the text takes at most eight times as long, for any text. The margin is wide for busy
// machines: linear time is hundredths of a second, quadratic time a minute.
TEST_P(SplitTime, IsLinear) {
    const auto family = MakeFamily(GetParam());
    ASSERT_TRUE(family.ok());
    const char* const units[] = {"a",
                                 "A",
                                 " ",
                                 "7",
                                 "\n",
                                 "\r\n",
                                 " \n",
                                 "'s",
                                 "!",
                                 "\xF0\x9F\x98\x80",
                                 "\xC2\xA0",
                                 "   a",
                                 "\xCC\x81",
                                 "a1 !",
                                 "\u65e5",
                                 "A\xCC\x81",
                                 "!?.,;-",
                                 "\u02b0"
                                 "A",
                                 "\t ",
                                 "\u0627"};
    for (const char* unit : weft::test::Some(units, 3, std::strlen(GetParam()))) {
        const double small = SecondsFor(family->words, unit, 32 << 10);
        const double large = SecondsFor(family->words, unit, 128 << 10);
        EXPECT_LE(large, 8 * small + 1) << GetParam() << " on '" << unit << "'";
    }
}

INSTANTIATE_TEST_SUITE_P(Families, SplitTime, testing::ValuesIn(kNames), [](const auto& family) {
    std::string name = family.param;
    std::erase_if(name, [](char c) { return c == '-' || c == '_'; });
    return name;
});

// CPU time of this thread, independent of other programs.
double CpuSeconds() {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Encodes and decodes `text` within `seconds` of CPU time: a wide limit for sanitizers. Linear time
// is a hundredth of it; quadratic time is far beyond.
void ExpectQuick(const Tokenizer& tokenizer, const std::string& text, double seconds) {
    const double begin = CpuSeconds();
    const auto ids = tokenizer.Encode(text);
    const double took = CpuSeconds() - begin;
    const std::string what = tokenizer.data().pre + " on '" + text.substr(0, 4) + "...'";
    EXPECT_LE(took, seconds) << what;
    EXPECT_TRUE(tokenizer.Decode(ids) == text) << what;
}

std::unique_ptr<Tokenizer> Doubling(const char* pre) {
    TokenizerData data = TinyBytePair({"a a", "aa aa", "aaaa aaaa", "\xC4\xA0 \xC4\xA0",
                                       "\xC4\xA0\xC4\xA0 \xC4\xA0\xC4\xA0", "7 7"});
    data.pre = pre;
    return Tokenizer::Make(data).value();
}

TEST(Split, NoTextIsSlow) {
    const size_t n = 50'000;
    std::vector<std::string> texts;
    for (const char* unit : {"a", " ", "7", "\n", "\r\n", " \n", "'s", "!", "\xF0\x9F\x98\x80",
                             "\xC2\xA0", "\xFF", "   a", "\xE2\x82", "\xCC\x81", "a1 !"}) {
        std::string text;
        while (text.size() < n) text += unit;
        texts.push_back(std::move(text));
    }
    texts.push_back(std::string(n, ' ') + "x");
    texts.push_back(std::string(n, '\t') + "\xFF");
    for (const char* name : {"llama-bpe", "kimi-k2", "deepseek-v3", "default", "gpt-2"}) {
        const auto tokenizer = Doubling(name);
        for (const std::string& text : texts) ExpectQuick(*tokenizer, text, 5);
    }
}

TEST(Split, AMegabyteOfOneLetter) {
    const size_t n = 1'000'000;
    for (const char c : {'a', ' ', '7'}) {
        ExpectQuick(*Doubling("llama-bpe"), std::string(n, c), 20);
        const auto spm = Tokenizer::Make(
            TinySpm({"\xE2\x96\x81", "\xE2\x96\x81\xE2\x96\x81", "a", "aa", "aaaa", "aaaaaaaa"}));
        ExpectQuick(**spm, std::string(n, c), 20);
    }
}

}  // namespace
}  // namespace weft::tokenizer
