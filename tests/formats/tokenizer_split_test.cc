#include "formats/tokenizer/split.h"

#include <gtest/gtest.h>

#include <chrono>

#include "formats/tokenizer/tokenizer.h"
#include "support/tiny_vocabulary.h"

namespace weft::formats {
namespace {

constexpr const char* kNames[] = {"default",   "deepseek-llm", "gpt-2",
                                  "llama-bpe", "qwen2",        "smollm"};

std::vector<std::string> Words(const char* name, const std::string& text) {
    const auto splitter = PreTokenizer::Make(name);
    EXPECT_TRUE(splitter.ok());
    std::vector<std::string> words;
    size_t begin = 0;
    for (const size_t end : splitter->Split(text)) {
        EXPECT_GT(end, begin);
        words.push_back(text.substr(begin, end - begin));
        begin = end;
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
    for (const char* name : kNames) EXPECT_TRUE(Words(name, "").empty());
}

TEST(Split, WhiteSpaceIsUnicodes) {
    for (const char* name : {"gpt-2", "llama-bpe", "qwen2", "smollm"}) {
        for (const char* space : {"\xC2\x85", "\xC2\xA0", "\xE1\x9A\x80", "\xE3\x80\x80"}) {
            EXPECT_EQ(Words(name, std::string("!") + space + space + "!"),
                      (List{"!", space, space, "!"}));
        }
        // U+180E and U+200B are not white space; they go with the symbols.
        EXPECT_EQ(Words(name, "!\xE1\xA0\x8E\xE2\x80\x8B!").size(), 1u);
    }
}

// A bad byte is cut like U+FFFD, and the words still are the bytes of the text.
TEST(Split, InvalidUtf8) {
    for (const char* name : kNames) {
        std::string bad = "ab\xFF\xC3 1\x80\xE2\x82\n", good = "ab";
        for (const char* part :
             {"\xEF\xBF\xBD\xEF\xBF\xBD", " 1", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD", "\n"}) {
            good += part;
        }
        const auto expected = Words(name, good);
        const auto words = Words(name, bad);
        ASSERT_EQ(words.size(), expected.size()) << name;
        for (size_t i = 0; i < words.size(); ++i) {
            std::string filled;
            for (const char c : words[i]) {
                filled += static_cast<uint8_t>(c) < 0x80 ? std::string(1, c) : "\xEF\xBF\xBD";
            }
            EXPECT_EQ(filled, expected[i]) << name;
        }
    }
}

// Encodes `text` and expects it back within `seconds`: a wide bound, for sanitizers and busy
// machines. Linear time is a hundredth of it; anything quadratic is far beyond.
void ExpectQuick(const Tokenizer& tokenizer, const std::string& text, double seconds) {
    const auto start = std::chrono::steady_clock::now();
    const auto ids = tokenizer.Encode(text);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    const std::string what = tokenizer.data().pre + " on '" + text.substr(0, 4) + "...'";
    EXPECT_LE(took.count(), seconds) << what;
    EXPECT_TRUE(tokenizer.Decode(ids) == text) << what;
}

std::unique_ptr<Tokenizer> Doubling(const char* pre) {
    TokenizerData data = TinyBytePair({"a a", "aa aa", "aaaa aaaa", "\xC4\xA0 \xC4\xA0",
                                       "\xC4\xA0\xC4\xA0 \xC4\xA0\xC4\xA0", "7 7"});
    data.pre = pre;
    return Tokenizer::Make(data).value();
}

TEST(Split, NoTextIsSlow) {
    const size_t n = 200'000;
    std::vector<std::string> texts;
    for (const char* unit : {"a", " ", "7", "\n", "\r\n", " \n", "'s", "!", "\xF0\x9F\x98\x80",
                             "\xC2\xA0", "\xFF", "   a", "\xE2\x82", "\xCC\x81", "a1 !"}) {
        std::string text;
        while (text.size() < n) text += unit;
        texts.push_back(std::move(text));
    }
    texts.push_back(std::string(n, ' ') + "x");
    texts.push_back(std::string(n, '\t') + "\xFF");
    for (const char* name : kNames) {
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
}  // namespace weft::formats
