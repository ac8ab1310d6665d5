// Drafters and what they weigh: matches in the text, costs of steps, how many tokens pay.
#include <gtest/gtest.h>

#include <random>

#include "engine/draft_model.h"
#include "engine/drafter.h"
#include "engine/lookup.h"
#include "support/tiny_vocabulary.h"

namespace weft::engine {
namespace {

using Tokens = std::vector<int32_t>;

StepCosts CostsOf(double row_share) {
    StepCosts costs;
    for (int64_t rows : {1, 2, 4, 8, 16}) {
        costs.Learn(rows, 1e-3 * (1 + row_share * static_cast<double>(rows - 1)));
    }
    return costs;
}

// What a look-up proposes after `text`.
Tokens After(const Tokens& text, int64_t most, bool always = true) {
    Lookup lookup(always);
    EXPECT_TRUE(lookup.Begin(text, {}).ok());
    Draft draft;
    EXPECT_TRUE(lookup.Propose(text, most, CostsOf(0), draft).ok());
    EXPECT_TRUE(draft.chances.empty());
    return draft.tokens;
}

TEST(Lookup, FollowsTheLongestMatchAndTheLatestOfThem) {
    EXPECT_EQ(After({1, 2, 3, 4, 5, 1, 2}, 3), (Tokens{3, 4, 5}));
    // 9 1 2 is longer than 1 2.
    EXPECT_EQ(After({9, 1, 2, 7, 7, 1, 2, 8, 8, 9, 1, 2}, 2), (Tokens{7, 7}));
    EXPECT_EQ(After({1, 2, 7, 1, 2, 8, 5, 1, 2}, 1), (Tokens{8}));
    EXPECT_EQ(After({1, 2, 3, 1}, 4), (Tokens{}));  // one token says nothing
    EXPECT_EQ(After({1, 2, 3, 4}, 4), (Tokens{}));
    EXPECT_EQ(After({5}, 4), (Tokens{}));
}

TEST(Lookup, GoesOnIntoItsOwnDraft) {
    EXPECT_EQ(After({1, 2, 3, 1, 2, 3, 1, 2}, 7), (Tokens{3, 1, 2, 3, 1, 2, 3}));
    EXPECT_EQ(After({4, 4, 4}, 5), (Tokens{4, 4, 4, 4, 4}));
}

// Whatever the text, only tokens of it come out, and no more than asked for; a text that comes in
// pieces is the same as one that comes at once but for what was being followed.
TEST(Lookup, RandomTexts) {
    std::mt19937 random(2);
    for (int round = 0; round < 300; ++round) {
        const auto letters = static_cast<int32_t>(1 + random() % 12);
        Tokens text;
        Lookup lookup(round % 2 == 0);
        ASSERT_TRUE(lookup.Begin(text, {}).ok());
        Draft draft;
        for (int step = 0; step < 40; ++step) {
            for (uint32_t i = 0; i < 1 + random() % 5; ++i) {
                text.push_back(static_cast<int32_t>(random()) & 0x7fffffff);
                text.back() %= letters;
            }
            const auto most = static_cast<int64_t>(1 + random() % 20);
            ASSERT_TRUE(lookup.Propose(text, most, CostsOf(0.1), draft).ok());
            EXPECT_LE(static_cast<int64_t>(draft.tokens.size()), most);
            for (int32_t token : draft.tokens) EXPECT_TRUE(token >= 0 && token < letters);
        }
    }
}

// The answer is random: matches of two tokens are there all the time, and come true one time in 12.
TEST(Lookup, StopsWhereGuessesAreWrong) {
    std::mt19937 random(3);
    Tokens text;
    Lookup lookup;
    ASSERT_TRUE(lookup.Begin(text, {}).ok());
    Draft draft;
    int64_t drafted = 0;
    for (int i = 0; i < 2000; ++i) {
        text.push_back(static_cast<int32_t>(random() % 12));
        ASSERT_TRUE(lookup.Propose(text, 16, CostsOf(0.3), draft).ok());
        drafted += i > 200 ? static_cast<int64_t>(draft.tokens.size()) : 0;
    }
    EXPECT_LE(drafted, 90);  // of 1800 steps
}

TEST(Lookup, GoesFarWhereTheyAreRight) {
    std::mt19937 random(4);
    Tokens text;
    for (int i = 0; i < 500; ++i) text.push_back(static_cast<int32_t>(random() % 1000));
    const Tokens prompt = text;
    Lookup lookup;
    ASSERT_TRUE(lookup.Begin(prompt, {}).ok());
    Draft draft;
    text.insert(text.end(), prompt.begin(), prompt.begin() + 2);
    int steps = 0;
    while (text.size() < 1000) {
        ASSERT_TRUE(lookup.Propose(text, 16, CostsOf(0.1), draft).ok());
        for (int32_t token : draft.tokens) {
            if (text.size() == 1000) break;
            EXPECT_EQ(token, prompt[text.size() - 500]);
            text.push_back(token);
        }
        if (text.size() < 1000) text.push_back(prompt[text.size() - 500]);
        ++steps;
    }
    EXPECT_LE(steps, 45);  // 500 tokens, 17 a step at best
}

TEST(StepCosts, AreLearnedAndGuessedBetween) {
    StepCosts costs;
    EXPECT_EQ(costs.Of(1), 0);
    costs.Learn(1, 1.0);
    EXPECT_EQ(costs.Of(1), 1.0);
    EXPECT_GT(costs.Of(9), costs.Of(5));
    EXPECT_LE(costs.Of(9), 2.0);  // optimistic, or nothing would be tried
    costs.Learn(5, 3.0);
    EXPECT_DOUBLE_EQ(costs.Of(3), 2.0);
    EXPECT_DOUBLE_EQ(costs.Of(9), 5.0);
    // A moment of something else counts little.
    costs.Learn(1, 1000.0);
    EXPECT_LE(costs.Of(1), 1.3);
    for (int i = 0; i < 30; ++i) costs.Learn(1, 1.0);
    EXPECT_LE(costs.Of(1), 1.01);
}

TEST(DraftLength, FollowsAcceptanceAndCost) {
    const StepCosts costs = CostsOf(0.1);
    DraftLength length(0.1);
    length.Begin(false);
    for (int i = 0; i < 30; ++i) length.Learn(4, 4);
    EXPECT_EQ(length.Choose(8, costs), 8);
    for (int i = 0; i < 60; ++i) length.Learn(1, i % 2);
    const int64_t half = length.Choose(8, costs);
    EXPECT_TRUE(half >= 1 && half <= 3) << half;
    // Never right: a trial of two tokens now and then, ever more seldom.
    int64_t drafted = 0;
    for (int i = 0; i < 40; ++i) length.Learn(1, 0);
    for (int i = 0; i < 1000; ++i) {
        const int64_t tokens = length.Choose(8, costs);
        if (tokens > 0) length.Learn(1, 0);
        drafted += tokens;
    }
    EXPECT_LE(drafted, 30);
    EXPECT_GT(drafted, 0);
}

// A draft as dear as the model is of no use, however good it is.
TEST(DraftLength, ADearDraftIsLeft) {
    DraftLength length(1.0);
    length.Begin(false);
    for (int i = 0; i < 30; ++i) length.Learn(4, 4);
    EXPECT_EQ(length.Choose(8, CostsOf(0.1)), 0);
    // Measured: the draft is cheap after all.
    length.Begin(true);
    length.LearnDraftToken(1e-5);
    EXPECT_EQ(length.Choose(8, CostsOf(0.01)), 8);
}

TEST(DraftOptions, WhatContradictsIsRefused) {
    EXPECT_TRUE(CheckDraft({}).ok());
    EXPECT_TRUE(CheckDraft({.lookup = true, .tokens = 3}).ok());
    const auto refused = [](const DraftOptions& options, std::string_view words) {
        const Status status = CheckDraft(options);
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().code, ErrorCode::kUsage);
        EXPECT_NE(status.error().message.find(words), std::string::npos) << status.error().message;
    };
    refused({.model = "x", .lookup = true}, "exclude each other");
    refused({.tokens = 3}, "--draft-tokens needs");
    refused({.always = true}, "--draft-always needs");
    refused({.lookup = true, .tokens = 1000}, "expected 1 to 256");
}

TEST(Vocabularies, MustBeTheSame) {
    const auto make = [](const std::vector<std::string>& merges) {
        return tokenizer::Tokenizer::Make(tokenizer::TinyBytePair(merges)).value();
    };
    const auto one = make({"h e", "l l"}), same = make({"h e", "l l"});
    EXPECT_TRUE(CompareVocabularies("big", *one, "small", *same).ok());
    const auto refused = [&](const tokenizer::Tokenizer& other, std::string_view words) {
        const Status status = CompareVocabularies("big", *one, "small", other);
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().code, ErrorCode::kUsage);
        EXPECT_NE(status.error().message.find(words), std::string::npos) << status.error().message;
    };
    refused(*make({"h e"}), "has 260 tokens, that of big has 261");
    refused(*make({"h e", "l o"}), "its token 257 is \"lo\", that of big is \"ll\"");
}

}  // namespace
}  // namespace weft::engine
