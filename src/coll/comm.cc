#include "coll/comm.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "coll/choose.h"
#include "coll/stream.h"
#include "coll/sum.h"

namespace weft::coll {
namespace {

// Half of a channel's window is for collectives, half for sends.
constexpr size_t kLeastWindow = size_t{16} << 10;
constexpr int kFlagsUsed = 4;
// Segments begin on cache lines.
constexpr size_t kLineBytes = 64;

enum Kind : uint64_t {
    kOneShotSum = 1,
    kScatter,
    kGather,
    kRingSum,
    kRingGather,
    kParts,
    kCast,
    kMeet,
    kSent
};

struct Part {
    size_t begin;
    size_t count;
};

template <typename T>
std::span<const std::byte> BytesOf(std::span<T> data) {
    return std::as_bytes(data);
}

class CommImpl final : public Comm {
  public:
    CommImpl(net::Fabric& fabric, const std::vector<int>& ranks, const Channel& channel,
             int64_t timeout_ms);

    int rank() const override { return rank_; }
    int size() const override { return size_; }
    size_t max_send_bytes() const override { return send_payload_; }
    const Timing& last_timing() const override { return timing_; }

    Status AllReduce(std::span<float> data, const net::OpTag& tag, Algorithm algorithm) override {
        return Reduce(data, tag, algorithm);
    }
    Status AllReduce(std::span<double> data, const net::OpTag& tag, Algorithm algorithm) override {
        return Reduce(data, tag, algorithm);
    }
    Status AllGather(std::span<std::byte> all, std::span<const size_t> counts,
                     const net::OpTag& tag) override;
    Status Broadcast(std::span<std::byte> data, int root, const net::OpTag& tag) override;
    Status Send(std::span<const std::byte> data, int to, const net::OpTag& tag) override;
    Status Recv(std::span<std::byte> data, int from, const net::OpTag& tag) override;
    Status Barrier(const net::OpTag& tag) override;

  private:
    // One collective: its name in errors, its deadline.
    struct Op {
        const net::OpTag& tag;
        Deadline deadline;
    };

    Op Begin(size_t bytes, const net::OpTag& tag);
    Status End(Status status);
    template <typename T>
    Status Reduce(std::span<T> data, const net::OpTag& tag, Algorithm algorithm);
    template <typename T>
    Status OneShot(std::span<T> data, const Op& op);
    template <typename T>
    Status TwoShot(std::span<T> data, const Op& op);
    template <typename T>
    Status Ring(std::span<T> data, const Op& op);
    template <typename T>
    Status RingStep(std::span<T> data, int send, int receive, Kind kind, const Op& op);
    template <typename T>
    Part SegmentOf(size_t count, int owner) const;
    // By rank of the group: where each rank's addend lies.
    template <typename T>
    std::vector<const T*>& Addends() {
        if constexpr (sizeof(T) == sizeof(float))
            return addends_;
        else
            return wide_addends_;
    }

    Stream& To(int rank) { return *collective_[static_cast<size_t>(rank)]; }
    int Ahead(int steps) const { return (rank_ + steps) % size_; }
    Status Post(int to, Kind kind, std::span<const std::byte> payload, const Op& op) {
        return To(to).Post(kind, timing_.last_arrival_ns, payload, op.tag, op.deadline);
    }
    Status Await(int from, Kind kind, size_t bytes, const std::byte*& payload, const Op& op) {
        return To(from).Await(kind, bytes, payload, timing_.last_arrival_ns, op.tag, op.deadline);
    }
    // Awaits a message and copies it out.
    Status Take(int from, Kind kind, std::span<std::byte> out, const Op& op);
    Status Release(int from, const Op& op) { return To(from).Release(op.tag, op.deadline); }

