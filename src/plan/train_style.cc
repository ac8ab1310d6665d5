#include "plan/train_style.h"

#include <fmt/ranges.h>

namespace weft::plan {
namespace {

// An op started by an eager framework: several microseconds of its host's time. Guessed.
constexpr double kEagerOp = 12e-6;
// Guessed, too.
constexpr double kEagerPasses = 2;
constexpr double kFsdpPasses = 1.6;
// What the published runs of FSDP had is Triton's kernel of 2022. Fitted (docs/plan.md).
constexpr double kFirstFlashAttention = 0.56;
// cuDNN's, of which the machine files' FlashAttention-2 is the lesser. Guessed.
constexpr double kHopperAttention = 1.5;
// Selective recomputation by op keeps the outputs of every second product.
constexpr double kEverySecond = 0.5;

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
    style.whole_stages = true;
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
    style.passes = kFsdpPasses;
    style.host_op_s = kEagerOp;
    style.attention = kFirstFlashAttention;
    style.again = kEverySecond;
    return style;
}

// FSDP2 with torch.compile: ops between products are one, attention is FlashAttention-2.
TrainStyle TorchtitanStyle() {
    TrainStyle style = FsdpStyle();
    style.name = "torchtitan";
    style.passes = 1;
    style.attention = 1;
    return style;
}

// Megatron Core with Transformer Engine: attention is fused, sums of gradients and gathers of
// weights run beside the passes, those of tensor ranks in part; ops before a product
// write its operand in FP8, too.
TrainStyle NemoStyle() {
    TrainStyle style = MegatronStyle();
    style.name = "nemo";
    style.scores = false;
    style.blocking_hops = false;
    style.shares = Beside::kAlways;
    style.gradients_beside = true;
    style.attention = kHopperAttention;
    style.tensor_beside = 0.8;
    style.casts = 0;
    return style;
}

std::vector<TrainStyle> AllStyles() {
    return {WeftStyle(), MegatronStyle(),   DeepSpeedStyle(),
            FsdpStyle(), TorchtitanStyle(), NemoStyle()};
}

}  // namespace

bool TrainsOn(const TrainStyle& style, const Machine& machine) {
    return !style.weft || machine.maker != Maker::kApple;
}

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
