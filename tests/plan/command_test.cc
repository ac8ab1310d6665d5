// `weft plan` as users call it.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <regex>
#include <set>
#include <sstream>

#include "base/deadline.h"
#include "support/nightly.h"
#include "support/paths.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_adapter.h"
#include "support/wait.h"

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
    const nlohmann::json plans = ran.Json();
    const auto& best = plans["layouts"][0];
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

// A machine file of a processor, `slow` times slower than another.
std::string WriteMachine(const std::string& path, double gigabytes_s) {
    const auto figure = [](const std::string& is) {
        return nlohmann::json{{"is", is}, {"mark", "guessed"}, {"source", "a test"}};
    };
    const nlohmann::json machine = {{"about", "a test"},
                                    {"pool", "host"},
                                    {"threads", 1},
                                    {"memory", figure("8 GB")},
                                    {"bandwidth", figure(std::to_string(gigabytes_s) + " GB/s")},
                                    {"compute", figure("100 GFLOP/s")}};
    std::ofstream(path) << machine.dump();
    return path;
}

// The command that a plan over unlike hosts prints runs, and each rank holds the planned share.
TEST(PlanCommand, PrintedCommandRuns) {
    const test::TempDir dir;
    const std::string fast = WriteMachine(dir / "fast.json", 30);
    const std::string slow = WriteMachine(dir / "slow.json", 10);
    const std::string key = dir / "key";
    std::ofstream(key) << "a key for these tests only";
    ::chmod(key.c_str(), 0600);
    std::vector<std::unique_ptr<Weft>> workers;
    std::string hosts;
    for (int i = 0; i < 3; ++i) {
        workers.push_back(
            std::make_unique<Weft>(Words{"worker", "--listen", "127.0.0.1:0", "--key-file", key}));
        hosts +=
            fmt::format("{}127.0.0.1:{}", hosts.empty() ? "" : ",", test::PortOf(*workers.back()));
    }
    const std::string model = "synthetic:smollm2-135m:q8_0:layers=8";
    const std::string machines = fmt::format("{0}+{1}+{0}+{1},tcp", slow, fast);
    const Ran plan = RunWeft(
        {"plan", model, "--machines", machines, "--hosts", hosts, "--context", "256", "--json"});
    ASSERT_EQ(plan.status, 0) << plan.err;
    int uneven = 0, ran = 0;
    const nlohmann::json layouts = plan.Json()["layouts"];
    for (const auto& layout : layouts) {
        std::istringstream line(layout["run"].get<std::string>());
        Words words;
        for (std::string word; line >> word;) words.push_back(word);
        ASSERT_GE(words.size(), 2u);
        EXPECT_EQ(words[0], "weft");
        words.erase(words.begin());
        *(std::ranges::find(words, "--key-file") + 1) = key;
        const Ran run = RunWeft(
            words + Words{"--raw", "-p", "hello", "-n", "2", "--ignore-eos", "-t", "1", "--json"});
        ASSERT_EQ(run.status, 0) << layout["run"] << run.err;
        const nlohmann::json ranks = run.Json()["ranks"];
        ASSERT_EQ(ranks.size(), layout["memory"].size());
        std::set<uint64_t> weights;
        for (size_t rank = 0; rank < ranks.size(); ++rank) {
            const auto& memory = layout["memory"][rank];
            EXPECT_EQ(memory["weight_bytes"], ranks[rank]["weight_bytes"]) << layout["run"];
            EXPECT_EQ(memory["kv_bytes"], ranks[rank]["kv_bytes"]) << layout["run"];
            weights.insert(memory["weight_bytes"].get<uint64_t>());
        }
        uneven += weights.size() > 1;
        ++ran;
    }
    EXPECT_GE(ran, 2);
    EXPECT_GE(uneven, 2);
    for (const auto& worker : workers) ::kill(worker->pid(), SIGTERM);
    for (const auto& worker : workers) EXPECT_EQ(worker->Wait(5000).status, 0);
}

