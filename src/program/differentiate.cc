#include "program/differentiate.h"

#include <map>
#include <string>
#include <unordered_set>
#include <utility>

#include "program/sharding.h"

namespace weft::program {
namespace {

// The known parts of the gradient of one forward value during the backward walk.
struct Contributions {
    std::vector<ValueId> complete;
    std::vector<ValueId> partial;  // to be summed over the tensor group
};

// The walk. Each overload of Back() is the rule of one op.
class Walk {
  public:
    Walk(const Program& forward, std::vector<Sharding> placements,
         const DifferentiateOptions& options)
        : forward_(forward),
          placements_(std::move(placements)),
          options_(options),
          wanted_(forward.values.size(), false),
          needed_(forward.values.size(), false),
          contributions_(forward.values.size()),
          weight_gradients_(forward.values.size(), kNoValue) {
        result_.program = forward;
        result_.backward_begin = forward.ops.size();
        for (const Value& value : forward.values) names_.insert(value.name);
    }

    Result<Differentiated> Run() {
        WEFT_TRY(FindNeeded());
        result_.output_gradient = Start(options_.output);
        result_.side_gradient = Start(options_.side_output);
        for (size_t i = forward_.ops.size(); i-- > 0;) {
            index_ = i;
            op_ = &forward_.ops[i];
            op_->attributes.Visit([this](const auto& attributes) { Back(attributes); });
        }
        WEFT_TRY(CheckShapes(result_.program));
        return std::move(result_);
    }

  private:
    ValueId Start(ValueId output) {
        if (output == kNoValue) return kNoValue;
        const Value value = forward_.value(output);
        const ValueId gradient = NewValue("d." + value.name, value.shape, Storage::kInput);
        contributions_[Index(output)].complete.push_back(gradient);
        return gradient;
    }

    // ---- Values that need a gradient: values that depend on a requested weight ----------------

    Status FindNeeded() {
        WEFT_TRY(FindWanted());
        for (size_t i = 0; i < wanted_.size(); ++i) needed_[i] = wanted_[i];
        bool any = false;
        for (const Op& op : forward_.ops) {
            bool needed = op.kind() == OpKind::kRecv;
            for (ValueId id : op.inputs) needed = needed || needed_[Index(id)];
            for (ValueId id : op.outputs) needed_[Index(id)] = needed;
            any = any || (needed && op.kind() == OpKind::kSend);
        }
        for (const ValueId output : {options_.output, options_.side_output}) {
            any = any || (output != kNoValue && needed_[Index(output)]);
        }
        if (any) return {};
        return MakeError(
            ErrorCode::kUsage,
            "differentiate: neither the output nor a value sent on depends on a weight "
            "whose gradient is wanted");
    }

    Status FindWanted() {
        const auto exists = [&](ValueId id) { return id >= 0 && Index(id) < wanted_.size(); };
        for (const ValueId output : {options_.output, options_.side_output}) {
            if (output == kNoValue ||
                (exists(output) && forward_.value(output).storage == Storage::kActivation &&
                 placements_[Index(output)] != Sharding::kPartialSum)) {
                continue;
            }
            return MakeError(ErrorCode::kUsage,
                             "differentiate: output {} is not a replicated or sharded activation",
                             output);
        }
        for (ValueId id : options_.weights) {
            if (!exists(id) || !HasGradient(forward_.value(id))) {
                return MakeError(ErrorCode::kUsage,
                                 "differentiate: value {} ({}) is not a weight of a float type, so "
                                 "it has no gradient",
                                 id, exists(id) ? forward_.value(id).name : "no such value");
            }
            wanted_[Index(id)] = true;
        }
        if (!options_.weights.empty()) return {};
        for (size_t i = 0; i < wanted_.size(); ++i) wanted_[i] = HasGradient(forward_.values[i]);
        return {};
    }

    static bool HasGradient(const Value& value) {
        return value.storage == Storage::kWeight && !Info(value.dtype).quantized &&
               value.dtype != DType::kI32;
    }

    // ---- The rules, one op each -------------------------------------------------------------

    void Back(const Embedding& a) {
        const ValueId dy = OutputGradient();
        if (dy == kNoValue) return;
        AccumulateWeight(In(1), false, EmbeddingGrad{a.first_row}, {dy, In(0)});
    }

