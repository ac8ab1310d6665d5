#include "engine/sampling/sampler.h"
#include "engine/sampling/logits_row.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "support/chi_square.h"

namespace weft::engine {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

int32_t One(const SamplerOptions& options, const std::vector<float>& logits,
            const std::vector<int32_t>& history = {}) {
    Sampler sampler(options);
    const auto token = sampler.Sample(logits, history);
    EXPECT_TRUE(token.ok()) << (token.ok() ? "" : token.error().message);
    return token.ok() ? *token : -1;
}

TEST(Sampler, Greedy) {
    EXPECT_EQ(One({}, {0, 3, 1, 3}), 1);
    EXPECT_EQ(One({}, {-5}), 0);
    EXPECT_EQ(One({}, {-kInf, -kInf, -1e30f}), 2);
    EXPECT_EQ(One({.temperature = 2, .top_k = 1}, {0, 3, 1, 3}), 1);
    EXPECT_EQ(One({.temperature = 1e-30f}, {0, 3, 1, 2.99f}), 1);
    EXPECT_EQ(One({.temperature = 1, .top_p = 1e-6f}, {0, 3, 1, 3}), 1);
    EXPECT_EQ(One({.temperature = 100, .min_p = 0.99f}, {0, 3, 1, 2}), 1);
}

TEST(Sampler, BadLogitsAreAnError) {
    for (const float temperature : {0.0f, 1.0f}) {
        for (const std::vector<float>& logits :
             {std::vector<float>{kNan}, {1, 2, kNan}, {kNan, 1, 2}, {1, kInf}, {-kInf, -kInf}}) {
            Sampler sampler({.temperature = temperature});
            const auto token = sampler.Sample(logits, {});
            ASSERT_FALSE(token.ok());
            EXPECT_EQ(token.error().code, ErrorCode::kCorrupt);
        }
    }
}

TEST(Sampler, OptionsOutOfRangeAreNamed) {
    EXPECT_TRUE(CheckSampler({}).ok());
    const auto refused = [](const SamplerOptions& options, std::string_view name) {
        const Status status = CheckSampler(options);
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().code, ErrorCode::kUsage);
        EXPECT_NE(status.error().message.find(name), std::string::npos) << status.error().message;
    };
    for (const float bad : {-1.0f, 101.0f, kNan, kInf}) refused({.temperature = bad}, "--temp");
    refused({.top_k = -1}, "--top-k");
    for (const float bad : {0.0f, -1.0f, 1.1f, kNan}) refused({.top_p = bad}, "--top-p");
    for (const float bad : {-0.1f, 1.0f, kNan}) refused({.min_p = bad}, "--min-p");
    for (const float bad : {0.0f, 1e-38f, -1.0f, kNan, kInf}) {
        refused({.repeat_penalty = bad}, "--repeat-penalty");
    }
    refused({.repeat_last = -1}, "--repeat-last");
}

TEST(Sampler, RepeatPenalty) {
    const SamplerOptions options = {.repeat_penalty = 2, .repeat_last = 3};
    EXPECT_EQ(One(options, {4, 3, 1}, {0}), 1);           // 4 / 2 < 3
    EXPECT_EQ(One(options, {4, 1.9f, 1}, {0, 0, 0}), 0);  // once per distinct token
    EXPECT_EQ(One(options, {4, 3, 1}, {0, 2, 2, 2}), 0);  // too long ago
    EXPECT_EQ(One(options, {-2, -3, -9}, {0}), 1);        // -2 * 2 < -3
    EXPECT_EQ(One(options, {4, 3, 1}, {-1, 3, 99}), 0);   // not of this vocabulary
    EXPECT_EQ(One({.repeat_penalty = 2, .repeat_last = 0}, {4, 3, 1}, {0}), 0);
    std::vector<int32_t> long_ago(65, 1);
    long_ago[0] = 0;
    EXPECT_EQ(One({.repeat_penalty = 2}, {4, 1, 1}, long_ago), 0);
    EXPECT_EQ(One({.repeat_penalty = 2}, {4, 3, 3}, {0, 1}), 2);
}

// Penalties by definition.
std::vector<float> Penalized(const SamplerOptions& o, std::vector<float> logits,
                             const SampleContext& context) {
    const auto last = std::min(context.history.size(), static_cast<size_t>(o.repeat_last));
    const auto recent = context.history.last(last);
    for (const int32_t id : std::set<int32_t>(recent.begin(), recent.end())) {
        float& logit = logits[static_cast<size_t>(id)];
        logit = logit > 0 ? logit / o.repeat_penalty : logit * o.repeat_penalty;
    }
    std::set<int32_t> said;
    for (const int32_t id : context.said()) {
        float& logit = logits[static_cast<size_t>(id)];
        if (said.insert(id).second) logit -= o.presence_penalty;
        logit -= o.frequency_penalty;
    }
    return logits;
}

