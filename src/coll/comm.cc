#include "coll/comm.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "coll/all_reduce/algorithms.h"
#include "coll/collectives.h"
#include "coll/team.h"
#include "coll/ticks.h"
#include "coll/tree.h"

namespace weft::coll {
namespace {

// Half of a channel's window is for collectives, half for sends.
constexpr size_t kLeastWindow = size_t{16} << 10;
constexpr int kFlagsUsed = 4;
// Messages end on cache lines.
constexpr size_t kLineBytes = 64;

// Indexed by Algorithm; kAuto was replaced before.
#define WEFT_FUNCTION(name, ...) name,
constexpr decltype(&OneShot) kFunctions[] = {nullptr, WEFT_ALGORITHMS(WEFT_FUNCTION)};
#undef WEFT_FUNCTION

class CommImpl final : public Comm {
  public:
    CommImpl(net::Fabric& fabric, const std::vector<int>& ranks, const Channel& channel,
             int64_t timeout_ms, Paths paths);

    int rank() const override { return static_cast<int>(group_.me); }
    int size() const override { return static_cast<int>(group_.everyone.size()); }
    size_t max_send_bytes() const override { return send_bytes_; }
    Timing last_timing() const override;
    uint64_t sent_bytes() const override {
        return group_.sent_bytes.load(std::memory_order_relaxed);
    }
    bool LeavesCpuIdle(size_t bytes) const override;
    const Tuning& tuning() const override { return tuning_; }
    void SetTuning(Tuning tuning) override {
        tuning_ = std::move(tuning);
        tuning_given_ = true;
    }
    Status SetHosts(std::span<const int> host_of_rank) override;

    Status AllReduce(std::span<float> data, const net::OpTag& tag, Choice choice) override {
        return Reduce(data, data, tag, choice);
    }
    Status AllReduce(std::span<double> data, const net::OpTag& tag, Choice choice) override {
        return Reduce(data, data, tag, choice);
    }
    Status AllReduce(std::span<double> data, std::span<float> sum, const net::OpTag& tag,
                     Choice choice) override {
        return Reduce(data, sum, tag, choice);
    }
    Status ReduceScatter(std::span<float> data, std::span<const size_t> counts,
                         const net::OpTag& tag, Algorithm by) override;
    Status ReduceScatter(WireType narrow, std::span<const uint16_t> data,
                         std::span<const size_t> counts, const TakeSums& take,
                         const net::OpTag& tag, Algorithm by) override;
    Status AllGather(std::span<std::byte> all, std::span<const size_t> counts,
                     const net::OpTag& tag, Algorithm by) override;
    Status AllToAll(std::span<const std::byte> out, std::span<const size_t> out_counts,
                    std::span<std::byte> in, std::span<const size_t> in_counts,
                    const net::OpTag& tag) override {
        return Do(Operation::kAllToAll, out.size(), tag, [&] {
            return coll::AllToAll(Team(group_), out, PartsOf(out_counts, out.size()), in,
                                  PartsOf(in_counts, in.size()));
        });
    }
    Status Broadcast(std::span<std::byte> data, int root, const net::OpTag& tag) override {
        WEFT_CHECK(root >= 0 && root < size());
        const auto from = static_cast<size_t>(root);
        return Do(Operation::kBroadcast, data.size(), tag, [&] {
            return paths_ == Paths::kTree ? BroadcastTree(Team(group_), data, from)
                                          : coll::Broadcast(Team(group_), data, from);
        });
    }
    Status Barrier(const net::OpTag& tag) override {
        return Do(Operation::kBarrier, 0, tag, [&] { return coll::Barrier(Team(group_)); });
    }
    Status Send(std::span<const std::byte> data, int to, const net::OpTag& tag) override;
    Status Recv(std::span<std::byte> data, int from, const net::OpTag& tag) override;
    void SetAwaitsOwn(bool begins, std::thread::id whom) override;

  private:
    // Runs one operation of so many bytes, `run`.
    template <typename Run>
    Status Do(Operation operation, size_t bytes, const net::OpTag& tag, const Run& run);
    Status Reduce(Values data, Values sum, const net::OpTag& tag, Choice choice);
    Algorithm SteadyAlgorithm() const;
    Parts PartsOf(std::span<const size_t> counts, size_t total) const {
        return {counts, group_.everyone.size(), total};
    }
    // Learns which ranks share a host, once, if needed.
    Status LearnHosts();
    // Resolves the algorithm of an all_gather or reduce_scatter and sets the operation's kind:
    // hierarchical, or direct. chain: of a reduce_scatter.
    Result<bool> IsHierarchical(Operation operation, size_t bytes, Algorithm asked,
                                const Chain* chain = nullptr);
    void UseHosts(std::span<const int> host_of_rank);
    Stream& SendsOf(int rank) {
        WEFT_CHECK(rank >= 0 && rank < size() && sends_[static_cast<size_t>(rank)].has_value());
        return *sends_[static_cast<size_t>(rank)];
    }

