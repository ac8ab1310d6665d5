// A thread beside the team that runs one job at a time and sleeps while it has none.
//
// It shares the team's cores: for jobs that mostly wait, such as a sum over a slow wire. It starts
// with the first job.
// Threads: one that calls Start and Wait, in turn. What it wrote before Start is seen by the job,
// what the job wrote is seen after Wait.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace weft::backend {

class SideThread {
  public:
    // cores: where it may run; empty: anywhere.
    explicit SideThread(std::vector<int> cores) : cores_(std::move(cores)) {}
    // Waits for the job that runs.
    ~SideThread();
    SideThread(const SideThread&) = delete;
    SideThread& operator=(const SideThread&) = delete;

    // No job is running: the last one was waited for.
    void Start(std::function<void()> job);
    // Returns once the job has: at once where there is none. As long as the job's own deadlines.
    void Wait();

  private:
    void Work();

    std::vector<int> cores_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::function<void()> job_;  // empty: none
    bool stop_ = false;
    std::thread thread_;
};

}  // namespace weft::backend
