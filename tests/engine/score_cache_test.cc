// Cached scores of prompts: for which prompts, how many, and for which tenant.
#include "engine/start/score_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace weft::engine {
namespace {

using Tokens = std::vector<int32_t>;

Tokens Count(int32_t first, size_t tokens) {
    Tokens list(tokens);
    std::iota(list.begin(), list.end(), first);
    return list;
}

// A score that encodes its input: the sum of the tokens up to its own.
std::vector<GeneratedToken> ScoresOf(const Tokens& tokens, int best) {
    std::vector<GeneratedToken> scores;
    int64_t sum = tokens[0];
    for (size_t i = 1; i < tokens.size(); ++i) {
        sum += tokens[i];
        GeneratedToken score{{tokens[i], -static_cast<float>(sum)}, {}, sum};
        for (int32_t id = 0; id < best; ++id) score.best.push_back({id, -1});
        scores.push_back(std::move(score));
    }
    return scores;
}

class Scores : public testing::Test {
  protected:
    void Keep(const Tokens& tokens, int best, const PrefixSpace& space = {}) {
        cache_.Keep(space, tokens, best, ScoresOf(tokens, best));
    }
    // Number of known scores, beginning with that of token `have`; checks their values.
    int64_t Find(const Tokens& tokens, int64_t have, int best, const PrefixSpace& space = {}) {
        std::vector<GeneratedToken> found;
        cache_.Find(space, tokens, have, best, found);
        const auto all = ScoresOf(tokens, best);
        for (size_t i = 0; i < found.size(); ++i) {
            const GeneratedToken& expected = all[static_cast<size_t>(have) - 1 + i];
            EXPECT_EQ(found[i].chance.id, expected.chance.id);
            EXPECT_EQ(found[i].chance.logprob, expected.chance.logprob);
            EXPECT_EQ(found[i].rank, expected.rank);
            EXPECT_EQ(found[i].best.size(), static_cast<size_t>(std::max(best, 0)));
        }
        return std::ssize(found);
    }

    ScoreCache cache_{64 * 16};
};

TEST_F(Scores, AsFarAsPromptsAgree) {
    for (const size_t size : {2, 15, 16, 17, 33, 100}) {
        SCOPED_TRACE(size);
        const Tokens tokens = Count(static_cast<int32_t>(1000 * size), size);
        EXPECT_EQ(Find(tokens, 1, 1), 0);
        Keep(tokens, 1);
        EXPECT_EQ(Find(tokens, 1, 1), std::ssize(tokens) - 1);
        for (size_t same = 1; same<size; same += size> 40 ? 7 : 1) {
            Tokens other(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(same));
            other.insert(other.end(), 30, 7);
            EXPECT_EQ(Find(other, 1, 1), static_cast<int64_t>(same) - 1);
            for (int64_t have = 1; have <= std::ssize(other); ++have) {
                EXPECT_EQ(Find(other, have, 0),
                          std::max<int64_t>(0, static_cast<int64_t>(same) - have));
            }
        }
    }
}

TEST_F(Scores, WithAsManyOfTheLikeliest) {
    const Tokens tokens = Count(1, 50);
    Keep(tokens, 0);
    EXPECT_EQ(Find(tokens, 1, 0), 49);
    EXPECT_EQ(Find(tokens, 1, 1), 0);
    Keep(Count(1, 70), 5);
    EXPECT_EQ(Find(tokens, 1, 5), 49);
    EXPECT_EQ(Find(tokens, 1, 2), 49);
    EXPECT_EQ(Find(tokens, 1, 6), 0);
    Keep(tokens, 1);  // fewer than known
    EXPECT_EQ(Find(Count(1, 70), 1, 5), 69);
}

TEST_F(Scores, OfOneTenantAndAdapter) {
    const Tokens tokens = Count(1, 40);
    Keep(tokens, 1, {"a", 1});
    EXPECT_EQ(Find(tokens, 1, 1, {"a", 1}), 39);
    EXPECT_EQ(Find(tokens, 1, 1, {"a", 0}), 0);
    EXPECT_EQ(Find(tokens, 1, 1, {"b", 1}), 0);
    EXPECT_EQ(Find(tokens, 1, 1), 0);
}

TEST_F(Scores, TheLeastRecentlyUsedGo) {
    for (int32_t i = 0; i < 200; ++i) {
        Keep(Count(100 * i, 40), 1);
        EXPECT_EQ(Find(Count(100 * i, 40), 1, 1), 39) << i;
        EXPECT_EQ(Find(Count(0, 40), 1, 1), 39) << i;
    }
    EXPECT_EQ(Find(Count(100 * 100, 40), 1, 1), 0);
    // For a prompt larger than the cache, the beginning is kept.
    const Tokens large = Count(1 << 20, 64 * 16 + 100);
    Keep(large, 1);
    EXPECT_EQ(Find(large, 1, 1), 64 * 16 - 1);
    Keep(Count(5, 40), 1);
    EXPECT_EQ(Find(Count(5, 40), 1, 1), 39);
}

TEST_F(Scores, AChangeIsSeen) {
    const int64_t before = cache_.changes();
    Find(Count(1, 40), 1, 1);
    EXPECT_EQ(cache_.changes(), before);
    Keep(Count(1, 40), 1);
    EXPECT_GT(cache_.changes(), before);
}

}  // namespace
}  // namespace weft::engine
