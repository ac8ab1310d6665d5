// Implementation of Cluster: one object per process, over its Control and its Fabric.
//
// Launch and Join are in cluster.cc. The handling of an AssignMessage is in rendezvous.cc, the
// transition between epochs in epoch.cc. Thread: as Cluster.
#pragma once

#include <atomic>
#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "cluster/control.h"
#include "cluster/join/dial_in.h"
#include "cluster/watch/recall.h"
#include "cluster/worker/waiting_line.h"
#include "hw/cpu.h"
#include "net/fabric.h"

namespace weft::cluster {

inline constexpr int64_t kFirstEpoch = 1;
// Attempts to form one epoch; each attempt after the first follows another loss. More attempts
// follow for rejoin_ms after the first loss, since what a rank lacks (memory, processes, threads,
// descriptors) may be there again.
inline constexpr int kMostAttempts = 6;

std::string SystemHostName();
// Raises the soft limit of open descriptors to what a job of `ranks` ranks needs: for each rank, a
// control connection and two descriptors of a link. (If the system allows fewer, the call that
// needs one fails.)
void AllowDescriptors(int ranks);
// The window of each link (WindowBytesOf). local: all ranks are on one machine.
size_t WindowBytesFor(const LinkNeeds& links, int ranks, bool local = false);
// Splits "A,B,C"; "" is one empty word.
std::vector<std::string> DeviceWords(const std::string& devices);
// The device of one rank: `devices` names one for all ranks, or one for each. Errors: kUsage.
Result<std::string> RdmaDeviceOf(const std::string& devices, int rank, int size);
// Part `index` of `count` consecutive parts of `cores`. Fewer cores than parts: all of them.
std::vector<int> PartOfCores(std::span<const int> cores, size_t index, size_t count);
// A rank that this process started as its child (cluster.cc). Thread: main.
struct LocalRank {
    Fd control;
    Session session;
    pid_t pid = 0;
};
// cores: cores on which the rank may run.
Result<LocalRank> StartLocalRank(const ClusterOptions& options, std::span<const int> cores);

class ClusterImpl final : public Cluster {
  public:
    ClusterImpl(int rank, int size, std::string job, int64_t timeout_ms)
        : rank_(rank), size_(size), job_(std::move(job)), timeout_ms_(timeout_ms) {}
    // Rank 0: its launch options.
    void SetOptions(const ClusterOptions& options, Bytes key) {
        options_ = options;
        data_ = options.data;
        key_ = std::move(key);
    }
    // Rank 0: the hosts that --hosts or --cluster names, by rank; rank 0's entry has no address.
    void SetHosts(std::vector<NamedHost> hosts) {
        workers_ = hosts;
        known_hosts_ = std::move(hosts);
    }
    // host: the name of this host, if all processes of the job use the same name for it. root: the
    // name by which this process reached rank 0.
    void SetOwnHost(std::string host, std::string root, DataPortOptions data) {
        own_host_ = std::move(host);
        root_host_ = std::move(root);
        data_ = std::move(data);
    }
    void SetFolders(const FolderLimit& folders) { folders_ = folders; }
    void SetControl(std::unique_ptr<Control> control) { control_ = std::move(control); }
    ~ClusterImpl() override {
        // Stops the control thread before the data links end, so that peers do not mistake their
        // end for a loss.
        if (control_ != nullptr) control_->Stop();
    }

    void SetMpi(net::MpiLibrary* mpi) { mpi_ = mpi; }
    // Rank 0: the listener for workers, which exists as long as the job. If null, an elastic job
    // over named hosts dials the hosts that are not ranks.
    Status SetDialIn(std::unique_ptr<DialIn> dial_in);
    // Sets up a job of one rank, without connections.
    void BeAlone();
    // Every rank calls it when it has its assignment: exchanges HostInfo, connects data links, and
    // waits until all ranks are ready.
    Status Rendezvous(const AssignMessage& assignment);
    // Rank 0, after `error` of the first rendezvous: begins the job without one rank of each pair
    // that cannot reach each other (--elastic). Errors: `error`, if there is no such pair.
    Status BeginSmaller(Error error);

    // Rank 0, after the first rendezvous failed: adds the layouts for which the links suffice.
    Error WithLayouts(Error error) const;

