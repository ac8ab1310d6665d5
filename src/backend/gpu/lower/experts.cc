// Mixtures of experts. A value [T, K, n] has row t * K + k for expert k of row t. Rows whose
// experts other ranks hold are neither written nor read.
#include <algorithm>
#include <string>

#include "backend/gpu/dispatch/operands.h"
#include "backend/gpu/lower/gemm.h"
#include "backend/gpu/lower/lower.h"
#include "backend/gpu/lower/parts.h"
#include "backend/gpu/lower/products.h"

namespace weft::backend::on_gpu {
namespace {

constexpr int64_t kMostOrderedExperts = 1024;  // limit of route.glsl and expert_order.comp
// Maximum rows that the last workgroup of a product routes by itself; otherwise each row has a
// workgroup.
constexpr int64_t kMostRowsOfOne = 2;

// Arguments of route.glsl.
struct Routing {
    uint64_t bias = 0, factors = 0, ids = 0, weights = 0, tokens = 0, table = 0;
    uint32_t experts = 0, used = 0;
    uint32_t groups = 0, groups_used = 0, group_best = 0;
    uint32_t sigmoid = 0, renormalise = 0;
    float scale = 1;
};
// Arguments of route.comp.
struct RouteArgs {
    uint64_t logits = 0;
    Routing routing;
    float jitter = 0;
};

Status CheckExperts(int64_t experts) {
    if (experts <= kMostOrderedExperts) return {};
    return MakeError(ErrorCode::kUnsupported, "{} experts; Vulkan kernels support at most {}",
                     experts, kMostOrderedExperts);
}

Result<Routing> RoutingOf(const Emitter& e, const program::Op& op, Operands& io) {
    const auto& a = op.as<program::Route>();
    Routing routing;
    if (a.by_token) {
        routing.tokens = io.Reads(op.inputs[1]);
        routing.table = io.Reads(op.inputs[2]);
    } else {
        if (a.factors) routing.factors = io.Reads(op.inputs.back());
        if (op.inputs.size() == (a.factors ? 3u : 2u)) routing.bias = io.Reads(op.inputs[1]);
    }
    routing.ids = io.Writes(op.outputs[0]);
    routing.weights = io.Writes(op.outputs[1]);
    routing.experts = static_cast<uint32_t>(e.Cols(op.inputs[0]));
    routing.used = static_cast<uint32_t>(e.Cols(op.outputs[0]));
    routing.groups = static_cast<uint32_t>(a.groups);
    routing.groups_used = static_cast<uint32_t>(a.groups_used);
    routing.group_best = static_cast<uint32_t>(a.group_best);
    routing.sigmoid = a.score == program::GateScore::kSigmoid ? 1 : 0;
    routing.renormalise = a.renormalise ? 1 : 0;
    routing.scale = a.scale;
    WEFT_TRY(CheckExperts(routing.experts));
    return routing;
}

// Arguments of expert_order.comp.
struct OrderArgs {
    uint64_t ids = 0, plan = 0;
    uint32_t slots = 0, first_expert = 0, experts = 0, tile = 0, most_blocks = 0;
};

// Arguments of weigh_rows.comp.
struct WeighArgs {
    uint64_t x = 0, weights = 0, y = 0, rest = 0;
    uint32_t cols = 0, used = 0, slots = 0;
};

// Arguments of expert_sum.comp.
struct SlotSumArgs {
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

// Whether the step has so many rows that experts' weights are read once for all rows that chose
// them.
bool UsesPlan(const Emitter& e, program::ValueId ids) {
    return !e.reference() && e.Rows(ids) > kMatvecRows;
}

// Computes y, which has a row per slot, from args.x.
Status EmitSlots(Emitter& e, const program::Op& op, ProductArgs args, ProductRegions regions) {
    const WeightPlace& weight = e.Weight(program::WeightOf(op));
    const program::ValueId ids = op.inputs[1];
    const int64_t slots = e.Rows(ids) * args.used;
    if (!UsesPlan(e, ids)) {
        regions.reads.push_back(e.All(ids));
        return EmitMatvec(e, ProductKind::kExperts, weight, args, 1, slots, std::move(regions));
    }
    WEFT_ASSIGN(const SlotOrder order,
                OrderSlots(e, ids, args.first_expert, args.experts, TileOf(slots / args.experts)));
    args.ids = order.plan.address;
    regions.reads.push_back(order.plan);
    return EmitTiles(e, ProductKind::kExperts, weight, args, slots, order.tile, order.blocks, 1,
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

Result<SlotOrder> OrderSlots(Emitter& e, program::ValueId ids, int64_t first_expert,
                             int64_t experts, int64_t tile) {
    WEFT_TRY(CheckExperts(experts));
    const int64_t count = e.Rows(ids) * e.Cols(ids);
    SlotOrder order{{}, tile, count / tile + std::min(experts + 1, count)};
    const int64_t ints = 4 + 3 * order.blocks + count + experts + 1;
    WEFT_ASSIGN(order.plan,
                e.Scratch("expert order", static_cast<uint64_t>(ints) * sizeof(int32_t)));
    const std::string made =
        fmt::format("expert order {} {} {} {}", count, first_expert, experts, tile);
    if (e.FindDerived(made, e.All(ids)) == order.plan) return order;
    Operands io(e);
    OrderArgs args;
    args.ids = io.Reads(ids);
    args.plan = io.Writes(order.plan);
    args.slots = static_cast<uint32_t>(count);
    args.first_expert = static_cast<uint32_t>(first_expert);
    args.experts = static_cast<uint32_t>(experts);
    args.tile = static_cast<uint32_t>(tile);
    args.most_blocks = static_cast<uint32_t>(order.blocks);
    WEFT_TRY(io.Run("expert_order", {kWalkGroup}, args, {experts + 1, 1, 1}));
    e.NoteDerived(made, e.All(ids), order.plan);
    return order;
}

Status EmitSlotSum(Emitter& e, const SlotSum& sum, const Region& products) {
    Operands io(e);
    SlotSumArgs args;
    args.ids = io.Reads(sum.ids);
    args.weights = io.Reads(sum.weights);
    args.products = io.Reads(products);
    args.base = io.Reads(sum.base);
    args.y = io.Writes(sum.y, 0);
    args.n = static_cast<uint32_t>(e.Cols(sum.y));
    args.first_expert = static_cast<uint32_t>(sum.first_expert);
    args.experts = static_cast<uint32_t>(sum.experts);
    args.used = static_cast<uint32_t>(e.Cols(sum.ids));
    const uint32_t size = GroupSize(e.gpu());
    return io.Run("expert_sum", {size, io.types()}, args,
                  {CeilDiv(args.n, size), e.Rows(sum.y), 1});
}

Status Lower(Emitter& e, const program::Op& op, const program::Route& a) {
    Operands io(e);
    RouteArgs args;
    args.logits = io.Reads(op.inputs[0]);
    WEFT_ASSIGN(args.routing, RoutingOf(e, op, io));
    args.jitter = a.jitter;
    const bool sparse = a.score == program::GateScore::kSparseMixer;
    const bool softplus = a.score == program::GateScore::kSqrtSoftplus;
    return io.Run("route",
                  {MatvecSize(e.gpu()), sparse, args.routing.experts, softplus, a.by_token}, args,
                  {1, e.Rows(op.outputs[0]), 1}, PinnedSubgroup(e.gpu()));
}

bool CanRouteInProduct(const Emitter& e, const program::Op& product) {
    const DType dtype = e.Weight(product.inputs[1]).dtype;
    const bool type = dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
    return type && e.Rows(product.inputs[0]) <= kMostRowsOfOne;
}

// The routing, and the count of finished workgroups (matvec.comp), which is 0 before and after.
Status LowerRoutedMatMul(Emitter& e, const program::Op& product, const program::Op& route) {
    Operands io(e);
    WEFT_ASSIGN(const Routing routing, RoutingOf(e, route, io));
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
        nullptr, kMatvecRoute);
}

Status Lower(Emitter& e, const program::Op& op, const program::WeighRows&) {
    const program::ValueId x = op.inputs[0], weights = op.inputs[2];
    Operands io(e);
    WeighArgs args;
    args.x = io.Reads(x, 0);
    args.weights = io.Reads(weights);
    args.y = io.Writes(op.outputs[0], 1);
    args.rest = io.Writes(op.outputs[1]);
    args.cols = static_cast<uint32_t>(e.Cols(x));
    args.used = static_cast<uint32_t>(e.Cols(weights));
    args.slots = static_cast<uint32_t>(CountOf(e, weights));
    const uint32_t size = GroupSize(e.gpu());
    return io.Run("weigh_rows", {size, io.types()}, args,
                  {CeilDiv(args.cols, size), RowGroups(args.slots), 1});
}

Status Lower(Emitter& e, const program::Op& op, const program::ExpertMatMul& a) {
    const program::ValueId x = op.inputs[0], y = op.outputs[0];
    if (IsTrainingProduct(e, x, op.inputs[2], y)) return LowerExpertGemm(e, op, a);
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
    if (IsTrainingProduct(e, x, op.inputs[3], y)) return LowerExpertGemm(e, op, a);
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

}  // namespace weft::backend::on_gpu