    void Back(const RmsNorm& a) {
        const ValueId dy = OutputGradient();
        if (dy == kNoValue) return;
        if (a.whole != 0) return BackWhole(a, dy);
        const RmsNormGradInput back{a.eps, a.group, a.plain, a.centered, a.apart};
        std::vector<ValueId> inputs = {dy, In(0)};
        if (!a.plain) inputs.push_back(In(1));
        if (Needed(0)) Contribute(0, back, std::move(inputs));
        if (a.plain) return;
        const Sharding x = PlaceOf(In(0));  // (groups with their own weights are cut with them)
        AccumulateWeight(In(1), x == Sharding::kRowSharded || (x == Sharding::kSharded && !a.apart),
                         RmsNormGradWeight{a.eps, a.group, a.centered, a.apart}, {dy, In(0)});
    }

    // A norm of this rank's columns by the squares of the whole row. Several ranks may hold the
    // same columns of the weight (replicated KV heads): the gradients of all columns are summed.
    void BackWhole(const RmsNorm& a, ValueId dy) {
        const ValueId x = In(0), weight = In(1), squares = In(2);
        const ValueId dx = NewGradient(x), dsquares = NewGradient(squares);
        result_.program.ops.push_back(
            Op{RmsNormGradInput{a.eps, a.group, false, false, false, a.whole, a.square},
               {dy, x, weight, squares},
               {dx, dsquares}});
        if (Needed(0)) Record(x, dx);
        if (Needed(2)) Record(squares, dsquares);
        if (!wanted_[Index(weight)]) return;
        const std::string name = "d." + forward_.value(weight).name;
        const int64_t begin = forward_.value(weight).slice.row_begin;
        const ValueId part = Emit(Zero{}, {}, name + ".part", ShapeOf(weight));
        result_.program.ops.push_back(
            Op{RmsNormGradWeight{a.eps, a.group, false, false, a.whole, a.square},
               {dy, x, squares, part},
               {part}});
        const ValueId padded = Emit(PadColumns{begin}, {part}, name + ".own", {a.whole});
        const ValueId summed = Emit(AllReduce{}, {padded}, name + ".all", {a.whole});
        const ValueId own = Emit(SliceColumns{begin}, {summed}, name + ".mine", ShapeOf(weight));
        const ValueId gradient = GradientOf(weight);
        result_.program.ops.push_back(Op{Add{}, {own, gradient}, {gradient}});
    }

    void Back(const SumSquares& a) {
        const ValueId dy = OutputGradient();
        if (dy == kNoValue) return;
        for (size_t i = 0; i < a.columns.size(); ++i) {
            const SumSquaresGrad back{static_cast<int64_t>(i), a.columns[i]};
            if (Needed(i)) Contribute(i, back, {dy, In(i)});
        }
    }

    void Back(const MatMul& a) {
        const ValueId dy = OutputGradient();
        if (dy == kNoValue) return;
        if (Needed(0)) Contribute(0, MatMulGradInput{}, {dy, In(1)});
        const bool bias = op_->inputs.size() == 3;
        if (!wanted_[Index(In(1))] && !(bias && wanted_[Index(In(2))])) return;
        const ValueId dy_weight = SumSharedRows(a.shared_rows, dy);
        AccumulateWeight(In(1), OwnRows(), MatMulGradWeight{}, {dy_weight, In(0)});
        if (bias) AccumulateWeight(In(2), OwnRows(), BiasGrad{}, {dy_weight});
    }

    void Back(const Rope& a) {
        const ValueId dy = OutputGradient();
        if (dy == kNoValue) return;
        Rope back = a;
        back.sign = -a.sign;
        Contribute(0, std::move(back), {dy, In(1)});
    }

    void Back(const Attention& a) {
        const ValueId dout = OutputGradient();
        if (dout == kNoValue) return;
        const ValueId out = op_->outputs[0];
        const Shape rows{ShapeOf(out)[0], a.heads};
        const ValueId lse = NewValue(forward_.value(out).name + ".lse", rows, Storage::kActivation);
        result_.program.ops[index_].outputs.push_back(lse);
        Op back{AttentionGrad{a}, {dout, In(0), In(1), In(2), out, lse}, {}};
        for (size_t i = 0; i < 3; ++i) back.outputs.push_back(NewGradient(In(i)));
        if (a.sinks) {
            back.inputs.push_back(In(3));
            back.outputs.push_back(NewRows(In(3)));
        }
        result_.program.ops.push_back(back);
        for (size_t i = 0; i < 3; ++i) {
            if (Needed(i)) Record(In(i), back.outputs[i]);
        }
        if (a.sinks) AccumulateRows(In(3), back.outputs[3]);
    }

