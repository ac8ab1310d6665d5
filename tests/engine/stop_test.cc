#include "engine/stop.h"

#include <gtest/gtest.h>

#include <random>

namespace weft::engine {
namespace {

TEST(Stop, HoldsBackAndCuts) {
    StopMatcher stop({"<end>", "\n\n"});
    EXPECT_EQ(stop.Push("ab<e"), "ab");
    EXPECT_EQ(stop.Push("x"), "<ex");
    EXPECT_EQ(stop.Push("\n"), "");
    EXPECT_EQ(stop.Push("<en"), "\n");
    EXPECT_FALSE(stop.stopped());
    EXPECT_EQ(stop.Push("d>more"), "");
    EXPECT_TRUE(stop.stopped());
    EXPECT_EQ(stop.Push("more"), "");
    EXPECT_EQ(stop.Flush(), "");
}

TEST(Stop, TheEndGivesWhatWasHeld) {
    StopMatcher stop({"<end>"});
    EXPECT_EQ(stop.Push("a<end"), "a");
    EXPECT_EQ(stop.Flush(), "<end");
    EXPECT_EQ(stop.Flush(), "");
}

TEST(Stop, NothingToStopAt) {
    for (const std::vector<std::string>& stops : {std::vector<std::string>{}, {""}, {"", ""}}) {
        StopMatcher stop(stops);
        EXPECT_EQ(stop.Push(""), "");
        EXPECT_EQ(stop.Push("abc"), "abc");
        EXPECT_EQ(stop.Flush(), "");
        EXPECT_FALSE(stop.stopped());
    }
}

TEST(Stop, FirstCompleteThenLongest) {
    StopMatcher first({"abcd", "bc"});
    EXPECT_EQ(first.Push("xabcd"), "xa");
    StopMatcher longest({"bc", "abc"});
    EXPECT_EQ(longest.Push("xabcd"), "x");
    StopMatcher overlaps({"aab"});
    EXPECT_EQ(overlaps.Push("aaab"), "a");
}

// Expected output for `text` by the contract: checks every possible end in order.
std::string Expected(const std::vector<std::string>& stops, const std::string& text) {
    for (size_t end = 1; end <= text.size(); ++end) {
        size_t longest = 0;
        for (const std::string& stop : stops) {
            if (stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0) {
                longest = std::max(longest, stop.size());
            }
        }
        if (longest > 0) return text.substr(0, end - longest);
    }
    return text;
}

TEST(Stop, AnyPiecesGiveTheSame) {
    std::mt19937 random(11);
    const auto word = [&](size_t least, size_t most) {
        std::string made;
        for (size_t n = least + random() % (most - least + 1); n > 0; --n) {
            made += static_cast<char>('a' + random() % 2);
        }
        return made;
    };
    for (int round = 0; round < 20000; ++round) {
        std::vector<std::string> stops;
        for (size_t n = random() % 4; n > 0; --n) stops.push_back(word(1, 6));
        const std::string text = word(0, 24);
        const std::string expected = Expected(stops, text);
        StopMatcher stop(stops);
        std::string shown;
        for (size_t at = 0; at < text.size();) {
            const size_t count = 1 + random() % 5;
            shown += stop.Push(std::string_view(text).substr(at, count));
            at += count;
            ASSERT_TRUE(expected.starts_with(shown)) << text;
        }
        shown += stop.Flush();
        ASSERT_EQ(shown, expected) << text;
        ASSERT_EQ(stop.stopped(), expected.size() < text.size());
    }
}

TEST(Stop, TheTextMayIncludeIt) {
    StopMatcher stop({"<end>", "x"}, true);
    EXPECT_EQ(stop.Push("ab<e"), "ab");
    EXPECT_EQ(stop.Push("nd>more"), "<end>");
    EXPECT_EQ(stop.found(), "<end>");
    EXPECT_EQ(stop.Push("more"), "");
}

// A stop string that ends in text where none may end does not count; one that begins there does.
TEST(Stop, NoneEndsTooEarly) {
    StopMatcher stop({"ab", "abcd", "bc"});
    EXPECT_EQ(stop.Push("ab", false), "");
    EXPECT_EQ(stop.Push("c", false), "");
    EXPECT_EQ(stop.Push("x", true), "abcx");
    EXPECT_EQ(stop.Push("xab", false), "x");
    EXPECT_EQ(stop.Push("cd", true), "a");
    EXPECT_EQ(stop.found(), "bc");
}

}  // namespace
}  // namespace weft::engine
