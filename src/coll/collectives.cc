#include "coll/collectives.h"

#include <cstring>
#include <numeric>

#include "base/check.h"

namespace weft::coll {
namespace {

// Each rank sends every other its part and sums its own: sum(begin, own) for each piece.
template <typename T, typename Sum>
Status Scatter(const Team& team, std::span<T> data, const Parts& parts, const Sum& sum) {
    const size_t slot = team.group().message_bytes / sizeof(T);
    const size_t longest = parts.longest();
    for (size_t done = 0; done < longest; done += slot) {
        for (size_t step = 1; step < team.size(); step++) {
            const size_t place = team.Ahead(step);
            const std::span<T> theirs = parts.Piece(data, place, done, slot);
            if (!theirs.empty()) WEFT_TRY(team.Post(place, std::as_bytes(theirs)));
        }
        const std::span<T> own = parts.Piece(data, team.me(), done, slot);
        if (!own.empty()) WEFT_TRY(sum(done, own));
    }
    return {};
}

}  // namespace

Parts::Parts(std::span<const size_t> counts, size_t places, size_t total) : counts_(counts) {
    WEFT_CHECK(counts.size() == places);
    for (size_t count : counts) {
        WEFT_CHECK(count <= total);
        total -= count;
    }
    WEFT_CHECK(total == 0);
}

size_t Parts::BeginOf(size_t place) const {
    return std::accumulate(counts_.begin(), counts_.begin() + static_cast<ptrdiff_t>(place),
                           size_t{0});
}

Status AllGather(const Team& team, std::span<std::byte> all, const Parts& parts) {
    const size_t slot = team.group().message_bytes;
    const size_t longest = parts.longest();
    for (size_t done = 0; done < longest; done += slot) {
        const std::span<std::byte> own = parts.Piece(all, team.me(), done, slot);
        if (!own.empty()) WEFT_TRY(team.PostToOthers(own));
        for (size_t place = 0; place < team.size(); place++) {
            const std::span<std::byte> theirs = parts.Piece(all, place, done, slot);
            if (place != team.me() && !theirs.empty()) WEFT_TRY(team.Take(place, theirs));
        }
    }
    return {};
}

Status AllToAll(const Team& team, std::span<const std::byte> out, const Parts& out_parts,
                std::span<std::byte> in, const Parts& in_parts) {
    const auto mine_out = out_parts.Piece(out, team.me(), 0, SIZE_MAX);
    const auto mine_in = in_parts.Piece(in, team.me(), 0, SIZE_MAX);
    WEFT_CHECK(mine_out.size() == mine_in.size());
    if (!mine_in.empty()) std::memcpy(mine_in.data(), mine_out.data(), mine_in.size());
    const size_t slot = team.group().message_bytes;
    const size_t longest = std::max(out_parts.longest(), in_parts.longest());
    for (size_t done = 0; done < longest; done += slot) {
        for (size_t step = 1; step < team.size(); step++) {
            const size_t to = team.Ahead(step);
            const auto piece = out_parts.Piece(out, to, done, slot);
            if (!piece.empty()) WEFT_TRY(team.Post(to, piece));
        }
        for (size_t step = 1; step < team.size(); step++) {
            const size_t from = team.Ahead(team.size() - step);
            const auto piece = in_parts.Piece(in, from, done, slot);
            if (!piece.empty()) WEFT_TRY(team.Take(from, piece));
        }
    }
    return {};
}

Status Broadcast(const Team& team, std::span<std::byte> data, size_t root) {
    while (!data.empty()) {
        const auto piece = data.first(std::min(team.group().message_bytes, data.size()));
        data = data.subspan(piece.size());
        WEFT_TRY(team.me() == root ? team.PostToOthers(piece) : team.Take(root, piece));
    }
    return {};
}

Status ReduceScatter(const Team& team, std::span<float> data, const Parts& parts) {
    return Scatter(team, data, parts,
                   [&](size_t, std::span<float> own) { return team.Sum(own, std::as_bytes(own)); });
}

Status ReduceScatter(const Team& team, std::span<const uint16_t> data, const Parts& parts,
                     std::vector<float>& sums, const Comm::TakeSums& take) {
    sums.resize(team.group().message_bytes / sizeof(uint16_t));
    return Scatter(team, data, parts, [&](size_t begin, std::span<const uint16_t> own) -> Status {
        const std::span<float> sum = std::span(sums).first(own.size());
        WEFT_TRY(team.Sum(sum, std::as_bytes(own)));
        take(begin, sum);
        return {};
    });
}

Status Barrier(const Team& team) {
    WEFT_TRY(team.PostToOthers({}));
    for (size_t step = 1; step < team.size(); step++) WEFT_TRY(team.Take(team.Ahead(step), {}));
    return {};
}

}  // namespace weft::coll
