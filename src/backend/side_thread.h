// A thread beside the team that runs jobs, one after another, and sleeps while it has none.
//
// It shares the team's cores: for jobs that mostly wait, such as a sum over a slow wire. It starts
// with the first job.
// Threads: one that calls Start and Wait. What it wrote before Start is seen by the job, what the
// job wrote is seen after Wait.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "coll/comm.h"

namespace weft::backend {

class SideThread {
  public:
    // cores: where it may run; empty: anywhere.
    explicit SideThread(std::vector<int> cores) : cores_(std::move(cores)) {}
    // Waits for the jobs that were started.
    ~SideThread();
    SideThread(const SideThread&) = delete;
    SideThread& operator=(const SideThread&) = delete;

    // The job's number: 1, 2, ... It runs when those before it have.
    int64_t Start(std::function<void()> job);
    // Returns once that job has, and all before it; 0: at once. As long as the jobs' own deadlines.
    // group: hears of a wait that is long (Comm::SayAwaitsOwn); null: nobody does.
    void Wait(int64_t number, coll::Comm* group = nullptr);
    void Wait() { Wait(started_); }

  private:
    void Work();

    std::vector<int> cores_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> jobs_;  // that wait their turn
    int64_t started_ = 0, done_ = 0;
    bool stop_ = false;
    std::thread thread_;
};

}  // namespace weft::backend
