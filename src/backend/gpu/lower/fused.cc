// Lowers runs of fused ops (fuse.h). If sums depend on the workgroup size, it equals the size in
// the op's own kernel.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "backend/gpu/device/host_signal.h"
#include "backend/gpu/lower/fuse.h"
#include "backend/gpu/lower/lower.h"
#include "backend/gpu/lower/parts.h"
#include "backend/gpu/lower/products.h"

namespace weft::backend::on_gpu {
namespace {

using program::Op;
using program::RmsNorm;
using program::Scale;
using program::ValueId;

const Op* OpAt(const Emitter& e, int32_t number) {
    return number == kNoOp ? nullptr : &e.program().ops[static_cast<size_t>(number)];
}

// Parts of residual.comp.
enum ResidualParts : uint32_t {
    kBias = 1,
    kNorm = 2,
    kNormWeight = 4,
    kFactor = 8,
    kSumFactor = 16,
    kNext = 32,
    kNextWeight = 64,
    kRows = 128,
    kEncodesSum = 256,
    kEncodesNext = 512,
};
struct ResidualBody {
    uint64_t m = 0, x = 0, bias = 0, weight = 0, next_weight = 0;
    uint64_t y = 0, result = 0;
    uint64_t codes = 0, scales = 0;
    float factor = 1, sum_factor = 1, eps = 0, next_eps = 0;
};
struct ResidualArgs {
    uint64_t rows = 0;
    ResidualBody body;
    uint32_t cols = 0, unused = 0;
};
struct SumResidualArgs {
    HostSignal::Head head;
    ResidualBody body;
};
static_assert(sizeof(ResidualArgs) == 104 && sizeof(SumResidualArgs) == 128);

class ResidualLowering {
  public:
    // first, last: the first and last op of the run.
    ResidualLowering(Emitter& e, const ResidualRun& run, int32_t first, int32_t last)
        : e_(e), run_(run), first_(first), last_(last) {}
    Status Run() {
        SetBefore();
        SetAfter();
        IntegerRows codes;
        const ValueId encoded = Encoded();
        if (encoded != program::kNoValue) {
            WEFT_ASSIGN(codes, PlaceIntegers(e_, encoded));
            parts_ |= encoded == y_ ? kEncodesSum : kEncodesNext;
            args_.codes = io_.Writes(codes.region);
            args_.scales = codes.scales;
        }
        WEFT_TRY(Emit());
        if (encoded != program::kNoValue) NoteIntegers(e_, encoded, codes);
        return {};
    }

  private:
    Status Emit() {
        const int64_t cols = e_.Cols(y_);
        const uint32_t group = NormGroup(cols), subgroup = PinnedSubgroup(e_.gpu());
        if (const int32_t sum = SumBefore(); sum != kNoOp) {
            const SumResidualArgs args{{}, args_};
            io_.Writes(m_);
            return io_.Run("sum_residual", {group, parts_ & ~kRows}, args, {1, 1, 1}, subgroup,
                           Parts::kOne, sum);
        }
        const ResidualArgs args{rows_, args_, static_cast<uint32_t>(cols)};
        return io_.Run("residual", {group, parts_}, args, {1, e_.Rows(y_), 1}, subgroup);
    }
    // The sum over ranks that computes m, if it has one row, the submission waits for it while
    // running, and no other op runs between it and the end of this run.
    int32_t SumBefore() const {
        const int32_t before = first_ - 1;
        if (before < 0 || e_.Rows(m_) != 1 || CountOfRun() != last_ - first_ + 1) return kNoOp;
        const Op& sum = *OpAt(e_, before);
        return e_.Exchanges(sum) && sum.outputs[0] == m_ ? before : kNoOp;
    }
    int32_t CountOfRun() const {
        const std::initializer_list<int32_t> parts = {
            run_.bias, run_.norm, run_.scale, run_.add, run_.sum_scale, run_.select, run_.next};
        return static_cast<int32_t>(
            std::ranges::count_if(parts, [](int32_t op) { return op != kNoOp; }));
    }

