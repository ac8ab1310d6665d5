#include "program/sharding.h"

#include <algorithm>

namespace weft::program {
namespace {

class Placer {
  public:
    explicit Placer(const Program& program)
        : program_(program),
          placements_(program.values.size(), Sharding::kReplicated),
          writer_(program.values.size(), nullptr) {
        const auto gathers = [](const Op& op) { return op.kind() == OpKind::kGatherRows; };
        divides_rows_ = std::ranges::any_of(program.ops, gathers);
    }

    Result<std::vector<Sharding>> Run() {
        for (index_ = 0; index_ < program_.ops.size(); ++index_) {
            op_ = &program_.ops[index_];
            auto placed = op_->attributes.Visit([this](const auto& a) { return Output(a); });
            if (!placed.ok()) return placed.error();
            for (ValueId id : op_->outputs) {
                writer_[static_cast<size_t>(id)] = op_;
                placements_[static_cast<size_t>(id)] = *placed;
            }
        }
        return std::move(placements_);
    }

  private:
    using Placed = Result<Sharding>;

    Error Wrong(ValueId id, const char* what) const {
        return MakeError(ErrorCode::kUnsupported, "differentiate: op {} ({}): {} {}", index_,
                         OpName(op_->kind()), program_.value(id).name, what);
    }
    Sharding At(size_t i) const { return placements_[static_cast<size_t>(op_->inputs[i])]; }

    // Row-wise work that keeps columns separate: cut if any operand with rows is cut.
    Placed Join() const {
        const Operands operands = OperandsOf(*op_).value();
        Sharding joined = Sharding::kReplicated;
        bool by_rows = false;
        ValueId other = kNoValue;  // the first input with rows that is not sharded by them
        for (size_t i = 0; i < op_->inputs.size(); ++i) {
            if (!operands.inputs[i]->by_rows() || operands.inputs[i]->index) continue;
            if (At(i) == Sharding::kPartialSum) {
                return Wrong(op_->inputs[i], "is a partial sum that no all_reduce has summed");
            }
            if (At(i) == Sharding::kSharded) joined = Sharding::kSharded;
            if (At(i) == Sharding::kRowSharded) {
                by_rows = true;
            } else if (other == kNoValue) {
                other = op_->inputs[i];
            }
        }
        if (!by_rows) return joined;
        if (other == kNoValue) return Sharding::kRowSharded;
        return Wrong(other, "is not sharded by rows, but another input of the op is");
    }

    Error NoGradient(const char* what) const {
        return MakeError(ErrorCode::kUnsupported,
                         "differentiate: op {} ({}): no gradient {} is known: this model can be "
                         "run, but not trained",
                         index_, OpName(op_->kind()), what);
    }

    Placed Output(const Embedding&) const { return Sharding::kReplicated; }
    Placed Output(const RmsNorm&) const { return Join(); }
    Placed Output(const SumSquares&) const {
        if (At(0) == Sharding::kSharded) return Sharding::kPartialSum;
        return Wrong(op_->inputs[0], "is not cut, but its squares are summed over ranks");
    }
    Placed Output(const Attention& a) const {
        if (a.block != 0) return NoGradient("to chosen blocks");
        if (a.ValueDim() != a.head_dim)
            return NoGradient("of values whose size is not that of keys");
        return Join();
    }
    Placed Output(const CausalConv&) const { return Join(); }
    Placed Output(const DeltaRule& a) const {
        if (a.ssd && a.by_channel) return NoGradient("of selective state spaces");
        return Join();
    }
    Placed Output(const SelectRows&) const { return Join(); }
    Placed Output(const Recv&) const {
        const bool share = SharingRanks(program_.value(op_->outputs[0]).shape[0]) > 0;
        return share && divides_rows_ ? Sharding::kRowSharded : Sharding::kReplicated;
    }
    Placed Output(const Zero&) const { return Sharding::kReplicated; }

