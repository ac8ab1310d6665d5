#include "program/recompute.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"

namespace weft::program {
namespace {

bool IsDropped(OpKind writer, Recompute what) {
    const OpRow& row = RowOf(writer);
    switch (what) {
        case Recompute::kNone: return false;
        case Recompute::kSelective: return row.Is(Trait::kCheap);
        case Recompute::kFull: return !row.Is(Trait::kStream | Trait::kOnce);
    }
    return false;
}

class Rewriter {
  public:
    Rewriter(Differentiated differentiated, Recompute what, const std::vector<ValueId>& branches)
        : result_(std::move(differentiated)),
          forward_(result_.program.ops.begin(),
                   result_.program.ops.begin() + static_cast<ptrdiff_t>(result_.backward_begin)),
          writer_(result_.program.values.size(), nullptr),
          again_(result_.program.values.size(), kNoValue) {
        for (const Op& op : forward_) {
            const bool branch = what == Recompute::kFull && op.kind() == OpKind::kAdd &&
                                std::ranges::find(branches, op.outputs[0]) != branches.end();
            if (!branch && !IsDropped(op.kind(), what)) continue;
            for (const ValueId id : op.outputs) writer_[static_cast<size_t>(id)] = &op;
        }
    }

    Differentiated Run() {
        std::vector<Op> all = std::exchange(result_.program.ops, {});
        for (size_t i = 0; i < all.size(); ++i) {
            if (i >= result_.backward_begin) {
                for (ValueId& id : all[i].inputs) id = Again(id);
            }
            result_.program.ops.push_back(std::move(all[i]));
        }
        return std::move(result_);
    }

  private:
    // The value that replaces a forward value in the backward pass.
    ValueId Again(ValueId id) {
        const auto at = static_cast<size_t>(id);
        if (at >= writer_.size() || writer_[at] == nullptr) return id;
        if (again_[at] == kNoValue) Repeat(*writer_[at]);
        return again_[at];
    }

    void Repeat(Op op) {
        for (ValueId& id : op.inputs) id = Again(id);
        for (ValueId& id : op.outputs) {
            Value value = result_.program.value(id);
            value.name += ".again";
            const ValueId copy = result_.program.AddValue(std::move(value));
            again_[static_cast<size_t>(id)] = copy;
            id = copy;
        }
        result_.program.ops.push_back(std::move(op));
    }

    Differentiated result_;
    const std::vector<Op> forward_;
    std::vector<const Op*> writer_;  // writers of dropped values, by forward ValueId
    std::vector<ValueId> again_;
};

}  // namespace

Differentiated WithRecompute(Differentiated differentiated, Recompute what,
                             const std::vector<ValueId>& branches) {
    if (what == Recompute::kNone) return differentiated;
    Differentiated result = Rewriter(std::move(differentiated), what, branches).Run();
    WEFT_CHECK(CheckShapes(result.program).ok());
    return result;
}

}  // namespace weft::program
