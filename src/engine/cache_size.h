// How much KV cache a server has: of the memory that its device has free, as much as its sequences
// may need.
#pragma once

#include <cstddef>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/job.h"

namespace weft::engine {

// Makes job.ctx and job.kv_tokens whole pages of the device, job.ctx no more than the model's
// context, and fills in what is 0: the context as CompleteJob has it; the cache's tokens so that
// all of options.max_seqs sequences may be as long as that, or as many as there is room for on this
// host, one sequence at least. hosts: that share out the weights. Reads the header of the model,
// and of the draft model.
// Errors: kUsage (a context longer than the model's, a cache below one sequence), those of
// OpenModel and of DescribeDevice.
Status SizeCache(Job& job, const EngineOptions& options, size_t hosts);

}  // namespace weft::engine
