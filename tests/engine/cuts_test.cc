// The chain of the sampler with typical sampling, top-n-sigma and XTC, and the rules that forbid
// tokens, against their definitions.
#include "engine/rank/cuts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "engine/sampling/logits_row.h"
#include "engine/sampling/sampler.h"
#include "support/chi_square.h"

namespace weft::engine {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

using Chances = std::map<int32_t, double>;

Chances ChancesOf(const SamplerOptions& options, const std::vector<float>& logits,
                  const SampleContext& context = {}) {
    Sampler sampler(options);
    Distribution distribution;
    const Status made = sampler.Distribute(logits, context, distribution);
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
    Chances chances;
    for (const auto& entry : distribution.entries) chances[entry.id] = entry.chance;
    return chances;
}

std::vector<int32_t> Kept(const SamplerOptions& options, const std::vector<float>& logits) {
    std::vector<int32_t> ids;
    for (const auto& [id, chance] : ChancesOf(options, logits)) ids.push_back(id);
    return ids;
}

std::vector<float> Logs(const std::vector<double>& chances) {
    std::vector<float> logits;
    for (const double chance : chances) logits.push_back(static_cast<float>(std::log(chance)));
    return logits;
}

// Entropy of (0.5, 0.25, 0.15, 0.1): 1.2080 nats. Distances from it: 0.515, 0.178, 0.689, 1.095.
TEST(Typical, KeepsWhatIsNearestToTheEntropy) {
    const auto logits = Logs({0.5, 0.25, 0.15, 0.1});
    const auto kept = [&](float typical_p) {
        return Kept({.temperature = 1, .typical_p = typical_p}, logits);
    };
    EXPECT_EQ(kept(0.2f), (std::vector<int32_t>{1}));
    EXPECT_EQ(kept(0.3f), (std::vector<int32_t>{0, 1}));
    EXPECT_EQ(kept(0.74f), (std::vector<int32_t>{0, 1}));
    EXPECT_EQ(kept(0.76f), (std::vector<int32_t>{0, 1, 2}));
    EXPECT_EQ(kept(0.91f), (std::vector<int32_t>{0, 1, 2, 3}));
    // Without a temperature, the best of the remaining tokens.
    EXPECT_EQ(Kept({.typical_p = 0.2f}, logits), (std::vector<int32_t>{1}));
    EXPECT_EQ(Kept({.typical_p = 0.5f}, logits), (std::vector<int32_t>{0}));
    EXPECT_EQ(Kept({.temperature = 1, .top_k = 1, .typical_p = 0.2f}, logits),
              (std::vector<int32_t>{0}));
}

// Logits 4, 2, 0, 0, -1: mean 1, deviation sqrt(16 / 5) = 1.7889.
TEST(TopNSigma, KeepsWhatIsNearTheBest) {
    const std::vector<float> logits = {4, 2, 0, 0, -1};
    const auto kept = [&](float n, const std::vector<float>& of) {
        return Kept({.temperature = 1, .top_n_sigma = n}, of).size();
    };
    EXPECT_EQ(kept(1.11f, logits), 1u);
    EXPECT_EQ(kept(1.12f, logits), 2u);
    EXPECT_EQ(kept(2.23f, logits), 2u);
    EXPECT_EQ(kept(2.24f, logits), 4u);
    EXPECT_EQ(kept(2.8f, logits), 5u);
    // Forbidden logits change neither the mean nor the deviation.
    std::vector<float> more = logits;
    more.insert(more.end(), {-kInf, -1e6f});
    EXPECT_EQ(kept(2.23f, more), 2u);
    EXPECT_EQ(kept(2.24f, more), 4u);
    EXPECT_EQ(Kept({.temperature = 1, .top_k = 3, .top_n_sigma = 2.24f}, logits).size(), 3u);
    EXPECT_EQ(Kept({.top_n_sigma = 2.24f}, logits).size(), 1u);
    EXPECT_EQ(Kept({.temperature = 1, .top_n_sigma = 1}, {5}), (std::vector<int32_t>{0}));
}

TEST(Xtc, ExcludesTopChoicesButTheLast) {
    const auto logits = Logs({0.1, 0.4, 0.3, 0.15, 0.05});
    const auto kept = [&](float threshold) {
        return Kept({.temperature = 1, .xtc_probability = 1, .xtc_threshold = threshold}, logits);
    };
    EXPECT_EQ(kept(0.35f), (std::vector<int32_t>{0, 1, 2, 3, 4}));
    EXPECT_EQ(kept(0.2f), (std::vector<int32_t>{0, 2, 3, 4}));
    EXPECT_EQ(kept(0.12f), (std::vector<int32_t>{0, 3, 4}));
    EXPECT_EQ(kept(0.0f), (std::vector<int32_t>{4}));
    EXPECT_EQ(kept(0.51f), (std::vector<int32_t>{0, 1, 2, 3, 4}));
    // Greedy: the best of the other tokens. After top-k: the probabilities of the remaining ones.
    EXPECT_EQ(Kept({.xtc_probability = 1, .xtc_threshold = 0.12f}, logits),
              (std::vector<int32_t>{3}));
    EXPECT_EQ(
        Kept({.temperature = 1, .top_k = 2, .xtc_probability = 1, .xtc_threshold = 0.42f}, logits),
        (std::vector<int32_t>{2}));
}

TEST(Xtc, IsDrawnWithItsProbability) {
    const auto logits = Logs({0.6, 0.3, 0.1});
    Sampler sampler({.temperature = 1, .seed = 4, .xtc_probability = 0.25f, .xtc_threshold = 0.2f});
    std::vector<int> counts(3);
    for (int i = 0; i < 20000; ++i) ++counts[static_cast<size_t>(*sampler.Sample(logits, {}))];
    EXPECT_LE(
        support::Deviate({0.75 * 0.6, 0.75 * 0.3 + 0.25 * 0.75, 0.75 * 0.1 + 0.25 * 0.25}, counts),
        5.0);
}

// The whole chain by definition: sorted lists, one cut after the other.
Chances Exact(const SamplerOptions& o, const std::vector<float>& logits) {
    std::vector<int32_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    const auto at = [&](int32_t id) { return double{logits[static_cast<size_t>(id)]}; };
    std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return at(a) > at(b); });
    const double mean =
        std::accumulate(logits.begin(), logits.end(), 0.0) / static_cast<double>(logits.size());
    double squares = 0;
    for (const float logit : logits) squares += (logit - mean) * (logit - mean);
    const double sigma = std::sqrt(squares / static_cast<double>(logits.size()));
    if (o.top_n_sigma > 0) {
        std::erase_if(order, [&, best = at(order[0])](int32_t id) {
            return at(id) < best - double{o.top_n_sigma} * sigma;
        });
    }
    if (o.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(o.top_k)));
    const auto share = [&](double temperature) {
        Chances chances;
        double total = 0;
        for (const int32_t id : order) {
            total += chances[id] = std::exp((at(id) - at(order[0])) / temperature);
        }
        for (auto& [id, chance] : chances) chance /= total;
        return chances;
    };
    Chances p = share(1);
    if (o.typical_p < 1) {
        double entropy = 0, sum = 0;
        for (const auto& [id, chance] : p) entropy -= chance * std::log(chance);
        std::vector<int32_t> typical = order;
        std::ranges::sort(typical);
        std::ranges::stable_sort(typical, {},
                                 [&](int32_t id) { return std::abs(-std::log(p[id]) - entropy); });
        size_t count = 0;
        while (count < typical.size() && sum <= double{o.typical_p}) sum += p[typical[count++]];
        typical.resize(count);
        std::erase_if(order, [&](int32_t id) { return !std::ranges::count(typical, id); });
    }
    p = share(1);
    double sum = 0;
    size_t count = 0;
    while (count < order.size() && (count == 0 || sum < double{o.top_p})) sum += p[order[count++]];
    if (o.top_p < 1) order.resize(count);
    p = share(1);
    std::erase_if(order, [&, most = p[order[0]]](int32_t id) { return p[id] < o.min_p * most; });
    p = share(1);
    if (o.xtc_probability == 1) {
        size_t last = 0;
        while (last + 1 < order.size() && p[order[last + 1]] >= double{o.xtc_threshold}) ++last;
        if (p[order[0]] >= double{o.xtc_threshold}) {
            order.erase(order.begin(), order.begin() + static_cast<ptrdiff_t>(last));
        }
    }
    return share(double{o.temperature});
}