    void Back(const PickColumns& a) {
        const ValueId dy = OutputGradient();
        if (dy != kNoValue) Contribute(0, PadHeads{a.heads, a.begin}, {dy});
    }
    void Back(const PadHeads& a) {
        const ValueId dy = OutputGradient();
        if (dy == kNoValue) return;
        if (Needed(0)) Contribute(0, PickColumns{a.heads, a.begin}, {dy});
        const int64_t after = a.begin + ShapeOf(In(0))[1] / a.heads;
        const bool rest = op_->inputs.size() == 2;
        if (rest && Needed(1)) Contribute(1, PickColumns{a.heads, after}, {dy});
    }

    void Back(const HeadMatMul& a) {
        const ValueId dy = OutputGradient();
        if (dy == kNoValue) return;
        if (Needed(0)) Contribute(0, HeadMatMul{!a.transposed}, {dy, In(1)});
        const ValueId rows = a.transposed ? In(0) : dy, columns = a.transposed ? dy : In(0);
        AccumulateWeight(In(1), OwnRows(), HeadMatMulGradWeight{}, {rows, columns});
    }

    void Back(const ScaleHeads& a) {
        const ValueId dy = OutputGradient();
        if (dy == kNoValue) return;
        if (Needed(0)) Contribute(0, a, {dy, In(1), In(2), In(3)});
        if (!wanted_[Index(In(2))] && !wanted_[Index(In(3))]) return;
        const ValueId slope = NewRows(In(2)), offset = NewRows(In(3));
        result_.program.ops.push_back(Op{ScaleHeadsGrad{}, {dy, In(0), In(1)}, {slope, offset}});
        AccumulateRows(In(2), slope);
        AccumulateRows(In(3), offset);
    }

    // ---- The rules of recurrent layers ------------------------------------------------------

    void Back(const CausalConv& a) {
        const ValueId dy = OutputGradient();
        if (dy == kNoValue) return;
        std::vector<ValueId> inputs = {dy};
        inputs.insert(inputs.end(), op_->inputs.begin(), op_->inputs.end());
        const bool biased = a.biased(op_->inputs.size());
        std::vector<ValueId> read = {In(0)};
        if (a.gated) read.insert(read.end(), op_->inputs.end() - 2, op_->inputs.end());
        Op back{CausalConvGrad{a}, inputs, {}};
        for (const ValueId x : read) back.outputs.push_back(NewGradient(x));
        result_.program.ops.push_back(back);
        for (size_t i = 0; i < read.size(); ++i) {
            if (needed_[Index(read[i])]) Record(read[i], back.outputs[i]);
        }
        if (!wanted_[Index(In(1))] && !(biased && wanted_[Index(In(2))])) return;
        Op weights{CausalConvGradWeight{a, biased}, std::move(inputs), {GradientOf(In(1))}};
        if (biased) weights.outputs.push_back(GradientOf(In(2)));
        weights.inputs.insert(weights.inputs.end(), weights.outputs.begin(), weights.outputs.end());
        result_.program.ops.push_back(std::move(weights));
    }

    void Back(const DeltaRule& a) {
        const ValueId dy = OutputGradient();
        if (dy == kNoValue) return;
        Op back{DeltaRuleGrad{a}, {dy}, {}};
        back.inputs.insert(back.inputs.end(), op_->inputs.begin(), op_->inputs.end());
        const size_t rates = a.ssd ? 4 : 5;  // number of a among the inputs; dt follows
        for (size_t i = 0; i < rates; ++i) back.outputs.push_back(NewGradient(In(i)));
        back.outputs.push_back(NewRows(In(rates)));
        if (a.ssd) back.outputs.push_back(NewRows(In(6)));
        result_.program.ops.push_back(back);
        for (size_t i = 0; i < rates; ++i) {
            if (Needed(i)) Record(In(i), back.outputs[i]);
        }
        AccumulateRows(In(rates), back.outputs[rates]);
        AccumulateRows(In(rates + 1), back.outputs[3]);
        if (a.ssd) AccumulateRows(In(6), back.outputs[5]);
    }