    // The value that is also converted to int8: the norm or the sum. (If both need it,
    // quantize_x.comp converts one.)
    ValueId Encoded() const {
        const Op* next = OpAt(e_, run_.next);
        if (next != nullptr && WantsIntegers(e_, next->outputs[0])) return next->outputs[0];
        return WantsIntegers(e_, y_) ? y_ : program::kNoValue;
    }

    void SetBefore() {
        const Op& add = *OpAt(e_, run_.add);
        ValueId m = add.inputs[1];
        if (const Op* scale = OpAt(e_, run_.scale)) {
            parts_ |= kFactor;
            args_.factor = scale->as<Scale>().factor;
            m = scale->inputs[0];
        }
        if (const Op* norm = OpAt(e_, run_.norm)) {
            parts_ |= kNorm;
            args_.eps = norm->as<RmsNorm>().eps;
            if (!norm->as<RmsNorm>().plain) {
                parts_ |= kNormWeight;
                args_.weight = io_.Reads(norm->inputs[1]);
            }
            m = norm->inputs[0];
        }
        if (const Op* bias = OpAt(e_, run_.bias)) {
            parts_ |= kBias;
            args_.bias = io_.Reads(bias->inputs[1]);
            m = bias->inputs[0];
        }
        m_ = m;
        args_.m = io_.Reads(m);
        args_.x = io_.Reads(add.inputs[0]);
        y_ = add.outputs[0];
    }

    void SetAfter() {
        if (const Op* scale = OpAt(e_, run_.sum_scale)) {
            parts_ |= kSumFactor;
            args_.sum_factor = scale->as<Scale>().factor;
            y_ = scale->outputs[0];
        }
        if (const Op* select = OpAt(e_, run_.select)) {
            parts_ |= kRows;
            rows_ = e_.tables().output_rows;
            y_ = select->outputs[0];
        }
        args_.y = io_.Writes(y_);
        const Op* next = OpAt(e_, run_.next);
        if (next == nullptr) return;
        parts_ |= kNext;
        args_.next_eps = next->as<RmsNorm>().eps;
        if (!next->as<RmsNorm>().plain) {
            parts_ |= kNextWeight;
            args_.next_weight = io_.Reads(next->inputs[1]);
        }
        args_.result = io_.Writes(next->outputs[0]);
    }

    Emitter& e_;
    const ResidualRun& run_;
    const int32_t first_, last_;
    ResidualBody args_;
    uint64_t rows_ = 0;
    uint32_t parts_ = 0;
    ValueId m_ = program::kNoValue, y_ = program::kNoValue;  // the addend, and the sum
    Operands io_{e_};
};

// Parts of heads.comp for q; << 1 for k, << 2 for v.
enum HeadParts : uint32_t { kNormed = 1, kRotated = 8 };

struct HeadsArgs {
    uint64_t q = 0, k = 0, v = 0, to = 0;
    uint64_t q_weight = 0, k_weight = 0;
    uint64_t k_cache = 0, v_cache = 0;
    uint64_t positions = 0, fine = 0, coarse = 0;
    uint64_t row_sequence = 0, sequences = 0, pages = 0, squares = 0;
    uint32_t heads = 0, kv_heads = 0;
};
static_assert(sizeof(HeadsArgs) == gpu::kMostArgsBytes);

class HeadsLowering {
  public:
    HeadsLowering(Emitter& e, const HeadsRun& run)
        : e_(e),
          run_(run),
          op_(*OpAt(e, run.attention)),
          attention_(op_.as<program::Attention>()) {}

    Status Run() {
        const AttentionCaches caches = CachesOf(e_, op_);
        WEFT_ASSIGN(const uint32_t type, CacheType(op_, caches.k));
        WEFT_ASSIGN(const uint32_t value_type, CacheType(op_, caches.v));
        WEFT_TRY(SetQuery());
        WEFT_TRY(SetKeyAndValue(caches));
        args_.row_sequence = e_.tables().row_sequence;
        args_.sequences = e_.tables().sequences;
        args_.pages = e_.tables().pages;
        const int64_t head_dim = attention_.head_dim;
        const int64_t units = int64_t{args_.heads} + 2 * int64_t{args_.kv_heads};
        WEFT_TRY(io_.Run(
            "heads",
            {NormGroup(head_dim), type, head_dim, pairs_, neighbours_, parts_, caches.k.page_tokens,
             std::bit_cast<uint32_t>(eps_), whole_[0], whole_[1], value_type},
            args_, {units, e_.shape().rows, 1}, PinnedSubgroup(e_.gpu())));
        return LowerOverCache(e_, op_, attention_);
    }

