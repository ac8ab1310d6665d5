#include "base/json.h"

#include <gtest/gtest.h>

#include <ctime>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/bare_words.h"
#include "base/json_digits.h"

namespace weft {
namespace {

using Json = nlohmann::json;
using Ordered = nlohmann::ordered_json;

std::string Repeated(std::string_view text, size_t times) {
    std::string out;
    for (size_t i = 0; i < times; ++i) out += text;
    return out;
}

Error ErrorOfText(std::string_view text, const JsonLimits& limits = {}) {
    const auto parsed = ParseOrderedJsonText(text, limits);
    EXPECT_FALSE(parsed.ok()) << text.substr(0, 100);
    return parsed.ok() ? Error{} : parsed.error();
}

TEST(JsonText, BareWordsAreReplacedOutsideStrings) {
    constexpr std::string_view kText = R"({"NaN": "a \" Infinity", "b": [-Infinity, NaN, -1]})";
    EXPECT_NE(ErrorOfText(kText).message, "");
    const auto read = ParseJsonText(WithoutBareWords(kText));
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ((*read)["NaN"], "a \" Infinity");
    EXPECT_EQ((*read)["b"][0], (Json{{"__float__", "-Infinity"}}));
    EXPECT_EQ((*read)["b"][1], (Json{{"__float__", "NaN"}}));
    EXPECT_EQ((*read)["b"][2], -1);
    EXPECT_FALSE(ParseJsonText(WithoutBareWords(R"({"a": Infinit})")).ok());
}

// CPU time of this thread, which other processes do not affect.
double SecondsOf(const std::function<void()>& work) {
    const auto now = [] {
        timespec t{};
        ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
    };
    const double begin = now();
    work();
    return now() - begin;
}

// Random text that is almost JSON: fragments in any order.
std::string JsonRandomText(std::mt19937& random) {
    static const std::vector<std::string> kPieces = {"{",
                                                     "}",
                                                     "[",
                                                     "]",
                                                     ",",
                                                     ":",
                                                     "\"a\"",
                                                     "\"b\"",
                                                     "\"\\u00e9\\n\"",
                                                     "1",
                                                     "-2.5e3",
                                                     "null",
                                                     "true",
                                                     "false",
                                                     " ",
                                                     "\n",
                                                     "{\"a\":",
                                                     "[1,",
                                                     "\"\\ud83d\\ude00\"",
                                                     "\"\xc3\xa9\"",
                                                     "18446744073709551616",
                                                     "-9223372036854775808",
                                                     "\"\\ud800\"",
                                                     "\x01",
                                                     "1e999",
                                                     "\"\xff\""};
    std::string text;
    const size_t count = 1 + random() % 12;
    for (size_t i = 0; i < count; ++i) text += kPieces[random() % kPieces.size()];
    return text;
}

// A random value of at most that depth, with repeated keys.
std::string RandomValue(std::mt19937& random, int depth) {
    const auto kind = random() % (depth > 0 ? 7 : 5);
    std::string text;
    if (kind == 0) return "null";
    if (kind == 1) return random() % 2 != 0 ? "true" : "false";
    if (kind == 2) return std::to_string(static_cast<int64_t>(random()) - (int64_t{1} << 31));
    if (kind == 3) return std::to_string(static_cast<double>(random()) / 977) + "e-3";
    if (kind == 4) return "\"" + Repeated("x\\t", random() % 9) + "\"";
    const size_t count = random() % 20;
    for (size_t i = 0; i < count; ++i) {
        if (i > 0) text += ",";
        if (kind == 5) text += "\"k" + std::to_string(random() % 12) + "\":";
        text += RandomValue(random, depth - 1);
    }
    return kind == 5 ? "{" + text + "}" : "[" + text + "]";
}

// An integer beyond 64 bits keeps its digits if the caller requests it; others become numbers.
TEST(Json, DigitsOfIntegers) {
    for (const char* text :
         {"18446744073709551616", "-9223372036854775809", "[1,123456789012345678901234567890]",
          R"({"a":{"b":[99999999999999999999,"],\"subtype\":110403869308019}"]},"c":1.5})"}) {
        const auto kept = ParseJsonWithDigits(text);
        ASSERT_TRUE(kept.ok()) << text;
        EXPECT_EQ(DumpJson(*kept), text);
    }
    EXPECT_TRUE(IsDigits(*ParseJsonWithDigits("18446744073709551616")));
    EXPECT_EQ(DigitsOf(*ParseJsonWithDigits("18446744073709551616")), "18446744073709551616");
    for (const char* text : {"18446744073709551615", "-9223372036854775808", "1e30", "0.5", "[]"}) {
        EXPECT_EQ(*ParseJsonWithDigits(text), *ParseOrderedJsonText(text)) << text;
        EXPECT_FALSE(IsDigits(*ParseJsonWithDigits(text))) << text;
    }
    EXPECT_TRUE(ParseOrderedJsonText("18446744073709551616")->is_number_float());
    EXPECT_FALSE(ParseJsonWithDigits(Repeated("9", 400)).ok());
}

