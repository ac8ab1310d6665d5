// Chooses the size of the KV cache and the default context, as far as the memory of all ranks is
// free.
//
// Before the ranks start, SizeCache sets the largest sizes. Each rank compiles with the smallest
// ones, which choose its device. Then the ranks exchange their free memory and their needs, and all
// compute the same sizes (Rank::AgreeOnCache).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/job.h"
#include "model/hyper.h"

namespace weft::engine {

// The needs of one rank in one memory.
struct CacheSpace {
    std::string memory;        // the host and the memory; ranks with equal texts share it
    uint64_t free_bytes = 0;   // 0: unknown
    uint64_t fixed_bytes = 0;  // all that the rank needs besides the cache
    uint64_t token_bytes = 0;  // of a token of the cache
};
// Tokens of KV cache that fit into all memories. The cache gets at most 0.4 of the free memory, and
// leaves a tenth of it free besides the needs of the ranks. share: as Job::cache_share. 0: a memory
// with a part of the cache is full or its size is unknown.
int64_t TokensThatFit(std::span<const CacheSpace> rooms, double share);

// Rounds job.ctx and job.kv_tokens to whole pages of the device, limits job.ctx to the model's
// context, and fills in whichever of the two is 0 with its largest size, which FitCache reduces
// (Job::fits_ctx, Job::cache_share):
//  - ctx: the model's context. If kv_tokens is given, at most kv_tokens, and final.
//  - kv_tokens: enough for options.max_seqs sequences of ctx, or of kDefaultContext if ctx was not
//    given, and for one sequence of ctx.
// servers: number of servers that share the free memory. Reads the model's header. Returns whether
// ctx was chosen. Errors: kUsage (a context longer than the model's, a cache too small for one
// sequence), errors of OpenModel and of DescribeDevice.
Result<bool> SizeCache(Job& job, const EngineOptions& options, size_t servers = 1);

// Reduces the sizes of `job` that SizeCache chose to what `tokens` tokens of cache allow, but at
// least to one sequence of ctx and the rows of one step; ctx at least to kDefaultContext where the
// model has it.
void FitCache(Job& job, const model::Hyper& hyper, int64_t page_tokens, int64_t tokens);

// Why a chosen ctx has its value, for the user: "the model's own".
std::string WhyContext(const Job& job, const model::Hyper& hyper);

}  // namespace weft::engine
