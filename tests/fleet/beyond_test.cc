// Hosts that only neighbors know, asked from a worker on loopback.
#include "fleet/beyond.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdlib>

#include "base/file.h"
#include "cluster/join/handshake.h"
#include "support/process.h"
#include "support/temp_dir.h"

namespace weft::fleet {
namespace {

// If more hosts are known than are asked at once, all are asked, so the last one's is found.
TEST(Beyond, AsksHoweverManyHostsAreKnown) {
    test::TempDir folder;
    const std::string key_file = folder / "key";
    const std::string_view text = "a-shared-key-of-the-tests";
    ASSERT_TRUE(WriteFile(key_file, std::as_bytes(std::span(text))).ok());
    ::chmod(key_file.c_str(), 0600);
    test::Process worker(
        {CLUSTER_RANK, "listen", "127.0.0.1:0", key_file, "neighbor=far@127.0.0.1:1"});
    ASSERT_TRUE(worker.ReadUntil("listening on port ", Deadline::In(20'000)));
    ASSERT_TRUE(worker.ReadUntil("\n", Deadline::In(20'000)));
    const std::string address =
        fmt::format("127.0.0.1:{}", std::atoi(worker.output().c_str() + 18));
    const Bytes key = cluster::ReadKeyFile(key_file).value();
    for (const size_t count : {1, 33, 70}) {
        std::vector<FoundHost> known;
        for (size_t i = 0; i < count; ++i) known.push_back({fmt::format("h{}", i), address});
        const Reach reach = ReachBeyond(known, "self", key, Deadline::In(20'000));
        ASSERT_EQ(reach.hosts.size(), 1U) << count;
        EXPECT_EQ(reach.hosts[0].name, "far");
        EXPECT_EQ(reach.hosts[0].address, address + ">far");
        EXPECT_TRUE(reach.cables.contains({"self", fmt::format("h{}", count - 1)}));
    }
    worker.Signal(SIGTERM);
    EXPECT_EQ(worker.Wait(Deadline::In(20'000)), 0) << worker.output();
}

}  // namespace
}  // namespace weft::fleet