TEST(JsonText, AgreesWithNlohmann) {
    std::mt19937 random(7);
    int good = 0;
    for (int i = 0; i < 8000; ++i) {
        const std::string text = i % 4 == 0 ? RandomValue(random, 4) : JsonRandomText(random);
        const Json expected = Json::parse(text, nullptr, false);
        const Ordered ordered = Ordered::parse(text, nullptr, false);
        const auto got = ParseJsonText(text);
        const auto got_ordered = ParseOrderedJsonText(text);
        ASSERT_EQ(got.ok(), !expected.is_discarded()) << text;
        ASSERT_EQ(got_ordered.ok(), !expected.is_discarded()) << text;
        if (!got.ok()) continue;
        ++good;
        ASSERT_EQ(got->dump(), expected.dump()) << text;
        ASSERT_EQ(got_ordered->dump(), ordered.dump()) << text;
        ASSERT_EQ(got->is_number_unsigned(), expected.is_number_unsigned()) << text;
    }
    EXPECT_GT(good, 2000);
}

TEST(JsonText, LastOfRepeatedKeysCounts) {
    const std::string text = R"({"b":1,"a":2,"b":{"c":3,"c":[4]},"a":null,"b":7})";
    EXPECT_EQ(ParseOrderedJsonText(text)->dump(), R"({"b":7,"a":null})");
    EXPECT_EQ(ParseJsonText(text)->dump(), R"({"a":null,"b":7})");
}

TEST(JsonText, RepeatedKeysAreErrorsOnRequest) {
    const JsonLimits unique{.unique = true};
    const auto twice =
        ParseJsonText("{\"a\": 1,\n \"b\": {\"a\": 2, \"c\": [], \"a\": 3}}", unique);
    ASSERT_FALSE(twice.ok());
    EXPECT_EQ(twice.error().code, ErrorCode::kCorrupt);
    EXPECT_TRUE(twice.error().message.starts_with("line 2, ")) << twice.error().message;
    EXPECT_TRUE(twice.error().message.ends_with(": 'a'")) << twice.error().message;
    for (const char* text : {R"({"a":1,"a":1})", R"([{"b":{"c":1,"a":[],"b":3,"a":{}}}])"}) {
        const auto ordered = ParseOrderedJsonText(text, unique);
        ASSERT_FALSE(ordered.ok()) << text;
        EXPECT_TRUE(ordered.error().message.ends_with("a repeated key in an object: 'a'")) << text;
    }
    EXPECT_TRUE(ParseJsonText(R"([{"a":1,"b":{"a":2}},{"a":1}])", unique).ok());
}

TEST(JsonText, DepthHasALimit) {
    for (const char* open : {"[", "{\"a\":"}) {
        const std::string close = open[0] == '[' ? "]" : "}";
        const std::string good = Repeated(open, 100) + "1" + Repeated(close, 100);
        EXPECT_TRUE(ParseOrderedJsonText(good).ok());
        for (const size_t depth : {size_t{101}, size_t{105000}, size_t{2000000}}) {
            const std::string closed = Repeated(open, depth) + "1" + Repeated(close, depth);
            for (const std::string& text : {closed, Repeated(open, depth)}) {
                const Error error = ErrorOfText(text);
                EXPECT_EQ(error.code, ErrorCode::kUnsupported);
                EXPECT_NE(error.message.find("nested deeper than 100"), std::string::npos);
                EXPECT_TRUE(JsonOrDiscarded(text).is_discarded());
            }
        }
    }
    EXPECT_EQ(ErrorOfText("\n [[1]]", {.depth = 1}).message,
              "line 2, column 3: nested deeper than 1");
}

