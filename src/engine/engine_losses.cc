// How an engine handles lost ranks, and how it ends.
#include <ctime>
#include <utility>

#include "base/log.h"
#include "engine/rank/running_request.h"

namespace weft::engine {
namespace {

// Most recoveries in a row without a generated token between.
constexpr int kMostLosses = 5;

// Describes the missing ranks, while the others wait. `error` is worded for a job that ends.
std::string LossText(const cluster::Membership& members, const Error& error) {
    std::string text;
    for (const cluster::Member& member : members.ranks) {
        if (member.state == cluster::MemberState::kUp) continue;
        if (!text.empty()) text += "; ";
        text += fmt::format("rank {} (host {}) was lost: {}", member.rank, member.host, member.why);
    }
    return text.empty() ? error.message : text;
}

}  // namespace

Status Engine::RecoverFromLoss(Error error) {
    in_flight_.clear();
    if (stop_asked()) return EndAll(runner_->Fail(std::move(error)));
    const bool recovers = cluster().recovers();
    const std::string limit = recovers ? LimitReached() : "";
    if (recovers && limit.empty()) return StartAgain(std::move(error), false);
    error = runner_->Fail(std::move(error));
    if (error.code == ErrorCode::kPeerLost) error.message += limit;
    return FailAll(std::move(error));
}

// Why this loss exceeds a limit; empty: it does not.
std::string Engine::LimitReached() {
    if (++losses_ > kMostLosses) {
        return fmt::format(
            ". That was loss {} in a row without a token in between; the server recovers from at "
            "most {}",
            losses_, kMostLosses);
    }
    if (restarts_.Allows(NowNs())) return "";
    const int64_t window_ms = options_.restart_window_ms;
    const std::string window = window_ms > 0 ? fmt::format(" within the last {:.6g} s",
                                                           static_cast<double>(window_ms) / 1e3)
                                             : "";
    return fmt::format(
        ". The server has recovered from {} losses{}, which is its limit (--max-restarts {}, "
        "--restart-window-ms {}); start it again, with a higher limit if you expect such losses",
        restarts_.Recent(NowNs()), window, options_.max_restarts, window_ms);
}

// Admits waiting workers between two steps.
Status Engine::GrowIfRequested() {
    if (stop_asked()) return {};
    const int count = runner_->PendingJoiners();
    if (count == 0) return {};
    if (const Status completed = CompleteAllSteps(); !completed.ok()) {
        return RecoverFromLoss(completed.error());
    }
    const Status admitted = runner_->Admit(count);
    return admitted.ok() ? Status() : StartAgain(admitted.error(), true);
}

Status Engine::StartAgain(Error error, bool joining) {
    std::string loss = LossText(cluster().Members(), error);
    {
        const std::lock_guard lock(mutex_);
        if (stopping_ || draining_) cluster().RequestStop();  // requested meanwhile
        published_.state = EngineState::kRecovering;
        published_.loss = std::move(loss);
        published_.joining = joining;
        published_.lost_s = std::time(nullptr);
    }
    const Status recovered = runner_->Recover(error);
    if (!recovered.ok()) return EndAll(recovered.error());
    NoteRecoveries();
    NoteLayout();
    scheduler_->Forget(rank().kv_pages());
    scheduler_->KeepPages(rank().page_keys());
    drafts_.ForgetCosts();
    rank().SetIdle(true);
    const Status drafts = drafter_ == nullptr ? Status() : drafter_->Serve(rank());
    if (!drafts.ok()) return EndAll(runner_->Fail(drafts.error()));
    return {};
}

// Records one or more recoveries.
void Engine::NoteRecoveries() {
    auto& recoveries = working_.recoveries;
    auto& times_s = working_.recovered_s;
    for (Recovery& recovery : std::exchange(runner_->recoveries(), {})) {
        const bool loss = !recovery.lost.empty();
        recoveries.push_back(std::move(recovery));
        times_s.push_back(std::time(nullptr));
        if (!loss) continue;
        restarts_.Add(NowNs());
        ++working_.recovered;
    }
    while (recoveries.size() > EngineStats::kMostRecoveries) {
        recoveries.erase(recoveries.begin());
        times_s.erase(times_s.begin());
    }
}

// Updates the layout of the ranks. Drops reports with other rank numbers.
void Engine::NoteLayout() {
    if (working_.ranks.size() != static_cast<size_t>(cluster().size())) {
        working_.ranks.clear();
        working_.power_w.clear();
    }
    working_.layout = rank().layout();
    working_.transport = cluster().size() == 1 ? "none" : cluster().fabric().transport;
    reported_ = true;
}

// An error after the user's request to stop is not a failure.
Status Engine::EndAll(Error error) {
    if (!stop_asked()) return FailAll(std::move(error));
    if (error.code != ErrorCode::kCancelled) Log(LogLevel::kWarning, "{}", error.message);
    [[maybe_unused]] const Status ended =
        FailAll(MakeError(ErrorCode::kCancelled, "the server is shutting down"));
    return {};
}

// Ends the engine: every listener gets the reason.
Status Engine::FailAll(Error error) {
    {
        const std::lock_guard lock(mutex_);
        published_.state = EngineState::kOver;
        published_.error = error.message;
        working_.error = error.message;
        working_.state = EngineState::kOver;
    }
    DrainCommands();
    for (const auto& [id, active] : active_) End(*active, error);
    EndSlots(error);
    ReapFinished();
    return error;
}

}  // namespace weft::engine