TEST(Chain, EqualsItsDefinition) {
    std::mt19937 random(8);
    std::normal_distribution<float> normal(0, 2);
    for (int round = 0; round < 300; ++round) {
        std::vector<float> logits(2 + random() % 60);
        for (float& logit : logits) logit = normal(random);
        SamplerOptions o{.temperature = 0.5f + static_cast<float>(random() % 20) / 10};
        if (random() % 2) o.top_n_sigma = static_cast<float>(1 + random() % 30) / 10;
        if (random() % 3 == 0) o.top_k = 1 + static_cast<int>(random() % (logits.size() + 3));
        if (random() % 2) o.typical_p = static_cast<float>(1 + random() % 99) / 100;
        if (random() % 3 == 0) o.top_p = static_cast<float>(1 + random() % 99) / 100;
        if (random() % 3 == 0) o.min_p = static_cast<float>(random() % 50) / 100;
        if (random() % 2) o.xtc_probability = 1;
        o.xtc_threshold = static_cast<float>(random() % 40) / 100;
        const Chances exact = Exact(o, logits), chances = ChancesOf(o, logits);
        ASSERT_EQ(chances.size(), exact.size()) << "round " << round;
        for (const auto& [id, chance] : exact) {
            ASSERT_TRUE(chances.contains(id)) << "round " << round;
            EXPECT_LE(std::abs(chances.at(id) - chance), 1e-6) << "round " << round;
        }
    }
}

