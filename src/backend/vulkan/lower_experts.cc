// Mixtures of experts. A value [T, K, n] has row t * K + k for expert k of row t; rows whose
// experts other ranks hold are left as they are, and read by nobody.
#include <algorithm>

#include "backend/vulkan/lower.h"
#include "backend/vulkan/products.h"

namespace weft::backend::vulkan {
namespace {

constexpr int64_t kMostRoutedExperts = 1024;  // of route.comp

// Arguments of route.comp.
struct RouteShaderArgs {
    uint64_t logits = 0, bias = 0, factors = 0, ids = 0, weights = 0;
    uint32_t experts = 0, used = 0;
    uint32_t groups = 0, groups_used = 0, group_best = 0;
    uint32_t sigmoid = 0, renormalise = 0;
    float scale = 1;
};

bool IsOfSlots(const Emitter& e, program::ValueId id) {
    return e.program().value(id).shape.rank == 3;
}

// Of an op whose ids are its second input.
void SetExperts(Emitter& e, const program::Op& op, int64_t first_expert, MatvecArgs& args) {
    args.ids = e.Address(op.inputs[1]);
    args.first_expert = static_cast<uint32_t>(first_expert);
    args.experts = static_cast<uint32_t>(e.Weight(program::WeightOf(op)).matrices);
    args.used = static_cast<uint32_t>(e.Cols(op.inputs[1]));
}

}  // namespace

Status Lower(Emitter& e, const program::Op& op, const program::Route& a) {
    RouteShaderArgs args;
    const program::ValueId ids = op.outputs[0], weights = op.outputs[1];
    std::vector<Region> reads = {e.All(op.inputs[0])};
    args.logits = e.Address(op.inputs[0]);
    if (a.factors) args.factors = e.Address(op.inputs.back());
    if (op.inputs.size() == (a.factors ? 3u : 2u)) args.bias = e.Address(op.inputs[1]);
    args.ids = e.Address(ids);
    args.weights = e.Address(weights);
    args.experts = static_cast<uint32_t>(e.Cols(op.inputs[0]));
    args.used = static_cast<uint32_t>(e.Cols(ids));
    args.groups = static_cast<uint32_t>(a.groups);
    args.groups_used = static_cast<uint32_t>(a.groups_used);
    args.group_best = static_cast<uint32_t>(a.group_best);
    args.sigmoid = a.score == program::GateScore::kSigmoid ? 1 : 0;
    args.renormalise = a.renormalise ? 1 : 0;
    args.scale = a.scale;
    if (args.experts > kMostRoutedExperts) {
        return MakeError(ErrorCode::kUnsupported, "route: {} experts; Vulkan kernels take {}",
                         args.experts, kMostRoutedExperts);
    }
    return e.Run("route", {GroupSize(e.gpu())}, args, {1, e.Rows(ids), 1}, std::move(reads),
                 {e.All(ids), e.All(weights)});
}

Status Lower(Emitter& e, const program::Op& op, const program::ExpertMatMul& a) {
    const program::ValueId x = op.inputs[0], y = op.outputs[0];
    MatvecArgs args;
    SetExperts(e, op, a.first_expert, args);
    args.x = e.Address(x);
    args.y = e.Address(y);
    args.by_token = IsOfSlots(e, x) ? 0 : 1;
    std::vector<Region> reads = {e.All(x), e.All(op.inputs[1])};
    if (op.inputs.size() == 4) args.bias = e.Address(op.inputs[3]);
    return EmitMatvec(e, MatvecKind::kExperts, e.Weight(op.inputs[2]), args, 1,
                      e.Rows(y) * args.used, std::move(reads), {e.All(y)});
}

Status Lower(Emitter& e, const program::Op& op, const program::ExpertSum& a) {
    const program::ValueId x = op.inputs[0], y = op.outputs[0];
    MatvecArgs args;
    SetExperts(e, op, a.first_expert, args);
    args.x = e.Address(x);
    args.y = e.Address(y);
    args.weights = e.Address(op.inputs[2]);
    std::vector<Region> reads = {e.All(x), e.All(op.inputs[1]), e.All(op.inputs[2])};
    if (a.bias) args.bias = e.Address(op.inputs[4]);
    if (a.base) {
        args.base = e.Address(op.inputs.back());
        reads.push_back(e.All(op.inputs.back()));
    }
    return EmitMatvec(e, MatvecKind::kSum, e.Weight(op.inputs[3]), args, 1, e.Rows(y),
                      std::move(reads), {e.All(y)});
}

}  // namespace weft::backend::vulkan