    int rank_ = 0;
    int size_;
    int64_t timeout_ms_;
    bool over_tcp_ = false;
    size_t payload_;  // of a collective's message
    size_t send_payload_;
    std::vector<std::optional<Stream>> collective_;  // by rank of the group; none for ourselves
    std::vector<std::optional<Stream>> sends_;
    std::vector<const float*> addends_;
    std::vector<const double*> wide_addends_;
    Timing timing_;
    Status failed_;
};

CommImpl::CommImpl(net::Fabric& fabric, const std::vector<int>& ranks, const Channel& channel,
                   int64_t timeout_ms)
    : size_(static_cast<int>(ranks.size())),
      timeout_ms_(timeout_ms),
      collective_(ranks.size()),
      sends_(ranks.size()),
      addends_(ranks.size()),
      wide_addends_(ranks.size()) {
    const size_t half = channel.window_bytes / 128 * 64;
    payload_ = Stream::PayloadBytes(half) / kLineBytes * kLineBytes;
    send_payload_ = Stream::PayloadBytes(half);
    for (size_t r = 0; r < ranks.size(); r++) {
        if (ranks[r] == fabric.rank) {
            rank_ = static_cast<int>(r);
            continue;
        }
        net::Link& link = *fabric.links[static_cast<size_t>(ranks[r])];
        over_tcp_ = over_tcp_ || link.peer().transport == "tcp";
        collective_[r].emplace(link, fabric.epoch, channel.window_begin, half, channel.flag_begin,
                               Told::kInMessages);
        sends_[r].emplace(link, fabric.epoch, channel.window_begin + half, half,
                          channel.flag_begin + 2, Told::kByFlag);
    }
}

CommImpl::Op CommImpl::Begin(size_t bytes, const net::OpTag& tag) {
    timing_.begin_ns = NowNs();
    timing_.last_arrival_ns = timing_.begin_ns;
    timing_.bytes = bytes;
    return {tag, Deadline::From(timing_.begin_ns, timeout_ms_)};
}

Status CommImpl::End(Status status) {
    timing_.end_ns = NowNs();
    if (!status.ok()) failed_ = status;
    return status;
}

Status CommImpl::Take(int from, Kind kind, std::span<std::byte> out, const Op& op) {
    const std::byte* payload;
    WEFT_TRY(Await(from, kind, out.size(), payload, op));
    if (!out.empty()) std::memcpy(out.data(), payload, out.size());
    return Release(from, op);
}

template <typename T>
Status CommImpl::Reduce(std::span<T> data, const net::OpTag& tag, Algorithm algorithm) {
    if (!failed_.ok()) return failed_;
    const Op op = Begin(data.size_bytes(), tag);
    if (size_ == 1 || data.empty()) return End({});
    if (algorithm == Algorithm::kAuto) {
        algorithm = ChooseAllReduce(size_, data.size_bytes(), over_tcp_);
    }
    const size_t slot = payload_ / sizeof(T);
    const size_t ranks = static_cast<size_t>(size_);
    const size_t most = algorithm == Algorithm::kOneShot ? slot : slot * ranks;
    Status status;
    while (status.ok() && !data.empty()) {
        const std::span<T> piece = data.first(std::min(most, data.size()));
        data = data.subspan(piece.size());
        switch (algorithm) {
            case Algorithm::kAuto:
            case Algorithm::kOneShot: status = OneShot(piece, op); break;
            case Algorithm::kTwoShot: status = TwoShot(piece, op); break;
            case Algorithm::kRing: status = Ring(piece, op); break;
        }
    }
    return End(std::move(status));
}

// Everybody sends all to all, and adds up all.
template <typename T>
Status CommImpl::OneShot(std::span<T> data, const Op& op) {
    for (int step = 1; step < size_; step++) {
        WEFT_TRY(Post(Ahead(step), kOneShotSum, BytesOf(data), op));
    }
    for (int r = 0; r < size_; r++) {
        const T*& addend = Addends<T>()[static_cast<size_t>(r)];
        addend = data.data();
        if (r == rank_) continue;
        const std::byte* payload;
        WEFT_TRY(Await(r, kOneShotSum, data.size_bytes(), payload, op));
        addend = reinterpret_cast<const T*>(payload);
    }
    SumInOrder(std::span<const T* const>(Addends<T>()), data.data(), data.size());
    for (int r = 0; r < size_; r++) {
        if (r != rank_) WEFT_TRY(Release(r, op));
    }
    return {};
}

template <typename T>
Part CommImpl::SegmentOf(size_t count, int owner) const {
    constexpr size_t kLine = kLineBytes / sizeof(T);
    const size_t ranks = static_cast<size_t>(size_);
    const size_t each = (count + ranks - 1) / ranks;
    const size_t whole = (each + kLine - 1) / kLine * kLine;
    const size_t begin = std::min(count, whole * static_cast<size_t>(owner));
    return {begin, std::min(whole, count - begin)};
}

// Everybody adds up one segment, then tells the sum to all.
template <typename T>
Status CommImpl::TwoShot(std::span<T> data, const Op& op) {
    const Part mine = SegmentOf<T>(data.size(), rank_);
    const std::span<T> own = data.subspan(mine.begin, mine.count);
    for (int step = 1; step < size_; step++) {
        const Part theirs = SegmentOf<T>(data.size(), Ahead(step));
        WEFT_TRY(
            Post(Ahead(step), kScatter, BytesOf(data.subspan(theirs.begin, theirs.count)), op));
    }
    for (int r = 0; r < size_; r++) {
        const T*& addend = Addends<T>()[static_cast<size_t>(r)];
        addend = own.data();
        if (r == rank_) continue;
        const std::byte* payload;
        WEFT_TRY(Await(r, kScatter, own.size_bytes(), payload, op));
        addend = reinterpret_cast<const T*>(payload);
    }
    SumInOrder(std::span<const T* const>(Addends<T>()), own.data(), own.size());
    for (int r = 0; r < size_; r++) {
        if (r != rank_) WEFT_TRY(Release(r, op));
    }
    for (int step = 1; step < size_; step++) {
        WEFT_TRY(Post(Ahead(step), kGather, BytesOf(own), op));
    }
    for (int step = 1; step < size_; step++) {
        const Part part = SegmentOf<T>(data.size(), Ahead(step));
        const std::span<T> theirs = data.subspan(part.begin, part.count);
        WEFT_TRY(Take(Ahead(step), kGather, std::as_writable_bytes(theirs), op));
    }
    return {};
}

// Partial sums travel around the ring: segment s starts at rank s and is whole at rank s - 1;
// then the whole segments travel around once more.
template <typename T>
Status CommImpl::Ring(std::span<T> data, const Op& op) {
    for (int step = 0; step < size_ - 1; step++) {
        WEFT_TRY(RingStep(data, rank_ - step, rank_ - step - 1, kRingSum, op));
    }
    for (int step = 0; step < size_ - 1; step++) {
        WEFT_TRY(RingStep(data, rank_ - step + 1, rank_ - step, kRingGather, op));
    }
    return {};
}

// Sends one segment to the next rank and takes another from the previous one. Numbers may be off
// by one turn of the ring.
template <typename T>
Status CommImpl::RingStep(std::span<T> data, int send, int receive, Kind kind, const Op& op) {
    const Part out = SegmentOf<T>(data.size(), (send + size_) % size_);
    const Part in = SegmentOf<T>(data.size(), (receive + size_) % size_);
    WEFT_TRY(Post(Ahead(1), kind, BytesOf(data.subspan(out.begin, out.count)), op));
    const std::span<T> target = data.subspan(in.begin, in.count);
    const int previous = Ahead(size_ - 1);
    if (kind == kRingGather) return Take(previous, kind, std::as_writable_bytes(target), op);
    const std::byte* payload;
    WEFT_TRY(Await(previous, kind, target.size_bytes(), payload, op));
    const T* const addends[] = {reinterpret_cast<const T*>(payload), target.data()};
    SumInOrder(std::span<const T* const>(addends), target.data(), target.size());
    return Release(previous, op);
}

Status CommImpl::AllGather(std::span<std::byte> all, std::span<const size_t> counts,
                           const net::OpTag& tag) {
    if (!failed_.ok()) return failed_;
    const Op op = Begin(all.size(), tag);
    WEFT_CHECK(counts.size() == static_cast<size_t>(size_));
    size_t total = 0;
    for (size_t count : counts) total += count;
    WEFT_CHECK(total == all.size());
    const size_t longest = *std::max_element(counts.begin(), counts.end());
    const auto gather = [&]() -> Status {
        for (size_t done = 0; done < longest; done += payload_) {
            // What is left of part r from `done` on, as far as one message goes.
            size_t begin = 0;
            std::span<std::byte> own;
            for (int r = 0; r < rank_; r++) begin += counts[static_cast<size_t>(r)];
            const size_t count = counts[static_cast<size_t>(rank_)];
            if (count > done) own = all.subspan(begin + done, std::min(payload_, count - done));
            for (int step = 1; step < size_ && !own.empty(); step++) {
                WEFT_TRY(Post(Ahead(step), kParts, own, op));
            }
            begin = 0;
            for (int r = 0; r < size_; r++) {
                const size_t theirs = counts[static_cast<size_t>(r)];
                if (r != rank_ && theirs > done) {
                    const size_t take = std::min(payload_, theirs - done);
                    WEFT_TRY(Take(r, kParts, all.subspan(begin + done, take), op));
                }
                begin += theirs;
            }
        }
        return {};
    };
    return End(gather());
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
        status = stream.Post(kSent, timing_.begin_ns, piece, op.tag, op.deadline);
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
            WEFT_TRY(stream.Await(kSent, piece.size(), payload, timing_.last_arrival_ns, op.tag,
                                  op.deadline));
            std::memcpy(piece.data(), payload, piece.size());
            WEFT_TRY(stream.Release(op.tag, op.deadline));
        }
        return {};
    };
    return End(receive());
}

}  // namespace

const char* AlgorithmName(Algorithm algorithm) {
    switch (algorithm) {
        case Algorithm::kAuto: return "auto";
        case Algorithm::kOneShot: return "one_shot";
        case Algorithm::kTwoShot: return "two_shot";
        case Algorithm::kRing: return "ring";
    }
    return "?";
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
