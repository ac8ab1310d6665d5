#include "train/parallel/groups.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "base/start_thread.h"
#include "coll/tree.h"
#include "hw/cpu.h"
#include "net/share.h"

namespace weft::train {
namespace {

// Maximum time by which one rank's work may lag another's.
constexpr int64_t kWaitMs = 600'000;
constexpr int kFlagsOfGroup = 4;
// A longer send means that the neighbor is behind.
constexpr std::chrono::milliseconds kLongWait{50};
static_assert(net::kFlags >= 4 * kFlagsOfGroup);

// Parts of a window, in eighths, and the flags. Groups in the same part never share two ranks:
// tensor groups are within a replica's stage, data groups across replicas, forward mail between
// stages. If a pipeline of two stages wraps around, each direction has its own Comm, and the two
// share neither a window nor a flag. The ranks of a context group are also in one data group, whose
// part is then smaller.
struct Channels {
    coll::Channel world, group, data, context, forward, backward, tied;
};

Channels CutWindow(size_t window, bool contexts) {
    const auto part = [&](size_t begin, size_t end, int flags) {
        const size_t eighth = window / 8 / 4096 * 4096;
        return coll::Channel{begin * eighth, (end - begin) * eighth, flags * kFlagsOfGroup,
                             kFlagsOfGroup};
    };
    return {part(0, 1, 0), part(1, 8, 1), part(1, contexts ? 4 : 8, 1),
            part(4, 8, 2), part(1, 4, 1), part(4, 7, 2),
            part(7, 8, 3)};
}

// With more ranks, sums over all ranks use a tree, and only ranks of a group have links.
constexpr int kMostAllLinked = 64;
// In a tree of so many ranks, each edge joins neighbors or is rank 0's.
constexpr int kMostOfChain = 6;

// A pipeline alone: hosts in a ring or a chain have cables only to their neighbors.
bool IsChain(const TrainLayout& layout, int ranks) {
    return layout.pp() == ranks && ranks > 2 && ranks <= kMostOfChain;
}

bool AllLinked(const TrainLayout& layout, int ranks) {
    if (IsChain(layout, ranks)) return false;
    return ranks <= kMostAllLinked || layout.dp == ranks || layout.tp() == ranks;
}

class Joiner {
  public:
    Joiner(net::Fabric& fabric, int size, const TrainLayout& layout)
        : fabric_(fabric), size_(size), layout_(layout) {
        size_t window = SIZE_MAX;
        for (const auto& link : fabric.links) {
            if (link != nullptr) window = std::min(window, link->window_bytes());
        }
        channels_ = CutWindow(window, layout.cp > 1);
    }

    Result<TrainGroups> Join() const {
        const TrainLayout& l = layout_;
        TrainGroups groups;
        std::vector<int> everyone(static_cast<size_t>(size_));
        std::iota(everyone.begin(), everyone.end(), 0);
        const coll::Paths paths = AllLinked(l, size_) ? coll::Paths::kDirect : coll::Paths::kTree;
        WEFT_ASSIGN(groups.world,
                    coll::Comm::Make(fabric_, everyone, channels_.world, kWaitMs, paths));
        if (l.tp() > 1) {
            WEFT_ASSIGN(groups.tensor, Make(l.TensorGroup(), channels_.group));
        }
        if (l.dp > 1) {
            WEFT_ASSIGN(groups.data, Make(l.DataGroup(), channels_.data));
        }
        if (l.cp > 1) {
            WEFT_ASSIGN(groups.context, Make(l.ContextGroup(), channels_.context));
        }
        if (l.pp() == 1) return groups;
        const bool round = l.chunks > 1;
        StageMail::Neighbour next, previous;
        if (l.stage + 1 < l.pp() || round) {
            WEFT_ASSIGN(next, Neighbour((l.stage + 1) % l.pp()));
        }
        if (l.stage > 0 || round) {
            WEFT_ASSIGN(previous, Neighbour((l.stage + l.pp() - 1) % l.pp()));
        }
        groups.stages = std::make_unique<StageMail>(l, std::move(next), std::move(previous));
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
    // The communicator of this rank's counterparts in two stages.
    Result<std::unique_ptr<coll::Comm>> Pair(int stage, int other,
                                             const coll::Channel& channel) const {
        return Make({layout_.RankOf(stage, layout_.replica, layout_.tensor_rank),
                     layout_.RankOf(other, layout_.replica, layout_.tensor_rank)},
                    channel);
    }
    Result<StageMail::Neighbour> Neighbour(int stage) const {
        const auto [low, high] = std::minmax(stage, layout_.stage);
        StageMail::Neighbour neighbour;
        WEFT_ASSIGN(neighbour.forward, Pair(low, high, channels_.forward));
        WEFT_ASSIGN(neighbour.backward, Pair(low, high, channels_.backward));
        neighbour.place = stage == high ? 1 : 0;
        return neighbour;
    }

    net::Fabric& fabric_;
    const int size_;
    const TrainLayout& layout_;
    Channels channels_;
};

}  // namespace

// Two values may wait, as many as a pass sends; the sender of a third one blocks until the first is
// sent.
class StageMail::Sender {
  public:
    Sender(coll::Comm& comm, int to) : comm_(comm), to_(to) {
        Status started = StartThread(thread_, [this] { Run(); });
        const std::scoped_lock lock(mutex_);
        if (!started.ok()) status_ = std::move(started);
    }
    ~Sender() {
        {
            const std::scoped_lock lock(mutex_);
            ends_ = true;
        }
        changed_.notify_all();
        if (!thread_.joinable()) return;
        comm_.SetAwaitsOwn(true, thread_.get_id());
        thread_.join();
        comm_.SetAwaitsOwn(false, thread_.get_id());
    }

