#include "cluster/links.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include "base/byte_codec.h"
#include "cluster/frame.h"

namespace weft::cluster {
namespace {

constexpr size_t kWords = 6;  // of an end
constexpr int kMostMbps = 100'000'000;
constexpr int kMostChainTries = 10'000;  // steps of the search for an order of ranks

Error Malformed() {
    return MakeError(ErrorCode::kCorrupt, "a malformed list of a rank's links");
}

// Six words; all but the speed and the last may be empty.
Result<net::WireEnd> ParseEnd(std::string_view line) {
    std::array<std::string_view, kWords> words;
    for (size_t i = 0; i < kWords; ++i) {
        const size_t blank = line.find(' ');
        if ((blank == line.npos) != (i + 1 == kWords)) return Malformed();
        words[i] = line.substr(0, blank);
        line.remove_prefix(std::min(line.size(), words[i].size() + 1));
    }
    net::WireEnd end{std::string(words[0]), std::string(words[1]),  std::string(words[2]), 0,
                     std::string(words[4]), words[5] == "encrypted"};
    const std::string_view digits = words[3];
    const auto parsed =
        std::from_chars(digits.data(), digits.data() + digits.size(), end.speed_mbps);
    if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size() ||
        (!end.encrypted && words[5] != "plain") || end.speed_mbps < 0 ||
        end.speed_mbps > kMostMbps) {
        return Malformed();
    }
    return end;
}

std::string EndLine(const net::WireEnd& end) {
    return fmt::format("{} {} {} {} {} {}\n", end.transport, end.address, end.interface,
                       end.speed_mbps, end.device, end.encrypted ? "encrypted" : "plain");
}

std::string EndText(const net::WireEnd& end) {
    std::string text = end.address.empty() ? "?" : end.address;
    if (!end.interface.empty()) text += fmt::format(" ({})", end.interface);
    if (!end.device.empty()) text += fmt::format(" {}", end.device);
    return text;
}

// Speed of the slower known end; "": unknown.
std::string SpeedText(int a_mbps, int b_mbps) {
    const int mbps =
        a_mbps == 0 || b_mbps == 0 ? std::max(a_mbps, b_mbps) : std::min(a_mbps, b_mbps);
    if (mbps == 0) return "";
    if (mbps % 1000 != 0) return fmt::format(", {:.1f} Gbit/s", mbps / 1000.0);
    return fmt::format(", {} Gbit/s", mbps / 1000);
}

}  // namespace

std::vector<size_t> OfferRounds(const LinkNeeds& links, size_t ranks, size_t most_bytes) {
    constexpr size_t kHead = 8;  // of an offer in a message
    most_bytes = std::min(most_bytes, kMostGathered);
    if (ranks <= kRanksInOneRound) return {ranks};
    const bool all = links.pairs.empty() || links.spare;
    std::vector<size_t> offers(ranks, all ? ranks : 0);  // to each rank
    for (const LinkNeeds::Pair& pair : links.pairs) {
        for (const int32_t rank : {pair.a, pair.b})
            offers[static_cast<size_t>(rank)] += all ? 0 : 1;
    }
    std::vector<size_t> ends;
    size_t bytes = 0;
    for (size_t rank = 0; rank < ranks; ++rank) {
        const size_t more = offers[rank] * (most_bytes + kHead);
        if (bytes > 0 && bytes + more > kMostGathered) {
            ends.push_back(rank);
            bytes = 0;
        }
        bytes += more;
    }
    ends.push_back(ranks);
    return ends;
}

const LinkNeeds::Pair* LinkNeeds::Find(int a, int b) const {
    const auto found = std::ranges::find_if(pairs, [&](const Pair& pair) {
        return (pair.a == a && pair.b == b) || (pair.a == b && pair.b == a);
    });
    return found == pairs.end() ? nullptr : &*found;
}

LinkRow::LinkRow(const std::vector<net::WireEnd>& ends) {
    std::map<std::string, uint16_t> places;
    for (const net::WireEnd& end : ends) {
        const auto next = static_cast<uint16_t>(distinct_.size());
        const auto [at, is_new] = places.emplace(EndLine(end), next);
        if (is_new) distinct_.push_back(end);
        which_.push_back(at->second);
    }
}

std::string PackWireEnds(const LinkRow& ends) {
    std::string distinct;
    for (const net::WireEnd& end : ends.distinct_) distinct += EndLine(end);
    ByteFieldWriter<> which;
    for (const uint16_t place : ends.which_) which(place);
    return PackStrings({distinct, which.TakeText()});
}

Result<LinkRow> UnpackWireEnds(std::string_view packed, size_t size) {
    WEFT_ASSIGN(const std::vector<std::string> words, UnpackStrings(packed));
    if (words.size() != 2) return Malformed();
    LinkRow row;
    for (std::string_view lines = words[0]; !lines.empty();) {
        const std::string_view line = lines.substr(0, lines.find('\n'));
        lines.remove_prefix(std::min(lines.size(), line.size() + 1));
        WEFT_ASSIGN(net::WireEnd end, ParseEnd(line));
        row.distinct_.push_back(std::move(end));
    }
    if (words[1].empty()) return LinkRow(std::vector<net::WireEnd>(size));  // a rank without links
    ByteReader which(words[1]);
    row.which_ = which.TakeList<uint16_t>(size);
    const auto unknown = [&](uint16_t place) { return place >= row.distinct_.size(); };
    if (!which.done() || std::ranges::any_of(row.which_, unknown)) return Malformed();
    return row;
}

