// Formats the results of `weft net`: perftest's columns for links, nccl-tests' for collectives, a
// matrix of all pairs with slow links marked, the same as JSON, and the cost per token.
#pragma once

#include <string>

#include "cli/terminal/output.h"
#include "fabric/job.h"

namespace weft::cli {

// {"transport","ranks","op","links","rows":[{"size","algorithm","wire","p50_us","p99_us",
// "algbw_gbps","errors"}]}. This format is stable. `table` adds "source", "took_ms" and "table".
// algbw_gbps is in 10^9 bytes per second, as in nccl-tests. Rows of pairs also have "from", "to"
// and perftest's figures.
Json NetToJson(const fabric::NetReport& report);

// "# all-reduce, 2 ranks over shm: a (rank 0), b (rank 1)".
std::string NetTitle(const fabric::NetReport& report);
// One line per pair of ranks: its ranks and its link.
std::string NetLinks(const fabric::NetReport& report);
// The heading of a table, and one row.
std::string NetHeading(fabric::NetOp op);
std::string NetRowText(fabric::NetOp op, int ranks, const fabric::NetRow& row);
// The matrix of all pairs, from rows of `size` only; "" for two ranks.
std::string NetMatrix(const fabric::NetReport& report, int64_t size);
// The row of the slowest pair at `size`.
fabric::NetRow SlowestPair(const fabric::NetReport& report, int64_t size);

// The table of `weft net table`, and its consequences: whether tensor parallelism pays, and whether
// the fabric favors a ring or a mesh. sync: as below.
std::string NetTableText(const fabric::NetReport& report);
std::string NetHints(const fabric::NetReport& report, const fabric::NetRow& sync);

// A sentence about cost, with its assumptions: "a sync of 8 KB costs 4.9 us; a 61-layer model at
// TP=2 loses 0.60 ms a token to the wire". The number of syncs per token is counted in the model's
// Program. sync: the row of an all-reduce of 8 KB over all ranks.
std::string TokenWords(const fabric::NetReport& report, const fabric::NetRow& sync);

}  // namespace weft::cli
