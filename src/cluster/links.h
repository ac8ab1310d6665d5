// Describes the links between ranks and their transports, for rank 0 and for the user.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "net/wire_end.h"

namespace weft::cluster {

// The data links that a job needs.
struct LinkNeeds {
    struct Pair {
        int32_t a = 0, b = 0;
        bool few_bytes = false;  // if no data network joins the two, the control network does
        bool operator==(const Pair&) const = default;
    };
    std::vector<Pair> pairs{};  // empty: all ranks with each other
    bool spare = false;         // also those other links that the networks allow
    bool operator==(const LinkNeeds&) const = default;
    // Returns null for two ranks that are not among `pairs`.
    const Pair* Find(int a, int b) const;
};

// The offers of so many ranks always fit into one round, however large they are.
inline constexpr size_t kRanksInOneRound = 64;
// The rounds in which ranks get the offers of their peers: the rank behind the last one of each
// round. The offers of a round fit into one collective call if each has at most most_bytes.
std::vector<size_t> OfferRounds(const LinkNeeds& links, size_t ranks, size_t most_bytes);

// One rank's link ends, by peer: each distinct end once. (A large job has millions of pairs.)
class LinkRow {
  public:
    LinkRow() = default;
    explicit LinkRow(const std::vector<net::WireEnd>& ends);

    size_t size() const { return which_.size(); }
    const net::WireEnd& operator[](size_t peer) const { return distinct_[which_[peer]]; }

  private:
    friend std::string PackWireEnds(const LinkRow& ends);
    friend Result<LinkRow> UnpackWireEnds(std::string_view packed, size_t size);
    std::vector<net::WireEnd> distinct_;
    std::vector<uint16_t> which_;
};

// [rank][peer]: the end at `rank` of its link to `peer`.
using LinkTable = std::vector<LinkRow>;

// Packs a row into a string.
std::string PackWireEnds(const LinkRow& ends);
// size: number of ranks. Errors: kCorrupt.
Result<LinkRow> UnpackWireEnds(std::string_view packed, size_t size);

// Whether a link over this transport joins two hosts.
bool LinksHosts(const LinkTable& links, const std::vector<std::string>& hosts,
                std::string_view transport);

// A line for each pair, "rank 0 (a) - rank 1 (b): tcp, encrypted, 10.0.1.1 (eth1) - 10.0.1.2
// (eth1), 10 Gbit/s".
std::vector<std::string> LinkLines(const LinkTable& links, const std::vector<std::string>& hosts);

// An order of ranks 0 to ranks - 1, from rank 0, in which each rank is joined to the next one;
// empty: none was found.
std::vector<int> ChainOf(int ranks, const std::function<bool(int, int)>& joined);

// The layouts for which the joined pairs suffice, as a sentence for a model's job whose layout
// needs more; "": none. names: of the ranks. joined(a, b): whether two ranks can have a data link.
std::string LayoutsThatWork(const std::vector<std::string>& names,
                            const std::function<bool(int, int)>& joined);

// "tcp, 10.0.1.1 (eth1) - 10.0.1.2 (eth1)": the end of `a` first. "": the link is unknown or has no
// addresses.
std::string LinkText(const LinkTable& links, int a, int b);

// pairs: ranks that cannot exchange data with each other. Returns a small set of ranks without
// which no such pair remains (found greedily, so not always the smallest set). Never has rank 0; of
// equally good ranks, has the one with the highest number.
std::vector<int> RanksToDrop(const std::vector<std::pair<int, int>>& pairs);

}  // namespace weft::cluster
