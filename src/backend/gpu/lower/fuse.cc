#include "backend/gpu/lower/fuse.h"

#include <algorithm>
#include <optional>

#include "program/communication.h"

namespace weft::backend::on_gpu {
namespace {

using program::kNoValue;
using program::Op;
using program::OpKind;
using program::Program;
using program::RmsNorm;
using program::Rope;
using program::ValueId;

constexpr int64_t kMostHeadDim = 1024;  // limit of heads.comp, in shared memory

bool Holds(std::span<const ValueId> all, ValueId id) {
    return std::ranges::find(all, id) != all.end();
}

// Finds runs of ops from the writers and readers of each value.
class RunFinder {
  public:
    RunFinder(const Program& program, std::span<const ValueId> keep,
              std::span<const program::Way> ways)
        : program_(program),
          ways_(ways),
          taken_(program.ops.size(), false),
          writers_(program.values.size()),
          readers_(program.values.size()),
          pinned_(program.values.size(), false) {
        for (size_t i = 0; i < program.ops.size(); ++i) {
            const auto op = static_cast<int32_t>(i);
            for (ValueId id : program.ops[i].inputs) readers_[Home(id)].push_back(op);
            for (ValueId id : program.ops[i].outputs) writers_[Home(id)].push_back(op);
        }
        for (ValueId id : keep) pinned_[Home(id)] = true;
        for (size_t i = 0; i < program.values.size(); ++i) {
            if (program.values[i].storage == program::Storage::kView) {
                pinned_[Home(static_cast<ValueId>(i))] = true;
            }
        }
    }

    std::optional<FusedRun> Find(int32_t op) {
        if (taken_[static_cast<size_t>(op)]) return std::nullopt;
        const OpKind kind = At(op).kind();
        if (kind == OpKind::kAdd) return FindResidual(op);
        if (kind == OpKind::kAttention) return FindHeads(op);
        if (kind == OpKind::kLatentAttention) return FindLatent(op);
        if (kind == OpKind::kGlu) return FindGlu(op);
        if (kind == OpKind::kRoute) return FindRoute(op);
        return std::nullopt;
    }

  private:
    const Op& At(int32_t op) const { return program_.ops[static_cast<size_t>(op)]; }
    size_t Home(ValueId id) const { return static_cast<size_t>(program_.HomeOf(id)); }
    int64_t Cols(ValueId id) const {
        const program::Shape& shape = program_.value(id).shape;
        return shape[shape.rank - 1];
    }

    // The op that writes the value, if only `reader` needs the value.
    int32_t MakerOf(ValueId id, int32_t reader) const {
        const size_t home = Home(id);
        const bool own =
            writers_[home].size() == 1 && !pinned_[home] &&
            std::ranges::all_of(readers_[home], [&](int32_t r) { return r == reader; });
        return own && !taken_[static_cast<size_t>(writers_[home][0])] ? writers_[home][0] : kNoOp;
    }
    int32_t MakerOf(ValueId id, int32_t reader, OpKind kind) const {
        const int32_t op = MakerOf(id, reader);
        return op != kNoOp && At(op).kind() == kind ? op : kNoOp;
    }
    // The only op that reads the value, if it has this kind and nothing else needs the value.
    int32_t ReaderOf(ValueId id, OpKind kind) const {
        const size_t home = Home(id);
        if (readers_[home].size() != 1 || pinned_[home]) return kNoOp;
        const int32_t op = readers_[home][0];
        return At(op).kind() == kind && !taken_[static_cast<size_t>(op)] ? op : kNoOp;
    }
    // Whether the op is a norm of groups of `group` columns, which share weights, are normed by
    // their own squares, and are not centered.
    bool IsNorm(int32_t op, int64_t group) const {
        const auto& norm = At(op).as<RmsNorm>();
        return norm.group == group && norm.whole == 0 && !norm.centered && !norm.apart;
    }
    // Whether the op is a norm of whole rows by an existing sum of squares, in column `square` of
    // two.
    bool IsWholeNorm(int32_t op, int64_t square) const {
        const auto& norm = At(op).as<RmsNorm>();
        return norm.whole != 0 && norm.square == square && !norm.plain &&
               norm.group == Cols(At(op).inputs[0]) && Cols(At(op).inputs.back()) == 2;
    }

