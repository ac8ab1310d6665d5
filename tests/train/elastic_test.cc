// Resizing a job to other numbers of ranks: the same batch, whole replicas, enough passes.
#include "train/elastic.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "model_files/content.h"
#include "support/fake_cluster.h"
#include "support/temp_dir.h"

namespace weft::train {
namespace {

TrainJob SomeJob() {
    TrainJob job;
    job.save.folder = "/tmp/out";
    job.save.every = 10;
    job.trainer.micro_batch = 2;
    job.trainer.accumulation = 3;
    return job;
}

TEST(Elastic, BatchStaysWhenRanksJoinAndLeave) {
    for (const auto& [tp, pp] : {std::pair{1, 1}, {2, 1}, {1, 2}, {2, 2}}) {
        TrainJob job = SomeJob();
        job.trainer.tp = tp;
        job.trainer.pp = pp;
        const int replica = tp * pp;
        ASSERT_TRUE(FixSize(job, 2 * replica).ok());
        EXPECT_EQ(job.global_batch, 12);
        EXPECT_TRUE(job.elastic);
        for (int ranks = 0; ranks <= 16 * replica; ++ranks) {
            const int usable = UsableRanks(job, ranks);
            EXPECT_EQ(usable, std::min(ranks / replica, 12) * replica);
            const auto resized = Resize(job, ranks);
            ASSERT_EQ(resized.ok(), ranks > 0 && usable == ranks) << ranks;
            if (!resized.ok()) continue;
            EXPECT_EQ(resized->global_batch, 12);
            EXPECT_EQ(resized->trainer.micro_batch, 2);
            const int64_t replicas = ranks / replica;
            const int64_t largest = (12 + replicas - 1) / replicas;
            const int64_t passes = resized->trainer.accumulation;
            EXPECT_GE(passes * 2, largest) << ranks;
            EXPECT_LT((passes - 1) * 2, largest) << ranks;
            // Resizing back restores it.
            const auto back = Resize(*resized, 2 * replica);
            ASSERT_TRUE(back.ok());
            EXPECT_EQ(TrainJobToJson(*back), TrainJobToJson(job));
        }
    }
}

TEST(Elastic, StagesThatTakeTurnsGetWholeTurns) {
    TrainJob job = SomeJob();
    job.trainer.pp = 4;
    job.trainer.virtual_stages = 2;
    job.trainer.accumulation = 4;
    ASSERT_TRUE(FixSize(job, 8).ok());
    const auto resized = Resize(job, 12);
    ASSERT_TRUE(resized.ok()) << resized.error().message;
    EXPECT_EQ(resized->trainer.accumulation, 4);  // 16 over 3: at most 6, in 3 passes
    EXPECT_TRUE(CheckTrainer(resized->trainer).ok());
}

TEST(Elastic, TheTypeOfGradientsStays) {
    TrainJob job = SomeJob();
    job.trainer.dtype = DType::kBF16;
    ASSERT_EQ(job.trainer.grad_dtype, "auto");
    TrainJob larger = job;
    ASSERT_TRUE(FixSize(job, 2).ok());  // 6 passes: in bfloat16
    ASSERT_TRUE(FixSize(larger, 4).ok());
    EXPECT_EQ(job.trainer.grad_dtype, "bf16");
    EXPECT_EQ(larger.trainer.grad_dtype, "f32");
    EXPECT_EQ(GradientTypeOf(Resize(job, 12)->trainer, 12), DType::kBF16);
    EXPECT_EQ(GradientTypeOf(Resize(larger, 1)->trainer, 1), DType::kF32);
}

// A host that has died does not keep the others for longer than a timeout, unless they need it.
TEST(Elastic, WaitsForALostRankAsLongAsItHelps) {
    const auto wait_ms = [](int tp, bool elastic, bool hosts) {
        TrainJob job = SomeJob();
        job.trainer.tp = tp;
        cluster::ClusterOptions options;
        options.elastic = elastic;
        options.timeout_ms = 7000;
        if (hosts) options.hosts = {"b:7000", "c:7000"};
        EXPECT_TRUE(PlanRecovery(job, 3, options).ok());
        return options.rejoin_ms;
    };
    EXPECT_EQ(wait_ms(1, false, true), 7000);
    EXPECT_EQ(wait_ms(3, false, true), 7000);
    EXPECT_EQ(wait_ms(1, true, true), 10'000);
    EXPECT_EQ(wait_ms(3, true, true), 60'000);
    EXPECT_EQ(wait_ms(1, false, false), 60'000);  // rank 0 starts its local ranks again
}

TEST(Elastic, GoingOnTakesCheckpoints) {
    for (const bool folder : {false, true}) {
        TrainJob job = SomeJob();
        if (folder) job.save.folder.clear();
        if (!folder) job.save.every = 0;
        const Status fixed = FixSize(job, 2);
        ASSERT_FALSE(fixed.ok());
        EXPECT_EQ(fixed.error().code, ErrorCode::kUsage);
        EXPECT_NE(fixed.error().message.find("--save-every"), std::string::npos);
    }
}

TEST(Elastic, MalformedJobsAndTermsAreRejected) {
    EXPECT_FALSE(ExamineForTraining({1, 2, "no job", ""}).ok());
    TrainJob job = SomeJob();
    ASSERT_TRUE(FixSize(job, 2).ok());
    EXPECT_FALSE(ExamineForTraining({1, 2, TrainJobToJson(job), "[1]"}).ok());
    job.trainer.model = "/nowhere/model.gguf";
    const Status fit = ExamineForTraining({1, 2, TrainJobToJson(job), "{}"});
    ASSERT_FALSE(fit.ok());
    EXPECT_NE(fit.error().message.find("/nowhere/model.gguf"), std::string::npos);
}

TEST(Elastic, RandomWeightsHaveTheSeedOfRankZero) {
    const test::TempDir folder;
    std::ofstream(folder.path() + "/config.json")
        << R"({"model_type": "llama", "hidden_size": 16, "intermediate_size": 32,
               "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 64,
               "max_position_embeddings": 64, "rms_norm_eps": 1e-5})";
    TrainJob job = SomeJob();
    ASSERT_TRUE(FixSize(job, 2).ok());
    job.trainer.model = folder.path();
    job.trainer.from_scratch = true;
    job.trainer.seed = 5;
    const auto model = OpenSource(job.trainer);
    ASSERT_TRUE(model.ok()) << model.error().message;
    const std::string identity = model_files::ReadIdentity(**model).value();
    job.trainer.seed = 6;  // of new data
    const auto is_other_model = [&](uint64_t seed) {
        const nlohmann::json terms = {{"model", identity}, {"model_seed", seed}};
        const Status fit = ExamineForTraining({1, 2, TrainJobToJson(job), terms.dump()});
        return !fit.ok() &&
               fit.error().message.find("differs from rank 0's model file") != std::string::npos;
    };
    EXPECT_FALSE(is_other_model(5));
    EXPECT_TRUE(is_other_model(6));
}

TEST(Growth, NamesTheCheckpointThatJoinersLack) {
    test::FakeHub hub(1);
    test::FakeCluster cluster(hub, 0, 1);
    Growth(cluster).RejectJoiners(40);
    EXPECT_EQ(cluster.rejections,
              std::vector<std::string>{
                  "the checkpoint of step 40 could not be written, so it cannot join now"});
}

}  // namespace
}  // namespace weft::train
