#include "cluster/cluster.h"

#include <fmt/ranges.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <set>

#include "base/log.h"
#include "cluster/control.h"
#include "cluster/dial.h"
#include "cluster/launched.h"
#include "cluster/spawn.h"
#include "hw/cpu.h"
#include "net/fabric.h"

namespace weft::cluster {
namespace {

constexpr size_t kMostJob = kMostAfterAuth / 2;
constexpr int64_t kLeastTimeoutMs = 200;
constexpr int64_t kMostTimeoutMs = 3'600'000;
constexpr int64_t kEpoch = 1;

// ---- What a host is -----------------------------------------------------------------------------

std::string SystemHostName() {
    char name[256] = "";
    if (::gethostname(name, sizeof name - 1) != 0) return "localhost";
    return name;
}

HostInfo ThisHost() {
    HostInfo info;
    info.name = SystemHostName();
    info.cores = AllowedCores();
    info.memory_bytes = AvailableMemoryBytes();
    // Files of /proc have no size, so they are not ReadTextFile's.
    if (std::FILE* file = std::fopen("/proc/sys/kernel/random/boot_id", "re"); file != nullptr) {
        char text[64] = "";
        if (std::fgets(text, sizeof text, file) != nullptr) info.boot_id.assign(text, 0, 36);
        std::fclose(file);
    }
    return info;
}

std::string PackHost(const HostInfo& info) {
    return PackStrings({info.name, info.boot_id, std::to_string(info.memory_bytes),
                        fmt::format("{}", fmt::join(info.cores, ","))});
}

Result<HostInfo> UnpackHost(const std::string& packed) {
    WEFT_ASSIGN(const std::vector<std::string> fields, UnpackStrings(packed));
    const auto broken = [] { return MakeError(ErrorCode::kCorrupt, "a malformed host record"); };
    if (fields.size() != 4) return broken();
    HostInfo info{fields[0], fields[1], {}, 0};
    const char* at = fields[2].data();
    if (std::from_chars(at, at + fields[2].size(), info.memory_bytes).ec != std::errc()) {
        return broken();
    }
    at = fields[3].data();
    const char* end = at + fields[3].size();
    while (at < end) {
        int core = -1;
        const auto parsed = std::from_chars(at, end, core);
        if (parsed.ec != std::errc() || core < 0) return broken();
        info.cores.push_back(core);
        at = parsed.ptr + 1;  // over the comma
    }
    return info;
}

// The device of one rank: `devices` names one for all ranks, or one for each.
Result<std::string> RdmaDeviceOf(const std::string& devices, int rank, int size) {
    std::vector<std::string> words(1);
    for (const char letter : devices) {
        if (letter == ',')
            words.emplace_back();
        else
            words.back() += letter;
    }
    if (words.size() == 1) return words[0];
    if (words.size() == static_cast<size_t>(size)) return words[static_cast<size_t>(rank)];
    return MakeError(ErrorCode::kUsage,
                     "--rdma-device {}: {} devices for {} ranks; expected 1 or {}", devices,
                     words.size(), size, size);
}

// ---- The cluster --------------------------------------------------------------------------------

class ClusterImpl final : public Cluster {
  public:
    ClusterImpl(int rank, int size, std::string job, int64_t timeout_ms)
        : rank_(rank), size_(size), job_(std::move(job)), timeout_ms_(timeout_ms) {}
    ~ClusterImpl() override {
        // The data links first: their ends tell nothing that the control plane has not said.
        if (control_ != nullptr) control_->Stop();
    }

    // One rank: nothing to talk to.
    void BeAlone();
    // All ranks, once each knows its place: host records, data links, and all are ready.
    Status Rendezvous(std::unique_ptr<Control> control, const AssignMessage& assignment,
                      std::vector<std::string> advertise);

