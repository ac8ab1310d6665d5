// all_gather and reduce_scatter for hosts with several ranks of the group: each part or sum travels
// between hosts once instead of once per rank.
#include <cstring>
#include <type_traits>

#include "coll/collectives.h"
#include "coll/sum.h"

namespace weft::coll {
namespace {

// One piece of each part at a time. A rank sends its own piece to its host and, one piece ahead, to
// a carrier on each other host. Then each rank distributes the pieces that it carries, one part per
// turn.
class GatherByHosts {
  public:
    GatherByHosts(const Team& team, std::span<std::byte> all, const Parts& parts)
        : team_(team),
          hosts_(team.group().hosts),
          host_(team.Of(hosts_.ours(), hosts_.my_place, WireType::kFull)),
          all_(all),
          parts_(parts),
          most_(team.group().message_bytes) {}

    Status Run() const {
        WEFT_TRY(PostAcross(0));
        // Number of events: a part is split in two, so that no host has as many turns.
        const size_t each = 2 * team_.size() + 2;
        for (size_t done = 0, event = 0; done < parts_.longest(); done += most_, event += each) {
            team_.At(event);
            const std::span<std::byte> own = Piece(team_.me(), done);
            if (!own.empty()) WEFT_TRY(host_.PostToOthers(own));
            WEFT_TRY(PostAcross(done + most_));
            team_.At(event + 1);
            WEFT_TRY(TakeFromHost(done, [&](size_t place) { return &hosts_.ours()[place]; }));
            for (size_t turn = 0; turn < hosts_.others.size(); turn += host_.size()) {
                WEFT_TRY(PassOn(turn, done, event + 2 + 2 * turn));
            }
        }
        return {};
    }

  private:
    std::span<std::byte> Piece(size_t rank, size_t done) const {
        return parts_.Piece(all_, rank, done, most_);
    }

    Status PostAcross(size_t done) const {
        const std::span<std::byte> own = Piece(team_.me(), done);
        if (own.empty()) return {};
        const int me = static_cast<int>(team_.me());
        for (size_t step = 1; step < hosts_.ranks.size(); step++) {
            const size_t host = (hosts_.my_host + step) % hosts_.ranks.size();
            WEFT_TRY(team_.Post(static_cast<size_t>(hosts_.CarrierOf(me, host)), own));
        }
        return {};
    }

    // owner(place): owner of the part that the host's rank at that place sends now; null: none.
    template <typename Owner>
    Status TakeFromHost(size_t done, const Owner& owner) const {
        for (size_t step = 1; step < host_.size(); step++) {
            const size_t place = host_.Ahead(step);
            const int* const rank = owner(place);
            if (rank == nullptr) continue;
            const std::span<std::byte> theirs = Piece(static_cast<size_t>(*rank), done);
            if (!theirs.empty()) WEFT_TRY(host_.Take(place, theirs));
        }
        return {};
    }

    // The parts of hosts_.others[turn] and later, one per rank of this host.
    Status PassOn(size_t turn, size_t done, size_t event) const {
        team_.At(event);
        const auto owner = [&](size_t place) {
            return turn + place < hosts_.others.size() ? &hosts_.others[turn + place] : nullptr;
        };
        if (const int* const rank = owner(host_.me()); rank != nullptr) {
            const auto from = static_cast<size_t>(*rank);
            const std::span<std::byte> piece = Piece(from, done);
            if (!piece.empty()) {
                const std::byte* payload;
                WEFT_TRY(team_.Await(from, piece.size(), payload));
                WEFT_TRY(host_.PostToOthers({payload, piece.size()}));
                std::memcpy(piece.data(), payload, piece.size());
                WEFT_TRY(team_.Release(from));
            }
        }
        team_.At(event + 1);
        return TakeFromHost(done, owner);
    }

    const Team& team_;
    const Hosts& hosts_;
    Team host_;
    std::span<std::byte> all_;
    const Parts& parts_;
    size_t most_;
};

// One piece of each part at a time; T is the wire type. First, addends for the end of a chain go to
// the owners. Then all ranks process the parts in one order, and a part's sum goes from run to run.
// At last the owners add the late addends. The next pieces begin before that, so at most two
// messages to an owner are in flight.
template <typename T>
class ChainSum {
  public:
    // sums: space for three pieces.
    ChainSum(const Team& team, std::span<T> data, const Parts& parts, const Chain& chain,
             std::span<float> sums)
        : team_(team),
          data_(data),
          parts_(parts),
          chain_(chain),
          sums_(sums),
          most_(sums.size() / 3),
          run_(chain.run_of[team.me()]) {}

    // take(begin, sum): called for each piece of this rank's part.
    template <typename Take>
    Status Run(const Take& take) const {
        const size_t longest = parts_.longest(), n = team_.size(), runs = chain_.runs();
        const size_t each = n * runs + 1;  // number of events
        for (size_t done = 0, event = 0; done < longest + most_; done += most_, event += each) {
            team_.At(event);
            if (done < longest) WEFT_TRY(PostToOwners(done));
            for (size_t part = 0; part < n && done < longest; part++) {
                team_.At(event + part * runs + run_);
                WEFT_TRY(Pass(part, done));
            }
            team_.At(event + n * runs);
            if (done > 0) WEFT_TRY(Finish(done - most_, take));
        }
        return {};
    }

