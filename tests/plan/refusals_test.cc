// Refusals of `weft plan`: figures and flags that would make a prediction meaningless.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <fstream>

#include "cluster/frame.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"

namespace weft::support {
namespace {

struct Refusal {
    Words arguments;
    const char* said;
};

void ExpectPlanRefused(const Words& command, const std::vector<Refusal>& cases) {
    for (const auto& [arguments, said] : cases) {
        SCOPED_TRACE(testing::PrintToString(command + arguments));
        const Ran ran = RunWeft(command + arguments);
        EXPECT_EQ(ran.status, 2) << ran.err;
        EXPECT_EQ(ran.out.find("layout"), std::string::npos) << ran.out;
        EXPECT_NE(ran.err.find(said), std::string::npos) << ran.err;
    }
}

// A layout of more ranks than Weft runs has no command, and submit refuses it.
TEST(PlanRefuses, MoreRanksThanWeftRuns) {
    const auto submit = [](size_t nodes) {
        return RunWeft({"submit", "--to", "slurm", "-N", std::to_string(nodes), "--dry-run", "--",
                        "run", "model.gguf", "-p", "hello"});
    };
    EXPECT_EQ(submit(cluster::kMostRanks).status, 0);
    const Ran more = submit(cluster::kMostRanks + 1);
    EXPECT_EQ(more.status, 2);
    EXPECT_NE(more.err.find("1 to 4096 ranks"), std::string::npos) << more.err;
    const std::string machines = fmt::format("{}xh100", cluster::kMostRanks / 8 + 1);
    const Ran serves = RunWeft({"plan", "smollm2-135m", "--machines", machines});
    EXPECT_EQ(serves.status, 2);
    EXPECT_NE(serves.err.find("at most 4096 are searched"), std::string::npos) << serves.err;
    const Ran trains =
        RunWeft({"plan", "smollm2-135m", "--train", "--machines", machines, "--json"});
    ASSERT_EQ(trains.status, 0) << trains.err;
    EXPECT_NE(trains.Json()["note"].get<std::string>().find("at most 4096 ranks"),
              std::string::npos);
}

TEST(PlanRefuses, NumbersThatAreNotFinite) {
    ExpectPlanRefused(
        {"plan", "gpt-oss-20b", "--machines", "2xstrix-halo,roce"},
        {{{"--draft", "gpt-oss-20b", "--draft-accepted", "nan"},
          "--draft-accepted: 'nan': expected a finite number"},
         {{"--draft", "gpt-oss-20b", "--draft-accepted", "inf"}, "--draft-accepted"}});
    ExpectPlanRefused({"run", "synthetic:smollm2-135m", "-p", "x"},
                      {{{"--temp", "nan"}, "--temp"}, {{"--top-p", "nan"}, "--top-p"}});
}

TEST(PlanRefuses, MachinesAfterTheWire) {
    ExpectPlanRefused({"plan", "gpt-oss-20b", "--machines"},
                      {{{"2xstrix-halo,roce+2xrtx-3090"}, "'+2xrtx-3090' follows the wire"},
                       {{"strix-halo,10gbe+roce"}, "'+roce' follows the wire"}});
}

TEST(PlanRefuses, MoreContextThanTheModelHas) {
    ExpectPlanRefused(
        {"plan", "llama-2-7b:q4_0", "--machines", "1xh100"},
        {{{"--context", "1000000"}, "--context 1000000: the model's trained context"},
         {{"--prompt", "4097"}, "is 4096 tokens. Ask for 4096 or less"},
         {{"--context", "64", "--prompt", "65"},
          "--context 64: fewer than the 65 tokens of --depth and --prompt"},
         {{"--context", "64", "--prompt", "60", "--depth", "5"}, "--context 64: fewer than the 65"},
         {{"--context", "64", "--depth", "64"},
          "of --depth and --prompt. Use --context 65 or more, or a smaller --depth or --prompt"},
         {{"--prompt", "4000", "--depth", "97"},
          "--depth 97, a prompt of 4000 and an answer of 1 tokens"},
         {{"--prompt", "4000", "--answer", "97"}, "a prompt of 4000 and an answer of 97 tokens"},
         {{"--want", "1tok/s", "--context", "4097"}, "--context 4097"}});
    const Ran most = RunWeft(
        {"plan", "llama-2-7b:q4_0", "--machines", "1xh100", "--prompt", "4000", "--depth", "95"});
    EXPECT_EQ(most.status, 0) << most.err;
    // The usual context is no more than the model's.
    const Ran short_one =
        RunWeft({"plan", "tinyllama-1.1b", "--machines", "1xh100", "--json", "--explain"});
    ASSERT_EQ(short_one.status, 0) << short_one.err;
    EXPECT_EQ(short_one.Json()["context"], 2048);
}

TEST(PlanRefuses, FlagsThatWouldDoNothing) {
    const Words model{"plan", "llama-3.1-8b"};
    ExpectPlanRefused(model + Words{"--machines", "h100"},
                      {{{"--budget", "8000EUR", "--explain"}, "--explain describes one plan"},
                       {{"--draft-tokens", "4"}, "--draft-tokens requires --draft"},
                       {{"--draft-accepted", "0.7"}, "--draft-accepted requires --draft"},
                       {{"--local", "2"}, "--local requires --measure"},
                       {{"--hostfile", "hosts"}, "--hostfile requires --measure"},
                       {{"--cluster", "lab"}, "--cluster requires --measure"},
                       {{"--expect-workers", "2"}, "--expect-workers requires --measure"},
                       {{"--listen", "127.0.0.1:0"}, "--listen requires --measure"},
                       {{"--types", "q8_0"}, "--types requires --measure"},
                       {{"--kv-types", "q8_0"}, "--kv-types requires --measure"},
                       {{"-o", "lab.json"}, "-o requires --measure"},
                       {{"--measure"}, "it takes no --machines"},
                       {{"--budget", "8000USD"}, "--budget: '8000USD': prices are in EUR"}});
    ExpectPlanRefused(model + Words{"--train", "--machines", "h100"},
                      {{{"--context", "4096"}, "--train: --context is a flag of inference"},
                       {{"--batch", "8"}, "--train: --batch is a flag of inference"},
                       {{"--kv-dtype", "q8_0"}, "--train: --kv-dtype is a flag of inference"},
                       {{"--draft", "llama-3.2-1b"}, "--train: --draft is a flag of inference"}});
    ExpectPlanRefused({"plan", "llama-3.1-8b:q4_0", "--train", "--machines", "h100"},
                      {{{}, "a training has weights of --dtype (bf16), not of 'q4_0'"}});
    ExpectPlanRefused({"plan", "--measure", "--local", "1"},
                      {{{"llama-3.1-8b"}, "it takes no MODEL"},
                       {{"--want", "5tok/s"}, "it takes no --want"},
                       {{"--batch", "2"}, "it takes no --batch"},
                       {{"--train"}, "it takes no --train"}});
    const Ran adapters = RunWeft({"plan", "llama-3.1-8b:bf16", "--train", "--machines", "2xh100"});
    EXPECT_EQ(adapters.status, 0) << adapters.err;
}

TEST(PlanRefuses, NumbersOutOfRange) {
    ExpectPlanRefused({"plan", "llama-3.1-8b", "--machines"},
                      {{{"16384xh100"}, "layouts of at most 4096 are searched"},
                       {{"16385xh100"}, "expected 1 to 16384 machines"},
                       {{"rtx-3090:3.5"}, "'rtx-3090:3.5': expected 1 to 64 devices in a host"},
                       {{"h100", "--want=-5tok/s"}, "--want: '-5tok/s' is out of range"}});
    const Ran minutes = RunWeft({"plan", "llama-3.1-8b", "--machines", "h100", "--ttft", "5m"});
    EXPECT_EQ(minutes.status, 0) << minutes.err;
}

// Ranks of one host share its memory: the error states their sum and the host's memory.
TEST(PlanRefuses, SharedMemoryIsShownAsItCounts) {
    const test::TempDir dir;
    const auto figure = [](const std::string& is) {
        return nlohmann::json{{"is", is}, {"mark", "guessed"}, {"source", "a test"}};
    };
    const std::string box = dir / "box.json";
    const auto write = [&](const char* memory) {
        const nlohmann::json tier = {
            {"ranks", 2}, {"bandwidth", figure("50 GB/s")}, {"latency", figure("2 us")}};
        const nlohmann::json machine = {{"devices", 2},
                                        {"pool", "unified"},
                                        {"memory", figure(memory)},
                                        {"bandwidth", figure("200 GB/s")},
                                        {"compute", figure("10 TFLOP/s")},
                                        {"tiers", {{"host", tier}}}};
        std::ofstream(box) << machine.dump();
    };
    for (const auto& [memory, fits] : {std::pair{"22 GB", true}, std::pair{"15 GB", false}}) {
        write(memory);
        const Words asked{"plan", "llama-3.1-70b:q4_0", "--machines", box};
        const Ran ran = RunWeft(asked + Words{"--json"});
        ASSERT_EQ(ran.status, 0) << ran.err;
        const double room = std::stod(memory) * 2e9;
        const nlohmann::json layouts = ran.Json()["layouts"];
        for (const auto& layout : layouts) {
            double sum = 0;
            for (const auto& rank : layout["memory"]) {
                for (const auto& [key, bytes] : rank.items()) {
                    if (key != "rank") sum += bytes.get<double>();
                }
            }
            EXPECT_EQ(layout["fits"], fits) << layout;
            EXPECT_EQ(layout["worst_rank_room_bytes"].get<double>(), room) << layout;
            EXPECT_EQ(layout["worst_rank_bytes"].get<double>(), sum) << layout;
            EXPECT_EQ(sum <= room, fits) << layout;
        }
        EXPECT_NE(RunWeft(asked).out.find(fmt::format("of {:.1f} GB", room * 1e-9)),
                  std::string::npos);
    }
}

}  // namespace
}  // namespace weft::support
