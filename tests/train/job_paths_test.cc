// Every field of a job that names a file of the receiver is checked against its folders
// (weft worker --folders): a new text field must be declared with visit.Path or be listed here.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "engine/job.h"
#include "fabric/job.h"
#include "support/temp_dir.h"
#include "train/train_job.h"

namespace weft {
namespace {

using nlohmann::json;
using Names = std::set<std::string>;
using Decode = std::function<Status(const std::string& text, const FolderLimit& limit)>;

class JobPaths : public testing::Test {
  protected:
    // The fields of `job` for which a path outside of the folder is refused, and the other fields
    // that hold any text.
    void Classify(const json& job, const Decode& decode, const std::string& at = "") {
        ASSERT_TRUE(decode(job.dump(), limit_).ok()) << decode(job.dump(), limit_).error().message;
        for (const auto& [name, value] : job.items()) {
            for (const json& outside : {json("/outside"), json::array({"/outside"})}) {
                json changed = job;
                changed[name] = outside;
                const Status status = decode(changed.dump(), limit_);
                if (status.ok()) texts_.insert(at + name);
                if (status.ok() || status.error().code != ErrorCode::kDenied) continue;
                EXPECT_NE(status.error().message.find("/outside is not in "), std::string::npos);
                EXPECT_TRUE(decode(changed.dump(), {}).ok()) << name;
                paths_.insert(at + name);
            }
            if (!value.is_array() || value.empty() || !value[0].is_object()) continue;
            const std::string list = name;
            Classify(
                value[0],
                [&](const std::string& item, const FolderLimit& limit) {
                    json changed = job;
                    changed[list] = json::array({json::parse(item)});
                    return decode(changed.dump(), limit);
                },
                list + ".");
        }
    }

    test::TempDir dir_;
    const FolderLimit limit_ = FolderLimit::Make({dir_.path()}).value();
    Names paths_, texts_;
};

TEST_F(JobPaths, OfInference) {
    engine::Job job;
    job.model = dir_ / "model.gguf";
    job.adapters = {{"a", dir_ / "adapter"}};
    const Decode decode = [](const std::string& text, const FolderLimit& limit) -> Status {
        const auto made = engine::JobFromJson(text, limit);
        return made.ok() ? Status() : Status(made.error());
    };
    Classify(json::parse(engine::JobToJson(job)), decode);
    EXPECT_EQ(paths_, (Names{"model", "adapters.folder", "cache_dir", "draft_folder", "slot_dir"}));
    EXPECT_EQ(texts_, (Names{"adapters.name"}));
    // With --weights-from 0, rank 0's files are used.
    job.model = "/outside";
    job.adapters[0].folder = "/outside";
    EXPECT_FALSE(decode(engine::JobToJson(job), limit_).ok());
    job.feed = true;
    EXPECT_TRUE(decode(engine::JobToJson(job), limit_).ok());
    job.feed = false;
    job.adapters.clear();
    job.model = "synthetic:tiny";
    EXPECT_TRUE(decode(engine::JobToJson(job), limit_).ok());
}

TEST_F(JobPaths, OfTraining) {
    train::TrainJob job;
    job.trainer.model = dir_ / "model.gguf";
    job.data.data = {dir_ / "data.jsonl"};
    const Decode decode = [](const std::string& text, const FolderLimit& limit) -> Status {
        const auto made = train::TrainJobFromJson(text, limit);
        return made.ok() ? Status() : Status(made.error());
    };
    Classify(json::parse(train::TrainJobToJson(job)), decode);
    EXPECT_EQ(paths_, (Names{"model", "lora_from", "optimizer_folder", "ref_model", "reward_models",
                             "data", "save_folder", "resume"}));
    EXPECT_EQ(texts_, (Names{"control_tokens", "device", "grad_dtype", "importance_level", "longs",
                             "lora_targets", "loss", "loss_type", "overlap", "pooling", "recompute",
                             // Only rank 0 computes rewards.
                             "reward_commands", "reward_regexes", "reward_schemas",
                             "sample_prompts", "scale_rewards"}));
    job.save.folder = dir_ / "out";
    job.save.resume = "auto";
    EXPECT_TRUE(decode(train::TrainJobToJson(job), limit_).ok());
}

TEST_F(JobPaths, OfMeasurements) {
    fabric::NetJob job;
    job.sizes = {8};
    const Decode decode = [](const std::string& text, const FolderLimit&) -> Status {
        const auto made = fabric::NetJobFromJson(text);
        return made.ok() ? Status() : Status(made.error());
    };
    Classify(json::parse(fabric::NetJobToJson(job)), decode);
    EXPECT_EQ(paths_, Names());
    EXPECT_EQ(texts_, Names());
}

}  // namespace
}  // namespace weft