  private:
    std::span<T> Piece(size_t part, size_t done) const {
        return parts_.Piece(data_, part, done, most_);
    }
    // The memory of the sum of this rank's part.
    std::span<float> OwnSum(std::span<T> own, size_t done) const {
        if constexpr (std::is_same_v<T, float>) return own;
        return sums_.subspan((1 + done / most_ % 2) * most_, own.size());
    }

    Status PostToOwners(size_t done) const {
        for (size_t step = 1; step < team_.size(); step++) {
            const size_t part = team_.Ahead(step);
            const std::span<T> piece = Piece(part, done);
            if (run_ <= chain_.last[part] || piece.empty()) continue;
            WEFT_TRY(team_.Post(part, std::as_bytes(piece)));
        }
        return {};
    }

    Status Pass(size_t part, size_t done) const {
        const std::span<T> piece = Piece(part, done);
        const size_t last = chain_.last[part];
        if (run_ > last || piece.empty()) return {};
        const size_t adder = chain_.Adder(part, run_);
        if (adder != team_.me()) return team_.Post(adder, std::as_bytes(piece));
        const bool stays = part == team_.me() && run_ == last;
        const std::span<float> sum = stays ? OwnSum(piece, done) : sums_.first(piece.size());
        const size_t before = run_ == 0 ? kNoRank : chain_.Adder(part, run_ - 1);
        WEFT_TRY(AddUp(before, chain_.begin[run_], chain_.begin[run_ + 1], piece, sum));
        if (stays) return {};
        const size_t to = run_ == last ? part : chain_.Adder(part, run_ + 1);
        return team_.Post(to, std::as_bytes(sum));
    }

    template <typename Take>
    Status Finish(size_t done, const Take& take) const {
        const size_t me = team_.me(), last = chain_.last[me];
        const std::span<T> own = Piece(me, done);
        if (own.empty()) return {};
        const std::span<float> sum = OwnSum(own, done);
        const size_t before = last > run_ ? chain_.Adder(me, last) : me;
        WEFT_TRY(AddUp(before, chain_.begin[last + 1], team_.size(), own, sum));
        take(done, sum);
        return {};
    }

    // Adds the addends of ranks [begin, end) to the sum of rank `before` (kNoRank: none; this rank:
    // it is in `sum`).
    Status AddUp(size_t before, size_t begin, size_t end, std::span<T> own,
                 std::span<float> sum) const {
        const std::span<const std::byte*> addends = team_.addends();
        const size_t me = team_.me(), first = before == kNoRank ? 0 : 1;
        if (first == 1) {
            addends[0] = std::as_bytes(sum).data();
            if (before != me) WEFT_TRY(team_.Await(before, sum.size_bytes(), addends[0]));
        }
        for (size_t rank = begin; rank < end; rank++) {
            const std::byte*& addend = addends[first + rank - begin];
            addend = std::as_bytes(own).data();
            if (rank != me) WEFT_TRY(team_.Await(rank, own.size_bytes(), addend));
        }
        Sum(addends.first(first + end - begin), first == 1, sum);
        if (first == 1 && before != me) WEFT_TRY(team_.Release(before));
        for (size_t rank = begin; rank < end; rank++) {
            if (rank != me) WEFT_TRY(team_.Release(rank));
        }
        return {};
    }

    // behind: the first addend is already a sum.
    void Sum(std::span<const std::byte* const> addends, bool behind, std::span<float> sum) const {
        if constexpr (std::is_same_v<T, float>) {
            SumInOrder(addends, sum.data(), sum.size());
        } else if (!behind) {
            SumEncoded(team_.wire(), addends, sum);
        } else {
            const void* const before = addends[0];
            if (before != sum.data()) std::memcpy(sum.data(), before, sum.size_bytes());
            for (const std::byte* addend : addends.subspan(1)) {
                AddEncoded(team_.wire(), addend, sum);
            }
        }
    }

    static constexpr size_t kNoRank = SIZE_MAX;
    const Team& team_;
    std::span<T> data_;
    const Parts& parts_;
    const Chain& chain_;
    std::span<float> sums_;
    size_t most_;
    size_t run_;
};

// Sums are floats, for any type of value.
std::span<float> SpaceForPieces(const Team& team, std::vector<float>& sums) {
    sums.resize(3 * (team.group().message_bytes / sizeof(float)));
    return sums;
}

}  // namespace

Status AllGatherHierarchical(const Team& team, std::span<std::byte> all, const Parts& parts) {
    return GatherByHosts(team, all, parts).Run();
}

Status ReduceScatterHierarchical(const Team& team, std::span<float> data, const Parts& parts,
                                 std::vector<float>& sums) {
    const ChainSum<float> chain(team, data, parts, team.group().hosts.chain,
                                SpaceForPieces(team, sums));
    return chain.Run([](size_t, std::span<const float>) {});
}

Status ReduceScatterHierarchical(const Team& team, std::span<const uint16_t> data,
                                 const Parts& parts, std::vector<float>& sums,
                                 const Comm::TakeSums& take) {
    const ChainSum<const uint16_t> chain(team, data, parts, team.group().hosts.narrow_chain,
                                         SpaceForPieces(team, sums));
    return chain.Run(take);
}

}  // namespace weft::coll
