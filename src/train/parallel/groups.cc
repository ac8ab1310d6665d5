#include "train/parallel/groups.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

namespace weft::train {
namespace {

// The most that a rank's work may be behind another's.
constexpr int64_t kWaitMs = 600'000;
constexpr int kFlagsOfGroup = 4;
static_assert(net::kFlags >= 4 * kFlagsOfGroup);

// Parts of a window, in eighths, and which flags. The groups in one part never share two ranks:
// tensor groups lie within a replica's stage, data groups across replicas, forward mail between
// stages.
struct Channels {
    coll::Channel world, group, forward, backward, tied;
};

Channels CutWindow(size_t window) {
    const auto part = [&](size_t begin, size_t end, int flags) {
        const size_t eighth = window / 8 / 4096 * 4096;
        return coll::Channel{begin * eighth, (end - begin) * eighth, flags * kFlagsOfGroup,
                             kFlagsOfGroup};
    };
    return {part(0, 1, 0), part(1, 8, 1), part(1, 4, 1), part(4, 7, 2), part(7, 8, 3)};
}

class Joiner {
  public:
    Joiner(net::Fabric& fabric, int size, const TrainLayout& layout)
        : fabric_(fabric), size_(size), layout_(layout) {
        size_t window = SIZE_MAX;
        for (const auto& link : fabric.links) {
            if (link != nullptr) window = std::min(window, link->window_bytes());
        }
        channels_ = CutWindow(window);
    }

    Result<TrainGroups> Join() const {
        const TrainLayout& l = layout_;
        TrainGroups groups;
        std::vector<int> everyone(static_cast<size_t>(size_));
        std::iota(everyone.begin(), everyone.end(), 0);
        WEFT_ASSIGN(groups.world, Make(everyone, channels_.world));
        if (l.tp() > 1) {
            WEFT_ASSIGN(groups.tensor, Make(l.TensorGroup(), channels_.group));
        }
        if (l.dp > 1) {
            WEFT_ASSIGN(groups.data, Make(l.DataGroup(), channels_.group));
        }
        if (l.pp() == 1) return groups;
        std::unique_ptr<coll::Comm> pairs[4];
        if (l.stage + 1 < l.pp()) {
            WEFT_ASSIGN(pairs[0], Pair(l.stage, l.stage + 1, channels_.forward));
            WEFT_ASSIGN(pairs[1], Pair(l.stage, l.stage + 1, channels_.backward));
        }
        if (l.stage > 0) {
            WEFT_ASSIGN(pairs[2], Pair(l.stage - 1, l.stage, channels_.forward));
            WEFT_ASSIGN(pairs[3], Pair(l.stage - 1, l.stage, channels_.backward));
        }
        groups.stages = std::make_unique<StageMail>(l, std::move(pairs[0]), std::move(pairs[1]),
                                                    std::move(pairs[2]), std::move(pairs[3]));
        if (l.stage == 0 || l.stage == l.pp() - 1) {
            WEFT_ASSIGN(groups.tied, Pair(0, l.pp() - 1, channels_.tied));
        }
        return groups;
    }

  private:
    Result<std::unique_ptr<coll::Comm>> Make(std::vector<int> ranks,
                                             const coll::Channel& channel) const {
        return coll::Comm::Make(fabric_, std::move(ranks), channel, kWaitMs);
    }
    // This rank's counterparts in two stages.
    Result<std::unique_ptr<coll::Comm>> Pair(int stage, int other,
                                             const coll::Channel& channel) const {
        return Make({layout_.RankOf(stage, layout_.replica, layout_.tensor_rank),
                     layout_.RankOf(other, layout_.replica, layout_.tensor_rank)},
                    channel);
    }

    net::Fabric& fabric_;
    const int size_;
    const TrainLayout& layout_;
    Channels channels_;
};

}  // namespace

// One value waits; whoever brings a second waits until the first has left.
class StageMail::Sender {
  public:
    Sender(coll::Comm& comm, int to) : comm_(comm), to_(to), thread_([this] { Run(); }) {}
    ~Sender() {
        {
            const std::scoped_lock lock(mutex_);
            ends_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }

    Status Send(std::span<const std::byte> data, const net::OpTag& tag) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return !full_ || !status_.ok(); });
        if (!status_.ok()) return status_;
        value_.assign(data.begin(), data.end());
        tag_ = tag;
        full_ = true;
        changed_.notify_all();
        return {};
    }

  private:
    void Run() {
        std::unique_lock lock(mutex_);
        while (true) {
            changed_.wait(lock, [&] { return full_ || ends_; });
            if (!full_) return;
            lock.unlock();
            Status status = comm_.Send(value_, to_, tag_);
            lock.lock();
            if (!status.ok()) status_ = std::move(status);
            full_ = false;
            changed_.notify_all();
            if (!status_.ok()) return;
        }
    }

    coll::Comm& comm_;
    const int to_;  // within the pair
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::byte> value_;
    net::OpTag tag_;
    bool full_ = false, ends_ = false;
    Status status_;
    std::thread thread_;
};

StageMail::StageMail(const TrainLayout& layout, std::unique_ptr<coll::Comm> to_next_forward,
                     std::unique_ptr<coll::Comm> to_next_backward,
                     std::unique_ptr<coll::Comm> to_previous_forward,
                     std::unique_ptr<coll::Comm> to_previous_backward)
    : layout_(layout),
      next_forward_(std::move(to_next_forward)),
      next_backward_(std::move(to_next_backward)),
      previous_forward_(std::move(to_previous_forward)),
      previous_backward_(std::move(to_previous_backward)) {
    if (next_forward_ != nullptr) to_next_ = std::make_unique<Sender>(*next_forward_, 1);
    if (previous_backward_ != nullptr) {
        to_previous_ = std::make_unique<Sender>(*previous_backward_, 0);
    }
}

StageMail::~StageMail() = default;

Status StageMail::Send(std::span<const std::byte> data, int peer, const net::OpTag& tag) {
    return (IsNext(peer) ? to_next_ : to_previous_)->Send(data, tag);
}

Status StageMail::Recv(std::span<std::byte> data, int peer, const net::OpTag& tag) {
    if (IsNext(peer)) return next_backward_->Recv(data, 1, tag);
    return previous_forward_->Recv(data, 0, tag);
}

uint64_t StageMail::sent_bytes() const {
    uint64_t sum = 0;
    for (const auto* pair :
         {&next_forward_, &next_backward_, &previous_forward_, &previous_backward_}) {
        if (*pair != nullptr) sum += (*pair)->sent_bytes();
    }
    return sum;
}

uint64_t TrainGroups::sent_bytes() const {
    uint64_t sum = stages == nullptr ? 0 : stages->sent_bytes();
    for (const auto* group : {&world, &tensor, &data, &tied}) {
        if (*group != nullptr) sum += (*group)->sent_bytes();
    }
    return sum;
}

Result<TrainGroups> JoinGroups(cluster::Cluster& cluster, const TrainLayout& layout) {
    if (cluster.size() == 1) return TrainGroups{};
    return Joiner(cluster.fabric(), cluster.size(), layout).Join();
}

}  // namespace weft::train
