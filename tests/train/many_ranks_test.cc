// One rank's part in a training step among thousands: its links, its windows, and the messages of a
// step with ZeRO-3, over links to simulated peers. A peer sends what this rank sends to it, as
// ranks with equal parts do. The rank then loses a peer in a step, and goes on among fewer ranks.
// (Nightly: 3,072 ranks. tests/cluster/star_test.cc has rank 0's control connections.)
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "cluster/cluster_impl.h"
#include "cluster/worker/memory_check.h"
#include "support/fake_cluster.h"
#include "support/nightly.h"
#include "train/parallel/groups.h"

namespace weft::train {
namespace {

// A window whose pages take memory once they are written.
class LazyWindow {
  public:
    explicit LazyWindow(size_t bytes) : bytes_(bytes) {
        void* at =
            ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        WEFT_CHECK(at != MAP_FAILED);
        at_ = static_cast<std::byte*>(at);
    }
    ~LazyWindow() { ::munmap(at_, bytes_); }
    LazyWindow(const LazyWindow&) = delete;
    LazyWindow& operator=(const LazyWindow&) = delete;
    std::span<std::byte> span() const { return {at_, bytes_}; }

  private:
    std::byte* at_;
    size_t bytes_;
};

// This rank's puts arrive at once as those of the peer.
class MirrorLink final : public net::Link {
  public:
    MirrorLink(int peer, size_t window_bytes) : peer_{peer, "h", "tcp"}, window_(window_bytes) {}
    const net::PeerName& peer() const override { return peer_; }
    size_t window_bytes() const override { return window_.span().size(); }
    std::span<std::byte> window() override { return window_.span(); }
    uint64_t flag(int index) const override { return flags_[static_cast<size_t>(index)]; }
    Status Put(size_t offset, std::span<const std::byte> head, std::span<const std::byte> data,
               int flag, uint64_t value, const net::OpTag&, const Deadline&) override {
        if (!head.empty()) std::memcpy(&window_.span()[offset], head.data(), head.size());
        if (!data.empty()) {
            std::memcpy(&window_.span()[offset + head.size()], data.data(), data.size());
        }
        flags_[static_cast<size_t>(flag)] = value;
        messages += head.empty() ? 0 : 1;
        return {};
    }
    Status Wait(int flag, uint64_t value, const net::OpTag& tag, const Deadline&) override {
        if (!lost && flags_[static_cast<size_t>(flag)] >= value) return {};
        return MakeError(ErrorCode::kPeerLost, "{} was lost during {}", peer_.Text(), tag.Text());
    }

    size_t messages = 0;
    bool lost = false;

  private:
    net::PeerName peer_;
    LazyWindow window_;
    std::array<uint64_t, net::kFlags> flags_{};
};

struct Shape {
    int tp = 1, pp = 1, dp = 1;
    int ranks() const { return tp * pp * dp; }
};

// A rank of a job with these links. It is the first of its data group, and a leaf of the tree.
class OneOfMany {
  public:
    explicit OneOfMany(const Shape& shape)
        : rank_(shape.dp == shape.ranks() ? 0 : shape.tp * shape.dp * (shape.pp - 1) + 1),
          layout_(MakeTrainLayout(shape.ranks(), rank_,
                                  {.tp = shape.tp, .pp = shape.pp, .dp = shape.dp})
                      .value()),
          hub_(shape.ranks()),
          cluster_(hub_, rank_, shape.ranks(), FabricOf(shape.ranks())),
          groups_(JoinGroups(cluster_, layout_).value()) {}

    size_t links() const { return links_.size(); }
    size_t windows_bytes() const { return links_.size() * window_bytes_; }
    size_t counted_bytes() { return cluster::WindowsBytes(cluster_); }
    size_t messages() const {
        size_t sum = 0;
        for (const MirrorLink* link : links_) sum += link->messages;
        return sum;
    }
    uint64_t sent_bytes() const { return groups_.sent_bytes(); }
    MirrorLink& LinkTo(int peer) {
        const auto rank_of = [](const MirrorLink* link) { return link->peer().rank; };
        return **std::ranges::find(links_, peer, rank_of);
    }
    int DataPeer(int replica) const {
        return layout_.RankOf(layout_.stage, replica, layout_.tensor_rank);
    }