    int rank() const override { return rank_; }
    int size() const override { return size_; }
    const std::string& job() const override { return job_; }
    const HostInfo& host(int rank) const override { return hosts_[static_cast<size_t>(rank)]; }
    const std::vector<int>& cores() const override { return cores_; }
    bool cores_shared() const override { return cores_shared_; }
    int64_t timeout_ms() const override { return timeout_ms_; }
    net::Fabric& fabric() override { return fabric_; }
    net::PeerMonitor* monitor() override { return control_.get(); }
    void SetProgress(std::function<int64_t()> progress) override {
        if (control_ != nullptr) control_->SetProgress(std::move(progress));
    }
    void SetPhase(const char* phase) override {
        if (control_ != nullptr) control_->SetPhase(phase);
    }
    Status Agree(const std::string& name, const std::string& value,
                 const Deadline& deadline) override;
    Result<std::vector<std::string>> AllGather(const std::string& name, const std::string& mine,
                                               const Deadline& deadline) override;
    Status Barrier(const std::string& name, const Deadline& deadline) override;
    Status Shutdown(const Deadline& deadline) override;
    Error ReportFailure(Error error) override {
        return control_ == nullptr ? error : control_->ReportFailure(std::move(error));
    }
    bool should_report() const override { return control_ == nullptr || control_->ShouldReport(); }
    void RequestStop() override {
        stop_requested_.store(true);
        if (control_ != nullptr) control_->RequestStop();
    }
    bool stop_requested() const override {
        return stop_requested_.load() || (stop_ != nullptr && stop_->load());
    }
    void SetStop(const std::atomic<bool>* stop) { stop_ = stop; }
    void SetMpi(net::MpiLibrary* mpi) { mpi_ = mpi; }

  private:
    Status GatherHosts(const std::vector<std::string>& names);
    Status JoinLinks(const AssignMessage& assignment, const std::vector<std::string>& advertise);
    void ShareCores();

