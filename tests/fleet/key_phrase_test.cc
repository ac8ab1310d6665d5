#include "fleet/key_phrase.h"

#include <gtest/gtest.h>

#include <set>

namespace weft::fleet {
namespace {

TEST(KeyPhrase, RoundTrip) {
    std::set<std::string> all;
    for (int i = 0; i < 200; ++i) {
        const std::string words = NewKeyPhrase();
        EXPECT_EQ(words.size(), kKeyWords * 5 + kKeyWords - 1) << words;
        EXPECT_EQ(ParseKeyPhrase({words}).value(), words);
        EXPECT_TRUE(IsKeyPhrase(words));
        EXPECT_TRUE(all.insert(words).second) << words;
    }
}

TEST(KeyPhrase, CaseSpacesAndHyphensDoNotMatter) {
    const std::string words = NewKeyPhrase();
    std::string loud = words, spaced = words;
    for (char& letter : loud) {
        if (letter != '-') letter = static_cast<char>(letter - 'a' + 'A');
    }
    for (char& letter : spaced) {
        if (letter == '-') letter = ' ';
    }
    EXPECT_EQ(ParseKeyPhrase({loud}).value(), words);
    EXPECT_EQ(ParseKeyPhrase({" " + spaced + "\n"}).value(), words);
    EXPECT_EQ(ParseKeyPhrase({words.substr(0, 11), words.substr(12)}).value(), words);
    EXPECT_FALSE(IsKeyPhrase(loud));  // a file has exactly one form
}

// 8 of 96 bits are a checksum: one mistyped letter passes in one of 256 cases. The wrong key is
// then refused by the other hosts, and the user types the words again.
TEST(KeyPhrase, MistypedWordsAreNoticed) {
    int noticed = 0, tried = 0;
    for (int round = 0; round < 20; ++round) {
        const std::string words = NewKeyPhrase();
        for (size_t at = 0; at < words.size(); ++at) {
            if (words[at] == '-') continue;
            std::string wrong = words;
            const bool vowel = std::string("aiou").find(words[at]) != std::string::npos;
            wrong[at] = vowel ? (words[at] == 'a' ? 'o' : 'a') : (words[at] == 'b' ? 'd' : 'b');
            ++tried;
            const auto parsed = ParseKeyPhrase({wrong});
            if (parsed.ok()) continue;
            ++noticed;
            EXPECT_EQ(parsed.error().code, ErrorCode::kUsage);
        }
    }
    EXPECT_EQ(tried, 20 * 30);
    EXPECT_GT(noticed, tried * 97 / 100);
}

TEST(KeyPhrase, InvalidPhrasesNameTheReason) {
    const auto why = [](const std::vector<std::string>& typed) {
        const auto parsed = ParseKeyPhrase(typed);
        return parsed.ok() ? "" : parsed.error().message;
    };
    EXPECT_NE(why({"bizol"}).find("6 words; found 1"), std::string::npos);
    EXPECT_NE(why({}).find("found 0"), std::string::npos);
    EXPECT_NE(why({"bizol-hello"}).find("'hello' is not a word"), std::string::npos);
    EXPECT_NE(why({"bizolu"}).find("'bizolu'"), std::string::npos);
    EXPECT_NE(why({NewKeyPhrase(), "bizol"}).find("found 7"), std::string::npos);
    EXPECT_NE(why({std::string(100'000, 'x')}).find("is not a word"), std::string::npos);
}

}  // namespace
}  // namespace weft::fleet
