// The choice of ops that the host's processor runs beside a GPU.
#include "engine/rank/host_ops.h"

#include <gtest/gtest.h>

namespace weft::engine {
namespace {

TEST(HostOps, OfExpertsOnTheDriveAreTheHosts) {
    Job job;
    job.weights_on_drive = true;
    model::Hyper hyper;
    hyper.layers = 4;
    hyper.moe.experts = 8;
    EXPECT_EQ(HostOpsOf(job, hyper).value().expert_layers, program::HostOps::kAllLayers);
    job.experts = "gpu";
    EXPECT_FALSE(HostOpsOf(job, hyper).value().any());
    job.experts = "cpu:2";
    EXPECT_EQ(HostOpsOf(job, hyper).value().expert_layers, 2);
    job.experts = "";
    hyper.moe.experts = 0;
    EXPECT_FALSE(HostOpsOf(job, hyper).value().any());
}

}  // namespace
}  // namespace weft::engine