// ---- Forbidden tokens -------------------------------------------------------------------------

int32_t Best(const SamplerOptions& options, const std::vector<float>& logits,
             const std::vector<int32_t>& said = {}) {
    std::vector<int32_t> history = {0, 0};
    history.insert(history.end(), said.begin(), said.end());
    SampleContext context(history);
    context.prompt = 2;
    Sampler sampler(options);
    const auto token = sampler.Sample(logits, context);
    EXPECT_TRUE(token.ok()) << (token.ok() ? "" : token.error().message);
    return token.ok() ? *token : -1;
}

TEST(Forbidden, OnlyAllowedTokensCome) {
    EXPECT_EQ(Best({.allowed = {0b1010}}, {9, 3, 8, 4}), 3);
    EXPECT_EQ(Best({.temperature = 1, .top_k = 1, .allowed = {0b10}}, {9, 3, 8, 4}), 1);
    // Further tokens of the model are not in the list.
    std::vector<float> logits(40, 5.0f);
    EXPECT_EQ(Best({.allowed = {1u << 31}}, logits), 31);
}

TEST(Forbidden, BannedWordsDoNotEnd) {
    const SamplerOptions options{.banned = {{3}, {1, 2}}};
    EXPECT_EQ(Best(options, {0, 1, 8, 9}), 2);
    EXPECT_EQ(Best(options, {0, 1, 8, 9}, {1}), 1);
    EXPECT_EQ(Best(options, {0, 1, 8, 9}, {1, 0}), 2);
    // The prompt is not part of the answer.
    EXPECT_EQ(Best({.banned = {{0, 2}}}, {0, 1, 8, 4}), 2);
    EXPECT_EQ(Best({.banned = {{0, 2}}}, {0, 1, 8, 4}, {0}), 3);
}

TEST(Forbidden, EndsComeAfterTheLeastLength) {
    const SamplerOptions options{.ends = {2, 3}, .min_tokens = 2};
    EXPECT_EQ(Best(options, {0, 1, 8, 9}), 1);
    EXPECT_EQ(Best(options, {0, 1, 8, 9}, {1}), 1);
    EXPECT_EQ(Best(options, {0, 1, 8, 9}, {1, 1}), 3);
    // An end is allowed if nothing else is.
    EXPECT_EQ(Best({.allowed = {0b1100}, .ends = {2, 3}, .min_tokens = 2}, {0, 1, 9, 8}), 2);
}

TEST(Forbidden, NoAllowedTokenIsTheRequestsError) {
    Sampler sampler({.allowed = {0b10}, .banned = {{1}}});
    const auto token = sampler.Sample(std::vector<float>{1, 2, 3}, {});
    ASSERT_FALSE(token.ok());
    EXPECT_EQ(token.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(token.error().message.find("no token may come next"), std::string::npos);
    EXPECT_FALSE(CheckSampler({.banned = {{}}}).ok());
}

// If a rule needs all logits, rank 0 requests them from the last stage.
TEST(Forbidden, TheLogitsThatTheRulesNeedAreRead) {
    const auto ask = [](const SamplerOptions& options) {
        return Sampler(options).Ask(false, 100, 0);
    };
    EXPECT_EQ(ask({.temperature = 1}).kind, RowRequest::Kind::kToken);
    for (const SamplerOptions& options :
         {SamplerOptions{.temperature = 1, .typical_p = 0.5f},
          SamplerOptions{.temperature = 1, .top_k = 5, .top_n_sigma = 1},
          SamplerOptions{.xtc_probability = 0.5f}, SamplerOptions{.allowed = {1}},
          SamplerOptions{.banned = {{1}}}, SamplerOptions{.ends = {1}, .min_tokens = 1},
          SamplerOptions{.dry = {.multiplier = 1}}}) {
        EXPECT_EQ(ask(options).kind, RowRequest::Kind::kAll);
    }
    EXPECT_EQ(ask({.temperature = 1, .top_k = 5, .typical_p = 0.5f}).top, 5);
    EXPECT_EQ(ask({.top_n_sigma = 1}).top, 1);
}

}  // namespace
}  // namespace weft::engine
