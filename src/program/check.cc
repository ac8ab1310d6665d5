// The shape check: every rule that an op's comment in program.h states, checked for each op.
#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "program/program.h"

namespace weft::program {
namespace {

class Checker {
  public:
    explicit Checker(const Program& program)
        : program_(program), written_(program.values.size(), false) {
        for (size_t i = 0; i < program.values.size(); ++i) {
            const Storage storage = program.values[i].storage;
            written_[i] = storage != Storage::kActivation && storage != Storage::kView;
        }
    }

    Status Run() {
        std::unordered_set<std::string_view> names;
        for (const Value& value : program_.values) {
            if (names.insert(value.name).second) continue;
            return MakeError(ErrorCode::kUnsupported, "program: two values are named '{}'",
                             value.name);
        }
        for (const Value& value : program_.values) WEFT_TRY(CheckView(value));
        for (index_ = 0; index_ < program_.ops.size(); ++index_) {
            const Op& op = program_.ops[index_];
            for (ValueId id : op.inputs) {
                WEFT_TRY(CheckOperand(id, true));
                if (IsWide(id) && !TakesWide(op)) {
                    return Wrong("it takes no float64 sums");
                }
            }
            for (ValueId id : op.outputs) {
                WEFT_TRY(CheckOperand(id, false));
                WEFT_TRY(CheckWrite(op, id));
            }
            const bool good =
                std::visit([&](const auto& a) { return Check(op, a); }, op.attributes);
            if (!good) return Wrong("operands do not fit the op");
            for (ValueId id : op.outputs) written_[Home(id)] = true;
        }
        return {};
    }

  private:
    size_t Home(ValueId id) const { return static_cast<size_t>(program_.HomeOf(id)); }

    Status CheckView(const Value& view) const {
        if (view.storage != Storage::kView) return {};
        const bool exists =
            view.base >= 0 && static_cast<size_t>(view.base) < program_.values.size();
        if (exists) {
            const Value& base = program_.value(view.base);
            const int64_t all = base.shape.Elements(0, 0), own = view.shape.Elements(0, 0);
            if (base.storage != Storage::kView && base.dtype == view.dtype && own > 0 &&
                view.base_begin >= 0 && view.base_begin <= all - own) {
                return {};
            }
        }
        return MakeError(ErrorCode::kUnsupported, "program: {} is a view outside of its base",
                         view.name);
    }

    Error Wrong(std::string_view what) const {
        const Op& op = program_.ops[index_];
        std::string operands;
        for (ValueId id : op.inputs) operands += OperandText(id);
        operands += " ->";
        for (ValueId id : op.outputs) operands += OperandText(id);
        return MakeError(ErrorCode::kUnsupported, "program op {} ({}): {}:{}", index_,
                         OpName(op.kind()), what, operands);
    }

    std::string OperandText(ValueId id) const {
        if (id < 0 || static_cast<size_t>(id) >= program_.values.size()) return " (no such value)";
        return fmt::format(" {} {}", program_.value(id).name, program_.value(id).shape.Text());
    }

    Status CheckOperand(ValueId id, bool is_input) const {
        if (id < 0 || static_cast<size_t>(id) >= program_.values.size()) {
            return Wrong("an operand names no value");
        }
        if (is_input && !written_[Home(id)]) {
            return Wrong(fmt::format("{} is read before it is written", program_.value(id).name));
        }
        const Value& value = program_.value(id);
        if (value.shape.rank < 1) return Wrong(value.name + " has no shape");
        const int64_t last = value.shape[value.shape.rank - 1];
        if (last > 0 && last % Info(value.dtype).block_elements != 0) {
            return Wrong(fmt::format("{}: rows of {} are no whole {} blocks", value.name, last,
                                     Info(value.dtype).name));
        }
        return {};
    }

    // Activations are written once, but for those that an op adds to (its last input).
    Status CheckWrite(const Op& op, ValueId id) const {
        const Value& value = program_.value(program_.HomeOf(id));
        const bool adds = !op.inputs.empty() && op.inputs.back() == id;
        if (value.storage == Storage::kGradient) return {};
        const bool kept = value.storage == Storage::kOptimizer || value.storage == Storage::kWeight;
        if (kept && Updates(op)) return {};
        if (value.storage != Storage::kActivation) {
            return Wrong(value.name + " is written, but it is no activation");
        }
        if (written_[Home(id)] && !adds) {
            return Wrong(value.name + " is written twice");
        }
        return {};
    }