    // For each unit, its weights are gathered twice and its gradients summed; then the ranks sum
    // the norm. part: values of this rank in a unit.
    Status Step(int64_t number, int units, size_t part) {
        const auto replicas = static_cast<size_t>(layout_.dp);
        const std::vector<size_t> values(replicas, part), bytes(replicas, 2 * part);
        std::vector<uint16_t> unit(replicas * part);
        const auto weights = std::as_writable_bytes(std::span(unit));
        const net::OpTag tag{"all_gather", 1, number};
        for (int pass = 0; pass < 2; ++pass) {
            for (int each = 0; each < units; ++each) {
                std::ranges::fill(unit, uint16_t{0});
                std::fill_n(unit.begin(), part, kOne);
                WEFT_TRY(groups_.data->AllGather(weights, bytes, tag));
                EXPECT_EQ(std::ranges::count(unit, kOne), std::ssize(unit));
                if (pass == 0) continue;
                size_t right = 0;
                const auto take = [&](size_t, std::span<const float> sums) {
                    right += static_cast<size_t>(
                        std::ranges::count(sums, static_cast<float>(layout_.dp)));
                };
                WEFT_TRY(groups_.data->ReduceScatter(coll::WireType::kBF16, unit, values, take,
                                                     {"reduce_scatter", 2, number}));
                EXPECT_EQ(right, part);
            }
        }
        // (A cache line for each rank, which the peers' equal parts need.)
        std::vector<float> norm(layout_.dp == cluster_.size() ? 16 * replicas : 1, 1.0f);
        return groups_.world->AllReduce(std::span(norm), {"all_reduce", 3, number});
    }

  private:
    static constexpr uint16_t kOne = 0x3f80;  // in bfloat16

    net::Fabric FabricOf(int ranks) {
        const cluster::LinkNeeds needs = LinksOf(layout_, ranks);
        window_bytes_ = cluster::WindowBytesFor(needs, ranks);
        net::Fabric fabric;
        fabric.rank = rank_;
        fabric.size = ranks;
        fabric.transport = "tcp";
        fabric.links.resize(static_cast<size_t>(ranks));
        const auto link = [&](int peer) {
            std::unique_ptr<net::Link>& place = fabric.links[static_cast<size_t>(peer)];
            if (peer == rank_ || place != nullptr) return;
            auto made = std::make_unique<MirrorLink>(peer, window_bytes_);
            links_.push_back(made.get());
            place = std::move(made);
        };
        for (const auto& [a, b, few] : needs.pairs) {
            if (a == rank_ || b == rank_) link(a == rank_ ? b : a);
        }
        for (int peer = 0; needs.pairs.empty() && peer < ranks; ++peer) link(peer);
        return fabric;
    }

