// Memory is counted per machine and pool: the ranks' needs on one GPU do not count for another GPU,
// nor for host memory.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "cluster/cluster_impl.h"
#include "cluster/worker/memory_check.h"
#include "net/offer.h"
#include "support/fake_cluster.h"

namespace weft::cluster {
namespace {

constexpr uint64_t kMebibyte = 1 << 20;

struct RankNeeds {
    std::string machine;
    std::vector<MemoryNeed> needs;
};

// Result of the check, equal on all ranks; "": all fits.
std::string Check(const std::vector<RankNeeds>& ranks) {
    const int size = static_cast<int>(ranks.size());
    test::FakeHub hub(size);
    std::vector<std::string> words(ranks.size());
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
        threads.emplace_back([&, rank] {
            const auto at = static_cast<size_t>(rank);
            test::FakeCluster cluster(hub, rank, size);
            for (int r = 0; r < size; ++r) {
                cluster.SetBoot(r, ranks[static_cast<size_t>(r)].machine);
            }
            const Status status =
                CheckMemory(cluster, ranks[at].needs, "m.gguf", "weights", "Use more hosts.");
            if (status.ok()) return;
            EXPECT_EQ(status.error().code, ErrorCode::kOutOfMemory);
            words[at] = status.error().message;
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& said : words) EXPECT_EQ(said, words[0]);
    return words[0];
}

RankNeeds OnGpu(const std::string& machine, const std::string& gpu, uint64_t gpu_mib,
                uint64_t host_mib = 10) {
    return {
        machine,
        {{"", host_mib * kMebibyte, 100 * kMebibyte}, {gpu, gpu_mib * kMebibyte, 100 * kMebibyte}}};
}

TEST(Memory, TwoGpusOfAHostAreTwoPools) {
    const auto both = [](uint64_t first, uint64_t second) {
        return Check({OnGpu("x", "vulkan:0", first), OnGpu("x", "vulkan:0", first),
                      OnGpu("x", "vulkan:1", second), OnGpu("x", "vulkan:1", second)});
    };
    EXPECT_EQ(both(50, 50), "");  // exactly
    EXPECT_EQ(both(60, 40),
              "m.gguf does not fit into vulkan:0 of a: rank 0: 60 MiB + rank 1: 60 MiB = 120 MiB "
              "(weights), but 100 MiB are free. Use more hosts.");
    EXPECT_EQ(both(40, 60),
              "m.gguf does not fit into vulkan:1 of c: rank 2: 60 MiB + rank 3: 60 MiB = 120 MiB "
              "(weights), but 100 MiB are free. Use more hosts.");
}

TEST(Memory, TheHostsOwnIsThatOfAllItsRanks) {
    const auto host = [](uint64_t mib) {
        return Check({OnGpu("x", "vulkan:0", 1, mib),
                      OnGpu("x", "vulkan:1", 1, mib),
                      {"x", {{"", mib * kMebibyte, 100 * kMebibyte}}}});
    };
    EXPECT_EQ(host(33), "");
    EXPECT_EQ(host(34),
              "m.gguf does not fit into the memory of a: rank 0: 34 MiB + rank 1: 34 MiB + rank 2: "
              "34 MiB = 102 MiB (weights), but 100 MiB are free. Use more hosts.");
}

TEST(Memory, AGpuOfAnotherHostHasTheSameName) {
    EXPECT_EQ(Check({OnGpu("x", "vulkan:0", 60), OnGpu("y", "vulkan:0", 60)}), "");
    EXPECT_EQ(Check({OnGpu("x", "vulkan:0", 60), OnGpu("y", "vulkan:0", 101)}),
              "m.gguf does not fit into vulkan:0 of b: rank 1: 101 MiB = 101 MiB (weights), but "
              "100 MiB are free. Use more hosts.");
}

// Pods on one kernel have the limits of their groups, and ranks of one pod share its limit. All
// have no more than the machine.
TEST(Memory, PodsOfAKernelHaveTheirOwnLimits) {
    const auto on = [](const char* kernel, const char* group, uint64_t bytes, uint64_t total) {
        return HostInfo{"a", kernel, {0}, bytes, group, total};
    };
    EXPECT_EQ(MemoryOf({}), 0u);
    const HostInfo pods[] = {on("x", "/1", 32, 128), on("x", "/2", 32, 128), on("x", "/3", 24, 128),
                             on("x", "/3", 30, 128)};
    EXPECT_EQ(MemoryOf(pods), 94u);
    const HostInfo hosts[] = {on("x", "", 32, 64), on("x", "", 30, 64), on("y", "", 8, 64)};
    EXPECT_EQ(MemoryOf(hosts), 40u);
    const HostInfo large[] = {on("x", "/1", 90, 128), on("x", "/2", 90, 128)};
    EXPECT_EQ(MemoryOf(large), 128u);
    const HostInfo beside[] = {on("x", "", 100, 128), on("x", "/2", 50, 128)};
    EXPECT_EQ(MemoryOf(beside), 100u);
}

// Hosts whose sandbox hides the boot id do not count as one machine.
TEST(Memory, AHostWithoutABootIdHasItsName) {
    constexpr int kNotAllowed = 77;
    const pid_t child = ::fork();
    if (child == 0) {
        const bool hidden =
            ::unshare(CLONE_NEWNS) == 0 &&
            ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
            ::mount("/dev/null", "/proc/sys/kernel/random/boot_id", nullptr, MS_BIND, nullptr) == 0;
        ::_exit(!hidden ? kNotAllowed : ThisHost({0}).boot_id == SystemHostName() ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status));
    if (WEXITSTATUS(status) == kNotAllowed) GTEST_SKIP() << "needs leave to make namespaces (root)";
    EXPECT_EQ(WEXITSTATUS(status), 0);
    EXPECT_EQ(ThisHost({0}).boot_id, net::BootId());
}

TEST(Memory, AByteTooMuchIsTooMuchAndTheUnknownIsLeft) {
    EXPECT_EQ(Check({{"x", {{"", 100 * kMebibyte, 100 * kMebibyte}}}}), "");
    EXPECT_NE(Check({{"x", {{"", 100 * kMebibyte + 1, 100 * kMebibyte}}}}), "");
    EXPECT_EQ(Check({{"x", {{"", 100 * kMebibyte, 0}}}}), "");
    EXPECT_EQ(Check({{"x", {}}, {"x", {}}}), "");
    // More than any 64-bit sum: ~0 + 1 is 0, which would fit.
    EXPECT_NE(Check({{"x", {{"", ~uint64_t{0}, kMebibyte}}}, {"x", {{"", 1, kMebibyte}}}}), "");
}

}  // namespace
}  // namespace weft::cluster