    Placed Output(const MatMul& a) const {
        if (a.cut == Cut::kColumns) {
            if (At(0) == Sharding::kSharded) return Sharding::kPartialSum;
            return Wrong(op_->inputs[0], "is not cut, but the weight's columns are");
        }
        if (At(0) == Sharding::kRowSharded && a.cut == Cut::kNone) return Sharding::kRowSharded;
        if (At(0) != Sharding::kReplicated) {
            return Wrong(op_->inputs[0], "is not whole, but the weight's columns are");
        }
        return a.cut == Cut::kRows ? Sharding::kSharded : Sharding::kReplicated;
    }

    // ---- Experts ----------------------------------------------------------------------------

    // The router runs on every rank and chooses the same on all.
    Placed Output(const Route& a) const {
        if (a.by_token) return NoGradient("of experts by token");
        if (a.score == GateScore::kSqrtSoftplus) return NoGradient("of roots of softplus");
        if (a.score == GateScore::kSparseMixer) return NoGradient("of sparse mixing");
        return Whole();
    }
    Placed Output(const RouterLoad&) const { return Whole(); }
    Placed Output(const LoadBalance&) const { return Whole(); }
    Placed Whole() const {
        if (At(0) == Sharding::kReplicated) return Sharding::kReplicated;
        return Wrong(op_->inputs[0], "is not whole, but routers are on every rank");
    }
    Placed Output(const ExpertMatMul& a) const {
        if (op_->inputs.size() > 3) return NoGradient("of experts' biases");
        const bool by_slot = program_.value(op_->inputs[0]).shape.rank == 3;
        if (At(0) != Sharding::kReplicated && !by_slot) {
            return Wrong(op_->inputs[0], "is not whole, but experts are shared out");
        }
        return a.cut == Cut::kRows ? Sharding::kSharded : Sharding::kReplicated;
    }
    // Each rank has the rows of its own experts.
    Placed Output(const WeighRows& a) const {
        if (At(0) != Sharding::kReplicated) return Whole();
        return a.cut ? Sharding::kSharded : Sharding::kReplicated;
    }
    Placed Output(const ExpertSum& a) const {
        if (a.bias) return NoGradient("of experts' biases");
        const bool cut = a.cut == Cut::kColumns;
        if (At(0) != (cut ? Sharding::kSharded : Sharding::kReplicated)) {
            return Wrong(op_->inputs[0], "is not cut as the experts are");
        }
        const Sharding sum = cut ? Sharding::kPartialSum : Sharding::kReplicated;
        if (!a.base || At(op_->inputs.size() - 1) == sum) return sum;
        return Wrong(op_->inputs.back(), "is not cut as the experts' sum is");
    }

    // A part of the biases on each rank that has experts: their sum over ranks is whole.
    Placed Output(const ExpertBiasSum&) const {
        if (At(1) == Sharding::kReplicated && At(2) == Sharding::kReplicated) return At(0);
        return Wrong(op_->inputs[2], "is not whole, but routers are on every rank");
    }

    Placed Output(const Add&) const {
        if (At(0) == Sharding::kPartialSum && At(1) == Sharding::kPartialSum) {
            return Sharding::kPartialSum;
        }
        return Join();
    }

    // (With a table cut by rows, each rank looks up some rows.)
    bool IsSum() const {
        const Op* writer = writer_[static_cast<size_t>(op_->inputs[0])];
        const bool embedding = writer != nullptr && writer->kind() == OpKind::kEmbedding;
        return At(0) == Sharding::kPartialSum || embedding;
    }
    Placed Output(const AllReduce& a) const {
        if (a.group == Group::kTensor && IsSum()) return Sharding::kReplicated;
        return Wrong(op_->inputs[0], "is not a partial sum over the tensor group");
    }
    Placed Output(const ReduceScatterRows&) const {
        if (IsSum()) return Sharding::kRowSharded;
        return Wrong(op_->inputs[0], "is not a partial sum over the tensor group");
    }
    Placed Output(const GatherRows&) const {
        if (At(0) == Sharding::kRowSharded) return Sharding::kReplicated;
        return Wrong(op_->inputs[0], "is not shared out by rows");
    }