    std::optional<FusedRun> Make(decltype(FusedRun::what) what,
                                 std::initializer_list<int32_t> parts);
    bool MayBeOne(std::span<const int32_t> ops) const;
    bool IsOfInference(const Op& op) const;
    bool Touches(int32_t other, const Op& op) const;
    std::optional<FusedRun> FindResidual(int32_t add);
    void FindBefore(ValueId id, int32_t reader, ResidualRun& run) const;
    void FindNext(ResidualRun& run) const;
    std::optional<FusedRun> FindHeads(int32_t attention);
    std::optional<FusedRun> FindLatent(int32_t attention);
    int32_t PickOf(int32_t reader, int64_t heads) const;
    bool TurnsAll(int32_t rope) const;
    std::optional<FusedRun> FindRoute(int32_t route);
    std::optional<FusedRun> FindGlu(int32_t glu);
    bool AreAlike(const Op& gate, const Op& up) const;
    void FindHead(ValueId id, int64_t head_dim, int64_t square, int32_t reader, int32_t& norm,
                  int32_t& rope) const;

    const Program& program_;
    const std::span<const program::Way> ways_;
    std::vector<bool> taken_;                              // by op: part of a run
    std::vector<std::vector<int32_t>> writers_, readers_;  // by value: ops
    std::vector<bool> pinned_;                             // by value: the host reads it
};

// Whether `other` writes what `op` touches, or reads what `op` writes.
bool RunFinder::Touches(int32_t other, const Op& op) const {
    const Op& o = At(other);
    for (const ValueId id : o.outputs) {
        if (Holds(op.inputs, id) || Holds(op.outputs, id)) return true;
    }
    return std::ranges::any_of(o.inputs, [&](ValueId id) { return Holds(op.outputs, id); });
}

// ops: ascending. Views need no check: only weights and gradients have them.
bool RunFinder::MayBeOne(std::span<const int32_t> ops) const {
    for (const int32_t op : ops) {
        for (int32_t other = op + 1; other < ops.back(); ++other) {
            if (std::ranges::find(ops, other) != ops.end()) continue;
            if (program::IsCommunication(At(other).kind()) || Touches(other, At(op))) return false;
        }
    }
    return true;
}

// Whether fused kernels accept the op: float32 activations, and weights in the layout of weights.h.
bool RunFinder::IsOfInference(const Op& op) const {
    const auto half = [&](ValueId id) {
        const program::Value& value = program_.value(id);
        return value.storage == program::Storage::kActivation &&
               (value.dtype == DType::kBF16 || value.dtype == DType::kF16);
    };
    if (std::ranges::any_of(op.inputs, half) || std::ranges::any_of(op.outputs, half)) return false;
    const std::optional<size_t> weight = program::WeightInput(op.kind());
    return !weight || program_.value(op.inputs[*weight]).storage == program::Storage::kWeight;
}

std::optional<FusedRun> RunFinder::Make(decltype(FusedRun::what) what,
                                        std::initializer_list<int32_t> parts) {
    FusedRun run{what, {}};
    std::ranges::copy_if(parts, std::back_inserter(run.ops),
                         [](int32_t op) { return op != kNoOp; });
    std::ranges::sort(run.ops);
    if (run.ops.size() < 2 || !MayBeOne(run.ops)) return std::nullopt;
    const auto trains = [&](int32_t op) { return !IsOfInference(At(op)); };
    if (std::ranges::any_of(run.ops, trains)) return std::nullopt;
    const auto way = [&](int32_t op) { return ways_[static_cast<size_t>(op)]; };
    const auto differs = [&](int32_t op) { return way(op) != way(run.ops[0]); };
    if (!ways_.empty() && std::ranges::any_of(run.ops, differs)) return std::nullopt;
    for (const int32_t op : run.ops) taken_[static_cast<size_t>(op)] = true;
    return run;
}

// ---- Residuals ----------------------------------------------------------------------------------

// Finds the ops of the run before the sum, from one of its operands backward.
void RunFinder::FindBefore(ValueId id, int32_t reader, ResidualRun& run) const {
    const auto step = [&](OpKind kind, int32_t& part) {
        const int32_t op = MakerOf(id, reader, kind);
        if (op == kNoOp || (kind == OpKind::kRmsNorm && !IsNorm(op, Cols(id)))) return;
        part = reader = op;
        id = At(op).inputs[0];
    };
    step(OpKind::kScale, run.scale);
    step(OpKind::kRmsNorm, run.norm);
    step(OpKind::kAddBias, run.bias);
}

// Finds the ops of the run after the sum, up to the first norm that reads it.
void RunFinder::FindNext(ResidualRun& run) const {
    ValueId y = At(run.add).outputs[0];
    run.sum_scale = ReaderOf(y, OpKind::kScale);
    if (run.sum_scale != kNoOp) y = At(run.sum_scale).outputs[0];
    run.select = ReaderOf(y, OpKind::kSelectRows);
    if (run.select != kNoOp) y = At(run.select).outputs[0];
    for (const int32_t op : readers_[Home(y)]) {
        const bool norm = At(op).kind() == OpKind::kRmsNorm && At(op).inputs[0] == y &&
                          !taken_[static_cast<size_t>(op)] && IsNorm(op, Cols(y));
        if (!norm) continue;
        run.next = op;
        return;
    }
}

std::optional<FusedRun> RunFinder::FindResidual(int32_t add) {
    const Op& op = At(add);
    if (op.inputs[0] == op.inputs[1] || program_.value(op.outputs[0]).shape.rank != 2) {
        return std::nullopt;
    }
    ResidualRun run;
    run.add = add;
    FindBefore(op.inputs[1], add, run);
    FindNext(run);
    if (auto made =
            Make(run, {run.bias, run.norm, run.scale, add, run.sum_scale, run.select, run.next})) {
        return made;
    }
    return std::nullopt;
}

// ---- Heads --------------------------------------------------------------------------------------

// square: the column of squares, for a norm of all heads.
void RunFinder::FindHead(ValueId id, int64_t head_dim, int64_t square, int32_t reader,
                         int32_t& norm, int32_t& rope) const {
    const int32_t rotates = MakerOf(id, reader, OpKind::kRope);
    if (rotates != kNoOp && At(rotates).as<Rope>().head_dim == head_dim &&
        At(rotates).as<Rope>().sign == 1 && !At(rotates).as<Rope>().last) {
        rope = reader = rotates;
        id = At(rotates).inputs[0];
    }
    const int32_t norms = MakerOf(id, reader, OpKind::kRmsNorm);
    if (norms != kNoOp && (IsNorm(norms, head_dim) || IsWholeNorm(norms, square))) norm = norms;
}

bool IsSameRope(const Rope& a, const Rope& b) {
    return a.rotary_dim == b.rotary_dim && a.neighbours == b.neighbours &&
           a.inverse_frequency == b.inverse_frequency && a.magnitude == b.magnitude;
}

std::optional<FusedRun> RunFinder::FindHeads(int32_t attention) {
    const Op& op = At(attention);
    const auto& a = op.as<program::Attention>();
    if (!a.cached(op.inputs.size()) || a.head_dim > kMostHeadDim) return std::nullopt;
    if (a.ValueDim() != a.head_dim) return std::nullopt;
    const ValueId q = op.inputs[0], k = op.inputs[1], v = op.inputs[2];
    HeadsRun run;
    run.attention = attention;
    FindHead(q, a.head_dim, 0, attention, run.q_norm, run.q_rope);
    FindHead(k, a.head_dim, 1, attention, run.k_norm, run.k_rope);
    int32_t v_rope = kNoOp;
    FindHead(v, a.head_dim, 2, attention, run.v_norm, v_rope);
    if (v_rope != kNoOp || (run.v_norm != kNoOp && !At(run.v_norm).as<RmsNorm>().plain)) {
        run.v_norm = kNoOp;
    }
    // The fused kernel has one table of angles, one table of squares and one eps, and its norms of
    // q and k have weights.
    const bool ropes = run.q_rope != kNoOp && run.k_rope != kNoOp;
    if (ropes && !IsSameRope(At(run.q_rope).as<Rope>(), At(run.k_rope).as<Rope>())) {
        return std::nullopt;
    }
    std::optional<float> eps;
    ValueId squares = kNoValue;
    for (const int32_t norm : {run.q_norm, run.k_norm, run.v_norm}) {
        if (norm == kNoOp) continue;
        const auto& attributes = At(norm).as<RmsNorm>();
        if (attributes.whole != 0) {
            const ValueId from = At(norm).inputs.back();
            if (squares != kNoValue && from != squares) return std::nullopt;
            squares = from;
        }
        if (eps.value_or(attributes.eps) != attributes.eps) return std::nullopt;
        if (norm != run.v_norm && attributes.plain) return std::nullopt;
        eps = attributes.eps;
    }
    return Make(run, {run.q_norm, run.q_rope, run.k_norm, run.k_rope, run.v_norm, attention});
}

// ---- Latents ------------------------------------------------------------------------------------

// The op that picks the input of `reader` from columns of `heads` heads; kNoOp if other ops read
// it, too.
int32_t RunFinder::PickOf(int32_t reader, int64_t heads) const {
    if (reader == kNoOp) return kNoOp;
    const int32_t pick = MakerOf(At(reader).inputs[0], reader, OpKind::kPickColumns);
    return pick != kNoOp && At(pick).as<program::PickColumns>().heads == heads ? pick : kNoOp;
}

// Whether a RoPE rotates all columns of its heads.
bool RunFinder::TurnsAll(int32_t rope) const {
    const auto& a = At(rope).as<Rope>();
    return a.sign == 1 && a.rotary_dim == a.head_dim;
}

std::optional<FusedRun> RunFinder::FindLatent(int32_t attention) {
    const Op& op = At(attention);
    if (!op.as<program::LatentAttention>().keyed) return std::nullopt;
    LatentRun run;
    run.attention = attention;
    run.q_rope = MakerOf(op.inputs[1], attention, OpKind::kRope);
    run.latent_norm = MakerOf(op.inputs[2], attention, OpKind::kRmsNorm);
    run.key_rope = MakerOf(op.inputs[3], attention, OpKind::kRope);
    run.q_pick = PickOf(run.q_rope, op.as<program::LatentAttention>().heads);
    run.latent_pick = PickOf(run.latent_norm, 1);
    run.key_pick = PickOf(run.key_rope, 1);
    if (run.q_pick == kNoOp || run.latent_pick == kNoOp || run.key_pick == kNoOp) {
        return std::nullopt;
    }
    // One kernel has one table of angles, and one cached product.
    const auto &q_rope = At(run.q_rope).as<Rope>(), &key_rope = At(run.key_rope).as<Rope>();
    const bool one = IsSameRope(q_rope, key_rope) && q_rope.head_dim == key_rope.head_dim &&
                     At(run.latent_pick).inputs[0] == At(run.key_pick).inputs[0];
    const bool whole =
        TurnsAll(run.q_rope) && TurnsAll(run.key_rope) && Cols(op.inputs[3]) == key_rope.head_dim &&
        Cols(op.inputs[1]) == op.as<program::LatentAttention>().heads * q_rope.head_dim &&
        IsNorm(run.latent_norm, Cols(op.inputs[2])) && !At(run.latent_norm).as<RmsNorm>().plain;
    if (!one || !whole) return std::nullopt;
    return Make(run, {run.q_pick, run.q_rope, run.latent_pick, run.latent_norm, run.key_pick,
                      run.key_rope, attention});
}

// ---- Gates --------------------------------------------------------------------------------------

// Whether one kernel can compute both products: they have the same rows, and weights of one layout.
bool RunFinder::AreAlike(const Op& gate, const Op& up) const {
    const bool experts = gate.kind() == OpKind::kExpertMatMul;
    if (gate.kind() != up.kind() || (gate.kind() != OpKind::kMatMul && !experts)) return false;
    if (gate.inputs.size() != up.inputs.size() || gate.inputs[0] != up.inputs[0]) return false;
    if (experts &&
        (gate.inputs[1] != up.inputs[1] || gate.as<program::ExpertMatMul>().first_expert !=
                                               up.as<program::ExpertMatMul>().first_expert)) {
        return false;
    }
    const program::Value& a = program_.value(program::WeightOf(gate));
    const program::Value& b = program_.value(program::WeightOf(up));
    return a.dtype == b.dtype && a.shape == b.shape;
}

std::optional<FusedRun> RunFinder::FindGlu(int32_t glu) {
    const Op& op = At(glu);
    if (op.as<program::Glu>().limit != 0) return std::nullopt;
    const int32_t gate = MakerOf(op.inputs[0], glu), up = MakerOf(op.inputs[1], glu);
    if (up == kNoOp) return std::nullopt;
    const OpKind kind = At(up).kind();
    if (kind != OpKind::kMatMul && kind != OpKind::kExpertMatMul) return std::nullopt;
    if (gate != kNoOp && gate != up && AreAlike(At(gate), At(up))) {
        if (auto made = Make(GluRun{gate, up, glu}, {gate, up, glu})) return made;
    }
    return op.inputs[0] == op.inputs[1] ? std::nullopt : Make(GluRun{kNoOp, up, glu}, {up, glu});
}

std::optional<FusedRun> RunFinder::FindRoute(int32_t route) {
    using program::GateScore;
    const auto& a = At(route).as<program::Route>();
    const bool plain = a.score == GateScore::kSoftmax || a.score == GateScore::kSigmoid;
    if (!plain || a.by_token) return std::nullopt;
    const int32_t product = MakerOf(At(route).inputs[0], route, OpKind::kMatMul);
    return Make(RouteRun{product, route}, {product, route});
}

}  // namespace

Fusion::Fusion(const Program& program, std::span<const ValueId> keep,
               std::span<const program::Way> ways)
    : run_of_(program.ops.size(), -1) {
    RunFinder finder(program, keep, ways);
    for (size_t i = 0; i < program.ops.size(); ++i) {
        auto run = finder.Find(static_cast<int32_t>(i));
        if (run) Add(std::move(*run));
    }
}

void Fusion::Add(FusedRun run) {
    for (const int32_t op : run.ops) {
        run_of_[static_cast<size_t>(op)] = static_cast<int32_t>(runs_.size());
    }
    runs_.push_back(std::move(run));
}

program::Program Fusion::LivesOf(const Program& program) const {
    Program lives = program;
    for (const FusedRun& run : runs_) {
        std::vector<ValueId>& touched = lives.ops[static_cast<size_t>(run.ops.back())].inputs;
        for (const int32_t number : run.ops) {
            const Op& op = program.ops[static_cast<size_t>(number)];
            touched.insert(touched.end(), op.inputs.begin(), op.inputs.end());
            touched.insert(touched.end(), op.outputs.begin(), op.outputs.end());
        }
    }
    return lives;
}

}  // namespace weft::backend::on_gpu
