// Sums and broadcasts along a tree: groups that lack all other links, of any size, from any root,
// with values of several messages.
#include "coll/tree.h"

#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <numeric>

#include "coll/comm.h"
#include "support/ranks.h"

namespace weft::coll {
namespace {

constexpr size_t kTreeWindow = size_t{16} << 10;  // messages of about 2 KiB
const net::OpTag kTreeTag{"tree", 1, 2};

// Links between the tree's neighbors only.
std::vector<net::Fabric> TreeFabrics(int ranks) {
    auto fabrics = net::MakeLocalFabrics(ranks, net::Transport::kShm, kTreeWindow).value();
    for (net::Fabric& fabric : fabrics) {
        for (size_t peer = 0; peer < fabric.links.size(); ++peer) {
            const bool joined = AreTreeNeighbors(peer, static_cast<size_t>(fabric.rank));
            if (!joined) fabric.links[peer].reset();
        }
    }
    return fabrics;
}

std::unique_ptr<Comm> TreeOf(net::Fabric& fabric) {
    std::vector<int> ranks(static_cast<size_t>(fabric.size));
    std::iota(ranks.begin(), ranks.end(), 0);
    return Comm::Make(fabric, ranks, {.window_bytes = kTreeWindow}, 20'000, Paths::kTree).value();
}

// An addend for which each order of additions has its own rounding.
float TreeAddend(size_t rank, size_t i) {
    return 1.0f / static_cast<float>(rank * 7 + i % 11 + 1);
}

// The sum of a member and the members below it, as the contract states it.
float SumBelow(size_t member, size_t members, size_t i) {
    float sum = TreeAddend(member, i);
    const size_t below = member == 0 ? std::bit_ceil(members) : member & (~member + 1);
    for (size_t bit = 1; bit < below; bit *= 2) {
        if (member + bit < members) sum += SumBelow(member + bit, members, i);
    }
    return sum;
}

TEST(Tree, SumsHaveTheStatedOrderOnEveryRank) {
    for (const int ranks : {1, 2, 3, 5, 8, 9, 12}) {
        auto fabrics = TreeFabrics(ranks);
        const auto members = static_cast<size_t>(ranks);
        test::OnThreads(fabrics, [&](net::Fabric& fabric) {
            const auto comm = TreeOf(fabric);
            for (const size_t count : {0, 1, 2, 600, 5001}) {
                std::vector<float> data(count);
                std::vector<double> doubles(count, 1.0);
                for (size_t i = 0; i < count; ++i) {
                    data[i] = TreeAddend(static_cast<size_t>(fabric.rank), i);
                }
                ASSERT_TRUE(comm->AllReduce(std::span(data), kTreeTag).ok());
                ASSERT_TRUE(comm->AllReduce(std::span(doubles), kTreeTag).ok());
                size_t wrong = 0;
                for (size_t i = 0; i < count; ++i) {
                    wrong += !(data[i] == SumBelow(0, members, i)) || !(doubles[i] == ranks);
                }
                EXPECT_EQ(wrong, 0u) << count << " values on " << ranks << " ranks";
            }
        });
    }
}

TEST(Tree, EachRankIsARoot) {
    for (const int ranks : {2, 3, 7, 8, 11}) {
        auto fabrics = TreeFabrics(ranks);
        test::OnThreads(fabrics, [&](net::Fabric& fabric) {
            const auto comm = TreeOf(fabric);
            for (int root = 0; root < ranks; ++root) {
                for (const size_t bytes : {0, 1, 7000}) {
                    const auto mark = static_cast<std::byte>(root + 1);
                    const bool own = fabric.rank == root;
                    std::vector<std::byte> data(bytes, own ? mark : std::byte{});
                    ASSERT_TRUE(comm->Broadcast(data, root, kTreeTag).ok());
                    EXPECT_EQ(data, std::vector<std::byte>(bytes, mark));
                }
            }
        });
    }
}

TEST(Tree, EachMemberIsJoinedToTheFirst) {
    for (const int members : {1, 2, 64, 100, 3072}) {
        std::vector<int> links(static_cast<size_t>(members));
        for (const auto& [parent, child] : TreePairs(members)) {
            EXPECT_LT(parent, child);
            EXPECT_TRUE(AreTreeNeighbors(static_cast<size_t>(child), static_cast<size_t>(parent)));
            ++links[static_cast<size_t>(parent)], ++links[static_cast<size_t>(child)];
        }
        const auto most = std::bit_width(static_cast<size_t>(members));
        for (const int count : links) EXPECT_LE(count, most);
    }
}

}  // namespace
}  // namespace weft::coll
