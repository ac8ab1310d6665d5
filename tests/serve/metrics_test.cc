// /metrics: gauges of ranks that were lost, and histograms of many values.
#include "serve/metrics.h"

#include <gtest/gtest.h>

#include <string>

namespace weft::serve {
namespace {

size_t Count(const std::string& text, const std::string& part) {
    size_t count = 0;
    for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
    return count;
}

TEST(MetricsTest, GaugesGoWithTheirRank) {
    Metrics metrics("weft", {"m", 64, 16, true, "f16"});
    engine::EngineStats stats;
    for (int rank = 0; rank < 3; ++rank) {
        stats.ranks.emplace_back().rank = rank;
        stats.ranks.back().host = "a";
    }
    EXPECT_EQ(Count(metrics.Text(stats), "weft:rank_step_seconds{"), 3u);
    stats.ranks.pop_back();
    stats.ranks[1].host = "b";
    stats.ranks[1].step_s = 2.5;
    for (int scrape = 0; scrape < 2; ++scrape) {
        const std::string text = metrics.Text(stats);
        EXPECT_EQ(Count(text, "weft:rank_step_seconds{"), 2u) << text;
        EXPECT_EQ(Count(text, "rank=\"2\""), 0u) << text;
        EXPECT_EQ(Count(text, "host=\"b\""), 3u) << text;
        EXPECT_EQ(Count(text, "} 2.5\n"), 1u) << text;
        EXPECT_EQ(Count(text, "weft:cache_config_info{"), 1u) << text;
    }
    stats.ranks.clear();
    EXPECT_EQ(Count(metrics.Text(stats), "rank_step_seconds"), 0u);
}

TEST(MetricsTest, GapsFallIntoTheBucketUpToTheirBound) {
    Metrics metrics("weft", {"m", 64, 16, true, "f16"});
    AnswerRecord record;
    record.gaps_s = {0.001f, 0.5f, 0.25f, 0.3f, 1000};
    metrics.Add(record);
    const std::string text = metrics.Text({});
    for (const char* name : {"inter_token_latency_seconds", "time_per_output_token_seconds"}) {
        const auto has = [&](const std::string& line) {
            return Count(text, std::string("weft:") + name + line) == 1;
        };
        const std::string labels = "{engine=\"0\",model_name=\"m\"";
        EXPECT_TRUE(has("_count" + labels + "} 5\n")) << text;
        EXPECT_TRUE(has("_bucket" + labels + ",le=\"0.01\"} 1\n")) << text;
        EXPECT_TRUE(has("_bucket" + labels + ",le=\"0.3\"} 2\n")) << text;
        EXPECT_TRUE(has("_bucket" + labels + ",le=\"0.5\"} 4\n")) << text;
        EXPECT_TRUE(has("_bucket" + labels + ",le=\"80\"} 4\n")) << text;
    }
}

}  // namespace
}  // namespace weft::serve