  private:
    // Address of the input of the head's norm; without a norm, of its RoPE; without both, of `id`.
    Result<uint64_t> SetHead(ValueId id, int32_t norm, int32_t rope, uint32_t which,
                             uint64_t* weight) {
        if (const Op* op = OpAt(e_, rope)) {
            parts_ |= uint32_t{kRotated} << which;
            id = op->inputs[0];
            WEFT_TRY(SetAngles(op->as<program::Rope>()));
        }
        if (const Op* op = OpAt(e_, norm)) {
            parts_ |= uint32_t{kNormed} << which;
            id = op->inputs[0];
            eps_ = op->as<RmsNorm>().eps;
            if (weight != nullptr) {
                *weight = io_.Reads(op->inputs[1]);
            }
            if (op->as<RmsNorm>().whole != 0) {
                whole_[which] = static_cast<uint32_t>(op->as<RmsNorm>().whole);
                args_.squares = io_.Reads(op->inputs.back());
            }
        }
        return io_.Reads(id);
    }

    Status SetAngles(const program::Rope& rope) {
        pairs_ = static_cast<uint32_t>(rope.rotary_dim / 2);
        neighbours_ = rope.neighbours;
        if (args_.fine != 0) return {};
        WEFT_ASSIGN(const AngleTables angles, PlaceAngles(e_, rope));
        args_.positions = e_.tables().positions;
        args_.fine = io_.Reads(angles.fine);
        args_.coarse = io_.Reads(angles.coarse);
        return {};
    }

    // Heads of q that attention can read directly are not changed.
    Status SetQuery() {
        if (run_.q_norm == kNoOp && run_.q_rope == kNoOp) return {};
        const ValueId q = op_.inputs[0];
        WEFT_ASSIGN(args_.q, SetHead(q, run_.q_norm, run_.q_rope, 0, &args_.q_weight));
        args_.to = io_.Writes(q);
        args_.heads = static_cast<uint32_t>(attention_.heads);
        return {};
    }

    Status SetKeyAndValue(const AttentionCaches& caches) {
        WEFT_ASSIGN(args_.k, SetHead(op_.inputs[1], run_.k_norm, run_.k_rope, 1, &args_.k_weight));
        WEFT_ASSIGN(args_.v, SetHead(op_.inputs[2], run_.v_norm, kNoOp, 2, nullptr));
        args_.k_cache = io_.Writes(caches.k.All());
        args_.v_cache = io_.Writes(caches.v.All());
        args_.kv_heads = static_cast<uint32_t>(caches.k.kv_heads);
        return {};
    }

