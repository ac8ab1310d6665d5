#include "train/log/queued_writer.h"

#include <utility>

#include "base/deadline.h"
#include "base/log.h"
#include "base/start_thread.h"

namespace weft::train {

void FaultNote::Note(const Status& status) {
    if (status.ok() != faulty_) return;
    faulty_ = !status.ok();
    if (faulty_) {
        Log(LogLevel::kWarning, "{}. Training goes on{}", status.error().message, effect_);
    } else {
        Log(LogLevel::kInfo, "{}", again_);
    }
}

QueuedWriter::QueuedWriter(std::string name, std::unique_ptr<LogWriter> writer)
    : name_(std::move(name)), writer_(std::move(writer)), faults_("", name_ + " succeeds again") {
    const Status started =
        StartThread(thread_, [this] { Run(); }, {.wait_ms = kThreadMs, .signals = false});
    if (!started.ok()) {
        Log(LogLevel::kWarning, "{}: {}. Training goes on without it", name_,
            started.error().message);
    }
}

void QueuedWriter::Add(const LogRow& row) {
    if (!writer_->Wants(row)) return;
    const std::lock_guard lock(mutex_);
    if (ends_) return;
    if (rows_.size() == kMostRows) {
        rows_.pop_front();
        ++dropped_;
    }
    rows_.push_back(row);
    changed_.notify_one();
}

void QueuedWriter::End(bool done) {
    {
        const std::lock_guard lock(mutex_);
        if (std::exchange(ends_, true)) return;
        done_ = done;
        end_ns_ = NowNs() + kEndMs * 1'000'000;
        changed_.notify_one();
    }
    if (thread_.joinable()) thread_.join();
    dropped_ += static_cast<int64_t>(rows_.size());
    if (dropped_ > 0) {
        Log(LogLevel::kWarning, "{} lacks {} rows: it takes longer than the updates", name_,
            dropped_);
    }
}

void QueuedWriter::Run() {
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [this] { return ends_ || !rows_.empty(); });
        const bool late = ends_ && NowNs() >= end_ns_;
        if (rows_.empty() || late) break;
        const LogRow row = std::move(rows_.front());
        rows_.pop_front();
        const bool last = rows_.empty();
        lock.unlock();
        Status done = writer_->Add(row);
        if (done.ok() && last) done = writer_->Flush();
        if (!done.ok() || last) faults_.Note(done);  // (Add may only keep the row)
        lock.lock();
    }
    const bool late = NowNs() >= end_ns_;
    lock.unlock();
    if (late && faults_.faulty()) return;
    if (const Status ended = writer_->End(done_); !ended.ok()) faults_.Note(ended);
}

}  // namespace weft::train