    // ---- Element by element -----------------------------------------------------------------

    void Back(const Glu& a) {
        const ValueId dout = OutputGradient();
        const GluGrad back{a.activation, a.limit, a.limits_gate};
        if (dout != kNoValue) ContributeToAll(back, {dout, In(0), In(1)});
    }

    void Back(const Activate& a) {
        const ValueId dy = OutputGradient();
        if (dy != kNoValue) Contribute(0, ActivateGrad{a}, {dy, In(0)});
    }

    void Back(const AddBias& a) {
        const ValueId dy = OutputGradient();
        if (dy == kNoValue) return;
        if (Needed(0)) Record(In(0), dy);
        if (!wanted_[Index(In(1))]) return;
        AccumulateWeight(In(1), OwnRows(), BiasGrad{}, {SumSharedRows(a.shared_rows, dy)});
    }

    void Back(const Scale& a) {
        const ValueId dy = OutputGradient();
        if (dy != kNoValue) Contribute(0, Scale{a.factor}, {dy});
    }

    void Back(const ScaleByPosition& a) {
        const ValueId dy = OutputGradient();
        if (dy != kNoValue) Contribute(0, ScaleByPosition{a}, {dy, In(1)});
    }

    void Back(const SoftCap& a) {
        const ValueId dy = OutputGradient();
        if (dy != kNoValue) Contribute(0, SoftCapGrad{a.cap}, {dy, In(0)});
    }

    void Back(const Add&) {
        const ValueId dy = OutputGradient();
        if (dy == kNoValue) return;
        for (size_t i = 0; i < 2; ++i) {
            if (Needed(i)) Record(In(i), dy);
        }
    }

    void Back(const SelectRows&) {
        const ValueId dy = OutputGradient();
        if (dy != kNoValue) Contribute(0, SelectRowsGrad{}, {dy, In(1)});
    }

    void Back(const AllReduce&) {
        const ValueId dy = OutputGradient();
        if (dy != kNoValue) Record(In(0), dy);
    }

    void Back(const AllGather& a) {
        const ValueId dy = OutputGradient();
        if (dy != kNoValue) Contribute(0, SliceColumns{a.begin}, {dy});
    }

    void Back(const PadColumns& a) {
        const ValueId dy = OutputGradient();
        if (dy != kNoValue) Contribute(0, SliceColumns{a.begin}, {dy});
    }

    void Back(const ReduceScatterRows&) {
        const ValueId dy = OutputGradient();
        if (dy != kNoValue) Contribute(0, GatherRows{}, {dy});
    }

    // This rank's rows of both kinds of contributions.
    void Back(const GatherRows&) {
        const ValueId y = op_->outputs[0], x = In(0);
        if (!needed_[Index(y)]) return;
        const Contributions& parts = contributions_[Index(y)];
        const std::string name = "d." + forward_.value(y).name;
        const ValueId partial = Sum(parts.partial, kNoValue, name);
        const ValueId complete = Sum(parts.complete, kNoValue, name);
        if (partial != kNoValue) Contribute(0, ReduceScatterRows{}, {partial});
        if (complete != kNoValue) {
            Record(x, Emit(SliceRows{}, {complete}, name + ".own", ShapeOf(x)));
        }
    }

    void Back(const AllToAll& a) {
        const ValueId dy = OutputGradient();
        if (dy != kNoValue) Contribute(0, AllToAll{a.parts, !a.to_columns}, {dy});
    }

    // The peer returns the gradient of each value that it receives, because it cannot tell which
    // values depend on a requested weight here.
    void Back(const Send& a) { Contribute(0, Recv{a.peer}, {}); }

    void Back(const Recv& a) {
        const ValueId x = op_->outputs[0];
        ValueId dy = OutputGradient();
        if (dy == kNoValue) dy = Emit(Scale{0}, {x}, "d." + forward_.value(x).name, ShapeOf(x));
        result_.program.ops.push_back(Op{Send{a.peer}, {dy}, {}});
    }

