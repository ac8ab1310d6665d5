#include "sim/world.h"

#include <algorithm>
#include <csignal>
#include <fstream>

#include "base/log.h"
#include "cluster/join/spawn.h"

namespace weft::sim {
namespace {

constexpr size_t kWindowBytes = 64 << 10;
constexpr uint16_t kPort = 7000;
// Longest time of any plan without a step: all attempts of recovery, one after the other.
constexpr int64_t kLongestNs = 3'600'000 * kMs;

// Time beyond the timeout: until all ranks know of a loss (cluster.h), plus the watchdog's. Shorter
// than the longest timeout of a plan, so that a rank that waits for twice its timeout is late.
constexpr int64_t kGraceMs = 1000 + 700;

// Longest period of heartbeats, which is otherwise a tenth of the timeout (Control::BeatNs).
constexpr int64_t kMostBeatNs = 200 * kMs;

World* g_world = nullptr;

std::string WorkerAt(int host, int cable) {
    return fmt::format("{}:{}", Kernel::HostText(host, cable), kPort);
}

}  // namespace

World::World(const Plan& plan, Workload& workload, std::string key_file)
    : plan_(plan), workload_(workload), key_file_(std::move(key_file)), kernel_(plan.seed) {
    g_world = this;
    cluster::SetRankStarter(&StartRank);
}

World::~World() {
    cluster::SetRankStarter(nullptr);
    g_world = nullptr;
}

// ---- Processes ----------------------------------------------------------------------------------

int World::RankZero(bool last, Outcome& outcome, bool backwards) {
    cluster::ClusterOptions options;
    options.transport = "tcp";
    options.timeout_ms = plan_.timeout_ms;
    options.window_bytes = kWindowBytes;
    options.key_file = key_file_;
    options.rejoin_ms = plan_.rejoin_ms;
    options.elastic = plan_.elastic;
    options.stop = &stop_;
    options.wait_ms = last ? 300'000 : 20'000;
    if (plan_.rivals > 0) options.wait_ms = 60'000;
    if (plan_.elastic) {
        options.replan = [](const std::string& job, int,
                            const std::vector<int>&) -> Result<std::string> { return job; };
    }
    if (plan_.dial_in) {
        options.wait_for = plan_.hosts - 1;
        options.listen = fmt::format("0.0.0.0:{}", kPort);
    } else {
        for (int host = 1; host < plan_.hosts; ++host) {
            options.hosts.push_back(WorkerAt(host, 0));
            if (plan_.cables > 1) options.host_names.push_back(fmt::format("sim{}", host));
        }
        if (backwards) std::ranges::reverse(options.hosts);
        if (plan_.cables > 1) {
            options.addresses_now = [](const std::string& name) {
                const int host = std::stoi(name.substr(3));
                return std::vector{WorkerAt(host, 0), WorkerAt(host, 1)};
            };
        }
    }
    const Status status = workload_.RunRoot(options, last, outcome);
    outcome.ended = true;
    outcome.longest_packet_ns = kernel_.network().LongestNs();
    if (!status.ok()) {
        outcome.code = status.error().code;
        outcome.error = status.error().message;
    }
    kernel_.Note("rank 0: " + (status.ok() ? std::string("done") : outcome.error));
    return status.ok() ? 0 : ExitStatus(outcome.code);
}

int World::Worker(int host) {
    Status status;
    if (plan_.dial_in) {
        cluster::WorkerJoiner::Options options;
        options.join = fmt::format("{}:{}", Kernel::HostText(0), kPort);
        options.key_file = key_file_;
        auto joiner = cluster::WorkerJoiner::Open(options);
        if (!joiner.ok()) return 9;
        const auto ran = (*joiner)->Run();
        return ran.ok() ? *ran : 9;
    }
    cluster::WorkerListener::Options options;
    options.listen = plan_.cables > 1 ? fmt::format("0.0.0.0:{}", kPort) : WorkerAt(host, 0);
    options.key_file = key_file_;
    options.jobs = plan_.jobs;
    auto listener = cluster::WorkerListener::Open(options);
    if (!listener.ok()) return 9;
    return (*listener)->Run().ok() ? 0 : 9;
}

// Up to 0.3 ms after the first job, so that each worker may receive the jobs in another order.
void World::StartRivals() {
    rival_outcomes_.resize(static_cast<size_t>(plan_.rivals));
    for (size_t i = 0; i < rival_outcomes_.size(); ++i) {
        const int64_t later_ns = kernel_.random().Between(0, 300) * kUs;
        kernel_.At(begin_ns_ + later_ns, [this, i] {
            rivals_.push_back(
                kernel_
                    .Start(0, fmt::format("rival {}", i),
                           [this, i] { return RankZero(false, rival_outcomes_[i], i % 2 == 0); })
                    .pid);
        });
    }
}

bool World::IsOfJob(const Process& process) const {
    return process.pid == rank_zero_ || process.parent != 0 ||
           std::ranges::count(rivals_, process.pid) > 0;
}

std::string World::CheckRivals() const {
    for (const Outcome& outcome : rival_outcomes_) {
        if (!outcome.ended || !outcome.error.empty() || !outcome.complete) {
            return "a rival failed: " + (outcome.error.empty() ? "no end" : outcome.error);
        }
    }
    return "";
}

// A worker's child, with its end of the control connection.
Result<int> World::StartRank(Fd control, const cluster::Session& session, bool) {
    Kernel& kernel = g_world->kernel_;
    const int host = kernel.process().host;
    const auto connection = kernel.Get(control.get());
    const auto pipe = std::make_shared<Pipe>();
    const cluster::Bytes secret = cluster::EncodeSession(session);
    pipe->bytes.assign(reinterpret_cast<const char*>(secret.data()), secret.size());
    auto handle = std::make_shared<std::string>();
    Process& child = kernel.StartChild(fmt::format("rank on {}", host), [handle] {
        auto cluster = cluster::Cluster::Join(*handle);
        if (!cluster.ok()) return ExitStatus(cluster.error().code);
        const Status status = g_world->workload_.RunRank(**cluster);
        if (!status.ok() && !g_world->healed_) {
            g_world->rank_errors_.push_back(
                {g_world->kernel_.process().name, status.error().code, status.error().message});
        }
        g_world->kernel_.Note(fmt::format("{}: {}", g_world->kernel_.process().name,
                                          status.ok() ? "done" : status.error().message));
        return status.ok() ? 0 : ExitStatus(status.error().code);
    });
    const int first = kernel.AddTo(child, connection);
    const int second = kernel.AddTo(child, pipe);
    *handle = fmt::format("host:{},{}", first, second);
    return child.pid;
}

// ---- Faults -------------------------------------------------------------------------------------

Process* World::WorkerOf(int host) {
    Process* worker = kernel_.Find(workers_[static_cast<size_t>(host)]);
    return worker != nullptr && !worker->ended ? worker : nullptr;
}

// The process of the job on that host.
Process* World::RankOf(int host) {
    if (host == 0) return kernel_.Find(rank_zero_);
    for (const auto& process : kernel_.processes()) {
        if (process->host == host && process->parent != 0 && !process->ended) return process.get();
    }
    return nullptr;
}

void World::StartWorker(int host) {
    if (host == 0 || WorkerOf(host) != nullptr) return;
    workers_[static_cast<size_t>(host)] =
        kernel_.Start(host, fmt::format("worker {}", host), [this, host] { return Worker(host); })
            .pid;
}

void World::Begin(const FaultPlan& fault) {
    if (healed_) return;
    Process* rank = RankOf(fault.host);
    Process* worker = WorkerOf(fault.host);
    if (const Process* root = kernel_.Find(rank_zero_); root != nullptr && !root->ended) {
        hits_.push_back({fault, kernel_.now(), outcome_.steps});
    }
    switch (fault.fault) {
        case Fault::kKillRank:
            if (rank != nullptr) kernel_.Signal(*rank, SIGKILL);
            break;
        case Fault::kKillWorker:
            // (The kernel kills its child with it.)
            if (worker != nullptr) kernel_.Signal(*worker, SIGKILL);
            if (rank != nullptr) kernel_.Signal(*rank, SIGKILL);
            break;
        case Fault::kStopRank:
            if (rank != nullptr) kernel_.Signal(*rank, SIGSTOP);
            break;
        case Fault::kPowerOff: kernel_.PowerOff(fault.host); break;
        case Fault::kAskToEnd:
            if (worker != nullptr) kernel_.Signal(*worker, SIGTERM);
            break;
        case Fault::kAskToStop: stop_ = true; break;
        case Fault::kCut:
        case Fault::kLose:
        case Fault::kDelay:
        case Fault::kSlow: SetWires(fault, true); break;
        case Fault::kFillDisk:
        case Fault::kBreakDisk:
        case Fault::kSlowDisk: SetDisk(fault, true); break;
        case Fault::kCount: break;
    }
}

void World::End(const FaultPlan& fault) {
    if (healed_) return;
    switch (fault.fault) {
        case Fault::kStopRank:
            for (const auto& process : kernel_.processes()) {
                if (process->host == fault.host && process->stopped && !process->ended) {
                    kernel_.Signal(*process, SIGCONT);
                }
            }
            break;
        case Fault::kPowerOff: kernel_.PowerOn(fault.host); [[fallthrough]];
        case Fault::kKillWorker:
        case Fault::kAskToEnd: StartWorker(fault.host); break;
        default:
            if (fault.OfLink()) SetWires(fault, false);
            if (fault.OfDisk()) SetDisk(fault, false);
    }
}

void World::SetDisk(const FaultPlan& fault, bool begins) {
    kernel_.Note(fault.Text() + (begins ? " begins" : " ends"));
    Disk& disk = workload_.disk;
    const int64_t amount = begins ? fault.amount : 0;
    if (fault.fault == Fault::kFillDisk) disk.full = begins;
    if (fault.fault == Fault::kBreakDisk) disk.broken_percent = static_cast<int>(amount);
    if (fault.fault == Fault::kSlowDisk) disk.slow_ns = (begins ? amount : plan_.disk_ms) * kMs;
}

void World::SetWires(const FaultPlan& fault, bool begins) {
    kernel_.Note(fault.Text() + (begins ? " begins" : " ends"));
    for (int cable = 0; cable < plan_.cables; ++cable) {
        if (fault.cable >= 0 && fault.cable != cable) continue;
        const Route route{fault.host, fault.other, cable};
        for (const Route& each : {route, route.Back()}) {
            Wire& wire = kernel_.network().WireOf(each);
            const int64_t amount = begins ? fault.amount : 0;
            if (fault.fault == Fault::kCut) wire.cut = begins;
            if (fault.fault == Fault::kLose) wire.lost_percent = static_cast<int>(amount);
            if (fault.fault == Fault::kDelay) wire.delay_ns = amount * kMs;
            if (fault.fault == Fault::kSlow) wire.bytes_per_s = amount * 1000;
            if (fault.one_way) break;
        }
    }
}

// ---- Invariants ---------------------------------------------------------------------------------

std::string World::Run() {
    for (int host = 0; host < plan_.hosts; ++host) kernel_.AddHost();
    workers_.assign(static_cast<size_t>(plan_.hosts), 0);
    kernel_.SetCables(plan_.cables);
    kernel_.SetDisk(&workload_.disk);
    workload_.disk.slow_ns = plan_.disk_ms * kMs;
    if (plan_.second_fast) {
        kernel_.speed_file = key_file_ + ".speed";
        std::ofstream(kernel_.speed_file) << "10000\n";
    }
    begin_ns_ = kernel_.now();
    for (int host = 1; host < plan_.hosts; ++host) StartWorker(host);
    rank_zero_ = kernel_.Start(0, "rank 0", [this] { return RankZero(false, outcome_); }).pid;
    StartRivals();
    for (const FaultPlan& fault : plan_.faults) {
        kernel_.At(begin_ns_ + fault.at_ns, [this, fault] { Begin(fault); });
        if (fault.length_ns == kForever) continue;
        kernel_.At(begin_ns_ + fault.at_ns + fault.length_ns, [this, fault] { End(fault); });
    }
    const auto over = [&] {
        if (kernel_.now() < FaultsEndNs() || rivals_.size() < rival_outcomes_.size()) return false;
        for (const auto& process : kernel_.processes()) {
            if (IsOfJob(*process) && !process->ended && !process->stopped) return false;
        }
        return true;
    };
    // (Steps over a slow cable may take minutes each, and the job hours.)
    for (int64_t steps = -1; !over() && outcome_.steps != steps;) {
        steps = outcome_.steps;
        kernel_.Run(over, kernel_.now() + kLongestNs);
    }
    for (const auto& process : kernel_.processes()) {
        if (IsOfJob(*process) && !process->ended && !process->stopped) {
            return fmt::format("{} outlives its job or hangs", process->name);
        }
    }
    std::string wrong = CheckRivals();
    if (wrong.empty()) wrong = Check();
    return wrong.empty() ? RunAnotherJob() : wrong;
}

int64_t World::FaultsEndNs() const {
    int64_t end = begin_ns_;
    for (const FaultPlan& fault : plan_.faults) {
        const int64_t length = fault.length_ns == kForever ? 0 : fault.length_ns;
        end = std::max(end, begin_ns_ + fault.at_ns + length);
    }
    return end;
}

std::string World::Check() {
    const bool root_lost = kernel_.Find(rank_zero_)->stopped ||
                           (!outcome_.ended && kernel_.Find(rank_zero_)->status == SIGKILL);
    if (!root_lost && !outcome_.ended) {
        // The control thread ended the process in place of the main thread.
        const std::string& err = kernel_.Find(rank_zero_)->err;
        if (err.empty() && kernel_.Find(rank_zero_)->status != 0) {
            return "rank 0 ended without a word";
        }
        outcome_.error = err;
    }
    const bool done = outcome_.ended && outcome_.error.empty();
    if (hits_.empty() && !done) return "without a fault, the job failed: " + outcome_.error;
    // (A rank may be lost in the goodbye.)
    if (MustRecover() && !outcome_.complete) return "the job did not recover: " + outcome_.error;
    if (const std::string called = CheckSilence(); !called.empty()) return called;
    if (const std::string late = CheckTimes(); !late.empty()) return late;
    if (done && !outcome_.complete) return "rank 0 is done, but the work is not";
    if (const std::string wrong = workload_.Check(outcome_); !wrong.empty()) return wrong;
    return outcome_.error.empty() ? "" : CheckErrors();
}

// A rank whose heartbeats arrive in time is never called silent: while only links are slow, the
// time between two of them grows by one packet's time, and another thread may run before each is
// sent.
std::string World::CheckSilence() const {
    const int64_t timeout_ns = plan_.timeout_ms * kMs;
    const bool heard = outcome_.longest_packet_ns + 2 * BeatNs() < timeout_ns;
    const auto of_link = [](const Hit& hit) { return hit.steps >= 1 && hit.fault.OfLink(); };
    if (!heard || !std::ranges::all_of(hits_, of_link)) return "";
    const std::string text = outcome_.error + kernel_.Find(rank_zero_)->err;
    return text.find("silent for") == std::string::npos ? "" : "no rank was silent: " + text;
}

// Whether every fault is one that the job must survive while its steps run.
bool World::MustRecover() const {
    if (hits_.size() > 2) return false;
    const auto in_steps = [](const Hit& hit) { return hit.steps >= 1; };
    if (!std::ranges::all_of(hits_, in_steps)) return false;
    const bool prompt = IsPrompt(outcome_);
    return std::ranges::all_of(hits_, [&](const Hit& hit) {
        return (prompt && hit.fault.OfLink()) || hit.fault.fault == Fault::kSlowDisk ||
               Heals(hit.fault);
    });
}

// Whether all packets came soon enough that no wait may expire. A rank waits longest, for two
// packets' times, for a peer that receives the previous data one packet's time late and whose own
// data take as long. Rank 0 learns of the peer's progress up to a heartbeat later.
bool World::IsPrompt(const Outcome& outcome) const {
    return 2 * outcome.longest_packet_ns + BeatNs() < plan_.timeout_ms * kMs;
}

int64_t World::BeatNs() const {
    return std::min(plan_.timeout_ms * kMs / 10, kMostBeatNs);
}

// Whether the job recovers: a rank other than 0 is lost, or some ranks do not reach each other, and
// the lost rank's worker, or the cable, is there, or back soon.
bool World::Heals(const FaultPlan& fault) const {
    if (plan_.rejoin_ms == 0) return false;
    const bool brief = IsBrief(fault);
    switch (fault.fault) {
        case Fault::kKillRank: return fault.host != 0;
        case Fault::kKillWorker: return fault.host != 0 && brief;
        case Fault::kStopRank:
        case Fault::kPowerOff:
        case Fault::kAskToEnd:
        case Fault::kAskToStop: return false;
        case Fault::kCut: return brief || OtherCableServes(fault);
        case Fault::kLose:
        case Fault::kDelay:
        case Fault::kSlow: return brief;
        case Fault::kFillDisk:
        case Fault::kBreakDisk:
        case Fault::kSlowDisk:
        case Fault::kCount: return false;
    }
    return false;
}

// Whether the fault ends while rank 0 still waits for lost ranks.
bool World::IsBrief(const FaultPlan& fault) const {
    return fault.length_ns < plan_.rejoin_ms * kMs / 2;
}

// Whether another cable can carry the data of this one. (A worker that dials rank 0 knows only one
// address of it.)
bool World::OtherCableServes(const FaultPlan& fault) const {
    if (plan_.cables == 1 || fault.cable < 0) return false;
    const auto cuts_other = [&](const Hit& hit) {
        const FaultPlan& cut = hit.fault;
        return cut.fault == Fault::kCut && cut.cable != fault.cable && !IsBrief(cut) &&
               std::minmax(cut.host, cut.other) == std::minmax(fault.host, fault.other);
    };
    if (std::ranges::any_of(hits_, cuts_other)) return false;
    return fault.cable == 1 || !plan_.dial_in || (fault.host != 0 && fault.other != 0);
}

// Without recovery, one lasting loss ends the job on all other hosts within the time that
// cluster.h promises.
std::string World::CheckTimes() const {
    if (plan_.rivals > 0) return "";  // whose ranks outlive this rank 0
    // No rank outlives rank 0 for long, whatever happened.
    const int64_t over_ns = kernel_.Find(rank_zero_)->ended_ns;
    for (const auto& process : kernel_.processes()) {
        if (process->parent == 0 || !process->ended || over_ns == 0) continue;
        const int64_t limit_ns =
            std::max(over_ns, process->began_ns) + (plan_.timeout_ms + kGraceMs) * kMs;
        if (!process->was_stopped && process->ended_ns > limit_ns) {
            return fmt::format("{} ended {} ms after rank 0", process->name,
                               (process->ended_ns - over_ns) / kMs);
        }
    }
    if (plan_.recovers() || hits_.size() != 1 || hits_[0].steps < 1) return "";
    const Hit& hit = hits_[0];
    const bool lasting =
        hit.fault.fault == Fault::kKillRank || hit.fault.fault == Fault::kKillWorker ||
        ((hit.fault.fault == Fault::kStopRank || hit.fault.fault == Fault::kPowerOff) &&
         hit.fault.length_ns == kForever);
    if (!lasting) return "";
    const int64_t limit_ns = hit.at_ns + (plan_.timeout_ms + kGraceMs) * kMs;
    for (const auto& process : kernel_.processes()) {
        const bool of_job = process->pid == rank_zero_ || process->parent != 0;
        if (!of_job || process->host == hit.fault.host || !process->ended) continue;
        if (process->was_stopped) continue;
        if (process->ended_ns > limit_ns) {
            return fmt::format("{} ended {} ms after the fault", process->name,
                               (process->ended_ns - hit.at_ns) / kMs);
        }
    }
    return "";
}

// Once all hosts and links are well, the workers serve another job.
std::string World::RunAnotherJob() {
    healed_ = true;
    for (int host = 0; host < plan_.hosts; ++host) kernel_.PowerOn(host);
    kernel_.network().Mend();
    workload_.disk.Mend();
    for (const auto& process : kernel_.processes()) {
        if (process->stopped && !process->ended) kernel_.Signal(*process, SIGCONT);
    }
    // (Some are still about to end.)
    const std::function<void()> restart = [&] {
        for (int host = 1; host < plan_.hosts; ++host) StartWorker(host);
        kernel_.At(kernel_.now() + 1000 * kMs, restart);
    };
    restart();
    if (Process* old = kernel_.Find(rank_zero_); !old->ended) kernel_.Signal(*old, SIGKILL);
    stop_ = false;
    Outcome again;
    kernel_.Start(0, "rank 0 of another job", [this, &again] { return RankZero(true, again); });
    kernel_.Run([&] { return again.ended; }, kernel_.now() + kLongestNs);
    if (!again.ended) return "another job hangs";
    if (!again.error.empty()) return "another job failed: " + again.error;
    return workload_.Check(again);
}

// When the job fails, the error of each rank names a rank or host at fault.
std::string World::CheckErrors() const {
    std::string wrong = CheckError(outcome_.code, outcome_.error);
    for (const RankError& each : rank_errors_) {
        if (!wrong.empty()) break;
        wrong = CheckError(each.code, each.text);
        if (!wrong.empty()) wrong = each.process + ": " + wrong;
    }
    return wrong;
}

// An error names a rank or host at fault, or says that the user ended the job.
std::string World::CheckError(ErrorCode code, const std::string& error) const {
    if (code == ErrorCode::kCancelled && plan_.Has(Fault::kAskToStop)) return "";
    for (const FaultPlan& fault : plan_.faults) {
        if (fault.OfDisk()) {
            // (The advice to resume names a folder, too.)
            const std::string cause = error.substr(0, error.find("--resume"));
            if (cause.find(workload_.disk.folder) != std::string::npos) return "";
            continue;
        }
        for (const int host : {fault.host, fault.other}) {
            if (error.find(Kernel::HostText(host)) != std::string::npos) return "";
            if (error.find(fmt::format("sim{}", host)) != std::string::npos) return "";
        }
    }
    const auto says = [&](const char* text) { return error.find(text) != std::string::npos; };
    if (plan_.Has(Fault::kAskToStop) && says("stopped by the user")) return "";
    // The error of a rank 0 that was stopped itself says so.
    if (plan_.Has(Fault::kStopRank) && says("after this process had not run for")) return "";
    // The error of a rank whose worker was asked to end says so.
    if (plan_.Has(Fault::kAskToEnd) && says("asked to end (SIGTERM)")) return "";
    // (Rank 0 does not know workers that never connected.)
    if (error.find("workers connected within") != std::string::npos) return "";
    return "the error names nobody at fault: " + error;
}

}  // namespace weft::sim
