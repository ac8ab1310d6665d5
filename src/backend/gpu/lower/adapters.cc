// Adapters (adapt.comp).
#include <algorithm>

#include "backend/gpu/dispatch/operands.h"
#include "backend/gpu/lower/lower.h"
#include "backend/gpu/lower/parts.h"
#include "backend/gpu/lower/products.h"

namespace weft::backend::on_gpu {
namespace {

using program::Adapt;
using program::kNoValue;
using program::ValueId;

// A pair of an adapter, as kernels read it. Rows of matrices are contiguous.
struct AdapterEntry {
    uint64_t a = 0, b = 0, gain = 0, shift = 0;
    uint32_t a_row_bytes = 0, b_row_bytes = 0;
    int32_t adapter = 0;
    uint32_t rank = 0;
    uint32_t a_type = 0, b_type = 0;  // ElementType
};

// Arguments of adapt.comp.
struct AdaptArgs {
    uint64_t x = 0, u = 0, y = 0;
    uint64_t pairs = 0, row_sequence = 0, sequences = 0;
    uint64_t output_rows = 0, ids = 0, weights = 0;
    uint32_t count = 0, cols = 0, n = 0, u_stride = 0;
    uint32_t used = 0, first_expert = 0, experts = 0, by_token = 0;
};

constexpr int64_t kMostDownGroups = 1 << 15;  // along the rows of a; the kernel loops

// The two dispatches of an op.
class Adapting {
  public:
    Adapting(Emitter& e, const program::Op& op) : e_(e), op_(op), down_(e), up_(e) {}

    Status Add(int32_t adapter, ValueId a, ValueId b, ValueId gain, ValueId shift) {
        AdapterEntry entry;
        entry.adapter = adapter;
        WEFT_TRY(Take(down_, a, entry.a, entry.a_row_bytes, entry.a_type));
        WEFT_TRY(Take(up_, b, entry.b, entry.b_row_bytes, entry.b_type));
        uint32_t row_bytes = 0, type = 0;
        WEFT_TRY(Take(up_, gain, entry.gain, row_bytes, type));
        WEFT_TRY(Take(b == kNoValue && a != kNoValue ? down_ : up_, shift, entry.shift, row_bytes,
                      type));
        if (a != kNoValue) {
            entry.rank = static_cast<uint32_t>(e_.Weight(a).rows);
            groups_ = std::max(groups_, e_.Weight(a).rows);
            if (b == kNoValue) replaces_ = true;
        }
        if (b != kNoValue) args_.u_stride = std::max(args_.u_stride, entry.rank);
        up_runs_ = up_runs_ || b != kNoValue || a == kNoValue;
        entries_.push_back(entry);
        return {};
    }

    // The rows of y are output rows, which `rows` lists.
    void OfOutputs(ValueId rows) {
        args_.output_rows = down_.Reads(rows);
        up_.Reads(rows);
    }
    void OfExperts(ValueId ids, ValueId weights, int64_t first_expert, int64_t experts) {
        args_.ids = down_.Reads(ids);
        up_.Reads(ids);
        if (weights != kNoValue) args_.weights = up_.Reads(weights);
        args_.used = static_cast<uint32_t>(e_.Cols(ids));
        args_.first_expert = static_cast<uint32_t>(first_expert);
        args_.experts = static_cast<uint32_t>(experts);
        args_.by_token = e_.program().value(op_.inputs[0]).shape.rank == 3 ? 0 : 1;
    }

    Status Run() {
        const ValueId x = op_.inputs[0], y = op_.outputs[0];
        const std::string name = "adapters of " + e_.program().value(y).name;
        const std::span<const std::byte> bytes = std::as_bytes(std::span(entries_));
        WEFT_ASSIGN(const Region pairs,
                    e_.Constant(name, bytes.size(), [&](std::span<std::byte> out) {
                        std::ranges::copy(bytes, out.begin());
                    }));
        args_.pairs = pairs.address;
        args_.row_sequence = e_.tables().row_sequence;
        args_.sequences = e_.tables().sequences;
        args_.count = static_cast<uint32_t>(entries_.size());
        args_.cols = static_cast<uint32_t>(e_.Cols(x));
        args_.n = static_cast<uint32_t>(e_.Cols(y));
        const int64_t rows = FlatRowsOf(e_, y);
        const int64_t slots = args_.weights != 0 ? rows * args_.used : rows;
        const uint32_t size = GroupSize(e_.gpu());
        args_.y = up_.Adds(y);
        if (replaces_) down_.Adds(y);
        if (groups_ > 0) {
            const uint64_t floats = std::max<uint64_t>(1, args_.u_stride) * slots;
            WEFT_ASSIGN(const Region u, e_.Scratch("adapter", floats * sizeof(float)));
            args_.x = down_.Reads(x);
            args_.u = down_.Writes(u);
            WEFT_TRY(down_.Run("adapt_down", {size}, args_,
                               {std::min(groups_, kMostDownGroups), slots, 1},
                               PinnedSubgroup(e_.gpu())));
            up_.Reads(u);
        }
        if (!up_runs_) return {};
        return up_.Run("adapt_up", {size}, args_, {CeilDiv(args_.n, size), rows, 1});
    }

  private:
    Status Take(Operands& io, ValueId id, uint64_t& address, uint32_t& row_bytes, uint32_t& type) {
        if (id == kNoValue) return {};
        const WeightPlace& place = e_.Weight(id);
        address = place.address;
        row_bytes = static_cast<uint32_t>(LayoutOf(place.dtype, 1, place.cols).planes[0].row_bytes);
        WEFT_ASSIGN(type, ElementType(place.dtype));
        io.Reads(AllOf(place));
        return {};
    }

    Emitter& e_;
    const program::Op& op_;
    Operands down_, up_;
    AdaptArgs args_;
    std::vector<AdapterEntry> entries_;
    int64_t groups_ = 0;  // the most rows of an a
    bool replaces_ = false, up_runs_ = false;
};

Status LowerExperts(Emitter& e, const program::Op& op, const program::ExpertPairs& a, bool sums) {
    if (!e.shape().adapted) return {};
    const size_t first = sums ? 3 : 2;
    Adapting adapting(e, op);
    for (size_t i = 0; i < a.adapters.size(); ++i) {
        const ValueId* pair = &op.inputs[first + 2 * i];
        WEFT_TRY(adapting.Add(a.adapters[i], pair[0], pair[1], kNoValue, kNoValue));
    }
    adapting.OfExperts(op.inputs[1], sums ? op.inputs[2] : kNoValue, a.first_expert,
                       e.Weight(op.inputs[first]).matrices);
    return adapting.Run();
}

}  // namespace

Status Lower(Emitter& e, const program::Op& op, const Adapt& a) {
    if (!e.shape().adapted) return {};
    Adapting adapting(e, op);
    for (size_t i = 0; i < a.adapters.size(); ++i) {
        const auto part = [&](Adapt::Part which) { return a.PartOf(op.inputs, i, which); };
        WEFT_TRY(adapting.Add(a.adapters[i], part(Adapt::kA), part(Adapt::kB), part(Adapt::kGain),
                              part(Adapt::kShift)));
    }
    if (a.of_outputs) adapting.OfOutputs(op.inputs[1]);
    return adapting.Run();
}

Status Lower(Emitter& e, const program::Op& op, const program::AdaptExperts& a) {
    return LowerExperts(e, op, a.pairs, false);
}

Status Lower(Emitter& e, const program::Op& op, const program::AdaptExpertSum& a) {
    return LowerExperts(e, op, a.pairs, true);
}

}  // namespace weft::backend::on_gpu
