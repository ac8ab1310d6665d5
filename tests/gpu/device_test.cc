// A device, lavapipe or another (support/lavapipe.h): memory, kernels, submissions, timestamps, and
// refused calls.
#include "gpu/device.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <thread>
#include <vector>

#include "base/file.h"
#include "gpu/gpu_case.h"
#include "gpu/vulkan/features.h"
#include "gpu/vulkan/small_halves.h"
#include "support/lavapipe.h"
#include "support/temp_dir.h"
#include "support/wait.h"
#include "tensor/half.h"

namespace weft::gpu {
namespace {

using test::Args;
using test::ScaleArgs;

// If ctest did not set the driver's variables, tests on Vulkan would be skipped as on a machine
// without a driver.
TEST(Lavapipe, CtestSetsItsPath) {
    if (std::getenv("WEFT_DEVICE") == nullptr) GTEST_SKIP() << "started without ctest";
    EXPECT_NE(std::getenv("WEFT_LAVAPIPE"), nullptr);
}

TEST(GpuDevice, ListDescribesTheDevices) {
    WEFT_LAVAPIPE_OR_SKIP(device);
    const Description& described = device->description();
    EXPECT_FALSE(described.name.empty());
    EXPECT_FALSE(described.driver.empty());
    EXPECT_TRUE(described.unusable.empty()) << described.unusable;
    if (described.kind == Kind::kCpu) {
        EXPECT_NE(described.driver.find("Mesa"), std::string::npos) << described.driver;
        EXPECT_TRUE(described.unified);
    } else {
        EXPECT_TRUE(std::getenv("WEFT_TEST_GPU") != nullptr || described.api != Api::kVulkan)
            << described.name;
    }
    EXPECT_GE(described.subgroup, 4u);
    EXPECT_LE(described.least_subgroup, described.subgroup);
    EXPECT_GE(described.most_subgroup, described.subgroup);
    EXPECT_GE(described.shared_bytes, 16u << 10);
    EXPECT_GE(described.most_invocations, 128u);
    ASSERT_FALSE(described.heaps.empty());
    for (const Heap& heap : device->heaps()) EXPECT_LE(heap.free_bytes, heap.total_bytes);
    EXPECT_TRUE(std::ranges::any_of(described.heaps, &Heap::for_kernels));
    EXPECT_GE(device->most_buffer_bytes(), 1u << 30);
}

// ---- Sizes of matrix units ----------------------------------------------------------------------

// The sizes that the driver reports, also of other types of elements.
std::vector<VkCooperativeMatrixPropertiesKHR> g_matrices;

VKAPI_ATTR VkResult VKAPI_CALL ListMatrices(VkPhysicalDevice, uint32_t* count,
                                            VkCooperativeMatrixPropertiesKHR* out) {
    if (out != nullptr) std::copy_n(g_matrices.begin(), *count, out);
    *count = static_cast<uint32_t>(g_matrices.size());
    return VK_SUCCESS;
}
VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL FindListMatrices(VkInstance, const char*) {
    return reinterpret_cast<PFN_vkVoidFunction>(ListMatrices);
}

VkCooperativeMatrixPropertiesKHR Matrices(uint32_t m, uint32_t n, uint32_t k) {
    VkCooperativeMatrixPropertiesKHR one{};
    one.MSize = m, one.NSize = n, one.KSize = k;
    one.AType = one.BType = VK_COMPONENT_TYPE_FLOAT16_KHR;
    one.CType = one.ResultType = VK_COMPONENT_TYPE_FLOAT32_KHR;
    one.scope = VK_SCOPE_SUBGROUP_KHR;
    return one;
}

TEST(GpuFeatures, TheLargestMatrixUnitIsChosen) {
    Calls calls;
    calls.GetInstanceProcAddr = FindListMatrices;
    const auto found = [&](std::vector<VkCooperativeMatrixPropertiesKHR> all) {
        g_matrices = std::move(all);
        const auto unit = FindMatrixUnit(calls, VK_NULL_HANDLE, VK_NULL_HANDLE);
        return unit.ok() ? *unit : MatrixUnit{1, 1, 1};
    };
    EXPECT_EQ(found({}), MatrixUnit{});
    EXPECT_EQ(found({Matrices(16, 8, 8), Matrices(8, 8, 16), Matrices(32, 32, 16)}), MatrixUnit{});
    EXPECT_EQ(found({Matrices(8, 8, 8), Matrices(16, 16, 16)}), (MatrixUnit{16, 16, 16}));
#ifdef WEFT_SMALL_MATRIX_UNITS
    const MatrixUnit kMiddle{8, 16, 16}, kSmall{8, 8, 8};
#else
    const MatrixUnit kMiddle, kSmall;
#endif
    EXPECT_EQ(found({Matrices(8, 8, 8), Matrices(8, 16, 16)}), kMiddle);
    EXPECT_EQ(found({Matrices(8, 8, 8)}), kSmall);
    VkCooperativeMatrixPropertiesKHR half = Matrices(16, 16, 16), wide = half;
    half.CType = half.ResultType = VK_COMPONENT_TYPE_FLOAT16_KHR;
    wide.scope = static_cast<VkScopeKHR>(2);  // of a workgroup
    EXPECT_EQ(found({half, wide}), MatrixUnit{});
}

TEST(GpuDevice, UnknownIndexIsNotFound) {
    if (const auto found = test::FindLavapipe(); !found.ok()) GTEST_SKIP() << found.error().message;
    for (const int index : {-1, 99}) {
        const auto device = Device::Open(test::TestApi(), index);
        ASSERT_FALSE(device.ok());
        EXPECT_EQ(device.error().code, ErrorCode::kNotFound) << device.error().message;
    }
}

// A driver thread of the lowest priority can keep a killed process alive on a busy machine.
TEST(GpuDevice, DriverThreadsHaveNormalPriority) {
    if (::geteuid() != 0) GTEST_SKIP() << "only root may raise a thread's priority";
    WEFT_LAVAPIPE_OR_SKIP(device);
    const int usual = ::getpriority(PRIO_PROCESS, 0);
    int threads = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        const auto id = static_cast<id_t>(std::stoul(task.path().filename()));
        EXPECT_LE(::getpriority(PRIO_PROCESS, id), usual) << id;
        ++threads;
    }
    EXPECT_GT(threads, 1);
}

TEST(GpuDevice, RunsAKernel) {
    WEFT_LAVAPIPE_OR_SKIP(device);
    for (const uint32_t count : {1u, 63u, 64u, 1000u}) {
        for (const Place place : {Place::kHost, Place::kDevice}) {
            const Status ran = test::RunScale(*device, place, count, 64, 7, 5);
            EXPECT_TRUE(ran.ok()) << ran.error().message;
        }
    }
}

constexpr uint32_t kHalves[] = {
#include "test_halves.inc"
};

// Halves below 2^-14, too, by integers or by the device's conversion.
TEST(GpuDevice, ConvertsAllHalves) {
    WEFT_LAVAPIPE_OR_SKIP(device);
    constexpr uint32_t kCount = 1u << 16, kGroup = 64;
    const uint32_t constants[] = {kGroup};
    const auto kernel = device->MakeKernel(
        {.name = "halves", .spirv = kHalves, .args_bytes = 8, .constants = constants});
    ASSERT_TRUE(kernel.ok()) << kernel.error().message;
    const auto out = device->Allocate(kCount * sizeof(float), Place::kHost);
    ASSERT_TRUE(out.ok()) << out.error().message;
    const auto commands = device->Record();
    ASSERT_TRUE(commands.ok()) << commands.error().message;
    (*commands)->Run(**kernel, Args(out->address()), kCount / kGroup);
    ASSERT_TRUE((*commands)->End().ok());
    const auto submission = device->Submit(**commands);
    ASSERT_TRUE(submission.ok()) << submission.error().message;
    ASSERT_TRUE(device->Wait(*submission, Deadline::In(60'000)).ok());
    for (uint32_t i = 0; i < kCount; ++i) {
        float got = 0;
        std::memcpy(&got, out->host() + i * sizeof got, sizeof got);
        const float want = F16ToF32(static_cast<uint16_t>(i));
        EXPECT_TRUE(std::isnan(want) ? std::isnan(got)
                                     : got == want && std::signbit(got) == std::signbit(want))
            << i << ": " << got << ", expected " << want;
    }
}

// A module with the execution modes, which tell a driver to keep small halves, differs only in them
// from one without.
TEST(SmallHalves, AreKeptByAnExecutionMode) {
    constexpr uint32_t kCapability[] = {2u << 16 | 17, 4464};
    EXPECT_TRUE(KeepSmallHalves(kHalves, SmallHalves::kNo).empty());
    for (const auto& [keeps, widths] : {std::pair{SmallHalves::kHalves, std::vector{16u}},
                                        {SmallHalves::kHalvesAndDoubles, {16u, 64u}}}) {
        std::vector<uint32_t> kept = KeepSmallHalves(kHalves, keeps);
        ASSERT_EQ(kept.size(), std::size(kHalves) + 2 + 4 * widths.size());
        EXPECT_TRUE(std::ranges::equal(std::span(kept).subspan(5, 2), kCapability));
        kept.erase(kept.begin() + 5, kept.begin() + 7);
        // OpEntryPoint of OpMain, then the modes.
        auto at = std::ranges::mismatch(kept, kHalves).in1;
        for (const uint32_t width : widths) {
            ASSERT_GE(kept.end() - at, 4);
            EXPECT_EQ(at[0], 4u << 16 | 16);
            EXPECT_EQ(at[2], 4459u);
            EXPECT_EQ(at[3], width);
            at = kept.erase(at, at + 4);
        }
        EXPECT_TRUE(std::ranges::equal(kept, kHalves));
    }
    constexpr uint32_t kScale[] = {
#include "test_scale.inc"
    };
    EXPECT_TRUE(KeepSmallHalves(kScale, SmallHalves::kHalves).empty());  // it converts none
}

TEST(GpuDevice, CopiesFillsAndResubmits) {
    WEFT_LAVAPIPE_OR_SKIP(device);
    auto from = device->Allocate(256, Place::kHost), to = device->Allocate(256, Place::kDevice);
    auto back = device->Allocate(256, Place::kHost);
    ASSERT_TRUE(from.ok() && to.ok() && back.ok());
    auto commands = device->Record();
    ASSERT_TRUE(commands.ok());
    (*commands)->Fill(*to, 0, 256, 0xabababab);
    (*commands)->Barrier();
    (*commands)->Copy(*from, 16, *to, 32, 64);
    (*commands)->Barrier();
    (*commands)->Copy(*to, 0, *back, 0, 256);
    ASSERT_TRUE((*commands)->End().ok());
    for (int round = 0; round < 3; ++round) {
        for (int i = 0; i < 256; ++i) from->host()[i] = static_cast<std::byte>(i + round);
        std::memset(back->host(), 0, 256);
        auto submitted = device->Submit(**commands);
        ASSERT_TRUE(submitted.ok()) << submitted.error().message;
        const Status waited = device->Wait(*submitted, Deadline::In(60'000));
        ASSERT_TRUE(waited.ok()) << waited.error().message;
        for (int i = 0; i < 256; ++i) {
            const int expected = i >= 32 && i < 96 ? (i - 16 + round) & 0xff : 0xab;
            ASSERT_EQ(static_cast<int>(back->host()[i]), expected) << "byte " << i;
        }
    }
}

TEST(GpuDevice, SubmissionsRunInOrder) {
    WEFT_LAVAPIPE_OR_SKIP(device);
    auto scale = test::MakeScale(*device, 32, 1);
    ASSERT_TRUE(scale.ok()) << scale.error().message;
    auto words = device->Allocate(400, Place::kHost);
    ASSERT_TRUE(words.ok());
    std::memset(words->host(), 0, 400);
    std::vector<std::unique_ptr<Commands>> all;
    uint64_t last = 0;
    for (int i = 0; i < 12; ++i) {  // y = 2 y + 1
        auto commands = device->Record();
        ASSERT_TRUE(commands.ok());
        (*commands)->Run(**scale, Args(ScaleArgs{words->address(), words->address(), 100, 2}), 4);
        ASSERT_TRUE((*commands)->End().ok());
        auto submitted = device->Submit(**commands);
        ASSERT_TRUE(submitted.ok());
        EXPECT_EQ(*submitted, last + 1);
        last = *submitted;
        all.push_back(*std::move(commands));
    }
    ASSERT_TRUE(device->Wait(last, Deadline::In(60'000)).ok());
    ASSERT_TRUE(device->Wait(1, Deadline::In(0)).ok());
    for (int i = 0; i < 100; ++i)
        ASSERT_EQ(reinterpret_cast<uint32_t*>(words->host())[i], (1u << 12) - 1);
}

TEST(GpuDevice, OneAndMoreWorkgroups) {
    WEFT_LAVAPIPE_OR_SKIP(device);
    auto scale = test::MakeScale(*device, 32, 1);
    auto words = device->Allocate(128 * 4, Place::kHost);
    auto commands = device->Record();
    ASSERT_TRUE(scale.ok() && words.ok() && commands.ok());
    std::memset(words->host(), 0, 128 * 4);
    const ScaleArgs args{words->address(), words->address(), 128, 2};
    (*commands)->Run(**scale, Args(args), WorkgroupCounts{{2, 1, 1}, {1, 0, 0}});
    ASSERT_TRUE((*commands)->End().ok());
    auto submitted = device->Submit(**commands);
    ASSERT_TRUE(submitted.ok() && device->Wait(*submitted, Deadline::In(60'000)).ok());
    for (uint32_t i = 0; i < 128; ++i) {
        ASSERT_EQ(reinterpret_cast<uint32_t*>(words->host())[i], i / 32 == 1 || i / 32 == 2) << i;
    }
}

TEST(GpuDevice, TimesAreInOrder) {
    WEFT_LAVAPIPE_OR_SKIP(device);
    if (device->description().timestamp_ns == 0) GTEST_SKIP() << "the driver has no timestamps";
    auto spin = test::MakeSpin(*device);
    ASSERT_TRUE(spin.ok()) << spin.error().message;
    auto word = device->Allocate(4, Place::kHost);
    auto commands = device->Record();
    ASSERT_TRUE(word.ok() && commands.ok());
    (*commands)->Time(0);
    (*commands)->Run(**spin, Args(test::SpinArgs{word->address(), 100, 10'000}), 1);
    (*commands)->Barrier();
    (*commands)->Time(1);
    ASSERT_TRUE((*commands)->End().ok());
    EXPECT_TRUE(device->Times(**commands, 2).empty());
    for (int round = 0; round < 2; ++round) {
        const int64_t begin_ns = NowNs();
        auto submitted = device->Submit(**commands);
        ASSERT_TRUE(submitted.ok());
        const Status waited = device->Wait(*submitted, Deadline::In(60'000));
        ASSERT_TRUE(waited.ok()) << waited.error().message;
        const int64_t took_ns = NowNs() - begin_ns;
        const std::vector<int64_t> times = device->Times(**commands, 2);
        ASSERT_EQ(times.size(), 2u);
        EXPECT_EQ(times[0], 0);
        EXPECT_GT(times[1], 0);
        EXPECT_LE(times[1], took_ns);
    }
    EXPECT_TRUE(device->Times(**commands, 3).empty());
}

TEST(GpuDevice, WaitTimesOutAndTheSubmissionContinues) {
    WEFT_LAVAPIPE_OR_SKIP(device);
    auto spin = test::MakeSpin(*device);
    ASSERT_TRUE(spin.ok()) << spin.error().message;
    auto word = device->Allocate(4, Place::kHost);
    auto commands = device->Record();
    ASSERT_TRUE(word.ok() && commands.ok());
    (*commands)->Run(**spin, Args(test::SpinArgs{word->address(), 1'000, 20'000}), 1);
    ASSERT_TRUE((*commands)->End().ok());
    auto submitted = device->Submit(**commands);
    ASSERT_TRUE(submitted.ok());
    const Status early = device->Wait(*submitted, Deadline::In(1));
    ASSERT_FALSE(early.ok());
    EXPECT_EQ(early.error().code, ErrorCode::kTimeout) << early.error().message;
    EXPECT_TRUE(device->status().ok());
    const Status late = device->Wait(*submitted, Deadline::In(60'000));
    EXPECT_TRUE(late.ok()) << late.error().message;
}

TEST(GpuDevice, ClosingWaitsForSubmissions) {
    WEFT_LAVAPIPE_OR_SKIP(device);
    auto spin = test::MakeSpin(*device);
    ASSERT_TRUE(spin.ok()) << spin.error().message;
    {
        auto word = device->Allocate(4, Place::kHost);
        auto commands = device->Record();
        ASSERT_TRUE(word.ok() && commands.ok());
        (*commands)->Run(**spin, Args(test::SpinArgs{word->address(), 500, 20'000}), 1);
        ASSERT_TRUE((*commands)->End().ok());
        ASSERT_TRUE(device->Submit(**commands).ok());
    }  // the buffer is released while the kernel writes to it
    device.reset();
}

TEST(GpuDevice, BuffersAndKernelsOutliveTheDevice) {
    WEFT_LAVAPIPE_OR_SKIP(device);
    auto buffer = device->Allocate(4096, Place::kHost);
    auto kernel = test::MakeScale(*device, 64, 0);
    auto commands = device->Record();
    ASSERT_TRUE(buffer.ok() && kernel.ok() && commands.ok());
    device.reset();
    std::memset(buffer->host(), 1, 4096);
}

TEST(GpuDevice, TwoAtOnce) {
    WEFT_LAVAPIPE_OR_SKIP(device);
    std::vector<std::thread> threads;
    std::vector<Status> ended(2);
    for (size_t i = 0; i < ended.size(); ++i) {
        threads.emplace_back([&ended, i] {
            auto own = test::OpenLavapipe();
            for (uint32_t round = 1; own.ok() && ended[i].ok() && round < 6; ++round)
                ended[i] = test::RunScale(**own, Place::kDevice, 500 * round, 32, round, 3);
            if (!own.ok()) ended[i] = own.error();
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Status& status : ended) EXPECT_TRUE(status.ok()) << status.error().message;
}

TEST(GpuDevice, TooLargeAllocationNamesTheHeaps) {
    WEFT_LAVAPIPE_OR_SKIP(device);
    for (const uint64_t bytes : {uint64_t{1} << 50, ~uint64_t{0} - 7}) {
        const auto buffer = device->Allocate(bytes, Place::kDevice);
        ASSERT_FALSE(buffer.ok());
        EXPECT_EQ(buffer.error().code, ErrorCode::kOutOfMemory);
        EXPECT_NE(buffer.error().message.find("heaps: "), std::string::npos)
            << buffer.error().message;
    }
    EXPECT_TRUE(device->Allocate(0, Place::kHost).ok());
}

TEST(GpuDevice, InvalidKernelsAreRefused) {
    WEFT_LAVAPIPE_OR_SKIP(device);
    const auto none = device->MakeKernel({.name = "absent", .spirv = {}});
    ASSERT_FALSE(none.ok());
    EXPECT_EQ(none.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(none.error().message.find("absent"), std::string::npos);
    const auto wide = test::MakeScale(*device, device->description().most_invocations * 2, 0);
    ASSERT_FALSE(wide.ok());
    EXPECT_EQ(wide.error().code, ErrorCode::kUnsupported);
    for (const uint32_t subgroup : {3u, 1024u}) {
        const auto odd = test::MakeScale(*device, 64, 0, subgroup);
        ASSERT_FALSE(odd.ok());
        EXPECT_EQ(odd.error().code, ErrorCode::kUnsupported) << odd.error().message;
    }
    const uint32_t own = device->description().subgroup;
    const auto same = test::MakeScale(*device, 64, 0, own);
    ASSERT_TRUE(same.ok()) << same.error().message;
    EXPECT_EQ((*same)->subgroup(), own);
}

TEST(GpuDevice, TooManyWorkgroupsAreRefused) {
    WEFT_LAVAPIPE_OR_SKIP(device);
    const uint32_t most = device->description().most_groups[1];
    ASSERT_GE(most, 65'535u);
    if (most == ~0u) GTEST_SKIP() << "the device takes any number";
    auto scale = test::MakeScale(*device, 8, 1);
    auto commands = device->Record();
    ASSERT_TRUE(scale.ok() && commands.ok());
    (*commands)->Run(**scale, Args(ScaleArgs{0, 0, 0, 0}), 1, most + 1);
    const Status ended = (*commands)->End();
    ASSERT_FALSE(ended.ok());
    EXPECT_EQ(ended.error().code, ErrorCode::kUnsupported) << ended.error().message;
}

TEST(GpuDevice, AMessageOfValidationFailsTheNextWait) {
    if (test::TestApi() != Api::kVulkan) GTEST_SKIP() << "only Vulkan has a validation layer";
    const auto found = test::FindLavapipe();
    if (!found.ok()) GTEST_SKIP() << found.error().message;
    const auto device = Device::Open(test::TestApi(), *found, {.validate = true});
    if (!device.ok()) GTEST_SKIP() << device.error().message;
    EXPECT_TRUE((*device)->Wait(0, Deadline::In(0)).ok());
    // fewer argument bytes than the kernel reads
    const auto small = test::MakeScale(**device, 8, 1, 0, 4);
    ASSERT_TRUE(small.ok());
    const Status waited = (*device)->Wait(0, Deadline::In(0));
    ASSERT_FALSE(waited.ok());
    EXPECT_EQ(waited.error().code, ErrorCode::kIo) << waited.error().message;
    EXPECT_TRUE((*device)->Wait(0, Deadline::In(0)).ok());
}

// Creates a kernel, so that the folder has a pipeline cache; returns the path of its only file.
std::string FillCache(const std::string& folder) {
    {
        const auto device = test::OpenLavapipe({.cache_folder = folder});
        WEFT_CHECK(device.ok());
        const Status ran = test::RunScale(**device, Place::kHost, 10, 8, 2, 0);
        EXPECT_TRUE(ran.ok()) << ran.error().message;
    }  // closing the device writes the file
    std::filesystem::directory_iterator files(folder);
    return files == std::filesystem::directory_iterator() ? "" : files->path().string();
}

TEST(GpuDevice, PipelineCacheIsKeptAndADamagedOneIgnored) {
    WEFT_LAVAPIPE_OR_SKIP(first);
    first.reset();
    const test::TempDir folder;
    const std::string cache = folder / "kernels";
    const std::string path = FillCache(cache);
    ASSERT_FALSE(path.empty());
    const std::string good = *ReadTextFile(path);
    ASSERT_GT(good.size(), 48u);
    for (const size_t at : {size_t{0}, size_t{9}, size_t{20}, size_t{48}, good.size() - 1}) {
        std::string bad = good;
        bad[at] = static_cast<char>(bad[at] ^ 0x40);
        ASSERT_TRUE(WriteFile(path, std::as_bytes(std::span(bad))).ok());
        EXPECT_EQ(FillCache(cache), path);
    }
    for (const size_t size : {size_t{0}, size_t{47}, good.size() / 2}) {
        ASSERT_TRUE(WriteFile(path, std::as_bytes(std::span(good).first(size))).ok());
        EXPECT_EQ(FillCache(cache), path);
        EXPECT_GT(ReadTextFile(path)->size(), size);
    }
    // A folder that can't be created is not an error.
    const auto device = test::OpenLavapipe({.cache_folder = path + "/below"});
    ASSERT_TRUE(device.ok()) << device.error().message;
    EXPECT_TRUE(test::RunScale(**device, Place::kHost, 10, 8, 2, 0).ok());
}

// A process that is killed keeps its kernels: the file is there before the device is closed.
TEST(GpuDevice, KernelsAreKeptWhenTheyAreMade) {
    const test::TempDir folder;
    WEFT_LAVAPIPE_OR_SKIP(device, {.cache_folder = folder.path()});
    const auto files = [&] {
        return std::distance(std::filesystem::directory_iterator(folder.path()), {});
    };
    ASSERT_TRUE(test::RunScale(*device, Place::kHost, 10, 8, 2, 0).ok());
    EXPECT_EQ(files(), 1);
    // Later kernels are written too, but writing takes little of the time.
    std::filesystem::remove(std::filesystem::directory_iterator(folder.path())->path());
    uint32_t add = 1;
    const Deadline deadline = test::Patience();
    while (files() == 0 && !deadline.expired()) {
        ASSERT_TRUE(test::RunScale(*device, Place::kHost, 10, 8, 2, add++).ok());
    }
    EXPECT_EQ(files(), 1);
}

// Logs the time of one submission and its wait; no check depends on it.
TEST(GpuDevice, SubmitAndWaitAreTimed) {
    WEFT_LAVAPIPE_OR_SKIP(validated);
    validated.reset();
    auto device = Device::Open(test::TestApi(), *test::FindLavapipe());
    ASSERT_TRUE(device.ok());
    auto scale = test::MakeScale(**device, 32, 1);
    auto words = (*device)->Allocate(128, Place::kHost);
    auto commands = (*device)->Record();
    ASSERT_TRUE(scale.ok() && words.ok() && commands.ok());
    (*commands)->Run(**scale, Args(ScaleArgs{words->address(), words->address(), 32, 2}), 1);
    ASSERT_TRUE((*commands)->End().ok());
    std::vector<int64_t> took;
    for (int i = 0; i < 200; ++i) {
        const int64_t begin_ns = NowNs();
        auto submitted = (*device)->Submit(**commands);
        ASSERT_TRUE(submitted.ok());
        ASSERT_TRUE((*device)->Wait(*submitted, Deadline::In(60'000)).ok());
        took.push_back(NowNs() - begin_ns);
    }
    std::sort(took.begin(), took.end());
    RecordProperty("submit_wait_us_median", std::to_string(took[100] / 1000));
    std::printf("submit + wait: median %.1f us, least %.1f us\n",
                static_cast<double>(took[100]) / 1e3, static_cast<double>(took[0]) / 1e3);
}

}  // namespace
}  // namespace weft::gpu
