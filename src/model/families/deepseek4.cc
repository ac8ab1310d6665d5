// DeepSeek-V4 (DeepSeek-AI 2026): several residual streams, of which attention and experts each
// read one mixture; attention to the last positions and to pooled windows of all earlier ones. Hy4
// (Tencent 2026): streams that are not mixed, and GLM 5's attention with sinks and gates by column.
// GLM-5-next (Z.ai 2026): three of four layers are Kimi Delta Attention, the fourth is latent
// attention without positions, to windows that an indexer chooses.
#include "model/architecture.h"
#include "model/layers.h"

namespace weft::model {

using program::ValueId;

static ValueId BuildDeepSeek4(Builder& b, ValueId x) {
    return StreamLayers(b, x, &Builder::WindowAttention);
}

static ValueId BuildLatentStreams(Builder& b, ValueId x) {
    return StreamLayers(b, x, &Builder::LatentAttention);
}

namespace {

constexpr Architecture kDeepseek4Table[] = {
    {.family = {"deepseek4", "DeepSeek V4 (Flash, Pro)",
                "hyper-connections, windows, pooled keys, an indexer, sinks, experts by token",
                "deepseekV4"},
     .build = BuildDeepSeek4,
     .experts = true,
     .traits = {.limits = true,
                .limits_gate = true,
                .plain_windows = true,
                .indexer = IndexerKind::kAlways,
                .pools_windows = true,
                .streams = Streams::kMixed,
                .drafts_may_lack = true,
                .gate_score = program::GateScore::kSqrtSoftplus}},
    {.family =
         {"glm5-next", "GLM 5.3 Flash (text)",
          "hyper-connections, Kimi Delta Attention, sparse latent attention without positions, "
          "an indexer of pooled keys, leading dense layers",
          "glm5Next, glm5NextTop"},
     .build = BuildLatentStreams,
     .experts = true,
     .traits = {.limits = true,
                .limits_gate = true,
                .rotates_latents = false,
                .usual_latent_eps = true,
                .indexer = IndexerKind::kAlways,
                .streams = Streams::kMean,
                .gate_score = program::GateScore::kSigmoid,
                .recurrent = Recurrent::Kind::kKimiDelta}},
    {.family =
         {"hy_v4", "Hy4",
          "hyper-connections, sparse latent attention, layers that share a choice, sinks, gates "
          "by column, leading dense layers",
          "hyV4, hyV4Top"},
     .build = BuildLatentStreams,
     .experts = true,
     .traits = {.limits = true,
                .limits_gate = true,
                .limits_routed = true,
                .indexer_neighbours = true,
                .index_last = true,
                .streams = Streams::kIndependent,
                .gate_score = program::GateScore::kSigmoid}},
};

}  // namespace

extern const std::span<const Architecture> kDeepseek4Family = kDeepseek4Table;

}  // namespace weft::model