    int rank_;
    int size_;
    std::string job_;
    int64_t timeout_ms_;
    std::vector<HostInfo> hosts_;
    std::vector<int> cores_;
    bool cores_shared_ = false;
    std::atomic<bool> stop_requested_{false};
    const std::atomic<bool>* stop_ = nullptr;
    net::MpiLibrary* mpi_ = nullptr;    // outlives the fabric
    std::unique_ptr<Control> control_;  // outlives the fabric, which asks it
    net::Fabric fabric_;
};

void ClusterImpl::BeAlone() {
    hosts_ = {ThisHost()};
    cores_ = hosts_[0].cores;
    fabric_.links.resize(1);
}

// The cores of this rank: those that its host's ranks share, in consecutive parts.
void ClusterImpl::ShareCores() {
    const HostInfo& mine = hosts_[static_cast<size_t>(rank_)];
    size_t count = 0, index = 0;
    for (int rank = 0; rank < size_; ++rank) {
        const HostInfo& other = hosts_[static_cast<size_t>(rank)];
        if (other.boot_id != mine.boot_id || other.cores != mine.cores) continue;
        if (rank == rank_) index = count;
        ++count;
    }
    const size_t cores = mine.cores.size();
    cores_shared_ = count > cores;
    const auto begin = mine.cores.begin();
    if (cores_shared_) {
        cores_ = mine.cores;
    } else {
        cores_.assign(begin + static_cast<ptrdiff_t>(cores * index / count),
                      begin + static_cast<ptrdiff_t>(cores * (index + 1) / count));
    }
}

Status ClusterImpl::GatherHosts(const std::vector<std::string>& names) {
    // A rank that is silent is noticed by the heartbeats, a little before this deadline.
    WEFT_ASSIGN(const auto packed,
                AllGather("host", PackHost(ThisHost()), Deadline::In(timeout_ms_ + 300)));
    for (size_t rank = 0; rank < packed.size(); ++rank) {
        WEFT_ASSIGN(HostInfo info, UnpackHost(packed[rank]));
        info.name = names[rank];
        hosts_.push_back(std::move(info));
    }
    ShareCores();
    return {};
}

Status ClusterImpl::JoinLinks(const AssignMessage& assignment,
                              const std::vector<std::string>& advertise) {
    net::FabricOptions options;
    options.rank = rank_;
    options.size = size_;
    options.hosts = assignment.hosts;
    WEFT_ASSIGN(options.transport, net::ParseTransport(assignment.transport));
    WEFT_ASSIGN(options.rdma_device, RdmaDeviceOf(assignment.rdma_device, rank_, size_));
    options.gid_index = assignment.gid_index;
    if (assignment.window_bytes != 0) options.window_bytes = assignment.window_bytes;
    options.epoch = static_cast<uint64_t>(assignment.epoch);
    options.mpi = mpi_;
    options.monitor = control_.get();
    WEFT_ASSIGN(auto builder, net::FabricBuilder::Make(options));
    std::vector<std::string> mine(static_cast<size_t>(size_));
    for (int peer = 0; peer < size_; ++peer) {
        const auto index = static_cast<size_t>(peer);
        if (peer != rank_) mine[index] = builder->OfferTo(peer, advertise[index]);
    }
    WEFT_ASSIGN(const auto packed,
                AllGather("offers", PackStrings(mine), Deadline::In(timeout_ms_ + 300)));
    std::vector<std::string> offers;
    for (const std::string& text : packed) {
        WEFT_ASSIGN(const auto of_rank, UnpackStrings(text));
        if (of_rank.size() != static_cast<size_t>(size_)) {
            return MakeError(ErrorCode::kCorrupt, "an offer for {} ranks; the cluster has {}",
                             of_rank.size(), size_);
        }
        offers.push_back(of_rank[static_cast<size_t>(rank_)]);
    }
    WEFT_ASSIGN(fabric_, builder->Connect(offers, Deadline::In(timeout_ms_)));
    control_->SetTransport(fabric_.transport);
    return {};
}

Status ClusterImpl::Rendezvous(std::unique_ptr<Control> control, const AssignMessage& assignment,
                               std::vector<std::string> advertise) {
    control_ = std::move(control);
    control_->SetPhase("rendezvous");
    const auto meet = [&]() -> Status {
        WEFT_TRY(GatherHosts(assignment.hosts));
        WEFT_TRY(JoinLinks(assignment, advertise));
        return Barrier("ready", Deadline::In(timeout_ms_ + 300));
    };
    const Status status = meet();
    if (!status.ok()) return control_->ReportFailure(status.error());
    control_->SetPhase(nullptr);
    return {};
}

Status ClusterImpl::Agree(const std::string& name, const std::string& value,
                          const Deadline& deadline) {
    if (control_ == nullptr) return {};
    const auto compare = [&](const std::vector<std::string>& values) -> Result<std::string> {
        for (size_t rank = 1; rank < values.size(); ++rank) {
            if (values[rank] == values[0]) continue;
            return MakeError(ErrorCode::kDenied,
                             "{}: the {} differs from rank 0's: '{}' there, '{}' on {}. All ranks "
                             "must have the same",
                             control_->Who(static_cast<int>(rank)), name, values[rank], values[0],
                             control_->Who(0));
        }
        return std::string();
    };
    WEFT_TRY(control_->Round(name, value, compare, deadline));
    return {};
}

Result<std::vector<std::string>> ClusterImpl::AllGather(const std::string& name,
                                                        const std::string& mine,
                                                        const Deadline& deadline) {
    if (control_ == nullptr) return std::vector<std::string>{mine};
    const auto pack = [](const std::vector<std::string>& values) -> Result<std::string> {
        return PackStrings(values);
    };
    WEFT_ASSIGN(const std::string packed, control_->Round(name, mine, pack, deadline));
    WEFT_ASSIGN(auto values, UnpackStrings(packed));
    if (values.size() != static_cast<size_t>(size_)) {
        return MakeError(ErrorCode::kCorrupt, "'{}': values of {} ranks, {} were expected", name,
                         values.size(), size_);
    }
    return values;
}

Status ClusterImpl::Barrier(const std::string& name, const Deadline& deadline) {
    WEFT_TRY(AllGather(name, "", deadline));
    return {};
}

Status ClusterImpl::Shutdown(const Deadline& deadline) {
    if (control_ == nullptr) return {};
    const Status status = control_->End(deadline);
    control_->Stop();
    return status;
}

// ---- Launch -------------------------------------------------------------------------------------

// One name a rank: the host as the user wrote it, with its port where two ranks share a host.
Result<std::vector<std::string>> HostNames(const ClusterOptions& options, int size) {
    if (options.hosts.empty()) {  // of a launcher's ranks, they are filled in later
        return std::vector<std::string>(static_cast<size_t>(size), SystemHostName());
    }
    std::vector<std::string> names = {SystemHostName()};
    for (const std::string& text : options.hosts) {
        WEFT_ASSIGN(const Address address, ParseAddress(text));
        const auto same = [&](const std::string& other) {
            auto parsed = ParseAddress(other);
            return parsed.ok() && parsed->host == address.host;
        };
        const auto count = std::count_if(options.hosts.begin(), options.hosts.end(), same);
        names.push_back(count > 1 ? text : address.host);
    }
    return names;
}

Status AddLocalRanks(Control& control, const ClusterOptions& options, int size) {
    for (int rank = 1; rank < size; ++rank) {
        WEFT_ASSIGN(auto ends, MakeSocketPair());
        const auto sessions = MakeSessionPair(options.timeout_ms);
        WEFT_ASSIGN(const pid_t pid, SpawnRank(options.worker_arguments, std::move(ends.second),
                                               sessions.second, true));
        control.AddPeer(rank, std::move(ends.first), sessions.first, pid);
    }
    return {};
}

// advertise[rank]: the address under which that rank reaches us, the one that we reach it from.
Status AddHosts(Control& control, const ClusterOptions& options,
                std::vector<std::string>& advertise) {
    WEFT_ASSIGN(const Bytes key, ReadKeyFile(options.key_file));
    // Less than a timeout, so that the first to answer does not give us up while we wait for the
    // last.
    const Deadline deadline = Deadline::In(options.timeout_ms * 3 / 4);
    WEFT_ASSIGN(auto dialled, DialWorkers(options.hosts, key, options.timeout_ms, deadline));
    for (size_t i = 0; i < dialled.size(); ++i) {
        advertise[i + 1] = LocalHost(dialled[i].fd.get());
        control.AddPeer(static_cast<int>(i + 1), std::move(dialled[i].fd), dialled[i].session, 0);
    }
    return {};
}

// names: of the hosts; each rank knows its own best.
Status AddLaunched(Control& control, const ClusterOptions& options,
                   std::vector<std::string>& advertise, std::vector<std::string>& names) {
    WEFT_ASSIGN(auto arrivals, options.launched->Gather(options.timeout_ms));
    for (size_t i = 0; i < arrivals.size(); ++i) {
        names[i + 1] = arrivals[i].host;
        advertise[i + 1] = LocalHost(arrivals[i].fd.get());
        control.AddPeer(static_cast<int>(i + 1), std::move(arrivals[i].fd), arrivals[i].session, 0);
    }
    return {};
}

// ---- Join ---------------------------------------------------------------------------------------

Result<std::unique_ptr<Cluster>> Report(const Control& control, Error error) {
    if (control.ShouldReport()) LogLine(LogLevel::kError, error.message);
    return error;
}

// launched: null where weft itself started this process.
Result<std::unique_ptr<Cluster>> JoinAs(Inheritance inherited, Launched* launched) {
    const std::string own_host = LocalHost(inherited.control.get());
    const int64_t timeout_ms = std::max(inherited.session.timeout_ms, kLeastTimeoutMs);
    Control::Options options;
    options.rank = -1;
    options.timeout_ms = timeout_ms;
    options.local = inherited.local;
    auto control = std::make_unique<Control>(options);
    Control& words = *control;
    control->AddPeer(0, std::move(inherited.control), inherited.session, 0);
    WEFT_TRY(control->Start());
    // From here the control thread sees to it that this process outlives rank 0 by no more than a
    // moment, and says why. A stopped process is made to run on, to see it.
    if (inherited.local && launched == nullptr) ::prctl(PR_SET_PDEATHSIG, SIGCONT);
    auto assignment = control->WaitForAssignment(Deadline::In(timeout_ms + 300));
    if (!assignment.ok()) return Report(words, assignment.error());
    const int size = static_cast<int>(assignment->hosts.size());
    if (launched != nullptr && assignment->rank != launched->rank()) {
        return Report(words, MakeError(ErrorCode::kDenied,
                                       "rank 0 takes this rank for rank {}, its launcher for rank "
                                       "{}",
                                       assignment->rank, launched->rank()));
    }
    auto cluster =
        std::make_unique<ClusterImpl>(assignment->rank, size, assignment->job, timeout_ms);
    if (launched != nullptr) cluster->SetMpi(launched->mpi());
    std::vector<std::string> advertise(static_cast<size_t>(size), own_host);
    const Status met = cluster->Rendezvous(std::move(control), *assignment, std::move(advertise));
    if (!met.ok()) return Report(words, met.error());
    return std::unique_ptr<Cluster>(std::move(cluster));
}

}  // namespace

Status CheckOptions(const ClusterOptions& options) {
    const auto most = static_cast<int>(kMostRanks);
    if (options.local < 1 || options.local > most) {
        return MakeError(ErrorCode::kUsage, "--local {}: 1 to {} ranks", options.local, most);
    }
    if (options.local > 1 && !options.hosts.empty()) {
        return MakeError(ErrorCode::kUsage,
                         "--local {} and --hosts exclude each other: start one "
                         "worker for each rank that a host shall run",
                         options.local);
    }
    if (options.hosts.size() >= kMostRanks) {
        return MakeError(ErrorCode::kUsage, "--hosts: {} hosts; at most {}", options.hosts.size(),
                         most - 1);
    }
    std::set<std::string> seen;
    for (const std::string& host : options.hosts) {
        WEFT_ASSIGN(const Address address, ParseAddress(host));
        if (!seen.insert(address.Text()).second) {
            return MakeError(ErrorCode::kUsage, "--hosts names {} twice: a worker runs one rank",
                             host);
        }
    }
    if (!options.hosts.empty() && options.key_file.empty()) {
        return MakeError(ErrorCode::kUsage,
                         "--hosts needs --key-file, with the same key as the workers have. Make "
                         "one with: (umask 077; head -c 32 /dev/urandom | base64 > FILE)");
    }
    WEFT_ASSIGN(const net::Transport transport, net::ParseTransport(options.transport));
    if (transport == net::Transport::kMpi && options.launched == nullptr) {
        return MakeError(ErrorCode::kUsage,
                         "--transport mpi joins ranks that an MPI launcher started, as in: "
                         "mpirun -n 2 weft run MODEL --transport mpi");
    }
    if (options.timeout_ms < kLeastTimeoutMs || options.timeout_ms > kMostTimeoutMs) {
        return MakeError(ErrorCode::kUsage, "--timeout-ms {}: {} to {}", options.timeout_ms,
                         kLeastTimeoutMs, kMostTimeoutMs);
    }
    return {};
}

int RanksOf(const ClusterOptions& options) {
    if (options.launched != nullptr) return options.launched->size();
    return options.hosts.empty() ? options.local : static_cast<int>(options.hosts.size()) + 1;
}

Result<std::unique_ptr<Cluster>> Cluster::Launch(const ClusterOptions& options, std::string job) {
    WEFT_TRY(CheckOptions(options));
    if (job.size() > kMostJob) {
        return MakeError(ErrorCode::kUnsupported, "a job description of {} bytes; at most {}",
                         job.size(), kMostJob);
    }
    const int size = RanksOf(options);
    WEFT_TRY(RdmaDeviceOf(options.rdma_device, 0, size));
    auto cluster = std::make_unique<ClusterImpl>(0, size, job, options.timeout_ms);
    cluster->SetStop(options.stop);
    if (options.launched != nullptr) cluster->SetMpi(options.launched->mpi());
    if (size == 1) {
        cluster->BeAlone();
        return std::unique_ptr<Cluster>(std::move(cluster));
    }
    AssignMessage assignment;
    WEFT_ASSIGN(assignment.hosts, HostNames(options, size));
    assignment.epoch = kEpoch;
    assignment.window_bytes = options.window_bytes;
    assignment.transport = options.transport;
    assignment.rdma_device = options.rdma_device;
    assignment.gid_index = options.gid_index;
    assignment.job = std::move(job);
    auto control = std::make_unique<Control>(Control::Options{
        0, options.timeout_ms, options.watchdog_ms, options.hosts.empty(), options.stop});
    std::vector<std::string> advertise(static_cast<size_t>(size));
    if (options.launched != nullptr) {
        WEFT_TRY(AddLaunched(*control, options, advertise, assignment.hosts));
    } else if (options.hosts.empty()) {
        WEFT_TRY(AddLocalRanks(*control, options, size));
    } else {
        WEFT_TRY(AddHosts(*control, options, advertise));
    }
    control->SetHosts(assignment.hosts);
    WEFT_TRY(control->Start());
    for (assignment.rank = 1; assignment.rank < size; ++assignment.rank) {
        control->Assign(assignment);
    }
    WEFT_TRY(cluster->Rendezvous(std::move(control), assignment, std::move(advertise)));
    return std::unique_ptr<Cluster>(std::move(cluster));
}

Result<std::unique_ptr<Cluster>> Cluster::Join(const std::string& handle) {
    ::signal(SIGINT, SIG_IGN);
    ::signal(SIGTERM, SIG_IGN);
    auto inherited = ReadHandle(handle);
    if (!inherited.ok()) {
        LogLine(LogLevel::kError, inherited.error().message);
        return inherited.error();
    }
    return JoinAs(std::move(*inherited), nullptr);
}

Result<std::unique_ptr<Cluster>> Cluster::JoinLaunched(Launched& launched) {
    ::signal(SIGINT, SIG_IGN);
    ::signal(SIGTERM, SIG_IGN);
    auto arrival = launched.Arrive();
    if (!arrival.ok()) {
        // A rank 0 that ended says why itself, where all ranks have one output.
        const bool said = arrival.error().code == ErrorCode::kPeerLost && launched.shares_output();
        if (!said) LogLine(LogLevel::kError, arrival.error().message);
        return arrival.error();
    }
    if (!arrival->has_value()) return std::unique_ptr<Cluster>();
    Inheritance inherited;
    inherited.control = std::move((*arrival)->fd);
    inherited.session = (*arrival)->session;
    inherited.local = launched.shares_output();
    return JoinAs(std::move(inherited), &launched);
}

}  // namespace weft::cluster
