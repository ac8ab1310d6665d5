// A thread that runs jobs beside the thread team, one after another. It sleeps when it has no job.
//
// It shares the team's cores, so its jobs should mostly wait, such as an all-reduce over a slow
// link. The thread starts with the first job.
// Thread: a single thread calls Start and Wait. A job sees everything that this thread wrote before
// Start. After Wait, this thread sees everything that the job wrote.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/result.h"
#include "coll/comm.h"

namespace weft::backend {

class SideThread {
  public:
    // cores: the cores on which the thread may run; empty: any core.
    explicit SideThread(std::vector<int> cores) : cores_(std::move(cores)) {}
    // Waits for all started jobs.
    ~SideThread();
    SideThread(const SideThread&) = delete;
    SideThread& operator=(const SideThread&) = delete;

    // Queues `job` and returns its number: 1, 2, ... Jobs run in this order. Errors: kIo (no
    // thread; the job will not run).
    Result<int64_t> Start(std::function<void()> job);
    // Waits until job `number` and all earlier jobs are done; 0 returns at once. The jobs must have
    // deadlines, because this wait has none. If the wait is long, it calls Comm::SetAwaitsOwn of
    // `group`, which may be null.
    void Wait(int64_t number, coll::Comm* group = nullptr);
    void Wait() { Wait(started_); }

  private:
    void Work();

    std::vector<int> cores_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> jobs_;  // queued
    int64_t started_ = 0, done_ = 0;
    bool stop_ = false;
    std::thread thread_;
};

}  // namespace weft::backend
