// The shape check: checks every op against its row in ops.h and its attributes.
#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <span>
#include <string_view>
#include <unordered_set>

#include "program/placement.h"
#include "program/program.h"

namespace weft::program {
namespace {

// The size that each letter of an op's row means in this op.
class Dimensions {
  public:
    // Returns false if `shape` does not match the row.
    bool Fit(const Operand& operand, const Shape& shape) {
        const auto end = operand.dims.begin() + operand.rank;
        const auto run =
            static_cast<int>(std::find(operand.dims.begin(), end, '.') - operand.dims.begin());
        if (run == operand.rank) {
            return shape.rank == operand.rank && FitEach(operand, 0, shape, 0, run);
        }
        const int after = operand.rank - run - 1;
        if (shape.rank < run + after) return false;
        const std::vector<int64_t> dims(shape.dims.begin() + run,
                                        shape.dims.begin() + shape.rank - after);
        if (run_.empty()) run_.push_back(dims);
        return run_[0] == dims && FitEach(operand, 0, shape, 0, run) &&
               FitEach(operand, run + 1, shape, shape.rank - after, after);
    }

  private:
    bool FitEach(const Operand& operand, int first, const Shape& shape, int from, int count) {
        for (int i = 0; i < count; ++i) {
            const char letter = operand.dims[static_cast<size_t>(first + i)];
            const int64_t dim = shape[from + i];
            const bool fixed = letter >= '0' && letter <= '9';
            if (fixed && dim != letter - '0') return false;
            if (fixed || letter == '_') continue;
            if (letters_.emplace(letter, dim).first->second != dim) return false;
        }
        return true;
    }
    std::map<char, int64_t> letters_;
    std::vector<std::vector<int64_t>> run_;  // the dimensions of `..`, once known
};

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
            }
            for (ValueId id : op.outputs) {
                WEFT_TRY(CheckOperand(id, false));
                WEFT_TRY(CheckWrite(op, id));
            }
            const bool good =
                FitsRow(op) && op.attributes.Visit([&](const auto& a) { return Check(op, a); });
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
            if (base.storage != Storage::kView && base.dtype == view.dtype &&
                IsInside(view, base)) {
                return {};
            }
        }
        return MakeError(ErrorCode::kUnsupported, "program: {} is a view outside of its base",
                         view.name);
    }

    static bool IsInside(const Value& view, const Value& base) {
        if (base.shape[0] == kOutputs) {
            const RowPiece piece = PieceOf(view.shape[0]);
            const bool alike = std::equal(view.shape.dims.begin() + 1, view.shape.dims.end(),
                                          base.shape.dims.begin() + 1);
            return piece.rows > 0 && alike &&
                   view.base_begin == piece.begin * base.shape.Elements(0, 1);
        }
        const int64_t all = base.shape.Elements(0, 0), own = view.shape.Elements(0, 0);
        return own > 0 && view.base_begin >= 0 && view.base_begin <= all - own;
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
            return Wrong(fmt::format("{}: rows of {} are not whole {} blocks", value.name, last,
                                     Info(value.dtype).name));
        }
        return {};
    }

    // Activations are written once, except those to which an op adds (its last inputs).
    Status CheckWrite(const Op& op, ValueId id) {
        const Value& value = program_.value(program_.HomeOf(id));
        const auto output = std::ranges::find(op.outputs, id);
        const auto behind = static_cast<size_t>(op.outputs.end() - output);
        const bool adds = behind <= op.inputs.size() && op.inputs[op.inputs.size() - behind] == id;
        if (value.storage == Storage::kGradient) return {};
        const bool lasts =
            value.storage == Storage::kOptimizer || value.storage == Storage::kWeight;
        if (lasts && MayUpdate(op.kind())) return {};
        if (value.storage != Storage::kActivation) {
            return Wrong(value.name + " is written, but it is not an activation");
        }
        // (Pieces of R are written one by one.)
        const bool piece = PieceOf(program_.value(id).shape[0]).rows > 0;
        const bool again = piece ? !pieces_.insert(id).second : written_[Home(id)];
        if (again && !adds) {
            return Wrong(value.name + " is written twice");
        }
        return {};
    }

    // Whether an op may write values that outlive the step.
    static bool MayUpdate(OpKind kind) {
        return IsOfUpdate(kind) || kind == OpKind::kZeroAllGather || kind == OpKind::kZero;
    }

    bool FitsRow(const Op& op) const {
        const std::optional<Operands> operands = OperandsOf(op);
        Dimensions dimensions;
        const bool any_type = op.Is(Trait::kMessage);  // they move numbers, too
        return operands.has_value() && Fit(op.inputs, operands->inputs, dimensions, any_type) &&
               Fit(op.outputs, operands->outputs, dimensions, any_type) &&
               AddsToInput(op, *operands);
    }
    bool Fit(std::span<const ValueId> ids, std::span<const Operand* const> operands,
             Dimensions& dimensions, bool any_type) const {
        for (size_t i = 0; i < ids.size(); ++i) {
            const Value& value = program_.value(ids[i]);
            if (((value.dtype == DType::kI32) != operands[i]->index && !any_type) ||
                (value.dtype == DType::kF64 && !operands[i]->wide) ||
                (value.storage == Storage::kState) != operands[i]->state ||
                (value.storage == Storage::kSlots) != operands[i]->slots ||
                !dimensions.Fit(*operands[i], value.shape)) {
                return false;
            }
        }
        return true;
    }
    static bool AddsToInput(const Op& op, const Operands& operands) {
        size_t input = op.inputs.size();
        for (size_t i = op.outputs.size(); i-- > 0;) {
            const bool adds = operands.outputs[i]->access == Access::kAdd;
            if (adds && op.inputs[--input] != op.outputs[i]) return false;
        }
        return true;
    }

    const Shape& In(const Op& op, size_t i) const { return program_.value(op.inputs[i]).shape; }
    const Shape& Out(const Op& op, size_t i) const { return program_.value(op.outputs[i]).shape; }
    static bool Matrix(const Shape& s) { return s.rank == 2; }
    bool IsWide(ValueId id) const { return program_.value(id).dtype == DType::kF64; }

    // ---- Checks of attributes ---------------------------------------------------------------

    template <typename T>
    static bool Check(const Op&, const T&) {
        return true;
    }
    bool Check(const Op& op, const RmsNorm& a) const {
        const bool squares = a.whole != 0;
        if (squares && a.centered) return false;
        if (squares && !(a.square >= 0 && a.square < In(op, 2)[1] && a.group == In(op, 0)[1] &&
                         a.whole >= a.group)) {
            return false;
        }
        return a.group > 0 && In(op, 0)[1] % a.group == 0 &&
               (a.plain || In(op, 1) == Shape{a.apart ? In(op, 0)[1] : a.group});
    }
    bool Check(const Op& op, const RmsNormGradInput& a) const {
        return (a.whole == 0 || (a.square >= 0 && a.square < Out(op, 1)[1])) &&
               (a.plain || In(op, 2) == Shape{a.apart ? In(op, 0)[1] : a.group});
    }
    bool Check(const Op& op, const RmsNormGradWeight& a) const {
        return Out(op, 0) == Shape{a.apart ? In(op, 0)[1] : a.group};
    }
    bool Check(const Op& op, const SumSquares& a) const {
        const size_t inputs = op.inputs.size();
        if (a.columns.size() != inputs || Out(op, 0)[1] != static_cast<int64_t>(inputs))
            return false;
        for (size_t i = 0; i < inputs; ++i) {
            const auto [begin, count] = a.columns[i];
            if (begin < 0 || count < 0 || begin > In(op, i)[1] - count) return false;
        }
        return true;
    }
    bool Check(const Op& op, const SumSquaresGrad& a) const {
        return a.column >= 0 && a.column < In(op, 0)[1] && a.columns.begin >= 0 &&
               a.columns.count >= 0 && a.columns.begin <= In(op, 1)[1] - a.columns.count;
    }
    bool Check(const Op& op, const MatMul& a) const {
        const bool bias = op.inputs.size() == 3;
        if (a.shared_rows != 0) {
            const int64_t begin = program_.value(op.inputs[1]).slice.row_begin;
            if (a.cut != Cut::kRows || begin > a.shared_rows - In(op, 1)[0]) return false;
        }
        return a.segment_cols >= 0 && !(IsWide(op.outputs[0]) && (bias || a.segment_cols == 0));
    }
    bool Check(const Op& op, const Rope& a) const {
        return a.head_dim > 0 && In(op, 0)[1] % a.head_dim == 0 && a.rotary_dim >= 0 &&
               a.rotary_dim <= a.head_dim && a.rotary_dim % 2 == 0 && a.behind >= 0 &&
               static_cast<int64_t>(a.inverse_frequency.size()) * 2 == a.rotary_dim;
    }
    // Whether the heads of `a` fit q [T, heads * hd], k [T, kv * hd], v [T, kv * vd] and out [T,
    // heads * vd].
    static bool HeadsFit(const Attention& a, const Shape& q, const Shape& k, const Shape& v,
                         const Shape& out) {
        if (a.heads <= 0 || a.kv_heads <= 0 || a.group <= 0 || a.first_head < 0) return false;
        const int64_t first = a.first_head / a.group;
        const int64_t last = (a.first_head + a.heads - 1) / a.group;
        return first >= a.first_kv_head && last < a.first_kv_head + a.kv_heads &&
               k[1] == a.kv_heads * a.head_dim && q[1] == a.heads * a.head_dim &&
               v[1] == a.kv_heads * a.ValueDim() && out[1] == a.heads * a.ValueDim();
    }
    // Whether attention to blocks reads caches, has whole KV heads, and has no other limit on the
    // keys.
    bool BlocksFit(const Op& op, const Attention& a) const {
        if (a.block < 0 || a.sinks || a.window != 0 || a.chunk != 0) return false;
        return a.cached(op.inputs.size()) && a.kv_heads > 0 && In(op, 3)[1] > 0 &&
               In(op, 3)[1] % a.kv_heads == 0;
    }
    static bool SlopesFit(const Attention& a) {
        if (a.slopes.empty()) return true;
        return static_cast<int64_t>(a.slopes.size()) == a.heads && a.soft_cap == 0 && !a.sinks &&
               a.block == 0;
    }
    bool Check(const Op& op, const Attention& a) const {
        const size_t first = a.FirstCache();
        const bool lse = op.outputs.size() == 2;
        if (lse && (op.inputs.size() > first || Out(op, 1)[1] != a.heads)) return false;
        if (a.sinks && !(In(op, 3) == Shape{a.heads})) return false;
        if (a.window < 0 || !(a.soft_cap >= 0) || a.value_dim < 0) return false;
        if (a.chunk < 0 || (a.chunk > 0 && a.window > 0)) return false;
        if (a.block != 0 && !BlocksFit(op, a)) return false;
        if (!SlopesFit(a)) return false;
        if (a.ahead &&
            (!a.cached(op.inputs.size()) || a.block != 0 || a.chunk != 0 || !a.slopes.empty()))
            return false;
        if (op.inputs.size() > first && !(In(op, first) == Shape{a.kv_heads, a.head_dim} &&
                                          In(op, first + 1) == Shape{a.kv_heads, a.ValueDim()})) {
            return false;
        }
        return HeadsFit(a, In(op, 0), In(op, 1), In(op, 2), Out(op, 0));
    }
    bool Check(const Op& op, const AttentionGrad& a) const {
        return In(op, 5)[1] == a.forward.heads &&
               HeadsFit(a.forward, In(op, 1), In(op, 2), In(op, 3), In(op, 0));
    }
    bool Check(const Op& op, const LatentAttention& a) const {
        const int64_t rank = In(op, a.Latent())[1], rope = a.keyed ? In(op, 3)[1] : 0;
        if (a.sinks && In(op, a.Sinks())[0] != a.heads) return false;
        if (a.keyed && In(op, 1)[1] != a.heads * rope) return false;
        return a.heads > 0 && In(op, 0)[1] == a.heads * rank &&
               program_.value(op.inputs.back()).shape[1] == rank + rope;
    }
    // Whether a cache with a row per `stride` positions is possible.
    bool Strides(ValueId cache, int64_t stride) const {
        const bool fits = stride >= 1 && (kLeastPage % stride == 0 || stride % kLeastPage == 0);
        return fits && program_.value(cache).row_positions == RowPositions(stride);
    }
    bool Check(const Op& op, const IndexTopK& a) const {
        const int64_t columns = Out(op, 0)[1], windows = a.Windows(columns);
        const bool whole = !a.positions || (windows + 1) * a.stride == columns + 1;
        return In(op, 0)[1] == In(op, 2)[1] * In(op, 1)[1] && windows > 0 && whole &&
               Strides(op.inputs[3], a.stride);
    }
    bool Check(const Op& op, const WindowAttention& a) const {
        const size_t cache = op.inputs.size() - (a.stride != 0 ? 2 : 1);
        return a.heads > 0 && a.window > 0 && In(op, 2)[0] == a.heads &&
               In(op, 0)[1] == a.heads * In(op, 1)[1] && Strides(op.inputs[cache], 1) &&
               (a.stride != 0 ? Strides(op.inputs.back(), a.stride) : !a.chooses);
    }
    bool Check(const Op& op, const IndexBlocks& a) const {
        return a.heads > 0 && a.block > 0 && a.local > 0 &&
               In(op, 0)[1] == a.heads * In(op, 1)[1] && Out(op, 0)[1] % a.heads == 0 &&
               Out(op, 0)[1] / a.heads >= a.local;
    }
    bool Check(const Op& op, const ScaleHeads&) const {
        return In(op, 0)[1] % In(op, 2)[0] == 0 && In(op, 2) == In(op, 3);
    }
    static bool Check(const Op&, const auto& a) requires requires { a.limits_gate; }
    {
        if (a.limit == 0) return !a.limits_gate;
        return a.limit > 0 && a.activation == Activation::kSilu;
    }
    static bool Check(const Op&, const ScaleByPosition& a) {
        const Temperature& t = a.temperature;
        return t.beta >= 0 && t.length >= 1 && t.offset >= 0;
    }
    bool Check(const Op& op, const CausalConv& a) const {
        const Value& state = program_.value(op.inputs.back());
        const int64_t taps = In(op, 1)[In(op, 1).rank - 1];
        if (a.stateless) return taps >= 2 && Matrix(In(op, 1));
        return state.dtype == DType::kF32 && taps >= 2 && In(op, 1).rank == 3 &&
               In(op, 1)[1] == 1 && state.shape[0] == taps - 1;
    }
    bool Check(const Op& op, const DeltaRule& a) const {
        const size_t dt = a.ssd ? 5 : 6;
        const Shape& rates = In(op, dt - 1);  // [h], or [h, d]
        const int64_t heads = rates[0];
        if (a.key_heads < 1 || In(op, 0)[1] % a.key_heads != 0) return false;
        const int64_t key_dim = In(op, 0)[1] / a.key_heads;
        const int64_t each = a.by_channel && !a.ssd ? key_dim : 1;  // decays per head
        if (a.ssd && a.floor != 0) return false;
        if (rates.Elements(0, 0) != (a.ssd && a.by_channel ? heads * key_dim : heads)) return false;
        if (heads < 1 || a.first_head < 0 || a.key_heads < 1 || a.cycle < 0 || a.group < 1) {
            return false;
        }
        for (int64_t h = 0; h < heads; ++h) {
            if (a.KeyHeadOf(h) < 0 || a.KeyHeadOf(h) >= a.key_heads) return false;
        }
        const bool fits = In(op, 2)[1] % heads == 0 && In(op, 3)[1] == heads * each &&
                          In(op, dt)[0] == heads * each;
        if (a.stateless || !fits) return fits;
        const Value& state = program_.value(op.inputs.back());
        return state.dtype == DType::kF32 && state.shape[1] == key_dim &&
               state.shape[2] == In(op, 2)[1] / heads;
    }
    bool Check(const Op& op, const PoolWindows& a) const {
        const Value& state = program_.value(op.inputs[4]);
        const int64_t times = a.overlaps ? 2 : 1;
        return state.dtype == DType::kF32 && In(op, 3)[0] >= 1 && state.shape[0] == 3 * times &&
               In(op, 0)[1] == times * Out(op, 0)[1];
    }
    bool Check(const Op& op, const StreamWeights& a) const {
        const int64_t n = a.streams, cols = In(op, 0)[1];
        if (n < 1 || n > kMostStreams || a.iterations < 1 || a.eps < 0) return false;
        const int64_t scales = cols == n ? 1 : cols == 2 * n ? 2 : 3;
        return In(op, 2)[0] == scales && (scales < 3 || cols == n * (2 + n));
    }
    bool Check(const Op& op, const MergeStreams& a) const {
        return a.streams >= 1 && In(op, 0)[1] == a.streams * Out(op, 0)[1] &&
               In(op, 1)[1] >= a.streams;
    }
    bool Check(const Op& op, const MixStreams& a) const {
        const int64_t n = a.streams;
        return n >= 1 && Out(op, 0)[1] == n * In(op, op.inputs.size() - 1)[1] &&
               (op.inputs.size() == 1 || In(op, 1)[1] == n * (2 + n) || In(op, 1)[1] == 2 * n);
    }
    bool Check(const Op& op, const AltUpWeights& a) const {
        const int64_t n = a.streams;
        return n >= 1 && n <= kMostStreams && In(op, 0)[1] == (a.corrects ? n : n * n) &&
               Out(op, 0)[1] == n * (2 + n);
    }
    bool Check(const Op& op, const MatchStreams&) const {
        return In(op, 0)[1] == Out(op, 0)[1] && In(op, 0)[1] % In(op, 1)[1] == 0;
    }
    bool Check(const Op& op, const ScaleColumns&) const { return In(op, 0)[1] >= Out(op, 0)[1]; }
    bool Check(const Op& op, const Sparsify& a) const { return a.whole >= In(op, 0)[1]; }
    static bool Check(const Op&, const SoftCap& a) { return a.cap > 0; }
    bool Check(const Op& op, const HeadMatMul& a) const {
        const Shape &weight = In(op, 1), rows = a.transposed ? In(op, 0) : Out(op, 0);
        const Shape columns = a.transposed ? Out(op, 0) : In(op, 0);
        return columns[1] == weight[0] * weight[2] && rows[1] == weight[0] * weight[1];
    }
    bool Check(const Op& op, const HeadMatMulGradWeight&) const {
        const Shape& weight = Out(op, 0);
        return In(op, 0)[1] == weight[0] * weight[1] && In(op, 1)[1] == weight[0] * weight[2];
    }
    bool Check(const Op& op, const PickColumns& a) const {
        const Shape &x = In(op, 0), &y = Out(op, 0);
        return a.heads > 0 && x[1] % a.heads == 0 && y[1] % a.heads == 0 && a.begin >= 0 &&
               a.begin <= (x[1] - y[1]) / a.heads;
    }
    bool Check(const Op& op, const PadHeads& a) const {
        const int64_t x = In(op, 0)[1], y = Out(op, 0)[1];
        const int64_t rest = op.inputs.size() == 2 ? In(op, 1)[1] : 0;
        return a.heads > 0 && x % a.heads == 0 && rest % a.heads == 0 && y % a.heads == 0 &&
               a.begin >= 0 && a.begin <= (y - x - rest) / a.heads;
    }
    static bool AreAdapters(const std::vector<int32_t>& adapters) {
        return !adapters.empty() && adapters[0] >= 1 &&
               std::ranges::adjacent_find(adapters, std::ranges::greater_equal()) == adapters.end();
    }
    // Whether `down` and `up`, of equal types, lead from columns of x to columns of y.
    bool IsPair(ValueId down, ValueId up, const Op& op) const {
        const Value &a = program_.value(down), &b = program_.value(up);
        const int last = a.shape.rank - 1;
        const Shape &x = In(op, 0), &y = Out(op, 0);
        return a.dtype == b.dtype && IsOfAdapter(a) && a.shape[last] == x[x.rank - 1] &&
               b.shape[last] == a.shape[last - 1] && b.shape[last - 1] == y[y.rank - 1];
    }
    static bool IsOfAdapter(const Value& value) {
        return value.dtype == DType::kF32 || value.dtype == DType::kBF16;
    }
    bool Check(const Op& op, const Adapt& a) const {
        const Shape &x = In(op, 0), &y = Out(op, 0);
        size_t inputs = a.of_outputs ? 3 : 2;
        for (const uint8_t parts : a.parts) inputs += static_cast<size_t>(std::popcount(parts));
        if (!AreAdapters(a.adapters) || a.parts.size() != a.adapters.size() ||
            op.inputs.size() != inputs || a.segment_cols < 0 ||
            (IsWide(op.outputs[0]) && a.segment_cols == 0)) {
            return false;
        }
        for (size_t i = 0; i < a.parts.size(); ++i) {
            const auto part = [&](Adapt::Part which) { return a.PartOf(op.inputs, i, which); };
            const ValueId down = part(Adapt::kA), up = part(Adapt::kB);
            if (up != kNoValue && (down == kNoValue || !IsPair(down, up, op))) return false;
            if (up == kNoValue && down != kNoValue) {
                const Value& whole = program_.value(down);
                if (!IsOfAdapter(whole) || whole.shape != Shape{y[1], x[1]}) return false;
            }
            for (const ValueId column : {part(Adapt::kGain), part(Adapt::kShift)}) {
                if (column == kNoValue) continue;
                const Value& value = program_.value(column);
                if (value.dtype != DType::kF32 || value.shape != Shape{y[1], 1}) return false;
            }
        }
        return true;
    }
    bool ArePairs(const Op& op, const ExpertPairs& pairs, size_t first) const {
        const size_t count = pairs.adapters.size();
        if (!AreAdapters(pairs.adapters) || op.inputs.size() != first + 2 * count + 1) return false;
        for (size_t i = 0; i < count; ++i) {
            if (!IsPair(op.inputs[first + 2 * i], op.inputs[first + 2 * i + 1], op)) return false;
        }
        return pairs.first_expert >= 0 && pairs.segment_cols >= 0;
    }
    bool Check(const Op& op, const AdaptExperts& a) const { return ArePairs(op, a.pairs, 2); }
    bool Check(const Op& op, const AdaptExpertSum& a) const {
        return ArePairs(op, a.pairs, 3) && (!IsWide(op.outputs[0]) || a.pairs.segment_cols > 0);
    }

    bool Check(const Op& op, const AllGather& a) const {
        int64_t columns = 0;
        int64_t begin = -1;
        for (int64_t part : a.parts) {
            if (columns == a.begin && part == In(op, 0)[1]) begin = columns;
            columns += part;
        }
        return begin == a.begin && Out(op, 0)[1] == columns;
    }
    static bool Check(const Op&, const Send& a) { return a.peer >= kHostPeer; }
    static bool Check(const Op&, const Recv& a) { return a.peer >= kHostPeer; }
    // Whether `share` has this rank's rows of `all`.
    static bool AreShares(const Shape& share, const Shape& all) {
        return SharingRanks(share[0]) > 0 && all[0] == kTokens;
    }
    bool Check(const Op& op, const GatherRows&) const { return AreShares(In(op, 0), Out(op, 0)); }
    bool Check(const Op& op, const ReduceScatterRows&) const {
        return AreShares(Out(op, 0), In(op, 0));
    }
    bool Check(const Op& op, const SliceRows&) const { return AreShares(Out(op, 0), In(op, 0)); }
    bool Check(const Op& op, const AllToAll& a) const {
        const Shape &own = a.to_columns ? In(op, 0) : Out(op, 0),
                    &all = a.to_columns ? Out(op, 0) : In(op, 0);
        bool found = false;
        for (const ColumnRange& part : a.parts) {
            if (part.begin < 0 || part.count < 1 || part.begin > own[1] - part.count) return false;
            found = found || part.count == all[1];
        }
        return found && AreShares(own, all);
    }
    // Whether a narrow matrix lies at columns [begin, ...) of a wide one.
    static bool Within(const Shape& narrow, const Shape& wide, int64_t begin) {
        const int last = wide.rank - 1;
        return begin >= 0 && begin <= wide[last] - narrow[last];
    }
    bool Check(const Op& op, const SliceColumns& a) const {
        return Within(Out(op, 0), In(op, 0), a.begin);
    }
    bool Check(const Op& op, const PadColumns& a) const {
        return Within(In(op, 0), Out(op, 0), a.begin);
    }
    // Whether `share` is the part at `begin` of `all`.
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
    bool Check(const Op& op, const ZeroAllGather& a) const {
        return IsShare(Out(op, 0), In(op, 0), a.parts, a.begin);
    }
    bool Check(const Op& op, const ZeroReduceScatter& a) const {
        return IsShare(In(op, 0), In(op, 1), a.parts, a.begin);
    }

    bool Check(const Op& op, const Route& a) const {
        const int64_t experts = In(op, 0)[1], used = Out(op, 0)[1];
        if (a.groups < 1 || a.groups_used < 1 || a.groups_used > a.groups || a.group_best < 1 ||
            experts % a.groups != 0 || a.group_best > experts / a.groups) {
            return false;
        }
        return used >= 1 && used <= experts / a.groups * a.groups_used;
    }
    static bool Check(const Op&, const WeighRows& a) {
        return a.first_expert >= 0 && a.experts > 0;
    }
    // x is [T, k] or [T, K, k].
    bool Check(const Op& op, const ExpertMatMul& a) const {
        const Shape& x = In(op, 0);
        return a.first_expert >= 0 && (Matrix(x) || (x.rank == 3 && x[1] == In(op, 1)[1]));
    }
    static bool Check(const Op&, const ExpertSum& a) {
        return a.first_expert >= 0 && a.segment_cols >= 0;
    }
    static bool Check(const Op&, const ExpertMatMulGradInput& a) { return a.first_expert >= 0; }
    static bool Check(const Op&, const ExpertMatMulGradWeight& a) { return a.first_expert >= 0; }
    static bool Check(const Op&, const ExpertSumGradInput& a) { return a.first_expert >= 0; }
    static bool Check(const Op&, const ExpertSumGradWeight& a) { return a.first_expert >= 0; }
    bool Check(const Op& op, const GateRows&) const {
        const int64_t gates = In(op, 1)[1];
        return gates > 0 && In(op, 0)[1] % gates == 0;
    }
    bool Check(const Op& op, const RouterLoadGrad&) const { return In(op, 1)[1] > 0; }
    bool Check(const Op& op, const LoadBalance& a) const { return In(op, 0)[1] > 0 && a.used > 0; }
    bool Check(const Op& op, const LoadBalanceGrad&) const { return In(op, 1)[1] > 0; }
    bool Check(const Op& op, const LinearCrossEntropy& a) const {
        return AreVocabularyParts(a, In(op, 1)[0]);
    }
    bool Check(const Op& op, const LinearCrossEntropyGrad& a) const {
        return AreVocabularyParts(a.forward, In(op, 2)[0]);
    }
    static bool AreVocabularyParts(const LinearCrossEntropy& a, int64_t own) {
        if (a.cut == Cut::kNone) return a.first_row == 0 && a.parts.empty() && a.soft_cap >= 0;
        int64_t begin = 0;
        for (const int64_t part : a.parts) {
            if (begin == a.first_row && part == own) return a.soft_cap >= 0;
            begin += part;
        }
        return false;
    }
    bool Check(const Op& op, const SoftmaxStats& a) const {
        return a.first_row >= 0 && Out(op, 0)[1] == (a.sums ? 4 : 3);
    }
    bool Check(const Op& op, const CrossEntropy& a) const {
        return In(op, 0)[1] % a.terms.stats() == 0;
    }
    bool Check(const Op& op, const CrossEntropyGrad& a) const {
        return a.first_row >= 0 && In(op, 1)[1] % a.terms.stats() == 0;
    }
    static bool Check(const Op&, const SoftCapGrad& a) { return a.cap > 0; }

    static bool AreRuns(const std::vector<UpdateRun>& runs, int64_t count, int64_t kept) {
        return std::ranges::all_of(runs, [&](const UpdateRun& run) {
            return run.begin >= 0 && run.kept >= 0 && run.count > 0 &&
                   run.begin <= count - run.count && run.kept <= kept - run.count;
        });
    }
    bool Check(const Op& op, const AddSquares& a) const {
        if (Out(op, 0) != (IsWide(op.outputs[0]) ? Shape{1} : Shape{2})) return false;
        return std::ranges::all_of(a.ranges, [&](const ElementRange& range) {
            return range.begin >= 0 && range.begin < range.end && range.end <= In(op, 0)[0];
        });
    }
    bool Check(const Op& op, const AdamUpdate& a) const {
        return AreRuns(a.runs, In(op, 0)[0], In(op, 2)[0]);
    }
    bool Check(const Op& op, const LionUpdate& a) const {
        return AreRuns(a.runs, In(op, 0)[0], In(op, 2)[0]);
    }
    bool Check(const Op& op, const ScheduleFreeUpdate& a) const {
        return AreRuns(a.runs, In(op, 0)[0], In(op, 2)[0]);
    }
    bool Check(const Op& op, const ScheduleFreeView& a) const {
        return AreRuns(a.runs, In(op, 1)[0], In(op, 0)[0]);
    }
    bool Check(const Op& op, const MuonUpdate& a) const {
        return std::ranges::all_of(a.matrices, [&](const UpdateMatrix& m) {
            const int64_t count = m.rows * m.cols;
            return m.begin >= 0 && m.kept >= 0 && m.rows > 0 && m.cols > 0 &&
                   m.begin <= In(op, 0)[0] - count && m.kept <= In(op, 2)[0] - count;
        });
    }
    bool Check(const Op& op, const Adam8bitUpdate& a) const {
        return AreRuns(a.adam.runs, In(op, 0)[0], 4 * In(op, 2)[0]);
    }
    bool Check(const Op& op, const SgdUpdate& a) const {
        const int64_t count = In(op, 0)[0];
        return AreRuns(a.runs, count, a.momentum > 0 ? In(op, 2)[0] : count);
    }
    // numbers: the number of moments of all tensors.
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
        return AreRuns(a.runs, In(op, 0)[0], a.moments) && a.moments <= In(op, 2)[0];
    }
    bool Check(const Op& op, const AdafactorMoments& a) const {
        return std::ranges::all_of(a.tensors, [&](const FactoredTensor& tensor) {
            return IsInside(tensor, In(op, 1)[0]);
        });
    }
    bool Check(const Op& op, const AdafactorSizes& a) const {
        return AreRuns(a.runs, In(op, 0)[0], In(op, 1)[0]);
    }
    bool Check(const Op& op, const AdafactorUpdate& a) const {
        return AreRuns(a.runs, In(op, 0)[0], In(op, 1)[0]);
    }

    const Program& program_;
    std::vector<bool> written_;
    std::unordered_set<ValueId> pieces_;  // pieces that were written
    size_t index_ = 0;
};

}  // namespace

Status CheckShapes(const Program& program) {
    return Checker(program).Run();
}

}  // namespace weft::program
