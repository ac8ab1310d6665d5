// The links between ranks and their transports, as exchanged with rank 0 and as shown to the user.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "net/wire_end.h"

namespace weft::cluster {

// [rank][peer]: each rank's own end of its links.
using LinkTable = std::vector<std::vector<net::WireEnd>>;

// Packs one rank's link ends, by peer: each distinct end once, and a byte for each peer.
std::string PackWireEnds(const std::vector<net::WireEnd>& ends);
// size: number of ranks. Errors: kCorrupt.
Result<std::vector<net::WireEnd>> UnpackWireEnds(std::string_view packed, size_t size);

// A line for each pair, "rank 0 (a) - rank 1 (b): tcp, 10.0.1.1 (eth1) - 10.0.1.2 (eth1),
// 10 Gbit/s".
std::vector<std::string> LinkLines(const LinkTable& links, const std::vector<std::string>& hosts);

// "tcp, 10.0.1.1 (eth1) - 10.0.1.2 (eth1)": the end of `a` first. "": the link is unknown or has no
// addresses.
std::string LinkText(const LinkTable& links, int a, int b);

// For pairs of living ranks that cannot exchange data: a small set of ranks to drop so that no such
// pair remains (greedy, not always the smallest). Never rank 0; among equals the last.
std::vector<int> RanksToDrop(std::vector<std::pair<int, int>> pairs);

}  // namespace weft::cluster
