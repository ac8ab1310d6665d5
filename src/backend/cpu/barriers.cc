// Where the team must meet: a call waits only if it touches bytes that another call since the last
// barrier wrote, or writes bytes that one read. Found from the calls' addresses alone, so that
// reuse of the arena is covered by the same rule.
#include <algorithm>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/lower.h"

namespace weft::backend {
namespace {

struct Range {
    const void* begin = nullptr;
    int64_t bytes = 0;
    bool Overlaps(const Range& other) const {
        const auto* a = static_cast<const std::byte*>(begin);
        const auto* b = static_cast<const std::byte*>(other.begin);
        return a < b + other.bytes && b < a + bytes;
    }
};

// The bytes that a call reads and writes with `rows` rows. Weights are never written: left out.
struct Touch {
    std::vector<Range> reads, writes;
    int64_t rows;
    int64_t most_tokens;
    const kernels::Kernels& kernels;

    void Reads(const float* data, int64_t cols) { reads.push_back({data, rows * cols * 4}); }
    void Writes(const float* data, int64_t cols) { writes.push_back({data, rows * cols * 4}); }

    void operator()(const kernels::PrepareArgs& a) {
        Reads(a.x, a.x_stride);
        writes.push_back({a.out, rows * kernels.prepared_bytes(a.cols)});
    }
    void operator()(const kernels::MatMulArgs& a) {
        if (a.prepared != nullptr) {
            reads.push_back({a.prepared, rows * kernels.prepared_bytes(a.weight.cols)});
        } else {
            Reads(a.x, a.x_stride);
        }
        if (a.wide != nullptr) writes.push_back({a.wide, rows * a.y_stride * 8});
        if (a.y != nullptr) Writes(a.y, a.y_stride);
    }
    void operator()(const kernels::EmbeddingArgs& a) { Writes(a.y, a.y_stride); }
    void operator()(const kernels::RmsNormArgs& a) {
        Reads(a.x, a.x_stride);
        Writes(a.y, a.y_stride);
        if (a.squares != nullptr) Reads(a.squares, a.squares_stride);
    }
    void operator()(const kernels::SumSquaresArgs& a) {
        Reads(a.x, a.x_stride);
        if (a.wide != nullptr) writes.push_back({a.wide, rows * a.y_stride * 8});
        if (a.y != nullptr) Writes(a.y, a.y_stride);
    }
    void operator()(const kernels::RopeTableArgs& a) { Writes(a.out, a.rotary_dim); }
    void operator()(const kernels::RopeArgs& a) {
        Reads(a.x, a.x_stride);
        Reads(a.cos_sin, a.rotary_dim);
        Writes(a.y, a.y_stride);
    }
    void operator()(const kernels::KvWriteArgs& a) {
        Reads(a.k, a.k_stride);
        Reads(a.v, a.v_stride);
        writes.push_back({a.k_cache.data, 1});
        writes.push_back({a.v_cache.data, 1});
    }
    void operator()(const kernels::AttentionArgs& a) {
        Reads(a.q, a.q_stride);
        reads.push_back({a.k_cache.data, 1});
        reads.push_back({a.v_cache.data, 1});
        Writes(a.out, a.out_stride);
    }
    void operator()(const kernels::GluArgs& a) {
        Reads(a.gate, a.gate_stride);
        Reads(a.up, a.up_stride);
        Writes(a.out, a.out_stride);
    }
    void operator()(const kernels::AddBiasArgs& a) {
        Reads(a.x, a.cols);
        Writes(a.y, a.cols);
    }
    void operator()(const kernels::ScaleArgs& a) {
        Reads(a.x, a.cols);
        Writes(a.y, a.cols);
    }
    void operator()(const kernels::SoftCapArgs& a) {
        Reads(a.x, a.cols);
        Writes(a.y, a.cols);
    }
    void operator()(const kernels::RouteArgs& a) {
        Reads(a.logits, a.experts);
        Writes(a.weights, a.used);
        writes.push_back({a.ids, rows * a.used * 4});
    }
    void ReadsPlan(const kernels::ExpertPlan& plan, int64_t count, int64_t used) {
        reads.push_back({plan.begin, (count + 1) * 4});
        reads.push_back({plan.slots, rows * used * 4});
    }
    // The left operand of an expert's matmul: `times` rows for each token.
    void ReadsRows(const float* x, int64_t x_stride, const std::byte* prepared, int64_t cols,
                   int64_t times) {
        if (prepared == nullptr) return Reads(x, times * x_stride);
        reads.push_back({prepared, rows * times * kernels.prepared_bytes(cols)});
    }
    void operator()(const kernels::PlanExpertsArgs& a) {
        reads.push_back({a.ids, rows * a.used * 4});
        writes.push_back({a.plan.begin, (a.count + 1) * 4});
        writes.push_back({a.plan.slots, rows * a.used * 4});
    }
    void operator()(const kernels::ExpertMatMulArgs& a) {
        ReadsPlan(a.plan, a.weight.count, a.used);
        ReadsRows(a.x, a.x_stride, a.prepared, a.weight.cols, a.by_token ? 1 : a.used);
        Writes(a.y, a.used * a.y_stride);
    }
    void operator()(const kernels::ExpertSumArgs& a) {
        ReadsPlan(a.plan, a.weight.count, a.used);
        ReadsRows(a.x, a.x_stride, a.prepared, a.weight.cols, a.used);
        Reads(a.weights, a.used);
        if (a.base != nullptr) Reads(a.base, a.weight.rows);
        if (a.wide_base != nullptr) reads.push_back({a.wide_base, rows * a.weight.rows * 8});
        writes.push_back({a.wide, rows * a.weight.rows * 8});
        if (a.y != nullptr) Writes(a.y, a.weight.rows);
    }
    void operator()(const kernels::HeadMatMulArgs& a) {
        ReadsRows(a.x, a.weight.cols, a.prepared, a.weight.cols, a.weight.count);
        Writes(a.y, a.weight.count * a.weight.rows);
    }
    void operator()(const kernels::GateRowsArgs& a) {
        Reads(a.x, a.cols);
        Reads(a.gate, 1);
        Writes(a.y, a.cols);
    }
    void operator()(const kernels::PickColumnsArgs& a) {
        Reads(a.x, a.heads * a.head_cols);
        Writes(a.y, a.heads * a.size);
    }
    void operator()(const kernels::LatentWriteArgs& a) {
        Reads(a.latent, a.rank);
        Reads(a.key, a.rope);
        writes.push_back({a.cache.data, 1});
    }
    void operator()(const kernels::LatentAttentionArgs& a) {
        Reads(a.q_latent, a.heads * a.rank);
        Reads(a.q_key, a.heads * a.rope);
        reads.push_back({a.cache.data, 1});
        Writes(a.out, a.heads * a.rank);
    }
    // Rows of U as far as any adapter's rank goes.
    void operator()(const kernels::AdaptDownArgs& a) {
        Reads(a.x, a.x_stride);
        if (a.u != nullptr) Writes(a.u, a.u_stride);
        if (a.wide_u != nullptr) writes.push_back({a.wide_u, rows * a.u_stride * 8});
    }
    void operator()(const kernels::AdaptUpArgs& a) {
        if (a.u != nullptr) Reads(a.u, a.u_stride);
        if (a.wide_u != nullptr) reads.push_back({a.wide_u, rows * a.u_stride * 8});
        if (a.y != nullptr) Writes(a.y, a.y_stride);
        if (a.wide != nullptr) writes.push_back({a.wide, rows * a.y_stride * 8});
    }
    template <typename Args>
    void operator()(const OfExperts<Args>& a) {
        reads.push_back({a.rows, 4});
        (*this)(a.args);
    }
    void operator()(const AddCall& a) {
        Reads(a.add.a, a.cols);
        Reads(a.add.b, a.cols);
        Writes(a.add.out, a.cols);
    }
    void operator()(const SelectRowsCall& a) {
        Writes(a.y, a.cols);
        // Any rows of x; it has at least as many as there are outputs.
        reads.push_back({a.x, most_tokens * a.cols * 4});  // any rows of x
    }
    void operator()(const AllReduceCall& a) {
        if (a.wide != nullptr) writes.push_back({a.wide, rows * a.cols * 8});
        if (a.x != nullptr) Reads(a.x, a.cols);
        Writes(a.y, a.cols);
    }
    void operator()(const AllGatherCall& a) {
        Reads(a.x, a.mine);
        Writes(a.y, a.cols);
    }
    void operator()(const SendCall& a) { Reads(a.x, a.cols); }
    void operator()(const RecvCall& a) { Writes(a.y, a.cols); }
};

bool AnyOverlap(const std::vector<Range>& a, const std::vector<Range>& b) {
    return std::ranges::any_of(a, [&](const Range& x) {
        return std::ranges::any_of(b, [&](const Range& y) { return x.Overlaps(y); });
    });
}

}  // namespace

bool Communicates(const Call& call) {
    return std::holds_alternative<AllReduceCall>(call.args) ||
           std::holds_alternative<AllGatherCall>(call.args) ||
           std::holds_alternative<SendCall>(call.args) ||
           std::holds_alternative<RecvCall>(call.args);
}

void PlaceBarriers(std::vector<Call>& calls, const CompileOptions& options,
                   const kernels::Kernels& kernels) {
    std::vector<Range> read, written;
    bool after_communication = false;
    for (Call& call : calls) {
        const int64_t rows =
            (call.per_output ? options.max_outputs : options.max_tokens) * call.row_factor;
        Touch touch{{}, {}, rows, options.max_tokens, kernels};
        std::visit(touch, call.args);
        call.barrier = after_communication || AnyOverlap(touch.reads, written) ||
                       AnyOverlap(touch.writes, written) || AnyOverlap(touch.writes, read);
        if (call.barrier) {
            read.clear();
            written.clear();
        }
        read.insert(read.end(), touch.reads.begin(), touch.reads.end());
        written.insert(written.end(), touch.writes.begin(), touch.writes.end());
        // A failure of communication is seen by the others at the next barrier.
        after_communication = Communicates(call);
    }
}

void PlaceTails(std::vector<Call>& calls) {
    for (size_t i = 0; i < calls.size(); ++i) {
        if (!std::holds_alternative<AllReduceCall>(calls[i].args)) continue;
        size_t end = i + 1;
        while (end < calls.size() && calls[end].per_output == calls[i].per_output &&
               (std::holds_alternative<AddCall>(calls[end].args) ||
                std::holds_alternative<kernels::AddBiasArgs>(calls[end].args) ||
                std::holds_alternative<kernels::ScaleArgs>(calls[end].args) ||
                std::holds_alternative<kernels::RmsNormArgs>(calls[end].args) ||
                std::holds_alternative<kernels::PrepareArgs>(calls[end].args))) {
            ++end;
        }
        // Barriers within a tail are left out: the one after it stands for them.
        while (end > i + 1 && (end == calls.size() || !calls[end].barrier)) --end;
        calls[i].tail = static_cast<int32_t>(end - i - 1);
    }
}

}  // namespace weft::backend