    // (A context group has other ranks than the tensor group.)
    Placed Output(const AllToAll&) const { return At(0); }
    Placed Output(const AllGather& a) const {
        if (a.group == Group::kTensor && At(0) == Sharding::kSharded) return Sharding::kReplicated;
        return Wrong(op_->inputs[0], "is not cut over the tensor group");
    }

    Placed Output(const LinearCrossEntropy&) const {
        if (At(0) == Sharding::kReplicated) return Sharding::kReplicated;
        return Wrong(op_->inputs[0], "is not whole, but the loss reads all of its columns");
    }

    template <typename T>
    requires kHasNoGradient<T> Placed Output(const T&)
    const {
        const char* why = T::kRow.pass == Pass::kBackward
                              ? ": it is a backward op"
                              : " yet: this model can be run, but not trained";
        return MakeError(ErrorCode::kUnsupported, "differentiate: op {} ({}) has no gradient{}",
                         index_, OpName(op_->kind()), why);
    }

    // Row-wise work.
    template <typename T>
    requires(!kHasNoGradient<T> && T::kRow.Is(Trait::kRowWise)) Placed Output(const T&)
    const { return Join(); }

    const Program& program_;
    std::vector<Sharding> placements_;
    std::vector<const Op*> writer_;  // by value
    const Op* op_ = nullptr;
    size_t index_ = 0;
    bool divides_rows_ = false;  // whether the tensor group, not a context group, divides rows
};

// The columns of the first output: the columns of the first input, unless the op moves them.
struct OutputColumns {
    const Program& program;
    const Op& op;
    const std::vector<Columns>& columns;  // of the values before
    Columns x;

    Columns operator()(const MatMul& a) const {
        const bool rows = a.cut == Cut::kRows;
        const WeightSlice& slice = program.value(op.inputs[1]).slice;
        return {rows ? slice.row_begin - slice.home_row : 0, rows};
    }
    Columns operator()(const HeadMatMul&) const {
        const Value& weight = program.value(op.inputs[1]);
        return {weight.slice.first_matrix * weight.shape[1], x.cut};
    }
    Columns operator()(const Attention& a) const { return {a.first_head * a.ValueDim(), x.cut}; }
    Columns operator()(const DeltaRule& a) const {  // (Values may be cut where keys are whole.)
        return {a.first_head * program.value(op.inputs[7]).shape[2],
                columns[static_cast<size_t>(op.inputs[2])].cut};
    }
    Columns operator()(const PickColumns& a) const {
        const int64_t all = program.value(op.inputs[0]).shape[1] / a.heads;
        return {x.begin / all * (program.value(op.outputs[0]).shape[1] / a.heads), x.cut};
    }
    Columns operator()(const PadColumns& a) const { return {x.begin - a.begin, x.cut}; }
    template <typename T>
    Columns operator()(const T&) const {
        return T::kRow.Is(Trait::kTransfer) ? Columns{} : x;
    }
};

}  // namespace

Result<std::vector<Sharding>> InferSharding(const Program& forward) {
    return Placer(forward).Run();
}

std::vector<Columns> PlaceColumns(const Program& program) {
    std::vector<Columns> columns(program.values.size());
    for (const Op& op : program.ops) {
        const Operands operands = OperandsOf(op).value();
        if (op.outputs.empty() || operands.outputs[0]->access == Access::kAdd) continue;
        const auto x = op.inputs.empty() ? Columns{} : columns[static_cast<size_t>(op.inputs[0])];
        columns[static_cast<size_t>(op.outputs[0])] =
            op.attributes.Visit(OutputColumns{program, op, columns, x});
    }
    return columns;
}

}  // namespace weft::program
