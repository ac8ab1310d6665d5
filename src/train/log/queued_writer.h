// Gives rows to a writer on a thread of its own, so that a slow or dead server or command delays no
// update. At most kMostRows rows wait; then the oldest are dropped and counted. A warning reports
// when a fault starts, and another line when it ends.
//
// Thread: one caller at a time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "train/log/log_writer.h"

namespace weft::train {

// Reports the beginning and the end of a writer's fault.
class FaultNote {
  public:
    // effect: added to the warning. again: the line when the fault ends.
    FaultNote(std::string effect, std::string again)
        : effect_(std::move(effect)), again_(std::move(again)) {}
    void Note(const Status& status);
    bool faulty() const { return faulty_; }

  private:
    const std::string effect_, again_;
    bool faulty_ = false;
};

class QueuedWriter {
  public:
    static constexpr size_t kMostRows = 1024;
    // The time for the rows that wait at the end. Each row has the writer's own limit. A writer
    // that fails and exceeds this time gets no further call.
    static constexpr int64_t kEndMs = 10'000;

    // name: "--report-to mlflow".
    QueuedWriter(std::string name, std::unique_ptr<LogWriter> writer);
    ~QueuedWriter() { End(false); }
    QueuedWriter(const QueuedWriter&) = delete;
    QueuedWriter& operator=(const QueuedWriter&) = delete;

    void Add(const LogRow& row);
    // Waits for the rows in the queue, and reports dropped rows. Later calls do nothing.
    void End(bool done);

  private:
    void Run();

    const std::string name_;
    const std::unique_ptr<LogWriter> writer_;
    FaultNote faults_;  // of the thread
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<LogRow> rows_;
    int64_t dropped_ = 0;
    bool ends_ = false, done_ = false;
    int64_t end_ns_ = 0;  // when the rest of the queue is dropped
    std::thread thread_;
};

}  // namespace weft::train
