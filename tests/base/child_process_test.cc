// Child processes: output, exit status, and an end at the deadline.
#include "base/child_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "support/limits.h"
#include "support/process.h"
#include "support/temp_dir.h"
#include "support/wait.h"

namespace weft {
namespace {

TEST(ChildProcess, GivesOutputAndStatus) {
    ChildOptions options;
    options.c_locale = true;
    const auto ran = RunChild({"sh", "-c", "echo out; echo err >&2; echo $LC_ALL; exit 3"},
                              Deadline::In(20'000), options);
    ASSERT_TRUE(ran.ok()) << ran.error().message;
    EXPECT_EQ(ran->status, 3);
    EXPECT_EQ(ran->out, "out\nC\n");
    EXPECT_EQ(ran->err, "err\n");
}

TEST(ChildProcess, MissingOneIsNotFound) {
    const auto ran = RunChild({"no-such-program-of-weft"}, Deadline::In(20'000));
    ASSERT_FALSE(ran.ok());
    EXPECT_EQ(ran.error().code, ErrorCode::kNotFound);
}

TEST(ChildProcess, IsKilledWithItsChildrenAtTheDeadline) {
    test::TempDir dir;
    const std::string script = "sleep infinity & echo $! >" + (dir / "pid") + "; wait";
    const int64_t begin = NowNs();
    const auto ran = RunChild({"sh", "-c", script}, Deadline::In(300));
    ASSERT_FALSE(ran.ok());
    EXPECT_EQ(ran.error().code, ErrorCode::kTimeout);
    EXPECT_LE(NowNs() - begin, test::LimitNs(5000));
    pid_t pid = 0;
    std::ifstream(dir / "pid") >> pid;
    ASSERT_GT(pid, 0);
    EXPECT_TRUE(test::Until([&] { return test::IsGone(pid); }));
}

TEST(ChildProcess, EndlessOutputIsCut) {
    ChildOptions options;
    options.max_output_bytes = 100'000;
    const auto ran = RunChild({"yes"}, Deadline::In(20'000), options);
    ASSERT_FALSE(ran.ok());
    EXPECT_EQ(ran.error().code, ErrorCode::kUnsupported);
}

TEST(ChildProcess, ReadsItsInput) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    ASSERT_EQ(::write(ends[1], "abc", 3), 3);
    ::close(ends[1]);
    ChildOptions options;
    options.input = ends[0];
    const auto ran = RunChild({"cat"}, Deadline::In(20'000), options);
    ::close(ends[0]);
    ASSERT_TRUE(ran.ok()) << ran.error().message;
    EXPECT_EQ(ran->out, "abc");
}

// ssh may leave a process that holds its standard error.
TEST(ChildProcess, DoesNotWaitForChildrenOfTheChild) {
    const auto ran = RunChild({"sh", "-c", "sleep infinity & echo $!"}, Deadline::In(30'000));
    ASSERT_TRUE(ran.ok()) << ran.error().message;
    const pid_t left = std::stoi(ran->out);
    EXPECT_FALSE(test::IsGone(left));
    ::kill(left, SIGKILL);
}

}  // namespace
}  // namespace weft
