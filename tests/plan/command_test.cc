// `weft plan` as users call it.
#include <gtest/gtest.h>

#include <sstream>

#include "support/paths.h"
#include "support/run_weft.h"

namespace weft::support {
namespace {

TEST(PlanCommand, TableAndJsonSayTheSame) {
    const Words asked{"plan", "deepseek-r1:q4_k_m", "--machines", "4xstrix-halo,roce"};
    const Ran table = RunWeft(asked);
    ASSERT_EQ(table.status, 0) << table.err;
    EXPECT_NE(table.out.find("<- fastest"), std::string::npos) << table.out;
    EXPECT_NE(table.out.find("what if: tcp "), std::string::npos) << table.out;
    const Ran ran = RunWeft(asked + Words{"--json", "--explain"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    const nlohmann::json json = ran.Json();
    const auto& best = json["layouts"][0];
    EXPECT_EQ(best["layout"], "tp4");
    EXPECT_EQ(best["fits"], true);
    EXPECT_EQ(best["memory"].size(), 4u);
    std::ostringstream speed;
    speed << std::fixed << std::setprecision(1) << best["tok_s"].get<double>();
    EXPECT_NE(table.out.find(speed.str()), std::string::npos) << table.out;
    for (const char* part : {"token_s", "prompt_s"}) {
        double sum = 0;
        for (const auto& [name, seconds] : best[part].items()) {
            if (name != "total") sum += seconds.get<double>();
        }
        EXPECT_NEAR(sum / best[part]["total"].get<double>(), 1, 1e-12);
    }
    EXPECT_NEAR(best["token_s"]["total"].get<double>() * best["tok_s"].get<double>(), 1, 1e-12);
    EXPECT_GT(best["joules_per_token"].get<double>(), 0);
}

// The printed parts of --explain are the printed total, to the last digit.
TEST(PlanCommand, ExplainAddsUp) {
    const Ran ran = RunWeft({"plan", "gpt-oss-20b", "--machines", "3xstrix-halo,tcp", "--explain"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    std::istringstream lines(ran.out);
    double sum = 0;
    int totals = 0;
    for (std::string line; std::getline(lines, line);) {
        const size_t unit = line.find(" us");
        if (!line.starts_with("  ") || unit == std::string::npos) continue;
        const double value = std::stod(line.substr(16, unit - 16));
        if (line.starts_with("  total")) {
            EXPECT_NEAR(sum, value, 1e-6 * value) << ran.out;
            sum = 0;
            ++totals;
        } else {
            sum += value;
        }
    }
    EXPECT_EQ(totals, 2) << ran.out;
}

// What ranks of a real job hold: weights as packed for a processor (a few per cent more), and the
// very bytes of the cache.
TEST(PlanCommand, MemoryIsThatOfARealJob) {
    const std::string model = "synthetic:smollm2-135m:q8_0";
    const Ran run = RunWeft({"run", model, "-p", "hello", "-n", "2", "--ignore-eos", "--tp", "2",
                             "--ctx", "256", "-t", "1", "--json"});
    ASSERT_EQ(run.status, 0) << run.err;
    const Ran plan =
        RunWeft({"plan", model, "--machines", "2xraspberry-pi-5", "--context", "256", "--json"});
    ASSERT_EQ(plan.status, 0) << plan.err;
    const nlohmann::json real = run.Json()["ranks"], layouts = plan.Json()["layouts"];
    const auto planned = std::find_if(layouts.begin(), layouts.end(),
                                      [](const auto& l) { return l["layout"] == "tp2"; });
    ASSERT_NE(planned, layouts.end());
    for (size_t rank = 0; rank < 2; ++rank) {
        const auto& memory = (*planned)["memory"][rank];
        EXPECT_NEAR(memory["weight_bytes"].get<double>() / real[rank]["weight_bytes"].get<double>(),
                    1, 0.05);
        EXPECT_EQ(memory["kv_bytes"], real[rank]["kv_bytes"]) << rank;
    }
}

TEST(PlanCommand, WrongWordsAreRefused) {
    for (const auto& [arguments, said] : std::initializer_list<std::pair<Words, const char*>>{
             {{"plan", "gpt-oss-20b", "--machines", "4xstrix-hola"}, "no machine is called"},
             {{"plan", "gpt-oss-20c", "--machines", "strix-halo"}, "no well-known model"},
             {{"plan", "gpt-oss-20b", "--machines", "strix-halo", "--runtime", "x"},
              "no runtime is called 'x'; there are exo-mlx"},
             {{"plan", "gpt-oss-20b"}, "--machines"},
             {{"plan", "gpt-oss-20b", "--machines", "strix-halo", "--batch", "0"}, "--batch"}}) {
        const Ran ran = RunWeft(arguments);
        EXPECT_EQ(ran.status, 2) << ran.err;
        EXPECT_NE(ran.err.find(said), std::string::npos) << ran.err;
    }
}

}  // namespace
}  // namespace weft::support
