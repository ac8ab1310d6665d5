#include "cluster/worker/job_kind.h"

#include <gtest/gtest.h>

#include "support/fake_cluster.h"

namespace weft::cluster {
namespace {

Status Succeed(Cluster&) {
    return {};
}
Status BeStopped(Cluster&) {
    return MakeError(ErrorCode::kCancelled, "stopped by the user");
}
Status RefuseHost(const JoinRequest&) {
    return MakeError(ErrorCode::kOutOfMemory, "too small");
}

constexpr JobKind kGood{"good", "inference", Succeed};
constexpr JobKind kStopped{"stopped", "training", BeStopped, RefuseHost, true, 75};
constexpr const JobKind* kKinds[] = {&kGood, &kStopped};

TEST(JobKind, RunsTheKindThatTheJobNames) {
    test::FakeHub hub(1);
    test::FakeCluster cluster(hub, 0, 1);
    cluster.Become(0, 1, R"({"kind": "good"})");
    EXPECT_TRUE(RunJob(cluster, kKinds).ok());
    cluster.Become(0, 1, R"({"kind": "stopped"})");
    const Status stopped = RunJob(cluster, kKinds);
    ASSERT_FALSE(stopped.ok());
    EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
    EXPECT_EQ(JobStatus(cluster, kKinds, stopped.error()), 75);
    const Error other = MakeError(ErrorCode::kIo, "");
    EXPECT_EQ(JobStatus(cluster, kKinds, other), ExitStatus(ErrorCode::kIo));
}

TEST(JobKind, RefusesUnknownKinds) {
    for (const char* job : {"", "[]", "{}", R"({"kind": "goo"})"}) {
        test::FakeHub hub(1);
        test::FakeCluster cluster(hub, 0, 1);
        cluster.Become(0, 1, job);
        const Status run = RunJob(cluster, kKinds);
        ASSERT_FALSE(run.ok()) << job;
        EXPECT_EQ(run.error().code, ErrorCode::kCorrupt);
        EXPECT_FALSE(ExamineJob({0, 1, job, ""}, kKinds).ok());
    }
}

TEST(JobKind, ExaminesHosts) {
    EXPECT_TRUE(ExamineJob({0, 1, R"({"kind": "good"})", ""}, kKinds).ok());
    const Status refused = ExamineJob({0, 1, R"({"kind": "stopped"})", ""}, kKinds);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
}

}  // namespace
}  // namespace weft::cluster
