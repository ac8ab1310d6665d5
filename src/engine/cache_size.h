// Chooses the size of a server's KV cache: as much free device memory as its sequences may need.
#pragma once

#include <cstddef>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/job.h"

namespace weft::engine {

// Rounds job.ctx and job.kv_tokens to whole pages of the device, limits job.ctx to the model's
// context, and fills in values that are 0. Context: as CompleteJob. Cache tokens: enough for
// options.max_seqs sequences of full length, or as many as fit on this host, at least one sequence.
// hosts: number of hosts that share the weights. Reads the header of the model and of the draft
// model.
// Errors: kUsage (a context longer than the model's, a cache too small for one sequence), those of
// OpenModel and of DescribeDevice.
Status SizeCache(Job& job, const EngineOptions& options, size_t hosts);

}  // namespace weft::engine
