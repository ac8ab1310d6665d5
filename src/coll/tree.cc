#include "coll/tree.h"

#include <bit>

#include "coll/all_reduce/algorithms.h"

namespace weft::coll {
namespace {

size_t ParentOf(size_t place) {
    return place & (place - 1);
}

// Number of levels of the tree; a member's level is above its children's levels.
size_t LevelsOf(const Team& team) {
    return static_cast<size_t>(std::bit_width(team.size()));
}

size_t LevelOf(const Team& team, size_t place) {
    return place == 0 ? LevelsOf(team) : static_cast<size_t>(std::countr_zero(place));
}

// Whether this member has a child at distance `bit`, a power of two. If not, it has none at larger
// distances either.
bool HasChild(const Team& team, size_t bit) {
    return (team.me() & bit) == 0 && team.me() + bit < team.size();
}

// The neighbor of `me` on the path to another member.
size_t Toward(size_t me, size_t other) {
    for (; other > me; other = ParentOf(other)) {
        if (ParentOf(other) == me) return other;
    }
    return ParentOf(me);
}

size_t Distance(size_t a, size_t b) {
    size_t edges = 0;
    for (; a != b; ++edges) (a > b ? a : b) = ParentOf(std::max(a, b));
    return edges;
}

}  // namespace

bool AreTreeNeighbors(size_t a, size_t b) {
    return ParentOf(std::max(a, b)) == std::min(a, b);
}

std::vector<std::pair<int, int>> TreePairs(int members) {
    std::vector<std::pair<int, int>> pairs;
    for (int place = 1; place < members; ++place) {
        pairs.emplace_back(static_cast<int>(ParentOf(static_cast<size_t>(place))), place);
    }
    return pairs;
}

Status AllReduceTree(const Team& team, Values data, Values sum) {
    const size_t me = team.me(), levels = LevelsOf(team), level = LevelOf(team, me);
    size_t event = 0;  // (a member waits for lower levels, then for a higher one)
    return InPieces(team.MessageValues(), data, sum, [&](Values piece) -> Status {
        team.At(event + level);
        for (size_t bit = 1; HasChild(team, bit); bit *= 2) {
            std::span<const std::byte> bytes;
            WEFT_TRY(team.AwaitValues(me + bit, piece.size(), bytes));
            piece.With([&](auto some) { AddEncoded(team.wire(), bytes.data(), some); });
            WEFT_TRY(team.Release(me + bit));
        }
        team.At(event + 2 * levels - level);
        event += 2 * levels + 1;
        if (me > 0) {
            WEFT_TRY(team.PostValues(ParentOf(me), piece));
            WEFT_TRY(team.TakeValues(ParentOf(me), piece));
        }
        for (size_t bit = 1; HasChild(team, bit); bit *= 2) {
            WEFT_TRY(team.PostValues(me + bit, piece));
        }
        return {};
    });
}

Status BroadcastTree(const Team& team, std::span<std::byte> data, size_t root) {
    const size_t me = team.me(), from = me == root ? me : Toward(me, root);
    size_t event = Distance(root, me);
    for (; !data.empty(); event += 2 * LevelsOf(team) + 1) {
        const auto piece = data.first(std::min(team.group().message_bytes, data.size()));
        data = data.subspan(piece.size());
        team.At(event);
        if (me != root) WEFT_TRY(team.Take(from, piece));
        if (me > 0 && from != ParentOf(me)) WEFT_TRY(team.Post(ParentOf(me), piece));
        for (size_t bit = 1; HasChild(team, bit); bit *= 2) {
            if (from != me + bit) WEFT_TRY(team.Post(me + bit, piece));
        }
    }
    return {};
}

}  // namespace weft::coll
