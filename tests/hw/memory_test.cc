// Limits of a process's memory and processor time.
#include "hw/memory.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "hw/control_group.h"
#include "hw/cpu.h"
#include "hw/environment.h"
#include "support/temp_dir.h"

namespace weft {
namespace {

class Groups : public testing::Test {
  protected:
    // Writes a file of a group.
    void Put(const std::string& path, const std::string& text) {
        const std::filesystem::path file = dir_ / path;
        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file) << text << "\n";
    }
    std::optional<uint64_t> Left(const std::string& membership) {
        Put("membership", membership);
        const auto group = ControlGroupLeft(dir_ / "groups", dir_ / "membership");
        path_ = group ? group->path : "";
        return group ? std::optional(group->left_bytes) : std::nullopt;
    }
    test::TempDir dir_;
    std::string path_;  // of the group
};

TEST_F(Groups, TheLowestLimitOfAllParentsCounts) {
    Put("groups/memory.max", "9000");
    Put("groups/memory.current", "1000");
    Put("groups/job/memory.max", "5000");
    Put("groups/job/memory.current", "700");
    Put("groups/job/memory.stat", "anon 300\ninactive_file 400\nactive_file 5");
    Put("groups/job/step/memory.max", "max");
    Put("groups/job/step/memory.current", "600");
    EXPECT_EQ(Left("0::/job/step"), 4700u);
    EXPECT_EQ(path_, "/job");
    EXPECT_EQ(Left("0::/job"), 4700u);
    EXPECT_EQ(Left("0::/"), 8000u);
    EXPECT_EQ(Left("0::/another"), 8000u);
}

TEST_F(Groups, CgroupVersion1) {
    Put("groups/memory/slurm/memory.limit_in_bytes", "2000");
    Put("groups/memory/slurm/memory.usage_in_bytes", "2500");
    Put("groups/memory/slurm/memory.stat", "cache 900\ntotal_inactive_file 900");
    EXPECT_EQ(Left("7:cpu,cpuacct:/\n4:memory:/slurm\n0::/"), 400u);
    Put("groups/memory/slurm/memory.stat", "total_inactive_file 0");
    EXPECT_EQ(Left("4:hugetlb,memory:/slurm"), 0u) << "more is used than allowed";
    EXPECT_FALSE(Left("4:memoryless:/slurm"));
    Put("groups/memory/slurm/memory.limit_in_bytes", "9223372036854771712");
    EXPECT_FALSE(Left("4:memory:/slurm"));
}

TEST_F(Groups, TheLeastQuotaOfAllParentsCounts) {
    const auto quota = [&](const std::string& membership) {
        Put("membership", membership);
        return CpuQuota(dir_ / "groups", dir_ / "membership");
    };
    Put("groups/cpu.max", "max 100000");
    Put("groups/pod/cpu.max", "250000 100000");
    Put("groups/pod/own/cpu.max", "400000 100000");
    EXPECT_EQ(quota("0::/pod/own"), 2.5);
    EXPECT_EQ(quota("0::/pod"), 2.5);
    EXPECT_EQ(quota("0::/"), std::nullopt);
    EXPECT_EQ(quota("0::/other"), std::nullopt);
    for (const char* bad : {"", "max", "0 100000", "100000", "-5 100000", "9 0", "what is this"}) {
        Put("groups/pod/cpu.max", bad);
        EXPECT_EQ(quota("0::/pod"), std::nullopt) << bad;
    }
    Put("groups/cpu/docker/cpu.cfs_quota_us", "50000");
    Put("groups/cpu/docker/cpu.cfs_period_us", "100000");
    EXPECT_EQ(quota("3:cpuset:/\n4:cpu,cpuacct:/docker\n0::/"), 0.5);
    Put("groups/cpu/docker/cpu.cfs_quota_us", "-1");
    EXPECT_EQ(quota("4:cpu,cpuacct:/docker"), std::nullopt);
}

TEST_F(Groups, MissingFilesMeanNoLimit) {
    EXPECT_FALSE(CpuQuota(dir_ / "none", dir_ / "neither"));
    EXPECT_FALSE(ControlGroupLeft(dir_ / "none", dir_ / "neither"));
    EXPECT_FALSE(Left("what\n::\n0:"));
}

// As amdgpu reports it: an APU next to a card that is not an APU.
TEST_F(Groups, FindsMemoryReservedByFirmware) {
    Put("drm/card1/device/vendor", "0x1002");
    Put("drm/card1/device/device", "0x744c");
    Put("drm/card1/device/mem_info_vram_total", "25753026560");
    Put("drm/card1/device/mem_info_vram_used", "1");
    Put("drm/card2/device/vendor", "0x1002");
    Put("drm/card2/device/device", "0x1586");
    Put("drm/card2/device/mem_info_vram_total", "536870912");
    Put("drm/card2/device/mem_info_vram_used", "134217728");
    Put("drm/card2-DP-1/status", "disconnected");
    Put("drm/card3/device/vendor", "0x8086");
    Put("drm/card3/device/device", "0x7d51");
    EXPECT_EQ(SetApartBytes(dir_ / "drm", 0x1002, 0x1586), 402653184u);
    EXPECT_FALSE(SetApartBytes(dir_ / "drm", 0x8086, 0x7d51));
    EXPECT_FALSE(SetApartBytes(dir_ / "drm", 0x1002, 0x1111));
    EXPECT_FALSE(SetApartBytes(dir_ / "none", 0x1002, 0x1586));
}

TEST(Memory, EnvironmentLowersTheAvailableMemory) {
    const uint64_t all = AvailableMemoryBytes();
    EXPECT_GT(all, uint64_t{64} << 20);
    ::setenv("WEFT_MEMORY_MIB", "17", 1);
    EXPECT_EQ(AvailableMemoryBytes(), uint64_t{17} << 20);
    ::unsetenv("WEFT_MEMORY_MIB");
}

TEST(Environment, InvalidValuesAreErrors) {
    struct Case {
        const char* name;
        const char* value;
        bool good;
    };
    const Case cases[] = {
        {"WEFT_MEMORY_MIB", "17", true},
        {"WEFT_MEMORY_MIB", "", true},
        {"WEFT_MEMORY_MIB", "abc", false},
        {"WEFT_MEMORY_MIB", "17G", false},
        {"WEFT_MEMORY_MIB", "-5", false},
        {"WEFT_MEMORY_MIB", " 17", false},
        {"WEFT_MEMORY_MIB", "0", false},
        {"WEFT_MEMORY_MIB", "1e4", false},
        {"WEFT_MEMORY_MIB", "99999999999999999999", false},
        {"WEFT_CPU", "avx2", true},
        {"WEFT_CPU", "AVX2", false},
        {"WEFT_CPU", "avx1024", false},
        {"WEFT_LOG", "debug", true},
        {"WEFT_LOG", "verbose", false},
        {"WEFT_LOG_FORMAT", "json", true},
        {"WEFT_LOG_FORMAT", "text", true},
        {"WEFT_LOG_FORMAT", "xml", false},
    };
    for (const Case& each : cases) {
        const char* set = ::getenv(each.name);
        const std::string before = set == nullptr ? "" : set;
        ::setenv(each.name, each.value, 1);
        const Status status = CheckEnvironment();
        if (set == nullptr) {
            ::unsetenv(each.name);
        } else {
            ::setenv(each.name, before.c_str(), 1);
        }
        EXPECT_EQ(status.ok(), each.good) << each.name << "=" << each.value;
        if (status.ok()) continue;
        EXPECT_EQ(status.error().code, ErrorCode::kUsage);
        EXPECT_NE(status.error().message.find(std::string(each.name) + "=" + each.value),
                  std::string::npos)
            << status.error().message;
    }
}

}  // namespace
}  // namespace weft
