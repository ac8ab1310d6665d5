// Kernels of a device that compiles slowly: a watchdog sees that the device is working.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "backend/gpu/device/context.h"
#include "shaders/shaders.h"
#include "support/temp_dir.h"

namespace weft::backend::on_gpu {
namespace {

class MadeKernel final : public gpu::Kernel {
  public:
    uint32_t subgroup() const override { return 8; }
};

// A device that compiles on request and does nothing else.
class SlowCompiler final : public gpu::Device {
  public:
    const gpu::Description& description() const override { return description_; }
    std::vector<gpu::Heap> heaps() const override { return {}; }
    Result<gpu::Buffer> Allocate(uint64_t, gpu::Place) override { return Unasked(); }
    uint64_t most_buffer_bytes() const override { return 0; }
    const gpu::Buffer& stop_word() const override { return stop_word_; }
    Result<std::unique_ptr<gpu::Kernel>> MakeKernel(const gpu::KernelCode&) override {
        std::unique_lock lock(mutex_);
        compiles_ = true;
        changed_.notify_all();
        changed_.wait(lock, [&] { return done_; });
        compiles_ = done_ = false;
        if (fails_) return Unasked();
        return std::unique_ptr<gpu::Kernel>(std::make_unique<MadeKernel>());
    }
    Result<std::unique_ptr<gpu::Commands>> Record() override { return Unasked(); }
    Result<uint64_t> Submit(const gpu::Commands&) override { return Unasked(); }
    Status Wait(uint64_t, Deadline) override { return Unasked(); }
    std::vector<int64_t> Times(const gpu::Commands&, uint32_t) override { return {}; }
    Status status() const override { return {}; }

    void AwaitCompiling() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return compiles_; });
    }
    void Finish(bool fails) {
        const std::lock_guard lock(mutex_);
        done_ = true;
        fails_ = fails;
        changed_.notify_all();
    }

  private:
    static Error Unasked() { return MakeError(ErrorCode::kUnsupported, "not here"); }
    gpu::Description description_;
    gpu::Buffer stop_word_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool compiles_ = false, done_ = false, fails_ = false;
};

TEST(VulkanKernels, CompilingIsProgress) {
    if (shaders::Find("map").empty()) GTEST_SKIP() << "built without shaders";
    SlowCompiler device;
    KernelCache kernels(device);
    EXPECT_EQ(kernels.progress(), kernels.progress()) << "nothing is done";
    for (const bool fails : {false, true}) {
        const uint32_t constant = fails ? 2 : 1;
        bool made = false;
        std::thread caller([&] { made = kernels.Get("map", {64, constant}, 16, 0).ok(); });
        device.AwaitCompiling();
        const int64_t now_ns = NowNs();
        int64_t before = kernels.progress(now_ns);
        constexpr int64_t kPartNs = KernelCache::kMostCompileNs / 10;
        for (int64_t later = 1; later < 10; ++later) {
            const int64_t after = kernels.progress(now_ns + later * kPartNs);
            EXPECT_GT(after, before);
            before = after;
        }
        // A driver that never returns is detected.
        const int64_t much_later = now_ns + KernelCache::kMostCompileNs;
        EXPECT_EQ(kernels.progress(much_later), kernels.progress(2 * much_later));
        before = kernels.progress(much_later);
        device.Finish(fails);
        caller.join();
        EXPECT_EQ(made, !fails);
        EXPECT_EQ(kernels.progress(), before + (fails ? 0 : 1));
        EXPECT_EQ(kernels.progress(), kernels.progress());
    }
    // A kernel in the cache is not compiled again.
    EXPECT_TRUE(kernels.Get("map", {64, 1}, 16, 0).ok());
    // After a stop, no other kernel is compiled.
    kernels.SetStopped([] { return true; });
    EXPECT_TRUE(kernels.Get("map", {64, 1}, 16, 0).ok());
    const auto stopped = kernels.Get("map", {64, 2}, 16, 0);
    ASSERT_FALSE(stopped.ok());
    EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
}

// Earlier versions made the folder with the user's mask: 0775 on Ubuntu and Fedora.
TEST(KernelFolder, IsTheUsersAlone) {
    const weft::test::TempDir cache;
    const char* const before = std::getenv("XDG_CACHE_HOME");
    const std::optional<std::string> kept =
        before == nullptr ? std::nullopt : std::optional<std::string>(before);
    ::setenv("XDG_CACHE_HOME", cache.path().c_str(), 1);
    const std::string folder = cache.path() + "/weft/vulkan";
    std::filesystem::create_directories(folder);
    ASSERT_EQ(::chmod(folder.c_str(), 0775), 0);
    EXPECT_EQ(KernelFolder(), folder);
    struct stat info {};
    EXPECT_EQ(::stat(folder.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0700u);
    const bool given = ::chown(folder.c_str(), 12'345, static_cast<gid_t>(-1)) == 0;  // (by root)
    EXPECT_EQ(KernelFolder(), given ? "" : folder);
    kept ? ::setenv("XDG_CACHE_HOME", kept->c_str(), 1) : ::unsetenv("XDG_CACHE_HOME");
}

}  // namespace
}  // namespace weft::backend::on_gpu