// One sampler follows texts that grow by a token or by several, lose rejected drafts, and change
// altogether. Equal bits of logits give the same greedy token, so the logits lie close together.
TEST(Sampler, PenaltiesOfAnyTextAfterAnyOther) {
    constexpr int32_t kVocab = 40;
    std::mt19937 random(7);
    for (const SamplerOptions& options :
         {SamplerOptions{.presence_penalty = 1.5f},
          SamplerOptions{.presence_penalty = -0.1f, .frequency_penalty = 0.3f},
          SamplerOptions{.repeat_penalty = 1.3f, .repeat_last = 5},
          SamplerOptions{
              .repeat_penalty = 0.7f, .repeat_last = 1 << 24, .frequency_penalty = 0.1f}}) {
        Sampler sampler(options);
        std::vector<int32_t> text;
        size_t prompt = 0;
        for (int turn = 0; turn < 3000; ++turn) {
            if (random() % 50 == 0) text.clear();
            if (random() % 8 == 0) text.resize(text.size() - std::min<size_t>(text.size(), 3));
            for (uint32_t i = random() % 4; i > 0; --i) {
                text.push_back(static_cast<int32_t>(random() % kVocab));
            }
            if (random() % 20 == 0) prompt = random() % 30;
            std::vector<float> logits(kVocab);
            for (float& logit : logits) logit = static_cast<float>(random() % 100) * 0.01f - 0.5f;
            SampleContext context(text);
            context.prompt = prompt;
            const std::vector<float> expected = Penalized(options, logits, context);
            const auto best = std::ranges::max_element(expected) - expected.begin();
            ASSERT_EQ(*sampler.Sample(LogitsRow(logits), context), best) << turn;
            Distribution all;
            Sampler warm = sampler;
            SamplerOptions even = options;
            even.temperature = 1;
            warm.Become(Sampler(even));
            ASSERT_TRUE(warm.Distribute(LogitsRow(logits), context, all).ok());
            for (const auto& [id, chance] : all.entries) {
                const double ratio = std::exp(double{expected[static_cast<size_t>(id)]} -
                                              expected[static_cast<size_t>(best)]);
                EXPECT_NEAR(chance / all.entries[static_cast<size_t>(best)].chance, ratio, 1e-9);
            }
        }
    }
}

// Each token is counted once, however long the answer is.
TEST(Sampler, PenaltiesCountEachTokenOnce) {
    const std::vector<float> logits(300, 1.0f);
    for (const SamplerOptions& options :
         {SamplerOptions{.presence_penalty = 1}, SamplerOptions{.frequency_penalty = 1},
          SamplerOptions{.repeat_penalty = 2, .repeat_last = 1 << 24},
          SamplerOptions{.repeat_penalty = 2, .repeat_last = 64}}) {
        for (const int length : {1000, 50'000}) {
            Sampler sampler(options);
            std::vector<int32_t> text;
            for (int i = 0; i < length; ++i) text.push_back(i % 250);
            ASSERT_TRUE(sampler.Sample(LogitsRow(logits), text).ok());
            const int64_t before = sampler.counted();
            for (int i = 0; i < 100; ++i) {
                text.push_back(i);
                ASSERT_TRUE(sampler.Sample(LogitsRow(logits), text).ok());
            }
            EXPECT_LE(sampler.counted() - before, 200) << length;
        }
    }
}

// Probabilities by definition: sort, cut, renormalize.
std::vector<double> Exact(const SamplerOptions& o, const std::vector<float>& logits) {
    std::vector<size_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return logits[a] > logits[b]; });
    if (o.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(o.top_k)));
    const auto share = [&](size_t id) { return std::exp(double{logits[id]} - logits[order[0]]); };
    double total = 0, sum = 0, drawn = 0;
    for (const size_t id : order) total += share(id);
    std::vector<double> exact(logits.size(), 0.0);
    for (const size_t id : order) {
        if (sum >= double{o.top_p} * total && sum > 0) break;
        if (share(id) < o.min_p) break;
        sum += share(id);
        exact[id] = std::exp((double{logits[id]} - logits[order[0]]) / o.temperature);
        drawn += exact[id];
    }
    for (double& p : exact) p /= drawn;
    return exact;
}

