// From one epoch to the next, after a rank was lost.
//
//     all        EndEpoch: the verdict is in; the links are let go
//     worker     LeaveEpoch: "I have left" to rank 0; waits for an assignment
//     rank 0     WaitForSurvivors; calls the lost back (CallBack), or does without them
//     rank 0     BeginEpoch: an assignment of epoch + 1 to each
//     all        Rendezvous, as at the start
#include <algorithm>
#include <thread>

#include "base/log.h"
#include "cluster/cluster_impl.h"
#include "cluster/dial.h"

namespace weft::cluster {
namespace {

// Attempts to form one epoch, each begun by another loss.
constexpr int kMostAttempts = 6;
// Of them, so many call the lost back where there is another way.
constexpr int kMostCalls = 3;
// A call of a worker may take so long before the user's wish to stop is looked at.
constexpr int64_t kCallMs = 500;
constexpr int64_t kCallNapMs = 50;

}  // namespace

Result<EpochInfo> ClusterImpl::NextEpoch(Error error, const Replan& replan) {
    if (control_ == nullptr) return error;
    const int rank = rank_, size = size_;
    const int64_t rejoin_ms = rank_ == 0 ? options_.rejoin_ms : 0;
    EpochInfo info;
    for (int attempt = 1;; ++attempt) {
        WEFT_TRY(control_->EndEpoch(error));
        fabric_ = {};
        if (rank_ == 0 && info.why.empty()) info.why = control_->LossText();
        if (attempt > kMostAttempts) {
            error = MakeError(ErrorCode::kPeerLost,
                              "{}. {} attempts to go on failed, the last one with: {}", info.why,
                              kMostAttempts, error.message);
            return rank_ == 0 ? control_->GiveUp(error) : error;
        }
        const bool call = attempt <= kMostCalls || !options_.elastic;
        const Status formed =
            rank_ == 0 ? FormEpoch(replan, Deadline::In(call ? rejoin_ms : 0), info) : AwaitEpoch();
        if (formed.ok()) break;
        error = formed.error();
    }
    info.epoch = assignment_.epoch;
    info.same_place = rank_ == rank && size_ == size;
    return info;
}

Status ClusterImpl::AwaitEpoch() {
    control_->LeaveEpoch();
    WEFT_ASSIGN(const AssignMessage assignment,
                control_->WaitForAssignment(Deadline::In(recover_ms_)));
    return Rendezvous(assignment);
}

Status ClusterImpl::FormEpoch(const Replan& replan, const Deadline& rejoin, EpochInfo& info) {
    const auto await = [&] { return control_->WaitForSurvivors(Deadline::In(timeout_ms_ + 500)); };
    auto lost = await();
    if (!lost.ok()) return control_->GiveUp(lost.error());
    for (int rank : *lost) {
        const bool known = std::count(info.lost.begin(), info.lost.end(), rank) > 0;
        if (!known) info.lost.push_back(rank);
    }
    if (!lost->empty() && !rejoin.expired()) {
        CallBack(*lost, rejoin);
        lost = await();
        if (!lost.ok()) return control_->GiveUp(lost.error());
    }
    if (!lost->empty() && !options_.elastic) {
        if (rejoin.expired()) return control_->GiveUp(NotBack(info.why, *lost));
        return MakeError(ErrorCode::kPeerLost, "a rank that had come back was lost again");
    }
    std::vector<int> kept;
    for (int rank = 0; rank < size_; ++rank) {
        if (std::count(lost->begin(), lost->end(), rank) == 0) kept.push_back(rank);
    }
    auto next = PlanEpoch(kept, replan);
    if (!next.ok()) {
        return control_->GiveUp(MakeError(
            ErrorCode::kPeerLost, "{}. The job cannot go on with the {} ranks that are left: {}",
            info.why, kept.size(), next.error().message));
    }
    if (!control_->BeginEpoch(kept, *next)) {
        return MakeError(ErrorCode::kPeerLost, "another rank was lost meanwhile");
    }
    if (!options_.hosts.empty()) {
        std::vector<std::string> addresses;
        for (int rank : kept) addresses.push_back(addresses_[static_cast<size_t>(rank)]);
        addresses_ = std::move(addresses);
    }
    return Rendezvous(*next);
}

// The assignment of the next epoch; its rank is rank 0's.
Result<AssignMessage> ClusterImpl::PlanEpoch(const std::vector<int>& kept, const Replan& replan) {
    AssignMessage next = assignment_;
    ++next.epoch;
    next.hosts.clear();
    for (int rank : kept) next.hosts.push_back(assignment_.hosts[static_cast<size_t>(rank)]);
    if (kept.size() < assignment_.hosts.size()) {
        WEFT_CHECK(replan != nullptr);
        const std::vector<std::string> devices = DeviceWords(assignment_.rdma_device);
        if (devices.size() > 1) {
            next.rdma_device.clear();
            for (int rank : kept) {
                next.rdma_device += (rank == 0 ? "" : ",") + devices[static_cast<size_t>(rank)];
            }
        }
    }
    if (replan != nullptr) {
        WEFT_ASSIGN(next.job, replan(kept));
    }
    return next;
}

Error ClusterImpl::NotBack(const std::string& why, const std::vector<int>& lost) const {
    std::string names;
    for (int rank : lost) names += (names.empty() ? "" : ", ") + control_->Who(rank);
    return MakeError(
        ErrorCode::kPeerLost,
        "{}. Within {} ms (--rejoin-ms) these did not come back: {}. The job has ended "
        "on all ranks; mend the cause and start it again, or give --elastic to go on "
        "without them.",
        why, options_.rejoin_ms, names);
}

// Puts new processes in the place of lost ones, as far as that works until the deadline.
void ClusterImpl::CallBack(const std::vector<int>& lost, const Deadline& rejoin) {
    if (dial_in_ != nullptr) return AwaitWorkers(lost, rejoin);
    if (!options_.hosts.empty()) return CallBackHosts(lost, rejoin);
    // What they held must be free before others take as much.
    control_->AwaitReaped(rejoin);
    for (int rank : lost) {
        if (stop_requested() || control_->stop_wished()) return;
        auto started = StartLocalRank(options_);
        if (!started.ok()) {
            Log(LogLevel::kWarning, "{}", started.error().message);
            continue;
        }
        control_->Replace(rank, std::move(started->control), started->session, started->pid);
    }
}

// Any worker that waits, or comes meanwhile, may take a lost one's place.
void ClusterImpl::AwaitWorkers(std::vector<int> lost, const Deadline& rejoin) {
    while (!lost.empty() && !rejoin.expired() && !stop_requested() && !control_->stop_wished()) {
        auto arrival = dial_in_->Next(lost);
        if (!arrival.has_value()) {
            std::this_thread::sleep_for(std::chrono::milliseconds(kCallNapMs));
            continue;
        }
        Log(LogLevel::kInfo, "{} ({}) takes the place of rank {}", arrival->host,
            PeerText(arrival->fd.get()), arrival->rank);
        std::erase(lost, arrival->rank);
        assignment_.hosts[static_cast<size_t>(arrival->rank)] = arrival->host;
        control_->Replace(arrival->rank, std::move(arrival->fd), arrival->session, 0);
    }
}

void ClusterImpl::CallBackHosts(const std::vector<int>& lost, const Deadline& rejoin) {
    std::vector<std::thread> threads;
    for (int rank : lost) {
        threads.emplace_back([this, rank, &rejoin] {
            const std::string& address = addresses_[static_cast<size_t>(rank)];
            while (!rejoin.expired() && !stop_requested() && !control_->stop_wished()) {
                const Deadline attempt = Deadline::In(std::min(kCallMs, rejoin.left_ms()));
                auto dialled = DialWorker(address, key_, timeout_ms_, attempt);
                if (dialled.ok()) {
                    control_->Replace(rank, std::move(dialled->fd), dialled->session, 0);
                    return;
                }
                const ErrorCode code = dialled.error().code;
                if (code == ErrorCode::kDenied || code == ErrorCode::kUsage) {
                    return Log(LogLevel::kWarning, "{}", dialled.error().message);
                }
                std::this_thread::sleep_for(std::chrono::milliseconds(kCallNapMs));
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
}

}  // namespace weft::cluster
