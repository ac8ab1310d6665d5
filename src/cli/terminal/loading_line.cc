#include "cli/terminal/loading_line.h"

#include <unistd.h>

#include <chrono>
#include <utility>

#include "base/start_thread.h"

namespace weft::cli {
namespace {

constexpr auto kTurn = std::chrono::milliseconds(100);

}  // namespace

LoadingLine::LoadingLine(std::string what, cluster::ClusterOptions& options)
    : what_(std::move(what)), loaded_(std::make_shared<std::atomic<int>>(-1)) {
    options.loaded = loaded_;
    line_.Show(what_ + " ...");
    // (Without a terminal, no thread wakes while ranks load.)
    if (!TakesEscapes(STDERR_FILENO)) return;
    [[maybe_unused]] const Status started =
        StartThread(watcher_, [this] { Watch(); }, {.wait_ms = 0});
}

LoadingLine::~LoadingLine() {
    {
        const std::lock_guard lock(mutex_);
        over_ = true;
    }
    ends_.notify_all();
    if (watcher_.joinable()) watcher_.join();
}

void LoadingLine::Watch() {
    int shown = -1;
    std::unique_lock lock(mutex_);
    while (!ends_.wait_for(lock, kTurn, [&] { return over_; })) {
        const int percent = loaded_->load() / 10;
        if (loaded_->load() < 0 || percent == shown) continue;
        shown = percent;
        line_.Show(fmt::format("{}: {} %", what_, percent));
    }
}

}  // namespace weft::cli
