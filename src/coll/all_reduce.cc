// The algorithms of all_reduce, each for a team of ranks, over streams of messages. What order
// they add in is part of the contract (coll/comm.h).
#include <algorithm>
#include <bit>
#include <type_traits>

#include "base/check.h"
#include "coll/comm_impl.h"
#include "coll/sum.h"
#include "coll/wire.h"

namespace weft::coll {
namespace {

// sum[i] = data[i], unless they are the same.
template <typename T, typename Out>
void Round(std::span<const T> data, std::span<Out> sum) {
    if constexpr (!std::is_same_v<T, Out>) RoundToFloat(data.data(), sum.data(), sum.size());
}

// Between hosts a one-shot goes in pieces that stay in the cache from the socket to the sum. Over
// shared memory pieces only cost (256 KB in pieces of 32 KB: 37 against 30 us).
constexpr size_t kPieceAcross = size_t{128} << 10;

template <typename T>
std::span<T> SegmentOf(std::span<T> data, size_t parts, size_t index) {
    const size_t line = 64 / sizeof(T);
    const size_t each = (data.size() + parts - 1) / parts;
    const size_t whole = (each + line - 1) / line * line;
    const size_t begin = std::min(data.size(), whole * index);
    return data.subspan(begin, std::min(whole, data.size() - begin));
}

}  // namespace

Status CommImpl::AllReduce(std::span<float> data, const net::OpTag& tag, Choice choice) {
    return Reduce(data, data, tag, choice);
}

Status CommImpl::AllReduce(std::span<double> data, const net::OpTag& tag, Choice choice) {
    return Reduce(data, data, tag, choice);
}

Status CommImpl::AllReduce(std::span<double> data, std::span<float> sum, const net::OpTag& tag,
                           Choice choice) {
    return Reduce(data, sum, tag, choice);
}

template <typename T, typename Out>
Status CommImpl::Reduce(std::span<T> data, std::span<Out> sum, const net::OpTag& tag,
                        Choice choice) {
    WEFT_CHECK(sum.size() == data.size());
    if (!failed_.ok()) return failed_;
    Op op = Begin(data.size_bytes(), tag);
    if (size_ == 1 || data.empty()) {
        Round<T, Out>(data, sum);
        return End({});
    }
    if (!hosts_known_) {
        const Status learned = LearnHosts(op);
        if (!learned.ok()) return End(learned);
    }
    if (choice.algorithm == Algorithm::kAuto) {
        const Choice tuned = tuning_.For(Collective::kAllReduce, data.size_bytes());
        choice.algorithm = tuned.algorithm;
        if (choice.wire == Wire::kFull) choice.wire = tuned.wire;
    }
    op.wire = choice.wire;
    return End(ReduceAll(data, sum, choice.algorithm, op));
}

// Cuts into what a message, or one from each rank, holds.
template <typename T, typename Out>
Status CommImpl::ReduceAll(std::span<T> data, std::span<Out> sum, Algorithm algorithm,
                           const Op& op) {
    // Within a host the values always travel in full.
    const Wire widest = algorithm == Algorithm::kHierarchical ? Wire::kFull : op.wire;
    const size_t slot = WireValues(widest, payload_, sizeof(T)) / kQ8Block * kQ8Block;
    const Team everyone{everyone_, static_cast<size_t>(rank_)};
    if (algorithm == Algorithm::kOneShot) {
        const size_t most = across_hosts_ ? std::min(slot, kPieceAcross / sizeof(T)) : slot;
        return OneShot(everyone, data, sum, most, op);
    }
    const bool cut = algorithm == Algorithm::kTwoShot || algorithm == Algorithm::kRing;
    const size_t most = cut ? slot * everyone.size() : slot;
    for (std::span<T> left = data; !left.empty();) {
        const std::span<T> piece = left.first(std::min(most, left.size()));
        left = left.subspan(piece.size());
        WEFT_TRY(ReducePiece(everyone, piece, algorithm, op));
    }
    Round<T, Out>(data, sum);
    return {};
}

template <typename T>
Status CommImpl::ReducePiece(const Team& team, std::span<T> piece, Algorithm algorithm,
                             const Op& op) {
    switch (algorithm) {
        case Algorithm::kAuto:
        case Algorithm::kOneShot: return OneShot(team, piece, piece, piece.size(), op);
        case Algorithm::kTwoShot: return TwoShot(team, piece, op);
        case Algorithm::kRing: return Ring(team, piece, op);
        case Algorithm::kRecursiveDoubling: return Doubling(team, piece, op);
        case Algorithm::kHierarchical: return Hierarchical(piece, op);
    }
    return {};
}

// Everybody sends all to all, and adds up all: in pieces of at most `most` values, the next one on
// its way while one is added up, so that both are still in the cache.
template <typename T, typename Out>
Status CommImpl::OneShot(const Team& team, std::span<T> data, std::span<Out> sum, size_t most,
                         const Op& op) {
    size_t posted = std::min(most, data.size());
    std::span<const std::byte> sent;
    WEFT_TRY(PostToAll<T>(team, kOneShotSum, data.first(posted), sent, op));
    for (size_t done = 0; done < data.size();) {
        const std::span<T> next = data.subspan(posted, std::min(most, data.size() - posted));
        std::span<const std::byte> next_sent;
        if (!next.empty()) WEFT_TRY(PostToAll<T>(team, kOneShotSum, next, next_sent, op));
        WEFT_TRY(SumTeam<T>(team, kOneShotSum, sum.subspan(done, posted - done), sent, op));
        done = posted;
        posted += next.size();
        sent = next_sent;
    }
    return {};
}

template <typename T>
Status CommImpl::PostToAll(const Team& team, Kind kind, std::span<const T> values,
                           std::span<const std::byte>& sent, const Op& op) {
    sent = OnWire(values, op.wire);
    for (size_t step = 1; step < team.size(); step++) To(team.ahead(step)).Expect(sent.size());
    for (size_t step = 1; step < team.size(); step++) {
        WEFT_TRY(Post(team.ahead(step), kind, sent, op));
    }
    return {};
}

// Everybody adds up one segment, then tells the sum to all.
template <typename T>
Status CommImpl::TwoShot(const Team& team, std::span<T> data, const Op& op) {
    const size_t n = team.size();
    for (size_t step = 1; step < n; step++) {
        const std::span<const T> theirs = SegmentOf(data, n, (team.me + step) % n);
        WEFT_TRY(PostValues(team.ahead(step), kScatter, theirs, op));
    }
    const std::span<T> own = SegmentOf(data, n, team.me);
    WEFT_TRY(SumTeam<T>(team, kScatter, own, OnWire(std::span<const T>(own), op.wire), op));
    const std::span<const std::byte> sum = OnWire(std::span<const T>(own), op.wire);
    for (size_t step = 1; step < n; step++) WEFT_TRY(Post(team.ahead(step), kGather, sum, op));
    if (op.wire != Wire::kFull) Decode(op.wire, sum.data(), own);
    for (size_t step = 1; step < n; step++) {
        const std::span<T> theirs = SegmentOf(data, n, (team.me + step) % n);
        WEFT_TRY(TakeValues(team.ahead(step), kGather, theirs, op));
    }
    return {};
}

// Partial sums travel around the ring: segment s starts at place s and is whole at place s - 1;
// then the whole segments travel around once more.
template <typename T>
Status CommImpl::Ring(const Team& team, std::span<T> data, const Op& op) {
    WEFT_TRY(RingSum(team, data, op));
    return RingGather(team, data, op);
}

template <typename T>
Status CommImpl::RingSum(const Team& team, std::span<T> data, const Op& op) {
    const size_t n = team.size();
    const int previous = team.ahead(n - 1);
    for (size_t step = 0; step + 1 < n; step++) {
        const std::span<const T> out = SegmentOf(data, n, (team.me + n - step) % n);
        const std::span<T> target = SegmentOf(data, n, (team.me + 2 * n - step - 1) % n);
        WEFT_TRY(PostValues(team.ahead(1), kRingSum, out, op));
        const std::byte* bytes;
        WEFT_TRY(AwaitValues<T>(previous, kRingSum, target.size(), bytes, op));
        AddEncoded(op.wire, bytes, target);
        WEFT_TRY(Release(previous, op));
    }
    return {};
}

// A segment is passed on in the very bytes in which it came, so that all ranks decode the same.
template <typename T>
Status CommImpl::RingGather(const Team& team, std::span<T> data, const Op& op) {
    const size_t n = team.size();
    const int previous = team.ahead(n - 1);
    const std::span<T> own = SegmentOf(data, n, (team.me + 1) % n);
    std::span<const std::byte> pass_on = OnWire(std::span<const T>(own), op.wire);
    for (size_t step = 0; step + 1 < n; step++) {
        WEFT_TRY(Post(team.ahead(1), kRingGather, pass_on, op));
        if (step > 0) WEFT_TRY(Release(previous, op));
        if (step == 0 && op.wire != Wire::kFull) Decode(op.wire, pass_on.data(), own);
        const std::span<T> target = SegmentOf(data, n, (team.me + n - step) % n);
        const std::byte* bytes;
        WEFT_TRY(AwaitValues<T>(previous, kRingGather, target.size(), bytes, op));
        Decode(op.wire, bytes, target);
        pass_on = {bytes, WireBytes(op.wire, target.size(), sizeof(T))};
    }
    return Release(previous, op);
}

// Partners whose places differ in one bit exchange what they have and add, bit by bit. The places
// beyond the largest power of two give their addend to one below, and get the sum from it.
template <typename T>
Status CommImpl::Doubling(const Team& team, std::span<T> data, const Op& op) {
    const size_t pairs = std::bit_floor(team.size());
    const size_t extra = team.size() - pairs;
    const auto rank = [&](size_t place) { return team.ranks[place]; };
    if (team.me >= pairs) {
        WEFT_TRY(PostValues(rank(team.me - pairs), kFold, std::span<const T>(data), op));
        return TakeValues(rank(team.me - pairs), kUnfold, data, op);
    }
    if (team.me < extra) {
        const int pair[] = {rank_, rank(team.me + pairs)};
        WEFT_TRY(
            SumTeam<T>(Team{pair, 0}, kFold, data, OnWire(std::span<const T>(data), op.wire), op));
    }
    for (size_t bit = 1; bit < pairs; bit *= 2) {
        const size_t above = (team.me & bit) != 0;
        const int pair[] = {rank(team.me & ~bit), rank(team.me | bit)};
        const std::span<const std::byte> sent = OnWire(std::span<const T>(data), op.wire);
        WEFT_TRY(Post(pair[1 - above], kDoubling, sent, op));
        WEFT_TRY(SumTeam<T>(Team{pair, above}, kDoubling, data, sent, op));
    }
    if (extra == 0) return {};
    // What the extra ranks get is rounded to the wire once more, so all round.
    const std::span<const std::byte> sum = OnWire(std::span<const T>(data), op.wire);
    if (team.me < extra) WEFT_TRY(Post(rank(team.me + pairs), kUnfold, sum, op));
    if (op.wire != Wire::kFull) Decode(op.wire, sum.data(), data);
    return {};
}

// The ranks of a host give their addends to its lowest rank over shared memory; those sum up over
// the links, and give the sum back. Only between hosts do values travel in a narrow wire type.
template <typename T>
Status CommImpl::Hierarchical(std::span<T> data, const Op& op) {
    Op inside = op;
    inside.wire = Wire::kFull;
    const Team host{host_, my_place_};
    const int leader = host_[0];
    if (rank_ != leader) {
        WEFT_TRY(PostValues(leader, kToLeader, std::span<const T>(data), inside));
        return TakeValues(leader, kFromLeader, data, inside);
    }
    const std::span<const std::byte> bytes = std::as_bytes(data);
    if (host.size() > 1) WEFT_TRY(SumTeam<T>(host, kToLeader, data, bytes, inside));
    if (leaders_.size() > 1)
        WEFT_TRY(OneShot(Team{leaders_, my_host_}, data, data, data.size(), op));
    for (size_t step = 1; step < host.size(); step++) {
        WEFT_TRY(Post(host.ahead(step), kFromLeader, bytes, inside));
    }
    return {};
}

// Everybody sends each rank its part, and adds up the own one, a message's worth at a time.
Status CommImpl::ReduceScatter(std::span<float> data, std::span<const size_t> counts,
                               const net::OpTag& tag) {
    if (!failed_.ok()) return failed_;
    const Op op = Begin(data.size_bytes(), tag);
    CheckParts(counts, data.size());
    const Team everyone{everyone_, static_cast<size_t>(rank_)};
    const size_t slot = payload_ / sizeof(float);
    const auto piece = [&](int rank, size_t done) {
        const Part part = PartOf(counts, rank, done, slot);
        return data.subspan(part.begin, part.count);
    };
    const auto scatter = [&]() -> Status {
        const size_t longest = *std::max_element(counts.begin(), counts.end());
        for (size_t done = 0; done < longest && size_ > 1; done += slot) {
            for (int step = 1; step < size_; step++) {
                const std::span<const float> theirs = piece(Ahead(step), done);
                if (!theirs.empty()) WEFT_TRY(PostValues(Ahead(step), kReducePart, theirs, op));
            }
            const std::span<float> own = piece(rank_, done);
            if (!own.empty()) {
                WEFT_TRY(SumTeam<float>(everyone, kReducePart, own, std::as_bytes(own), op));
            }
        }
        return {};
    };
    return End(scatter());
}

Status CommImpl::ReduceScatter(Wire narrow, std::span<const uint16_t> data,
                               std::span<const size_t> counts, const TakeSums& take,
                               const net::OpTag& tag) {
    WEFT_CHECK(narrow == Wire::kBF16 || narrow == Wire::kF16);
    if (!failed_.ok()) return failed_;
    Op op = Begin(data.size_bytes(), tag);
    op.wire = narrow;
    CheckParts(counts, data.size());
    const Team everyone{everyone_, static_cast<size_t>(rank_)};
    const size_t slot = payload_ / sizeof(uint16_t);
    sums_.resize(slot);
    const auto piece = [&](int rank, size_t done) {
        const Part part = PartOf(counts, rank, done, slot);
        return std::as_bytes(data.subspan(part.begin, part.count));
    };
    const auto scatter = [&]() -> Status {
        const size_t longest = *std::max_element(counts.begin(), counts.end());
        for (size_t done = 0; done < longest; done += slot) {
            for (int step = 1; step < size_; step++) {
                const std::span<const std::byte> theirs = piece(Ahead(step), done);
                if (!theirs.empty()) WEFT_TRY(Post(Ahead(step), kReducePart, theirs, op));
            }
            const std::span<const std::byte> own = piece(rank_, done);
            if (own.empty()) continue;
            const std::span<float> sums =
                std::span(sums_).first(own.size() / sizeof(uint16_t));
            WEFT_TRY(SumTeam<float>(everyone, kReducePart, sums, own, op));
            take(done, sums);
        }
        return {};
    };
    return End(scatter());
}

template <typename T>
std::span<const std::byte> CommImpl::OnWire(std::span<const T> values, Wire wire) {
    if (wire == Wire::kFull) return std::as_bytes(values);
    if (on_wire_.empty()) on_wire_.resize(2 * payload_);
    on_wire_half_ ^= 1;
    std::byte* const out = on_wire_.data() + on_wire_half_ * payload_;
    Encode(wire, values, out);
    return {out, WireBytes(wire, values.size(), sizeof(T))};
}

template <typename T>
Status CommImpl::PostValues(int to, Kind kind, std::span<const T> values, const Op& op) {
    return Post(to, kind, OnWire(values, op.wire), op);
}

template <typename T>
Status CommImpl::AwaitValues(int from, Kind kind, size_t count, const std::byte*& bytes,
                             const Op& op) {
    return Await(from, kind, WireBytes(op.wire, count, sizeof(T)), bytes, op);
}

template <typename T>
Status CommImpl::TakeValues(int from, Kind kind, std::span<T> out, const Op& op) {
    const std::byte* bytes;
    WEFT_TRY(AwaitValues<T>(from, kind, out.size(), bytes, op));
    Decode(op.wire, bytes, out);
    return Release(from, op);
}

template <typename T, typename Out>
Status CommImpl::SumTeam(const Team& team, Kind kind, std::span<Out> sum,
                         std::span<const std::byte> sent, const Op& op) {
    const size_t n = team.size();
    for (size_t place = 0; place < n; place++) {
        const std::byte*& addend = addends_[place];
        addend = sent.data();
        if (place == team.me) continue;
        WEFT_TRY(AwaitValues<T>(team.ranks[place], kind, sum.size(), addend, op));
    }
    const auto addends = std::span<const std::byte* const>(addends_).first(n);
    if constexpr (std::is_same_v<T, Out>) {
        SumEncoded(op.wire, addends, sum);
    } else {
        SumEncodedRounded(op.wire, addends, sum);
    }
    for (size_t place = 0; place < n; place++) {
        if (place != team.me) WEFT_TRY(Release(team.ranks[place], op));
    }
    return {};
}

}  // namespace weft::coll