    uint64_t ticket() const { return ticket_; }
    int rank() const override { return rank_; }
    int size() const override { return size_; }
    const std::string& job() const override { return job_; }
    const HostInfo& host(int rank) const override { return hosts_[static_cast<size_t>(rank)]; }
    const std::vector<int>& cores() const override { return cores_; }
    bool cores_shared() const override { return cores_shared_; }
    int64_t timeout_ms() const override { return timeout_ms_; }
    net::Fabric& fabric() override { return fabric_; }
    LinkTable links() const override { return links_; }
    net::PeerMonitor* monitor() override { return size_ == 1 ? nullptr : control_.get(); }
    void SetProgress(std::function<int64_t()> progress) override {
        if (control_ != nullptr) control_->SetProgress(std::move(progress));
    }
    void SetPhase(const char* phase) override {
        if (control_ != nullptr) control_->SetPhase(phase);
    }
    void SetLoaded(int thousandths) override {
        if (thousandths >= kAllLoaded) claims_.NoteLoaded();
        if (control_ != nullptr) {
            control_->SetLoaded(thousandths);
        } else if (options_.loaded != nullptr) {
            options_.loaded->store(thousandths);
        }
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
        return stop_requested_.load() || (options_.stop != nullptr && options_.stop->load());
    }
    bool recovers() const override { return recover_ms_ > 0; }
    Result<EpochInfo> NextEpoch(Error error, const Replan& replan) override;
    Membership Members() const override {
        if (control_ != nullptr) return control_->Members();
        return {.ranks = {Member{.host = hosts_[0].name, .since_s = began_s_}}};
    }
    void NoteAllReady() override;
    void SetJoinFingerprint(std::string terms) override;
    int PendingJoiners() const override;
    bool ValidateJoiners(int count, const std::string& job) override;
    void RejectJoiners(const std::string& why) override;
    Status Admit(int count) override;

  private:
    // Addresses of a rank.
    struct Place {
        std::string kernel;  // equal: same host and same network namespace
        std::vector<net::HostAddress> addresses;
        std::string seen_as;     // the address in AssignMessage, if `addresses` lacks it (NAT)
        bool forwarded = false;  // rank 0 reaches it through other workers (forwards.h)
    };
    Status Meet(const AssignMessage& assignment);
    Status GatherHosts(const std::vector<std::string>& names);
    std::vector<std::vector<net::Way>> WaysToMe() const;
    bool IsSeenElsewhere() const;
    std::string SeenAs() const;
    bool NeedsForward(size_t rank) const;
    bool Reaches(const Place& theirs) const;
    void Advertise(std::vector<std::vector<net::Way>>& ways) const;
    std::vector<bool> HiddenFrom() const;
    Status GatherLinks();
    Status CheckBothEnds(const std::string& one_ended) const;
    std::vector<net::LinkNeed> NeedsOfPeers() const;
    bool MayJoin(int a, int b) const;
    // Error text: rank `a` cannot reach rank `b` of this epoch; names the cable between them, if
    // known.
    std::string ApartText(int a, int b) const;
    Result<size_t> LargestOffer(size_t mine);
    Result<std::vector<std::string>> ExchangeOffers(net::FabricBuilder& builder,
                                                    const std::vector<net::LinkNeed>& needs);
    Status JoinLinks(const AssignMessage& assignment);
    void ShareCores();