    // A cut weight's rows give only their part of dx, although x is whole.
    void Back(const LinearCrossEntropy& a) {
        const ValueId dloss = OutputGradient();
        if (dloss == kNoValue) return;
        const ValueId x = In(0), weight = In(1);
        const ValueId dx = NewGradient(x);
        const bool trains_bias = a.biased && wanted_[Index(In(3))];
        Op back{LinearCrossEntropyGrad{a, wanted_[Index(weight)], trains_bias}, {dloss}, {dx}};
        back.inputs.insert(back.inputs.end(), op_->inputs.begin(), op_->inputs.end());
        if (wanted_[Index(weight)]) back.outputs.push_back(GradientOf(weight));
        if (trains_bias) back.outputs.push_back(GradientOf(In(3)));
        back.inputs.insert(back.inputs.end(), back.outputs.begin() + 1, back.outputs.end());
        result_.program.ops.push_back(std::move(back));
        Contributions& parts = contributions_[Index(x)];
        (a.cut == Cut::kRows ? parts.partial : parts.complete).push_back(dx);
    }

    void Back(const Zero&) {}

    // ---- The rules of experts ---------------------------------------------------------------

    void Back(const Route& a) {
        const ValueId dweights = OutputGradient(1);
        if (dweights == kNoValue) return;
        std::vector<ValueId> inputs = {dweights, In(0), op_->outputs[0]};
        if (a.factors) {
            AccumulateWeight(op_->inputs.back(), false, RouteFactorsGrad{a}, inputs);
            inputs.push_back(op_->inputs.back());
        }
        if (Needed(0)) Contribute(0, RouteGrad{a}, std::move(inputs));
    }

    void Back(const WeighRows& a) {
        const ValueId dy = OutputGradient();
        if (dy == kNoValue) return;
        const ValueId dx = NewGradient(In(0)), dweights = NewGradient(In(2));
        result_.program.ops.push_back(
            Op{WeighRowsGrad{a}, {dy, In(0), In(1), In(2)}, {dx, dweights}});
        if (Needed(0)) Record(In(0), dx);
        if (Needed(2)) Record(In(2), dweights);
    }

    void Back(const ExpertBias& a) {
        const ValueId dy = OutputGradient();
        if (dy == kNoValue) return;
        if (Needed(0)) Record(In(0), dy);
        AccumulateWeight(In(2), false, ExpertBiasGrad{a.first_expert}, {dy, In(1)});
    }

    void Back(const ExpertBiasSum& a) {
        const ValueId dy = OutputGradient();
        if (dy == kNoValue) return;
        if (Needed(0)) Record(In(0), dy);
        if (Needed(2)) {
            const ValueId dweights = NewGradient(In(2));
            result_.program.ops.push_back(
                Op{ExpertBiasSumGrad{a.first_expert}, {dy, In(1), In(3)}, {dweights}});
            const bool partial = PlaceOf(op_->outputs[0]) == Sharding::kPartialSum;
            Contributions& parts = contributions_[Index(In(2))];
            (partial ? parts.partial : parts.complete).push_back(dweights);
        }
        AccumulateWeight(In(3), false, ExpertBiasGrad{a.first_expert, true}, {dy, In(1), In(2)});
    }

    void Back(const ExpertMatMul& a) {
        const ValueId dy = OutputGradient();
        if (dy == kNoValue) return;
        if (Needed(0)) Contribute(0, ExpertMatMulGradInput{a.first_expert}, {dy, In(1), In(2)});
        AccumulateWeight(In(2), false, ExpertMatMulGradWeight{a.first_expert}, {dy, In(0), In(1)});
    }

    void Back(const ExpertSum& a) {
        const ValueId dy = OutputGradient();
        if (dy == kNoValue) return;
        const ValueId x = In(0), weights = In(2);
        if (Needed(0) || Needed(2)) {
            const ValueId dx = NewGradient(x), dweights = NewGradient(weights);
            result_.program.ops.push_back(Op{ExpertSumGradInput{a.first_expert},
                                             {dy, x, In(1), weights, In(3)},
                                             {dx, dweights}});
            if (Needed(0)) Record(x, dx);
            // For a token's weights, each rank has the terms of its own experts and columns.
            Contributions& parts = contributions_[Index(weights)];
            if (Needed(2)) {
                (a.cut == Cut::kNone ? parts.complete : parts.partial).push_back(dweights);
            }
        }
        AccumulateWeight(In(3), false, ExpertSumGradWeight{a.first_expert},
                         {dy, x, In(1), weights});
        if (a.base && Needed(op_->inputs.size() - 1)) Record(op_->inputs.back(), dy);
    }