    // Whether it may write what outlives the step.
    static bool Updates(const Op& op) {
        return op.kind() == OpKind::kGatherShares || op.kind() == OpKind::kZero ||
               IsOfUpdate(op.kind());
    }

    // True when the op has this many operands.
    static bool Counts(const Op& op, size_t inputs, size_t outputs) {
        return op.inputs.size() == inputs && op.outputs.size() == outputs;
    }
    const Shape& In(const Op& op, size_t i) const { return program_.value(op.inputs[i]).shape; }
    const Shape& Out(const Op& op, size_t i) const { return program_.value(op.outputs[i]).shape; }
    DType InType(const Op& op, size_t i) const { return program_.value(op.inputs[i]).dtype; }
    static bool Matrix(const Shape& s) { return s.rank == 2; }
    // Operand i is a list of tokens, positions or rows.
    bool IsIndex(const Op& op, size_t i) const {
        return InType(op, i) == DType::kI32 && In(op, i).rank == 1;
    }

    bool Check(const Op& op, const Embedding&) const {
        return Counts(op, 2, 1) && IsIndex(op, 0) && Matrix(In(op, 1)) &&
               Out(op, 0) == Shape{In(op, 0)[0], In(op, 1)[1]};
    }
    bool Check(const Op& op, const RmsNorm& a) const {
        const bool squares = a.whole != 0;
        if (squares && !(!a.plain && Counts(op, 3, 1) && Matrix(In(op, 2)) &&
                         In(op, 2)[0] == In(op, 0)[0] && a.square >= 0 && a.square < In(op, 2)[1] &&
                         a.group == In(op, 0)[1] && a.whole >= a.group)) {
            return false;
        }
        if (!squares && !Counts(op, a.plain ? 1 : 2, 1)) return false;
        return Matrix(In(op, 0)) && In(op, 0) == Out(op, 0) && a.group > 0 &&
               In(op, 0)[1] % a.group == 0 && (a.plain || In(op, 1) == Shape{a.group});
    }
    bool Check(const Op& op, const SumSquares& a) const {
        if (!Counts(op, a.columns.size(), 1) || a.columns.empty()) return false;
        for (size_t i = 0; i < a.columns.size(); ++i) {
            const auto [begin, count] = a.columns[i];
            if (!Matrix(In(op, i)) || In(op, i)[0] != In(op, 0)[0] || begin < 0 || count < 0 ||
                begin > In(op, i)[1] - count) {
                return false;
            }
        }
        return Out(op, 0) == Shape{In(op, 0)[0], static_cast<int64_t>(a.columns.size())};
    }
    bool Check(const Op& op, const MatMul& a) const {
        const bool bias = op.inputs.size() == 3;
        if (!bias && op.inputs.size() != 2) return false;
        if (a.shared_rows != 0) {
            const int64_t begin = program_.value(op.inputs[1]).slice.row_begin;
            if (a.cut != Cut::kRows || begin > a.shared_rows - In(op, 1)[0]) return false;
        }
        if (op.outputs.size() != 1 || a.segment_cols < 0) return false;
        if (IsWide(op.outputs[0]) && (bias || a.segment_cols == 0)) return false;
        return Matrix(In(op, 0)) && Matrix(In(op, 1)) && In(op, 0)[1] == In(op, 1)[1] &&
               Out(op, 0) == Shape{In(op, 0)[0], In(op, 1)[0]} &&
               (!bias || In(op, 2) == Shape{In(op, 1)[0]});
    }
    bool Check(const Op& op, const Rope& a) const {
        return Counts(op, 2, 1) && Matrix(In(op, 0)) && In(op, 0) == Out(op, 0) && IsIndex(op, 1) &&
               In(op, 1)[0] == In(op, 0)[0] && a.head_dim > 0 && In(op, 0)[1] % a.head_dim == 0 &&
               a.rotary_dim >= 0 && a.rotary_dim <= a.head_dim && a.rotary_dim % 2 == 0 &&
               static_cast<int64_t>(a.inverse_frequency.size()) * 2 == a.rotary_dim;
    }
    // Heads of `a` fit q [T, heads * hd], k and v [T, kv * hd].
    bool HeadsFit(const Attention& a, const Shape& q, const Shape& k, const Shape& v) const {
        if (a.heads <= 0 || a.kv_heads <= 0 || a.group <= 0 || a.first_head < 0) return false;
        const int64_t first = a.first_head / a.group;
        const int64_t last = (a.first_head + a.heads - 1) / a.group;
        return first >= a.first_kv_head && last < a.first_kv_head + a.kv_heads && Matrix(q) &&
               k == Shape{q[0], a.kv_heads * a.head_dim} && v == k && q[1] == a.heads * a.head_dim;
    }
    bool Check(const Op& op, const Attention& a) const {
        const size_t first = a.sinks ? 4 : 3;  // of the caches
        const bool lse = Counts(op, 3, 2) && !a.sinks && Out(op, 1) == Shape{In(op, 0)[0], a.heads};
        if (!(lse || Counts(op, first, 1) || Counts(op, first + 2, 1))) return false;
        if (a.sinks && !(In(op, 3) == Shape{a.heads})) return false;
        if (a.window < 0 || !(a.soft_cap >= 0)) return false;
        for (size_t i = first; i < op.inputs.size(); ++i) {
            if (program_.value(op.inputs[i]).storage != Storage::kState) return false;
            if (!(In(op, i) == Shape{a.kv_heads, a.head_dim})) return false;
        }
        return HeadsFit(a, In(op, 0), In(op, 1), In(op, 2)) && Out(op, 0) == In(op, 0);
    }
    bool Check(const Op& op, const Glu&) const { return SameShapes(op, 2, 1); }
    bool Check(const Op& op, const Add&) const { return SameShapes(op, 2, 1); }
    bool Check(const Op& op, const AddBias&) const {
        return Counts(op, 2, 1) && Matrix(In(op, 0)) && In(op, 1) == Shape{In(op, 0)[1]} &&
               Out(op, 0) == In(op, 0);
    }
    bool Check(const Op& op, const Scale&) const { return SameShapes(op, 1, 1); }
    bool Check(const Op& op, const SoftCap& a) const { return SameShapes(op, 1, 1) && a.cap > 0; }
    bool Check(const Op& op, const SelectRows&) const {
        return Counts(op, 2, 1) && IsIndex(op, 1) && Matrix(In(op, 0)) &&
               Out(op, 0) == Shape{In(op, 1)[0], In(op, 0)[1]};
    }
    bool Check(const Op& op, const AllReduce&) const {
        return SameShapes(op, 1, 1) && !IsWide(op.outputs[0]);
    }
    static bool TakesWide(const Op& op) {
        return op.kind() == OpKind::kAllReduce || op.kind() == OpKind::kExpertSum ||
               op.kind() == OpKind::kAdapt || IsOfUpdate(op.kind());
    }
    bool IsWide(ValueId id) const { return program_.value(id).dtype == DType::kF64; }
    bool Check(const Op& op, const AllGather& a) const {
        int64_t columns = 0;
        int64_t begin = -1;
        for (int64_t part : a.parts) {
            if (columns == a.begin && part == In(op, 0)[1]) begin = columns;
            columns += part;
        }
        return Counts(op, 1, 1) && begin == a.begin && Matrix(In(op, 0)) &&
               Out(op, 0) == Shape{In(op, 0)[0], columns};
    }
    // `share` has own rows of `all`.
    static bool AreShares(const Shape& share, const Shape& all) {
        return Matrix(share) && Matrix(all) && SharingRanks(share[0]) > 0 && all[0] == kTokens &&
               share[1] == all[1];
    }
    bool Check(const Op& op, const GatherRows&) const {
        return Counts(op, 1, 1) && AreShares(In(op, 0), Out(op, 0));
    }
    bool Check(const Op& op, const ReduceScatterRows&) const {
        return Counts(op, 1, 1) && AreShares(Out(op, 0), In(op, 0));
    }
    bool Check(const Op& op, const SliceRows&) const {
        return Counts(op, 1, 1) && AreShares(Out(op, 0), In(op, 0));
    }
    // A narrow matrix lies at columns [begin, ...) of a wide one.
    static bool Within(const Shape& narrow, const Shape& wide, int64_t begin) {
        return Matrix(narrow) && Matrix(wide) && narrow[0] == wide[0] && begin >= 0 &&
               begin <= wide[1] - narrow[1];
    }
    bool Check(const Op& op, const SliceColumns& a) const {
        return Counts(op, 1, 1) && Within(Out(op, 0), In(op, 0), a.begin);
    }
    bool Check(const Op& op, const PadColumns& a) const {
        return Counts(op, 1, 1) && Within(In(op, 0), Out(op, 0), a.begin);
    }
    bool IsLoss(const Shape& logits, const Shape& targets, DType target_type,
                const Shape& loss) const {
        return Matrix(logits) && targets == Shape{logits[0]} && target_type == DType::kI32 &&
               loss == Shape{1};
    }
    bool Check(const Op& op, const SoftmaxCrossEntropy&) const {
        return Counts(op, 2, 1) && IsLoss(In(op, 0), In(op, 1), InType(op, 1), Out(op, 0));
    }
    bool Check(const Op& op, const SoftmaxCrossEntropyGrad&) const {
        return Counts(op, 3, 1) && IsLoss(In(op, 1), In(op, 2), InType(op, 2), In(op, 0)) &&
               Out(op, 0) == In(op, 1);
    }
    bool Check(const Op& op, const LinearCrossEntropy& a) const {
        return Counts(op, 3, 1) && IsHead(op, 0, a) && Out(op, 0) == Shape{1};
    }
    bool Check(const Op& op, const LinearCrossEntropyGrad& a) const {
        const bool weight =
            Counts(op, 5, 2) && op.inputs[4] == op.outputs[1] && In(op, 4) == In(op, 2);
        return (weight || Counts(op, 4, 1)) && In(op, 0) == Shape{1} && IsHead(op, 1, a.forward) &&
               Out(op, 0) == In(op, 1);
    }
    // Operands from `first` on are x, weight and targets.
    bool IsHead(const Op& op, size_t first, const LinearCrossEntropy& a) const {
        const Shape &x = In(op, first), &weight = In(op, first + 1);
        return Matrix(x) && Matrix(weight) && x[1] == weight[1] && a.first_row >= 0 &&
               In(op, first + 2) == Shape{x[0]} && IsIndex(op, first + 2);
    }
    // `share` is the part at `begin` of `all`.
    static bool IsShare(const Shape& all, const Shape& share, const std::vector<int64_t>& parts,
                        int64_t begin) {
        int64_t sum = 0;
        bool own = false;
        for (const int64_t part : parts) {
            if (part < 0) return false;
            own = own || (sum == begin && Shape{part} == share);
            sum += part;
        }
        return own && all == Shape{sum};
    }
    bool Check(const Op& op, const GatherShares& a) const {
        return Counts(op, 1, 1) && IsShare(Out(op, 0), In(op, 0), a.parts, a.begin);
    }
    bool Check(const Op& op, const ReduceShares& a) const {
        return Counts(op, 2, 1) && op.inputs[1] == op.outputs[0] &&
               IsShare(In(op, 0), In(op, 1), a.parts, a.begin);
    }
    bool Check(const Op& op, const Route& a) const {
        const size_t most = a.factors ? 3 : 2;
        if (op.inputs.size() < most - 1 || op.inputs.size() > most || op.outputs.size() != 2) {
            return false;
        }
        const Shape &logits = In(op, 0), &ids = Out(op, 0);
        if (!Matrix(logits) || !Matrix(ids) || ids[0] != logits[0] || !(Out(op, 1) == ids)) {
            return false;
        }
        const int64_t experts = logits[1], used = ids[1];
        if (a.groups < 1 || a.groups_used < 1 || a.groups_used > a.groups || a.group_best < 1 ||
            experts % a.groups != 0 || a.group_best > experts / a.groups) {
            return false;
        }
        return used >= 1 && used <= experts / a.groups * a.groups_used &&
               program_.value(op.outputs[0]).dtype == DType::kI32 && !IsWide(op.outputs[1]) &&
               std::all_of(op.inputs.begin() + 1, op.inputs.end(),
                           [&](ValueId id) { return program_.value(id).shape == Shape{experts}; });
    }
    static bool Stack(const Shape& s) { return s.rank == 3; }
    // Ids [T, K] beside x [T, k] or [T, K, k].
    bool IsRouted(const Op& op, const Shape& x, size_t ids) const {
        const Shape& k = In(op, ids);
        return InType(op, ids) == DType::kI32 && Matrix(k) && k[0] == x[0] &&
               (Matrix(x) || (Stack(x) && x[1] == k[1]));
    }
    bool Check(const Op& op, const ExpertMatMul& a) const {
        const size_t inputs = op.inputs.size();
        if ((inputs != 3 && inputs != 4) || op.outputs.size() != 1 || a.first_expert < 0) {
            return false;
        }
        const Shape &x = In(op, 0), &weight = In(op, 2);
        return IsRouted(op, x, 1) && Stack(weight) && x[x.rank - 1] == weight[2] &&
               Out(op, 0) == Shape{x[0], In(op, 1)[1], weight[1]} && !IsWide(op.outputs[0]) &&
               (inputs == 3 || In(op, 3) == Shape{weight[0], 1, weight[1]});
    }
    bool Check(const Op& op, const ExpertSum& a) const {
        const size_t inputs = 4 + size_t{a.bias} + size_t{a.base};
        if (!Counts(op, inputs, 1) || a.first_expert < 0 || a.segment_cols < 0) return false;
        const Shape &x = In(op, 0), &weight = In(op, 3);
        for (size_t i = 0; i < inputs - size_t{a.base}; ++i) {
            if (IsWide(op.inputs[i])) return false;
        }
        return Stack(x) && IsRouted(op, x, 1) && In(op, 2) == In(op, 1) && Stack(weight) &&
               x[2] == weight[2] && Out(op, 0) == Shape{x[0], weight[1]} &&
               (!a.bias || In(op, 4) == Shape{weight[0], 1, weight[1]}) &&
               (!a.base || In(op, inputs - 1) == Out(op, 0));
    }
    bool Check(const Op& op, const Adapt& a) const {
        const size_t pairs = a.adapters.size();
        if (pairs == 0 || a.segment_cols < 0 || !Counts(op, 2 + 2 * pairs, 1)) return false;
        const Shape &x = In(op, 0), &y = Out(op, 0);
        if (op.inputs.back() != op.outputs[0] || !Matrix(x) || !Matrix(y) || x[0] != y[0]) {
            return false;
        }
        if (IsWide(op.outputs[0]) && a.segment_cols == 0) return false;
        for (size_t i = 0; i < pairs; ++i) {
            const Value &down = program_.value(a.A(op.inputs, i)),
                        &up = program_.value(a.B(op.inputs, i));
            const bool floats =
                down.dtype == up.dtype && (down.dtype == DType::kF32 || down.dtype == DType::kBF16);
            if (!floats || !Matrix(down.shape) || down.shape[1] != x[1] ||
                up.shape != Shape{y[1], down.shape[0]} || a.adapters[i] < 1 ||
                (i > 0 && a.adapters[i] <= a.adapters[i - 1])) {
                return false;
            }
        }
        return true;
    }
    bool Check(const Op& op, const GateRows&) const {
        return Counts(op, 2, 1) && Matrix(In(op, 0)) && Out(op, 0) == In(op, 0) &&
               In(op, 1) == Shape{In(op, 0)[0], 1};
    }
    bool Check(const Op& op, const RouterLoad&) const {
        const bool first = Counts(op, 2, 1);
        return (first || (Counts(op, 3, 1) && In(op, 2) == Out(op, 0))) && Matrix(In(op, 0)) &&
               InType(op, 1) == DType::kI32 && Matrix(In(op, 1)) && In(op, 1)[0] == In(op, 0)[0] &&
               Out(op, 0) == Shape{2, In(op, 0)[1]};
    }
    bool Check(const Op& op, const LoadBalance& a) const {
        return Counts(op, 1, 1) && IsLoad(In(op, 0)) && Out(op, 0) == Shape{1} && a.used > 0;
    }
    static bool IsLoad(const Shape& s) { return Matrix(s) && s[0] == 2 && s[1] > 0; }
    bool Check(const Op& op, const HeadMatMul&) const {
        if (!Counts(op, 2, 1) || !Matrix(In(op, 0)) || !Stack(In(op, 1))) return false;
        const Shape &x = In(op, 0), &weight = In(op, 1);
        return x[1] == weight[0] * weight[2] && Out(op, 0) == Shape{x[0], weight[0] * weight[1]};
    }
    bool Check(const Op& op, const PickColumns& a) const {
        if (!Counts(op, 1, 1) || !Matrix(In(op, 0)) || !Matrix(Out(op, 0))) return false;
        const Shape &x = In(op, 0), &y = Out(op, 0);
        return a.heads > 0 && x[0] == y[0] && x[1] % a.heads == 0 && y[1] % a.heads == 0 &&
               a.begin >= 0 && a.begin <= (x[1] - y[1]) / a.heads;
    }
    bool Check(const Op& op, const LatentAttention& a) const {
        if (!Counts(op, 5, 1)) return false;
        for (size_t i = 0; i < 4; ++i) {
            if (!Matrix(In(op, i)) || In(op, i)[0] != In(op, 0)[0]) return false;
        }
        const int64_t rank = In(op, 2)[1], rope = In(op, 3)[1];
        return a.heads > 0 && In(op, 0)[1] == a.heads * rank && In(op, 1)[1] == a.heads * rope &&
               program_.value(op.inputs[4]).storage == Storage::kState &&
               In(op, 4) == Shape{1, rank + rope} && Out(op, 0) == In(op, 0);
    }
    bool Check(const Op& op, const Send& a) const { return Counts(op, 1, 0) && a.peer >= 0; }
    bool Check(const Op& op, const Recv& a) const { return Counts(op, 0, 1) && a.peer >= 0; }
    bool Check(const Op& op, const Zero&) const { return Counts(op, 0, 1); }