    // One attempt (epoch.cc). kPeerLost: a rank was lost meanwhile, so another attempt may follow.
    struct Attempt {
        int number = 1;                     // number among the attempts that kMostAttempts limits
        bool again = false;                 // an attempt has failed
        bool apart = false;                 // no rank was lost since the failed attempt
        Deadline rejoin = Deadline::In(0);  // time for lost ranks to return in this attempt
        Deadline whole = Deadline::In(0);   // time for lost ranks to return in all attempts
        Deadline brief = Deadline::In(0);   // the same, if the job can continue without them
        std::string unreached{};            // ranks that cannot reach each other; "": all can
        std::string needed{};               // why the job can't continue without one of them; "":
                                            // it can
        Error cause{};                      // why the previous epoch ended
    };
    Status FormEpoch(const Replan& replan, Attempt& attempt, EpochInfo& info);
    void NapUnlessStopped(int64_t ms) const;
    Status AwaitEpoch();
    void CallBack(const std::vector<int>& lost, const Deadline& rejoin, bool needed);
    Deadline ReturnTime(std::vector<int>& lost, const Replan& replan, const Deadline& rejoin) const;
    void RecallAbsent();
    void CallBackHosts(const std::vector<int>& lost, const Deadline& rejoin);
    void CallBackHost(int rank, const Deadline& rejoin);
    std::vector<std::string> WaysToWorker(const NamedHost& host) const;
    void AwaitWorkers(std::vector<int> lost, const Deadline& rejoin, bool needed);
    JoinRequest JoinRequestFor(int size, const std::string& job) const;
    std::vector<std::string> ReachFrom(const std::string& host) const;
    Result<std::vector<int>> AwaitSurvivors();
    void DismissTrial(EpochInfo& info);
    NamedHost HostOf(const Arrival& arrival) const;
    void TakeInJoiners(EpochInfo& info);
    void DropSurplus(std::vector<int>& kept);
    void DropUnreached(const std::vector<int>& lost, const Replan& replan, Attempt& attempt,
                       EpochInfo& info);
    void AwaitLink(const std::string& words, bool told, Attempt& attempt) const;
    Status CheckRestPlans(const std::vector<int>& dropped, const Replan& replan) const;
    std::vector<int> Kept(const std::vector<int>& lost) const;
    bool Begin(const std::vector<int>& kept, const AssignMessage& next);
    Result<AssignMessage> PlanEpoch(const std::vector<int>& kept, const Replan& replan);
    Error NotLinked(const Attempt& attempt) const;
    std::string NamesOf(const std::vector<int>& ranks) const;
    Error NotBack(const std::string& why, const std::vector<int>& lost) const;

    int rank_;
    int size_;
    std::string job_;
    int64_t timeout_ms_;
    int64_t recover_ms_ = 0;               // as in AssignMessage
    ClusterOptions options_;               // rank 0
    const uint64_t ticket_ = NewTicket();  // rank 0: of its job, in the workers' lines
    Bytes key_;
    // Rank 0 of a job over named hosts: the hosts of the ranks, by rank, with their last addresses;
    // and all hosts that were ranks at some time.
    std::vector<NamedHost> workers_, known_hosts_;
    int64_t began_s_ = std::time(nullptr);
    std::string own_host_, root_host_;  // see SetOwnHost
    DataPortOptions data_;              // of this host
    AssignMessage assignment_;          // of this epoch
    std::vector<HostInfo> hosts_;
    std::map<std::string, uint64_t> memory_seen_;  // by host: HostInfo::memory_bytes
    std::map<std::string, std::vector<net::HostAddress>> addresses_seen_;  // by host, in all epochs
    std::vector<Place> places_;                                            // by rank
    // Read when the process started: the thread that forms later epochs may be pinned to one core.
    const std::vector<int> process_cores_ = AllowedCores();
    std::vector<int> cores_;
    bool cores_shared_ = false;
    std::atomic<bool> stop_requested_{false};
    net::MpiLibrary* mpi_ = nullptr;      // outlives the fabric
    std::unique_ptr<DialIn> dial_in_;     // null: no worker joins
    std::unique_ptr<HostRecall> recall_;  // null: rank 0 does not dial workers that may join
    std::string terms_;                   // rank 0: for epoch terms_epoch_
    int64_t terms_epoch_ = 0;
    std::vector<int> trial_;               // rank 0: new ranks of an epoch that is not ready yet
    std::vector<Arrival> trial_names_;     // names of these; Control has their connections
    std::vector<int> dismissed_;           // rank 0: ranks that the next epoch drops
    int calls_ = 0;                        // rank 0: how often it called lost ranks back since all
                                           // were ready
    int failures_ = 0;                     // epochs that ended since all ranks were ready
    std::optional<Deadline> returning_{};  // rank 0: time for lost ranks to return, since then
    std::unique_ptr<Control> control_;     // outlives the fabric, which queries it
    net::Fabric fabric_;
    std::vector<net::WireEnd> own_ends_;
    std::string off_data_net_;    // why this host has no address of --data-net; "": it has one
    std::vector<int> unreached_;  // peers that this rank could not dial in this epoch
    LinkTable links_;             // rank 0: of the last epoch with all links
};

}  // namespace weft::cluster
