// A Cluster whose ranks are threads of one process: real links, collective calls over a mutex, and
// hosts and losses set by the test.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cluster/cluster.h"

namespace weft::test {

// Meeting point of the ranks. If a rank does not arrive within ten seconds, the others' calls fail.
class FakeHub {
  public:
    explicit FakeHub(int size) : size_(size) {}
    Result<std::vector<std::string>> Meet(int rank, int64_t round, const std::string& mine) {
        std::unique_lock lock(mutex_);
        std::map<int, std::string>& values = rounds_[round];
        values[rank] = mine;
        changed_.notify_all();
        const bool all = changed_.wait_for(lock, std::chrono::seconds(10), [&] {
            return static_cast<int>(values.size()) == size_ || failed_;
        });
        if (static_cast<int>(values.size()) < size_) {
            return failed_ || all ? failure_ : MakeError(ErrorCode::kTimeout, "a rank is missing");
        }
        std::vector<std::string> list;
        for (const auto& entry : values) list.push_back(entry.second);
        return list;
    }
    // All ranks receive the first error.
    Error Fail(Error error) {
        const std::lock_guard lock(mutex_);
        if (!failed_) failure_ = std::move(error);
        failed_ = true;
        changed_.notify_all();
        return failure_;
    }

  private:
    int size_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<int64_t, std::map<int, std::string>> rounds_;
    bool failed_ = false;
    Error failure_{ErrorCode::kIo, ""};
};

class FakeCluster final : public cluster::Cluster {
  public:
    FakeCluster(FakeHub& hub, int rank, int size, net::Fabric fabric = {})
        : hub_(hub), rank_(rank), size_(size), fabric_(std::move(fabric)) {
        for (int r = 0; r < size; ++r) {
            hosts_.push_back(
                {std::string(1, static_cast<char>('a' + r)), "boot", {0}, uint64_t{1} << 40});
        }
    }

    // Ranks' memory reports, "needed available", that replace the real ones.
    std::vector<std::string> memory;
    // Identities of all ranks' devices that replace the real ones.
    std::vector<std::string> devices;
    int64_t patience_ms = 5000;
    // Wait limit of the last collective call, by name.
    std::map<std::string, int64_t> waits_ms;
    // Why waiting workers were rejected.
    std::vector<std::string> rejections;
    // The last progress function that was set, and the one before it.
    std::function<int64_t()> progress, former_progress;
    // Called by each look for a request to stop.
    std::function<void()> on_look;
    // Handles a loss.
    std::function<Result<cluster::EpochInfo>(FakeCluster&, const Error&, const Replan&)> next_epoch;
    // Ranks with different words are on different machines. By default all are on one.
    void SetBoot(int rank, std::string boot) {
        hosts_[static_cast<size_t>(rank)].boot_id = std::move(boot);
    }
    void SetCores(std::vector<int> cores) { cores_ = std::move(cores); }
    void Become(int rank, int size, std::string job) {
        rank_ = rank;
        size_ = size;
        job_ = std::move(job);
    }

    int rank() const override { return rank_; }
    int size() const override { return size_; }
    const std::string& job() const override { return job_; }
    const cluster::HostInfo& host(int rank) const override {
        return hosts_[static_cast<size_t>(rank)];
    }
    const std::vector<int>& cores() const override { return cores_; }
    bool cores_shared() const override { return true; }
    int64_t timeout_ms() const override { return patience_ms; }
    net::Fabric& fabric() override { return fabric_; }
    net::PeerMonitor* monitor() override { return nullptr; }
    void SetProgress(std::function<int64_t()> shown) override {
        former_progress = std::exchange(progress, std::move(shown));
    }
    void SetPhase(const char*) override {}
    Status Agree(const std::string& name, const std::string& value,
                 const Deadline& deadline) override {
        // (A test may give each rank its own file.)
        WEFT_ASSIGN(const auto all, AllGather(name, value, deadline));
        const bool same =
            name == "model file" || std::ranges::count(all, all[0]) == std::ssize(all);
        return same ? Status() : MakeError(ErrorCode::kDenied, "the {} differs", name);
    }
    Result<std::vector<std::string>> AllGather(const std::string& name, const std::string& mine,
                                               const Deadline& deadline) override {
        waits_ms[name] = deadline.length_ms();
        if (name == "memory" && !memory.empty()) return memory;
        if (name == "device" && !devices.empty()) return devices;
        return hub_.Meet(rank_, ++round_, mine);
    }
    Status Barrier(const std::string& name, const Deadline& deadline) override {
        auto all = AllGather(name, "", deadline);
        return all.ok() ? Status() : Status(all.error());
    }
    Status Shutdown(const Deadline&) override { return {}; }
    Error ReportFailure(Error error) override { return hub_.Fail(std::move(error)); }
    bool should_report() const override { return true; }
    bool recovers() const override { return next_epoch != nullptr; }
    Result<cluster::EpochInfo> NextEpoch(Error error, const Replan& replan) override {
        return next_epoch(*this, error, replan);
    }
    void RejectJoiners(const std::string& why) override { rejections.push_back(why); }
    void RequestStop() override {}
    bool stop_requested() const override {
        if (on_look) on_look();
        return false;
    }

  private:
    FakeHub& hub_;
    int rank_, size_;
    int64_t round_ = 0;
    std::string job_;
    std::vector<cluster::HostInfo> hosts_;
    std::vector<int> cores_ = {0};
    net::Fabric fabric_;
};

}  // namespace weft::test