// Outcomes without probability must not be drawn.
void ExpectDistribution(const SamplerOptions& options, const std::vector<float>& logits) {
    const auto exact = Exact(options, logits);
    std::vector<int> counts(logits.size());
    Sampler sampler(options);
    for (int i = 0; i < 20000; ++i) ++counts[static_cast<size_t>(*sampler.Sample(logits, {}))];
    EXPECT_LE(support::Deviate(exact, counts), 5.0);
    Distribution distribution;
    ASSERT_TRUE(sampler.Distribute(logits, {}, distribution).ok());
    std::vector<double> chances(logits.size(), 0.0);
    for (const auto& entry : distribution.entries) {
        chances[static_cast<size_t>(entry.id)] = entry.chance;
    }
    for (size_t id = 0; id < logits.size(); ++id)
        EXPECT_LE(std::abs(chances[id] - exact[id]), 1e-12);
}

TEST(Sampler, DrawsTheRightDistribution) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal(0, 2);
    for (int round = 0; round < 40; ++round) {
        std::vector<float> logits(2 + random() % 60);
        for (float& logit : logits) logit = random() % 8 ? normal(random) : 1.0f;
        if (round % 5 == 0) logits[random() % logits.size()] = -kInf;
        SamplerOptions options = {.temperature = 1, .seed = random()};
        if (random() % 2) options.temperature = 0.3f + static_cast<float>(random() % 20) / 10;
        if (random() % 2) options.top_k = 1 + static_cast<int>(random() % (logits.size() + 3));
        if (random() % 2) options.top_p = static_cast<float>(1 + random() % 99) / 100;
        if (random() % 2) options.min_p = static_cast<float>(random() % 50) / 100;
        SCOPED_TRACE(testing::Message()
                     << "round " << round << ": temperature " << options.temperature << ", top-k "
                     << options.top_k << ", top-p " << options.top_p << ", min-p "
                     << options.min_p);
        ExpectDistribution(options, logits);
    }
}

TEST(Sampler, DistributesWhatItSamples) {
    Distribution d;
    Sampler greedy({});
    ASSERT_TRUE(greedy.Distribute(std::vector<float>{0, 3, 1, 3}, {}, d).ok());
    ASSERT_EQ(d.entries.size(), 1u);
    EXPECT_EQ(d.entries[0].id, 1);
    EXPECT_EQ(d.entries[0].chance, 1.0);
    // The penalty is applied first.
    Sampler penalized({.temperature = 1, .top_k = 1, .repeat_penalty = 2});
    const std::vector<int32_t> history = {0};
    ASSERT_TRUE(penalized.Distribute(std::vector<float>{4, 3, 1}, history, d).ok());
    EXPECT_EQ(d.entries[0].id, 1);
    EXPECT_FALSE(greedy.Distribute(std::vector<float>{kNan, 1}, {}, d).ok());
}

// ---- Judging drafts
// ------------------------------------------------------------------------------

using Rule =
    std::function<int32_t(Sampler&, const Distribution& p, const Distribution& q, int32_t drafted)>;

double ChanceOf(const Distribution& distribution, int32_t id) {
    for (const auto& entry : distribution.entries) {
        if (entry.id == id) return entry.chance;
    }
    return 0;
}

// A random distribution over some of ten tokens.
Distribution RandomDistribution(std::mt19937& random) {
    Distribution made;
    double total = 0;
    for (int32_t id = 0; id < 10; ++id) {
        if (random() % 4 == 0 && id != 3) continue;
        const double weight = std::exp(std::normal_distribution<double>(0, 1.5)(random));
        made.entries.push_back({id, weight});
        total += weight;
    }
    for (auto& entry : made.entries) entry.chance /= total;
    std::shuffle(made.entries.begin(), made.entries.end(), random);
    return made;
}

// Largest deviation from p of a rule's results with drafts from q, over many pairs of p and q.
double WorstDeviate(const Rule& rule, bool point_masses) {
    std::mt19937 random(11);
    double worst = 0;
    for (int round = 0; round < 30; ++round) {
        const Distribution p = RandomDistribution(random);
        Distribution q = RandomDistribution(random);
        if (point_masses) q.entries = {{q.entries[0].id, 1.0}};
        if (round == 0) q = p;
        Sampler sampler({.temperature = 1, .seed = random()}), draft({.seed = random()});
        std::vector<int> counts(10);
        for (int i = 0; i < 5000; ++i) {
            ++counts[static_cast<size_t>(rule(sampler, p, q, draft.DrawFrom(q)))];
        }
        std::vector<double> exact(10);
        for (int32_t id = 0; id < 10; ++id) exact[static_cast<size_t>(id)] = ChanceOf(p, id);
        worst = std::max(worst, support::Deviate(exact, counts));
    }
    return worst;
}

