// The work of a process before ops run: it grows while another thread reads or computes, and stays
// the same while all threads wait.
#include "train/process_work.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <thread>

#include "support/temp_dir.h"
#include "support/wait.h"

namespace weft::train {
namespace {

TEST(ProcessWork, GrowsWithWhatOtherThreadsRead) {
    const test::TempDir folder;
    const std::string path = folder.path() + "/data";
    std::ofstream(path) << std::string(1 << 20, 'x');
    const int64_t before = ProcessWork();
    std::jthread([&] {
        std::string text(1 << 20, '\0');
        std::ifstream(path).read(text.data(), static_cast<std::streamsize>(text.size()));
    }).join();
    EXPECT_GE(ProcessWork(), before + 15);
}

// Querying the count, as often as the heartbeats of many hours, counts as no work.
TEST(ProcessWork, StaysWhileAllWait) {
    const int64_t before = ProcessWork();
    for (int i = 0; i < 2000; ++i) ProcessWork();
    EXPECT_LE(ProcessWork(), before + 1);
}

}  // namespace
}  // namespace weft::train