    Status Send(std::span<const std::byte> data, const net::OpTag& tag) {
        std::unique_lock lock(mutex_);
        const auto has_room = [&] { return brought_ - sent_ < kWaiting || !status_.ok(); };
        if (!changed_.wait_for(lock, kLongWait, has_room)) {
            comm_.SetAwaitsOwn(true, thread_.get_id());
            changed_.wait(lock, has_room);
            comm_.SetAwaitsOwn(false, thread_.get_id());
        }
        if (!status_.ok()) return status_;
        Value& value = values_[brought_++ % kWaiting];
        value.bytes.assign(data.begin(), data.end());
        value.tag = tag;
        changed_.notify_all();
        return {};
    }

  private:
    void Run() {
        std::unique_lock lock(mutex_);
        while (true) {
            changed_.wait(lock, [&] { return brought_ > sent_ || ends_; });
            if (brought_ == sent_) return;
            const Value& value = values_[sent_ % kWaiting];
            lock.unlock();
            Status status = comm_.Send(value.bytes, to_, value.tag);
            lock.lock();
            if (!status.ok()) status_ = std::move(status);
            ++sent_;
            changed_.notify_all();
            if (!status_.ok()) return;
        }
    }

    coll::Comm& comm_;
    const int to_;  // rank within the pair
    std::mutex mutex_;
    std::condition_variable changed_;
    struct Value {
        std::vector<std::byte> bytes;
        net::OpTag tag;
    };
    static constexpr uint64_t kWaiting = 2;
    Value values_[kWaiting];
    uint64_t brought_ = 0, sent_ = 0;
    bool ends_ = false;
    Status status_;
    std::thread thread_;
};

StageMail::StageMail(const TrainLayout& layout, Neighbour next, Neighbour previous)
    : layout_(layout),
      number_(layout.stage),
      next_(std::move(next)),
      previous_(std::move(previous)) {
    if (next_.forward != nullptr) {
        to_next_ = std::make_unique<Sender>(*next_.forward, next_.place);
    }
    if (previous_.backward != nullptr) {
        to_previous_ = std::make_unique<Sender>(*previous_.backward, previous_.place);
    }
}

StageMail::~StageMail() = default;

Status StageMail::Send(std::span<const std::byte> data, int peer, const net::OpTag& tag) {
    return (IsNext(peer) ? to_next_ : to_previous_)->Send(data, tag);
}

Status StageMail::Recv(std::span<std::byte> data, int peer, const net::OpTag& tag) {
    if (IsNext(peer)) return next_.backward->Recv(data, next_.place, tag);
    return previous_.forward->Recv(data, previous_.place, tag);
}

uint64_t StageMail::sent_bytes() const {
    uint64_t sum = 0;
    for (const auto* pair :
         {&next_.forward, &next_.backward, &previous_.forward, &previous_.backward}) {
        if (*pair != nullptr) sum += (*pair)->sent_bytes();
    }
    return sum;
}

uint64_t TrainGroups::sent_bytes() const {
    uint64_t sum = stages == nullptr ? 0 : stages->sent_bytes();
    for (const auto* group : {&world, &tensor, &data, &context, &tied}) {
        if (*group != nullptr) sum += (*group)->sent_bytes();
    }
    return sum;
}

cluster::LinkNeeds LinksOf(const TrainLayout& layout, int ranks) {
    cluster::LinkNeeds links;
    if (AllLinked(layout, ranks)) return links;
    for (const auto& [a, b] : coll::TreePairs(ranks)) links.pairs.push_back({a, b});
    const auto add = [&](int rank, int stage, int replica, int tensor_rank) {
        const int peer = layout.RankOf(stage, replica, tensor_rank);
        if (peer > rank) links.pairs.push_back({rank, peer});
    };
    for (int rank = 0; rank < ranks; ++rank) {
        const int t = rank % layout.tp(), r = rank / layout.tp() % layout.dp;
        const int stage = rank / layout.tp() / layout.dp;
        for (int other = 0; other < layout.tp(); ++other) add(rank, stage, r, other);
        for (int other = 0; other < layout.dp; ++other) add(rank, stage, other, t);
        if (stage + 1 < layout.pp()) add(rank, stage + 1, r, t);
        if (stage == 0) add(rank, layout.pp() - 1, r, t);  // tied embeddings, chunks
    }
    // (Rank 0 reaches each host over the network of the control messages. Interleaved stages send
    // activations from the last host to the first.)
    const bool few = IsChain(layout, ranks) && layout.chunks == 1;
    for (auto& pair : links.pairs) pair.few_bytes = few && pair.b > pair.a + 1;
    return links;
}

bool UsesMpi(const net::Fabric& fabric) {
    return fabric.transport.find("mpi") != std::string::npos;
}

Result<TrainGroups> JoinGroups(cluster::Cluster& cluster, const TrainLayout& layout) {
    if (cluster.size() == 1) return TrainGroups{};
    // A device may have pinned this thread to one core, which the stages' senders would inherit.
    const PinnedThread pinned(cluster.cores());
    if (layout.pp() > 1 && UsesMpi(cluster.fabric())) {
        return MakeError(ErrorCode::kUnsupported,
                         "--pp {}: stages send on a thread of their own, which MPI's links do not "
                         "allow. Use --transport tcp or verbs, or --tp and --dp alone",
                         layout.pp());
    }
    // Stages send on their own threads, and ZeRO's transfers may overlap those of tensor ranks and
    // of context groups.
    if (layout.pp() > 1 || layout.cp > 1 || (layout.tp() > 1 && layout.dp > 1)) {
        net::ShareAmongThreads(cluster.fabric());
    }
    return Joiner(cluster.fabric(), cluster.size(), layout).Join();
}

}  // namespace weft::train
