// What `weft net` prints: perftest's columns for links, nccl-tests' for collectives, a matrix of
// all pairs with the slow link marked, the same as JSON, and a line of what it means for tokens.
#pragma once

#include <string>

#include "cli/output.h"
#include "fabric/job.h"

namespace weft::cli {

// {"transport","ranks","op","links","rows":[{"size","algorithm","wire","p50_us","p99_us",
// "algbw_gbps","errors"}]}: a contract; `table` adds "source", "took_ms" and "table". algbw_gbps is
// in 10^9 bytes a second, as nccl-tests has it. Rows of pairs have also "from", "to" and perftest's
// figures.
Json NetToJson(const fabric::NetReport& report);

// "# all-reduce, 2 ranks over shm: a (rank 0), b (rank 1)".
std::string NetTitle(const fabric::NetReport& report);
// A line for each pair of ranks: who is linked to whom, over what.
std::string NetLinks(const fabric::NetReport& report);
// The heading of a table, and one row of it.
std::string NetHeading(fabric::NetOp op);
std::string NetRowText(fabric::NetOp op, int ranks, const fabric::NetRow& row);
// Rank by rank; "" for two ranks. The rows of `size` only.
std::string NetMatrix(const fabric::NetReport& report, int64_t size);
// The pair whose link is slowest at `size`: its rows are worth a look.
fabric::NetRow SlowestPair(const fabric::NetReport& report, int64_t size);

// The table of `weft net table`, and what its figures say: whether tensor parallelism pays, and
// whether the fabric wants a ring or a mesh. sync as below.
std::string NetTableText(const fabric::NetReport& report);
std::string NetHints(const fabric::NetReport& report, const fabric::NetRow& sync);

// "a sync of 8 KB costs 4.9 us; a 61-layer model at TP=2 loses 0.60 ms a token to the wire", and
// what was assumed, the syncs of a token being those of the model's Program. sync: of an all-reduce
// of 8 KB over all ranks.
std::string TokenWords(const fabric::NetReport& report, const fabric::NetRow& sync);

}  // namespace weft::cli
