// Drafts and their costs: matches in the text, step costs, the number of drafted tokens that pays
// off, and the content of a draft model's KV cache.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "engine/batch/step_drafts.h"
#include "engine/drafts/draft_model.h"
#include "engine/drafts/drafting.h"
#include "engine/drafts/prompt_lookup.h"
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

// Tokens that prompt lookup drafts after `text`.
Tokens After(const Tokens& text, int64_t most) {
    PromptLookup lookup(text);
    Tokens tokens;
    std::vector<double> chances;
    lookup.Guess(text, most, tokens, chances);
    EXPECT_EQ(tokens.size(), chances.size());
    return tokens;
}

TEST(PromptLookup, FollowsTheLongestMatchAndTheLatestOfThem) {
    EXPECT_EQ(After({1, 2, 3, 4, 5, 1, 2}, 3), (Tokens{3, 4, 5}));
    // 9 1 2 is longer than 1 2.
    EXPECT_EQ(After({9, 1, 2, 7, 7, 1, 2, 8, 8, 9, 1, 2}, 2), (Tokens{7, 7}));
    EXPECT_EQ(After({1, 2, 7, 1, 2, 8, 5, 1, 2}, 1), (Tokens{8}));
    EXPECT_EQ(After({1, 2, 3, 1}, 4), (Tokens{}));  // one token is not enough for a match
    EXPECT_EQ(After({1, 2, 3, 4}, 4), (Tokens{}));
    EXPECT_EQ(After({5}, 4), (Tokens{}));
}

TEST(PromptLookup, GoesOnIntoItsOwnDraft) {
    EXPECT_EQ(After({1, 2, 3, 1, 2, 3, 1, 2}, 7), (Tokens{3, 1, 2, 3, 1, 2, 3}));
    EXPECT_EQ(After({4, 4, 4}, 5), (Tokens{4, 4, 4, 4, 4}));
}

// For any text, drafts contain only its tokens, at most as many as requested. A text added in
// pieces gives the same drafts as one added at once, except for a match being followed.
TEST(PromptLookup, RandomTexts) {
    std::mt19937 random(2);
    for (int round = 0; round < 300; ++round) {
        const auto letters = static_cast<int32_t>(1 + random() % 12);
        Tokens text, tokens;
        std::vector<double> chances;
        PromptLookup lookup(text);
        for (int step = 0; step < 40; ++step) {
            for (uint32_t i = 0; i < 1 + random() % 5; ++i) {
                text.push_back(static_cast<int32_t>(random()) & 0x7fffffff);
                text.back() %= letters;
            }
            const auto most = static_cast<int64_t>(1 + random() % 20);
            lookup.Guess(text, most, tokens, chances);
            EXPECT_LE(static_cast<int64_t>(tokens.size()), most);
            ASSERT_EQ(tokens.size(), chances.size());
            EXPECT_TRUE(std::ranges::is_sorted(chances, std::greater()));
            for (int32_t token : tokens) EXPECT_TRUE(token >= 0 && token < letters);
        }
    }
}

// Drafts for one text that has each step to itself; every further row costs row_share of the first.
class AloneInSteps {
  public:
    AloneInSteps(const Tokens& prompt, double row_share) : drafts_({.lookup = true}) {
        answer_.lookup.emplace(prompt);
        for (int64_t rows : {1, 2, 4, 8, 16}) {
            drafts_.LearnStep(rows, 1e-3 * (1 + row_share * static_cast<double>(rows - 1)));
        }
    }
    const Tokens& Guess(const Tokens& text) {
        StepDrafts::Guesser guesser{.answer = &answer_, .left = 16};
        guesser.text.tokens = text;
        guesser.text.draft = &draft_;
        EXPECT_TRUE(drafts_.Choose({&guesser, 1}).ok());
        return draft_;
    }

  private:
    StepDrafts drafts_;
    AnswerDrafts answer_;
    Tokens draft_;
};