    void Back(const GateRows& a) {
        const ValueId dy = OutputGradient();
        if (dy != kNoValue) ContributeToAll(GateRowsGrad{a.gate}, {dy, In(0), In(1)});
    }

    void Back(const RouterLoad&) {
        const ValueId dload = OutputGradient();
        if (dload == kNoValue) return;
        if (Needed(0)) Contribute(0, RouterLoadGrad{}, {dload, In(0)});
        if (op_->inputs.size() == 3 && Needed(2)) Record(In(2), dload);
    }

    void Back(const LoadBalance& a) {
        const ValueId dloss = OutputGradient();
        if (dloss != kNoValue) Contribute(0, LoadBalanceGrad{a}, {dloss, In(0)});
    }

    // InferSharding() has refused these.
    template <typename T>
    requires kHasNoGradient<T>
    void Back(const T&) { WEFT_CHECK(false); }

    // ---- Gradients of activations -----------------------------------------------------------

    // The whole gradient of an output of the op; kNoValue if no op needs it or contributes to it.
    ValueId OutputGradient(size_t i = 0) {
        const ValueId y = op_->outputs[i];
        if (!needed_[Index(y)]) return kNoValue;
        const Contributions& parts = contributions_[Index(y)];
        const std::string name = "d." + forward_.value(y).name;
        ValueId sum = Sum(parts.partial, kNoValue, name);
        if (sum != kNoValue) sum = Emit(AllReduce{}, {sum}, name + ".all", ShapeOf(sum));
        return Sum(parts.complete, sum, name);
    }

    // `start` (which may be none) plus all of `addends`.
    ValueId Sum(const std::vector<ValueId>& addends, ValueId start, const std::string& name) {
        ValueId sum = start;
        for (ValueId addend : addends) {
            sum = sum == kNoValue ? addend
                                  : Emit(Add{}, {sum, addend}, name + ".sum", ShapeOf(addend));
        }
        return sum;
    }

    // Emits an op that writes a contribution to the gradient of operand `i`.
    void Contribute(size_t i, OpAttributes attributes, std::vector<ValueId> inputs) {
        const ValueId x = In(i);
        Record(x, Emit(std::move(attributes), std::move(inputs), "d." + forward_.value(x).name,
                       ShapeOf(x)));
    }

    // Emits an op that writes one contribution for each activation that the op reads.
    void ContributeToAll(OpAttributes attributes, std::vector<ValueId> inputs) {
        std::vector<ValueId> outputs;
        for (ValueId x : op_->inputs) outputs.push_back(NewGradient(x));
        result_.program.ops.push_back(Op{std::move(attributes), std::move(inputs), outputs});
        for (size_t i = 0; i < outputs.size(); ++i) {
            if (Needed(i)) Record(In(i), outputs[i]);
        }
    }

    ValueId NewGradient(ValueId x) {
        return NewValue("d." + forward_.value(x).name, ShapeOf(x), Storage::kActivation);
    }
    // Each row's addend to the gradient of a vector.
    ValueId NewRows(ValueId vector) {
        return NewValue("d." + forward_.value(vector).name + ".rows",
                        {ShapeOf(op_->outputs[0])[0], ShapeOf(vector)[0]}, Storage::kActivation);
    }

    // A whole value that rank-local work reads gets only this rank's part of its gradient.
    void Record(ValueId x, ValueId gradient) {
        const bool local = !op_->outputs.empty() && PlaceOf(op_->outputs[0]) == Sharding::kSharded;
        Contributions& parts = contributions_[Index(x)];
        const bool partial = local && PlaceOf(x) == Sharding::kReplicated;
        (partial ? parts.partial : parts.complete).push_back(gradient);
    }

    // Sums dy of rows that several ranks hold: writes it to its position among all rows,
    // all-reduces, and reads this rank's rows. Done once for a weight and its bias.
    ValueId SumSharedRows(int64_t shared_rows, ValueId dy) {
        if (shared_rows == 0) return dy;
        const auto known = shared_sums_.find(dy);
        if (known != shared_sums_.end()) return known->second;
        const int64_t begin = forward_.value(In(1)).slice.row_begin;
        const Shape own = ShapeOf(dy);
        const Shape all{own[0], shared_rows};
        const std::string name = "d." + forward_.value(op_->outputs[0]).name + ".shared";
        const ValueId padded = Emit(PadColumns{begin}, {dy}, name + ".own", all);
        const ValueId summed = Emit(AllReduce{}, {padded}, name + ".all", all);
        return shared_sums_[dy] = Emit(SliceColumns{begin}, {summed}, name, own);
    }

