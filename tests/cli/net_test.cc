// weft net: its JSON (a contract), tables, cache, and ways to end.
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "support/nightly.h"
#include "support/process.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/wait.h"

namespace weft::support {
namespace {

using nlohmann::json;

std::set<std::string> NetKeys(const json& object) {
    std::set<std::string> keys;
    for (const auto& [key, value] : object.items()) keys.insert(key);
    return keys;
}

class Net : public testing::Test {
  protected:
    // A cache of tables for this test only.
    Words Environment() const { return {"XDG_CACHE_HOME=" + (dir_ / "cache")}; }
    Ran Run(const Words& words) const { return RunWeft(Words{"net"} + words, Environment()); }
    std::vector<std::string> CacheFiles() const {
        std::vector<std::string> files;
        std::error_code none;
        for (const auto& entry :
             std::filesystem::recursive_directory_iterator(dir_ / "cache", none)) {
            if (entry.is_regular_file()) files.push_back(entry.path());
        }
        return files;
    }
    test::TempDir dir_;
};

const Words kShort = {"--iters", "3", "--net-table", "off"};

TEST_F(Net, AllReduceJson) {
    const Ran ran = Run(
        {"allreduce", "--local", "2", "--transport", "shm", "--sizes", "64,8192,65536", "--json"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(std::ranges::count(ran.out, '\n'), 1);
    const json j = ran.Json();
    EXPECT_EQ(NetKeys(j), (std::set<std::string>{"transport", "ranks", "op", "links", "rows"}));
    ASSERT_EQ(j["links"].size(), 1u);
    EXPECT_EQ(j["links"][0]["from"], 0);
    EXPECT_EQ(j["links"][0]["to"], 1);
    EXPECT_EQ(j["links"][0]["transport"], "shm");
    EXPECT_EQ(j["transport"], "shm");
    EXPECT_EQ(j["ranks"], 2);
    EXPECT_EQ(j["op"], "allreduce");
    ASSERT_EQ(j["rows"].size(), 3u);
    const int sizes[] = {64, 8192, 65536};
    for (size_t i = 0; i < 3; ++i) {
        const json& row = j["rows"][i];
        EXPECT_EQ(NetKeys(row), (std::set<std::string>{"size", "algorithm", "wire", "p50_us",
                                                       "p99_us", "algbw_gbps", "errors"}));
        EXPECT_EQ(row["size"], sizes[i]);
        EXPECT_NE(row["algorithm"], "auto");
        EXPECT_EQ(row["wire"], "full");
        EXPECT_EQ(row["errors"], 0);
        const double p50 = row["p50_us"], p99 = row["p99_us"], bandwidth = row["algbw_gbps"];
        EXPECT_GT(p50, 0.0);
        EXPECT_GE(p99, p50);
        EXPECT_LE(std::abs(bandwidth - sizes[i] / p50 * 1e-3), 1e-3 * bandwidth + 1e-5);
    }
}

// With more than 128 ranks, the window of a link is smaller than the largest message.
TEST_F(Net, AllReduceOfManyRanks) {
    SKIP_TO_NIGHT_UNLESS(false);
    const Ran ran = Run(
        Words{"allreduce", "--local", "132", "--sizes", "8,1M", "--timeout-ms", "60000", "--json"} +
        kShort);
    ASSERT_EQ(ran.status, 0) << ran.err;
    for (const json& row : ran.Json()["rows"]) EXPECT_EQ(row["errors"], 0);
}

TEST_F(Net, EveryOpOverSeveralTransports) {
    for (const char* op : {"allreduce", "allgather", "reducescatter", "alltoall"}) {
        const Ran ran = Run(Words{op, "--local", "3", "--transport", "shm,tcp", "--sizes",
                                  "12:1200:x10,4", "--json"} +
                            kShort);
        ASSERT_EQ(ran.status, 0) << ran.err;
        const json j = ran.Json();
        ASSERT_EQ(j.size(), 2u);
        EXPECT_EQ(j[0]["transport"], "shm");
        EXPECT_EQ(j[1]["transport"], "tcp");
        for (const json& report : j) {
            EXPECT_EQ(report["op"], op);
            EXPECT_EQ(report["ranks"], 3);
            ASSERT_EQ(report["rows"].size(), 4u);
            EXPECT_EQ(report["rows"][2]["size"], 1200);
            // Ranks have equal integer parts.
            EXPECT_EQ(report["rows"][3]["size"], std::string(op) == "allreduce" ? 4 : 12);
            for (const json& row : report["rows"]) EXPECT_EQ(row["errors"], 0);
        }
    }
}

// (No launcher started these ranks, so MPI is missing. Verbs may be there.)
TEST_F(Net, AMissingTransportDoesNotHideTheOthers) {
    const Words job = Words{"lat", "--local", "2", "--sizes", "64"} + kShort;
    const Ran ran = Run(job + Words{"--transport", "mpi,verbs,tcp", "--json"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    const json j = ran.Json();
    ASSERT_EQ(j.size(), 3u) << ran.out;
    std::map<std::string, json> by_name;
    for (const json& report : j) by_name[report["transport"]] = report;
    EXPECT_NE(by_name["mpi"]["error"].get<std::string>().find("mpirun"), std::string::npos);
    EXPECT_EQ(by_name["tcp"]["rows"].size(), 1u);
    EXPECT_NE(ran.err.find("--transport mpi is left out"), std::string::npos) << ran.err;
    const Ran none = Run(job + Words{"--transport", "mpi,mpi"});
    EXPECT_EQ(none.status, 2) << none.err;
}

TEST_F(Net, WaysOfGathersAndReduceScatters) {
    for (const char* op : {"allgather", "reducescatter"}) {
        const json j = Run(Words{op, "--local", "3", "--sizes", "12K", "--algorithm",
                                 "auto,one_shot,hierarchical", "--json"} +
                           kShort)
                           .Json();
        ASSERT_EQ(j["rows"].size(), 3u);
        EXPECT_EQ(j["rows"][0]["algorithm"], "one_shot");  // one host
        EXPECT_EQ(j["rows"][2]["algorithm"], "hierarchical");
        for (const json& row : j["rows"]) EXPECT_EQ(row["errors"], 0);
    }
}

TEST_F(Net, AlgorithmsAndWires) {
    const json j = Run(Words{"allreduce", "--local", "2", "--sizes", "4K", "--algorithm", "all",
                             "--allreduce-dtype", "full,q8", "--json"} +
                       kShort)
                       .Json();
    ASSERT_EQ(j["rows"].size(), 8u);
    std::set<std::string> algorithms, wires;
    for (const json& row : j["rows"]) {
        algorithms.insert(row["algorithm"]);
        wires.insert(row["wire"]);
        EXPECT_EQ(row["errors"], 0);
    }
    EXPECT_EQ(algorithms,
              (std::set<std::string>{"one_shot", "two_shot", "ring", "recursive_doubling"}));
    EXPECT_EQ(wires, (std::set<std::string>{"full", "q8"}));
}

TEST_F(Net, PairsAsJson) {
    for (const std::string op : {"lat", "bw"}) {
        const json j = Run(Words{op, "--local", "3", "--sizes", "8,1M", "--json"} + kShort).Json();
        EXPECT_EQ(j["op"], op);
        ASSERT_EQ(j["rows"].size(), op == "lat" ? 6u : 12u);
        std::set<std::pair<int, int>> pairs;
        for (const json& row : j["rows"]) {
            pairs.emplace(row["from"].get<int>(), row["to"].get<int>());
            EXPECT_NE(row["from"], row["to"]);
            EXPECT_EQ(row["algorithm"], "put");
            EXPECT_EQ(row["errors"], 0);
            EXPECT_GT(row["p50_us"], 0.0);
            EXPECT_GE(row["p99_us"], row["p50_us"]);
            EXPECT_GT(row["algbw_gbps"], 0.0);
            EXPECT_EQ(row["iterations"], 3);
        }
        EXPECT_EQ(pairs.size(), op == "lat" ? 3u : 6u);
    }
}

TEST_F(Net, TablesHaveTheColumnsOfTheirPeers) {
    const auto expect = [](const Ran& ran, const Words& words) {
        EXPECT_EQ(ran.status, 0) << ran.err;
        for (const std::string& word : words) {
            EXPECT_NE(ran.out.find(word), std::string::npos) << word << "\n" << ran.out;
        }
        EXPECT_TRUE(ran.err.empty()) << ran.err;
    };
    expect(Run(Words{"lat", "--local", "2", "--sizes", "8"} + kShort),
           {"#bytes", "#iterations", "t_min[usec]", "t_max[usec]", "t_typical[usec]", "t_avg[usec]",
            "t_stdev[usec]", "99% percentile[usec]", "99.9% percentile[usec]"});
    expect(Run(Words{"bw", "--local", "3", "--sizes", "8,4K"} + kShort),
           {"BW peak[MiB/sec]", "BW average[MiB/sec]", "MsgRate[Mpps]", "rank 2",
            "Bandwidth of 4096 bytes, every pair", "The slowest link"});
    expect(Run(Words{"allreduce", "--local", "2", "--sizes", "8K"} + kShort),
           {"size", "count", "type", "algbw", "busbw", "#wrong", "2048", "A sync of 8 KB costs",
            "61-layer model at TP=2", "ms per token on the wire (123 syncs"});
}

TEST_F(Net, TheTableIsMeasuredThenKept) {
    const Words command = {"--local", "2", "--transport", "shm", "--json"};
    const json first = Run(command).Json();
    EXPECT_EQ(first["op"], "table");
    ASSERT_EQ(first["table"]["all_reduce"].is_array(), true);
    if (first["source"] == "built_in") GTEST_SKIP() << "more ranks than cores here";
    EXPECT_EQ(first["source"], "measured");
    ASSERT_EQ(CacheFiles().size(), 1u);
    const std::string path = CacheFiles()[0];
    // On a busy machine it may distrust the table and measure again.
    const json second = Run(Words{"table"} + command).Json();
    EXPECT_TRUE(second["source"] == "cached" || second["source"] == "measured");
    EXPECT_EQ(Run(command + Words{"--net-table", "remeasure"}).Json()["source"], "measured");
    EXPECT_EQ(Run(command + Words{"--net-table", "off"}).Json()["source"], "built_in");

    // Times that are wrong by a factor of a thousand: stale.
    json cache = json::parse(std::ifstream(path));
    for (json& row : cache["table"]["all_reduce"]) {
        row["p50_us"] = row["p50_us"].get<double>() * 1e5;
    }
    std::ofstream(path) << cache;
    EXPECT_EQ(Run(command).Json()["source"], "measured");

    // Any other content is not a table and is replaced.
    json lossy = cache, negative = cache, strange = cache;
    lossy["table"]["all_reduce"][0]["wire"] = "q8";
    negative["table"]["all_reduce"][0]["p50_us"] = -1;
    strange["fingerprint"] = "another machine";
    for (const std::string& text :
         {lossy.dump(), std::string("{"), std::string("[1,2]"), std::string(300'000, 'x'),
          std::string("{\"fingerprint\":1,\"table\":[]}"), negative.dump(), std::string(),
          std::string("\xff\xfe\0\x01", 4), std::string(5'000, '['), strange.dump()}) {
        std::ofstream(path) << text;
        const Ran ran = Run(command);
        ASSERT_EQ(ran.status, 0) << ran.err;
        EXPECT_EQ(ran.Json()["source"], "measured") << text.substr(0, 100);
        // (The number of rows depends on how long measuring took.)
        const json again = json::parse(std::ifstream(path));
        EXPECT_EQ(again["fingerprint"], cache["fingerprint"]);
        EXPECT_FALSE(again["table"]["all_reduce"].empty());
    }
    // An unwritable cache folder is not an error.
    std::ofstream(dir_ / "file") << "x";
    const Ran nowhere = RunWeft(Words{"net"} + command, {"XDG_CACHE_HOME=" + (dir_ / "file")});
    EXPECT_EQ(nowhere.status, 0) << nowhere.err;
    EXPECT_EQ(nowhere.Json()["source"], "measured");
}

TEST_F(Net, Refusals) {
    const auto refused = [&](const Words& words, const std::string& word) {
        const Ran ran = Run(words);
        EXPECT_EQ(ran.status, 2) << ran.err;
        EXPECT_EQ(std::ranges::count(ran.err, '\n'), 1) << ran.err;
        EXPECT_NE(ran.err.find(word), std::string::npos) << ran.err;
    };
    refused({"lat"}, "--local 2");
    refused({"lat", "--local", "2", "--sizes", "8,x"}, "'x'");
    refused({"lat", "--local", "2", "--sizes", "0"}, "0 bytes");
    refused({"lat", "--local", "2", "--sizes", "64:8"}, "64:8");
    refused({"lat", "--local", "2", "--sizes", "8:16:x1"}, "8:16:x1");
    refused({"lat", "--local", "2", "--sizes", "1:1000:+1"}, "256");
    refused({"lat", "--local", "2", "--sizes", "300M"}, "expected 1 to");
    refused({"lat", "--local", "2", "--transport", "shm,pigeon"}, "pigeon");
    refused({"allreduce", "--local", "2", "--algorithm", "magic"}, "magic");
    refused({"allgather", "--local", "2", "--algorithm", "ring"},
            "allgather does not use ring, but one_shot or hierarchical");
    refused({"allreduce", "--local", "2", "--allreduce-dtype", "f8"}, "f8");
    refused({"nothing"}, "has no command 'nothing'");
    refused({"lat", "--hosts", "127.0.0.1:1"}, "--key-file");
}

TEST_F(Net, ALostRankIsNamed) {
    for (const char* op : {"lat", "bw", "allreduce"}) {
        Weft weft(Words{"net", op, "--local", "3", "--seconds", "600", "--sizes", "1M",
                        "--transport", "shm", "--timeout-ms", std::to_string(test::TimeoutMs(800))},
                  Environment());
        const std::vector<pid_t> children = test::ChildrenAre(weft.pid(), 2);
        ASSERT_EQ(children.size(), 2u);
        ASSERT_TRUE(test::Computes(children[0], 3));
        ::kill(children[0], SIGKILL);
        const Ran ran = weft.Wait(10'000);
        EXPECT_EQ(ran.status, 3) << ran.err;
        EXPECT_NE(ran.err.find("rank 1 (host "), std::string::npos) << ran.err;
        EXPECT_NE(ran.err.find("was lost"), std::string::npos) << ran.err;
        for (pid_t pid : children) EXPECT_TRUE(test::IsGone(pid));
    }
}

TEST_F(Net, InterruptEndsAllRanks) {
    for (const char* op : {"lat", "bw", "allreduce"}) {
        Weft weft(Words{"net", op, "--local", "2", "--seconds", "600", "--sizes", "1M",
                        "--transport", "shm"},
                  Environment());
        const std::vector<pid_t> children = test::ChildrenAre(weft.pid(), 1);
        for (const pid_t child : children) ASSERT_TRUE(test::Computes(child, 3));
        ::kill(weft.pid(), SIGINT);
        const Ran ran = weft.Wait(10'000);
        EXPECT_EQ(ran.status, 130) << ran.err;
        for (pid_t pid : children) EXPECT_TRUE(test::IsGone(pid));
    }
}

}  // namespace
}  // namespace weft::support
