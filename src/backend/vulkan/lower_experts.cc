// Mixtures of experts. A value [T, K, n] has row t * K + k for expert k of row t. Rows whose
// experts other ranks hold are neither written nor read.
#include <algorithm>
#include <string>

#include "backend/vulkan/lower.h"
#include "backend/vulkan/lower_gemm.h"
#include "backend/vulkan/lower_parts.h"
#include "backend/vulkan/operands.h"
#include "backend/vulkan/products.h"

namespace weft::backend::vulkan {
namespace {

constexpr int64_t kMostRoutedExperts = 1024;  // limit of route.glsl
// Maximum rows that the last workgroup of a product routes by itself; otherwise each row has a
// workgroup.
constexpr int64_t kMostRowsOfOne = 2;

// Arguments of route.glsl.
struct Routing {
    uint64_t bias = 0, factors = 0, ids = 0, weights = 0;
    uint32_t experts = 0, used = 0;
    uint32_t groups = 0, groups_used = 0, group_best = 0;
    uint32_t sigmoid = 0, renormalise = 0;
    float scale = 1;
};
// Arguments of route.comp.
struct RouteShaderArgs {
    uint64_t logits = 0;
    Routing routing;
};

Result<Routing> RoutingOf(const Emitter& e, const program::Op& op) {
    const auto& a = op.as<program::Route>();
    if (a.by_token || a.score == program::GateScore::kSqrtSoftplus) {
        return MakeError(ErrorCode::kUnsupported,
                         "route: no GPU kernel chooses experts by token id, or scores them by the "
                         "square root of softplus");
    }
    Routing routing;
    if (a.factors) routing.factors = e.Address(op.inputs.back());
    if (op.inputs.size() == (a.factors ? 3u : 2u)) routing.bias = e.Address(op.inputs[1]);
    routing.ids = e.Address(op.outputs[0]);
    routing.weights = e.Address(op.outputs[1]);
    routing.experts = static_cast<uint32_t>(e.Cols(op.inputs[0]));
    routing.used = static_cast<uint32_t>(e.Cols(op.outputs[0]));
    routing.groups = static_cast<uint32_t>(a.groups);
    routing.groups_used = static_cast<uint32_t>(a.groups_used);
    routing.group_best = static_cast<uint32_t>(a.group_best);
    routing.sigmoid = a.score == program::GateScore::kSigmoid ? 1 : 0;
    routing.renormalise = a.renormalise ? 1 : 0;
    routing.scale = a.scale;
    if (routing.experts <= kMostRoutedExperts) return routing;
    return MakeError(ErrorCode::kUnsupported,
                     "route: {} experts; Vulkan kernels support at most {}", routing.experts,
                     kMostRoutedExperts);
}

// Arguments of expert_plan.comp.
struct PlanShaderArgs {
    uint64_t ids = 0, plan = 0;
    uint32_t slots = 0, first_expert = 0, experts = 0, tile = 0, most_blocks = 0;
};

// Arguments of weigh_rows.comp.
struct WeighShaderArgs {
    uint64_t x = 0, weights = 0, y = 0, rest = 0;
    uint32_t cols = 0, used = 0;
};

// Arguments of expert_sum.comp.
struct SumShaderArgs {
    uint64_t ids = 0, weights = 0, products = 0, base = 0, y = 0;
    uint32_t n = 0, first_expert = 0, experts = 0, used = 0;
};

bool IsOfSlots(const Emitter& e, program::ValueId id) {
    return e.program().value(id).shape.rank == 3;
}

// Sets the experts of an op whose ids are its second input.
void SetExperts(Emitter& e, const program::Op& op, int64_t first_expert, ProductArgs& args) {
    args.ids = e.Address(op.inputs[1]);
    args.first_expert = static_cast<uint16_t>(first_expert);
    args.experts = static_cast<uint16_t>(e.Weight(program::WeightOf(op)).matrices);
    args.used = static_cast<uint16_t>(e.Cols(op.inputs[1]));
}

// A plan by expert_plan.comp.
struct PlanPlace {
    Region region;
    int64_t tile = 0, most_blocks = 0;
};

// The plan of the op's rows, made once for the ops that share a routing.
Result<PlanPlace> EmitPlan(Emitter& e, const program::Op& op, const ProductArgs& args) {
    const program::ValueId ids = op.inputs[1];
    PlanShaderArgs plan;
    const int64_t slots = e.Rows(ids) * args.used;
    PlanPlace place;
    place.tile = TileOf(slots / args.experts);
    place.most_blocks = slots / place.tile + std::min<int64_t>(args.experts, slots);
    const int64_t ints = 2 + 3 * place.most_blocks + slots;
    WEFT_ASSIGN(place.region,
                e.Scratch("expert plan", static_cast<uint64_t>(ints) * sizeof(int32_t)));
    plan.ids = args.ids;
    plan.plan = place.region.address;
    plan.slots = static_cast<uint32_t>(slots);
    plan.first_expert = args.first_expert;
    plan.experts = args.experts;
    plan.tile = static_cast<uint32_t>(place.tile);
    plan.most_blocks = static_cast<uint32_t>(place.most_blocks);
    const std::string made =
        fmt::format("expert plan {} {} {} {}", slots, plan.first_expert, plan.experts, plan.tile);
    if (e.FindDerived(made, e.All(ids)) == place.region) return place;
    WEFT_TRY(
        e.Run("expert_plan", {GroupSize(e.gpu())}, plan, {1, 1, 1}, {e.All(ids)}, {place.region}));
    e.NoteDerived(made, e.All(ids), place.region);
    return place;
}

// Whether the step has so many rows that experts' weights are read once for all rows that chose
// them.
bool UsesPlan(const Emitter& e, program::ValueId ids) {
    return !e.reference() && e.Rows(ids) > kMatvecRows;
}

// Computes y, a row per slot, from args.x.
Status EmitSlots(Emitter& e, const program::Op& op, ProductArgs args, ProductRegions regions) {
    const WeightPlace& weight = e.Weight(program::WeightOf(op));
    const program::ValueId ids = op.inputs[1];
    const int64_t slots = e.Rows(ids) * args.used;
    if (!UsesPlan(e, ids)) {
        regions.reads.push_back(e.All(ids));
        return EmitMatvec(e, ProductKind::kExperts, weight, args, 1, slots, std::move(regions));
    }
    WEFT_ASSIGN(const PlanPlace plan, EmitPlan(e, op, args));
    args.ids = plan.region.address;
    regions.reads.push_back(plan.region);
    return EmitTiles(e, ProductKind::kExperts, weight, args, slots, plan.tile, plan.most_blocks, 1,
                     std::move(regions));
}

// The address of an ExpertMatMul's bias, or 0.
uint64_t BiasOfSlots(const Emitter& e, const program::Op& op) {
    return op.inputs.size() == 4 ? e.Address(op.inputs[3]) : 0;
}
// The arguments of an ExpertMatMul, with the result at y.
ProductArgs ArgsOfSlots(Emitter& e, const program::Op& op, program::ValueId y) {
    const program::ValueId x = op.inputs[0];
    ProductArgs args;
    SetExperts(e, op, op.as<program::ExpertMatMul>().first_expert, args);
    args.x = e.Address(x);
    args.y = e.Address(y);
    args.by_token = IsOfSlots(e, x) ? 0 : 1;
    args.bias = BiasOfSlots(e, op);
    return args;
}

// Writes the products of all slots to scratch memory, then adds them up.
Status EmitSumOfSlots(Emitter& e, const program::Op& op, const ProductArgs& args) {
    const program::ValueId x = op.inputs[0], ids = op.inputs[1], y = op.outputs[0];
    const int64_t n = e.Weight(op.inputs[3]).rows;
    const int64_t slots = e.Rows(ids) * args.used;
    WEFT_ASSIGN(const Region products,
                e.Scratch("expert products", static_cast<uint64_t>(slots * n) * sizeof(float)));
    ProductArgs product = args;
    product.y = products.address;
    WEFT_TRY(EmitSlots(e, op, product, {e.All(x), {}, {products}}));
    const auto& a = op.as<program::ExpertSum>();
    SlotSum sum{ids, y, op.inputs[2], a.base ? op.inputs.back() : program::kNoValue};
    sum.first_expert = args.first_expert;
    sum.experts = args.experts;
    return EmitSlotSum(e, sum, products);
}

}  // namespace

Status EmitSlotSum(Emitter& e, const SlotSum& sum, const Region& products) {
    SumShaderArgs args;
    args.ids = e.Address(sum.ids);
    args.products = products.address;
    args.y = e.Address(sum.y);
    args.n = static_cast<uint32_t>(e.Cols(sum.y));
    args.first_expert = static_cast<uint32_t>(sum.first_expert);
    args.experts = static_cast<uint32_t>(sum.experts);
    args.used = static_cast<uint32_t>(e.Cols(sum.ids));
    std::vector<Region> reads = {products, e.All(sum.ids)};
    if (sum.weights != program::kNoValue) {
        args.weights = e.Address(sum.weights);
        reads.push_back(e.All(sum.weights));
    }
    if (sum.base != program::kNoValue) {
        args.base = e.Address(sum.base);
        reads.push_back(e.All(sum.base));
    }
    WEFT_ASSIGN(const uint32_t type, ElementType(e.program().value(sum.y).dtype));
    const uint32_t size = GroupSize(e.gpu());
    return e.Run("expert_sum", {size, type}, args, {(args.n + size - 1) / size, e.Rows(sum.y), 1},
                 std::move(reads), {e.All(sum.y)});
}

Status Lower(Emitter& e, const program::Op& op, const program::Route&) {
    const program::ValueId logits = op.inputs[0], ids = op.outputs[0], weights = op.outputs[1];
    RouteShaderArgs args;
    args.logits = e.Address(logits);
    WEFT_ASSIGN(args.routing, RoutingOf(e, op));
    return e.Run("route", {MatvecSize(e.gpu())}, args, {1, e.Rows(ids), 1}, {e.All(logits)},
                 {e.All(ids), e.All(weights)}, PinnedSubgroup(e.gpu()));
}

bool CanRouteInProduct(const Emitter& e, const program::Op& product) {
    const DType dtype = e.Weight(product.inputs[1]).dtype;
    const bool type = dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
    return type && e.Rows(product.inputs[0]) <= kMostRowsOfOne;
}

// The routing, and the count of finished workgroups (matvec.comp), which is 0 before and after.
Status LowerRoutedMatMul(Emitter& e, const program::Op& product, const program::Op& route) {
    WEFT_ASSIGN(const Routing routing, RoutingOf(e, route));
    const std::span<const std::byte> bytes = std::as_bytes(std::span(&routing, 1));
    const std::string name = fmt::format("router {} {} {}", routing.ids, routing.weights,
                                         e.program().value(route.outputs[0]).name);
    WEFT_ASSIGN(const Region router,
                e.Constant(name, sizeof routing + sizeof(uint32_t), [&](std::span<std::byte> out) {
                    std::ranges::fill(out, std::byte{0});
                    std::ranges::copy(bytes, out.begin());
                }));
    ProductArgs args;
    args.x = e.Address(product.inputs[0]);
    args.y = e.Address(product.outputs[0]);
    if (product.inputs.size() == 3) args.bias = e.Address(product.inputs[2]);
    args.ending = router.address;
    return EmitMatvec(
        e, ProductKind::kPlain, e.Weight(product.inputs[1]), args, e.Rows(product.inputs[0]), 1,
        {e.All(product.inputs[0]),
         {},
         {e.All(product.outputs[0]), e.All(route.outputs[0]), e.All(route.outputs[1]), router}},
        nullptr, "matvec_route");
}

Status Lower(Emitter& e, const program::Op& op, const program::WeighRows&) {
    const program::ValueId x = op.inputs[0], weights = op.inputs[2];
    const program::ValueId y = op.outputs[0], rest = op.outputs[1];
    WeighShaderArgs args;
    args.x = e.Address(x);
    args.weights = e.Address(weights);
    args.y = e.Address(y);
    args.rest = e.Address(rest);
    args.cols = static_cast<uint32_t>(e.Cols(x));
    args.used = static_cast<uint32_t>(e.Cols(weights));
    const uint32_t size = GroupSize(e.gpu());
    return e.Run("weigh_rows", {size}, args,
                 {(args.cols + size - 1) / size, e.Rows(x) * args.used, 1},
                 {e.All(x), e.All(weights)}, {e.All(y), e.All(rest)});
}

Status Lower(Emitter& e, const program::Op& op, const program::ExpertMatMul& a) {
    const program::ValueId x = op.inputs[0], y = op.outputs[0];
    if (IsTrainingProduct(e, x, op.inputs[2], y)) return LowerTrainingExperts(e, op, a);
    return EmitSlots(e, op, ArgsOfSlots(e, op, y), {e.All(x), {}, {e.All(y)}});
}

Status LowerGatedExperts(Emitter& e, const program::Op* gate, const program::Op& up,
                         const program::Op& glu) {
    const program::Op& first = gate != nullptr ? *gate : up;
    const program::ValueId x = first.inputs[0], ids = first.inputs[1], y = glu.outputs[0];
    const ProductArgs args = ArgsOfSlots(e, first, y);
    Gated gated{glu.as<program::Glu>().activation, y};
    if (gate != nullptr) {
        gated.up = &e.Weight(program::WeightOf(up));
        gated.bias = BiasOfSlots(e, up);
    } else {
        gated.gate = e.All(glu.inputs[0]);
    }
    return EmitMatvec(e, ProductKind::kExperts, e.Weight(program::WeightOf(first)), args, 1,
                      e.Rows(ids) * args.used, {e.All(x), {e.All(ids)}, {e.All(y)}}, &gated);
}

Status Lower(Emitter& e, const program::Op& op, const program::ExpertSum& a) {
    const program::ValueId x = op.inputs[0], y = op.outputs[0];
    if (IsTrainingProduct(e, x, op.inputs[3], y)) return LowerTrainingExperts(e, op, a);
    ProductArgs args;
    SetExperts(e, op, a.first_expert, args);
    args.x = e.Address(x);
    args.y = e.Address(y);
    args.weights = e.Address(op.inputs[2]);
    if (a.bias) args.bias = e.Address(op.inputs[4]);
    if (a.base) args.base = e.Address(op.inputs.back());
    if (UsesPlan(e, op.inputs[1])) return EmitSumOfSlots(e, op, args);
    ProductRegions regions{e.All(x), {e.All(op.inputs[1]), e.All(op.inputs[2])}, {e.All(y)}};
    if (a.base) regions.reads.push_back(e.All(op.inputs.back()));
    return EmitMatvec(e, ProductKind::kSum, e.Weight(op.inputs[3]), args, 1, e.Rows(y),
                      std::move(regions));
}

}  // namespace weft::backend::vulkan
