#include "engine/sampling/dry.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "support/tiny_vocabulary.h"

namespace weft::engine {
namespace {

constexpr size_t kVocab = 300;

std::vector<float> Penalties(const DryOptions& options, const std::vector<int32_t>& history) {
    std::vector<float> logits(kVocab, 0.0f);
    Dry dry;
    dry.Apply(options, history, logits);
    for (float& logit : logits) logit = -logit;
    return logits;
}

std::vector<int32_t> Bytes(const std::string& text) {
    return {text.begin(), text.end()};
}

DryOptions OptionsOf(float multiplier, float base, int allowed,
                     const std::vector<std::string>& breakers = {}) {
    DryOptions options{.multiplier = multiplier, .base = base, .allowed = allowed};
    const auto words = tokenizer::Tokenizer::Make(tokenizer::TinyBytePair()).value();
    EXPECT_TRUE(SetDryBreakers(*words, breakers, options).ok());
    return options;
}

// "abc" was followed by "d" and by "e"; "bc" by "f".
TEST(Dry, PunishesTheNextTokenOfARepetition) {
    const auto of = Penalties(OptionsOf(0.8f, 1.75f, 2), Bytes("abcd.abce.bcf.abc"));
    EXPECT_FLOAT_EQ(of['d'], 0.8f * 1.75f);
    EXPECT_FLOAT_EQ(of['e'], 0.8f * 1.75f * 1.75f);  // ".abc" is longer
    EXPECT_FLOAT_EQ(of['f'], 0.8f);
    for (const char other : {'a', 'b', 'c', '.'}) EXPECT_EQ(of[static_cast<size_t>(other)], 0);
}

TEST(Dry, IsOffByDefaultAndByEachOfItsOptions) {
    const auto history = Bytes("abcdabcdabc");
    const std::vector<float> none(kVocab, 0.0f);
    EXPECT_EQ(Penalties({}, history), none);
    DryOptions options = OptionsOf(1, 2, 2);
    EXPECT_NE(Penalties(options, history), none);
    options.last = 0;
    EXPECT_EQ(Penalties(options, history), none);
    options = OptionsOf(1, 0.5f, 2);
    EXPECT_EQ(Penalties(options, history), none);
    EXPECT_EQ(Penalties(OptionsOf(1, 2, 8), history), none);
    EXPECT_EQ(Penalties(OptionsOf(1, 2, 2), {}), none);
}

TEST(Dry, ABreakerEndsARepetition) {
    const std::string text = "say: abcd say: abc";
    EXPECT_FLOAT_EQ(Penalties(OptionsOf(1, 2, 2), Bytes(text))['d'], std::pow(2.0f, 6));
    EXPECT_FLOAT_EQ(Penalties(OptionsOf(1, 2, 2, {":"}), Bytes(text))['d'], 4);
    // A breaker is never punished, even if it continues a repetition.
    EXPECT_EQ(Penalties(OptionsOf(1, 2, 2, {"d"}), Bytes(text))['d'], 0);
    // A breaker of several tokens: "y: " is three.
    EXPECT_FLOAT_EQ(Penalties(OptionsOf(1, 2, 2, {"y: "}), Bytes(text))['d'], 2);
    EXPECT_FLOAT_EQ(Penalties(OptionsOf(1, 2, 2, {"yes"}), Bytes(text))['d'], std::pow(2.0f, 6));
    // Right behind a breaker, nothing is repeated.
    EXPECT_EQ(Penalties(OptionsOf(1, 2, 1, {":"}), Bytes("a: a:"))[' '], 0);
}

TEST(Dry, BreakersAreFoundWithinTokens) {
    const auto words =
        tokenizer::Tokenizer::Make(tokenizer::TinyBytePair({"h e", "l l", "he ll"})).value();
    const int32_t hell = words->Encode("hell", {}).at(0);
    DryOptions options;
    ASSERT_TRUE(SetDryBreakers(*words, std::vector<std::string>{"ll"}, options).ok());
    const auto is = [&](int32_t id) {
        return (options.breakers[static_cast<size_t>(id) / 32] >> (id % 32) & 1u) != 0;
    };
    EXPECT_TRUE(is(hell));
    EXPECT_FALSE(is('l'));
    // A token that ends with "l", then another "l".
    ASSERT_EQ(options.long_breakers, (std::vector<DryOptions::LongBreaker>{{'l', 0}}));
    EXPECT_EQ(options.rests, (std::vector<std::vector<int32_t>>{{'l'}}));
    ASSERT_TRUE(SetDryBreakers(*words, std::vector<std::string>{"lo"}, options).ok());
    EXPECT_EQ(options.long_breakers.size(), 3u);  // after "l", "ll", "hell"
    EXPECT_FALSE(is(hell));
}

// Many tokens of a vocabulary end with the same letter, and each counts for each breaker.
TEST(Dry, ARequestCannotKeepBreakersWithoutEnd) {
    std::vector<std::string> merges;
    for (char c = '!'; c < 'a'; ++c) merges.push_back(std::string(1, c) + " a");
    const size_t pairs = merges.size();
    for (size_t i = 0; i < 20 * pairs; ++i) {
        merges.push_back(std::string(1, static_cast<char>('b' + i / pairs)) + " " +
                         std::string(1, merges[i % pairs][0]) + "a");
    }
    const auto words = tokenizer::Tokenizer::Make(tokenizer::TinyBytePair(merges)).value();
    std::vector<std::string> breakers;
    for (int i = 0; i < 64; ++i) breakers.push_back("a" + std::to_string(i));
    DryOptions options;
    const Status all = SetDryBreakers(*words, breakers, options);
    ASSERT_FALSE(all.ok());
    EXPECT_EQ(all.error().code, ErrorCode::kUsage);
    breakers.resize(8);
    EXPECT_TRUE(SetDryBreakers(*words, breakers, options).ok());
    EXPECT_EQ(options.rests.size(), 8u) << "shared by all tokens";
}

TEST(Dry, LongRepetitionsStayFinite) {
    const auto of = Penalties(OptionsOf(5, 50, 2), std::vector<int32_t>(4000, 7));
    EXPECT_TRUE(std::isfinite(of[7]));
    EXPECT_GT(of[7], 1e20f);
    std::vector<float> logits(kVocab, -INFINITY);
    Dry dry;
    dry.Apply(OptionsOf(1, 2, 2), Bytes("abcabcabc"), logits);
    EXPECT_EQ(logits['a'], -INFINITY);
}

// By definition: the longest end of the text, at most back to the last breaker, that occurs before
// an earlier `token`.
double Exact(const DryOptions& o, std::vector<int32_t> text, int32_t token, int32_t breaker) {
    const auto last = static_cast<size_t>(o.last);
    if (text.size() > last) text.erase(text.begin(), text.end() - static_cast<ptrdiff_t>(last));
    size_t most = 0;
    while (most < text.size() && text[text.size() - 1 - most] != breaker) ++most;
    size_t longest = 0;
    bool found = false;
    for (size_t at = 1; at < text.size(); ++at) {
        if (text[at] != token) continue;
        size_t length = 0;
        while (length < std::min(most, at) &&
               text[at - 1 - length] == text[text.size() - 1 - length]) {
            ++length;
        }
        found = true;
        longest = std::max(longest, length);
    }
    const auto allowed = static_cast<size_t>(o.allowed);
    if (!found || longest < allowed || most < allowed || token == breaker) return 0;
    if (text.size() <= allowed) return 0;
    return double{o.multiplier} * std::pow(double{o.base}, static_cast<double>(longest - allowed));
}

TEST(Dry, EqualsItsDefinition) {
    std::mt19937 random(11);
    for (int round = 0; round < 400; ++round) {
        const auto letters = 2 + random() % 3;
        std::vector<int32_t> text(random() % 40);
        for (int32_t& token : text) token = static_cast<int32_t>('a' + random() % letters);
        DryOptions options = OptionsOf(0.7f, 1.2f, static_cast<int>(1 + random() % 4), {"b"});
        if (random() % 2) options.last = 5 + random() % 30;
        const auto of = Penalties(options, text);
        for (int32_t token = 'a'; token < static_cast<int32_t>('a' + letters); ++token) {
            const double exact = Exact(options, text, token, 'b');
            EXPECT_NEAR(of[static_cast<size_t>(token)], exact, 1e-6 * exact)
                << "round " << round << ", token " << token;
        }
    }
}

}  // namespace
}  // namespace weft::engine