    // ---- Gradients of weights ---------------------------------------------------------------

    // Emits an op that adds to the weight's gradient, which is its last input and its output. A
    // partial gradient passes through zeros and an all_reduce.
    void AccumulateWeight(ValueId weight, bool partial, OpAttributes attributes,
                          std::vector<ValueId> inputs) {
        if (!wanted_[Index(weight)]) return;
        const ValueId gradient = GradientOf(weight);
        if (!partial) {
            inputs.push_back(gradient);
            result_.program.ops.push_back(Op{std::move(attributes), std::move(inputs), {gradient}});
            return;
        }
        const std::string name = "d." + forward_.value(weight).name;
        const ValueId part = Emit(Zero{}, {}, name + ".part", ShapeOf(weight));
        inputs.push_back(part);
        result_.program.ops.push_back(Op{std::move(attributes), std::move(inputs), {part}});
        const ValueId all = Emit(AllReduce{}, {part}, name + ".all", ShapeOf(weight));
        result_.program.ops.push_back(Op{Add{}, {all, gradient}, {gradient}});
    }

    // Adds the sum of `rows` to the gradient of a vector.
    void AccumulateRows(ValueId weight, ValueId rows) {
        AccumulateWeight(weight, OwnRows(), BiasGrad{}, {rows});
    }

    ValueId GradientOf(ValueId weight) {
        ValueId& gradient = weight_gradients_[Index(weight)];
        if (gradient == kNoValue) {
            const Value& value = forward_.value(weight);
            gradient = NewValue("d." + value.name, value.shape, Storage::kGradient);
            result_.gradients.push_back({weight, gradient});
        }
        return gradient;
    }

    // ---- Values -----------------------------------------------------------------------------

    // Whether the op's first operand is this rank's rows; a weight's gradient is then partial.
    bool OwnRows() const { return PlaceOf(In(0)) == Sharding::kRowSharded; }
    static size_t Index(ValueId id) { return static_cast<size_t>(id); }
    ValueId In(size_t i) const { return op_->inputs[i]; }
    bool Needed(size_t i) const { return needed_[Index(In(i))]; }
    Sharding PlaceOf(ValueId forward_id) const { return placements_[Index(forward_id)]; }
    Shape ShapeOf(ValueId id) const { return result_.program.value(id).shape; }

    ValueId NewValue(const std::string& name, Shape shape, Storage storage) {
        Value value;
        value.name = name;
        for (int i = 2; !names_.insert(value.name).second; ++i) {
            value.name = name + "." + std::to_string(i);
        }
        value.shape = shape;
        value.storage = storage;
        return result_.program.AddValue(std::move(value));
    }

    ValueId Emit(OpAttributes attributes, std::vector<ValueId> inputs, const std::string& name,
                 Shape shape) {
        const ValueId output = NewValue(name, shape, Storage::kActivation);
        result_.program.ops.push_back(Op{std::move(attributes), std::move(inputs), {output}});
        return output;
    }

    const Program& forward_;
    const std::vector<Sharding> placements_;
    const DifferentiateOptions& options_;
    std::vector<bool> wanted_;  // by forward ValueId, like the next three
    std::vector<bool> needed_;
    std::vector<Contributions> contributions_;
    std::vector<ValueId> weight_gradients_;
    std::map<ValueId, ValueId> shared_sums_;  // by the summed value
    std::unordered_set<std::string> names_;
    const Op* op_ = nullptr;
    size_t index_ = 0;  // index of op_
    Differentiated result_;
};

Program WithoutCaches(const Program& forward) {
    Program program = forward;
    for (Op& op : program.ops) {
        if (op.kind() != OpKind::kAttention) continue;
        if (op.as<Attention>().cached(op.inputs.size())) op.inputs.resize(op.inputs.size() - 2);
    }
    return program;
}

}  // namespace

Result<Differentiated> Differentiate(const Program& forward, const DifferentiateOptions& options) {
    WEFT_TRY(CheckShapes(forward));
    const Program training = WithoutCaches(forward);
    WEFT_ASSIGN(std::vector<Sharding> placements, InferSharding(training));
    return Walk(training, std::move(placements), options).Run();
}

}  // namespace weft::program