// Each printed command passes the checks of its own flags. (Without --pull, it then fails, because
// the model is not here.)
TEST(PlanCommand, PrintedCommandsAreAccepted) {
    const test::TempDir dir;
    const std::string key = dir / "key", box = dir / "box.json";
    std::ofstream(key) << "a key for these tests only";
    ::chmod(key.c_str(), 0600);
    std::ofstream(box) << R"({"memory": "24 GB, guessed: a test", "wire": "10gbe",
        "bandwidth": "900 GB/s, guessed: a test", "compute": "70 TFLOP/s, guessed: a test",
        "host": {"memory": "14 GB, guessed: a test", "drive": "5 GB/s, guessed: a test"}})";
    const std::string two_boxes = "2x" + box;
    int drives = 0, fed = 0, hip = 0;
    for (const Words& asked : {Words{"llama-3.1-8b:q4_k_m", "--machines", "mi210"},
                               {"llama-3.1-8b:q4_k_m", "--machines", "mi50-32gb+rtx-4090,10gbe"},
                               {"llama-3.1-70b:q4_k_m", "--machines", "2xmi300x:2", "--batch", "8"},
                               {"gpt-oss-120b", "--machines", "2xrtx-3090:2+64gb,10gbe"},
                               {"gpt-oss-120b", "--machines", two_boxes},
                               {"gpt-oss-120b", "--machines", "epyc-9654", "--kv-dtype", "q8_0"}}) {
        const Ran plan = RunWeft(Words{"plan", "--json"} + asked);
        ASSERT_EQ(plan.status, 0) << plan.err;
        const nlohmann::json layouts = plan.Json()["layouts"];
        for (size_t i = 0; i < std::min<size_t>(layouts.size(), 4); ++i) {
            const std::string run = layouts[i]["run"].get<std::string>();
            drives += run.find("--weights-on-drive") != run.npos;
            fed += run.find("--weights-from 0") != run.npos;
            hip += run.find("--device hip") != run.npos;
            std::istringstream line(run);
            Words words;
            for (std::string word; line >> word;) words.push_back(word);
            words.erase(words.begin());
            std::erase(words, "--pull");
            if (const auto at = std::ranges::find(words, "--key-file"); at != words.end()) {
                *(at + 1) = key;
            }
            if (words[0] == "run") words = words + Words{"-p", "hello"};
            const Ran ran =
                RunWeft(words, {"HF_HOME=" + dir / "hub", "XDG_CACHE_HOME=" + dir / "cache"});
            EXPECT_NE(ran.status, 0) << run;
            EXPECT_NE(ran.status, 2) << run << "\n" << ran.err;
        }
    }
    EXPECT_GT(drives, 0);
    EXPECT_GT(fed, 0);
    EXPECT_GT(hip, 4);
}

// The printed command names the planned adapters: with 'weft run' for one sequence and one adapter,
// else with 'weft serve', whose cache holds all sequences in whole pages.
TEST(PlanCommand, PrintedCommandHasTheAdapters) {
    const test::TempDir dir;
    const std::string model = "synthetic:smollm2-135m:q8_0:layers=2";
    for (const char* name : {"one", "two"}) WriteTinyAdapter(dir / name, model, {});
    const Words one{"--lora", "a=" + dir / "one"}, two = one + Words{"--lora", "b=" + dir / "two"};
    for (const Words& adapters : {one, two}) {
        const Ran plan = RunWeft(Words{"plan", "--json", "--machines", "epyc-9654", "--context",
                                       "100", "--batch", adapters.size() > 2 ? "3" : "1"} +
                                 adapters + Words{model});
        ASSERT_EQ(plan.status, 0) << plan.err;
        const nlohmann::json layout = plan.Json()["layouts"][0];
        std::istringstream line(layout["run"].get<std::string>());
        Words words;
        for (std::string word; line >> word;) words.push_back(word);
        words.erase(words.begin());
        const auto kv_bytes = layout["memory"][0]["kv_bytes"].get<int64_t>();
        if (words[0] == "run") {
            EXPECT_NE(std::ranges::find(words, dir / "one"), words.end()) << layout["run"];
            const Ran run =
                RunWeft(words + Words{"--raw", "-p", "hello", "-n", "1", "-t", "1", "--json"});
            ASSERT_EQ(run.status, 0) << layout["run"] << run.err;
            EXPECT_EQ(run.Json()["ranks"][0]["kv_bytes"], kv_bytes);
            continue;
        }
        EXPECT_NE(std::ranges::find(words, "b=" + dir / "two"), words.end()) << layout["run"];
        Weft server(words + Words{"--port", "0", "-t", "1", "--json"});
        ASSERT_TRUE(test::Until([&] { return server.Out().find('}') != std::string::npos; }))
            << server.Err();
        const auto said = nlohmann::json::parse(server.Out(), nullptr, false);
        EXPECT_EQ(said["kv_tokens"], 3 * 128) << "two pages of 64 for each sequence";
        ::kill(server.pid(), SIGTERM);
        EXPECT_EQ(server.Wait().status, 0);
    }
}