    int rank_;
    TrainLayout layout_;
    size_t window_bytes_ = 0;
    std::vector<MirrorLink*> links_;
    test::FakeHub hub_;
    test::FakeCluster cluster_;
    TrainGroups groups_;
};

TEST(ManyRanks, AStepSendsWhatItsGroupsNeed) {
    constexpr int kUnits = 3;
    constexpr size_t kPart = 40'000;  // values of a unit: 80 KB, several messages
    const std::vector<Shape> shapes =
        test::Nightly() ? std::vector<Shape>{{8, 16, 24}, {1, 1, 3072}, {8, 1, 384}, {8, 384, 1}}
                        : std::vector<Shape>{{4, 4, 6}, {1, 1, 96}};
    for (const Shape& shape : shapes) {
        SCOPED_TRACE(testing::Message() << shape.tp << " " << shape.pp << " " << shape.dp);
        OneOfMany rank(shape);
        const auto others = static_cast<size_t>(shape.dp - 1);
        if (shape.dp == shape.ranks()) {
            EXPECT_EQ(rank.links(), others);
        } else {
            // Its tensor and data groups, two neighboring stages, and a parent in the tree.
            EXPECT_LE(rank.links(), others + static_cast<size_t>(shape.tp - 1) + 4);
        }
        EXPECT_LE(rank.windows_bytes(), std::max<size_t>(512u << 20, rank.links() * (128u << 10)));
        EXPECT_EQ(rank.counted_bytes(), rank.windows_bytes());  // as the memory check counts them
        if (shape.dp == 1) continue;
        const Status stepped = rank.Step(1, kUnits, kPart);
        ASSERT_TRUE(stepped.ok()) << stepped.error().message;
        const uint64_t units = 3 * kUnits * others * 2 * kPart;
        EXPECT_GE(rank.sent_bytes(), units);
        EXPECT_LE(rank.sent_bytes(), units + others * 512 + 1024);
        EXPECT_LE(rank.messages(), 3 * kUnits * others * 20 + 8 * others + 8);
    }
}

TEST(ManyRanks, ALossEndsTheStepAndFewerRanksGoOn) {
    const int dp = test::Nightly() ? 24 : 6, tp = test::Nightly() ? 8 : 4;
    const int pp = test::Nightly() ? 16 : 4;
    OneOfMany rank({tp, pp, dp});
    ASSERT_TRUE(rank.Step(1, 2, 1000).ok());
    const int peer = rank.DataPeer(dp / 2);
    rank.LinkTo(peer).lost = true;
    for (int again = 0; again < 2; ++again) {
        const Status stepped = rank.Step(2, 2, 1000);
        ASSERT_FALSE(stepped.ok());
        EXPECT_EQ(stepped.error().code, ErrorCode::kPeerLost);
        EXPECT_NE(stepped.error().message.find(
                      fmt::format("rank {} (host h, tcp) was lost during all_gather", peer)),
                  std::string::npos)
            << stepped.error().message;
    }
    // A replica fewer.
    OneOfMany next({tp, pp, dp - 1});
    EXPECT_TRUE(next.Step(2, 2, 1000).ok());
}

// Every group of every rank finds its links, and both ends of a pair agree.
TEST(ManyRanks, EachGroupHasItsLinks) {
    for (const Shape& shape : {Shape{4, 4, 6}, {2, 2, 20}, {1, 3, 30}, {3, 30, 1}, {9, 2, 5}}) {
        const int ranks = shape.ranks();
        std::set<std::pair<int, int>> linked;
        const auto has = [&](int a, int b) { return linked.contains(std::minmax(a, b)); };
        for (int rank = 0; rank < ranks; ++rank) {
            const auto layout =
                MakeTrainLayout(ranks, rank, {.tp = shape.tp, .pp = shape.pp, .dp = shape.dp});
            ASSERT_TRUE(layout.ok());
            const cluster::LinkNeeds needs = LinksOf(*layout, ranks);
            ASSERT_FALSE(needs.pairs.empty());
            if (rank == 0) {
                for (const auto& pair : needs.pairs) linked.insert(std::minmax(pair.a, pair.b));
                EXPECT_LT(linked.size(), static_cast<size_t>(ranks) * 20);
            }
            for (const auto& group : {layout->TensorGroup(), layout->DataGroup()}) {
                for (const int peer : group) EXPECT_TRUE(peer == rank || has(peer, rank));
            }
            const int next = (layout->stage + 1) % layout->pp();
            EXPECT_TRUE(has(rank, layout->RankOf(next, layout->replica, layout->tensor_rank)));
            EXPECT_TRUE(rank == 0 || has(rank, rank & (rank - 1)));
        }
    }
    for (const Shape& shape : {Shape{4, 4, 4}, {1, 1, 300}, {128, 1, 1}, {1, 2, 1}, {1, 7, 1}}) {
        const auto layout = MakeTrainLayout(shape.ranks(), 0, {.tp = shape.tp, .pp = shape.pp});
        EXPECT_TRUE(LinksOf(layout.value(), shape.ranks()).pairs.empty());
    }
}

// Hosts with cables to their neighbors only; the control network joins rank 0 with each.
TEST(ManyRanks, AShortPipelineNeedsLinksOfNeighborsAndOfRankZero) {
    for (int ranks = 3; ranks <= 6; ++ranks) {
        const auto layout = MakeTrainLayout(ranks, 0, {.pp = ranks});
        const cluster::LinkNeeds needs = LinksOf(layout.value(), ranks);
        EXPECT_FALSE(needs.pairs.empty() || needs.spare);
        for (const auto& pair : needs.pairs) {
            EXPECT_TRUE(pair.few_bytes ? pair.a == 0 : pair.b == pair.a + 1)
                << ranks << ": " << pair.a << " " << pair.b;
        }
    }
}

}  // namespace
}  // namespace weft::train
