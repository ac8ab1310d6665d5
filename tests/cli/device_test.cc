// --device: the list of devices, and ranks whose devices would compute different bits.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <fstream>

#include "backend/cpu/cpu_device.h"
#include "hw/cpu.h"
#include "support/process.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/wait.h"

namespace weft::support {
namespace {

class Devices : public testing::Test {
  protected:
    void SetUp() override {
        ::prctl(PR_SET_CHILD_SUBREAPER, 1);
        WriteTinyGguf(model_, {.hyper = OddHyper(), .dtype = DType::kF16});
        std::ofstream(key_) << "a key for these tests only";
        ::chmod(key_.c_str(), 0600);
    }
    Words Command(const Words& more) const {
        return Words{"run", model_, "-p", "hello", "-n", "12", "-t", "1", "--ignore-eos"} + more;
    }

    test::TempDir dir_;
    std::string model_ = dir_ / "tiny.gguf", key_ = dir_ / "key";
};

TEST_F(Devices, TheCpuIsTheDefault) {
    const Ran plain = RunWeft(Command({}));
    const Ran named = RunWeft(Command({"--device", "cpu", "--local", "2", "--tp", "2"}));
    ASSERT_EQ(plain.status, 0) << plain.err;
    ASSERT_EQ(named.status, 0) << named.err;
    EXPECT_EQ(named.out, plain.out);
}

TEST_F(Devices, OthersAreUsageErrorsThatSayWhatThereIs) {
    for (const char* name : {"vulkan:x", "CPU", "", "cuda:x", "rocm"}) {
        for (const Words& command :
             {Command({}), Words{"serve", model_}, Words{"bench", model_},
              Words{"train", model_, "--data", "none.jsonl", "--output-dir", dir_ / "out"}}) {
            const Ran ran = RunWeft(command + Words{"--device", name});
            EXPECT_EQ(ran.status, 2) << command[0] << " " << name << ": " << ran.err;
            EXPECT_NE(ran.err.find("cpu"), std::string::npos) << ran.err;
        }
    }
}

TEST_F(Devices, TensorRanksOfUnlikeOnesAreRefusedAndStagesAreNot) {
    if (BestCpuLevel(DetectCpu()) == CpuLevel::kReference) {
        GTEST_SKIP() << "this processor has no other kernels than the reference";
    }
    Weft worker(Words{"worker", "--listen", "127.0.0.1:0", "--key-file", key_},
                Words{"WEFT_CPU=reference"});
    const Words hosts = {"--hosts", fmt::format("127.0.0.1:{}", test::PortOf(worker)), "--key-file",
                         key_};

    const Ran refused = RunWeft(Command(hosts + Words{"--tp", "2"}));
    EXPECT_EQ(refused.status, 2) << refused.err;
    const std::string best = backend::DescribeCpu(BestCpuLevel(DetectCpu())).identity;
    for (const std::string& said : {best, std::string("cpu-reference"), std::string("--pp")}) {
        EXPECT_NE(refused.err.find(said), std::string::npos) << said << " in " << refused.err;
    }
    const Ran stages = RunWeft(Command(hosts + Words{"--pp", "2"}));
    EXPECT_EQ(stages.status, 0) << stages.err;
    // Without a requested layout, also with shares: reports the layout that runs.
    for (const Words& shares : {Words(), Words{"--tensor-split", "1,1"}}) {
        const Ran open = RunWeft(Command(hosts + shares));
        EXPECT_EQ(open.status, 0) << open.err;
        EXPECT_EQ(open.out, stages.out);
        for (const std::string& said : {std::string("layout: --pp 2, because rank 0 "), best,
                                        std::string("cpu-reference"), std::string("--tp 2")}) {
            EXPECT_NE(open.err.find(said), std::string::npos) << said << " in " << open.err;
        }
    }
    const Ran unproven = RunWeft(Command(hosts + Words{"--tp", "2", "--skip-self-test"}));
    EXPECT_EQ(unproven.status, 0) << unproven.err;
    ::kill(worker.pid(), SIGTERM);
    EXPECT_EQ(worker.Wait(5000).status, 0);
}

}  // namespace
}  // namespace weft::support
