// The drivers of CUDA and HIP on their stand-ins (standin/driver.cc): faults become named errors,
// and nothing leaks. WEFT_TEST_API names the driver.
#include <dlfcn.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "gpu/cards.h"
#include "gpu/gpu_case.h"
#include "gpu/native/core.h"
#include "support/lavapipe.h"
#include "support/temp_dir.h"

namespace weft::gpu {
namespace {

constexpr int kOutOfMemory = 2, kOther = 1, kLost = 719;

// The stand-in's functions for tests.
struct Standin {
    void (*reset)() = nullptr;
    void (*fail)(int64_t at, int code) = nullptr;
    void (*hang)(int64_t launch) = nullptr;
    int64_t (*calls)() = nullptr;
    const char* (*failed)() = nullptr;
    int (*alive)() = nullptr;
    int (*slack_ns)() = nullptr;  // of the thread that polled last
};

class NativeFaults : public testing::Test {
  protected:
    void SetUp() override {
        if (test::TestApi() == Api::kVulkan) GTEST_SKIP() << "WEFT_TEST_API names no stand-in";
        const bool cuda = test::TestApi() == Api::kCuda;
        void* const library = ::dlopen(cuda ? "libcuda.so.1" : "libamdhip64.so.6", RTLD_NOW);
        const auto find = [&](const char* name, auto& call) {
            call = reinterpret_cast<std::decay_t<decltype(call)>>(::dlsym(library, name));
        };
        find("weft_standin_reset", standin_.reset);
        find("weft_standin_fail", standin_.fail);
        find("weft_standin_hang", standin_.hang);
        find("weft_standin_calls", standin_.calls);
        find("weft_standin_failed", standin_.failed);
        find("weft_standin_alive", standin_.alive);
        find("weft_standin_slack_ns", standin_.slack_ns);
        if (standin_.alive == nullptr) GTEST_SKIP() << "a driver of a GPU, not a stand-in";
        standin_.reset();
    }
    void TearDown() override {
        if (standin_.reset != nullptr) standin_.reset();
    }
    static Result<std::shared_ptr<Device>> Open() { return Device::Open(test::TestApi(), 0); }
    // Opens the device, records commands, and lets their submission fail.
    void OpenToFail(int code) {
        standin_.reset();
        const auto device = Open();
        ASSERT_TRUE(device.ok()) << device.error().message;
        device_ = *device;
        auto word = device_->Allocate(4, Place::kHost);
        auto commands = device_->Record();
        ASSERT_TRUE(word.ok() && commands.ok());
        word_.emplace(*std::move(word));
        commands_ = *std::move(commands);
        commands_->Fill(*word_, 0, 4, 7);
        ASSERT_TRUE(commands_->End().ok());
        standin_.fail(standin_.calls() + 2, code);
    }
    Standin standin_;
    std::shared_ptr<Device> device_;
    std::optional<Buffer> word_;
    std::unique_ptr<Commands> commands_;
};

// A lifetime: open, allocate, create a kernel, record, submit, wait, read times, close. `calls`:
// number of calls before the close.
Status Live(const Standin& standin, int64_t& calls) {
    WEFT_ASSIGN(const auto device, Device::Open(test::TestApi(), 0));
    WEFT_TRY(test::RunScale(*device, Place::kDevice, 100, 32, 3, 1));
    WEFT_ASSIGN(const Buffer word, device->Allocate(4, Place::kHost));
    WEFT_ASSIGN(const auto commands, device->Record());
    commands->Time(0);
    commands->Fill(word, 0, 4, 7);
    commands->Time(1);
    WEFT_TRY(commands->End());
    WEFT_ASSIGN(const uint64_t submission, device->Submit(*commands));
    WEFT_TRY(device->Wait(submission, Deadline::In(60'000)));
    if (device->Times(*commands, 2).size() != 2)
        return MakeError(ErrorCode::kIo, "the times of this submission did not come");
    WEFT_ASSIGN(const auto again, device->Record());
    again->Fill(word, 0, 4, 8);
    again->Fill(word, 0, 4, 9);
    WEFT_TRY(again->End());
    for (int i = 0; i < 2; ++i) {
        WEFT_ASSIGN(const uint64_t number, device->Submit(*again));
        WEFT_TRY(device->Wait(number, Deadline::In(60'000)));
    }
    SharedHandle handle;
    WEFT_ASSIGN(const Buffer own, device->AllocateShared(1 << 20, handle));
    WEFT_ASSIGN(const Buffer opened,
                device->OpenShared(handle, device->description().pci, 1 << 20));
    calls = standin.calls();
    return device->status();
}

ErrorCode CodeOf(int code) {
    if (code == kOutOfMemory) return ErrorCode::kOutOfMemory;
    return code == kLost ? ErrorCode::kPeerLost : ErrorCode::kIo;
}

TEST_F(NativeFaults, EachFailingCallIsAnErrorWithoutLeaks) {
    int64_t calls = 0;
    const Status whole = Live(standin_, calls);
    ASSERT_TRUE(whole.ok()) << whole.error().message;
    EXPECT_EQ(standin_.alive(), 0);
    ASSERT_GT(calls, 40);
    for (const int with : {kOther, kOutOfMemory, kLost}) {
        // The number of polls in a wait varies.
        for (int64_t at = 1, last = calls; at <= last; ++at) {
            standin_.reset();
            const int before = standin_.alive();
            standin_.fail(at, with);
            const Status lived = Live(standin_, last);
            const std::string failed = standin_.failed();
            if (failed.empty()) continue;
            // The process keeps what belongs to a lost device, or to work without a known end.
            if (with != kLost && failed.find("EventRecord") == std::string::npos) {
                EXPECT_EQ(standin_.alive(), before) << failed << " " << with;
            }
            if (lived.ok()) {  // a destructor made the failed call, and continued
                EXPECT_TRUE(failed == "cuCtxSetCurrent" || failed == "hipSetDevice") << failed;
                continue;
            }
            EXPECT_GT(lived.error().message.size(), 20u) << failed;
            // (Errors before the device is open are of another kind.)
            if (lived.error().message.find("(Stand-in)") == std::string::npos) continue;
            // (kOther is also the answer for a device that the driver hides.)
            const bool hidden = with == kOther && failed.find("GetByPCIBusId") != std::string::npos;
            EXPECT_EQ(lived.error().code, hidden ? ErrorCode::kUnsupported : CodeOf(with))
                << failed << ": " << lived.error().message;
        }
    }
}

TEST_F(NativeFaults, ALostDeviceStaysLost) {
    ASSERT_NO_FATAL_FAILURE(OpenToFail(kLost));
    EXPECT_EQ(device_->Submit(*commands_).error().code, ErrorCode::kPeerLost);
    EXPECT_EQ(device_->status().error().code, ErrorCode::kPeerLost);
    EXPECT_EQ(device_->Submit(*commands_).error().code, ErrorCode::kPeerLost);
    EXPECT_EQ(device_->Wait(0, Deadline::In(10)).error().code, ErrorCode::kPeerLost);
    EXPECT_EQ(device_->Allocate(4, Place::kHost).error().code, ErrorCode::kPeerLost);
    EXPECT_EQ(device_->Record().error().code, ErrorCode::kPeerLost);
    EXPECT_EQ(test::MakeSpin(*device_).error().code, ErrorCode::kPeerLost);
}

// 46: another process holds a card in exclusive mode. After the others, the process must end.
TEST_F(NativeFaults, SomeErrorsLoseTheDevice) {
    for (const auto& [code, loses] :
         {std::pair{226, true}, {717, true}, {721, true}, {46, false}}) {
        commands_.reset();
        word_.reset();
        device_.reset();
        ASSERT_NO_FATAL_FAILURE(OpenToFail(code));
        EXPECT_EQ(device_->Submit(*commands_).error().code,
                  loses ? ErrorCode::kPeerLost : ErrorCode::kIo)
            << code;
        EXPECT_EQ(device_->status().ok(), !loses) << code;
    }
}

// A driver that shuts down before the process does refuses each call. The process does not wait for
// work whose end it cannot learn.
TEST_F(NativeFaults, ADriverThatAnswersNoQueryIsGivenUp) {
    constexpr int kDeinitialized = 4;
    auto device = Open();
    ASSERT_TRUE(device.ok()) << device.error().message;
    auto kernel = test::MakeScale(**device, 32, 1);
    auto words = (*device)->Allocate(128, Place::kHost);
    auto commands = (*device)->Record();
    ASSERT_TRUE(kernel.ok() && words.ok() && commands.ok());
    (*commands)->Run(**kernel,
                     test::Args(test::ScaleArgs{words->address(), words->address(), 32, 2}), 1);
    ASSERT_TRUE((*commands)->End().ok());
    standin_.hang(1);
    ASSERT_TRUE((*device)->Submit(**commands).ok());
    standin_.fail(standin_.calls() + 1, kDeinitialized);
    testing::internal::CaptureStderr();
    commands->reset();
    *words = Buffer();
    kernel->reset();
    device->reset();
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("not done after 1000 failed queries"), std::string::npos) << said;
    standin_.hang(0);
}

TEST_F(NativeFaults, AKernelThatNeverEndsIsATimeout) {
    const auto device = Open();
    ASSERT_TRUE(device.ok()) << device.error().message;
    const auto kernel = test::MakeScale(**device, 32, 1);
    const auto words = (*device)->Allocate(128, Place::kHost);
    const auto commands = (*device)->Record();
    ASSERT_TRUE(kernel.ok() && words.ok() && commands.ok());
    (*commands)->Run(**kernel,
                     test::Args(test::ScaleArgs{words->address(), words->address(), 32, 2}), 1);
    ASSERT_TRUE((*commands)->End().ok());
    standin_.hang(1);
    const auto submitted = (*device)->Submit(**commands);
    ASSERT_TRUE(submitted.ok()) << submitted.error().message;
    const Status waited = (*device)->Wait(*submitted, Deadline::In(20));
    ASSERT_FALSE(waited.ok());
    EXPECT_EQ(waited.error().code, ErrorCode::kTimeout) << waited.error().message;
    EXPECT_TRUE((*device)->status().ok());
    // Sleeps between polls ended on time, and the thread's other sleeps have their own rule again.
    EXPECT_LE(standin_.slack_ns(), 1000);
    EXPECT_GT(::prctl(PR_GET_TIMERSLACK), 1000);
    standin_.hang(0);
    EXPECT_TRUE((*device)->Wait(*submitted, Deadline::In(60'000)).ok());
}

// How late a wait returns after the end of work of any length, if sleeps take exactly their time.
TEST(NativeWait, ReturnsSoonAfterTheEnd) {
    constexpr int64_t kUs = 1000;
    for (const int64_t length_us : {40, 60, 100, 300, 1000, 3000, 5000, 20'000, 200'000}) {
        std::vector<int64_t> late;
        int64_t sleeps = 0;
        for (int64_t i = 0; i < 1000; ++i) {
            const int64_t end_ns = length_us * kUs + i * length_us / 20;
            int64_t now_ns = 0;
            while (now_ns < end_ns) {
                const int64_t pause_ns = native::PollPauseNs(now_ns);
                sleeps += pause_ns > 0 ? 1 : 0;
                now_ns += std::max<int64_t>(pause_ns, 500);
            }
            late.push_back(now_ns - end_ns);
        }
        std::ranges::sort(late);
        EXPECT_LE(late[500], std::max(15 * kUs, length_us * kUs / 400)) << length_us;
        // A poll and its sleep use 3 us of processor time.
        EXPECT_LE(3 * kUs * sleeps / 1000, length_us * kUs * 4 / 25) << length_us;
    }
}

// The host thread that a first kernel waits for must not block in Submit. Each launch triples the
// words, and adds 1.
TEST_F(NativeFaults, LongSubmissionsDoNotBlockInAFullQueue) {
    const auto device = Open();
    ASSERT_TRUE(device.ok()) << device.error().message;
    const auto kernel = test::MakeScale(**device, 32, 1);
    const auto words = (*device)->Allocate(128, Place::kHost);
    ASSERT_TRUE(kernel.ok() && words.ok());
    std::memset(words->host(), 0, 128);
    const auto args = test::ScaleArgs{words->address(), words->address(), 32, 3};
    std::vector<std::unique_ptr<Commands>> all;
    uint32_t expected = 0;
    for (const int launches : {400, 400, 400, 3000}) {
        all.push_back(std::move(*(*device)->Record()));
        for (int i = 0; i < launches; ++i) {
            all.back()->Run(**kernel, test::Args(args), 1);
            expected = expected * 3 + 1;
        }
        ASSERT_TRUE(all.back()->End().ok());
    }
    standin_.hang(1);
    std::future<uint64_t> last = std::async(std::launch::async, [&] {
        uint64_t number = 0;
        for (const auto& one : all) {
            const auto submitted = (*device)->Submit(*one);
            number = submitted.ok() ? *submitted : 0;
        }
        return number;
    });
    EXPECT_EQ(last.wait_for(std::chrono::seconds(60)), std::future_status::ready);
    standin_.hang(0);
    const uint64_t number = last.get();
    EXPECT_EQ(number, all.size());
    EXPECT_TRUE((*device)->Wait(number, Deadline::In(60'000)).ok());
    uint32_t word = 0;
    std::memcpy(&word, words->host(), 4);
    EXPECT_EQ(word, expected);
}

// A second device reads the kernels that the first one compiled, and compiles damaged ones again.
TEST_F(NativeFaults, CompiledKernelsAreKept) {
    const test::TempDir folder;
    for (const bool damaged : {false, true}) {
        const auto device = Device::Open(test::TestApi(), 0, {.cache_folder = folder.path()});
        ASSERT_TRUE(device.ok()) << device.error().message;
        ASSERT_TRUE(test::RunScale(**device, Place::kHost, 10, 8, 2, 0).ok());
        std::filesystem::directory_iterator files(folder.path());
        ASSERT_NE(files, std::filesystem::directory_iterator());
        const std::string path = files->path().string();
        std::string text = *ReadTextFile(path);
        EXPECT_GT(text.size(), 1000u);
        if (damaged) continue;
        text.resize(text.size() / 2);
        ASSERT_TRUE(WriteFile(path, std::as_bytes(std::span(text))).ok());
    }
}

// hiprtc reports the same version for all versions of ROCm.
TEST_F(NativeFaults, AnotherDriverCompilesAgain) {
    const test::TempDir folder;
    for (const ptrdiff_t files : {1, 2}) {
        if (files > 1) ::setenv("WEFT_STANDIN_VERSION", "60200000", 1);
        const auto device = Device::Open(test::TestApi(), 0, {.cache_folder = folder.path()});
        ::unsetenv("WEFT_STANDIN_VERSION");
        ASSERT_TRUE(device.ok()) << device.error().message;
        ASSERT_TRUE(test::RunScale(**device, Place::kHost, 10, 8, 2, 0).ok());
        EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), files);
    }
}

// A recording that needs one kernel compiles all that wait.
TEST_F(NativeFaults, KernelsAreCompiledTogether) {
    const test::TempDir folder;
    const auto device = Device::Open(test::TestApi(), 0, {.cache_folder = folder.path()});
    ASSERT_TRUE(device.ok()) << device.error().message;
    std::vector<std::unique_ptr<Kernel>> kernels;
    for (uint32_t add = 11; add < 15; ++add) {
        auto kernel = test::MakeScale(**device, 32, add);
        ASSERT_TRUE(kernel.ok()) << kernel.error().message;
        kernels.push_back(std::move(*kernel));
    }
    const auto kept = [&] {
        return std::distance(std::filesystem::directory_iterator(folder.path()), {});
    };
    EXPECT_EQ(kept(), 0);
    const auto words = (*device)->Allocate(128, Place::kHost);
    ASSERT_TRUE(words.ok());
    const auto args = test::ScaleArgs{words->address(), words->address(), 32, 0};
    for (uint32_t i : {2u, 0u}) {
        const auto commands = (*device)->Record();
        ASSERT_TRUE(commands.ok());
        (*commands)->Run(*kernels[i], test::Args(args), 1);
        ASSERT_TRUE((*commands)->End().ok());
        EXPECT_EQ(kept(), 4);
        const auto submitted = (*device)->Submit(**commands);
        ASSERT_TRUE(submitted.ok() && (*device)->Wait(*submitted, Deadline::In(60'000)).ok());
        uint32_t word = 0;
        std::memcpy(&word, words->host(), 4);
        EXPECT_EQ(word, 11 + i);
    }
}

// The compilation of a step's kernels may take minutes.
TEST_F(NativeFaults, AStopEndsTheCompilation) {
    const test::TempDir folder;
    std::atomic<bool> stop = true;
    const auto device =
        Device::Open(test::TestApi(), 0,
                     {.cache_folder = folder.path(), .stopped = [&] { return stop.load(); }});
    ASSERT_TRUE(device.ok()) << device.error().message;
    const auto one = test::MakeScale(**device, 32, 21), other = test::MakeScale(**device, 32, 22);
    const auto words = (*device)->Allocate(128, Place::kHost);
    ASSERT_TRUE(one.ok() && other.ok() && words.ok());
    const auto args = test::ScaleArgs{words->address(), words->address(), 32, 0};
    const auto end = [&](const Kernel& kernel) {
        const auto commands = (*device)->Record();
        (*commands)->Run(kernel, test::Args(args), 1);
        return (*commands)->End();
    };
    const Status stopped = end(**one);
    ASSERT_FALSE(stopped.ok());
    EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled) << stopped.error().message;
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
    stop = false;
    for (const auto* kernel : {&one, &other}) {
        const Status ended = end(***kernel);
        EXPECT_TRUE(ended.ok()) << ended.error().message;
    }
}

TEST_F(NativeFaults, ACardIsListedWithItsDrivers) {
    const Cards found = ListCards();
    ASSERT_FALSE(found.cards.empty()) << fmt::format("{}", fmt::join(found.none, "; "));
    for (const Card& card : found.cards) {
        if (card.best().api != test::TestApi()) continue;
        EXPECT_EQ(card.best().name, "Stand-in");
        EXPECT_FALSE(card.best().pci.empty());
        ASSERT_EQ(card.missing.size(), 1u);
        EXPECT_EQ(card.missing[0].rfind("vulkan: ", 0), 0u) << card.missing[0];
        return;
    }
    FAIL() << "no card of " << ApiName(test::TestApi());
}

}  // namespace
}  // namespace weft::gpu
