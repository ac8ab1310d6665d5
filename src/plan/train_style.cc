#include "plan/train_style.h"

#include <fmt/ranges.h>

namespace weft::plan {
namespace {

// An op started by an eager framework: several microseconds of its host's time. Guessed.
constexpr double kEagerOp = 12e-6;
// Guessed, too.
constexpr double kEagerPasses = 2;

TrainStyle WeftStyle() {
    TrainStyle style;
    style.name = "weft";
    style.weft = true;
    style.even_layers = false;
    style.shares = Beside::kBetweenHosts;
    style.host_op_s = 3e-6;
    return style;
}

// Megatron-LM as in Korthikanti et al. 2022: gradients are kept and summed in float32 behind the
// last backward pass; attention writes its scores.
TrainStyle MegatronStyle() {
    TrainStyle style;
    style.name = "megatron";
    style.scores = true;
    style.blocking_hops = true;
    style.hops_by_share = true;
    style.shares = Beside::kRdma;
    style.gradient = 4;
    style.summed = 4;
    style.host_op_s = kEagerOp;
    return style;
}

TrainStyle DeepSpeedStyle() {
    TrainStyle style;
    style.name = "deepspeed";
    style.blocking_hops = true;
    style.shares = Beside::kRdma;
    style.gradients_beside = true;
    style.passes = kEagerPasses;
    style.host_op_s = kEagerOp;
    return style;
}

// PyTorch's, with parameters in float32 that are cast and gathered, and gradients summed, in BF16.
TrainStyle FsdpStyle() {
    TrainStyle style;
    style.name = "fsdp";
    style.blocking_hops = true;
    style.shares = Beside::kAlways;
    style.gradients_beside = true;
    style.weight = 0;
    style.gradient = 4;
    style.one_copy = true;
    style.passes = kEagerPasses;
    style.host_op_s = kEagerOp;
    return style;
}

std::vector<TrainStyle> AllStyles() {
    return {WeftStyle(), MegatronStyle(), DeepSpeedStyle(), FsdpStyle()};
}

}  // namespace

std::vector<std::string> TrainStyleNames() {
    std::vector<std::string> names;
    for (const TrainStyle& style : AllStyles()) names.push_back(style.name);
    return names;
}

Result<TrainStyle> FindTrainStyle(const std::string& name) {
    for (TrainStyle& style : AllStyles()) {
        if (style.name == name) return style;
    }
    return MakeError(ErrorCode::kUsage, "--as {}: expected one of {}", name,
                     fmt::join(TrainStyleNames(), ", "));
}

}  // namespace weft::plan
