// --weights-from 0: ranks without a copy of the model get their shards from rank 0, and the answer
// equals that of ranks that read the file.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "support/process.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/wait.h"

namespace weft::support {
namespace {

class Feed : public testing::Test {
  protected:
    void SetUp() override {
        ::prctl(PR_SET_CHILD_SUBREAPER, 1);
        // With RoPE's factors, as in Llama 3.1 and later, which ranks need before they load.
        const std::vector<float> factors(static_cast<size_t>(OddHyper().rotary_dim) / 2, 1.5f);
        WriteTinyGguf(dir_ / "tiny.gguf", {.hyper = OddHyper(),
                                           .dtype = DType::kQ8_0,
                                           .vectors = {{"rope_freqs.weight", factors}}});
        key_ = dir_ / "key";
        std::ofstream(key_) << "a key for these tests only";
        ::chmod(key_.c_str(), 0600);
    }
    // tiny.gguf exists in this folder, but not in the workers' folders.
    Words Command() const {
        return {"run", "tiny.gguf", "-p", "hello", "-n", "40", "-t", "1", "--ignore-eos"};
    }
    std::unique_ptr<Weft> Listen() const {
        return std::make_unique<Weft>(
            Words{"worker", "--listen", "127.0.0.1:0", "--key-file", key_});
    }
    Words Hosts(const Weft& first, const Weft& second) const {
        return {"--hosts",
                fmt::format("127.0.0.1:{},127.0.0.1:{}", test::PortOf(first), test::PortOf(second)),
                "--key-file", key_};
    }

    test::TempDir dir_;
    std::string key_;
};

TEST_F(Feed, HostsWithoutTheFileGiveTheSameText) {
    auto first = Listen();
    auto second = Listen();
    const Words hosts = Hosts(*first, *second);
    const auto before = std::filesystem::current_path();
    std::filesystem::current_path(std::string(dir_ / "."));
    const Ran local = RunWeft(Command() + Words{"--tp", "3"});
    const Ran without = RunWeft(Command() + hosts);
    const Ran fed = RunWeft(Command() + hosts + Words{"--weights-from", "0"});
    const Ran stages = RunWeft(Command() + hosts + Words{"--pp", "3", "--weights-from", "0"});
    std::filesystem::current_path(before);
    ASSERT_EQ(local.status, 0) << local.err;
    EXPECT_NE(without.status, 0);
    EXPECT_NE(without.err.find("tiny.gguf"), std::string::npos) << without.err;
    EXPECT_EQ(fed.status, 0) << fed.err;
    EXPECT_EQ(fed.out, local.out);
    EXPECT_EQ(stages.status, 0) << stages.err;
    EXPECT_EQ(stages.out, local.out);
    for (auto* worker : {first.get(), second.get()}) ::kill(worker->pid(), SIGTERM);
    EXPECT_EQ(first->Wait(5000).status, 0);
    EXPECT_EQ(second->Wait(5000).status, 0);
}

// Every rank holds the data that it would have read, in every layout, and only rank 0 reads.
TEST_F(Feed, OnlyRankZeroReads) {
    const std::string model = dir_ / "tiny.gguf";
    for (const Words& layout :
         {Words{"--tp", "2", "--transport", "shm"}, Words{"--tp", "2", "--tensor-split", "2,1"},
          Words{"--tp", "3", "--transport", "tcp"}, Words{"--tp", "2", "--pp", "2"}}) {
        SCOPED_TRACE(testing::PrintToString(layout));
        const Words command =
            Words{"run", model, "-p", "hello", "-n", "12", "-t", "1", "--ignore-eos", "--json"} +
            layout;
        const Ran read = RunWeft(command);
        const Ran fed = RunWeft(command + Words{"--weights-from", "0"});
        ASSERT_EQ(read.status, 0) << read.err;
        ASSERT_EQ(fed.status, 0) << fed.err;
        const auto own = read.Json(), got = fed.Json();
        EXPECT_EQ(got["tokens"], own["tokens"]);
        ASSERT_EQ(got["ranks"].size(), own["ranks"].size());
        uint64_t all = 0;
        for (size_t r = 0; r < own["ranks"].size(); ++r) {
            all += own["ranks"][r]["read_bytes"].get<uint64_t>();
            if (r == 0) continue;
            EXPECT_EQ(got["ranks"][r]["received_bytes"], own["ranks"][r]["read_bytes"]);
            EXPECT_EQ(got["ranks"][r]["read_bytes"], 0);
        }
        EXPECT_EQ(got["ranks"][0]["read_bytes"].get<uint64_t>(), all);
    }
}

// A rank that dies while it is fed is named in time, or replaced and fed again.
TEST_F(Feed, ALossWhileFeedingIsNamedOrGotOver) {
    const Words command = {"run",
                           "synthetic:smollm2-135m",
                           "-p",
                           "hi",
                           "-n",
                           "8",
                           "-t",
                           "1",
                           "--tp",
                           "3",
                           "--weights-from",
                           "0",
                           "--timeout-ms",
                           std::to_string(test::TimeoutMs(2000))};
    const Ran undisturbed = RunWeft(command);
    ASSERT_EQ(undisturbed.status, 0) << undisturbed.err;
    for (const Words& more : {Words{}, Words{"--restart-timeout-ms", "20000"}}) {
        Weft weft(command + more, {"WEFT_LOG=debug"});
        test::Until([&] { return InPhase(weft.Err(), 2, "load"); });
        const std::vector<pid_t> ranks = test::ChildrenOf(weft.pid());
        ASSERT_EQ(ranks.size(), 2u) << weft.Err();
        ::kill(ranks[1], SIGKILL);
        const int64_t begin_ns = NowNs();
        const Ran ran = weft.Wait();
        EXPECT_NE(ran.err.find("was lost"), std::string::npos) << ran.err;
        if (more.empty()) {
            EXPECT_EQ(ran.status, 3) << ran.err;
            EXPECT_LE(NowNs() - begin_ns, test::LimitNs(5000)) << ran.err;
        } else {
            EXPECT_EQ(ran.status, 0) << ran.err;
            EXPECT_EQ(ran.out, undisturbed.out) << ran.err;
        }
    }
}

}  // namespace
}  // namespace weft::support
