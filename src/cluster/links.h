// Who is linked to whom over what, as ranks tell rank 0 and as it tells the user.
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

// The ends of one rank's links, by peer: each distinct one once, and a byte for each peer.
std::string PackWireEnds(const std::vector<net::WireEnd>& ends);
// size: of the cluster. Errors: kCorrupt.
Result<std::vector<net::WireEnd>> UnpackWireEnds(std::string_view packed, size_t size);

// A line for each pair, "rank 0 (a) - rank 1 (b): tcp, 10.0.1.1 (eth1) - 10.0.1.2 (eth1),
// 10 Gbit/s".
std::vector<std::string> LinkLines(const LinkTable& links, const std::vector<std::string>& hosts);

// "tcp, 10.0.1.1 (eth1) - 10.0.1.2 (eth1)": the end of `a` first. "": nothing is known of that
// link, or it has no addresses.
std::string LinkText(const LinkTable& links, int a, int b);

// Of ranks that all live, pairs without a way for data: the fewest ranks, as far as is easily seen,
// without which none of these pairs is left. Never rank 0; of equals the last.
std::vector<int> RanksToDrop(std::vector<std::pair<int, int>> pairs);

}  // namespace weft::cluster
