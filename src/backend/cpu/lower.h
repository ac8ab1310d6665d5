// Lowering: a Program's ops become calls of CPU kernels with resolved addresses, and barriers.
//
// A call holds the kernel's argument struct with every address filled in; only what a step binds
// (row counts, token ids, sequences) is set again when it changes. Built by Lower, run by the
// executor in cpu_backend.cc.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "backend/cpu/memory.h"
#include "backend/executable.h"
#include "kernels/adapt.h"
#include "kernels/experts.h"
#include "kernels/kernels.h"
#include "kernels/latent.h"

namespace weft::backend {

// Calls that are no plain kernels. Thread 0 makes those that communicate.
struct SelectRowsCall {
    const float* x = nullptr;
    float* y = nullptr;
    int64_t cols = 0, rows = 0;
    const int32_t* row_ids = nullptr;
};
struct AddCall {
    kernels::AddArgs add;
    int64_t cols = 0;
};
struct AllReduceCall {
    const float* x = nullptr;
    double* wide = nullptr;  // instead of x: float64 addends, summed in place, then rounded to y
    float* y = nullptr;
    int64_t cols = 0, rows = 0;
};
struct AllGatherCall {
    const float* x = nullptr;  // [rows, mine]
    float* y = nullptr;        // [rows, cols]
    int64_t mine = 0, begin = 0, cols = 0, rows = 0;
    std::vector<size_t> part_bytes;
};
struct SendCall {
    const float* x = nullptr;
    int64_t cols = 0, rows = 0;
    int peer = 0;
};
struct RecvCall {
    float* y = nullptr;
    int64_t cols = 0, rows = 0;
    int peer = 0;
};

// A row-wise kernel over a value with a row for each token and expert: as many rows as experts of
// this rank were chosen, which is known when the plan (kernels/experts.h) is made.
template <typename Args>
struct OfExperts {
    Args args;
    const int32_t* rows = nullptr;
};

using CallArgs =
    std::variant<kernels::PrepareArgs, kernels::MatMulArgs, kernels::EmbeddingArgs,
                 kernels::RmsNormArgs, kernels::SumSquaresArgs, kernels::RopeTableArgs,
                 kernels::RopeArgs, kernels::KvWriteArgs, kernels::AttentionArgs, kernels::GluArgs,
                 kernels::AddBiasArgs, kernels::ScaleArgs, kernels::SoftCapArgs, kernels::RouteArgs,
                 kernels::PlanExpertsArgs, kernels::ExpertMatMulArgs, kernels::ExpertSumArgs,
                 kernels::HeadMatMulArgs, kernels::GateRowsArgs, kernels::PickColumnsArgs,
                 kernels::LatentWriteArgs, kernels::LatentAttentionArgs, kernels::AdaptDownArgs,
                 kernels::AdaptUpArgs, OfExperts<kernels::PrepareArgs>, OfExperts<kernels::GluArgs>,
                 AddCall, SelectRowsCall, AllReduceCall, AllGatherCall, SendCall, RecvCall>;

struct Call {
    CallArgs args;
    int32_t op = 0;           // of the Program
    bool barrier = false;     // wait for the team before it
    bool per_output = false;  // its rows are R, not T
    int64_t row_factor = 1;   // rows of its operands for each T or R
    // Of an all_reduce: the calls after it that finish the same rows (residual, norm, prepared
    // form) while they are in the first-level cache. Thread 0 makes them with it where there is
    // one row, and the team meets once after them in place of once for each.
    int32_t tail = 0;
};

// True for calls that communicate: only thread 0 makes them.
bool Communicates(const Call& call);

// Where everything lives.
struct Buffers {
    std::vector<std::byte*> values;               // by ValueId: activations, vectors
    std::vector<kernels::PackedMatrix> matrices;  // by ValueId: rank-2 weights
    std::vector<kernels::PackedStack> stacks;     // by ValueId: rank-3 weights
    std::vector<kernels::KvCache> caches;         // by ValueId: KV states
    std::vector<bool> is_adapter;                 // by ValueId: matrices that Adapt ops read
    std::vector<std::vector<kernels::AdapterPair>> pairs;  // of each Adapt op that was lowered
    Memory weights, kv, arena, scratch;
};

// Plans and allocates weights, KV pages and the arena.
Result<Buffers> AllocateBuffers(const program::Program& program, const CompileOptions& options,
                                const kernels::Kernels& kernels);

// What a step runs: one of two lists, each in the Program's order, with barriers.
struct CallLists {
    std::vector<Call> plain;    // no row of the step uses an adapter: Adapt ops are left out
    std::vector<Call> adapted;  // empty where the Program has no Adapt op
};

// Allocates buffers.scratch (RoPE tables, prepared activations, attention scratch). kUnsupported
// for ops this backend does not run.
Result<CallLists> Lower(const program::Program& program, const CompileOptions& options,
                        const kernels::Kernels& kernels, int threads, Buffers& buffers);

// Sets `barrier` on every call that touches what another since the last barrier wrote, or writes
// what it read. Part of Lower; apart for its test.
void PlaceBarriers(std::vector<Call>& calls, const CompileOptions& options,
                   const kernels::Kernels& kernels);
// Then sets `tail`.
void PlaceTails(std::vector<Call>& calls);

}  // namespace weft::backend