// A random answer always has matches of two tokens; one in 12 is right.
TEST(PromptLookup, StopsWhereGuessesAreWrong) {
    std::mt19937 random(3);
    Tokens text;
    AloneInSteps steps(text, 0.3);
    int64_t drafted = 0;
    for (int i = 0; i < 2000; ++i) {
        text.push_back(static_cast<int32_t>(random() % 12));
        const auto guesses = static_cast<int64_t>(steps.Guess(text).size());
        drafted += i > 200 ? guesses : 0;
    }
    EXPECT_LE(drafted, 90);  // of 1800 steps
}

TEST(PromptLookup, GoesFarWhereTheyAreRight) {
    std::mt19937 random(4);
    Tokens text;
    for (int i = 0; i < 500; ++i) text.push_back(static_cast<int32_t>(random() % 1000));
    const Tokens prompt = text;
    AloneInSteps alone(prompt, 0.1);
    text.insert(text.end(), prompt.begin(), prompt.begin() + 2);
    int steps = 0;
    while (text.size() < 1000) {
        for (int32_t token : Tokens(alone.Guess(text))) {
            if (text.size() == 1000) break;
            EXPECT_EQ(token, prompt[text.size() - 500]);
            text.push_back(token);
        }
        if (text.size() < 1000) text.push_back(prompt[text.size() - 500]);
        ++steps;
    }
    EXPECT_LE(steps, 45);  // 500 tokens, at most 17 per step
}

TEST(StepCosts, AreLearnedAndGuessedBetween) {
    StepCosts costs;
    EXPECT_EQ(costs.Of(1), 0);
    costs.Learn(1, 1.0);
    EXPECT_EQ(costs.Of(1), 1.0);
    EXPECT_GT(costs.Of(9), costs.Of(5));
    EXPECT_LE(costs.Of(9), 2.0);  // optimistic, so that drafts are tried
    costs.Learn(5, 3.0);
    EXPECT_DOUBLE_EQ(costs.Of(3), 2.0);
    EXPECT_DOUBLE_EQ(costs.Of(9), 5.0);
    // A single outlier counts little.
    costs.Learn(1, 1000.0);
    EXPECT_LE(costs.Of(1), 1.3);
    for (int i = 0; i < 30; ++i) costs.Learn(1, 1.0);
    EXPECT_LE(costs.Of(1), 1.01);
}

class Priced final : public Drafter {
  public:
    explicit Priced(double ratio, bool at_once = false) : ratio_(ratio), at_once_(at_once) {}
    Status Serve(Rank&) override { return {}; }
    double ratio() const override { return ratio_; }
    const StepCosts& costs() const override { return costs_; }
    bool at_once() const override { return at_once_; }
    Status Guess(std::span<const DraftText>) override { return {}; }

  private:
    double ratio_;
    bool at_once_;
    StepCosts costs_;
};

TEST(DraftLength, FollowsAcceptanceAndCost) {
    const StepCosts costs = CostsOf(0.1);
    const StepCosts none;
    DraftLength length(Priced(0.1), false);
    for (int i = 0; i < 30; ++i) length.Learn(4, 4);
    EXPECT_EQ(length.Choose(8, 1, costs, none), 8);
    for (int i = 0; i < 60; ++i) length.Learn(1, i % 2);
    const int64_t half = length.Choose(8, 1, costs, none);
    EXPECT_TRUE(half >= 1 && half <= 3) << half;
    // Never right: two tokens are tried now and then, ever more rarely.
    int64_t drafted = 0;
    for (int i = 0; i < 40; ++i) length.Learn(1, 0);
    for (int i = 0; i < 1000; ++i) {
        const int64_t tokens = length.Choose(8, 1, costs, none);
        if (tokens > 0) length.Learn(1, 0);
        drafted += tokens;
    }
    EXPECT_LE(drafted, 30);
    EXPECT_GT(drafted, 0);
}

// A draft as expensive as the model is not used, however good it is.
TEST(DraftLength, ADearDraftIsLeft) {
    DraftLength dear(Priced(1.0), false);
    for (int i = 0; i < 30; ++i) dear.Learn(4, 4);
    EXPECT_EQ(dear.Choose(8, 1, CostsOf(0.1), {}), 0);
    // Measurement shows that the draft is cheap after all.
    DraftLength measured(Priced(1.0), true);
    for (int i = 0; i < 30; ++i) measured.Learn(4, 4);
    StepCosts cheap;
    cheap.Learn(1, 1e-5);
    EXPECT_EQ(measured.Choose(8, 1, CostsOf(0.01), cheap), 8);
}

