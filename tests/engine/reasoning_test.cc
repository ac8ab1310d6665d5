// Reasoning at the beginning of an answer: where it begins and ends, and the tokens that end it.
#include "engine/sampling/reasoning.h"

#include <gtest/gtest.h>

namespace weft::engine {
namespace {

constexpr int32_t kOpen = 7;

Reasoning AskedReasoning() {
    return {.begin = "<think>", .end = "</think>", .opening = kOpen, .closing = {21, 22, 23}};
}

// Takes each text as one token; closing tokens have the texts "\n", "</think>", "\n\n".
void Take(ReasoningTrack& track, std::initializer_list<const char*> texts) {
    for (const char* text : texts) track.Take(1, text, false);
}

TEST(Reasoning, OfThePrompt) {
    Reasoning asked = AskedReasoning();
    asked.begun = true;
    ReasoningTrack track(asked);
    EXPECT_TRUE(track.inside());
    Take(track, {"Hm", " </thi", "s>", "</", "think"});
    EXPECT_TRUE(track.inside());
    Take(track, {">\n"});
    EXPECT_FALSE(track.inside());
    Take(track, {"<think>"});
    EXPECT_FALSE(track.inside());
}

TEST(Reasoning, OfTheModel) {
    ReasoningTrack track(AskedReasoning());
    EXPECT_FALSE(track.inside());
    EXPECT_EQ(track.opening(), kOpen);
    track.Take(kOpen, "<think>", false);
    EXPECT_TRUE(track.inside());
    EXPECT_EQ(track.opening(), -1);
    Take(track, {"Hm</think>"});
    EXPECT_FALSE(track.inside());
    // Without a constraint, the text shows it.
    ReasoningTrack free(AskedReasoning());
    Take(free, {"\n", "<", "think", ">"});
    EXPECT_TRUE(free.inside());
    // If a constraint checked the first token, or the answer begins otherwise, no reasoning
    // follows.
    ReasoningTrack constrained(AskedReasoning());
    constrained.Take(3, "{", true);
    EXPECT_EQ(constrained.opening(), -1);
    for (const char* text : {"{", "<b>", " x <think>"}) {
        ReasoningTrack other(AskedReasoning());
        Take(other, {text, "<think>"});
        EXPECT_FALSE(other.inside()) << text;
    }
    EXPECT_FALSE(ReasoningTrack({}).inside());
}

// If the end marker is one token, other tokens that spell it belong to the reasoning.
TEST(Reasoning, EndsWithItsToken) {
    Reasoning asked = AskedReasoning();
    asked.begun = true;
    asked.end_token = 22;
    ReasoningTrack track(asked);
    Take(track, {"Hm, </think> ends ", "</", "think>", "it"});
    EXPECT_TRUE(track.inside());
    track.Take(22, "</think>", false);
    EXPECT_FALSE(track.inside());
}

TEST(Reasoning, EndsAtTheRestOfAHead) {
    ReasoningTrack track({.end = "<|channel|>final", .end_rest = "<|message|>", .begun = true});
    Take(track, {"<|channel|>", "analysis", "<|message|>", "Hm", "<|channel|>", "final", " json"});
    EXPECT_TRUE(track.inside());
    Take(track, {"<|message|>"});
    EXPECT_FALSE(track.inside());
}

TEST(Reasoning, ABudgetEndsIt) {
    for (const int64_t budget : {0, 1, 5}) {
        Reasoning asked = AskedReasoning();
        asked.begun = true;
        asked.budget = budget;
        ReasoningTrack track(asked);
        for (int64_t i = 0; i < budget; ++i) {
            EXPECT_EQ(track.Forced(), -1);
            Take(track, {"a"});
        }
        const char* const texts[] = {"\n", "</think>", "\n\n"};
        for (size_t i = 0; i < 3; ++i) {
            ASSERT_EQ(track.Forced(), asked.closing[i]) << budget;
            EXPECT_TRUE(track.inside());
            track.Take(asked.closing[i], texts[i], false);
        }
        EXPECT_EQ(track.Forced(), -1);
        EXPECT_FALSE(track.inside());
        Take(track, {"a", "b"});
        EXPECT_EQ(track.Forced(), -1);
    }
    // Tokens of the opening marker do not count, and a reasoning below the budget is not changed.
    Reasoning asked = AskedReasoning();
    asked.budget = 2;
    ReasoningTrack track(asked);
    track.Take(kOpen, "<think>", false);
    Take(track, {"a", "</think>", "b", "c", "d"});
    EXPECT_EQ(track.Forced(), -1);
}

// A code point is not cut; completing it may take at most three more tokens.
TEST(Reasoning, WaitsForTheEndOfACodePoint) {
    Reasoning asked = AskedReasoning();
    asked.begun = true;
    asked.budget = 1;
    ReasoningTrack track(asked);
    Take(track, {""});
    EXPECT_EQ(track.Forced(), -1);
    Take(track, {"\xC3\xA9"});
    EXPECT_EQ(track.Forced(), 21);
    ReasoningTrack silent(asked);
    Take(silent, {"", "", ""});
    EXPECT_EQ(silent.Forced(), -1);
    Take(silent, {""});
    EXPECT_EQ(silent.Forced(), 21);
}

// Drafts may reach the end of the budget, after which tokens are not drawn.
TEST(Reasoning, KnowsWhenTokensMayBeForced) {
    Reasoning asked = AskedReasoning();
    asked.budget = 3;
    ReasoningTrack track(asked);
    EXPECT_FALSE(track.MayForce(3));
    EXPECT_TRUE(track.MayForce(4)) << "the reasoning may begin at once";
    track.Take(kOpen, "<think>", false);
    Take(track, {"a"});
    EXPECT_FALSE(track.MayForce(2));
    EXPECT_TRUE(track.MayForce(3));
    Take(track, {"b", "c"});
    for (const int32_t token : {21, 22, 23}) {
        EXPECT_EQ(track.Forced(), token);
        EXPECT_TRUE(track.MayForce(1));
        track.Take(token, "x", false);
    }
    EXPECT_FALSE(track.MayForce(100));
    asked.budget = -1;
    asked.begun = true;
    EXPECT_FALSE(ReasoningTrack(asked).MayForce(100));
}

TEST(Reasoning, ClosesOnDemand) {
    ReasoningTrack before(AskedReasoning());
    EXPECT_FALSE(before.Close());
    before.Take(kOpen, "<think>", false);
    EXPECT_TRUE(before.Close());
    EXPECT_EQ(before.Forced(), 21);
    for (const int32_t token : {21, 22, 23}) before.Take(token, "x", false);
    EXPECT_FALSE(before.inside());
    EXPECT_FALSE(before.Close());
}

}  // namespace
}  // namespace weft::engine
