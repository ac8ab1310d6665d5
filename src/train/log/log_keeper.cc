#include "train/log/log_keeper.h"

#include <filesystem>
#include <utility>

#include "base/log.h"

namespace weft::train {
namespace {

namespace fs = std::filesystem;

constexpr int kMostAside = 10'000;

// "DIR/log-1.csv", or the next free number; empty: none is free.
std::string SetAside(const std::string& path) {
    const fs::path whole(path);
    for (int number = 1; number <= kMostAside; ++number) {
        const std::string name =
            fmt::format("{}-{}{}", whole.stem().string(), number, whole.extension().string());
        const std::string to = (whole.parent_path() / name).string();
        std::error_code failed;
        if (fs::exists(to, failed) || failed) continue;
        fs::rename(path, to, failed);
        return failed ? "" : to;
    }
    return "";
}

}  // namespace

void LogKeeper::Open(TrainLogOptions options) {
    log_.reset();
    if (options.csv.empty() && options.tensorboard.empty()) return;
    auto opened = TrainLog::Open(options);
    const auto& csv = options.csv;
    if (!opened.ok() && !csv.empty() && opened.error().message.starts_with(csv)) {
        const std::string to = SetAside(options.csv);
        if (to.empty()) {
            Log(LogLevel::kWarning, "{}. Training goes on without this log",
                opened.error().message);
            options.csv.clear();
        } else {
            Log(LogLevel::kWarning, "{}: is a log with other columns; Weft renamed it to {}",
                options.csv, to);
        }
        opened = TrainLog::Open(options);
    }
    if (!opened.ok()) {
        Log(LogLevel::kWarning, "{}. Training goes on without a log", opened.error().message);
        return;
    }
    log_ = std::move(*opened);
    for (const std::string& note : log_->notes()) {
        Log(LogLevel::kWarning, "{}. Training goes on", note);
    }
}

void LogKeeper::AddWriter(std::string name, std::unique_ptr<LogWriter> writer) {
    queued_.push_back(std::make_unique<QueuedWriter>(std::move(name), std::move(writer)));
}

void LogKeeper::Add(const LogRow& row) {
    if (log_) faults_.Note(log_->Add(row));
    for (const auto& writer : queued_) writer->Add(row);
}

void LogKeeper::End(bool done) {
    for (const auto& writer : queued_) writer->End(done);
    if (log_ && log_->missing() > 0) {
        Log(LogLevel::kWarning, "the log lacks {} rows that could not be written", log_->missing());
    }
    log_.reset();
}

}  // namespace weft::train
