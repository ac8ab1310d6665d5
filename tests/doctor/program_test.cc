// Running other programs: what they print, how they end, and that none is waited for forever.
#include "doctor/program.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "doctor/collect.h"
#include "support/limits.h"
#include "support/process.h"
#include "support/temp_dir.h"

namespace weft::doctor {
namespace {

TEST(DoctorProgram, GivesOutputAndStatus) {
    const auto ran = RunProgram({"sh", "-c", "echo out; echo err >&2; echo $LC_ALL; exit 3"},
                                Deadline::In(20'000));
    ASSERT_TRUE(ran.ok()) << ran.error().message;
    EXPECT_EQ(ran->status, 3);
    EXPECT_EQ(ran->out, "out\nC\n");
    EXPECT_EQ(ran->err, "err\n");
}

TEST(DoctorProgram, MissingOneIsNotFound) {
    const auto ran = RunProgram({"no-such-program-of-weft"}, Deadline::In(20'000));
    ASSERT_FALSE(ran.ok());
    EXPECT_EQ(ran.error().code, ErrorCode::kNotFound);
}

TEST(DoctorProgram, IsKilledWithItsChildrenAtTheDeadline) {
    test::TempDir dir;
    const std::string script = "sleep 60 & echo $! >" + (dir / "pid") + "; wait";
    const int64_t begin = NowNs();
    const auto ran = RunProgram({"sh", "-c", script}, Deadline::In(300));
    ASSERT_FALSE(ran.ok());
    EXPECT_EQ(ran.error().code, ErrorCode::kTimeout);
    EXPECT_LE(NowNs() - begin, test::LimitNs(5000));
    pid_t pid = 0;
    std::ifstream(dir / "pid") >> pid;
    ASSERT_GT(pid, 0);
    for (int i = 0; i < 2000 && !test::IsGone(pid); ++i) ::usleep(1000);
    EXPECT_TRUE(test::IsGone(pid));
}

TEST(DoctorProgram, EndlessOutputIsCut) {
    const auto ran = RunProgram({"yes"}, Deadline::In(20'000), 100'000);
    ASSERT_FALSE(ran.ok());
    EXPECT_EQ(ran.error().code, ErrorCode::kUnsupported);
}

TEST(DoctorCollect, NamesOfHostsAreNoFlags) {
    EXPECT_EQ(SshName("a").value(), "a");
    EXPECT_EQ(SshName("user@host-1.lan:7000").value(), "user@host-1.lan");
    for (const char* name : {"", "-oProxyCommand=x", "a b", "a;b", "a$(b)", ":7000", "a'b"}) {
        const auto refused = SshName(name);
        ASSERT_FALSE(refused.ok()) << name;
        EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
    }
}

}  // namespace
}  // namespace weft::doctor
