// A group reports that its sums leave the CPU idle if it has several hosts and a slow wire.
#include <gtest/gtest.h>

#include "coll/comm.h"
#include "support/ranks.h"

namespace weft::coll {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

Tuning Measured(double us_for_a_mebibyte) {
    Tuning tuning = Tuning::BuiltIn({.ranks = 2, .hosts = 2, .over_tcp = true});
    const TuningRow row{kMiB, {Algorithm::kOneShot, WireType::kFull}, us_for_a_mebibyte};
    EXPECT_TRUE(tuning.Set(Collective::kAllReduce, {row}).ok());
    return tuning;
}

TEST(LeavesCpuIdle, WhereTheWireIsSlowOrUnknown) {
    for (net::Transport transport : {net::Transport::kShm, net::Transport::kTcp}) {
        const bool tcp = transport == net::Transport::kTcp;
        auto fabrics = net::MakeLocalFabrics(3, transport, kMiB).value();
        test::OnThreads(fabrics, [&](net::Fabric& fabric) {
            auto comm = Comm::Make(fabric, {0, 1, 2}, {0, kMiB, 0, 4}, 10'000).value();
            std::vector<float> data(10);
            // In the first sum, the three ranks learn which of them share a host.
            ASSERT_TRUE(comm->AllReduce(data, {"all_reduce", 1, 1}).ok());
            EXPECT_EQ(comm->LeavesCpuIdle(kMiB), tcp);
            comm->SetTuning(Measured(8400));  // 1 Gbit/s
            EXPECT_EQ(comm->LeavesCpuIdle(kMiB), tcp);
            EXPECT_EQ(comm->LeavesCpuIdle(16 * kMiB), tcp);
            comm->SetTuning(Measured(200));  // loopback
            EXPECT_FALSE(comm->LeavesCpuIdle(kMiB));
            EXPECT_FALSE(comm->LeavesCpuIdle(16 * kMiB));
        });
    }
}

}  // namespace
}  // namespace weft::coll
