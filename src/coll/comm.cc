#include "coll/comm.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "coll/comm_impl.h"

namespace weft::coll {
namespace {

// Half of a channel's window is for collectives, half for sends.
constexpr size_t kLeastWindow = size_t{16} << 10;
constexpr int kFlagsUsed = 4;
// All-reduces that take longer wait for the wire: over tcp on loopback, where all is the CPU's
// work, they take 0.2 ns a byte, and 0.35 between far cores; over 10 Gbit/s 0.85.
constexpr double kIdleUsAByte = 0.6e-3;
// Messages end on cache lines.
constexpr size_t kLineBytes = 64;

}  // namespace

CommImpl::CommImpl(net::Fabric& fabric, const std::vector<int>& ranks, const Channel& channel,
                   int64_t timeout_ms)
    : links_(fabric.state.get()),
      size_(static_cast<int>(ranks.size())),
      timeout_ms_(timeout_ms),
      collective_(ranks.size()),
      sends_(ranks.size()),
      addends_(ranks.size()),
      tuning_(Tuning::BuiltIn({})) {
    const size_t half = channel.window_bytes / 128 * 64;
    payload_ = Stream::PayloadBytes(half) / kLineBytes * kLineBytes;
    send_payload_ = Stream::PayloadBytes(half);
    int nearest = size_;
    for (size_t r = 0; r < ranks.size(); r++) {
        everyone_.push_back(static_cast<int>(r));
        if (ranks[r] == fabric.rank) {
            rank_ = static_cast<int>(r);
            nearest = std::min(nearest, rank_);
            continue;
        }
        net::Link& link = *fabric.links[static_cast<size_t>(ranks[r])];
        const bool near = link.peer().transport == "shm";
        if (near) nearest = std::min(nearest, static_cast<int>(r));
        across_hosts_ = across_hosts_ || !near;
        collective_[r].emplace(link, fabric.epoch, fabric.checksum, channel.window_begin, half,
                               channel.flag_begin, Told::kInMessages);
        sends_[r].emplace(link, fabric.epoch, fabric.checksum, channel.window_begin + half, half,
                          channel.flag_begin + 2, Told::kByFlag);
    }
    host_mark_ = nearest;
    // Two ranks, or links all alike: nothing to ask for.
    if (!across_hosts_) {
        UseHosts(std::vector<int>(ranks.size(), 0));
    } else if (size_ <= 2) {
        UseHosts(everyone_);
    }
}

void CommImpl::SetTuning(Tuning tuning) {
    tuning_ = std::move(tuning);
    tuning_given_ = true;
}

Status CommImpl::SetHosts(std::span<const int> host_of_rank) {
    if (host_of_rank.size() != static_cast<size_t>(size_)) {
        return MakeError(ErrorCode::kUsage, "hosts of {} ranks were given for a group of {}",
                         host_of_rank.size(), size_);
    }
    UseHosts(host_of_rank);
    return {};
}

void CommImpl::UseHosts(std::span<const int> host_of_rank) {
    host_.clear();
    leaders_.clear();
    const auto host = [&](int rank) { return host_of_rank[static_cast<size_t>(rank)]; };
    for (int r = 0; r < size_; r++) {
        const bool first =
            std::ranges::none_of(leaders_, [&](int l) { return host(l) == host(r); });
        if (host(r) == host(rank_)) {
            if (first) my_host_ = leaders_.size();
            if (r == rank_) my_place_ = host_.size();
            host_.push_back(r);
        }
        if (first) leaders_.push_back(r);
    }
    hosts_known_ = true;
    if (tuning_given_) return;
    tuning_ = Tuning::BuiltIn(
        {.ranks = size_, .hosts = static_cast<int>(leaders_.size()), .over_tcp = across_hosts_});
}

// A rank knows its own links only: all tell all the lowest rank that they share memory with.
Status CommImpl::LearnHosts(const Op& op) {
    std::vector<int32_t> marks(static_cast<size_t>(size_));
    marks[static_cast<size_t>(rank_)] = host_mark_;
    const std::vector<size_t> counts(marks.size(), sizeof(int32_t));
    WEFT_TRY(Gather(std::as_writable_bytes(std::span(marks)), counts, op));
    for (int r = 0; r < size_; r++) {
        const int32_t mark = marks[static_cast<size_t>(r)];
        if (mark < 0 || mark > r || marks[static_cast<size_t>(mark)] != mark) {
            return MakeError(ErrorCode::kCorrupt,
                             "rank {} of the group says that it shares memory with rank {}, which "
                             "says otherwise: do all hosts run the same version?",
                             r, mark);
        }
    }
    UseHosts(std::vector<int>(marks.begin(), marks.end()));
    return {};
}

void CommImpl::SayAwaitsOwn(bool begins, std::thread::id whom) {
    net::PeerMonitor* monitor = links_ == nullptr ? nullptr : links_->monitor();
    if (monitor != nullptr) monitor->OnOwnWait(begins, whom);
}

CommImpl::Op CommImpl::Begin(size_t bytes, const net::OpTag& tag) {
    begin_ = last_arrival_ = clock_.Now();
    bytes_ = bytes;
    tag_ = tag;
    tag_.place = 0;
    return {tag_, CoarseDeadline(timeout_ms_)};
}

Status CommImpl::End(Status status) {
    end_ = clock_.Now();
    if (!status.ok()) failed_ = status;
    return status;
}

bool CommImpl::LeavesCpuIdle(size_t bytes) const {
    if (!hosts_known_ || leaders_.size() < 2) return false;
    const double predicted_us = PredictedUs(tuning_, bytes);
    return predicted_us <= 0 || predicted_us >= static_cast<double>(bytes) * kIdleUsAByte;
}

Timing CommImpl::last_timing() const {
    // A rank of another host has another clock: what it says is no more than a hint.
    int64_t times[] = {begin_, std::clamp(last_arrival_, begin_, std::max(begin_, end_)), end_};
    clock_.ToNs(times);
    return {times[0], times[1], times[2], bytes_};
}

Status CommImpl::Take(int from, Kind kind, std::span<std::byte> out, const Op& op) {
    const std::byte* payload;
    WEFT_TRY(Await(from, kind, out.size(), payload, op));
    if (!out.empty()) std::memcpy(out.data(), payload, out.size());
    return Release(from, op);
}

void CommImpl::CheckParts(std::span<const size_t> counts, size_t total) const {
    WEFT_CHECK(counts.size() == static_cast<size_t>(size_));
    for (size_t count : counts) {
        WEFT_CHECK(count <= total);
        total -= count;
    }
    WEFT_CHECK(total == 0);
}

CommImpl::Part CommImpl::PartOf(std::span<const size_t> counts, int rank, size_t done,
                                size_t most) {
    const size_t place = static_cast<size_t>(rank);
    size_t begin = 0;
    for (size_t r = 0; r < place; r++) begin += counts[r];
    const size_t skip = std::min(done, counts[place]);
    return {begin + skip, std::min(most, counts[place] - skip)};
}

Status CommImpl::AllGather(std::span<std::byte> all, std::span<const size_t> counts,
                           const net::OpTag& tag) {
    if (!failed_.ok()) return failed_;
    const Op op = Begin(all.size(), tag);
    CheckParts(counts, all.size());
    return End(Gather(all, counts, op));
}

// Everybody sends its part to all, a message's worth at a time.
Status CommImpl::Gather(std::span<std::byte> all, std::span<const size_t> counts, const Op& op) {
    const auto piece = [&](int rank, size_t done) {
        const Part part = PartOf(counts, rank, done, payload_);
        return all.subspan(part.begin, part.count);
    };
    const size_t longest = *std::max_element(counts.begin(), counts.end());
    for (size_t done = 0; done < longest; done += payload_) {
        const std::span<std::byte> own = piece(rank_, done);
        for (int step = 1; step < size_ && !own.empty(); step++) {
            WEFT_TRY(Post(Ahead(step), kParts, own, op));
        }
        for (int r = 0; r < size_; r++) {
            const std::span<std::byte> theirs = piece(r, done);
            if (r != rank_ && !theirs.empty()) WEFT_TRY(Take(r, kParts, theirs, op));
        }
    }
    return {};
}

// Everybody sends each rank what is for it, a message's worth at a time.
Status CommImpl::AllToAll(std::span<const std::byte> out, std::span<const size_t> out_counts,
                          std::span<std::byte> in, std::span<const size_t> in_counts,
                          const net::OpTag& tag) {
    if (!failed_.ok()) return failed_;
    const Op op = Begin(out.size(), tag);
    CheckParts(out_counts, out.size());
    CheckParts(in_counts, in.size());
    const size_t me = static_cast<size_t>(rank_);
    WEFT_CHECK(out_counts[me] == in_counts[me]);
    const Part mine_out = PartOf(out_counts, rank_, 0, SIZE_MAX);
    const Part mine_in = PartOf(in_counts, rank_, 0, SIZE_MAX);
    if (mine_in.count > 0) {
        std::memcpy(in.data() + mine_in.begin, out.data() + mine_out.begin, mine_in.count);
    }
    const auto exchange = [&]() -> Status {
        const size_t longest = std::max(*std::max_element(out_counts.begin(), out_counts.end()),
                                        *std::max_element(in_counts.begin(), in_counts.end()));
        for (size_t done = 0; done < longest; done += payload_) {
            for (int step = 1; step < size_; step++) {
                const Part part = PartOf(out_counts, Ahead(step), done, payload_);
                if (part.count == 0) continue;
                WEFT_TRY(Post(Ahead(step), kToEach, out.subspan(part.begin, part.count), op));
            }
            for (int step = 1; step < size_; step++) {
                const int from = Ahead(size_ - step);
                const Part part = PartOf(in_counts, from, done, payload_);
                if (part.count == 0) continue;
                WEFT_TRY(Take(from, kToEach, in.subspan(part.begin, part.count), op));
            }
        }
        return {};
    };
    return End(exchange());
}

Status CommImpl::Broadcast(std::span<std::byte> data, int root, const net::OpTag& tag) {
    if (!failed_.ok()) return failed_;
    const Op op = Begin(data.size(), tag);
    WEFT_CHECK(root >= 0 && root < size_);
    const auto cast = [&]() -> Status {
        for (std::span<std::byte> left = data; !left.empty();) {
            const std::span<std::byte> piece = left.first(std::min(payload_, left.size()));
            left = left.subspan(piece.size());
            if (rank_ != root) {
                WEFT_TRY(Take(root, kCast, piece, op));
                continue;
            }
            for (int step = 1; step < size_; step++) WEFT_TRY(Post(Ahead(step), kCast, piece, op));
        }
        return {};
    };
    return End(cast());
}

Status CommImpl::Barrier(const net::OpTag& tag) {
    if (!failed_.ok()) return failed_;
    const Op op = Begin(0, tag);
    const auto meet = [&]() -> Status {
        for (int step = 1; step < size_; step++) WEFT_TRY(Post(Ahead(step), kMeet, {}, op));
        for (int step = 1; step < size_; step++) WEFT_TRY(Take(Ahead(step), kMeet, {}, op));
        return {};
    };
    return End(meet());
}

Status CommImpl::Send(std::span<const std::byte> data, int to, const net::OpTag& tag) {
    if (!failed_.ok()) return failed_;
    const Op op = Begin(data.size(), tag);
    WEFT_CHECK(to >= 0 && to < size_ && to != rank_);
    Stream& stream = *sends_[static_cast<size_t>(to)];
    Status status;
    while (status.ok() && !data.empty()) {
        const std::span<const std::byte> piece = data.first(std::min(send_payload_, data.size()));
        data = data.subspan(piece.size());
        CountSent(piece.size());
        status = stream.Post(kSent, begin_, piece, op.tag, op.deadline);
    }
    return End(std::move(status));
}

Status CommImpl::Recv(std::span<std::byte> data, int from, const net::OpTag& tag) {
    if (!failed_.ok()) return failed_;
    const Op op = Begin(data.size(), tag);
    WEFT_CHECK(from >= 0 && from < size_ && from != rank_);
    Stream& stream = *sends_[static_cast<size_t>(from)];
    const auto receive = [&]() -> Status {
        while (!data.empty()) {
            const std::span<std::byte> piece = data.first(std::min(send_payload_, data.size()));
            data = data.subspan(piece.size());
            const std::byte* payload;
            WEFT_TRY(
                stream.Await(kSent, piece.size(), payload, last_arrival_, op.tag, op.deadline));
            std::memcpy(piece.data(), payload, piece.size());
            WEFT_TRY(stream.Release(op.tag, op.deadline));
        }
        return {};
    };
    return End(receive());
}

Result<std::unique_ptr<Comm>> Comm::Make(net::Fabric& fabric, std::vector<int> ranks,
                                         Channel channel, int64_t timeout_ms) {
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
        const size_t window = fabric.links[static_cast<size_t>(ranks[i])]->window_bytes();
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
    return std::unique_ptr<Comm>(std::make_unique<CommImpl>(fabric, ranks, channel, timeout_ms));
}

}  // namespace weft::coll