    Emitter& e_;
    const HeadsRun& run_;
    const Op& op_;
    const program::Attention& attention_;
    HeadsArgs args_;
    uint32_t parts_ = 0, pairs_ = 0;
    uint32_t whole_[2] = {};  // columns of the norms of q and k; 0: a head's columns
    float eps_ = 0;
    bool neighbours_ = false;
    Operands io_{e_};
};

struct LatentArgs {
    uint64_t q = 0, kv = 0, to = 0, weight = 0, cache = 0;
    uint64_t positions = 0, fine = 0, coarse = 0;
    uint64_t row_sequence = 0, sequences = 0, pages = 0;
    uint32_t heads = 0, q_cols = 0, q_begin = 0;
    uint32_t kv_cols = 0, latent_begin = 0, key_begin = 0;
    float eps = 0;
};

// The first column that an op picks from each head, and the number of columns that it picks.
uint32_t BeginOf(const Op& pick) {
    return static_cast<uint32_t>(pick.as<program::PickColumns>().begin);
}
uint32_t ColsOfHead(const Emitter& e, const Op& pick) {
    return static_cast<uint32_t>(e.Cols(pick.inputs[0]) / pick.as<program::PickColumns>().heads);
}

Status LowerLatent(Emitter& e, const LatentRun& run) {
    const Op &attention = *OpAt(e, run.attention), &norm = *OpAt(e, run.latent_norm);
    const Op &q = *OpAt(e, run.q_pick), &latent = *OpAt(e, run.latent_pick);
    const Op &key = *OpAt(e, run.key_pick), &rope = *OpAt(e, run.key_rope);
    const ValueId to = attention.inputs[1];
    const CachePlace& cache = e.Cache(attention.inputs.back());
    WEFT_ASSIGN(const uint32_t type, CacheType(attention, cache));
    WEFT_ASSIGN(const AngleTables angles, PlaceAngles(e, rope.as<program::Rope>()));
    Operands io(e);
    LatentArgs args;
    args.q = io.Reads(q.inputs[0]);
    args.kv = io.Reads(latent.inputs[0]);
    args.to = io.Writes(to);
    args.weight = io.Reads(norm.inputs[1]);
    args.cache = io.Writes(cache.All());
    args.positions = e.tables().positions;
    args.fine = io.Reads(angles.fine);
    args.coarse = io.Reads(angles.coarse);
    args.row_sequence = e.tables().row_sequence;
    args.sequences = e.tables().sequences;
    args.pages = e.tables().pages;
    const int64_t turned = rope.as<program::Rope>().head_dim, rank = e.Cols(norm.outputs[0]);
    args.heads = static_cast<uint32_t>(e.Cols(to) / turned);
    args.q_cols = ColsOfHead(e, q);
    args.q_begin = BeginOf(q);
    args.kv_cols = ColsOfHead(e, latent);
    args.latent_begin = BeginOf(latent);
    args.key_begin = BeginOf(key);
    args.eps = norm.as<RmsNorm>().eps;
    WEFT_TRY(io.Run("latent",
                    {NormGroup(rank), type, rank, turned, rope.as<program::Rope>().neighbours,
                     cache.page_tokens},
                    args, {int64_t{args.heads} + 1, e.shape().rows, 1}, PinnedSubgroup(e.gpu())));
    return LowerOverCache(e, attention, attention.as<program::LatentAttention>());
}

Status LowerGlu(Emitter& e, const GluRun& run) {
    const Op *gate = OpAt(e, run.gate), &up = *OpAt(e, run.up), &glu = *OpAt(e, run.glu);
    if (e.Rows(glu.outputs[0]) > kMatvecRows) {
        if (gate != nullptr) WEFT_TRY(LowerOp(e, *gate));
        WEFT_TRY(LowerOp(e, up));
        return LowerOp(e, glu);
    }
    return up.kind() == program::OpKind::kMatMul ? LowerGatedMatMul(e, gate, up, glu)
                                                 : LowerGatedExperts(e, gate, up, glu);
}

Status LowerRoute(Emitter& e, const RouteRun& run) {
    const Op &product = *OpAt(e, run.product), &route = *OpAt(e, run.route);
    if (CanRouteInProduct(e, product)) return LowerRoutedMatMul(e, product, route);
    WEFT_TRY(LowerOp(e, product));
    return LowerOp(e, route);
}

}  // namespace

Status LowerAt(Emitter& e, size_t op, const Fusion* fusion) {
    if (fusion != nullptr && fusion->Moves(op)) return {};
    const FusedRun* const run = fusion == nullptr ? nullptr : fusion->RunAt(op);
    return run != nullptr ? LowerRun(e, *run) : LowerOp(e, e.program().ops[op]);
}

Status LowerRun(Emitter& e, const FusedRun& run) {
    if (const auto* residual = std::get_if<ResidualRun>(&run.what)) {
        return ResidualLowering(e, *residual, run.ops.front(), run.ops.back()).Run();
    }
    if (const auto* glu = std::get_if<GluRun>(&run.what)) return LowerGlu(e, *glu);
    if (const auto* route = std::get_if<RouteRun>(&run.what)) return LowerRoute(e, *route);
    if (const auto* latent = std::get_if<LatentRun>(&run.what)) return LowerLatent(e, *latent);
    return HeadsLowering(e, std::get<HeadsRun>(run.what)).Run();
}

}  // namespace weft::backend::on_gpu
