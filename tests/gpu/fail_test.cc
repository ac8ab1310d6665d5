// Each Vulkan call that can fail does so in turn, over a device's whole lifetime: the result is an
// error with a message, and no object leaks.
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "gpu/failing_loader.h"
#include "gpu/gpu_case.h"
#include "support/lavapipe.h"
#include "support/wait.h"

namespace weft::gpu {
namespace {

using test::CodeOf;
using test::FailAt;
using test::Faults;
using test::FindOfInstance;
using test::vk_faults;

// A lifetime: open, allocate, create a kernel, record, submit, wait, read times, close.
Status Live(int index) {
    WEFT_ASSIGN(const auto device, OpenDeviceOf(Loader{FindOfInstance}, index, {}));
    WEFT_TRY(test::RunScale(*device, Place::kDevice, 100, 32, 3, 1));
    WEFT_ASSIGN(const auto kernel, test::MakeSpin(*device));
    WEFT_ASSIGN(const Buffer word, device->Allocate(4, Place::kHost));
    WEFT_ASSIGN(const auto commands, device->Record());
    commands->Time(0);
    commands->Fill(word, 0, 4, 7);
    commands->Barrier();
    commands->Run(*kernel, test::Args(test::SpinArgs{word.address(), 2, 20'000}), 1);
    commands->Time(1);
    WEFT_TRY(commands->End());
    WEFT_ASSIGN(const uint64_t submission, device->Submit(*commands));
    WEFT_TRY(device->Wait(submission, Deadline::In(60'000)));
    if (device->Times(*commands, 2).size() != 2)
        return MakeError(ErrorCode::kIo, "the times of this submission did not come");
    return device->status();
}

class GpuFaults : public testing::Test {
  protected:
    void SetUp() override {
        const Result<int> found = test::FindLavapipe();
        if (!found.ok()) GTEST_SKIP() << found.error().message;
        index_ = *found;
        vk_faults = Faults{};
        true_loader_ = SystemLoader()->get;
    }
    Status LiveWith(int fail_at, VkResult with, const std::string& hidden = "") {
        FailAt(true_loader_, fail_at, with, hidden);
        return Live(index_);
    }
    // Opens a device without faults; the test sets later which calls fail.
    Result<std::shared_ptr<Device>> OpenWithoutFaults() {
        FailAt(true_loader_, -1, VK_SUCCESS);
        return OpenDeviceOf(Loader{FindOfInstance}, index_, {});
    }
    int index_ = 0;
    PFN_vkGetInstanceProcAddr true_loader_ = nullptr;
};

TEST_F(GpuFaults, EachFailingCallIsAnErrorWithoutLeaks) {
    const Status whole = LiveWith(-1, VK_SUCCESS);
    ASSERT_TRUE(whole.ok()) << whole.error().message;
    EXPECT_EQ(vk_faults.alive, 0);
    const int calls = vk_faults.calls;
    ASSERT_GT(calls, 40);
    for (const VkResult with :
         {VK_ERROR_UNKNOWN, VK_ERROR_OUT_OF_HOST_MEMORY, VK_ERROR_DEVICE_LOST}) {
        // The number of polls in a wait varies: the last calls may not occur if a wait was shorter.
        for (int at = 0; at < calls; ++at) {
            const Status lived = LiveWith(at, with);
            EXPECT_EQ(vk_faults.alive, 0) << vk_faults.failed << " " << ResultName(with);
            if (vk_faults.failed.empty()) continue;
            ASSERT_FALSE(lived.ok()) << vk_faults.failed << " " << ResultName(with);
            EXPECT_GT(lived.error().message.size(), 20u) << vk_faults.failed;
            if (vk_faults.failed == "vkGetQueryPoolResults") continue;
            EXPECT_EQ(lived.error().code, CodeOf(with)) << lived.error().message;
        }
    }
}

TEST_F(GpuFaults, MissingFunctionIsNamed) {
    std::vector<std::string> names;
#define WEFT_TEST_NAME(one) names.push_back("vk" #one);
    WEFT_VK_GLOBAL(WEFT_TEST_NAME)
    WEFT_VK_INSTANCE(WEFT_TEST_NAME)
    WEFT_VK_DEVICE(WEFT_TEST_NAME)
    for (const std::string& name : names) {
        // Without its destroy function, an object cannot be released.
        if (name == "vkDestroyInstance" || name == "vkDestroyDevice") continue;
        if (name == "vkGetDeviceProcAddr") continue;
        const Status lived = LiveWith(-1, VK_SUCCESS, name);
        ASSERT_FALSE(lived.ok()) << name;
        EXPECT_EQ(lived.error().code, ErrorCode::kUnsupported);
        EXPECT_NE(lived.error().message.find(name), std::string::npos) << lived.error().message;
        EXPECT_EQ(vk_faults.alive, 0) << name;
    }
}

TEST_F(GpuFaults, ALostDeviceStaysLost) {
    const auto device = OpenWithoutFaults();
    ASSERT_TRUE(device.ok()) << device.error().message;
    const auto commands = (*device)->Record();
    ASSERT_TRUE(commands.ok() && (*commands)->End().ok());
    vk_faults.fail_at = vk_faults.calls;
    vk_faults.with = VK_ERROR_DEVICE_LOST;
    EXPECT_EQ((*device)->Submit(**commands).error().code, ErrorCode::kPeerLost);
    EXPECT_EQ((*device)->status().error().code, ErrorCode::kPeerLost);
    EXPECT_EQ((*device)->Submit(**commands).error().code, ErrorCode::kPeerLost);
    EXPECT_EQ((*device)->Wait(0, Deadline::In(10)).error().code, ErrorCode::kPeerLost);
    EXPECT_EQ((*device)->Allocate(4, Place::kHost).error().code, ErrorCode::kPeerLost);
    EXPECT_EQ((*device)->Record().error().code, ErrorCode::kPeerLost);
    EXPECT_EQ(test::MakeSpin(**device).error().code, ErrorCode::kPeerLost);
}

// Mesa's drivers for AMD report work that a reset ended as done; only a wait reports the reset.
TEST_F(GpuFaults, LossReportedOnlyByWaitsIsDetected) {
    const auto device = OpenWithoutFaults();
    ASSERT_TRUE(device.ok()) << device.error().message;
    const auto commands = (*device)->Record();
    ASSERT_TRUE(commands.ok() && (*commands)->End().ok());
    const auto first = (*device)->Submit(**commands);
    ASSERT_TRUE(first.ok());
    ASSERT_TRUE(test::OthersSleep());         // the work is done, but not polled
    vk_faults.fail_at = vk_faults.calls + 1;  // the call after vkGetSemaphoreCounterValue
    vk_faults.with = VK_ERROR_DEVICE_LOST;
    const Status waited = (*device)->Wait(*first, Deadline::In(0));
    ASSERT_EQ(vk_faults.failed, "vkWaitSemaphores");
    ASSERT_FALSE(waited.ok());
    EXPECT_EQ(waited.error().code, ErrorCode::kPeerLost) << waited.error().message;
    EXPECT_EQ((*device)->Wait(*first, Deadline::In(0)).error().code, ErrorCode::kPeerLost);
}

// The work may end before vkQueueSubmit returns, and another thread may look then.
TEST_F(GpuFaults, WorkThatEndsWithinItsSubmissionIsNoLoss) {
    const auto device = OpenWithoutFaults();
    ASSERT_TRUE(device.ok()) << device.error().message;
    const auto commands = (*device)->Record(), more = (*device)->Record();
    ASSERT_TRUE(commands.ok() && (*commands)->End().ok());
    ASSERT_TRUE(more.ok() && (*more)->End().ok());
    auto buffer = (*device)->Allocate(4, Place::kDevice);
    ASSERT_TRUE(buffer.ok() && (*device)->Submit(**commands).ok());
    vk_faults.on_submit = [&] {
        ASSERT_TRUE(test::OthersSleep());  // both submissions are done, but not polled
        std::thread([&] { const Buffer gone = *std::move(buffer); }).join();
    };
    const auto second = (*device)->Submit(**more);
    vk_faults.on_submit = nullptr;
    ASSERT_TRUE(second.ok()) << second.error().message;
    const Status waited = (*device)->Wait(*second, Deadline::In(60'000));
    EXPECT_TRUE(waited.ok()) << waited.error().message;
    EXPECT_TRUE((*device)->status().ok());
}

TEST_F(GpuFaults, WithoutADriverTheListIsEmpty) {
    vk_faults = Faults{};
    vk_faults.true_instance = true_loader_;
    vk_faults.with = VK_ERROR_INCOMPATIBLE_DRIVER;
    vk_faults.fail_at = 1;  // vkCreateInstance
    const auto list = ListDevicesOf(Loader{FindOfInstance});
    ASSERT_EQ(vk_faults.failed, "vkCreateInstance");
    ASSERT_TRUE(list.ok()) << list.error().message;
    EXPECT_TRUE(list->empty());
}

}  // namespace
}  // namespace weft::gpu