TEST(Judge, WhatComesOutIsDistributedAsWithoutADraft) {
    const Rule rule = [](Sampler& sampler, const auto& p, const auto& q, int32_t drafted) {
        const Verdict verdict = sampler.Judge(p, q, drafted);
        EXPECT_TRUE(!verdict.accepted || verdict.token == drafted);
        return verdict.token;
    };
    EXPECT_LE(WorstDeviate(rule, false), 5.0);
    EXPECT_LE(WorstDeviate(rule, true), 5.0);
    // A point-mass draft needs no acceptance test: it stays if the sampler draws it.
    const Rule draw = [](Sampler& sampler, const auto& p, const auto&, int32_t) {
        return sampler.DrawFrom(p);
    };
    EXPECT_LE(WorstDeviate(draw, true), 5.0);
}

// The statistic detects common mistakes.
TEST(Judge, WrongRulesAreFoundOut) {
    std::mt19937_64 random(3);
    const auto uniform = [&random] { return static_cast<double>(random() >> 11) * 0x1p-53; };
    const auto accepts = [&uniform](const auto& p, const auto& q, int32_t drafted) {
        return uniform() * ChanceOf(q, drafted) < ChanceOf(p, drafted);
    };
    const Rule always = [](Sampler&, const auto&, const auto&, int32_t drafted) { return drafted; };
    // Mistake: after a rejection, draws from p instead of the residual distribution.
    const Rule from_all = [&](Sampler& sampler, const auto& p, const auto& q, int32_t drafted) {
        return accepts(p, q, drafted) ? drafted : sampler.DrawFrom(p);
    };
    // Mistake: accepts with p instead of p / q.
    const Rule no_ratio = [&](Sampler& sampler, const auto& p, const auto& q, int32_t drafted) {
        if (uniform() < ChanceOf(p, drafted)) return drafted;
        return sampler.Judge(p, q, drafted).token;
    };
    for (const Rule& rule : {always, from_all, no_ratio}) {
        EXPECT_GT(WorstDeviate(rule, false), 10.0);
    }
}

TEST(Judge, ADraftOfTheModelItselfIsAlwaysAccepted) {
    std::mt19937 random(12);
    Sampler sampler({.temperature = 1, .seed = 5});
    for (int i = 0; i < 10000; ++i) {
        const Distribution p = RandomDistribution(random);
        EXPECT_TRUE(sampler.Judge(p, p, sampler.DrawFrom(p)).accepted);
    }
    // A token with p = 0 is never accepted.
    const Distribution p{{{1, 0.25}, {2, 0.75}}}, q{{{0, 0.9}, {1, 0.1}}};
    for (int i = 0; i < 100; ++i) EXPECT_FALSE(sampler.Judge(p, q, 0).accepted);
}

TEST(Sampler, SeedsRepeatAndDiffer) {
    const std::vector<float> logits(100, 1.0f);
    const auto draw = [&](uint64_t seed) {
        Sampler sampler({.temperature = 1, .seed = seed});
        std::vector<int32_t> tokens;
        for (int i = 0; i < 50; ++i) tokens.push_back(*sampler.Sample(logits, {}));
        return tokens;
    };
    EXPECT_EQ(draw(7), draw(7));
    EXPECT_NE(draw(7), draw(8));
    // The 64-bit Mersenne Twister with seed 5489 starts with this number (its authors' file).
    const uint64_t first = 14514284786278117030u;
    EXPECT_EQ(draw(5489)[0],
              static_cast<int32_t>(static_cast<double>(first >> 11) * 0x1p-53 * 100));
}

TEST(Sampler, LargeVocabulary) {
    std::vector<float> logits(150000);
    for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i % 1000) / 100;
    for (const SamplerOptions& options :
         {SamplerOptions{.temperature = 1}, SamplerOptions{.temperature = 1, .top_k = 40},
          SamplerOptions{.temperature = 1, .top_p = 0.9f},
          SamplerOptions{.temperature = 1, .top_k = 1000, .top_p = 0.5f, .min_p = 0.1f}}) {
        const auto exact = Exact(options, logits);
        Sampler sampler(options);
        for (int i = 0; i < 10; ++i) {
            EXPECT_GT(exact[static_cast<size_t>(*sampler.Sample(logits, {}))], 0.0);
        }
    }
}

}  // namespace
}  // namespace weft::engine
