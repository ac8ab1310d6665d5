// Reward models (--reward-model): models with a score head of one output, which give completions a
// reward on the ranks that train.
//
// A reward model has a Program of its own beside the one in training: a forward pass without a KV
// cache, whose weights keep their types. It is cut over the tensor ranks and stages of a replica
// like the model in training, and each replica judges its own completions. The text that it reads
// is the one that --loss reward trains on: the prompt and the completion, rendered with the reward
// model's chat template and tokenizer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/device.h"
#include "base/result.h"
#include "cluster/cluster.h"
#include "model_files/model_file.h"
#include "train/grpo/rewards.h"
#include "train/parallel/groups.h"
#include "train/parallel/layout.h"

namespace weft::train {

// Opens a reward model. Errors name the flag: kUsage (no score head of one output), kUnsupported
// (an encoder), those of model_files::OpenModel.
Result<std::unique_ptr<model_files::ModelSource>> OpenRewardModel(const std::string& name);

struct RewardModelOptions {
    DType dtype = DType::kF32;  // type of the computation, as GraphOptions::dtype
    int64_t sequence = 0;       // most tokens of a text; a model with a shorter context reads less
    int64_t rows = 0;           // most rows of a step; at least `sequence`
    std::string day;            // that chat templates show (data/day.h)
};

// The data of the job that Score needs. All must outlive the call.
struct RewardModelRun {
    const TrainGroups& groups;
    int64_t step = 0;  // for messages between ranks
    std::function<bool()> stops;
};

class RewardModels {
  public:
    RewardModels();
    ~RewardModels();

    // Opens the models and plans their Programs on the device, and replaces earlier ones. The
    // device must outlive this object. Errors: those of OpenRewardModel and Device::Compile;
    // kUnsupported (a layout that does not divide the model).
    Status Plan(std::span<const std::string> models, const RewardModelOptions& options,
                const TrainLayout& layout, backend::Device& device);
    void Clear();
    // Bytes of weights and activations on this rank.
    uint64_t bytes() const;
    // As Executable::progress, of all models. Thread: any, while Score runs.
    int64_t progress() const;
    // Reads the weights. Collective. Errors: those of reading and of links.
    Status Load(cluster::Cluster& cluster);
    // By model: the reward of each completion, not activated; not a number: the model cannot read
    // its text, or it is too long. Collective; all ranks have the same completions, and get all
    // rewards. Errors: those of links, of Encoder and of the executable; kCorrupt (a reward is not
    // finite); kCancelled.
    Result<std::vector<std::vector<double>>> Score(std::span<const Judged> completions,
                                                   const RewardModelRun& run);

  private:
    class Model;
    std::vector<std::unique_ptr<Model>> models_;
};

}  // namespace weft::train