// Search by goal: the listed machines reach the goal and are within the budget, cheapest first.
TEST(PlanCommand, MachinesAreFound) {
    const Words model{"plan", "qwen3-32b:q4_k_m", "--context", "4096", "--json"};
    const Ran ran = RunWeft(model + Words{"--want", "20tok/s", "--budget", "6000EUR"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    const nlohmann::json enough = ran.Json()["enough"];
    ASSERT_GT(enough.size(), 3u);
    double last = 0;
    for (const auto& offer : enough) {
        EXPECT_GE(offer["tok_s"].get<double>(), 20) << offer;
        EXPECT_LE(offer["price"].get<double>(), 6000) << offer;
        EXPECT_GE(offer["price"].get<double>(), last);
        last = offer["price"].get<double>();
        // Forwards it is the same.
        if (&offer != &enough[0]) continue;
        const Ran there =
            RunWeft(model + Words{"--machines", offer["machines"].get<std::string>()});
        ASSERT_EQ(there.status, 0) << there.err;
        EXPECT_GE(there.Json()["layouts"][0]["tok_s"].get<double>(), offer["tok_s"].get<double>());
    }
    // If no offer reaches the goal, the nearest ones are listed, all of the one allowed machine.
    const Ran far = RunWeft(
        model + Words{"--want", "5000tok/s", "--budget", "6000EUR", "--machines", "strix-halo"});
    ASSERT_EQ(far.status, 0) << far.err;
    EXPECT_EQ(far.Json()["enough"].size(), 0u);
    ASSERT_GT(far.Json()["nearest"].size(), 0u);
    const nlohmann::json nearest = far.Json()["nearest"];
    for (const auto& offer : nearest) {
        EXPECT_NE(offer["machines"].get<std::string>().find("strix-halo"), std::string::npos);
    }
    for (const auto& [flag, value] : std::initializer_list<std::pair<const char*, const char*>>{
             {"--want", "20km/h"}, {"--budget", "8000"}, {"--ttft", "5 tok/s"}}) {
        const Ran wrong = RunWeft(model + Words{flag, value});
        EXPECT_EQ(wrong.status, 2) << wrong.err;
        EXPECT_NE(wrong.err.find(std::string(flag) + ": "), std::string::npos) << wrong.err;
        EXPECT_NE(wrong.err.find("is not a quantity"), std::string::npos) << wrong.err;
    }
}

// The price of a machine whose own wire has none includes its card, so several are offered.
TEST(PlanCommand, HostsOfAMeasuredWireAreOffered) {
    const test::TempDir dir;
    const std::string box = dir / "box.json";
    std::ofstream(box) << R"({"memory": "24 GB, guessed: a test", "price": "1500 EUR, guessed: x",
        "bandwidth": "900 GB/s, guessed: a test", "compute": "70 TFLOP/s, guessed: a test",
        "wire": {"bandwidth": "11 GB/s, measured: a test", "latency": "5 us, measured: a test"}})";
    const Ran ran =
        RunWeft({"plan", "llama-3.1-70b:q4_k_m", "--want", "1tok/s", "--machines", box, "--json"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    const nlohmann::json enough = ran.Json()["enough"];
    const auto two = std::ranges::find_if(
        enough, [&](const auto& offer) { return offer["machines"] == "2x" + box; });
    ASSERT_NE(two, enough.end()) << ran.out;
    EXPECT_EQ((*two)["price"], 3000);
}

// The last product of a shared expert is summed over ranks together with the other experts'.
TEST(PlanCommand, AdaptersThatRanksCannotShareAreRefused) {
    const Words words{"train",       "estimate", "qwen2-57b-a14b", "--machines", "2xh100",
                      "--lora-rank", "8",        "--tp",           "2"};
    const Ran ran = RunWeft(words);
    EXPECT_NE(ran.status, 0);
    EXPECT_NE(ran.err.find("not supported with --tp. Leave "), std::string::npos) << ran.err;
}

// The best layout answers soonest: a prompt over a slow wire is read by stages.
TEST(PlanCommand, LayoutsAreRankedByAWholeAnswer) {
    struct Asked {
        Words words;
        const char* best;
    };
    for (const Asked& asked :
         {Asked{{"gpt-oss-120b", "--machines", "2xstrix-halo,1gbe", "--prompt", "20480"}, "pp2"},
          Asked{{"gpt-oss-120b", "--machines", "2xstrix-halo,10gbe", "--prompt", "20480"}, "pp2"},
          // For a short prompt, bf16 and the overlap hide most of the wire's time.
          Asked{{"gpt-oss-120b", "--machines", "2xstrix-halo,10gbe"}, "tp2"},
          Asked{{"gpt-oss-120b", "--machines", "2xstrix-halo,10gbe", "--prompt", "20480",
                 "--answer", "20000"},
                "tp2"},
          Asked{{"gpt-oss-120b", "--machines", "2xstrix-halo,roce", "--prompt", "20480"}, "tp2"},
          Asked{{"qwen3-235b:q4_k_m", "--machines", "2xstrix-halo,5gbe", "--context", "8192",
                 "--prompt", "8192", "--answer", "500"},
                "pp2"},
          Asked{{"qwen3-235b:q4_k_m", "--machines", "2xstrix-halo,5gbe", "--context", "8192",
                 "--prompt", "8192", "--answer", "2000"},
                "tp2"}}) {
        const Ran ran = RunWeft(Words{"plan", "--json"} + asked.words);
        ASSERT_EQ(ran.status, 0) << ran.err;
        const nlohmann::json plan = ran.Json();
        const nlohmann::json layouts = plan["layouts"];
        EXPECT_EQ(layouts[0]["layout"], asked.best) << asked.words[2];
        double last = 0;
        for (const auto& layout : layouts) {
            if (!layout["fits"].get<bool>()) break;
            const double answer_s = layout["answer_s"];
            EXPECT_GE(answer_s, last);
            last = answer_s;
            EXPECT_NEAR(answer_s,
                        layout["ttft_s"].get<double>() +
                            plan["answer"].get<double>() / layout["tok_s"].get<double>(),
                        1e-9 * answer_s);
        }
    }
    // A server of 8 sequences reads 8 prompts.
    const Ran ran = RunWeft(
        {"plan", "qwen3-8b:q4_k_m", "--machines", "2xstrix-halo,10gbe", "--batch", "8", "--json"});
    const nlohmann::json plan = ran.Json(), best = plan["layouts"][0];
    EXPECT_EQ(plan["prompt"], 2048);
    EXPECT_EQ(plan["answer"], 512);
    EXPECT_NEAR(best["answer_s"].get<double>(),
                8 * best["ttft_s"].get<double>() + 8 * 512 / best["tok_s"].get<double>(), 1e-6);
}

// Unsaid, the prompt is half the context and the answer fits beside it.
TEST(PlanCommand, PromptAndAnswerFitTheContext) {
    SKIP_TO_NIGHT_UNLESS(false);
    const auto work = [](const Words& more) {
        const Words asked{"plan", "qwen3-0.6b", "--machines", "epyc-9654", "--json"};
        const Ran ran = RunWeft(asked + more);
        EXPECT_EQ(ran.status, 0) << ran.err;
        const nlohmann::json plan = ran.Json();
        return std::vector<int64_t>{plan["context"], plan["prompt"], plan["answer"]};
    };
    using Work = std::vector<int64_t>;
    EXPECT_EQ(work({}), (Work{4096, 2048, 512}));
    EXPECT_EQ(work({"--context", "64"}), (Work{64, 32, 32}));
    EXPECT_EQ(work({"--context", "1"}), (Work{2, 1, 1}));
    EXPECT_EQ(work({"--prompt", "20480"}), (Work{20992, 20480, 512}));
    EXPECT_EQ(work({"--prompt", "40959"}), (Work{40960, 40959, 1}));
    EXPECT_EQ(work({"--context", "1024", "--answer", "1000"}), (Work{1512, 512, 1000}));
    // --depth is a part of a given context; else it is beside the usual prompt.
    EXPECT_EQ(work({"--context", "4096", "--depth", "2500"}), (Work{4608, 1596, 512}));
    EXPECT_EQ(work({"--context", "40960", "--depth", "40000"}), (Work{40960, 959, 1}));
    EXPECT_EQ(work({"--depth", "2500"}), (Work{5060, 2048, 512}));
    const Ran over = RunWeft(
        {"plan", "qwen3-0.6b", "--machines", "epyc-9654", "--prompt", "40000", "--answer", "961"});
    EXPECT_EQ(over.status, 2);
    EXPECT_NE(over.err.find("is 40960 tokens"), std::string::npos) << over.err;
}

// With one machine fewer, the search misses the goal. The layout is the one that it finds.
TEST(PlanCommand, NoFewerMachinesDoIt) {
    SKIP_TO_NIGHT_UNLESS(false);
    struct Asked {
        const char *model, *want, *machine;
        double tok_s;
    };
    size_t turn = 0;
    for (const Asked& asked : {Asked{"qwen3-235b-a22b:q4_k_m", "20tok/s", "mi50-32gb", 20},
                               Asked{"deepseek-v3:q8_0", "5tok/s", "strix-halo", 5},
                               Asked{"llama-3.1-405b:q8_0", "1tok/s", "rtx-4090", 1}}) {
        if (!test::InTurn(turn++, 3)) continue;
        const Words model{"plan", asked.model, "--json", "--machines"};
        const Ran ran = RunWeft(model + Words{asked.machine, "--want", asked.want});
        ASSERT_EQ(ran.status, 0) << ran.err;
        const nlohmann::json enough = ran.Json()["enough"];
        ASSERT_GE(enough.size(), 1u) << ran.out;
        const std::string words = enough[0]["machines"];
        const auto best = [&](const std::string& machines) {
            const nlohmann::json found = RunWeft(model + Words{machines}).Json();
            return found["layouts"][0];
        };
        EXPECT_EQ(best(words)["layout"], enough[0]["layout"]) << words;
        EXPECT_DOUBLE_EQ(best(words)["tok_s"].get<double>(), enough[0]["tok_s"].get<double>());
        const int count = std::atoi(words.c_str());
        ASSERT_GT(count, 1) << words;
        const nlohmann::json fewer =
            best(fmt::format("{}{}", count - 1, words.substr(words.find('x'))));
        EXPECT_FALSE(fewer["fits"].get<bool>() && fewer["tok_s"].get<double>() >= asked.tok_s)
            << fewer["layout"] << fewer["tok_s"];
    }
}

// If fewer ranks or expert groups are best on a machine, the search by goal finds that, too.
TEST(PlanCommand, FewerRanksThanAMachineHasAreFoundBackwards) {
    SKIP_TO_NIGHT_UNLESS(false);
    for (const auto& [model, machine] :
         {std::pair("llama-3.1-405b:q4_k_m", "h100"), {"qwen2.5-0.5b", "rtx-3090:8"}}) {
        const Words asked{"plan", model, "--json", "--machines", machine};
        const nlohmann::json best = RunWeft(asked).Json()["layouts"][0];
        const std::string want = fmt::format("{:.2f}tok/s", best["tok_s"].get<double>() - 0.01);
        const Ran ran = RunWeft(asked + Words{"--want", want});
        ASSERT_EQ(ran.status, 0) << ran.err;
        const nlohmann::json enough = ran.Json()["enough"];
        ASSERT_EQ(enough.size(), 1u) << ran.out;
        EXPECT_EQ(enough[0]["machines"], machine);
        EXPECT_EQ(enough[0]["layout"], best["layout"]);
    }
}

// A prompt's time may be the only goal: cheapest offers first, none that a cheaper one beats.
TEST(PlanCommand, MachinesForAPromptAreCheapestFirst) {
    const Ran ran = RunWeft({"plan", "llama-2-7b:q4_0", "--ttft", "5s", "--json"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    const nlohmann::json enough = ran.Json()["enough"];
    ASSERT_GE(enough.size(), 2u) << ran.out;
    EXPECT_LT(enough[0]["price"].get<double>(), 1500) << enough[0];
    for (size_t i = 0; i < enough.size(); ++i) {
        EXPECT_LE(enough[i]["ttft_s"].get<double>(), 5) << enough[i];
        for (size_t j = 0; j < i; ++j) {
            EXPECT_LE(enough[j]["price"].get<double>(), enough[i]["price"].get<double>());
            EXPECT_TRUE(enough[j]["tok_s"] < enough[i]["tok_s"] ||
                        enough[j]["ttft_s"] > enough[i]["ttft_s"] ||
                        enough[j]["joules_per_token"] > enough[i]["joules_per_token"])
                << enough[j] << enough[i];
        }
    }
}

// Files of one name in two folders are two machines; offers name a file by its path.
TEST(PlanCommand, MachineFilesAreKnownByTheirPaths) {
    const test::TempDir one, two;
    const std::string fast = WriteMachine(one / "box.json", 300);
    const std::string slow = WriteMachine(two / "box.json", 3);
    const Words model{"plan", "synthetic:smollm2-135m:q8_0", "--context", "256", "--json"};
    const auto tp2 = [&](const std::string& first, const std::string& second) {
        const Ran ran = RunWeft(model + Words{"--machines", first + "+" + second + ",tcp"});
        EXPECT_EQ(ran.status, 0) << ran.err;
        const nlohmann::json layouts = ran.Json()["layouts"];
        return *std::ranges::find_if(layouts, [](const auto& l) { return l["layout"] == "tp2"; });
    };
    EXPECT_NEAR(tp2(fast, slow)["tok_s"].get<double>() / tp2(slow, fast)["tok_s"].get<double>(), 1,
                0.02);
    EXPECT_TRUE(tp2(fast, fast)["tensor_shares"].is_null());
    const auto weights = tp2(fast, slow)["memory"];
    EXPECT_GT(weights[0]["weight_bytes"].get<double>(), weights[1]["weight_bytes"].get<double>());
    std::ifstream in(fast);
    nlohmann::json machine = nlohmann::json::parse(in);
    machine["price"] = {{"is", "10 EUR"}, {"mark", "guessed"}, {"source", "a test"}};
    std::ofstream(fast) << machine.dump();
    const Ran ran = RunWeft(model + Words{"--machines", fast, "--want", "1tok/s"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(ran.Json()["enough"][0]["machines"], fast);
}

// A file of these ranks predicts them; how well is a matter of an idle machine (bench/plan.py).
TEST(PlanCommand, MeasuresThisMachine) {
    SKIP_TO_NIGHT_UNLESS(false);  // plan.measure_hosts measures daily
    const test::TempDir dir;
    const std::string file = dir / "here.json";
    Words measure{"plan", "--measure", "-o", file};
    std::istringstream options(
        "--local 2 -t 1 --measure-with synthetic:smollm2-135m --types q8_0 --kv-types q8_0 "
        "--measure-experts-with none --train-types bf16 --json --timeout-ms 60000");
    for (std::string word; options >> word;) measure.push_back(word);
    const Ran ran = RunWeft(measure);
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(ran.Json()["devices"], 2);
    std::ifstream in(file);
    const nlohmann::json machine = nlohmann::json::parse(in);
    EXPECT_EQ(machine["measured"]["ranks"], 2);
    for (const char* rows : {"1", "8", "32", "128", "512"}) {
        EXPECT_TRUE(machine["measured"]["products"]["Q8_0"].contains(rows)) << rows;
    }
    EXPECT_TRUE(machine["measured"]["all_reduce"].contains("8192"));
    const Ran plan = RunWeft({"plan", "synthetic:smollm2-135m:q8_0", "--machines", file,
                              "--context", "64", "--json", "--explain"});
    ASSERT_EQ(plan.status, 0) << plan.err;
    const nlohmann::json layouts = plan.Json()["layouts"];
    ASSERT_GE(layouts.size(), 2u);
    EXPECT_GT(layouts[0]["tok_s"].get<double>(), 0);
    const nlohmann::json& training = machine["measured"]["training"]["BF16"];
    for (const char* op : {"mat_mul", "mat_mul_grad_weight", "attention", "rms_norm", "glu"}) {
        EXPECT_TRUE(training["ops"][op].contains("512")) << op;
    }
    EXPECT_TRUE(machine["measured"]["alone"]["products"]["Q8_0"].contains("1"));
    EXPECT_TRUE(machine["measured"]["kv"].contains("Q8_0"));
    EXPECT_TRUE(machine["measured"]["kv"].contains("F16"));
    const Ran trains =
        RunWeft({"plan", "synthetic:smollm2-135m", "--train", "--machines", file, "--dp", "2",
                 "--zero", "0", "--seq-len", "128", "--micro-batch", "1", "--json"});
    ASSERT_EQ(trains.status, 0) << trains.err;
    EXPECT_GT(trains.Json()["layouts"][0]["tokens_per_s"].get<double>(), 0);
}

// Before anything is measured.
TEST(PlanCommand, ImpossibleMeasurementsFailAtOnce) {
    for (const auto& [arguments, said] : std::initializer_list<std::pair<Words, const char*>>{
             {{"--types", "q8_0,q9"}, "no weights of type 'q9'; known:"},
             {{"--kv-types", "f16,q4_1"},
              "--kv-types q4_1: expected f16, bf16, f32, q8_0, q5_1 or "},
             {{"--kv-types", "q9"}, "--kv-types q9: expected f16, bf16, f32, q8_0, q5_1 or q4_0"},
             {{"--train-types", "bf16,q4_0"}, "--train-types q4_0: expected bf16, f16 or f32"},
             {{"--measure-experts-with", "synthetic:q"}, "no synthetic model is named 'q'"},
             {{"--measure-training-with", "synthetic:q"}, "no synthetic model is named 'q'"},
             {{"--measure-with", "qwen3-8b"},
              "--measure-with qwen3-8b: expected synthetic:NAME"}}) {
        const Ran ran = RunWeft(Words{"plan", "--measure", "--local", "1"} + arguments);
        EXPECT_EQ(ran.status, 2) << ran.err;
        EXPECT_NE(ran.err.find(said), std::string::npos) << ran.err;
        EXPECT_EQ(ran.err.find("measuring"), std::string::npos) << ran.err;
    }
}

// A plan prints what it assumes, suggests and lacks.
TEST(PlanCommand, PrintsItsAssumptions) {
    struct Case {
        Words asked;
        std::vector<const char*> printed, missing;
    };
    const test::TempDir dir;
    std::filesystem::create_directory(dir / "a draft");
    const std::string draft = dir / "a draft/config.json", quoted = " --draft '" + draft + "'\n";
    std::ofstream(draft) << nlohmann::json{{"model_type", "llama"},
                                           {"hidden_size", 256},
                                           {"num_hidden_layers", 4},
                                           {"num_attention_heads", 4},
                                           {"num_key_value_heads", 2},
                                           {"intermediate_size", 768},
                                           {"vocab_size", 151936},
                                           {"rms_norm_eps", 1e-6},
                                           {"max_position_embeddings", 40960},
                                           {"tie_word_embeddings", true}};
    const Case cases[] = {
        {{"qwen3-235b:q8_0", "--machines", "strix-halo", "--batch", "2", "--kv-dtype", "q8_0"},
         {"fits: weft plan qwen3-235b:", " --machines strix-halo --batch 2 --kv-dtype q8_0\n"},
         {}},
        {{"llama-3.1-70b:q4_k_m", "--machines", "rtx-3090:2", "--draft", "llama-3.1-8b:bf16"},
         {"Without --draft the model fits", "1 host with 2 devices\n"},
         {"No smaller type fits", "devices each"}},
        {{"gpt-oss-20b", "--machines", "2xstrix-halo", "--answer", "1"},
         {"wire: roce, assumed: strix-halo's usual one", "and 1 token of answer"},
         {}},
        {{"gpt-oss-20b", "--machines", "2xstrix-halo,roce"}, {}, {"assumed: ", "unlike devices"}},
        {{"qwen3-0.6b", "--machines", "2xrtx-4090"},
         {"wire: 10gbe, assumed: rtx-4090's usual one; name another one, as --machines "
          "2xrtx-4090,roce\n"},
         {}},
        {{"qwen3-235b:q8_0", "--machines", "strix-halo", "--draft", draft},
         {"fits: weft plan qwen3-235b:", quoted.c_str()},
         {}},
        // A layout that does not fit is not run, with or without a self-test.
        {{"llama-3.1-405b:q8_0", "--machines", "dgx-spark+strix-halo,roce"},
         {"No layout fits"},
         {"unlike devices"}},
        {{"llama-3.1-70b:q4_k_m", "--machines", "dgx-spark+strix-halo,roce", "--explain"},
         {"; tp2 has tensor ranks on unlike devices", " --skip-self-test\n"},
         {}},
        {{"llama-3.1-405b:q8_0", "--machines", "raspberry-pi-4", "--context", "512"},
         {" h ±"},
         {" 0.0 ±"}}};
    for (const auto& [asked, printed, missing] : cases) {
        const Ran ran = RunWeft(Words{"plan"} + asked);
        ASSERT_EQ(ran.status, 0) << ran.err;
        for (const char* text : printed) {
            EXPECT_NE(ran.out.find(text), std::string::npos) << text << ran.out;
        }
        for (const char* text : missing) {
            EXPECT_EQ(ran.out.find(text), std::string::npos) << text << ran.out;
        }
    }
}

TEST(PlanCommand, InvalidArgumentsAreRejected) {
    for (const auto& [arguments, said] : std::initializer_list<std::pair<Words, const char*>>{
             {{"plan", "gpt-oss-20b", "--machines", "4xstrix-hola"}, "no machine is called"},
             {{"plan", "gpt-oss-20c", "--machines", "strix-halo"}, "no well-known model"},
             {{"plan", "gpt-oss-20b"}, "--machines"},
             {{"plan", "gpt-oss-20b:", "--machines", "strix-halo"},
              "'gpt-oss-20b:': expected a type behind the colon, as gpt-oss-20b:q4_k_m"},
             {{"plan", "gpt-oss-20b", "--machines", "2xstrix-halo,roce,tcp"},
              "one wire joins all hosts, not 'roce' and 'tcp'"},
             {{"plan", "llama-3.1-8b", "--machines", "strix-halo", "--draft", "qwen3-0.6b"},
              "its vocabulary has 151936 tokens, the model's 128256"},
             {{"plan", "gpt-oss-20b", "--machines", "strix-halo", "--batch", "0"}, "--batch"},
             {{"plan", "gpt-oss-20b", "--machines", "strix-halo", "--batch", "5000"}, "--batch"},
             {{"plan", "llama-4-scout", "--machines", "h200", "--context", "1000000", "--batch",
               "4000"},
              "'weft serve' has at most"}}) {
        const Ran ran = RunWeft(arguments);
        EXPECT_EQ(ran.status, 2) << ran.err;
        EXPECT_NE(ran.err.find(said), std::string::npos) << ran.err;
    }
}

}  // namespace
}  // namespace weft::support
