// Tensor ranks whose devices have room for unlike parts of the model issue the same collectives.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "backend/cpu/cpu_device.h"
#include "backend/placed/placed_device.h"
#include "engine/rank/rank.h"
#include "net/local.h"
#include "support/fake_cluster.h"
#include "support/golden_experts.h"
#include "support/temp_dir.h"

namespace weft::engine {
namespace {

// A processor with the sums of a GPU.
class NarrowDevice final : public backend::Device {
  public:
    NarrowDevice() { info_.target.float64_reductions = false; }
    const backend::DeviceInfo& info() const override { return info_; }
    backend::MemoryPool pool() const override { return all_->pool(); }
    Result<std::unique_ptr<backend::Executable>> Compile(
        program::ChunkedProgram program, const backend::CompileOptions& options) override {
        return all_->Compile(std::move(program), options);
    }
    double MeasurePeak(DType) override { return 0; }

  private:
    const std::shared_ptr<backend::Device> all_ =
        backend::MakeCpuDevice({1, {}, true, CpuLevel::kReference});
    backend::DeviceInfo info_ = all_->info();
};

// A device of which a processor computes `layers` layers' experts.
std::shared_ptr<backend::Device> DeviceWith(int64_t layers) {
    auto device = std::make_shared<NarrowDevice>();
    if (layers == 0) return device;
    return backend::MakePlacedDevice(std::move(device), std::make_shared<NarrowDevice>(),
                                     {layers, 0});
}

class TensorRanks : public testing::Test {
  protected:
    void SetUp() override {
        support::WriteTinyGguf(dir_ / "experts.gguf", support::ExpertGoldenFile("mixtral"));
    }
    // The logits of a prompt. layers: by rank. tp, pp: the job's. Sets layout_ to what ran.
    std::vector<float> Logits(std::array<int64_t, 2> layers, int tp = 2, int pp = 1) {
        test::FakeHub hub(2);
        auto fabrics = *net::MakeLocalFabrics(2, net::Transport::kShm, 4 << 20);
        std::vector<float> logits;
        std::vector<std::thread> threads;
        for (int number = 0; number < 2; ++number) {
            threads.emplace_back([&, number] {
                const auto index = static_cast<size_t>(number);
                test::FakeCluster cluster(hub, number, 2, std::move(fabrics[index]));
                const Status ran = RunRank(cluster, DeviceWith(layers[index]), tp, pp, logits);
                EXPECT_TRUE(ran.ok()) << ran.error().message;
                if (!ran.ok()) cluster.ReportFailure(ran.error());
            });
        }
        for (std::thread& thread : threads) thread.join();
        return logits;
    }

    model::Layout layout_;
    test::TempDir dir_;

  private:
    Status RunRank(test::FakeCluster& cluster, std::shared_ptr<backend::Device> device, int tp,
                   int pp, std::vector<float>& logits) {
        Job job;
        job.model = dir_ / "experts.gguf";
        job.tp = tp;
        job.pp = pp;
        job.ctx = job.kv_tokens = 64;
        job.chunk = 16;
        job.self_test = false;
        job.overlap = backend::Overlap::kAlways;
        WEFT_ASSIGN(const auto rank, Rank::Make(job, cluster, nullptr, std::move(device)));
        WEFT_TRY(rank->Enter());
        StepData step;
        if (cluster.rank() != 0) {
            WEFT_TRY(rank->Receive(step));
            return rank->Run(step);
        }
        layout_ = rank->layout();
        const std::vector<int32_t> tokens = {3, 1, 4, 1, 5, 9, 2, 6};
        step.number = 1;
        step.Append(tokens, 0, {.pages = {0}});
        step.output_rows = {7};
        WEFT_TRY(rank->Run(step));
        return rank->ReadLogits(1, logits);
    }
};

TEST_F(TensorRanks, RunStepsInPartsTogether) {
    const std::vector<float> want = Logits({0, 0});
    ASSERT_FALSE(want.empty());
    for (const std::array<int64_t, 2> layers : {std::array<int64_t, 2>{0, 1}, {1, 0}}) {
        const std::vector<float> got = Logits(layers);
        ASSERT_EQ(got.size(), want.size());
        double error = 0, size = 0;
        for (size_t i = 0; i < got.size(); ++i) {
            error += std::pow(double{got[i]} - double{want[i]}, 2);
            size += std::pow(double{want[i]}, 2);
        }
        // (The bound of tests/backend/placed_test.cc.)
        EXPECT_FALSE(!(std::sqrt(error / size) <= 2e-5)) << std::sqrt(error / size);
    }
}

// Weft compares the devices before it chooses between tensor ranks and stages.
TEST_F(TensorRanks, AnOpenLayoutOfUnlikeDevicesIsAPipeline) {
    for (const std::array<int64_t, 2> layers : {std::array<int64_t, 2>{0, 1}, {1, 0}, {1, 1}}) {
        const bool alike = layers[0] == layers[1];
        const std::vector<float> want = Logits(layers, alike ? 2 : 1, alike ? 1 : 2);
        ASSERT_FALSE(want.empty());
        EXPECT_EQ(Logits(layers, 0, 0), want);
        EXPECT_EQ(layout_.pp, alike ? 1 : 2);
        EXPECT_EQ(layout_.tp, alike ? 2 : 1);
    }
}

// A host that may join a pipeline, as rank 1.
TEST_F(TensorRanks, AJoiningStageGivesTheBitsOfTheOthers) {
    const std::string own = DeviceWith(0)->info().identity;
    const auto fits = [&](const std::vector<std::string>& identities, bool self_test = true) {
        test::FakeHub hub(2);
        test::FakeCluster cluster(hub, 1, 2);
        cluster.memory = {"0 0", "0 0"};
        Job job;
        job.model = dir_ / "experts.gguf";
        job.pp = 2;
        job.ctx = job.kv_tokens = 64;
        job.self_test = self_test;
        const auto rank = Rank::Make(job, cluster, nullptr, DeviceWith(0));
        EXPECT_TRUE(rank.ok()) << rank.error().message;
        return rank.ok() ? (*rank)->CheckAlone(identities, 0) : Status(rank.error());
    };
    EXPECT_TRUE(fits({own}).ok()) << fits({own}).error().message;
    EXPECT_TRUE(fits({own, "cpu-other"}).ok()) << "in the place of an unlike rank";
    EXPECT_TRUE(fits({"cpu-other", own}).ok()) << "the ranks are unlike already";
    EXPECT_TRUE(fits({}).ok()) << "the ranks do not compare their devices";
    EXPECT_TRUE(fits({"cpu-other"}, false).ok());
    for (const auto& identities :
         {std::vector<std::string>{"cpu-other"}, {"cpu-other", ""}, {"cpu-other", "cpu-other"}}) {
        const Status refused = fits(identities);
        ASSERT_FALSE(refused.ok());
        EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
        for (const char* said :
             {"rank 0 (host a) computes on cpu-other, rank 1 (host b) on cpu-",
              "answers in progress would change", "WEFT_CPU", "--skip-self-test"}) {
            EXPECT_NE(refused.error().message.find(said), std::string::npos)
                << refused.error().message;
        }
    }
}

}  // namespace
}  // namespace weft::engine
