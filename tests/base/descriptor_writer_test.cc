// Text for a descriptor whose reader stops, resumes, disappears or is shared.
#include "base/descriptor_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>
#include <vector>

#include "base/deadline.h"

namespace weft {
namespace {

constexpr int64_t kPatienceMs = 60'000;

std::string Dropped(uint64_t count) {
    return fmt::format("dropped {}\n", count);
}

// A pipe of one page. Writers outlive their tests, as their threads do.
struct Pipe {
    Pipe() {
        EXPECT_EQ(::pipe2(fds, O_CLOEXEC), 0);
        EXPECT_GE(::fcntl(fds[1], F_SETPIPE_SZ, 4096), 4096);
    }
    // Reads until the text ends with `end`.
    std::string ReadUntil(std::string_view end) {
        std::string text;
        const Deadline deadline = Deadline::In(kPatienceMs);
        while (!text.ends_with(end) && !deadline.expired()) {
            pollfd entry{fds[0], POLLIN, 0};
            if (::poll(&entry, 1, static_cast<int>(deadline.left_ms())) <= 0) break;
            char buffer[65536];
            const ssize_t got = ::read(fds[0], buffer, sizeof buffer);
            if (got <= 0) break;
            text.append(buffer, static_cast<size_t>(got));
        }
        EXPECT_TRUE(text.ends_with(end)) << text.substr(text.size() - std::min(text.size(), 300ul));
        return text;
    }
    int fds[2] = {-1, -1};
};

DescriptorWriter& WriterOf(const Pipe& pipe) {
    static std::vector<DescriptorWriter*> writers;  // (still reachable: not a leak)
    writers.push_back(new DescriptorWriter(pipe.fds[1], Dropped));
    return *writers.back();
}

TEST(DescriptorWriter, PreservesOrder) {
    Pipe pipe;
    DescriptorWriter& writer = WriterOf(pipe);
    std::string expected;
    for (int i = 0; i < 2000; ++i) {
        const std::string line = fmt::format("line {}\n", i);
        expected += line;
        i % 3 == 0 ? writer.Write(line) : writer.Post(line);
    }
    writer.Post("");
    EXPECT_EQ(pipe.ReadUntil("line 1999\n"), expected);
    EXPECT_TRUE(writer.Flush(kPatienceMs));
    EXPECT_EQ(writer.error(), 0);
}

TEST(DescriptorWriter, WriteCompletesBeforeItReturns) {
    Pipe pipe;
    DescriptorWriter& writer = WriterOf(pipe);
    int there = 0;
    for (int i = 0; i < 20; ++i) {  // (on a busy machine, some writes may exceed the patience)
        writer.Write("x");
        pollfd entry{pipe.fds[0], POLLIN, 0};
        there += ::poll(&entry, 1, 0);
        pipe.ReadUntil("x");
    }
    EXPECT_GT(there, 0);
}

// Threads continue however long the reader stops, and the reader is told how much it missed.
TEST(DescriptorWriter, StoppedReaderBlocksNoThreadAndGetsADropNotice) {
    Pipe pipe;
    DescriptorWriter& writer = WriterOf(pipe);
    const std::string line = std::string(999, 'a') + "\n";
    constexpr int kThreads = 4, kLines = 1000;  // four times the queue's capacity
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
        threads.emplace_back([&] {
            for (int k = 0; k < kLines; ++k) writer.Write(line);
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_FALSE(writer.Flush(1));
    writer.Post("last words\n", DescriptorWriter::Priority::kUrgent);
    const std::string text = pipe.ReadUntil("last words\n");
    const size_t kept = text.find("dropped ") / line.size();
    EXPECT_GE(kept, DescriptorWriter::kMostBytes / line.size() - 1);
    EXPECT_LE(kept, DescriptorWriter::kMostBytes / line.size() + 5);
    EXPECT_EQ(text.substr(kept * line.size()),
              fmt::format("dropped {}\nlast words\n", kThreads * kLines - kept));
    EXPECT_TRUE(writer.Flush(kPatienceMs));
    writer.Write("again\n");
    EXPECT_EQ(pipe.ReadUntil("again\n"), "again\n") << "a notice is written once";
}

TEST(DescriptorWriter, DropNoticeNeedsNoFurtherLine) {
    Pipe pipe;
    DescriptorWriter& writer = WriterOf(pipe);
    const std::string most(DescriptorWriter::kMostBytes, 'a');
    writer.Post(most);
    writer.Post("lost");
    writer.Post("lost");
    EXPECT_EQ(pipe.ReadUntil("dropped 2\n"), most + "dropped 2\n");
}

TEST(DescriptorWriter, TextAboveTheLimitIsWrittenAlone) {
    Pipe pipe;
    DescriptorWriter& writer = WriterOf(pipe);
    const std::string large(3 * DescriptorWriter::kMostBytes, 'a');
    writer.Post(large + "\n");
    EXPECT_EQ(pipe.ReadUntil("\n"), large + "\n");
}

TEST(DescriptorWriter, WaitsForANonBlockingDescriptor) {
    Pipe pipe;
    ASSERT_EQ(::fcntl(pipe.fds[1], F_SETFL, O_NONBLOCK), 0);
    DescriptorWriter& writer = WriterOf(pipe);
    const std::string text(20'000, 'a');
    writer.Post(text + "\n");
    EXPECT_EQ(pipe.ReadUntil("\n"), text + "\n");
    EXPECT_EQ(writer.error(), 0);
}

TEST(DescriptorWriter, KeepsTheFirstErrorAndContinues) {
    ::signal(SIGPIPE, SIG_IGN);
    Pipe pipe;
    DescriptorWriter& writer = WriterOf(pipe);
    ::close(pipe.fds[0]);
    for (int i = 0; i < 3; ++i) writer.Write("gone\n");
    EXPECT_TRUE(writer.Flush(kPatienceMs));
    EXPECT_EQ(writer.error(), EPIPE);
}

// A child without the thread, with a queue that the parent must write.
TEST(DescriptorWriter, AForkedChildWritesToo) {
    Pipe pipe;
    DescriptorWriter& writer = WriterOf(pipe);
    const std::string most(3 * 4096, 'a');
    writer.Post(most);  // more than the pipe holds: the parent's thread is in the middle of it
    Pipe of_child;
    const pid_t child = ::fork();
    if (child == 0) {
        ::dup2(of_child.fds[1], pipe.fds[1]);
        writer.Write("child\n");
        const bool flushed = writer.Flush(1000);
        ::_exit(flushed ? 0 : 1);
    }
    EXPECT_EQ(of_child.ReadUntil("child\n"), "child\n");
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    writer.Post("parent\n");
    EXPECT_EQ(pipe.ReadUntil("parent\n"), most + "parent\n");
}

}  // namespace
}  // namespace weft