    bool Check(const Op& op, const MatMulGradInput&) const {
        return Counts(op, 2, 1) && In(op, 0)[1] == In(op, 1)[0] &&
               Out(op, 0) == Shape{In(op, 0)[0], In(op, 1)[1]};
    }
    bool Check(const Op& op, const MatMulGradWeight&) const {
        return Counts(op, 3, 1) && op.inputs[2] == op.outputs[0] && In(op, 0)[0] == In(op, 1)[0] &&
               In(op, 2) == Shape{In(op, 0)[1], In(op, 1)[1]};
    }
    bool Check(const Op& op, const BiasGrad&) const {
        return Counts(op, 2, 1) && op.inputs[1] == op.outputs[0] &&
               In(op, 1) == Shape{In(op, 0)[1]};
    }
    bool Check(const Op& op, const RmsNormGradInput& a) const {
        return Counts(op, 3, 1) && In(op, 0) == In(op, 1) && Out(op, 0) == In(op, 1) &&
               In(op, 2) == Shape{a.group};
    }
    bool Check(const Op& op, const RmsNormGradWeight& a) const {
        return Counts(op, 3, 1) && op.inputs[2] == op.outputs[0] && In(op, 0) == In(op, 1) &&
               In(op, 2) == Shape{a.group};
    }
    bool Check(const Op& op, const AttentionGrad& a) const {
        return Counts(op, 6, 3) && In(op, 0) == In(op, 1) && In(op, 4) == In(op, 1) &&
               In(op, 5) == Shape{In(op, 1)[0], a.forward.heads} &&
               HeadsFit(a.forward, In(op, 1), In(op, 2), In(op, 3)) && Out(op, 0) == In(op, 1) &&
               Out(op, 1) == In(op, 2) && Out(op, 2) == In(op, 3);
    }
    bool Check(const Op& op, const GluGrad&) const { return SameShapes(op, 3, 2); }
    bool Check(const Op& op, const RouteGrad&) const {
        return Counts(op, 3, 1) && Matrix(In(op, 1)) && In(op, 0) == In(op, 2) &&
               IsRouted(op, In(op, 1), 2) && Out(op, 0) == In(op, 1);
    }
    // dy [T, K, n] of x [T, k] by matrices [m, n, k].
    bool IsExpertGrad(const Op& op, size_t ids, const Shape& x, const Shape& weight) const {
        const Shape& dy = In(op, 0);
        return Stack(dy) && Matrix(x) && Stack(weight) && IsRouted(op, dy, ids) && x[0] == dy[0] &&
               dy[2] == weight[1] && x[1] == weight[2];
    }
    bool Check(const Op& op, const ExpertMatMulGradInput& a) const {
        return Counts(op, 3, 1) && a.first_expert >= 0 &&
               IsExpertGrad(op, 1, Out(op, 0), In(op, 2));
    }
    bool Check(const Op& op, const ExpertMatMulGradWeight& a) const {
        return Counts(op, 4, 1) && a.first_expert >= 0 && op.inputs[3] == op.outputs[0] &&
               IsExpertGrad(op, 2, In(op, 1), In(op, 3));
    }
    // dy [T, n] of x [T, K, k], summed by weights [T, K], by matrices [m, n, k].
    bool IsSumGrad(const Op& op) const {
        const Shape &dy = In(op, 0), &x = In(op, 1), &weight = In(op, 4);
        return Matrix(dy) && Stack(x) && Stack(weight) && IsRouted(op, x, 2) &&
               In(op, 3) == In(op, 2) && dy == Shape{x[0], weight[1]} && x[2] == weight[2];
    }
    bool Check(const Op& op, const ExpertSumGradInput& a) const {
        return Counts(op, 5, 2) && a.first_expert >= 0 && IsSumGrad(op) &&
               Out(op, 0) == In(op, 1) && Out(op, 1) == In(op, 3);
    }
    bool Check(const Op& op, const ExpertSumGradWeight& a) const {
        return Counts(op, 5, 1) && a.first_expert >= 0 && op.inputs[4] == op.outputs[0] &&
               IsSumGrad(op);
    }
    bool Check(const Op& op, const GateRowsGrad&) const {
        return Counts(op, 3, 2) && Matrix(In(op, 0)) && In(op, 1) == In(op, 0) &&
               In(op, 2) == Shape{In(op, 0)[0], 1} && Out(op, 0) == In(op, 1) &&
               Out(op, 1) == In(op, 2);
    }
    bool Check(const Op& op, const RouterLoadGrad&) const {
        return Counts(op, 2, 1) && IsLoad(In(op, 0)) && Matrix(In(op, 1)) &&
               In(op, 0)[1] == In(op, 1)[1] && Out(op, 0) == In(op, 1);
    }
    bool Check(const Op& op, const LoadBalanceGrad&) const {
        return Counts(op, 2, 1) && In(op, 0) == Shape{1} && IsLoad(In(op, 1)) &&
               Out(op, 0) == In(op, 1);
    }
    bool Check(const Op& op, const EmbeddingGrad&) const {
        return Counts(op, 3, 1) && op.inputs[2] == op.outputs[0] && IsIndex(op, 1) &&
               Matrix(In(op, 2)) && In(op, 0) == Shape{In(op, 1)[0], In(op, 2)[1]};
    }
    bool Check(const Op& op, const SelectRowsGrad&) const {
        return Counts(op, 2, 1) && IsIndex(op, 1) && Matrix(Out(op, 0)) &&
               In(op, 0) == Shape{In(op, 1)[0], Out(op, 0)[1]};
    }
    bool Check(const Op& op, const SumOver&) const {
        return Counts(op, 1, 1) && op.inputs[0] == op.outputs[0];
    }
    bool Vector(const Op& op, size_t i) const { return In(op, i).rank == 1; }
    bool IsSumOf(const Op& op, size_t i) const {
        return Vector(op, i) && IsWide(op.inputs[i]) && op.outputs[0] == op.inputs[i];
    }
    bool Check(const Op& op, const AddSquares& a) const {
        if (!Counts(op, 2, 1) || !Vector(op, 0) || In(op, 1) != Shape{1}) return false;
        const int64_t count = In(op, 0)[0];
        return IsSumOf(op, 1) && std::ranges::all_of(a.ranges, [&](const ElementRange& range) {
                   return range.begin >= 0 && range.begin < range.end && range.end <= count;
               });
    }
    // A gradient and weights of one length, `kept` operands that begin with the outputs, and a copy
    // or none; outputs are all inputs but for the gradient.
    bool IsUpdate(const Op& op, size_t kept) const {
        const size_t inputs = op.inputs.size();
        if (inputs != 2 + kept && inputs != 3 + kept) return false;
        if (!Vector(op, 0) || In(op, 1) != In(op, 0) || InType(op, 1) != DType::kF32) return false;
        if (inputs == 3 + kept && In(op, inputs - 1) != In(op, 0)) return false;
        return std::equal(op.inputs.begin() + 1, op.inputs.end(), op.outputs.begin(),
                          op.outputs.end());
    }
    static bool AreRuns(const std::vector<UpdateRun>& runs, int64_t count, int64_t kept) {
        return std::ranges::all_of(runs, [&](const UpdateRun& run) {
            return run.begin >= 0 && run.kept >= 0 && run.count > 0 &&
                   run.begin <= count - run.count && run.kept <= kept - run.count;
        });
    }
    bool Check(const Op& op, const AdamUpdate& a) const {
        return IsUpdate(op, 2) && In(op, 2) == In(op, 3) &&
               AreRuns(a.runs, In(op, 0)[0], In(op, 2)[0]);
    }
    bool Check(const Op& op, const Adam8bitUpdate& a) const {
        return IsUpdate(op, 4) && In(op, 2) == In(op, 3) && In(op, 4) == In(op, 5) &&
               InType(op, 2) == DType::kI32 && InType(op, 3) == DType::kI32 &&
               AreRuns(a.adam.runs, In(op, 0)[0], 4 * In(op, 2)[0]);
    }
    bool Check(const Op& op, const SgdUpdate& a) const {
        const size_t kept = a.momentum > 0 ? 1 : 0;
        const int64_t count = In(op, 0)[0];
        return IsUpdate(op, kept) && AreRuns(a.runs, count, kept == 0 ? count : In(op, 2)[0]);
    }
    // numbers: of the moments of all tensors.
    static bool IsInside(const FactoredTensor& t, int64_t numbers) {
        return t.rows >= 0 && t.cols > 0 && t.matrices > 0 && t.rows_at >= 0 && t.cols_at >= 0 &&
               t.rows_at <= numbers - t.rows && t.cols_at <= numbers - t.cols * t.matrices;
    }
    static bool AreRuns(const std::vector<FactoredRun>& runs, int64_t count, int64_t numbers) {
        return std::ranges::all_of(runs, [&](const FactoredRun& run) {
            const int64_t elements = run.range.end - run.range.begin;
            return IsInside(run.tensor, numbers) && elements > 0 && run.range.begin >= 0 &&
                   run.own >= 0 && run.own <= count - elements && run.col_count > 0 &&
                   run.col_begin >= 0 && run.col_begin <= run.tensor.cols - run.col_count;
        });
    }
    bool Check(const Op& op, const AdafactorSums& a) const {
        return Counts(op, 3, 1) && Vector(op, 0) && In(op, 1) == In(op, 0) && IsSumOf(op, 2) &&
               AreRuns(a.runs, In(op, 0)[0], a.moments);
    }
    bool Check(const Op& op, const AdafactorMoments& a) const {
        if (!Counts(op, 3, 2) || !Vector(op, 1) || In(op, 2) != In(op, 1)) return false;
        const bool same = op.outputs[0] == op.inputs[1] && op.outputs[1] == op.inputs[2];
        return same && IsWide(op.inputs[0]) &&
               std::ranges::all_of(a.tensors, [&](const FactoredTensor& tensor) {
                   return IsInside(tensor, In(op, 1)[0]);
               });
    }
    bool Check(const Op& op, const AdafactorSizes& a) const {
        return Counts(op, 3, 1) && Vector(op, 0) && IsSumOf(op, 2) &&
               AreRuns(a.runs, In(op, 0)[0], In(op, 1)[0]);
    }
    bool Check(const Op& op, const AdafactorUpdate& a) const {
        const bool copy = op.inputs.size() == 6;
        if (!Counts(op, copy ? 6 : 5, copy ? 2 : 1) || !Vector(op, 0)) return false;
        return In(op, 1) == In(op, 0) && op.outputs[0] == op.inputs[1] && IsWide(op.inputs[3]) &&
               IsWide(op.inputs[4]) && (!copy || op.outputs[1] == op.inputs[5]) &&
               AreRuns(a.runs, In(op, 0)[0], In(op, 2)[0]);
    }
    bool SameShapes(const Op& op, size_t inputs, size_t outputs) const {
        if (!Counts(op, inputs, outputs)) return false;
        for (size_t i = 1; i < inputs; ++i) {
            if (!(In(op, i) == In(op, 0))) return false;
        }
        for (size_t i = 0; i < outputs; ++i) {
            if (!(Out(op, i) == In(op, 0))) return false;
        }
        return true;
    }

    const Program& program_;
    std::vector<bool> written_;
    size_t index_ = 0;
};

}  // namespace

Status CheckShapes(const Program& program) {
    return Checker(program).Run();
}

}  // namespace weft::program