    net::FabricState* links_;  // of the fabric; null: none
    int64_t timeout_ms_;
    Paths paths_;
    Group group_;
    size_t send_bytes_;
    bool whole_ = true;  // whether this rank has the links of paths_
    std::vector<std::optional<Stream>> sends_;
    std::vector<float> sums_;  // sums of a piece of bf16 or q8 values
    int host_mark_ = 0;        // the lowest rank joined to this one by shm, or this rank
    Tuning tuning_;
    bool tuning_given_ = false;
    uint64_t collectives_ = 0;  // so far
    // The Timing of the last operation, in ticks.
    TickClock clock_;
    int64_t begin_ = 0, end_ = 0;
    size_t bytes_ = 0;
    Status failed_;
};

CommImpl::CommImpl(net::Fabric& fabric, const std::vector<int>& ranks, const Channel& channel,
                   int64_t timeout_ms, Paths paths)
    : links_(fabric.state.get()),
      timeout_ms_(timeout_ms),
      paths_(paths),
      sends_(ranks.size()),
      tuning_(Tuning::BuiltIn({})) {
    const size_t half = channel.window_bytes / 128 * 64;
    send_bytes_ = Stream::PayloadBytes(half);
    group_.message_bytes = send_bytes_ / kLineBytes * kLineBytes;
    group_.streams.resize(ranks.size());
    group_.addends.resize(ranks.size());
    host_mark_ = static_cast<int>(ranks.size());
    group_.me = static_cast<size_t>(std::ranges::find(ranks, fabric.rank) - ranks.begin());
    for (size_t r = 0; r < ranks.size(); r++) {
        const int place = static_cast<int>(r);
        group_.everyone.push_back(place);
        if (ranks[r] == fabric.rank) {
            host_mark_ = std::min(host_mark_, place);
            continue;
        }
        const auto& joined = fabric.links[static_cast<size_t>(ranks[r])];
        if (joined == nullptr) {
            whole_ = whole_ && paths == Paths::kTree && !AreTreeNeighbors(r, group_.me);
            group_.across_hosts = true;
            continue;
        }
        net::Link& link = *joined;
        const bool near = link.peer().transport == "shm";
        if (near) host_mark_ = std::min(host_mark_, place);
        group_.across_hosts = group_.across_hosts || !near;
        group_.streams[r].emplace(link, fabric.epoch, fabric.checksum, channel.window_begin, half,
                                  channel.flag_begin, ReleaseReport::kInMessages);
        sends_[r].emplace(link, fabric.epoch, fabric.checksum, channel.window_begin + half, half,
                          channel.flag_begin + 2, ReleaseReport::kByFlag);
    }
    // Two ranks, or equal links: no exchange is needed.
    if (!group_.across_hosts) {
        UseHosts(std::vector<int>(ranks.size(), 0));
    } else if (size() <= 2) {
        UseHosts(group_.everyone);
    }
}

Status CommImpl::SetHosts(std::span<const int> host_of_rank) {
    if (host_of_rank.size() != group_.everyone.size()) {
        return MakeError(ErrorCode::kUsage, "hosts of {} ranks were given for a group of {}",
                         host_of_rank.size(), size());
    }
    UseHosts(host_of_rank);
    return {};
}

void CommImpl::UseHosts(std::span<const int> host_of_rank) {
    group_.hosts = HostsOf(host_of_rank, group_.me);
    if (tuning_given_) return;
    tuning_ = Tuning::BuiltIn({.ranks = size(),
                               .hosts = static_cast<int>(group_.hosts.leaders.size()),
                               .over_tcp = group_.across_hosts});
}

// A rank has only its own links: each sends all ranks the lowest rank that shares its memory.
Status CommImpl::LearnHosts() {
    std::vector<int32_t> marks(group_.everyone.size());
    marks[group_.me] = host_mark_;
    const std::vector<size_t> counts(marks.size(), sizeof(int32_t));
    const auto bytes = std::as_writable_bytes(std::span(marks));
    WEFT_TRY(coll::AllGather(Team(group_), bytes, PartsOf(counts, bytes.size())));
    for (int r = 0; r < size(); r++) {
        const int32_t mark = marks[static_cast<size_t>(r)];
        if (mark < 0 || mark > r || marks[static_cast<size_t>(mark)] != mark) {
            return MakeError(ErrorCode::kCorrupt,
                             "rank {} of the group says that it shares memory with rank {}, but "
                             "that rank denies it: do all hosts run the same version?",
                             r, mark);
        }
    }
    UseHosts(std::vector<int>(marks.begin(), marks.end()));
    return {};
}

void CommImpl::SetAwaitsOwn(bool begins, std::thread::id whom) {
    net::PeerMonitor* monitor = links_ == nullptr ? nullptr : links_->monitor();
    if (monitor != nullptr) monitor->OnOwnWait(begins, whom);
}

template <typename Run>
Status CommImpl::Do(Operation operation, size_t bytes, const net::OpTag& tag, const Run& run) {
    if (!failed_.ok()) return failed_;
    begin_ = group_.last_arrival = clock_.Now();
    bytes_ = bytes;
    // Members send and receive in no common order.
    const bool counts = operation != Operation::kSend;
    WEFT_CHECK(whole_ || !counts);
    WEFT_CHECK(paths_ == Paths::kDirect || operation == Operation::kAllReduce ||
               operation == Operation::kBroadcast);
    group_.kind = counts ? KindOf(operation, ++collectives_) : KindOf(operation);
    group_.tag = tag;
    group_.tag.place = 0;
    group_.deadline = CoarseDeadline(timeout_ms_);
    group_.told = ReleaseReport::kInMessages;
    Status status = run();
    end_ = clock_.Now();
    if (!status.ok()) failed_ = status;
    return status;
}

Status CommImpl::Reduce(Values data, Values sum, const net::OpTag& tag, Choice choice) {
    WEFT_CHECK(sum.size() == data.size());
    const size_t bytes = data.bytes().size();
    return Do(Operation::kAllReduce, bytes, tag, [&]() -> Status {
        if (size() == 1 || data.empty()) {
            data.CopyTo(sum);
            return {};
        }
        if (paths_ == Paths::kTree) {
            return AllReduceTree(Team(group_, data.value_bytes()), data, sum);
        }
        if (!group_.hosts.known) WEFT_TRY(LearnHosts());
        if (choice.steady) choice.algorithm = SteadyAlgorithm();
        choice = tuning_.For(Collective::kAllReduce, bytes, choice);
        group_.kind = KindOf(Operation::kAllReduce, collectives_, choice.algorithm);
        const Team everyone(group_, data.value_bytes(), choice.wire);
        return kFunctions[static_cast<size_t>(choice.algorithm)](everyone, data, sum);
    });
}

// One_shot of two ranks sends as few bytes as two_shot, without a pause between two halves.
Algorithm CommImpl::SteadyAlgorithm() const {
    if (size() == 2) return Algorithm::kOneShot;
    const auto hosts = static_cast<int>(group_.hosts.leaders.size());
    const GroupShape shape{.ranks = size(), .hosts = hosts, .over_tcp = group_.across_hosts};
    return shape.HoldSeveral() ? Algorithm::kHierarchical : Algorithm::kTwoShot;
}

Result<bool> CommImpl::IsHierarchical(Operation operation, size_t bytes, Algorithm asked,
                                      const Chain* chain) {
    if (size() == 1 || bytes == 0) return false;
    if (!group_.hosts.known) WEFT_TRY(LearnHosts());
    const Collective collective =
        operation == Operation::kAllGather ? Collective::kAllGather : Collective::kReduceScatter;
    const Algorithm by = tuning_.For(collective, bytes, {asked}).algorithm;
    if (by != Algorithm::kHierarchical) return false;
    if (asked == Algorithm::kAuto && chain != nullptr && !chain->pays) return false;
    group_.kind = KindOf(operation, collectives_, by);
    if (chain != nullptr) group_.told = ReleaseReport::kByFlag;
    return true;
}

Status CommImpl::AllGather(std::span<std::byte> all, std::span<const size_t> counts,
                           const net::OpTag& tag, Algorithm by) {
    return Do(Operation::kAllGather, all.size(), tag, [&]() -> Status {
        const Parts parts = PartsOf(counts, all.size());
        WEFT_ASSIGN(const bool hierarchical, IsHierarchical(Operation::kAllGather, all.size(), by));
        const Team everyone(group_);
        return hierarchical ? AllGatherHierarchical(everyone, all, parts)
                            : coll::AllGather(everyone, all, parts);
    });
}

Status CommImpl::ReduceScatter(std::span<float> data, std::span<const size_t> counts,
                               const net::OpTag& tag, Algorithm by) {
    return Do(Operation::kReduceScatter, data.size_bytes(), tag, [&]() -> Status {
        const Parts parts = PartsOf(counts, data.size());
        WEFT_ASSIGN(
            const bool hierarchical,
            IsHierarchical(Operation::kReduceScatter, data.size_bytes(), by, &group_.hosts.chain));
        const Team everyone(group_, sizeof(float));
        return hierarchical ? ReduceScatterHierarchical(everyone, data, parts, sums_)
                            : coll::ReduceScatter(everyone, data, parts);
    });
}

Status CommImpl::ReduceScatter(WireType narrow, std::span<const uint16_t> data,
                               std::span<const size_t> counts, const TakeSums& take,
                               const net::OpTag& tag, Algorithm by) {
    WEFT_CHECK(narrow == WireType::kBF16 || narrow == WireType::kF16);
    return Do(Operation::kReduceScatter, data.size_bytes(), tag, [&]() -> Status {
        const Parts parts = PartsOf(counts, data.size());
        WEFT_ASSIGN(const bool hierarchical,
                    IsHierarchical(Operation::kReduceScatter, data.size_bytes(), by,
                                   &group_.hosts.narrow_chain));
        const Team everyone(group_, sizeof(float), narrow);
        return hierarchical ? ReduceScatterHierarchical(everyone, data, parts, sums_, take)
                            : coll::ReduceScatter(everyone, data, parts, sums_, take);
    });
}

bool CommImpl::LeavesCpuIdle(size_t bytes) const {
    if (!group_.hosts.known || group_.hosts.leaders.size() < 2) return false;
    const double predicted_us = PredictedUs(tuning_, bytes);
    return predicted_us <= 0 || predicted_us >= static_cast<double>(bytes) * kIdleUsAByte;
}

Timing CommImpl::last_timing() const {
    // A rank on another host has another clock: its time is only a hint.
    const int64_t latest = std::max(begin_, end_);
    int64_t times[] = {begin_, std::clamp(group_.last_arrival, begin_, latest), end_};
    clock_.ToNs(times);
    return {times[0], times[1], times[2], bytes_};
}

Status CommImpl::Send(std::span<const std::byte> data, int to, const net::OpTag& tag) {
    Stream& stream = SendsOf(to);
    return Do(Operation::kSend, data.size(), tag, [&]() -> Status {
        while (!data.empty()) {
            const auto piece = data.first(std::min(send_bytes_, data.size()));
            data = data.subspan(piece.size());
            group_.sent_bytes.fetch_add(piece.size(), std::memory_order_relaxed);
            WEFT_TRY(stream.Post(group_.kind, begin_, piece, group_.tag, group_.deadline));
        }
        return {};
    });
}

Status CommImpl::Recv(std::span<std::byte> data, int from, const net::OpTag& tag) {
    Stream& stream = SendsOf(from);
    return Do(Operation::kSend, data.size(), tag, [&]() -> Status {
        while (!data.empty()) {
            const auto piece = data.first(std::min(send_bytes_, data.size()));
            data = data.subspan(piece.size());
            const std::byte* payload;
            WEFT_TRY(stream.Await(group_.kind, piece.size(), payload, group_.last_arrival,
                                  group_.tag, group_.deadline));
            std::memcpy(piece.data(), payload, piece.size());
            WEFT_TRY(stream.Release(group_.tag, group_.deadline));
        }
        return {};
    });
}

}  // namespace

Result<std::unique_ptr<Comm>> Comm::Make(net::Fabric& fabric, std::vector<int> ranks,
                                         Channel channel, int64_t timeout_ms, Paths paths) {
    bool right = timeout_ms > 0 && channel.window_bytes >= kLeastWindow &&
                 channel.window_begin % 64 == 0 && channel.flag_begin >= 0 &&
                 channel.flag_count >= kFlagsUsed &&
                 channel.flag_begin <= net::kFlags - channel.flag_count;
    bool member = false;
    for (size_t i = 0; i < ranks.size(); i++) {
        right =
            right && ranks[i] >= 0 && ranks[i] < fabric.size && (i == 0 || ranks[i - 1] < ranks[i]);
        if (!right) break;
        if (ranks[i] == fabric.rank) {
            member = true;
            continue;
        }
        const auto& link = fabric.links[static_cast<size_t>(ranks[i])];
        if (link == nullptr) continue;
        const size_t window = link->window_bytes();
        right =
            channel.window_begin <= window && channel.window_bytes <= window - channel.window_begin;
    }
    if (!right || !member) {
        return MakeError(ErrorCode::kUsage,
                         "a group of {} ranks with window bytes {}+{} and flags {}+{} (at least {} "
                         "bytes and {} flags) is not possible for rank {} of {}, timeout {} ms",
                         ranks.size(), channel.window_begin, channel.window_bytes,
                         channel.flag_begin, channel.flag_count, kLeastWindow, kFlagsUsed,
                         fabric.rank, fabric.size, timeout_ms);
    }
    return std::unique_ptr<Comm>(
        std::make_unique<CommImpl>(fabric, ranks, channel, timeout_ms, paths));
}

}  // namespace weft::coll