// All tokens of a block have the cost of one run.
TEST(DraftLength, ADearBlockPaysWithManyTokens) {
    DraftLength block(Priced(1.0, true), false);
    for (int i = 0; i < 30; ++i) block.Learn(8, 8);
    EXPECT_EQ(block.Choose(8, 1, CostsOf(0.1), {}), 8);
    StepCosts cheap, dear;
    cheap.Learn(1, 1e-5);
    dear.Learn(1, 8);
    DraftLength measured(Priced(1.0, true), true);
    for (int i = 0; i < 30; ++i) measured.Learn(8, 8);
    EXPECT_EQ(measured.Choose(8, 1, CostsOf(0.01), cheap), 8);
    EXPECT_EQ(measured.Choose(8, 1, CostsOf(0.01), dear), 0);
}

// If a step of many sequences costs the sum of its rows, a drafted token costs as much as a token.
TEST(DraftLength, ManyAtOnceAreLeft) {
    StepCosts costs, draft_costs;
    for (int64_t rows : {1, 2, 4, 8, 16, 32, 64, 128, 256}) {
        costs.Learn(rows, 1e-3 * (8 + static_cast<double>(rows)));
        draft_costs.Learn(rows, 1e-4 * (8 + static_cast<double>(rows)));
    }
    DraftLength alone(Priced(0.1), true), one_of_many(Priced(0.1), true);
    for (int i = 0; i < 30; ++i) alone.Learn(4, 3), one_of_many.Learn(4, 3);
    EXPECT_GE(alone.Choose(8, 1, costs, draft_costs), 2);
    EXPECT_EQ(one_of_many.Choose(8, 64, costs, draft_costs), 0);
}

// Pages of four tokens.
TEST(DraftPages, RecordTheOwnersOfRows) {
    DraftPages pages(8, 4);
    const Tokens text = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    const Tokens mine = {6, 2, 5};
    EXPECT_EQ(pages.Known(0, text, mine), 0);
    pages.Note(0, text, mine, 0, 7);
    EXPECT_EQ(pages.Known(0, text, mine), 7);
    pages.Note(0, text, mine, 7, 10);
    EXPECT_EQ(pages.Known(0, text, mine), 10);
    EXPECT_EQ(pages.Known(0, std::span(text).first(5), mine), 5);
    // Another space, another text, or other pages.
    EXPECT_EQ(pages.Known(1, text, mine), 0);
    Tokens other = text;
    other[5] = 0;
    EXPECT_EQ(pages.Known(0, other, mine), 5);
    other[0] = 0;
    EXPECT_EQ(pages.Known(0, other, mine), 0);
    EXPECT_EQ(pages.Known(0, text, Tokens{6, 5, 2}), 4);
    // A page with the same tokens after others holds other rows.
    const Tokens moved = {5, 6, 7, 8, 5, 6, 7, 8};
    pages.Note(0, moved, Tokens{1, 3}, 0, 8);
    EXPECT_EQ(pages.Known(0, moved, Tokens{1, 3}), 8);
    EXPECT_EQ(pages.Known(0, moved, Tokens{1, 2}), 4);
    EXPECT_EQ(pages.Known(0, moved, Tokens{2, 3}), 0);
    // Rejected rows are overwritten; another sequence takes a page in the middle.
    pages.Note(0, other, Tokens{0, 2}, 0, 6);
    EXPECT_EQ(pages.Known(0, text, mine), 4);
    Tokens longer = text;
    longer.insert(longer.end(), {11, 12, 13});
    pages.Note(0, text, mine, 4, 10);
    longer[9] = 20;
    EXPECT_EQ(pages.Known(0, longer, mine), 9);
    pages.Note(0, longer, mine, 9, 11);
    EXPECT_EQ(pages.Known(0, longer, mine), 11);
    EXPECT_EQ(pages.Known(0, text, mine), 9);
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
