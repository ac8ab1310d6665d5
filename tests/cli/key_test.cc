// weft key: its output, the file that it writes, and refusals.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <span>

#include "base/hash.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"

namespace weft::support {
namespace {

TEST(Key, NewPrintsTheLineAndTheKeyApart) {
    const Ran ran = RunWeft({"key", "new", "alice", "--rate", "60", "--weight", "2.5"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    const size_t at = ran.err.find("weft-");
    ASSERT_NE(at, std::string::npos) << ran.err;
    const std::string key = ran.err.substr(at, ran.err.find('\n', at) - at);
    EXPECT_EQ(key.size(), 5u + 48u);  // 192 bits
    EXPECT_EQ(ran.out.find(key), std::string::npos);
    const std::string hash = Hex(Sha256(std::as_bytes(std::span(key))));
    EXPECT_EQ(ran.out, "alice " + hash + " rate=60 weight=2.5\n");
    EXPECT_EQ(ran.err.find(hash), std::string::npos);
    EXPECT_NE(RunWeft({"key", "new", "alice"}).out, RunWeft({"key", "new", "alice"}).out);
}

TEST(Key, WhatNewPrintsIsWhatCheckTakes) {
    test::TempDir dir;
    const std::string file = dir / "keys";
    {
        std::ofstream out(file);
        out << "# ours\n"
            << RunWeft({"key", "new", "a", "--tokens", "5000", "--concurrent", "2"}).out << "\n"
            << RunWeft({"key", "new", "b", "--priority", "-3", "--json"})
                   .Json()["line"]
                   .get<std::string>()
            << "\n";
    }
    ASSERT_EQ(::chmod(file.c_str(), 0600), 0);
    const Ran ran = RunWeft({"key", "check", file, "--json"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(ran.err, "");
    const auto keys = ran.Json();
    ASSERT_EQ(keys.size(), 2u);
    EXPECT_EQ(keys[0], (nlohmann::json{{"name", "a"},
                                       {"requests_per_minute", 0},
                                       {"tokens_per_minute", 5000},
                                       {"concurrent", 2},
                                       {"priority", 0},
                                       {"weight", 1.0},
                                       {"group", ""}}));
    EXPECT_EQ(keys[1]["priority"], -3);
    EXPECT_NE(RunWeft({"key", "check", file}).out.find("5000"), std::string::npos);

    ASSERT_EQ(::chmod(file.c_str(), 0644), 0);
    EXPECT_NE(RunWeft({"key", "check", file}).err.find("chmod 600"), std::string::npos);
}

TEST(Key, Refusals) {
    test::TempDir dir;
    std::ofstream(dir / "keys") << "\nalice 0123\n";
    const auto refused = [](const Words& arguments, int status, const std::string& word) {
        const Ran ran = RunWeft(arguments);
        EXPECT_EQ(ran.status, status) << ran.err;
        EXPECT_EQ(ran.out, "");
        EXPECT_EQ(ran.err.rfind("weft: error: ", 0), 0u) << ran.err;
        EXPECT_NE(ran.err.find(word), std::string::npos) << ran.err;
    };
    refused({"key"}, 2, "needs a command: new, check");
    refused({"key", "new"}, 2, "NAME");
    refused({"key", "new", "two words"}, 2, "two words");
    refused({"key", "new", "a", "--rate", "-1"}, 2, "rate");
    refused({"key", "new", "a", "--weight", "nan"}, 2, "weight");
    refused({"key", "check", dir / "keys"}, 1, "keys:2: expected NAME");
    refused({"key", "check", dir / "none"}, 1, "none");
}

}  // namespace
}  // namespace weft::support
