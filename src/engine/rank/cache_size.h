// Chooses the size of a server's KV cache: enough for all sequences, as far as device memory is
// free.
#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/job.h"

namespace weft::engine {

// Rounds job.ctx and job.kv_tokens to whole pages of the device, limits job.ctx to the model's
// context, and fills in whichever of the two is 0:
//  - ctx: the model's context, or as many tokens as fit into the free memory, but at least
//    kDefaultContext where the model has them. With kv_tokens, at most that many.
//  - kv_tokens: enough for options.max_seqs sequences of ctx, or of kDefaultContext if ctx was not
//    given, or as many tokens as fit, but at least one sequence of ctx.
// hosts: number of hosts that share the weights. servers: number of servers that share the free
// memory. Reads the headers of the model and of the draft model. Returns why ctx has its value, for
// the user ("the model's own"); empty: it was given.
// Errors: kUsage (a context longer than the model's, a cache too small for one sequence), those of
// OpenModel and of DescribeDevice.
Result<std::string> SizeCache(Job& job, const EngineOptions& options, size_t hosts,
                              size_t servers = 1);

}  // namespace weft::engine
