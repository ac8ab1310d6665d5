#include "program/sequence_parallel.h"

#include <utility>
#include <vector>

#include "base/check.h"

namespace weft::program {
namespace {

class Sharer {
  public:
    Sharer(Program forward, int ranks)
        : program_(std::move(forward)),
          ops_(std::exchange(program_.ops, {})),
          share_(RowShare(ranks)),
          whole_(program_.values.size(), kNoValue) {}

    Program Run() {
        for (Op& op : ops_) {
            Rewrite(op);
            program_.ops.push_back(std::move(op));
        }
        WEFT_CHECK(CheckShapes(program_).ok());
        return std::move(program_);
    }

  private:
    bool IsShare(ValueId id) const { return program_.value(id).shape[0] == share_; }
    bool AllRows(ValueId id) const {
        const Shape& shape = program_.value(id).shape;
        return shape.rank == 2 && shape[0] == kTokens;
    }
    void MakeShare(ValueId id) { program_.values[static_cast<size_t>(id)].shape.dims[0] = share_; }

    // Whether the op works on each row alone, and so maps own rows to own rows.
    bool KeepsShares(const Op& op) const {
        if (op.kind() == OpKind::kRmsNorm) return op.as<RmsNorm>().whole == 0;
        if (op.kind() == OpKind::kMatMul) return op.as<MatMul>().cut == Cut::kNone;
        if (op.kind() == OpKind::kAdd) return IsShare(op.inputs[0]) && IsShare(op.inputs[1]);
        return op.kind() == OpKind::kScale || op.kind() == OpKind::kAddBias ||
               op.kind() == OpKind::kSend;
    }

    void Rewrite(Op& op) {
        if (op.kind() == OpKind::kRecv && AllRows(op.outputs[0])) return MakeShare(op.outputs[0]);
        if (op.kind() == OpKind::kAllReduce && AllRows(op.outputs[0])) {
            op.attributes = ReduceScatterRows{};
            return MakeShare(op.outputs[0]);
        }
        if (!op.inputs.empty() && IsShare(op.inputs[0]) && KeepsShares(op)) {
            for (const ValueId id : op.outputs) MakeShare(id);
            return;
        }
        for (ValueId& id : op.inputs) {
            if (IsShare(id)) id = Gathered(id);
        }
    }

    // The gathered value, emitted once for all its readers.
    ValueId Gathered(ValueId id) {
        ValueId& whole = whole_[static_cast<size_t>(id)];
        if (whole == kNoValue) {
            const Value value = program_.value(id);
            whole =
                program_.Emit(GatherRows{}, {id}, value.name + ".rows", {kTokens, value.shape[1]});
        }
        return whole;
    }

    Program program_;
    std::vector<Op> ops_;
    const int64_t share_;
    std::vector<ValueId> whole_;  // by value: its gathered value
};

}  // namespace

Program ApplySequenceParallel(Program forward, int ranks) {
    return ranks == 1 ? forward : Sharer(std::move(forward), ranks).Run();
}

}  // namespace weft::program