std::string LinkText(const LinkTable& links, int a, int b) {
    const auto known = [&](int rank, int peer) {
        return rank >= 0 && peer >= 0 && std::cmp_less(rank, links.size()) &&
               std::cmp_less(peer, links[static_cast<size_t>(rank)].size());
    };
    if (!known(a, b) || !known(b, a)) return "";
    const net::WireEnd& x = links[static_cast<size_t>(a)][static_cast<size_t>(b)];
    const net::WireEnd& y = links[static_cast<size_t>(b)][static_cast<size_t>(a)];
    if (x.address.empty() && y.address.empty()) return "";
    return fmt::format("{}, {} - {}", x.transport, EndText(x), EndText(y));
}

std::vector<int> RanksToDrop(const std::vector<std::pair<int, int>>& pairs) {
    std::vector<std::vector<int>> others;  // by rank: the other ranks of its pairs
    for (const auto& [a, b] : pairs) {
        const auto ranks = static_cast<size_t>(std::max(a, b)) + 1;
        if (others.size() < ranks) others.resize(ranks);
        others[static_cast<size_t>(a)].push_back(b);
        others[static_cast<size_t>(b)].push_back(a);
    }
    std::vector<size_t> counts;  // by rank: its pairs that remain
    for (const auto& of_rank : others) counts.push_back(of_rank.size());
    std::vector<int> dropped;
    while (true) {
        size_t rank = 0, most = 0;
        for (size_t each = 1; each < counts.size(); ++each) {
            if (counts[each] == 0 || counts[each] < most) continue;
            rank = each;
            most = counts[each];
        }
        if (most == 0) return dropped;
        dropped.push_back(static_cast<int>(rank));
        counts[rank] = 0;
        for (const int other : others[rank]) {
            size_t& count = counts[static_cast<size_t>(other)];
            count -= std::min<size_t>(1, count);
        }
    }
}

bool LinksHosts(const LinkTable& links, const std::vector<std::string>& hosts,
                std::string_view transport) {
    for (size_t a = 0; a < links.size(); ++a) {
        for (size_t b = a + 1; b < links.size(); ++b) {
            if (hosts[a] != hosts[b] && links[a][b].transport == transport) return true;
        }
    }
    return false;
}

std::vector<std::string> LinkLines(const LinkTable& links, const std::vector<std::string>& hosts) {
    std::vector<std::string> lines;
    for (size_t a = 0; a < links.size(); ++a) {
        for (size_t b = a + 1; b < links.size(); ++b) {
            const net::WireEnd &x = links[a][b], &y = links[b][a];
            if (x.transport.empty()) continue;
            const bool named = !x.address.empty() || !y.address.empty();
            lines.push_back(fmt::format("rank {} ({}) - rank {} ({}): {}{}{}{}", a, hosts[a], b,
                                        hosts[b], x.transport, x.encrypted ? ", encrypted" : "",
                                        named ? ", " + EndText(x) + " - " + EndText(y) : "",
                                        SpeedText(x.speed_mbps, y.speed_mbps)));
        }
    }
    return lines;
}

std::vector<int> ChainOf(int ranks, const std::function<bool(int, int)>& joined) {
    std::vector<int> chain = {0};
    std::vector<bool> in_chain(static_cast<size_t>(ranks));
    in_chain[0] = true;
    int budget = kMostChainTries;
    const std::function<bool()> extend = [&] {
        if (std::ssize(chain) == ranks) return true;
        for (int next = 1; next < ranks; ++next) {
            const auto place = static_cast<size_t>(next);
            if (in_chain[place] || !joined(chain.back(), next)) continue;
            if (--budget < 0) return false;
            chain.push_back(next);
            in_chain[place] = true;
            if (extend()) return true;
            chain.pop_back();
            in_chain[place] = false;
        }
        return false;
    };
    if (!extend()) chain.clear();
    return chain;
}

// Tensor ranks need all links of their group; stages need those between consecutive ranks.
std::string LayoutsThatWork(const std::vector<std::string>& names,
                            const std::function<bool(int, int)>& joined) {
    const int ranks = static_cast<int>(names.size());
    const std::vector<int> chain = ChainOf(ranks, joined);
    if (!chain.empty()) {
        std::string order;
        for (const int rank : chain)
            order += (order.empty() ? "" : ", ") + names[static_cast<size_t>(rank)];
        return std::ranges::is_sorted(chain)
                   ? fmt::format(
                         "--pp {} works, because pipeline stages need links between consecutive "
                         "ranks only",
                         ranks)
                   : fmt::format(
                         "--pp {} works with the hosts in the order {}, because pipeline stages "
                         "need links between consecutive ranks only",
                         ranks, order);
    }
    std::vector<int> group = {0};
    for (int rank = 1; rank < ranks; ++rank) {
        const auto reaches = [&](int member) { return joined(member, rank); };
        if (std::ranges::all_of(group, reaches)) group.push_back(rank);
    }
    if (group.size() < 2) return "";
    std::string members;
    for (const int rank : group)
        members += (members.empty() ? "" : ", ") + names[static_cast<size_t>(rank)];
    return fmt::format("--tp {0} or --pp {0} works with {1} alone", group.size(), members);
}

}  // namespace weft::cluster
