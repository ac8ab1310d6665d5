// The steps before a server's first request fit each kind of model and small caches, and change no
// later result. (GPUs run them to compile their kernels.)
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/rank/rank.h"
#include "support/fake_cluster.h"
#include "support/hf_folder.h"
#include "support/hf_quantize.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"

namespace weft::engine {
namespace {

// A processor's device that claims to be a GPU.
class GpuByName final : public backend::Device {
  public:
    GpuByName() : info_(device_->info()) {
        info_.submits = true;
        info_.uses_host_cores = false;
    }
    const backend::DeviceInfo& info() const override { return info_; }
    backend::MemoryPool pool() const override { return device_->pool(); }
    Result<std::unique_ptr<backend::Executable>> Compile(
        program::ChunkedProgram program, const backend::CompileOptions& options) override {
        return device_->Compile(std::move(program), options);
    }
    double MeasurePeak(DType compute) override { return device_->MeasurePeak(compute); }

  private:
    std::shared_ptr<backend::Device> device_ = *backend::OpenDevice("cpu", {});
    backend::DeviceInfo info_;
};

class WarmUp : public testing::Test {
  protected:
    // The logits of a short prompt after Enter. ops: how many ops ran in Enter.
    std::vector<float> Logits(Job job, int64_t& ops) {
        job.threads = 1;
        job.self_test = false;
        test::FakeHub hub(1);
        test::FakeCluster cluster(hub, 0, 1);
        const auto rank = Rank::Make(job, cluster, nullptr, std::make_shared<GpuByName>());
        EXPECT_TRUE(rank.ok()) << rank.error().message;
        const Status entered = (*rank)->Enter();
        EXPECT_TRUE(entered.ok()) << entered.error().message;
        ops = cluster.progress();
        StepData step;
        StepData::Sequence sequence{.pages = {0}};
        sequence.state_to = (*rank)->state_slots() > 0 ? 0 : -1;
        step.Append(std::vector<int32_t>{5, 6, 7}, 0, sequence);
        step.output_rows = {2};
        std::vector<float> logits;
        EXPECT_TRUE((*rank)->Run(step).ok() && (*rank)->ReadLogits(1, logits).ok());
        const int64_t before = cluster.progress();
        EXPECT_TRUE((*rank)->Enter().ok());  // in the next epoch, the kernels are there
        EXPECT_EQ(cluster.progress(), before);
        return logits;
    }
    void Check(Job job) {
        int64_t cold = 0, warm = 0;
        const std::vector<float> want = Logits(job, cold);
        job.warm_up = true;
        EXPECT_EQ(Logits(job, warm), want);
        EXPECT_GT(warm, cold + 200);
    }
    const test::TempDir dir_;
};

TEST_F(WarmUp, FitsCachesOfAnySize) {
    support::WriteTinyGguf(dir_ / "tiny.gguf", {.hyper = support::OddHyper()});
    Job job;
    job.model = dir_ / "tiny.gguf";
    job.ctx = job.chunk = 300;
    Check(job);
    job.max_outputs = 7;
    job.kv_tokens = 5 * 320;
    job.chunk = 48;
    Check(job);
    job.ctx = job.kv_tokens = 64;
    job.chunk = 512;
    Check(job);
}

TEST_F(WarmUp, FitsRecurrentStatesAndWindows) {
    for (const std::string name : {"nemotronHMoe", "deepseekV4"}) {
        const support::HfGolden golden(support::TestData("/families/" + name + ".safetensors"));
        golden.Write(name, dir_ / name);
        support::WriteText(dir_ / name + "/tokenizer.json", support::SmallTokenizer());
        Job job;
        job.model = dir_ / name;
        job.ctx = job.chunk = 300;
        job.kv_tokens = 600;
        job.max_outputs = 4;
        job.state_slots = 3;
        Check(job);
    }
}

}  // namespace
}  // namespace weft::engine