TEST(JsonText, ValuesKeysAndBytesHaveLimits) {
    size_t used = 0;
    EXPECT_TRUE(ParseJsonText(R"([1,{"a":2,"b":[]}])", {.values = 5}, &used).ok());
    EXPECT_EQ(used, 5U);
    const Error values = ErrorOfText(R"([1,{"a":2,"b":[]}])", {.values = 4});
    EXPECT_EQ(values.code, ErrorCode::kUnsupported);
    EXPECT_EQ(values.message, "line 1, column 15: more than 4 values");
    const Error keys = ErrorOfText(R"({"a":1,"b":2,"c":3})", {.keys = 2});
    EXPECT_EQ(keys.code, ErrorCode::kUnsupported);
    EXPECT_NE(keys.message.find("an object with more than 2 members"), std::string::npos);
    EXPECT_TRUE(ParseJsonText(R"([{"a":1,"b":2},{"c":3}])", {.keys = 2}).ok());
    const Error bytes = ErrorOfText("[1, 2]", {.bytes = 5});
    EXPECT_EQ(bytes.code, ErrorCode::kUnsupported);
    EXPECT_EQ(bytes.message, "JSON of 6 bytes; expected at most 5");
    // Repeating one key does not bypass the limit.
    EXPECT_EQ(ErrorOfText("{" + Repeated("\"a\":1,", 20000) + "\"a\":1}").code,
              ErrorCode::kUnsupported);
}

// Errors do not quote the text, which may be a user's prompt.
TEST(JsonText, ErrorsDoNotQuoteTheText) {
    const std::string secret = "xyzzy-secret";
    for (const std::string& text :
         {"{\"a\":\"" + secret + "\n\"}", "{\"a\":\"" + secret, "{\"a\":\"" + secret + "\\q\"}",
          "{\"" + secret + "\x01\":1}", "{\"a\":\"" + secret + "\xff\"}", "[" + secret + "]",
          "{\"a\":\"; last read: '" + secret + "\n\"}", "[\"" + secret + "\" \"b\"]",
          "{\"" + secret + "\" 1}", std::string("[1e999999]"), "[tru" + secret + "]",
          "[[[\"" + secret + "\"]]", "[-" + secret + "]", "\"" + secret + "\\ud800\""}) {
        for (const JsonLimits& limits : {JsonLimits{}, JsonLimits{.values = 1}}) {
            const Error error = ErrorOfText(text, limits);
            EXPECT_EQ(error.message.find("secret"), std::string::npos) << error.message;
            EXPECT_EQ(error.message.find("999"), std::string::npos) << error.message;
            EXPECT_EQ(error.message.substr(0, 5), "line ") << error.message;
        }
    }
    EXPECT_EQ(ErrorOfText("{\"a\":\n\"b\x01\"}").message.substr(0, 19), "line 2, column 3: s");
}

TEST(JsonText, CommentsAreAcceptedOnRequest) {
    EXPECT_FALSE(ParseJsonText("[1 /* one */]").ok());
    EXPECT_EQ(ParseJsonText("// none\n[1 /* one */]", {.comments = true})->dump(), "[1]");
}

TEST(JsonText, EmptyAndOddTexts) {
    for (const char* text : {"", " ", "\xef\xbb\xbf", "nul", "NaN", "Infinity", "[1,]", "{}}"}) {
        EXPECT_EQ(ErrorOfText(text).code, ErrorCode::kCorrupt) << text;
    }
    EXPECT_FALSE(ParseJsonText(std::string_view("[1]\0", 4)).ok());
    EXPECT_FALSE(ParseJsonText(std::string_view()).ok());
    EXPECT_EQ(ParseJsonText("\xef\xbb\xbf[1]")->dump(), "[1]");
}

// Twice the text takes about twice as long. (nlohmann's callbacks take four times as long for lists
// of objects, and its ordered objects for many keys.) The margin is for a busy machine.
TEST(JsonText, TimeIsLinear) {
    const auto objects = [](size_t count) { return "[" + Repeated("{\"a\":[]},", count) + "1]"; };
    const auto keys = [](size_t count) {
        std::string text = "{";
        for (size_t i = 0; i < count; ++i) text += "\"key" + std::to_string(i) + "\":1,";
        return text + "\"z\":1}";
    };
    const JsonLimits limits{.values = SIZE_MAX, .keys = SIZE_MAX};
    for (const auto& [name, make] :
         std::vector<std::pair<std::string, std::function<std::string(size_t)>>>{
             {"objects", objects}, {"keys", keys}}) {
        double least_small = 1e9, least_large = 1e9;
        for (int turn = 0; turn < 3; ++turn) {
            const std::string small = make(10000), large = make(80000);
            least_small = std::min(
                least_small, SecondsOf([&] { EXPECT_TRUE(ParseOrderedJsonText(small, limits)); }));
            least_large = std::min(
                least_large, SecondsOf([&] { EXPECT_TRUE(ParseOrderedJsonText(large, limits)); }));
        }
        EXPECT_LT(least_large, 8 * 4 * least_small) << name;
    }
}

}  // namespace
}  // namespace weft
